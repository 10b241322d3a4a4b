"""Roles that prove who they are to each other: with cluster.key-file a process without the key, or
with another one, gets nothing and says why, keys rotate while pushes and queries run, and a key is
switched on in a running cluster."""
import contextlib
import os
import pathlib
import secrets
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

QUERY = cluster.CPU_TYPE + '{service_name="shop"}'
REASONS = ("unsealed", "key", "forged", "replayed", "ticket")


def write(path, *lines, mode=0o600):
    """All at once, as tools that hand out secrets do it."""
    fresh = path.with_suffix(".new")
    fresh.touch(mode)
    fresh.chmod(mode)
    fresh.write_text("".join(line + "\n" for line in lines))
    fresh.rename(path)


def key(name):
    return f"{name}: {secrets.token_hex(32)}"


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="embertree-keys-") as name:
        yield pathlib.Path(name)


def dropped(process, reason):
    return process.metric("embertree_rpc_dropped_total", reason=reason)


def total(server):
    r = server.render(QUERY)
    assert r.status == 200, r
    return r.json()["flamebearer"]["numTicks"]


def wait(what, condition, limit_s=90):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def said(process, *words):
    return any(all(w in line for w in words) for line in process.whole_log().splitlines())


def fast():
    return ["--cluster.heartbeat=100ms", "--cluster.dead-after=10s"]


def test_four_processes_with_a_key():
    with folder() as keys:
        write(keys / "k", key("one"))
        with cluster.FourProcesses(f"--cluster.key-file={keys / 'k'}", *fast()) as server:
            for _ in range(20):
                assert server.ingest(b"a;b 3\n", "shop.cpu").status == 200
            assert total(server) == 20 * 3 * 10_000_000
            for p in server.processes:
                assert said(p, "cluster keys", "one ("), p.tail()
                for reason in REASONS:
                    assert dropped(p, reason) == 0, (p.binary, reason)
            for role in ("distributor", "querier", "compactor", "ingester"):
                assert server.by_role[role].stop() == 0, role


def test_without_the_key_nothing_works_and_that_is_said():
    with folder() as keys:
        write(keys / "k", key("ours"))
        write(keys / "other", key("theirs"))
        options = [f"--cluster.key-file={keys / 'k'}", *fast()]
        with cluster.FourProcesses(*options) as server:
            assert server.ingest(b"a;b 3\n", "shop.cpu").status == 200
            ingester = server.by_role["ingester"]
            addr = next(o for o in ingester.options if o.startswith("--cluster.ingesters="))
            for own, reason, words in (
                    ([f"--cluster.key-file={keys / 'other'}"], "key", ["theirs ("]),
                    ([], "unsealed", ["never answered"])):
                before = dropped(ingester, reason)
                outsider = cluster.Process(
                    "embertree-querier", f"--querier.listen=tcp://127.0.0.1:{cluster.free_port()}",
                    addr, *own, *fast())
                try:
                    outsider.start(wait=False)
                    wait("the querier without the cluster's key serves http", lambda: alive(outsider))
                    wait("it knocked", lambda: dropped(ingester, reason) > before + 15)
                    want = [addr.split("=")[1], "is down", *words]
                    wait(f"{want} in /readyz", lambda: all(
                        word in outsider.get("/readyz").body.decode() for word in want))
                    assert outsider.get("/readyz").status == 503
                    api = cluster.Api()
                    api.reader = outsider
                    r = api.render(QUERY)
                    assert r.status in (503, 504) and b"flamebearer" not in r.body, r
                    # A whole labels query, too: not a byte of what is stored.
                    r = api.connect("LabelValues", {"name": "service_name", **api.range_ms()})
                    assert r.status >= 500 and b"shop" not in r.body, r
                finally:
                    outsider.cleanup()
            wait("the log", lambda: said(ingester, "level=warn",
                                         "refused frames of a peer without our cluster key"))
            lines = [l for l in ingester.whole_log().splitlines() if "refused frames" in l]
            assert len(lines) <= 5, lines  # some hundred frames
            for reason in ("header", "checksum", "magic", "short"):
                assert dropped(ingester, reason) == 0, reason
            assert total(server) == 3 * 10_000_000


def alive(process):
    with contextlib.suppress(OSError):
        return process.get("/healthz").status == 200
    return False


class Load:
    """Pushes and queries all the time; everything that is not 200 is kept."""

    def __init__(self, server):
        self.server, self.stop = server, threading.Event()
        self.acked, self.read, self.wrong = 0, 0, []
        self.threads = [threading.Thread(target=f) for f in (self.push, self.query)]

    def push(self):
        while not self.stop.is_set():
            r = self.server.ingest(b"a;b 1\n", "shop.cpu")
            if r.status == 200:
                self.acked += 1
            else:
                self.wrong.append(r)

    def query(self):
        while not self.stop.is_set():
            r = self.server.render(QUERY)
            if r.status == 200:
                self.read += 1
            else:
                self.wrong.append(r)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()


def test_keys_rotate_while_frames_flow():
    old, new = key("old"), key("new")
    with folder() as keys:
        # A file for each, as on machines of their own: they change one after the other.
        own = {}
        for role in ("ingester", "compactor", "querier", "distributor"):
            write(keys / role, old)
            own[role] = [f"--cluster.key-file={keys / role}"]
        with cluster.FourProcesses(*fast(), **own) as server:
            assert server.ingest(b"a;b 1\n", "shop.cpu").status == 200
            with Load(server) as load:
                for lines in ((old, new), (new, old), (new,)):
                    for role, process in server.by_role.items():
                        names = ", ".join(l.split(":")[0] + " (" for l in lines[:1])
                        count = process.whole_log().count("cluster keys read again")
                        write(keys / role, *lines)
                        wait(f"{role} reads {names}", lambda: process.whole_log().count(
                            "cluster keys read again") > count)
                    time.sleep(0.3)
                acked, read = load.acked, load.read
                wait("pushes and reads continue", lambda: load.acked > acked + 20 and load.read > read + 5)
            assert not load.wrong, load.wrong[:3]
            assert total(server) == (load.acked + 1) * 10_000_000
            for p in server.processes:
                for reason in REASONS:
                    assert dropped(p, reason) == 0, (p.binary, reason)
            # A file that cannot be used leaves the keys unchanged.
            write(keys / "ingester", key("open"), mode=0o644)
            ingester = server.by_role["ingester"]
            wait("a warning", lambda: said(ingester, "level=warn", "0644", "chmod 0600"))
            assert server.ingest(b"a;b 1\n", "shop.cpu").status == 200
            # Taking the key away from one takes the others away from it.
            write(keys / "querier", key("fresh"))
            querier = server.by_role["querier"]
            wait("it is cut off", lambda: querier.get("/readyz").status == 503)
            write(keys / "querier", new)
            wait("and back", lambda: querier.get("/readyz").status == 200)
            assert total(server) == (load.acked + 2) * 10_000_000


def test_a_running_cluster_gets_a_key():
    with folder() as keys:
        write(keys / "k", key("first"))
        with cluster.FourProcesses(*fast()) as server:
            acked = 0

            def push():
                nonlocal acked
                for _ in range(5):
                    r = server.ingest(b"a;b 1\n", "shop.cpu")
                    assert r.status == 200, r
                    acked += 1
                assert total(server) == acked * 10_000_000

            push()
            for step in ([f"--cluster.key-file={keys / 'k'}", "--cluster.key-optional=true"],
                         [f"--cluster.key-file={keys / 'k'}"]):
                for process in server.processes:
                    assert process.stop() == 0
                    process.options = tuple(o for o in process.options
                                            if "cluster.key" not in o) + tuple(step)
                    process.start()
                    for other in server.processes:
                        other.wait_ready()
                    push()
            wait("no process sends unsealed frames", lambda: quiet(server))


def quiet(server):
    before = [dropped(p, "unsealed") for p in server.processes]
    time.sleep(1)
    return before == [dropped(p, "unsealed") for p in server.processes]


def test_wrong_files_say_what_to_do():
    with folder() as keys:
        write(keys / "open", key("a"), mode=0o644)
        write(keys / "short", "a: 1234")
        for options, words in (
                ([f"--cluster.key-file={keys / 'none'}"], ["cluster.key_file", "none"]),
                ([f"--cluster.key-file={keys / 'open'}"], ["0644", "chmod 0600"]),
                ([f"--cluster.key-file={keys / 'short'}"], ["line 1", "openssl rand"]),
                (["--cluster.key-optional=true"], ["cluster.key_file"])):
            p = cluster.Process("embertree", *options)
            try:
                p.start(wait=False)
                assert p.child.wait(90) in (1, 2)
                for word in words:
                    assert word in p.tail(), (options, p.tail())
            finally:
                p.cleanup()


def test_a_key_opens_the_network():
    """Beyond loopback with a key and without --http.insecure-open; not with an optional one."""
    with folder() as keys:
        write(keys / "k", key("a"))
        port = cluster.free_port()
        for optional in (False, True):
            p = cluster.Process(
                "embertree-ingester", f"--ingester.listen=tcp://0.0.0.0:{port}",
                f"--ingester.advertise=tcp://127.0.0.1:{port}",
                f"--cluster.ingesters=tcp://127.0.0.1:{port}",
                f"--cluster.key-file={keys / 'k'}", *(["--cluster.key-optional"] * optional))
            try:
                if optional:
                    p.start(wait=False)
                    assert p.child.wait(90) in (1, 2)
                    assert "cluster.key-optional" in p.tail(), p.tail()
                else:
                    p.start()
                    assert p.stop() == 0
            finally:
                p.cleanup()


if __name__ == "__main__":
    cluster.main([test_four_processes_with_a_key,
                  test_without_the_key_nothing_works_and_that_is_said,
                  test_keys_rotate_while_frames_flow, test_a_running_cluster_gets_a_key,
                  test_wrong_files_say_what_to_do, test_a_key_opens_the_network])
