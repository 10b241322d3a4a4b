"""Matchers of questions to ingesters are packed in one place of the querier, which joins what the identity may see
(querier/ask/scoped.h). A second place could leave that out, and would compile."""
import pathlib
import re

PACKER = pathlib.Path("querier/ask/scoped.c")
HEADER = pathlib.Path("querier/ask/scoped.h")
MAKES = re.compile(r"embertree__matcher__init|EMBERTREE__MATCHER__INIT|\bEmbertree__Matcher\b")


def check(say):
    for path in sorted(pathlib.Path("querier").rglob("*.[ch]")):
        if path in (PACKER, HEADER):
            continue
        for at, line in enumerate(path.read_text().splitlines(), 1):
            if MAKES.search(line):
                say(path, at, f"makes a Matcher: take a struct scoped_matchers and its pack function ({HEADER})")
