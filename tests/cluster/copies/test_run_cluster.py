"""`make run-cluster`: a whole cluster that works, heals and ends with everything it started."""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
OFFSETS = [0, 1, 10, 11, 20, 21, 22, 30, 40]  # of the ports, as its head says


def processes_with(text):
    """Ids of processes whose command line holds the text."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def free(port):
    with socket.socket() as s:
        with contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return True
    return False


def free_base():
    """A first port whose followers are free as well."""
    bases = list(range(11000, 31000, 200))
    start = os.getpid() % len(bases)
    for base in bases[start:] + bases[:start]:
        ports = [base + o + more for o in OFFSETS for more in (0, 100)]
        if all(free(port) and cluster.reserve(port) for port in ports):  # reserved for as long as this runs
            return base
    raise RuntimeError("no range of free ports")


def hear_signals():
    """A shell cannot trap what was ignored when it began: nohup and `&` leave that behind."""
    for sig in (signal.SIGHUP, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)


class Run:
    """deploy/run-cluster as `make` starts it, below a make of its own or directly."""

    def __init__(self, below_make=False, **settings):
        self.folder = tempfile.TemporaryDirectory(prefix="embertree test run-cluster-")
        self.below_make, self.port = below_make, free_base()
        self.data = pathlib.Path(self.folder.name) / "data of it"
        self.out = pathlib.Path(self.folder.name) / "out"
        self.env = dict(os.environ, O=str(cluster.BIN.parent), PORT=str(self.port),
                        DATA=str(self.data), DEMO="0", SELF="0") | settings
        self.env.pop("MAKEFLAGS", None)

    def __enter__(self):
        command = ["deploy/run-cluster"]
        if self.below_make:
            makefile = pathlib.Path(self.folder.name) / "Makefile"
            makefile.write_text("run:\n\t@O=%s deploy/run-cluster\n"
                                % shlex.quote(str(cluster.BIN.parent)))
            command = ["make", "-f", str(makefile), "run"]
        with open(self.out, "wb") as out:
            self.child = subprocess.Popen(command, cwd=cluster.ROOT, env=self.env, stdout=out,
                                          stderr=out, stdin=subprocess.DEVNULL,
                                          start_new_session=True, preexec_fn=hear_signals)
        self.wait_for("cluster is running")
        self.wait_for("ask for it")
        return self

    def wait_for(self, text, limit_s=90):
        until = time.monotonic() + limit_s
        while text not in self.out.read_text(errors="replace"):
            assert self.child.poll() is None and time.monotonic() < until, \
                f"{text!r} is not in:\n" + self.out.read_text()
            time.sleep(0.05)

    def pids(self):
        """{name: process id} from the output."""
        return {m[1]: int(m[2]) for m in re.finditer(r"^ +(\w+-\d|etcd) +(\d+) +http://",
                                                     self.out.read_text(), re.M)}

    def get(self, offset, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port + offset}{path}", timeout=10) as r:
            return r.read().decode()

    def marks(self):
        return processes_with(str(self.data)) + processes_with(f"127.0.0.1:{self.port + 10}")

    def left(self):
        """What still runs, after it had some time to end."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            left = self.marks()
            if not left:
                return []
            time.sleep(0.05)
        return left

    def __exit__(self, kind, *_):
        if kind:
            print(self.out.read_text(errors="replace"))
        with contextlib.suppress(OSError):
            self.child.kill()
        self.child.wait()
        for pid in self.marks():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.folder.cleanup()


def check_end(below_make, sig, **settings):
    with Run(below_make, **settings) as run:
        began = time.monotonic()
        run.child.send_signal(sig)
        run.child.wait(90)
        left = run.left()
        what = f"{'make' if below_make else 'the script'} and {signal.Signals(sig).name}"
        assert not left, f"after {what}: {left}"
        for log in run.data.glob("*-*.log"):
            assert sig == signal.SIGKILL or 'msg=stopped exit=0' in log.read_text(), (log, log.read_text())
        print(f"     {what}: {time.monotonic() - began:.1f} s", flush=True)


def test_script_ends_everything():
    for sig in SIGNALS:
        check_end(False, sig, DEMO=str(int(sig == signal.SIGTERM)), INGESTERS="2", QUERIERS="1")


def test_make_ends_everything():
    for sig in (signal.SIGINT, signal.SIGKILL):
        check_end(True, sig, DISTRIBUTORS="1", QUERIERS="1", INGESTERS="1")


def ask_until(run, offset, text):
    """The printed question, put to the querier at that place, until the answer has the text."""
    ask = run.out.read_text().partition("ask for it:")[2].partition("\n\n")[0]
    ask = ask.replace(f"127.0.0.1:{run.port}/", f"127.0.0.1:{run.port + offset}/")
    until = time.monotonic() + 90
    while True:
        r = subprocess.run(["bash", "-c", ask], capture_output=True, timeout=90)
        if r.returncode == 0 and text in r.stdout.decode():
            return
        assert time.monotonic() < until, r
        time.sleep(0.1)


def counted_of_two(run):
    """What is stored of a push that is sent to both distributors under one key, as after a failure."""
    for offset in (10, 11):
        ask = urllib.request.Request(
            f"http://127.0.0.1:{run.port + offset}/ingest?name=twice.cpu&from=now-10s&until=now", b"a;b 3\n",
            {"Idempotency-Key": "one"})
        with urllib.request.urlopen(ask, timeout=90) as r:
            assert r.status == 200
    answer = run.get(0, "/pyroscope/render?from=now-1h&until=now&format=json&query=" + urllib.parse.quote(
        cluster.CPU_TYPE + '{service_name="twice"}'))
    return json.loads(answer)["flamebearer"]["numTicks"]


def test_what_it_prints_works():
    """The addresses of all processes, the two commands, the demo's profiles behind both queriers."""
    with Run(DEMO="1", SELF="1", CLUSTER_REPLICAS="1") as run:
        pids = run.pids()
        assert sorted(pids) == ["compactor-1", "distributor-1", "distributor-2", "ingester-1",
                                "ingester-2", "ingester-3", "querier-1", "querier-2"], pids
        for name, pid in pids.items():
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            assert f"--data.dir={run.data / name}" in command, (name, command)
        text = run.out.read_text()
        push = text.partition("push a profile:")[2].partition("ask for it:")[0]
        r = subprocess.run(["bash", "-c", push], capture_output=True, timeout=90)
        assert r.returncode == 0, r
        assert counted_of_two(run) == 3 * 10_000_000, "sent to both distributors, and counted twice"
        assert "key_file: " in run.get(0, "/config") and "cluster.keys" in run.get(0, "/config")
        for querier in (0, 1):
            ask_until(run, querier, '"idle"')
            until = time.monotonic() + 90
            while "demo-shop" not in run.get(querier, "/pyroscope/label-values?label=service_name"):
                assert time.monotonic() < until, "no profile of the demo"
                time.sleep(0.2)
        run.child.send_signal(signal.SIGTERM)
        assert run.child.wait(90) == 0


def test_started_again():
    """kill -9 of one of each role: said, started again, and everything still answers."""
    with Run(SHARDS="6", KEY="0", CLUSTER_REPLICAS="1") as run:
        assert "cluster.keys" not in run.get(0, "/config")
        push = run.out.read_text().partition("push a profile:")[2].partition("ask for it:")[0]
        assert subprocess.run(["bash", "-c", push], capture_output=True,
                              timeout=90).returncode == 0
        for name in ("ingester-1", "ingester-2", "ingester-3", "querier-1", "distributor-1"):
            os.kill(run.pids()[name], signal.SIGKILL)
        for name in ("ingester-1", "ingester-2", "ingester-3", "querier-1", "distributor-1"):
            run.wait_for(f"{name} ended with 137")
            run.wait_for(f"{name} is started again")
        ask_until(run, 0, '"idle"')
        ask_until(run, 1, '"idle"')
        assert "Killed" not in run.out.read_text(), run.out.read_text()
        run.child.send_signal(signal.SIGINT)
        assert run.child.wait(90) == 0
        assert not run.left()


def test_three_copies():
    """With etcd, which is the default: zones, an ingester killed at a time without an error, all of it
    ended and begun again on the same data, which no other number of copies is tried on."""
    if not shutil.which("etcd"):
        print("SKIPPED: three copies: etcd-server is not installed", flush=True)
        return
    with Run(RESTART="1") as run:
        pids = run.pids()
        assert sorted(pids) == ["compactor-1", "distributor-1", "distributor-2", "etcd", "ingester-1",
                                "ingester-2", "ingester-3", "querier-1", "querier-2"], pids
        secret = (run.data / "write-id-secret").read_text().strip()
        assert secret and not processes_with(secret), "a secret stands in a command line"
        for i in (1, 2, 3):
            config = run.get(19 + i, "/config")
            assert f'zone: "zone-{i}"' in config and f'node: "ingester-{i}"' in config, config
        push = run.out.read_text().partition("push a profile:")[2].partition("ask for it:")[0]
        assert subprocess.run(["bash", "-c", push], capture_output=True, timeout=90).returncode == 0
        ask_until(run, 0, '"idle"')
        for i in (1, 2, 3):
            os.kill(pids[f"ingester-{i}"], signal.SIGKILL)
            ask_until(run, 1, '"idle"')
            run.wait_for(f"ingester-{i} is started again")
            until = time.monotonic() + 90
            while not whole(run):
                assert time.monotonic() < until, [ring(run, n) for n in (20, 21, 22)]
                time.sleep(0.2)
        os.kill(pids["etcd"], signal.SIGKILL)
        run.wait_for("etcd is started again")
        run.child.send_signal(signal.SIGTERM)
        assert run.child.wait(90) == 0 and not run.left()
        one = subprocess.run(["deploy/run-cluster"], cwd=cluster.ROOT, capture_output=True, timeout=90,
                             env=run.env | {"CLUSTER_REPLICAS": "1"})
        assert one.returncode == 1 and b"made with CLUSTER_REPLICAS=3" in one.stderr, one
        with contextlib.suppress(FileNotFoundError):
            run.out.unlink()
        with run:
            ask_until(run, 0, '"idle"')


def ring(run, offset):
    """The replicas of an ingester; nothing while it does not answer."""
    with contextlib.suppress(OSError):
        return json.loads(run.get(offset, "/ring"))["roles"]["ingester"].get("replicas", [])
    return []


def whole(run):
    """Each shard is served by one node, and the two others have the same entries."""
    serving = {r["shard"]: r for n in (20, 21, 22) for r in ring(run, n) if r["state"] == "serving"}
    return len(serving) == 3 and all(sum(p["member"] and p["behind"] < 100 for p in r["peers"]) >= 2
                                     for r in serving.values())


def test_cannot_start():
    with Run(DISTRIBUTORS="1", QUERIERS="1", INGESTERS="1") as first:
        r = subprocess.run(["deploy/run-cluster"], cwd=cluster.ROOT, env=first.env,
                           capture_output=True, timeout=90)
        assert r.returncode == 1 and b"in use" in r.stderr and b"running" not in r.stdout, r
        assert first.get(0, "/readyz") == "ready\n"
    for wrong in ({"INGESTERS": "9"}, {"QUERIERS": "0"}, {"PORT": "32001"}, {"PORT": "x"},
                  {"CLUSTER_REPLICAS": "2"}, {"CLUSTER_REPLICAS": "x"}, {"ZONES": "0"}):
        r = subprocess.run(["deploy/run-cluster"], cwd=cluster.ROOT, env=first.env | wrong,
                           capture_output=True, timeout=90)
        assert r.returncode == 1 and b"want" in r.stderr, r
    # A server refuses: its words are shown, nothing is left.
    run = Run(SHARDS="2", CLUSTER_REPLICAS="1")
    r = subprocess.run(["deploy/run-cluster"], cwd=cluster.ROOT, env=run.env, capture_output=True,
                       timeout=90)
    assert r.returncode == 1 and b"every ingester needs at least one shard" in r.stderr, r
    assert not run.left()
    run.folder.cleanup()


if __name__ == "__main__":
    cluster.main([test_script_ends_everything, test_make_ends_everything,
                  test_what_it_prints_works, test_started_again, test_three_copies,
                  test_cannot_start])
