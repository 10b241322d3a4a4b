"""Requests as servers of 0.19 to 0.37 and proxies before us send them on, written byte by byte to the
socket, on both paths: what they say is read back, and nothing is answered with a needless 5xx."""
import base64
import gzip
import os
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push

OCTETS = "binary/octet-stream"
MULTIPART = "multipart/form-data; boundary=b0undary"
HEAP = "memory:alloc_space:bytes:cpu:nanoseconds"


def parts(**files):
    out = b""
    for name, body in files.items():
        out += (b'--b0undary\r\nContent-Disposition: form-data; name="%s"; filename="%s"\r\n'
                b"Content-Type: application/octet-stream\r\n\r\n" % (name.encode(), name.encode())
                + body + b"\r\n")
    return out + b"--b0undary--\r\n"


def raw_post(port, target, lines, body, chunked=False):
    """One request, exactly these bytes; returns the status."""
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n" + "".join(
        line + "\r\n" for line in lines)
    if chunked:
        body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        head += "Transfer-Encoding: chunked\r\n"
    else:
        head += f"Content-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        s.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        answer = b""
        while part := s.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split(b" ")[1]), answer.partition(b"\r\n\r\n")[2]


def total(server, service, type_id=cluster.CPU_TYPE, headers=None):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": f'{{service_name="{service}"}}',
        **server.range_ms()}, headers)
    assert r.status == 200, r
    return cluster.flamegraph(r.json())["numTicks"]


def rows():
    """name, extra query, header lines, body, type to ask for, expected total."""
    cpu = push.pprof(30000000)
    heap, before = (push.pprof(v, types=(("alloc_space", "bytes"),)) for v in (500, 200))
    config = b'{"alloc_space":{"units":"bytes","cumulative":true}}'
    rate = "&sampleRate=100&units=samples&aggregationType=sum"
    return [
        # format=groups comes as bytes of no kind: folded text
        ("groups", "&format=groups" + rate, [f"Content-Type: {OCTETS}"], b"a;b 3\na;c 4\n", None,
         70000000),
        ("lines", "&format=lines" + rate, [f"Content-Type: {OCTETS}"], b"a;b\na;b\na;c\n", None,
         30000000),
        ("none", rate, [], b"a;b 5\n", None, 50000000),
        ("pprof", "&format=pprof&spyName=gospy", [f"Content-Type: {OCTETS}"], cpu, None, 30000000),
        ("zipped", "&format=pprof&spyName=gospy", [f"Content-Type: {OCTETS}"], gzip.compress(cpu),
         None, 30000000),
        # multipart pprof has no format
        ("multi", "&spyName=gospy", [f"Content-Type: {MULTIPART}"], parts(profile=cpu), None,
         30000000),
        # old Go agents send what they sent before: the difference counts
        ("prev", "&spyName=gospy", [f"Content-Type: {MULTIPART}"],
         parts(profile=heap, prev_profile=before, sample_type_config=config), HEAP, 300),
        # Credentials for a gateway have no effect here.
        ("bearer", rate, ["Authorization: Bearer some-token", f"Content-Type: {OCTETS}"],
         b"a 1\n", None, 10000000),
        ("basic", rate, ["authorization: Basic dXNlcjpwYXNz", f"Content-Type: {OCTETS}"],
         b"a 2\n", None, 20000000),
        ("tenant", rate, ["X-Scope-OrgID: shop", f"Content-Type: {OCTETS}"], b"a 3\n", None,
         30000000),
        # a proxy repeats the header
        ("twice", "&format=groups" + rate, [f"Content-Type: {OCTETS}", f"Content-Type: {OCTETS}"],
         b"a 4\n", None, 40000000),
    ]


def test_every_request():
    now = int(time.time())
    with cluster.AllInOne() as server:
        port = server.process.port
        for where, path in (("plain", "/ingest"), ("prefix", "/pyroscope/ingest")):
            for chunked in (False, True):
                for name, query, lines, body, type_id, want in rows():
                    service = f"{name}-{where}-{chunked}"
                    # the name is canonical and has the tags of the target; times are in seconds
                    kind = "" if "gospy" in query else ".cpu"
                    target = (f"{path}?name={service}{kind}%7Benv%3Dprod%7D&from={now - 10}"
                              f"&until={now}{query}")
                    status, answer = raw_post(port, target, lines, body, chunked)
                    assert (status, answer) == (200, b""), (service, status, answer)
                    got = total(server, service, type_id or cluster.CPU_TYPE)
                    assert got == want, (service, got, want)


def test_jfr_in_multipart():
    """format=jfr with the Content-Type of the agent's multipart body."""
    files = [f for f in sorted((golden.DATA / "jfr").glob("*.jfr*")) if f.stat().st_size < 4 << 20]
    if not files:
        print("SKIPPED: test_jfr_in_multipart: no recordings in the test data")
        return
    body = golden.plain(files[0].read_bytes())
    now = int(time.time())
    with cluster.AllInOne() as server:
        status, answer = raw_post(
            server.process.port,
            f"/ingest?name=jfr%7Ba%3Db%7D&from={now - 10}&until={now}&format=jfr&spyName=javaspy",
            [f"Content-Type: {MULTIPART}"], parts(jfr=gzip.compress(body)))
        assert (status, answer) == (200, b""), (files[0], status, answer)
        r = server.connect("LabelValues", {"name": "service_name", **server.range_ms()})
        assert "jfr" in r.json().get("names", []), (files[0], r)


def test_what_is_wrong_is_400():
    with cluster.AllInOne() as server:
        now = int(time.time())
        for query, lines, body in (
                ("name=app&format=pprof", [f"Content-Type: {OCTETS}"], b"no pprof at all"),
                ("name=app&format=jfr", [f"Content-Type: {MULTIPART}"], parts(jfr=b"none")),
                ("name=app", [f"Content-Type: {MULTIPART}"], b"no parts"),
                ("name=app%7B%3D%7D", [], b"a 1\n"),
                ("name=", [], b"a 1\n"),
                ("name=app&format=trie", [f"Content-Type: {OCTETS}"], b"\xff\xff\xff\xff")):
            for path in ("/ingest", "/pyroscope/ingest"):
                status, answer = raw_post(
                    server.process.port, f"{path}?{query}&from={now - 10}&until={now}", lines, body)
                assert status == 400, (query, status, answer)


def test_tenants():
    """With many tenants old servers, which send no tenant, need a gateway: 401 says so."""
    with cluster.AllInOne("--tenancy.multi") as server:
        port, one = server.process.port, {"X-Scope-OrgID": "one"}
        status, answer = raw_post(port, "/ingest?name=app.cpu", ["Authorization: Bearer x"], b"a 1\n")
        assert status == 401 and b"no org id" in answer, (status, answer)
        status, answer = raw_post(port, "/ingest?name=app.cpu", ["X-Scope-OrgID: one"], b"a 1\n")
        assert status == 200, (status, answer)
        assert total(server, "app", headers=one) == 10000000
        assert total(server, "app", headers={"X-Scope-OrgID": "two"}) == 0



def test_tenants_by_token():
    """The same where a file says whose token that is; the header, where there is one, goes first."""
    text = """
tokens: {"tok-1": one}
users: {alloy: {password: "pass:word", tenant: two}}
"""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write(text)
        f.flush()
        with cluster.AllInOne("--tenancy.multi", f"--distributor.tokens-file={f.name}") as server:
            port = server.process.port
            user = base64.b64encode(b"alloy:pass:word").decode()
            for n, (line, want) in enumerate((
                    ("Authorization: Bearer tok-1", "one"), (f"authorization: basic {user}", "two"),
                    ("Authorization: Bearer tok-2", None), (f"Authorization: Bearer {user}", None),
                    ("Authorization: Basic tok-1", None), ("Authorization: Bearer tok-", None),
                    ("Authorization: Bearer tok-1\r\nX-Scope-OrgID: three", "three"))):
                status, answer = raw_post(port, f"/ingest?name=app{n}.cpu", [line], b"a 1\n")
                assert status == (200 if want else 401), (line, status, answer)
                for tenant in ("one", "two", "three"):
                    got = total(server, f"app{n}", headers={"X-Scope-OrgID": tenant})
                    assert got == (10000000 if tenant == want else 0), (line, tenant, got)
            r = push.push_proto(server.process, push.request((
                {"__name__": "process_cpu", "service_name": "rpc"}, [(push.pprof(5), "i")])),
                {"Authorization": "Bearer tok-1"})
            assert r.status == 200, r
            assert total(server, "rpc", headers={"X-Scope-OrgID": "one"}) == 5


cluster.main([test_every_request, test_jfr_in_multipart, test_what_is_wrong_is_400, test_tenants,
              test_tenants_by_token])
