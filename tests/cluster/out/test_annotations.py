"""Notes at points of time: written, listed by range and service, deleted; after a kill; of tenants."""
import json
import os
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

AT = 1750000000


def create(server, headers=None, **body):
    r = server.reader.post("/api/annotations", json.dumps(body),
                           {"Content-Type": "application/json", **(headers or {})})
    return r


def listed(server, headers=None, **more):
    query = urllib.parse.urlencode({k.rstrip("_"): v for k, v in more.items()})
    r = server.reader.request("GET", "/api/annotations?" + query, headers=headers)
    assert r.status == 200, r
    return r.json()


def texts(server, **more):
    return [n["content"] for n in listed(server, **more)]


def check(server):
    assert texts(server) == ["zero", "both", "both", "one", "two"]
    assert texts(server, service="shop") == ["zero", "both", "one"]
    assert texts(server, appName="shop.cpu") == ["zero"]
    assert texts(server, service="cart") == ["both", "two"]
    assert texts(server, from_=str(AT + 10), until=str(AT + 20)) == ["one"]
    assert texts(server, from_=str(AT + 10), until=str(AT + 21)) == ["one", "two"]
    assert texts(server, until=str(AT)) == [] and texts(server, service="none") == []


def fill(server):
    r = create(server, appName="shop", content="one", timestamp=AT + 10)
    assert r.status == 201, r
    note = r.json()
    assert note["appName"] == "shop" and note["timestamp"] == AT + 10 and note["id"], note
    r = create(server, appNames=["shop", "cart.inuse_space"], content="both",
               timestamp=(AT + 5) * 1000)
    assert r.status == 201 and [n["service"] for n in r.json()] == ["shop", "cart"], r
    assert create(server, appName="cart", content="two", timestamp=AT + 20).status == 201
    assert create(server, appName="shop.cpu", content="zero", timestamp=AT).status == 201
    return note["id"]


def test_one_process():
    with cluster.AllInOne("--selfprof.enabled=false") as server:
        gone = fill(server)
        check(server)
        server.process.kill()
        server.process.start()
        check(server)
        r = server.reader.request("DELETE", "/api/annotations?id=" + gone)
        assert r.status == 200 and r.json() == {"id": gone}, r
        assert server.reader.request("DELETE", "/api/annotations?id=" + gone).status == 404
        assert texts(server) == ["zero", "both", "both", "two"]
        # Without a time it is now.
        assert create(server, appName="late", content="<b>\u00fc</b>").status == 201
        assert texts(server, from_="now-1m", until="now+1m") == ["<b>\u00fc</b>"]
        for body in ({}, {"appName": "x"}, {"content": "x"}, {"appName": "x", "content": "  "},
                     {"appName": "x", "appNames": ["y"], "content": "x"},
                     {"appNames": [""], "content": "x"}, {"appNames": ["x"] * 101, "content": "x"},
                     {"appName": "x", "content": "x", "timestamp": -1},
                     {"appName": "x", "content": "x", "timestamp": "y"},
                     {"appName": "x" * 2000, "content": "x"}, {"appName": "x", "content": "y" * 5000}):
            assert create(server, **body).status == 400, body
        assert server.reader.request("DELETE", "/api/annotations?id=x").status == 400
        assert server.reader.request("DELETE", "/api/annotations").status == 400
        assert server.reader.get("/api/annotations", from_="2", until="1").status == 400


def test_four_processes():
    with cluster.FourProcesses() as server:
        fill(server)
        check(server)


def test_pages():
    """More than one page of documents."""
    with cluster.AllInOne("--selfprof.enabled=false") as server:
        for i in range(1100):
            assert create(server, appName="many", content=str(i), timestamp=AT + i).status == 201
        assert texts(server) == [str(i) for i in range(1100)]
        assert texts(server, from_=str(AT + 990), until=str(AT + 1010)) == [
            str(i) for i in range(990, 1010)]
        assert texts(server, from_=str(AT), until=str(AT + 1000)) == [str(i) for i in range(1000)]


def test_tenants():
    with cluster.AllInOne("--selfprof.enabled=false", "--tenancy.multi") as server:
        one, two = {"X-Scope-OrgID": "t1"}, {"X-Scope-OrgID": "t2"}
        assert create(server, one, appName="a", content="mine").status == 201
        assert [n["content"] for n in listed(server, one)] == ["mine"] and listed(server, two) == []
        both = {"X-Scope-OrgID": "t1|t2"}
        assert server.reader.request("GET", "/api/annotations", headers=both).status == 400


if __name__ == "__main__":
    cluster.main([test_one_process, test_four_processes, test_pages, test_tenants])
