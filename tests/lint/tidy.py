"""House rules no compiler checks: `make lint`. One line per finding; exit 1 if there is any.

Rules: include directions (common/STYLE.md, common/README.md), libraries confined to one file,
banned functions, sizes of files, functions and lines (of pages, too), include guards, every source file named in
the README map of its folder, no writable globals in role code, nothing in the tree that belongs to
one machine or one registry, the order of folders in a room (rooms.py), one prefix a header (prefixes.py),
numbers of methods and layouts that agree (wire.py), matchers made in one place (scope.py), citations that
have a target (cites.py), one version (release.py), plain words (words.py).
"""
import pathlib
import re
import subprocess
import sys

import cites
import prefixes
import release
import rooms
import scope
import wire
import words

ROLES = ["distributor", "ingester", "querier", "compactor"]
MAY_INCLUDE = {r: {r, "common", "proto"} for r in ROLES}
MAY_INCLUDE |= {"common": {"common", "proto"}, "deploy": {*ROLES, "common", "deploy"}}
LAYERS = ["base", "sys", "obs", "conf", "model", "render", "net", "object", "rpc",  # may look left
          "store", "cold", "cluster", "repl", "identity", "role"]
APART = {("store", "net"), ("store", "rpc")}  # left of it, and still forbidden
CONFINED = {  # a library's header -> the only places that may include it
    "rocksdb/": r"common/store/(kv/)?kv_rocks\w*\.[ch]",
    "nanomsg/": r"(?!)",  # tests only: neighbours of former versions
    "openssl/": r"common/(net|rpc|object)/",
    "yaml.h": r"common/conf/conf_(yaml|tree)\.c",
    "curl/": r"common/net/(client/)?http_(client|multi)\.c",
    "jansson.h": r"common/net/json_in\.c",
    "zstd.h": r"common/base/(compress/)?compress\.c",
    "zlib.h": r"common/base/(compress/)?compress_gzip\.c",
    "lz4": r"common/base/(compress/)?compress_lz4\.c",
    "libdeflate.h": r"common/base/(compress/)?compress\.c",
    "xxhash.h": r"common/base/hash\.c",
    "pcre2.h": r"common/model/regex\.c",
    "llhttp": r"common/net/",
    "roaring/": r"common/store/",
    "uv.h": r"common/(sys|net|rpc)/",
    "protobuf-c/": r"(common/(rpc|base|model)|ingester|distributor|querier|compactor)/",
}
BANNED = re.compile(r"\b(strcpy|strcat|strncpy|sprintf|vsprintf|strtok|atoi|atof|gets|alloca)\s*\(")
PTHREAD = re.compile(r"\bpthread_\w+\s*[(;]|\bpthread_\w+_t\b")
PTHREAD_PLACES = re.compile(r"common/sys/|common/obs/unwind\.c|tests/")  # STYLE.md, A9
BUILTIN = re.compile(r"\b__(atomic|sync)_\w+\s*\(")
EXTENSION = re.compile(
    r"__attribute__|__extension__|\b__?typeof__?\b|__builtin_(?!ctz|clz|popcount|bswap)")
EXTENSION_PLACES = re.compile(r"common/base/|tests/")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
REGISTRY = re.compile(
    r"https?://[a-z0-9.-]*(npm|pypi|pythonhosted|debian|golang|maven|crates)[a-z0-9.-]*/")
LINES_MAX, FUNCTION_MAX, COLUMNS_MAX = 700, 70, 100
findings = []
COPIES = ("deploy/config/alerts.yaml", "deploy/helm/embertree/files/alerts.yaml")


def say(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def check_include(path, line, angle, target):
    top = path.parts[0]
    if angle:
        for header, place in CONFINED.items():
            if target.startswith(header) and top != "tests" and not re.match(place, str(path)):
                say(path, line, f"<{target}> may only be included by {place}")
        return
    to = target.split("/")
    if top == "tests" or len(to) == 1:
        return
    layer = path.parts[1] if top == "common" else None
    if to[0] not in MAY_INCLUDE.get(top, set()):
        say(path, line, f"{top}/ may not include {to[0]}/")
    elif layer in LAYERS and to[0] == "common":
        if to[1] not in LAYERS:
            say(path, line, f"common/{to[1]} is not one of the layers")
        elif LAYERS.index(to[1]) > LAYERS.index(layer) or (layer, to[1]) in APART:
            say(path, line, f"common/{layer} may not look at common/{to[1]}")


def check_file(path):
    lines = path.read_text().splitlines()
    start = None
    if len(lines) > LINES_MAX:
        say(path, len(lines), f"file over {LINES_MAX} lines: split it")
    if not lines or not lines[0].startswith("/* SPDX-License-Identifier: Apache-2.0"):
        say(path, 1, "first line is not the SPDX line")
    for number, line in enumerate(lines, 1):
        include = re.match(r'#include ([<"])([^>"]+)', line)
        if include:
            check_include(path, number, include[1] == "<", include[2])
        if len(line.expandtabs(8)) > COLUMNS_MAX:
            say(path, number, f"line over {COLUMNS_MAX} columns")
        if BANNED.search(line):
            say(path, number, "banned function, see common/STYLE.md")
        if PTHREAD.search(line) and not PTHREAD_PLACES.match(str(path)):
            say(path, number, "pthread outside of common/sys: struct thread, mutex, cond")
        if EXTENSION.search(line) and not EXTENSION_PLACES.match(str(path)):
            say(path, number, "a compiler's extension outside of common/base")
        if BUILTIN.search(line) and path.parts[0] != "tests":
            say(path, number, "a compiler's atomics: C11 has its own")
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start + 1 > FUNCTION_MAX:
                say(path, start, f"function over {FUNCTION_MAX} lines")
            start = None
    if path.suffix == ".h":
        guard = re.sub(r"[/.-]", "_", str(path)).upper()
        if not any(l.strip() == f"#ifndef {guard}" for l in lines):
            say(path, 1, f"include guard is not {guard}")


def check_map(folder):
    """Every source file is named in the README of its folder or of one above: maps cannot go stale."""
    maps = [f / "README.md" for f in (folder, *folder.parents) if f != pathlib.Path(".")]
    text = "".join(m.read_text() for m in maps if m.exists())
    named = set(re.findall(r"[\w./\[\]-]+", text))
    stems = {re.sub(r"\..*$", "", word.split("/")[-1]) for word in named}
    for ext in ("*.[ch]", "*.cc", "*.py", "*.proto"):
        for path in sorted(folder.glob(ext)):
            if path.stem not in stems:
                say(maps[0], 1, f"does not mention {path.name}")


MADE_PAGES = {"deploy/config/REFERENCE.md", "deploy/helm/embertree/README.md"}  # by programs


def check_page(path):
    """Lines of prose end at 120 columns; tables, code and addresses do not break."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        free = fenced or line.startswith("    ") or line.lstrip().startswith("|") or "://" in line
        if len(line) > 120 and not free:
            say(path, number, "line over 120 columns")


def check_globals():
    """Role code keeps no state of its own: several roles of a kind fit in one process."""
    for role in ROLES:
        for archive in sorted(pathlib.Path("build").glob(f"release/lib{role}.a")):
            table = subprocess.run(["objdump", "-t", str(archive)], capture_output=True, text=True)
            for row in table.stdout.splitlines():
                # Constant tables of pointers stand in .data.rel.ro: written once, by the loader.
                symbol = re.search(r" O \.(data|bss)(?!\.rel\.ro)\S*\s+[0-9a-f]+ (\S+)$", row)
                if symbol and ".rel.ro" not in row:
                    say(archive, 1, f"writable global {symbol[2]} in role code")


def check_words():
    """Leftovers, and things that belong to one machine, anywhere in the tree."""
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split("\n")
    for name in filter(None, names):
        path = pathlib.Path(name)
        if name.startswith(("tests/golden/", "tests/fuzz/seeds/")) or not path.is_file():
            continue
        if path.suffix in {".png", ".gz", ".pb", ".jfr", ".sst", ".ico"} or name in {
                "LICENSE", "tests/lint/tidy.py"}:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if REGISTRY.search(line):
                say(path, number, "names a package registry's host")
            if UNFINISHED.search(line):
                say(path, number, "leftover marker")
    lock = pathlib.Path("querier/ui/web/package-lock.json")
    if lock.exists() and '"resolved"' in lock.read_text():
        say(lock, 1, "has download addresses: set omit-lockfile-registry-resolved=true in .npmrc")


def check_copies():
    """A chart reads nothing outside of its folder."""
    source, copied = (pathlib.Path(p) for p in COPIES)
    if source.read_bytes() != copied.read_bytes():
        say(copied, 1, f"is not {source}: run deploy/helm/generate")


def main():
    folders = set()
    for top in ["common", *ROLES, "deploy", "proto", "tests"]:
        for path in sorted(pathlib.Path(top).rglob("*")):
            if "node_modules" in path.parts or path.suffix not in {".c", ".h", ".py", ".proto"}:
                continue
            if path.suffix in {".c", ".h"}:
                check_file(path)
            if path.parts[:2] not in {("tests", "unit"), ("tests", "golden"), ("tests", "prop")}:
                folders.add(path.parent)
    pages = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True).stdout.split()
    for page in sorted(set(pages) - MADE_PAGES):
        if pathlib.Path(page).is_file():
            check_page(pathlib.Path(page))
    for folder in sorted(folders):
        check_map(folder)
    check_globals()
    check_words()
    check_copies()
    wire.check(say)
    rooms.check(say)
    prefixes.check(say)
    scope.check(say)
    cites.check(say)
    release.check(say)
    words.check(say)
    if findings:
        print(*findings, sep="\n")
    sys.exit(bool(findings))


main()
