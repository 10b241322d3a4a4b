"""A cluster with three copies of each shard loses every disk, those of etcd too: what was sealed and
backed up to the cold tier comes back by `embertree restore` and `embertree adopt`, with the same
answers; then all copies are made, and pushes go on."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import replicated
import test_adopt

SHARDS = 2
DAY = 86400
HOURS = 36


def wait(what, condition, limit_s=90):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.2)


def push(c, service, at, n):
    r = c.ingest(f"main;a{n % 5};b{n % 7} {n + 1}\n", f"{service}.cpu{{pod=p{n % 3}}}",
                 **{"from": int(at), "until": int(at) + 10})
    assert r.status == 200, r


def answers(c, now):
    out = {}
    for service in ("shop", "cart", "mail"):
        for days, until in ((4, 0), (1, 1), (0.3, 0)):
            r = c.render(cluster.CPU_TYPE + '{service_name="%s"}' % service,
                         **{"from": int(now - (days + until) * DAY), "until": int(now - until * DAY)})
            assert r.status == 200, r
            out[service, days] = (cluster.leaves(r.json()["flamebearer"]), r.json()["timeline"]["samples"])
    return out


def total(c, name):
    return sum(n.process.metric(name) for n in c.nodes.values())


def restore(c, options, *shards):
    r = subprocess.run([str(cluster.BIN / "embertree"), "restore",
                        f"--data.dir={c.folder / 'node0' / 'data'}", *options, *shards],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert r.returncode == 0 and "as of" in r.stdout, r
    return r.stdout


def test_every_disk_is_lost():
    c = replicated.Cluster(ingesters=3, shards=SHARDS, replicas=3)
    objects = c.folder / "objects"
    cold = [f"--cold.url=dir:{objects}", "--cold.after=1h", "--cold.interval=1s",
            "--cold.backup-interval=3s", "--cold.cache-bytes=16MiB"]
    for node in c.nodes.values():
        node.process.options += (*cold, "--ingester.build-delay=0ms", "--scrub.rate=0")
    with c:
        now = time.time() // 3600 * 3600
        for h in range(HOURS):
            for service in ("shop", "cart", "mail"):
                push(c, service, now - 3 * DAY + h * 7200 + 60, h)
        push(c, "shop", now - 300, 1)
        wait("sealed", lambda: total(c, "embertree_ingester_raw_rows") == 0)
        wait("moved", lambda: total(c, "embertree_cold_rows_total") > 0)
        before = answers(c, now)
        assert len(before["shop", 4][0]) > 20, before
        # Leaders change, so generations do; the next one goes on with the same objects.
        old = c.leader_of(0)
        old.process.stop()
        old.process.start(wait=False)
        wait("another one leads", lambda: c.leaders().get(0) not in (None, old.name))
        old.process.wait_ready(60)
        done = total(c, "embertree_cold_backups_total")
        wait("backups", lambda: total(c, "embertree_cold_backups_total") >= done + 2 * SHARDS + 2)
        assert total(c, "embertree_cold_errors_total") < 20
        assert answers(c, now) == before
        for p in c.processes():
            p.kill()
        c.etcd.kill()
        for node in c.nodes:
            shutil.rmtree(c.folder / node / "data")
        for folder in (c.distributor.folder, c.querier.folder, c.etcd.folder):
            shutil.rmtree(folder / "data", ignore_errors=True)
        c.etcd.start()

        assert "shard 1" in restore(c, cold)
        for node in c.nodes.values():
            node.process.options += ("--cold.take-over",)
        test_adopt.adopt(c, "node0", shards=SHARDS)
        test_adopt.start(c)
        assert answers(c, now) == before
        push(c, "shop", now - 200, 3)
        after = answers(c, now)
        assert after != before
        c.wait_whole()
        # Every copy is one: whoever leads answers the same, and backups go on over the newest.
        c.nodes["node0"].process.kill()
        wait("others lead", lambda: len(c.leaders()) == SHARDS and "node0" not in c.leaders().values())
        assert answers(c, now) == after
        wait("a backup", lambda: c.nodes["node1"].process.metric("embertree_cold_backups_total") +
             c.nodes["node2"].process.metric("embertree_cold_backups_total") >= SHARDS)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_every_disk_is_lost])
