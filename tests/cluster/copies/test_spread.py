"""A service is spread over more shards, and a tenant gets fewer, under pushes: in real processes
with a real etcd. Every push has an Idempotency-Key and is sent again before and after the change,
through either of two distributors: each counts once, and every answer is exact at any moment.

Time stands for a change: it is for profiles from some seconds later on (cluster.place_after), and each
push says when it was. CASE=part of a name runs some.
"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

CTL = str(cluster.BIN / "embertreectl")
SHARDS = 6
PODS = 12
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz
STEP_WAIT = 4      # seconds, cluster.place_after


class Pushes:
    """Everything that was ever acked, to be sent again and asked for."""

    def __init__(self, c, tenant="anonymous"):
        self.c, self.tenant = c, tenant
        self.sent = []   # (service, pod, at, stack, value)
        self.lock = threading.Lock()
        self.began = int(time.time()) - 60

    def send(self, push, distributor):
        service, pod, at, stack, value = push
        r = distributor.post("/ingest", f"root;{stack} {value}\n",
                             {"Idempotency-Key": stack, "X-Scope-OrgID": self.tenant},
                             name=service + ".cpu{pod=%s}" % pod, from_=str(at), until=str(at + 1))
        assert r.status == 200, r

    def new(self, service, distributor, at=None):
        with self.lock:
            n = len(self.sent)
            push = (service, f"p{n % PODS}", int(time.time()) if at is None else at,
                    f"s{n}-{self.tenant}", n % 97 + 1)
            self.sent.append(push)
        self.send(push, distributor)

    def again(self, distributors):
        for i, push in enumerate(list(self.sent)):
            self.send(push, distributors[i % len(distributors)])

    def want(self, service):
        with self.lock:
            return {("root", stack): value * TICK for s, _pod, _at, stack, value in self.sent
                    if s == service}

    def ask(self, service):
        path = "/pyroscope/render?" + urllib.parse.urlencode({
            "query": cluster.CPU_TYPE + '{service_name="%s"}' % service, "format": "json",
            "max-nodes": "1000000", "from": str(self.began), "until": str(int(time.time()) + 60)})
        r = self.c.querier.request("GET", path, headers={"X-Scope-OrgID": self.tenant})
        assert r.status == 200, r
        return r.json()

    def exact(self, service):
        """The flame graph and the timeline hold each push once."""
        want, answer = self.want(service), self.ask(service)
        got = cluster.leaves(answer["flamebearer"])
        assert got == want, (len(got), len(want), [k for k in want if got.get(k) != want[k]][:5])
        assert sum(answer["timeline"]["samples"]) == sum(want.values()), answer["timeline"]
        return len(want)


def ctl(c, *args, timeout=120):
    out = subprocess.run([CTL, "cluster", *args, "--server", f"http://127.0.0.1:{c.querier.port}"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout)
    assert out.returncode == 0, (args, out.stdout, out.stderr)
    return out.stdout


def used_shards(c):
    """Writes taken, by shard: of the copies' logs."""
    return {r["shard"]: r["commit"] for ring in c.rings().values() for r in ring.get("replicas", [])
            if r["state"] == "serving"}


def two_distributors(c):
    return [c.distributor, c.second]


class Cluster(replicated.Cluster):
    def __init__(self, *options):
        super().__init__(shards=SHARDS, options=[f"--cluster.place-after={STEP_WAIT}s", *options])
        secret = "--distributor.write-id-secret=the-secret-of-this-test"
        self.distributor = self.process("distributor", secret, *replicated.PATIENT)
        self.second = self.process("distributor", secret, *replicated.PATIENT, folder="distributor2")
        self.writer = self.distributor

    def processes(self):
        return super().processes() + [self.second]


def wait_for(what, limit_s=90):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        got = what()
        if got:
            return got
        time.sleep(0.1)
    raise AssertionError("did not come: " + what.__name__)


def step_from(c, find):
    """Returns the time of the step, once all nodes that must confirm it have."""
    def is_step():
        return find(c.querier.get("/api/v1/cluster/places").json())
    return wait_for(is_step)


def last_from(places, key, name):
    return [p["steps"][-1]["from"] for p in places[key]
            if p.get("service", p["tenant"]) == name and len(p["steps"]) == 2 and "next" not in p][:1]


def knows_step(c, find):
    def known():
        for p in (*two_distributors(c), c.querier):
            places = p.get("/api/v1/cluster/places").json()
            if not find(places):
                return False
        return True
    return known


def test_spread_under_load():
    with Cluster() as c:
        load, stop = Pushes(c), threading.Event()
        c.wait_whole()
        for i in range(30):
            load.new("big", two_distributors(c)[i % 2], at=int(time.time()) - 50 + i)
        before = used_shards(c)

        def go_on(number):
            while not stop.is_set():
                load.new("big", two_distributors(c)[number])
                time.sleep(0.05)

        threads = [threading.Thread(target=go_on, args=(i,)) for i in range(2)]
        for t in threads:
            t.start()
        try:
            said = json.loads(ctl(c, "spread", "anonymous", "big", "4", "--json"))
            asked = time.time() * 1000
            assert said["changed"] and said["shards"] == 4 and said["wanted"], said
            again = json.loads(ctl(c, "spread", "anonymous", "big", "4", "--json"))
            assert not again["changed"], again
            said["from"] = step_from(c, lambda p: last_from(p, "services", "big"))[0]
            assert asked + STEP_WAIT * 1000 <= said["from"] < asked + 30000, (asked, said)
            again = json.loads(ctl(c, "spread", "anonymous", "big", "4", "--json"))
            assert not again["changed"] and again["from"] == said["from"] and not again["wanted"], again
            wait_for(knows_step(c, lambda p: any(len(s["steps"]) == 2 for s in p["services"])))
            load.again(two_distributors(c))  # the map has changed, its time has not come
            while time.time() * 1000 < said["from"] + 3000:
                time.sleep(0.2)
        finally:
            stop.set()
            for t in threads:
                t.join()
        n = load.exact("big")
        load.again(two_distributors(c)[::-1])
        assert load.exact("big") == n
        grown = [s for s, commit in used_shards(c).items() if commit > before.get(s, 0)]
        assert len(grown) >= 4, (before, used_shards(c))
        text = ctl(c, "status")
        assert "service big of anonymous: 1, then 4 from " in text, text
        # Everything else that is asked of a service finds all of its places.
        series = c.connect("LabelValues", {
            "name": "pod", "matchers": ['{service_name="big"}'],
            "start": str(load.began * 1000), "end": str(int(time.time() + 60) * 1000)})
        assert sorted(series.json()["names"]) == sorted(f"p{i}" for i in range(PODS)), series
        gone = c.querier.post("/api/v1/delete", b"", query='{service_name="big"}',
                              confirm='{service_name="big"}')
        assert gone.status == 200 and gone.json()["shards"] == SHARDS, gone
        assert not cluster.leaves(load.ask("big")["flamebearer"])
        print(f"     {n} pushes, each sent three times; shards used: {len(grown)}")


def test_tenant_gets_fewer_shards():
    with Cluster("--tenancy.multi") as c:
        load = Pushes(c, "acme")
        c.wait_whole()
        for i in range(40):
            load.new(f"svc{i % 10}", two_distributors(c)[i % 2])
        said = json.loads(ctl(c, "tenant", "acme", "2", "--json"))
        said["from"] = step_from(c, lambda p: last_from(p, "tenants", "acme"))[0]
        wait_for(knows_step(c, lambda p: last_from(p, "tenants", "acme")))
        load.again(two_distributors(c))
        while time.time() * 1000 < said["from"] + 1000:
            time.sleep(0.2)
        before = used_shards(c)
        for i in range(40):
            load.new(f"svc{i % 10}", two_distributors(c)[i % 2])
        grown = [s for s, commit in used_shards(c).items() if commit > before.get(s, 0)]
        assert len(grown) <= 2, (before, used_shards(c))
        load.again(two_distributors(c)[::-1])
        for i in range(10):
            load.exact(f"svc{i}")
        text = ctl(c, "status")
        assert "tenant acme: all, then 2 from " in text, text


def test_rebalance():
    """A node joins: the pending moves are reported, and made at once on an operator's request."""
    with replicated.Cluster(ingesters=2, shards=4, replicas=2) as c:
        c.wait_whole()
        wait_for(lambda: "every shard is where it belongs" in ctl(c, "rebalance"))
        load = Pushes(c)
        for i in range(12):
            load.new(f"svc{i % 4}", c.distributor)
        joined = c.add("node2", "zone2")
        joined.process.start(wait=False)
        text = wait_for(lambda: [t for t in [ctl(c, "rebalance")] if "to be moved" in t])[0]
        assert "MiB are to be copied" in text and " MiB: " in text, text
        plan = json.loads(ctl(c, "rebalance", "--json"))
        assert plan["pending"] and plan["atOnce"] == 0, plan
        assert any("node2" in s["membersTo"] for s in plan["shards"]), plan
        assert all(s["why"] and s["bytes"] >= 0 for s in plan["shards"]), plan
        assert {"bytes", "bytesTo", "bytesPerSecond", "bytesPerSecondTo"} <= set(plan["nodes"][0]), plan
        moved = sum(s["bytes"] for s in plan["shards"] if set(s["membersTo"]) - set(s["members"]))
        assert plan["bytesToCopy"] == moved, plan
        said = ctl(c, "rebalance", "--apply", "--wait")
        assert "node2: " in said, said
        done = json.loads(ctl(c, "rebalance", "--json"))
        assert done["pending"] == 0, done
        copies = {n["name"]: n["copies"] for n in done["nodes"]}
        assert sum(copies.values()) == 8 and max(copies.values()) <= 3, copies
        wait_for(lambda: json.loads(ctl(c, "rebalance", "--json"))["atOnce"] == 0)
        for i in range(4):
            load.exact(f"svc{i}")
        space = c.querier.get("/api/v1/space").json()  # asks shard by shard; tells node by node
        leaders = [v["node"] for v in space["ingesters"]]
        assert space["missingIngesters"] == 0 and len(set(leaders)) == len(leaders) <= 3, space
        assert set(leaders) <= {"node0", "node1", "node2"}, space
        assert sum(v["shards"] for v in space["ingesters"]) == 4, space


class Gate:
    """A line to etcd that can be held up: nothing is lost, and nothing comes."""

    def __init__(self, port):
        self.to, self.open, self.ends = ("127.0.0.1", port), threading.Event(), False
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(self.to)
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self.pass_on, args=(a, b), daemon=True).start()

    def pass_on(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(1 << 16):
                self.open.wait()
                b.sendall(data)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.open.set()
        self.listener.close()


def test_old_map():
    """A querier does not know a change that the leaders know, and gets a query: it starts again with the
    new map once that arrives, and the client gets the answer and no error."""
    c = Cluster()
    gate = Gate(c.etcd.client)
    c.querier = c.process("querier", f"--cluster.etcd={gate.url}", folder="querier")
    c.reader = c.querier
    with contextlib.closing(gate), c:
        load = Pushes(c)
        c.wait_whole()
        for i in range(20):
            load.new("big", c.distributor)
        load.exact("big")
        gate.open.clear()
        out = subprocess.run([CTL, "cluster", "spread", "anonymous", "big", "4", "--server",
                              f"http://127.0.0.1:{c.distributor.port}"], capture_output=True, text=True,
                             timeout=120, check=False)
        assert out.returncode == 0, out
        # A step: so every leader has confirmed the announcement, and refuses reads by maps before.
        wait_for(lambda: last_from(c.distributor.get("/api/v1/cluster/places").json(), "services", "big"))
        answers = []

        def ask():
            try:
                answers.append(load.ask("big"))
            except AssertionError as e:
                answers.append(e)

        asker = threading.Thread(target=ask)
        asker.start()
        time.sleep(0.5)
        assert not answers, answers
        gate.open.set()
        asker.join()
        assert isinstance(answers[0], dict), answers[0]
        assert cluster.leaves(answers[0]["flamebearer"]) == load.want("big")
        assert c.querier.metric("embertree_querier_again_total") == 1
        load.exact("big")
        assert c.querier.metric("embertree_querier_again_total") == 1


def announced(c):
    """Waits until every process knows a change that no node can have confirmed yet (placement_guard.c waits that long);
    returns its time. None: it is valid already."""
    everybody = [n.process for n in c.nodes.values()] + two_distributors(c)
    until = time.monotonic() + 90
    while time.monotonic() < until:
        said = [p.get("/api/v1/cluster/places").json()["services"] for p in everybody]
        if any(s and len(s[0]["steps"]) > 1 for s in said):
            return None
        if all(s and s[0].get("next", {}).get("announced") for s in said):
            return said[0][0]["next"]["from"]
        time.sleep(0.01)
    raise AssertionError("nothing is announced")


def test_etcd_goes_in_between():
    """A change is announced and not valid yet, and etcd goes away for longer than until its time: later pushes
    are still taken, in the old places. When it is back the change comes, for a later time."""
    with Cluster() as c:
        load = Pushes(c)
        c.wait_whole()
        for i in range(12):
            load.new("big", two_distributors(c)[i % 2])
        ctl(c, "spread", "anonymous", "big", "4")
        first = announced(c)
        c.etcd.kill()
        assert first, "it was valid before etcd could be killed"
        while time.time() * 1000 < first + 1000:
            time.sleep(0.1)
        for n in c.nodes.values():
            places = n.process.get("/api/v1/cluster/places").json()["services"]
            assert places[0]["next"]["announced"] and len(places[0]["steps"]) < 2, places

        def taken():
            with contextlib.suppress(AssertionError):
                load.send(late, c.distributor)
                return True
            return False

        late = ("big", "p1", int(time.time()), "late", 5)
        wait_for(taken)
        load.sent.append(late)
        for i in range(24):
            load.new("big", two_distributors(c)[i % 2], at=first // 1000 + i % 2)
        load.exact("big")
        c.etcd.start()
        second = step_from(c, lambda p: last_from(p, "services", "big"))[0]
        assert second > first, (first, second)
        wait_for(knows_step(c, lambda p: last_from(p, "services", "big")))
        load.again(two_distributors(c)[::-1])
        while time.time() * 1000 < second + 1000:
            time.sleep(0.1)
        for i in range(24):
            load.new("big", two_distributors(c)[i % 2])
        load.again(two_distributors(c))
        load.exact("big")


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_spread_under_load, test_tenant_gets_fewer_shards, test_rebalance, test_old_map,
                  test_etcd_goes_in_between])
