"""The mix of questions a fleet's dashboards and builds ask: 78 % merges to pprof, 15 % flame graphs, 7 %
labels and series, under concurrent pushes: p50 and p99 of each kind, and beside the merges the floor, the
bytes of the vectors they touch over the memory's bandwidth. Then what another tenant's flood of heavy
questions does to the p99 of a quiet tenant (aim: 20 % at most), in alternating rounds.

BENCH_SECONDS: of a round (4), ROUNDS (4), MINUTES of data (15), SERVICES (4), PODS (6), HEAVY series (10000),
CLIENTS of the mix (2), of the flood (16).
"""
import gzip
import http.client
import json
import multiprocessing
import os
import random
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster
import golden
import push_client
from rate import thread_us


def number(name, default):
    return int(os.environ.get(name, default))


SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS, MINUTES = number("ROUNDS", 4), number("MINUTES", 15)
SERVICES, PODS, HEAVY = number("SERVICES", 4), number("PODS", 6), number("HEAVY", 10000)
CLIENTS, FLOOD, PUSHES_S = number("CLIENTS", 2), number("FLOOD", 16), number("PUSHES_S", 40)
TYPE, RPC = cluster.CPU_TYPE, "/querier.v1.QuerierService/"
PROTO, JSON = {"Content-Type": "application/proto"}, {"Content-Type": "application/json"}
QUIET, HOSTILE = {"X-Scope-OrgID": "quiet"}, {"X-Scope-OrgID": "hostile"}


# ---- data --------------------------------------------------------------------------------------------


def push(connection, tenant, series):
    connection.request("POST", push_client.PATH, push_client.request(*series), PROTO | tenant)
    r = connection.getresponse()
    text = r.read()
    assert r.status == 200, (r.status, text)


def profiles_at(raw, service, t):
    return [({"__name__": "process_cpu", "service_name": f"svc-{service}", "pod": f"pod-{p}"},
             [(gzip.compress(push_client.at_time(raw, t), 1), "")]) for p in range(PODS)]


def fill(server):
    """MINUTES of all pods every 15 s, and HEAVY series of the hostile tenant."""
    raw = golden.read("pprof/go_cpu.pb.gz")
    c = http.client.HTTPConnection("127.0.0.1", server.process.port)
    now, n = push_client.now_ns(), 0
    for back in range(MINUTES * 60, 0, -15):
        for service in range(SERVICES):
            push(c, QUIET, profiles_at(raw, service, now - back * 10**9))
            n += PODS
    for first in range(0, HEAVY, 500):
        push(c, HOSTILE, [({"__name__": "process_cpu", "service_name": "heavy", "id": f"id-{i}"},
                           [(push_client.pprof(1 + i % 9, f"f{i % 90}", now), "")])
                          for i in range(first, first + 500)])
    c.close()
    return n


class Ingest:
    """Pushes of all pods, PUSHES_S profiles a second, meanwhile."""

    def __init__(self, server):
        self.port, self.ends, self.sent = server.process.port, False, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        raw = golden.read("pprof/go_cpu.pb.gz")
        c = http.client.HTTPConnection("127.0.0.1", self.port)
        due = time.monotonic()
        while not self.ends:
            push(c, QUIET, profiles_at(raw, self.sent // PODS % SERVICES, time.time_ns()))
            self.sent += PODS
            due += PODS / PUSHES_S
            time.sleep(max(0, due - time.monotonic()))

    def end(self):
        self.ends = True
        self.thread.join()


# ---- questions ---------------------------------------------------------------------------------------


def question(rng):
    """Its kind, method, path, body."""
    now, service = int(time.time() * 1000), rng.randrange(SERVICES)
    selector = f'{{service_name="svc-{service}"}}'
    times = {"start": str(now - MINUTES * 60_000), "end": str(now)}
    dice = rng.random()
    if dice < 0.78:
        return "merge", "POST", RPC + "SelectMergeProfile", json.dumps(
            {"profileTypeID": TYPE, "labelSelector": selector} | times)
    if dice < 0.93:
        return "render", "GET", "/pyroscope/render?" + urllib.parse.urlencode(
            {"query": TYPE + selector, "from": f"now-{MINUTES}m", "until": "now"}), None
    if dice < 0.965:
        return "labels", "POST", RPC + "LabelValues", json.dumps({"name": "pod"} | times)
    return "series", "POST", RPC + "Series", json.dumps(
        {"matchers": [selector], "labelNames": ["pod", "service_name"]} | times)


def ask(c, method, path, body, headers):
    c.request(method, path, body, JSON | headers)
    r = c.getresponse()
    return r.status, r.read()


def client(port, seed, seconds, tell):
    """A closed loop; tells (kind, seconds) of each answer."""
    rng, c, took = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port, timeout=120), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        kind, method, path, body = question(rng)
        began = time.perf_counter()
        status, text = ask(c, method, path, body, QUIET)
        took.append((kind, time.perf_counter() - began))
        assert status == 200, (kind, status, text[:300])
    tell.put(took)


def mix(server, clients, seconds, seed):
    """Answers of so many clients, as [(kind, seconds)]."""
    tell = multiprocessing.Queue()
    at = [multiprocessing.Process(target=client, args=(server.process.port, seed + i, seconds, tell))
          for i in range(clients)]
    for p in at:
        p.start()
    took = [one for _ in at for one in tell.get(timeout=seconds + 180)]
    for p in at:
        p.join()
    return took


def flood(port, stop, tell):
    """What costs the server much and the asker little, on FLOOD connections."""
    counts, lock = {}, threading.Lock()
    path = RPC + "SelectSeries"

    def run():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while not stop.is_set():
            now = int(time.time() * 1000)
            body = json.dumps({"profileTypeID": TYPE, "labelSelector": '{id=~"id-.*[0-9]$"}', "step": 60,
                               "groupBy": ["id"], "limit": "1", "start": str(now - 3600_000),
                               "end": str(now)})
            status, _ = ask(c, "POST", path, body, HOSTILE)
            with lock:
                counts[status] = counts.get(status, 0) + 1
            if status == 429:
                time.sleep(0.1)

    threads = [threading.Thread(target=run) for _ in range(FLOOD)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    tell.put(counts)


# ---- figures -----------------------------------------------------------------------------------------


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * q))] * 1000


def memory_gb_s():
    """Of reading and writing, by copying what no cache holds."""
    block, to, best = bytearray(64 << 20), bytearray(64 << 20), 0
    for _ in range(8):
        began = time.perf_counter()
        to[:] = block
        best = max(best, 2 * len(block) / (time.perf_counter() - began) / 1e9)
    return best


def floor_line(server):
    """What a merge of one service touches."""
    now = int(time.time() * 1000)
    r = server.connect("AnalyzeQuery", {"query": TYPE + '{service_name="svc-0"}', "end": str(now),
                                        "start": str(now - MINUTES * 60_000)}, QUIET)
    assert r.status == 200, r
    impact = r.json()["queryImpact"]
    touched, speed = int(impact["totalBytesInTimeRange"]), memory_gb_s()
    print(f"floor of a merge: {touched / 1024:.0f} KiB of vectors, {impact['totalQueriedSeries']} series; at "
          f"{speed:.1f} GB/s of this memory {touched / speed / 1e3:.1f} us", flush=True)


def kinds_table(took):
    print(f"{'':10} {'answers':>8} {'p50 ms':>8} {'p99 ms':>8}")
    for kind in ("merge", "render", "labels", "series"):
        at = [s for k, s in took if k == kind]
        if at:
            print(f"{kind:10} {len(at):8} {quantile(at, .5):8.2f} {quantile(at, .99):8.2f}", flush=True)


def bench_mix(server):
    mix(server, 1, 1, 99)  # warm
    ingest, before, began = Ingest(server), thread_us(server.process), time.monotonic()
    took = mix(server, CLIENTS, SECONDS * 2, 1)
    wall = time.monotonic() - began
    used = sum((thread_us(server.process) - before).values())
    ingest.end()
    kinds_table(took)
    print(f"{len(took) / wall:.0f} answers/s and {ingest.sent / wall:.0f} profiles/s pushed; "
          f"{used / len(took):.0f} us of CPU of the server per answer, pushes included", flush=True)
    floor_line(server)


def pool_counts(server):
    """Jobs of tenants that had nothing else in the pool, and turns of others that began while these waited: by
    order of service, so it does not depend on who else uses the machine. {} from a server that does not tell."""
    text = server.process.get("/metrics").body.decode()
    return {name: int(v) for name, v in (line.rsplit(" ", 1) for line in text.splitlines()
                                         if line.startswith("embertree_pool_"))}


def waited(before, after):
    single, passed, pauses = (after.get(f"embertree_pool_{n}_total", 0) - before.get(f"embertree_pool_{n}_total", 0)
                              for n in ("single_jobs", "passed", "pauses"))
    return f"{passed} turns of others waited for by {single} jobs, {pauses} pauses"


def bench_hostile(server):
    """Alone and beside a flood, by turns, so that the machine's noise falls on both."""
    alone, beside, counts, turns = [], [], {}, []
    ingest = Ingest(server)
    for i in range(ROUNDS):
        at = [pool_counts(server)]
        alone += mix(server, 1, SECONDS, 1000 + i)
        at.append(pool_counts(server))
        stop, tell = multiprocessing.Event(), multiprocessing.Queue()
        p = multiprocessing.Process(target=flood, args=(server.process.port, stop, tell))
        p.start()
        time.sleep(0.5)
        at.append(pool_counts(server))
        beside += mix(server, 1, SECONDS, 1000 + i)
        at.append(pool_counts(server))
        turns.append(at)
        stop.set()
        for status, n in tell.get(timeout=180).items():
            counts[status] = counts.get(status, 0) + n
        p.join()
    ingest.end()
    print(f"a quiet tenant, and the same beside a flood of {FLOOD} ({counts}):")
    print(f"{'':10} {'answers':>8} {'p50 ms':>8} {'p99 ms':>8}")
    for name, took in (("alone", alone), ("flooded", beside)):
        at = [s for _, s in took]
        print(f"{name:10} {len(at):8} {quantile(at, .5):8.2f} {quantile(at, .99):8.2f}")
    for name, k in (("alone", 0), ("flooded", 2)) if turns[0][0] else ():
        print(f"{name}: {'; '.join(waited(at[k], at[k + 1]) for at in turns)}")
    a, b = ([s for _, s in t] for t in (alone, beside))
    print(f"p50 {100 * quantile(b, .5) / quantile(a, .5) - 100:+.0f} %, "
          f"p99 {100 * quantile(b, .99) / quantile(a, .99) - 100:+.0f} % (aim: +20 % at most)", flush=True)


def main():
    if not golden.available():
        print("SKIPPED: no test data")
        return
    with cluster.AllInOne("--tenancy.multi=true", "--memory.limit=2GiB") as server:
        n = fill(server)
        print(f"{n} profiles of {SERVICES} services x {PODS} pods over {MINUTES} min; "
              f"{HEAVY} series of the hostile tenant; {os.cpu_count()} cores", flush=True)
        bench_mix(server)
        bench_hostile(server)


if __name__ == "__main__":
    main()
