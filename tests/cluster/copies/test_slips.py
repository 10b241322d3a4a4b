"""Commands of deploy/docs with a plausible slip in each: another folder, another name, another number of shards, a
mount that is missing, the configuration of another node. None of them hides, overwrites or removes what is stored: the
process ends and names what to do, or everything is answered, and after the right command everything is there.
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
import replicated
import test_adopt
from test_adopt import adopt, answers, prepared, push, start, want
from test_cold import wait
from test_folder import refused

SHARDS = test_adopt.SHARDS


def single(c, name="node0"):
    return cluster.AllInOne(f"--cluster.shards={SHARDS}", "--no-selfprof.enabled", "--memory.limit=256MiB",
                            folder=c.folder / name)


def fill(c, name="node0"):
    """One push a service into a server without copies, which is stopped then; its data folder."""
    with single(c, name) as server:
        push(server, 0)
        assert answers(server) == want(1)
        assert server.process.stop() == 0
    return c.folder / name / "data"


def use(process, folder):
    process.options = tuple(o for o in process.options if not o.startswith("--data.dir=")) + (f"--data.dir={folder}",)


def tree(folder):
    """Names of all files but those of the lock and of who the node is, which each start makes."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.name not in ("LOCK", "spare", "node-id"))


def test_another_folder_after_adopt():
    """The ingester's own data.dir is not the folder that was adopted: it ends, however often; then the right one."""
    with prepared() as c:
        solo = fill(c)
        moved = c.folder / "moved"
        solo.rename(c.folder / "solo")
        solo = c.folder / "solo"
        said = adopt(c, "node0", folder=solo)
        assert f"data.dir: {solo}" in said and f"cluster.shards: {SHARDS}" in said, said
        node = c.nodes["node0"].process
        for _ in range(2):
            refused(node, str(solo), str(c.folder / "node0" / "data"), "adopted", "only copy")
            assert not [k for k in c.etcd_keys() if "/once/" in k or "/begun/" in k or "/live/" in k], c.etcd_keys()
            assert not list((c.folder / "node0" / "data").glob("shard-*"))
        # The others wait for it, and take nothing over; nothing is answered as if it were all.
        for name in ("node1", "node2"):
            c.nodes[name].process.start(wait=False)
        time.sleep(5)
        assert all(r["members"] == ["node0"] for r in c.records().values()), c.records()
        solo.rename(moved)  # a folder is known by what is in it, not by its path
        use(node, moved)
        for p in (node, c.distributor, c.querier):
            p.start(wait=False)
        for p in c.processes():
            p.wait_ready()
        assert answers(c) == want(1)
        c.wait_whole()
        # Served since, and copied: its disk may be lost as that of any other node.
        node.kill()
        use(node, c.folder / "node0" / "data")
        node.start(wait=False)
        node.wait_ready()
        assert answers(c) == want(1)
        # The old folder comes back: refused, and the text does not tell to delete an only copy.
        node.kill()
        use(node, moved)
        refused(node, "another data folder has been this node's", "Keep both")
        assert (moved / "shard-0").is_dir()


def test_adopted_folder_under_another_name():
    with prepared() as c:
        folder = fill(c)
        adopt(c, "node0")
        before = tree(folder)
        node = c.nodes["node0"].process
        options = node.options
        node.options = tuple("--cluster.node=other" if o.startswith("--cluster.node=") else o for o in options)
        refused(node, "node0", "--cluster.node=node0")
        (folder / "written-as").unlink()  # as a version adopted it that did not keep the name
        refused(node, "node0", "--cluster.node=node0")
        time.sleep(1)
        assert [f for f in tree(folder) if f.startswith("shard-") and f.endswith("CURRENT")] == \
            [f for f in before if f.startswith("shard-") and f.endswith("CURRENT")]
        node.options = options
        start(c)
        assert answers(c) == want(1)


def test_folders_given_to_adopt():
    """The folder above, an empty one, a missing one, one of another cluster."""
    with prepared() as c:
        folder = fill(c)
        above = folder.parent
        before = sorted(p.name for p in above.iterdir())
        said = adopt(c, "node0", folder=above, code=1)
        assert f"--data.dir={folder}" in said, said
        assert sorted(p.name for p in above.iterdir()) == before
        empty = c.folder / "empty"
        empty.mkdir()
        assert "holds no shards" in adopt(c, "node0", folder=empty, code=1)
        assert not list(empty.iterdir())
        assert "no data folder" in adopt(c, "node0", folder=c.folder / "none", code=1)
        said = adopt(c, "node0", shards=SHARDS + 1, code=1)
        assert f"written with cluster.shards {SHARDS}" in said, said
        assert not c.etcd_keys(), c.etcd_keys()
        adopt(c, "node0")
        start(c)
        c.wait_whole()
        for p in c.processes():
            p.stop()
        c.shared = [*c.shared, "--cluster.etcd-prefix=/second"]
        said = adopt(c, "node1", code=1)
        assert "served in another cluster" in said, said
        assert not c.etcd_keys("/second/")


def test_a_folder_of_the_list_is_not_adopted_yet():
    """Two nodes are named, and one of them starts with an empty folder before its own was adopted."""
    with prepared() as c:
        ports = [cluster.free_port() for _ in range(2)]
        shared = ["--cluster.ingesters=" + ",".join(f"tcp://127.0.0.1:{p}" for p in ports), f"--cluster.shards={SHARDS}",
                  "--no-selfprof.enabled", "--memory.limit=256MiB"]
        old = [cluster.Process("embertree-ingester", f"--ingester.listen=tcp://127.0.0.1:{ports[i]}", *shared,
                               folder=c.folder / f"node{i}") for i in range(2)]
        front = [cluster.Process(f"embertree-{r}", f"--{r}.listen=tcp://127.0.0.1:{cluster.free_port()}", *shared,
                                 folder=c.folder / f"old-{r}") for r in ("distributor", "querier")]
        try:
            for p in old + front:
                p.start(wait=False)
            for p in old + front:
                p.wait_ready()
            api = cluster.Api()
            api.writer, api.reader = front
            push(api, 0)
            assert [p.stop() for p in front + old] == [0] * 4
        finally:
            for p in old + front:
                p.cleanup()
        adopt(c, "node0", "node0", "node1")
        right, node = c.folder / "node1" / "data", c.nodes["node1"].process
        use(node, c.folder / "empty")
        refused(node, "embertree adopt", str(c.folder / "empty"))
        use(node, right)
        refused(node, "embertree adopt", str(right))
        adopt(c, "node1", "node0", "node1")
        start(c)
        assert answers(c) == want(1)


def test_the_old_server_is_started_again():
    """After adopt: the unit of the one server, which was not disabled; and the number of shards of a sample."""
    with prepared() as c:
        folder = fill(c)
        adopt(c, "node0")
        refused(single(c).process, "one of several copies")
        for n in c.nodes.values():
            n.process.options = tuple("--cluster.shards=12" if o.startswith("--cluster.shards=") else o
                                      for o in n.process.options)
        start(c)
        assert answers(c) == want(1)
        assert "12" in c.nodes["node0"].process.whole_log()
        c.wait_whole()
        assert (folder / "shard-0").is_dir()


def test_a_volume_that_is_not_mounted():
    """The data folder of one server: with data.create=false an empty one in its place is refused, and stays empty."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        volume, away = pathlib.Path(temp) / "data", pathlib.Path(temp) / "away"
        server = cluster.AllInOne("--no-selfprof.enabled", "--memory.limit=256MiB", folder=temp)
        with server:
            push(server, 0)
            server.process.stop()
            server.process.options = (*server.process.options, "--data.create=false")
            server.process.start()
            assert answers(server) == want(1)
            server.process.stop()
            volume.rename(away)
            refused(server.process, str(volume), "data.create", "not mounted")
            assert not volume.exists()
            volume.mkdir()
            refused(server.process, str(volume), "data.create", "not mounted")
            assert not list(volume.iterdir())
            volume.rmdir()
            away.rename(volume)
            server.process.start()
            assert answers(server) == want(1)


def test_restore_with_another_number():
    """An empty bucket, another number of shards, the server's default number: said, and nothing is served in part."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        temp = pathlib.Path(temp)
        cold = [f"--cold.url=dir:{temp / 'bucket'}", "--cold.after=30d", "--cold.interval=1s", "--cold.backup-interval=1s"]
        with cluster.AllInOne("--no-selfprof.enabled", "--cluster.shards=3", "--memory.limit=256MiB", *cold,
                              folder=temp / "server") as server:
            push(server, 0)
            wait(lambda: server.process.metric("embertree_cold_backups_total") >= 6)
            server.process.stop()
        data = temp / "restored" / "data"

        def restore(*options):
            r = subprocess.run([str(cluster.BIN / "embertree"), "restore", f"--data.dir={data}", *options],
                               capture_output=True, text=True, timeout=120, check=False)
            return r.returncode, r.stdout + r.stderr

        code, said = restore(f"--cold.url=dir:{temp / 'empty'}")
        assert code == 1 and "there is no backup" in said and not list(data.glob("shard-*")), said
        code, said = restore(cold[0], "--cluster.shards=12")
        assert code == 0 and "backups of 3 shards" in said and "--cluster.shards=3" in said, said
        for shards in ("12", "1"):
            again = cluster.AllInOne("--no-selfprof.enabled", f"--cluster.shards={shards}", "--memory.limit=256MiB",
                                     folder=temp / "restored")
            refused(again.process, "shard")
        with cluster.AllInOne("--no-selfprof.enabled", "--cluster.shards=3", "--memory.limit=256MiB", cold[0],
                              folder=temp / "restored") as again:
            assert answers(again) == want(1)


def status(c):
    r = subprocess.run([str(cluster.BIN / "embertreectl"), f"--server=http://127.0.0.1:{c.querier.port}", "cluster",
                        "status"], capture_output=True, text=True, timeout=60, check=False)
    return r.returncode, r.stdout + r.stderr


def test_a_bucket_that_is_not_mounted():
    """The folder of the bucket is an empty one for a while, then that of another cluster: nothing goes there, it is said
    wherever one looks, and when the right one is back everything is answered and the moves continue."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        bucket, real, wrong = (pathlib.Path(temp) / n for n in ("bucket", "real", "wrong"))
        cold = (f"--cold.url=dir:{bucket}", "--cold.after=1h", "--cold.interval=1s", "--cold.backup-interval=3s",
                "--scrub.rate=0", "--ingester.build-delay=0ms")
        with replicated.Cluster(shards=2, ingester=cold) as c:
            now = time.time() // 3600 * 3600
            nodes = [n.process for n in c.nodes.values()]

            def total(name):
                return sum(n.metric(f"embertree_cold_{name}") for n in nodes)

            def fill_hours(*hours):
                for h in hours:
                    r = c.ingest("a;b 3\n", "shop.cpu", from_=int(now - h * 3600), until=int(now - h * 3600 + 10))
                    assert r.status == 200, r

            def ticks():
                r = c.render(cluster.CPU_TYPE + '{service_name="shop"}', **{"from": int(now - 200 * 3600)})
                return r.json()["flamebearer"]["numTicks"] if r.status == 200 else r.body.decode()

            fill_hours(50, 51)  # in buckets that ended, whatever the time of day is
            wait(lambda: total("rows_total") > 0 and total("backups_total") > 1)
            assert not total("refused")
            bucket.rename(real)
            for slip in range(2):
                if slip:  # of a cluster that has nothing to do with this one
                    for shard in range(2):
                        (bucket / "holder" / f"{shard:08x}").mkdir(parents=True)
                        (bucket / "holder" / f"{shard:08x}" / f"00000001-{'a' * 32}").write_text("x")
                else:
                    bucket.mkdir()
                fill_hours(75 + slip, 95 + slip, 115 + slip)
                # What was on its way when the bucket was exchanged may arrive; it is noticed before rows are dropped here.
                wait(lambda: total("refused") > 0)
                before, errors = sorted(bucket.rglob("*")), total("errors_total")
                wait(lambda: total("errors_total") > errors + 12)
                assert sorted(bucket.rglob("*")) == before
                code, said = status(c)
                assert code == 1 and "does not hold the objects of shard" in said and str(bucket) in said, said
                told = [n.get("/readyz") for n in nodes if n.metric("embertree_cold_refused")]
                assert all(r.status == 200 and b"does not hold the objects" in r.body for r in told), told
                if slip:
                    shutil.rmtree(bucket)
                else:
                    bucket.rename(wrong)
            rows = total("rows_total")
            real.rename(bucket)
            wait(lambda: not total("refused") and not total("failing") and total("rows_total") > rows)
            assert ticks() == 8 * 30_000_000, ticks()
            wait(lambda: status(c)[0] == 0)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_another_folder_after_adopt, test_adopted_folder_under_another_name, test_folders_given_to_adopt,
                  test_a_folder_of_the_list_is_not_adopted_yet, test_the_old_server_is_started_again,
                  test_a_bucket_that_is_not_mounted, test_a_volume_that_is_not_mounted, test_restore_with_another_number])
