"""End to end, one process: CPU per profile beside gunzip of the same bodies (goal P1), the latency of
an ack beside a bare fsync (P7), and how long a flame graph takes. Ratios are of one run."""
import gzip
import http.client
import os
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
TOOLS = cluster.ROOT / os.environ.get("O", "build/release") / "tests" / "lib"


class Pusher:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def push(self, body, name):
        query = urllib.parse.urlencode({"name": name, "format": "pprof", "from": "now-10s",
                                        "until": "now"})
        # Every push counts: without a key of its own a body that carries its time is a duplicate.
        key = {"Idempotency-Key": os.urandom(16).hex()}
        began = time.perf_counter()
        self.connection.request("POST", "/ingest?" + query, body, key)
        reply = self.connection.getresponse()
        said = reply.read()
        took = time.perf_counter() - began
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {said}")
        return took


def gunzip_us(files):
    out = subprocess.run([TOOLS / "tool_gunzip", *[golden.DATA / f for f in files]],
                         capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {f: (int(row[1]), int(row[2]), float(row[3])) for f, row in zip(files, rows)}


def fsync_us(folder, size, count):
    out = subprocess.run([TOOLS / "tool_fsync", str(folder), str(size), str(count)],
                         capture_output=True, text=True, check=True).stdout
    return [float(line) for line in out.split()]


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def ingest(server, limits):
    print("ingest: server CPU per profile, HTTP in to durable, one connection")
    print(f"{'file':28} {'gzip B':>8} {'gunzip us':>10} {'ingest us':>10} {'ratio':>6} "
          f"{'goal us':>8} {'of goal':>8}")
    pusher = Pusher(server.process.port)
    latency = {}
    for file in FILES:
        body = golden.read(file)
        body = body if body[:2] == b"\x1f\x8b" else gzip.compress(body, 6)
        service = "bench-" + os.path.basename(file).split(".")[0]
        for _ in range(20):
            pusher.push(body, service)
        took, began, cpu = [], time.monotonic(), server.process.cpu_seconds()
        while time.monotonic() - began < SECONDS:
            took.append(pusher.push(body, service))
        spent = (server.process.cpu_seconds() - cpu) * 1e6 / len(took)
        packed, _, gunzip = limits[file]
        goal = 2.5 * gunzip + 30
        mark = f"{spent / goal:7.2f}x" if file in GOAL else "        "
        print(f"{file:28} {packed:8} {gunzip:10.1f} {spent:10.1f} {spent / gunzip:6.1f} "
              f"{goal:8.0f} {mark}", flush=True)
        latency[file] = took
    return latency


def ack_latency(server, latency):
    file = "pprof/go_cpu.pb.gz"
    size = len(golden.read(file))
    bare = fsync_us(server.process.folder, size, 400)
    took = [t * 1e6 for t in latency[file]]
    print(f"\nack latency beside write+fdatasync of {size} bytes on the same disk (us)")
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        print(f"  {name}: ack {at(took, share):8.0f}   bare fsync {at(bare, share):8.0f}")
    goal = 2 * at(bare, 0.99) + 5000
    print(f"  goal: p99 <= 2 x fsync p99 + 5 ms = {goal:.0f} us: {at(took, 0.99) / goal:.2f}x of it")


def render_latency(server):
    print("\nrender: GET /pyroscope/render, last hour, 8192 nodes (ms)")
    for file in FILES:
        service = "bench-" + os.path.basename(file).split(".")[0]
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
        latency = ingest(server, gunzip_us(FILES))
        ack_latency(server, latency)
        render_latency(server)
    subprocess.run(["rm", "-rf", folder], check=True)


main()
