"""The checks of proto/WIRE.md, "Conformance checks", one function per check with its number in the
name, in line with the decisions: an unknown kind suffix belongs to the name (6), what cannot be
decoded is 400 (15), and old profiles are taken within the retention (26). Numbers 29 to 37 are in
test_querier_rpc.py, 39 in test_otlp.py, 40 in tests/clients and test_remote_write.py.
"""
import gzip
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push
import scrape_site
from test_testdata import multipart, type_ids

TENANT = {"X-Scope-OrgID": "t1"}
FOLDED = b"a;b 3\na 2\n"
CPU = {"__name__": "process_cpu"}
server = None  # one process for all checks that need no options of their own


def ingest(body, name, headers=None, **query):
    return server.ingest(body, name, TENANT | (headers or {}), **query)


def stacks(service, type_id=cluster.CPU_TYPE, more=""):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": f'{{service_name="{service}"{more}}}',
        "maxNodes": "100000", **server.range_ms()}, TENANT)
    assert r.status == 200, r
    return {";".join(k): v for k, v in cluster.leaves(cluster.flamegraph(r.json())).items()}


def total(service, type_id=cluster.CPU_TYPE, more=""):
    return sum(stacks(service, type_id, more).values())


def labels(service):
    r = server.connect("Series", {"matchers": [f'{{service_name="{service}"}}'],
                                  **server.range_ms()}, TENANT)
    assert r.status == 200, r
    return [{p["name"]: p["value"] for p in s["labels"]} for s in r.json().get("labelsSet", [])]


def says(r, status, code, start=""):
    assert r.status == status, r
    assert r.headers["Content-Type"] == "application/json", r.headers
    assert r.json()["code"] == code and r.json()["message"].startswith(start), r


def message(service, body=None, more=None):
    raw = push.pprof(10000000, time_ns=push.now_ns()) if body is None else body
    return push.request((CPU | {"service_name": service} | (more or {}), [(raw, "an-id")]))


def test_01_folded():
    r = ingest(FOLDED, "c1.cpu", sampleRate=100)
    assert (r.status, r.body) == (200, b""), r
    assert stacks("c1") == {"a;b": 30000000, "a": 20000000}


def test_02_lines():
    r = ingest(b"a;b\n" * 3 + b"a\na\n", "c2.cpu", sampleRate=100, format="lines")
    assert (r.status, r.body) == (200, b""), r
    assert stacks("c2") == {"a;b": 30000000, "a": 20000000}


def test_03_trie():
    body = b"\0\0\1\2a;\0\2\1b\1\0\1c\2\0"
    r = ingest(body, "c3.cpu", {"Content-Type": "binary/octet-stream+trie"}, sampleRate=100)
    assert r.status == 200, r
    assert stacks("c3") == {"a;b": 10000000, "a;c": 20000000}


def test_04_tree():
    body = b"\0\0\1\1a\0\2\1b\1\0\1c\2\0"
    assert ingest(body, "c4.cpu", sampleRate=100, format="tree").status == 200
    assert stacks("c4") == {"a;b": 10000000, "a;c": 20000000}


def test_05_labels_of_the_name():
    r = ingest(FOLDED, "c5.cpu{env=prod,region=eu,__session_id__=77}", sampleRate=100,
               spyName="gospy")
    assert r.status == 200, r
    assert total("c5", more=', env="prod", region="eu"') == 50000000
    (found,) = labels("c5")
    assert found["service_name"] == "c5" and found["pyroscope_spy"] == "gospy", found
    assert "__session_id__" not in found, found


def test_06_unknown_suffix():
    assert ingest(FOLDED, "c6.service", sampleRate=100).status == 200
    assert total("c6.service") == 50000000


def test_07_dotted_name_pprof():
    assert ingest(push.pprof(10), "c7.service", format="pprof").status == 200
    assert total("c7.service") == 10


def test_08_bad_names():
    says(ingest(FOLDED, ""), 400, "invalid_argument", "name: ")
    says(ingest(FOLDED, "app{a b=1}"), 400, "invalid_argument", "name: ")


def test_09_service_name_label():
    assert ingest(FOLDED, "c9.cpu{service_name=c9x}", sampleRate=100).status == 200
    (found,) = labels("c9x")
    assert found["app_name"] == "c9", found


def test_10_time_units():
    at = int(time.time()) - 600
    for i, unit in enumerate((1, 10**3, 10**6, 10**9)):
        r = ingest(FOLDED, f"c10u{i}.cpu", **{"from": at * unit, "until": (at + 10) * unit})
        assert r.status == 200, r
    seen = set()
    for i in range(4):
        r = server.reader.request(
            "GET", "/pyroscope/render?query=" + cluster.urllib.parse.quote(
                f'{cluster.CPU_TYPE}{{service_name="c10u{i}"}}')
            + f"&from={at - 60}&until={at + 60}&format=json", headers=TENANT)
        line = r.json()["timeline"]
        assert sum(line["samples"]) == 50000000, line
        seen.add((line["startTime"], tuple(line["samples"])))
    assert len(seen) == 1, seen


def test_11_multipart_with_configuration():
    raw = scrape_site.pprof((("alloc_objects", "count"), ("inuse_space", "bytes")), {"f": (3, 10)})
    config = json.dumps({"alloc_objects": {"units": "objects"}, "inuse_space": {"units": "bytes"}})
    body, headers = multipart([("profile", raw), ("sample_type_config", config.encode())])
    r = ingest(body, "c11", headers)
    assert r.status == 200, r
    kinds = {x["__profile_type__"] for x in labels("c11")}
    assert kinds == {"memory:alloc_objects:count:space:bytes",
                     "memory:inuse_space:bytes:space:bytes"}, kinds
    assert total("c11", "memory:inuse_space:bytes:space:bytes") == 10


def test_12_multipart_zipped_or_not():
    for i, body in enumerate((push.pprof(10), gzip.compress(push.pprof(10)))):
        form, headers = multipart([("profile", body)])
        assert ingest(form, f"c12n{i}", headers).status == 200
        assert total(f"c12n{i}") == 10


def test_13_empty_part():
    form, headers = multipart([("profile", b"")])
    r = ingest(form, "c13", headers)
    assert (r.status, r.body) == (200, b""), r
    assert not labels("c13")


def test_14_jfr_with_labels():
    if not golden.available():
        print(golden.skip_line("test_14_jfr_with_labels"))
        return
    seen = set()
    for i, (file, snapshot) in enumerate((
            ("dump1.jfr.gz", "dump1.labels.pb.gz"), ("dump2.jfr.gz", "dump2.labels.pb.gz"),
            ("cortex-dev-01__kafka-0__cpu_lock0_alloc0__0.jfr.gz", None))):
        parts = [("jfr", file)] + ([("labels", snapshot)] if snapshot else [])
        form, headers = multipart([(part, golden.read("jfr/" + f)) for part, f in parts])
        assert ingest(form, f"c14n{i}", headers, format="jfr").status == 200
        found = labels(f"c14n{i}")
        assert not snapshot or any("thread_name" in x for x in found), found
        for t in {x["__profile_type__"] for x in found}:
            assert total(f"c14n{i}", t) > 0, (file, t)
            seen.add(t)
    assert seen >= {"process_cpu:cpu:nanoseconds:cpu:nanoseconds",
                    "wall:wall:nanoseconds:wall:nanoseconds",
                    "memory:alloc_in_new_tlab_bytes:bytes:space:bytes",
                    "memory:alloc_in_new_tlab_objects:count:space:bytes",
                    "memory:live:count:objects:count",
                    "mutex:delay:nanoseconds:mutex:count",
                    "block:contentions:count:block:count"}, seen


def test_15_speedscope_with_another_schema():
    body = json.dumps({"$schema": "https://example.org/other.json", "profiles": [], "shared": {}})
    says(ingest(body.encode(), "c15.cpu", format="speedscope"), 400, "invalid_argument")


def test_15_pprof_whose_strings_are_wrong():
    """What names a series must be right, or the body is 400, which says what is wrong. A wrong name of
    a function costs only that name, and is reported."""
    good = push.pprof(10, time_ns=push.now_ns())
    strings = b"".join(push.field(6, s) for s in (b"", b"leaf", b"main", b"cpu", b"nanoseconds"))
    assert good.endswith(strings)
    cases = (
        ("out", push.field(1, push.field(1, 3) + push.field(2, 99)) + good, 400, "the string table"),
        ("type", good[:-len(strings)] + strings.replace(b"\2\3cpu"[1:], b"\3c\xffu"), 400, "UTF-8"),
        ("name", good[:-len(strings)] + strings.replace(b"leaf", b"le\xfff"), 200, ""),
        ("function", good + push.field(5, push.field(1, 3) + push.field(2, 99)), 200, ""))
    for name, body, status, words in cases:
        r = ingest(body, f"c15{name}", format="pprof")
        assert r.status == status, (name, r)
        if status == 400:
            says(r, 400, "invalid_argument")
            assert words in r.json()["message"], r
        r = push.push_proto(server.writer, message(f"c15p{name}", body), TENANT)
        assert r.status == status, (name, r)
    assert ingest(cases[3][1], "c15told", format="pprof").headers["X-Embertree-Left-Out"] == "string_index=1"
    assert total("c15name") == total("c15function") == 10


def test_16_get_ingest():
    assert server.writer.request("GET", "/ingest", headers=TENANT).status == 405


def test_17_body_over_the_limit():
    with cluster.AllInOne("--http.body-bytes-max=1MiB") as one:
        assert one.ingest(b"a 1\n" * 300000, "c17.cpu").status == 413


def test_18_no_tenant():
    with cluster.AllInOne("--tenancy.multi") as one:
        says(one.ingest(FOLDED, "c18.cpu"), 401, "unauthenticated")
        r = push.push_proto(one.process, message("c18"))
        says(r, 401, "unauthenticated", "no org id")
        assert push.push_grpc(one.process, message("c18")).code == 16
        assert push.push_proto(one.process, message("c18"), TENANT).status == 200


def test_19_push_json():
    series = (CPU | {"service_name": "c19"}, [(push.pprof(7), "an-id")])
    r = push.push_json(server.writer, push.request_json(series), TENANT)
    assert (r.status, r.body) == (200, b"{}"), r
    assert total("c19") == 7


def test_20_push_proto_gzip():
    body = gzip.compress(message("c20"))
    r = push.push_proto(server.writer, body, TENANT | {"Content-Encoding": "gzip"})
    assert (r.status, r.body) == (200, b""), r
    assert total("c20") == 10000000


def test_21_push_types_and_verbs():
    r = server.writer.post(push.PATH, b"x", TENANT | {"Content-Type": "text/plain"})
    assert r.status == 415 and not r.body, r
    assert "application/proto" in r.headers["Accept-Post"], r.headers
    r = server.writer.request("GET", push.PATH, headers=TENANT)
    assert r.status == 405 and "POST" in r.headers["Allow"], r.headers


def test_22_push_nothing():
    says(push.push_json(server.writer, '{"series":[]}', TENANT), 400, "invalid_argument",
         "no profiles received")


def test_23_partial_failure():
    good = push.pprof(7)
    many = CPU | {"service_name": "c23b"} | {f"l{i}": "v" for i in range(29)}
    assert len(many) == 31
    body = push.request((many, [(good, "bad-one")]), (CPU | {"service_name": "c23"}, [(good, "")]))
    r = push.push_proto(server.writer, body, TENANT)
    says(r, 400, "invalid_argument", "push series with index 0 and id bad-one failed: ")
    assert total("c23") == 7 and not labels("c23b")


def test_24_over_the_rate():
    with cluster.AllInOne("--distributor.tenant-rate-bytes=1KiB",
                          "--distributor.tenant-burst-bytes=1KiB") as one:
        body = push.request((CPU | {"service_name": "c24"},
                             [(push.pprof(7, leaf="x" * 600), "")]))
        assert push.push_proto(one.process, body).status == 200
        r = push.push_proto(one.process, body)
        says(r, 429, "resource_exhausted")
        assert push.push_grpc(one.process, body).code == 8
    # and where the overrides file says so, for one tenant only
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        f.write("tenants: {t1: {ingestion_rate_mb: 0.001, ingestion_burst_size_mb: 0.001}}\n")
        f.flush()
        with cluster.AllInOne("--tenancy.multi", f"--distributor.overrides-file={f.name}") as one:
            assert push.push_proto(one.process, body, TENANT).status == 200
            r = push.push_proto(one.process, body, TENANT)
            says(r, 429, "resource_exhausted", "rate_limited: ")
            assert {k.lower() for k in r.headers} >= {"retry-after"}, r
            for _ in range(3):
                assert push.push_proto(one.process, body, {"X-Scope-OrgID": "t2"}).status == 200


def test_25_only_zeros():
    r = push.push_proto(server.writer, message("c25", push.pprof(0)), TENANT)
    assert r.status == 200 and not labels("c25"), r


def test_26_old_profiles():
    for i, (back_s, status) in enumerate(((7200, 200), (500 * 86400, 400))):
        raw = push.pprof(7, time_ns=push.now_ns(back_s))
        r = push.push_proto(server.writer, message(f"c26n{i}", raw), TENANT)
        assert r.status == status, r
    says(r, 400, "invalid_argument", "push series with index 0 and id an-id failed: "
         "not_in_ingestion_window")


def test_27_grpc_and_grpc_web():
    assert push.push_grpc(server.writer, message("c27"), TENANT).code == 0
    assert push.push_web(server.writer, message("c27web"), TENANT).code == 0
    assert total("c27") == total("c27web") == 10000000


def test_28_error_of_a_proto_request():
    r = push.push_proto(server.writer, message("c28", b"no pprof"), TENANT)
    says(r, 400, "invalid_argument", "push series with index 0 and id an-id failed: ")


def test_38_render():
    assert ingest(FOLDED, "c38.cpu", sampleRate=100).status == 200
    path = "/pyroscope/render?query=" + cluster.urllib.parse.quote(
        cluster.CPU_TYPE + '{service_name="c38"}') + "&until=now"
    r = server.reader.request("GET", path + "&from=now-1h&format=json", headers=TENANT)
    doc = r.json()
    assert r.status == 200 and doc["flamebearer"]["numTicks"] == 50000000, r
    assert set(doc["flamebearer"]) >= {"names", "levels", "numTicks", "maxSelf"}, r
    assert doc["timeline"]["durationDelta"] == 15 and doc["metadata"]["format"] == "single", r
    r = server.reader.request("GET", path + "&from=now-1h&format=dot", headers=TENANT)
    assert r.status == 200 and r.body.startswith(b"digraph"), r
    assert server.reader.request("GET", path + "&from=0", headers=TENANT).status == 400
    assert server.reader.request("POST", path + "&from=now-1h", headers=TENANT).status == 405


def run_all():
    global server
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    with cluster.AllInOne() as server:
        try:
            cluster.main(tests)
        except SystemExit as e:  # caught here, or the server would take it for a failure
            return e.code
    return 1


if __name__ == "__main__":
    sys.exit(run_all())
