"""Rolling restarts under load: distributors and queriers one after the other behind two addresses, as a
load balancer would have them, without one failed request; ingesters one after the other, with every
ack kept and pushes that wait or get a 503 with Retry-After.

A client goes to the other address only where the connection is refused. A client that keeps its
connection may also send a request again if the connection ended without a byte of a reply:
pushes have an Idempotency-Key, so that is what HTTP allows. ROUNDS=n for more.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

TICK = 10_000_000
ROUNDS = int(os.environ.get("ROUNDS", "1"))
SERVICES = [f"shop-{i}" for i in range(6)]


class Cluster:
    """2 distributors, 2 queriers, 3 ingesters with 6 shards, a compactor."""

    def __init__(self, **own):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        rpc = [f"tcp://127.0.0.1:{cluster.free_port()}" for _ in range(8)]
        shared = ["--cluster.ingesters=" + ",".join(rpc[:3]), "--cluster.shards=6", "--memory.limit=512MiB",
                  "--no-selfprof.enabled"]
        names = ["ingester"] * 3 + ["compactor"] + ["querier"] * 2 + ["distributor"] * 2
        self.processes = [cluster.Process(f"embertree-{role}", f"--{role}.listen={address}", *shared,
                                          *own.get(role, []), folder=self.folder / f"{role}-{i}")
                          for i, (role, address) in enumerate(zip(names, rpc))]
        self.ingesters = self.processes[:3]
        self.queriers, self.distributors = self.processes[4:6], self.processes[6:]

    def __enter__(self):
        with cluster.ended_unless_started(self):
            for p in self.processes:
                p.start(wait=False)
            for p in self.processes:
                p.wait_ready()
        return self

    def __exit__(self, kind, *_):
        for p in self.processes:
            if kind:
                print(f"log of {p.folder.name}:\n" + p.tail(15), flush=True)
            p.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


class Client:
    """Asks one of several servers, in turns; takes the next only where the connection is refused."""

    def __init__(self, servers, keep, number):
        self.ports, self.keep, self.turn = [s.port for s in servers], keep, number
        self.kept = {}
        self.moved = self.again = 0

    def request(self, method, path, body=None, headers=None):
        for _ in range(40):
            port = self.ports[self.turn % len(self.ports)]
            kept = self.kept.pop(port, None)
            c = kept or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            try:
                if not kept:
                    c.connect()
            except ConnectionRefusedError:
                self.turn += 1
                self.moved += 1
                time.sleep(0.01 * (self.moved % len(self.ports) == 0))
                continue
            try:
                c.request(method, path, body, headers or {})
                r = c.getresponse()
                reply = cluster.Reply(r.status, r.headers, r.read())
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                c.close()
                if not kept:
                    raise  # it listened, and took the request or lost it
                self.again += 1
                continue
            if self.keep and not r.will_close:
                self.kept[port] = c
            else:
                c.close()
            self.turn += not self.keep
            return reply
        raise ConnectionRefusedError("no process listens on " + " ".join(map(str, self.ports)))

    def close(self):
        for c in self.kept.values():
            c.close()


class Load:
    """Threads that push and ask until stop is called; and their results."""

    def __init__(self, servers, pushers, askers, may_be_busy=False):
        self.servers, self.may_be_busy = servers, may_be_busy
        self.stop, self.lock = threading.Event(), threading.Lock()
        self.acked, self.wrong, self.busy, self.asked, self.clients = {}, [], [], 0, []
        self.maybe = {}
        self.threads = [threading.Thread(target=self.run, args=(self.push, servers.distributors, i))
                        for i in range(pushers)]
        self.threads += [threading.Thread(target=self.run, args=(self.ask, servers.queriers, i))
                         for i in range(askers)]

    def run(self, step, servers, number):
        client = Client(servers, keep=number % 2 == 1, number=number)
        self.clients.append(client)
        n = 0
        while not self.stop.is_set():
            n += 1
            try:
                step(client, number, n)
            except (OSError, http.client.HTTPException) as e:
                with self.lock:
                    self.wrong.append((step.__name__, number, n, time.time(), repr(e)))
        client.close()

    def push(self, client, number, n):
        service, name = SERVICES[(number + n) % len(SERVICES)], f"t{number}_{n}"
        now = time.time()
        query = {"name": service + ".cpu", "from": f"{now - 10:.0f}", "until": f"{now:.0f}"}
        until = time.monotonic() + 120
        while True:  # a 503 says when to come again; the key makes it the same push
            r = client.request("POST", "/ingest?" + urllib.parse.urlencode(query), f"{name} 3\n".encode(),
                               {"Idempotency-Key": name})
            if r.status != 503 or not self.may_be_busy:
                break
            with self.lock:
                self.busy.append(r.headers.get("Retry-After"))
            assert time.monotonic() < until, r
            time.sleep(min(2, int(r.headers["Retry-After"])))
        with self.lock:
            if r.status == 200:
                self.acked.setdefault(service, set()).add(name)
            else:
                self.wrong.append(("push", number, n, time.time(), r))

    def ask(self, client, _number, n):
        with self.lock:
            have = {s: set(names) for s, names in self.acked.items()}
        service = SERVICES[n % len(SERVICES)]
        r = client.request("GET", "/pyroscope/render?" + urllib.parse.urlencode({
            "query": cluster.CPU_TYPE + '{service_name="%s"}' % service, "from": "now-1h", "until": "now",
            "format": "json", "max-nodes": "1000000"}))
        if self.may_be_busy and r.status in (503, 504):
            return
        with self.lock:
            self.asked += 1
            if r.status != 200:
                self.wrong.append(("ask", n, time.time(), r))
                return
        flame = r.json()["flamebearer"]
        if self.may_be_busy and r.json().get("partial"):
            return
        missing = have.get(service, set()) - {stack[0] for stack in cluster.leaves(flame)}
        if missing and not self.may_be_busy:
            with self.lock:
                self.wrong.append(("ask", service, "acked and not answered", sorted(missing)[:3]))

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for t in self.threads:
            t.join()

    def pushes(self):
        with self.lock:
            return sum(map(len, self.acked.values()))

    def more(self, n, limit_s=120):
        """Until so many further pushes are acked."""
        want, until = self.pushes() + n, time.monotonic() + limit_s
        while self.pushes() < want:
            assert time.monotonic() < until, f"{want - self.pushes()} of {n} pushes are not acked"
            time.sleep(0.01)


def check_stored(servers, load):
    """Acked is there, each once; whatever else is there came once, too."""
    for service in SERVICES:
        r = servers.queriers[0].get("/pyroscope/render", query=cluster.CPU_TYPE + '{service_name="%s"}' % service,
                                    from_="now-1h", until="now", format="json", **{"max-nodes": "1000000"})
        assert r.status == 200, r
        stacks = {s[0]: v for s, v in cluster.leaves(r.json()["flamebearer"]).items()}
        lost = load.acked.get(service, set()) - stacks.keys()
        assert not lost, f"{len(lost)} acked pushes are lost: {sorted(lost)[:5]}"
        doubled = {n: v for n, v in stacks.items() if v != 3 * TICK}
        assert not doubled, doubled


def restart(process, meanwhile=lambda: None):
    assert process.stop() == 0, process.tail()
    meanwhile()
    process.start()


def test_distributors_and_queriers():
    with Cluster() as servers:
        with Load(servers, pushers=8, askers=4) as load:
            load.more(50)
            for _ in range(ROUNDS):
                for p in servers.distributors + servers.queriers:
                    restart(p, lambda: load.more(30))
                    load.more(30)
                # So quickly that whoever begins a connection meanwhile finds the successor.
                for p in servers.distributors + servers.queriers:
                    restart(p)
        assert not load.wrong, f"{len(load.wrong)} failed: {load.wrong[:5]}"
        moved, again = (sum(getattr(c, f) for c in load.clients) for f in ("moved", "again"))
        assert moved > 0, "no client ever met a server that was away"
        print(f"     {load.pushes()} pushes, {load.asked} answers, {moved} went to the other address, "
              f"{again} sent again on kept connections", flush=True)
        check_stored(servers, load)


def test_ingesters():
    with Cluster() as servers:
        with Load(servers, pushers=6, askers=2, may_be_busy=True) as load:
            load.more(50)
            for _ in range(ROUNDS):
                for p in servers.ingesters:
                    restart(p)
                    load.more(30)
        assert not load.wrong, f"{len(load.wrong)} failed: {load.wrong[:5]}"
        assert None not in load.busy, load.busy
        print(f"     {load.pushes()} pushes, {load.asked} answers, {len(load.busy)} had to try again",
              flush=True)
        check_stored(servers, load)


def test_ingester_that_is_away_for_long():
    """Longer than distributor.ack_timeout: pushes to its shards get 503 with Retry-After, pushes to
    others succeed, and the same push sent again is stored once."""
    with Cluster(distributor=["--distributor.ack-timeout=1s", "--distributor.attempt-timeout=500ms"]) as servers:
        with Load(servers, pushers=6, askers=0, may_be_busy=True) as load:
            load.more(50)
            assert servers.ingesters[1].stop() == 0
            until = time.monotonic() + 60
            while not load.busy and time.monotonic() < until:
                time.sleep(0.05)
            servers.ingesters[1].start()
            load.more(100)
        assert not load.wrong, f"{len(load.wrong)} failed: {load.wrong[:5]}"
        assert load.busy and all(int(r) >= 1 for r in load.busy), load.busy
        check_stored(servers, load)


if __name__ == "__main__":
    cluster.main([test_distributors_and_queriers, test_ingesters, test_ingester_that_is_away_for_long])
