"""A data folder under settings it was not written with: an ingester refuses it with what to do, changes nothing,
and starts again with the right ones. Otherwise services would be looked for where they are not, or one node's
copies be taken for another's. And a folder that was copied, or put back from a backup: one of them is the node.
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

TICK = 10_000_000
SERVICES = 8


def refused(process, *words):
    """It ends with 1, saying all of these words."""
    process.log.unlink(missing_ok=True)
    process.start(wait=False)
    try:
        code = process.child.wait(90)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it runs with {process.options}:\n{process.tail()}") from None
    said = process.tail()
    assert code == 1 and all(w in said for w in words), (code, words, said)


def files(process):
    return sorted(p.name for p in (process.folder / "data").iterdir() if p.name not in ("LOCK", "admin.sock"))


def push_all(c):
    for i in range(SERVICES):
        assert c.ingest(b"a;b 3\n", name=f"svc{i}.cpu").status == 200


def check_all(c):
    for i in range(SERVICES):
        until = time.monotonic() + 60
        while True:  # the querier may notice only now that an ingester was restarted
            r = c.render(cluster.CPU_TYPE + '{service_name="svc%d"}' % i)
            if r.status != 503 or time.monotonic() > until:
                break
            time.sleep(0.1)
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 3 * TICK, (i, r)


def test_number_of_shards():
    """One process: also a folder of a version that did not keep the number."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    try:
        with cluster.AllInOne("--no-selfprof.enabled", "--cluster.shards=2", folder=folder) as s:
            push_all(s)
            s.process.stop()
            was = files(s.process)
        for kept in (True, False):
            if not kept:
                (folder / "data" / "written-as").unlink()
            for n, words in ((3, "was written in a cluster of 2 shards" if kept else "not shard-2"),
                             (1, "holds shard-1")):
                wrong = cluster.Process("embertree", "--no-selfprof.enabled",
                                        f"--cluster.shards={n}", folder=folder)
                refused(wrong, words)
                assert [f for f in files(wrong) if f != "written-as"] == \
                    [f for f in was if f != "written-as"], files(wrong)
        with cluster.AllInOne("--no-selfprof.enabled", "--cluster.shards=2", folder=folder) as s:
            check_all(s)
            assert (folder / "data" / "written-as").read_text() == "shards 2\n"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_list_grows():
    """A second ingester in the list takes no shard away from the first, and yet everything would be elsewhere."""
    with cluster.FourProcesses("--no-selfprof.enabled") as c:
        push_all(c)
        ingester = c.by_role["ingester"]
        assert ingester.stop() == 0
        right = ingester.options
        own = [o for o in right if o.startswith("--cluster.ingesters=")][0]
        ingester.options = (*right, f"{own},tcp://127.0.0.1:{cluster.free_port()}", "--cluster.shards=2")
        refused(ingester, "was written in a cluster of 1 shards", "cluster.shards says 2")
        ingester.options = right
        ingester.start()
        check_all(c)


def static_map(ports, shards, of):
    nodes = ", ".join(f'{{name: {n}, addr: "tcp://127.0.0.1:{p}"}}' for n, p in ports.items())
    return f"version: 1\nshards: {shards}\nreplicas: 1\nnodes: [{nodes}]\nreplicas_of: {of}\n"


def test_static_map():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    ports = {n: cluster.free_port() for n in "ab"}
    text = folder / "map.yaml"

    def ingester(name, node):
        return cluster.Process("embertree-ingester", "--cluster.coordination=static",
                               f"--cluster.map-file={text}", f"--cluster.node={node}",
                               f"--ingester.listen=tcp://127.0.0.1:{ports[node]}",
                               folder=folder / name)

    a = ingester("a", "a")
    try:
        text.write_text(static_map(ports, 2, "[[a], [b]]"))
        a.start()
        assert a.stop() == 0
        text.write_text(static_map(ports, 3, "[[a], [b], [a]]"))
        refused(a, "was written in a cluster of 2 shards", "cluster.map_file says 3")
        text.write_text(static_map(ports, 2, "[[b], [a]]"))
        refused(a, "holds shard-0", "does not give to node a")
        text.write_text(static_map(ports, 2, "[[a], [b]]"))
        refused(ingester("a", "b"), "holds shard-0", "does not give to node b")
        a.start()
        assert a.stop() == 0
    finally:
        a.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_another_name():
    """Others count on what a node stored under its name."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    with replicated.Cluster() as c:
        c.wait_whole()
        push_all(c)
        node = c.nodes["node1"].process
        assert node.stop() == 0
        right, was = node.options, files(node)
        node.options = tuple(o.replace("--cluster.node=node1", "--cluster.node=other") for o in right)
        refused(node, "is the data folder of node node1", "says other", "--cluster.node=node1")
        assert files(node) == was, files(node)
        node.options = right
        node.start()
        c.wait_whole()
        check_all(c)


def test_numbers_of_a_cluster_stay():
    """They are read when it is made; a later change has no effect, which is reported."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    with replicated.Cluster() as c:
        c.wait_whole()
        push_all(c)
        node = c.nodes["node1"].process
        assert "does nothing" not in node.log.read_text()
        assert node.stop() == 0
        right = node.options
        node.options = (*right, "--cluster.shards=8", "--cluster.replicas=2")
        node.start()
        c.wait_whole()
        said = node.log.read_text()
        assert 'msg="cluster.shards does nothing' in said and "set=8 has=4" in said, said
        assert 'msg="cluster.replicas does nothing' in said and "set=2 has=3" in said, said
        check_all(c)


def ended(process, *words, limit_s=90):
    """Of itself, with 1, saying all of these words."""
    try:
        code = process.child.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it runs on:\n{process.tail()}") from None
    assert code == 1 and all(w in process.tail() for w in words), (code, words, process.tail())


def copy_of(c, process, name):
    """Another machine with a copy of its data folder: the same node, at another address."""
    shutil.copytree(process.folder / "data", c.folder / name / "data", ignore=shutil.ignore_patterns("admin.sock"))
    options = [o for o in process.options if not o.startswith("--ingester.listen=")]
    return cluster.Process("embertree-ingester", f"--ingester.listen=tcp://127.0.0.1:{cluster.free_port()}",
                           *options, folder=c.folder / name)


def test_copy_beside_the_original():
    """Two of one name would lead one shard in one term, or say twice what one of them has."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    with replicated.Cluster() as c:
        c.wait_whole()
        push_all(c)
        node = c.nodes["node1"].process
        assert node.stop() == 0
        stopped = copy_of(c, node, "stopped")
        node.start()
        c.wait_whole()
        try:
            stopped.start(wait=False)  # it knows of fewer starts
            ended(stopped, "is a copy, or an old folder was restored", "/once/node1")
            node.kill()                # a copy as of a machine that lives on: it knows of as many
            running = copy_of(c, node, "running")
            node.start()
            until = time.monotonic() + 90
            while (node.folder / "data" / "starts").read_bytes() == (running.folder / "data" / "starts").read_bytes():
                assert time.monotonic() < until
                time.sleep(0.05)
            shutil.copy(node.folder / "data" / "starts", running.folder / "data" / "starts")
            c.wait_whole()
            running.start(wait=False)
            ended(running, "lives by a copy of this data folder", "tcp://127.0.0.1")
            # The original knew nothing of all that.
            assert node.child.poll() is None and node.get("/readyz").status == 200, node.tail()
            check_all(c)
            # An old one put back, as from a backup.
            node.kill()
            shutil.rmtree(node.folder / "data")
            shutil.copytree(c.folder / "stopped" / "data", node.folder / "data",
                            ignore=shutil.ignore_patterns("admin.sock"))
            node.start(wait=False)
            ended(node, "an old folder was restored")
            # Emptied it fetches its copies again.
            shutil.rmtree(node.folder / "data")
            node.start(wait=False)
            node.wait_ready()
            c.wait_whole()
            check_all(c)
        finally:
            for p in (stopped, *([running] if "running" in locals() else [])):
                p.cleanup()


def test_both_at_once():
    """Original and copy start together: one of them runs."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    with replicated.Cluster() as c:
        c.wait_whole()
        push_all(c)
        node = c.nodes["node1"].process
        assert node.stop() == 0
        copy = copy_of(c, node, "copy")
        pair = [node, copy]
        try:
            for p in pair:
                p.start(wait=False)
            until = time.monotonic() + 90
            while all(p.child.poll() is None for p in pair):
                assert time.monotonic() < until, "both still run"
                time.sleep(0.1)
            time.sleep(3)
            (left,) = [p for p in pair if p.child.poll() is None]
            left.wait_ready()
            (gone,) = [p for p in pair if p is not left]
            ended(gone, "copy")
            check_all(c)
        finally:
            copy.cleanup()


def test_new_disk_crashes_early():
    """A lost disk is replaced by an empty folder, and its process crashes before etcd knows of the new folder: that has
    logs by then, and etcd still has the key of the lost one. It is started again, and the lost one is refused."""
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    key = "/embertree/once/node1"
    with replicated.Cluster(options=("--cluster.lease-ttl=20s",)) as c:
        c.wait_whole()
        push_all(c)
        node = c.nodes["node1"].process
        until = time.monotonic() + 60
        while key not in c.etcd_keys("/embertree/once/"):
            assert time.monotonic() < until, "its start is not noted"
            time.sleep(0.2)
        node.kill()
        lost = c.folder / "lost"
        (node.folder / "data").rename(lost)
        for _ in range(20):  # its own key is written half a second after its logs: a busy machine may miss that
            once = c.etcd_keys("/embertree/once/")[key]
            node.start(wait=False)
            until = time.monotonic() + 30
            while not list((node.folder / "data").glob("log-*")):
                assert node.child.poll() is None and time.monotonic() < until, node.tail()
                time.sleep(0.005)
            node.kill()
            if c.etcd_keys("/embertree/once/")[key] == once:
                break
            shutil.rmtree(node.folder / "data")
        else:
            raise AssertionError("each crash came too late to show anything")
        node.start(wait=False)
        node.wait_ready()
        c.wait_whole()
        check_all(c)
        assert c.etcd_keys("/embertree/once/")[key] != once
        # The lost folder, put back, is still refused; and the new one is still the node.
        node.kill()
        new = c.folder / "new"
        (node.folder / "data").rename(new)
        lost.rename(node.folder / "data")
        (node.folder / "data" / "admin.sock").unlink(missing_ok=True)
        node.start(wait=False)
        ended(node, "another data folder has been this node's since")
        shutil.rmtree(node.folder / "data")
        new.rename(node.folder / "data")
        node.start(wait=False)
        node.wait_ready()
        c.wait_whole()
        check_all(c)


def test_private_whatever_the_umask():
    """What is stored and the secrets beside it are for the server's user alone; a folder that was wider is tightened."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    before = os.umask(0)
    try:
        bucket = folder / "bucket"
        cold = (f"--cold.url=dir:{bucket}", "--cold.backup-interval=1s", "--cold.interval=1s", "--cold.after=1h")
        (folder / "data").mkdir(mode=0o755)
        with cluster.AllInOne("--no-selfprof.enabled", *cold, folder=folder) as s:
            push_all(s)
            until = time.monotonic() + 60
            while s.process.metric("embertree_cold_backups_total") < 1 and time.monotonic() < until:
                time.sleep(0.2)
            found = [p for top in (folder / "data", bucket) for p in [top, *top.rglob("*")]]
            names = {p.name for p in found}
            assert {"LOCK", "write-id-secret", "CURRENT"} <= names and any(n.startswith("head-") for n in names), names
            wide = [(str(p.relative_to(folder)), oct(p.lstat().st_mode)) for p in found if p.lstat().st_mode & 0o077]
            assert not wide, wide
            assert "is private now" in s.process.whole_log()
    finally:
        os.umask(before)
        shutil.rmtree(folder)


def test_links_are_refused():
    """What would be written through them lies elsewhere."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    try:
        process = cluster.Process("embertree", "--no-selfprof.enabled", folder=folder)
        victim = folder / "victim"
        victim.write_text("mine")
        (folder / "data").mkdir()
        for name in ("LOCK", "write-id-secret.tmp", "shard-0"):
            (folder / "data" / name).symlink_to(victim)
            refused(process, name, "symbolic link")
            (folder / "data" / name).unlink()
        assert victim.read_text() == "mine"
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    cluster.main([test_number_of_shards, test_list_grows, test_static_map, test_another_name,
                  test_numbers_of_a_cluster_stay, test_copy_beside_the_original, test_both_at_once,
                  test_new_disk_crashes_early, test_private_whatever_the_umask, test_links_are_refused])
