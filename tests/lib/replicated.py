"""A cluster whose shards are replicated, of real processes: Debian's etcd-server, ingesters, a
distributor, a querier, all on loopback.

    with replicated.Cluster(ingesters=3) as c:
        c.ingest(...)                    as in cluster.py
        leader = c.leader_of(0)          the process of it
        leader.process.kill()

Skips (`available()`) where there is no etcd-server. Each process is stopped by its own id.
"""
import base64
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import cluster

READY_S = 120
PATIENT = ("--distributor.ack-timeout=50s",)  # fail-over on a busy machine sometimes takes longer than 10 s


def available():
    return shutil.which("etcd") is not None


class Etcd:
    """One member, in a folder of its own."""

    def __init__(self, folder, *options):
        self.folder, self.options = pathlib.Path(folder), options
        self.client, self.peer = cluster.free_port(), cluster.free_port()
        self.url = f"http://127.0.0.1:{self.client}"
        self.child = None
        self.log = self.folder / "etcd.log"

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        peer = f"http://127.0.0.1:{self.peer}"
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                ["etcd", "--name=e", f"--data-dir={self.folder / 'data'}",
                 f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}",
                 f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                 f"--initial-cluster=e={peer}", "--logger=zap", "--log-level=warn", *self.options],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 90
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if b"true" in urllib.request.urlopen(self.url + "/health", timeout=1).read():
                    return self
            time.sleep(0.05)
        raise RuntimeError("etcd does not start:\n" + self.log.read_text(errors="replace")[-2000:])

    def kill(self):
        if self.child:
            self.child.kill()
            self.child.wait()
            self.child = None


class Node:
    """An ingester with a name."""

    def __init__(self, name, process, zone):
        self.name, self.process, self.zone = name, process, zone

    def ring(self):
        return self.process.get("/ring", timeout=5).json()["roles"]["ingester"]


class Cluster(cluster.Api):
    def __init__(self, ingesters=3, shards=4, replicas=3, options=(), ingester=(), etcd=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        self.etcd = Etcd(self.folder / "etcd", *etcd)
        self.shared = ["--cluster.coordination=etcd", f"--cluster.etcd={self.etcd.url}",
                       f"--cluster.shards={shards}", f"--cluster.replicas={replicas}",
                       "--no-selfprof.enabled", *options]
        self.shards, self.replicas = shards, replicas
        self.of_ingesters = list(ingester)
        self.nodes = {}
        for i in range(ingesters):
            self.add(f"node{i}", f"zone{i}")
        self.distributor = self.process("distributor", *PATIENT)
        self.querier = self.process("querier")
        self.writer, self.reader = self.distributor, self.querier

    def process(self, role, *own, folder=None):
        listen = f"--{role}.listen=tcp://127.0.0.1:{cluster.free_port()}"
        return cluster.Process(f"embertree-{role}", listen, *self.shared, *own,
                               folder=self.folder / (folder or role))

    def add(self, name, zone):
        own = [f"--cluster.node={name}", f"--cluster.zone={zone}", "--ingester.seal-delay=0ms",
               "--memory.limit=256MiB", *self.of_ingesters]
        self.nodes[name] = Node(name, self.process("ingester", *own, folder=name), zone)
        return self.nodes[name]

    def processes(self):
        return [n.process for n in self.nodes.values()] + [self.distributor, self.querier]

    def __enter__(self):
        try:
            self.etcd.start()
            for p in self.processes():
                p.start(wait=False)
            for p in self.processes():
                p.wait_ready(READY_S)
            return self
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, kind, _value, _trace):
        for p in self.processes():
            if kind:
                print(f"log of {p.binary} {p.folder.name}:\n" + p.tail(), flush=True)
            with contextlib.suppress(OSError):
                p.cleanup()
        self.etcd.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def rings(self):
        """What each ingester that answers says, by name."""
        out = {}
        for node in self.nodes.values():
            with contextlib.suppress(OSError, KeyError, json.JSONDecodeError):
                out[node.name] = node.ring()
        return out

    def leaders(self):
        """{shard: name of the node that serves it}."""
        return {r["shard"]: name for name, ring in self.rings().items()
                for r in ring.get("replicas", []) if r["state"] == "serving"}

    def leader_of(self, shard, limit_s=90):
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            name = self.leaders().get(shard)
            if name:
                return self.nodes[name]
            time.sleep(0.1)
        raise AssertionError(f"no node serves shard {shard}: {self.rings()}")

    def etcd_keys(self, prefix="/embertree/"):
        """{key: value} below a prefix, by which no key of another one begins."""
        encoded = [base64.b64encode(k).decode() for k in (prefix.encode(), prefix.encode() + b"\x7f")]
        r = urllib.request.urlopen(urllib.request.Request(
            self.etcd.url + "/v3/kv/range", json.dumps(dict(zip(("key", "range_end"), encoded))).encode()), timeout=10)
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")).decode()
                for kv in json.load(r).get("kvs", [])}

    def records(self):
        """By shard, etcd's record of its leader."""
        return {int(key.rpartition("/")[2]): json.loads(value)
                for key, value in self.etcd_keys("/embertree/ring/shard/").items()}

    def established(self):
        """False: members of a shard were just changed. Until its term is established the previous ones count as well,
        so that of two of three copies none may be lost. Without etcd no members are changed."""
        try:
            return all(r["established"] for r in self.records().values())
        except OSError:  # away, or only too busy to answer
            return not self.etcd.child

    def settled(self, calm_s=6, limit_s=120):
        """Until no lead moves: leads are evened out seconds after a node came back. And all nodes have the newest state
        in their files, a second later. (A lead that is on its way when etcd is lost: test_handed_over.py.)"""
        until = time.monotonic() + limit_s
        seen, since = None, 0
        while time.monotonic() < until:
            now = self.records()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() > since + calm_s and all(r["established"] for r in now.values()):
                return
            time.sleep(0.3)
        raise AssertionError(f"leads change for {limit_s} s: {seen}")

    def wait_whole(self, limit_s=120):
        """Until every shard is served, all of its members have the whole log, and one of them may be lost."""
        until = time.monotonic() + limit_s
        seen = None
        while time.monotonic() < until:
            seen = {r["shard"]: r for ring in self.rings().values()
                    for r in ring.get("replicas", []) if r["state"] == "serving"}
            if len(seen) == self.shards and all(
                    len([p for p in r["peers"] if p["member"] and p["behind"] < 100])
                    >= self.replicas - 1 for r in seen.values()) and self.established():
                return
            time.sleep(0.1)
        raise AssertionError(f"not whole after {limit_s} s: {json.dumps(seen)}")

    def wait_applied(self, limit_s=120):
        """Until every copy has in its database all that was committed when this was called: each applies by itself, and
        a node that is stopped meanwhile does so when it is back."""
        want = {r["shard"]: r["commit"] for ring in self.rings().values()
                for r in ring.get("replicas", []) if r["state"] == "serving"}
        assert len(want) == self.shards, want
        until = time.monotonic() + limit_s
        seen = None
        while time.monotonic() < until:
            seen = [(r["shard"], r["applied"]) for ring in self.rings().values() for r in ring.get("replicas", [])]
            if len(seen) >= self.shards * self.replicas and all(at >= want[shard] for shard, at in seen):
                return
            time.sleep(0.1)
        raise AssertionError(f"{want} not applied after {limit_s} s: {seen}")
