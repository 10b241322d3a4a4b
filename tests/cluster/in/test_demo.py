"""The demo workload against a receiver of a few lines: its labels, its slow spot, and its ends."""
import collections
import contextlib
import http.server
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

DEMO = str(cluster.BIN / "embertree-demo")


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        url = urllib.parse.urlsplit(self.path)
        self.server.pushes.append((url.path, dict(urllib.parse.parse_qsl(url.query)), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def receiver():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.pushes = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def pids_of(url):
    """Processes of the demo that was started with this url."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes()
                if line.startswith(DEMO.encode()) and url.encode() in line:
                    found.append(int(entry.name))
    return found


def wait_until(true, what, limit_s=90):
    until = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def counted(pushes):
    """The names, and by version how many samples have which frame."""
    names, counts = set(), {"v1": collections.Counter(), "v2": collections.Counter()}
    for path, query, body in pushes:
        assert path == "/ingest" and query["sampleRate"] == "250", (path, query)
        assert int(query["from"]) <= int(query["until"])
        names.add(query["name"])
        version = "v1" if "version=v1" in query["name"] else "v2"
        for line in body.splitlines():
            stack, value = line.rsplit(" ", 1)
            for frame in set(stack.split(";")) | {"all"}:
                counts[version][frame] += int(value)
    return names, counts


def test_four_pods_in_two_versions_with_a_slow_spot():
    with receiver() as (server, url):
        for _ in range(20):  # a busy machine gives it little to be sampled
            done = subprocess.run([DEMO, "--url", url, "--seconds", "6"], timeout=180)
            assert done.returncode == 0
            names, counts = counted(server.pushes)
            if min(c["all"] for c in counts.values()) > 500:
                break
        assert names == {f"demo-shop.cpu{{version={v},region={r},pod={p}}}" for v, r, p in
                         [("v1", "eu-west", "shop-1"), ("v1", "us-east", "shop-2"),
                          ("v2", "eu-west", "shop-3"), ("v2", "us-east", "shop-4")]}, names
        for version, c in counts.items():
            assert c["all"] > 500, (version, c["all"])
            assert c["[broken stack]"] * 20 <= c["all"], (version, c)
            for frame in ("start_thread", "worker_run", "handle_request", "handle_search",
                          "order_checkout", "page_compress"):
                assert c[frame] > 0, (version, frame, c)
        share = {v: c["drop_duplicates"] / c["all"] for v, c in counts.items()}
        print("share of drop_duplicates:", share)
        assert share["v2"] > 1.5 * share["v1"], share


def test_ends_on_signals_and_takes_its_children_along():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with receiver() as (server, url):
            demo = subprocess.Popen([DEMO, url])
            wait_until(lambda: len(pids_of(url)) == 5, "five processes")
            time.sleep(0.3)
            demo.send_signal(number)
            assert demo.wait(timeout=90) == 0
            assert pids_of(url) == []


def test_ends_when_its_parent_is_killed():
    with receiver() as (server, url):
        parent = subprocess.Popen([sys.executable, "-c", "import subprocess, sys\n"
                                   f"subprocess.run([{DEMO!r}, {url!r}])"])
        wait_until(lambda: len(pids_of(url)) == 5, "five processes")
        parent.kill()
        parent.wait()
        wait_until(lambda: not pids_of(url), "the demo outlives its parent")


def test_children_end_when_the_demo_is_killed():
    with receiver() as (server, url):
        demo = subprocess.Popen([DEMO, url])
        wait_until(lambda: len(pids_of(url)) == 5, "five processes")
        demo.kill()
        demo.wait()
        wait_until(lambda: not pids_of(url), "children outlive the demo")


def test_a_server_that_is_gone_does_not_stop_it():
    url = f"http://127.0.0.1:{cluster.free_port()}"
    done = subprocess.run([DEMO, "--url=" + url, "--seconds=4"], timeout=180, capture_output=True)
    assert done.returncode == 0
    assert b"cannot push" in done.stderr and done.stderr.count(b"\n") < 60, done.stderr


def test_wrong_options_are_explained():
    for options in (["--nonsense"], ["--seconds", "x"], ["--seconds"], ["--url"],
                    ["--url", "http://example.org"], ["https://127.0.0.1:1"]):
        done = subprocess.run([DEMO, *options], timeout=90, capture_output=True)
        assert done.returncode == 2 and done.stderr, (options, done)
    done = subprocess.run([DEMO, "--help"], timeout=90, capture_output=True)
    assert done.returncode == 0 and b"Usage:" in done.stdout


if __name__ == "__main__":
    cluster.main([test_four_pods_in_two_versions_with_a_slow_spot,
                  test_ends_on_signals_and_takes_its_children_along,
                  test_ends_when_its_parent_is_killed,
                  test_children_end_when_the_demo_is_killed,
                  test_a_server_that_is_gone_does_not_stop_it,
                  test_wrong_options_are_explained])
