"""Starts real Embertree processes over loopback, for tests and benchmarks.

    with cluster.AllInOne() as server:            one process
        server.ingest(b"a;b 3\n", name="app.cpu")
    with cluster.FourProcesses() as server:       one process a role, tcp:// between them

Every process gets a free port and a temporary folder, is stopped by its process id, and its log is
printed when the test fails. Only the standard library is used.
"""
import atexit
import contextlib
import gc
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / os.environ.get("O", "build/release") / "bin"
READY_S = 120  # only what hangs takes as long, however busy the machine is
os.umask(0o077)  # files of tokens and keys that tests write are refused if others may read them
GIVEN = set()  # ports handed out in this process
CPU_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"


def reserve(port):
    """Several test programs run at a time, and a server that was killed wants its port again: a file of the port names
    the program it is of, as long as that lives. (test_port.c does the same.)"""
    folder = pathlib.Path(tempfile.gettempdir()) / "embertree-test-ports"
    folder.mkdir(exist_ok=True)
    if not GIVEN:
        for file in folder.iterdir():
            forget_if_dead(file)
    try:
        with open(folder / str(port), "x", encoding="ascii") as f:
            f.write(str(os.getpid()))
        atexit.register((folder / str(port)).unlink, missing_ok=True)
        GIVEN.add(port)
        return True
    except FileExistsError:
        return False


def forget_if_dead(file):
    """What a program that was killed has left."""
    with contextlib.suppress(OSError, ValueError):  # it may just be written, or go
        try:
            os.kill(int(file.read_text(encoding="ascii")), 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)


def free_port():
    """Below the range of outgoing connections, one of which could take it before the server does."""
    while True:
        port = random.randrange(10240, 32768)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            if reserve(port):
                return port


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Process:
    """One server process."""

    def __init__(self, binary, *options, folder=None, http_port=None):
        self.binary, self.options = binary, options
        self.own_data = True  # False: data.dir is as a configuration among the options says
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="embertree-test-"))
        self.own_folder = folder is None
        self.port = http_port or free_port()
        self.child = None
        self.log = self.folder / f"{binary}-{self.port}.log"

    def start(self, wait=True):
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(BIN / self.binary), f"--http.listen=127.0.0.1:{self.port}",
                   *([f"--data.dir={self.folder / 'data'}"] if self.own_data else []), *self.options]
        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, limit_s=READY_S):
        until = time.monotonic() + limit_s
        last = None
        while time.monotonic() < until:
            if self.child.poll() is not None:
                raise RuntimeError(f"{self.binary} ended with {self.child.returncode}:\n"
                                   + self.tail())
            with contextlib.suppress(OSError, http.client.HTTPException):
                last = self.get("/readyz", timeout=2)
                if last.status == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{self.binary} is not ready after {limit_s} s ({last}):\n"
                           + self.tail())

    def kill(self):
        """kill -9."""
        self.child.kill()
        self.child.wait()

    def stop(self, limit_s=90):
        """SIGTERM; returns the exit code."""
        if self.child and self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RuntimeError(f"{self.binary} did not end in {limit_s} s:\n" + self.tail())
        return self.child.returncode if self.child else None

    def cleanup(self):
        if self.child and self.child.poll() is None:
            self.kill()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def whole_log(self):
        """Of all its lives."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self, lines=60):
        return "\n".join(self.whole_log().splitlines()[-lines:])

    def request(self, method, path, body=None, headers=None, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, timeout=60, **query):
        if query:
            path += "?" + urllib.parse.urlencode({k.rstrip("_"): v for k, v in query.items()})
        return self.request("GET", path, timeout=timeout)

    def post(self, path, body, headers=None, **query):
        if query:
            path += "?" + urllib.parse.urlencode({k.rstrip("_"): v for k, v in query.items()})
        return self.request("POST", path, body, headers)

    def operate(self, path, body=b"", method="POST", timeout=60):
        """Through the socket on which the operator needs no token."""
        c = http.client.HTTPConnection("localhost", timeout=timeout)
        c.sock = socket.socket(socket.AF_UNIX)
        try:
            c.sock.settimeout(timeout)
            c.sock.connect(str(self.folder / "data" / "admin.sock"))
            c.request(method, path, body)
            r = c.getresponse()
            return Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def metric(self, name, **labels):
        """Sum of a metric's cells that have these labels."""
        total = 0.0
        for line in self.get("/metrics").body.decode().splitlines():
            head, _, number = line.rpartition(" ")
            if head.partition("{")[0] == name and all(f'{k}="{v}"' in head
                                                      for k, v in labels.items()):
                total += float(number)
        return total

    def cpu_seconds(self):
        """User and system time of the process so far."""
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Api:
    """What users do, on top of one or two processes (where writes and reads go)."""

    writer = reader = None

    def ingest(self, body, name, headers=None, path="/ingest", **query):
        query = {"from": "now-10s", "until": "now"} | query if "from_" not in query else query
        return self.writer.post(path, body, headers, name=name, **query)

    def connect(self, method, message, headers=None):
        return self.reader.post("/querier.v1.QuerierService/" + method, json.dumps(message),
                                {"Content-Type": "application/json"} | (headers or {}))

    def render(self, query, path="/pyroscope/render", **more):
        more = {"from": "now-1h", "until": "now", "format": "json", "max-nodes": "1000000"} | more
        return self.reader.get(path, query=query, **more)

    def range_ms(self, back_s=3600):
        now = int(time.time() * 1000)
        return {"start": str(now - back_s * 1000), "end": str(now + 1000)}


@contextlib.contextmanager
def ended_unless_started(server):
    """A start that fails half-way leaves no process behind: `with` calls no __exit__ then."""
    try:
        yield
    except BaseException:
        server.__exit__(*sys.exc_info())
        raise


class AllInOne(Api):
    def __init__(self, *options, folder=None, **more):
        self.process = Process("embertree", *options, folder=folder, **more)
        self.writer = self.reader = self.process
        self.processes = [self.process]

    def __enter__(self):
        with ended_unless_started(self):
            self.process.start()
        return self

    def __exit__(self, kind, _value, _trace):
        if kind:
            print("log of the server:\n" + self.process.tail(), flush=True)
        self.process.cleanup()


class FourProcesses(Api):
    """Each role a process of its own; tcp:// on loopback between them. Options for all; options for
    one role by its name: FourProcesses(ingester=["--ingester.seal-delay=0ms"])."""

    def __init__(self, *options, **own):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        ingester = f"tcp://127.0.0.1:{free_port()}"
        shared = [f"--cluster.ingesters={ingester}", *options]
        self.by_role = {}
        for role in ("ingester", "compactor", "querier", "distributor"):
            listen = ingester if role == "ingester" else f"tcp://127.0.0.1:{free_port()}"
            self.by_role[role] = Process(f"embertree-{role}", f"--{role}.listen={listen}", *shared,
                                         *own.get(role, []), folder=self.folder / role)
        self.processes = list(self.by_role.values())
        self.writer, self.reader = self.by_role["distributor"], self.by_role["querier"]

    def __enter__(self):
        with ended_unless_started(self):
            for p in self.processes:
                p.start(wait=False)
            for p in self.processes:
                p.wait_ready()
        return self

    def __exit__(self, kind, _value, _trace):
        for p in self.processes:
            if kind:
                print(f"log of {p.binary}:\n" + p.tail(), flush=True)
            p.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


def leaves(flamebearer):
    """{stack as a tuple of names, root first: self} of a flamebearer's levels."""
    names, out, above = flamebearer["names"], {}, []
    for depth, level in enumerate(flamebearer["levels"]):
        here, x, parent = [], 0, 0
        for i in range(0, len(level), 4):
            x += level[i]
            total, own, name = level[i + 1], level[i + 2], names[level[i + 3]]
            stack = ()
            if depth:
                while not above[parent][0] <= x < above[parent][1]:
                    parent += 1
                stack = above[parent][2] + (name,)
            here.append((x, x + total, stack))
            if own:
                out[stack] = out.get(stack, 0) + own
            x += total
        above = here
    return out


def flamegraph(connect_reply):
    """The Connect FlameGraph message in the shape of a flamebearer."""
    graph = connect_reply.get("flamegraph") or {}
    return {"names": graph.get("names", []),
            "levels": [[int(v) for v in level.get("values", [])] for level in graph.get("levels", [])],
            "numTicks": int(graph.get("total", 0)), "maxSelf": int(graph.get("maxSelf", 0))}


def main(tests):
    """Runs functions in order, each on its own; closes with `N passed, N failed`."""
    gc.set_threshold(100_000, 50, 50)  # answers are megabytes of JSON: a quarter of the time went to looking for cycles
    passed = failed = 0
    want = os.environ.get("CASE", "")
    for test in tests:
        if want and want not in test.__name__:
            continue
        began = time.monotonic()
        try:
            test()
            passed += 1
            print(f"ok   {test.__name__} {time.monotonic() - began:.1f} s", flush=True)
        except Exception:  # a test may raise anything; the next one still runs
            failed += 1
            print(f"FAIL {test.__name__}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(bool(failed))
