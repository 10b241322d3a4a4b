"""Questions that ask for much: bombs of regexes, a million matchers, a hundred years in milliseconds, a
hundred thousand groups, thousands at once. Each is answered in bounded time and memory, and another
tenant is served all the while, always with its own data."""
import json
import os
import pathlib
import selectors
import socket
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
from push_client import PATH, now_ns, pprof, request

MIB = 1 << 20
MEMORY = 512 * MIB
# What queries of all tenants may hold of that, in the querier (9 %) and at the data (6 %), twice: tables
# that grow are there twice while they are moved.
CEILING = 2 * MEMORY * 15 // 100
CPU_S = 20  # of processor time for one question, on any machine
SERIES = int(os.environ.get("SERIES", "100000"))
AT_ONCE = int(os.environ.get("AT_ONCE", "2000"))
HOSTILE, QUIET = {"X-Scope-OrgID": "hostile"}, {"X-Scope-OrgID": "quiet"}
TYPE = cluster.CPU_TYPE
RPC = "/querier.v1.QuerierService/"
DAY, YEAR = 86400_000, 365 * 86400_000


def fill(server, series=SERIES):
    """One service of so many pods, a profile each; and a small one of the quiet tenant."""
    t = now_ns(30)
    for first in range(0, series, 1000):
        body = request(*(({"__name__": "process_cpu", "service_name": "shop", "id": f"pod-{i}"},
                          [(pprof(1 + i % 7, f"f{i % 50}", t), "")])
                         for i in range(first, min(first + 1000, series))))
        r = server.process.post(PATH, body, {"Content-Type": "application/proto"} | HOSTILE)
        assert r.status == 200, r
    r = server.process.post("/ingest?name=small.cpu&from=now-30s&until=now-20s", b"a;b 5\na;c 2\n", QUIET)
    assert r.status == 200, r


# ---- questions: (what, method, path, body, whether it has to be refused) ------------------------------


def rpc(method, **message):
    return "POST", RPC + method, json.dumps(message)


def get(path, **query):
    return "GET", path + "?" + urllib.parse.urlencode({k.rstrip("_"): v for k, v in query.items()}), None


def between(start, end):
    return {"start": str(start), "end": str(end)}


def regexes():
    now = int(time.time() * 1000)
    bombs = {"nested stars": "(a+)+$", "alternatives": "(a|aa)+$", "stars": ".*" * 30 + "x",
             "counted": "((a{1,100}){1,100}){1,100}", "classes": "([a-z]{0,1000}){0,1000}",
             "long": "(" + "|".join(f"p[o0]d-{i}.*" for i in range(3000)) + ")",
             "back reference": r"(a)\1", "look-ahead": "(?=a)a", "deep": "(" * 5000 + ")" * 5000,
             "pod": "(p|po|pod)(o|od|d)*-?([0-9]+)*$"}
    for name, text in bombs.items():
        quoted = json.dumps("pod" + text)
        selector = "{id=~" + quoted + "}"
        times = between(now - DAY, now)
        yield f"regex {name}: label values", *rpc("LabelValues", name="id", matchers=[selector], **times), None
        yield (f"regex {name}: merge",
               *rpc("SelectMergeStacktraces", profileTypeID=TYPE, labelSelector=selector, **times), None)
        yield (f"regex {name}: times ten",
               *rpc("SelectSeries", profileTypeID=TYPE, step=15, groupBy=["id"], **times,
                    labelSelector="{" + ",".join(["id=~" + quoted] * 10) + "}"), None)
    for name in ("nested stars", "pod"):
        yield (f"regex {name}: old route",
               *get("/render", query="shop.cpu{id=~" + json.dumps(bombs[name]) + "}", from_="now-1h"), None)
        yield f"regex {name}: search", *get("/api/v1/top", query=TYPE + "{}", search=bombs[name]), None


def matchers():
    now = int(time.time() * 1000)
    times = between(now - DAY, now)
    yield "a body of 1.5 MiB", *rpc("LabelNames", matchers=["{}"] * 300000, **times), True
    yield "250,000 selectors", *rpc("LabelNames", matchers=["{}"] * 190000, **times), None
    many = "{" + ",".join(f'a!="{i}"' for i in range(80000)) + "}"
    yield "80,000 matchers", *rpc("Series", matchers=[many], **times), None
    yield ("80,000 matchers of a merge",
           *rpc("SelectMergeStacktraces", profileTypeID=TYPE, labelSelector=many, **times), None)
    million = "{" + ",".join(["a=b"] * 1000000) + "}"
    yield "a million matchers", *rpc("Series", matchers=[million], **times), True
    yield "a long URL", *get("/pyroscope/render", query=TYPE + many, from_="now-1h"), True
    yield "10,000 names", *rpc("Series", labelNames=[f"l{i}" for i in range(50000)], **times), None
    yield ("50,000 group-by labels",
           *rpc("SelectSeries", profileTypeID=TYPE, labelSelector="{}", step=15,
                groupBy=[f"l{i}" for i in range(50000)], **times), None)


def sizes():
    now = int(time.time() * 1000)
    times = between(now - DAY, now)
    for n in (2**31, 2**63 - 1, 2**64, -1):
        yield (f"max_nodes {n}",
               *rpc("SelectMergeStacktraces", profileTypeID=TYPE, labelSelector="{}", maxNodes=str(n), **times),
               n > 0)
        for form in ("json", "collapsed", "pprof", "dot", "svg", "html"):
            yield (f"max-nodes {n} as {form}",
                   *get("/pyroscope/render", query=TYPE + "{}", from_="now-1h", max_nodes=n, format=form)[:1],
                   get("/pyroscope/render", query=TYPE + "{}", from_="now-1h", format=form)[1]
                   + f"&max-nodes={n}", None, None)
    yield "top of 2^31", *get("/api/v1/top", query=TYPE + "{}", limit=2**31, top=2**31), None
    yield ("1,000 functions x 1,000,000 points",
           *get("/api/v1/functions", query=TYPE + "{}", from_=now - 1000_000, until=now, step=1, top=1000),
           None)


def ranges():
    now = int(time.time() * 1000)
    for name, start, end in (("a hundred years", now - 100 * YEAR, now), ("since 1970", 1, now),
                             ("to the end", now - DAY, 2**62), ("all there is", -2**62, 2**62)):
        for method, more in (("SelectMergeStacktraces", {}), ("SelectMergeProfile", {}),
                             ("SelectSeries", {"step": 0.001}), ("SelectSeries", {"step": 15}),
                             ("SelectSeries", {"step": 86400}), ("SelectHeatmap", {"step": 1}),
                             ("SelectSeries", {"step": 1e300}), ("SelectSeries", {"step": 5e-324})):
            yield (f"{method} of {name} {more}",
                   *rpc(method, profileTypeID=TYPE, labelSelector="{}", **between(start, end), **more), None)
        yield f"AnalyzeQuery of {name}", *rpc("AnalyzeQuery", query=TYPE + "{}", **between(start, end)), None
        yield f"Series of {name}", *rpc("Series", labelNames=["service_name"], **between(start, end)), None
    for step in (1, 15, 86400):
        yield (f"functions of a hundred years by {step}",
               *get("/api/v1/functions", query=TYPE + "{}", from_=now - 100 * YEAR, until=now, step=step), None)
    yield "render of a hundred years", *get("/pyroscope/render", query=TYPE + "{}", from_="now-100y"), None
    yield ("diff of a hundred years",
           *get("/api/v1/diff", query=TYPE + "{}", leftFrom="now-200y", leftUntil="now-100y", from_="now-100y"),
           None)


def groups():
    now = int(time.time() * 1000)
    times = between(now - 3600_000, now)
    kinds = {"profileTypeID": TYPE, "labelSelector": "{}"} | times
    yield "values of a label", *rpc("LabelValues", name="id", **times), None
    yield "all series", *rpc("Series", **times), None
    for step in (15, 1, 0.01):
        yield f"a line for each by {step}", *rpc("SelectSeries", groupBy=["id"], step=step, **kinds), None
    yield "the ten largest", *rpc("SelectSeries", groupBy=["id"], step=15, limit="10", **kinds), None
    yield ("by forty labels",
           *rpc("SelectSeries", groupBy=["id"] + [f"l{i}" for i in range(40)], step=15, **kinds), None)
    yield "render with lines", *get("/pyroscope/render", query=TYPE + "{}", from_="now-1h", groupBy="id"), None
    yield ("one of each",
           *rpc("SelectMergeStacktraces", profileTypeID=TYPE, labelSelector='{id=~"pod-.*"}', **times), None)
    yield ("all but one",
           *rpc("SelectMergeStacktraces", profileTypeID=TYPE, labelSelector='{id!="pod-1"}', **times), None)
    yield "apps", *get("/api/apps"), None


# ---- the server --------------------------------------------------------------------------------------


def status_kib(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split(name + ":")[1].split()[0])


class Quiet:
    """Another tenant, which asks small questions all the time, and knows the answers."""

    def __init__(self, server):
        self.server, self.times, self.wrong, self.ends = server, [], [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def ask(self):
        began = time.monotonic()
        r = self.server.process.request("GET", "/pyroscope/label-values?label=service_name", headers=QUIET)
        if r.status != 200 or r.json() != ["small"]:
            self.wrong.append(r)
        r = self.server.process.request("GET", "/render?query=small.cpu&from=now-1h", headers=QUIET)
        if r.status != 200 or r.json()["flamebearer"]["numTicks"] != 70_000_000:
            self.wrong.append(r)
        self.times.append(time.monotonic() - began)

    def run(self):
        while not self.ends:
            try:
                self.ask()
            except OSError as e:
                self.wrong.append(e)
            threading.Event().wait(0.05)

    def end(self):
        self.ends = True
        self.thread.join()
        assert not self.wrong and self.times, f"{len(self.times)} answers, {self.wrong[:3]}"
        ms = sorted(round(t * 1000) for t in self.times)
        print(f"     the other tenant: {len(ms)} times two answers, p50 {ms[len(ms) // 2]} ms, "
              f"p99 {ms[len(ms) * 99 // 100]} ms, {ms[-1]} ms at most", flush=True)


class Watched:
    """What the server spends and grows by meanwhile."""

    def __init__(self, server):
        self.p = server.process

    def __enter__(self):
        pathlib.Path(f"/proc/{self.p.child.pid}/clear_refs").write_text("5")
        self.before, self.cpu = status_kib(self.p.child.pid, "VmRSS"), self.p.cpu_seconds()
        return self

    def __exit__(self, *_):
        self.grown = (status_kib(self.p.child.pid, "VmHWM") - self.before) * 1024
        self.spent = self.p.cpu_seconds() - self.cpu


def check(server, question, problems):
    what, method, path, body, refused = question
    headers = HOSTILE | ({"Content-Type": "application/json"} if body else {})
    with Watched(server) as w:
        r = server.process.request(method, path, body, headers, timeout=120)
    allowed = (400, 413, 414, 431) if refused else (200, 400, 404, 413, 429, 501, 503)
    # In Connect's words a message that is too large is resource_exhausted, 429: never to be sent again.
    too_large = r.status == 429 and path.startswith(RPC) and b"are taken here" in r.body
    if r.status not in allowed and not too_large:
        problems.append(f"{what}: {r}")
    if too_large and (r.json()["code"] != "resource_exhausted" or r.headers.get("Retry-After")):
        problems.append(f"{what}: {r} {r.headers}")
    if w.grown > CEILING:
        problems.append(f"{what}: {w.grown / MIB:.0f} MiB, at most {CEILING / MIB:.0f}")
    if w.spent > CPU_S:
        problems.append(f"{what}: {w.spent:.1f} s")
    if w.grown > CEILING // 4 or w.spent > CPU_S / 8:
        print(f"     {r.status} {w.grown / MIB:4.0f} MiB {w.spent:5.1f} s  {what[:70]}", flush=True)
    return w.grown, w.spent


def flood(server, paths):
    """All at once, on a connection each: how often which status came; b"" stands for no status."""
    sel, counts, left = selectors.DefaultSelector(), {}, 0
    for i in range(AT_ONCE):
        s = socket.create_connection(("127.0.0.1", server.process.port), timeout=60)
        method, path, body = paths[i % len(paths)]
        body = (body or "").encode()
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Scope-OrgID: hostile\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        s.setblocking(False)
        sel.register(s, selectors.EVENT_READ, bytearray())
        left += 1
    until = time.monotonic() + 480
    while left and time.monotonic() < until:
        for key, _ in sel.select(1):
            try:
                part = key.fileobj.recv(1 << 18)
            except BlockingIOError:
                continue
            except OSError:
                part = b""
            if part:
                key.data.extend(part[:max(0, 100 - len(key.data))])
                continue
            status = bytes(key.data[9:12]).decode()
            counts[status] = counts.get(status, 0) + 1
            sel.unregister(key.fileobj)
            key.fileobj.close()
            left -= 1
    assert not left, f"{left} of {AT_ONCE} have no answer: {counts}"
    return counts


OPTIONS = (f"--memory.limit={MEMORY}", "--tenancy.multi=true", "--querier.timeout=30s",
           "--querier.tenant_queue=100", "--distributor.ack_timeout=50s")


def test_one_by_one():
    problems, worst, n = [], [0, 0], 0
    # What a question may cost is CPU time here: on a busy machine the wall's clock ends none of them.
    with cluster.AllInOne(*OPTIONS, "--querier.timeout=110s") as server:
        fill(server)
        quiet = Quiet(server)
        try:
            for kind in (regexes, matchers, sizes, ranges, groups):
                for question in kind():
                    n += 1
                    grown, spent = check(server, question, problems)
                    worst = [max(worst[0], grown), max(worst[1], spent)]
        finally:
            quiet.end()
        many = {"X-Scope-OrgID": "|".join(f"t{i}" for i in range(100))}
        r = server.process.request("GET", "/labels", headers=many)
        assert r.status == 400, r
        assert server.process.get("/readyz").status == 200
        assert server.process.metric("embertree_querier_bytes") == 0
    print(f"     {n} questions; at most {worst[0] / MIB:.0f} MiB (ceiling {CEILING / MIB:.0f}), "
          f"{worst[1]:.1f} s")
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems)


def test_thousands_at_once():
    now = int(time.time() * 1000)
    times = between(now - DAY, now)
    merge = {"profileTypeID": TYPE, "labelSelector": '{id=~"pod-.*"}'} | times
    paths = [rpc("SelectMergeStacktraces", **merge), rpc("SelectSeries", groupBy=["id"], step=15, **merge),
             rpc("Series", **times), get("/pyroscope/render", query=TYPE + "{}", from_="now-1h"),
             rpc("SelectMergeProfile", **merge)]
    with cluster.AllInOne(*OPTIONS) as server:
        fill(server, SERIES // 10)
        quiet = Quiet(server)
        try:
            with Watched(server) as w:
                counts = flood(server, paths)
        finally:
            quiet.end()
        print(f"     {AT_ONCE} at once: {counts}, {w.grown / MIB:.0f} MiB, {w.spent:.1f} s")
        assert set(counts) <= {"200", "400", "429", "503", "504"}, counts
        assert counts.get("200", 0) > 0 and counts.get("429", 0) > 0, counts
        assert w.grown <= 2 * CEILING, f"{w.grown / MIB:.0f} MiB"
        assert server.process.get("/readyz").status == 200
        assert server.process.metric("embertree_querier_queries_waiting") == 0
        assert server.process.metric("embertree_querier_bytes") == 0


def test_refused_by_an_estimate():
    """Before anything is read; by tenant."""
    with cluster.AllInOne("--tenancy.multi=true", "--querier.query_read_bytes_max=1000",
                          "--querier.tenants=quiet=read_bytes:1GiB") as server:
        fill(server, 1000)
        for tenant, status in ((HOSTILE, 400), (QUIET, 200)):
            for path in ("/pyroscope/render", "/api/v1/functions", "/api/v1/top"):
                query = TYPE + "{}" if tenant is HOSTILE else "process_cpu:samples:count::{}"
                r = server.process.request(*get(path, query=query, from_="now-1h"), tenant)
                assert r.status == status, r
                assert status == 200 or b"querier.query_read_bytes_max" in r.body, r
            r = server.process.request("GET", "/pyroscope/label-values?label=service_name", headers=tenant)
            assert r.status == 200, r


if __name__ == "__main__":
    cluster.main([test_one_by_one, test_thousands_at_once, test_refused_by_an_estimate])
