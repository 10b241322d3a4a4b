"""GET /api/v1/space: rows by owner add up to the files on disk, and a tenant sees its own only."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

OPTIONS = ("--memory.limit=256MiB", "--selfprof.enabled=false")
SEAL = "--ingester.seal-delay=0ms"


def push(server, service, stacks, salt, tenant=None):
    rng = random.Random(f"{service}{salt}")
    body = "".join(f"main;{rng.getrandbits(400):x} {i + 1}\n" for i in range(stacks))
    headers = {"X-Scope-OrgID": tenant} if tenant else None
    for _ in range(50):
        reply = server.ingest(body, f"{service}.cpu{{pod=p{salt}}}", headers)
        if reply.status != 503:
            break
        time.sleep(0.2)
    assert reply.status == 200, reply


def on_disk(process):
    total = 0
    for folder in (process.folder / "data").glob("shard-*"):
        total += sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
    return total


def settled(ask, fine, limit_s=60):
    """The report and what it is compared with are two moments; a quiet store makes them one."""
    until = time.monotonic() + limit_s
    while not fine(got := ask()):
        assert time.monotonic() < until, got
        time.sleep(0.5)
    return got


def check(server, ingester):
    for i in range(40):
        push(server, "large", 6000, i)
        if i % 8 == 0:
            push(server, "small", 6000, i)

    def ask():
        reply = server.reader.get("/api/v1/space")
        assert reply.status == 200, reply
        return reply.json()

    def matches(r):
        return r["files"]["tables"] > 10**6 and r["files"]["total"] == on_disk(ingester)

    r = settled(ask, matches)
    assert sum(row["bytes"] for row in r["rows"]) == r["files"]["tables"] == r["bytes"], r
    assert sum(r["kinds"].values()) == r["bytes"], r
    assert r["missingIngesters"] == 0 and r["ingesters"][0]["freeBytes"] > 0, r
    size = {s: sum(row["bytes"] for row in r["rows"] if row["service"] == s)
            for s in ("large", "small")}
    assert size["large"] > 2 * size["small"] > 0, size
    assert all(row["tenant"] in ("", "anonymous") for row in r["rows"]), r
    text = server.reader.get("/api/v1/space", format="text").body.decode()
    assert "large" in text and "write-ahead log" in text and "kept free" in text, text
    print(text)


def test_one_process():
    with cluster.AllInOne(SEAL, *OPTIONS) as server:
        check(server, server.process)


def test_four_processes():
    with cluster.FourProcesses(*OPTIONS, ingester=[SEAL]) as server:
        check(server, server.by_role["ingester"])


def test_tenants_are_told_their_own():
    with cluster.AllInOne(SEAL, *OPTIONS, "--tenancy.multi") as server:
        for i in range(20):
            push(server, "web", 6000, i, "acme")
            push(server, "secret", 6000, i, "other")

        def ask():
            return server.reader.request("GET", "/api/v1/space",
                                         headers={"X-Scope-OrgID": "acme"}).json()

        r = settled(ask, lambda r: r["bytes"] > 0)
        assert "files" not in r and "ingesters" not in r, r
        assert {row["tenant"] for row in r["rows"]} == {"acme"}, r
        assert "secret" not in str(r) and "other" not in str(r["rows"]), r
        reply = server.reader.get("/api/v1/space")
        assert reply.status == 401, reply


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes, test_tenants_are_told_their_own])
