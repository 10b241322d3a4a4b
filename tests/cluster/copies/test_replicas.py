"""Three copies of every shard, in real processes with a real etcd: whatever is killed, stopped or
started again under load, each push is answered 200 once it is safe, and is then there exactly once.

Each push has a stack of its own, so that every single one can be looked for. Pushers run all the
time; a push that is not answered 200 within the distributor's own patience is a failure of the test, with
one exception: the distributor is never touched.

SEED=n and KILLS=n change a run; CASE=part of a name runs some.
"""
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
KILLS = int(os.environ.get("KILLS", "2"))
PUSHERS = 4
SERVICES = 12
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz


class Load:
    """Pushers in the background."""

    def __init__(self, c, rate=40):
        self.c, self.rate = c, rate
        self.lock = threading.Lock()
        self.pushes = {}   # (service, stack) -> value
        self.failed, self.slowest = [], 0.0
        self.stopping = False
        self.began = int(time.time())
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(PUSHERS)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping = True
        for t in self.threads:
            t.join()

    def run(self, number):
        rng = random.Random(SEED * 100 + number)
        connection = http.client.HTTPConnection("127.0.0.1", self.c.distributor.port, timeout=120)
        n = 0
        while not self.stopping:
            service, stack = f"svc{rng.randrange(SERVICES)}", f"p{number}-{n}"
            value, age = rng.randrange(1, 1000), rng.choice((5, 5, 70, 200))
            n += 1
            at = int(time.time()) - age
            path = f"/ingest?name={service}.cpu%7Bx%3Dy%7D&from={at}&until={at + 1}"
            before = time.monotonic()
            connection.request("POST", path, f"root;{stack} {value}\n",
                               {"Idempotency-Key": f"{SEED}-{stack}"})
            reply = connection.getresponse()
            body = reply.read()
            with self.lock:
                self.slowest = max(self.slowest, time.monotonic() - before)
                if reply.status == 200:
                    self.pushes[(service, stack)] = value
                else:
                    self.failed.append((reply.status, body[:200]))
            time.sleep(PUSHERS / self.rate * rng.random() * 2)
        connection.close()

    def check(self):
        """Asks for everything now: what was acked before is there, once."""
        with self.lock:
            acked = dict(self.pushes)
            assert not self.failed, self.failed[:3]
        found = {}
        for s in range(SERVICES):
            query = cluster.CPU_TYPE + '{service_name="svc%d"}' % s
            r = self.c.render(query, **{"from": str(self.began - 900), "until": "now"})
            assert r.status == 200, r
            for stack, value in cluster.leaves(r.json()["flamebearer"]).items():
                assert value % TICK == 0, (stack, value)
                found[(f"svc{s}", stack[-1])] = value // TICK
        lost = [k for k, v in acked.items() if found.get(k, 0) == 0]
        wrong = [(k, v, found[k]) for k, v in acked.items() if found.get(k, v) not in (0, v)]
        assert not lost, f"{len(lost)} of {len(acked)} lost: {lost[:5]}"
        assert not wrong, f"{len(wrong)} of {len(acked)} wrong: {wrong[:5]}"
        return len(acked)


def changes_of(c, shard):
    """The lines of all nodes about new leaders of a shard, in order of time."""
    lines = [line for n in c.nodes.values() for line in n.process.whole_log().splitlines()
             if 'msg="a shard has a new leader"' in line and f" shard={shard} " in line]
    return sorted(lines)


def test_kill_leader():
    with replicated.Cluster() as c, Load(c) as load:
        rng = random.Random(SEED)
        c.wait_whole()
        time.sleep(1)
        for _ in range(KILLS):
            shard = rng.randrange(c.shards)
            victim = c.leader_of(shard)
            before = changes_of(c, shard)
            victim.process.kill()
            time.sleep(rng.uniform(0.5, 6))
            load.check()
            victim.process.start(wait=False)
            victim.process.wait_ready()
            c.wait_whole()
            load.check()
            new = changes_of(c, shard)[len(before):]
            assert any(f"from={victim.name} " in line and "why=" in line for line in new), (victim.name, new)
        load.stop()
        n = load.check()
        print(f"     SEED={SEED}: {n} pushes, {KILLS} kills, slowest answer {load.slowest:.1f} s")


def test_etcd_away():
    """Without etcd pushes and queries succeed; fail-over works again when it is back."""
    with replicated.Cluster() as c, Load(c) as load:
        c.wait_whole()
        c.etcd.kill()
        time.sleep(8)
        load.check()
        before = len(load.pushes)
        time.sleep(2)
        assert len(load.pushes) > before
        c.etcd.start()
        time.sleep(4)
        victim = c.leader_of(0)
        victim.process.kill()
        time.sleep(6)
        load.check()
        victim.process.start(wait=False)
        c.wait_whole()
        load.stop()
        load.check()


def test_restarts_without_etcd():
    """etcd is away for long, and meanwhile every process is killed and starts again, one by one and then
    all ingesters at once: each is ready by what it saw last, and nothing is lost or refused for good."""
    with replicated.Cluster(shards=2) as c:
        c.wait_whole()
        pushed = 0

        def push():
            nonlocal pushed
            pushed += 1
            until = time.monotonic() + 120
            while True:  # as clients do
                r = c.ingest(f"root;p{pushed} 1\n", f"svc{pushed % 4}.cpu",
                             {"Idempotency-Key": str(pushed)})
                if r.status == 200:
                    return
                assert r.status == 503 and time.monotonic() < until, r
                time.sleep(0.2)

        def check():
            got = sum(c.render(cluster.CPU_TYPE + '{service_name="svc%d"}' % i).json()["flamebearer"]["numTicks"]
                      for i in range(4))
            assert got == pushed * TICK, (got, pushed)

        for _ in range(4):
            push()
        c.settled()
        c.etcd.kill()
        for p in c.processes():
            p.kill()
            p.start(wait=False)
            p.wait_ready()
            push()
            check()
        for n in c.nodes.values():
            n.process.kill()
        for n in c.nodes.values():
            n.process.start(wait=False)
        for n in c.nodes.values():
            n.process.wait_ready()
        for _ in range(4):
            push()
        check()
        late = c.process("distributor", folder="late")  # it has never seen the cluster: it says what it waits for
        try:
            late.start(wait=False)
            until = time.monotonic() + 90
            said = b""
            while b"coordination service does not answer" not in said:
                assert time.monotonic() < until, said
                time.sleep(0.1)
                with contextlib.suppress(OSError):
                    r = late.get("/readyz")
                    assert r.status == 503, r
                    said = r.body
            c.etcd.start()
            late.wait_ready()
        finally:
            late.cleanup()


def test_stopped_leader():
    """A leader that sleeps while others take over must not answer of the past when it wakes."""
    with replicated.Cluster() as c, Load(c) as load:
        c.wait_whole()
        for _ in range(2):
            sleeper = c.leader_of(0)
            sleeper.process.child.send_signal(signal.SIGSTOP)
            time.sleep(7)
            load.check()
            wait(lambda: says(c, f"- {sleeper.name} has been gone for ", "few copies"))
            sleeper.process.child.send_signal(signal.SIGCONT)
            for _ in range(5):
                load.check()
            c.wait_whole()
            # Nodes say it every few seconds; a querier leads nothing.
            wait(lambda: says(c, "keep up") and not says(c, "been gone"))
        load.stop()
        load.check()


def test_drain():
    """A node that is stopped in order hands over first: no request waits for the end of a lease. Copies
    are compared all the time."""
    with replicated.Cluster(options=["--cluster.digest-interval=1s"]) as c, Load(c) as load:
        c.wait_whole()
        load.slowest = 0.0
        for name in list(c.nodes):
            node = c.nodes[name]
            assert node.process.stop() == 0
            load.check()
            node.process.start(wait=False)
            node.process.wait_ready()
            c.wait_whole()
            assert "level=error" not in node.process.tail(500), node.process.tail(500)
        load.stop()
        load.check()
        for name in ("digests", "differences"):
            n = sum(n.process.metric(f"embertree_repl_{name}_total") for n in c.nodes.values())
            assert (n > 0) == (name == "digests"), (name, n)
        print(f"     slowest answer {load.slowest:.1f} s")


def test_join():
    with replicated.Cluster() as c, Load(c) as load:
        c.wait_whole()
        node = c.add("node3", "zone3")
        node.process.start(wait=False)
        node.process.wait_ready()
        wait(lambda: node.ring().get("replicas"))
        c.wait_whole()
        load.stop()
        load.check()


def wait_learned(c, node, limit_s=120):
    """Until the node is a member of every shard again, and has all of it."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        own = node.ring().get("replicas", [])
        if len(own) == c.shards and not any(r["lost"] or r["applied"] == 0 for r in own):
            c.wait_whole()
            return
        time.sleep(0.2)
    raise AssertionError(json.dumps(c.rings()))


def test_lost_disk():
    """An ingester comes back under its name with an empty disk: it does not vote with the log it no
    longer has, is taken out, fetches everything again while the others serve, and is a copy again."""
    with replicated.Cluster() as c, Load(c) as load:
        c.wait_whole()
        for shard in (0, 1):
            victim = c.leader_of(shard) if shard else c.nodes["node1"]
            victim.process.kill()
            shutil.rmtree(victim.process.folder / "data")
            victim.process.start(wait=False)
            victim.process.wait_ready()
            assert not any(r["lost"] for r in victim.ring()["replicas"]), "ready before it is a copy"
            wait_learned(c, victim)
            assert "the log of a shard is gone" in victim.process.whole_log()
            load.check()
        # What it learned is all there is now, but for one other copy.
        other = next(n for n in c.nodes.values() if n is not victim and n.name != "node1")
        other.process.kill()
        time.sleep(5)
        load.check()
        load.stop()
        n = load.check()
        print(f"     {n} pushes, slowest answer {load.slowest:.1f} s")


def test_full_disks():
    """A node without room does not lead while another has room; where none has, one leads for
    readers, and writes are refused with the reason."""
    with replicated.Cluster(shards=3) as c:
        c.wait_whole()
        with Load(c) as load:
            full = c.nodes["node0"]
            assert full.process.stop() == 0
            full.process.options += ("--data.disk-reserve=1000TiB",)
            full.process.start(wait=False)
            wait(lambda: full.name in c.rings() and full.ring().get("noRoom"))
            c.wait_whole()
            for _ in range(10):  # longer than it takes to move leaders back where they belong
                time.sleep(0.5)
                leads = [r["shard"] for r in full.ring()["replicas"] if r["state"] == "serving"]
                assert not leads, leads
            load.stop()
            load.check()
        for name in ("node1", "node2"):
            p = c.nodes[name].process
            p.kill()
            p.options += ("--data.disk-reserve=1000TiB",)
        for name in ("node1", "node2"):
            c.nodes[name].process.start(wait=False)
        for shard in range(c.shards):
            c.leader_of(shard)
        load.check()
        r = c.ingest("a;b 1\n", "svc0.cpu")
        assert r.status == 503 and b"disk reserve" in r.body, r


def ctl(process, *args, code=0):
    r = subprocess.run([str(cluster.BIN / "embertreectl"), "--server",
                        f"http://127.0.0.1:{process.port}", "cluster", *args],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert code in (None, r.returncode), (args, r)
    return r.stdout.decode() if r.returncode < 2 else r.stderr.decode()


def test_drain_by_command():
    """A node is emptied under load by embertreectl, stopped for good, and nothing is missing."""
    with replicated.Cluster(ingesters=4) as c, Load(c) as load:
        c.wait_whole()
        wait(lambda: says(c, "4 nodes, 4 shards with 3 copies; all have a leader"))
        leaves = c.leader_of(0)
        said = ctl(c.querier, "drain", leaves.name, "--wait")
        assert said == f"{leaves.name} has no shard and can be stopped\n", said

        def empty():
            """As another process sees it, a little later; leaders move after that."""
            status = json.loads(ctl(c.distributor, "status", "--json", code=None))
            node = next(n for n in status["nodes"] if n["name"] == leaves.name)
            return (node["shards"] == node["leads"] == 0 and node["state"] == "left" and
                    all(len(s["members"]) >= 3 and leaves.name not in s["members"] for s in status["shards"]))
        wait(empty)
        c.wait_whole()
        load.check()
        other = next(n for n in c.nodes if n != leaves.name)
        assert "another node" in ctl(c.querier, "drain", other, code=2)
        assert "no node" in ctl(c.querier, "drain", "absent", code=2)
        assert leaves.process.stop() == 0
        load.check()
        wait(lambda: says(c, "all have a leader"))
        load.stop()
        n = load.check()
        print(f"     {n} pushes, slowest answer {load.slowest:.1f} s")


def says(c, *words):
    """Whether the querier's status has all of these, whatever else it says."""
    said = ctl(c.querier, "status", code=None)
    return all(w in said for w in words)


def state_of(c, name):
    """As the others say; None: the map has forgotten it."""
    nodes = json.loads(ctl(c.querier, "status", "--json", code=None))["nodes"]
    return next((n["state"] for n in nodes if n["name"] == name), None)


def wait(check, limit_s=120):
    until = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_drained_stays():
    """A drained node that is started again is left still, at once and when the map has forgotten it, and
    says so, until an operator undrains it. Under the same name with an empty folder it is a new node."""
    left = "has left the cluster"
    with replicated.Cluster(ingesters=4) as c, Load(c) as load:
        c.wait_whole()
        node = c.nodes["node1"]
        told = lambda: node.process.log.read_text(errors="replace").count(left)
        has = lambda: node.ring().get("replicas")
        ctl(c.querier, "drain", "node1", "--wait")
        wait(lambda: told() == 1)
        for n, slow in enumerate((False, True, True), 2):
            if slow:
                assert node.process.stop() == 0
                wait(lambda: state_of(c, "node1") is None)
                assert "forgotten until it is started" in ctl(c.querier, "undrain", "node1", code=2)
            else:
                node.process.kill()
            node.process.start()
            wait(lambda n=n: told() == n)
            for _ in range(8):  # the controller would give it shards within a second or two
                time.sleep(0.5)
                assert state_of(c, "node1") == "left" and not has()
            wait(lambda: says(c, "node1 was drained, and is given nothing"))
        assert ctl(c.querier, "undrain", "node1") == "node1 is used again\n"
        wait(has)
        c.wait_whole()
        wait(lambda: state_of(c, "node1") == "active")
        ctl(c.querier, "drain", "node1", "--wait")
        assert node.process.stop() == 0
        wait(lambda: state_of(c, "node1") is None)
        shutil.rmtree(node.process.folder / "data")
        node.process.start()
        wait(has)
        c.wait_whole()
        load.stop()
        load.check()
        # Nothing moves any more: of each three nodes there is a shard that only they have.
        wait(lambda: c.established() and sorted(
            n for r in c.records().values() for n in r["members"] + r.get("learners", [])) == sorted([*c.nodes] * 3))
        c.nodes["node2"].process.kill()
        wait(lambda: "fewer live copies" in ctl(c.querier, "status", code=None))
        # With one of the others gone this drain does not come to its end; an operator undoes it.
        waits = subprocess.Popen([str(cluster.BIN / "embertreectl"), "--server",
                                  f"http://127.0.0.1:{c.querier.port}", "cluster", "drain", "node1",
                                  "--wait"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE)
        wait(lambda: state_of(c, "node1") == "draining")
        time.sleep(1)
        ctl(c.querier, "undrain", "node1")
        said = waits.communicate(timeout=60)[1]
        assert waits.returncode == 2 and b"draining of node1 was cancelled by another operator" in said, said


def test_restart_all():
    with replicated.Cluster() as c:
        with Load(c) as load:
            c.wait_whole()
            time.sleep(3)
            load.stop()
            load.check()
        for n in c.nodes.values():
            n.process.kill()
        for n in c.nodes.values():
            n.process.start(wait=False)
        for n in c.nodes.values():
            n.process.wait_ready()
        for shard in range(c.shards):
            c.leader_of(shard)
        load.check()


def test_ready_is_true():
    """All are ready only when every shard is placed, and no ingester takes it back while a cluster is made."""
    with replicated.Cluster() as c:
        assert "not placed" not in ctl(c.querier, "status", code=None)
        assert c.ingest(b"a;b 1\n", "svc.cpu{}").status == 200
        for n in c.nodes.values():
            assert 'msg="not ready"' not in n.process.whole_log(), n.process.tail()


def test_no_leader_for_queries():
    """Two of three are gone: a query is answered with the reason long before its time is over, and pushes are as
    before. The remaining node, with an empty folder, names the lease it waits for."""
    with replicated.Cluster(shards=2) as c:
        c.wait_whole()
        assert c.ingest(b"a;b 1\n", "svc.cpu{}").status == 200
        one, two, three = c.nodes.values()
        for n in (one, two):
            n.process.kill()
        query = c.querier.get("/render", timeout=50, query=cluster.CPU_TYPE + '{service_name="svc"}',
                              from_="now-1h", until="now", format="collapsed")
        assert query.status == 503 and query.headers["Retry-After"], query
        assert b"has no leader" in query.body or b"half or more of the copies" in query.body, query
        shutil.rmtree(one.process.folder / "data")
        for n in (one, two):
            n.process.start(wait=False)
        wait(lambda: "registered in the cluster" in one.process.whole_log().rpartition("listening")[2])
        assert "another node called" not in one.process.whole_log()
        one.process.wait_ready()
        c.wait_whole()
        assert b"a;b 1" in c.querier.get("/render", query=cluster.CPU_TYPE + '{service_name="svc"}', from_="now-1h",
                                         until="now", format="collapsed").body


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_kill_leader, test_etcd_away, test_restarts_without_etcd,
                  test_stopped_leader, test_drain, test_join,
                  test_lost_disk, test_full_disks, test_drain_by_command, test_drained_stays,
                  test_restart_all, test_ready_is_true, test_no_leader_for_queries])
