"""`embertree adopt`: data of a single process, or of a list of ingesters, written without copies, become a
cluster with three copies of each shard, without loss; data that must not be adopted are refused.
"""
import contextlib
import os
import random
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

SHARDS = 2
SERVICES = 6


def adopt(c, name, *nodes, code=0, shards=SHARDS, folder=None):
    r = subprocess.run([str(cluster.BIN / "embertree"), "adopt",
                        f"--data.dir={folder or c.folder / name / 'data'}", f"--cluster.node={name}",
                        *c.shared, f"--cluster.shards={shards}", *nodes],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False)
    assert r.returncode == code, r
    return r.stdout if code == 0 else r.stderr


def push(server, round_=0):
    """One push a service with a stack of its own; {service: stacks}."""
    for i in range(SERVICES):
        r = server.ingest(f"root;r{round_} {i + 1}\n", f"svc{i}.cpu")
        assert r.status == 200, r


def answers(server):
    out = {}
    for i in range(SERVICES):
        r = server.render(cluster.CPU_TYPE + '{service_name="svc%d"}' % i)
        assert r.status == 200, r
        out[i] = cluster.leaves(r.json()["flamebearer"])
    return out


def want(rounds):
    return {i: {("root", f"r{n}"): (i + 1) * 10_000_000 for n in range(rounds)} for i in range(SERVICES)}


def start(c):
    for p in c.processes():
        p.start(wait=False)
    for p in c.processes():
        p.wait_ready()


@contextlib.contextmanager
def prepared():
    """A cluster of which only etcd runs; its folders are for others to fill."""
    c = replicated.Cluster(shards=SHARDS)
    try:
        c.etcd.start()
        yield c
    except BaseException:
        c.__exit__(*sys.exc_info())
        raise
    c.__exit__(None, None, None)


def test_one_to_three():
    with prepared() as c:
        single = cluster.AllInOne(f"--cluster.shards={SHARDS}", "--no-selfprof.enabled",
                                  "--memory.limit=256MiB", folder=c.folder / "node0")
        with single:
            push(single, 0)
            assert answers(single) == want(1)
            assert "LOCK" in adopt(c, "node0", code=1) or "in use" in adopt(c, "node0", code=1)
            assert single.process.stop() == 0
        # Refused, and nothing is changed by it: other numbers of shards, nodes that are not us.
        assert "shard-2 is not there" in adopt(c, "node0", code=1, shards=3)
        assert "is not a shard of node" in adopt(c, "node0", code=1, shards=1)
        assert "is not among the named nodes" in adopt(c, "node0", "a", "b", code=1)
        # Not adopted, it does not start.
        shutil.copytree(c.folder / "node0" / "data", c.folder / "copy", ignore=shutil.ignore_patterns("admin.sock"))
        try:
            c.nodes["node0"].process.start()
            raise AssertionError("an ingester started on a database that is no copy")
        except RuntimeError as e:
            assert "embertree adopt" in str(e), e
        shutil.rmtree(c.folder / "node0" / "data")
        shutil.copytree(c.folder / "copy", c.folder / "node0" / "data")
        assert "is node node0" in adopt(c, "node0")
        assert "is node node0" in adopt(c, "node0")
        # The same data in another folder: by another name, and by the same one.
        assert "begun with other settings" in adopt(c, "node1", code=1, folder=c.folder / "copy")
        (c.folder / "copy" / "node-id").unlink(missing_ok=True)
        assert "another data folder" in adopt(c, "node0", code=1, folder=c.folder / "copy")
        start(c)
        assert answers(c) == want(1)
        push(c, 1)
        c.wait_whole()
        assert answers(c) == want(2)
        c.nodes["node0"].process.kill()
        shutil.rmtree(c.folder / "node0" / "data")
        time.sleep(4)
        assert answers(c) == want(2)
        push(c, 2)
        assert answers(c) == want(3)
        # A log that was adopted is missed like any other.
        c.nodes["node0"].process.start(wait=False)
        c.nodes["node0"].process.wait_ready()
        assert "the log of a shard is gone" in c.nodes["node0"].process.whole_log()
        assert answers(c) == want(3)


def test_list_to_three():
    """Two ingesters with a shard each; adopted one after the other, one of them in two goes."""
    with prepared() as c:
        ports = [cluster.free_port() for _ in range(2)]
        peers = "--cluster.ingesters=" + ",".join(f"tcp://127.0.0.1:{p}" for p in ports)
        shared = [peers, f"--cluster.shards={SHARDS}", "--no-selfprof.enabled", "--memory.limit=256MiB"]
        old = [cluster.Process("embertree-ingester", f"--ingester.listen=tcp://127.0.0.1:{ports[i]}",
                               *shared, folder=c.folder / f"node{i}") for i in range(2)]
        front = [cluster.Process(f"embertree-{r}", f"--{r}.listen=tcp://127.0.0.1:{cluster.free_port()}",
                                 *shared, folder=c.folder / f"old-{r}") for r in ("distributor", "querier")]
        try:
            for p in old + front:
                p.start(wait=False)
            for p in old + front:
                p.wait_ready()
            api = cluster.Api()
            api.writer, api.reader = front
            push(api, 0)
            assert answers(api) == want(1)
            assert [p.stop() for p in front + old] == [0] * 4
        finally:
            for p in old + front:
                p.cleanup()
        assert "shard-0 is not there" in adopt(c, "node1", code=1)
        assert "is not a shard of node" in adopt(c, "node1", "node1", "node0", code=1)
        adopt(c, "node1", "node0", "node1")
        assert "other settings" in adopt(c, "node0", "node0", "nodeX", code=1)
        adopt(c, "node0", "node0", "node1")
        start(c)
        assert answers(c) == want(1)
        c.wait_whole()
        push(c, 1)
        c.nodes[random.choice(["node0", "node1"])].process.kill()
        time.sleep(4)
        assert answers(c) == want(2)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_one_to_three, test_list_to_three])
