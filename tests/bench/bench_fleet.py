"""Many services, as a cluster has them: CPU per push where hardly anything of a push's service is in a
cache any more, while the services are new and after. bench_ingest.py pushes one service again and
again, which is the goal's measure (P1) and the kindest one."""
import gzip
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import vary_pprof
from rate import STAGES, Pusher, gunzip_us, ingest_path, own_core, thread_us

FILES = ["pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz"]
SERVICES = [int(n) for n in os.environ.get("SERVICES", "3 600 3000").split()]
PODS = 4
STEP = float(os.environ.get("BENCH_SECONDS", "5"))
STEPS = 6
VARIED = 40


def bodies_of(file):
    return [gzip.compress(b, 6)
            for b in vary_pprof.bodies(gzip.decompress(golden.read(file)), VARIED)]


def unzip(folder, bodies):
    """us of one of these bodies on average, one after the other."""
    paths = []
    for i, body in enumerate(b for many in bodies.values() for b in many):
        paths.append(os.path.join(folder, f"body-{i}.gz"))
        with open(paths[-1], "wb") as f:
            f.write(body)
    us = gunzip_us(paths)
    for path in paths:
        os.unlink(path)
    return sum(row[2] for row in us.values()) / len(us)


def pushes(services, bodies):
    """Every process in turn, without end, each time with another body of its kind."""
    chance = random.Random(services)
    fleet = [(ingest_path(f"fleet-{s}{{pod=pod-{pod}}}", "pprof"), bodies[FILES[s % len(FILES)]])
             for s in range(services) for pod in range(PODS)]
    chance.shuffle(fleet)
    while True:
        for path, many in fleet:
            body = chance.choice(many)
            yield (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                   "Idempotency-Key: ").encode(), body


def run(services, bodies, goal):
    with tempfile.TemporaryDirectory(prefix="embertree-bench-", dir=cluster.ROOT / "build") as folder:
        with cluster.AllInOne("--selfprof.enabled=false", folder=folder) as server:
            pusher = Pusher(server.process.port, "/", b"", {}, 16)
            pusher.turn = pushes(services, bodies)
            with own_core(server.process):
                for step in range(STEPS):
                    before = thread_us(server.process)
                    n = len(pusher.run(STEP))
                    cpu = thread_us(server.process) - before
                    spent = sum(cpu.values()) / n
                    print(f"{services:8} {step * STEP:6.0f} s {n / services:8.1f} {spent:9.1f} "
                          f"{spent / goal:7.2f}x "
                          + "".join(f"{cpu.get(s, 0) / n:8.1f}" for s in STAGES), flush=True)
            pusher.close()


def main():
    if not golden.available():
        print(golden.skip_line("bench_fleet.py"))
        return
    bodies = {file: bodies_of(file) for file in FILES}
    with tempfile.TemporaryDirectory(dir=cluster.ROOT / "build") as folder:
        gunzip = unzip(folder, bodies)
    goal = 2.5 * gunzip + 30
    print(f"many services of {PODS} pods, a third of them each {', '.join(FILES)}, a new body each time; "
          "16 connections, the server on one core")
    print(f"gunzip of these bodies in turn {gunzip:.1f} us; 2.5 x that + 30: {goal:.0f} us")
    print(f"{'services':>8} {'from':>8} {'of each':>8} {'us/push':>9} {'of goal':>8} "
          + "".join(f"{s:>8}" for s in STAGES))
    for services in SERVICES:
        run(services, bodies, goal)


main()
