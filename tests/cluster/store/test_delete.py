"""Real deletes over HTTP: of a service, of label sets, of a range of time, of a tenant; dry runs,
confirmations, repeats; gone at once, gone after kill -9 at any moment of purging, and in the end
gone from the files, too. What comes after a delete stays.

SEED=n repeats a run.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz
FAST = ["--ingester.seal-delay=0ms", "--selfprof.enabled=false"]
GUARD_S = 10  # the longest guard that is still reported as too short
AT_ONCE = "--ingester.delete-guard=0ms"  # the same again is new at once


def delete(server, tenant=None, **query):
    return server.reader.post("/api/v1/delete", b"", {"X-Scope-OrgID": tenant} if tenant else {},
                              **query)


def deletes(server, tenant=None):
    reply = server.reader.request("GET", "/api/v1/deletes",
                                  headers={"X-Scope-OrgID": tenant} if tenant else {})
    assert reply.status == 200, reply
    return reply.json()["deletes"]


def push(server, service, pod, stack, value, at_s, key=None, tenant=None):
    headers = {"Idempotency-Key": key} if key else {}
    if tenant:
        headers["X-Scope-OrgID"] = tenant
    reply = server.ingest(f"root;{stack} {value}\n", name=f"{service}.cpu{{pod={pod}}}",
                          headers=headers, from_=at_s, until=at_s + 1)
    assert reply.status == 200, reply


def total(server, selector="", tenant=None):
    """Samples of all stacks below root, by name of the stack."""
    path = "/pyroscope/render?" + "&".join([
        "query=" + cluster.urllib.parse.quote(cluster.CPU_TYPE + "{" + selector + "}"),
        "from=now-6h", "until=now", "format=json", "max-nodes=100000"])
    for _ in range(40):
        reply = server.reader.request("GET", path, headers={"X-Scope-OrgID": tenant} if tenant else {})
        if reply.status not in (503, 504):
            break
        time.sleep(0.25)
    assert reply.status == 200, reply
    found = cluster.leaves(reply.json()["flamebearer"])
    return {stack[-1]: value // TICK for stack, value in found.items()}


def labels(server, name):
    reply = server.reader.get("/pyroscope/label-values", label=name)
    assert reply.status == 200, reply
    return reply.json()


def wait_state(server, state, limit_s=60):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        found = deletes(server)
        if all(d["state"] in state for d in found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not {state} after {limit_s} s: {found}")


def fill(server, now, services=("api", "db"), pods=("a", "b"), minutes=4):
    for s, service in enumerate(services):
        for p, pod in enumerate(pods):
            for m in range(minutes):
                push(server, service, pod, f"{service}-{pod}", 1 + m, now - 60 * m - 30,
                     key=f"{service}-{pod}-{m}")


def sum_of(minutes):
    return sum(1 + m for m in range(minutes))


def test_bad_requests():
    with cluster.AllInOne(*FAST) as server:
        assert delete(server).status == 400
        assert b"all=1" in delete(server).body
        assert delete(server, query='{pod="a"}', all="1", dry_run="1").status == 400
        reply = delete(server, query='{pod="a"}')
        assert reply.status == 400 and b"confirm" in reply.body, reply
        assert delete(server, query='{pod="a"}', confirm="yes").status == 400
        assert delete(server, query="{}", confirm="{}").status == 400
        assert delete(server, query='{pod="a', confirm='{pod="a').status == 400
        assert delete(server, query='{pod="a"}', confirm='{pod="a"}', from_="now",
                      until="now-1h").status == 400
        assert delete(server, query='{pod="a"}', confirm='{pod="a"}', id="x" * 65).status == 400
        assert delete(server, all="1", confirm="absent").status == 400
        assert delete(server, tenant="a|b", all="1", confirm="a").status == 400
        assert server.reader.get("/api/v1/delete").status in (404, 405)
        # A page of another site cannot use a browser's way to this server.
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "cross-site"}):
            reply = server.reader.post("/api/v1/delete", b"", headers, all="1", confirm="anonymous")
            assert reply.status == 403, reply
        own = {"Origin": f"http://127.0.0.1:{server.process.port}"}
        assert server.reader.post("/api/v1/delete", b"", own, all="1", dry_run="1").status == 200
        reply = delete(server, query='{pod="a"}', confirm='{pod="a"}', id="none")
        assert reply.status == 200 and reply.json()["kind"] == "nothing", reply


def test_all_kinds(make=lambda: cluster.AllInOne(AT_ONCE, *FAST)):
    with make() as server:
        now = int(time.time()) // 60 * 60
        fill(server, now)
        whole = {f"{s}-{p}": sum_of(4) for s in ("api", "db") for p in "ab"}
        assert total(server) == whole, total(server)
        dry = delete(server, query='{service_name="api"}', dry_run="1").json()
        assert dry["dryRun"] and dry["kind"] == "services" and dry["series"] == 2, dry
        assert total(server) == whole and not deletes(server)

        done = delete(server, query='{pod="a", service_name="api"}',
                      confirm='{pod="a", service_name="api"}', id="one").json()
        assert done["kind"] == "series" and done["series"] == 1 and not done["repeated"], done
        del whole["api-a"]
        assert total(server) == whole, total(server)
        # The same request again does nothing, also to what came in between.
        push(server, "api", "a", "again", 7, now - 90, key="api-a-1")
        again = delete(server, query='{pod="a", service_name="api"}',
                       confirm='{pod="a", service_name="api"}', id="one").json()
        assert again["repeated"], again
        whole["again"] = 7
        assert total(server) == whole, total(server)
        assert delete(server, query='{pod="b"}', confirm='{pod="b"}', id="one").status == 400

        # A range of one minute, from any second of it.
        done = delete(server, query='{service_name="db"}', confirm='{service_name="db"}',
                      from_=str((now - 60 - 30) * 1000), until=str((now - 60 - 29) * 1000)).json()
        assert done["kind"] == "range", done
        assert (done["from"], done["until"]) == ((now - 120) * 1000, (now - 60) * 1000), done
        whole["db-a"] -= 2
        whole["db-b"] -= 2
        assert total(server) == whole, total(server)

        found = wait_state(server, ("purged", "done"))
        assert len(found) == 2 and all(d["percent"] == 100 for d in found), found
        assert total(server) == whole, total(server)
        done = delete(server, query='{service_name="api"}', confirm='{service_name="api"}').json()
        assert total(server) == {k: v for k, v in whole.items() if k.startswith("db")}
        assert labels(server, "service_name") == ["db"]
        found = wait_state(server, ("done",))
        assert total(server) == {k: v for k, v in whole.items() if k.startswith("db")}
        assert labels(server, "service_name") == ["db"]


def test_four_processes():
    test_all_kinds(lambda: cluster.FourProcesses(*FAST[1:], ingester=[AT_ONCE, FAST[0]]))


def test_tenants():
    """One tenant goes, with all it has; the other does not notice; the name can be used again."""
    with cluster.AllInOne("--tenancy.multi=true", AT_ONCE, *FAST) as server:
        now = int(time.time()) // 60 * 60
        for tenant in ("acme", "other"):
            push(server, "api", "a", tenant, 3, now - 90, key="k", tenant=tenant)
        reply = delete(server, tenant="acme", all="1", confirm="acme")
        assert reply.status == 200 and reply.json()["kind"] == "tenant", reply
        assert total(server, tenant="acme") == {}
        assert total(server, tenant="other") == {"other": 3}
        push(server, "api", "a", "new", 5, now - 90, key="k", tenant="acme")
        assert total(server, tenant="acme") == {"new": 5}
        assert len(deletes(server, "acme")) == 1 and not deletes(server, "other")
        until = time.monotonic() + 120
        while deletes(server, "acme")[0]["state"] != "done" and time.monotonic() < until:
            time.sleep(0.2)
        assert deletes(server, "acme")[0]["state"] == "done"
        assert total(server, tenant="acme") == {"new": 5}
        assert total(server, tenant="other") == {"other": 3}


def test_same_again():
    """What was deleted and comes again may be a late copy: it is refused, also after kill -9, and says
    for how long; then it is taken, once. So is the import of a file, which waits. What was not
    deleted, and what is new, is taken all the while. The start warns of a guard as short as this one."""
    with cluster.AllInOne("--tenancy.multi=true", f"--ingester.delete-guard={GUARD_S}s", *FAST) as server, \
            tempfile.TemporaryDirectory() as tmp:
        assert "delete_guard is not longer than distributor.ack_timeout" in server.process.whole_log()
        now = int(time.time()) // 60 * 60
        old = pathlib.Path(tmp) / "old.txt"
        old.write_text("root;old 11\n")
        command = [str(cluster.BIN / "embertree"), "import", "--name=old.cpu", "--tenant=acme",
                   f"--url=http://127.0.0.1:{server.writer.port}", f"--from={now - 600}", str(old)]
        imported = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert imported.returncode == 0, imported
        push(server, "api", "a", "api", 3, now - 90, key="k", tenant="acme")
        push(server, "db", "a", "db", 5, now - 90, key="k", tenant="acme")
        text = '{service_name=~"api|old"}'
        assert delete(server, tenant="acme", query=text, confirm=text).status == 200
        assert total(server, tenant="acme") == {"db": 5}
        for _ in range(2):
            began = time.monotonic()
            reply = server.ingest("root;api 3\n", name="api.cpu{pod=a}", from_=now - 90,
                                  until=now - 89,
                                  headers={"Idempotency-Key": "k", "X-Scope-OrgID": "acme"})
            assert reply.status == 503 and b"has been deleted" in reply.body, reply
            assert f"from {reply.headers['retry-after']} s on".encode() in reply.body, reply
            assert 1 <= int(reply.headers["retry-after"]) <= GUARD_S, reply
            push(server, "db", "a", "db", 5, now - 90, key="k", tenant="acme")
            push(server, "api", "a", "new", 7, now - 90, key="new", tenant="acme")
            assert total(server, tenant="acme") == {"db": 5, "new": 7}
            server.process.kill()
            server.process.start()
        imported = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        assert imported.returncode == 0, imported
        assert time.monotonic() - began >= GUARD_S or "deleted" not in imported.stderr, imported
        assert total(server, tenant="acme") == {"db": 5, "new": 7, "old": 11}
        push(server, "api", "a", "api", 3, now - 90, key="k", tenant="acme")
        push(server, "api", "a", "api", 3, now - 90, key="k", tenant="acme")
        assert total(server, tenant="acme") == {"db": 5, "new": 7, "old": 11, "api": 3}

        # The same of a whole tenant, whose write ids go last.
        assert delete(server, tenant="acme", all="1", confirm="acme").status == 200
        reply = server.ingest("root;api 3\n", name="api.cpu{pod=a}", from_=now - 90, until=now - 89,
                              headers={"Idempotency-Key": "k", "X-Scope-OrgID": "acme"})
        assert reply.status == 503 and b"has been deleted" in reply.body, reply
        push(server, "api", "a", "api", 9, now - 90, key="else", tenant="acme")
        assert total(server, tenant="acme") == {"api": 9}
        until = time.monotonic() + 120
        while deletes(server, "acme")[0]["state"] != "done" and time.monotonic() < until:
            time.sleep(0.2)
        push(server, "api", "a", "api", 3, now - 90, key="k", tenant="acme")
        assert total(server, tenant="acme") == {"api": 12}
        assert server.process.stop() == 0
        fsck = subprocess.run([str(cluster.BIN / "embertree"), "fsck", "--quiet",
                               str(server.process.folder / "data")], capture_output=True, text=True)
        assert fsck.returncode == 0, fsck


def test_kill():
    """kill -9 while purging, again and again: no answer ever shows a deleted sample or lacks a sample
    that was not deleted."""
    rng = random.Random(SEED)
    print(f"SEED={SEED}", flush=True)
    process = cluster.AllInOne(*FAST)
    with process as server:
        now = int(time.time()) // 60 * 60
        alive = {}
        for round_ in range(8):
            service = f"s{round_}"
            for pod in range(6):
                for m in range(5):
                    push(server, service, f"p{pod}", f"{service}-{pod}", 1 + m,
                         now - 60 * m - 30, key=f"{round_}-{pod}-{m}")
                alive[f"{service}-{pod}"] = sum_of(5)
            time.sleep(rng.random() * 0.3)
            what = rng.choice(["service", "pods", "range"])
            if what == "service":
                text = f'{{service_name="{service}"}}'
                reply = delete(server, query=text, confirm=text)
                alive = {k: v for k, v in alive.items() if not k.startswith(service + "-")}
            elif what == "pods":
                text = '{pod=~"p[0-2]"}'
                reply = delete(server, query=text, confirm=text)
                alive = {k: v for k, v in alive.items() if int(k.split("-")[1]) > 2}
            else:
                text = f'{{service_name="{service}"}}'
                reply = delete(server, query=text, confirm=text, from_=str((now - 180) * 1000),
                               until=str((now - 120) * 1000))
                alive = {k: v - (3 if k.startswith(service + "-") else 0)
                         for k, v in alive.items()}
            assert reply.status == 200, reply
            time.sleep(rng.random() * 0.05)
            server.process.kill()
            server.process.start()
            assert total(server) == alive, (round_, what, total(server), alive)
        wait_state(server, ("done",), 90)
        assert total(server) == alive, (total(server), alive)
        assert server.process.stop() == 0


def test_many_shards_of_a_node():
    """Where shards move each is asked by itself, all at once, and a node leads a dozen here."""
    with replicated.Cluster(ingesters=2, shards=24, replicas=1) as c:
        for s in range(8):
            assert c.distributor.post(f"/ingest?name=svc{s}.cpu%7B%7D&from=now-10s&until=now", "root;x 7\n").status == 200
        query = '{service_name=~"svc.*"}'
        r = delete(c, query=query, dry_run=1)
        assert r.status == 200 and r.json()["services"] == 8, r
        r = delete(c, query=query, confirm=query)
        assert r.status == 200 and (r.json()["services"], r.json()["shards"]) == (8, 24), r
        assert [(d["services"], d["shards"]) for d in deletes(c)] == [(8, 24)]
        r = c.render(cluster.CPU_TYPE + "{}")
        assert r.status == 200 and not r.json()["flamebearer"]["numTicks"], r


if __name__ == "__main__":
    cluster.main([test_bad_requests, test_all_kinds, test_four_processes, test_tenants,
                  test_same_again, test_kill, *([test_many_shards_of_a_node] if replicated.available() else [])])
