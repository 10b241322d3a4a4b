"""What a cluster costs (P9): CPU per push, HTTP in to durable, of one process without copies beside
three ingesters with three copies of each shard, a distributor before them and etcd behind; the same
with every frame sealed (cluster.key_file). Then how long no process takes a push when the leader of its
shard is killed, or stops answering."""
import gzip
import os
import pathlib
import secrets
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import replicated
import vary_pprof
from rate import Pusher, ingest_path

FILES = ["pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/java_cpu.pb.gz"]
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
FAULTS = int(os.environ.get("FAULTS", "4"))
CONNECTIONS = 16


def cpu_us(processes):
    """CPU so far of all threads of these processes."""
    return sum(int((task / "schedstat").read_text().split()[0]) / 1000
               for p in processes
               for task in pathlib.Path(f"/proc/{p.child.pid}/task").iterdir())


def push_cost(port, processes, file, varied):
    """CPU of each process per push, in us."""
    body = golden.read(file)
    bodies = body if not varied else [
        gzip.compress(b, 6) for b in vary_pprof.bodies(gzip.decompress(body), 40)]
    pusher = Pusher(port, ingest_path("bench-" + pathlib.Path(file).stem.split(".")[0], "pprof"),
                    bodies, {}, CONNECTIONS)
    pusher.run(0.5)
    before = [cpu_us([p]) for p in processes]
    took = pusher.run(SECONDS)
    pusher.close()
    return [(cpu_us([p]) - b) / len(took) for p, b in zip(processes, before)]


def measure(port, processes):
    return {(f, v): push_cost(port, processes, f, v) for f in FILES for v in (False, True)}


def single():
    with cluster.AllInOne("--no-selfprof.enabled") as s:
        return measure(s.process.port, [s.process])


def copies(*options):
    with replicated.Cluster(ingesters=3, shards=4, options=options) as c:
        c.wait_whole()
        parts = [c.distributor] + [n.process for n in c.nodes.values()]
        return measure(c.distributor.port, parts)


def costs():
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder) / "key"
        key.touch(0o600)
        key.write_text(f"bench: {secrets.token_hex(32)}\n")
        one, three = single(), copies()
        sealed = copies(f"--cluster.key-file={key}")
    print(f"us of CPU per push, {CONNECTIONS} connections; goal: three copies <= 3.5 x one process")
    print(f"{'':24} {'one':>8} {'three':>8} {'ratio':>7}   {'distributor':>11} {'ingesters':>22}"
          f" {'sealed':>8} {'AEAD':>7}")
    for file, varied in one:
        a, b, s = one[file, varied], three[file, varied], sealed[file, varied]
        name = pathlib.Path(file).stem.split(".")[0] + (", new each" if varied else "")
        print(f"{name:24} {sum(a):8.0f} {sum(b):8.0f} {sum(b) / sum(a):6.2f}x   {b[0]:11.0f} "
              f"{' '.join(f'{v:7.0f}' for v in b[1:])} {sum(s):8.0f} {sum(s) / sum(b) - 1:+7.0%}")


def push_until_taken(c, service):
    """Seconds until a push of this service is taken; a client that tries again as clients do."""
    began, key = time.monotonic(), secrets.token_hex(8)
    while True:
        try:
            if c.distributor.post("/ingest?name=" + service + ".cpu&format=folded", b"a;b 1\n",
                                  {"Idempotency-Key": key}).status == 200:
                return time.monotonic() - began
        except OSError:
            pass
        time.sleep(0.01)


def waits(number):
    """The longest a push waited, over services of all shards, after each fault."""
    out = []
    with replicated.Cluster(ingesters=3, shards=4) as c:
        services = [f"svc{i}" for i in range(16)]
        for s in services:
            push_until_taken(c, s)
        for i in range(FAULTS):
            c.wait_whole()
            node = c.leader_of(i % c.shards)
            os.kill(node.process.child.pid, number)
            out.append(max(push_until_taken(c, s) for s in services))
            if number == signal.SIGSTOP:
                os.kill(node.process.child.pid, signal.SIGCONT)
            else:
                node.process.child.wait()
                node.process.start()
    return sorted(out)


def main():
    if not replicated.available():
        print("SKIPPED: no etcd-server here")
        return
    costs()
    print("seconds until every shard takes pushes again, three copies, the default times:")
    for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
        print(f"  leader {name:8}" + " ".join(f"{s:6.2f}" for s in waits(number)))


main()
