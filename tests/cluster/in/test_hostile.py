"""Bodies that ask for much: bombs of every coding, deep and wide ones, of every format. Each is answered
in bounded time and memory, the server is well afterwards, and others are served meanwhile."""
import gzip
import os
import pathlib
import random
import subprocess
import sys
import threading
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
from push_client import PATH, field, frame, request, varint
from test_testdata import multipart

MIB = 1 << 20
MEMORY = 512 * MIB
# What one request may add to the resident memory of a server with that limit: what bodies in work may
# hold (15 % of it), twice, since a decoder's tables are freed only when the next stage has copied them.
CEILING = 2 * MEMORY * 15 // 100
CPU_S = 20  # seconds of processor time, on any machine: the worst measured is a fourth of it
PROTO = {"Content-Type": "application/x-protobuf"}
RPC = {"Content-Type": "application/proto"}
WRITE_RAW = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"


def run(command, body):
    return subprocess.run(command, input=body, check=True, stdout=subprocess.PIPE).stdout


CODERS = {"gzip": lambda b: gzip.compress(b, 9), "br": lambda b: run(["brotli", "-c", "-q", "6"], b),
          "zstd": lambda b: run(["zstd", "-q", "-19", "-c"], b),
          "deflate": lambda b: zlib.compress(b, 9)}


def dilute(ratio, size):
    """Text that a coder shrinks to about size / ratio: noise, and a long run of one line."""
    rng = random.Random(7)
    noise = "".join(f"f{rng.getrandbits(40):x} 1\n" for _ in range(size // ratio // 12)).encode()
    return noise + b"main;work 1\n" * ((size - len(noise)) // 12)


def forms(bomb):
    """Path and parts; the bomb is the last one."""
    yield "/ingest?name=bomb", ("profile", bomb)
    yield "/ingest?name=bomb", ("profile", pprof_wide(1, 2)), ("prev_profile", bomb)
    if golden.available():
        jfr = golden.read("corrupt/jfr_good.jfr")
        yield "/ingest?name=bomb&format=jfr", ("jfr", jfr), ("labels", bomb)


def bombs():
    """By every coding, as a body and inside of one; far over what may be inflated."""
    plain = {200: dilute(260, 80 * MIB), 1000: bytes(160 * MIB)}
    for ratio, body in plain.items():
        for coding, code in CODERS.items():
            zipped = code(body)
            print(f"     {coding}: {len(body) / len(zipped):.0f}:1, {len(zipped)} bytes")
            for what, path, headers in (
                    ("folded", "/ingest?name=bomb.cpu", {}),
                    ("pprof", "/ingest?name=bomb&format=pprof", {}),
                    ("jfr", "/ingest?name=bomb&format=jfr", {}),
                    ("push", PATH, RPC),
                    ("otlp", "/v1development/profiles", PROTO)):
                yield (f"{what} in {coding} {ratio}:1", path, zipped,
                       headers | {"Content-Encoding": coding}, True)
            if coding == "gzip":
                for name in ("pprof", "jfr", "groups", "trie", "tree", "speedscope"):
                    yield (f"{name} that is gzip {ratio}:1", f"/ingest?name=bomb.cpu&format={name}",
                           zipped, {}, True)
                series = request(({"__name__": "cpu", "service_name": "bomb"}, [(zipped, "")]))
                yield f"a profile of a push {ratio}:1", PATH, series, RPC, True
                yield (f"a gRPC-Web message {ratio}:1", PATH, frame(zipped, 1),
                       {"Content-Type": "application/grpc-web+proto", "grpc-encoding": "gzip"}, None)
                yield f"an upload {ratio}:1", "/api/v1/adhoc?name=x", zipped, {}, True
                yield (f"a profile of WriteRaw {ratio}:1", WRITE_RAW,
                       field(2, field(1, b"") + field(2, field(1, zipped))), RPC, True)
                for path, *parts in forms(zipped):
                    form, headers = multipart(parts)
                    yield f"a part {parts[-1][0]} {ratio}:1", path, form, headers, True


def pprof_wide(samples, depth):
    """samples stacks of depth frames each, none like the other."""
    ids = b"".join(varint(1 + i % 100) for i in range(depth))
    out = [field(1, b"\x08\x01\x10\x02")]
    for i in range(samples):
        out.append(field(2, field(1, ids + varint(1 + i % 100) + varint(1 + i // 100 % 100))
                         + field(2, b"\x01")))
    for i in range(1, 101):
        out.append(field(4, field(1, i) + field(4, field(1, i))) + field(5, field(1, i) + field(2, 3)))
    return b"".join(out) + b"".join(field(6, s) for s in (b"", b"cpu", b"nanoseconds", b"f"))


def generated():
    line = ";".join(f"f{i}" for i in range(60000))
    yield ("folded, 60,000 frames a line", "/ingest?name=wide.cpu",
           "".join(f"x{i};{line} 1\n" for i in range(80)).encode(), {}, None)
    yield ("folded, a million stacks", "/ingest?name=many.cpu",
           "".join(f"a{i % 977};b{i};c 1\n" for i in range(1000000)).encode(), {}, None)
    yield ("pprof, 4,000 stacks of 8,000", "/ingest?name=wide&format=pprof",
           pprof_wide(3500, 8000), {}, None)
    yield ("pprof, a million empty strings", "/ingest?name=strings&format=pprof",
           field(1, b"\x08\x01\x10\x02") + field(6, b"") * 10000000, {}, None)
    yield ("an old pprof, a million stacks", "/ingest?name=old&format=pprof",
           b"goroutine profile: total 1\n" + b"".join(b"1 @ 0x%x 0x1\n" % i
                                                      for i in range(1000000)), {}, None)
    yield ("an old pprof, one stack of 3 million", "/ingest?name=old&format=pprof",
           b"goroutine profile: total 1\n1 @" + b"".join(b" 0x%x" % i for i in range(3000000)), {},
           True)
    yield ("JSON, 10 million brackets", "/ingest?name=json&format=speedscope", b"[" * 10**7, {}, True)
    yield ("an upload, 10 million brackets", "/api/v1/adhoc?name=x", b"[" * 10**7, {}, True)
    yield ("OTLP JSON, 10 million brackets", "/v1development/profiles",
           b'{"resourceProfiles":' + b"[" * 10**7, {"Content-Type": "application/json"}, True)
    yield ("trie, a chain of 5 million", "/ingest?name=deep.cpu&format=trie",
           b"\0\0\1" + b"\1a\0\1" * 5000000 + b"\1a\1\0", {}, True)
    yield ("tree, a chain of 5 million", "/ingest?name=deep.cpu&format=tree",
           b"\0\0\1" + b"\1a\0\1" * 5000000 + b"\1a\1\0", {}, True)


def of_the_test_data():
    if not golden.available():
        print(golden.skip_line("hostile files"))
        return
    paths = {"pprof": "/ingest?name=h&format=pprof", "jfr": "/ingest?name=h&format=jfr",
             "trie": "/ingest?name=h.cpu&format=trie", "tree": "/ingest?name=h.cpu&format=tree",
             "speedscope": "/ingest?name=h.cpu&format=speedscope", "collapsed": "/ingest?name=h.cpu",
             "cpuprofile": "/api/v1/adhoc?name=h", "perf-script": "/api/v1/adhoc?name=h",
             "otlp": "/v1development/profiles",
             "parca-arrow": "/parca.profilestore.v1alpha1.ProfileStoreService/WriteArrow"}
    for file, (kind, verdict, text) in golden.verdicts().items():
        body = golden.read("corrupt/" + file)
        headers = {}
        if kind == "otlp":
            headers = PROTO | ({"Content-Encoding": "gzip"} if file.endswith(".gz") else {})
        if kind == "parca-arrow":
            body, headers = field(1, body), RPC
        yield f"{file} ({text})", paths[kind], body, headers, verdict in ("reject", "limit")


# ---- the server ------------------------------------------------------------------------------------


def status_kib(pid, name):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split(name + ":")[1].split()[0])


class Others:
    """Another tenant, which sends small pushes all the time."""

    def __init__(self, server):
        self.server, self.sent, self.wrong, self.ends = server, 0, [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends:
            r = self.server.ingest(b"a;b 1\n", "other.cpu", sampleRate=0)
            self.sent += r.status == 200
            if r.status != 200:
                self.wrong.append(r)
            threading.Event().wait(0.05)

    def end(self):
        self.ends = True
        self.thread.join()


def check(server, what, path, body, headers, refused, problems):
    p = server.process
    pathlib.Path(f"/proc/{p.child.pid}/clear_refs").write_text("5")
    before, cpu = status_kib(p.child.pid, "VmRSS"), p.cpu_seconds()
    r = p.post(path, body, headers)
    grown = (status_kib(p.child.pid, "VmHWM") - before) * 1024
    spent = p.cpu_seconds() - cpu
    # 501: a coding that Connect does not have
    allowed = (400, 413, 429, 501) if refused else (200, 400, 413, 429, 503)
    if r.status not in allowed:
        problems.append(f"{what}: {r}")
    if "grpc" in headers.get("Content-Type", "") and b"grpc-status" in r.body.lower():
        if b"grpc-status: 0" in r.body or b"grpc-status:0" in r.body:
            problems.append(f"{what}: {r}")
    if grown > CEILING:
        problems.append(f"{what}: {grown / MIB:.0f} MiB, at most {CEILING / MIB:.0f}")
    if spent > CPU_S:
        problems.append(f"{what}: {spent:.1f} s")
    if grown > CEILING // 4 or spent > CPU_S / 8:
        print(f"     {r.status} {grown / MIB:4.0f} MiB {spent:5.1f} s  {what[:70]}", flush=True)
    return grown, spent


def check_all(bodies):
    problems, worst = [], [0, 0]
    with cluster.AllInOne(f"--memory.limit={MEMORY}") as server:
        assert server.ingest(b"a;b 1\n", "other.cpu", sampleRate=0).status == 200
        others = Others(server)
        n = 0
        try:
            for what, path, body, headers, refused in bodies():
                n += 1
                grown, spent = check(server, what, path, body, headers, refused, problems)
                worst = [max(worst[0], grown), max(worst[1], spent)]
        finally:
            others.end()
        if others.wrong or not others.sent:
            problems.append(f"others: {others.sent} served, {others.wrong[:3]}")
        assert server.process.get("/readyz").status == 200
        graph = server.render(cluster.CPU_TYPE.replace(":cpu:nanoseconds:cpu:nanoseconds",
                                                       ":samples:count::")
                              + '{service_name="other"}')
        if graph.status != 200 or graph.json()["flamebearer"]["numTicks"] != others.sent + 1:
            problems.append(f"what others pushed: {graph}")
    print(f"     {n} bodies; at most {worst[0] / MIB:.0f} MiB (ceiling {CEILING / MIB:.0f}), "
          f"{worst[1]:.1f} s; others served {others.sent} times")
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems)


def test_bombs():
    check_all(bombs)


def test_deep_and_wide():
    check_all(generated)


def test_files():
    check_all(of_the_test_data)


# ---- tenants beside one another --------------------------------------------------------------------


def heavy_folded(seed, stacks=2000, depth=200):
    """Stacks that no other body has, some 3.6 MB of them."""
    return "".join(";".join([f"s{seed}_{i}"] + [f"f{(i * depth + j) % 5000}_{seed % 7}"
                                                for j in range(1, depth)]) + " 1\n"
                   for i in range(stacks)).encode()


class Flood:
    """A tenant that sends heavy bodies to many services, on many connections at once."""

    def __init__(self, server, connections, tenant="bob"):
        self.server, self.tenant, self.ends, self.replies = server, tenant, False, []
        self.bodies = [heavy_folded(i) for i in range(6)]
        self.threads = [threading.Thread(target=self.run, args=(i * 7,)) for i in range(connections)]
        for t in self.threads:
            t.start()

    def run(self, n):
        while not self.ends:
            n += 1
            self.replies.append(self.server.ingest(self.bodies[n % len(self.bodies)],
                                                   f"svc{n % 50}.cpu", sampleRate=0,
                                                   headers={"X-Scope-OrgID": self.tenant}))

    def end(self):
        self.ends = True
        for t in self.threads:
            t.join()


def test_a_flood_of_pushes_is_its_own_problem():
    """While one tenant floods, each push of another is stored within ack_timeout (else it would be 503);
    the flood gets 429 with the time of its next try, not 503, and the pushes of it that are taken are stored."""
    # Without the default rate, which would end most of the flood before its bodies hold anything.
    with cluster.AllInOne("--tenancy.multi", f"--memory.limit={MEMORY}",
                          "--distributor.tenant-limits=false") as server:
        alice = {"X-Scope-OrgID": "alice"}
        assert server.ingest(b"a;b 1\n", "quiet.cpu", alice, sampleRate=0).status == 200
        flood = Flood(server, 12)
        try:
            while not flood.replies:
                threading.Event().wait(0.05)
            replies = []
            for _ in range(30):
                replies.append(server.ingest(b"a;b 1\n", "quiet.cpu", alice, sampleRate=0))
                threading.Event().wait(0.1)
        finally:
            flood.end()
        assert all(r.status == 200 for r in replies), [str(r) for r in replies if r.status != 200]
        stored = [r for r in flood.replies if r.status == 200]
        refused = [r for r in flood.replies if r.status != 200]
        print(f"     the flood: {len(stored)} stored, {len(refused)} refused")
        assert stored and refused
        for r in refused:
            assert r.status == 429 and b"in_flight_limit" in r.body and r.headers["Retry-After"], r
        name = "embertree_discarded_profiles_total"
        counted = [server.process.metric(name, tenant=t, reason="in_flight_limit")
                   for t in ("bob", "alice")]
        assert counted == [len(refused), 0], (counted, len(refused))


if __name__ == "__main__":
    cluster.main([test_bombs, test_deep_and_wide, test_files,
                  test_a_flood_of_pushes_is_its_own_problem])
