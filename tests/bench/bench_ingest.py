"""End to end, one process: CPU per profile beside gunzip of the same bodies (goal P1), latency of
an ack beside a bare fsync (P7), and how long a flame graph takes. Ratios are of one run."""
import collections
import gzip
import os
import pathlib
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden

FILES = ["pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz",
         "pprof/go_cpu_labels.pb.gz", "pprof/node_wall.pb.gz", "pprof/dotnet_labels.pb",
         "pprof/python_pyspy_labels.pb", "pprof/go_heap_large.pb.gz"]
GOAL = {"pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz"}
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
STAGES = ("loop", "pool", "shard", "commit", "other")
BUSY = 16
TOOLS = cluster.ROOT / os.environ.get("O", "build/release") / "tests" / "lib"


class Pusher:
    """Keep-alive connections with one push on its way on each."""

    def __init__(self, port, body, name, connections):
        query = urllib.parse.urlencode({"name": name, "format": "pprof", "from": "now-10s",
                                        "until": "now"})
        # Every push counts: without a key of its own a body that carries its time is a duplicate.
        self.head = (f"POST /ingest?{query} HTTP/1.1\r\nHost: bench\r\n"
                     f"Content-Length: {len(body)}\r\nIdempotency-Key: ").encode()
        self.body = body
        self.ready = selectors.EpollSelector()
        self.sent = {}
        for _ in range(connections):
            c = socket.create_connection(("127.0.0.1", port))
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ready.register(c, selectors.EVENT_READ)
            self.sent[c] = 0

    def send(self, c):
        self.sent[c] = time.perf_counter()
        c.sendall(self.head + os.urandom(16).hex().encode() + b"\r\n\r\n" + self.body)

    def run(self, seconds):
        """Seconds that each push took to its ack."""
        took, until = [], time.monotonic() + seconds
        for c in self.sent:
            self.send(c)
        waiting = len(self.sent)
        while waiting:
            for key, _ in self.ready.select():
                c = key.fileobj
                reply = c.recv(65536)
                took.append(time.perf_counter() - self.sent[c])
                if not reply.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(reply)
                if time.monotonic() < until:
                    self.send(c)
                else:
                    waiting -= 1
        return took

    def close(self):
        for c in self.sent:
            c.close()
        self.ready.close()


def thread_us(process):
    """CPU so far by name of thread: loop, pool, shard, commit; other is RocksDB in the background."""
    out = collections.Counter()
    for task in pathlib.Path(f"/proc/{process.child.pid}/task").iterdir():
        name = (task / "comm").read_text().strip().partition("-")[0]
        name = {process.binary: "loop"}.get(name, name)
        out[name if name in STAGES else "other"] += (
            int((task / "schedstat").read_text().split()[0]) / 1000)
    return out


def service_of(file):
    return "bench-" + os.path.basename(file).split(".")[0]


def gunzip_us(files):
    out = subprocess.run([TOOLS / "tool_gunzip", *[golden.DATA / f for f in files]],
                         capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {f: (int(row[1]), float(row[3]), float(row[4])) for f, row in zip(files, rows)}


def fsync_us(folder, size, count):
    out = subprocess.run([TOOLS / "tool_fsync", str(folder), str(size), str(count)],
                         capture_output=True, text=True, check=True).stdout
    return [float(line) for line in out.split()]


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def ingest(server, limits, connections):
    print(f"ingest: server CPU per profile, HTTP in to durable, {connections} connection(s)")
    # Again and again the same small body is unzipped faster than any server can: the processor
    # learns it by heart. "in turn" is gunzip of all files one after the other.
    print(f"{'file':28} {'gzip B':>8} {'gunzip us':>10} {'in turn':>8} {'ingest us':>10} "
          f"{'goal us':>8} {'of goal':>8} {'in turn':>8} " + "".join(f"{s:>8}" for s in STAGES))
    latency = {}
    for file in FILES:
        body = golden.read(file)
        body = body if body[:2] == b"\x1f\x8b" else gzip.compress(body, 6)
        pusher = Pusher(server.process.port, body, service_of(file), connections)
        pusher.run(0.2)
        cpu = thread_us(server.process)
        took = pusher.run(SECONDS)
        cpu = {s: us / len(took) for s, us in (thread_us(server.process) - cpu).items()}
        pusher.close()
        spent = sum(cpu.values())
        packed, gunzip, turn = limits[file]
        goal = 2.5 * gunzip + 30
        marks = [f"{spent / (2.5 * us + 30):7.2f}x" if file in GOAL else " " * 8
                 for us in (gunzip, turn)]
        print(f"{file:28} {packed:8} {gunzip:10.1f} {turn:8.1f} {spent:10.1f} "
              f"{goal:8.0f} {marks[0]} {marks[1]} "
              + "".join(f"{cpu.get(s, 0):8.1f}" for s in STAGES), flush=True)
        latency[file] = took
    print()
    return latency


def ack_latency(server, latency):
    file = "pprof/go_cpu.pb.gz"
    size = len(golden.read(file))
    bare = fsync_us(server.process.folder, size, 400)
    took = [t * 1e6 for t in latency[file]]
    print(f"ack latency beside write+fdatasync of {size} bytes on the same disk (us)")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        print(f"  {name}: ack {at(took, share):8.0f}   bare fsync {at(bare, share):8.0f}")
    goal = 2 * at(bare, 0.99) + 5000
    print(f"  goal: p99 <= 2 x fsync p99 + 5 ms = {goal:.0f} us: {at(took, 0.99) / goal:.2f}x of it")


def render_latency(server):
    print("\nrender: GET /pyroscope/render, last hour, 8192 nodes (ms)")
    for file in FILES:
        service = service_of(file)
        ids = [p["value"] for s in server.connect("Series", {
            "labelNames": ["__profile_type__"], "matchers": ['{service_name="%s"}' % service],
            **server.range_ms()}).json()["labelsSet"] for p in s["labels"]]
        took = []
        for _ in range(15):
            began = time.perf_counter()
            r = server.render(f'{sorted(ids)[0]}{{service_name="{service}"}}',
                              **{"max-nodes": "8192"})
            took.append((time.perf_counter() - began) * 1000)
            assert r.status == 200, r
        bars = sum(len(level) // 4 for level in r.json()["flamebearer"]["levels"])
        print(f"  {file:28} p50 {at(took, 0.5):7.2f}   max {max(took):7.2f}   {bars} bars", flush=True)


def main():
    if not golden.available():
        print(golden.skip_line("bench_ingest.py"))
        return
    folder = tempfile.mkdtemp(prefix="embertree-bench-", dir=cluster.ROOT / "build")
    with cluster.AllInOne("--selfprof.enabled=false", folder=folder) as server:
        limits = gunzip_us(FILES)
        # P1 is what a busy server pays; a single sender pays a whole fsync and each wake-up alone.
        ingest(server, limits, BUSY)
        latency = ingest(server, limits, 1)
        ack_latency(server, latency)
        render_latency(server)
    subprocess.run(["rm", "-rf", folder], check=True)


main()
