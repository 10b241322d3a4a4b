"""Random questions on every route beside the brute force over the raw uploads of testdata: ranges,
selectors, groups, call sites, cuts, functions, diffs, exports. SEED=n repeats, QUERIES=n asks more
(thousands by hand)."""
import collections
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import oracle
import pprof_ref

FILES = ["go_cpu", "go_cpu_inlined", "go_mutex", "go_block", "go_heap_delta", "go_fgprof",
         "go_goroutine_labels", "node_wall", "node_heap", "python_pyroscope", "rust", "two_stacks"]
SERVICES = ["shop", "cart", "pay"]
PUSHES = int(os.environ.get("PUSHES", "260"))
QUERIES = int(os.environ.get("QUERIES", "600"))
DAY_MS = 86400_000


class World:
    def __init__(self, server, seed):
        self.server, self.rng, self.oracle = server, random.Random(seed), oracle.Oracle()
        self.files = {f: golden.read(f"pprof/{f}.pb.gz") for f in FILES}
        self.files |= {row["path"]: golden.read(row["path"])
                       for row in golden.manifest("pprof", "pprof-many")
                       if row["path"].startswith("pprof-many/")}
        self.profiles = {f: pprof_ref.Profile(body) for f, body in self.files.items()}
        assert all(p.has_all_names() for p in self.profiles.values())
        self.now = int(time.time() * 1000) // 10_000 * 10_000 - 20_000
        self.times, self.pushed = [], set()

    def labels(self):
        rng = self.rng
        out = {"service_name": rng.choice(SERVICES), "pod": f"pod-{rng.randrange(5)}"}
        if rng.random() < 0.7:
            out["env"] = rng.choice(["prod", "dev"])
        if rng.random() < 0.3:
            out["region"] = rng.choice(["eu.west", "us"])
        return out

    def any_time(self):
        """Now, the last hours, days back; and again where something is."""
        rng = self.rng
        if self.times and rng.random() < 0.2:
            return rng.choice(self.times)
        back = rng.choice([600_000, 3_600_000, 6 * 3_600_000, 5 * DAY_MS])
        return self.now - rng.randrange(back) // 10_000 * 10_000

    def push(self):
        labels, at = self.labels(), self.any_time()
        name = self.rng.choice(sorted(self.files))
        same = (tuple(sorted(labels.items())), at, name)
        if same in self.pushed:
            return  # the same body for the same time: one write, rightly counted once
        self.pushed.add(same)
        more = ",".join(f"{k}={v}" for k, v in labels.items() if k != "service_name")
        r = self.server.ingest(self.files[name], f"{labels['service_name']}{{{more}}}",
                               format="pprof", from_=str(at // 1000), until=str(at // 1000 + 10))
        assert r.status == 200, (name, r)
        self.oracle.add(self.profiles[name], labels, at)
        self.times.append(at)

    def find_types(self):
        """Profile type ids as the server named them: one for each sample type."""
        r = self.server.connect("ProfileTypes", {"start": str(self.now - 6 * DAY_MS),
                                                 "end": str(self.now + DAY_MS)})
        by_kind = collections.defaultdict(list)
        for t in r.json()["profileTypes"]:
            by_kind[t["sampleType"], t["sampleUnit"]].append(t["ID"])
        self.ids = {k: by_kind[k, u] for k, u in self.oracle.units.items()}
        assert all(self.ids.values()), self.ids
        # `samples` and the like may have come under several names; only clear ones are asked for.
        self.kinds = sorted(k for k, ids in self.ids.items() if len(ids) == 1)
        assert len(self.kinds) >= 8, self.ids

    def matchers(self):
        rng = self.rng
        out = [oracle.Matcher("service_name", *rng.choice(
            [("=", s) for s in SERVICES] * 2 + [("=~", "shop|cart"), ("!=", "pay")] * 2
            + [("=~", ".*")] * 3))]
        choices = [("pod", "=", "pod-1"), ("pod", "=~", "pod-[0-2]"), ("pod", "!=", "pod-3"),
                   ("pod", "!~", "pod-(1|4)"), ("env", "=", "prod"), ("env", "=", ""),
                   ("env", "!=", ""), ("env", "!~", "p.*"), ("region", "=~", "eu\\.west"),
                   ("region", "=~", "eu.*|"), ("region", "!=", "us"), ("nobody", "=", "x")]
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2])):
            out.append(oracle.Matcher(*rng.choice(choices)))
        return out

    def some_row(self):
        """Of a type that can be asked for; most questions are about where something is."""
        while True:
            row = self.rng.choice(self.oracle.rows)
            if row.kind in self.kinds:
                return row

    def range_ms(self, at):
        rng = self.rng
        length = rng.choice([10_000, 30_000, 600_000, 3_600_000, 7 * 3_600_000, DAY_MS, 5 * DAY_MS])
        start = (at if rng.random() < 0.85 else self.any_time()) - rng.randrange(length)
        end = start + length
        if rng.random() < 0.7:
            start, end = start // 10_000 * 10_000, end // 10_000 * 10_000
        return start, end


def bars(flamebearer):
    """{path: total} of every bar below the root."""
    names, out, above = flamebearer["names"], {}, [(0, flamebearer["numTicks"], ())]
    for level in flamebearer["levels"][1:]:
        here, x, parent = [], 0, 0
        for i in range(0, len(level), 4):
            x += level[i]
            while not above[parent][0] <= x < above[parent][1]:
                parent += 1
            path = above[parent][2] + (names[level[i + 3]],)
            assert path not in out, f"two bars of {path}"
            out[path] = level[i + 1]
            here.append((x, x + level[i + 1], path))
            x += level[i + 1]
        above = here
    return out


def same(got, want, gauge_leaves, what):
    """Sums are equal; means add up to the rounded total and each is next to its own."""
    if not gauge_leaves:
        assert got == want, (f"{what}: {sum(got.values())} in {len(got)}, expected "
                             f"{sum(want.values())} in {len(want)}")
        return
    total = oracle.rounded(sum(want.values()), gauge_leaves)
    assert sum(got.values()) == total, f"{what}: {sum(got.values())}, expected {total}"
    for key in set(got) | set(want):
        mean = want.get(key, 0) / gauge_leaves
        assert abs(got.get(key, 0) - mean) <= 1, f"{what}: {key}: {got.get(key)}, expected {mean}"


class Ask:
    """One random question of a kind, and what its answer must be."""

    def __init__(self, world, matchers=None):
        self.w, self.rng = world, world.rng
        row = world.some_row()
        self.kind = row.kind
        self.type_id = world.ids[self.kind][0]
        self.gauge = self.kind in oracle.GAUGES
        self.matchers = matchers if matchers is not None else world.matchers()
        self.selector = oracle.selector(self.matchers)
        self.start, self.end = world.range_ms(row.at_ms)

    def rows(self):
        return self.w.oracle.rows_of(self.kind, self.matchers, self.start, self.end)

    def leaves(self, rows):
        return oracle.Oracle.leaves(rows) if self.gauge else 0

    def connect(self, method, **more):
        # querier.v1 includes the end.
        r = self.w.server.connect(method, {
            "profileTypeID": self.type_id, "labelSelector": self.selector,
            "start": str(self.start), "end": str(self.end - 1), **more})
        assert r.status == 200, (self, r)
        return r.json()

    def get(self, path, **more):
        r = self.w.server.reader.get(path, query=self.type_id + self.selector,
                                     from_=str(self.start), until=str(self.end), **more)
        assert r.status == 200, (self, r)
        return r

    def __repr__(self):
        return f"{self.type_id}{self.selector} [{self.start}, {self.end})"


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


def ask_series(world):
    a = Ask(world)
    step = a.rng.choice([10_000, 15_000, 20_000, 60_000, 600_000, 3_600_000, DAY_MS])
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    if (a.end - a.start) // step > 5000:
        return False
    group_by = a.rng.choice([[], ["pod"], ["env"], ["service_name", "region"], ["nobody"]])
    points = (a.end - a.start) // step
    rows = [r for r in world.oracle.rows if r.kind == a.kind
            and all(m.matches(r.labels) for m in a.matchers)
            and 0 <= point_of(r.at_ms, a.start, step) <= points]
    want = collections.defaultdict(lambda: collections.defaultdict(int))
    seen = collections.defaultdict(lambda: collections.defaultdict(set))
    for r in rows:
        group = tuple((k, r.labels[k]) for k in sorted(group_by) if k in r.labels)
        at = a.start + point_of(r.at_ms, a.start, step) * step
        want[group][at] += r.total
        seen[group][at].add(r.at_ms)
    a.end += 1
    reply = a.connect("SelectSeries", step=step / 1000, groupBy=group_by)
    got = {tuple(sorted((p["name"], p["value"]) for p in s.get("labels", []))):
           {int(p["timestamp"]): p["value"] for p in s["points"]} for s in reply.get("series", [])}
    assert set(got) == set(want), (a, step, group_by, set(got) ^ set(want))
    for group, at in want.items():
        assert set(got[group]) == set(at), (a, step, group, set(got[group]) ^ set(at))
        for t, value in at.items():
            mean = value / len(seen[group][t]) if a.gauge else value
            assert abs(got[group][t] - mean) <= (1 if a.gauge else 0), (a, step, group, t, mean,
                                                                        got[group][t])
    return bool(want)


def ask_functions(world):
    a = Ask(world)
    if a.gauge:
        return False
    a.start, a.end = a.start // 10_000 * 10_000, a.end // 10_000 * 10_000 + 10_000
    stacks = oracle.Oracle.stacks(a.rows())
    want = oracle.Oracle.functions(stacks)
    sort = a.rng.choice(["self", "total"])
    got = a.get("/api/v1/functions", step=str((a.end - a.start) // 1000), top="1000",
                sort=sort).json()
    if got["points"] != 1:
        return False
    assert got["all"] == sum(stacks.values()), (a, got["all"])
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
    name = world.rng.choice(["pod", "env", "region", "service_name", "nobody"])
    r = world.server.connect("LabelValues", {"name": name, **when})
    want = sorted({r.labels[name] for r in rows if name in r.labels})
    assert r.json().get("names", []) == want, (matchers, name, r)
    r = world.server.connect("Series", {"labelNames": ["service_name", "env"], **when})
    got = {tuple((p["name"], p["value"]) for p in s.get("labels", []))
           for s in r.json().get("labelsSet", [])}
    want = {tuple((k, r.labels[k]) for k in ("env", "service_name") if k in r.labels) for r in rows}
    assert got == want, (matchers, got ^ want)
    return bool(rows)


KINDS = [ask_render, ask_stacktraces, ask_cut, ask_series, ask_functions, ask_labels]


def ask_all(world, n):
    asked, filled, problems = collections.Counter(), collections.Counter(), []
    for _ in range(n):
        kind = world.rng.choice(KINDS)
        asked[kind.__name__] += 1
        try:
            filled[kind.__name__] += kind(world)
        except AssertionError as e:
            problems.append(f"{kind.__name__}: {e}")
    print("     " + ", ".join(f"{k[4:]} {filled[k]} of {asked[k]} not empty" for k in sorted(asked)))
    assert not problems, f"{len(problems)} of {n} wrong:\n" + "\n".join(p[:600] for p in problems[:8])
    # A world in which most questions find nothing would show nothing.
    assert all(filled[k.__name__] * 5 >= asked[k.__name__] for k in KINDS), filled


def run(make):
    if not golden.available():
        print(golden.skip_line("answers beside the brute force"))
        return
    seed = int(os.environ.get("SEED", time.time_ns() // 1000 % 10**9))
    print(f"SEED={seed}")
    with make() as server:
        world = World(server, seed)
        for part in range(2):
            for _ in range(PUSHES // 2):
                world.push()
            world.find_types()
            ask_all(world, QUERIES // 4 if part == 0 else QUERIES // 4 * 3)


def test_one_process():
    run(lambda: cluster.AllInOne("--ingester.seal-delay=0ms", "--selfprof.enabled=false"))


def test_four_processes():
    run(lambda: cluster.FourProcesses("--selfprof.enabled=false",
                                      ingester=["--ingester.seal-delay=0ms"]))


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes])
