"""A database lacks rows in the middle, or cannot be read, when its ingester starts again: the
ingester reports it, renames the folder, does not serve the rest, fetches the shard from the others,
and nothing is lost meanwhile. Without another copy it does not start, and says what to do.
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

PUSHES = 60
SAMPLE_NS = 10_000_000
QUERY = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="svc"}'


def push(c, first):
    for i in range(first, first + PUSHES):
        at = int(time.time()) - 60
        reply = c.ingest(f"root;p{i} {i + 1}\n", "svc", **{"from": at, "until": at + 1})
        assert reply.status == 200, reply


def stacks(c):
    """Samples by number."""
    text = c.querier.get("/pyroscope/render", query=QUERY, until="now", format="collapsed",
                         **{"from": "now-1h"}).body.decode()
    lines = [line.split(";")[-1].split() for line in text.splitlines() if ";p" in line]
    return {int(name[1:]): int(value) // SAMPLE_NS for name, value in lines}


def first_wal(folder):
    return next(f for f in sorted(folder.glob("*.log")) if f.stat().st_size)


def wal_gone(folder):
    first_wal(folder).unlink()
    return "rows are missing: the write-ahead log"


def wal_short(folder):
    """As the version before left it after a power cut: without a list, and a log is empty."""
    (folder / "synced-wals").unlink()
    os.truncate(first_wal(folder), 0)
    return "rows are missing: in its write-ahead logs batch"


def manifest_changed(folder):
    file = max(folder.glob("MANIFEST-*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.write_bytes(data)
    return "Corruption"


def fsck(data):
    r = subprocess.run([str(cluster.BIN / "embertree"), "fsck", "--quiet", str(data)], capture_output=True,
                       text=True, timeout=120)
    return r.returncode, r.stdout + r.stderr


def restarted(victim):
    """Two logs: the one it found, and its own."""
    victim.process.kill()
    victim.process.start()


def wait_here(c, victim):
    until = time.monotonic() + 120
    while time.monotonic() < until:
        own = victim.ring().get("replicas", [])
        if own and not any(r["lost"] or r["damage"] or not r["applied"] for r in own):
            c.wait_whole()
            return
        time.sleep(0.2)
    raise AssertionError(c.rings())


def test_a_database_with_a_hole():
    with replicated.Cluster(shards=1) as c:
        c.wait_whole()
        n = 0
        for turn, harm in enumerate((wal_gone, wal_short, manifest_changed)):
            leader = c.leader_of(0)
            victim = leader if turn == 1 else next(x for x in c.nodes.values() if x is not leader)
            push(c, n)
            restarted(victim)
            push(c, n + PUSHES)
            victim.process.kill()
            data = victim.process.folder / "data"
            want = harm(data / "shard-0")
            victim.process.start(wait=False)
            push(c, n + 2 * PUSHES)
            n += 3 * PUSHES
            victim.process.wait_ready()
            wait_here(c, victim)
            said = victim.process.whole_log()
            assert want in said, said
            assert "the database of a shard is damaged, and is fetched again" in said, said
            assert list(data.glob("damaged-*-0")), list(data.iterdir())
            assert stacks(c) == {i: i + 1 for i in range(n)}
        leader = c.leader_of(0)
        other = next(x for x in c.nodes.values() if x not in (victim, leader))
        other.process.kill()  # the copy that was fetched is needed now
        push(c, n)
        leader.process.kill()
        other.process.start(wait=False)
        assert stacks(c) == {i: i + 1 for i in range(n + PUSHES)}


def test_nobody_to_fetch_it_from():
    """It does not serve the rest, says why, and fetches the shard when the others are back."""
    with replicated.Cluster(shards=1) as c:
        c.wait_whole()
        push(c, 0)
        victim, *others = c.nodes.values()
        restarted(victim)
        c.wait_whole()
        push(c, PUSHES)
        for n in c.nodes.values():
            n.process.kill()
        data = victim.process.folder / "data"
        wal_gone(data / "shard-0")
        victim.process.start(wait=False)
        until = time.monotonic() + 60
        said = b""
        while b"database is damaged" not in said:
            assert time.monotonic() < until, (said, victim.process.tail())
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                said = victim.process.get("/readyz").body
        ring = victim.ring()["replicas"][0]
        assert "damaged-shard-0" in ring["damage"] and ring["state"] == "following", ring
        reply = c.querier.get("/pyroscope/render", query=QUERY, until="now", timeout=30,
                              **{"from": "now-1h"})
        assert reply.status >= 500, reply
        victim.process.kill()  # while there is nothing: the reason is lost, and the shard is not served either
        victim.process.start(wait=False)
        for n in others:
            n.process.start(wait=False)
        victim.process.wait_ready()
        wait_here(c, victim)
        assert stacks(c) == {i: i + 1 for i in range(2 * PUSHES)}


def test_no_other_member():
    """A cluster with one copy: the shard is not opened, the folder stays where it is, and /readyz says what to do."""
    with replicated.Cluster(ingesters=1, shards=1, replicas=1) as c:
        node, = c.nodes.values()
        push(c, 0)
        node.process.kill()
        data = node.process.folder / "data"
        wal = first_wal(data / "shard-0")
        saved = wal.read_bytes()
        node.process.start()
        node.process.kill()
        wal.unlink()
        node.process.start(wait=False)
        until = time.monotonic() + 60
        said = b""
        while b"no other node has this shard: restore it" not in said:
            assert time.monotonic() < until, (said, node.process.tail())
            time.sleep(0.2)
            with contextlib.suppress(OSError):
                said = node.process.get("/readyz").body
        assert not list(data.glob("damaged-*")), list(data.iterdir())
        wal.write_bytes(saved)  # it is tried again
        node.process.wait_ready()
        assert stacks(c) == {i: i + 1 for i in range(PUSHES)}


def test_the_only_copy():
    """A server without copies does not start, nothing in its folder is changed, and it starts with the log back."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        with cluster.AllInOne("--no-selfprof.enabled", "--cluster.shards=1",
                              folder=pathlib.Path(folder)) as s:
            assert s.ingest(b"a;b 3\n", name="svc.cpu").status == 200
            s.process.stop()
            wal = first_wal(s.process.folder / "data" / "shard-0")
            saved = wal.read_bytes()
            for _ in range(2):
                wal.unlink(missing_ok=True)
                s.process.log.unlink(missing_ok=True)
                s.process.start(wait=False)
                code, said = s.process.child.wait(90), s.process.tail()
                assert code == 1 and "rows are missing" in said and "embertree restore" in said, (code, said)
            code, said = fsck(s.process.folder / "data")
            assert code and f"rows are missing: the write-ahead log {wal.name} is gone" in said, (code, said)
            wal.write_bytes(saved)
            assert fsck(s.process.folder / "data")[0] == 0
            s.process.start()
            reply = s.render(cluster.CPU_TYPE + '{service_name="svc"}')
            assert reply.status == 200 and reply.json()["flamebearer"]["numTicks"] == 3 * SAMPLE_NS, reply


if __name__ == "__main__":
    tests = [test_the_only_copy]
    if replicated.available():
        tests += [test_a_database_with_a_hole, test_nobody_to_fetch_it_from, test_no_other_member]
    else:
        print("SKIPPED: there is no etcd (package etcd-server)")
    cluster.main(tests)
