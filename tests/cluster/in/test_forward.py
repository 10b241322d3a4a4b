"""Forwarding between real servers: from one Embertree to another, which goes away and comes back; to
what looks like an old Pyroscope; rules, limits of the spool, and a kill -9 in the middle."""
import email
import email.policy
import gzip
import http.server
import json
import os
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import push_client as push

CPU = {"__name__": "process_cpu"}


QUIET = "--selfprof.enabled=false"  # its own profiles would be forwarded, too

def config_file(folder, **targets):
    """JSON is YAML."""
    path = os.path.join(folder, "forward.yaml")
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump({"targets": targets}, f)
    os.rename(path + ".new", path)
    return path


def target(port, **more):
    return {"url": f"http://127.0.0.1:{port}", "min_backoff": "50ms", "max_backoff": "300ms"} | more


def wait_for(check, what, limit_s=60):
    until = time.monotonic() + limit_s
    last = None
    while time.monotonic() < until:
        try:
            last = check()
            if last is True:
                return
        except OSError as e:
            last = e
        time.sleep(0.1)
    raise AssertionError(f"{what}: {last!r} after {limit_s} s")


def total(server, selector, type_id=cluster.CPU_TYPE):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": selector, **server.range_ms()})
    assert r.status == 200, r
    return cluster.flamegraph(r.json())["numTicks"]


def wait_total(server, selector, want, **more):
    def check():
        got = total(server, selector, **more)
        assert got <= want, f"doubled: {got} of {want}"
        return True if got == want else got
    wait_for(check, f"{want} of {selector}")


def send(server, service, value, key, at=None, **labels):
    raw = push.pprof(value, time_ns=at or push.now_ns())
    r = push.push_proto(server.process, push.request((CPU | {"service_name": service} | labels,
                                                      [(raw, key)])))
    assert r.status == 200, r


def status(server, name):
    all_of = server.process.get("/api/v1/forward").json()["targets"]
    return next(t for t in all_of if t["name"] == name)


class Old(http.server.BaseHTTPRequestHandler):
    """What a Pyroscope 0.37 does with POST /ingest: keeps what came."""
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        code = self.server.answers.pop(0) if self.server.answers else 200
        self.server.seen.append((code, self.path, self.headers, body))
        self.send_response(code)
        if code == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        pass


class Fake:
    def __init__(self, *answers):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Old)
        self.server.answers, self.server.seen = list(answers), []
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_args):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def seen(self, code=200):
        return [s for s in self.server.seen if s[0] == code]


def test_from_one_to_another():
    """Every kind of data: text, a heap of four types, sample labels, spans, no symbols."""
    with tempfile.TemporaryDirectory() as folder, cluster.AllInOne() as b:
        f = config_file(folder, b=target(b.process.port, labels={"from": "a"}))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            assert a.ingest(b"main;f 3\nmain;g 4\n", name="text.cpu").status == 200
            at = push.now_ns()  # of the push that is sent again: the same to the last byte
            send(a, "pprof", 30000000, "one", at, env="prod")
            heap = push.pprof(4096, time_ns=push.now_ns(), types=(
                ("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"),
                ("inuse_space", "bytes")), labels=(("zone", "x"),))
            r = push.push_proto(a.process, push.request((
                {"__name__": "memory", "service_name": "heap"}, [(heap, "two")])))
            assert r.status == 200, r
            span = push.pprof(10, time_ns=push.now_ns(), labels=(("span_id", "00000bac2a5ab0c7"),))
            r = push.push_proto(a.process, push.request((CPU | {"service_name": "spans"},
                                                         [(span, "three")])))
            assert r.status == 200, r
            for service, type_id in (
                    ("text", cluster.CPU_TYPE), ("pprof", cluster.CPU_TYPE),
                    ("spans", cluster.CPU_TYPE),
                    ("heap", "memory:alloc_objects:count:cpu:nanoseconds"),
                    ("heap", "memory:inuse_space:bytes:cpu:nanoseconds")):
                here = total(a, f'{{service_name="{service}"}}', type_id)
                assert here > 0, (service, type_id)
                wait_total(b, f'{{service_name="{service}", from="a"}}', here, type_id=type_id)
            here = total(a, '{service_name="heap", zone="x"}',
                         "memory:alloc_space:bytes:cpu:nanoseconds")
            wait_total(b, '{service_name="heap", zone="x"}', here,
                       type_id="memory:alloc_space:bytes:cpu:nanoseconds")
            # the same again is the same: nothing is added there
            send(a, "pprof", 30000000, "one", at, env="prod")
            wait_for(lambda: status(a, "b")["spoolRequests"] == 0 or status(a, "b"), "empty spool")
            assert total(b, '{service_name="pprof"}') == 30000000
            assert status(a, "b")["failed"] == 0, status(a, "b")


def test_the_other_goes_away():
    """B is down, comes back on the same port with its data; A is killed meanwhile, and restarted."""
    with tempfile.TemporaryDirectory() as folder:
        port = cluster.free_port()
        b = cluster.AllInOne(folder=os.path.join(folder, "b"), http_port=port)
        f = config_file(folder, b=target(port))
        a = cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}",
                             folder=os.path.join(folder, "a"))
        try:
            a.process.start()
            b.process.start()
            sent = 0
            for i in range(10):
                send(a, "svc", 1000 + i, f"up-{i}")
                sent += 1000 + i
            wait_total(b, '{service_name="svc"}', sent)
            b.process.kill()
            for i in range(20):
                send(a, "svc", 2000 + i, f"down-{i}")
                sent += 2000 + i
            wait_for(lambda: status(a, "b")["spoolRequests"] >= 20 or status(a, "b"), "spooled")
            assert status(a, "b")["lastError"], status(a, "b")
            a.process.kill()
            a.process.start()
            assert status(a, "b")["spoolRequests"] >= 20, status(a, "b")
            b.process.start()
            wait_total(b, '{service_name="svc"}', sent)
            # killed again and again while both are at work
            for turn in range(3):
                for i in range(20):
                    send(a, "svc", 3000 + i, f"kill-{turn}-{i}")
                    sent += 3000 + i
                a.process.kill()
                a.process.start()
            wait_total(b, '{service_name="svc"}', sent)
            wait_for(lambda: status(a, "b")["spoolRequests"] == 0 or status(a, "b"), "empty spool")
            time.sleep(0.5)
            assert total(b, '{service_name="svc"}') == sent
            assert total(a, '{service_name="svc"}') == sent
        except BaseException:
            print(a.process.tail(), b.process.tail(), sep="\n---\n")
            raise
        finally:
            a.process.cleanup()
            b.process.cleanup()


def test_an_old_pyroscope():
    """mode: ingest; what may work later is sent again, what is refused is not."""
    with tempfile.TemporaryDirectory() as folder, Fake(503, 429, 400) as old:
        f = config_file(folder, old=target(
            old.port, mode="ingest", concurrency=1, headers={"X-More": "yes"}, tenant="t",
            basic_auth={"username": "u", "password": "p"}, labels={"dc": "1"}))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            send(a, "refused", 5, "1")
            wait_for(lambda: len(old.seen(400)) == 1 or old.server.seen, "the refusal")
            send(a, "taken", 70, "2", env="a,b")
            wait_for(lambda: len(old.seen()) == 1 or old.server.seen, "the request")
            assert len(old.server.seen) == 4, old.server.seen
            _, path, headers, body = old.seen()[0]
            url = urllib.parse.urlsplit(path)
            query = dict(urllib.parse.parse_qsl(url.query))
            assert url.path == "/ingest" and query["name"] == "taken{dc=1,env=a_b}", path
            assert time.time() - 60 < int(query["from"]) <= int(query["until"]), path
            assert headers["Authorization"] == "Basic dTpw" and headers["X-More"] == "yes"
            assert headers["X-Scope-OrgID"] == "t" and headers["Idempotency-Key"], headers
            parts = email.message_from_bytes(
                b"Content-Type: " + headers["Content-Type"].encode() + b"\r\n\r\n" + body,
                policy=email.policy.HTTP)
            by_name = {p.get_param("name", header="content-disposition"): p.get_payload(decode=True)
                       for p in parts.iter_parts()}
            assert b"leaf" in gzip.decompress(by_name["profile"]), by_name
            assert json.loads(by_name["sample_type_config"])["cpu"]["aggregation"] == "sum"
            wait_for(lambda: status(a, "old")["spoolRequests"] == 0 or status(a, "old"), "empty")
            now = status(a, "old")
            assert (now["sent"], now["failed"], now["retries"]) == (1, 1, 2), now


def test_ingest_mode_keeps_totals():
    with tempfile.TemporaryDirectory() as folder, cluster.AllInOne() as b:
        f = config_file(folder, b=target(b.process.port, mode="ingest"))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            send(a, "svc", 30000000, "one", env="prod")
            wait_total(b, '{service_name="svc", env="prod"}', 30000000)


def test_rules_and_reload():
    with tempfile.TemporaryDirectory() as folder, cluster.AllInOne() as b:
        rules = {"match": ['{env="prod"}'], "drop": ['{service_name="secret"}'],
                 "relabel_configs": [{"source_labels": ["pod"], "target_label": "node",
                                      "regex": "(.*)-.*", "replacement": "$1"},
                                     {"action": "labeldrop", "regex": "pod"}]}
        f = config_file(folder, b=target(b.process.port, **rules))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            send(a, "dev", 1, "1", env="dev")
            send(a, "secret", 2, "2", env="prod")
            send(a, "svc", 3, "3", env="prod", pod="web-1")
            wait_total(b, '{service_name="svc", node="web", pod=""}', 3)
            assert total(b, '{service_name=~"dev|secret"}') == 0
            assert status(a, "b")["leftOut"] == 2, status(a, "b")
            with open(f, "w", encoding="utf-8") as broken:
                broken.write("targets:\n  b: {urll: x}\n")
            wait_for(lambda: a.process.metric("embertree_distributor_forward_config_ok") == 0,
                     "the broken file is seen")
            send(a, "svc", 4, "4", env="prod", pod="web-2")
            wait_total(b, '{service_name="svc"}', 7)
            config_file(folder, other=target(b.process.port, labels={"via": "other"}))
            wait_for(lambda: [t["name"] for t in a.process.get("/api/v1/forward").json()["targets"]]
                     == ["other"], "the new file is seen")
            send(a, "dev", 8, "8", env="dev")
            wait_total(b, '{service_name="dev", via="other"}', 8)
    with tempfile.TemporaryDirectory() as folder:
        f = config_file(folder, b={"url": "ftp://x"})
        try:
            with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}"):
                raise AssertionError("started with a URL that cannot be used")
        except RuntimeError as e:
            assert "is no URL" in str(e), e


def test_a_token_that_is_late():
    """401 is about the token, not about the push: it waits until the token is right. And a file that is
    empty because it is being written ends no target."""
    with tempfile.TemporaryDirectory() as folder, Fake(401, 401, 401) as old:
        f = config_file(folder, old=target(old.port, mode="ingest"))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            send(a, "svc", 3, "1")
            wait_for(lambda: len(old.seen()) == 1, "it is sent until it is taken")
            wait_for(lambda: status(a, "old")["spoolRequests"] == 0, "empty")
            now = status(a, "old")
            assert (now["sent"], now["failed"], now["retries"]) == (1, 0, 3), now
            with open(f, encoding="utf-8") as whole:
                text = whole.read()
            with open(f, "w", encoding="utf-8"):
                pass
            wait_for(lambda: a.process.metric("embertree_distributor_forward_config_ok") == 0, "it is seen")
            send(a, "svc", 4, "2")
            wait_for(lambda: len(old.seen()) == 2, "the target is still there")
            with open(f, "w", encoding="utf-8") as whole:
                whole.write(text)
            wait_for(lambda: a.process.metric("embertree_distributor_forward_config_ok") == 1, "it is back")


def test_full_spool():
    """The target is down: the spool stays below its maximum, the oldest pushes are dropped, and that is counted."""
    with tempfile.TemporaryDirectory() as folder:
        f = config_file(folder, b=target(cluster.free_port(), spool={"max_bytes": "1MiB"}))
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={f}") as a:
            text = b"".join(b"main;" + os.urandom(24).hex().encode() + b" 1\n" for _ in range(3000))
            for i in range(30):
                assert a.ingest(text, name="svc.cpu").status == 200
            def counted():
                """As of the last tick of the target, which may be older than the last push."""
                now = status(a, "b")
                assert now["spoolBytes"] <= 1 << 20 and now["spoolRequests"] + now["dropped"] <= 30, now
                # what is being sent is in no segment any more, and not dropped either
                return now["spoolRequests"] + now["dropped"] == 30 and now["dropped"] > 0

            wait_for(counted, "each request waits or was dropped")


def test_a_ring_ends():
    """Two servers that forward to each other: a push goes round a few times, and no more."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        ports = cluster.free_port(), cluster.free_port()
        files = [config_file(folder, other=target(port))
                 for folder, port in ((one, ports[1]), (two, ports[0]))]
        with cluster.AllInOne(QUIET, f"--distributor.forward-config-file={files[0]}",
                              http_port=ports[0]) as a, \
             cluster.AllInOne(QUIET, f"--distributor.forward-config-file={files[1]}",
                              http_port=ports[1]) as b:
            send(a, "svc", 6, "1")
            wait_for(lambda: a.process.metric("embertree_distributor_forward_loops_total")
                     + b.process.metric("embertree_distributor_forward_loops_total") == 1, "the end")
            wait_for(lambda: status(a, "other")["spoolRequests"] + status(b, "other")[
                "spoolRequests"] == 0, "empty spools")


cluster.main([test_from_one_to_another, test_the_other_goes_away, test_an_old_pyroscope,
              test_ingest_mode_keeps_totals, test_rules_and_reload, test_a_token_that_is_late, test_full_spool,
              test_a_ring_ends])
