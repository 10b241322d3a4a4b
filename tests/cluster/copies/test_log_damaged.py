"""Bytes of a replication log have changed when its ingester starts again: it reports it, puts the log
aside, does not vote with the rest, fetches the shard again from the others, and nothing is lost
meanwhile.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

PUSHES = 150


def push(c, first):
    for i in range(first, first + PUSHES):
        at = int(time.time()) - 60
        reply = c.ingest(f"root;p{i} {i + 1}\n", "svc", **{"from": at, "until": at + 1})
        assert reply.status == 200, reply


def stacks(c):
    """The stored stacks, by their number."""
    text = c.querier.get("/pyroscope/render", query="process_cpu:cpu:nanoseconds:cpu:nanoseconds"
                         '{service_name="svc"}', until="now", format="collapsed",
                         **{"from": "now-1h"}).body.decode()
    return {line.split(";")[-1].split()[0] for line in text.splitlines() if ";p" in line}


def damage(log):
    """A bit in the middle of its oldest file."""
    file = sorted(log.glob("*.rlog"))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    return file.name


def wait_whole(c, node):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        own = node.ring().get("replicas", [])
        if len(own) == c.shards and not any(r["lost"] or r["applied"] == 0 for r in own):
            c.wait_whole()
            return
        time.sleep(0.2)
    raise AssertionError(c.rings())


def test_a_log_that_rotted():
    with replicated.Cluster(shards=1) as c:
        c.wait_whole()
        push(c, 0)
        for turn in (1, 2):  # what was put aside before gives way
            victim = next(n for n in c.nodes.values() if n is not c.leader_of(0))
            data = victim.process.folder / "data"
            victim.process.kill()
            name = damage(data / "log-0")
            victim.process.start(wait=False)
            push(c, turn * PUSHES)
            victim.process.wait_ready()
            wait_whole(c, victim)
            said = victim.process.whole_log()
            assert f"{name} is damaged at byte" in said, said
            assert "the log of a shard is damaged: it is moved to damaged-log-<shard>" in said, said
            assert (data / "damaged-log-0" / name).exists()
        leader = c.leader_of(0)
        other = next(n for n in c.nodes.values() if n not in (victim, leader))
        other.process.kill()  # the fetched rows are needed now
        push(c, 3 * PUSHES)
        assert stacks(c) == {f"p{i}" for i in range(4 * PUSHES)}


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_a_log_that_rotted])
