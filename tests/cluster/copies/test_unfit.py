"""The database of a copy is damaged so that its node cannot serve the shard, though it follows: when it is named
leader it lets another one lead, again and again if it must, and the shard takes writes. (In the past the two others
did not help: the node led, a majority followed, and no node served.)
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
from test_handed_over import Bed, more, wait
from test_replicas import Load


def spoil(node, shard):
    tool = cluster.BIN.parent / "tests" / "lib" / "tools" / "tool_drop"
    subprocess.run([str(tool), str(node.process.folder / "data" / f"shard-{shard}"), "format"], check=True)


def test_leader_that_cannot_serve():
    with Bed(shards=2) as c, Load(c, rate=30) as load:
        c.wait_whole()
        more(load)
        bad = next(n for n in c.nodes.values() if n is not c.leader_of(0))
        bad.process.stop()
        spoil(bad, 0)
        bad.process.start(wait=False)
        c.wait_whole()
        bad.process.wait_ready()

        def tried():
            """Named, until it led long enough to fail: another node may have been faster."""
            record = c.record(0)
            if record["established"] and record["leader"] != bad.name:
                c.name_leader(0, bad.name)
            return "cannot be served from here" in bad.process.whole_log()

        wait("it tried to serve", tried)
        wait("another one leads", lambda: c.record(0)["leader"] != bad.name)
        wait("and serves", lambda: c.leaders().get(0) not in (None, bad.name))
        more(load)
        time.sleep(10)  # nor is it given back to make leads even
        assert c.leaders().get(0) not in (None, bad.name), c.leaders()
        load.stop()
        load.check()


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_leader_that_cannot_serve])
