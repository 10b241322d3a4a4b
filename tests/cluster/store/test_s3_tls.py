"""A bucket behind TLS whose certificate a private CA signed: taken with the file of that CA; with
another CA, without any, past its time or under another name it is refused with a text that says
what to do, and nothing is sent. A server continues meanwhile, and uses the bucket again once the
certificate is renewed.

The S3 server of tests/s3 with Python's TLS in front. Needs Node, npm and openssl; else skipped.
"""
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import s3_server
from rate import TOOLS

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


def certificates(folder):
    """ca.pem, other-ca.pem; signed by the first one: good, expired and misnamed (another name)."""
    for ca in ("ca", "other-ca"):
        openssl("req", "-x509", *EC, "-days", "2", "-subj", f"/CN={ca} of the test",
                "-keyout", f"{ca}.key", "-out", f"{ca}.pem", cwd=folder)
    for i, (name, days, alt) in enumerate((("good", 2, "IP:127.0.0.1"), ("expired", -1, "IP:127.0.0.1"),
                                           ("misnamed", 2, "DNS:bucket.example"))):
        (folder / "ext").write_text(f"subjectAltName={alt}\n")
        openssl("req", *EC, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", "req.pem",
                cwd=folder)
        openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days",
                str(days), "-set_serial", str(i + 1), "-extfile", "ext", "-out", f"{name}.pem",
                cwd=folder)


class Front:
    """TLS in front of a port: what is inside is passed on as it is."""

    def __init__(self, folder, port):
        self.folder, self.behind = folder, port
        self.show("good")
        self.passed = 0  # bytes of requests
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def show(self, name):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        self.context = context

    def accept(self):
        while True:
            try:
                plain = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(plain,), daemon=True).start()

    def serve(self, plain):
        plain.settimeout(20)
        try:
            outside = self.context.wrap_socket(plain, server_side=True)
            inside = socket.create_connection(("127.0.0.1", self.behind), timeout=20)
        except OSError:
            plain.close()
            return
        back = threading.Thread(target=self.pump, args=(inside, outside), daemon=True)
        back.start()
        self.pump(outside, inside)
        back.join()
        outside.close()
        inside.close()

    def pump(self, a, b):
        try:
            while data := a.recv(65536):
                self.passed += len(data) if b.getpeername()[1] == self.behind else 0
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def main():
    for tool in ("node", "npm", "openssl"):
        if not shutil.which(tool):
            print(f"SKIPPED: test_s3_tls.py: there is no {tool}\n0 passed, 0 failed, 1 skipped")
            return
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as name:
        folder = pathlib.Path(name)
        try:
            server = s3_server.S3Server(folder / "s3")
        except s3_server.Missing as e:
            print(f"SKIPPED: test_s3_tls.py: {e}\n0 passed, 0 failed, 1 skipped")
            return
        certificates(folder)
        with server:
            run(folder, Front(folder, server.port))


def run(folder, front):
    def tool(*args, ca="ca", data=b""):
        env = {**os.environ, "S3_KEY": s3_server.KEY, "S3_SECRET": s3_server.SECRET}
        if ca:
            env["S3_CA"] = str(folder / f"{ca}.pem")
        done = subprocess.run([TOOLS / "tool_object", front.url, *args], input=data, env=env,
                              timeout=60, capture_output=True)
        return done.returncode, done.stdout, done.stderr.decode()

    def test_believed():
        front.show("good")
        assert tool("put", "a/1", data=b"0123456789")[0] == 0
        assert tool("get", "a/1", "2", "3")[:2] == (0, b"234")
        assert front.passed > 0

    def test_refused():
        for shown, ca, says in (
                ("good", "other-ca", "the file of CAs must contain the CA that signed it"),
                ("good", None, "a private CA must be named"),
                ("expired", "ca", "the server needs a new certificate, or this machine the right clock"),
                ("misnamed", "ca", "the address has to name the server as its certificate does"),
                ("good", "not-there", "not-there.pem")):
            front.show(shown)
            before = front.passed
            code, out, text = tool("size", "a/1", ca=ca)
            assert code == 1 and not out and says in text, (shown, ca, text)
            if says.startswith("the "):
                assert "certificate" in text, text
            assert s3_server.SECRET not in text, text
            assert front.passed == before, (shown, ca)
        front.show("good")
        assert tool("size", "a/1")[1].strip() == b"10"

    def test_a_server_goes_on():
        keys = folder / "keys"
        keys.write_text(f"{s3_server.KEY}\n{s3_server.SECRET}\n")
        front.show("expired")
        with cluster.AllInOne(f"--cold.url=s3://{s3_server.BUCKET}/tls", "--cold.s3-path-style",
                              f"--cold.s3-endpoint={front.url}", f"--cold.s3-credentials-file={keys}",
                              f"--cold.s3-ca-file={folder / 'ca.pem'}", "--cold.interval=1s",
                              "--cold.backup-interval=0s") as one:
            def cold():
                return one.process.get("/ring").json()["roles"]["ingester"]["cold"]

            def wait_until(what):
                until = time.monotonic() + 60
                while not what():
                    assert time.monotonic() < until, (cold(), one.process.tail())
                    time.sleep(0.1)

            wait_until(lambda: cold()["failing"])
            assert "needs a new certificate" in cold()["why"], cold()
            assert one.process.get("/readyz").status == 200
            assert one.ingest("main 5\n", "shop.cpu").status == 200
            front.show("good")
            wait_until(lambda: not cold()["failing"])

    cluster.main([test_believed, test_refused, test_a_server_goes_on])


if __name__ == "__main__":
    main()
