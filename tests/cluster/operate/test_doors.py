"""Which requests are admitted, over the list of all routes (common/role/core/doors.c): by which name the
server is called, and for which page a browser sends a request. What these tests do is what a browser
does after DNS rebinding, or for a page of another site; no browser is run.
"""
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

TABLE = cluster.ROOT / "common" / "role" / "core" / "doors.c"
MINE = "https://app.example.com"
TOKEN = "a-token-of-twenty-bytes"


def routes():
    """Rows of the table: method, path, does it act, what it needs."""
    text = TABLE.read_text()
    words = dict(re.findall(r'#define (\w+) +"([^"]*)"', text))
    for method, path, acts, needs in re.findall(r"\{ HTTP_(\w+), ([^,]+), (ASKS|ACTS), (\w+)", text):
        for word, value in words.items():
            path = re.sub(rf"\b{word}\b", f'"{value}"', path)
        yield method, "".join(re.findall(r'"([^"]*)"', path)).replace("*", "zz"), acts == "ACTS", needs


def send(server, method, path, **headers):
    return server.process.request(method, path, b"" if method != "GET" else None, headers)


def test_names():
    """A server on loopback is called by local names; a request by another name gets a text that says what to do."""
    with cluster.AllInOne(*("--http.hosts=profiles.example.com,*.apps.example.com",)) as server:
        server.ingest(b"a;b 1\n", name="a.cpu")
        port = server.process.port
        render = "/render?query=a.cpu&from=now-1h&until=now&format=collapsed"
        for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost.",
                     "profiles.example.com", "x.apps.example.com:443"):
            reply = send(server, "GET", render, Host=host)
            assert reply.status == 200 and b"a;b" in reply.body, (host, reply)
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1", "apps.example.com"):
            reply = send(server, "GET", render, Host=host)
            assert reply.status == 421 and b"http.hosts" in reply.body and b"a;b" not in reply.body, (host, reply)
        evil = f"evil.example:{port}"
        rebound = {"Host": evil, "Origin": f"http://{evil}", "Sec-Fetch-Site": "same-origin"}
        reply = send(server, "POST", "/api/v1/delete?all=1&confirm=anonymous", **rebound)
        assert reply.status == 421, reply
        assert server.reader.get("/api/apps").json(), "deleted"
        assert server.process.metric("embertree_http_refused_total", reason="host") == 6


def test_every_route():
    """No route answers to a name of others, none that acts to a page of others."""
    with cluster.AllInOne(f"--http.origins={MINE}") as server:
        rows = list(routes())
        assert len(rows) > 90 and sum(acts for *_, acts, _ in rows) > 30, len(rows)
        for method, path, acts, _ in rows:
            assert send(server, method, path, Host="evil.example").status == 421, path
            for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
                            {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"}):
                if method != "GET" or acts:
                    headers["Content-Type"] = "text/plain"
                    reply = send(server, method, path, **headers)
                    assert (reply.status == 403) == acts, (method, path, headers, reply)
        body = b"a;b 1\n"
        for origin, status in ((MINE, 200), (f"http://127.0.0.1:{server.process.port}", 200),
                               ("http://127.0.0.1:3000", 403)):
            reply = server.process.request("POST", "/ingest?name=a.cpu&from=now-60s&until=now-50s", body,
                                           {"Origin": origin, "Content-Type": "text/plain"})
            assert reply.status == status, (origin, reply)
            assert reply.headers.get("Access-Control-Allow-Origin") == (MINE if origin == MINE else None), reply.headers
        ask = {"Origin": MINE, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        reply = server.process.request("OPTIONS", "/v1development/profiles", None, ask)
        assert reply.status == 204 and reply.headers["Access-Control-Allow-Headers"] == "content-type", reply.headers
        reply = server.process.request("OPTIONS", "/querier.v1.QuerierService/ProfileTypes", None, ask)
        assert "Access-Control-Allow-Origin" not in reply.headers, reply.headers


def test_token():
    """With a file of tokens: what tells of all tenants, deletes or changes the cluster wants one of them."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-doors-"))
    (folder / "admin").write_text(TOKEN + "\n")
    (folder / "admin").chmod(0o600)
    (folder / "forward.yaml").write_text("targets:\n  other: {url: http://127.0.0.1:9}\n")
    options = [f"--http.admin-token-file={folder / 'admin'}", f"--distributor.forward-config-file={folder / 'forward.yaml'}"]
    good, wrong = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {TOKEN}x"}
    with cluster.AllInOne("--tenancy.multi", *options) as server:
        alice = {"X-Scope-OrgID": "alice"}
        server.process.request("POST", "/ingest?name=a.cpu&from=now-60s&until=now-50s", b"a;b 1\n", alice)
        for method, path, _, needs in routes():
            for proof in ({}, wrong, {"Authorization": "Basic " + TOKEN}, alice):
                reply = send(server, method, path, **proof)
                assert (reply.status == 401 and b"admin_token_file" in reply.body) == (needs in ("TOKEN", "OPERATOR")), (
                    method, path, proof, reply)
            if needs in ("TOKEN", "OPERATOR") and path != "/debug/pprof/profile":
                assert send(server, method, path, **alice, **good).status != 401, path
        assert send(server, "GET", "/runtime_config").status == 401
        everything = "/api/v1/delete?all=1&confirm=alice"
        assert send(server, "POST", everything, **alice).status == 401
        assert send(server, "GET", "/api/apps", **alice).json(), "deleted"
        assert send(server, "GET", "/metrics").status == 200
        assert send(server, "POST", everything, **alice, **good).status == 200
        assert not send(server, "GET", "/api/apps", **alice).json()
    with cluster.AllInOne("--http.metrics-token", *options) as server:
        assert send(server, "GET", "/metrics").status == 401 and send(server, "GET", "/metrics", **good).status == 200
    shutil.rmtree(folder)


def test_socket():
    """The operator's way without a token: a socket of the server's user, gone with the server."""
    long = pathlib.Path(tempfile.mkdtemp(prefix="embertree-doors-")) / ("x" * 120)
    with cluster.AllInOne() as server:
        path = server.process.folder / "data" / "admin.sock"
        assert stat.S_ISSOCK(path.lstat().st_mode) and path.lstat().st_mode & 0o777 == 0o600, path
        for method, route, _, needs in routes():
            if needs == "OPERATOR":
                reply = send(server, method, route)
                assert reply.status == 403 and str(path).encode() in reply.body, (route, reply)
                assert reply.headers["X-Embertree-Admin-Socket"] == str(path)
                assert server.process.operate(route).status not in (401, 403), route
        accept = ["ledger", "accept", "--who", "ann", "--reason", "burnt"]
        for url in (f"http://127.0.0.1:{server.process.port}", f"unix:{path}"):
            done = subprocess.run([cluster.BIN / "embertreectl", *accept, "--server", url], capture_output=True, text=True)
            assert done.returncode == 0 and "Nothing differs" in done.stdout, (url, done)
        done = subprocess.run([cluster.BIN / "embertreectl", *accept, "--server", f"http://127.0.0.1:{server.process.port}",
                               "--token", "wrong-token-of-ours"], capture_output=True, text=True)
        assert done.returncode == 2 and "403" in done.stderr, done  # a token that was given is not put aside
        server.process.kill()
        assert path.exists()
        server.process.start()  # what the killed one left is replaced
        assert server.process.operate("/healthz", method="GET").status == 200
        server.process.stop()
        assert not path.exists()
    process = cluster.Process("embertree", folder=long)
    try:
        process.start()
        done = subprocess.run([cluster.BIN / "embertreectl", *accept, "--server", f"http://127.0.0.1:{process.port}"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done
    finally:
        process.stop()
        shutil.rmtree(long.parent)


def test_write_id_secret_file():
    """The secret of write ids is in no list of processes, and two servers with its file make the same ids."""
    secret = "a-secret-of-the-write-ids-of-all"
    with tempfile.TemporaryDirectory(prefix="embertree-doors-") as folder:
        path = pathlib.Path(folder) / "secret"
        path.write_text(secret + "\n")
        path.chmod(0o600)
        option = f"--distributor.write-id-secret-file={path}"
        with cluster.AllInOne(option) as server:
            shown = pathlib.Path(f"/proc/{server.process.child.pid}/cmdline").read_bytes()
            assert str(path).encode() in shown and secret.encode() not in shown, shown
            assert not (server.process.folder / "data" / "write-id-secret").exists()
            assert secret.encode() not in server.process.get("/config").body
        for text, mode, want in ((secret, 0o644, "chmod"), ("short", 0o600, "characters")):
            path.write_text(text)
            path.chmod(mode)
            done = subprocess.run([cluster.BIN / "embertree", f"--data.dir={folder}/d", "--http.listen=127.0.0.1:0", option],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 1 and want in done.stderr, (want, done)
        path.unlink()
        done = subprocess.run([cluster.BIN / "embertree", f"--data.dir={folder}/d", "--http.listen=127.0.0.1:0", option],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "write_id_secret_file" in done.stderr, done


def raw(server, *headers):
    """http.client joins equal names."""
    with socket.create_connection(("127.0.0.1", server.process.port), 10) as s:
        s.sendall("\r\n".join(["GET /api/apps HTTP/1.1", "Host: localhost", "Connection: close", *headers, "",
                               ""]).encode())
        return b"".join(iter(lambda: s.recv(65536), b""))


def test_one_tenant():
    """Of two names neither wins: a gateway in front may have checked either."""
    with cluster.AllInOne("--tenancy.multi") as server:
        server.process.request("POST", "/ingest?name=a.cpu&from=now-60s&until=now-50s", b"a;b 1\n",
                               {"X-Scope-OrgID": "alice"})
        for two in (("alice", "bob"), ("bob", "alice"), ("alice", "alice"), ("", "alice"), ("alice", "")):
            reply = raw(server, *[f"X-Scope-OrgID: {t}" for t in two])
            assert reply.startswith(b"HTTP/1.1 400 ") and b"more than one X-Scope-OrgID" in reply, (two, reply)
        assert b"HTTP/1.1 200 " in raw(server, "X-Scope-OrgID: alice")
        assert b"HTTP/1.1 200 " in raw(server, "X-Scope-OrgID: alice|bob")
        flags = ["curl", "-s", "--http2-prior-knowledge", f"http://127.0.0.1:{server.process.port}/api/apps", "-H",
                 "X-Scope-OrgID: alice", "-H", "X-Scope-OrgID: bob"]
        said = subprocess.run(flags, capture_output=True, text=True, check=True).stdout
        assert "more than one X-Scope-OrgID" in said, said
    with cluster.AllInOne("--tenancy.multi", "--tenancy.strict") as server:
        for header in ("alice|bob", "alice:x"):
            reply = raw(server, f"X-Scope-OrgID: {header}")
            assert reply.startswith(b"HTTP/1.1 400 ") and b"tenancy.strict" in reply, reply
        assert b"HTTP/1.1 200 " in raw(server, "X-Scope-OrgID: alice")


if __name__ == "__main__":
    cluster.main([test_names, test_every_route, test_token, test_socket, test_write_id_secret_file, test_one_tenant])
