"""Which callers may change a server: without a file of tokens only those that come through its Unix socket, which
embertreectl finds by itself on the server's own machine; with it also those that show a token, from wherever. Two machines here are two network namespaces (tests/chaos/wire.py),
so that the server sees an address that is really not its own; without namespaces: skipped.
"""
import http.client
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "chaos"))
import cluster
import wire

PORT = 4040
TOKEN = "a-token-of-twenty-bytes"
CHANGES = ("/api/v1/ledger/accept?by=ann&reason=burnt", "/api/v1/cluster/nodes/a/drain",
           "/api/v1/cluster/rebalance", "/api/v1/cluster/recover")


class Server:
    """All roles, on the host "server", by all of its addresses."""

    def __init__(self, w, folder, *options):
        self.w, self.log = w, pathlib.Path(folder) / "log"
        with open(self.log, "wb") as out:
            self.child = subprocess.Popen(w.inside("server", [
                str(cluster.BIN / "embertree"), f"--http.listen=0.0.0.0:{PORT}",
                "--http.insecure-open", f"--data.dir={folder}/data", "--memory.limit=256MiB",
                "--no-selfprof.enabled", *options]), stdout=out, stderr=out)

    def __enter__(self):
        until = time.monotonic() + 90
        while True:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return self
            except OSError:
                pass
            assert self.child.poll() is None and time.monotonic() < until, self.log.read_text()
            time.sleep(0.1)

    def __exit__(self, kind, *_):
        self.child.terminate()
        self.child.wait(90)
        if kind:
            print(self.log.read_text()[-4000:], flush=True)

    def ask(self, method, path, **headers):
        """From the other machine: status and body."""
        c = http.client.HTTPConnection(self.w.ip["server"], PORT, timeout=10)
        try:
            c.request(method, path, b"" if method == "POST" else None, headers)
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def ctl(self, host, *args, at=None):
        """embertreectl on a host: exit code and what it said."""
        done = subprocess.run(self.w.inside(host, [
            str(cluster.BIN / "embertreectl"), *args, "--server",
            f"http://{at or self.w.ip['server']}:{PORT}"]), capture_output=True, text=True,
            timeout=60)
        return done.returncode, done.stdout + done.stderr


def test_without_tokens(w):
    accept = ("ledger", "accept", "--who", "ann", "--reason", "burnt")
    with tempfile.TemporaryDirectory() as folder, Server(w, folder) as s:
        for path in CHANGES:
            status, text = s.ask("POST", path)
            assert status == 403 and w.ip["client"] in text, (path, status, text)
            assert "own machine" in text and "http.admin_token_file" in text, (path, text)
            status, text = s.ask("POST", path, Authorization=f"Bearer {TOKEN}")
            assert status == 403, (path, status, text)  # there is no token that could be right
        assert s.ask("GET", "/api/v1/ledger")[0] == 200  # every caller may read
        for header in (None, "X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host"):  # as a proxy on the machine does
            flags = ["-H", f"{header}: 192.0.2.1"] if header else []
            said = subprocess.run(w.inside("server", ["curl", "-s", "-X", "POST", *flags,
                                                      f"http://127.0.0.1:{PORT}{CHANGES[0]}"]),
                                  capture_output=True, text=True, check=True).stdout
            assert "permission_denied" in said and "admin.sock" in said, (header, said)
        code, said = s.ctl("client", *accept)
        assert code != 0 and "own machine" in said and "--token-file" in said, (code, said)
        for at in (None, "127.0.0.1"):  # on the server, by either address
            code, said = s.ctl("server", *accept, at=at)
            assert code == 0 and "Nothing differs" in said, (at, code, said)
            code, said = s.ctl("server", "cluster", "rebalance", "--apply", at=at)
            assert code != 0 and "own machine" not in said, (at, code, said)  # nothing to move here


def test_with_tokens(w):
    accept = ("ledger", "accept", "--who", "ann", "--reason", "burnt")
    with tempfile.TemporaryDirectory() as folder:
        tokens, wrong = pathlib.Path(folder) / "tokens", pathlib.Path(folder) / "wrong"
        tokens.write_text(TOKEN + "\n")
        wrong.write_text(TOKEN[::-1] + "\n")
        with Server(w, folder, f"--http.admin-token-file={tokens}") as s:
            for path in CHANGES:
                status, text = s.ask("POST", path)
                assert status == 401 and "http.admin_token_file" in text, (path, status, text)
                status, text = s.ask("POST", path, Authorization=f"Bearer {TOKEN}")
                assert status not in (401, 403), (path, status, text)
            for host in ("client", "server"):
                code, said = s.ctl(host, *accept)  # the socket is on the server
                assert (code == 0) == (host == "server") and ("token" in said) != (host == "server"), (host, code, said)
                code, said = s.ctl(host, *accept, "--token-file", str(wrong))
                assert code != 0, (host, code, said)
                code, said = s.ctl(host, *accept, "--token-file", str(tokens))
                assert code == 0, (host, code, said)


def on(w, test):
    def run():
        test(w)
    run.__name__ = test.__name__
    return run


if __name__ == "__main__":
    wire.apart(__file__)
    world = wire.Wire({"server": "a"})
    try:
        cluster.main([on(world, test_without_tokens), on(world, test_with_tokens)])
    finally:
        world.close()
