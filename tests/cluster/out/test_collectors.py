"""Two collectors of one service: an eBPF profiler next to an SDK measures the same time twice. Sums are exact, and say so, by
whatever route they are asked for; embertreectl shows it."""
import gzip
import json
import os
import subprocess
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import push_client as push
import querier_v1 as v1

MANY = 4000


def test_two_collectors_of_one_service():
    """An eBPF profiler next to an SDK measures the same time twice: the sum is exact, and says so."""
    with cluster.AllInOne() as server:
        pushes = {"both": ({"source": "sdk"}, {"source": "ebpf"}), "one": ({"source": "ebpf"},) * 2,
                  "plain": ({}, {"source": "alloy/pyroscope.ebpf"}), "spy": ({}, {"spyName": "ebpfspy"}),
                  "languages": ({"spyName": "gospy"}, {"spyName": "javaspy"}),
                  "theirs": ({"source": "web"}, {"source": "kafka"})}
        for service, sets in pushes.items():
            for labels in map(dict, sets):
                spy = {k: labels.pop(k) for k in list(labels) if k == "spyName"}
                name = service + ".cpu{" + ",".join(f"{k}={v}" for k, v in labels.items()) + "}"
                assert server.ingest(b"main;work 10\n", name, **spy).status == 200

        def asked(selector):
            r = server.render(f"{cluster.CPU_TYPE}{{{selector}}}")
            answer = r.json()
            header = {k.lower(): v for k, v in r.headers.items()}.get("x-embertree-notice")
            assert (header is not None) == ("notice" in answer), (selector, header)
            assert answer["flamebearer"]["numTicks"] > 0, selector
            return answer.get("notice", "")
        assert "source" in asked('service_name="both"') and "ebpf" in asked('service_name="both"')
        assert "sdk" in asked('service_name="both"')
        assert not asked('service_name="both",source="ebpf"') and not asked('service_name="both",source="sdk"')
        assert "an SDK" in asked('service_name="plain"') and "alloy/pyroscope.ebpf" in asked('service_name="plain"')
        assert "ebpfspy" in asked('service_name="spy"')
        for service in ("one", "languages", "theirs"):
            assert not asked(f'service_name="{service}"'), service
        check_every_sum(server)


def sums_of(service):
    """Every way to ask for a sum of a service: (name, request); comparisons are of a service with itself."""
    rpc = {"profileTypeID": cluster.CPU_TYPE, "labelSelector": f'{{service_name="{service}"}}'}
    query, site = f"{cluster.CPU_TYPE}{rpc['labelSelector']}", {"stackTraceSelector": {"callSite": [{"name": "main"}]}}
    two = {"leftQuery": query, "rightQuery": query, "leftFrom": "now-2h", "leftUntil": "now", "rightFrom": "now-1h", "rightUntil": "now"}
    for form in ("json", "pprof", "pgo", "collapsed", "tree", "dot", "svg", "html"):
        yield f"render as {form}", lambda s, form=form: s.reader.get("/pyroscope/render", query=query, from_="now-1h", until="now", format=form)
    yield "an old name", lambda s: s.reader.get("/render", query=f"{service}.cpu", from_="now-1h", until="now")
    yield "render-diff", lambda s: s.reader.get("/pyroscope/render-diff", **two)
    for view, more in (("top", {}), ("focus", {"function": "work"}), ("sandwich", {"function": "work"}), ("subtree", {"path_": "main"}),
                       ("functions", {}), ("functions", {"name": "work", "groupBy": "source"}), ("functions/grew", {}),
                       ("functions/grew", {"by": "service"})):
        yield f"{view} {more}", lambda s, view=view, more=more: s.reader.get("/api/v1/" + view, query=query, from_="now-1h", until="now", **more)
    yield "diff", lambda s: s.reader.get("/api/v1/diff", **two)
    for way in ("json", "proto", "proto-gzip"):
        for method, more in (("SelectMergeStacktraces", {}), ("SelectMergeStacktraces", site), ("SelectMergeProfile", {}),
                             ("SelectMergeStacktraces", {"format": "PROFILE_FORMAT_PPROF"}),
                             ("SelectMergeStacktraces", {"format": "PROFILE_FORMAT_DOT"}), ("SelectSeries", {"step": 15}),
                             ("SelectSeries", {"step": 15, "groupBy": ["service_name"]}), ("SelectSeries", {"step": 60} | site),
                             ("SelectSeries", {"step": 60, "groupBy": ["service_name"]} | site)):
            yield f"{method} {more} {way}", lambda s, m=method, x=rpc | more, w=way: rpc_reply(s, m, x | s.range_ms(), w)
        yield f"Diff {way}", lambda s, w=way: rpc_reply(s, "Diff", {side: rpc | s.range_ms() for side in ("left", "right")}, w)


def rpc_reply(server, method, message, way):
    request, _ = v1.messages_of(method)
    body = json.dumps(message).encode() if way == "json" else v1.encode(request, message)
    more = {"Content-Encoding": "gzip"} if way == "proto-gzip" else {}
    return server.reader.post(f"/{v1.SERVICE}/{method}", gzip.compress(body) if more else body,
                              {"Content-Type": f"application/{way.split('-')[0]}"} | more)


def has_notice(reply, name):
    """The header; and where the answer is JSON of our own, the words."""
    assert reply.status == 200, (name, reply)
    header = reply.headers.get("X-Embertree-Notice")
    assert header in (None, "several-collectors"), (name, header)
    if reply.body[:1] == b"{" and "Select" not in name and "Diff" not in name:
        answer = reply.json()
        assert ("notice" in answer) == (header is not None), (name, answer)
        assert "ebpf" in answer.get("notice", "ebpf"), answer
    return header is not None


def check_every_sum(server):
    for name, ask in sums_of("both"):
        assert has_notice(ask(server), name), name
    for name, ask in sums_of("one"):
        assert not has_notice(ask(server), name), name
    # What is shown apart, or compared, is not added up.
    apart = {"profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="both"}', "step": 15, "groupBy": ["source"]}
    assert not has_notice(rpc_reply(server, "SelectSeries", apart | server.range_ms(), "json"), "SelectSeries")
    sides = {side: apart | {"labelSelector": f'{{service_name="both",source="{source}"}}'} | server.range_ms()
             for side, source in (("left", "sdk"), ("right", "ebpf"))}
    for s in sides.values():
        del s["step"], s["groupBy"]
    assert not has_notice(rpc_reply(server, "Diff", sides, "json"), "Diff")
    check_background(server)
    url = f"http://127.0.0.1:{server.reader.port}"
    for service, says in (("both", True), ("one", False)):
        for command in (["tree"], ["top"], ["timeline"], ["sandwich", "work"], ["grew"], ["diff"]):
            r = subprocess.run([cluster.BIN / "embertreectl", *command, service, "--server", url, "--from", "now-1h"],
                               capture_output=True, text=True, check=False)
            assert (r.stderr.count("several collectors") == 1) == says and r.returncode == 0, (command, r)


def check_background(server):
    """A result that is fetched later has the same header, on each fetch."""
    def ask(more):
        r = rpc_reply(server, "SelectMergeStacktraces", {"profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="both"}',
                                                         **server.range_ms(), "async": more}, "json")
        return r, r.json()["async"]
    _, first = ask({"type": "ASYNC_QUERY_TYPE_FORCE"})
    for _ in range(2):
        r, state = ask({"requestId": first["requestId"]})
        while state["status"] == "ASYNC_QUERY_STATUS_IN_PROGRESS":
            time.sleep(0.05)
            r, state = ask({"requestId": first["requestId"]})
        assert has_notice(r, "Select") and "errorMessage" not in state, (r, state)


def test_collectors_of_two_tenants():
    """A service of two tenants is two services; a label `source` of many values names no collectors, and refuses no question."""
    with cluster.AllInOne("--tenancy.multi", "--no-selfprof.enabled", "--querier.query-bytes-max=1MiB") as server:
        for tenant, source in (("t1", "sdk"), ("t2", "ebpf")):
            assert server.ingest(b"main;work 10\n", f"both.cpu{{source={source}}}", {"X-Scope-OrgID": tenant}).status == 200
        message = {"profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="both"}', **server.range_ms()}

        def notice(tenants):
            r = server.connect("SelectMergeStacktraces", message, {"X-Scope-OrgID": tenants})
            assert r.json()["flamegraph"]["total"] == str(10**8 * (1 + tenants.count("|"))), r
            return has_notice(r, "Select")
        assert not notice("t1|t2")
        raw = push.pprof(1000, time_ns=push.now_ns())
        for part in range(MANY // 500):
            series = [({"__name__": "process_cpu", "service_name": "many", "source": f"ebpf-{part}-{i}-" + "x" * 400}, [(raw, "")])
                      for i in range(500)]
            r = push.push_grpc(server.writer, push.request(*series), {"X-Scope-OrgID": "t1"})
            assert r.code == 0, r
        r = server.reader.request("GET", "/api/v1/top?" + urllib.parse.urlencode(
            {"query": cluster.CPU_TYPE + '{service_name="many"}', "from": "now-1h", "until": "now"}), headers={"X-Scope-OrgID": "t1"})
        assert r.status == 200 and r.json()["total"] == MANY * 1000, r


if __name__ == "__main__":
    cluster.main([test_two_collectors_of_one_service, test_collectors_of_two_tenants])
