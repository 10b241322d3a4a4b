"""Every way in: CPU of the server per push and MB/s of one core, HTTP in to durable, beside gunzip
of the same bytes. Then where the time goes: the server's own flame graph of that minute, kept as
build/bench/embertree.json (flamebearer) and embertree.folded."""
import gzip
import json
import os
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import push_client
from rate import Pusher, ingest_path, thread_us

SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
BUSY = 8
SELF_EVERY_S = 10
KEPT = cluster.ROOT / "build" / "bench"
FOLDED = "collapsed/perf-vertx-stacks-01-collapsed-all.txt"


def push_message(zipped):
    profile = push_client.at_time(golden.read("pprof/go_cpu.pb.gz"), push_client.now_ns())
    labels = {"__name__": "process_cpu", "service_name": "bench-push"}
    message = push_client.request((labels, [(gzip.compress(profile), "")]))
    return gzip.compress(message) if zipped else message


def ways():
    """Name, path, headers, body, and its bytes without any gzip."""
    def ingest(name, form, file):
        body = golden.read(file)
        return (f"{name} {os.path.basename(file)[:28]}", ingest_path(f"bench-{name}", form), {}, body,
                golden.plain(body))

    profile = golden.plain(golden.read("pprof/go_cpu.pb.gz"))
    otlp = golden.read("otlp/v1.10_77_resources.bin")
    proto = {"Content-Type": "application/proto"}
    return [
        ingest("pprof", "pprof", "pprof/go_cpu.pb.gz"),
        ingest("folded", "groups", FOLDED),
        ingest("trie", "trie", "trie/vertx.trie"),
        ingest("tree", "tree", "tree/vertx.tree"),
        ingest("speedscope", "speedscope", "speedscope/two-sampled.speedscope.json"),
        ingest("jfr", "jfr", "jfr/cortex-dev-01__kafka-0__cpu__0.jfr.gz"),
        ("push go_cpu.pb.gz", push_client.PATH, proto, push_message(False), profile),
        ("push, gzip'd again", push_client.PATH, proto | {"Content-Encoding": "gzip"},
         push_message(True), profile),
        ("otlp 77 resources", "/v1development/profiles",
         {"Content-Type": "application/x-protobuf"}, otlp, otlp),
        ("otlp, gzip'd", "/v1development/profiles",
         {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
         gzip.compress(otlp), otlp),
    ]


def one(server, way):
    name, path, headers, body, plain = way
    pusher = Pusher(server.process.port, path, body, headers, BUSY)
    pusher.run(0.2)
    before = thread_us(server.process)
    pushes = len(pusher.run(SECONDS))
    pusher.close()
    us = sum((thread_us(server.process) - before).values()) / pushes
    print(f"{name:36} {len(body):8} {len(plain):9} {us:9.1f} {len(body) / us:9.1f} "
          f"{len(plain) / us:9.1f}", flush=True)


def keep_flame_graph(server):
    query = 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="embertree"}'
    reply = server.render(query, **{"from": "now-15m", "max-nodes": "8192"})
    assert reply.status == 200, reply
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "embertree.json").write_bytes(reply.body)
    folded = server.process.get("/render?" + urllib.parse.urlencode(
        {"query": query, "from": "now-15m", "until": "now", "format": "collapsed"}))
    (KEPT / "embertree.folded").write_bytes(folded.body)
    rows = sorted(((v, stack[-1]) for stack, v in
                   cluster.leaves(json.loads(reply.body)["flamebearer"]).items()), reverse=True)
    total = sum(v for v, _ in rows) or 1
    print(f"\nwhere the time goes, by the server's own profile ({total / 1e9:.1f} s of CPU; "
          f"build/bench/embertree.json, .folded)")
    by_name = {}
    for v, name in rows:
        by_name[name] = by_name.get(name, 0) + v
    for name, v in sorted(by_name.items(), key=lambda r: -r[1])[:20]:
        print(f"  {100 * v / total:5.1f} %  {name}")


def main():
    if not golden.available():
        print(golden.skip_line("bench_ways.py"))
        return
    folder = tempfile.mkdtemp(prefix="embertree-bench-", dir=cluster.ROOT / "build")
    with cluster.AllInOne("--selfprof.hz=200", folder=folder) as server:
        print(f"every way in: server CPU per push, HTTP in to durable, {BUSY} connections")
        print(f"{'way':36} {'body B':>8} {'plain B':>9} {'us':>9} {'body MB/s':>9} "
              f"{'plain MB/s':>9}")
        for way in ways():
            one(server, way)
        time.sleep(SELF_EVERY_S + 1)  # its own profile comes every 10 s
        keep_flame_graph(server)


main()
