"""A cluster with three copies of each shard loses every disk, those of etcd too: what was sealed and
backed up to the cold tier comes back by `embertree restore` and `embertree adopt`, with the same
answers; then all copies are made, and pushes succeed. Spread services and tenants with a number of
shards of their own are in the same shards, without any option for it."""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
import test_adopt
import test_spread

SHARDS = 2
DAY = 86400
HOURS = 36


def wait(what, condition, limit_s=120):
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


def restored(folder, options, *shards):
    r = subprocess.run([str(cluster.BIN / "embertree"), "restore", f"--data.dir={folder}", *options, *shards],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert r.returncode == 0 and "as of" in r.stdout, r
    return r


def restore(c, options, *shards):
    return restored(c.folder / "node0" / "data", options, *shards).stdout


def lose_everything(c):
    """kill -9 for all; their disks and etcd's are gone, and etcd is there again, empty."""
    for p in c.processes():
        p.kill()
    c.etcd.kill()
    for node in c.nodes:
        shutil.rmtree(c.folder / node / "data")
    for folder in (c.distributor.folder, c.querier.folder, c.etcd.folder):
        shutil.rmtree(folder / "data", ignore_errors=True)
    c.etcd.start()


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
        # Leaders change, so generations do; the next one continues with the same objects.
        old = c.leader_of(0)
        old.process.stop()
        wait("another one leads", lambda: c.leaders().get(0) not in (None, old.name))
        old.process.start(wait=False)
        old.process.wait_ready()
        done = total(c, "embertree_cold_backups_total")
        wait("backups", lambda: total(c, "embertree_cold_backups_total") >= done + 2 * SHARDS + 2)
        assert total(c, "embertree_cold_errors_total") < 20
        assert answers(c, now) == before
        lose_everything(c)
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
        # Every copy is whole: any leader gives the same answers, and backups continue from the newest.
        c.nodes["node0"].process.kill()
        wait("others lead", lambda: len(c.leaders()) == SHARDS and "node0" not in c.leaders().values())
        assert answers(c, now) == after
        wait("a backup", lambda: c.nodes["node1"].process.metric("embertree_cold_backups_total") +
             c.nodes["node2"].process.metric("embertree_cold_backups_total") >= SHARDS)


def steps_of(places):
    """Of a querier's /api/v1/cluster/places: the steps of each tenant and service."""
    return {(s["tenant"], s.get("service")): [(x["from"], x["shards"]) for x in s["steps"]]
            for s in places["services"] + places["tenants"] if s["steps"]}


def wait_places(c):
    """The two wishes have become steps, and their time has come."""
    def find(places):
        return [steps[-1][0] for steps in steps_of(places).values() if len(steps) == 2]
    wait("steps", lambda: len(find(c.querier.get("/api/v1/cluster/places").json())) == 2)
    places = c.querier.get("/api/v1/cluster/places").json()
    wait("all know", lambda: c.distributor.get("/api/v1/cluster/places").json()["map_version"] >=
         places["map_version"])
    wait("their time", lambda: time.time() * 1000 > max(find(places)) + 1000)
    return steps_of(places)


def not_alone(folder):
    """What is in several places is no single process's."""
    p = cluster.Process("embertree", f"--cluster.shards={PLACES}", "--memory.limit=256MiB",
                        "--no-selfprof.enabled", folder=folder)
    try:
        p.start()
        raise AssertionError("a process without a map serves what is in several places")
    except RuntimeError as e:
        assert "places.json says: tenant few was in 2 shards" in str(e) and "embertree adopt" in str(e), e


PLACES = 4


def test_places_come_back():
    c = replicated.Cluster(ingesters=3, shards=PLACES, replicas=3,
                           options=["--tenancy.multi", f"--cluster.place-after={test_spread.STEP_WAIT}s"])
    c.distributor.options += ("--distributor.write-id-secret=the-secret-of-this-test",)
    cold = [f"--cold.url=dir:{c.folder / 'objects'}", "--cold.interval=1s", "--cold.backup-interval=3s"]
    for node in c.nodes.values():
        node.process.options += (*cold, "--scrub.rate=0")
    with c:
        wide, few = test_spread.Pushes(c, "wide"), test_spread.Pushes(c, "few")
        c.wait_whole()
        for node in c.nodes.values():  # once there is a map, its number of shards counts, in backups, too
            p, own = node.process, node.process.options
            p.stop()
            p.options = tuple(o for o in own if not o.startswith("--cluster.shards="))
            p.start(wait=False)
            p.wait_ready()
            p.options = own
        c.wait_whole()
        pushes = [(load, service) for i in range(24) for load, service in
                  ((wide, "big"), (few, f"svc{i % 6}"))]
        for load, service in pushes:
            load.new(service, c.distributor)
        test_spread.ctl(c, "spread", "wide", "big", "3")
        test_spread.ctl(c, "tenant", "few", "2")
        steps = wait_places(c)
        assert {k: [n for _, n in v] for k, v in steps.items()} == {
            ("wide", "big"): [1, 3], ("few", None): [0, 2]}, steps
        for load, service in pushes:
            load.new(service, c.distributor)

        def exact():
            wide.exact("big")
            for i in range(6):
                few.exact(f"svc{i}")
        exact()
        done = total(c, "embertree_cold_backups_total")
        wait("backups", lambda: total(c, "embertree_cold_backups_total") >= done + 2 * PLACES + 2)
        lose_everything(c)

        # The two halves on two machines, which both know all places.
        data = c.folder / "node0" / "data"
        said = restored(data, cold, "0", "2")
        assert "places: of 1 tenants and 1 services" in said.stdout and not said.stderr.count("no places"), said
        restored(c.folder / "all" / "data", cold)
        not_alone(c.folder / "all")
        restored(c.folder / "node1" / "data", cold, "1", "3")
        # Backups of a version that kept no places: it is reported, and the result is that version's.
        old = c.folder / "old-objects"
        shutil.copytree(c.folder / "objects", old)
        shutil.rmtree(old / "places")
        r = restored(c.folder / "old", [f"--cold.url=dir:{old}"])
        assert "no places of services" in r.stderr and f"{PLACES} shards" in r.stderr, r
        assert not (c.folder / "old" / "places.json").exists()

        for node in c.nodes.values():
            node.process.options += ("--cold.take-over",)
        for name in "node1", "node0":
            test_adopt.adopt(c, name, "node0", "node1", shards=PLACES)
        test_adopt.start(c)
        exact()
        now = c.querier.get("/api/v1/cluster/places").json()
        assert steps_of(now) == steps, now
        for load in wide, few:  # each where it was: it counts once
            load.again([c.distributor])
        exact()
        c.wait_whole()
        for load, service in pushes[:12]:
            load.new(service, c.distributor)
        exact()
        done = total(c, "embertree_cold_backups_total")
        wait("backups", lambda: total(c, "embertree_cold_backups_total") >= done + 2 * PLACES)
        before = json.loads((data / "places.json").read_text())["version"]
        assert now["map_version"] > before, (now, before)
        unsure = [p.name for p in (c.folder / "objects" / "places").iterdir() if "unsure" in p.name]
        assert not unsure, unsure


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_every_disk_is_lost, test_places_come_back])
