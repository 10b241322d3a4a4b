"""End to end, one process: CPU per profile beside gunzip of the same bodies (goal P1), latency of
an ack beside a bare fsync (P7), and how long a flame graph takes. Ratios are of one run."""
import contextlib
import gzip
import os
import subprocess
import sys
import tempfile
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import vary_pprof
from rate import STAGES, TOOLS, Pusher, gunzip_us, ingest_path, own_core, thread_us

FILES = ["pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz",
         "pprof/go_cpu_labels.pb.gz", "pprof/node_wall.pb.gz", "pprof/dotnet_labels.pb",
         "pprof/python_pyspy_labels.pb", "pprof/go_heap_large.pb.gz"]
GOAL = {"pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz"}
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
BUSY = 16
VARIED = 40


def service_of(file):
    name, _, more = os.path.basename(file).partition(".")
    return "bench-" + name + ("-varied" if more.endswith("-varied") else "")


def fsync_us(folder, size, count):
    out = subprocess.run([TOOLS / "tool_fsync", str(folder), str(size), str(count)],
                         capture_output=True, text=True, check=True).stdout
    return [float(line) for line in out.split()]


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def unzip_us(child):
    """Of a push since it was asked last."""
    child.stdin.write("\n")
    child.stdin.flush()
    return float(child.stdout.readline())


def floor_us(folder, connections, where):
    """By file: CPU per push of a server that reads, unzips, appends, syncs and answers, and nothing
    else; and what of it is gunzip."""
    child = subprocess.Popen([TOOLS / "tool_floor", os.path.join(folder, "floor")],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port, out = int(child.stdout.readline()), {}
    process = types.SimpleNamespace(child=child, binary="tool_floor")
    with where(process):
        for file in FILES:
            body = golden.read(file)
            body = body if body[:2] == b"\x1f\x8b" else gzip.compress(body, 6)
            pusher = Pusher(port, ingest_path(service_of(file), "pprof"), body, {}, connections)
            pusher.run(0.2)
            unzip_us(child)
            cpu = thread_us(process)
            took = pusher.run(SECONDS / 3)
            spent = sum((thread_us(process) - cpu).values()) / len(took)
            out[file] = spent, unzip_us(child)
            pusher.close()
    child.stdin.close()
    child.wait()
    return out


def push_one(server, file, body, connections, seconds, settle):
    """CPU per push by stage, and what each push took."""
    pusher = Pusher(server.process.port, ingest_path(service_of(file), "pprof"), body, {},
                    connections)
    pusher.run(settle)
    cpu = thread_us(server.process)
    took = pusher.run(seconds)
    cpu = {s: us / len(took) for s, us in (thread_us(server.process) - cpu).items()}
    pusher.close()
    return cpu, took


def anywhere(_process):
    return contextlib.nullcontext()


def ingest(server, limits, connections, where=anywhere):
    print(f"ingest: server CPU per profile, HTTP in to durable, {connections} connection(s)"
          + (", the server on one core, its clients on the others" if where is own_core else ""))
    # Again and again the same small body is unzipped faster than any server can: the processor
    # learns it by heart. "in turn" is gunzip of all files one after the other.
    # "floor" is what reading, unzipping, appending and syncing the same pushes costs (tool_floor),
    # "there" what of it is gunzip: the same bodies in the same place, between a read and a sync and
    # beside the same clients, where a program that does nothing else but gunzip does not stand.
    # The goal is the strict one, by gunzip alone; the ratio is shown by all three.
    floor = floor_us(server.process.folder, connections, where)
    print(f"{'file':28} {'gzip B':>8} {'gunzip us':>10} {'in turn':>8} {'there':>8} {'floor':>8} "
          f"{'ingest us':>10} {'goal us':>8} {'of goal':>8} {'in turn':>8} {'there':>8} "
          + "".join(f"{s:>8}" for s in STAGES))
    latency = {}
    for file in FILES:
        body = golden.read(file)
        body = body if body[:2] == b"\x1f\x8b" else gzip.compress(body, 6)
        with where(server.process):
            cpu, latency[file] = push_one(server, file, body, connections, SECONDS, 0.2)
        print_row(file, limits[file], floor[file], cpu)
    print()
    return latency


def print_row(file, limits, floor, cpu):
    packed, gunzip, turn = limits
    least, there = floor
    spent = sum(cpu.values())
    marks = [f"{spent / (2.5 * us + 30):7.2f}x" if file in GOAL else " " * 8
             for us in (gunzip, turn, there)]
    print(f"{file:28} {packed:8} {gunzip:10.1f} {turn:8.1f} {there:8.1f} {least:8.1f} "
          f"{spent:10.1f} {2.5 * gunzip + 30:8.0f} {' '.join(marks)} "
          + "".join(f"{cpu.get(s, 0):8.1f}" for s in STAGES), flush=True)


def varied_bodies(folder):
    """By file: what real agents send, each body with other ids, another order, other values, a tenth of the stacks
    gone and some that are new (tests/lib/vary_pprof.py); their mean size; what gunzip of these very bodies takes,
    one after the other."""
    out = {}
    for file in sorted(GOAL):
        many = [gzip.compress(b, 6) for b in vary_pprof.bodies(gzip.decompress(golden.read(file)), VARIED)]
        paths = [os.path.join(folder, f"{service_of(file)}-{i}.gz") for i in range(VARIED)]
        for path, body in zip(paths, many):
            with open(path, "wb") as f:
                f.write(body)
        alone = gunzip_us(paths)
        out[file] = many, sum(map(len, many)) // VARIED, sum(alone[path][2] for path in paths) / VARIED
        for path in paths:
            os.unlink(path)
    return out


def varied(server, bodies, connections, where=anywhere):
    """Both sides are of the same bodies, and neither can learn one by heart."""
    print(f"the same with a new body each time ({VARIED} of them in turn, so gunzip), {connections} connections"
          + (", on one core" if where is own_core else ""))
    for file, (many, size, gunzip) in bodies.items():
        with where(server.process):
            cpu, _ = push_one(server, file + "-varied", many, connections, SECONDS, 0.5)
        spent, goal = sum(cpu.values()), 2.5 * gunzip + 30
        print(f"{file:28} {size:8} {gunzip:10.1f} {'':26} {spent:10.1f} {goal:8.0f} {spent / goal:7.2f}x {'':17} "
              + "".join(f"{cpu.get(s, 0):8.1f}" for s in STAGES), flush=True)
    print()


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
        limits, bodies = gunzip_us(FILES), varied_bodies(folder)
        # P1 is what a busy server pays; a single sender pays a whole fsync and each wake-up alone.
        ingest(server, limits, BUSY)
        varied(server, bodies, BUSY)
        # Goal P1 says "one core": a server whose threads share no caches with its clients.
        ingest(server, limits, BUSY, own_core)
        varied(server, bodies, BUSY, own_core)
        latency = ingest(server, limits, 1)
        ack_latency(server, latency)
        render_latency(server)
    subprocess.run(["rm", "-rf", folder], check=True)


main()
