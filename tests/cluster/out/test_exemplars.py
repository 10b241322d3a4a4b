"""Spans, traces and single profiles, from a push to the answer: the samples under an id come back,
exactly, from every route that takes one; the series contains them as well."""
import collections
import gzip
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden

CPU = cluster.CPU_TYPE


# ---- a small writer and reader of pprof, sharing nothing with the server's ----

def varint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7f | 0x80])
        v >>= 7
    return out + bytes([v])


def number(field, v):
    return varint(field << 3) + varint(v)


def block(field, body):
    return varint(field << 3 | 2) + varint(len(body)) + body


def write_pprof(samples):
    """samples: [(stack root first, nanoseconds, {label: text or number})], type cpu/nanoseconds."""
    strings = [""]

    def string(s):
        if s not in strings:
            strings.append(s)
        return strings.index(s)

    functions = {}
    body = block(1, number(1, string("cpu")) + number(2, string("nanoseconds")))
    for stack, value, labels in samples:
        ids = [functions.setdefault(f, len(functions) + 1) for f in reversed(stack)]
        labels = [number(1, string(k)) + (number(3, v) if isinstance(v, int)
                                          else number(2, string(v))) for k, v in labels.items()]
        body += block(2, block(1, b"".join(map(varint, ids))) + block(2, varint(value))
                      + b"".join(block(3, l) for l in labels))
    for name, i in functions.items():
        body += block(4, number(1, i) + block(4, number(1, i)))
        body += block(5, number(1, i) + number(2, string(name)))
    body += block(11, number(1, string("cpu")) + number(2, string("nanoseconds")))
    body += number(12, 10000000) + number(9, time.time_ns() - 5 * 10**9) + number(10, 5 * 10**9)
    return gzip.compress(body + b"".join(block(6, s.encode()) for s in strings))


def fields(data):
    at = 0

    def get():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]
            at += 1
            v |= (b & 0x7f) << shift
            shift += 7
            if b < 0x80:
                return v
    while at < len(data):
        tag = get()
        if tag & 7 == 0:
            yield tag >> 3, get()
        else:
            n = get()
            yield tag >> 3, data[at:at + n]
            at += n


def numbers(message, field):
    for k, v in fields(message):
        if k == field:
            if isinstance(v, int):
                yield v
            else:  # packed
                yield from (x for _, x in fields(b"".join(b"\x08" + p for p in split_varints(v))))


def split_varints(data):
    at = 0
    while at < len(data):
        end = at
        while data[end] >= 0x80:
            end += 1
        yield data[at:end + 1]
        at = end + 1


def totals_by_label(data, type_index, keys):
    """{(key, text): sum of one sample type} over samples that have the label."""
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    strings = [v for k, v in fields(data) if k == 6]
    out = collections.Counter()
    for k, sample in fields(data):
        if k != 2:
            continue
        value = list(numbers(sample, 2))[type_index]
        seen = set()
        for f, label in fields(sample):
            parts = dict(fields(label)) if f == 3 else {}
            key = strings[parts.get(1, 0)].decode()
            if key in keys and key not in seen and parts.get(2):
                seen.add(key)
                out[key, strings[parts[2]].decode()] += value
    return out


# ---- questions ----

def merge(server, method="SelectMergeStacktraces", type_=CPU, selector="{}", **more):
    reply = server.connect(method, {"profileTypeID": type_, "labelSelector": selector,
                                    "maxNodes": 1000000, **server.range_ms(), **more})
    assert reply.status == 200, reply
    return cluster.leaves(cluster.flamegraph(reply.json()))


def render(server, query, path="/render", **more):
    reply = server.reader.get(path, query=query, format="json", **{"max-nodes": 100000}, **more)
    assert reply.status == 200, reply
    return cluster.leaves(reply.json()["flamebearer"])


S1, S2, T1 = "00000bac2a5ab0c7", "ffffffffffffffff", "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLES = [
    (["main", "a"], 70, {"span_id": S1, "trace_id": T1}),
    (["main", "b"], 20, {"profile_id": S1.upper()}),  # how older agents call a span
    (["main", "a"], 5, {"span_id": S2, "pod": "p1"}),
    (["main", "a"], 3, {"span_id": int(S2, 16), "pod": "p1"}),
    (["main", "c"], 900, {"pod": "p2"}),
]
A, B, C = ("main", "a"), ("main", "b"), ("main", "c")


def check_spans(server):
    spans = "SelectMergeSpanProfile"
    assert merge(server, spans, spanSelector=[S1]) == {A: 70, B: 20}
    assert merge(server, spanSelector=[S1]) == {A: 70, B: 20}
    assert merge(server, span_selector=[S1, S2, S1]) == {A: 78, B: 20}
    assert merge(server, traceIdSelector=[T1]) == {A: 70}
    assert merge(server, profile_id_selector=[S1]) == {A: 70, B: 20}
    assert merge(server, spanSelector=[S2], selector='{pod="p1"}') == {A: 8}
    assert merge(server, spanSelector=[S1], selector='{pod="p1"}') == {}
    assert merge(server, spanSelector=["00000000000000aa"]) == {}
    assert merge(server, spans, spanSelector=[]) == {}
    assert merge(server, selector=f'{{span_id="{S1}"}}') == {A: 70, B: 20}
    assert merge(server, spanSelector=[S1], stackTraceSelector={
        "call_site": [{"name": "main"}, {"name": "b"}]}) == {B: 20}
    # Without an id nothing is different: the samples are in their series.
    assert merge(server) == {A: 78, B: 20, C: 900}
    # The old routes: with a time, without one, two ids, a trace.
    assert render(server, f'shop.cpu{{profile_id="{S1}"}}') == {A: 70, B: 20}
    assert render(server, f'shop.cpu{{profile_id="{S1}"}}', from_="now-1h") == {A: 70, B: 20}
    assert render(server, f'shop.cpu{{profile_id="{S1}"}}', from_="now-1h", until="now-30m") == {}
    assert render(server, f'shop.cpu{{span_id=~"{S1}|{S2}",pod="p1"}}') == {A: 8}
    assert render(server, f'shop.cpu{{trace_id="{T1}"}}') == {A: 70}
    assert render(server, f'{CPU}{{profile_id="{S1}"}}', "/pyroscope/render") == {A: 70, B: 20}
    reply = server.reader.post("/merge", json.dumps({"appName": "shop.cpu", "profiles": [S1, S2]}))
    assert reply.status == 200 and cluster.leaves(reply.json()["flamebearer"]) == {A: 78, B: 20}
    assert reply.json()["mergeMetadata"]["profilesLength"] == 2 and reply.json()["queryID"]


def test_spans_of_a_pprof():
    with cluster.AllInOne("--ingester.seal_delay=0ms") as server:
        body, key = write_pprof(SAMPLES), {"Idempotency-Key": "k1"}
        for _ in range(2):  # a retry counts once, for exemplars, too
            assert server.ingest(body, "shop", headers=key, format="pprof").status == 200
        check_spans(server)
        names = server.connect("LabelNames", server.range_ms()).json()["names"]
        assert not {"span_id", "profile_id", "trace_id"} & set(names)
        assert server.process.metric("embertree_ingester_exemplars_total") == 3
        # The timeline of a span is that of its samples.
        reply = server.reader.get("/render", query=f'shop.cpu{{profile_id="{S1}"}}', format="json",
                                  from_="now-5m", until="now+10s").json()
        assert sum(max(v - 1, 0) for v in reply["timeline"]["samples"]) in (89, 90), reply
        server.process.kill()
        server.process.start()
        check_spans(server)


def test_spans_through_four_processes():
    with cluster.FourProcesses() as server:
        assert server.ingest(write_pprof(SAMPLES), "shop", format="pprof").status == 200
        check_spans(server)
        assert heatmap(server).json()["series"][0]["slots"][0]["counts"].count(0) == 18


def test_profile_id_in_a_name():
    with cluster.AllInOne() as server:
        ingest = lambda name, body: server.ingest(body, name, format="")
        assert ingest("app.cpu{profile_id=req-1,pod=a}", b"a;b 3\n").status == 200
        assert ingest("app.cpu{profile_id=req-2,pod=a}", b"a;b 4\na;c 1\n").status == 200
        assert ingest("app.cpu{pod=a}", b"a;b 10\n").status == 200
        ab, ac = ("a", "b"), ("a", "c")
        unit = 10**7  # sampleRate 100
        assert render(server, 'app.cpu{profile_id="req-1"}') == {ab: 3 * unit}
        assert render(server, 'app.cpu{profile_id=~"req-1|req-2"}') == {ab: 7 * unit, ac: unit}
        assert merge(server, profileIdSelector=["req-2"]) == {ab: 4 * unit, ac: unit}
        assert render(server, "app.cpu", from_="now-1h", until="now") == {ab: 17 * unit, ac: unit}
        apps = server.connect("Series", {"labelNames": [], **server.range_ms()}).json()["labelsSet"]
        assert len(apps) == 1  # never a series per profile


def test_what_is_refused():
    with cluster.AllInOne() as server:
        def status(**more):
            message = {"profileTypeID": CPU, "labelSelector": "{}", **server.range_ms(), **more}
            return server.connect("SelectMergeStacktraces", message).status
        assert status(spanSelector=["abc"]) == 400
        assert status(spanSelector=["g" * 16]) == 400
        assert status(spanSelector=[T1]) == 400
        assert status(traceIdSelector=[S1]) == 400
        assert status(spanSelector=[S1], traceIdSelector=[T1]) == 400
        assert status(spanSelector=["0" * 16]) == 400
        assert status(spanSelector=[f"{i:016x}" for i in range(1, 2000)]) == 400
        for query in ('a.cpu{profile_id!="x"}', 'a.cpu{span_id=~"a.*"}',
                      'a.cpu{span_id="a",trace_id="b"}'):
            assert server.reader.get("/render", query=query).status == 400, query
        assert server.reader.post("/merge", "{}").status == 400
        assert server.reader.post("/merge", "[").status == 400


def test_bounds_and_switch():
    many = [(["m", f"f{i % 7}"], 1 + i, {"span_id": f"{i + 1:016x}"}) for i in range(50)]
    for option, stored in (("--exemplars.rows_per_minute=20", 20), ("--exemplars.retention=0ms", 0),
                           ("--distributor.exemplars=30", 30)):
        with cluster.AllInOne(option) as server:
            assert server.ingest(write_pprof(many), "shop", format="pprof").status == 200
            assert server.process.metric("embertree_ingester_exemplars_total") == stored
            left = (server.process.metric("embertree_ingester_exemplars_left_out_total")
                    + server.process.metric("embertree_distributor_left_out_total",
                                            what="exemplar"))
            assert left == 50 - stored, (option, left)
            assert sum(merge(server).values()) == sum(1 + i for i in range(50))


def test_names_over_the_cap():
    """A service that makes up names: totals stay, the rest is [overflow], and the answer says so."""
    with cluster.AllInOne("--ingester.dictionary_nodes_per_day=100") as server:
        for i in range(20):
            lines = "".join(f"main;known;f{i}_{k} {k + 1}\n" for k in range(30))
            assert server.ingest(lines.encode(), "wild.cpu", format="").status == 200
        reply = server.render(CPU + '{service_name="wild"}')
        got = cluster.leaves(reply.json()["flamebearer"])
        total, unit = 20 * sum(range(1, 31)), 10**7
        assert sum(got.values()) == total * unit
        over = got["main", "known", "[overflow]"]
        known = len(got) - 1  # of 100 nodes: two have no value, and the names took some
        assert 85 <= known <= 98 and over > total * unit // 2
        assert int(reply.headers["X-Embertree-Overflow"]) == over
        assert server.process.metric("embertree_ingester_dictionary_overflow_total") == 600 - known
        # Known stacks are still told apart; another service is not touched.
        assert server.ingest(b"main;known;f0_0 1000\n", "wild.cpu", format="").status == 200
        assert server.ingest(b"a;b 1\n", "tame.cpu", format="").status == 200
        after = cluster.leaves(server.render(CPU + '{service_name="wild"}').json()["flamebearer"])
        assert after["main", "known", "f0_0"] == got["main", "known", "f0_0"] + 1000 * unit
        tame = server.render(CPU + '{service_name="tame"}')
        assert tame.headers["X-Embertree-Overflow"] is None
        assert cluster.leaves(tame.json()["flamebearer"]) == {("a", "b"): unit}


def heatmap(server, **more):
    return server.connect("SelectHeatmap", {"profileTypeID": CPU, "labelSelector": "{}",
                                            "step": 10, "queryType": "HEATMAP_QUERY_TYPE_SPAN",
                                            **server.range_ms(300), **more})


def test_heatmap():
    samples = [(["m", "f"], 100 * i, {"span_id": f"{i:016x}", "pod": f"p{i % 2}"})
               for i in range(1, 22)]
    with cluster.AllInOne() as server:
        assert server.ingest(write_pprof(samples), "shop", format="pprof").status == 200
        assert server.ingest(b"a;b 3\n", "shop.cpu{profile_id=req-1}", format="").status == 200
        series = heatmap(server).json()["series"]
        assert len(series) == 1 and "labels" not in series[0]
        slot, = series[0]["slots"]
        # 21 values from 100 to 2100: edges 100 apart, the last bucket has its upper edge, too.
        assert slot["yMin"] == [100 + 100 * i for i in range(20)]
        assert slot["counts"] == [1] * 19 + [2] and "exemplars" not in slot
        by_pod = heatmap(server, groupBy=["pod"], exemplarType="EXEMPLAR_TYPE_SPAN",
                         limit="1").json()["series"]
        assert [s["labels"] for s in by_pod] == [[{"name": "pod", "value": "p1"}]]
        exemplars = by_pod[0]["slots"][0]["exemplars"]
        assert [e["value"] for e in exemplars] == [str(100 * i) for i in range(1, 20, 2)] + ["2100"]
        assert exemplars[-1]["spanId"] == f"{21:016x}"
        assert {"name": "service_name", "value": "shop"} in exemplars[0]["labels"]
        assert "pod" not in {l["name"] for l in exemplars[0]["labels"]}
        # A push with an id of its own, and the leaves of two series that have none.
        one, = heatmap(server, queryType=1, exemplarType=2).json()["series"]
        assert sum(sum(s["counts"]) for s in one["slots"]) == 3
        found = {e["profileId"]: int(e["value"]) for s in one["slots"] for e in s["exemplars"]}
        assert found.pop("req-1") == 3 * 10**7
        # The two leaves are in one bucket: the larger stands for both.
        (leaf, value), = found.items()
        assert value == 100 * (1 + 21) * 11 // 2 and len(leaf) == 32
        assert merge(server, profileIdSelector=[leaf]) == {("m", "f"): value}
        assert merge(server, selector='{pod="p0"}', profileIdSelector=[leaf]) == {}
        assert merge(server, profileIdSelector=[leaf, "req-1"]) == {("m", "f"): value,
                                                                     ("a", "b"): 3 * 10**7}
        points = server.connect("SelectSeries", {
            "profileTypeID": CPU, "labelSelector": "{}", "step": 10, **server.range_ms(300),
            "groupBy": ["service_name"], "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"}).json()
        # A point into which a push only reaches has none: it stands where the push begins.
        best = [p["exemplars"] for s in points["series"] for p in s["points"] if "exemplars" in p]
        assert len(points["series"]) == 1 and best and all(len(x) == 1 for x in best)
        assert {x[0]["profileId"]: x[0]["value"] for x in best}["req-1"] == str(3 * 10**7)
        assert heatmap(server, labelSelector='{service_name="none"}').json() == {}
        assert heatmap(server, exemplarType=2).status == 400
        assert heatmap(server, queryType=7).status == 400
        assert heatmap(server, step=0).status == 400


def test_plain_pushes():
    """A push of text without an id: a cell of the heat map, an exemplar, and it opens by every
    route that takes ids; two pushes in one leaf are one."""
    at = int(time.time()) // 10 * 10 - 300
    with cluster.AllInOne("--ingester.seal_delay=0ms", "--selfprof.enabled=false") as server:
        def push(name, body, t):
            r = server.ingest(body, name, format="", from_=str(t), until=str(t + 10))
            assert r.status == 200, r
        unit, ab, ac = 10**7, ("a", "b"), ("a", "c")
        push("app.cpu{pod=x}", b"a;b 3\n", at)
        push("app.cpu{pod=x}", b"a;c 4\n", at + 5)
        push("app.cpu{pod=x}", b"a;b 50\n", at + 10)
        push("app.cpu{pod=y}", b"a;b 1\n", at)
        asked = {"profileTypeID": CPU, "labelSelector": "{}", "start": str(at * 1000),
                 "end": str((at + 60) * 1000)}
        for _ in range(2):
            r = server.connect("SelectHeatmap", {**asked, "step": 10, "exemplarType": 2,
                                                 "groupBy": ["pod"]})
            x, y = r.json()["series"]
            assert [(int(s["timestamp"]), sum(s["counts"])) for s in x["slots"]] == [
                (at * 1000, 1), (at * 1000 + 10000, 1)], x
            one, two = [s["exemplars"][0] for s in x["slots"]]
            assert (one["value"], two["value"]) == (str(7 * unit), str(50 * unit))
            opened = {ab: 3 * unit, ac: 4 * unit}
            assert merge(server, profileIdSelector=[one["profileId"]]) == opened
            assert merge(server, profileIdSelector=[one["profileId"], two["profileId"]]) == {
                ab: 53 * unit, ac: 4 * unit}
            query = f'app.cpu{{profile_id="{one["profileId"]}"}}'
            assert render(server, query) == opened
            assert render(server, query, from_=str(at), until=str(at + 10)) == opened
            assert render(server, query, from_=str(at + 10), until=str(at + 20)) == {}
            dashes = "-".join(one["profileId"][a:b]
                              for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
            assert merge(server, profileIdSelector=[dashes.upper()]) == opened
            # An id that does not exist.
            fake = one["profileId"][:-1] + ("0" if one["profileId"][-1] != "0" else "1")
            assert merge(server, profileIdSelector=[fake]) == {}
            # As a series, in groups, and below a call site.
            for by in ([], ["pod"]):
                r = server.connect("SelectSeries", {
                    **asked, "step": 15, "groupBy": by, "exemplarType": 2, "labelSelector":
                    f'{{profile_id=~"{one["profileId"]}|{two["profileId"]}"}}'})
                points = r.json()["series"][0]["points"]
                assert sum(p["value"] for p in points) == 57 * unit, r.json()
            r = server.connect("SelectSeries", {
                **asked, "step": 20, "exemplarType": 2,
                "stackTraceSelector": {"callSite": [{"name": "a"}, {"name": "c"}]}}).json()
            points = r["series"][0]["points"]  # spread over the slots of its leaf
            assert sum(p["value"] for p in points) == 4 * unit
            assert [(e["profileId"], e["value"]) for p in points for e in p.get("exemplars", [])] == [
                (one["profileId"], str(4 * unit))]
            # The old route: no spans, so these.
            reply = server.reader.get("/api/exemplars:query", query="app.cpu{}", from_=str(at),
                                      until=str(at + 60), minValue=str(5 * unit),
                                      maxValue=str(10 * unit)).json()
            assert sum(map(sum, reply.get("heatmap", {}).get("values", []))) == 3, reply
            assert cluster.leaves(reply["flamebearer"]) == opened
            server.process.kill()
            server.process.start()


def test_third_party_files():
    if not golden.available():
        print(golden.skip_line("files with span ids"))
        return
    keys = ("span_id", "profile_id", "trace_id")
    seen = 0
    with cluster.AllInOne("--exemplars.rows_per_minute=1000000") as server:
        for row in golden.manifest("pprof"):
            data = (golden.DATA / row["path"]).read_bytes()
            labels = (golden.expected(row["path"]) or {}).get("string_labels") or {}
            if not set(keys) & set(labels):
                continue
            types = golden.expected(row["path"])["sample_types"]
            index = [t["type"] for t in types].index("cpu")
            app = "f" + str(seen)
            assert server.ingest(data, app, format="pprof").status == 200
            want = totals_by_label(data, index, keys)
            assert want
            for (key, text), total in want.items():
                ask = "traceIdSelector" if key == "trace_id" else "profileIdSelector"
                got = merge(server, selector=f'{{service_name="{app}"}}', **{ask: [text]})
                assert sum(got.values()) == total, (row["path"], key, text, total, got)
            ids = [text for (key, text) in want if key != "trace_id"]
            got = merge(server, selector=f'{{service_name="{app}"}}', profileIdSelector=ids)
            assert sum(got.values()) == sum(t for (k, _), t in want.items() if k != "trace_id")
            print(f"{row['path']}: {len(want)} ids")
            seen += 1
    assert seen >= 2


if __name__ == "__main__":
    cluster.main([test_spans_of_a_pprof, test_spans_through_four_processes,
                  test_profile_id_in_a_name, test_what_is_refused,
                  test_bounds_and_switch, test_names_over_the_cap, test_heatmap,
                  test_plain_pushes, test_third_party_files])
