"""Scraping: growth of cumulative profiles, CPU, files and Kubernetes as sources of targets, relabel
rules, targets that are dead, slow, huge or wrong, several distributors sharing targets."""
import contextlib
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
from push_client import at_time
from scrape_site import CPU, HEAP, Kubernetes, Site, endpoint_slice, pprof

ALLOC = "memory:alloc_space:bytes:space:bytes"
INUSE = "memory:inuse_space:bytes:space:bytes"
WAIT_S = 150


def until(what, want, wait_s=WAIT_S):
    end, got = time.monotonic() + wait_s, None
    while time.monotonic() < end:
        got = what()
        if got == want:
            return
        time.sleep(0.2)
    assert got == want, (got, want)


def total(server, service, type_id=ALLOC):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": f'{{service_name="{service}"}}',
        **server.range_ms()})
    assert r.status == 200, r
    return cluster.flamegraph(r.json())["numTicks"]


def targets(server, **query):
    r = server.process.get("/api/v1/targets", **query)
    assert r.status == 200, r
    return r.json()


def services(server):
    return sorted(t["service"] for t in targets(server)["targets"])


class Config:
    """A folder with the configuration (JSON is YAML), replaced by rename."""

    def __init__(self, *jobs):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-scrape-"))
        self.path = self.folder / "scrape.yaml"
        self.put(*jobs)

    def put(self, *jobs):
        self.write(self.path, json.dumps({"scrape_configs": list(jobs)}))

    def write(self, path, text):
        (self.folder / "tmp").write_text(text)
        os.rename(self.folder / "tmp", path)

    def server(self, *more):
        return cluster.AllInOne(f"--distributor.scrape-config-file={self.path}",
                                "--distributor.scrape-refresh=200ms", *more)


def job(name, profiles, **more):
    return {"job_name": name, "scrape_interval": "1s", "scrape_timeout": "30s",
            "profiles": {"process_cpu": {"enabled": False}, "memory": {"enabled": False},
                         "goroutine": {"enabled": False}, **profiles}, **more}


ONLY_MEMORY = {"memory": {"enabled": True}}


class Heap:
    """A program whose allocations grow with each look at them, until it is frozen."""

    def __init__(self):
        self.lock, self.values, self.growth, self.inuse = threading.Lock(), [], 1000, 500
        self.down = False

    def answer(self, path, query, headers):
        with self.lock:
            if path != "/debug/pprof/allocs" or self.down:
                return 404, b""
            before = self.values[-1] if self.values else 5000000
            self.values.append(before + self.growth)
            now = self.values[-1]
        rows = {"a": (now // 10, now, 7, self.inuse), "b": (1, 333, 0, 0)}
        return 200, gzip.compress(pprof(HEAP, rows))

    def freeze(self):
        with self.lock:
            self.growth = 0

    def restart(self, at):
        with self.lock:
            self.values.append(at)


def test_growth_of_allocations():
    """What is stored is the growth since the first look, also over failures and a restart."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "grows", "env": "prod"}}]))
        with config.server() as server:
            until(lambda: len(heap.values) >= 4, True)
            heap.down = True  # a few fetches fail: their growth comes with the next
            until(lambda: targets(server, state="down")["targets"] != [], True)
            heap.down = False
            heap.growth = 777
            fetched = len(heap.values)
            until(lambda: len(heap.values) > fetched + 1, True)
            heap.freeze()
            until(lambda: total(server, "grows"), heap.values[-1] - heap.values[0])
            assert total(server, "grows", INUSE) == 500
            before = total(server, "grows")
            heap.restart(2000)  # counts less than before: all of it is new, b's 333 as well
            until(lambda: total(server, "grows"), before + 2000 + 333)
            at = targets(server)["targets"][0]
            assert at["state"] == "up" and at["failures"] >= 1 and at["labels"]["env"] == "prod", at
            assert at["labels"]["instance"] == site.address and at["labels"]["job"] == "heap", at
            r = server.connect("LabelNames", {**server.range_ms()})
            assert "env" in r.json()["names"] and "instance" in r.json()["names"], r


def test_growth_survives_a_store_that_failed():
    """An ingester that is down for a while: nothing of the growth is lost or counted twice."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "again"}}]))
        with cluster.FourProcesses(distributor=[
                f"--distributor.scrape-config-file={config.path}",
                "--distributor.ack-timeout=2s", "--distributor.attempt-timeout=500ms"]) as server:
            until(lambda: total(server, "again") > 0, True)
            ingester = server.by_role["ingester"]
            ingester.kill()
            count = len(heap.values)
            until(lambda: len(heap.values) > count, True)
            time.sleep(4)
            ingester.start()
            count = len(heap.values)
            until(lambda: len(heap.values) > count, True)
            heap.freeze()
            until(lambda: total(server, "again"), heap.values[-1] - heap.values[0])


def test_growth_over_a_restart():
    """A distributor that was stopped continues where it was; a killed one begins from the start. In neither
    case is anything counted twice."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "restarts"}}]))
        with config.server() as server:
            kept = pathlib.Path(server.writer.folder) / "data" / "scrape-last"
            for _ in range(2):
                until(lambda: total(server, "restarts") > 0, True)
                server.writer.stop()
                assert kept.stat().st_size > 100
                server.writer.start()
                count = len(heap.values)
                until(lambda: len(heap.values) > count + 1, True)
                assert not kept.exists(), "used once"
            heap.freeze()
            until(lambda: total(server, "restarts"), heap.values[-1] - heap.values[0])
            before, was = total(server, "restarts"), heap.values[-1]
            heap.growth = 1000
            until(lambda: heap.values[-1] > was + 2000 and total(server, "restarts") > before, True)
            server.writer.kill()
            assert not kept.exists()
            server.writer.start()
            count = len(heap.values)
            until(lambda: len(heap.values) > count + 1, True)
            heap.freeze()
            time.sleep(3)
            grown = total(server, "restarts") - before
            assert 0 < grown < heap.values[-1] - was, (grown, heap.values[-1] - was)
            # A file that is broken is no reason not to start, and nothing of it is used.
            server.writer.stop()
            data = bytearray(kept.read_bytes())
            data[len(data) // 2] ^= 1
            kept.write_bytes(data)
            server.writer.start()
            assert not kept.exists()


@contextlib.contextmanager
def other_clock(**env):
    """Processes that are started meanwhile have it."""
    with tempfile.TemporaryDirectory() as folder:
        lib = pathlib.Path(folder) / "clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", lib, cluster.ROOT / "tests/chaos/clock.c"], check=True)
        env = {"LD_PRELOAD": str(lib)} | {k: str(v) for k, v in env.items()}
        os.environ.update(env)
        try:
            yield
        finally:
            for name in env:
                del os.environ[name]


def test_growth_while_the_clock_is_put_back():
    """The last stored samples are in the future then: growth continues at once, none is lost, none counts twice."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "back"}}]))

        def all_of_it():
            now = int(time.time() * 1000)
            r = server.connect("SelectMergeStacktraces", {
                "profileTypeID": ALLOC, "labelSelector": '{service_name="back"}',
                "start": str(now - 3600000), "end": str(now + 3600000)})
            assert r.status == 200, r
            return cluster.flamegraph(r.json())["numTicks"]

        server = config.server()
        with other_clock(CLOCK_BY=400, CLOCK_RIGHT_AFTER=12):
            server.process.start()
        try:
            until(lambda: all_of_it() > 0, True)
            ahead = time.time() + 200

            def put_back():
                return all(t["last_fetch_ms"] < ahead * 1000 for t in targets(server)["targets"])

            until(put_back, True)
            count = len(heap.values)
            until(lambda: len(heap.values) > count + 1, True)
            heap.freeze()
            until(all_of_it, heap.values[-1] - heap.values[0], 30)
            assert [t["state"] for t in targets(server)["targets"]] == ["up"]
        finally:
            server.process.cleanup()


def test_growth_since_before_what_is_taken():
    """A last profile that is older than distributor.past does not refuse all that comes after it."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "old"}}]))
        server = config.server("--distributor.past=1m")
        with other_clock(CLOCK_BY=-120):
            server.process.start()
        try:
            until(lambda: total(server, "old") > 0, True)
            assert server.process.stop() == 0
            server.process.start()
            count = len(heap.values)
            until(lambda: len(heap.values) > count + 1, True)
            heap.freeze()
            until(lambda: total(server, "old"), heap.values[-1] - heap.values[0], 30)
        finally:
            server.process.cleanup()


def test_growth_since_what_is_too_large_now():
    """A last profile that a lowered limit does not let be read any more refuses nothing that comes after."""
    lock, rows, calls = threading.Lock(), [8], [0]

    def answer(path, query, headers):
        with lock:
            calls[0] += 1
            if not rows[0]:
                return 404, b""
            return 200, pprof(HEAP, {f"f{i}": (1, 1000 * calls[0], 1, 1) for i in range(rows[0])})

    with Site(answer) as site:
        config = Config(job("heap", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "large"}}]))
        limits = config.folder / "overrides.yaml"
        config.write(limits, "overrides: {}\n")
        with config.server(f"--distributor.overrides-file={limits}",
                           "--distributor.overrides-interval=100ms") as server:
            until(lambda: total(server, "large") > 0, True)
            rows[0] = 0
            until(lambda: targets(server)["targets"][0]["state"], "down")
            before = total(server, "large")
            config.write(limits, "overrides: {anonymous: {max_profile_stacktrace_samples: 4}}\n")
            until(lambda: server.process.metric("embertree_overrides_reloads_total", result="loaded") >= 1, True)
            rows[0] = 2
            until(lambda: total(server, "large") > before, True, 60)
            assert targets(server)["targets"][0]["state"] == "up"


def test_cpu_and_secrets():
    """The server measures for `seconds`; bearer tokens from files, parameters."""
    served, lock = [], threading.Lock()

    def answer(path, query, headers):
        with lock:
            if path != "/debug/pprof/profile":
                return 404, b""
            served.append((query, headers.get("Authorization")))
        time.sleep(int(query["seconds"]))
        return 200, gzip.compress(pprof(CPU, {"work": (3, 30000000)}, ("cpu", "nanoseconds", 10000000)))

    with Site(answer) as site:
        config = Config()
        token = config.folder / "token"
        token.write_text("s3cret\n")
        config.put(job("cpu", {"process_cpu": {}}, scrape_interval="3s", bearer_token_file=str(token),
                       params={"debug": ["x&y"]}, static_configs=[{"targets": [site.address]}]))
        with config.server() as server:
            until(lambda: total(server, "cpu", cluster.CPU_TYPE) >= 4 * 30000000, True)
            assert total(server, "cpu", cluster.CPU_TYPE) % 30000000 == 0
        assert all(q == {"seconds": "2", "debug": "x&y"} for q, _ in served), served
        assert all(a == "Bearer s3cret" for _, a in served), served


LOCKS = (("contentions", "count"), ("delay", "nanoseconds"))
SERVED = {  # path -> sample types, values of each of the fetches, whether these count from a start on
    "/debug/pprof/delta_heap": (HEAP, [(1, 100, 3, 30), (2, 50, 3, 30), (1, 7, 3, 30)]),
    "/debug/pprof/delta_mutex": (LOCKS, [(2, 500), (1, 20)]),
    "/debug/pprof/delta_block": (LOCKS, [(3, 700), (4, 9)]),
    "/debug/pprof/mutex": (LOCKS, [(10, 1000), (13, 1600), (13, 1611)]),
    "/debug/pprof/block": (LOCKS, [(20, 5000), (21, 5005)]),
    "/debug/pprof/heap": (HEAP, [(5, 900, 3, 40), (6, 1000, 3, 40)]),
    "/debug/pprof/goroutine": ((("goroutine", "count"),), [(12,), (12,)]),
    "/debug/fgprof": ((("samples", "count"), ("time", "nanoseconds")), [(3, 300), (4, 401)]),
    "/some/where": ((("widgets", "count"),), [(5,), (6,)]),
}


def test_every_known_profile():
    """All that a job knows by name, godeltaprof's and fgprof's among them, and one of its own, behind
    basic auth: what programs measure as differences is added up, what counts is subtracted."""
    counts, lock, auth = {path: 0 for path in SERVED}, threading.Lock(), set()

    def answer(path, query, headers):
        with lock:
            auth.add(headers.get("Authorization"))
            types, values = SERVED.get(path, ((), ()))
            n = counts.get(path, 0)
            if n >= len(values):
                return 404, b""
            counts[path] += 1
        period = ("space", "bytes", 1) if types == HEAP else (*types[0], 1)
        return 200, gzip.compress(pprof(types, {"f": values[n]}, period))

    def one(name, *profiles, **own):
        return job(name, {p: {"enabled": True} for p in profiles} | own,
                   basic_auth={"username": "me", "password": "pass:word"},
                   static_configs=[{"targets": [site.address]}])

    with Site(answer) as site:
        config = Config(one("delta", "godeltaprof_memory", "godeltaprof_mutex", "godeltaprof_block"),
                        one("count", "mutex", "block", "heap"),
                        one("other", "goroutine", "fgprof", custom="/some/where"))
        with config.server() as server:
            until(lambda: counts, {p: len(v) for p, (_, v) in SERVED.items()})
            for service, type_id, want in (
                    ("delta", ALLOC, 157), ("delta", INUSE, 30),
                    ("delta", "mutex:delay:nanoseconds:contentions:count", 520),
                    ("delta", "mutex:contentions:count:contentions:count", 3),
                    ("delta", "block:delay:nanoseconds:contentions:count", 709),
                    ("count", "mutex:delay:nanoseconds:contentions:count", 611),
                    ("count", "block:contentions:count:contentions:count", 1),
                    ("count", "block:delay:nanoseconds:contentions:count", 5),
                    ("count", ALLOC, 100), ("count", INUSE, 40),
                    ("other", "goroutine:goroutine:count:goroutine:count", 12),
                    ("other", "fgprof:time:nanoseconds:samples:count", 701),
                    ("other", "custom:widgets:count:widgets:count", 11)):
                until(lambda s=service, t=type_id: (s, t, total(server, s, t)),
                      (service, type_id, want))
    assert auth == {"Basic bWU6cGFzczp3b3Jk"}, auth


def test_embertree_scrapes_an_embertree():
    """/debug/pprof/profile of one server, fetched and stored by another; its own sampler is off."""
    with cluster.AllInOne("--no-selfprof.enabled") as far:
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                far.process.get("/metrics")

        worker = threading.Thread(target=busy)
        worker.start()
        config = Config(job("own", {"process_cpu": {"enabled": True}}, scrape_interval="2s",
                            static_configs=[
            {"targets": [f"127.0.0.1:{far.writer.port}"],
             "labels": {"service_name": "far"}}]))
        cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
        try:
            with config.server() as server:
                until(lambda: total(server, "far", cpu) >= 100_000_000, True)
                r = server.render(cpu + '{service_name="far"}')
                names = set().union(*cluster.leaves(r.json()["flamebearer"]))
                assert any("metrics_render" in n for n in names), sorted(names)[:50]
                r = server.connect("LabelNames", {**server.range_ms()})
                assert {"role", "thread"} <= set(r.json()["names"]), r
                until(lambda: targets(server)["targets"][0]["state"], "up")
        finally:
            stop.set()
            worker.join()
        r = far.process.get("/debug/pprof/")
        assert r.status == 200 and b"profile?seconds=30" in r.body, r
        for path, status in (("/debug/pprof/profile?seconds=301", 400), ("/debug/pprof/block", 404),
                             ("/debug/pprof/profile?seconds=x", 400), ("/debug/pprof/heap", 501)):
            r = far.process.get(path)
            assert r.status == status and r.json()["message"], (path, r)


def test_what_is_left_out_is_told():
    """A name that is cut: the list of targets says so, and the log once, with the service."""
    rows = {"x" * 70_000: (3, 3, 3, 3)}
    with Site(lambda path, query, headers: (200, gzip.compress(pprof(HEAP, rows)))) as site:
        config = Config(job("cut", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": "cut-names"}}]))
        with config.server() as server:
            until(lambda: targets(server)["targets"][0]["last_left_out"].get("symbol_cut", 0) > 0,
                  True)
            lines = [x for x in server.process.log.read_text().splitlines()
                     if "parts of a push were left out" in x]
            assert len(lines) == 1 and "cut-names" in lines[0] and "symbol_cut=" in lines[0], lines


def test_files_and_rules():
    """Targets of files come and go; a wrong file changes nothing; rules keep, drop and rename."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config()
        found = config.folder / "targets.yaml"
        groups = [{"targets": [site.address], "labels": {"app": "one", "drop": "no"}},
                  {"targets": [site.address], "labels": {"app": "two", "drop": "yes"}}]
        config.write(found, json.dumps(groups))
        rules = [{"source_labels": ["drop"], "regex": "yes", "action": "drop"},
                 {"source_labels": ["app"], "target_label": "service_name", "replacement": "svc-$1"},
                 {"regex": "drop|app", "action": "labeldrop"}]
        config.put(job("files", ONLY_MEMORY, file_sd_configs=[{"files": [str(found)]}],
                       relabel_configs=rules))
        with config.server() as server:
            until(lambda: services(server), ["svc-one"])
            until(lambda: total(server, "svc-one") > 0, True)
            groups[1]["labels"]["drop"] = "no"
            config.write(found, json.dumps(groups))
            until(lambda: services(server), ["svc-one", "svc-two"])
            assert "app" not in targets(server)["targets"][0]["labels"]
            config.write(found, "- targets: {")
            until(lambda: targets(server)["discovery"][0]["last_error"] != "", True)
            assert services(server) == ["svc-one", "svc-two"]
            config.write(found, "- targets: ['%s']\n  labels: {app: three}\n" % site.address)
            until(lambda: services(server), ["svc-three"])
            config.write(config.path, "scrape_configs:\n- job_name: x\n  scrape_intervall: 3s\n")
            until(lambda: "scrape_intervall" in targets(server)["config_error"], True)
            error = targets(server)["config_error"]
            assert "line 3" in error and "scrape_interval" in error, error
            assert services(server) == ["svc-three"]
            assert server.process.metric("embertree_distributor_scrape_config_ok") == 0
            config.put()
            until(lambda: services(server), [])
            assert server.process.metric("embertree_distributor_scrape_config_ok") == 1


def test_files_that_are_away():
    """A file that is missing for a moment, or empty because it is being written, changes nothing; and
    nothing is left of the complaint once it is back, though it says what it said before."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config()
        found, jobs = config.folder / "targets.yaml", [
            job("files", ONLY_MEMORY, file_sd_configs=[{"files": [str(config.folder / "targets.yaml")]}])]
        config.write(found, json.dumps([{"targets": [site.address], "labels": {"service_name": "f"}}]))
        config.put(*jobs)
        with config.server() as server:
            def ok():
                now = targets(server)
                return (server.process.metric("embertree_distributor_scrape_config_ok") == 1
                        and now["config_error"] == "", now["discovery"][0]["last_error"] == "")

            until(ok, (True, True))
            for path, at in ((config.path, 0), (found, 1)):
                text = path.read_text()
                wrong = tuple(i != at for i in range(2))
                path.rename(config.folder / "away")
                until(ok, wrong)
                (config.folder / "away").rename(path)
                until(ok, (True, True))
                path.write_text("")
                until(ok, wrong)
                assert services(server) == ["f"]
                config.write(path, text)
                until(ok, (True, True))
                assert services(server) == ["f"]
            assert targets(server)["targets"][0]["failures"] == 0
            config.write(found, "[]")
            until(lambda: services(server), [])


def test_an_interval_that_was_a_mistake():
    """Jobs that were to be asked once a day, or to measure for long, are asked each second as soon as
    their file says so, whatever they are at."""
    heap, asked, ended = Heap(), threading.Event(), threading.Event()

    def answer(path, query, headers):
        if path != "/cpu":
            return heap.answer(path, query, headers)
        if int(query["seconds"]) > 1:
            asked.set()
            ended.wait(3600)
        return 200, at_time(pprof(CPU, {"a": (1, 2)}, (*CPU[1], 1)), time.time_ns())

    def jobs(site, *intervals):
        profiles = (ONLY_MEMORY, {"cpu": {"path": "/cpu", "delta": True}})
        return [job(f"j{i}", profiles[i], scrape_interval=intervals[i], scrape_timeout="1h", static_configs=[
            {"targets": [site.address], "labels": {"service_name": f"s{k}"}} for k in range((1, 10)[i])])
            for i in range(2)]

    with Site(answer) as site:
        config = Config(*jobs(site, "24h", "15s"))
        try:
            with config.server() as server:
                until(lambda: asked.wait(1), True)
                config.put(*jobs(site, "1s", "1s"))
                until(lambda: {t["state"] for t in targets(server)["targets"]}, {"up"})
        finally:
            ended.set()


def test_a_job_of_a_cluster_we_are_not_in():
    """Refused as it is read: nothing of the file that has it is taken, and no watch of another job ends."""
    heap = Heap()
    with Site(heap.answer) as site:
        api = Kubernetes("t")
        api.objects["a"] = endpoint_slice("a", site.port, ["127.0.0.1"])
        mine = job("mine", ONLY_MEMORY, kubernetes_sd_configs=[
            {"role": "endpointslice", "api_server": f"http://{api.site.address}", "bearer_token": "t",
             "namespaces": {"names": ["shop"]}}])
        config = Config(mine)
        with api.site, config.server() as server:
            until(lambda: services(server), ["shop/a-0"])
            until(lambda: len(api.watchers), 1)
            lists = api.lists
            config.put(job("within", ONLY_MEMORY, kubernetes_sd_configs=[{"role": "pod"}]), mine)
            until(lambda: "no pod of a cluster" in targets(server)["config_error"], True)
            api.change("ADDED", endpoint_slice("b", site.port, ["127.0.0.1"]))
            until(lambda: services(server), ["shop/a-0", "shop/b-0"])
            assert api.lists == lists and len(api.watchers) == 1, (api.lists, lists)
            config.put(mine)
            until(lambda: targets(server)["config_error"], "")
            assert api.lists == lists, (api.lists, lists)


def test_kubernetes():
    """List in pages, watch, added and removed endpoints, 410 in both ways, a token that changes."""
    heap = Heap()
    with Site(heap.answer) as site:
        api = Kubernetes("right")
        for name in ("a", "b", "c"):
            api.objects[name] = endpoint_slice(name, site.port, ["127.0.0.1"])
        config = Config()
        token = config.folder / "token"
        token.write_text("wrong")
        config.put(job("k8s", ONLY_MEMORY, kubernetes_sd_configs=[
            {"role": "endpointslice", "api_server": f"http://{api.site.address}",
             "bearer_token_file": str(token), "namespaces": {"names": ["shop"]}}],
            relabel_configs=[
                {"source_labels": ["__meta_kubernetes_service_name"], "target_label": "svc"},
                {"source_labels": ["__meta_kubernetes_endpointslice_endpoint_conditions_ready"],
                 "regex": "true", "action": "keep"}]))
        with api.site, config.server() as server:
            def found():
                return sorted(t["labels"]["svc"] for t in targets(server)["targets"])

            def found_all():
                return targets(server)["targets"]

            def state():
                return next(d for d in targets(server)["discovery"] if "kubernetes" in d)

            until(lambda: api.refused > 0 and "401" in state()["last_error"], True)
            token.write_text("right\n")
            until(found, ["a", "b", "c"])
            assert sorted(services(server)) == ["shop/a-0", "shop/b-0", "shop/c-0"]
            until(lambda: total(server, "shop/a-0") > 0, True)
            until(lambda: state()["watches"], 1)
            # A job that is added and removed leaves the watch of this job untouched.
            lists, mine = api.lists, json.loads(config.path.read_text())["scrape_configs"]
            config.put(*mine, job("more", ONLY_MEMORY, static_configs=[{"targets": ["127.0.0.1:1"]}]))
            until(lambda: len(found_all()), 4)
            config.put(*mine)
            until(lambda: len(found_all()), 3)
            assert api.lists == lists and len(api.watchers) == 1, (api.lists, lists)
            api.change("ADDED", endpoint_slice("d", site.port, ["127.0.0.1"]))
            until(found, ["a", "b", "c", "d"])
            api.change("MODIFIED", endpoint_slice("a", site.port, ["127.0.0.1"], ready=False))
            until(found, ["b", "c", "d"])
            api.change("DELETED", endpoint_slice("b", site.port, []))
            until(found, ["c", "d"])
            for by_event in (True, False):
                until(lambda: len(api.watchers), 1)
                lists = api.lists
                del api.objects[sorted(api.objects)[0]]  # without an event to the watchers
                api.expire(by_event)
                until(lambda: api.lists > lists, True)
                until(found, sorted(api.objects))
            assert found() == ["d"]  # a was not ready, c is gone
            until(lambda: len(api.watchers), 1)
            api.objects["e"] = endpoint_slice("e", site.port, ["127.0.0.1"])
            api.expire(False)
            until(found, ["d", "e"])
            api.site.server.shutdown()  # the API server is gone: the known targets stay
            time.sleep(1)
            assert found() == ["d", "e"]


def test_bad_targets_do_not_harm_others():
    """Dead, slow, huge, wrong, no pprof: each says what is wrong; a good target is still scraped."""
    heap = Heap()
    hang = threading.Event()

    def answer(path, query, headers):
        kind = path.split("/")[1]
        if kind == "slow":
            hang.wait(60)
        if kind == "huge":
            return 200, (b"x" * 65536 for _ in range(100))
        if kind == "text":
            return 200, b"hello, this is not a profile"
        return (302 if kind == "moved" else 500), b""

    kinds = {"slow": "", "huge": "more than 1048576 bytes", "text": "", "moved": "302", "broken": "500"}
    with Site(heap.answer) as good, Site(answer) as bad:
        jobs = [job(kind, {"p": f"/{kind}/pprof"}, scrape_timeout="1s", body_size_limit="1MiB",
                    static_configs=[{"targets": [bad.address] * 1 + [f"localhost:{bad.port}"]}])
                for kind in kinds]
        jobs.append(job("dead", {"p": "/x"}, static_configs=[
            {"targets": [f"127.0.0.1:{cluster.free_port()}", "no-such-host.invalid:1"]}]))
        jobs.append(job("good", ONLY_MEMORY, static_configs=[{"targets": [good.address]}]))
        with Config(*jobs).server("--distributor.scrape-running=8") as server:
            until(lambda: {t["job"] for t in targets(server, state="down")["targets"]},
                  {*kinds, "dead"})
            until(lambda: total(server, "good") > 5000, True)
            for t in targets(server, state="down")["targets"]:
                assert kinds.get(t["job"], "") in t["last_error"] != "", t
            assert len(targets(server)["targets"]) == 13
            until(lambda: server.process.metric("embertree_distributor_scrape_fetches_total",
                                                outcome="unreachable") >= 10, True)
            assert server.process.metric("embertree_distributor_scrape_memory_bytes") < 64 << 20
        hang.set()


def test_profiles_of_another_time():
    """What is too old or ahead is refused, and the page of targets says when it is of, and why not."""
    now = int(time.time())
    times = {"/old": now - 500 * 86400, "/ahead": now + 3600}

    def answer(path, query, headers):
        return 200, at_time(pprof(HEAP, {"a": (1, 2, 3, 4)}), times[path] * 10**9)

    with Site(answer) as site:
        config = Config(job("times", {name[1:]: {"path": name} for name in times},
                            static_configs=[{"targets": [site.address]}]))
        with config.server() as server:
            until(lambda: len(targets(server, state="down")["targets"]), 2)
            said = {t["path"]: t["last_error"] for t in targets(server)["targets"]}
    for path, option in (("/old", "distributor.past"), ("/ahead", "distributor.future")):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(times[path]))
        assert at in said[path] and option in said[path] and " s: " in said[path], (path, said[path])


def test_distributors_share_targets():
    """Each takes its part: together all of them, none twice."""
    heap = Heap()
    with Site(heap.answer) as site:
        config = Config(job("shared", ONLY_MEMORY, static_configs=[
            {"targets": [site.address], "labels": {"service_name": f"s{i:02}"}} for i in range(20)]))
        parts = []
        for index in (0, 1):
            with config.server("--distributor.scrape-of=2",
                               f"--distributor.scrape-index={index}") as server:
                until(lambda: services(server) != [], True)
                parts.append(services(server))
        assert sorted(parts[0] + parts[1]) == [f"s{i:02}" for i in range(20)], parts
        assert parts[0] and parts[1], parts


def test_a_wrong_configuration_at_the_start():
    config = Config()
    config.write(config.path, "scrape_configs:\n- job_name: a\n  profiles: {x: {path: y}}\n")
    server = cluster.AllInOne(f"--distributor.scrape-config-file={config.path}")
    try:
        server.process.start(wait=False)
        assert server.process.child.wait(90) != 0
        assert "want a path" in server.process.tail(), server.process.tail()
    finally:
        server.process.cleanup()


if __name__ == "__main__":
    cluster.main([
        test_growth_of_allocations,
        test_growth_survives_a_store_that_failed, test_growth_over_a_restart,
        test_growth_while_the_clock_is_put_back, test_growth_since_before_what_is_taken,
        test_growth_since_what_is_too_large_now,
        test_cpu_and_secrets, test_every_known_profile, test_embertree_scrapes_an_embertree,
        test_what_is_left_out_is_told,
        test_files_and_rules, test_files_that_are_away, test_an_interval_that_was_a_mistake,
        test_a_job_of_a_cluster_we_are_not_in, test_kubernetes,
        test_bad_targets_do_not_harm_others,
        test_profiles_of_another_time,
        test_distributors_share_targets,
        test_a_wrong_configuration_at_the_start,
    ])
