"""A random world of testdata's own uploads, pushed to a server and to the oracle, and random
questions about it."""
import collections
import os
import random
import time

import cluster
import golden
import oracle
import pprof_ref
import push_client as push

FILES = ["go_cpu", "go_cpu_inlined", "go_mutex", "go_block", "go_heap_delta", "go_fgprof",
         "go_goroutine_labels", "node_wall", "node_heap", "python_pyroscope", "rust", "two_stacks"]
SERVICES = ["shop", "cart", "pay"]
PUSHES = int(os.environ.get("PUSHES", "260"))
QUERIES = int(os.environ.get("QUERIES", "600"))
DAY_MS = 86400_000


def never_cut(body):
    """With a stack that is deeper than the Go runtime's limit for memory, so that no stack of the file counts as cut
    and gets another's root (distributor/formats/pprof/pprof_graft.c, which has tests of its own)."""
    p = pprof_ref.Profile(body)
    ids, values = bytes([min(p.locations)] * 40), bytes([1] * len(p.types))
    assert min(p.locations) < 128
    return golden.plain(body) + push.field(2, push.field(1, ids) + push.field(2, values))


class World:
    def __init__(self, server, seed):
        self.server, self.rng, self.oracle = server, random.Random(seed), oracle.Oracle()
        self.files = {f: golden.read(f"pprof/{f}.pb.gz") for f in FILES}
        self.files["go_heap_delta"] = never_cut(self.files["go_heap_delta"])
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
                   ("region", "=~", "eu.*|"), ("region", "!=", "us"), ("missing", "=", "x")]
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


def ask_all(world, kinds, n):
    asked, filled, problems = collections.Counter(), collections.Counter(), []
    for _ in range(n):
        kind = world.rng.choice(kinds)
        asked[kind.__name__] += 1
        try:
            filled[kind.__name__] += kind(world)
        except AssertionError as e:
            problems.append(f"{kind.__name__}: {e}")
    print("     " + ", ".join(f"{k[4:]} {filled[k]} of {asked[k]} not empty" for k in sorted(asked)))
    assert not problems, f"{len(problems)} of {n} wrong:\n" + "\n".join(p[:600] for p in problems[:8])
    return asked, filled


def run(make, kinds):
    if not golden.available():
        print(golden.skip_line("answers beside the brute force"))
        return
    seed = int(os.environ.get("SEED", time.time_ns() // 1000 % 10**9))
    print(f"SEED={seed}")
    with make() as server:
        world = World(server, seed)
        asked, filled = collections.Counter(), collections.Counter()
        for part in range(2):
            for _ in range(PUSHES // 2):
                world.push()
            world.find_types()
            for to, more in zip((asked, filled),
                                ask_all(world, kinds, QUERIES // 4 if part == 0 else QUERIES // 4 * 3)):
                to.update(more)
        # A world in which most questions find nothing would show nothing. (Of both parts together: in the
        # first alone so few are asked that chance decides.)
        assert all(filled[k.__name__] * 5 >= asked[k.__name__] for k in kinds
                   if asked[k.__name__] >= 15), (asked, filled)


def one_process(kinds):
    run(lambda: cluster.AllInOne("--ingester.seal-delay=0ms", "--selfprof.enabled=false",
                                 "--cluster.shards=3"), kinds)


def four_processes(kinds):
    run(lambda: cluster.FourProcesses("--selfprof.enabled=false",
                                      ingester=["--ingester.seal-delay=0ms"]), kinds)
