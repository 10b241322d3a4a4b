"""Bad input: a 4xx that says what is wrong, nothing stored, nothing leaked, the server serves on."""
import contextlib
import gzip
import os
import pathlib
import socket
import sys
import threading
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

MIB = 1 << 20


def zeros_gzip(mib):
    """gzip of that many MiB of zero bytes, about 1000:1, made without compressing them all."""
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = c.compress(bytes(MIB)) + c.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return (b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * mib + end + b"\0\0\0\0"
            + (mib * MIB % 2**32).to_bytes(4, "little"))


def varint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7f | 0x80])
        v >>= 7
    return out + bytes([v])


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def deep_pprof(depth):
    """One sample whose stack has `depth` equal locations."""
    sample = field(1, b"\x01" * depth) + field(2, b"\x01")
    location = b"\x08\x01" + field(4, b"\x08\x01")
    strings = b"".join(field(6, s) for s in (b"", b"cpu", b"nanoseconds", b"f"))
    return (field(1, b"\x08\x01\x10\x02") + field(2, sample) + field(4, location)
            + field(5, b"\x08\x01\x10\x03") + strings)


def rss_mib(server):
    status = pathlib.Path(f"/proc/{server.process.child.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def bad_requests():
    good = b"a;b 1\n"
    pprof = {"format": "pprof"}
    yield "empty folded body", dict(body=b"", name="x.cpu")
    yield "empty pprof body", dict(body=b"", name="x", **pprof)
    yield "only junk lines", dict(body=b"\0\1\2\3 no number\n\n", name="x", format="pprof")
    yield "truncated gzip", dict(body=gzip.compress(deep_pprof(3))[:-9], name="x", **pprof)
    yield "gzip in gzip", dict(body=gzip.compress(gzip.compress(deep_pprof(3))), name="x", **pprof)
    yield "gzip in gzip in an encoding", dict(
        body=gzip.compress(gzip.compress(gzip.compress(deep_pprof(3)))), name="x",
        headers={"Content-Encoding": "gzip"}, **pprof)
    yield "10 MiB that inflate to 10 GiB", dict(body=zeros_gzip(10240), name="x", **pprof)
    yield "the same as an encoding", dict(body=zeros_gzip(10240), name="x.cpu",
                                          headers={"Content-Encoding": "gzip"})
    yield "text as pprof", dict(body=b"main;a 1\n" * 9, name="x", **pprof)
    yield "length 2^31", dict(body=b"\x12" + varint(2**31) + b"aa", name="x", **pprof)
    yield "length 2^64-1", dict(body=b"\x12" + varint(2**64 - 1) + b"aa", name="x", **pprof)
    yield "a stack of 10^6 frames", dict(body=deep_pprof(10**6), name="x", **pprof)
    yield "the same, folded", dict(body=b";".join([b"f"] * 10**6) + b" 1\n", name="x.cpu")
    yield "no name", dict(body=good, name="")
    yield "a blank in a label name", dict(body=good, name="x.cpu{a b=1}")
    yield "a bad character in the name", dict(body=good, name="x y!.cpu")
    yield "from after until", dict(body=good, name="x.cpu", **{"from": "now", "until": "now-1h"})
    yield "a time that cannot be read", dict(body=good, name="x.cpu", **{"from": "yesterdayish"})
    yield "a time before 1990", dict(body=good, name="x.cpu", **{"from": "1000", "until": "2000"})
    yield "a time days ahead", dict(body=good, name="x.cpu", **{"from": "now+3d", "until": "now+4d"})
    yield "an unknown encoding", dict(body=good, name="x.cpu",
                                      headers={"Content-Encoding": "rot13"})
    yield "multipart without boundary", dict(body=good, name="x",
                                             headers={"Content-Type": "multipart/form-data"})
    yield "multipart cut in the middle", dict(
        body=b'--b\r\nContent-Disposition: form-data; name="profile"; filename="p"\r\n\r\nabc',
        name="x", headers={"Content-Type": "multipart/form-data; boundary=b"})


def stored(server):
    r = server.connect("LabelNames", server.range_ms(86400 * 300))
    assert r.status == 200, r
    return r.json().get("names", [])


def test_bad_input_is_explained_and_leaves_nothing():
    problems = []
    with cluster.AllInOne("--selfprof.enabled=false") as server:
        before = rss_mib(server)
        for what, request in bad_requests():
            r = server.ingest(**request)
            if not 400 <= r.status < 500:
                problems.append(f"{what}: {r}")
                continue
            said = r.json()
            if not said.get("code") or len(said.get("message", "")) < 10:
                problems.append(f"{what}: {r}")
            print(f"     {r.status} {what}: {said.get('message')}")
        if stored(server):
            problems.append(f"stored: {stored(server)}")
        grown = rss_mib(server) - before
        if grown > 300:
            problems.append(f"memory grew by {grown:.0f} MiB")
        assert server.ingest(b"a;b 1\n", "x.cpu").status == 200
        assert "service_name" in stored(server)
    assert not problems, "\n".join(problems)


def test_a_body_of_100_mb_is_cut_short():
    with cluster.AllInOne() as server:
        with socket.create_connection(("127.0.0.1", server.process.port)) as s:
            s.sendall(b"POST /ingest?name=x.cpu HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: 104857600\r\n\r\n")
            try:
                for _ in range(100):
                    s.sendall(b"a;b 1\n" * (MIB // 6))
            except OSError:
                pass  # the server stopped reading: that is the point
            head = b""
            try:
                while b"\r\n\r\n" not in head:
                    more = s.recv(4096)
                    if not more:
                        break
                    head += more
            except ConnectionResetError:
                pass
        assert not head or b" 413 " in head.split(b"\r\n")[0], head
        # Chunked, so that the length is not known in advance.
        with socket.create_connection(("127.0.0.1", server.process.port)) as s:
            s.sendall(b"POST /ingest?name=x.cpu HTTP/1.1\r\nHost: localhost\r\n"
                      b"Transfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(100):
                    s.sendall(b"%x\r\n" % MIB + bytes(MIB) + b"\r\n")
            except OSError:
                pass
        assert server.process.metric("embertree_http_requests_total") >= 1
        assert not stored(server)
        assert server.ingest(b"a;b 1\n", "x.cpu").status == 200


def test_in_flight_budget_answers_503_with_retry_after():
    with cluster.AllInOne("--http.in_flight_bytes=8MiB") as server:
        held = []
        replies = []

        def hold():
            s = socket.create_connection(("127.0.0.1", server.process.port))
            held.append(s)
            s.sendall(b"POST /ingest?name=x.cpu HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: 8000000\r\n\r\n")
            s.settimeout(60)
            try:
                s.sendall(b"a;b 1\n" * 500000)
                replies.append(s.recv(4096))
            except OSError:
                pass

        threads = [threading.Thread(target=hold) for _ in range(8)]
        for t in threads:
            t.start()
        until = time.monotonic() + 60
        while sum(t.is_alive() for t in threads) > 2 and time.monotonic() < until:
            time.sleep(0.05)
        for s in held:  # no more than two of 3 MB fit, and wait for their rest: they have no answer
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        for t in threads:
            t.join(90)
        for s in held:
            s.close()
        refused = [r for r in replies if b" 503 " in r.split(b"\r\n")[0]]
        assert refused, replies
        assert all(b"retry-after:" in r.lower() for r in refused), refused
        until = time.monotonic() + 90
        while server.ingest(b"a;b 1\n", "x.cpu").status != 200:
            assert time.monotonic() < until, "the budget never came back"


def test_connection_limit_answers_503():
    with cluster.AllInOne("--http.connections_max=10") as server:
        idle = [socket.create_connection(("127.0.0.1", server.process.port)) for _ in range(10)]
        with socket.create_connection(("127.0.0.1", server.process.port)) as s:
            s.settimeout(60)
            s.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = s.recv(4096)
        assert b" 503 " in head.split(b"\r\n")[0] and b"retry-after:" in head.lower(), head
        for s in idle:
            s.close()
        server.process.wait_ready()


def test_disk_reserve_makes_writes_503_and_reads_go_on():
    with cluster.AllInOne() as server:
        assert server.ingest(b"a;b 1\n", "x.cpu").status == 200
        server.process.stop()
        disk = os.statvfs(server.process.folder)
        nearly_all = disk.f_blocks * disk.f_frsize - 64 * MIB
        server.process.options = (f"--data.disk_reserve={nearly_all}",)
        server.process.start(wait=False)
        for _ in range(1800):
            try:
                r = server.render(cluster.CPU_TYPE + '{service_name="x"}')
                if r.status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)  # refused at once while it starts
        r = server.ingest(b"a;b 1\n", "x.cpu")
        assert r.status == 503 and r.headers["Retry-After"], r
        assert "disk" in r.json()["message"], r
        r = server.render(cluster.CPU_TYPE + '{service_name="x"}')
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 10**7, r
        assert b"disk" in server.process.get("/readyz").body


if __name__ == "__main__":
    cluster.main([test_bad_input_is_explained_and_leaves_nothing,
                  test_a_body_of_100_mb_is_cut_short,
                  test_in_flight_budget_answers_503_with_retry_after,
                  test_connection_limit_answers_503,
                  test_disk_reserve_makes_writes_503_and_reads_go_on])
