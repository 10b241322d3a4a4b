"""An object store that takes connections and never answers: queries of old data end at their
deadline, and while more of them wait than there are processors, queries of recent data are
answered; the scrubber reads it only where an option says so.
"""
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
from test_cold import DAY, SEAL, cold_options, push, wait

FAR = 2 * (os.cpu_count() or 2) + 4
TIMEOUT_S = 20


class Stalled:
    """Takes what comes and says nothing."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.taken = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        try:
            while True:
                self.taken.append(self.listener.accept()[0])
        except OSError:
            pass

    def close(self):
        self.listener.close()
        for one in self.taken:
            one.close()


def ask(server, now, days, until):
    return server.reader.request("GET", "/pyroscope/render?query=" + cluster.urllib.parse.quote(
        cluster.CPU_TYPE + '{service_name="shop"}') +
        f"&format=json&from={int(now - days * DAY)}&until={int(now - until * DAY)}", timeout=90)


def test_stall():
    folder = cluster.pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    stalled = Stalled()
    now = time.time() // 3600 * 3600
    keys = folder / "keys"
    keys.write_text("key\nsecret\n", encoding="ascii")
    quick = ("--scrub.delay=0ms", "--scrub.interval=200ms", "--scrub.rate=100000")
    try:
        with cluster.AllInOne(*SEAL, *cold_options(f"dir:{folder / 'objects'}"), *quick[:2],
                              "--scrub.rate=100000", "--cold.backup-interval=0s",
                              folder=folder / "server") as server:
            rng = random.Random(3)
            for hour in range(48):
                push(server, "shop", now - 4 * DAY + hour * 3600 + 60, hour % 3, rng)
            wait(lambda: server.process.metric("embertree_ingester_raw_rows") == 0)
            wait(lambda: server.process.metric("embertree_cold_rows_total") > 0)
            last = [0]

            def at_rest():
                before, last[0] = last[0], server.process.metric("embertree_cold_rows_total")
                time.sleep(1)
                return before == last[0]

            wait(at_rest)
            push(server, "shop", now - 60, 1, rng)
            # It skips remote rows: no piece of them is read.
            misses = server.process.metric("embertree_cold_cache_misses")
            rounds = server.process.metric("embertree_ingester_scrub_rounds_total")
            wait(lambda: server.process.metric("embertree_ingester_scrub_rounds_total") > rounds + 2)
            assert server.process.metric("embertree_cold_cache_misses") == misses
            assert server.process.metric("embertree_loss_ledger_total") == 0
            assert ask(server, now, 5, 0).status == 200
            server.process.stop()
        fsck(folder)
        # Told to, it reads them; they are sound.
        shutil.rmtree(folder / "server" / "data" / "cold-cache")
        with cluster.AllInOne(*SEAL, *cold_options(f"dir:{folder / 'objects'}"), *quick[:2],
                              "--scrub.rate=100000", "--scrub.cold", folder=folder / "server") as server:
            wait(lambda: server.process.metric("embertree_ingester_scrub_rounds_total") > 1)
            wait(lambda: server.process.metric("embertree_cold_cache_misses") > 0)
            assert server.process.metric("embertree_loss_ledger_total") == 0
            server.process.stop()
        shutil.rmtree(folder / "server" / "data" / "cold-cache")
        with cluster.AllInOne(*SEAL, "--memory.limit=1GiB", *cold_options("s3://bucket/x"), "--cold.backup-interval=0s",
                              f"--cold.s3-endpoint={stalled.url}", "--cold.s3-path-style",
                              f"--cold.s3-credentials-file={keys}", f"--querier.timeout={TIMEOUT_S}s",
                              "--cold.interval=1h", folder=folder / "server") as server:
            while_stalled(server, now, stalled)
    finally:
        stalled.close()
        shutil.rmtree(folder)


def run_fsck(data, code, *args):
    r = subprocess.run([str(cluster.BIN / "embertree"), "fsck", "--quiet", *args, str(data)],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False)
    assert r.returncode == code, r
    return r.stdout + r.stderr


def fsck(folder):
    """Local rows are checked, and the report says so; with --cold all rows are."""
    data, objects = folder / "server" / "data", folder / "objects"
    out = run_fsck(data, 0)
    assert "rules were left out" in out and "0 findings" in out, out
    out = run_fsck(data, 0, "--cold", f"--cold.url=dir:{objects}")
    assert "left out" not in out and " parts of the cold tier" in out and " 0 wrong" in out, out
    assert "where the cold tier is" in run_fsck(data, 2, "--cold")
    part = next(p for p in sorted(objects.rglob("fine/*")) if p.is_file())
    whole = part.read_bytes()
    part.unlink()
    out = run_fsck(data, 1, "--cold", f"--cold.url=dir:{objects}")
    assert f"{part.name} is not there" in out and " 1 wrong" in out, out
    bad = bytearray(whole)
    bad[len(bad) // 2] ^= 1
    part.write_bytes(bad)
    out = run_fsck(data, 1, "--cold", f"--cold.url=dir:{objects}")
    assert "its bytes are not those" in out and " 1 wrong" in out, out
    part.write_bytes(whole)
    assert " 0 wrong" in run_fsck(data, 0, "--cold", f"--cold.url=dir:{objects}")


def while_stalled(server, now, stalled):
    ended = []

    def far(i):
        ended.append(ask(server, now, 5, 1 + i / 1000).status)

    threads = [threading.Thread(target=far, args=(i,)) for i in range(FAR)]
    for t in threads:
        t.start()
    wait(lambda: server.process.metric("embertree_ingester_reads_far_waited_total") > 0)
    assert stalled.taken
    for _ in range(3):
        reply = ask(server, now, 0.02, 0)
        assert reply.status == 200 and reply.json()["flamebearer"]["numTicks"] > 0, reply
    assert not ended, ended
    for t in threads:
        t.join()
    assert len(ended) == FAR and all(s >= 500 for s in ended), ended
    reply = ask(server, now, 0.02, 0)
    assert reply.status == 200, reply
    late(server, now)


def late(server, now):
    """Late data of a bucket that left: sealing them needs remote rows. Until those come, all other
    work continues: pushes, and seals of fresh rows."""
    rng = random.Random(4)
    m = server.process.metric
    errors, sealed = m("embertree_ingester_seal_errors_total"), m("embertree_ingester_sealed_rows_total")
    push(server, "shop", now - 4 * DAY + 60, 0, rng)

    def said():
        return "late rows wait for the cold tier" in server.process.log.read_text(errors="replace")

    def pushed():
        push(server, "shop", time.time() - 90, 1, rng)
        return True

    wait(lambda: pushed() and said())
    wait(lambda: pushed() and m("embertree_ingester_sealed_rows_total") > sealed)
    assert m("embertree_ingester_raw_rows") >= 1
    assert m("embertree_ingester_seal_errors_total") == errors
    assert ask(server, now, 0.02, 0).status == 200


if __name__ == "__main__":
    cluster.main([test_stall])
