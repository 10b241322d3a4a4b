"""The order of folders inside a room: by include and by symbol (common/ARCHITECTURE.md, README of each room).

A file may use what is in its own folder and in folders before it; folders in one string are peers and do not use
each other. Files in the root of a room come last, but for its public headers, which come first. Symbols are looked at
where `make all` has made objects. Also here: x_impl.h is included in its own folder alone, no folder holds more than
FILES_MAX source files, functions have at most PARAMS_MAX parameters, and a long .c file opens with an essay.
"""
import collections
import pathlib
import re
import subprocess

ORDER = {
    "common/store": ["kv", "codec", "dict", "catalog", "state", "mask", "ledger", "retain", "query", "exemplar", "write",
                     "seal", "build", "delete", "check"],
    "common/cluster": ["map", "coord", "view", "place", "node", "control", "rebuild"],
    "common/role": ["host", "core", "cluster", "route", "admin", "process"],
    "common/repl": ["log", "protocol"],
    "ingester": ["base", "shard", "background", "tier", "replicas", "write", "read", "admin", "build"],
    "querier": ["ui", "base", "render", "ask", "messages", "query", "merge", "select", "output", "async",
                "api/flame api/table api/names api/tenant"],
    "distributor": ["formats", "base", "rules", "otlp", "send", "intake", "forward", "parca adhoc scrape", "api"],
    "deploy/ctl": ["cli", "ask", "server local"],
}
PUBLIC = {"querier/api/api.h", "deploy/ctl/ctl.h", "deploy/ctl/commands.h"}  # headers in front of all folders
COUNTS_AS = {"common/store/store.h": "common/store/state/store.h"}  # a header in the root that belongs to a folder
OBJECTS = pathlib.Path("build/release")
FILES_MAX, PARAMS_MAX, ESSAY_FROM = 40, 6, 100
SOURCE = re.compile(r"\.(c|h|cc|S|py|ts|tsx|mjs|proto)$")
ALLOWED = pathlib.Path("tests/lint/allowed.txt")  # functions with more parameters: the list may only shrink
DEFINED = re.compile(r"^[A-Za-z_][\w \t*]*?\b(\w+)\(([^;{}()]*(?:\([^()]*\)[^;{}()]*)*)\)\n\{", re.M)


def place(room, path):
    """Where a file is in the order of its room, and the folder's name; None: above all rooms."""
    path = COUNTS_AS.get(path, path)
    if path in PUBLIC:
        return -1, "(public headers)"
    rest = path[len(room) + 1:]
    for at, peers in enumerate(ORDER[room]):
        for folder in peers.split():
            if rest.startswith(folder + "/"):
                return at, folder
    return len(ORDER[room]), "(root)"


def edge(user, used):
    """(room, folder, folder) if `user` may not use `used` by the order of a room they share; else None."""
    for room in ORDER:
        if user.startswith(room + "/") and used.startswith(room + "/"):
            mine, theirs = place(room, user), place(room, used)
            if theirs[0] > mine[0] or (theirs[0] == mine[0] and theirs[1] != mine[1]):
                return room, mine[1], theirs[1]
    return None


def complain(say, path, line, found, what):
    room, mine, theirs = found
    say(path, line, f"{what}: in {room}, the folder {mine} stands before {theirs} and may not use it (ORDER in "
                    f"tests/lint/rooms.py): move what both need to {mine} or below, or hand it over as an argument")


def check_includes(say, files):
    for path in files:
        if path.suffix not in (".c", ".h", ".cc") or path.parts[0] == "tests":
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            header = re.match(r'#include "([^"]+)"', line)
            if not header:
                continue
            found = edge(str(path), header[1])
            if found:
                complain(say, path, number, found, f"includes {header[1]}")
            if header[1].endswith("_impl.h") and pathlib.Path(header[1]).parent != path.parent:
                if header[1] not in SHARED_IMPL:
                    say(path, number, f"{header[1]} is private to its folder: include a public header, or make one")


# Private to a room rather than to a folder, with the reason.
SHARED_IMPL = {
    "common/store/state/store_impl.h",  # struct store: known to `state` and the folders above it (common/store/README.md)
    "common/store/kv/kv_impl.h",        # for whoever makes a kind of kv: `repl` and `cold` do
}


def check_symbols(say, files):
    sources = {str(p) for p in files}
    objects = [p for p in OBJECTS.rglob("*.o") if str(p.relative_to(OBJECTS))[:-2] in sources] if OBJECTS.is_dir() else []
    if not objects:
        return
    table = subprocess.run(["nm", "-A", "--", *map(str, objects)], capture_output=True, text=True).stdout
    defined, wanted = {}, collections.defaultdict(set)
    for row in table.splitlines():
        where, rest = row.split(":", 1)
        source, parts = where[len(str(OBJECTS)) + 1:-2], rest.split()
        if parts[-2] == "U":
            wanted[source].add(parts[-1])
        elif parts[-2] in "TDBRVW":
            defined[parts[-1]] = source
    for source in sorted(wanted):
        for symbol in sorted(wanted[source]):
            found = defined.get(symbol) and edge(source, defined[symbol])
            if found:
                complain(say, source, 1, found, f"uses {symbol} of {defined[symbol]}")


def check_sizes(say, files):
    count = collections.Counter(p.parent for p in files if SOURCE.search(p.name))
    for folder, n in sorted(count.items()):
        if n > FILES_MAX:
            say(folder, 1, f"holds {n} source files, more than {FILES_MAX}: give it subfolders")


def check_shape(say, files):
    allowed = dict(line.rsplit(" ", 1) for line in ALLOWED.read_text().splitlines() if line) if ALLOWED.exists() else {}
    seen = {}
    for path in files:
        if path.suffix != ".c" or path.parts[0] == "tests":
            continue
        text = path.read_text()
        for found in DEFINED.finditer(text):
            params = re.sub(r"\([^()]*\)", "", found[2]).count(",") + 1
            name = f"{path} {found[1]}"
            if params > PARAMS_MAX:
                seen[name] = params
                if params > int(allowed.get(name, PARAMS_MAX)):
                    say(path, text.count("\n", 0, found.start()) + 1,
                        f"{found[1]} has {params} parameters, more than {PARAMS_MAX}: give it a struct of arguments")
        opening = re.match(r"/\* SPDX[^\n]*\n((?: \*[^\n]*\n)+)", text)
        if text.count("\n") > ESSAY_FROM and (not opening or len(re.findall(r"\w", opening[1])) < 60):
            say(path, 1, f"has over {ESSAY_FROM} lines and no opening text: what it does, why so, what is always true")
    for name in sorted(set(allowed) - set(seen)):
        say(ALLOWED, 1, f"{name} is no longer needed: delete its line")


def check(say):
    names = subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split("\n")
    files = [p for p in map(pathlib.Path, filter(None, names)) if p.is_file()]
    check_includes(say, files)
    check_symbols(say, files)
    check_sizes(say, files)
    check_shape(say, files)


if __name__ == "__main__":
    findings = []
    check(lambda path, line, text: findings.append(f"{path}:{line}: {text}"))
    print(*findings, sep="\n")
