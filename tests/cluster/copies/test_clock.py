"""A wall clock that is years off deletes nothing (common/store/state/engine_clock.h): in a single process, which can
ask no peer, and in a cluster, where the peers know better. If the clock were believed after two minutes, like a clock
that is an hour off, everything would be "too old" by the end of this test.
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

TICK = 10_000_000
YEARS_S = 10 * 365 * 86400
RETAIN = ["--retention.interval=1s"]
SETTLE_S = 150  # engine_clock.h: 2 minutes, after which sealing goes by the clock


@contextlib.contextmanager
def clocks_by(lib, seconds):
    os.environ.update(LD_PRELOAD=str(lib), CLOCK_BY=str(seconds))
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["CLOCK_BY"]


def wait_for(fine, limit_s=120):
    until = time.monotonic() + limit_s
    while not fine():
        assert time.monotonic() < until, fine
        time.sleep(0.2)


class Data:
    """A push, and what is to be found of it whatever the server's clock says."""

    def __init__(self, api):
        self.api, self.now, self.pushed = api, int(time.time()), 0

    def push(self, n):
        at = int(time.time()) - 60
        got = self.api.ingest(f"a;b {n}\n".encode(), name="shop.cpu", from_=str(at - 10), until=str(at))
        assert got.status == 200, got
        self.pushed += n

    def check(self):
        got = self.api.render(cluster.CPU_TYPE + '{service_name="shop"}',
                              **{"from": str(self.now - 3600), "until": str(self.now + 3600)}).json()
        assert got["flamebearer"]["numTicks"] == self.pushed * TICK, (got["flamebearer"]["numTicks"], self.pushed)


def moved(process):
    return process.metric("embertree_ingester_retention_floors_moved_total")


def restarted(process, lib, by):
    assert process.stop() == 0
    with clocks_by(lib, by):
        process.start(wait=False)
    process.wait_ready()


def test_years_off():
    with tempfile.TemporaryDirectory() as folder, \
            cluster.AllInOne("--ingester.seal-delay=0ms", "--no-selfprof.enabled", *RETAIN) as one, \
            replicated.Cluster(shards=2, ingester=RETAIN) as c:
        lib = pathlib.Path(folder) / "clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", lib, cluster.ROOT / "tests/chaos/clock.c"], check=True)
        c.wait_whole()
        alone, among = Data(one), Data(c)
        for d in (alone, among):
            d.push(3)
            d.check()
        name = c.leader_of(0).name
        wrong = c.nodes[name].process

        # Ahead, for longer than a jump of hours is looked at.
        restarted(one.process, lib, YEARS_S)
        restarted(wrong, lib, YEARS_S)
        c.wait_whole()
        for n in c.nodes.values():  # so that the node with the wrong clock leads
            if n.name != name:
                assert n.process.stop() == 0
                n.process.start()
                c.wait_whole()
        wait_for(lambda: name in c.leaders().values())
        began = time.monotonic()
        wait_for(lambda: one.process.metric("embertree_ingester_clock_held") > 0)
        wait_for(lambda: wrong.metric("embertree_cluster_clock_skew_seconds") > YEARS_S / 2)
        among.push(4)
        while time.monotonic() < began + SETTLE_S:
            assert moved(one.process) == 0 and moved(wrong) == 0
            time.sleep(1)
        assert one.process.metric("embertree_ingester_clock_held") > 0
        assert one.process.metric("embertree_ingester_clock_paused") == 0
        ahead_s = one.process.metric("embertree_ingester_clock_ahead_seconds")
        shards = one.process.get("/ring").json()["roles"]["ingester"]["shards"]
        assert abs(ahead_s / len(shards) - YEARS_S) < 600, ahead_s
        assert all(s["clockHeld"] and s["clockAheadMs"] > 0 for s in shards), shards
        assert "far ahead of what is stored" in one.process.log.read_text()
        wait_for(lambda: one.process.metric("embertree_ingester_raw_rows") == 0)
        # In the cluster nothing waits: the time of the others is taken.
        assert name in c.leaders().values()
        assert wrong.metric("embertree_ingester_clock_held") == 0
        assert wrong.metric("embertree_ingester_clock_paused") == 0
        wait_for(lambda: wrong.metric("embertree_ingester_raw_rows") == 0)
        for d in (alone, among):
            d.check()

        # Behind: what is stored is of the future.
        restarted(one.process, lib, -YEARS_S)
        restarted(wrong, lib, -YEARS_S)
        c.wait_whole()
        wait_for(lambda: one.process.metric("embertree_ingester_clock_held") > 0)
        assert one.process.metric("embertree_ingester_clock_ahead_seconds") < 0
        among.push(5)
        assert wrong.metric("embertree_ingester_clock_held") == 0
        for d in (alone, among):
            d.check()

        # Right again: as if it had never been.
        for p in (one.process, wrong):
            assert p.stop() == 0
            p.start()
        c.wait_whole()
        for d in (alone, among):
            d.push(6)
            d.check()
        assert one.process.metric("embertree_ingester_clock_held") == 0
        assert moved(one.process) == 0


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        sys.exit(0)
    cluster.main([test_years_off])
