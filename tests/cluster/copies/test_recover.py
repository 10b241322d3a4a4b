"""etcd loses its data while ingesters run, or gets an old snapshot of itself, and `embertreectl cluster
recover` fills it again from the nodes' records: pushes succeed all the while, each that was acked is there
exactly once, leaders can be killed and drained afterwards. A node that does not answer is refused, or left
out by name. Needs Debian's etcd-server.

CASE=part of a name runs some.
"""
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
from test_replicas import Load, TICK

CTL = str(cluster.BIN / "embertreectl")


def more(load, n=40, limit_s=120):
    """Until so many more are acked."""
    want, until = len(load.pushes) + n, time.monotonic() + limit_s
    while len(load.pushes) < want:
        assert not load.failed and time.monotonic() < until, load.failed[:3]
        time.sleep(0.05)


def ctl(*args, code=0):
    plain = {k: v for k, v in os.environ.items() if not k.startswith("EMBERTREE_")}
    r = subprocess.run([CTL, *args], capture_output=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
                       env=plain)
    assert r.returncode == code, (args, r)
    return (r.stdout + r.stderr).decode()


def url(process):
    return f"http://127.0.0.1:{process.port}"


def recover(c, *args, code=0, nodes=None):
    names = nodes or c.nodes
    return ctl("cluster", "recover", *(url(c.nodes[n].process) for n in names), *args, code=code)


def keys(c):
    """{key: value} of all that etcd has."""
    body = {"key": base64.b64encode(b"/embertree/").decode(), "range_end": base64.b64encode(b"/embertree0").decode()}
    r = urllib.request.urlopen(urllib.request.Request(c.etcd.url + "/v3/kv/range", json.dumps(body).encode()),
                               timeout=10)
    return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"]).decode()
            for kv in json.load(r).get("kvs", [])}


def records(c):
    return {int(k.rsplit("/", 1)[1]): json.loads(v) for k, v in keys(c).items() if "/ring/shard/" in k}


def stranger(c):
    """Which nodes do not believe their etcd, and why."""
    out = {}
    for name, node in c.nodes.items():
        with contextlib.suppress(OSError):
            why = node.process.get("/api/v1/cluster/kept", timeout=5).json()["stranger"]
            if why:
                out[name] = why
    return out


def wait(what, want, limit_s=120):
    until = time.monotonic() + limit_s
    while not want(what()):
        assert time.monotonic() < until, what()
        time.sleep(0.2)


def etcd_data(c):
    return c.etcd.folder / "data"


def etcd_again(c, data=None):
    """With an empty folder, or a copy of it taken before."""
    c.etcd.kill()
    shutil.rmtree(etcd_data(c))
    if data:
        shutil.copytree(data, etcd_data(c))
    c.etcd.start()


def take_over(c, shard):
    """The leader is killed, another one leads, it comes back."""
    node = c.leader_of(shard)
    node.process.kill()
    wait(lambda: c.leaders().get(shard), lambda name: name not in (None, node.name))
    node.process.start()
    c.wait_whole()


def test_wiped():
    with replicated.Cluster() as c, Load(c, rate=20) as load:
        c.wait_whole()
        more(load)
        take_over(c, 1)  # terms above 1
        c.settled()
        before = records(c)
        secret = keys(c)["/embertree/write-id-secret"]
        said = recover(c)
        assert "etcd has all of it" in said, said
        etcd_again(c)
        wait(lambda: stranger(c), lambda s: len(s) == 3)
        more(load)
        said = recover(c)
        assert "has no map" in said and "4 records not there" in said and "--apply" in said, said
        assert not records(c)
        said = json.loads(recover(c, "--json"))
        assert said["needed"] and not said["written"] and said["missing"] == [] and said["newTerms"] == 0, said
        assert said["answered"] == sorted(c.nodes) and said["etcd"]["absent"] == [0, 1, 2, 3], said
        said = recover(c, "--apply", code=2)  # without a terminal to ask
        assert "--yes" in said, said
        recover(c, "--apply", "--yes")
        for shard, r in records(c).items():
            assert (r["term"], r["leader"]) == (before[shard]["term"], before[shard]["leader"]), (shard, r, before)
        assert len([k for k in keys(c) if "/begun/" in k]) == 12
        wait(lambda: stranger(c), lambda s: not s)
        wait(lambda: keys(c).get("/embertree/write-id-secret"), lambda s: s == secret)  # the distributor's doing
        assert "etcd has all of it" in recover(c, "--apply", "--yes")
        more(load)
        c.wait_whole()
        take_over(c, 0)  # wants etcd
        more(load)
        load.stop()
        load.check()


def test_old_snapshot():
    with replicated.Cluster() as c, Load(c, rate=20) as load:
        c.wait_whole()
        more(load)
        old = c.folder / "old-etcd"
        c.etcd.kill()
        shutil.copytree(etcd_data(c), old)
        c.etcd.start()
        c.wait_whole()
        take_over(c, 0)
        take_over(c, 2)
        before = records(c)
        more(load)
        etcd_again(c, old)
        wait(lambda: stranger(c), lambda s: len(s) == 3)
        assert records(c)[0]["term"] < before[0]["term"]
        more(load)
        said = json.loads(recover(c, "--json"))
        assert {0, 2} <= set(said["etcd"]["behind"]) and said["needed"], said
        recover(c, "--apply", "--yes")
        wait(lambda: stranger(c), lambda s: not s)
        for shard, r in records(c).items():
            assert r["term"] >= before[shard]["term"], (shard, r, before)
        take_over(c, 0)
        more(load)
        load.stop()
        load.check()


def test_led_astray():
    """An old snapshot, and a node that forgot what it knew of the cluster: it has nothing to compare with, but
    for what its peers report. It does not trust it either, takes no shard over, and pushes succeed."""
    with replicated.Cluster() as c, Load(c, rate=20) as load:
        c.wait_whole()
        more(load)
        old = c.folder / "old-etcd"
        c.etcd.kill()
        shutil.copytree(etcd_data(c), old)
        c.etcd.start()
        c.wait_whole()
        for shard in range(4):
            take_over(c, shard)
        more(load)
        before = records(c)
        name = next(n for n in c.nodes if all(r["leader"] != n for r in before.values())
                    ) if len({r["leader"] for r in before.values()}) < 3 else "node2"
        c.nodes[name].process.stop()
        wait(lambda: c.leaders(), lambda led: len(led) == 4 and name not in led.values())
        c.settled()
        before = records(c)
        (c.nodes[name].process.folder / "data" / "cluster.json").unlink()
        etcd_again(c, old)
        c.nodes[name].process.start(wait=False)
        wait(lambda: stranger(c), lambda s: len(s) == 3)
        assert "than other nodes" in stranger(c)[name], stranger(c)[name]
        more(load)
        time.sleep(15)  # it would lead by now
        wait(c.leaders, lambda led: led == {shard: r["leader"] for shard, r in before.items()})
        more(load)
        for shard, r in records(c).items():
            assert r["term"] < before[shard]["term"], (shard, r, before)
        recover(c, "--apply", "--yes")
        wait(lambda: stranger(c), lambda s: not s)
        c.nodes[name].process.wait_ready()
        c.wait_whole()
        assert all(r["term"] >= before[shard]["term"] for shard, r in records(c).items()), (before, records(c))
        take_over(c, 0)
        more(load)
        load.stop()
        load.check()


def test_restarted():
    """All ingesters end and begin again beside an empty etcd: they go by their files, and tell those."""
    with replicated.Cluster(shards=2) as c:
        c.wait_whole()
        push(c, 20)
        take_over(c, 0)
        # A lead that was handed over in the second in which all of them end is known to no file, and waits for `recover`.
        c.settled()
        before = records(c)
        etcd_again(c)
        for n in c.nodes.values():
            n.process.kill()
        for n in c.nodes.values():
            n.process.start(wait=False)
        for n in c.nodes.values():
            n.process.wait_ready()
        wait(lambda: stranger(c), lambda s: len(s) == 3)
        push(c, 40)
        said = json.loads(recover(c, "--apply", "--yes", "--json"))
        assert said["written"] and said["etcd"]["map"] == "absent", said
        wait(lambda: stranger(c), lambda s: not s)
        assert all(r["term"] >= before[shard]["term"] for shard, r in records(c).items()), (before, records(c))
        c.wait_whole()
        take_over(c, 1)
        push(c, 60)
        check_pushed(c, 60)


def fresh(c, name):
    """Shards whose logs this node has not begun yet, as it says itself."""
    with contextlib.suppress(OSError):
        logs = c.nodes[name].process.get("/api/v1/cluster/kept", timeout=5).json()["logs"]
        return [log["shard"] for log in logs if name in log.get("fresh", [])]
    return []


def one_behind(c):
    """A cluster begins, and one of its nodes, held up, sees etcd go before it has begun all of its logs, of
    shards that the others lead and serve already: those. None: it was too quick for us."""
    late = c.nodes["node2"].process
    wait(lambda: records(c), bool)
    late.child.send_signal(signal.SIGSTOP)
    wait(lambda: all(r.get("established") for r in records(c).values() if r["leader"] != "node2"), bool)
    begun = [int(k.split("/")[-2]) for k in keys(c) if k.endswith("/node2") and "/begun/" in k]
    served = [shard for shard, r in records(c).items() if r.get("established") and shard not in begun]
    etcd_again(c)
    late.child.send_signal(signal.SIGCONT)
    return served if wait_or(lambda: set(fresh(c, "node2")) >= set(served), 20) else None


def wait_or(what, limit_s):
    until = time.monotonic() + limit_s
    while not what() and time.monotonic() < until:
        time.sleep(0.2)
    return what()


def test_first_second():
    """etcd is lost while a cluster begins: a log that never existed is not taken for a lost one."""
    for _ in range(8):
        c = replicated.Cluster()
        c.etcd.start()
        try:
            for p in c.processes():
                p.start(wait=False)
            served = one_behind(c)
            if not served:
                continue
            wait(lambda: stranger(c), lambda s: len(s) == 3)
            assert fresh(c, "node2"), "it began without etcd"
            recover(c, "--apply", "--yes")
            wait(lambda: stranger(c), lambda s: not s)
            for p in c.processes():
                p.wait_ready()
            c.wait_whole()
            for shard, r in records(c).items():
                assert len(r["members"]) == 3 and not r.get("learners"), (shard, r)
                assert r["term"] < 1000 or shard not in served, (shard, r)  # all nodes that may know more answered
            for n in c.nodes.values():
                assert "the log of a shard is gone" not in n.process.whole_log(), n.process.tail(100)
            push(c, 20)
            take_over(c, 0)
            check_pushed(c, 20)
            return
        finally:
            c.__exit__(*sys.exc_info())
    raise AssertionError("eight times the node had begun all of its logs before it could be stopped")


def check_pushed(c, n):
    r = c.render(cluster.CPU_TYPE + '{service_name="later"}').json()["flamebearer"]
    assert r["numTicks"] == n * TICK, r["numTicks"]


def push(c, n):
    """Until each is taken, as senders do it."""
    for i in range(n):
        wait(lambda: c.ingest(f"root;q{i} 1\n", "later.cpu", {"Idempotency-Key": f"later-{i}"}).status,
             lambda status: status == 200)


def test_node_missing():
    with replicated.Cluster() as c:
        c.wait_whole()
        with Load(c, rate=20) as load:
            more(load)
        gone = c.leader_of(0)
        before = records(c)
        rest = [n for n in c.nodes if n != gone.name]
        gone.process.kill()
        etcd_again(c)
        said = recover(c, "--apply", "--yes", code=2)  # its server does not answer
        assert f"no server answered for {gone.name}" in said, said
        said = recover(c, "--apply", "--yes", code=2, nodes=rest)
        assert f"no server answered for {gone.name}" in said and "--without" in said, said
        assert not records(c)
        said = recover(c, f"--without={rest[0]}", code=2, nodes=rest)
        assert "remove it from the option" in said, said
        recover(c, "--apply", "--yes", f"--without={gone.name}", nodes=rest)
        for shard, r in records(c).items():
            assert r["term"] > before[shard]["term"] + 1000 and r["leader"] in rest, (shard, r)
        push(c, 20)
        gone.process.start()  # with all it had, and the old terms in its file
        c.wait_whole()
        assert not stranger(c)
        take_over(c, 0)
        push(c, 40)  # twenty of them again
        load.check()
        check_pushed(c, 40)


def test_node_replaced():
    """It is left out, and comes back with an empty disk: that it has answered before is known again."""
    with replicated.Cluster(shards=2) as c:
        c.wait_whole()
        push(c, 20)
        gone = c.leader_of(0)
        gone.process.kill()
        etcd_again(c)
        recover(c, "--apply", "--yes", f"--without={gone.name}", nodes=[n for n in c.nodes if n != gone.name])
        push(c, 30)
        shutil.rmtree(gone.process.folder / "data")
        gone.process.start()
        wait(lambda: "the log of a shard is gone" in gone.process.whole_log(), bool)
        c.wait_whole()
        take_over(c, 0)
        push(c, 40)
        check_pushed(c, 40)


def test_as_many_shards_as_there_may_be():
    """The answer names each of them. A process without shards writes, too; and it asks all of them, none of
    which runs."""
    shards, nodes = 4096, ("a", "b", "c")
    the_map = {"version": 5, "shards": shards, "replicas": 3,
               "nodes": [{"name": n, "addr": f"tcp://127.0.0.1:{i + 1}"} for i, n in enumerate(nodes)]}
    record = {"term": 3, "leader": "a", "members": nodes, "learners": [], "prev_members": [], "established": True}
    kept = {"cluster": "5b0c" * 8, "node": "a", "keeps": True, "stranger": "", "map": json.dumps(the_map),
            "records": [{"shard": i, "record": json.dumps(record)} for i in range(shards)], "logs": []}
    c = replicated.Cluster(ingesters=0)
    c.querier = c.process("querier", "--querier.timeout=2s")
    try:
        c.etcd.start()
        c.querier.start(wait=False)
        wait(lambda: c.querier.child.poll() is None and "listening" in c.querier.tail(), bool)
        for dry in (True, False):
            r = c.querier.operate("/api/v1/cluster/recover" + "?dry_run=1" * dry, json.dumps(kept))
            assert r.status == 200, r
            said = r.json()
            assert said["written"] != dry and said["absent"] == list(range(shards)), said
        assert len(records(c)) == shards
        wait(lambda: c.querier.metric("embertree_cluster_map_version"), lambda version: version == 5)
        r = c.querier.get("/pyroscope/label-values", label="service_name")
        assert r.status in (503, 504), r
        r = c.querier.get("/pyroscope/render", query=cluster.CPU_TYPE + "{}", from_="now-1h", until="now")
        assert r.status in (503, 504) and "no more are allowed" not in r.body.decode(), r
    finally:
        c.__exit__(None, None, None)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_wiped, test_old_snapshot, test_node_missing, test_node_replaced,
                  test_restarted, test_first_second, test_led_astray,
                  test_as_many_shards_as_there_may_be])
