"""The cold tier over real processes: old data leave the disk and every answer stays the same: through
kill -9, with late data, after a delete, and after every disk is lost (`embertree restore`). Without the
object store an answer is an error, never less. `/api/v1/space` tells what lies there, to the byte, and
does not ask for it.

Against an S3 server that checks signatures, or, without Node, a folder.
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
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
    """A shard's thread waits for far rows a moment only, and then says so: it is asked again, as its client would."""
    query = f'{{service_name="{service}"}}'
    for _ in range(120):
        reply = server.reader.post("/api/v1/delete", b"", {}, query=query, confirm=query)
        if reply.status not in (503, 504):
            break
        time.sleep(0.5)
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


def objects_of(root):
    """Sizes by name of what lies in the object store, and a function that reads one."""
    at = {}
    for path in pathlib.Path(root).rglob("*"):
        name = path.name.removesuffix("._S3rver_object")
        shard = path.parent.parent.name if not name.startswith("head-") else path.parent.name
        if path.is_file() and shard.startswith("shard-") and "._S3rver_" not in name:
            at[name if name.startswith("head-") else f"{path.parent.name}/{name}"] = path
    return {name: path.stat().st_size for name, path in at.items()}, lambda n: at[n].read_text()


def space(server):
    reply = server.reader.get("/api/v1/space")
    assert reply.status == 200, reply
    got = reply.json()
    assert got["missingIngesters"] == 0 and len(got["ingesters"]) == 1, got
    assert sum(r["bytes"] for r in got["rows"]) == got["files"]["tables"] == got["bytes"], got
    assert sum(r.get("farBytes", 0) for r in got["rows"]) == got["farBytes"], got
    far = {}
    for r in got["rows"]:
        if r.get("farBytes"):
            far[r["tenant"], r["service"]] = far.get((r["tenant"], r["service"]), 0) + r["farBytes"]
    return got["farBytes"], far


def explained(server, root):
    """True if the object store holds the parts of the report, heads, and the objects that these name as
    backups of local data: to the byte. False while something moves."""
    total, far = space(server)
    try:
        sizes, read = objects_of(root)
        heads = sorted(name for name in sizes if name.startswith("head-"))
        named = [line.split() for name in heads for line in read(name).splitlines()]
    except OSError:  # swept meanwhile
        return False
    newest = [line.split() for line in read(heads[-1]).splitlines()] if heads else []
    size = {where: {f"{w[1]}/{w[2]}": int(w[3]) for w in lines if w[0] == where}
            for where, lines in (("away", newest), ("here", named))}
    rest = {n: s for n, s in sizes.items() if n not in heads and n not in size["here"]}
    if sum(size["away"].values()) != total or rest != size["away"] or space(server)[0] != total:
        return False
    assert total > 0 and set(far) == {("anonymous", "shop"), ("anonymous", "cart")}, far
    assert sum(sizes.values()) == total + sum(sizes[n] for n in heads) + \
        sum(sizes[n] for n in set(sizes) & set(size["here"]) - set(size["away"]))
    shop, cart = far["anonymous", "shop"], far["anonymous", "cart"]
    assert 0.8 < shop / cart < 1.25, far  # alike
    text = server.reader.get("/api/v1/space", format="text").body.decode()
    assert "in cold tier" in text and str(total) in text, text
    return True


def body(work, url, options, hide, show, root):
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
        wait(lambda: explained(server, root))
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
        assert space(server)[0] > 0  # of this it is not asked
        show()
        assert answers(server, now) == late
        # Deleted rows are deleted in the object store, too.
        delete(server, "cart")
        backups = server.process.metric("embertree_cold_backups_total")
        wait(lambda: server.process.metric("embertree_cold_backups_total") > backups + 1)
        last = answers(server, now, ("shop",))
        assert last == {k: v for k, v in late.items() if k[0] == "shop"}
        backups = server.process.metric("embertree_cold_backups_total")
        wait(lambda: server.process.metric("embertree_cold_backups_total") > backups + 1)
        server.process.kill()
    shutil.rmtree(folder / "data")
    # A restore that was cut off left this; what a link in it names is not ours.
    left, other = folder / "data" / "restoring-0" / "deep's" / "er", folder / "other"
    left.mkdir(parents=True)
    other.mkdir(exist_ok=True)
    (left / "file").write_text("half a table")
    (other / "file").write_text("stays")
    (left / "link").symlink_to(other)
    done = subprocess.run([cluster.BIN / "embertree", "restore", f"--data.dir={folder / 'data'}",
                           *cold_options(url, *options)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0 and "as of" in done.stdout, done
    assert not list((folder / "data").glob("restoring-*")) and (other / "file").read_text() == "stays"
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

            def show():
                for _ in range(200):  # the server may be writing to the one it made meanwhile
                    shutil.rmtree(there, ignore_errors=True)
                    try:
                        away.rename(there)
                        return
                    except OSError:
                        time.sleep(0.02)
                raise AssertionError("the folder does not get empty")

            refused(lambda: body(temp / "a", f"dir:{there}", (), lambda: there.rename(away), show,
                                 there))

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
                    lambda: server.fail(10**9), lambda: server.fail(0), temp / "s3"))
                assert server.fail(0)["refused"] == 0

            # A bucket says all that a folder does; ALL=1 runs both.
            cluster.main([*(tests if os.environ.get("ALL") else []), test_bucket])


if __name__ == "__main__":
    main()
