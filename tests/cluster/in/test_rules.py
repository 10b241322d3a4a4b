"""Limits and rules by tenant: the overrides file, through real servers."""
import concurrent.futures
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import push_client as push
import replicated

CPU = {"__name__": "process_cpu"}
INTERVAL = "--distributor.overrides-interval=100ms"


class Rules(cluster.AllInOne):
    """A server with an overrides file."""

    def __init__(self, text, *options):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "overrides.yaml")
        self.write(text)
        super().__init__("--tenancy.multi", INTERVAL,
                         f"--distributor.overrides-file={self.path}", *options)

    def write(self, text):
        with open(self.path + ".new", "w") as f:
            f.write(text)
        os.replace(self.path + ".new", self.path)

    def reload(self, text, result="loaded"):
        before = self.reloads(result)
        self.write(text)
        end = time.monotonic() + 60
        while self.reloads(result) == before:
            assert time.monotonic() < end, "the file was not read again"
            time.sleep(0.02)

    def reloads(self, result):
        return self.process.metric("embertree_overrides_reloads_total", result=result) or 0

    def discarded(self, what, reason, tenant):
        return self.process.metric(f"embertree_discarded_{what}_total", reason=reason,
                                   tenant=tenant) or 0

    def push(self, tenant, *series, headers=None):
        message = push.request(*((CPU | labels, [(raw, "")]) for labels, raw in series))
        return push.push_proto(self.process, message,
                               {"X-Scope-OrgID": tenant, **(headers or {})})

    def total(self, tenant, selector, type_id=cluster.CPU_TYPE):
        r = self.connect("SelectMergeStacktraces", {
            "profileTypeID": type_id, "labelSelector": selector, **self.range_ms()},
            {"X-Scope-OrgID": tenant})
        assert r.status == 200, r
        return cluster.flamegraph(r.json())["numTicks"]

    def services(self, tenant):
        r = self.connect("LabelValues", {"name": "service_name", "matchers": [],
                                         **self.range_ms()}, {"X-Scope-OrgID": tenant})
        assert r.status == 200, r
        return sorted(r.json().get("names", []))


def profile(value, leaf="leaf"):
    return push.pprof(value, leaf=leaf, time_ns=push.now_ns())


def test_limits_differ_by_tenant():
    text = """
defaults:
  max_label_names_per_series: 5
tenants:
  many: {max_label_names_per_series: 50}
  small: {ingestion_body_limit_mb: 0.0005}
  slow: {ingestion_rate_mb: 0.001, ingestion_burst_size_mb: 0.001}
  spent: {ingest_limits: {bytes: 1500, period: 1h}}
  few: {max_series_per_tenant: 2}
  young: {reject_older_than: 1h}
"""
    with Rules(text) as server:
        labels = {"service_name": "s"} | {f"l{i}": "v" for i in range(10)}
        r = server.push("plain", (labels, profile(7)))
        assert r.status == 400 and b"max_label_names_per_series" in r.body, r
        assert server.discarded("profiles", "max_label_names_per_series", "plain") == 1
        assert server.push("many", (labels, profile(7))).status == 200
        assert server.total("many", '{service_name="s"}') == 7
        one = {"service_name": "s"}
        r = server.push("small", (one, profile(7, "x" * 600)))
        assert r.status in (400, 413, 429), r
        assert server.discarded("profiles", "body_size_limit_exceeded", "small") == 1
        for tenant, reason in (("slow", "rate_limited"), ("spent", "ingest_limit_reached")):
            assert server.push(tenant, (one, profile(7, "x" * 800))).status == 200
            r = server.push(tenant, (one, profile(7, "x" * 800)))
            assert r.status == 429 and b"resource_exhausted" in r.body, r
            again = int(dict((k.lower(), v) for k, v in r.headers.items())["retry-after"])
            assert again == 1 if tenant == "slow" else 3000 < again <= 3601, again
            assert server.discarded("profiles", reason, tenant) == 1
            assert server.discarded("bytes", reason, tenant) > 800
            assert server.total(tenant, '{service_name="s"}') == 7
        for i, want in ((0, 200), (1, 200), (2, 429), (0, 200), (1, 200)):
            r = server.push("few", (one | {"pod": f"p{i}"}, profile(7)))
            assert r.status == want, (i, r)
        assert server.discarded("profiles", "series_limit", "few") == 1
        assert server.total("few", '{service_name="s"}') == 28
        old = push.pprof(7, time_ns=push.now_ns(2 * 3600))
        assert server.push("many", (one, old)).status == 200
        r = server.push("young", (one, old))
        assert r.status == 400 and b"not_in_ingestion_window" in r.body, r


def limits(server, tenant):
    r = server.process.request("GET", "/api/v1/tenant_limits", headers={"X-Scope-OrgID": tenant})
    assert r.status == 200, r
    return dict(line.split(": ", 1) for line in r.body.decode().splitlines() if ": " in line)


def test_what_a_shared_server_allows():
    """Tenants have limits where nothing is set; a file raises them, or stops a tenant; errors say so."""
    text = """
tenants:
  free: {ingestion_rate_mb: 0, max_series_per_tenant: 0, max_services_per_tenant: 0}
  few: {max_services_per_tenant: 2}
  stopped: {ingest: off}
"""
    with Rules(text) as server:
        own, free = limits(server, "anyone"), limits(server, "free")
        for key in ("ingestion_rate_mb", "max_series_per_tenant", "max_services_per_tenant"):
            assert float(own[key]) > 0 and float(free[key]) == 0, (key, own, free)
        for i, want in ((0, 200), (1, 200), (2, 429), (0, 200), (1, 200)):
            r = server.push("few", ({"service_name": f"s{i}"}, profile(7)))
            assert r.status == want, (i, r)
            if want == 429:
                assert b"max_services_per_tenant" in r.body and r.headers["Retry-After"], r
        assert server.discarded("profiles", "services_limit", "few") == 1
        assert server.services("few") == ["s0", "s1"]
        for reply in (server.push("stopped", ({"service_name": "s"}, profile(7))),
                      server.ingest(b"a;b 1\n", "s.cpu", {"X-Scope-OrgID": "stopped"}, sampleRate=0)):
            assert reply.status == 403 and b"ingest: off" in reply.body, reply
        assert server.discarded("profiles", "ingest_off", "stopped") == 2
        server.reload(text.replace("off", "on"))
        assert server.push("stopped", ({"service_name": "s"}, profile(7))).status == 200
    with cluster.AllInOne() as server:
        assert float(limits(server, "anonymous")["ingestion_rate_mb"]) == 0
        assert int(limits(server, "anonymous")["max_services_per_tenant"]) == 0


def test_tenants_are_not_made_without_end():
    """A new name of a tenant is refused over ingester.tenants_max; existing tenants are served on."""
    with cluster.AllInOne("--tenancy.multi", "--ingester.tenants-max=3") as server:
        for name, want in (("a", 200), ("b", 200), ("c", 200), ("d", 429), ("a", 200), ("e", 429)):
            r = server.ingest(b"x;y 1\n", "s.cpu", {"X-Scope-OrgID": name}, sampleRate=0)
            assert r.status == want, (name, r)
            if want == 429:
                assert b"ingester.tenants_max" in r.body and r.headers["Retry-After"], r
        assert server.process.metric("embertree_discarded_profiles_total",
                                     reason="tenants_limit") == 2


def test_what_counts_for_ingest_limits():
    """Bodies that are wrong, too old or over another limit do not use them up. Two distributors allow half each."""
    text = "tenants: {spent: {ingest_limits: {bytes: 2000, period: 1h}, max_series_per_tenant: 1}}"
    bodies = [profile(7, "x" * 500) for _ in range(8)]
    one = {"service_name": "s"}
    old = push.pprof(7, leaf="x" * 500, time_ns=push.now_ns(500 * 86400))
    for options, fits in (((), 3), (("--distributor.limits-of=2",), 1)):
        with Rules(text, *options) as server:
            for _ in range(8):
                assert server.push("spent", (one, old)).status == 400
                r = server.ingest(b"\0" * 600, "s", {"X-Scope-OrgID": "spent"}, format="pprof")
                assert r.status == 400, r
            statuses = [server.push("spent", (one, bodies[0])).status]
            for b in bodies:
                r = server.push("spent", ({"service_name": "other"}, b))
                assert r.status == 429 and (b"series_limit" in r.body or statuses.count(200) == fits), r
            statuses += [server.push("spent", (one, b)).status for b in bodies[1:]]
            assert statuses == [200] * fits + [429] * (8 - fits), statuses
            assert int(server.push("spent", (one, bodies[0])).headers["Retry-After"]) > 3000


def test_stored_bytes():
    """A tenant that has more stored than its limit is refused with 429 until it has less, or a higher limit;
    others are not, nor is the tenant of the server's own profiles."""
    text = "defaults: {max_stored_bytes_per_tenant: %s}\ntenants: {free: {max_stored_bytes_per_tenant: 0}}"
    options = ["--distributor.stored-interval=100ms", "--memory.limit=192MiB", "--ingester.seal-delay=0ms"]
    numbers = random.Random(7)

    def body():
        return "\n".join("".join(f"{numbers.getrandbits(256):x};" for _ in range(8)) + "leaf 1"
                         for _ in range(800)).encode()

    def ingest(server, tenant, text=None):
        return server.ingest(text or body(), "s.cpu", {"X-Scope-OrgID": tenant})

    with Rules(text % "1MiB", *options) as server:
        assert ingest(server, "small").status == 200
        end = time.monotonic() + 120
        while (r := ingest(server, "full")).status == 200:
            assert time.monotonic() < end, "never refused"
        assert r.status == 429 and b"stored_bytes_limit" in r.body, r
        assert b"max_stored_bytes_per_tenant" in r.body and r.headers["Retry-After"] == "60", r
        assert server.discarded("profiles", "stored_bytes_limit", "full") == 1
        for tenant in ("small", "free", "anonymous"):
            for _ in range(40 if tenant != "small" else 1):
                assert ingest(server, tenant).status == 200
        assert ingest(server, "full").status == 429
        server.reload(text % "1GiB")
        assert ingest(server, "full").status == 200
        server.reload(text % "1MiB")
        assert ingest(server, "full").status == 429


def test_distributors_share_limits():
    """Distributors of one cluster divide limits by how many of them live; no option says that number."""
    if not replicated.available():
        print("     skip: no etcd")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "overrides.yaml")
        with open(path, "w") as f:
            f.write("tenants: {spent: {ingest_limits: {bytes: 4000, period: 1h}}}")
        c = replicated.Cluster(ingesters=1, replicas=1, shards=1, options=["--tenancy.multi"])
        c.distributor.options += (f"--distributor.overrides-file={path}",)
        with c:
            one = c.distributor
            two = c.process("distributor", f"--distributor.overrides-file={path}", folder="second")

            def live(p, n):
                end = time.monotonic() + 60
                while p.metric("embertree_distributor_distributors_live") != n:
                    assert time.monotonic() < end, p.metric("embertree_distributor_distributors_live")
                    time.sleep(0.1)

            def fits(p):
                bodies = [profile(i + 1, "x" * 500) for i in range(10)]
                return [push.push_proto(p, push.request((CPU | {"service_name": "s"}, [(b, "")])),
                                        {"X-Scope-OrgID": "spent"}).status for b in bodies].count(200)

            try:
                two.start()
                live(one, 2)
                live(two, 2)
                assert (fits(one), fits(two)) == (3, 3), "each allows half of the limit, as both do"
                two.kill()
                live(one, 1)
                assert fits(one) == 3, "what the other one allowed is this one's now"
            finally:
                two.cleanup()


def test_relabel_drop_and_merge():
    text = """
tenants:
  t:
    drop: ['{env="dev"}']
    relabel:
      - {action: labeldrop, regex: pod}
      - {source_labels: [team, service_name], regex: '(.+);(.+)', target_label: service_name,
         replacement: '$1/$2'}
      - {source_labels: [env], regex: test, action: drop}
"""
    with Rules(text) as server:
        r = server.push("t", ({"service_name": "a", "env": "dev"}, profile(1)),
                        ({"service_name": "a", "env": "test"}, profile(2)),
                        ({"service_name": "a", "env": "prod", "pod": "x"}, profile(10)),
                        ({"service_name": "a", "env": "prod", "pod": "y"}, profile(20)),
                        ({"service_name": "a", "team": "red"}, profile(40)))
        assert r.status == 200, r
        assert server.services("t") == ["a", "red/a"]
        assert server.total("t", '{service_name="a"}') == 30
        assert server.total("t", '{service_name="red/a"}') == 40
        assert server.discarded("profiles", "dropped_by_relabel_rules", "t") == 2
        # labels of samples split a profile; without them the parts are one series again
        now = push.now_ns()
        raw = push.pprof(5, time_ns=now, labels=(("pod", "p1"),))
        assert server.push("t", ({"service_name": "split"}, raw)).status == 200
        assert server.push("t", ({"service_name": "split"}, raw)).status == 200
        assert server.total("t", '{service_name="split"}') == 20  # each time 5 + 5
        assert server.total("t", '{service_name="split", pod=~".+"}') == 0


def test_one_profile_for_several_services():
    """Labels of samples may become services: parts of one push go to different shards, and are
    stored once, however often it comes."""
    text = """
defaults:
  relabel: [{source_labels: [pod], regex: '(.+)', target_label: service_name, replacement: 'of-$1'}]
"""
    with Rules(text, "--cluster.shards=3") as server:
        for i in range(12):
            raw = push.pprof(5, time_ns=push.now_ns(), labels=(("pod", f"p{i}"),))
            for _ in range(2):
                r = server.push("t", ({"service_name": "whole"}, raw),
                                headers={"Idempotency-Key": f"k{i}"})
                assert r.status == 200, r
        assert server.total("t", '{service_name="whole"}') == 60
        for i in range(12):
            assert server.total("t", f'{{service_name="of-p{i}"}}') == 5, i
        assert len(server.services("t")) == 13


def several_services(sizes):
    """So many series for each service, with labels of 2 KB that no coder makes short."""
    strings, out, noise = ["", "cpu", "nanoseconds", "main", "pod", "note"], b"", random.Random(3)
    out += push.field(1, push.field(1, 1) + push.field(2, 2))
    out += push.field(4, push.field(1, 1) + push.field(4, push.field(1, 1)))
    out += push.field(5, push.field(1, 1) + push.field(2, 3))
    for pod, series in sizes.items():
        strings.append(pod)
        name = len(strings) - 1
        for _ in range(series):
            strings.append(f"{noise.getrandbits(8 * 1000):02000x}")
            tags = ((4, name), (5, len(strings) - 1))
            out += push.field(2, push.field(1, b"\1") + push.field(2, b"\5") + b"".join(
                push.field(3, push.field(1, key) + push.field(2, value)) for key, value in tags))
    return out + push.field(9, push.now_ns()) + b"".join(push.field(6, s.encode()) for s in strings)


def test_parts_that_are_dropped_hold_nothing():
    """A profile for two services, of which the second does not fit into a message, is refused; what was
    packed of it already does not count against the other profiles of the request."""
    text = """
defaults:
  relabel: [{source_labels: [pod], regex: '(.+)', target_label: service_name, replacement: 'of-$1'}]
"""
    with Rules(text, "--cluster.rpc-message-bytes-max=1MiB", "--distributor.decode-bytes=3MiB") as server:
        heavy = gzip.compress(several_services({"a": 25, "b": 470}), 1)
        good = several_services({"c": 290, "d": 270})
        heavies = [({"service_name": f"s{i}"}, heavy) for i in range(40)]
        r = server.push("t", *heavies, ({"service_name": "good"}, good))
        assert server.services("t") == ["of-c", "of-d"], (server.services("t"), r)
        assert server.push("t", ({"service_name": "s"}, several_services({"a": 25}))).status == 200


def test_sampling_is_the_same_at_every_try():
    text = """
tenants:
  t:
    usage_groups: {noisy: '{service_name="noisy"}'}
    sampling: [{usage_group: noisy, probability: 0.5}, {match: '{service_name="off"}',
                probability: 0}]
"""
    with Rules(text) as server:
        now = push.now_ns()
        raw = push.pprof(1, time_ns=now)
        for _ in range(3):
            for i in range(64):
                r = server.push("t", ({"service_name": "noisy", "pod": f"p{i}"}, raw),
                                headers={"Idempotency-Key": f"k{i}"})
                assert r.status == 200, r
        kept = server.total("t", '{service_name="noisy"}')
        left_out = server.discarded("profiles", "dropped_by_sampling_rules", "t")
        assert left_out == 3 * (64 - kept), (kept, left_out)
        assert 8 <= kept <= 56, kept
        assert server.push("t", ({"service_name": "off"}, raw)).status == 200
        assert server.push("t", ({"service_name": "on"}, raw)).status == 200
        assert server.services("t") == ["noisy", "on"]
        group = {"tenant": "t", "usage_group": "noisy"}
        name = "embertree_usage_group_received_"
        assert server.process.metric(name + "profiles_total", **group) == 3 * 64
        assert server.process.metric(name + "bytes_total", **group) >= 3 * 64 * len(raw)
        assert server.process.metric(name + "profiles_total", tenant="t",
                                     usage_group="other") == 2


def test_the_file_changes_while_pushes_come():
    def text(n):
        return f"defaults:\n  relabel: [{{target_label: version, replacement: v{n}}}]\n"

    with Rules(text(0)) as server:
        raw = profile(1)
        stop = []

        def pusher(worker):
            sent = 0
            while not stop:
                r = server.push("t", ({"service_name": "s", "worker": str(worker)}, raw),
                                headers={"Idempotency-Key": f"{worker}-{sent}"})
                assert r.status == 200, r
                sent += 1
            return sent

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(pusher, i) for i in range(3)]
            try:
                for n in range(1, 6):
                    server.reload(text(n))
                server.reload("defaults: {relabel: [{action: fly}]}", "failed")
                server.reload("defaults: [", "failed")
                r = server.process.request("GET", "/runtime_config")
                assert r.status == 200 and b"v5" in r.body, r
            finally:
                stop.append(1)
            sent = sum(job.result() for job in jobs)
        assert server.total("t", '{service_name="s"}') == sent
        assert server.total("t", '{service_name="s", version=~"v[0-5]"}') == sent
        server.push("t", ({"service_name": "last"}, raw))
        assert server.total("t", '{service_name="last", version="v5"}') == 1


def test_what_is_in_force():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "deploy",
                           "config", "overrides.yaml")) as f:
        example = f.read()
    with Rules(example) as server:
        def limits(tenant):
            r = server.process.request("GET", "/api/v1/tenant_limits",
                                       headers={"X-Scope-OrgID": tenant})
            assert r.status == 200, r
            return r.body.decode()

        a, b, other = limits("team-a"), limits("team-b"), limits("unlisted")
        assert "ingestion_rate_mb: 8.0" in a and "usage_group: 'batch'" in a, a
        assert "max_profile_stacktrace_depth: 256" in b and "separator: '/'" in b, b
        assert "pod_template_hash" in a and "pod_template_hash" not in b
        assert "pod_template_hash" in other
        # what is shown can be written into a file, and is then the same
        entry = "".join("    " + line + "\n" for line in a.splitlines())
        server.reload("tenants:\n  copy:\n" + entry)
        assert limits("copy") == a
        r = server.process.request("GET", "/api/v1/tenant_limits")
        assert r.status == 401, r
        # the command says the same beforehand
        done = subprocess.run([str(cluster.BIN / "embertree"), "check-overrides", server.path, "copy"],
                              capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, a), done
        server.write("tenants: {t: {drop: ['{']}}")
        done = subprocess.run([str(cluster.BIN / "embertree"), "check-overrides", server.path], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 1 and "line 1" in done.stderr, done
        # and of the querier's file
        command = [str(cluster.BIN / "embertree"), "check-overrides", "--querier", server.path]
        server.write("tenants: {t: {queries: 3, bytes: 1MiB}}")
        done = subprocess.run(command + ["t"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (
            0, "queries: 3\nqueue: 256\nbytes: 1048576\nread_bytes: 0\n"), done
        server.write("tenants: {t: {drop: 1}}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "line 1" in done.stderr, done


TESTS = [test_limits_differ_by_tenant, test_what_a_shared_server_allows,
         test_what_counts_for_ingest_limits, test_stored_bytes, test_distributors_share_limits, test_tenants_are_not_made_without_end,
         test_relabel_drop_and_merge,
         test_one_profile_for_several_services, test_parts_that_are_dropped_hold_nothing,
         test_sampling_is_the_same_at_every_try, test_the_file_changes_while_pushes_come,
         test_what_is_in_force]

if __name__ == "__main__":
    cluster.main(TESTS)
