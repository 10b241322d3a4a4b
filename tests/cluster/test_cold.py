"""The cold tier over real processes: old data leave the disk and every answer stays the same: through
kill -9, with late data, after a delete, and after every disk is lost (`embertree restore`). Without the
object store an answer is an error, never less.

Against an S3 server that checks signatures, or, where there is no Node, a folder.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import s3_server

SEAL = ("--ingester.seal-delay=0ms", "--ingester.build-delay=0ms", "--selfprof.enabled=false",
        "--memory.limit=256MiB")
DAY = 86400
PODS = 3


def wait(what, limit_s=90):
    until = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.3)


def push(server, service, t, pod, rng):
    body = "".join(f"main;f{rng.randrange(40)};g{rng.randrange(40)} {rng.randrange(1, 50)}\n"
                   for _ in range(30))
    reply = server.ingest(body, f"{service}.cpu{{pod=p{pod}}}", from_=int(t), until=int(t) + 10)
    assert reply.status == 200, reply


def fill(server, now):
    rng = random.Random(7)
    for hour in range(5 * 24):
        for service in ("shop", "cart"):
            push(server, service, now - 5 * DAY + hour * 3600 + 60, hour % PODS, rng)


def answers(server, now, services=("shop", "cart")):
    """What must not change: trees, timelines and functions of ranges that meet old and new data."""
    out = {}
    for service in services:
        for days, until in ((6, 0), (1, 4), (2.3, 1.1), (0.5, 0)):
            window = {"from": int(now - (days + until) * DAY), "until": int(now - until * DAY)}
            for pod in ("", ',pod="p1"'):
                query = f'{cluster.CPU_TYPE}{{service_name="{service}"{pod}}}'
                reply = server.reader.get("/pyroscope/render", query=query, format="json", **window)
                assert reply.status == 200, reply
                got = reply.json()
                out[(service, days, pod)] = (got["flamebearer"], got["timeline"]["samples"])
            reply = server.reader.get("/api/v1/functions", query=f'{cluster.CPU_TYPE}{{service_name="{service}"}}', **window)
            out[(service, days, "functions")] = (reply.status, reply.json().get("functions"))
    return out


def delete(server, service):
    query = f'{{service_name="{service}"}}'
    reply = server.reader.post("/api/v1/delete", b"", {}, query=query, confirm=query)
    assert reply.status in (200, 202), reply


def start(folder, *options):
    server = cluster.AllInOne(*SEAL, *options, folder=folder)
    return server


def cold_options(url, *more):
    return (f"--cold.url={url}", "--cold.after=1h", "--cold.interval=1s",
            "--cold.backup-interval=3s", "--cold.cache-bytes=16MiB", "--scrub.rate=0", *more)


def moved(server):
    m = server.process.metric
    return m("embertree_cold_rows_total") > 0 and m("embertree_cold_backups_total") > 1


def body(work, url, options, hide, show):
    now = time.time() // 3600 * 3600
    folder = work / "server"
    with start(folder) as server:
        fill(server, now)
        wait(lambda: server.process.metric("embertree_ingester_raw_rows") == 0)
        time.sleep(2)  # nodes of 10 minutes and up are built; answers are the same without them
        before = answers(server, now)
        assert any(name == "f1" for name in before[("shop", 6, "")][0]["names"])
        server.process.stop()
    with start(folder, *cold_options(url, *options)) as server:
        wait(lambda: moved(server))
        assert answers(server, now) == before
        server.process.kill()
        server.process.start()
        assert answers(server, now) == before
        # Late data for a bucket that left: they count at once, and when the bucket leaves again.
        rng = random.Random(8)
        rows = server.process.metric("embertree_cold_rows_total")
        push(server, "shop", now - 4 * DAY + 60, 1, rng)
        late = answers(server, now)
        assert late != before and {k: v for k, v in late.items() if k[0] == "cart"} == \
            {k: v for k, v in before.items() if k[0] == "cart"}
        wait(lambda: server.process.metric("embertree_ingester_raw_rows") == 0)
        wait(lambda: server.process.metric("embertree_cold_rows_total") > rows)
        assert answers(server, now) == late
        # Without the object store: an error, and the recent data are still there.
        server.process.stop()
        hide()
        shutil.rmtree(folder / "data" / "cold-cache")
        server.process.start()
        reply = server.reader.get("/pyroscope/render", format="json",
                                  query=f'{cluster.CPU_TYPE}{{service_name="shop"}}', **{"from": int(now - 6 * DAY), "until": int(now)})
        assert reply.status >= 500, reply
        show()
        assert answers(server, now) == late
        # Deleted is deleted, far away, too.
        delete(server, "cart")
        backups = server.process.metric("embertree_cold_backups_total")
        wait(lambda: server.process.metric("embertree_cold_backups_total") > backups + 1)
        last = answers(server, now, ("shop",))
        assert last == {k: v for k, v in late.items() if k[0] == "shop"}
        backups = server.process.metric("embertree_cold_backups_total")
        wait(lambda: server.process.metric("embertree_cold_backups_total") > backups + 1)
        server.process.kill()
    shutil.rmtree(folder / "data")
    done = subprocess.run([cluster.BIN / "embertree", "restore", f"--data.dir={folder / 'data'}",
                           *cold_options(url, *options)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and "as of" in done.stdout, done
    with start(folder, *cold_options(url, *options)) as server:
        assert answers(server, now, ("shop",)) == last
        push(server, "shop", now - 600, 1, random.Random(9))
        assert answers(server, now, ("shop",)) != last  # it takes pushes
        server.process.stop()
    with start(folder) as server_without:
        raise AssertionError("started without the cold tier it has data in")


def main():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        temp = pathlib.Path(temp)

        def refused(run):
            """The last step of body: a server that would hide data does not start."""
            try:
                run()
            except RuntimeError as e:
                assert "cold.url" in str(e), e
                return
            raise AssertionError("it started")

        def test_folder():
            there, away = temp / "objects", temp / "objects-away"
            refused(lambda: body(temp / "a", f"dir:{there}", (), lambda: there.rename(away),
                                 lambda: (shutil.rmtree(there, ignore_errors=True),
                                          away.rename(there))))

        tests = [test_folder]
        try:
            server = s3_server.S3Server(temp / "s3")
        except s3_server.Missing as e:
            print(f"SKIPPED: the bucket: {e}")
            cluster.main(tests)
            return
        with server:
            keys = temp / "keys"
            keys.write_text(f"{s3_server.KEY}\n{s3_server.SECRET}\n", encoding="ascii")

            def test_bucket():
                refused(lambda: body(
                    temp / "b", f"s3://{s3_server.BUCKET}/one",
                    (f"--cold.s3-endpoint={server.url}", "--cold.s3-path-style",
                     f"--cold.s3-credentials-file={keys}"),
                    lambda: server.fail(10**9), lambda: server.fail(0)))
                assert server.fail(0)["refused"] == 0

            # A bucket says all that a folder does; ALL=1 runs both.
            cluster.main([*(tests if os.environ.get("ALL") else []), test_bucket])


if __name__ == "__main__":
    main()
