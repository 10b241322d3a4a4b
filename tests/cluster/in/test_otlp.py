"""OTLP profiles by HTTP (protobuf and JSON) and gRPC, read back; every OTLP file of the test data;
check 39 of proto/WIRE.md, "Conformance checks". The requests are written here by hand, field by field.
"""
import gzip
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
from push_client import field, push_grpc, varint

HTTP = "/v1development/profiles"
EXPORT = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
PROTO = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
CANARY_TYPE = "otlp_test:otlp_test:count:otlp_test:samples"
OFF_CPU_TYPE = "off_cpu:off_cpu:nanoseconds::"
TYPES = {"samples": cluster.CPU_TYPE, "off_cpu": OFF_CPU_TYPE,
         "events": "events:events:nanoseconds::"}
LONG = ["--distributor.past=1500d",
        *(f"--retention.{n}=1500d" for n in ("10s", "1m", "10m", "1h", "6h", "1d", "8d", "64d"))]


def fixed64(number, value):
    return varint(number << 3 | 1) + value.to_bytes(8, "little")


def packed(number, values):
    return field(number, b"".join(varint(v) for v in values))


def now_ns(back_s=5):
    return time.time_ns() - back_s * 10**9


class Request:
    """A request of layout 1.10, as the canary of the reference server: location 0 is a real one."""

    def __init__(self, service, kind=("otlp_test", "count", "otlp_test", "samples"), period=1):
        self.service, self.kind, self.period = service, kind, period
        self.time_ns = now_ns()
        self.stacks = [("leaf", [3], 0), ("other", [4], 1)]  # leaf, values, link
        self.thread = "worker"

    def strings(self):
        return ["", *self.kind, "main", *(s[0] for s in self.stacks), "thread.name"]

    def proto(self):
        s = self.strings()
        at = s.index
        functions = field(3, b"") + b"".join(
            field(3, field(1, at(n))) for n in ["main", *(x[0] for x in self.stacks)])
        locations = b"".join(field(2, field(3, field(1, i + 1)))
                             for i in range(len(self.stacks) + 1))
        stacks = field(7, b"") + b"".join(field(7, packed(1, [i + 1, 0]))
                                          for i in range(len(self.stacks)))
        links = field(4, b"") + field(4, field(1, b"\1" * 16) + field(2, b"\2" * 8))
        attrs = field(6, b"") + field(6, field(1, at("thread.name"))
                                      + field(2, field(1, self.thread.encode())))
        samples = b"".join(field(2, field(1, i + 1) + packed(2, [1]) + field(3, link)
                                 + packed(4, values))
                           for i, (_, values, link) in enumerate(self.stacks))
        profile = (field(1, field(1, 1) + field(2, at(self.kind[1]))) + samples
                   + fixed64(3, self.time_ns) + field(4, 10**9)
                   + field(5, field(1, at(self.kind[2])) + field(2, at(self.kind[3])))
                   + field(6, self.period))
        resource = field(1, field(1, b"service.name") + field(2, field(1, self.service.encode())))
        return (field(1, field(1, resource) + field(2, field(2, profile)))
                + field(2, functions + locations + stacks + links + attrs
                        + b"".join(field(5, x.encode()) for x in s)))

    def json(self):
        s = self.strings()
        at = s.index
        names = ["main", *(x[0] for x in self.stacks)]
        return json.dumps({
            "resourceProfiles": [{
                "resource": {"attributes": [{"key": "service.name",
                                             "value": {"stringValue": self.service}}]},
                "scopeProfiles": [{"profiles": [{
                    "sampleType": {"typeStrindex": 1, "unitStrindex": at(self.kind[1])},
                    "periodType": {"typeStrindex": at(self.kind[2]),
                                   "unitStrindex": at(self.kind[3])},
                    "period": str(self.period),
                    "timeUnixNano": str(self.time_ns), "durationNano": "1000000000",
                    "samples": [{"stackIndex": i + 1, "values": [str(v) for v in values],
                                 "linkIndex": link, "attributeIndices": [1]}
                                for i, (_, values, link) in enumerate(self.stacks)]}]}]}],
            "dictionary": {
                "stringTable": s,
                "functionTable": [{}] + [{"nameStrindex": at(n)} for n in names],
                "locationTable": [{"lines": [{"functionIndex": i + 1}]} for i in range(len(names))],
                "stackTable": [{}] + [{"locationIndices": [i + 1, 0]}
                                      for i in range(len(self.stacks))],
                "linkTable": [{}, {"traceId": "01" * 16, "spanId": "02" * 8}],
                "attributeTable": [{}, {"keyStrindex": at("thread.name"),
                                        "value": {"stringValue": self.thread}}]}}).encode()


def post(server, body, kind, path=HTTP, **headers):
    return server.writer.post(path, body, kind | headers)


def graph(server, type_id, selector, around_ns=None):
    span = server.range_ms()
    if around_ns:
        middle = around_ns // 10**6
        span = {"start": str(middle - 3600000), "end": str(middle + 3600000)}
    r = server.connect("SelectMergeStacktraces",
                       {"profileTypeID": type_id, "labelSelector": selector, **span})
    assert r.status == 200, r
    return cluster.flamegraph(r.json())


def total(server, type_id, service, more=""):
    return graph(server, type_id, f'{{service_name="{service}"{more}}}')["numTicks"]


def check_every_way(server):
    ways = {
        "http-proto": lambda q: post(server, q.proto(), PROTO),
        "http-gzip": lambda q: post(server, gzip.compress(q.proto()), PROTO,
                                    **{"Content-Encoding": "GZIP"}),
        "http-json": lambda q: post(server, q.json(), JSON),
        "http-json-gzip": lambda q: post(server, gzip.compress(q.json()), JSON,
                                         **{"Content-Encoding": "gzip"}),
        "path-proto": lambda q: post(server, q.proto(), PROTO, EXPORT),
        "path-json": lambda q: post(server, q.json(), JSON, EXPORT),
    }
    for name, send in ways.items():
        r = send(Request(name))
        assert r.status == 200, (name, r)
        assert r.body == (b"{}" if "json" in name else b""), (name, r)
        assert r.headers["Content-Type"] == (JSON if "json" in name else PROTO)["Content-Type"]
    for zipped in (False, True):
        status = push_grpc(server.writer, Request(f"grpc-{zipped}").proto(), path=EXPORT,
                           zipped=zipped)
        assert status.code == 0, status
        ways[f"grpc-{zipped}"] = None
    for name in ways:
        assert total(server, CANARY_TYPE, name) == 7, name
    assert cluster.leaves(graph(server, CANARY_TYPE, '{service_name="http-json"}')) == {
        ("main", "leaf"): 3, ("main", "other"): 4}
    assert total(server, CANARY_TYPE, "grpc-True", ', "thread.name"="worker"') == 7
    assert total(server, CANARY_TYPE, "grpc-True", ', "thread.name"="idle"') == 0


def test_39_otlp_canary_by_every_way_through_one_process():
    with cluster.AllInOne() as server:
        check_every_way(server)
        q = Request("canary")
        r = post(server, q.json(), {"Content-Type": "text/plain"})
        assert r.status == 415 and b"content type" in r.body, r
        assert total(server, CANARY_TYPE, "canary") == 0


def test_every_way_through_four_processes():
    with cluster.FourProcesses() as server:
        check_every_way(server)


def test_cpu_profiles_are_like_all_others():
    """samples:count, each worth a period; a retry is counted once, another profile is not one."""
    with cluster.AllInOne() as server:
        q = Request("cpu", ("samples", "count", "cpu", "nanoseconds"), 50000000)
        for _ in range(3):
            assert post(server, q.proto(), PROTO).status == 200
        assert total(server, cluster.CPU_TYPE, "cpu") == 7 * 50000000
        q.time_ns += 1
        assert post(server, q.json(), JSON).status == 200
        assert total(server, cluster.CPU_TYPE, "cpu") == 14 * 50000000


def test_links_are_exemplars():
    with cluster.AllInOne() as server:
        assert post(server, Request("spans").proto(), PROTO).status == 200
        r = server.connect("SelectMergeSpanProfile", {
            "profileTypeID": CANARY_TYPE, "labelSelector": '{service_name="spans"}',
            "spanSelector": ["02" * 8], **server.range_ms()})
        assert r.status == 200, r
        assert cluster.flamegraph(r.json())["numTicks"] == 4


def test_errors():
    with cluster.AllInOne() as server:
        q = Request("bad")
        q.stacks[0] = ("leaf", [-3], 0)  # left out, the other sample is not
        assert post(server, q.proto(), PROTO).status == 200
        assert total(server, CANARY_TYPE, "bad") == 4
        r = post(server, b'{"resourceProfiles":[{]}', JSON)
        assert r.status == 400 and r.json()["code"] == 3 and "line 1" in r.json()["message"], r
        for body in (b"", b"\7\7", Request("cut").proto()[:-3]):
            r = post(server, body, PROTO)
            assert r.status == 400 and r.body[:3] == b"\x08\x03\x12", r
            assert push_grpc(server.writer, body, path=EXPORT).code == 3
        q = Request("old")
        q.time_ns = 500000000 * 10**9
        r = post(server, q.json(), JSON)
        assert r.status == 400 and "1990" in r.json()["message"], r
        good = Request("partly")
        both = good.proto() + field(1, field(2, field(2, field(4, 1))))  # one without a type
        r = post(server, both, PROTO)
        assert r.status == 200 and b"no sample type" in r.body, r
        assert total(server, CANARY_TYPE, "partly") == 7


def file_totals(want):
    """{type id: total} and a time of an expected file."""
    sums, at = {}, 0
    for p in want.get("profiles", []):
        name = p["sample_type"][0][0]
        scale = p["period"] if name == "samples" else 1
        sums[TYPES[name]] = sums.get(TYPES[name], 0) + p["sum_value"] * scale
        at = p.get("time_unix_nano") or p.get("time_nanos")
    return sums, at


def check_file(server, name, body, kind, send):
    want = golden.expected(f"otlp/{name.rpartition('.')[0]}.bin" if kind is JSON else f"otlp/{name}")
    sums, at = file_totals(want)
    before = {t: graph(server, t, "{}", at)["numTicks"] for t in sums}
    send(body)
    for t, n in sums.items():
        got = graph(server, t, "{}", at)["numTicks"] - before[t]
        assert got == n, (name, t, got, n)


def test_every_file_of_the_test_data():
    if not golden.available():
        print(golden.skip_line("OTLP files"))
        return
    with cluster.AllInOne(*LONG) as server:
        for name in sorted(os.listdir(golden.DATA / "otlp")):
            body = (golden.DATA / "otlp" / name).read_bytes()
            kind = JSON if name.endswith(".json") else PROTO
            if "bad_stack_index" in name:
                assert post(server, body, kind).status == 400
                assert push_grpc(server.writer, body, path=EXPORT).code == 3
                continue

            def http(data, kind=kind):
                r = post(server, data, kind)
                assert r.status == 200 and r.body in (b"", b"{}"), r

            check_file(server, name, body, kind, http)
            if kind is PROTO:  # the same bytes: counted once, whichever way they come
                at = file_totals(golden.expected(f"otlp/{name}"))[1]
                before = graph(server, cluster.CPU_TYPE, "{}", at)["numTicks"]
                assert push_grpc(server.writer, body, path=EXPORT).code == 0
                assert graph(server, cluster.CPU_TYPE, "{}", at)["numTicks"] == before, name


def test_verdicts():
    if not golden.available():
        print(golden.skip_line("hostile OTLP files"))
        return
    with cluster.AllInOne(*LONG) as server:
        seen = 0
        for file, (form, verdict, *_) in golden.verdicts().items():
            if form != "otlp":
                continue
            body = (golden.DATA / "corrupt" / file).read_bytes()
            more = {"Content-Encoding": "gzip"} if file.endswith(".gz") else {}
            want = 200 if verdict == "ok" else 400
            r = post(server, body, PROTO, **more)
            assert r.status == want, (file, r)
            seen += 1
        assert seen == 8
        assert server.writer.get("/readyz").status == 200


if __name__ == "__main__":
    cluster.main([v for k, v in list(globals().items()) if k.startswith("test_")])
