"""Ten thousand clients that stay, clients that dribble, that half-close, that vanish: memory stays
bounded, all other clients are served, and in the end nothing is left of them. And curl, over TLS and
HTTP/2."""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

MANY = 10_000
MIB = 1 << 20
BYTES_EACH_MAX = 8 << 10  # resident, of one idle connection; the kernel's buffers not counted
REQUEST = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"


def raise_files(want):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < want:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, want), hard))
    return True


def resident(process):
    for line in pathlib.Path(f"/proc/{process.child.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("no VmRSS")


def wait_for(what, limit_s=120):
    until = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def connect_all(port, count, first=REQUEST):
    """`count` connections that each had their answer to `first`."""
    all_of_them = []
    for start in range(0, count, 500):
        batch = [socket.create_connection(("127.0.0.1", port)) for _ in range(min(500, count - start))]
        for s in batch:
            s.sendall(first)
        for s in batch:
            s.settimeout(90)
            got = s.recv(4096)
            assert got.startswith(b"HTTP/1.1 200"), got[:200]
        all_of_them += batch
    return all_of_them


def leave(s, how):
    if how == 0:
        s.close()
    elif how == 1:  # a reset
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    else:  # the sending side only
        s.shutdown(socket.SHUT_WR)


def test_ten_thousand_stay():
    if not raise_files(MANY + 1000):
        print(f"SKIPPED: the hard limit of open files is below {MANY + 1000}")
        return
    with cluster.AllInOne("--http.idle_timeout=10m") as server:
        p = server.process
        warm = connect_all(p.port, 200)
        before = resident(p)
        clients = connect_all(p.port, MANY)
        grown = resident(p) - before
        print(f"{MANY} idle connections: {grown / MANY / 1024:.1f} KiB resident each")
        assert grown < MANY * BYTES_EACH_MAX, f"{grown >> 20} MiB"
        assert p.metric("embertree_http_connections") >= MANY
        server.ingest(b"main;work 3\n", "many.cpu")  # others are served
        assert p.get("/ready").status == 200
        for s in clients[:300]:  # and they themselves still are
            s.sendall(REQUEST)
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
        for i, s in enumerate(clients + warm):
            leave(s, i % 3)
        wait_for(lambda: p.metric("embertree_http_connections") <= 1)
        for s in clients:
            s.close()
        assert p.metric("embertree_http_requests_in_flight") <= 1
        again = connect_all(p.port, MANY)  # what they had is used again
        assert resident(p) - before < 1.5 * MANY * BYTES_EACH_MAX
        for s in again:
            s.close()
        wait_for(lambda: p.metric("embertree_http_connections") <= 1)
        assert p.stop() == 0


def test_slow_loris_and_the_vanished():
    if not raise_files(4000):
        print("SKIPPED: the hard limit of open files is below 4000")
        return
    with cluster.AllInOne("--http.head_timeout=2s", "--http.body_timeout=2s",
                          "--http.idle_timeout=3s", "--http.write_timeout=2s") as server:
        p = server.process
        starts = [b"GET /ready HTTP/1.1\r\nHost: localhost\r\nX-", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                  b"POST /ingest?name=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nab",
                  b"P", b"", b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        clients = [socket.create_connection(("127.0.0.1", p.port)) for _ in range(1200)]
        for i, s in enumerate(clients):
            with contextlib.suppress(OSError):  # of a busy machine the first are gone before the last are there
                s.sendall(starts[i % len(starts)])
        worst = 0.0
        until = time.monotonic() + 120
        left = dict(enumerate(clients))
        while left:
            assert time.monotonic() < until, f"{len(left)} connections are still there"
            for i, s in list(left.items()):  # one byte per round of the loop
                try:
                    if starts[i % len(starts)].startswith(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nX-"):
                        s.send(b"a")
                    s.setblocking(False)
                    while s.recv(65536):
                        pass
                    del left[i]
                except BlockingIOError:
                    pass
                except OSError:
                    del left[i]
            began = time.monotonic()
            assert p.get("/ready").status == 200
            worst = max(worst, time.monotonic() - began)
            time.sleep(0.25)
        for s in clients:
            s.close()
        print(f"1200 slow clients are gone; slowest answer to another one {worst * 1000:.0f} ms")
        assert p.metric("embertree_http_refused_total", reason="timeout") >= 400
        wait_for(lambda: p.metric("embertree_http_connections") <= 1)
        # Vanishing in the middle of a reply that the client does not read, and of a body.
        for _ in range(200):
            s = socket.create_connection(("127.0.0.1", p.port))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            leave(s, 1)
        wait_for(lambda: p.metric("embertree_http_connections") <= 1)
        assert p.stop() == 0


def half_closed(port, data):
    """Returns what a client receives that has ended its sending half, until the server closes."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(90)
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while more := s.recv(65536):
            got += more
        return got


def test_half_closed_and_bodies_that_end_nowhere():
    """A client that closes its half after a whole request gets its answer; in the middle of one, it gets
    an error or nothing. The memory of vanished clients is free again: others push more than would fit
    beside it."""
    line = b"main;" + b"w" * 500 + b" 3\n"
    head = b"POST /ingest?name=half.cpu&sampleRate=0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\0\0\0\4\0\0\0\0\0"
    with cluster.AllInOne("--http.in_flight_bytes=24MiB", "--http.idle_timeout=20s") as server:
        p = server.process
        whole = head % len(line) + line
        assert half_closed(p.port, whole).startswith(b"HTTP/1.1 200"), "one request"
        assert half_closed(p.port, whole * 3).count(b"HTTP/1.1 200") == 3, "three, sent at once"
        assert half_closed(p.port, head % 100 + line).startswith(b"HTTP/1.1 400"), "a cut body"
        for cut in (b"", whole[:9], whole[:40], preface[:10], preface, preface + settings[:5],
                    preface + settings, preface + settings + b"\0\0\5\1\4\0\0\0\1\x82"):
            got = half_closed(p.port, cut)
            assert b" 200" not in got[:15] and len(got) < 1000, (cut, got)
        before = resident(p)
        for turn in range(6):
            for i in range(40):  # of a body of 2 MiB, one half
                s = socket.create_connection(("127.0.0.1", p.port))
                try:
                    s.sendall(head % (2 * MIB) + line * (MIB // len(line)))
                    leave(s, (turn + i) % 2)  # closed, or reset
                except OSError:
                    s.close()  # it was one too many
            wait_for(lambda: p.metric("embertree_http_connections") <= 1)
            r = server.ingest(line * (20 * MIB // len(line)), f"after{turn}.cpu")
            assert r.status == 200, r
        assert resident(p) - before < 200 * MIB, f"{(resident(p) - before) >> 20} MiB"
        r = server.render('process_cpu:samples:count::{service_name="half"}')
        assert r.json()["flamebearer"]["numTicks"] == 4 * 3, "nothing of what was cut is stored"
        assert p.stop() == 0


def curl(*args):
    done = subprocess.run(["curl", "-sS", "--max-time", "90", "-o", "/dev/null", "-w",
                           '{"status":%{http_code},"version":"%{http_version}"}', *args],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_curl_speaks_http2_and_tls():
    for tool in ("curl", "openssl"):
        if not shutil.which(tool):
            print(f"SKIPPED: no {tool}")
            return
    p = cluster.Process("embertree")
    p.folder.mkdir(parents=True, exist_ok=True)
    cert, key = p.folder / "cert.pem", p.folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    p.options = (f"--http.tls_cert={cert}", f"--http.tls_key={key}")
    body = p.folder / "body"
    body.write_bytes(b"".join(b"main;work%d 3\n" % i for i in range(100_000)))
    try:
        p.start()
        plain, tls = f"http://localhost:{p.port}", f"https://localhost:{p.port}"
        trust = ("--cacert", str(cert), "--resolve", f"localhost:{p.port}:127.0.0.1")
        push = ("--data-binary", f"@{body}", "-H", "Content-Type: text/plain")
        for url, options, version in ((plain, ["--http1.1"], "1.1"),
                                      (plain, ["--http2-prior-knowledge"], "2"),
                                      (tls, ["--http1.1"], "1.1"), (tls, ["--http2"], "2"),
                                      (tls, ["--tls-max", "1.2", "--http2"], "2")):
            for path, more in (("/metrics", ()), ("/ingest?name=curl.cpu&format=folded", push)):
                got = curl(*trust, *options, *more, url + path)
                assert got == {"status": 200, "version": version}, (url, options, path, got)
        assert p.metric("embertree_http_tls_not_after_seconds") > time.time()
        assert p.stop() == 0
        p.options += ("--http.tls_only",)
        p.start(wait=False)
        wait_for(lambda: subprocess.run(["curl", "-sf", *trust, tls + "/readyz"],
                                        capture_output=True).returncode == 0)
        refused = p.get("/ready")
        assert refused.status == 400 and b"https://" in refused.body, refused
        assert p.stop() == 0
    finally:
        p.cleanup()


if __name__ == "__main__":
    cluster.main([test_ten_thousand_stay, test_slow_loris_and_the_vanished,
                  test_half_closed_and_bodies_that_end_nowhere,
                  test_curl_speaks_http2_and_tls])
