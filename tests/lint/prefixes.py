"""Functions that a header declares begin with one word (common/STYLE.md A3), so that a call tells its module.

Headers that declare several kinds of things are listed in prefixes.txt as `COUNT PATH`; the list may only shrink.
`python3 tests/lint/prefixes.py --update` lowers it. Private headers (x_impl.h) gather what a folder shares and are free.
"""
import pathlib
import re
import subprocess
import sys

ALLOWED = pathlib.Path("tests/lint/prefixes.txt")
DECLARED = re.compile(r"^(?!static\b|typedef\b|extern\b)[A-Za-z_][\w \t*]*?\b([a-z]\w*)\((?!\*)", re.M)


def words_of(path):
    """First words of the functions that a header declares."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    text = re.sub(r"^#(?:.*\\\n)*.*$", "", text, flags=re.M)
    return {name.split("_")[0] for name in DECLARED.findall(text)}


def allowed():
    return {p: int(n) for n, p in (line.split() for line in ALLOWED.read_text().splitlines() if line)}


def found(files):
    for path in files:
        if path.suffix == ".h" and path.parts[0] != "tests" and not path.stem.endswith("_impl"):
            words = words_of(path)
            if len(words) > 1:
                yield path, words


def tracked():
    names = subprocess.run(["git", "ls-files", "*.h"], capture_output=True, text=True).stdout.split()
    return [p for p in map(pathlib.Path, names) if p.is_file()]


def check(say):
    left = allowed()
    for path, words in found(tracked()):
        if len(words) > left.pop(str(path), 1):
            say(path, 1, f"declares functions of several modules ({', '.join(sorted(words))}): begin their names with one "
                         "word, or make a header for each")
    for path in left:
        say(ALLOWED, 1, f"{path} has one prefix now, or is gone: take its line out (python3 tests/lint/prefixes.py --update)")


def update():
    old = allowed() if ALLOWED.exists() else {}
    now = {str(p): len(w) for p, w in found(tracked())}
    ALLOWED.write_text("".join(f"{min(n, old.get(p, n))} {p}\n" for p, n in sorted(now.items()) if not old or p in old))


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    update()
