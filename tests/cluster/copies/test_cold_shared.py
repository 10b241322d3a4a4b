"""An operator tries the backups: restores them to another machine, with the same configuration, while their
server still runs, or is stopped for a time. The copy reads the object store. Pushes to it would make old buckets
leave again, and their old parts be deleted; but it writes and deletes nothing, and reports that. When the first server
is gone for good, the operator has the copy take over; if the first one comes back, it only reads.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import test_cold

HOURS = 30


def fill(server, now):
    for service in ("shop", "cart"):
        for h in range(HOURS):
            r = server.ingest(f"main;a{h % 5};b{h % 7} {h + 1}\n", f"{service}.cpu",
                              from_=int(now - 4 * 86400 + h * 3600), until=int(now - 4 * 86400 + h * 3600 + 10))
            assert r.status == 200, r


def total(server, now, service):
    r = server.reader.get("/pyroscope/render", query=f'{cluster.CPU_TYPE}{{service_name="{service}"}}', format="json",
                          **{"from": int(now - 6 * 86400), "until": int(now)})
    assert r.status == 200, r
    return r.json()["flamebearer"]["numTicks"]


def named_parts(root):
    """Parts that the newest head names, and whether each is there."""
    for _ in range(50):  # heads go while we look
        heads = sorted(pathlib.Path(root).rglob("head-*"))
        try:
            lines = [line.split() for line in heads[-1].read_text().splitlines()]
            return {w[1] + "/" + w[2]: (heads[-1].parent / w[1] / w[2]).exists() for w in lines if w[0] in ("away", "here")}
        except OSError:
            time.sleep(0.05)
    raise AssertionError("no head stays")


def cold(server):
    return server.reader.get("/ring").json()["roles"]["ingester"]["cold"]


def backups(server):
    return server.process.metric("embertree_cold_backups_total")


def refuses(server, why):
    """Its rounds run, and all of them are refused."""
    errors = server.process.metric("embertree_cold_errors_total")
    test_cold.wait(lambda: server.process.metric("embertree_cold_errors_total") >= errors + 6)
    assert server.process.metric("embertree_cold_failing") == 1
    assert why in cold(server)["refused"], cold(server)
    for name in "backups", "rows", "deleted":
        assert server.process.metric(f"embertree_cold_{name}_total") == 0, name


def test_a_copy_beside_what_it_is_of():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        temp = pathlib.Path(temp)
        root, now = temp / "objects", time.time() // 3600 * 3600
        options = test_cold.cold_options(f"dir:{root}")
        with test_cold.start(temp / "first", *options) as first:
            fill(first, now)
            test_cold.wait(lambda: first.process.metric("embertree_ingester_raw_rows") == 0 and test_cold.moved(first))
            done = backups(first)
            test_cold.wait(lambda: backups(first) > done + 1)
            want = total(first, now, "shop")
            said = subprocess.run([cluster.BIN / "embertree", "restore", f"--data.dir={temp / 'copy' / 'data'}", *options],
                                  capture_output=True, text=True, timeout=120, check=False)
            assert said.returncode == 0 and "as of" in said.stdout, said
            with test_cold.start(temp / "copy", *options) as copy:
                assert total(copy, now, "shop") == want
                first.process.stop()
                parts = named_parts(root)
                fill(copy, now)
                assert total(copy, now, "shop") == 2 * want
                refuses(copy, "are those of another database")
                assert len(parts) > HOURS / 10 and named_parts(root) == parts and all(parts.values()), parts
                shutil.rmtree(temp / "first" / "data" / "cold-cache")
                first.process.start()
                assert total(first, now, "shop") == want  # from the object store
                done = backups(first)
                test_cold.wait(lambda: backups(first) > done + 1)
                assert "refused" not in cold(first) and first.process.metric("embertree_cold_failing") == 0
                copy.process.stop()
            first.process.stop()
            with test_cold.start(temp / "copy", *options, "--cold.take-over") as copy:
                test_cold.wait(lambda: backups(copy) > 1)
                assert "refused" not in cold(copy) and copy.process.metric("embertree_cold_failing") == 0
                first.process.start()
                refuses(first, "were taken over by another database")
                done = backups(copy)
                test_cold.wait(lambda: backups(copy) > done)
                assert all(named_parts(root).values())


if __name__ == "__main__":
    cluster.main([test_a_copy_beside_what_it_is_of])
