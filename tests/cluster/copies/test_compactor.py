"""Coarse levels in real processes: nodes of 1 h and up get built, in one process and in four, while
the compactor and the ingester are killed; answers are the same before, meanwhile and after. And the
rules of retention: what is too old is refused, a file of rules is read again."""
import contextlib
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

QUICK = ["--ingester.seal-delay=0ms", "--ingester.build-delay=0ms", "--ingester.build-pace=0ms",
         "--ingester.build-timeout=1s"]
COMPACTOR = ["--compactor.build-interval=100ms", "--compactor.check-interval=100ms",
             "--compactor.build-timeout=2s"]
TICK = 10_000_000
HOUR = 3600
DAY = 24 * HOUR


def push_past(server, model, hours, n, service="shop"):
    """n pushes spread over the last hours; their sums go into the model."""
    now = int(time.time())
    for i in range(n):
        at = now - 7200 - i * hours * HOUR // n
        stack = f"main;work{i % 7};leaf{i % 11}"
        body = f"{stack} {i + 1}\n".encode()
        r = server.ingest(body, f"{service}.cpu{{pod=p{i % 3}}}", **{"from": at, "until": at + 10})
        assert r.status == 200, r
        key = tuple(stack.split(";"))
        model[key] = model.get(key, 0) + i + 1


def answer(server, days, service="shop"):
    selector = cluster.CPU_TYPE + '{service_name="%s"}' % service
    r = server.render(selector, **{"from": f"now-{days}d", "until": "now"})
    assert r.status == 200, r
    stacks = cluster.leaves(r.json()["flamebearer"])
    return {k: v // TICK for k, v in stacks.items()}


def wait_for(what, condition, limit_s=60):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.05)


def built(process, level):
    return process.metric("embertree_compactor_nodes_built_total", level=level)


def settled(process):
    """Nothing is due and nothing is built for two seconds."""
    last = None
    quiet = 0
    while quiet < 10:
        now = (process.metric("embertree_compactor_build_nodes_due"),
               process.metric("embertree_compactor_build_jobs_total"))
        quiet = quiet + 1 if now == last and now[0] == 0 else 0
        last = now
        time.sleep(0.2)


def test_one_process_builds():
    with cluster.AllInOne(*QUICK, *COMPACTOR, "--cluster.shards=2") as server:
        model = {}
        push_past(server, model, 5 * 24, 240)
        assert answer(server, 10) == model
        wait_for("nodes of an hour", lambda: built(server.process, "1h") > 50)
        wait_for("nodes of a day", lambda: built(server.process, "1d") > 1)
        settled(server.process)
        assert answer(server, 10) == model
        assert server.process.metric("embertree_compactor_build_failures_total") == 0
        ring = server.process.get("/ring").json()["roles"]
        assert sum(s["nodesBuilt"] for s in ring["compactor"]["shards"]) > 50, ring
        assert ring["ingester"]["shards"][0]["buildNodesDue"] == 0, ring


def test_kill_9_while_building():
    with cluster.FourProcesses(ingester=QUICK, compactor=COMPACTOR) as server:
        compactor, ingester = server.by_role["compactor"], server.by_role["ingester"]
        model = {}
        push_past(server, model, 6 * 24, 200)
        total = 0
        for turn in range(6):
            victim = (compactor, ingester)[turn % 2]
            with contextlib.suppress(AssertionError):
                wait_for("something built", lambda: built(compactor, "1h") > 2, 3)
            total += built(compactor, "1h")
            victim.kill()
            victim.start()
            wait_for("the querier sees the ingester",
                     lambda: server.render(cluster.CPU_TYPE + "{}").status == 200)
            assert answer(server, 10) == model, f"after kill {turn}"
            push_past(server, model, 6 * 24, 20, "shop")
        wait_for("nodes of an hour", lambda: total + built(compactor, "1h") > 20)
        settled(compactor)
        assert answer(server, 10) == model
        assert compactor.metric("embertree_compactor_build_lag_seconds") == 0
        assert ingester.metric("embertree_ingester_build_rows_total") > 0


def test_too_old_is_refused():
    with cluster.AllInOne("--retention.1h=30d", "--retention.6h=30d", "--retention.1d=30d",
                          "--retention.8d=30d", "--retention.64d=30d", "--retention.10m=5d",
                          "--retention.1m=4d", "--retention.10s=1d") as server:
        now = int(time.time())
        r = server.ingest(b"a;b 3\n", "shop.cpu", **{"from": now - 3 * DAY, "until": now - 3 * DAY + 10})
        assert r.status == 200, r
        r = server.ingest(b"a;b 5\n", "shop.cpu", **{"from": now - 140 * DAY, "until": now - 140 * DAY + 10})
        assert r.status == 400 and b"not_in_ingestion_window" in r.body, r
        assert answer(server, 200) == {("a", "b"): 3}


def test_rules_are_read_again():
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules"
        rules.write_text("service=shop 10s=1h 1m=2h 10m=3h\n")
        with cluster.AllInOne(f"--retention.overrides={rules}", "--retention.interval=1s",
                              *QUICK) as server:
            log = server.process.tail
            assert "retention has rules" in log(), log()
            rules.write_text("service=shop 10s=1h 2m=2h\n")
            wait_for("a wrong file is said", lambda: 'line 1: \\"2m\\" is neither' in log())
            rules.write_text("# two\nservice=shop 10s=1h\ntenant=* 10m=100d\n")
            wait_for("new rules", lambda: 'msg="retention has new rules"' in log() and "rules=2" in log())
        bad = cluster.Process("embertree", f"--retention.overrides={folder}/nothing")
        try:
            bad.start(wait=False)
            assert bad.child.wait(20) != 0
            assert "retention.overrides" in bad.tail(), bad.tail()
        finally:
            bad.cleanup()


if __name__ == "__main__":
    cluster.main([test_one_process_builds, test_kill_9_while_building, test_too_old_is_refused,
                  test_rules_are_read_again])
