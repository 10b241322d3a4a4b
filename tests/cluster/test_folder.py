"""A data folder under settings it was not written with: an ingester refuses it with what to do, changes nothing,
and starts again with the right ones. Otherwise services would be looked for where they are not, or one node's
copies be taken for another's.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import replicated

TICK = 10_000_000
SERVICES = 8


def refused(process, *words):
    """It ends with 1, saying all of these words."""
    process.log.unlink(missing_ok=True)
    process.start(wait=False)
    try:
        code = process.child.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it runs with {process.options}:\n{process.tail()}") from None
    said = process.tail()
    assert code == 1 and all(w in said for w in words), (code, words, said)


def files(process):
    return sorted(p.name for p in (process.folder / "data").iterdir() if p.name != "LOCK")


def push_all(c):
    for i in range(SERVICES):
        assert c.ingest(b"a;b 3\n", name=f"svc{i}.cpu").status == 200


def check_all(c):
    for i in range(SERVICES):
        r = c.render(cluster.CPU_TYPE + '{service_name="svc%d"}' % i)
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 3 * TICK, (i, r)


def test_number_of_shards():
    """One process: also a folder from before it kept its number."""
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


if __name__ == "__main__":
    cluster.main([test_number_of_shards, test_list_grows, test_static_map, test_another_name])
