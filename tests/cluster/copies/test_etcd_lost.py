"""etcd is lost: an empty one, or an old backup, takes its place for some time. Processes that keep shards
do not follow it: pushes and queries succeed, no folder of a shard is deleted, nothing is written there, and
all processes report it. When its data are back everything continues without help.

CASE=part of a name runs some.
"""
import base64
import contextlib
import json
import os
import shutil
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

TICK = 10_000_000


def wait(what, condition, limit_s=120):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if condition():
                return
        time.sleep(0.2)
    raise AssertionError(f"not within {limit_s} s: {what}")


class Bed(replicated.Cluster):
    """Two copies on three nodes, so that a node can be drained."""

    def __init__(self, **more):
        super().__init__(shards=4, replicas=2, **more)
        self.pushed = 0

    def push(self):
        self.pushed += 1
        until = time.monotonic() + 120
        while True:  # as clients do
            r = self.ingest(f"root;p{self.pushed} 1\n", f"svc{self.pushed % 8}.cpu",
                            {"Idempotency-Key": str(self.pushed)})
            if r.status == 200:
                return
            assert r.status == 503 and time.monotonic() < until, r
            time.sleep(0.2)

    def answered(self):
        """Everything that was acknowledged is in the answers."""
        total = 0
        for i in range(8):
            r = self.render(cluster.CPU_TYPE + '{service_name="svc%d"}' % i)
            if r.status != 200:
                return False
            total += r.json()["flamebearer"]["numTicks"]
        return total == self.pushed * TICK

    def folders(self):
        return {name: sorted(f.name for f in (node.process.folder / "data").iterdir()
                             if f.name.startswith(("shard-", "log-")))
                for name, node in self.nodes.items()}

    def strangers(self):
        """How many processes say so, ingesters and all."""
        return sum(p.get("/ring").json()["cluster"].get("stranger", False) for p in self.processes())

    def below(self, prefix):
        """How many keys etcd has there."""
        def code(text):
            return base64.b64encode(text.encode()).decode()
        body = json.dumps({"key": code(prefix), "range_end": code(prefix[:-1] + "0"), "count_only": True})
        answer = urllib.request.urlopen(self.etcd.url + "/v3/kv/range", body.encode(), timeout=5).read()
        return int(json.loads(answer).get("count", 0))

    def swap(self, data):
        """Another folder for etcd: None, an empty one. Returns where the previous folder is now."""
        self.etcd.kill()
        place = self.etcd.folder / "data"
        kept = self.etcd.folder / f"kept-{time.monotonic_ns()}"
        place.rename(kept)
        if data:
            shutil.copytree(data, place)
        self.etcd.start()
        return kept

    def goes_on(self, seconds):
        """As if etcd were away; each shard is where it was."""
        before = self.folders()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.push()
            assert self.folders() == before
            time.sleep(0.5)
        wait("what was pushed", self.answered)

    def told(self):
        for node in self.nodes.values():
            assert node.process.metric("embertree_cluster_stranger") == 1
            assert "the coordination service is not followed" in node.process.whole_log()
            trouble = node.process.get("/ring").json()["cluster"]["trouble"]
            assert "embertreectl cluster recover" in trouble, trouble
        for p in self.processes():
            r = p.operate("/api/v1/cluster/nodes/node0/drain")
            assert r.status == 503 and b"Nothing it says is followed" in r.body, r

    def drains(self):
        """It is followed again: the map changes, and shards move."""
        wait("etcd is followed again", lambda: self.strangers() == 0)
        wait("all live again",
             lambda: all(n["live"] for n in self.querier.get("/ring").json()["cluster"]["nodes"]))
        for node in self.nodes.values():
            assert node.process.metric("embertree_cluster_stranger") == 0
        r = self.querier.operate("/api/v1/cluster/nodes/node2/drain")
        assert r.status == 200, r
        wait("node2 is empty", lambda: not self.folders()["node2"], 120)
        wait("what was pushed", self.answered)


def test_an_empty_one():
    """While all run, then all ingesters and a distributor start again by what they kept."""
    with Bed() as c:
        c.wait_whole()
        for _ in range(30):
            c.push()
        wait("what was pushed", c.answered)
        kept = c.swap(None)
        wait("all processes report it", lambda: c.strangers() == 5)
        c.goes_on(20)
        c.told()
        assert c.below("/embertree/ring/") == 0
        restarted = [*[n.process for n in c.nodes.values()], c.distributor]
        for p in restarted:
            p.stop()
        for p in restarted:
            p.start(wait=False)
        for p in restarted:
            p.wait_ready()
        wait("all processes report it", lambda: c.strangers() == 5)
        c.goes_on(10)
        c.told()
        assert c.below("/embertree/ring/") == 0
        c.swap(kept)
        c.drains()


def test_an_old_backup():
    """In which a node that is empty by now has shards, and others have not what they have."""
    with Bed() as c:
        c.wait_whole()
        for _ in range(30):
            c.push()
        c.etcd.kill()
        shutil.copytree(c.etcd.folder / "data", c.etcd.folder / "old")
        c.etcd.start()
        wait("it is reached", lambda: c.querier.operate("/api/v1/cluster/nodes/node0/drain").status == 200)
        wait("node0 is empty", lambda: not c.folders()["node0"], 120)
        kept = c.swap(c.etcd.folder / "old")
        wait("all processes report it", lambda: c.strangers() == 5)
        c.goes_on(15)
        c.told()
        c.swap(kept)
        wait("etcd is followed again", lambda: c.strangers() == 0)
        r = None

        def undrained():
            nonlocal r
            r = c.querier.operate("/api/v1/cluster/nodes/node0/undrain")
            return r.status == 200
        wait("it is followed", undrained)
        wait("node0 has shards again", lambda: c.folders()["node0"], 120)
        wait("what was pushed", c.answered)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_an_empty_one, test_an_old_backup])
