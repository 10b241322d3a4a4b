"""A copy of a shard comes in as files, and its sender or receiver is killed by -9 in the middle,
more than once: in the end it is complete, no row differs, and no file of the transfer is left in any
folder. Its progress is reported meanwhile. Where there is no room for it that is reported, too, and it
waits. And a node deletes its copy of a shard that moved to other nodes while it was away.

SEED=n repeats a run; CASE=part of a name runs some.
"""
import base64
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
import test_disk

SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
PUSHES, STACKS = 12, 1500
RATE = "128KiB"  # of copies, so that there is a middle


def fill(c, pushes):
    """Names that hardly compress, so that the database has some MiB. Returns what to expect."""
    rng, want = random.Random(SEED), {}
    at = int(time.time()) - 30
    for i in range(pushes):
        rows = [(f"p{i}", f"f{rng.getrandbits(256):x}") for _ in range(STACKS)]
        want.update({row: rng.randrange(1, 100) for row in rows})
        body = "".join(f"{a};{b} {want[a, b]}\n" for a, b in rows)
        r = c.ingest(body, f"svc{i // PUSHES}.cpu{{x=y}}", **{"from": at, "until": at + 1})
        assert r.status == 200, r
    return want


def total(c):
    """The sum over all services. While a lead changes a query ends early with 503 and is asked again: an answer is
    right or it is an error."""
    n, now = 0, int(time.time() * 1000)
    until = time.monotonic() + 60
    r = c.connect("LabelValues", {"name": "service_name", "start": now - 3600_000, "end": now})
    for service in r.json()["names"]:
        r = c.render(cluster.CPU_TYPE + '{service_name="%s"}' % service, **{"from": "now-1h", "until": "now"})
        while r.status == 503 and time.monotonic() < until:
            time.sleep(0.5)
            r = c.render(cluster.CPU_TYPE + '{service_name="%s"}' % service, **{"from": "now-1h", "until": "now"})
        assert r.status == 200, r
        n += sum(cluster.leaves(r.json()["flamebearer"]).values()) // 10**7
    return n


def coming(node):
    return node.process.folder / "data" / "copy-0" / "in"


def size(folder):
    n = 0
    with contextlib.suppress(OSError):
        for one in folder.iterdir():
            with contextlib.suppress(OSError):
                n += one.stat().st_blocks * 512
    return n


def wait_for(what, limit_s=120, pause_s=0.02):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError, KeyError, ValueError):
            if what():
                return
        time.sleep(pause_s)
    raise AssertionError(f"not within {limit_s} s")


def up(node):
    node.process.start(wait=False)


def is_in(node):
    return "a copy of the shard came in" in node.process.whole_log()  # of all its lives


def adopt(c, name):
    r = subprocess.run([str(cluster.BIN / "embertree"), "adopt",
                        f"--data.dir={c.folder / name / 'data'}", f"--cluster.node={name}", *c.shared],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
                       check=False)
    assert r.returncode == 0, r


@contextlib.contextmanager
def adopted(rate=RATE, pushes=PUSHES):
    """A database that has no log is the first copy: the others need its files. Yields the cluster, of
    which only etcd runs, and the sum of what it holds."""
    c = replicated.Cluster(shards=1, options=[f"--cluster.snapshot-rate={rate}"])
    try:
        c.etcd.start()
        single = cluster.AllInOne("--cluster.shards=1", "--no-selfprof.enabled",
                                  "--memory.limit=256MiB", folder=c.folder / "node0")
        with single:
            expected = sum(fill(single, pushes).values())
            assert total(single) == expected
            assert single.process.stop() == 0
        adopt(c, "node0")
        yield c, expected
    except BaseException:
        c.__exit__(*sys.exc_info())
        raise
    c.__exit__(None, None, None)


def test_killed_in_the_middle():
    with adopted() as (c, expected):
        for p in c.processes():
            p.start(wait=False)
        taker = c.nodes["node1"]
        giver, kills = c.leader_of(0), []
        for who in ("taker", "giver", "both"):
            wait_for(lambda: size(coming(taker)) >= 1 << 16 or is_in(taker))
            if is_in(taker):
                break
            kills.append((who, size(coming(taker)) >> 10))
            for node in ([taker] if who != "giver" else []) + ([giver] if who != "taker" else []):
                node.process.kill()
                up(node)
            for node in c.nodes.values():
                wait_for(lambda: node.process.get("/healthz", timeout=2).status == 200)
            giver = c.leader_of(0)
        assert kills, "no middle was seen"
        taker.process.wait_ready()
        c.wait_whole()
        for node in c.nodes.values():
            node.process.wait_ready()
            wait_for(lambda: not size(node.process.folder / "data" / "copy-0" / "in")
                     and not (node.process.folder / "data" / "copy-0" / "old").exists())
        assert total(c) == expected
        # The taker alone with one other: what it has counts.
        other = next(n for n in c.nodes.values() if n is not taker and n is not c.leader_of(0))
        other.process.kill()
        assert total(c) == expected
        for node in c.nodes.values():
            if node is not other:
                assert node.process.metric("embertree_repl_differences_total") == 0
        print(f"     SEED={SEED}: killed at KiB {kills}")


CTL = str(cluster.BIN / "embertreectl")


def ctl(c, *args):
    """Its words, whatever it thinks of the cluster."""
    r = subprocess.run([CTL, "cluster", *args, "--server", f"http://127.0.0.1:{c.querier.port}"],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert r.returncode < 2, (args, r)
    return r.stdout + r.stderr


def copy_told(c, node):
    """Returns what a process of the cluster reports of the copy that the node receives."""
    told = c.querier.get("/api/v1/cluster/progress").json()["nodes"]
    return next((s.get("copy", {}) for n in told if n["name"] == node.name for s in n["shards"]), {})


def test_how_far():
    """How far a copy is, how fast, and how long it takes: for every process, a terminal, and the log. And
    of all that a drain copies."""
    with adopted("640KiB", 96) as (c, expected):
        for p in c.processes():
            p.start(wait=False)
        taker, seen = c.nodes["node1"], {}

        def known():
            seen.update(copy_told(c, taker))
            return "leftSeconds" in seen

        wait_for(known)
        assert 0 < seen["bytes"] <= seen["of"] and not seen["rows"], seen
        # Two come in at once, and one rate holds for both.
        assert 0 < seen["bytesPerSecond"] < 2 << 20, seen
        assert seen["leftSeconds"] <= (seen["of"] - seen["bytes"]) // seen["bytesPerSecond"] + 1, seen
        text = ctl(c, "status")
        assert re.search(r"node1 gets a whole copy: [0-9.]+ of [0-9.]+ [KM]iB, [0-9.]+ KiB/s, [0-9ms ]+ left", text), text
        assert re.search(r"cop(ies|y) comes? in: [0-9.]+ of [0-9.]+ [KM]iB", text), text
        copies = json.loads(ctl(c, "status", "--json"))["shards"][0]["copies"]
        assert any(x["name"] == "node1" and x["copy"]["of"] == seen["of"] for x in copies), copies
        ring = next(r for r in taker.ring()["replicas"] if r["shard"] == 0)
        assert ring["copy"]["from"] and "bytesPerSecond" in ring["copy"], ring
        wait_for(lambda: re.search(r'msg="a copy of the shard comes in" .*left_s=\d+', taker.process.whole_log()))
        for node in c.nodes.values():
            node.process.wait_ready()
        c.wait_whole()
        wait_for(lambda: not copy_told(c, taker))
        assert total(c) == expected
        c.add("node3", "zone3").process.start()

        def joined():
            nodes = json.loads(ctl(c, "rebalance", "--json"))["nodes"]
            return len(nodes) == 4 and nodes[2]["bytes"] > 1 << 20

        wait_for(joined)
        said = ctl(c, "drain", "node2", "--wait")
        assert re.search(r"node2 has 1 shard, [0-9.]+ [KM]iB to be copied, [0-9.]+ KiB/s, [0-9ms ]+ left", said), said
        assert "node2 has no shard and can be stopped" in said, said
        assert total(c) == expected
        print("     " + "; ".join(x for x in said.splitlines() if "left" in x))


def advice(c):
    return " ".join(json.loads(ctl(c, "status", "--json"))["advice"])


def test_full_disk():
    """The volume of a node that receives a copy is full: before, and in the middle. It says so in its log, on /ring,
    and in the status of the cluster; nothing of the others is lost, they still serve; and once there is room
    the copy continues by itself."""
    with test_disk.volume("200m") as small, adopted("640KiB", 96) as (c, expected):
        if not small:
            return
        taker = c.nodes["node1"]
        (c.folder / "node1").mkdir(exist_ok=True)
        (c.folder / "node1" / "data").symlink_to(small)
        taker.process.options += ("--data.disk-reserve=4MiB",)
        ballast = test_disk.Ballast(small)
        ballast.leave(24 << 20)
        for p in c.processes():
            p.start(wait=False)

        def why():
            return next((r.get("copy", {}).get("why", "") for r in taker.ring()["replicas"]
                         if r["shard"] == 0), "")

        said = "a copy of the shard does not come in"
        wait_for(lambda: "the volume has room for" in why())
        wait_for(lambda: said in taker.process.whole_log())
        assert total(c) == expected  # the other two are enough
        wait_for(lambda: "node1 cannot take its copy of shard 0: a copy of" in advice(c))
        assert re.search(r"node1 (cannot take a copy|fetches its copy again)", ctl(c, "status"))
        ballast.drop()
        wait_for(lambda: size(coming(taker)) > 1 << 20)
        assert why() == ""
        wait_for(lambda: "cannot take its copy" not in advice(c))

        def refused():  # in the middle: the disk itself says no
            ballast.leave(0)
            return "No space left" in taker.process.whole_log()

        wait_for(refused)
        assert not is_in(taker)
        r = c.ingest("a;b 7\n", "svc0.cpu{x=y}", **{"from": int(time.time()) - 5, "until": int(time.time()) - 4})
        assert r.status == 200, r
        expected += 7
        assert total(c) == expected
        ballast.drop()
        wait_for(lambda: is_in(taker))
        c.wait_whole()
        taker.process.wait_ready()
        wait_for(lambda: "cannot take its copy" not in advice(c))
        assert total(c) == expected
        # What it has counts: it and one other are all there is.
        other = next(n for n in c.nodes.values() if n is not taker and n is not c.leader_of(0))
        other.process.kill()
        r = c.ingest("a;b 5\n", "svc0.cpu{x=y}", **{"from": int(time.time()) - 5, "until": int(time.time()) - 4})
        assert r.status == 200, r
        assert total(c) == expected + 5


def etcd(c, path, **body):
    """Takes plain keys and values; etcd's gateway wants them in base64."""
    coded = {k: base64.b64encode(v.encode()).decode() for k, v in body.items()}
    with urllib.request.urlopen(urllib.request.Request(c.etcd.url + path, json.dumps(coded).encode()),
                                timeout=10) as r:
        return json.load(r)


def next_term(c, shard):
    """The leader leads in another term, as after a change of members."""
    key = f"/embertree/ring/shard/{shard:04d}"
    kv = etcd(c, "/v3/kv/range", key=key)["kvs"][0]
    record = json.loads(base64.b64decode(kv["value"]))
    record.update(term=record["term"] + 1, established=False)
    etcd(c, "/v3/kv/put", key=key, value=json.dumps(record))
    return record["term"]


def test_what_was_left_goes():
    """Deletes only a copy that is certainly older than the others': a log of their present term may be the
    last copy of an entry."""
    with replicated.Cluster(ingesters=2, shards=2, replicas=1) as c:
        c.wait_whole()
        a = c.leader_of(0)
        mine = {s for s, name in c.leaders().items() if name == a.name}
        b = next(n for n in c.nodes.values() if n is not a)
        assert 0 not in {s for s, name in c.leaders().items() if name == b.name}, c.leaders()
        r = c.ingest("a;b 5\n", "svc.cpu{x=y}")
        assert r.status == 200, r
        kept, data = a.process.folder / "data", b.process.folder / "data"
        folders = [data / f for f in ("log-0", "shard-0", "copy-0")]

        def start_with(*what):
            b.process.kill()
            for f in folders:
                shutil.rmtree(f, ignore_errors=True)
            for f in what:
                if f != "copy-0":
                    shutil.copytree(kept / f, data / f)
            for f in ("in", "out-1"):
                (data / "copy-0" / f).mkdir(parents=True)
                (data / "copy-0" / f / "000001.sst").write_bytes(b"x" * 100_000)
            up(b)
            b.process.wait_ready()

        def told():
            return b.process.log.read_text().count("is kept: nothing shows that it is older")

        (data / "copy-other").mkdir(parents=True, exist_ok=True)
        start_with("log-0", "shard-0")
        wait_for(lambda: told() == 1)
        assert all(f.is_dir() for f in folders)
        start_with("copy-0")
        wait_for(lambda: not any(f.exists() for f in folders))
        b.process.kill()
        for f in ("log-0", "shard-0"):
            shutil.copytree(kept / f, data / f)
        term = next_term(c, 0)
        wait_for(lambda: any(x["shard"] == 0 and x["term"] == term and x["state"] == "serving"
                             for x in a.ring().get("replicas", [])))
        up(b)
        wait_for(lambda: not any(f.exists() for f in folders))
        assert told() == 1
        assert (data / "copy-other").is_dir(), "not ours"
        assert all((kept / f"{what}-{s}").is_dir() for s in mine for what in ("log", "shard"))


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: copies by files: there is no etcd-server")
        sys.exit(0)
    cluster.main([test_killed_in_the_middle, test_how_far, test_full_disk, test_what_was_left_goes])
