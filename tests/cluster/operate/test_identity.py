"""identity.mode=require against a model (tests/lib/identity_model.py): every route, with keys of all kinds, at random.
The model says what each request hears. And each tenant, and each team in it, has words of its own in all of its data:
no answer to a key shows a word that is not for it."""
import base64
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import secrets
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import identity_model as model
from identity_model import Grant, Key

SECONDS = float(os.environ.get("IDENTITY_SECONDS", "8"))
SEED = int(os.environ.get("SEED") or secrets.randbits(32))
TENANTS = ("shop", "bank", "mill", "farm", "123456")
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SLOW = {"/debug/pprof/profile", "/debug/pprof/heap", "/grpc.health.v1.Health/Watch"}  # not run to their end
OPTIONS = ("--memory.limit=256MiB", "--tenancy.multi", "--identity.mode=require", "--log.level=info")


# ---- the world -------------------------------------------------------------------------------------------------------

def kinds():
    """Keys of all kinds, for two of the tenants, and everywhere."""
    yield Key("none", fault="none")
    for fault in ("malformed", "checksum", "unknown", "secret"):
        yield Key(fault, (Grant(("*",), ("read", "push", "server-admin")),), fault="unknown")
    everything = (Grant(("*",), ("push", "read", "delete", "tenant-admin", "server-admin", "scrape"), edit=True),)
    yield Key("expired", everything, fault="expired", more={"until": 1700000000000})
    yield Key("elsewhere", everything, fault="address", more={"nets": ["10.0.0.0/8"]})
    yield Key("here", (Grant(("shop",), ("read",)),), more={"nets": ["127.0.0.0/8"]})
    yield Key("everything", everything)
    yield Key("server-admin", (Grant(("*",), ("server-admin",)),))
    yield Key("scrape", (Grant(("*",), ("scrape",)),))
    yield Key("gateway", (Grant(("*",), ("gateway", "read", "push")),))
    yield Key("bare gateway", (Grant(("*",), ("gateway",)),))
    yield Key("read all", (Grant(("*",), ("read",)),))
    yield Key("team everywhere", (Grant(("*",), ("read",), '{team="a"}'),))
    yield Key("two", (Grant(("bank", "shop"), ("read",)),))
    yield Key("mixed", (Grant(("shop",), ("read", "delete"), '{team="a"}'), Grant(("bank",), ("read",), edit=True)))
    yield Key("push here, read there", (Grant(("shop",), ("push",)), Grant(("bank",), ("read",))))
    for tenant in ("shop", "mill"):
        for role in ("push", "read", "delete", "tenant-admin"):
            yield Key(f"{role} of {tenant}", (Grant((tenant,), (role,)),))
        yield Key(f"edit {tenant}", (Grant((tenant,), ("read",), edit=True),))
        yield Key(f"team of {tenant}", (Grant((tenant,), ("read",), '{team="a"}'),))
        yield Key(f"editing team of {tenant}", (Grant((tenant,), ("read", "delete"), '{team="b"}', edit=True),))


def break_key(name, text):
    if name == "malformed":
        return text[5:30]
    if name == "checksum":
        return text[:-1] + ("a" if text[-1] != "a" else "b")
    return text


def write_file(path, keys):
    entries = []
    for k in keys:
        ident, secret, text = model.key_text()
        k.text = break_key(k.name, text)
        if k.name in ("none", "malformed", "checksum", "unknown"):
            continue
        if k.name == "secret":
            secret = model.key_text()[1]  # the id is known, the secret another one
        entries.append({"id": ident, "hash": model.offline_hash(ident, secret), "name": k.name,
                        "grants": [g.entry() for g in k.grants]} | k.more)
    path.write_text(json.dumps({"keys": entries}))


class World:
    """A server with keys of all kinds, and words in the data of each tenant and team."""

    def __init__(self, *options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-identity-"))
        self.keys = list(kinds())
        self.by_name = {k.name: k for k in self.keys}
        write_file(self.folder / "keys.yaml", self.keys)
        self.server = cluster.AllInOne(*OPTIONS, f"--identity.file={self.folder / 'keys.yaml'}", *options)
        self.marks = {(t, team): f"zq{secrets.token_hex(6)}" for t in TENANTS for team in ("a", "b", "tenant")}

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *args):
        self.server.__exit__(*args)

    @property
    def port(self):
        return self.server.process.port

    def fill(self):
        """All that has words: profiles of two teams, a setting of the tenant."""
        for (tenant, team), mark in self.marks.items():
            if team == "tenant":
                body = json.dumps({"setting": {"name": "word", "value": mark}}).encode()
                r = self.send("POST", "/settings.v1.SettingsService/Set", self.by_name["everything"], tenant, body=body,
                              kind="application/json")
            else:
                r = self.send("POST", f"/ingest?name=s{mark}%7Bteam={team}%7D&from=now-60s&until=now-50s&format=folded",
                              self.by_name["everything"], tenant, body=f"f{mark};g{mark} 10\n".encode())
            assert r.status == 200, (tenant, team, r)

    def send(self, method, path, key, tenant=None, *, user=None, body=b"", kind="text/plain", twice=False, source=None):
        """From an address of its own each time, so that failures of one do not slow the others."""
        source = source or f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=(source, 0))
        try:
            c.putrequest(method, path)
            if key and key.name != "none":
                plain = base64.b64encode(f"{user}:{key.text}".encode()).decode()
                c.putheader("Authorization", f"Basic {plain}" if user is not None else f"Bearer {key.text}")
            for _ in range(1 + twice):
                if tenant is not None:
                    c.putheader("X-Scope-OrgID", tenant)
            if method != "GET":
                c.putheader("Content-Type", kind)
                c.putheader("Content-Length", str(len(body)))
            c.endheaders()
            if body:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    c.send(body)
            r = c.getresponse()
            return cluster.Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def visible(self, route, key, verdict):
        """The words that an answer may have."""
        if verdict.status:
            return set()
        if route.tenants == "-":
            return set()  # of no tenant: nothing of their data
        out = set()
        for tenant in verdict.tenants:
            for team in ("a", "b"):
                for g in key.grants:
                    if g.covers(tenant) and (g.has("read") or g.has("delete") or "server-admin" in g.roles) and (
                            not g.match or f'"{team}"' in g.match):
                        out.add(self.marks.get((tenant, team)))
            if any(g.covers(tenant) and not g.match for g in key.grants):
                out.add(self.marks.get((tenant, "tenant")))
        return out


# ---- at random -------------------------------------------------------------------------------------------------------

ASK = "&".join(f"{k}={v}" for k, v in {
    "query": CPU + "%7B%7D", "leftQuery": CPU + "%7B%7D", "rightQuery": CPU + "%7B%7D", "from": "now-1h", "until": "now",
    "leftFrom": "now-1h", "leftUntil": "now", "rightFrom": "now-1h", "rightUntil": "now", "label": "service_name",
    "format": "json", "limit": "100", "max-nodes": "10000", "function": "main", "type": CPU}.items())


def message():
    now = int(time.time() * 1000)
    times = {"start": str(now - 3600_000), "end": str(now)}
    both = {"profileTypeID": CPU, "labelSelector": "{}"} | times
    return json.dumps({"name": "service_name", "matchers": [], "labelNames": ["service_name", "team"], "step": 60,
                       "groupBy": ["service_name"], "left": both, "right": both} | both).encode()


def status_of(reply, kind):
    """The status as HTTP has it, and the reason that the body gives."""
    if kind.startswith("application/grpc"):
        found = re.search(rb"grpc-status: ?(\d+)", reply.body)
        return ("grpc", int(found[1])) if found else (reply.status, "")
    try:
        return reply.status, reply.json().get("reason", "")
    except (ValueError, AttributeError):
        return reply.status, ""


def check(world, route, key, verdict, reply, kind):
    status, reason = status_of(reply, kind)
    if not verdict.status:
        assert status not in (401, 429) and (status != 403 or route.path.startswith("/api/v1/keys")), "refused"
        assert (status, reason) not in (("grpc", 16), ("grpc", 7)), "refused"
    elif status == "grpc":
        assert reason == model.GRPC[verdict.status], "another code"
    else:
        assert (status, reason) == (verdict.status, verdict.reason), "another answer"
        if status == 401:
            assert reply.headers["WWW-Authenticate"] == "Bearer", "no challenge"
    text = reply.body + str(reply.headers).encode()
    shown = {mark for mark in world.marks.values() if mark.encode() in text}
    assert shown <= world.visible(route, key, verdict), f"shows {shown}"
    assert not key.text or key.text.encode() not in text, "shows the key"
    return shown


def one(world, rng, routes):
    """A request of any kind to any route."""
    route, key = rng.choice(routes), rng.choice(world.keys)
    header, twice = model.pick_header(rng, TENANTS), rng.random() < 0.02
    user = rng.choice([None, None, "", *TENANTS])
    kind = "text/plain" if not route.rpc else rng.choice(["application/json"] * 3 + ["application/grpc-web+proto"])
    path = route.path.replace("*", "zz")
    verdict = model.decide(route, key, header, user or "", twice and header is not None)
    if not verdict.status and (path in SLOW or path == "/api/v1/delete"):
        return None
    body = b"" if route.method == "GET" else message() if kind == "application/json" else bytes(5) if route.rpc else (
        b"a;b 1\n")
    full = path + "?" + (ASK if "ingest" not in path else "name=walk&format=folded&from=now-60s&until=now-50s")
    reply = world.send(route.method, full, key, header, user=user, body=body, kind=kind,
                       twice=twice and header is not None)
    try:
        shown = check(world, route, key, verdict, reply, kind)
    except AssertionError as e:
        raise AssertionError(f"{e}: {route} with {key}, X-Scope-OrgID {header!r}, user {user!r}, twice {twice}, {kind}: "
                             f"{reply}, want {verdict} (SEED={SEED})") from None
    return route, verdict, shown


def test_at_random():
    rng = random.Random(SEED)
    routes = list(model.routes())
    heard, showing, asked, admitted = {}, set(), set(), set()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-identity-"))  # two routes are there if there is use for them
    (folder / "forward.yaml").write_text("targets:\n  other: {url: http://127.0.0.1:9}\n")
    (folder / "scrape.yaml").write_text("scrape_configs: []\n")
    with World("--no-selfprof.enabled", f"--distributor.forward-config-file={folder / 'forward.yaml'}",
               f"--distributor.scrape-config-file={folder / 'scrape.yaml'}") as world:
        world.fill()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until or len(asked) < len(routes):
            got = one(world, rng, routes)
            if not got:
                continue
            route, verdict, shown = got
            asked.add(route)
            heard[verdict.reason] = heard.get(verdict.reason, 0) + 1
            showing |= {route.path} if shown else set()
            admitted |= {route} if not verdict.status else set()
            assert time.monotonic() < until + 300, "the random choice leaves routes out"
    print(f"{sum(heard.values())} requests, SEED={SEED}: {heard}; words of tenants on {len(showing)} routes")
    want = {"", "none", "unknown", "expired", "address", "no_tenant", "tenant", "tenant_name", "role", "scoped_key"}
    assert want <= set(heard), want - set(heard)
    assert len(showing) >= 5, showing  # else the search for words of others would find nothing in any case
    assert len(admitted) > len(routes) / 2


def test_words():
    """With the right keys the words are there, for those whom they are for."""
    with World("--no-selfprof.enabled") as world:
        world.fill()
        mark = world.marks
        for path, method in (("/pyroscope/render?" + ASK, "GET"), ("/api/apps?" + ASK, "GET")):
            for name, header, want in (("read of shop", None, {("shop", "a"), ("shop", "b")}),
                                       ("team of shop", None, {("shop", "a")}),
                                       ("editing team of shop", "shop", {("shop", "b")}),
                                       ("two", "bank|shop", {(t, k) for t in ("bank", "shop") for k in "ab"}),
                                       ("mixed", "shop|bank", {("shop", "a"), ("bank", "a"), ("bank", "b")})):
                reply = world.send(method, path, world.by_name[name], header)
                shown = {where for where, word in mark.items() if word.encode() in reply.body}
                assert reply.status == 200 and shown == want, (path, name, shown, reply)


# ---- the table -------------------------------------------------------------------------------------------------------

def test_table():
    """The model has a row for each route of the product, and no other."""
    text = (cluster.ROOT / "common" / "role" / "core" / "doors.c").read_text()
    words = dict(re.findall(r'#define (\w+) +"([^"]*)"', text))
    rows = set()
    for method, path in re.findall(r"\{ HTTP_(\w+), ([^,]+), (?:ASKS|ACTS), ", text):
        for word, value in words.items():
            path = re.sub(rf"\b{word}\b", f'"{value}"', path)
        rows.add((method, "".join(re.findall(r'"([^"]*)"', path))))
    known = [(r.method, r.path) for r in model.routes()]
    assert len(known) == len(set(known)) > 100
    assert set(known) == rows, (set(known) - rows, rows - set(known))


# ---- beside the table ------------------------------------------------------------------------------------------------

def test_open():
    """What needs no route needs no key: other methods, unknown paths, OPTIONS."""
    with World("--no-selfprof.enabled") as world:
        for method, path, status in (("DELETE", "/ingest", 405), ("GET", "/ingest", 405), ("POST", "/healthz", 405),
                                     ("OPTIONS", "/config", 204), ("GET", "/healthz", 200), ("GET", "/readyz", 200),
                                     ("POST", "/nowhere", 404), ("GET", "/", 200)):
            reply = world.send(method, path, None)
            assert reply.status == status, (method, path, reply)


def test_throttle():
    """Ten failures of a source, then it has to wait. A right key from there is answered all the while, and other sources
    do not wait."""
    with World("--no-selfprof.enabled") as world:
        at = "127.9.9.9"
        heard = [world.send("GET", "/labels", world.by_name["secret"], source=at) for _ in range(20)]
        assert [r.status for r in heard[:10]] == [401] * 10, heard
        assert all(r.status == 429 for r in heard[11:]), heard  # a slow run may get one more 401
        assert 1 <= int(heard[-1].headers["Retry-After"]) <= 6 and heard[-1].json()["reason"] == "throttled", heard[-1]
        for _ in range(20):
            assert world.send("GET", "/labels", world.by_name["read of shop"], source=at).status == 200
        assert world.send("GET", "/labels", world.by_name["secret"], source="127.9.9.10").status == 401
        admin = world.by_name["server-admin"]
        metrics = world.send("GET", "/metrics", admin, source=at).body.decode()
        count = {tuple(m): float(n) for *m, n in re.findall(
            r'embertree_identity_requests_total\{result="(\w+)",reason="(\w+)"\} (\S+)', metrics)}
        assert count["refused", "throttled"] >= 9 and count["refused", "unknown"] >= 11, count
        assert count["admitted", "key"] >= 20, count
        assert float(re.search(r"^embertree_identity_keys (\S+)", metrics, re.M)[1]) > 20


def test_early():
    """A body is not asked for, and not waited for, where the head is refused."""
    with World("--no-selfprof.enabled") as world:
        with socket.create_connection(("127.0.0.1", world.port), timeout=30) as s:
            s.sendall(b"POST /ingest?name=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
                      b"Expect: 100-continue\r\n\r\n")
            got = b""
            while b"\r\n\r\n" not in got:
                got += s.recv(4096)
            assert got.startswith(b"HTTP/1.1 401 "), got
        reply = world.send("POST", "/ingest?name=a&format=folded", None, body=b"a;b 1\n" * 200_000)
        assert reply.status == 401
        assert world.send("GET", "/healthz", None).status == 200


def test_older():
    """Tokens of older options, beside keys."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-identity-"))
    (folder / "admin").write_text("a-token-of-twenty-bytes\n")
    (folder / "tokens.yaml").write_text("tokens: {an-agent-of-the-shop: shop}\n"
                                        "users: {alloy: {password: wonder, tenant: bank}}\n")
    admin = Key("admin", text="a-token-of-twenty-bytes")
    agent, alloy = Key("agent", text="an-agent-of-the-shop"), Key("alloy", text="wonder")
    push = "/ingest?name=older&format=folded&from=now-60s&until=now-50s"
    with World("--no-selfprof.enabled", f"--http.admin-token-file={folder / 'admin'}",
               f"--distributor.tokens-file={folder / 'tokens.yaml'}") as world:
        for key, method, path, header, user, status in (
                (admin, "GET", "/config", None, None, 200), (admin, "GET", "/metrics", None, None, 200),
                (admin, "GET", "/labels", "shop", None, 403), (admin, "POST", "/api/v1/delete?all=1", "shop", None, 403),
                (agent, "POST", push, None, None, 200), (agent, "POST", push, "shop", None, 200),
                (agent, "POST", push, "bank", None, 403), (agent, "GET", "/labels", None, None, 403),
                (agent, "GET", "/config", None, None, 403), (alloy, "POST", push, None, "alloy", 200),
                (alloy, "POST", push, "bank", "alloy", 200), (alloy, "POST", push, "shop", "alloy", 403),
                (alloy, "POST", push, None, "other", 401), (alloy, "POST", push, None, None, 401)):
            reply = world.send(method, path, key, header, user=user, body=b"a;b 1\n")
            assert reply.status == status, (key.name, method, path, header, reply)
        every = world.by_name["everything"]
        for tenant, want in (("shop", True), ("bank", True), ("mill", False)):
            assert (b"older" in world.send("GET", "/api/apps?" + ASK, every, tenant).body) == want, tenant


def test_socket():
    """The operator of the machine needs no key, and may do all."""
    with World("--no-selfprof.enabled") as world:
        world.fill()
        c = http.client.HTTPConnection("localhost", timeout=60)
        c.sock = socket.socket(socket.AF_UNIX)
        c.sock.connect(str(world.server.process.folder / "data" / "admin.sock"))
        for path in ("/config", "/metrics", "/pyroscope/render?" + ASK):
            c.request("GET", path, headers={"X-Scope-OrgID": "shop"})
            r = c.getresponse()
            text = r.read()
            assert r.status == 200, (path, r.status, text[:300])
        assert world.marks["shop", "a"].encode() in text and world.marks["bank", "a"].encode() not in text
        c.close()


def test_observe():
    """Nothing is refused that was not before; it is counted, and said once per key and hour."""
    with World("--no-selfprof.enabled", "--identity.mode=observe") as world:
        world.fill()
        for key, header, status in ((None, "shop", 200), (None, None, 401), (world.by_name["secret"], "bank", 200),
                                    (world.by_name["read of shop"], "bank", 200),
                                    (world.by_name["read of shop"], None, 401)):
            for _ in range(20):
                reply = world.send("GET", "/pyroscope/render?" + ASK, key, header, source="127.8.8.8")
                assert reply.status == status, (key, header, reply)
                if status == 401:
                    assert b"no org id" in reply.body
                else:
                    assert world.marks[header, "b"].encode() in reply.body
        metrics = world.send("GET", "/metrics", None).body.decode()
        count = dict(re.findall(r'embertree_identity_would_refuse_total\{route="/pyroscope/render",reason="(\w+)"\} (\S+)',
                                metrics))
        assert count == {"none": "40", "unknown": "20", "tenant": "20"}, count
        lines = [line for line in world.server.process.whole_log().splitlines() if "would refuse" in line]
        shown = [line for line in lines if "pyroscope/render" in line]
        assert len(shown) == 3 and not any(k.text and k.text in line for k in world.keys for line in lines), lines


def test_own_profiles():
    """The process may push its own profiles without a key of an operator."""
    with World("--selfprof.tenant=mill") as world:
        until = time.monotonic() + 60
        while b"embertree" not in world.send("GET", "/api/apps?" + ASK, world.by_name["read of mill"]).body:
            assert time.monotonic() < until, world.server.process.tail()
            time.sleep(0.5)
        assert "cannot push" not in world.server.process.whole_log()


if __name__ == "__main__":
    cluster.main([test_table, test_words, test_open, test_throttle, test_early, test_older, test_socket, test_observe,
                  test_own_profiles, test_at_random])
