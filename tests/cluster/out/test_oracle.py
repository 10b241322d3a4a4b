"""Random questions on every route beside the brute force over the raw uploads of testdata: ranges,
selectors, groups, call sites, cuts, functions, label lists. SEED=n repeats, QUERIES=n asks more
(thousands by hand)."""
import collections
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import oracle
from oracle_world import DAY_MS, Ask, bars, four_processes, one_process, same


def ask_render(world):
    a = Ask(world)
    rows = a.rows()
    got = cluster.leaves(a.get("/pyroscope/render", format="json",
                               **{"max-nodes": "1000000"}).json()["flamebearer"])
    same(got, oracle.Oracle.stacks(rows), a.leaves(rows), a)
    return bool(rows)


def ask_stacktraces(world):
    a = Ask(world)
    rows = a.rows()
    stacks = oracle.Oracle.stacks(rows)
    more = {"maxNodes": "1000000"}
    if stacks and a.rng.random() < 0.6:
        some = a.rng.choice(sorted(stacks))
        site = some[:a.rng.randrange(1, len(some) + 1)]
        more["stackTraceSelector"] = {"callSite": [{"name": n} for n in site]}
        stacks = collections.Counter({s: v for s, v in stacks.items() if s[:len(site)] == site})
        if a.gauge:
            return False  # the mean's leaves are those of what matched; test_gauges covers it
    got = cluster.leaves(cluster.flamegraph(a.connect("SelectMergeStacktraces", **more)))
    same(got, stacks, a.leaves(rows), a)
    return bool(stacks)


def ask_cut(world):
    a = Ask(world)
    if a.gauge:
        return False
    stacks = oracle.Oracle.stacks(a.rows())
    n = a.rng.choice([1, 2, 5, 10, 50, 200])
    graph = cluster.flamegraph(a.connect("SelectMergeStacktraces", maxNodes=str(n)))
    assert graph["numTicks"] == sum(stacks.values()), a
    if stacks:
        try:
            oracle.is_cut_of(bars(graph), stacks, n)
        except AssertionError as e:
            raise AssertionError(f"{a} max {n}: {e}") from None
    return bool(stacks)


def point_of(at_ms, start, step):
    """The number of the point a leaf belongs to: (T - step, T] under a minute, else [T - step, T)."""
    if step < 60_000:
        return -((start - at_ms) // step)
    return (at_ms - start) // step + 1


def slots_of(r, a, step):
    """The slots of 5 s in which a push counts: from a minute on, and for gauges, that of its start;
    else both of its 10 s."""
    return [r.at_ms] if a.gauge or step >= 60_000 else [r.at_ms, r.at_ms + 5_000]


def ask_series(world):
    a = Ask(world)
    step = a.rng.choice([10_000, 15_000, 20_000, 60_000, 600_000, 3_600_000, DAY_MS])
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    if (a.end - a.start) // step > 5000:
        return False
    group_by = a.rng.choice([[], ["pod"], ["env"], ["service_name", "region"], ["absent"]])
    points = (a.end - a.start) // step
    rows = [r for r in world.oracle.rows if r.kind == a.kind
            and all(m.matches(r.labels) for m in a.matchers)]
    want = collections.defaultdict(lambda: collections.defaultdict(int))
    seen = collections.defaultdict(lambda: collections.defaultdict(set))
    for r in rows:
        group = tuple((k, r.labels[k]) for k in sorted(group_by) if k in r.labels)
        slots = slots_of(r, a, step)
        for slot in slots:
            k = point_of(slot, a.start, step)
            if 0 <= k <= points:
                want[group][a.start + k * step] += r.total / len(slots)
                seen[group][a.start + k * step].add(r.at_ms)
    spread = not a.gauge and step < 60_000
    a.end += 1
    reply = a.connect("SelectSeries", step=step / 1000, groupBy=group_by)
    got = {tuple(sorted((p["name"], p["value"]) for p in s.get("labels", []))):
           {int(p["timestamp"]): p["value"] for p in s["points"]} for s in reply.get("series", [])}
    if spread:  # half a unit at an edge is not in the answer
        want = {g: at for g, at in want.items() if g in got or sum(at.values()) >= 1}
    assert set(got) == set(want), (a, step, group_by, set(got) ^ set(want))
    for group, at in want.items():
        if spread:
            at |= {t: 0 for t in got[group] if t not in at}
            got[group] |= {t: 0 for t in at if t not in got[group]}
        assert set(got[group]) == set(at), (a, step, group, set(got[group]) ^ set(at))
        for t, value in at.items():
            mean = value / len(seen[group][t]) if a.gauge else value
            assert abs(got[group][t] - mean) <= (1 if a.gauge or spread else 0), (a, step, group, t, mean,
                                                                        got[group][t])
    return bool(want)


def ask_series_below(world):
    """Below a call site: the sum, spread as that of whole profiles is; or the mean over all pushes of the group in the point; of a
    gauge that over all leaves of the group."""
    a = Ask(world)
    step = a.rng.choice([10_000, 15_000, 20_000, 60_000, 600_000, 3_600_000, DAY_MS])
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    points = (a.end - a.start) // step
    by = a.rng.choice([None, "pod", "env", "absent"])
    mean = a.rng.random() < 0.5
    if mean and step % 10_000:
        step = 10_000  # points of whole pushes are points of whole leaves
    points = (a.end - a.start) // step
    everything = [r for r in world.oracle.rows if r.kind == a.kind and all(m.matches(r.labels) for m in a.matchers)]
    rows = [r for r in everything if 0 <= point_of(r.at_ms, a.start, step) <= points]
    if not rows or points > 200 or (a.gauge and step % 10_000):
        return False
    spread = not a.gauge and not mean and step < 60_000
    some = a.rng.choice(sorted(a.rng.choice(rows).stacks))
    site = some[:a.rng.randrange(1, len(some) + 1)]
    want, pushes = collections.Counter(), collections.Counter()
    leaves = collections.defaultdict(set)
    for r in everything if spread else rows:
        slots = slots_of(r, a, step) if spread else [r.at_ms]
        for k in [point_of(slot, a.start, step) for slot in slots]:
            at = (r.labels.get(by, ""), a.start + k * step)
            if 0 <= k <= points:
                pushes[at] += 1
                leaves[at].add(r.at_ms)
                want[at] += sum(v for s, v in r.stacks.items() if s[:len(site)] == site) / len(slots)
    a.end += 1
    reply = a.connect("SelectSeries", step=step / 1000, groupBy=[by] if by else [],
                      aggregation=int(mean),
                      stackTraceSelector={"callSite": [{"name": n} for n in site]})
    got = {(s.get("labels", [{"value": ""}])[0]["value"], int(p["timestamp"])): p["value"]
           for s in reply.get("series", []) for p in s["points"]}
    by_leaf = a.gauge and not mean
    want = {at: v / pushes[at] if mean else v / len(leaves[at]) if by_leaf else v
            for at, v in want.items() if v}
    if spread:  # less than a unit of a point goes to the next one
        got, want = ({at: x.get(at, 0) for at in got.keys() | want.keys()} for x in (got, want))
    assert set(got) == set(want), (a, step, by, site, mean, set(got) ^ set(want))
    for at, value in want.items():
        assert abs(got[at] - value) <= (1 if spread else value * 1e-12), (a, step, by, site, mean, at, value, got[at])
    return True


def heat_want(a, rows, step, group_by):
    """{group: {T: [value of each series' leaf]}}, and the leaves themselves."""
    leaves = collections.defaultdict(list)
    for r in rows:
        leaves[tuple(sorted(r.labels.items())), r.at_ms].append(r)
    slots = collections.defaultdict(lambda: collections.defaultdict(list))
    for (labels, at_ms), those in leaves.items():
        labels = dict(labels)
        group = tuple((k, labels[k]) for k in sorted(group_by) if k in labels)
        k = -((a.start - at_ms) // step)
        slots[group][a.start + k * step].append(sum(r.total for r in those))
    return slots, leaves


def ask_heatmap(world):
    """Each leaf of each series is one profile: counted by its value, the largest of a bucket
    named, and what is named opens."""
    a = Ask(world)
    step = a.rng.choice([10_000, 15_000, 60_000, 600_000, 3_600_000, DAY_MS])
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    group_by = a.rng.choice([[], ["pod"], ["env"], ["service_name", "region"], ["absent"]])
    points = (a.end - a.start) // step
    if points > 5000:
        return False
    rows = [r for r in world.oracle.rows if r.kind == a.kind
            and all(m.matches(r.labels) for m in a.matchers)
            and 0 <= -((a.start - r.at_ms) // step) <= points]
    slots, leaves = heat_want(a, rows, step, group_by)
    values = [v for at in slots.values() for vs in at.values() for v in vs]
    least, most = (min(values), max(values)) if values else (0, 0)
    width = (most - least) / 20
    limit = a.rng.choice([0, 0, 1, 2])
    a.end += 1
    series = a.connect("SelectHeatmap", step=step / 1000, groupBy=group_by, exemplarType=2,
                       queryType=1, **({"limit": str(limit)} if limit else {})).get("series", [])
    sums = sorted((sum(map(sum, at.values())) for at in slots.values()), reverse=True)
    assert len(series) == min(limit or len(slots), len(slots)), (a, step, group_by)
    named = []
    for i, s in enumerate(series):
        group = tuple(sorted((p["name"], p["value"]) for p in s.get("labels", [])))
        want = slots[group]
        assert sum(map(sum, want.values())) == sums[i], (a, group)
        assert [int(p["timestamp"]) for p in s["slots"]] == sorted(want), (a, step, group)
        for p in s["slots"]:
            inside = collections.defaultdict(list)
            for v in want[int(p["timestamp"])]:
                inside[min(int((v - least) / width), 19) if width else 0].append(v)
            assert p["counts"] == [len(inside[b]) for b in range(20)], (a, step, group, p, inside)
            assert all(abs(y - least - width * b) <= 1e-9 * most for b, y in enumerate(p["yMin"]))
            assert [int(x["value"]) for x in p["exemplars"]] == [
                max(inside[b]) for b in range(20) if inside[b]], (a, step, group, p)
            named += [(group, x) for x in p["exemplars"]]
    for group, x in a.rng.sample(named, min(3, len(named))):
        labels = tuple(sorted(dict(group, **{
            l["name"]: l["value"] for l in x["labels"] if l["name"] != "pyroscope_spy"}).items()))
        those = leaves[labels, int(x["timestamp"]) // 10_000 * 10_000]
        assert those and sum(r.total for r in those) == int(x["value"]), (a, group, x)
        a.start = min(a.start, int(x["timestamp"]))  # the first point reaches back
        got = cluster.leaves(cluster.flamegraph(a.connect(
            "SelectMergeStacktraces", maxNodes="1000000", profileIdSelector=[x["profileId"]])))
        same(got, oracle.Oracle.stacks(those), 0, (a, x))
    return bool(values)


def ask_analyze(world):
    """What a query is said to read before it does: series with data, pushes; by ingester."""
    a = Ask(world)
    rows = a.rows()
    reply = a.connect("AnalyzeQuery", query=a.type_id + a.selector)
    scopes = reply.get("queryScopes", [])
    series = {tuple(sorted(r.labels.items())) for r in rows}
    assert sum(int(s.get("seriesCount", 0)) for s in scopes) == len(series), (a, reply)
    assert sum(int(s.get("profileCount", 0)) for s in scopes) == len(rows), (a, reply)
    assert int(reply["queryImpact"].get("totalQueriedSeries", 0)) == len(series), (a, reply)
    assert bool(rows) == any(int(s.get("sampleCount", 0)) for s in scopes), (a, reply)
    assert bool(rows) == bool(int(reply["queryImpact"].get("totalBytesInTimeRange", 0))), (a, reply)
    return bool(rows)


def ask_functions(world):
    a = Ask(world)
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    rows = a.rows()
    stacks = oracle.Oracle.stacks(rows)
    want = oracle.Oracle.functions(stacks)
    total, leaves = sum(stacks.values()), a.leaves(rows)
    if leaves:
        total = oracle.rounded(total, leaves)
        want = {name: [oracle.rounded(v, leaves) for v in f] for name, f in want.items()}
    sort = a.rng.choice(["self", "total"])
    got = a.get("/api/v1/functions", step=str((a.end - a.start) // 1000), top="1000",
                sort=sort).json()
    if got["points"] != 1:
        return False
    assert got["all"] == total, (a, got["all"], total)
    found = {f["name"]: [f["self"], f["total"]] for f in got["functions"]}
    largest = sorted((f[sort == "total"] for f in want.values()), reverse=True)[:1000]
    assert [f[sort] for f in got["functions"]] == [v for v in largest if v] or (
        sorted((f[sort] for f in got["functions"]), reverse=True)[:len(largest)] == largest), a
    for name, values in found.items():
        assert values == want[name], (a, name, values, want[name])
    return bool(want)


def ask_labels(world):
    matchers = world.matchers()
    rows = [r for r in world.oracle.rows if all(m.matches(r.labels) for m in matchers)]
    when = {"start": str(world.now - 6 * DAY_MS), "end": str(world.now + DAY_MS),
            "matchers": [oracle.selector(matchers)]}
    name = world.rng.choice(["pod", "env", "region", "service_name", "absent"])
    r = world.server.connect("LabelValues", {"name": name, **when})
    want = sorted({r.labels[name] for r in rows if name in r.labels})
    assert r.json().get("names", []) == want, (matchers, name, r)
    r = world.server.connect("Series", {"labelNames": ["service_name", "env"], **when})
    got = {tuple((p["name"], p["value"]) for p in s.get("labels", []))
           for s in r.json().get("labelsSet", [])}
    want = {tuple((k, r.labels[k]) for k in ("env", "service_name") if k in r.labels) for r in rows}
    assert got == want, (matchers, got ^ want)
    return bool(rows)


KINDS = [ask_render, ask_stacktraces, ask_cut, ask_series, ask_series_below, ask_heatmap,
         ask_analyze, ask_functions, ask_labels]


def test_one_process():
    one_process(KINDS)


def test_four_processes():
    four_processes(KINDS)


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes])
