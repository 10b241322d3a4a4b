"""A small volume that fills up: refusals before it is full, answers all the while, and writes again
when space returns, without a restart; also after a write that the full disk refused.

The volume is a tmpfs mounted here, which takes root; where that is impossible the tests are skipped,
loudly. SEED=n repeats a run.
"""
import contextlib
import http.client
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

MIB = 1 << 20
SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz


@contextlib.contextmanager
def volume(size):
    """A folder that holds so many bytes, or None."""
    folder = tempfile.mkdtemp(prefix="embertree-disk-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
                             capture_output=True, text=True)
    if mounted.returncode:
        os.rmdir(folder)
        print(f"SKIPPED: a full disk: cannot mount a tmpfs: {mounted.stderr.strip()}")
        yield None
        return
    try:
        yield pathlib.Path(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
        os.rmdir(folder)


def free(folder):
    v = os.statvfs(folder)
    return v.f_bavail * v.f_frsize


class Ballast:
    """A file that takes space away and gives it back."""

    def __init__(self, folder):
        self.path, self.folder = folder / "ballast", folder

    def leave(self, left):
        """Until so many bytes are free, and no more. At once: before any process looks at the disk."""
        with open(self.path, "ab") as f:
            n = free(self.folder) - left
            if n < 0:
                f.truncate(max(0, f.seek(0, os.SEEK_END) + n))
            with contextlib.suppress(OSError):  # another one may have taken some of it
                if n > 0:
                    os.posix_fallocate(f.fileno(), f.tell(), n)
                    f.seek(0, os.SEEK_END)
            while (n := free(self.folder) - left) > 0:
                try:
                    f.write(b"x" * min(n, MIB))
                    f.flush()
                except OSError:
                    break

    def drop(self):
        self.path.unlink()


def until(fine, what, limit_s=90):
    end = time.monotonic() + limit_s
    while True:
        got = fine()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.1)


class Pushes:
    """Pushes of stacks of their own, so that each can be counted."""

    def __init__(self, server, rng):
        self.server, self.rng, self.n, self.acked, self.open = server, rng, 0, {}, []

    def send(self, stacks=1, key=None, body=None):
        if body is None:
            self.n += 1
            salt = f"{self.n}_{self.rng.getrandbits(60):x}"
            body = {f"s{salt}_{i}": self.rng.randrange(1, 99) for i in range(stacks)}
            key = f"key-{salt}"
        text = "".join(f"root;{s} {v}\n" for s, v in body.items())
        reply = self.server.ingest(text, "disk.cpu{x=y}", {"Idempotency-Key": key})
        if reply.status == 200:
            self.acked |= body
        else:
            assert reply.status == 503 and reply.headers["Retry-After"], reply
            self.open.append((key, body))
        return reply

    def resend(self):
        """What got no 200 is sent again under its key: it must not count twice."""
        again, self.open = self.open, []
        for key, body in again:
            self.send(key=key, body=body)

    def check(self):
        reply = self.server.render(f'{cluster.CPU_TYPE}{{service_name="disk"}}')
        assert reply.status == 200, reply
        got = {k[1]: v // TICK for k, v in cluster.leaves(reply.json()["flamebearer"]).items()
               if len(k) == 2}
        maybe = {s: v for _, body in self.open for s, v in body.items()}
        lost = [s for s, v in self.acked.items() if got.get(s) != v]
        strange = [s for s, v in got.items() if self.acked.get(s) != v and maybe.get(s) != v]
        assert not lost and not strange, (len(lost), lost[:3], len(strange), strange[:3])


def test_refused_before_it_is_full():
    rng = random.Random(SEED)
    with volume(400 * MIB) as folder:
        if folder is None:
            return
        print(f"SEED={SEED}")
        with cluster.AllInOne("--ingester.seal-delay=0ms", "--data.disk-reserve=100MiB",
                              "--selfprof.enabled=false", folder=folder) as server:
            pushes, ballast, pid = Pushes(server, rng), Ballast(folder), server.process.child.pid
            for _ in range(20):
                assert pushes.send(50).status == 200
            ballast.leave(90 * MIB)
            until(lambda: server.process.get("/readyz").status == 503, "not ready")
            reply = pushes.send()
            assert reply.status == 503 and b"disk reserve reached" in reply.body, reply
            assert b"data.disk_reserve" in reply.body, reply
            assert b"disk reserve" in server.process.get("/readyz").body
            assert server.process.metric("embertree_ingester_read_only") == 1
            assert free(folder) > 50 * MIB, "it did not stop early"
            pushes.check()  # answers all the while
            ballast.drop()
            until(lambda: server.process.get("/readyz").status == 200, "ready again")
            pushes.resend()
            assert pushes.send(50).status == 200 and not pushes.open
            pushes.check()
            assert server.process.child.pid == pid and server.process.child.poll() is None
            assert server.process.stop() == 0


REFUSED = "the disk refused a group of writes"
FILLER_STACKS, FILLER_BYTES = 400, 20_000
FILLER_RESERVE, FILLER_LEFT = 2 * MIB, 3 * MIB  # a push needs at least 4 MiB: half of its hexadecimal digits


class Filler:
    """Large pushes that no compressor shortens by more than half: they soon need more of the disk than the log has set
    aside. Their stacks are too many to ask for; their sum is asked for."""

    def __init__(self, server, rng):
        self.server, self.rng, self.sum, self.open = server, rng, 0, []

    def send(self, key=None, body=None):
        if body is None:
            key = f"filler-{self.rng.getrandbits(60):x}"
            body = "".join(f"f{self.rng.getrandbits(FILLER_BYTES * 4):x} 1\n"
                           for _ in range(FILLER_STACKS))
        reply = self.server.ingest(body, "filler.cpu{x=y}", {"Idempotency-Key": key})
        if reply.status == 200:
            self.sum += FILLER_STACKS
        else:
            assert reply.status == 503 and reply.headers["Retry-After"], reply
            self.open.append((key, body))
        return reply

    def resend(self):
        again, self.open = self.open, []
        for key, body in again:
            self.send(key, body)

    def check(self):
        message = {"profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="filler"}',
                   "step": 3600.0} | self.server.range_ms()
        reply = self.server.connect("SelectSeries", message)
        assert reply.status == 200, reply
        got = sum(p.get("value", 0) for s in reply.json().get("series", [])
                  for p in s.get("points", [])) / 1e9 * 100
        maybe = self.sum + FILLER_STACKS * len(self.open)
        assert self.sum - 0.5 <= got <= maybe + 0.5, (self.sum, got, maybe)


def all_acked(*those):
    """What a busy machine did not store in time is sent again, as any client would."""
    for some in those:
        some.resend()
    return not any(some.open for some in those)


def refused_by_disk(server, filler, ballast):
    """A write that needs more than is free on the disk. The free space is more than the reserve, so the push is not
    refused before it is written, however late the disk is looked at. Pushes that the log has room for yet are acked."""
    before = server.process.log.read_text().count(REFUSED)

    def fails():
        ballast.leave(FILLER_LEFT)
        until(lambda: server.process.get("/readyz").status == 200, "ready")
        reply = filler.send()
        return reply if server.process.log.read_text().count(REFUSED) > before else None

    reply = until(fails, "a write fails", 300)
    ballast.leave(0)
    return reply


def round_of_refusal(server, pushes, filler, ballast, rng):
    for _ in range(20):
        pushes.send(50)
    until(lambda: all_acked(pushes), "all are acked")
    reply = refused_by_disk(server, filler, ballast)
    print(f"{filler.sum} acked, then {reply.body[:150]!r}")
    until(lambda: server.process.get("/readyz").status == 503, "not ready")
    assert pushes.send().status == 503
    pushes.check()  # what was acked is there, though the disk is full
    filler.check()
    time.sleep(rng.random() * 3)
    ballast.drop()


def test_goes_on_after_a_write_that_failed():
    rng = random.Random(SEED + 1)
    with volume(300 * MIB) as folder, tempfile.TemporaryDirectory(prefix="embertree-log-") as elsewhere:
        if folder is None:
            return
        print(f"SEED={SEED}")
        server = cluster.AllInOne("--ingester.seal-delay=0ms", f"--data.disk-reserve={FILLER_RESERVE}",
                                  "--memory.limit=256MiB", "--selfprof.enabled=false", folder=folder)
        server.process.log = pathlib.Path(elsewhere) / "log"  # on a full volume its lines would be cut off
        with server:
            pushes, filler, ballast = Pushes(server, rng), Filler(server, rng), Ballast(folder)
            pid = server.process.child.pid
            for _ in range(3):
                round_of_refusal(server, pushes, filler, ballast, rng)
                until(lambda: server.process.get("/readyz").status == 200, "ready again")
                pushes.check()
                filler.check()
                pushes.send(50)
                until(lambda: all_acked(pushes, filler), "all are acked")
                pushes.check()
                filler.check()
            assert "opened again and takes writes" in server.process.log.read_text()
            assert server.process.child.pid == pid and server.process.child.poll() is None
            assert server.process.stop() == 0
            fsck = subprocess.run([str(cluster.BIN / "embertree"), "fsck", "--quiet",
                                   str(server.process.folder / "data")], capture_output=True,
                                  text=True)
            assert fsck.returncode == 0, fsck.stdout + fsck.stderr
            server.process.start()
            pushes.check()
            filler.check()


def full_and_started(process, ballast):
    """As it is found in the morning: it was killed, and there is no room for anything."""
    process.kill()
    ballast.leave(0)
    process.start(wait=False)
    until(lambda: answers(process, "/healthz", 200), "it runs")


def answers(process, path, status, words=b""):
    with contextlib.suppress(OSError, http.client.HTTPException):
        said = process.get(path, timeout=5)
        return said.status == status and words in said.body
    return False


def test_starts_on_a_full_volume():
    """Started for the first time after an upgrade, even."""
    rng = random.Random(SEED + 2)
    with volume(300 * MIB) as folder:
        if folder is None:
            return
        with cluster.AllInOne("--ingester.seal-delay=0ms", "--data.disk-reserve=40MiB",
                              "--memory.limit=256MiB", "--selfprof.enabled=false",
                              folder=folder) as server:
            pushes, ballast, spare = Pushes(server, rng), Ballast(folder), folder / "data" / "spare"
            for _ in range(5):
                assert pushes.send(50).status == 200
            until(lambda: spare.exists() and spare.stat().st_blocks * 512 >= 10 * MIB, "a spare is kept")
            (folder / "data" / "written-as").unlink()
            full_and_started(server.process, ballast)
            assert "the reserve file was deleted" in server.process.log.read_text()
            pushes.check()
            until(lambda: answers(server.process, "/readyz", 503, b"disk reserve"), "refuses writes")
            assert pushes.send().status == 503
            ballast.drop()
            until(lambda: answers(server.process, "/readyz", 200), "ready again")
            pushes.resend()
            assert not pushes.open
            pushes.check()
            until(spare.exists, "and again")
            assert server.process.stop() == 0


def test_a_copy_starts_on_a_full_volume():
    """With its spare it is read; without, it says what it lacks, and continues once there is room."""
    rng = random.Random(SEED + 3)
    with volume(300 * MIB) as folder:
        if folder is None or not replicated.available():
            return
        c = replicated.Cluster(ingesters=1, replicas=1, shards=2, ingester=["--data.disk-reserve=60MiB"])
        node = c.nodes["node0"].process
        node.folder.mkdir()
        (folder / "data").mkdir()
        (node.folder / "data").symlink_to(folder / "data")
        with c:
            pushes, ballast, spare = Pushes(c, rng), Ballast(folder), folder / "data" / "spare"
            for _ in range(5):
                assert pushes.send(50).status == 200
            until(lambda: spare.exists() and spare.stat().st_blocks * 512 >= 10 * MIB, "a spare is kept")
            full_and_started(node, ballast)
            until(lambda: answers(node, "/readyz", 503, b"disk reserve"), "refuses writes")
            until(lambda: c.leaders() == {0: "node0", 1: "node0"}, "serves")
            until(lambda: c.render(f'{cluster.CPU_TYPE}{{service_name="disk"}}').status == 200, "is read")
            pushes.check()
            for n in range(2):  # no reserve file is left: it starts, and opens what it can
                full_and_started(node, ballast)
                until(lambda: "replicas" in node.get("/ring").json()["roles"]["ingester"], "it began")
                assert node.log.read_text().count("the start cannot be counted") == n + 1
                assert c.leaders() == {}
            ballast.drop()
            until(lambda: answers(node, "/readyz", 200), "ready again")
            until(lambda: not pushes.open or pushes.resend() or not pushes.open, "writes again")
            pushes.check()


if __name__ == "__main__":
    cluster.main([test_refused_before_it_is_full, test_goes_on_after_a_write_that_failed,
                  test_starts_on_a_full_volume, test_a_copy_starts_on_a_full_volume])
