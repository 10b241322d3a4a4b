"""Push over every protocol it can come by, read back; every pprof file of the test data by Push."""
import gzip
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push
import test_testdata

CPU = {"__name__": "process_cpu"}


def total(server, service, type_id=cluster.CPU_TYPE, more=""):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": f'{{service_name="{service}"{more}}}',
        **server.range_ms()})
    assert r.status == 200, r
    return cluster.flamegraph(r.json())["numTicks"]


def check_protocols(server):
    raw = push.pprof(30000000, time_ns=push.now_ns())
    p = server.writer

    def message(service, body=raw):
        return push.request((CPU | {"service_name": service, "env": "prod"}, [(body, "an-id")]))

    r = push.push_json(p, push.request_json((CPU | {"service_name": "json"}, [(raw, "an-id")])))
    assert (r.status, r.body) == (200, b"{}"), r
    zipped = gzip.compress(message("proto-gzip", gzip.compress(raw)))
    r = push.push_proto(p, zipped, {"Content-Encoding": "gzip"})
    assert (r.status, r.body) == (200, b""), r
    for name, call in (("grpc", push.push_grpc), ("web", push.push_web)):
        for zipped in (False, True):
            status = call(p, message(f"{name}-{zipped}"), zipped=zipped)
            assert status.code == 0, (name, zipped, status)
    for service in ("json", "proto-gzip", "grpc-False", "grpc-True", "web-False", "web-True"):
        assert total(server, service) == 30000000, service
    assert total(server, "grpc-True", more=', env="prod"') == 30000000
    assert total(server, "grpc-True", more=', env="dev"') == 0
    # once more: the same profile of the same sender is counted once
    assert push.push_grpc(p, message("grpc-True")).code == 0
    assert total(server, "grpc-True") == 30000000


def test_every_protocol_through_one_process():
    with cluster.AllInOne() as server:
        check_protocols(server)


def test_every_protocol_through_four_processes():
    with cluster.FourProcesses() as server:
        check_protocols(server)


def test_errors_of_grpc():
    with cluster.AllInOne() as server:
        p = server.process
        bad = push.request((CPU, [(b"no pprof", "x")]))
        for call in (push.push_grpc, push.push_web):
            status = call(p, bad)
            assert status.code == 3 and "index%200 and id x failed" in status.message.replace(
                "index 0", "index%200"), status
            assert call(p, b"").code == 3
        assert push.push_grpc(p, b"", path="/push.v1.PusherService/Pull").code == 12
        assert push.push_grpc(p, bad, {"grpc-timeout": "0m"}).code == 4
        assert push.push_grpc(p, b"", path="/grpc.health.v1.Health/Check").code == 0


def test_several_profiles_of_one_request():
    """Several series, several samples each: all counted, also the same bytes twice."""
    with cluster.AllInOne() as server:
        raw = push.pprof(7, time_ns=0)
        message = push.request(
            (CPU | {"service_name": "many", "pod": "a"}, [(raw, ""), (raw, "")]),
            (CPU | {"service_name": "many", "pod": "b"}, [(raw, "1"), (raw, "2"), (raw, "3")]))
        for key, want in (("k", 35), ("k", 35), ("l", 70)):
            r = push.push_proto(server.process, message, {"Idempotency-Key": key})
            assert r.status == 200, r
            assert total(server, "many") == want, (key, total(server, "many"))
        assert total(server, "many", more=', pod="b"') == 42


def test_sample_labels():
    """Span and trace ids become exemplars, other string labels split series; given labels win."""
    span, trace = "1122334455667788", "0102030405060708090a0b0c0d0e0f10"
    labels = (("span_id", span), ("trace_id", trace), ("tenant_plan", "gold"), ("env", "forged"),
              ("span_name", "GET /"))
    with cluster.AllInOne() as server:
        raw = push.pprof(50, labels=labels, time_ns=push.now_ns())
        message = push.request((CPU | {"service_name": "tagged", "env": "prod"}, [(raw, "")]))
        assert push.push_proto(server.process, message).status == 200
        r = server.connect("Series", {"matchers": ['{service_name="tagged"}'],
                                      **server.range_ms()})
        names = {p["name"] for s in r.json()["labelsSet"] for p in s["labels"]}
        assert not names & {"span_id", "trace_id", "profile_id"}, names
        assert {"tenant_plan", "span_name", "env"} <= names, names
        assert total(server, "tagged") == 100
        assert total(server, "tagged", more=', tenant_plan="gold", span_name="GET /"') == 50
        assert total(server, "tagged", more=', env="prod"') == 100
        r = server.connect("SelectMergeSpanProfile", {
            "profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="tagged"}',
            "spanSelector": [span], **server.range_ms()})
        assert r.status == 200 and cluster.flamegraph(r.json())["numTicks"] == 50, r


def test_a_key_for_two_pushes():
    """An Idempotency-Key that comes with another request is refused, by whichever distributor, and counted by
    its reason; the same request again is 200 and stored once."""
    secret = "--distributor.write-id-secret=0123456789abcdef"
    reused = {"reason": "idempotency_key_reused"}
    key = {"Idempotency-Key": "K1"}
    one, two = ({"from": "now-20s", "until": "now-10s", "name": f"{name}.cpu"} for name in ("keyed", "other"))
    with cluster.FourProcesses(distributor=[secret]) as server:
        first = server.writer
        options = [o for o in first.options if not o.startswith("--distributor.listen")]
        second = cluster.Process("embertree-distributor", *options,
                                 f"--distributor.listen=tcp://127.0.0.1:{cluster.free_port()}")
        try:
            second.start()
            for p in (first, second, first):
                assert p.post("/ingest", b"a;x 1\n", key, **one).status == 200
                r = p.post("/ingest", b"a;y 2\n", key, **one)
                assert r.status == 422 and b"idempotency_key_reused" in r.body, r
                r = p.post("/ingest", b"a;x 1\n", key, **(one | {"from": "now-30s"}))
                assert r.status == 422, r
            # a key is that of its service, so nothing is lost here
            assert second.post("/ingest", b"a;y 2\n", key, **two).status == 200
            raw, more = (push.pprof(v, time_ns=push.now_ns()) for v in (30000000, 40000000))
            message = [push.request((CPU | {"service_name": "rpc"}, [(body, "")])) for body in (raw, more)]
            for p in (first, second):
                assert push.push_proto(p, message[0], key).status == 200
                r = push.push_proto(p, message[1], key)
                assert r.status == 409 and r.json()["code"] == "already_exists", r
                assert push.push_grpc(p, message[1], key).code == 6
            assert total(server, "keyed") == 1 * 10_000_000
            assert total(server, "other") == 2 * 10_000_000
            assert total(server, "rpc") == 30000000
            for p, n in ((first, 6), (second, 4)):
                assert p.metric("embertree_discarded_profiles_total", **reused) == n
        finally:
            second.cleanup()


def test_every_file_by_push():
    """As test_testdata does by /ingest; the files' own times are long ago, so they get new ones."""
    rows = [r for r in test_testdata.good_rows() if r["format"].startswith("pprof")]
    ways = [push.push_proto, push.push_json, push.push_web, push.push_grpc]
    problems = []
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows):
            way = ways[i % len(ways)]
            raw = push.at_time(golden.read(row["path"]), push.now_ns())
            series = ({"__name__": "some_name", "service_name": f"file{i}"},
                      [(gzip.compress(raw) if i % 3 else raw, f"id-{i}")])
            make = push.request_json if way is push.push_json else push.request
            r = way(server.process, make(series))
            if getattr(r, "code", 0) or getattr(r, "status", 200) != 200:
                problems.append(f"{row['path']} by {way.__name__}: {r}")
        for i, row in enumerate(rows):
            try:
                ids = test_testdata.type_ids(server, f"file{i}")
                assert all(t.startswith("some_name:") for t in ids), (row["path"], ids)
                test_testdata.check_pprof(server, row, f"file{i}")
            except AssertionError as e:
                problems.append(str(e))
    assert not problems, f"{len(problems)} of {len(rows)}:\n" + "\n".join(problems)
    print(f"     {len(rows)} files")


if __name__ == "__main__":
    TESTS = [test_every_protocol_through_one_process, test_every_protocol_through_four_processes,
             test_errors_of_grpc, test_several_profiles_of_one_request, test_sample_labels,
             test_a_key_for_two_pushes]
    if golden.available():
        TESTS.append(test_every_file_by_push)
    else:
        print(golden.skip_line("the files by Push"))
    cluster.main(TESTS)
