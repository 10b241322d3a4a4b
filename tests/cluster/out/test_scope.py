"""Keys that may see one team's series of a tenant, in a real server: two teams push under one tenant, each with words of
its own in every label, function, file, id and note; a key with `match` asks every route that reads, and no byte of the
other team's words is in any answer. The answers are those that a matcher in the query gives. The pushers' keys set the
team, and the senders lie about it."""
import base64
import gzip
import json
import os
import re
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
from test_exemplars import write_pprof

CPU = cluster.CPU_TYPE
KEYS, SERVICE = "/api/v1/keys", "/querier.v1.QuerierService/"
SPAN_A, SPAN_B = "00000000000000aa", "00000000000000bb"
TRACE_B = "4bf92f3577b34da6a3ce929d0e0e47bb"
NOW = int(time.time())
FROM, UNTIL = NOW - 4 * 3600, NOW + 60
TEAM_A = '{team="a"}'
OTHER = re.compile(rb"pear|0{14}bb|47bb|7654321", re.I)
ROLES = ["read", "delete"]


def server_of(kind, *options):
    return kind("--identity.mode=require", "--no-selfprof.enabled", "--ingester.seal_delay=0ms", *options)


def make_key(process, *grants):
    r = process.operate(KEYS, json.dumps({"name": "k", "grants": list(grants)}).encode())
    assert r.status in (200, 201), r
    return {"Authorization": "Bearer " + r.json()["key"]}


def grant(*roles, tenant="anonymous", **more):
    return {"tenants": [tenant], "roles": list(roles), **more}


def push(server, key, word, at, team, **labels):
    """A profile that says it is of `team`."""
    span = SPAN_A if word == "apple" else SPAN_B
    value = 30 if word == "apple" else 7654321
    samples = [(["main", word], value, {"pod": f"{word}-1", "span_id": span}),
               (["main", word, word + "leaf"], 3 * value, {"pod": f"{word}-2"})]
    if word == "pear":
        samples[0][2]["trace_id"] = TRACE_B
    name = "shop{" + ",".join(f"{k}={v}" for k, v in {"team": team, **labels}.items()) + "}"
    r = server.writer.post("/ingest", write_pprof(samples), key, name=name, from_=str(at), until=str(at + 10),
                           format="pprof")
    assert r.status == 200, r


def push_rpc(server, key, word, team):
    raw = base64.b64encode(write_pprof([(["main", word], 7654321 if word == "pear" else 30, {})])).decode()
    labels = {"service_name": "rpc" + word, "__name__": "process_cpu", "team": team, word + "label": word}
    body = {"series": [{"labels": [{"name": k, "value": v} for k, v in labels.items()],
                        "samples": [{"rawProfile": raw}]}]}
    r = server.writer.post("/push.v1.PusherService/Push", json.dumps(body),
                           {"Content-Type": "application/json", **key})
    assert r.status == 200, r


def fill(server, a, b):
    """Team b says it is team a, and the other way round; old data, too, which is read from sums of services."""
    for back in (3 * 3600, 3 * 3600 - 60, 2 * 3600, 1800, 60, 30):
        push(server, a, "apple", NOW - back, "b", env="applefield")
        push(server, b, "pear", NOW - back, "a", pearlabel="pearvalue")
    push_rpc(server, a, "apple", "b")
    push_rpc(server, b, "pear", "a")


def questions(matcher):
    """(method, path, query or message); `matcher` is joined to what is asked where a query has a place for it."""
    q = {"query": CPU + "{%s}" % matcher}
    sel, old = "{%s}" % matcher, "shop.cpu{%s}" % matcher
    t = {"from": str(FROM), "until": str(UNTIL)}
    ms = {"start": str(FROM * 1000), "end": str(UNTIL * 1000)}
    side = {**ms, "profileTypeID": CPU, "labelSelector": sel}
    both = {f"{s}{k}": v for s in ("left", "right") for k, v in (("From", t["from"]), ("Until", t["until"]))}
    yield "GET", "/pyroscope/render", {**q, **t}
    yield "GET", "/pyroscope/render", {**q, **t, "groupBy": "pod"}
    for f in ("collapsed", "pprof", "pgo", "dot", "svg", "html", "tree"):
        yield "GET", "/pyroscope/render", {**q, **t, "format": f}
    yield "GET", "/pyroscope/render-diff", {"leftQuery": q["query"], "rightQuery": q["query"], **both}
    yield "GET", "/render", {"query": old, **t}
    yield "GET", "/render-diff", {"leftQuery": old, "rightQuery": old, **both}
    yield "GET", "/api/exemplars:query", {**q, **t}
    yield "GET", "/api/exemplars:query", {**q, **t, "minValue": "1", "maxValue": "99999999999"}
    yield "GET", "/pyroscope/label-values", {"label": "pod", "query": sel}
    yield "GET", "/label-values", {"label": "service_name", "query": sel}
    yield "GET", "/labels", {"query": sel}
    for path in ("/api/v1/functions", "/api/v1/top", "/api/v1/diff"):
        yield "GET", path, {**q, **t}
    yield "GET", "/api/v1/functions", {**q, **t, "groupBy": "pod", "step": "600"}
    for by in ("service", "function"):
        yield "GET", "/api/v1/functions/grew", {**q, **t, "by": by}
    yield "GET", "/api/v1/focus", {**q, **t, "function": "main"}
    yield "GET", "/api/v1/sandwich", {**q, **t, "function": "main"}
    yield "GET", "/api/v1/subtree", {**q, **t, "path": "main", "tree": "1"}
    yield "POST", SERVICE + "LabelNames", {**ms, "matchers": [sel]}
    yield "POST", SERVICE + "LabelValues", {**ms, "name": "pod", "matchers": [sel]}
    yield "POST", SERVICE + "LabelValues", {**ms, "name": "service_name", "matchers": [sel]}
    yield "POST", SERVICE + "Series", {**ms, "matchers": [sel]}
    for method in ("SelectMergeStacktraces", "SelectMergeProfile"):
        yield "POST", SERVICE + method, side
    yield "POST", SERVICE + "SelectMergeStacktraces", {**side, "stackTraceSelector": {"callSite": [{"name": "main"}]}}
    yield "POST", SERVICE + "SelectSeries", {**side, "step": 60, "groupBy": ["pod", "team"]}
    yield "POST", SERVICE + "SelectSeries", {**side, "step": 600, "groupBy": ["pod"],
                                             "stackTraceSelector": {"callSite": [{"name": "main"}]}}
    yield "POST", SERVICE + "SelectSeries", {**side, "step": 60, "exemplarType": "EXEMPLAR_TYPE_INDIVIDUAL"}
    for kind in ("INDIVIDUAL", "SPAN"):
        yield "POST", SERVICE + "SelectHeatmap", {**side, "step": 60, "queryType": "HEATMAP_QUERY_TYPE_" + kind}
    yield "POST", SERVICE + "Diff", {"left": side, "right": side}
    yield "POST", SERVICE + "AnalyzeQuery", {**ms, "query": q["query"]}


def questions_without_place():
    ms = {"start": str(FROM * 1000), "end": str(UNTIL * 1000)}
    yield "GET", "/api/apps", {}
    yield "GET", "/label-values", {"label": "__name__"}
    yield "GET", "/pyroscope/label-values", {"label": "pearlabel"}
    yield "POST", SERVICE + "ProfileTypes", ms
    yield "POST", SERVICE + "LabelNames", ms
    yield "POST", SERVICE + "LabelValues", {**ms, "name": "pod"}
    yield "POST", SERVICE + "GetProfileStats", {}


def by_id(ids):
    side = {"start": str(FROM * 1000), "end": str(UNTIL * 1000), "profileTypeID": CPU, "labelSelector": "{}"}
    yield SERVICE + "SelectMergeSpanProfile", {**side, "spanSelector": ids}
    yield SERVICE + "SelectMergeStacktraces", {**side, "spanSelector": ids}
    yield SERVICE + "SelectMergeProfile", {**side, "spanSelector": ids}
    for path in ("/merge", "/api/exemplars:merge"):
        yield path, {"appName": "shop.cpu", "profiles": ids, "startTime": str(FROM), "endTime": str(UNTIL)}


def ask(server, key, method, path, what):
    if method == "GET":
        path += "?" + urllib.parse.urlencode(what) if what else ""
        return server.reader.request("GET", path, None, key)
    return server.reader.request("POST", path, json.dumps(what), {"Content-Type": "application/json", **key})


def plain(reply):
    """All bytes that a client sees: headers, and the body unzipped, also what is zipped inside JSON is not here."""
    body = gzip.decompress(reply.body) if reply.body[:2] == b"\x1f\x8b" else reply.body
    return str(reply.headers).encode() + b"\n" + body


def body_without(reply, matcher):
    body = gzip.decompress(reply.body) if reply.body[:2] == b"\x1f\x8b" else reply.body
    for text in (matcher, matcher.replace('"', '\\"'), matcher.replace('"', "&quot;"), matcher.replace('"', "&#34;")):
        body = body.replace(text.encode(), b"")
    return body


def check_reads(server, scoped, everything):
    typed, seen = list(questions('team="a"')), 0
    for at, (method, path, what) in enumerate(questions("")):
        mine = ask(server, scoped, method, path, what)
        all_ = ask(server, everything, method, path, what)
        same = ask(server, everything, *typed[at])
        assert mine.status == 200 and all_.status == 200 and same.status == 200, (path, what, mine, all_, same)
        assert not OTHER.search(plain(mine)), (path, what, plain(mine))
        assert body_without(mine, 'team="a"') == body_without(same, 'team="a"'), (path, what, mine.body, same.body)
        seen += bool(OTHER.search(plain(all_)))
        assert mine.headers["Cache-Control"] == "private, no-store" and "Authorization" in str(mine.headers)
    assert seen > len(typed) * 3 / 4, seen  # a key for all series sees the words
    for method, path, what in questions_without_place():
        mine, all_ = ask(server, scoped, method, path, what), ask(server, everything, method, path, what)
        assert mine.status == 200 and not OTHER.search(plain(mine)), (path, what, mine)
        assert all_.status == 200, (path, all_)


def check_ids(server, scoped, everything):
    """An id of the other team answers like an id that does not exist."""
    absent = "00000000000000cc"
    for (path, what), (_, none), (_, own) in zip(by_id([SPAN_B]), by_id([absent]), by_id([SPAN_A])):
        mine, nothing = ask(server, scoped, "POST", path, what), ask(server, scoped, "POST", path, none)
        assert mine.status == nothing.status == 200, (path, mine, nothing)
        ids = re.compile(rb'"queryID":"\w+"')
        assert ids.sub(b"", mine.body) == ids.sub(b"", nothing.body), (path, mine.body, nothing.body)
        assert b"apple" in plain(ask(server, scoped, "POST", path, own)), path
        assert b"pear" in plain(ask(server, everything, "POST", path, what)), path


def check_refused(server, scoped):
    for path in ("space", "ledger", "deletes", "tenant_limits"):
        at = server.writer if path == "tenant_limits" else server.reader
        r = at.request("GET", "/api/v1/" + path, None, scoped)
        assert r.status == 403 and b"scoped_key" in r.body, (path, r)
    assert server.reader.request("GET", "/api/annotations", None, scoped).status == 403
    r = server.reader.request("POST", "/settings.v1.SettingsService/Get", "{}",
                              {"Content-Type": "application/json", **scoped})
    assert r.status == 403, r


def check_async(server, scoped, same_grants, everything):
    side = {"start": str(FROM * 1000), "end": str(UNTIL * 1000), "profileTypeID": CPU, "labelSelector": "{}"}
    path = SERVICE + "SelectMergeStacktraces"
    begun = ask(server, everything, "POST", path, {**side, "async": {"type": "ASYNC_QUERY_TYPE_FORCE"}})
    id_ = begun.json()["async"]["requestId"]
    until = time.monotonic() + 20
    while True:
        r = ask(server, everything, "POST", path, {**side, "async": {"requestId": id_}})
        if r.status == 200 and b"SUCCESS" in r.body:
            break
        assert r.status == 200 and time.monotonic() < until, r
        time.sleep(0.1)
    assert b"pear" in r.body
    mine = ask(server, scoped, "POST", path, {**side, "async": {"type": "ASYNC_QUERY_TYPE_FORCE"}}).json()["async"]
    for key, wanted in ((scoped, id_), (same_grants, id_), (same_grants, mine["requestId"]),
                        (everything, mine["requestId"])):
        r = ask(server, key, "POST", path, {**side, "async": {"requestId": wanted}})
        none = ask(server, key, "POST", path, {**side, "async": {"requestId": "0" * 24}})
        assert r.status == none.status == 404 and not OTHER.search(plain(r)), r
        assert r.body.replace(wanted.encode(), b"0" * 24) == none.body, (r.body, none.body)


def adhoc(server, key, method, path="", body=None, **query):
    path = "/api/v1/adhoc" + path + ("?" + urllib.parse.urlencode(query) if query else "")
    return server.writer.request(method, path, body, key)


def check_uploads(server, scoped, everything):
    theirs = adhoc(server, everything, "POST", body=b"pearmain;pear 7\n", name="pear.folded").json()["id"]
    r = adhoc(server, scoped, "POST", body=b"main;apple 3\n", name="apple.folded")
    assert r.status == 200, r
    own = r.json()["id"]
    absent = theirs[:25] + ("0" if theirs[25] != "0" else "1") + theirs[26:]
    assert [p["id"] for p in adhoc(server, scoped, "GET").json()["profiles"]] == [own]
    assert {p["id"] for p in adhoc(server, everything, "GET").json()["profiles"]} == {own, theirs}
    for method, path in (("GET", "/{}"), ("DELETE", "/{}"), ("GET", "/{}/diff/" + own), ("GET", f"/{own}/diff/{{}}")):
        r, none = (adhoc(server, scoped, method, path.format(i)) for i in (theirs, absent))
        assert r.status == none.status == 404, (method, path, r, none)
        assert r.body.replace(theirs.encode(), absent.encode()) == none.body, (r.body, none.body)
    assert adhoc(server, scoped, "GET", "/" + own).status == 200
    assert adhoc(server, everything, "GET", f"/{own}/diff/{theirs}").status == 200
    assert adhoc(server, scoped, "DELETE", "/" + own).status == 200
    assert adhoc(server, everything, "DELETE", "/" + theirs).status == 200


def total(server, key, selector):
    r = ask(server, key, "GET", "/pyroscope/render", {"query": CPU + selector, "from": str(FROM), "until": str(UNTIL)})
    assert r.status == 200, r
    return r.json()["flamebearer"]["numTicks"]


def check_deletes(server, scoped, everything):
    def delete(key, **query):
        return server.reader.request("POST", "/api/v1/delete?" + urllib.parse.urlencode(query), b"", key)

    before = total(server, everything, '{team="b"}')
    assert before and total(server, everything, TEAM_A)
    r = delete(scoped, all="1", confirm="anonymous")
    assert r.status == 403 and b"scoped_key" in r.body, r
    what = '{service_name="shop"}'
    dry = delete(scoped, query=what, dry_run="1").json()
    assert dry["kind"] == "series" and dry["services"] == 1, dry
    r = delete(scoped, query=what, confirm=what, id="ticket-1")
    assert r.status == 200 and not OTHER.search(plain(r)), r
    assert total(server, scoped, what) == 0
    assert total(server, everything, '{team="b"}') == before
    # The same id of another key is another delete.
    other = '{service_name="rpcapple"}'
    r = delete(everything, query=other, confirm=other, id="ticket-1")
    assert r.status == 200 and not r.json()["repeated"], r
    listed = server.reader.request("GET", "/api/v1/deletes", None, everything).json()["deletes"]
    assert 'and {team="a"}' in " ".join(d["what"] for d in listed), listed


def check_all(server, operator):
    push_a = make_key(operator, grant("push", set={"team": "a"}))
    push_b = make_key(operator, grant("push", set={"team": "b"}))
    scoped = make_key(operator, grant(*ROLES, match=TEAM_A, edit=True))
    same = make_key(operator, grant(*ROLES, match=TEAM_A))
    everything = make_key(operator, grant(*ROLES, edit=True))
    fill(server, push_a, push_b)
    time.sleep(1)  # nodes of old data are built
    check_reads(server, scoped, everything)
    check_ids(server, scoped, everything)
    check_refused(server, scoped)
    check_async(server, scoped, same, everything)
    check_uploads(server, scoped, everything)
    check_deletes(server, scoped, everything)


def test_one_process():
    with server_of(cluster.AllInOne) as server:
        check_all(server, server.process)


if __name__ == "__main__":
    cluster.main([test_one_process])
