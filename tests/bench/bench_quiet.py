"""What other tenants do to a quiet one: p50 and p99 of its pushes and of its queries, alone and beside
(a) a flood of heavy bodies on 12 connections, (b) a flood of heavy queries on 12, (c) both, (d) a tenant
with 3,000 services; in alternating rounds, so that what the machine does meanwhile hits both. Aim: p99 at
most 1.2 times that of alone. What floods waits as long as Retry-After says, as clients do; RUDE=1: it does
not. LIMITS=1: with the limits that a shared server has by default, else without any.

BENCH_SECONDS: of a round (4), ROUNDS (3), CONNECTIONS of a flood (12), SERVICES of the wide tenant (3000).
"""
import http.client
import multiprocessing
import os
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster", "in"))
import cluster
from test_hostile import heavy_folded

SECONDS = float(os.environ.get("BENCH_SECONDS", "4"))
ROUNDS, CONNECTIONS = int(os.environ.get("ROUNDS", "3")), int(os.environ.get("CONNECTIONS", "12"))
SERVICES, RUDE = int(os.environ.get("SERVICES", "3000")), os.environ.get("RUDE") == "1"
LIMITS = os.environ.get("LIMITS") == "1"
GAP_S = 0.02  # between two requests of the quiet tenant
QUIET, BOB, WIDE = ({"X-Scope-OrgID": name} for name in ("quiet", "bob", "wide"))
LINE = b"main;work;read 3\nmain;work;write 2\n"


def ask(c, method, path, tenant, body=None):
    c.request(method, path, body, tenant)
    r = c.getresponse()
    r.read()
    return r.status, r.getheader("Retry-After")


def push(c, tenant, service, body):
    return ask(c, "POST", f"/ingest?name={service}.cpu&sampleRate=0&from=now-10s&until=now", tenant, body)


def render(c, tenant, selector):
    query = urllib.parse.quote(f"process_cpu:samples:count::{selector}")
    return ask(c, "GET", f"/pyroscope/render?query={query}&from=now-1h&until=now&format=json&max-nodes=1000",
               tenant)


def bodies(c, i, n, many):
    return push(c, BOB, f"svc{n % 50}", many[n % len(many)])


def queries(c, i, n, _many):
    return render(c, BOB, f'{{service_name="svc{n % 8}"}}')


def wide(c, i, n, _many):
    return push(c, WIDE, f"wide-{n * 7919 % SERVICES}", LINE)


def flood(port, what, begin, end, counts):
    """In a process of its own: threads that send as fast as the server lets them."""
    many = [heavy_folded(i) for i in range(8)] if bodies in what else []

    def run(i, one):
        c, n = http.client.HTTPConnection("127.0.0.1", port, timeout=60), i * 1009
        begin.wait()
        while not end.is_set():
            n += 1
            try:
                status, again = one(c, i, n, many)
            except OSError:
                status, again = 0, None
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with counts.get_lock():
                counts[{200: 0, 429: 1}.get(status, 2)] += 1
            if again and not RUDE:
                end.wait(float(again))

    threads = [threading.Thread(target=run, args=(i, one), daemon=True)
               for i in range(CONNECTIONS) for one in what]
    for t in threads:
        t.start()
    end.wait()
    for t in threads:
        t.join(20)


def quiet(port, took):
    """One round of the quiet tenant: a push and a query by turns."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    until, n = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        n += 1
        began = time.perf_counter()
        status, _ = push(c, QUIET, "quiet", LINE) if n % 2 else render(c, QUIET, '{service_name="quiet"}')
        took["push" if n % 2 else "query"].append((time.perf_counter() - began) * 1000)
        if status != 200:
            took["failed"].append(status)
        time.sleep(GAP_S)


def at(values, share):
    return sorted(values)[int(len(values) * share)] if values else float("nan")


def row(name, what, port):
    alone, beside = ({"push": [], "query": [], "failed": []} for _ in range(2))
    total = [0, 0, 0]
    for _ in range(ROUNDS):
        quiet(port, alone)
        begin, end = multiprocessing.Event(), multiprocessing.Event()
        counts = multiprocessing.Array("l", 3)
        p = multiprocessing.Process(target=flood, args=(port, what, begin, end, counts))
        p.start()
        begin.set()
        time.sleep(1.5)  # bodies are made first
        quiet(port, beside)
        end.set()
        p.join(30)
        if p.is_alive():
            p.kill()
            p.join()
        total = [a + b for a, b in zip(total, counts)]
        time.sleep(1)
    for kind in ("push", "query"):
        a, b = alone[kind], beside[kind]
        print(f"{name if kind == 'push' else '':34} {kind:6}{at(a, .5):8.2f}{at(b, .5):8.2f}"
              f"{at(a, .99):9.2f}{at(b, .99):8.2f}{at(b, .99) / at(a, .99):7.1f}x   {len(b)}")
    print(f"{'':34} failed of the quiet tenant: {len(alone['failed'])} alone, {len(beside['failed'])} beside; "
          f"the flood: {total[0]} taken, {total[1]} x 429, {total[2]} other", flush=True)


def main():
    with cluster.AllInOne("--tenancy.multi", f"--distributor.tenant-limits={str(LIMITS).lower()}") as server:
        port = server.process.port
        c = http.client.HTTPConnection("127.0.0.1", port)
        assert push(c, QUIET, "quiet", LINE)[0] == 200
        for i in range(8):  # something for the flood of queries to read
            assert push(c, BOB, f"svc{i}", heavy_folded(i))[0] == 200
        print(f"{'ms':41}    p50  beside      p99  beside   ratio   requests")
        row(f"(a) {CONNECTIONS} x heavy bodies", [bodies], port)
        row(f"(b) {CONNECTIONS} x heavy queries", [queries], port)
        row("(c) both", [bodies, queries], port)
        row(f"(d) a tenant with {SERVICES} services", [wide], port)


if __name__ == "__main__":
    main()
