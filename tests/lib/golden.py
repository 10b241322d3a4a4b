"""The third-party test data beside the repository: where it is, what is expected of it.

Nothing of it is ever copied here. Where ../shared is missing, tests that need it say so in a line
that starts with "SKIPPED:" and continue.
"""
import functools
import gzip
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "testdata"


def available():
    return (DATA / "MANIFEST.tsv").is_file()


def skip_line(what):
    return f"SKIPPED: {what}: no test data at {DATA}"


def manifest(*formats):
    """Rows of MANIFEST.tsv of these formats: dicts by column name."""
    lines = (DATA / "MANIFEST.tsv").read_text().splitlines()
    names = lines[0].split("\t")
    rows = [dict(zip(names, line.split("\t"))) for line in lines[1:]]
    return [row for row in rows if row["format"] in formats]


def expected(path):
    """The independently computed numbers of one file, or None."""
    file = DATA / "expected" / (path.replace("/", "__") + ".json")
    return json.loads(file.read_text()) if file.is_file() else None


def verdicts():
    """file -> (format, verdict, what it is), of testdata/corrupt."""
    lines = (DATA / "corrupt" / "VERDICTS.tsv").read_text().splitlines()[1:]
    return {line.split("\t")[0]: tuple(line.split("\t")[1:4]) for line in lines}


def read(path):
    return (DATA / path).read_bytes()


def plain(body):
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


@functools.cache  # most names of a file are in many of its stacks
def normalized(name):
    """An independent copy of the server's rule table (distributor/formats/normalize.c, version 2):
    the tests apply it to the expected names."""
    while "[go.shape." in name:
        start = name.index("[go.shape.")
        depth = 0
        for end in range(start, len(name)):
            depth += (name[end] == "[") - (name[end] == "]")
            if depth == 0:
                break
        if depth:
            break
        name = name[:start] + name[end + 1:]
    name = re.sub(r"(\$\$Lambda)(?:\$\d+)?(?:[/.+](?:0x[0-9a-f]+|\d+))?(?!_)", r"\1_", name)
    name = re.sub(r"(\$\w*)[/.+]0x[0-9a-f]+", r"\1_", name)
    if "$" in name:
        name = re.sub(r"(jdk[./]proxy)\d+", r"\1", name)
    name = re.sub(r"(.)::h[0-9a-f]{16}$", r"\1", name)
    name = re.sub(r"(^|[/\[])perf-\d+(\.map\]?)$", r"\1perf-_\2", name)
    name = re.sub(r"(\$Proxy)\d+", r"\1", name)
    name = re.sub(r"(CGLIB)\$\$[0-9a-f]+", r"\1", name)
    name = re.sub(r"(Generated(?:Method|Constructor|SerializationConstructor)Accessor)\d+", r"\1_",
                  name)
    return re.sub(r"((?:^|/)lib(?:zstd-jni|lz4-java|snappyjava|asyncProfiler"
                  r"|amazonCorrettoCryptoProvider))[^/]*?(\.so)", r"\1_\2", name)


def best(pairs, count=5):
    """(name, value) pairs added up by normalised name; the largest, ties in byte order."""
    sums = {}
    for name, value in pairs:
        name = normalized(name)
        sums[name] = sums.get(name, 0) + value
    rows = [(name, value) for name, value in sums.items() if value]
    return sorted(rows, key=lambda row: (-row[1], row[0].encode()))[:count]
