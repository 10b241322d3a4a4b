"""Refused phrases: comments, string literals and Markdown are written in plain words.

Most readers do not speak English as their first language; they should understand a sentence at the
first reading. PHRASES are the habits that made sentences hard to read, each with what to write
instead. tests/lint/words.txt counts, per file, those that are still there. A count may only fall:
more is a finding, and so is less, with the advice to run

    python3 tests/lint/words.py --update       lowers the counts; never raises one
    python3 tests/lint/words.py FILE..         shows what is refused in these files

--update moves the count of a renamed file with it (as git follows it), and writes all counts where
words.txt does not exist. A phrase is searched for in a whole comment, literal or paragraph, so a
line break does not hide it. Names are left out, since keys of JSON and tenants in tests keep theirs:
a literal of one word, and a quoted word before a colon.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

COUNTS = pathlib.Path("tests/lint/words.txt")
HEADER = ("# Refused phrases that are left in each file (tests/lint/words.py). May only fall:\n"
          "# python3 tests/lint/words.py --update\n")
SUFFIXES = {".c", ".h", ".cc", ".py", ".proto", ".md"}
LEFT_OUT = ("tests/golden/", "tests/fuzz/seeds/", "tests/lint/words.py")
ACTOR = "name the actor: the reader, the leader, the caller"
PHRASES = [
    (r"\banew\b", "again, from the start, reopened"),
    (r"\b(of|from) before\b", "previous, old, stale"),
    (r"\bthat one\b", "repeat the noun"),
    (r"\bone that\b", "repeat the noun"),
    (r"\bwho(ever)? (reads|leads|asks|has|is|may|must|writes|knows|sends|comes|goes|waits|takes"
     r"|differs|calls|sees|lives|tells)\b", ACTOR),
    (r"(^|[.:;] |\| )who(ever)? [a-z]+s?\b", ACTOR),
    (r"\bwhat (is|was|has|stands|goes|came|comes|went) (there|here|left|gone|told|due|known|kept)\b",
     "write the noun: rows, settings, the rest"),
    (r"\b(he|his|him|himself)\b", "it, its: threads and nodes are no persons"),
    (r"\b(some|no|every|any)body\b", "name the actor, or use the passive voice"),
    (r"\b(is|was|are|were) told\b", "is reported, is sent, gets"),
    (r"\b(hears?|heard) (of|that|from)\b", "receives, knows"),
    (r"\bgo(es)? on\b", "continues"),
    (r"\bgiv(e|es|en) up\b", "cancels, releases, ends with ERR_TIMEOUT"),
    (r"\bfor ever\b", "permanently, or the bound"),
    (r"\bsoon is soon enough\b", "say the bound"),
    (r"\bas (ever|it was|they are|they were)\b", "unchanged"),
    (r"\bthe (latter|former)\b", "repeat the noun"),
    (r"\bof (ours|theirs)\b", "say which: our own, the peer's"),
    (r"\b(is|was|are) none\b", "is not found, does not exist, is not a"),
    (r"\bto and fro\b", "back and forth"),
    (r"\bnow and then\b", "say how often"),
    (r"\bfar away\b", "remote, cold"),
    (r"\bstrangers?\b", "unauthenticated peer, client"),
    (r"\bin company\b", "together, concurrent"),
    (r"\ball the same\b", "still, nevertheless"),
    (r"\bby way of\b", "through, by"),
    (r"\bis past\b", "has passed, is older than"),
    (r"\bhas (its|his|their) word\b", "say what was promised, and where it is kept"),
    (r"\bstands there twice\b", "is written twice"),
    (r"\bis no (number|message|profile|node|database)\b", "is not a"),
]
ANY = re.compile("|".join(f"(?:{p})" for p, _ in PHRASES), re.I)
LOOSE = re.compile(ANY.pattern.replace(r"(^|[.:;] |\| )who", r"\bwho"), re.I)
EACH = [(re.compile(p, re.I), advice) for p, advice in PHRASES]
NAME = re.compile(r'"[^"\s]*"|\'[^\'\s]*\'')  # a literal of one word
KEY = re.compile(r'\\?"\w+\\?"(?=\s*:)')  # of JSON, in a text
QUESTION = re.compile(r"[^.?!]*\?")  # a sentence that begins with "Who" may be a question

C_TOKEN = re.compile(r'(?P<block>/\*.*?\*/)|(?P<line>//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*")'
                     r"|'(?:\\.|[^'\\\n])*'", re.S)
PY_TOKEN = re.compile(r'(?P<line>\#[^\n]*)|(?P<block>"""(?:\\.|.)*?"""|\'\'\'(?:\\.|.)*?\'\'\')'
                      r'|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)
JOINS = {"line": re.compile(r"[ \t]*\n[ \t]*"),  # neighbours are one text
         "text": re.compile(r"\s*(?:PRI\w+\s*)?\\?\s*")}


def tokens(text, pattern):
    """[(offset, text)] per comment or literal; comments of one line and literals in a row joined."""
    units, kind, end = [], None, 0
    for m in pattern.finditer(text):
        if not m.lastgroup:
            continue
        part = (m.start(), m[0])
        if m.lastgroup == kind and kind in JOINS and JOINS[kind].fullmatch(text[end:m.start()]):
            units[-1].append(part)
        else:
            units.append([part])
        kind, end = m.lastgroup, m.end()
    return units


def paragraphs(text):
    """The same of Markdown: a paragraph, list item, table row, heading or line of a drawing."""
    units, fenced, at = [], False, 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        fence = bare.startswith("```")
        alone = fenced or not bare or bare[0] in "|#" or fence
        if bare and not fence:
            shown = re.sub(r"`[^`]*`", lambda m: "X" * len(m[0]), line) if not fenced else line
            if alone or not units or not units[-1] or re.match(r"\s*([-*]|\d+\.) ", line):
                units.append([])
            units[-1].append((at, shown))
        if alone:
            units.append([])
        fenced ^= fence
        at += len(line)
    return [u for u in units if u]


def units_of(name, text):
    if name.endswith(".md"):
        return paragraphs(text)
    return tokens(text, PY_TOKEN if name.endswith(".py") else C_TOKEN)


def plain(unit):
    """The words of a unit with single blanks, and for each character its offset in the file."""
    words, at = [], []
    for start, part in unit:
        part = re.sub(r"\\[nt]", "  ", part)
        for m in re.finditer(r"\S+", part):
            word = m[0].strip('"\'') if m.start() == 0 or m.end() == len(part) else m[0]
            if not word or re.fullmatch(r"/\*+|\*+/?|//+|\#+|[-=]{3,}", word):
                continue
            shift = m[0].find(word)
            if words:
                words.append(" ")
                at.append(start + m.start())
            words.append(word)
            at += range(start + m.start() + shift, start + m.start() + shift + len(word))
    return "".join(words), at


def hits(name, text):
    """[(line, phrase, advice)] of a file."""
    found = []
    for unit in units_of(name, text):
        if NAME.fullmatch("".join(p for _, p in unit)):
            continue
        unit = [(at, KEY.sub(lambda m: "X" * len(m[0]), part)) for at, part in unit]
        # Most texts have none: seen at a tenth of the cost of knowing where each word is.
        if not LOOSE.search(re.sub(r'(?:[\s"*/\#]|\\[nt])+', " ", " ".join(p for _, p in unit))):
            continue
        words, at = plain(unit)
        seen = set()
        for m in ANY.finditer(words):
            phrase = m[0].strip(" .:;|")
            if phrase.lower().startswith("who") and QUESTION.match(words, m.end()):
                continue
            if m.start() in seen:
                continue
            seen.add(m.start())
            advice = next(a for p, a in EACH if p.match(words, m.start()))
            offset = at[m.start() + m[0].find(phrase)]
            found.append((text.count("\n", 0, offset) + 1, phrase, advice))
    return found


def tree():
    """{file: its hits}, of files with any."""
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout
    found = {}
    for name in names.split("\n"):
        path = pathlib.Path(name)
        if path.suffix in SUFFIXES and not name.startswith(LEFT_OUT) and path.is_file():
            there = hits(name, path.read_text(errors="replace"))
            if there:
                found[name] = there
    return found


def read_counts(path=COUNTS):
    if not path.exists():
        return None
    rows = [l.split(" ", 1) for l in path.read_text().splitlines() if l and l[0] != "#"]
    return {name: int(n) for n, name in rows}


def judge(found, counts, say):
    """Compares what is there with what is allowed."""
    for name in sorted(found.keys() | counts.keys()):
        there, allowed = found.get(name, []), counts.get(name, 0)
        if len(there) > allowed:
            for line, phrase, advice in there:
                say(name, line, f'refused phrase "{phrase}": {advice} ({len(there)} in this file, '
                                f"{allowed} in tests/lint/words.txt; see --help of words.py)")
        elif len(there) < allowed:
            say(COUNTS, 1, f"allows {allowed} refused phrases in {name}, {len(there)} are left: "
                           "python3 tests/lint/words.py --update")


def check(say):
    judge(tree(), read_counts() or {}, say)


def former_names(name):
    """Earlier paths of a file: of the index against HEAD, then of its history."""
    moves = subprocess.run(["git", "diff", "-M", "--name-status", "HEAD"], capture_output=True,
                           text=True).stdout.splitlines()
    names = [row.split("\t")[1] for row in moves if row[:1] == "R" and row.split("\t")[2] == name]
    for start in [*names, name]:
        log = subprocess.run(["git", "log", "--follow", "--format=", "--name-only", "--", start],
                             capture_output=True, text=True).stdout.split("\n")
        names += filter(None, log)
    return names


def lowered(found, counts, former=former_names):
    """The counts after an update: none is higher than before, that of a moved file goes with it."""
    after = {}
    for name, there in found.items():
        allowed = counts.get(name)
        if allowed is None:
            old = next((f for f in former(name) if f in counts and f not in found), None)
            allowed = counts.get(old, 0)
        if min(allowed, len(there)):
            after[name] = min(allowed, len(there))
    return after


def write_counts(counts, path=COUNTS):
    path.write_text(HEADER + "".join(f"{counts[n]} {n}\n" for n in sorted(counts)))


def update():
    found, counts = tree(), read_counts()
    if counts is None:
        counts = {name: len(there) for name, there in found.items()}
    after = lowered(found, counts)
    write_counts(after)
    said = []
    judge(found, after, lambda *f: said.append("%s:%s: %s" % f))
    print(f"{sum(after.values())} refused phrases in {len(after)} files")
    return said


def self_test():
    good = {
        "a.c": '/* The reader waits. */\nint anew, nobody;\n#define THAT_ONE one_that\n',
        "b.c": '/* Who leads? */\nchar c = \'"\';\nint nobody; /* a field */\n',
        "c.md": "Use `nobody` as `anew`.\n\n```\na --> b\n```\n",
        "d.py": 'nobody = 1\n"""Says that it continues."""\n',
        "e.proto": "message Nobody { bytes anew = 1; } // rows of a part\n",
        "f.c": "/* The number is not known; a thread continues. */\n",
        "g.c": '/* {"stranger":true} */\nput(j, "stranger", "{\\"nobody\\": 1}");\n',
    }
    bad = {  # text, and the line of each phrase
        "a.c": ('/* It is made\n * anew. */\n', [2]),
        "b.c": ("/* The thread goes\n * on. */\n", [1]),
        "c.c": ('err_set(e, 1, "a node that is "\n        "given " "up at once");\n', [2]),
        "d.c": ("// Rows from\n// before.\n", [1]),
        "e.c": ("/* Who sleeps wakes up. */\n/* All of it: who ends it frees it. */\n", [1, 2]),
        "f.c": ('printf("%" PRIu64 " rows of "\n       "before\\n", n);\n', [1]),
        "g.md": ("# Who leads\n\n| who asks | gets it |\n\n- one\n  that is\n", [1, 3, 5]),
        "h.md": ("```\nA ── who sends ──> B\n```\nText.\n", [2]),
        "i.py": ('"""What it does.\n\nIt waits for ever.\n"""\n# He says\nx = "nobody asks"\n',
                 [3, 5, 6]),
        "j.proto": ("message A {\n  bytes b = 1; // what is left of it\n}\n", [2]),
        "k.h": ("/* The former is\n * none of ours. */\n", [1, 1, 2]),
    }
    failed = [f"self-test: {n} is refused: {hits(n, t)}" for n, t in good.items() if hits(n, t)]
    for name, (text, lines) in bad.items():
        if [h[0] for h in hits(name, text)] != lines:
            failed.append(f"self-test: {name} has {hits(name, text)}, not lines {lines}")
    one = [(1, "anew", "again")]
    judged = collections.Counter()
    judge({"more.c": one * 3, "same.c": one, "new.c": one}, {"more.c": 2, "same.c": 1, "gone.c": 1},
          lambda name, line, text: judged.update([str(name)]))
    if judged != {"more.c": 3, "new.c": 1, str(COUNTS): 1}:
        failed.append(f"self-test: judged {judged}")
    after = lowered({"more.c": one * 3, "less.c": one, "to.c": one * 4, "new.c": one},
                    {"more.c": 2, "less.c": 5, "from.c": 3, "gone.c": 1},
                    lambda name: ["from.c"] if name == "to.c" else [])
    if after != {"more.c": 2, "less.c": 1, "to.c": 3}:
        failed.append(f"self-test: lowered to {after}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "words.txt"
        if read_counts(path) is not None:
            failed.append("self-test: counts without a file")
        write_counts(after, path)
        if read_counts(path) != after:
            failed.append("self-test: counts are not read as written")
    return failed


def main():
    found, args = [], sys.argv[1:]
    if args == ["--self-test"]:
        found = self_test()
    elif args == ["--update"]:
        found = update()
    elif args and args[0][0] != "-":
        for name in args:
            found += [f'{name}:{line}: refused phrase "{phrase}": {advice}' for line, phrase, advice
                      in hits(name, pathlib.Path(name).read_text(errors="replace"))]
    elif args:
        sys.exit(__doc__)
    else:
        check(lambda name, line, text: found.append(f"{name}:{line}: {text}"))
    if found:
        print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
