"""Coordination `static`: a file names the ingester of each shard, and over how many shards a service is
spread, without etcd. One copy of each shard, no fail-over: the behaviour that deploy/docs/INSTALL.md describes.

Shards of an ingester that is gone are refused and the others serve; started again it serves all of them.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

NAMES = ("a", "b", "c")
TICK = 10_000_000


def map_text(ports):
    """As in the README: YAML."""
    nodes = "\n".join(f"  - {{name: {n}, addr: \"tcp://127.0.0.1:{ports[n]}\"}}" for n in NAMES)
    return f"""version: 1
shards: 3
replicas: 1
nodes:
{nodes}
replicas_of: [[a], [b], [c]]
services:
  - {{tenant: anonymous, name: wide, spread: 3}}
"""


def ctl(process, *args):
    return subprocess.run([str(cluster.BIN / "embertreectl"), f"--server=http://127.0.0.1:{process.port}",
                           "cluster", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)


def total(querier, service):
    r = querier.get("/pyroscope/render", query=cluster.CPU_TYPE + '{service_name="%s"}' % service,
                    from_="now-1h", until="now", format="json")
    return r.status, r.json()["flamebearer"]["numTicks"] // TICK if r.status == 200 else r.body


def push(distributor, service, pod, value):
    return distributor.post("/ingest?from=now-10s&until=now&name=" + cluster.urllib.parse.quote(
        f"{service}.cpu{{pod={pod}}}"), b"root;x %d\n" % value).status


def test_three_nodes():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
    ports = {n: cluster.free_port() for n in NAMES}
    (folder / "map.yaml").write_text(map_text(ports))
    own = {"distributor": ["--distributor.ack-timeout=5s"], "querier": ["--querier.timeout=10s"]}
    shared = ["--cluster.coordination=static", f"--cluster.map-file={folder / 'map.yaml'}",
              "--no-selfprof.enabled", "--memory.limit=256MiB"]
    ingesters = {n: cluster.Process("embertree-ingester", *shared, f"--cluster.node={n}",
                                    f"--ingester.listen=tcp://127.0.0.1:{ports[n]}", folder=folder / n)
                 for n in NAMES}
    d, q = (cluster.Process(f"embertree-{r}", *shared, f"--{r}.listen=tcp://127.0.0.1:{cluster.free_port()}",
                            *own[r], folder=folder / r) for r in ("distributor", "querier"))
    everybody = [*ingesters.values(), d, q]
    try:
        for p in everybody:
            p.start(wait=False)
        for p in everybody:
            p.wait_ready()
        for i in range(30):
            assert push(d, "wide", f"p{i}", 1) == 200 and push(d, f"s{i}", "p", 2) == 200
        assert total(q, "wide") == (200, 30)
        shards = {n: json.loads(p.get("/ring").body)["roles"]["ingester"]["shards"]
                  for n, p in ingesters.items()}
        assert [[s["shard"] for s in shards[n]] for n in NAMES] == [[0], [1], [2]], shards
        said = ctl(q, "status")
        assert said.returncode == 0 and "no service watches which nodes live" in said.stdout, said
        for what in (("drain", "a"), ("spread", "anonymous", "wide", "2"), ("rebalance",)):
            said = ctl(q, *what)
            assert said.returncode == 2 and "static" in said.stderr, said
        ingesters["b"].kill()
        came = [push(d, f"s{i}", "p", 2) for i in range(6)]
        assert 200 in came and set(came) <= {200, 503, 504}, came
        assert total(q, "wide")[0] >= 500  # never less than there is, without a word
        ingesters["b"].start(wait=False)
        ingesters["b"].wait_ready()
        until = time.monotonic() + 90
        while total(q, "wide") != (200, 30):
            assert time.monotonic() < until, total(q, "wide")
            time.sleep(0.2)
        assert all(push(d, f"s{i}", "p", 2) == 200 for i in range(6))
    except BaseException:
        for p in everybody:
            print(p.binary, p.tail())
        raise
    finally:
        for p in everybody:
            p.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    cluster.main([test_three_nodes])
