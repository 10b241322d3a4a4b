"""querier.v1 by every way in: the same question in Connect JSON, Connect proto, gRPC and gRPC-Web
has the same answer; checks 29 to 37 of proto/WIRE.md, "Conformance checks"; what Grafana's data
source and Profiles Drilldown send.
"""
import base64
import gzip
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import grafana
import pprof_ref
import push_client as push
import querier_v1 as v1
import test_exemplars as exemplars

CPU = cluster.CPU_TYPE
T1 = {"X-Scope-OrgID": "t1"}
SPAN = "00f067aa0ba902b7"
INTERNAL = {"__name__", "__period_type__", "__period_unit__", "__profile_type__",
            "__service_name__", "__type__", "__unit__"}
server = None
WAYS = v1.WAYS
began_ms = 0


def rpc(method, message=None, way="json", headers=None):
    return v1.call(server.reader, method, message or {}, way, T1 | (headers or {}))


def ok(method, message=None, way="json", headers=None):
    a = rpc(method, message, way, headers)
    assert not a.code, (method, message, a)
    return a.message


def fails(code, method, message=None, part="", **more):
    for way in WAYS:
        a = rpc(method, message, way, **more)
        assert a.code == code and part in a.text, (way, method, message, a)


def times(back_s=3600):
    now = int(time.time() * 1000)
    return {"start": str(now - back_s * 1000), "end": str(now + 1000)}


def asked(selector='{service_name="shop"}', **more):
    return {"profileTypeID": CPU, "labelSelector": selector, **times(), **more}


def fill():
    """Two services of t1, one with a span, one name that is not plain; one service of t2."""
    global began_ms
    began_ms = int(time.time() * 1000) - 60000
    for env, text in (("prod", b"main;serve;pay 30\nmain;serve;list 20\nmain 1\n"),
                      ("dev", b"main;idle 7\n")):
        r = server.ingest(text, f"shop.cpu{{env={env}}}", T1, sampleRate=1000000000)
        assert r.status == 200, r
    body = exemplars.write_pprof([(["main", "tagged"], 70, {"span_id": SPAN}),
                                  (["main", "other"], 9, {})])
    r = server.ingest(body, "spans", T1, format="pprof")
    assert r.status == 200, r
    raw = push.pprof(1000, time_ns=push.now_ns())
    r = push.push_grpc(server.writer, push.request(
        ({"__name__": "process_cpu", "service_name": "dotted", "k8s.pod": "p"}, [(raw, "id")])), T1)
    assert r.code == 0, r
    r = server.ingest(b"only 4\n", "elsewhere.cpu", {"X-Scope-OrgID": "t2"}, sampleRate=1000000000)
    assert r.status == 200, r


# ---- the same by every way ----

def questions():
    sel, pgo = {"stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "serve"}]}}, {
        "stackTraceSelector": {"goPgo": {"keepLocations": 2, "aggregateCallees": True}}}
    everything = {"matchers": [], **times()}
    yield "ProfileTypes", times()
    yield "LabelNames", everything
    yield "LabelNames", {"matchers": ['{env="dev"}', '{service_name=~"s.*"}'], **times()}
    yield "LabelValues", {"name": "service_name", **everything}
    yield "Series", {"labelNames": ["service_name", "__profile_type__"], **everything}
    yield "Series", everything
    yield "SelectMergeStacktraces", asked()
    yield "SelectMergeStacktraces", asked(maxNodes="2", format="PROFILE_FORMAT_FLAMEGRAPH")
    yield "SelectMergeStacktraces", asked('{service_name="none"}')
    for kind in ("TREE", "DOT", "PPROF"):
        yield "SelectMergeStacktraces", asked(format="PROFILE_FORMAT_" + kind)
        yield "SelectMergeStacktraces", asked("{}", format="PROFILE_FORMAT_" + kind, maxNodes="3")
    yield "SelectMergeStacktraces", asked(**sel)
    yield "SelectMergeStacktraces", asked(format="PROFILE_FORMAT_PPROF", **pgo)
    yield "SelectMergeStacktraces", asked("{}", spanSelector=[SPAN])
    yield "SelectMergeSpanProfile", asked("{}", spanSelector=[SPAN])
    yield "SelectMergeSpanProfile", asked("{}", spanSelector=[SPAN], format="PROFILE_FORMAT_TREE")
    yield "SelectMergeProfile", asked()
    yield "SelectMergeProfile", asked(maxNodes="2", **sel)
    yield "SelectSeries", asked("{}", step=15, groupBy=["service_name"])
    yield "SelectSeries", asked("{}", step=15.5, groupBy=["env"], limit="1",
                                aggregation="TIME_SERIES_AGGREGATION_TYPE_AVERAGE")
    yield "SelectSeries", asked("{}", step=15, exemplarType="EXEMPLAR_TYPE_INDIVIDUAL")
    yield "SelectSeries", asked("{}", step=30, groupBy=["env"], **sel)
    yield "SelectSeries", asked("{}", step=30, groupBy=["env"], exemplarType="EXEMPLAR_TYPE_SPAN",
                                aggregation="TIME_SERIES_AGGREGATION_TYPE_AVERAGE", **sel)
    yield "SelectHeatmap", asked("{}", step=60, queryType="HEATMAP_QUERY_TYPE_SPAN",
                                 exemplarType="EXEMPLAR_TYPE_SPAN", groupBy=["service_name"])
    yield "Diff", {"left": asked('{env="prod"}'), "right": asked('{env="dev"}')}
    yield "GetProfileStats", {}
    yield "AnalyzeQuery", {"query": '{service_name="shop"}', **times()}
    yield v1.SETTINGS + "Get", {}
    yield v1.RULES + "ListRecordingRules", {}
    yield "capabilities.v1.FeatureFlagsService/GetFeatureFlags", {}
    yield "version.v1.Version/Version", {}


def test_every_way_has_the_same_answer():
    for method, message in questions():
        want = ok(method, message)
        for way in WAYS:
            got = ok(method, message, way)
            assert got == want, (method, message, way, got, want)


def test_errors_by_every_way():
    fails("invalid_argument", "LabelNames", {}, "missing time range")
    fails("invalid_argument", "LabelValues", times(), "name")
    fails("invalid_argument", "SelectMergeStacktraces", asked("{a="), "labelSelector")
    fails("invalid_argument", "SelectMergeStacktraces", asked() | {"profileTypeID": "cpu"})
    fails("invalid_argument", "SelectMergeStacktraces", asked(maxNodes="2000000"), "maxNodes")
    fails("invalid_argument", "SelectMergeStacktraces", asked(
        spanSelector=[SPAN], traceIdSelector=["0" * 32]), "not two")
    fails("invalid_argument", "SelectMergeSpanProfile", asked(spanSelector=["12"]), "16 hex")
    fails("invalid_argument", "SelectSeries", asked(step=0), "step")
    fails("invalid_argument", "SelectHeatmap", asked(
        step=15, queryType="HEATMAP_QUERY_TYPE_SPAN", exemplarType="EXEMPLAR_TYPE_INDIVIDUAL"))
    fails("invalid_argument", "Diff", {"left": asked()}, "right")
    fails("invalid_argument", "GetProfileStats", {}, "one tenant",
          headers={"X-Scope-OrgID": "t1|t2"})
    fails("unimplemented", "vcs.v1.VCSService/GithubApp")
    fails("unimplemented", "querier.v1.QuerierService/SelectNothing", {}, "SelectNothing")
    fails("not_found", v1.RULES + "GetRecordingRule", {"id": "none"})
    fails("unauthenticated", "LabelNames", times(), headers={"X-Scope-OrgID": ""})


def test_hostile_messages():
    path, proto = f"/{v1.SERVICE}/SelectMergeStacktraces", {"Content-Type": "application/proto"}
    good = v1.encode("SelectMergeStacktracesRequest", asked())
    for body in (b"\xff", good[:-1], b"\x0b\x0c", good + b"\x0a\x02\xff\xfe",
                 good + push.field(11, b"") * 1025, b"\x3a\x80\x80\x80\x80\x08"):
        r = server.reader.post(path, body, T1 | proto)
        assert r.status == 400 and r.json()["code"] == "invalid_argument", (body[:20], r)
    nested = b""
    for _ in range(5000):
        nested = push.field(7, nested)
    for body in (good + nested, good + push.field(99, b"x" * 1000),
                 good + push.field(7, b"") * 10000):
        r = server.reader.post(path, body, T1 | proto)
        assert r.status == 200, r


def test_too_large_messages():
    path, proto = f"/{v1.SERVICE}/SelectMergeStacktraces", {"Content-Type": "application/proto"}
    padded = v1.encode("SelectMergeStacktracesRequest", asked()) + push.field(99, b"x" * (2 << 20))
    r = server.reader.post(path, padded, T1 | proto)
    assert r.status == 429 and r.json()["code"] == "resource_exhausted", r
    a = v1.grpc(server.reader, path, padded, "proto", T1)
    assert a.code == "resource_exhausted", a
    # Small on the wire, but not what it unfolds to.
    for size in (8 << 20, 200 << 20):
        bomb = gzip.compress(push.field(99, bytes(size)), 6)
        r = server.reader.post(path, bomb, T1 | proto | {"Content-Encoding": "gzip"})
        assert r.status in (400, 429), (size, r)
        assert r.json()["code"] in ("invalid_argument", "resource_exhausted"), r


# ---- conformance ----

def test_29_profile_types():
    types = {t["ID"]: t for t in ok("ProfileTypes", times(), "proto")["profileTypes"]}
    assert types[CPU] == {"ID": CPU, "name": "process_cpu", "sampleType": "cpu",
                          "sampleUnit": "nanoseconds", "periodType": "cpu",
                          "periodUnit": "nanoseconds"}
    assert list(types) == sorted(types)


def test_30_missing_times():
    for way in WAYS:
        assert CPU in {t["ID"] for t in ok("ProfileTypes", {}, way)["profileTypes"]}
        assert CPU in {t["ID"] for t in ok("ProfileTypes", {"start": "0", "end": "0"}, way)
                       ["profileTypes"]}
    assert ok("ProfileTypes", {"start": "-5", "end": "-3"}) == {}
    fails("invalid_argument", "LabelNames", {}, "missing time range")


def test_31_label_names():
    for way in ("json", "proto", "web"):
        plain = ok("LabelNames", times(), way)["names"]
        assert INTERNAL | {"service_name", "env"} <= set(plain) and plain == sorted(plain), plain
        assert "k8s.pod" not in plain
        more = ok("LabelNames", times(), way, {"Accept": "*/*;allow-utf8-labelnames=true"})
        assert set(more["names"]) == set(plain) | {"k8s.pod"}


def test_32_series():
    sets = ok("Series", {"labelNames": ["service_name", "__profile_type__"], "matchers": [],
                         **times()}, "proto")["labelsSet"]
    found = [tuple((p["name"], p["value"]) for p in s["labels"]) for s in sets]
    assert (("__profile_type__", CPU), ("service_name", "shop")) in found, found
    assert len(set(found)) == len(found)
    dotted = {"matchers": ['{service_name="dotted"}'], **times()}
    assert "k8s.pod" not in str(ok("Series", dotted))
    assert "k8s.pod" in str(ok("Series", dotted, headers={
        "Accept": "*/*;allow-utf8-labelnames=true"}))


def check_flame(graph, bar=4):
    names = graph["names"]
    assert names[0] == "total" and len(set(names)) == len(names)
    levels = [[int(v) for v in level["values"]] for level in graph["levels"]]
    assert len(levels[0]) == bar
    bars = [[level[i:i + bar] for i in range(0, len(level), bar)] for level in levels]
    if bar == 4:
        assert max(b[2] for level in bars for b in level) == int(graph["maxSelf"])
        # Children stand at x + self; what they do not cover of their parent is its self.
        above = [(0, bars[0][0][1], bars[0][0][2])]
        for level in bars[1:]:
            x, here, covered, parent = 0, [], [0] * len(above), 0
            for delta, total, own, _ in level:
                x += delta
                while not above[parent][0] <= x < above[parent][0] + above[parent][1]:
                    parent += 1
                at, width, parents_own = above[parent]
                assert x + total <= at + width
                assert x >= at + parents_own
                assert covered[parent] or x == at + parents_own
                covered[parent] += total
                here.append((x, total, own))
                x += total
            for (_, width, own), sum_ in zip(above, covered):
                assert width == own + sum_
            above = here


def test_33_both_spellings():
    new = asked()
    old = {"profile_typeID": CPU, "label_selector": new["labelSelector"],
           "start": int(new["start"]), "end": new["end"], "maxNodes": 100, "format": 1,
           "stackTraceSelector": {"call_site": []}, "whatever": {"x": 1}}
    graphs = [ok("SelectMergeStacktraces", m)["flamegraph"] for m in (new, old)]
    assert graphs[0] == graphs[1]
    assert graphs[0]["total"] == "58"
    check_flame(graphs[0])


def read_tree(data):
    """{stack: (self, total)}, root first, of the bytes of format tree."""
    out, at, pending = {}, 0, [()]
    while pending:
        above = pending.pop()
        n, at = v1.varint(data, at)
        name, at = data[at:at + n].decode(), at + n
        own, at = v1.varint(data, at)
        children, at = v1.varint(data, at)
        stack = above + (name,) if name or above else ()
        out[stack] = own
        pending += [stack] * children
    assert at == len(data)
    return out


def test_34_formats():
    def answer(**more):
        return ok("SelectMergeStacktraces", asked(**more), "proto")

    tree = read_tree(base64.b64decode(answer(format="PROFILE_FORMAT_TREE")["tree"]))
    assert tree == {(): 0, ("main",): 1, ("main", "serve"): 0, ("main", "serve", "pay"): 30,
                    ("main", "serve", "list"): 20, ("main", "idle"): 7}, tree
    cut = read_tree(base64.b64decode(answer(format="PROFILE_FORMAT_TREE", maxNodes="3")["tree"]))
    assert cut == {(): 0, ("main",): 1, ("main", "serve"): 0, ("main", "serve", "pay"): 30,
                   ("main", "serve", "other"): 20, ("main", "other"): 7}, cut
    assert answer(format="PROFILE_FORMAT_DOT")["dot"].startswith("digraph ")
    profile = answer(format="PROFILE_FORMAT_PPROF")["pprof"]["profile"]
    assert profile["stringTable"][0] == "" and profile["period"] == "1000000000"
    assert sum(int(s["value"][0]) for s in profile["sample"]) == 58
    fails("invalid_argument", "SelectMergeStacktraces", asked(maxNodes="2000000"))


def test_34_profile_as_pprof():
    r = server.reader.post(f"/{v1.SERVICE}/SelectMergeProfile",
                           v1.encode("SelectMergeProfileRequest", asked()),
                           T1 | {"Content-Type": "application/proto"})
    p = pprof_ref.Profile(r.body)
    assert p.types == [("cpu", "nanoseconds")] and p.period_type == ("cpu", "nanoseconds")
    assert p.default_type == "cpu" and p.period == 10**9
    assert {(tuple(s[0]), s[1][0]) for s in p.samples} == {
        (("main",), 1), (("main", "serve", "pay"), 30), (("main", "serve", "list"), 20),
        (("main", "idle"), 7)}, p.samples


def test_35_series():
    message = asked("{}", step=15, groupBy=["service_name"])
    start = int(message["start"])
    all_of = ok("SelectSeries", message, "proto")["series"]
    sums = [sum(p["value"] for p in s["points"]) for s in all_of]
    assert sums == sorted(sums, reverse=True) and len(all_of) >= 3
    for s in all_of:
        assert all((int(p["timestamp"]) - start) % 15000 == 0 and p["value"] for p in s["points"])
    assert ok("SelectSeries", message | {"limit": "1"}, "grpc")["series"] == all_of[:1]
    fails("invalid_argument", "SelectSeries", asked(step=0))


def test_35_below_a_call_site():
    message = asked("{}", step=10, groupBy=["env", "service_name"],
                    stackTraceSelector={"callSite": [{"name": "main"}]})
    found = {tuple(p["value"] for p in s["labels"]): sum(p["value"] for p in s["points"])
             for s in ok("SelectSeries", message)["series"]}
    assert found.pop(("prod", "shop")) == 51 and found.pop(("dev", "shop")) == 7
    assert found.pop(("spans",)) == 79 and set(found) == {("dotted",)}, found
    deeper = message | {"stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "serve"}]}}
    one, = ok("SelectSeries", deeper)["series"]
    assert sum(p["value"] for p in one["points"]) == 50
    fails("invalid_argument", "SelectSeries", deeper | {"step": 0.5}, "larger step")


def test_35_below_a_call_site_with_more():
    site = {"stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "tagged"}]}}
    mean = {"aggregation": "TIME_SERIES_AGGREGATION_TYPE_AVERAGE"}

    def series(selector='{service_name="spans"}', way="json", **more):
        found = ok("SelectSeries", asked(selector, step=3600, **more), way).get("series", [])
        return [([p["value"] for p in s["points"]],
                 [(x["spanId"], x["value"]) for p in s["points"] for x in p.get("exemplars", [])])
                for s in found]

    by_id = f'{{span_id="{SPAN}"}}'
    spans = {"exemplarType": "EXEMPLAR_TYPE_SPAN"}
    other = {"stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "other"}]}}
    for way in WAYS:
        for more in ({}, mean):  # one push
            assert series(way=way, **site, **more) == [([70], [])]
            assert series(way=way, **site, **spans, **more) == [([70], [(SPAN, "70")])]
            assert series(way=way, **other, **spans, **more) == [([9], [])]
            for by in ([], ["service_name"]):
                assert series(by_id, way, groupBy=by, **site, **more) == [([70], [])]
                assert series(by_id, way, groupBy=by, **site, **spans,
                              **more) == [([70], [(SPAN, "70")])]
                assert series(by_id, way, groupBy=by, **other, **spans, **more) == []
    # Two pushes of the group, one of them below the site.
    both = {**asked('{service_name="shop"}', step=3600), **mean,
            "stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "idle"}]}}
    one, = ok("SelectSeries", both)["series"]
    assert [p["value"] for p in one["points"]] == [3.5], one


def test_35_ids():
    selector = f'{{span_id="{SPAN}"}}'
    for by in ([], ["service_name"], ["none"]):
        for way in WAYS:
            one, = ok("SelectSeries", asked(selector, step=15, groupBy=by), way)["series"]
            assert [p["value"] for p in one["points"]] == [70], one
            assert one.get("labels", []) == ([{"name": "service_name", "value": "spans"}]
                                             if by == ["service_name"] else [])


def test_35_exemplars():
    message = asked('{service_name="spans"}', step=15, exemplarType="EXEMPLAR_TYPE_SPAN")
    for way in WAYS:
        points = [p for s in ok("SelectSeries", message, way)["series"] for p in s["points"]]
        found = [x for p in points for x in p.get("exemplars", [])]
        assert [(x["spanId"], x["value"]) for x in found] == [(SPAN, "70")], found
        assert {"name": "service_name", "value": "spans"} in found[0]["labels"]
    none = ok("SelectSeries", message | {"exemplarType": "EXEMPLAR_TYPE_NONE"})
    assert "exemplars" not in str(none)
    fails("invalid_argument", "SelectSeries", message | {"exemplarType": 7})


def test_async():
    """The answer is fetched later, in another encoding, too; ids are of a tenant."""
    want = ok("SelectMergeStacktraces", asked())
    for way in WAYS:
        first = ok("SelectMergeStacktraces", asked(**{"async": {"type": "ASYNC_QUERY_TYPE_FORCE"}}),
                   way)["async"]
        assert first["status"] == "ASYNC_QUERY_STATUS_IN_PROGRESS", first
        again = asked(**{"async": {"requestId": first["requestId"]}})
        for _ in range(200):
            a = ok("SelectMergeStacktraces", again, way)
            if a["async"]["status"] != "ASYNC_QUERY_STATUS_IN_PROGRESS":
                break
            time.sleep(0.05)
        assert a.pop("async") == {"requestId": first["requestId"],
                                  "status": "ASYNC_QUERY_STATUS_SUCCESS"}
        assert a == want
        other = ok("SelectMergeStacktraces", again, "json")
        assert other["flamegraph"] == want["flamegraph"]
        assert rpc("SelectMergeStacktraces", again, way, {"X-Scope-OrgID": "t2"}).code == "not_found"
    fails("not_found", "SelectMergeStacktraces", asked(**{"async": {"requestId": "none"}}))


def test_36_diff():
    side = asked()
    graph = ok("Diff", {"left": side, "right": side}, "grpc")["flamegraph"]
    assert graph["leftTicks"] == graph["rightTicks"] == "58" and graph["total"] == "116"
    check_flame(graph, bar=7)
    for level in graph["levels"]:
        v = level["values"]
        assert all(v[i:i + 3] == v[i + 3:i + 6] for i in range(0, len(v), 7))
    fails("invalid_argument", "Diff", {"right": side}, "left")


def test_37_span_profile():
    for way in WAYS:
        graph = ok("SelectMergeSpanProfile", asked("{}", spanSelector=[SPAN]), way)["flamegraph"]
        assert set(graph["names"]) == {"total", "main", "tagged"} and graph["total"] == "70"


# ---- tenants, statistics, settings ----

def test_tenants_are_merged():
    both = {"X-Scope-OrgID": "t1|t2"}
    for way in ("json", "proto", "grpc", "web"):
        names = ok("LabelValues", {"name": "service_name", **times()}, way, both)["names"]
        assert {"shop", "elsewhere"} <= set(names)
        assert "elsewhere" not in ok("LabelValues", {"name": "service_name", **times()}, way)["names"]
    totals = [int(ok("SelectMergeStacktraces", asked("{}"), "proto", {"X-Scope-OrgID": t})
                  ["flamegraph"]["total"]) for t in ("t1", "t2", "t1|t2")]
    assert totals[0] + totals[1] == totals[2] and totals[1] == 4
    for method, more in (("Series", {}), ("ProfileTypes", {}), ("SelectMergeProfile", asked("{}")),
                         ("SelectSeries", asked("{}", step=15)),
                         ("Diff", {"left": asked("{}"), "right": asked("{}")}),
                         ("AnalyzeQuery", {"query": "{}"})):
        message = {"start": times()["start"], "end": times()["end"], **more}
        if method == "Diff":
            message = more
        assert ok(method, message, "json", both)


def test_leaves_of_tenants():
    """The id of a leaf is of one tenant; both have the service and the labels here."""
    at = int(time.time()) // 10 * 10 - 40
    message = {"profileTypeID": CPU, "labelSelector": '{service_name="same"}', "step": 10,
               "start": str(at * 1000), "end": str((at + 20) * 1000), "exemplarType": 2}
    for i, t in enumerate(("l1", "l2")):
        r = server.ingest(b"a %d\n" % (3 + i), "same.cpu", {"X-Scope-OrgID": t},
                          sampleRate=1000000000, from_=str(at), until=str(at + 10))
        assert r.status == 200, r
    for way in ("json", "proto"):
        found = {}
        for t in ("l1", "l2", "l1|l2"):
            series = ok("SelectHeatmap", message, way, {"X-Scope-OrgID": t})["series"]
            found[t] = {x["profileId"]: x["value"] for s in series for p in s["slots"]
                        for x in p["exemplars"]}
        assert sorted(found["l1"].values()) == ["3"] and sorted(found["l2"].values()) == ["4"]
        assert found["l1|l2"] == found["l1"] | found["l2"], found
        for t in found:
            for i in found["l1|l2"]:
                graph = ok("SelectMergeStacktraces", {
                    **asked('{service_name="same"}'), "profileIdSelector": [i]}, way,
                    {"X-Scope-OrgID": t}).get("flamegraph", {})
                assert int(graph.get("total", 0)) == int(found[t].get(i, 0)), (t, i, graph)


def test_stats():
    for way in ("json", "proto", "grpc"):
        s = ok("GetProfileStats", {}, way)
        assert s["dataIngested"] is True
        oldest, newest = int(s["oldestProfileTime"]), int(s["newestProfileTime"])
        assert began_ms - 60000 <= oldest <= newest <= time.time() * 1000 + 1000, s
        assert ok("GetProfileStats", {}, way, {"X-Scope-OrgID": "absent"}) == {}


def test_analyze():
    a = ok("AnalyzeQuery", {"query": CPU + '{service_name="shop"}', **times()}, "proto")
    scope = a["queryScopes"][0]
    assert scope["seriesCount"] == "2" and scope["profileCount"] == "2", a
    assert a["queryImpact"]["totalQueriedSeries"] == "2"
    assert int(a["queryImpact"]["totalBytesInTimeRange"]) > 0
    every = ok("AnalyzeQuery", {"query": "{}", **times()})["queryScopes"][0]
    assert int(every["seriesCount"]) >= 4
    # What is foretold is what is read: two pushes of three stacks and one.
    assert scope["componentType"] == "Ingester 0" and scope["sampleCount"] == "4", scope
    nothing = {"start": times()["start"], "end": str(int(times()["start"]) + 1000)}
    none = ok("AnalyzeQuery", {"query": CPU + '{service_name="shop"}', **nothing})
    assert "seriesCount" not in none["queryScopes"][0] or \
        none["queryScopes"][0]["seriesCount"] == "0", none
    fails("invalid_argument", "AnalyzeQuery", {"query": "{a", **times()})


def test_settings_and_rules():
    headers = {"X-Scope-OrgID": "settings"}
    get, put, drop = (v1.SETTINGS + m for m in ("Get", "Set", "Delete"))
    assert ok(get, {}, "proto", headers) == {}
    for i, way in enumerate(WAYS):
        s = {"name": "pluginSettings", "value": f'{{"way":"{way}"}}', "modifiedAt": str(i + 1)}
        assert ok(put, {"setting": s}, way, headers) == {"setting": s}
        for reader in ("json", "proto"):
            assert ok(get, {}, reader, headers) == {"settings": [s]}
    a = rpc(put, {"setting": {"name": "pluginSettings", "modifiedAt": "1"}}, "grpc", headers)
    assert a.code == "already_exists", a
    assert ok(drop, {"name": "pluginSettings"}, "web", headers) == {}
    assert ok(get, {}, "grpc", headers) == {}
    upsert = {"metricName": "profiles_recorded_x", "groupBy": ["env"],
              "matchers": [f'{{__profile_type__="{CPU}"}}']}
    rule = ok(v1.RULES + "UpsertRecordingRule", upsert, "proto", headers)["rule"]
    assert rule["generation"] == "1" and rule["profileType"] == CPU
    assert ok(v1.RULES + "ListRecordingRules", {}, "grpc", headers) == {"rules": [rule]}
    assert ok(v1.RULES + "DeleteRecordingRule", {"id": rule["id"]}, "proto", headers) == {}


def test_recorded_requests():
    """What Grafana sends, byte by byte, is answered as the same question in plain JSON."""
    tenant = {"X-Scope-OrgID": "anonymous"}
    assert grafana.main() == 0, "UPDATE=1 python3 tests/lib/grafana.py"
    for env, text in (("prod", b"main;serve;pay 30\nmain;serve;list 20\nmain 1\n"),
                      ("dev", b"main;idle 7\n")):
        r = server.ingest(text, f"shop.cpu{{env={env},pod=p-{env}}}", tenant,
                          sampleRate=1000000000)
        assert r.status == 200, r
    for r in grafana.requests(int(time.time() * 1000) + 1000):
        got = server.reader.request(r.verb, r.path, r.body, r.headers)
        assert r.raw().endswith(r.body)
        want = v1.call(server.reader, r.method, r.message, "json", tenant)
        body = got.body
        if got.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if want.code:
            assert got.status != 200 and json.loads(body)["code"] == want.code, (r.name, got)
            assert want.code in ("invalid_argument", "unimplemented")
            continue
        assert got.status == 200, (r.name, got)
        assert got.headers["Content-Type"] == r.headers["Content-Type"]
        json_body = r.headers["Content-Type"] == "application/json"
        told = json.loads(body) if json_body else v1.decode(v1.messages_of(r.method)[1], body)
        assert told == want.message and (told or r.method == "GetProfileStats"), (r.name, told)


def test_big_answers():
    """Lengths of every size: a wide and deep tree by all ways."""
    lines = [f"root;{'x' * (i % 40)};{';'.join(f'f{i}_{k}' for k in range(i % 30))} {i + 1}"
             for i in range(1000)]
    r = server.ingest("\n".join(lines).encode(), "big.cpu", T1, sampleRate=1000000000)
    assert r.status == 200, r
    message = asked('{service_name="big"}', maxNodes="1000000")
    want = ok("SelectMergeStacktraces", message)
    check_flame(want["flamegraph"])
    for way in WAYS:
        a = rpc("SelectMergeStacktraces", message, way)
        assert a.message == want, way
    assert want["flamegraph"]["total"] == str(1000 * 1001 // 2)
    for kind in ("TREE", "PPROF"):
        m = message | {"format": "PROFILE_FORMAT_" + kind}
        assert ok("SelectMergeStacktraces", m) == ok("SelectMergeStacktraces", m, "grpc-gzip")


def test_pprof_is_cut_only_where_asked():
    """A file for other tools has all of it; a picture has 8192 nodes, unless it says how many."""
    lines = [f"root;call_{i};leaf_{i} {i + 1}" for i in range(5000)]
    total = 5000 * 5001 // 2
    r = server.ingest("\n".join(lines).encode(), "wide.cpu", T1, sampleRate=1000000000)
    assert r.status == 200, r

    def names(**more):
        m = asked('{service_name="wide"}', format="PROFILE_FORMAT_PPROF", **more)
        profile = ok("SelectMergeStacktraces", m, "proto")["pprof"]["profile"]
        assert sum(int(s["value"][0]) for s in profile["sample"]) == total, more
        return set(profile["stringTable"])
    for more in ({}, {"maxNodes": "0"}):
        assert "other" not in names(**more) and len(names(**more) & {f"leaf_{i}" for i in range(5000)}) == 5000
    assert "other" in names(maxNodes="8192")
    assert names(maxNodes="-1") == names(), "below 0 is the default, as peers have it"
    picture = ok("SelectMergeStacktraces", asked('{service_name="wide"}'))["flamegraph"]
    assert "other" in picture["names"] and picture["total"] == str(total)


def run_all():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    with tempfile.TemporaryDirectory() as folder:
        return run_in(folder, tests)


def run_in(folder, tests):
    global server, WAYS
    # The server would push its own profiles into the tenant of test_recorded_requests, between two answers it compares.
    options, pair = ["--tenancy.multi=true", "--no-selfprof.enabled"], v1.certificate(folder)
    if pair:
        options += [f"--http.tls_cert={pair[0]}", f"--http.tls_key={pair[1]}"]
        WAYS += ("grpc-tls",)
    else:
        print("SKIPPED: grpc-tls: no openssl")
    with cluster.AllInOne(*options) as server:
        server.reader.ca = pair and pair[0]
        fill()
        try:
            cluster.main(tests)
        except SystemExit as e:  # caught here, or the server would take it for a failure
            return e.code
    return 1


if __name__ == "__main__":
    sys.exit(run_all())
