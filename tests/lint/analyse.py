"""`make tidy`: clang-tidy on the product's files that changed, with the checks of .clang-tidy. A finding is an
error. Tests are left out: they run under ASan, and cmocka's macros are most of what clang-tidy would say.

    analyse.py [all | changed [FILES SECONDS]] -- COMPILER-FLAGS

changed: .c files that differ from origin/main; where HEAD is no further than origin/main, or origin/main
does not exist, those of the commits up to a day older than HEAD. What is not committed comes first, then the newest commits.
At most FILES of them are looked at, for SECONDS: the static analyzer takes seconds for a file, and a gate that
takes an hour is not run. The files that were left out are printed; `make tidy TIDY=all` has no bounds.
"""
import os
import pathlib
import subprocess
import sys
import threading
import time



def git(*words):
    r = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return r.stdout.split("\n") if r.returncode == 0 else []


def of_product(name):
    return name.endswith(".c") and not name.startswith("tests/")


def changed():
    """Newest first, each once."""
    base = git("merge-base", "HEAD", "origin/main")[:1]
    head = git("rev-parse", "HEAD")[:1]
    if base and base != head:
        commits = [f"{base[0]}..HEAD"]
    else:
        (made,) = git("log", "-1", "--format=%ct")[:1] or ["0"]
        commits = [f"--since={int(made) - 86400}", "HEAD"]
    names = git("diff", "--name-only", "HEAD") + git("log", "--format=", "--name-only", *commits)
    return [n for n in dict.fromkeys(names) if of_product(n) and pathlib.Path(n).is_file()]


def work(names, until, flags, said):
    """Takes files from `names`; `said` gets what clang-tidy prints for each, nothing if it is clean."""
    while names and (until is None or time.monotonic() < until):
        try:
            name = names.pop(0)
        except IndexError:
            return
        try:
            r = subprocess.run(["clang-tidy", "--quiet", "--warnings-as-errors=*", name, "--", *flags],
                               capture_output=True, text=True, check=False,
                               timeout=until and until - time.monotonic())
        except subprocess.TimeoutExpired:
            return
        said[name] = (r.stdout + r.stderr) if r.returncode else ""


def main():
    at = sys.argv.index("--")
    words, flags = sys.argv[1:at], sys.argv[at + 1:]
    whole = words[:1] == ["all"]
    names = sorted(n for n in git("ls-files", "*.c") if of_product(n)) if whole else changed()
    most, seconds = (len(names), None) if whole or len(words) < 3 else (int(words[1]), int(words[2]))
    began, left, said = time.monotonic(), names[:most], {}
    workers = [threading.Thread(target=work, args=(left, seconds and began + seconds, flags, said))
               for _ in range(os.cpu_count() or 1)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    bad = {name: text for name, text in said.items() if text}
    for text in bad.values():
        print(text, end="")
    print(f"clang-tidy: {len(said)} of {len(names)} files looked at in {time.monotonic() - began:.0f} s, "
          f"{len(bad)} with findings")
    out = [n for n in names if n not in said]
    if out:
        print(f"not looked at (make tidy TIDY=all): {' '.join(out[:20])}{' ...' if len(out) > 20 else ''}")
    sys.exit(bool(bad))


main()
