"""What an operator should see of a cluster from every process, though nothing stops: a second process under one node's
name, a clock that is off, and shards without most of their copies. (An etcd that refuses changes: test_etcd.py.)
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

TICK = 10_000_000
OFF_S = 90


def wait_for(fine, limit_s=120):
    until = time.monotonic() + limit_s
    while not fine():
        assert time.monotonic() < until, fine.__name__
        time.sleep(0.1)


def status(process):
    got = subprocess.run([str(cluster.BIN / "embertreectl"), "cluster", "status",
                          f"--server=http://127.0.0.1:{process.port}"], capture_output=True, text=True, timeout=60,
                         check=False)
    return got.returncode, " ".join(got.stdout.split())


def wait_said(process, code, *words):
    """Until its status ends with the code and has these words: a lead may be on its way when it is asked first."""
    until = time.monotonic() + 120
    while True:
        ended, said = status(process)
        if ended == code and all(w in said for w in words):
            return said
        assert time.monotonic() < until, (ended, said)
        time.sleep(0.2)


def check(c, n):
    got = c.render(cluster.CPU_TYPE + '{service_name="shop"}').json()
    assert got["flamebearer"]["numTicks"] == n * TICK, got["flamebearer"]["numTicks"]


def test_a_name_is_taken():
    with replicated.Cluster() as c:
        c.wait_whole()
        assert c.ingest(b"a;b 3\n", name="shop.cpu").status == 200
        node = c.nodes["node1"].process
        rival = c.process("ingester", "--cluster.node=node1", "--memory.limit=256MiB", folder="rival")
        try:
            rival.start(wait=False)

            def it_says_so():
                try:
                    said = rival.get("/readyz", timeout=5)
                except OSError:
                    return False
                return said.status == 503 and b"another node called node1 lives at tcp://" in said.body
            wait_for(it_says_so)
            wait_for(lambda: rival.metric("embertree_ingester_name_taken") == 1)
            assert rival.metric("embertree_ingester_registered") == 0
            ring = rival.get("/ring").json()["roles"]["ingester"]
            assert ring["registered"] is False and "another node called" in ring["whyNot"], ring
            code, said = status(rival)
            assert code == 1 and "not in the cluster: another node called node1" in said, (code, said)
            # Other nodes are not affected.
            assert node.get("/readyz").status == 200
            assert node.metric("embertree_ingester_name_taken") == 0
            assert node.metric("embertree_ingester_registered") == 1
            assert c.ingest(b"a;b 4\n", name="shop.cpu").status == 200
            check(c, 7)
            wait_said(c.querier, 0)
            assert rival.get("/readyz").status == 503  # it stays so
        finally:
            rival.cleanup()


def test_a_clock_is_off():
    with tempfile.TemporaryDirectory() as folder, replicated.Cluster() as c:
        lib = pathlib.Path(folder) / "clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", lib, cluster.ROOT / "tests/chaos/clock.c"], check=True)
        c.wait_whole()
        wait_for(lambda: len(c.querier.get("/ring").json()["cluster"]["clocks"]) == 3)
        said = wait_said(c.querier, 0)
        assert "clock" not in said, said
        node = c.nodes["node2"].process
        assert node.stop() == 0
        os.environ.update(LD_PRELOAD=str(lib), CLOCK_BY=str(OFF_S))
        try:
            node.start(wait=False)
        finally:
            del os.environ["LD_PRELOAD"], os.environ["CLOCK_BY"]
        node.wait_ready()
        wait_for(lambda: OFF_S - 1 <= c.querier.metric("embertree_cluster_clock_skew_seconds") <= OFF_S)
        wait_for(lambda: "clocks of processes differ" in c.querier.log.read_text())
        # It tells; nothing is decided by it.
        said = wait_said(c.querier, 0, "the clock of node2 is", "ahead of the others'")
        assert "server asked" not in said, said
        wait_for(lambda: len(node.get("/ring").json()["cluster"]["clocks"]) == 2)
        code, said = status(node)
        assert "the clock of the server asked is" in said and "clock of node" not in said, (code, said)
        assert c.ingest(b"a;b 3\n", name="shop.cpu").status == 200
        check(c, 3)
        assert node.stop() == 0
        node.start()
        wait_for(lambda: c.querier.metric("embertree_cluster_clock_skew_seconds") == 0)
        wait_for(lambda: "clocks agree again" in c.querier.log.read_text())


def test_most_copies_are_gone():
    """A leader may be left, and can store nothing: a sender of pushes should know that."""
    with replicated.Cluster(options=["--cluster.lease-ttl=3s"]) as c:
        c.wait_whole()
        assert "ingesters" not in c.querier.get("/ring").json()  # that is a list's
        assert c.ingest(b"a;b 3\n", name="shop.cpu").status == 200
        gone = [c.nodes[n].process for n in ("node0", "node1")]
        gone[0].kill()
        time.sleep(5)  # one of three: others lead, and nothing stops
        wait_for(lambda: c.distributor.get("/readyz").status == 200)
        assert c.ingest(b"a;b 4\n", name="shop.cpu").status == 200
        gone[1].kill()
        wait_for(lambda: c.distributor.get("/readyz").status == 503)
        said = c.distributor.get("/readyz").body.decode()
        assert "gone" in said or "has no leader" in said, said
        wait_said(c.querier, 1, "without a majority", "start the nodes that are gone")
        page = c.querier.request("GET", "/ring", headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.status == 200 and page.headers["Content-Type"].startswith("text/html"), page
        assert b"half or more of its copies are gone" in page.body and b"node2" in page.body, page.body
        for p in gone:
            p.start(wait=False)
        wait_for(lambda: c.distributor.get("/readyz").status == 200)
        c.wait_whole()
        check(c, 7)


def test_alerts_name_what_there_is():
    """A rule about a metric that does not exist never fires."""
    text = (cluster.ROOT / "deploy/config/alerts.yaml").read_text()
    exprs = [line for line in text.splitlines() if line.strip().startswith("expr:")]
    assert len(exprs) == text.count("- alert:") > 10
    used = {name for line in exprs for name in re.findall(r"embertree_\w+", line)}
    with tempfile.TemporaryDirectory() as far, tempfile.TemporaryDirectory() as files, \
            replicated.Cluster(ingesters=1, replicas=1, shards=1, ingester=[f"--cold.url=dir:{far}"]) as c, \
            cluster.AllInOne(*all_files(pathlib.Path(files))) as one:
        c.wait_whole()
        assert one.ingest(b"no line", "x.cpu").status == 400  # what was never refused is not counted
        assert one.ingest(b"a;b 1\n", "x.cpu").status == 200
        there = {re.match(r"\w+", line)[0] for p in [*c.processes(), one.process]
                 for line in p.get("/metrics").body.decode().splitlines() if line.startswith("embertree_")}
    assert used <= there, used - there
    runbook = (cluster.ROOT / "deploy/docs/TROUBLE.md").read_text().partition("## Alerts")[2].partition("\n## ")[0]
    for alert in re.findall(r"- alert: (\w+)", text):
        assert re.search(rf"^\|[^|]*\b{alert}\b[^|]*\| ", runbook, re.M), f"no row says what to do about {alert}"


def all_files(folder):
    """Options of what counts only if it is on."""
    (folder / "forward.yaml").write_text('targets: {a: {url: "http://127.0.0.1:1"}}\n')
    (folder / "scrape.yaml").write_text("scrape_configs: []\n")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=a",
                    "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    return [f"--distributor.forward_config_file={folder}/forward.yaml", f"--http.tls_cert={folder}/cert",
            f"--distributor.scrape_config_file={folder}/scrape.yaml", f"--http.tls_key={folder}/key"]


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        sys.exit(0)
    cluster.main([test_a_name_is_taken, test_a_clock_is_off, test_most_copies_are_gone,
                  test_alerts_name_what_there_is])
