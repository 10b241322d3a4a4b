"""The systemd units: what `make install` installs is what systemd understands and calls well confined;
the processes speak its readiness protocol."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

UNITS = ("embertree.service", "embertree@.service")
ROLES = ("distributor", "ingester", "querier", "compactor")
EXPOSURE_MAX = 20  # of 100, by systemd-analyze; "OK" ends at 50


def install(folder, prefix, *more):
    r = subprocess.run(["make", "-o", "all", "install", f"DESTDIR={folder}", f"PREFIX={prefix}",
                        f"O={os.path.relpath(cluster.BIN.parent, cluster.ROOT)}", *more],
                       cwd=cluster.ROOT, capture_output=True, text=True,
                       env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))})
    assert r.returncode == 0, r.stdout[-500:] + r.stderr[-2000:]
    return pathlib.Path(folder)


def test_install():
    """Binaries where the units look for them; configuration that is there stays as it is."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        root = install(folder, "/usr/local")
        for unit in UNITS:
            text = (root / "usr/local/lib/systemd/system" / unit).read_text()
            command = re.search(r"^ExecStart=(\S+) --config=(\S+)$", text, re.M)
            for role in ROLES if "@" in unit else ("",):
                binary, config = (c.replace("%i", role) for c in command.groups())
                r = subprocess.run([root / binary[1:], f"--config={root / config[1:]}", "--print-config"],
                                   capture_output=True, text=True)
                assert r.returncode == 0 and "listen" in r.stdout, (binary, r.stderr)
            document = re.search(r"^Documentation=file:(\S+)$", text, re.M)[1]
            assert (root / document[1:]).exists(), document
        mine = root / "etc/embertree/querier.yaml"
        mine.write_text("http: {listen: '127.0.0.1:1'}\n")
        install(folder, "/usr/local")
        assert mine.read_text() == "http: {listen: '127.0.0.1:1'}\n"


def test_units():
    if not shutil.which("systemd-analyze"):
        print("SKIPPED: systemd-analyze is not installed", flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        root = install(folder, "/usr")
        for unit in UNITS:
            name = unit.replace("@", "@ingester")
            there = root / "usr/lib/systemd/system" / unit
            path = there.with_name(name)
            # It looks for the binaries in place.
            path.write_text(there.read_text().replace("/usr/bin/", f"{root}/usr/bin/").replace(
                "file:/usr/share", f"file:{root}/usr/share"))
            r = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path],
                               capture_output=True, text=True)
            assert r.returncode == 0 and not r.stderr.strip(), r
            r = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                                f"--threshold={EXPOSURE_MAX}", path], capture_output=True, text=True)
            level = re.search(r"exposure level for \S+: ([\d.]+)", r.stdout + r.stderr)
            assert r.returncode == 0, (level and level[0], r.stderr[-300:])
            print(f"     {name}: exposure {level[1]} of 10", flush=True)
        # The two say the same but for whom they start and what memory that gets.
        one, other = ({line for line in (cluster.ROOT / "deploy/systemd" / u).read_text().splitlines()
                       if not line.startswith("#")} for u in UNITS)
        differ = {line.partition("=")[0] for line in one ^ other}
        assert differ == {"Description", "ExecStart", "MemoryMax"}, differ


class Manager:
    """The socket a service manager listens on."""

    def __init__(self, folder, abstract):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = f"{folder}/notify"
        self.socket.bind("\0" + path if abstract else path)
        self.name = ("@" if abstract else "") + path
        self.heard = []

    def until(self, text, limit_s=90):
        self.socket.settimeout(limit_s)
        while not any(text in line for line in self.heard):
            self.heard += self.socket.recv(4096).decode().splitlines()


def check_words(abstract, watchdog):
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        manager = Manager(folder, abstract)
        env = dict(os.environ, NOTIFY_SOCKET=manager.name)
        env |= {"WATCHDOG_USEC": "2000000"} if watchdog else {}
        port = cluster.free_port()
        child = subprocess.Popen([cluster.BIN / "embertree", f"--http.listen=127.0.0.1:{port}",
                                  f"--data.dir={folder}/data", "--no-selfprof.enabled"], env=env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            manager.until("READY=1")
            assert manager.heard[0] == "READY=1", manager.heard
            with socket.create_connection(("127.0.0.1", port), 5):
                pass
            manager.until("STATUS=ready")
            if watchdog:
                manager.until("WATCHDOG=1")
                manager.heard = [h for h in manager.heard if h != "WATCHDOG=1"]
                manager.until("WATCHDOG=1")  # again
            else:
                time.sleep(1.2)
            child.send_signal(signal.SIGTERM)
            manager.until("STOPPING=1")
            assert child.wait(90) == 0
            assert watchdog or "WATCHDOG=1" not in manager.heard, manager.heard
        finally:
            child.kill()
            child.wait()


def test_what_the_manager_hears():
    check_words(abstract=False, watchdog=False)
    check_words(abstract=True, watchdog=True)


def test_no_manager():
    """A socket that is not there, or no socket: the server serves."""
    for name in ("/no/such/socket", "@", "relative", "x" * 300):
        os.environ["NOTIFY_SOCKET"] = name
        try:
            with cluster.AllInOne("--no-selfprof.enabled") as server:
                assert server.process.stop() == 0, name
        finally:
            del os.environ["NOTIFY_SOCKET"]


if __name__ == "__main__":
    cluster.main([test_install, test_units, test_what_the_manager_hears, test_no_manager])
