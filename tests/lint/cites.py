"""Every citation of a text has a target.

A citation of proto/WIRE.md or proto/FORMATS.md with a heading in quotes names a heading of that
page; so does `see "Heading"` on these pages themselves. "section 4.2" stands beside a document in
the same sentence: an RFC, a draft or another published specification, or a Markdown file of this
tree that has a heading with that number. The check reads comments of C, strings and comments of
Python, and all other text.

`cites.py --self-test` shows that bad citations are refused, and good ones are not.
"""
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

PAGES = {"WIRE.md": "proto/WIRE.md", "FORMATS.md": "proto/FORMATS.md"}
QUOTED = r'"([^"]+)"'
CITE = re.compile(r"\b(WIRE|FORMATS)\.md\b`?((?:(?:,| and| to|;)*\s*" + QUOTED + ")+)")
OWN = re.compile(r"\bsee " + QUOTED)
NUMBER = r"\d+(?:\.\d+)*"
SECTION = re.compile(rf"(?:\bsections?\s+|§+\s*)"
                     rf"({NUMBER}(?:(?:\s*,\s*|\s+(?:and|to)\s+){NUMBER})*)")
LOST = re.compile(r"\bwire\s+facts\b", re.I)
HINT = re.compile(r"section|§|wire\s+facts|WIRE\.md|FORMATS\.md", re.I)
PUBLISHED = re.compile(r"\bRFC\s?\d+|\bdraft-[a-z]+-\w|\bDWARF\s\d|\bPOSIX\b|\bLSB\b|\bUnicode\b"
                       r"|\bOTLP specification\b|\bConnect protocol\b|\bArrow columnar format\b")
C_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''  # not comments
                     r"|/\*.*?\*/|(?://[^\n]*\n?\s*)+", re.S)
DOCUMENT = re.compile(r"\b([\w./-]*\w\.md)\b")
SENTENCE = re.compile(r"(?<=[.!?])[)\"'`]*\s+(?=[A-Z`(\"§])")
SKIPPED = ("tests/golden/", "tests/fuzz/seeds/", "LICENSE")
BINARY = {".png", ".gz", ".pb", ".jfr", ".sst", ".ico", ".req", ".svg"}


def headings(text):
    return [m[1].strip() for m in re.finditer(r"^#+ (.+)$", text, re.M)]


def c_comments(text):
    """(line, comment) of each; // comments on neighbouring lines are one."""
    found = []
    for m in C_TOKEN.finditer(text):
        if m[0].startswith("/"):
            plain = re.sub(r"^\s*(?://|/?\*+(?!/))|\*/$", "", m[0], flags=re.M)
            found.append((text.count("\n", 0, m.start()) + 1, plain))
    return found


def python_texts(text):
    found = []
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT:
            plain = t.string.lstrip("#")
            if found and found[-1][2] == t.start[0] - 1:
                found[-1] = (found[-1][0], found[-1][1] + "\n" + plain, t.start[0])
            else:
                found.append((t.start[0], plain, t.start[0]))
        elif t.type == tokenize.STRING:
            try:
                value = ast.literal_eval(t.string)
            except (ValueError, SyntaxError):
                continue
            if isinstance(value, str):
                found.append((t.start[0], value, -1))
    return [(line, plain) for line, plain, _ in found]


def paragraphs(text):
    """Of Markdown and the rest: blank lines, rows of tables and items of lists divide."""
    found, begin = [], True
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            begin = True
            continue
        if begin or re.match(r"\s*(\||[-*] |\d+\. |#)", line):
            found.append((number, line))
        else:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line)
        begin = False
    return found


def texts(name, text):
    suffix = pathlib.PurePath(name).suffix
    if suffix in {".c", ".h", ".cc", ".js", ".css", ".proto", ".go", ".java"}:
        return c_comments(text)
    return python_texts(text) if suffix == ".py" else paragraphs(text)


class Tree:
    """The texts of a tree by name: that of git, or one made up by the self-test."""

    def __init__(self, files):
        self.files = files  # name -> text

    def find(self, name, document):
        """A document as it is named in a file: from the top, beside it, or alone of its name."""
        beside = (pathlib.PurePath(name).parent / document).as_posix()
        ends = [n for n in self.files if n == document or n.endswith("/" + document)]
        for n in (document, beside, ends[0] if len(ends) == 1 else None):
            if n in self.files:
                return n
        return None

    def has_section(self, document, number):
        return any(re.match(re.escape(number) + r"(?![\d.]*\d)[ .:)]", h)
                   for h in headings(self.files[document]))

    def check_section(self, name, sentence, number):
        if PUBLISHED.search(sentence):
            return None
        named = [self.find(name, d) for d in DOCUMENT.findall(sentence)]
        named = [d for d in named if d]
        if not named and name.endswith(".md"):
            named = [name]  # of itself
        for document in named:
            if self.has_section(document, number):
                return None
        if not named:
            return f'"section {number}" of what? Name the RFC or page in this sentence'
        return f"{named[0]} has no section {number}"

    def check_text(self, name, line, text, say):
        begin = 0
        for end in [m.start() for m in SENTENCE.finditer(text)] + [len(text)]:
            sentence = text[begin:end]
            for m in LOST.finditer(sentence):
                say(name, line + text.count("\n", 0, begin + m.start()),
                    '"wire facts" are not in the tree: cite proto/WIRE.md, "Heading"')
            for m in SECTION.finditer(sentence):
                at = line + text.count("\n", 0, begin + m.start())
                for number in re.findall(NUMBER, m[1]):
                    fault = self.check_section(name, " ".join(sentence.split()), number)
                    if fault:
                        say(name, at, fault)
            begin = end
        whole = " ".join(text.split())
        for m in CITE.finditer(whole):
            page = PAGES[m[1] + ".md"]
            known = headings(self.files.get(page, ""))
            for heading in re.findall(QUOTED, m[2]):
                if heading not in known:
                    say(name, line, f'{page} has no heading "{heading}"')
        if name in PAGES.values():
            for heading in OWN.findall(whole):
                if heading not in headings(self.files[name]):
                    say(name, line, f'has no heading "{heading}"')

    def check(self, say):
        for page in PAGES.values():
            names = headings(self.files.get(page, ""))
            for heading in sorted({h for h in names if names.count(h) > 1}):
                say(page, 1, f'has the heading "{heading}" twice: a citation of it is ambiguous')
        for name, text in sorted(self.files.items()):
            if name not in PAGES.values() and not HINT.search(text):
                continue
            for line, part in texts(name, text):
                self.check_text(name, line, part, say)


def check(say):
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
    files = {}
    for name in listed.stdout.split("\n"):
        path = pathlib.Path(name)
        if (not name or name.startswith(SKIPPED) or path.suffix in BINARY or not path.is_file()
                or name == "tests/lint/cites.py"):  # which has the bad ones of its self-test
            continue
        files[name] = path.read_text(errors="replace")
    Tree(files).check(say)


def self_test():
    page = "# Wire protocols\n\n## Tenant header\n\n## 2. Codes\n"
    rest = {"proto/WIRE.md": page, "proto/FORMATS.md": "## Trie\n",
            "common/store/TREE.md": "## 3. Levels\n\n### 3.1 Nodes\n\nSection 3 says so.\n"}
    good = {
        "a.c": '/* As proto/WIRE.md, "Tenant header", has it. */\n',
        "b.c": '/* Both: proto/WIRE.md, "Tenant\n * header"; proto/FORMATS.md, "Trie". */\n',
        "c.c": 'const char *s = "section 9";\n',
        "d.c": "/* HTTP/2 (RFC 9113, section 8.1) ends here. */\n",
        "e.c": "// TREE.md, sections 3 and 3.1.\n",
        "f.c": "/* TREE.md, section 3.1. */\n",
        "g.c": "/* DWARF 4, section 6.4 */\n",
        "h.py": '"""Codes: proto/WIRE.md, "2. Codes"."""\n# RFC 2046, section 5.1\n',
        "common/store/README.md": "How: TREE.md, section 3.\n",
        "i.c": "/* [section http] of the configuration; proto/WIRE.md as a whole. */\n",
    }
    bad = {
        "a.c": '/* proto/WIRE.md, "Tenant headers" */\n',
        "b.c": '/* proto/WIRE.md, "Tenant header", "Trie" */\n',
        "c.c": "/* The order of wire facts 10.4. */\n",
        "d.c": "/* A rule of\n * section 9. */\n",
        "e.c": "/* RFC 9113 is right. Section 9 differs; section 9 says so. */\n",
        "f.c": "// TREE.md, sections 3, 3.1 and 4.\n",
        "g.h": "/* see §4.2 */\n",
        "h.py": '"""The checks of section 12."""\n',
        "i.py": "# By the facts\n# of section 12.\n",
        "j.md": "Text.\n\n| a | section 7 |\n",
        "k.proto": "// Sections 1 to 3: section 2.\nmessage M {}\n",
        "l.py": '"""proto/FORMATS.md, "Trees"."""\n',
        "m.md": 'The page: `proto/WIRE.md`, "Tenant header" to\n"Codes".\n',
        "proto/WIRE.md": page + "\n## Tenant header\n",
        "proto/FORMATS.md": '## Trie\n\nA node, see "Tree".\n',
    }
    failed = []
    for name, text in good.items():
        found = []
        Tree(rest | {name: text}).check(lambda *f, to=found: to.append(f))
        failed += [f"self-test: {name} is refused: {f[2]}" for f in found]
    for name, text in bad.items():
        found = []
        Tree(rest | {name: text}).check(lambda *f, to=found: to.append(f))
        if not any(f[0] == name for f in found):
            failed.append(f"self-test: {name} is not refused: {text!r}")
    return failed


def main():
    found = self_test()
    if "--self-test" not in sys.argv[1:]:
        check(lambda name, line, text: found.append(f"{name}:{line}: {text}"))
    if found:
        print(*found, sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
