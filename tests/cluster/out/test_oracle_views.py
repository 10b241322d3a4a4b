"""Random questions on the exact views and exports beside the brute force over the raw uploads of
testdata: pprof, tables, focus, sandwich, comparisons, diffs. SEED=n repeats, QUERIES=n asks more."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import oracle
import pprof_ref
from oracle_world import Ask, four_processes, one_process, same
from push_client import field


def plain_ask(world):
    """Of a type that adds up; means are test_oracle.py's."""
    while True:
        a = Ask(world)
        if not a.gauge:
            return a


def pprof_of(a):
    """The answer as pprof, by one of the two ways."""
    if a.rng.random() < 0.5:
        return a.get("/pyroscope/render", format="pprof", **{"max-nodes": "1000000"})
    message = (field(1, a.type_id.encode()) + field(2, a.selector.encode()) + field(3, a.start)
               + field(4, a.end - 1))
    return a.w.server.reader.post("/querier.v1.QuerierService/SelectMergeProfile", message,
                                  {"Content-Type": "application/proto"})


def ask_pprof(world):
    a = Ask(world)
    rows = a.rows()
    r = pprof_of(a)
    assert r.status == 200, (a, r)
    p = pprof_ref.Profile(r.body)
    kind = a.type_id.split(":")
    if p.samples:
        assert p.types == [(kind[1], kind[2])], (a, p.types)
    got = p.sums(0) if p.samples else collections.Counter()
    same(got, oracle.Oracle.stacks(rows), a.leaves(rows), a)
    return bool(rows)


def ask_folded(world):
    a = plain_ask(world)
    got = collections.Counter()
    for line in a.get("/pyroscope/render", format="folded",
                      **{"max-nodes": "1000000"}).body.decode().splitlines():
        stack, _, value = line.rpartition(" ")
        got[stack] += int(value)
    stacks = collections.Counter()
    for stack, value in oracle.Oracle.stacks(a.rows()).items():
        stacks[";".join(name.replace(";", ":") for name in stack)] += value
    assert got == stacks, (a, list(set(got.items()) ^ set(stacks.items()))[:4])
    return bool(stacks)


def some_function(a, stacks):
    names = sorted({name for stack in stacks for name in stack})
    return a.rng.choice(names)


def ask_top(world):
    a = plain_ask(world)
    stacks = oracle.Oracle.stacks(a.rows())
    want, sort = oracle.Oracle.functions(stacks), a.rng.choice(["self", "total"])
    got = a.get("/api/v1/top", limit="10000", sort=sort).json()
    rows = {r["name"]: [int(r["self"]), int(r["total"])] for r in got["rows"]}
    assert int(got["total"]) == sum(stacks.values()), (a, got["total"])
    assert rows == dict(want), (a, list(set(map(str, rows.items())) ^ set(map(str, want.items())))[:4])
    order = [int(r[sort]) for r in got["rows"]]
    assert order == sorted(order, reverse=True), a
    return bool(stacks)


def ask_focus(world):
    a = plain_ask(world)
    stacks = oracle.Oracle.stacks(a.rows())
    if not stacks:
        return False
    name = some_function(a, stacks)
    got = a.get("/api/v1/focus", function=name, **{"max-nodes": "1000000"}).json()
    same(cluster.leaves(got["flamebearer"]),
         collections.Counter({s: v for s, v in stacks.items() if name in s}), 0, (a, name))
    return True


def ask_sandwich(world):
    a = plain_ask(world)
    stacks = oracle.Oracle.stacks(a.rows())
    if not stacks:
        return False
    name = some_function(a, stacks)
    got = a.get("/api/v1/sandwich", function=name, **{"max-nodes": "1000000"}).json()
    callees, callers = collections.Counter(), collections.Counter()
    for stack, value in stacks.items():
        if name in stack:
            at = stack.index(name)
            callees[stack[at:]] += value
            callers[stack[at::-1]] += value
    same(cluster.leaves(got["callees"]), callees, 0, (a, name, "callees"))
    same(cluster.leaves(got["callers"]), callers, 0, (a, name, "callers"))
    return True


def two_sides(world):
    left = plain_ask(world)
    right = Ask(world)
    right.kind, right.type_id, right.gauge = left.kind, left.type_id, False
    return left, right


def ask_compare(world):
    left, right = two_sides(world)
    sides = [oracle.Oracle.stacks(s.rows()) for s in (left, right)]
    r = world.server.reader.get("/api/v1/diff", mode="absolute", limit="10000",
                                leftQuery=left.type_id + left.selector,
                                leftFrom=str(left.start), leftUntil=str(left.end),
                                rightQuery=right.type_id + right.selector,
                                rightFrom=str(right.start), rightUntil=str(right.end))
    assert r.status == 200, (left, right, r)
    want = [oracle.Oracle.functions(s) for s in sides]
    rows = r.json()["rows"]
    assert {row["name"] for row in rows} == set(want[0]) | set(want[1]), (left, right)
    for row in rows:
        for i, kind in enumerate(("self", "total")):
            for j, side in enumerate(("left", "right")):
                have = want[j].get(row["name"], [0, 0])[i]
                assert int(row[kind][side]) == have, (left, right, row, have)
            assert row[kind]["delta"] == int(row[kind]["right"]) - int(row[kind]["left"]), row
    return bool(sides[0]) and bool(sides[1])


def sides_of(graph):
    """{path: (left total, right total)} of the bars of a double flame graph."""
    names, out, above = graph["names"], {}, [((0, 0), (1 << 62, 1 << 62), ())]
    for depth, level in enumerate(graph["levels"]):
        here, x, last = [], [0, 0], 0
        for i in range(0, len(level), 7):
            bar = [int(v) for v in level[i:i + 7]]
            start = (x[0] + bar[0], x[1] + bar[3])
            end = (start[0] + bar[1], start[1] + bar[4])
            path = ()
            if depth:
                # A bar lies within its parent on both sides, one of which has a width.
                while not all(above[last][0][k] <= start[k] and end[k] <= above[last][1][k]
                              for k in (0, 1)):
                    last += 1
                path = above[last][2] + (names[bar[6]],)
                assert path not in out, f"two bars of {path}"
                out[path] = (bar[1], bar[4])
            here.append((start, end, path))
            x = list(end)
        above = here
    return out


def ask_diff(world):
    left, right = two_sides(world)
    sides = [oracle.Oracle.nodes(oracle.Oracle.stacks(s.rows())) for s in (left, right)]
    r = world.server.connect("Diff", {side: {
        "profile_typeID": s.type_id, "label_selector": s.selector, "start": str(s.start),
        "end": str(s.end - 1), "maxNodes": "1000000"}
        for side, s in (("left", left), ("right", right))})
    assert r.status == 200, (left, right, r)
    graph = r.json().get("flamegraph", {})
    levels = [[int(v) for v in level.get("values", [])] for level in graph.get("levels", [])]
    got = sides_of({"names": graph.get("names", []), "levels": levels})
    want = {path: (sides[0].get(path, 0), sides[1].get(path, 0)) for path in {**sides[0], **sides[1]}}
    assert got == want, (left, right, list(set(got.items()) ^ set(want.items()))[:4])
    return bool(sides[0]) and bool(sides[1])


KINDS = [ask_pprof, ask_folded, ask_top, ask_focus, ask_sandwich, ask_compare, ask_diff]


def test_one_process():
    one_process(KINDS)


def test_four_processes():
    four_processes(KINDS)


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes])
