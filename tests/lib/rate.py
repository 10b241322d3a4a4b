"""What benchmarks of the whole server share: pushing at full rate, CPU by thread, gunzip beside it."""
import collections
import contextlib
import itertools
import os
import pathlib
import selectors
import socket
import subprocess
import time
import urllib.parse

import cluster
import golden

STAGES = ("loop", "pool", "shard", "commit", "other")
TOOLS = cluster.ROOT / os.environ.get("O", "build/release") / "tests" / "lib" / "tools"


def ingest_path(name, form):
    return "/ingest?" + urllib.parse.urlencode({"name": name, "format": form, "from": "now-10s",
                                                "until": "now"})


class Pusher:
    """Keep-alive connections with one push on its way on each. `body`: bytes, or a list of them that
    are sent in turn."""

    def __init__(self, port, path, body, headers, connections):
        # Every push counts: without a key of its own a body that carries its time is a duplicate.
        more = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
        bodies = body if isinstance(body, list) else [body]
        self.turn = itertools.cycle([
            ((f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{more}"
              f"Content-Length: {len(b)}\r\nIdempotency-Key: ").encode(), b) for b in bodies])
        self.ready = selectors.EpollSelector()
        self.sent = {}
        for _ in range(connections):
            c = socket.create_connection(("127.0.0.1", port))
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.ready.register(c, selectors.EVENT_READ)
            self.sent[c] = 0

    def send(self, c):
        self.sent[c] = time.perf_counter()
        head, body = next(self.turn)
        c.sendall(head + os.urandom(16).hex().encode() + b"\r\n\r\n" + body)

    def run(self, seconds):
        """Seconds that each push took to its ack."""
        took, until = [], time.monotonic() + seconds
        for c in self.sent:
            self.send(c)
        waiting = len(self.sent)
        while waiting:
            for key, _ in self.ready.select():
                c = key.fileobj
                reply = c.recv(65536)
                took.append(time.perf_counter() - self.sent[c])
                if not reply.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(reply)
                if time.monotonic() < until:
                    self.send(c)
                else:
                    waiting -= 1
        return took

    def close(self):
        for c in self.sent:
            c.close()
        self.ready.close()


def thread_us(process):
    """CPU so far by name of thread: loop, pool, shard, commit; other is RocksDB in the background."""
    out = collections.Counter()
    for task in pathlib.Path(f"/proc/{process.child.pid}/task").iterdir():
        name = (task / "comm").read_text().strip().partition("-")[0]
        name = {process.binary: "loop"}.get(name, name)
        out[name if name in STAGES else "other"] += (
            int((task / "schedstat").read_text().split()[0]) / 1000)
    return out


@contextlib.contextmanager
def own_core(process):
    """All threads of a process on one processor, and we, its clients, on the others. Does nothing
    where there is only one: yields whether it did."""
    all_of_us = os.sched_getaffinity(0)
    one = {max(all_of_us)}
    many = len(all_of_us) > 1
    if many:
        confine(process, one)
        os.sched_setaffinity(0, all_of_us - one)
    try:
        yield many
    finally:
        if many:
            os.sched_setaffinity(0, all_of_us)
            confine(process, all_of_us)


def confine(process, cpus):
    for task in pathlib.Path(f"/proc/{process.child.pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cpus)


def gunzip_us(files):
    out = subprocess.run([TOOLS / "tool_gunzip", *[golden.DATA / f for f in files]],
                         capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {f: (int(row[1]), float(row[3]), float(row[4])) for f, row in zip(files, rows)}
