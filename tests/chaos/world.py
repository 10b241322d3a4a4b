"""The cluster under test: 3 zones with an ingester and a member of etcd each, 2 distributors, 2 queriers,
a compactor and an S3 server, each on a host of its own (wire.py). There is room for 3 more ingesters.

A *machine* is what loses its power at once: an ingester with the etcd member of its name, or any other single host.
Ingesters, etcd members and distributors keep their files on an ext4 file system of their own (disks.py), where this
machine can have such; elsewhere their folders are plain ones and their power cannot be cut.

The binaries are copied first, so that a build beside a long run changes nothing in it.
"""
import contextlib
import fcntl
import functools
import http.client
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

import cluster
import disks
import s3_server
import wire

HTTP, RPC, ETCD, PEER, S3 = 4040, 4140, 2379, 2380, 9000
RUNS = cluster.ROOT / "build" / "chaos"
ZONES = ("a", "b", "c")
HOSTS = {"ingester-a": "a", "ingester-b": "b", "ingester-c": "c",
         "ingester-d": "a", "ingester-e": "b", "ingester-f": "c",
         "distributor-1": "a", "distributor-2": "b", "querier-1": "b", "querier-2": "c",
         "compactor": "c", "etcd-a": "a", "etcd-b": "b", "etcd-c": "c", "s3": "s3"}
ETCDS = ("etcd-a", "etcd-b", "etcd-c")
REPLICAS, SHARDS = 3, 6
TENANTS = ("red", "blue")
VOLUME_MIB = 1024  # of the one ingester whose disk fills up
DISK_MIB = {"ingester": 4096, "etcd": 1024, "distributor": 64}


def new_folder():
    """For this run; folders of runs that were killed go first."""
    RUNS.mkdir(parents=True, exist_ok=True)
    for old in RUNS.glob("run-*"):
        with contextlib.suppress(OSError), open(old / "lock", "ab") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(old, ignore_errors=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=RUNS))
    lock = open(folder / "lock", "ab")  # for as long as we live
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock


@functools.lru_cache
def reference(path):
    """The names of all options of a binary."""
    r = subprocess.run([str(path), "--print-reference"], capture_output=True, text=True, check=True)
    return r.stdout


def known_options(path, options):
    """Those that a binary of another version has."""
    def name(option):
        return option.removeprefix("--no-").removeprefix("--").partition("=")[0].replace("-", "_")
    return [o for o in options if f"`{name(o)}`" in reference(path)]


class Server(cluster.Process):
    """Any process of the cluster, on its host. `command` instead of one of our binaries."""

    def __init__(self, world, host, binary, *options, folder=None, command=None, clock=""):
        super().__init__(binary, *options, folder=folder or world.folder / host, http_port=HTTP)
        self.world, self.host, self.command, self.clock = world, host, command, clock
        self.stopped = self.full = self.gone = False
        self.disk = None  # disks.Disk; None: a plain folder
        self.bin = None   # of another version; None: the one under test
        self.wanted = False  # it shall run
        self.log = world.folder / f"{self.folder.name}.log"
        self.starts = 0
        self.died = []  # ends that the test did not cause

    def start(self, wait=False):
        self.folder.mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(self.bin or self.world.bin) / self.binary
        options = known_options(path, self.options) if self.bin else self.options
        command = self.command or [
            str(path), f"--http.listen={self.world.ip(self.host)}:{HTTP}",
            f"--data.dir={self.folder / 'data'}", *options]
        env = dict(os.environ)
        if self.clock:
            env |= {"LD_PRELOAD": str(self.world.clock), "CLOCK_BY": self.clock}
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(self.world.wire.inside(self.host, command), stdout=out,
                                          stderr=out, stdin=subprocess.DEVNULL, env=env)
        self.stopped, self.wanted = False, True
        self.starts += 1
        if wait:
            self.wait_ready(60)
        return self

    def request(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection(self.world.ip(self.host), self.port, timeout=timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return cluster.Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def alive(self):
        return (self.child is not None and self.child.poll() is None and not self.stopped
                and not self.full)

    def pause(self):
        self.child.send_signal(signal.SIGSTOP)
        self.stopped = True

    def go_on(self):
        self.child.send_signal(signal.SIGCONT)
        self.stopped = False

    def kill(self):
        self.wanted = False
        if self.child and self.child.poll() is None:
            self.end_at_once()
        self.stopped = False

    def end_at_once(self):
        super().kill()

    def lose_power(self):
        """Between two of its instructions, and with all that is not on its disk yet. See cut_power()."""
        if self.child and self.child.poll() is None:
            self.pause()
        if self.disk and self.disk.mounted:
            self.disk.shut_down()

    def power_on(self):
        """The disk as the power cut left it; nothing runs yet."""
        if self.disk and not self.disk.mounted:
            self.disk.mount()

    def terminate(self):
        self.wanted = False
        self.child.terminate()

    def watch(self):
        """Starts it again if it ended by itself; returns its exit code then."""
        code = self.child.poll() if self.child and self.wanted else None
        if code is not None:
            self.died.append((code, self.tail(15)))
            self.start()
        return code


class S3Host(Server):
    """kill -9 breaks whatever it is doing, but for what changes an object: S3 does that whole or not at
    all, which the server here does not promise. tests/s3/server.mjs ends itself between two such."""

    def end_at_once(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.send_signal(signal.SIGUSR2)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(20)
        super().end_at_once()


def cut_power(servers):
    """All at once: everything stands still, then no disk takes anything, then the processes are gone. So none of them
    ever sees an error of its disk, as none does when the power fails."""
    for s in servers:
        s.lose_power()
    for s in servers:
        s.kill()
    for s in servers:
        if s.disk and s.disk.mounted:
            s.disk.umount()
            s.disk.cuts += 1


class World:
    def __init__(self, s3=True, digest_s=20, backup_s=8):
        self.no_power = disks.why_not()  # why no power can be cut here
        self.folder, self.lock = new_folder()
        self.bin = self.folder / "bin"
        shutil.copytree(cluster.BIN, self.bin)
        self.wire = wire.Wire(HOSTS)
        self.clock = self.folder / "clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.clock,
                        pathlib.Path(__file__).with_name("clock.c")], check=True)
        self.rotate()
        (self.folder / "s3-keys").write_text(f"{s3_server.KEY}\n{s3_server.SECRET}\n")
        known = "".join(subprocess.run([self.bin / f"embertree-{role}", "--print-reference"],
                                       capture_output=True, text=True, check=True).stdout
                        for role in ("ingester", "distributor"))
        self.shared = [
            "--http.insecure-open", "--tenancy.multi", "--no-selfprof.enabled",
            "--memory.limit=384MiB", "--cluster.coordination=etcd",
            "--cluster.etcd=" + ",".join(self.etcd_url(h) for h in ETCDS),
            f"--cluster.shards={SHARDS}",
            f"--cluster.replicas={REPLICAS}", "--cluster.replace-after=40s",
            f"--cluster.key-file={self.folder / 'keys'}", "--log.level=info"]
        bucket = [f"--cold.url=s3://{s3_server.BUCKET}/chaos", "--cold.s3-path-style",
                  f"--cold.s3-endpoint=http://{self.ip('s3')}:{S3}",
                  f"--cold.s3-credentials-file={self.folder / 's3-keys'}"]
        self.cold = [*(bucket if s3 else [f"--cold.url=dir:{self.folder / 'objects'}"]), "--cold.after=1h",
                     "--cold.interval=3s", f"--cold.backup-interval={backup_s}s", "--cold.cache-bytes=16MiB"]
        self.fast = ["--ingester.seal-delay=2s", "--ingester.build-delay=1s",
                     "--ingester.build-pace=5s", "--scrub.delay=20s", "--scrub.interval=20s"]
        if "`cluster.digest_interval`" in known:
            self.shared.append(f"--cluster.digest-interval={digest_s}s")
        audited = (["--distributor.ledger-epoch=5s"] if "`distributor.ledger_epoch`" in known
                   else [])
        self.servers = {}
        self.ingester_names = {}
        self.moving = set()  # hosts that come or go at this moment
        for host in HOSTS:
            role = host.partition("-")[0]
            if role not in ("etcd", "s3", "ingester"):
                build = {"compactor": ["--compactor.build-interval=500ms"], "querier": [],
                         "distributor": audited}[role]
                self.servers[host] = self.on_disk(Server(
                    self, host, f"embertree-{role}", *self.listen(host), *self.shared, *build))
        for host in ("ingester-a", "ingester-b", "ingester-c"):
            self.add_ingester(host, host)
        for host in ETCDS:
            self.servers[host] = self.on_disk(Server(self, host, "etcd",
                                                     command=self.etcd_command(host)))
        if s3:
            self.servers["s3"] = S3Host(self, "s3", "s3", command=self.s3_command())
        self.small = self.servers["ingester-c"]

    def ip(self, host):
        return self.wire.ip[host]

    def listen(self, host):
        return [f"--{host.partition('-')[0]}.listen=tcp://{self.ip(host)}:{RPC}"]

    def add_ingester(self, host, name, clock=""):
        """Another name is another node, with an empty disk."""
        before = self.servers.get(host)
        self.servers[host] = self.on_disk(Server(
            self, host, "embertree-ingester", f"--cluster.node={name}",
            f"--cluster.zone={HOSTS[host]}", *self.listen(host), *self.shared, *self.cold,
            *self.fast, folder=self.folder / name, clock=clock),
            VOLUME_MIB if name == "ingester-c" else None)
        self.ingester_names[host] = name
        if before and before.disk:
            before.disk.close()
        return self.servers[host]

    def remove_host(self, host):
        """It ended, and comes back no more with this disk."""
        server = self.servers.pop(host, None)
        if server and server.disk:
            server.disk.close()

    # ---- disks and power ----

    def on_disk(self, server, mib=None):
        """With a file system of its own, if it keeps files and this machine can have one."""
        mib = mib or DISK_MIB.get(server.host.partition("-")[0])
        if mib and not self.no_power:
            server.disk = disks.Disk(self.folder / f"{server.folder.name}.image", server.folder, mib)
        return server

    def machine(self, host):
        """The hosts that lose their power with this one."""
        pair = host.replace("etcd-", "ingester-"), host.replace("ingester-", "etcd-")
        return [h for h in dict.fromkeys((*pair, host)) if h in self.servers]

    def cut_power(self, hosts):
        cut_power([self.servers[h] for h in hosts])

    def power_on(self, hosts):
        for h in hosts:
            self.servers[h].power_on()
        for h in hosts:
            self.servers[h].start()

    @property
    def cuts(self):
        return sum(s.disk.cuts for s in self.servers.values() if s.disk)

    def etcd_url(self, host, port=ETCD):
        return f"http://{self.ip(host)}:{port}"

    def etcd_command(self, host):
        client, peer = self.etcd_url(host), self.etcd_url(host, PEER)
        everyone = ",".join(f"{h}={self.etcd_url(h, PEER)}" for h in ETCDS)
        return ["etcd", f"--name={host}", f"--data-dir={self.folder / host / 'data'}",
                f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={everyone}", "--pre-vote", "--logger=zap", "--log-level=warn"]

    def s3_command(self):
        modules = s3_server.modules()
        run = f"cd {modules} && exec node server.mjs {self.folder / 's3' / 'objects'}"
        return ["env", f"S3_HOST={self.ip('s3')}", f"S3_PORT={S3}", "sh", "-c", run]

    # ---- the cluster's key ----

    def rotate(self):
        """A new key that seals; the one before still opens."""
        path = self.folder / "keys"
        old = path.read_text().splitlines()[:1] if path.exists() else []
        fresh = path.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text("\n".join([f"k{secrets.token_hex(3)}: {secrets.token_hex(32)}", *old])
                         + "\n")
        fresh.rename(path)

    # ---- groups ----

    def all(self, role):
        return [s for h, s in list(self.servers.items()) if h.partition("-")[0] == role]

    @property
    def ingesters(self):
        return self.all("ingester")

    @property
    def distributors(self):
        return self.all("distributor")

    @property
    def queriers(self):
        return self.all("querier")

    @property
    def etcds(self):
        return self.all("etcd")

    def in_zone(self, zone):
        return [h for h in HOSTS if HOSTS[h] == zone and h in self.servers]

    def ingesters_of(self, zone):
        return [s.host for s in self.ingesters if HOSTS[s.host] == zone]

    def settled(self):
        return [h for h in list(self.servers) if h not in self.moving]

    def free(self, zone):
        """A host of the zone for one more ingester."""
        return next(h for h in HOSTS if HOSTS[h] == zone and h.startswith("ingester")
                    and h not in self.servers)

    # ---- begin and end ----

    def __enter__(self):
        if self.no_power:
            print(f"SKIPPED: {self.no_power}", flush=True)
            if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME_MIB}m", "tmpfs",
                               str(self.mkdir(self.small.folder))], check=False).returncode:
                print("SKIPPED: a full disk: cannot mount a tmpfs", flush=True)
                self.small = None
        self.begin_etcd()
        for s in self.servers.values():
            if s.starts == 0:
                s.start()
        for s in self.servers.values():
            if s.host not in (*ETCDS, "s3"):
                s.wait_ready(60)
        self.wait_whole(60)
        return self

    def begin_etcd(self):
        for s in [*self.etcds, *self.all("s3")]:
            s.start()
        self.wait_etcd()

    @staticmethod
    def mkdir(path):
        path.mkdir(parents=True, exist_ok=True)
        return path

    def __exit__(self, *_):
        self.close()

    def close(self):
        for s in self.servers.values():
            with contextlib.suppress(OSError):
                s.kill()
        self.wire.close()

    def unmount(self):
        for s in list(self.servers.values()):
            if s.disk:
                s.disk.close()
        subprocess.run(["umount", "-l", str(self.folder / "ingester-c")], check=False,
                       capture_output=True)

    def remove(self):
        self.unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self):
        """The folder is there to be looked at until the next run that fails; files on disks of their own are copied
        to plain folders, since the mounts end with the test."""
        for s in self.servers.values():
            if s.disk and s.disk.mounted:
                copy = self.folder / (s.folder.name + ".copy")
                subprocess.run(["cp", "-a", "--sparse=always", str(s.folder), str(copy)], check=False)
        self.unmount()
        for copy in self.folder.glob("*.copy"):
            with contextlib.suppress(OSError):
                copy.with_suffix("").rmdir()
                copy.rename(copy.with_suffix(""))
        last = RUNS / "last"
        shutil.rmtree(last, ignore_errors=True)
        self.folder.rename(last)
        return last

    def wait_etcd(self, limit_s=30):
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                if all(b"true" in urllib.request.urlopen(self.etcd_url(h) + "/health", timeout=1).read()
                       for h in ETCDS):
                    return
            time.sleep(0.1)
        raise RuntimeError("etcd does not start:\n" + self.servers["etcd-a"].tail())

    def fail_s3(self, n, status=503):
        ask = urllib.request.Request(f"http://{self.ip('s3')}:{S3}/_fail?n={n}&status={status}",
                                     method="POST")
        with urllib.request.urlopen(ask, timeout=10) as reply:
            return json.load(reply)

    # ---- what it says of itself ----

    def rings(self):
        out = {}
        for s in self.ingesters:
            with contextlib.suppress(OSError, KeyError, http.client.HTTPException,
                                     json.JSONDecodeError):
                out[s.host] = s.get("/ring", timeout=3).json()["roles"]["ingester"]
        return out

    def leaders(self):
        """{shard: host that serves it}"""
        return {r["shard"]: host for host, ring in self.rings().items()
                for r in ring.get("replicas", []) if r["state"] == "serving"}

    def not_whole(self):
        """Empty when every shard is served and its followers have the whole log."""
        served = {r["shard"]: r for ring in self.rings().values()
                  for r in ring.get("replicas", []) if r["state"] == "serving"}
        if len(served) < SHARDS:
            return f"served are only {sorted(served)}"
        behind = [n for n, r in served.items()
                  if len([p for p in r["peers"] if p["member"] and p["behind"] < 200])
                  < REPLICAS - 1]
        return f"followers are behind: {behind}" if behind else ""

    def wait_whole(self, limit_s):
        """Seconds until it was whole."""
        began, why = time.monotonic(), "?"
        while time.monotonic() < began + limit_s:
            why = self.not_whole()
            if not why:
                return time.monotonic() - began
            time.sleep(0.3)
        raise AssertionError(f"the cluster is not whole {limit_s} s after everything was healed: "
                             f"{why}: {json.dumps(self.rings())[:3000]}")

    def ctl(self, *args, limit_s=120):
        host = next((s.host for s in self.queriers if s.alive()), "querier-1")
        command = [str(self.bin / "embertreectl"), "--server", f"http://{self.ip(host)}:{HTTP}",
                   "cluster", *args]
        r = subprocess.run(self.wire.inside(host, command),  # changes are made from there only
                           stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=limit_s, check=False)
        return r.returncode, r.stdout + r.stderr

    def metric(self, servers, name, **labels):
        total = 0.0
        for s in servers:
            with contextlib.suppress(OSError, http.client.HTTPException):
                total += s.metric(name, **labels)
        return total
