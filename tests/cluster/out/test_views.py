"""Random questions on sub-trees, comparisons by mode, function series by groups and growth, beside
the brute force over the raw uploads of testdata. SEED=n repeats, QUERIES=n asks more."""
import collections
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import oracle
from oracle_world import Ask, bars, four_processes, one_process

DAY_MS = 86400_000
INSTANCE = ["service_name", "pod", "instance", "hostname", "host", "ip", "container_id"]


def plain_ask(world, kind=None):
    """Of a type that adds up, or of this one; mostly about something."""
    for _ in range(60):
        a = Ask(world)
        if kind in (None, a.kind) and not a.gauge and (a.rows() or a.rng.random() < 0.1):
            break
    if a.gauge or kind not in (None, a.kind):
        a.kind = kind or "cpu"
        a.type_id, a.gauge = world.ids[a.kind][0], False
    return a


def get(a, route, **query):
    """The answer to a question; lists are parameters that come again."""
    query |= {"query": a.type_id + a.selector, "from": a.start, "until": a.end}
    r = a.w.server.reader.get(route + "?" + urllib.parse.urlencode(query, doseq=True))
    assert r.status == 200, (a, r)
    return r.json()


def children(nodes, path):
    return {p[-1]: total for p, total in nodes.items() if p[:-1] == path and len(p) == len(path) + 1}


def ask_subtree(world):
    """Every page of the children of a node, in order; and the tree below it."""
    a = plain_ask(world)
    stacks = oracle.Oracle.stacks(a.rows())
    if not stacks:
        return False
    nodes, stack = oracle.Oracle.nodes(stacks), a.rng.choice(sorted(stacks))
    path = stack[:a.rng.randrange(len(stack) + 1)]
    want, limit = children(nodes, path), a.rng.choice([1, 3, 100])
    rows = []
    while True:
        got = get(a, "/api/v1/subtree", path=list(path), limit=str(limit), offset=str(len(rows)),
                    tree="1", maxNodes="1000000")
        rows += got["rows"]
        assert got["rest"] == sum(want.values()) - sum(r["total"] for r in rows), (a, path)
        if len(got["rows"]) < limit or len(rows) == len(want) or len(rows) > 20:
            break
    order = sorted(want, key=lambda n: (-want[n], n.encode()))[:len(rows)]
    assert [r["name"] for r in rows] == order, (a, path)
    for r in rows:
        below = path + (r["name"],)
        assert r["total"] == want[r["name"]] and r["self"] == stacks.get(below, 0), (a, path, r)
        assert r["children"] == len(children(nodes, below)), (a, path, r)
    total = nodes[path] if path else sum(stacks.values())
    assert got["node"] == {"self": stacks.get(path, 0), "total": total, "children": len(want)}, a
    assert cluster.leaves(got["flamebearer"]) == {
        s: v for s, v in stacks.items() if s[:len(path)] == path}, (a, path)
    return True


def ask_other(world):
    """What a cut flame graph shows as `other` opens as the rest of the children."""
    a = plain_ask(world)
    stacks = oracle.Oracle.stacks(a.rows())
    if not stacks or any("other" in s for s in stacks):
        return False
    shown = bars(get(a, "/pyroscope/render", maxNodes=a.rng.choice([2, 10, 60]))["flamebearer"])
    cut = sorted(p for p in shown if p[-1] == "other")
    for other in a.rng.sample(cut, min(3, len(cut))):
        path = other[:-1]
        n = len(children(shown, path)) - 1
        got = get(a, "/api/v1/subtree", path=list(path), offset=str(n), limit="10000")
        assert sum(r["total"] for r in got["rows"]) == shown[other], (a, path)
        assert got["node"]["children"] == n + len(got["rows"]), (a, path)
    return bool(cut)


def seconds_of(world, side, start, end):
    """By the real bounds: leaves of 10 s, or longer where retention has left only longer nodes."""
    first, last = start // 10_000 * 10_000, -(-end // 10_000) * 10_000
    assert side["startMs"] <= first and side["endMs"] >= last, (side, start, end)
    if start > world.now - 6 * DAY_MS:
        assert [side["startMs"], side["endMs"]] == [first, last], (side, start, end)
    return (side["endMs"] - side["startMs"]) / 1000


def near(got, want):
    return abs(got - want) <= 1e-9 * max(abs(got), abs(want), 1e-300)


def ask_modes(world):
    left = plain_ask(world)
    right = plain_ask(world, left.kind)
    mode = left.rng.choice(["absolute", "relative", "second", "instance", "second-instance"])
    r = world.server.reader.get("/api/v1/diff", mode=mode, limit="10000", sort="total",
                                leftQuery=left.type_id + left.selector, leftFrom=str(left.start),
                                leftUntil=str(left.end), rightFrom=str(right.start),
                                rightQuery=right.type_id + right.selector,
                                rightUntil=str(right.end))
    assert r.status == 200, (left, right, r)
    got, factors, sums = r.json(), [], []
    for side, a in (("left", left), ("right", right)):
        rows = a.rows()
        total = sum(row.total for row in rows)
        seconds = seconds_of(world, got[side], a.start, a.end)
        instances = len({tuple(row.labels.get(k, "") for k in INSTANCE) for row in rows})
        factor = {"absolute": 1, "relative": 100 / total if total else 0, "second": 1 / seconds,
                  "instance": 1 / instances if instances else 0,
                  "second-instance": 1 / seconds / instances if instances else 0}[mode]
        assert got[side]["total"] == total, (a, mode, got[side])
        assert near(got[side]["factor"], factor), (a, mode, got[side], factor, instances, seconds)
        factors.append(factor)
        sums.append(oracle.Oracle.functions(oracle.Oracle.stacks(rows)))
    assert {row["name"] for row in got["rows"]} == set(sums[0]) | set(sums[1]), (left, right)
    last = None
    for row in got["rows"]:
        for i, kind in enumerate(("self", "total")):
            have = [sums[s].get(row["name"], [0, 0])[i] for s in (0, 1)]
            shown = [have[s] * factors[s] for s in (0, 1)]
            value = row[kind]
            assert [value["left"], value["right"]] == have, (left, right, row)
            assert all(near(x, y) for x, y in zip(value["shown"], shown)), (row, shown)
            assert abs(value["delta"] - (shown[1] - shown[0])) <= 1e-9 * max(shown + [1]), row
        weight = abs(row["total"]["delta"])
        assert last is None or weight <= last, (left, right, row)
        last = weight
    return bool(sums[0]) and bool(sums[1])


def ask_groups(world):
    a = plain_ask(world)
    step = a.rng.choice([10_000, 60_000, 600_000, 3_600_000, a.end - a.start])
    step = max(step, -(-(a.end - a.start) // 40)) // 10_000 * 10_000 + 10_000
    points = -(-(a.end - a.start) // step)
    a.start = a.start // 10_000 * 10_000
    a.end = a.start + points * step
    by = a.rng.sample(["pod", "env", "region", "service_name"], a.rng.choice([1, 1, 2]))
    got = get(a, "/api/v1/functions", groupBy=by, step=str(step // 1000), top="5", sort="total",
                groups="100")
    want = collections.defaultdict(lambda: [[] for _ in range(points)])
    for row in a.rows():
        group = tuple(row.labels.get(k, "") for k in by)
        want[group][(row.at_ms - a.start) // step].append(row)
    assert got["points"] == points and got["groupsOmitted"] == 0, (a, got["points"])
    groups = {tuple(g["labels"][k] for k in by): g for g in got["groups"]}
    assert len(groups) == len(got["groups"]) and set(groups) == set(want), (a, by, set(groups),
                                                                          set(want))
    for group, g in groups.items():
        sums = [oracle.Oracle.functions(oracle.Oracle.stacks(rows)) for rows in want[group]]
        assert g["allAt"] == [sum(r.total for r in rows) for rows in want[group]], (a, by, group)
        assert [f["name"] for f in g["functions"]] == [f["name"] for f in got["functions"]]
        for f in g["functions"]:
            for i, kind in enumerate(("self", "total")):
                values = [s.get(f["name"], [0, 0])[i] for s in sums]
                assert f[kind + "At"] == values and f[kind] == sum(values), (a, by, group, f)
    alls = [g["all"] for g in got["groups"]]
    assert alls == sorted(alls, reverse=True) and sum(alls) == got["all"], (a, by)
    return bool(want)


def ask_grew(world):
    a = plain_ask(world)
    before = plain_ask(world, a.kind)
    by, sort = a.rng.choice(["function", "service"]), a.rng.choice(["self", "total"])
    kind, mode = a.rng.choice(["grew", "shrank", "all"]), a.rng.choice(["absolute", "second"])
    got = get(a, "/api/v1/functions/grew", by=by, sort=sort, dir=kind, mode=mode, limit="10000",
                beforeFrom=str(before.start), beforeUntil=str(before.end))
    sides = []
    for name, start, end in (("before", before.start, before.end), ("after", a.start, a.end)):
        rows = world.oracle.rows_of(a.kind, a.matchers, start, end)
        groups = collections.defaultdict(list)
        for row in rows:
            groups[row.labels["service_name"] if by == "service" else None].append(row)
        seconds = seconds_of(world, got[name], start, end)
        sides.append(({(g, name): v for g, some in groups.items() for name, v in
                       oracle.Oracle.functions(oracle.Oracle.stacks(some)).items()},
                      1 if mode == "absolute" else 1 / seconds, sum(r.total for r in rows)))
    assert [got["before"]["all"], got["after"]["all"]] == [s[2] for s in sides], (a, before)
    every, i = set(sides[0][0]) | set(sides[1][0]), sort == "total"
    assert got["functions"] == len(every), (a, before, got["functions"], len(every))
    found = {}
    for row in got["rows"]:
        key = (row.get("service"), row["name"])
        for k, name in enumerate(("self", "total")):
            have = [s[0].get(key, [0, 0])[k] for s in sides]
            assert [row[name]["before"], row[name]["after"]] == have, (a, before, row, have)
        found[key] = row[sort]["delta"]
    for key in every:
        old, new = (s[0].get(key, [0, 0])[i] * s[1] for s in sides)
        grew = abs(new - old) > 1e-9 * max(old, new, 1) and {"grew": new > old, "shrank": new < old,
                                                             "all": True}[kind]
        same = abs(new - old) <= 1e-9 * max(old, new, 1)
        assert key in found or not grew, (a, before, key, old, new)
        assert key not in found or grew or same, (a, before, key, old, new)
        assert key not in found or abs(found[key] - (new - old)) <= 1e-9 * max(old, new, 1), (
            a, before, key, old, new, found[key], mode, sort)
    order = [{"grew": 1, "shrank": -1, "all": 1}[kind] * d if kind != "all" else abs(d)
             for d in found.values()]
    assert order == sorted(order, reverse=True), (a, before, by, sort, kind)
    assert got["matching"] == len(found) == len(got["rows"]), (a, before)
    return bool(sides[0][0]) and bool(sides[1][0])


KINDS = [ask_subtree, ask_other, ask_modes, ask_groups, ask_grew]


def test_one_process():
    one_process(KINDS)


def test_four_processes():
    four_processes(KINDS)


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes])
