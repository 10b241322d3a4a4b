"""Stored data verified while it is served, and offline: nothing is found in what is sound; bytes
changed on the disk are found by both, and said in words."""
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

OPTIONS = ("--memory.limit=256MiB", "--selfprof.enabled=false", "--ingester.seal-delay=0ms",
           "--scrub.delay=0ms", "--scrub.interval=200ms", "--scrub.rate=1000000", "--scrub.sample=1")


def push(server, i):
    rng = random.Random(i)
    body = "".join(f"main;{rng.getrandbits(400):x} {k + 1}\n" for k in range(4000))
    until = int(time.time()) - 60 * (i % 15)
    for _ in range(100):
        reply = server.ingest(body, f"app{i % 2}.cpu{{pod=p{i % 5}}}",
                              from_=until - 10, until=until)
        if reply.status != 503:
            break
        time.sleep(0.1)
    assert reply.status == 200, reply


def ledger(server, what):
    return server.process.metric("embertree_loss_ledger_total", what=what)


def rounds(server, more):
    end = server.process.metric("embertree_ingester_scrub_rounds_total") + more
    until = time.monotonic() + 120
    while server.process.metric("embertree_ingester_scrub_rounds_total") < end:
        assert time.monotonic() < until, "no round ended"
        time.sleep(0.2)


def fsck(server, *options):
    r = subprocess.run([str(cluster.BIN / "embertree"), "fsck", *options,
                        str(server.process.folder / "data")], capture_output=True, text=True)
    return r.returncode, r.stdout, r.stderr


def test_found_by_scrub_and_fsck():
    with cluster.AllInOne(*OPTIONS) as server:
        for i in range(60):
            push(server, i)
        code, out, err = fsck(server)
        assert code == 2 and "in use by a running process" in err, (code, out, err)
        rounds(server, 2)
        assert server.process.metric("embertree_ingester_scrub_rows_total") > 0
        assert ledger(server, "rows_lost") == 0 and ledger(server, "nodes_rebuilt") == 0
        assert server.process.stop() == 0
        code, out, err = fsck(server)
        assert code == 0 and "0 findings" in out and "leaves" in out, (code, out, err)
        assert "rows" in err, err  # progress

        table = max((server.process.folder / "data" / "shard-0").glob("*.sst"),
                    key=lambda f: f.stat().st_size)
        bytes_ = bytearray(table.read_bytes())
        for at in range(len(bytes_) // 10, len(bytes_) // 2, 4096):
            bytes_[at] ^= 0xFF
        table.write_bytes(bytes_)
        code, out, err = fsck(server, "--quiet", "--findings=3")
        assert code == 1 and "findings" in out and "orruption" in out, (code, out, err)
        assert err == "", err
        print(out)


def test_a_round_then_the_interval():
    """Also where other nodes lead some of the shards, the last one among them."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    options = ("--scrub.delay=0ms", "--scrub.interval=1h", "--scrub.rate=1000000")
    with replicated.Cluster(shards=6, ingester=options) as c:
        c.wait_whole()
        for node in c.nodes.values():
            until = time.monotonic() + 120
            while not node.process.metric("embertree_ingester_scrub_rounds_total"):
                assert time.monotonic() < until, "no round ended"
                time.sleep(0.1)
        rounds_of = lambda node: node.process.metric("embertree_ingester_scrub_rounds_total")
        time.sleep(2)
        before = {node.name: rounds_of(node) for node in c.nodes.values()}
        time.sleep(5)
        for node in c.nodes.values():
            more = rounds_of(node) - before[node.name]
            assert more <= 2, f"{node.name} went over its shards again: {more:.0f} times in 5 s"


if __name__ == "__main__":
    cluster.main([test_found_by_scrub_and_fsck, test_a_round_then_the_interval])
