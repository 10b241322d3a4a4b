"""`make run`: starts, says where it is, and ends with everything it started, by whatever signal."""
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)


def processes_with(text):
    """Ids of processes whose command line holds the text."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def hear_signals():
    """A shell cannot trap what was ignored when it began: nohup and `&` leave that behind."""
    for sig in (signal.SIGHUP, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)


class Run:
    """deploy/run as `make run` starts it, below a make of its own or directly."""

    def __init__(self, below_make, demo):
        self.folder = tempfile.TemporaryDirectory(prefix="embertree-test-run-")
        self.below_make, self.demo, self.port = below_make, demo, cluster.free_port()
        self.out = pathlib.Path(self.folder.name) / "out"

    def __enter__(self):
        data = pathlib.Path(self.folder.name) / "data"
        command = ["deploy/run"]
        if self.below_make:
            makefile = pathlib.Path(self.folder.name) / "Makefile"
            makefile.write_text("run:\n\t@O=%s deploy/run\n" % shlex.quote(str(cluster.BIN.parent)))
            command = ["make", "-f", str(makefile), "run"]
        env = dict(os.environ, O=str(cluster.BIN.parent), PORT=str(self.port), DATA=str(data),
                   DEMO=str(int(self.demo)), SELF="0")
        env.pop("MAKEFLAGS", None)
        with open(self.out, "wb") as out:
            self.child = subprocess.Popen(command, cwd=cluster.ROOT, env=env, stdout=out,
                                          stderr=out, stdin=subprocess.DEVNULL,
                                          start_new_session=True, preexec_fn=hear_signals)
        until = time.monotonic() + 90
        while "Embertree is running" not in self.out.read_text(errors="replace"):
            assert self.child.poll() is None and time.monotonic() < until, self.out.read_text()
            time.sleep(0.05)
        return self

    def get(self, path, body=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", body, 10) as r:
            return r.read().decode()

    def left(self):
        """What still runs, after it had some time to end."""
        until = time.monotonic() + 90
        while time.monotonic() < until:
            left = processes_with(self.folder.name) + processes_with(f"localhost:{self.port}")
            if not left:
                return []
            time.sleep(0.05)
        return left

    def __exit__(self, kind, *_):
        if kind:
            print(self.out.read_text(errors="replace"))
        for pid in processes_with(self.folder.name) + processes_with(f"localhost:{self.port}"):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self.child.kill()
        self.child.wait()
        self.folder.cleanup()


def check_end(below_make, sig, demo=False):
    with Run(below_make, demo) as run:
        began = time.monotonic()
        run.child.send_signal(sig)
        run.child.wait(90)
        left = run.left()
        what = f"{'make' if below_make else 'the script'} and {signal.Signals(sig).name}"
        assert not left, f"after {what}: {left}"
        print(f"     {what}: {time.monotonic() - began:.1f} s", flush=True)


def test_script_ends_everything():
    for sig in SIGNALS:
        check_end(False, sig, demo=sig == signal.SIGTERM)


def test_make_ends_everything():
    for sig in SIGNALS:
        check_end(True, sig, demo=sig == signal.SIGKILL)


def test_what_it_prints_works():
    """The two commands it shows, typed by a user."""
    with Run(False, False) as run:
        text = run.out.read_text()
        push = text.partition("push a profile:")[2].partition("ask for it:")[0]
        ask = text.partition("ask for it:")[2].partition("\n\n")[0]
        assert subprocess.run(["bash", "-c", push], capture_output=True, timeout=90).returncode == 0
        r = subprocess.run(["bash", "-c", ask], capture_output=True, timeout=90)
        assert r.returncode == 0 and '"idle"' in r.stdout.decode(), r
        run.child.send_signal(signal.SIGTERM)
        assert run.child.wait(90) == 0


def test_server_that_cannot_start():
    with Run(False, False) as first:
        env = dict(os.environ, O=str(cluster.BIN.parent), PORT=str(first.port),
                   DATA=first.folder.name + "/other", DEMO="0", SELF="0")
        r = subprocess.run(["deploy/run"], cwd=cluster.ROOT, env=env, capture_output=True,
                           timeout=90)
        # The port answers /readyz, but another process has it.
        assert r.returncode != 0 and b"in use" in r.stderr, r
        assert b"is running" not in r.stdout, r
        first.child.send_signal(signal.SIGTERM)
        assert first.child.wait(90) == 0


if __name__ == "__main__":
    cluster.main([test_script_ends_everything, test_make_ends_everything,
                  test_what_it_prints_works, test_server_that_cannot_start])
