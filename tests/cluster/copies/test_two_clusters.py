"""Two clusters without keys whose nodes have the same names, and a node of one cluster that gets an address which
the other one had: neither accepts a message of the other, and both report it.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

TICK = 10_000_000
TOLD = "a process of another cluster takes this address for one of its own"


def total(c):
    r = c.render(cluster.CPU_TYPE + '{service_name="svc"}')
    return r.json()["flamebearer"]["numTicks"] // TICK if r.status == 200 else r


def terms(c):
    """{shard: (leader, term)} of those that lead."""
    return {r["shard"]: (name, r["term"]) for name, ring in c.rings().items()
            for r in ring.get("replicas", []) if r["state"] == "serving"}


def until(check, limit_s=120):
    end = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < end, check
        time.sleep(0.2)


def all_terms(c, limit_s=120):
    """The same, once every shard has a leader: a lead may be on its way."""
    end = time.monotonic() + limit_s
    while len(found := terms(c)) < c.shards:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def test_an_address_of_another_cluster():
    with replicated.Cluster() as a, replicated.Cluster() as b:
        for c, value in (a, 3), (b, 5):
            c.wait_whole()
            assert c.ingest(f"m;x {value}\n".encode(), name="svc.cpu").status == 200
        gone, moved = a.nodes["node0"].process, b.nodes["node0"].process
        gone.kill()
        moved.kill()
        address = next(o for o in gone.options if o.startswith("--ingester.listen="))
        moved.options = [address if o.startswith("--ingester.listen=") else o for o in moved.options]
        for c in a, b:
            until(lambda c=c: len(c.leaders()) == c.shards)
        before = all_terms(a)
        moved.start()
        until(lambda: TOLD in moved.log.read_text(errors="replace"))
        b.wait_whole()
        for c, value in (a, 3), (b, 5):
            assert c.ingest(b"m;x 10\n", name="svc.cpu").status == 200
            assert total(c) == value + 10, total(c)
        time.sleep(5)
        for shard, (_, term) in terms(a).items():  # leads are evened out, once; none is taken over
            assert term <= before[shard][1] + 1, (before, terms(a))
        all_terms(b)
        for c, value in (a, 3), (b, 5):
            assert total(c) == value + 10, total(c)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: two clusters: there is no etcd-server")
        sys.exit(0)
    cluster.main([test_an_address_of_another_cluster])
