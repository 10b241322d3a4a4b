"""A real server in a cgroup of 640 MiB with --memory.limit 512MiB, pushed and asked far beyond what
fits: it is never killed for memory, refuses politely, and afterwards works as before.

The cgroup (v2, or v1's memory controller) is made and removed here, which takes root; where that is
impossible the test is skipped, loudly. SECONDS=n makes the hammering longer, SEED=n repeats it.
"""
import contextlib
import gzip
import http.client
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

MIB = 1 << 20
CGROUP_BYTES, LIMIT = 640 * MIB, "512MiB"
SECONDS = int(os.environ.get("SECONDS", "35"))
SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
TENANT_NODES = 400_000  # ten pushes of new_stacks, so that slow machines reach it, too
MAKING = threading.Lock()


class Group:
    """A cgroup with a memory limit. ok is False, and why says it, where there can be none."""

    def __init__(self, limit, top=pathlib.Path("/sys/fs/cgroup")):
        self.ok, self.why = False, ""
        name = f"embertree-test-{os.getpid()}"
        if (top / "cgroup.controllers").exists():
            self.root, files = top / name, {"memory.max": limit, "memory.swap.max": 0}
            with contextlib.suppress(OSError):
                (top / "cgroup.subtree_control").write_text("+memory")
            self.events, self.peak = "memory.events", "memory.peak"
        else:
            self.root = top / "memory" / name
            files = {"memory.limit_in_bytes": limit, "memory.memsw.limit_in_bytes": limit}
            self.events, self.peak = "memory.oom_control", "memory.max_usage_in_bytes"
        try:
            self.root.mkdir(exist_ok=True)
        except OSError as e:
            self.why = f"cannot make {self.root}: {e}"
            return
        for i, (file, value) in enumerate(files.items()):
            try:
                (self.root / file).write_text(str(value))
            except OSError as e:
                if i == 0:  # swap may not be accounted; the limit must be
                    self.why = f"cannot set {self.root / file}: {e}"
                    self.remove()
                    return
        self.ok = (self.root / self.events).exists()
        self.why = "" if self.ok else f"no {self.events}"

    def enter(self):
        (self.root / "cgroup.procs").write_text(str(os.getpid()))

    def number(self, file, key=None):
        path = self.root / file
        if not path.exists():
            return 0
        for line in path.read_text().splitlines():
            words = line.split()
            if key is None:
                return int(words[0])
            if words[0] == key:
                return int(words[1])
        return 0

    def oom_kills(self):
        return self.number(self.events, "oom_kill")

    def remove(self):
        for _ in range(50):
            with contextlib.suppress(OSError):
                self.root.rmdir()
                return
            time.sleep(0.1)


class InGroup(cluster.Process):
    group = None

    def start(self, wait=True):
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(cluster.BIN / self.binary), f"--http.listen=127.0.0.1:{self.port}",
                   f"--data.dir={self.folder / 'data'}", *self.options]
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                                          preexec_fn=self.group.enter)
        if wait:
            self.wait_ready()
        return self


class Tally:
    def __init__(self):
        self.lock, self.seen, self.wrong, self.peak = threading.Lock(), {}, [], 0

    def add(self, what, status, headers, body):
        with self.lock:
            key = (what, status)
            self.seen[key] = self.seen.get(key, 0) + 1
            if status == 503 and not headers.get("Retry-After"):
                self.wrong.append(f"{what}: 503 without Retry-After: {body[:200]!r}")
            # 400 only for what can never fit this limit, and then it says what to do instead.
            advice = any(word in body for word in (b"ask for", b"narrow its", b"push smaller",
                                                   b"all pushes together may hold"))
            if status not in (200, 413, 429, 503, 504) and not (status == 400 and advice):
                self.wrong.append(f"{what}: {status} {body[:200]!r}")

    def count(self, what, *status):
        return sum(n for (w, s), n in self.seen.items() if w == what and s in status)


def client(port):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=120)


def worker(port, what, make, tally, until, seed):
    rng, c = random.Random(seed), client(port)
    while time.monotonic() < until:
        method, path, body, headers = make(rng)
        try:
            c.request(method, path, body, headers)
            r = c.getresponse()
            data = r.read()
        except (OSError, http.client.HTTPException):
            c.close()  # a refused body may end the connection before it was read
            c = client(port)
            tally.add(what, 503, {"Retry-After": "1"}, b"connection closed")
            time.sleep(0.01)
            continue
        tally.add(what, r.status, r.headers, data)
        if r.status == 503:
            time.sleep(0.005)  # far less than it asks for
    c.close()


def many_series(rng):
    """Small pushes, each with a new label set."""
    name = f"wide.cpu{{pod=p{rng.getrandbits(48):x},zone=z{rng.randrange(5)},v={rng.randrange(9)}}}"
    body = "\n".join(f"main;f{rng.randrange(300)};g{rng.randrange(300)} {rng.randrange(1, 99)}"
                     for _ in range(20))
    return "POST", "/ingest?" + urllib.parse.urlencode({"name": name}), body, {}


def new_stacks(rng):
    """Megabytes of stacks that were never there, in several services: dictionaries grow."""
    salt = rng.getrandbits(32)
    rows = [f"main;s{salt:x}.a{i % 97};b{salt:x}_{i % 1009};c{salt:x}_{i} {i % 50 + 1}"
            for i in range(20_000)]
    name = f"fresh{rng.randrange(12)}.cpu{{host=h{rng.randrange(4)}}}"
    return "POST", "/ingest?" + urllib.parse.urlencode({"name": name}), "\n".join(rows), {}


def big_bodies(rng, made={}):
    """30 MB of text, as it is and gzip'd: with 50,000 stacks, which fit, and with 900,000, which take
    more memory than all pushes may hold. Made once and sent again and again."""
    with MAKING:
        if not made:
            for k, stacks in enumerate((50_000, 50_001, 900_000)):
                text = "\n".join(f"main;big{k};deep{i % 1000};leaf{i % stacks} {i % 1000 + 1}"
                                 for i in range(900_000)).encode()[:31 * MIB]
                text = text[:text.rindex(b"\n")]
                made[k] = (text, gzip.compress(text, 1))
    k = rng.choice((0, 0, 0, 1, 1, 2))
    plain, packed = made[k]
    path = "/ingest?" + urllib.parse.urlencode({"name": f"big{k}.cpu{{}}"})
    if rng.random() < 0.5:
        return "POST", path, plain, {}
    return "POST", path, packed, {"Content-Encoding": "gzip"}


def wide_queries(rng):
    app = rng.choice(["wide", "fresh0", "fresh1", "fresh2", "big0", "big1", "big2"])
    kind = f"{cluster.CPU_TYPE}{{service_name=\"{app}\"}}"
    choice = rng.randrange(4)
    if choice == 0:
        query = {"query": kind, "from": "now-30d", "until": "now", "format": "json",
                 "max-nodes": "1000000"}
        return "GET", "/pyroscope/render?" + urllib.parse.urlencode(query), None, {}
    if choice == 1:
        query = {"query": kind, "from": "now-1h", "until": "now", "groupBy": "pod"}
        return "GET", "/pyroscope/render?" + urllib.parse.urlencode(query), None, {}
    now = int(time.time() * 1000)
    if choice == 2:
        method, text = "LabelValues", f'{{"name":"pod","start":"{now - 3600000}","end":"{now}"}}'
    else:
        method, text = "Series", f'{{"matchers":["{{}}"],"start":"{now - 3600000}","end":"{now}"}}'
    return ("POST", "/querier.v1.QuerierService/" + method, text,
            {"Content-Type": "application/json"})


WORK = {"series": (many_series, 3), "stacks": (new_stacks, 2), "bodies": (big_bodies, 3),
        "queries": (wide_queries, 3)}


def watch(process, group, tally, until):
    while time.monotonic() < until and process.child.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            statm = pathlib.Path(f"/proc/{process.child.pid}/statm").read_text().split()
            tally.peak = max(tally.peak, int(statm[1]) * os.sysconf("SC_PAGE_SIZE"))
        time.sleep(0.05)


def hammer(process, group, tally):
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=watch, args=(process, group, tally, until + 1))]
    for what, (make, n) in WORK.items():
        for i in range(n):
            seed = f"{SEED}-{what}-{i}"
            threads.append(threading.Thread(target=worker, args=(process.port, what, make, tally,
                                                                 until, seed)))
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def settle(process, limit_s=90):
    """Until the process says that it is calm or only keeps its caches small."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        reply = process.get("/ring")
        if reply.status == 200 and reply.json()["memory"]["state"] != "refusing":
            return reply.json()["memory"]
        time.sleep(0.2)
    raise AssertionError(f"still refuses after {limit_s} s without load: {reply.json()['memory']}")


def works_again(server):
    """A new service is stored as it is, though its neighbours took more new names than their tenant
    may bring in a day: the last part of that is not for the noisy."""
    name = f"after.cpu{{run=r{SEED}}}"
    for _ in range(120):
        reply = server.ingest("a;b 3\na;c 4\n", name)
        if reply.status != 503:
            break
        time.sleep(0.5)
    assert reply.status == 200, reply
    reply = server.render(f'{cluster.CPU_TYPE}{{service_name="after",run="r{SEED}"}}')
    assert reply.status == 200, reply
    got = cluster.leaves(reply.json()["flamebearer"])
    assert got == {("a", "b"): 3 * 10**7, ("a", "c"): 4 * 10**7}, got


def test_the_cgroup_is_made_as_each_version_wants_it():
    """In folders that stand for the kernel's: a machine has but one version to try."""
    for v2 in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            own = (top if v2 else top / "memory") / f"embertree-test-{os.getpid()}"
            own.mkdir(parents=True)
            if v2:
                (top / "cgroup.controllers").write_text("cpu memory pids\n")
                (own / "memory.events").write_text("low 0\noom 5\noom_kill 2\n")
                (own / "memory.peak").write_text("12345\n")
            else:
                (own / "memory.oom_control").write_text("under_oom 0\noom_kill 2\n")
                (own / "memory.max_usage_in_bytes").write_text("12345\n")
            group = Group(CGROUP_BYTES, top)
            assert group.ok, group.why
            wrote = {f.name: f.read_text() for f in own.iterdir()}
            if v2:
                assert (top / "cgroup.subtree_control").read_text() == "+memory"
                assert wrote["memory.max"] == str(CGROUP_BYTES) and wrote["memory.swap.max"] == "0"
            else:
                assert wrote["memory.limit_in_bytes"] == str(CGROUP_BYTES), wrote
            group.enter()
            assert (own / "cgroup.procs").read_text() == str(os.getpid())
            assert group.oom_kills() == 2 and group.number(group.peak) == 12345


def test_hammered_in_a_small_cgroup():
    group = Group(CGROUP_BYTES)
    if not group.ok:
        print(f"SKIPPED: memory under a cgroup: {group.why} (needs root and the memory controller)")
        return
    InGroup.group, tally = group, Tally()
    big_bodies(random.Random(0))
    server = cluster.AllInOne(f"--memory.limit={LIMIT}", "--ingester.seal-delay=1s",
                              f"--ingester.dictionary-tenant-nodes-per-day={TENANT_NODES}")
    server.process.__class__ = InGroup
    try:
        with server:
            print(f"SEED={SEED}", flush=True)
            hammer(server.process, group, tally)
            assert server.process.child.poll() is None, f"ended with {server.process.child.poll()}"
            memory = settle(server.process)
            works_again(server)
            cut = int(server.process.metric("embertree_ingester_dictionary_overflow_total"))
            changes = {s: int(server.process.metric("embertree_memory_changes_total", state=s))
                       for s in ("shrunk", "refusing")}
            print(f"resident at most {tally.peak // MIB} MiB, cgroup at most "
                  f"{group.number(group.peak) // MIB} MiB, states {changes}, then {memory['state']}")
            print(f"stacks cut to {TENANT_NODES} new nodes: {cut}")
            print("parts, MiB: " + ", ".join(f"{k} {v['bytes'] // MIB}/{v['shareBytes'] // MIB}"
                                             for k, v in memory["parts"].items()))
            print("answers: " + ", ".join(f"{w} {s}: {n}"
                                          for (w, s), n in sorted(tally.seen.items())))
            assert not tally.wrong, tally.wrong[:5]
            for what in WORK:
                assert tally.count(what, 200) > 0, f"no {what} was served at all"
            assert sum(n for (_, s), n in tally.seen.items() if s == 503) > 0, "nothing was refused"
            assert server.process.stop() == 0
        assert group.oom_kills() == 0, f"{group.oom_kills()} OOM kills"
    finally:
        server.process.cleanup()
        group.remove()


if __name__ == "__main__":
    cluster.main([test_the_cgroup_is_made_as_each_version_wants_it,
                  test_hammered_in_a_small_cgroup])
