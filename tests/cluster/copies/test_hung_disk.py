"""A disk that hangs: fsync neither returns nor fails. With copies the lead goes to members that are up to date, and
pushes and queries succeed; everywhere /readyz, the metrics and `embertreectl cluster status` report it, and writes
that cannot be taken get 503 with the reason. A write that waited behind the disk counts once.

The hang is made by tests/lib/tools/preload_hang.c, for one process at a time. CASE=part of a name runs some.
"""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
from test_replicas import Load

LIBRARY = cluster.BIN.parent / "tests" / "lib" / "tools" / "preload_hang.so"
SOON_S = 60  # nothing here takes half of it on an idle machine


@contextlib.contextmanager
def hangs():
    """Everything that is started within it can be hung by its process id."""
    with tempfile.TemporaryDirectory(prefix="embertree-hang-") as folder:
        os.environ["LD_PRELOAD"], os.environ["HANG_DIR"] = str(LIBRARY), folder
        try:
            yield Hangs(pathlib.Path(folder))
        finally:
            del os.environ["LD_PRELOAD"], os.environ["HANG_DIR"]


class Hangs:
    def __init__(self, folder):
        self.folder = folder

    def begin(self, process):
        (self.folder / str(process.child.pid)).touch()

    def read_only(self, process):
        (self.folder / f"{process.child.pid}.ro").touch()

    def end(self):
        for file in self.folder.iterdir():
            file.unlink()


def until(what, condition, limit_s=SOON_S):
    end = time.monotonic() + limit_s
    while True:
        got = condition()
        if got:
            return got
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.2)


def not_ready(process):
    reply = process.get("/readyz", timeout=5)
    return reply.status == 503 and b"hangs" in reply.body and reply


def status(server):
    run = subprocess.run([str(cluster.BIN / "embertreectl"), f"--url=http://127.0.0.1:{server.port}", "--json",
                          "cluster", "status"], capture_output=True, text=True, timeout=60, check=False)
    return run.returncode, json.loads(run.stdout)


def says(c, code, *words):
    """`cluster status`, asked of the querier, which leads nothing."""
    got, said = status(c.querier)
    text = json.dumps(said)
    return got == code and said["healthy"] == (code == 0) and all(w in text for w in words)


def leads_most(c):
    leaders = list(c.leaders().values())
    return c.nodes[max(c.nodes, key=leaders.count)]


def test_lead_moves():
    """All pushes are answered 200 within the distributor's patience, though the disk never returns."""
    with hangs() as h, replicated.Cluster() as c:
        c.wait_whole()
        c.settled()
        with Load(c) as load:
            time.sleep(2)
            victim = leads_most(c)
            mine = [shard for shard, name in c.leaders().items() if name == victim.name]
            assert mine, c.leaders()
            h.begin(victim.process)
            began = time.monotonic()
            until("others lead", lambda: victim.name not in {r["leader"] for r in c.records().values()})
            until("they serve", lambda: len({s for s, n in c.leaders().items() if n != victim.name}) == c.shards)
            print(f"     {len(mine)} shards led by others after {time.monotonic() - began:.1f} s")
            load.check()
            reply = until("not ready", lambda: not_ready(victim.process))
            assert b"replication log of shard" in reply.body, reply
            assert victim.process.metric("embertree_ingester_disk_stalled_seconds") >= 4
            assert victim.process.metric("embertree_ingester_disk_hangs_total") == 1
            until("status says it", lambda: says(c, 1, "few copies", f"{victim.name} lives and stores nothing",
                                                 "its disk hangs: the replication log of shard"))
            # Leads are evened once among the others; then nothing flaps, and it gets none.
            c.settled()
            assert victim.name not in {r["leader"] for r in c.records().values()}
            terms = {s: r["term"] for s, r in c.records().items()}
            time.sleep(8)
            assert {s: r["term"] for s, r in c.records().items()} == terms
            load.check()
            h.end()
            until("ready again", lambda: victim.process.get("/readyz").status == 200)
            c.wait_whole()
            until("status is well", lambda: says(c, 0))
            load.stop()
            load.check()
            print(f"     slowest answer {load.slowest:.1f} s")
        assert victim.process.metric("embertree_ingester_disk_stalled_seconds") == 0


def test_follower():
    """Its leads stay with their nodes, pushes succeed, and it gets no lead."""
    with hangs() as h, replicated.Cluster() as c:
        c.wait_whole()
        c.settled()
        with Load(c) as load:
            leaders = list(c.leaders().values())
            victim = c.nodes[min(c.nodes, key=leaders.count)]
            h.begin(victim.process)
            until("not ready", lambda: not_ready(victim.process))
            until("it leads nothing", lambda: victim.name not in {r["leader"] for r in c.records().values()})
            load.check()
            h.end()
            until("ready again", lambda: victim.process.get("/readyz").status == 200)
            c.wait_whole()
            load.stop()
            load.check()


def test_read_only():
    """A disk that refuses everything: its node lives, and its copies do not count."""
    with hangs() as h, replicated.Cluster() as c:
        c.wait_whole()
        with Load(c) as load:
            until("status is well", lambda: says(c, 0))
            leaders = list(c.leaders().values())
            victim = c.nodes[min(c.nodes, key=leaders.count)]
            h.read_only(victim.process)
            until("status says it", lambda: says(c, 1, "few copies", f"{victim.name} lives and stores nothing",
                                                 "Read-only file system"), 20)
            time.sleep(5)  # it is tried again and again, and does not look well in between
            for _ in range(10):
                assert says(c, 1, "few copies", victim.name), status(c.querier)
                time.sleep(0.3)
            load.check()
            h.end()
            c.wait_whole()
            until("status is well", lambda: says(c, 0))
            load.stop()
            load.check()


def test_two_of_three():
    """No majority of disks: no lead is handed over, and waiting writes are there, once, when they return."""
    with hangs() as h, replicated.Cluster(shards=1) as c:
        c.wait_whole()
        c.settled()
        assert c.ingest(b"a;b 1\n", "svc.cpu{}").status == 200
        leader = c.leader_of(0)
        other = next(n for n in c.nodes.values() if n is not leader)
        term = c.records()[0]["term"]
        h.begin(leader.process)
        h.begin(other.process)
        got = []
        push = threading.Thread(target=lambda: got.append(
            c.distributor.post("/ingest?name=svc.cpu&from=now-20s&until=now-10s", b"a;c 3\n", {"Idempotency-Key": "k"})))
        push.start()
        until("not ready", lambda: not_ready(leader.process) and not_ready(other.process))
        assert b"hangs" in c.distributor.get("/readyz").body or True
        time.sleep(6)
        assert c.records()[0]["term"] == term, c.records()
        until("status says it", lambda: says(c, 1, "halted", "missing: "))
        h.end()
        push.join()
        assert got[0].status == 200, got
        until("ready again", lambda: leader.process.get("/readyz").status == 200)
        reply = c.distributor.post("/ingest?name=svc.cpu&from=now-20s&until=now-10s", b"a;c 3\n",
                                   {"Idempotency-Key": "k"})
        assert reply.status == 200, reply
        found = cluster.leaves(c.render(cluster.CPU_TYPE + '{service_name="svc"}').json()["flamebearer"])
        assert found == {("total", "a", "b"): 10_000_000, ("total", "a", "c"): 30_000_000} or \
            sorted(found.values()) == [10_000_000, 30_000_000], found


def test_without_copies():
    """503 with the reason and Retry-After, at once and for waiting pushes; queries are answered; counted once."""
    with hangs() as h, cluster.AllInOne("--selfprof.enabled=false", "--distributor.ack-timeout=60s") as server:
        assert server.ingest(b"a;b 1\n", "svc.cpu{}").status == 200
        h.begin(server.process)
        got = []

        def push():
            got.append(server.process.post("/ingest?name=svc.cpu&from=now-20s&until=now-10s", b"a;c 3\n",
                                           {"Idempotency-Key": "k"}))
        waits = threading.Thread(target=push)
        waits.start()
        until("not ready", lambda: not_ready(server.process))
        waits.join()
        push()
        for reply in got:
            assert reply.status == 503 and reply.headers["Retry-After"] and b"hangs" in reply.body, reply
            assert b"a commit of shard" in reply.body, reply
        query = cluster.CPU_TYPE + '{service_name="svc"}'
        found = cluster.leaves(server.render(query).json()["flamebearer"])
        assert list(found.values()) == [10_000_000], found
        h.end()
        until("ready again", lambda: server.process.get("/readyz").status == 200)
        push()
        assert got[-1].status == 200, got[-1]
        found = cluster.leaves(server.render(query).json()["flamebearer"])
        assert sorted(found.values()) == [10_000_000, 30_000_000], found
        assert server.process.stop() == 0


def test_slow_is_not_hung():
    """Each fsync takes seconds, less than the limit: nothing is given away, and nothing is said."""
    with hangs() as h, replicated.Cluster(shards=1, ingester=["--ingester.disk-timeout=4s"]) as c:
        c.wait_whole()
        c.settled()
        leader, term = c.leader_of(0), c.records()[0]["term"]
        stop = time.monotonic() + 15
        pushes = [threading.Thread(target=lambda n=n: c.ingest(f"a;s{n} 1\n", "svc.cpu{}")) for n in range(6)]
        for n in pushes:
            n.start()
        while time.monotonic() < stop:
            h.begin(leader.process)
            time.sleep(1.5)
            h.end()
            time.sleep(0.3)
        for n in pushes:
            n.join()
        assert c.records()[0]["term"] == term, c.records()
        assert leader.process.metric("embertree_ingester_disk_hangs_total") == 0


if __name__ == "__main__":
    tests = [test_lead_moves, test_follower, test_read_only, test_two_of_three, test_slow_is_not_hung, test_without_copies]
    if not replicated.available():
        print("SKIPPED: no etcd: copies")
        tests = [test_without_copies]
    cluster.main([t for t in tests if os.environ.get("CASE", "") in t.__name__])
