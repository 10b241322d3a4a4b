"""etcd as operators run it: three members behind TLS that want a client's certificate, with users and
passwords, and one member that dies. Certificates are made here. Processes name all three members and
use those that are left; with a wrong password, or without a certificate, or if etcd has no space left,
they report it.

CASE=part of a name runs some.
"""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

USER, PASSWORD = "embertree", "s3cret of the test"
TICK = 10_000_000


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def certificates(folder):
    """ca.pem; server.pem for both ends, as etcd's own gateway shows it; client.pem; their keys. Where
    etcd has users its gateway takes no certificate with a common name: whose word would count?"""
    folder.mkdir(parents=True)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=ca of the test", "-keyout", "ca.key", "-out", "ca.pem", cwd=folder)
    for name, subject, usage in (("server", "/CN=server", "serverAuth,clientAuth"),
                                 ("client", "/O=embertree", "clientAuth"),
                                 ("named", "/CN=embertree", "clientAuth")):
        (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                                    f"extendedKeyUsage={usage}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-subj", subject, "-keyout", f"{name}.key", "-out", "req.pem", cwd=folder)
        openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
                "-set_serial", str(hash(name) % 1000 + 1), "-extfile", "ext", "-out", f"{name}.pem", cwd=folder)
    return folder


class Members:
    """Three of them, as one etcd."""

    def __init__(self, folder, certs):
        self.folder, self.certs = pathlib.Path(folder), certs
        self.clients = [f"https://127.0.0.1:{cluster.free_port()}" for _ in range(3)]
        self.peers = [f"http://127.0.0.1:{cluster.free_port()}" for _ in range(3)]
        self.children = [None] * 3
        self.context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
        self.context.load_cert_chain(certs / "client.pem", certs / "client.key")
        self.token = None

    def start(self):
        everyone = ",".join(f"e{i}={peer}" for i, peer in enumerate(self.peers))
        for i in range(3):
            folder = self.folder / f"e{i}"
            folder.mkdir(parents=True)
            with open(folder / "log", "ab") as out:
                self.children[i] = subprocess.Popen(
                    ["etcd", f"--name=e{i}", f"--data-dir={folder / 'data'}",
                     f"--listen-client-urls={self.clients[i]}", f"--advertise-client-urls={self.clients[i]}",
                     f"--listen-peer-urls={self.peers[i]}",
                     f"--initial-advertise-peer-urls={self.peers[i]}", f"--initial-cluster={everyone}",
                     "--client-cert-auth", f"--trusted-ca-file={self.certs / 'ca.pem'}",
                     f"--cert-file={self.certs / 'server.pem'}", f"--key-file={self.certs / 'server.key'}",
                     "--logger=zap", "--log-level=warn"],
                    stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        until = time.monotonic() + 90
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if self.ask(0, "/v3/kv/range", {"key": "Lw=="}) is not None:
                    return
            time.sleep(0.1)
        raise RuntimeError("etcd does not start:\n" + (self.folder / "e0" / "log").read_text()[-2000:])

    def ask(self, member, path, message):
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = self.token
        request = urllib.request.Request(self.clients[member] + path, json.dumps(message).encode(), headers)
        try:
            return json.loads(urllib.request.urlopen(request, timeout=5, context=self.context).read())
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path}: {e.code} {e.read()[:300]!r}") from e

    def users(self):
        """root, and a user that may only use keys below /embertree."""
        self.ask(0, "/v3/auth/user/add", {"name": "root", "password": "root"})
        self.ask(0, "/v3/auth/user/grant", {"user": "root", "role": "root"})
        self.ask(0, "/v3/auth/user/add", {"name": USER, "password": PASSWORD})
        self.ask(0, "/v3/auth/role/add", {"name": "cluster"})
        self.ask(0, "/v3/auth/role/grant", {"name": "cluster", "perm": {
            "permType": "READWRITE", "key": base64.b64encode(b"/embertree/").decode(),
            "range_end": base64.b64encode(b"/embertree0").decode()}})
        self.ask(0, "/v3/auth/user/grant", {"user": USER, "role": "cluster"})
        self.ask(0, "/v3/auth/enable", {})
        self.token = self.ask(0, "/v3/auth/authenticate", {"name": "root", "password": "root"})["token"]

    def leader(self):
        for i in range(3):
            status = self.ask(i, "/v3/maintenance/status", {})
            if status["header"]["member_id"] == status["leader"]:
                return i
        raise AssertionError("no leader")

    def kill(self, member):
        if self.children[member]:
            self.children[member].kill()
            self.children[member].wait()
            self.children[member] = None

    def stop(self):
        for i in range(3):
            self.kill(i)


class Bed(cluster.Api):
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        self.certs = certificates(self.folder / "certs")
        self.etcd = Members(self.folder / "etcd", self.certs)
        (self.folder / "password").write_text(PASSWORD + "\n")
        self.all = []

    def options(self, certificate="client", password="password"):
        own = [f"--cluster.etcd-cert={self.certs / certificate}.pem",
               f"--cluster.etcd-key={self.certs / certificate}.key"] if certificate else []
        return ["--cluster.coordination=etcd", "--cluster.etcd=" + ",".join(self.etcd.clients),
                f"--cluster.etcd-ca={self.certs / 'ca.pem'}", *own, f"--cluster.etcd-user={USER}",
                f"--cluster.etcd-password-file={self.folder / password}", "--cluster.shards=2",
                "--cluster.replicas=1", "--no-selfprof.enabled"]

    def process(self, role, name, *more, **how):
        p = cluster.Process(f"embertree-{role}", f"--{role}.listen=tcp://127.0.0.1:{cluster.free_port()}",
                            *self.options(**how), *more, folder=self.folder / name)
        self.all.append(p)
        return p

    def __enter__(self):
        try:
            self.etcd.start()
            self.etcd.users()
            self.ingester = self.process("ingester", "ingester", "--cluster.node=a",
                                         "--memory.limit=256MiB")
            self.writer, self.reader = self.process("distributor", "d"), self.process("querier", "q")
            for p in self.all:
                p.start(wait=False)
            for p in self.all:
                p.wait_ready()
            return self
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise

    def __exit__(self, kind, _value, _trace):
        for p in self.all:
            if kind:
                print(f"log of {p.binary} {p.folder.name}:\n" + p.tail(), flush=True)
            with contextlib.suppress(OSError):
                p.cleanup()
        self.etcd.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(what, limit_s=120):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if what():
                return
        time.sleep(0.1)
    raise AssertionError(f"did not come: {what.__name__} {getattr(what, 'said', '')}")


def test_tls_users_and_a_dead_member():
    with Bed() as c:
        pushed = 0

        def push():
            nonlocal pushed
            pushed += 1
            r = c.ingest(f"root;p{pushed} 1\n", name="shop.cpu")
            assert r.status == 200, r

        push()
        c.etcd.kill(c.etcd.leader())
        push()  # needs no etcd
        # These need it: a process that starts now, a change of the map that all processes get.
        late = c.process("querier", "late")
        late.start(wait=False)
        late.wait_ready()
        r = None

        def changed():
            nonlocal r
            r = late.operate("/api/v1/cluster/services?tenant=anonymous&service=other&shards=2")
            return r.status == 200

        wait_for(changed)
        assert r.json()["shards"] == 2, r
        wait_for(lambda: all(p.get("/api/v1/cluster/places").json()["services"] for p in c.all))
        # The lease is kept through the others: the node never left.
        time.sleep(4)
        assert c.ingester.get("/readyz").status == 200, c.ingester.tail()
        push()
        got = c.render(cluster.CPU_TYPE + '{service_name="shop"}').json()
        assert got["flamebearer"]["numTicks"] == pushed * TICK, got["flamebearer"]["numTicks"]


def test_strangers_are_told():
    with Bed() as c:
        (c.folder / "wrong").write_text("not it\n")
        strangers = {
            "certificate": c.process("querier", "x0", certificate=None),
            "CommonName": c.process("ingester", "x1", "--cluster.node=x1", certificate="named"),
            "authentication failed": c.process("ingester", "x2", "--cluster.node=x2", password="wrong"),
        }
        for p in strangers.values():
            p.start(wait=False)
        for says, p in strangers.items():
            def told():
                said = p.get("/readyz")
                assert said.status == 503, said
                told.said = said.body
                return says in said.body.decode()
            told.__name__ = says
            wait_for(told)
        wait_for(lambda: c.ingester.get("/readyz").status == 200)


def etcd_call(etcd, path, **document):
    text = json.dumps({k: base64.b64encode(v.encode()).decode() if k in ("key", "value", "range_end") else v
                       for k, v in document.items()}).encode()
    return json.loads(urllib.request.urlopen(etcd.url + path, text, timeout=10).read())


def fill(etcd):
    """Until its quota is used up: it then answers reads, and refuses every change but deletes."""
    for i in range(200):
        try:
            etcd_call(etcd, "/v3/kv/put", key=f"junk{i}", value="x" * 40000)
        except urllib.error.HTTPError as e:
            assert b"space exceeded" in e.read()
            return
    raise AssertionError("it never was full")


def empty(etcd):
    """As its manual says."""
    rev = etcd_call(etcd, "/v3/kv/deleterange", key="junk", range_end="junl")["header"]["revision"]
    etcd_call(etcd, "/v3/kv/compaction", revision=rev, physical=True)
    etcd_call(etcd, "/v3/maintenance/defragment")
    for alarm in etcd_call(etcd, "/v3/maintenance/alarm", action="GET")["alarms"]:
        etcd_call(etcd, "/v3/maintenance/alarm", action="DEACTIVATE", **alarm)


def test_no_space_left_is_said():
    """Everything works, until a leader dies and no node may take over: so it must be reported before."""
    with replicated.Cluster(etcd=["--quota-backend-bytes=1000000"]) as c:
        c.wait_whole()
        n = 0

        def all_say(value):
            nonlocal n
            n += 1
            assert c.ingest(f"root;p{n} 1\n", name="shop.cpu").status == 200
            return all(p.process.metric("embertree_cluster_refused") == value
                       for p in c.nodes.values())

        fill(c.etcd)
        wait_for(lambda: all_say(1))
        for node in c.nodes.values():
            wait_for(lambda p=node.process: "refuses changes" in p.whole_log() and "space exceeded" in p.whole_log())
            said = subprocess.run([str(cluster.BIN / "embertreectl"), "cluster", "status",
                                   f"--server=http://127.0.0.1:{node.process.port}"],
                                  capture_output=True, text=True, timeout=60, check=False).stdout
            assert "database space exceeded" in said and "taking over" in said, said
        # A process that changes nothing there learns it from those that do.
        for p in (c.querier, c.distributor):
            wait_for(lambda p=p: p.metric("embertree_cluster_refused_nodes") == 3)
            assert p.metric("embertree_cluster_refused") == 0
            got = subprocess.run([str(cluster.BIN / "embertreectl"), "cluster", "status",
                                  f"--server=http://127.0.0.1:{p.port}"],
                                 capture_output=True, text=True, timeout=60, check=False)
            said = " ".join(got.stdout.split())
            assert got.returncode == 1 and "refuses changes of node0, node1, node2:" in said, (got.returncode, said)
        empty(c.etcd)
        wait_for(lambda: all_say(0))
        wait_for(lambda: all("as it should be again" in p.process.whole_log() for p in c.nodes.values()))
        wait_for(lambda: c.querier.metric("embertree_cluster_refused_nodes") == 0)
        got = c.render(cluster.CPU_TYPE + '{service_name="shop"}').json()
        assert got["flamebearer"]["numTicks"] == n * TICK, got["flamebearer"]["numTicks"]


if __name__ == "__main__":
    for tool in ("etcd", "openssl"):
        if not shutil.which(tool):
            print(f"SKIPPED: there is no {tool} (packages etcd-server, openssl)")
            sys.exit(0)
    cluster.main([test_tls_users_and_a_dead_member, test_strangers_are_told, test_no_space_left_is_said])
