"""What goes between processes and onto disks has one number, and the same one everywhere.

Methods: `enum rpc_method`, the metrics' names, what a relay passes on, and both tables of
proto/README.md. Layouts: each `VERSION` of the code and the table of proto/README.md.
"""
import pathlib
import re

README = pathlib.Path("proto/README.md")
RPC_H = pathlib.Path("common/rpc/rpc.h")
NAMES = pathlib.Path("common/rpc/rpc_metrics.c")
RELAY = pathlib.Path("common/role/route/relay.c")
# Methods between two nodes that name each other. They are not for the leader of a shard, so no relay passes them on.
STRAIGHT_ONLY = re.compile(r"RPC_(STATUS|RELAY|GIVE_UP|REPL_\w+)$")
# Layouts of other projects, which we read.
FOREIGN = {"distributor/parca/arrow/arrow.c", "distributor/parca/arrow/arrow_ask.c"}
VERSION = re.compile(r"^#define\s+((?:[A-Z0-9]+_)*VERSION(?:_[A-Z0-9]+)*|FORMAT_WRITTEN)\s+(\d+)\b"
                     r"|\benum\b.*?\b(VERSION) = (\d+)", re.M)


def expand(names):
    """`RPC_REPL_PREPARE`, `_APPEND` -> both in full, the second with the first one's beginning."""
    whole = []
    for name in names:
        whole.append(name if name.startswith("RPC_") else whole[0].rpartition("_")[0] + name)
    return whole


def methods_of_readme(say):
    """Name -> (number, row) of the first table, and the words of the second one."""
    told, limits = {}, set()
    for at, line in enumerate(README.read_text().splitlines(), 1):
        cells = [c.strip() for c in line.split("|")[1:-1]]
        first = re.match(r"(\d+)(?: to (\d+))? `", cells[0]) if cells else None
        if first and len(cells) == 4:
            names = expand(re.findall(r"`(\w+)`", cells[0]))
            numbers = range(int(first[1]), int(first[2] or first[1]) + 1)
            if len(names) != len(numbers):
                say(README, at, f"{len(names)} names for {len(numbers)} numbers")
            for name, number in zip(names, numbers):
                if name in told:
                    say(README, at, f"{name} has two rows")
                told[name] = (number, at, cells)
        elif len(cells) == 4 and at > 1 and not first:
            group = cells[0].replace("`", "").split(", ")
            stem = group[0].rpartition(" ")[0]
            limits.update([group[0]] + [f"{stem} {word}".strip() for word in group[1:]])
    return told, limits


def check_messages(say, at, cells):
    """The messages of a row stand in the file that it names."""
    file = cells[3].strip("`")
    path = pathlib.Path(file if "/" in file else f"proto/{file}")
    if not path.is_file():
        say(README, at, f"there is no {path}")
    elif path.suffix == ".proto":
        there = set()
        for proto in pathlib.Path("proto").glob("*.proto"):
            there |= set(re.findall(r"^message (\w+)", proto.read_text(), re.M))
        here = set(re.findall(r"^message (\w+)", path.read_text(), re.M))
        wanted = re.findall(r"`([A-Z]\w+)`", cells[2])
        for name in wanted:
            if name not in there:
                say(README, at, f"no .proto has a message {name}")
        if wanted and wanted[0] not in here:
            say(README, at, f"{path} has no message {wanted[0]}")


def check_methods(say):
    enum = dict((name, int(number)) for name, number in
                re.findall(r"^    (RPC_\w+) = (\d+),", RPC_H.read_text(), re.M))
    end = enum.pop("RPC_METHODS", 0)
    if sorted(enum.values()) != list(range(1, end)):
        say(RPC_H, 1, f"rpc methods are not numbered 1 to RPC_METHODS - 1 = {end - 1}, each once")
    named = dict(re.findall(r'^\s+\[(RPC_\w+)\] = "(\w+)",', NAMES.read_text(), re.M))
    passed = set(re.findall(r"\[(RPC_\w+)\] = true", RELAY.read_text()))
    told, limits = methods_of_readme(say)
    for name, number in sorted(enum.items(), key=lambda row: row[1]):
        short = name[len("RPC_"):].lower()
        if named.get(name) != short:
            say(NAMES, 1, f"{name} has no name there, or not {short}")
        if (name in passed) == bool(STRAIGHT_ONLY.match(name)):
            say(RELAY, 1, f"may_pass and tests/lint/wire.py differ about {name}")
        if name not in told:
            say(README, 1, f"has no row for {number} `{name}`")
            continue
        if told[name][0] != number:
            say(README, told[name][1], f"{name} is {number} in {RPC_H}")
        check_messages(say, *told[name][1:])
        if short.replace("_", " ") not in limits:
            say(README, 1, f"the table of limits has no row for {short.replace('_', ' ')}")
    for name in sorted(set(told) - set(enum)):
        say(README, told[name][1], f"{RPC_H} has no {name}")


def versions_of_code():
    found = {}
    for top in ("common", "distributor", "ingester", "querier", "compactor", "deploy"):
        for path in sorted(pathlib.Path(top).rglob("*.[ch]")):
            if str(path) in FOREIGN:
                continue
            for m in VERSION.finditer(path.read_text()):
                found[f"{path}:{m[1] or m[3]}"] = int(m[2] or m[4])
    return found


def check_versions(say):
    """Each layout of the code has its number in the table, and each of the table is in the code."""
    code, told = versions_of_code(), set()
    for at, line in enumerate(README.read_text().splitlines(), 1):
        cells = [c.strip() for c in line.split("|")[1:-1]]
        where = re.findall(r"`([\w/]+\.[ch]:[A-Z0-9_]+)`", cells[-1]) if len(cells) == 3 else []
        for place in where:
            told.add(place)
            if place not in code:
                say(README, at, f"{place} is not there")
            elif not cells[1].isdigit() or int(cells[1]) != code[place]:
                say(README, at, f"{cells[0]}: {cells[1]} here, {code[place]} in {place}")
    for place in sorted(set(code) - told):
        say(README, 1, f"the table of layouts has no row for {place} = {code[place]}; "
                       "a number that grew: Versioning, rule 1")


def check(say):
    check_methods(say)
    check_versions(say)
