"""Real processes: all four roles in one and one each, from start to drain, and what they say when
something is missing or wrong."""
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

FOLDED = b"main;work;parse 30\nmain;work 12\nmain;idle 70\n"
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz
STACKS = {("main", "work", "parse"): 30, ("main", "work"): 12, ("main", "idle"): 70}


def selector(service):
    return cluster.CPU_TYPE + '{service_name="%s"}' % service


def in_ticks(stacks):
    assert not any(value % TICK for value in stacks.values()), stacks
    return {stack: value // TICK for stack, value in stacks.items()}


def rendered(server, service):
    r = server.render(selector(service))
    assert r.status == 200, r
    flame = r.json()["flamebearer"]
    stacks = cluster.leaves(flame)
    assert flame["numTicks"] == sum(stacks.values()), flame["numTicks"]
    return in_ticks(stacks)


def selected(server, service):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="%s"}' % service,
        "maxNodes": "100000", **server.range_ms()})
    assert r.status == 200, r
    return in_ticks(cluster.leaves(cluster.flamegraph(r.json())))


def round_trip(server, service="shop"):
    r = server.ingest(FOLDED, service + ".cpu{pod=a}")
    assert r.status == 200, r
    r = server.ingest(FOLDED, service + ".cpu{pod=b}")
    assert r.status == 200, r
    want = {stack: 2 * n for stack, n in STACKS.items()}
    assert rendered(server, service) == want, rendered(server, service)
    assert selected(server, service) == want, selected(server, service)


def test_all_in_one():
    with cluster.AllInOne() as server:
        round_trip(server)
        p = server.process
        assert p.get("/healthz").status == 200
        assert p.get("/ready").body == b"ready\n"
        ring = p.get("/ring").json()
        assert set(ring["roles"]) == {"distributor", "ingester", "querier", "compactor"}, ring
        assert ring["ready"] and ring["roles"]["ingester"]["shards"][0]["shard"] == 0, ring
        assert b"inproc://ingester" in p.get("/config").body
        assert p.metric("embertree_ingester_writes_total") == 2
        assert p.metric("embertree_process_resident_bytes") > 1e6
        assert p.metric("embertree_process_threads") > 4
        assert p.get("/no-such-page").status == 404
        assert p.stop() == 0


def test_four_processes():
    with cluster.FourProcesses() as server:
        round_trip(server)
        for role, process in server.by_role.items():
            assert set(process.get("/ring").json()["roles"]) == {role}
        assert server.by_role["ingester"].metric("embertree_ingester_writes_total") == 2
        # Callers first, as a rolling stop would do it.
        for role in ("distributor", "querier", "compactor", "ingester"):
            code = server.by_role[role].stop()
            assert code == 0, f"{role} ended with {code}"


def test_several_shards():
    services = [f"service-{i}" for i in range(12)]
    with cluster.AllInOne("--cluster.shards=4") as server:
        for i, service in enumerate(services):
            assert server.ingest(b"a;b %d\n" % (i + 1), service + ".cpu").status == 200
        for i, service in enumerate(services):
            assert rendered(server, service) == {("a", "b"): i + 1}
        r = server.connect("LabelValues", {"name": "service_name", **server.range_ms()})
        assert sorted(r.json()["names"]) == sorted(services), r
        used = [s for s in server.process.get("/ring").json()["roles"]["ingester"]["shards"]]
        assert [s["shard"] for s in used] == [0, 1, 2, 3], used


def test_restart_keeps_data():
    key = {"Idempotency-Key": "the-same-push"}
    with cluster.AllInOne() as server:
        round_trip(server)
        r = server.ingest(b"once 5\n", "keyed.cpu", key)
        assert r.status == 200, r
        before = rendered(server, "shop")
        for _ in range(3):
            assert server.process.stop() == 0
            server.process.start()
            assert rendered(server, "shop") == before
            # A retry that arrives after the restart is known, too.
            assert server.ingest(b"once 5\n", "keyed.cpu", key).status == 200
            assert rendered(server, "keyed") == {("once",): 5}


def test_drain_answers_what_it_took():
    """Pushes from many threads while SIGTERM arrives: all answers are 200, and what was answered
    is there after the restart."""
    acked, other, lock, stop = [], [], threading.Lock(), threading.Event()

    def push(thread):
        n = 0
        while not stop.is_set():
            n += 1
            name = f"t{thread}_{n}"
            try:
                r = server.ingest(f"{name} 3\n".encode(), "drain.cpu")
            except (OSError, http.client.HTTPException):
                return  # no answer: the listener is closed
            with lock:
                (acked if r.status == 200 else other).append((name, r))

    with cluster.AllInOne() as server:
        threads = [threading.Thread(target=push, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        until = time.monotonic() + 60
        while len(acked) < 100:
            assert time.monotonic() < until, len(acked)
            time.sleep(0.01)
        code = server.process.stop()
        stop.set()
        for t in threads:
            t.join()
        assert code == 0, code
        assert not other, other[:3]
        server.process.start()
        stacks = rendered(server, "drain")
        lost = [name for name, _ in acked if stacks.get((name,)) != 3]
        assert not lost, f"{len(lost)} of {len(acked)} acked pushes lost or doubled: {lost[:3]}"
        unacked = set(stacks) - {(name,) for name, _ in acked}
        assert len(unacked) <= len(threads), unacked  # at most one without an answer each
        assert all(stacks[s] == 3 for s in unacked), unacked


def takes_requests(process):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return process.get("/readyz").status == 200
    return False


def test_second_signal_ends_at_once():
    with cluster.AllInOne("--shutdown.deadline=5m", "--http.body-timeout=5m") as server:
        with socket.create_connection(("127.0.0.1", server.process.port)) as s:
            s.sendall(b"POST /ingest?name=a.cpu HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na")
            until = time.monotonic() + 60
            while server.process.metric("embertree_http_requests_in_flight") < 2:  # with this request
                assert time.monotonic() < until
            server.process.child.send_signal(signal.SIGTERM)
            while takes_requests(server.process):  # two that come at once are one
                assert time.monotonic() < until
            time.sleep(0.3)
            assert server.process.child.poll() is None, "it did not wait for the request"
            server.process.child.send_signal(signal.SIGTERM)
            assert server.process.child.wait(50) == 1


def test_missing_ingester():
    with cluster.FourProcesses("--cluster.heartbeat=100ms", "--cluster.dead-after=5s") as server:
        ingester = server.by_role["ingester"]
        address = next(o for o in ingester.options if o.startswith("--ingester.listen=")).split("=")[1]
        round_trip(server)
        ingester.kill()
        for role in ("distributor", "querier", "compactor"):
            process, until = server.by_role[role], time.monotonic() + 90
            while process.get("/readyz").status == 200 and time.monotonic() < until:
                time.sleep(0.05)
            r = process.get("/readyz")
            assert r.status == 503 and address in r.body.decode(), (role, r)
            assert r.headers["Retry-After"], role
            assert process.get("/healthz").status == 200, role
        r = server.ingest(FOLDED, "shop.cpu")
        assert r.status == 503 and r.headers["Retry-After"], r
        assert r.json()["code"] and r.json()["message"], r
        r = server.render(selector("shop"))
        assert r.status in (503, 504), r  # never a silent part of the answer
        ingester.start()
        for process in server.processes:
            process.wait_ready()
        assert rendered(server, "shop") == {stack: 2 * n for stack, n in STACKS.items()}
        round_trip(server, "again")


def refusal(binary, *options, yaml=None):
    """(exit code, what it says) of a start that has to fail."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        options = [f"--data.dir={folder}/data", f"--http.listen=127.0.0.1:{cluster.free_port()}",
                   *options]
        if yaml is not None:
            path = pathlib.Path(folder) / "test.yaml"
            path.write_text(yaml)
            options = ["--config", str(path), *options]
        r = subprocess.run([str(cluster.BIN / binary), *options], capture_output=True, timeout=90)
        return r.returncode, r.stderr.decode()


def test_wrong_configurations_say_what_to_do():
    cases = [
        ("embertree", [], "data:\n  dir: /tmp\nhttp:\n  lisetn: 1\n", ["line 4", "lisetn", "listen"]),
        ("embertree", [], "htpp:\n  listen: x\n", ["line 1", "htpp", "http"]),
        ("embertree", [], "http: [\n", ["line"]),
        ("embertree", ["--http.lisetn=1"], None, ["--http.lisetn", "--http.listen"]),
        ("embertree", ["--http.body-bytes-max=1"], None, ["http.body_bytes_max"]),
        ("embertree", ["--http.listen=0.0.0.0:0"], None, ["--http.insecure-open"]),
        ("embertree", ["--cluster.shards=9"], None, ["at most 8"]),
        ("embertree-ingester", [], None, ["tcp://"]),
        ("embertree-distributor", [], None, ["tcp://"]),
        ("embertree", ["--listen=:0"], None, ["--http.listen"]),
        ("embertree", [], "http.listen: x\n", ["line 1", '"http:"', '"  listen:"']),
        ("embertree-querier", ["--no-such=1"], None, ["--no-such"]),
        ("embertree-ingester", ["--ingester.listen=tcp://127.0.0.1:1",
                                "--cluster.ingesters=tcp://127.0.0.1:2"], None,
         ["cluster.ingesters"]),
    ]
    for binary, options, yaml, want in cases:
        code, text = refusal(binary, *options, yaml=yaml)
        assert code in (1, 2), (options, yaml, code, text)
        for part in want:
            assert part in text, f"{options} {yaml!r}: no {part!r} in {text!r}"


def test_unknown_command():
    for word, says in (("chek-overrides", 'did you mean "check-overrides"?'), ("serve", "--help lists them")):
        r = subprocess.run([str(cluster.BIN / "embertree"), word], capture_output=True, timeout=90)
        assert r.returncode == 2 and f'there is no command "{word}"' in r.stderr.decode(), r
        assert says in r.stderr.decode(), r


def check_config(*options):
    r = subprocess.run([str(cluster.BIN / "embertree"), "check-config", *map(str, options)], capture_output=True,
                       timeout=90)
    return r.returncode, r.stdout.decode() + r.stderr.decode()


def test_check_config():
    """Says of each file what a start would say, all at once; and nothing of those that are fine."""
    samples = cluster.ROOT / "deploy" / "config"
    for name in ("allinone", "ingester", "distributor", "querier", "compactor"):
        assert check_config("--config", samples / f"{name}.yaml") == (0, "fine; files read beside it: 0\n"), name
    files = [f"--distributor.overrides_file={samples}/overrides.yaml",
             f"--distributor.forward_config_file={samples}/forward.yaml"]
    code, text = check_config(*files)
    assert (code, text) == (0, "fine; files read beside it: 2\n"), text
    assert check_config("--help")[0] == 2
    code, text = check_config("--http.lisetn=1")
    assert code == 1 and "--http.listen" in text, text
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        wrong = pathlib.Path(folder)
        said = {}
        for option, yaml, says in (
                ("distributor.overrides_file", "defaults: {no_such: 1}\n", "no_such"),
                ("distributor.forward_config_file", "targets: {a: {uri: x}}\n", "uri"),
                ("distributor.scrape_config_file", "scrape_configs: [{job_nam: a}]\n", "job_nam"),
                ("distributor.tokens_file", 'tokens: {abc: "a b"}\n', "0x20"),
                ("querier.overrides_file", "defaults: {querys: 1}\n", "querys"),
                ("retention.overrides", "tenant=a 11s=2d\n", "11s"),
                ("cluster.key_file", "k1: short\n", "line 1"),
                ("http.admin_token_file", "short\n", "16"),
                ("http.tls_cert", "none\n", "need each other")):
            path = wrong / option
            path.write_text(yaml)
            path.chmod(0o600)
            said[f"--{option}={path}"] = says
            code, text = check_config(f"--{option}={path}")
            assert code == 1 and says in text and option in text and text.count("\n") == 1, text
            # A start says the same.
            assert refusal("embertree", f"--{option}={path}")[0] == 1, option
        code, text = check_config(*said, "--http.listen=0.0.0.0:1", f"--cluster.key_file={wrong}/none")
        assert code == 1 and text.count("\n") == len(said) + 1 and "--http.insecure-open" in text, text
        assert f"there is no file {wrong}/none" in text, text
        # A job may name a tenant only with tenancy.multi: a check that depends on another option.
        path.write_text("scrape_configs: [{job_name: a, tenant: b}]\n")
        code, text = check_config(f"--distributor.scrape_config_file={path}")
        assert code == 1 and "tenancy.multi" in text, text
        assert check_config(f"--distributor.scrape_config_file={path}", "--tenancy.multi")[0] == 0


def test_one_process_per_folder_and_port():
    with cluster.AllInOne() as server:
        code, text = refusal("embertree", f"--data.dir={server.process.folder / 'data'}")
        assert code == 1 and f"pid {server.process.child.pid}" in text, text
        code, text = refusal("embertree", f"--http.listen=127.0.0.1:{server.process.port}")
        assert code == 1 and "in use" in text, text


def test_version_help_and_configuration():
    for binary in ("embertree", "embertree-ingester", "embertree-querier", "embertree-distributor",
                   "embertree-compactor"):
        def run(*options):
            r = subprocess.run([str(cluster.BIN / binary), *options], capture_output=True,
                               timeout=90)
            assert r.returncode == 0, r
            return r.stdout.decode()
        assert run("--version").startswith(binary + " ")
        assert "--data.dir" in run("--help")
        assert "listen:" in run("--print-config")
        name = "allinone" if binary == "embertree" else binary.partition("-")[2]
        sample = cluster.ROOT / "deploy" / "config" / f"{name}.yaml"
        assert "listen:" in run("--config", str(sample), "--print-config")


def test_full_disk_is_refused_and_said():
    server = cluster.AllInOne("--data.disk-reserve=1000000GiB")  # more than there is
    try:
        server.process.start(wait=False)
        until, said = time.monotonic() + 60, ""
        while "disk reserve" not in said:
            assert time.monotonic() < until, said
            with contextlib.suppress(OSError):
                r = server.process.get("/readyz")
                assert r.status == 503, r
                said = r.body.decode()
        r = server.ingest(FOLDED, "shop.cpu")
        assert r.status == 503 and r.headers["Retry-After"] and b"disk reserve" in r.body, r
        assert server.render(selector("shop")).status == 200  # reads continue
        assert server.process.stop() == 0
    finally:
        server.process.cleanup()


def test_one_database_is_no_copy():
    """Data of a list of ingesters under etcd, or the other way round, would be lost: it says so."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        folder = pathlib.Path(folder)
        etcd = ("--cluster.coordination=etcd", "--cluster.etcd=http://127.0.0.1:1")
        with cluster.AllInOne(folder=folder) as server:
            assert server.ingest(FOLDED, "app.cpu").status == 200
            server.process.stop()
        for name, options, text in (("shard-0", etcd, "without copies"), ("log-0", (), "copies")):
            (folder / "data" / name).mkdir(exist_ok=True)
            done = subprocess.run(
                [cluster.BIN / "embertree", f"--http.listen=127.0.0.1:{cluster.free_port()}",
                 f"--data.dir={folder / 'data'}", *options], capture_output=True, text=True,
                timeout=90)
            assert done.returncode == 1 and text in done.stderr, done


if __name__ == "__main__":
    cluster.main([test_all_in_one, test_one_database_is_no_copy, test_four_processes, test_several_shards,
                  test_restart_keeps_data, test_drain_answers_what_it_took,
                  test_second_signal_ends_at_once, test_missing_ingester,
                  test_wrong_configurations_say_what_to_do, test_unknown_command, test_check_config,
                  test_one_process_per_folder_and_port,
                  test_version_help_and_configuration, test_full_disk_is_refused_and_said])
