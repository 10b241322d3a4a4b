"""A lead was handed over, and etcd went away before the new record was marked as established: the new leader
continues with the previous members behind it, and pushes and queries are answered, though etcd stays away. The
record is known to all of them, to the leader and its followers only, to the new leader alone, or to all but the
new leader: in that case the old leader continues.

The new leader is stopped while the record is written and etcd is killed; its watch finds the record afterwards.

CASE=part of a name runs some.
"""
import base64
import concurrent.futures
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated
from test_replicas import Load

MORE = 60


def wait(what, condition, limit_s=120):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"not within {limit_s} s: {what}"
        time.sleep(0.1)


def more(load, limit_s=120):
    want, until = len(load.pushes) + MORE, time.monotonic() + limit_s
    while len(load.pushes) < want:
        assert not load.failed and time.monotonic() < until, (load.failed[:3], want - len(load.pushes))
        time.sleep(0.05)


class Line:
    """To etcd, by a way of one's own that can be cut."""

    def __init__(self, port):
        self.port, self.is_cut, self.open = port, False, []
        self.ear = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.ear.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.ear.accept()
            except OSError:
                return
            try:
                if self.is_cut:
                    raise OSError("cut")
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                near.close()
                continue
            self.open += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    @staticmethod
    def carry(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.is_cut = True
        for s in self.open:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.cut()
        self.ear.close()


class Bed(replicated.Cluster):
    """Each process has a way to etcd of its own."""

    def __init__(self, **more_options):
        self.lines = {}
        super().__init__(**more_options)

    def process(self, role, *own, folder=None):
        name = folder or role
        self.lines[name] = Line(self.etcd.client)
        return super().process(role, *own, f"--cluster.etcd={self.lines[name].url}", folder=folder)

    def __exit__(self, *what):
        super().__exit__(*what)
        for line in self.lines.values():
            line.close()

    def key(self, shard):
        return base64.b64encode(f"/embertree/ring/shard/{shard:04}".encode()).decode()

    def etcd_asked(self, path, body):
        return json.load(urllib.request.urlopen(
            urllib.request.Request(self.etcd.url + path, json.dumps(body).encode()), timeout=10))

    def name_leader(self, shard, name):
        """As a leader does that hands its shard over."""
        kv = self.etcd_asked("/v3/kv/range", {"key": self.key(shard)})["kvs"][0]
        record = json.loads(base64.b64decode(kv["value"]))
        assert record["established"] and name in record["members"], record
        record |= {"term": record["term"] + 1, "leader": name, "established": False,
                   "prev_members": record["members"]}
        done = self.etcd_asked("/v3/kv/txn", {
            "compare": [{"key": self.key(shard), "target": "MOD", "mod_revision": kv["mod_revision"]}],
            "success": [{"request_put": {"key": self.key(shard), "value": base64.b64encode(
                json.dumps(record).encode()).decode()}}]})
        assert done.get("succeeded"), done
        return record["term"]

    def record(self, shard):
        return json.loads(base64.b64decode(
            self.etcd_asked("/v3/kv/range", {"key": self.key(shard)})["kvs"][0]["value"]))


def hand_over(deaf, load_rate=30):
    """`deaf`: nodes that do not get the record, given the old leader, the third one, the new one."""
    with Bed(shards=2) as c, Load(c, rate=load_rate) as load:
        c.wait_whole()
        more(load)
        old = c.leader_of(0)
        new, third = (n for n in c.nodes.values() if n is not old)
        new.process.child.send_signal(signal.SIGSTOP)
        try:
            names = deaf(old.name, third.name, new.name)
            for name in names:
                c.lines[name].cut()
            leads = old if new.name in names else new
            term = c.name_leader(0, new.name)
            time.sleep(0.3)  # all nodes that may get it have it
            c.etcd.kill()
        finally:
            new.process.child.send_signal(signal.SIGCONT)
        wait("one of them serves", lambda: c.leaders().get(0) == leads.name)
        more(load)
        asked = c.render(cluster.CPU_TYPE + '{service_name="svc0"}', **{"from": "now-1h", "until": "now"})
        assert asked.status == 200 and asked.json()["flamebearer"]["numTicks"], asked
        time.sleep(12)  # longer than any lease, and than members that answer nothing are waited for
        more(load)
        assert c.leaders().get(0) == leads.name
        for line in c.lines.values():
            line.is_cut = False
        c.etcd.start()
        wait("it is marked", lambda: c.record(0)["term"] >= term and c.record(0)["established"])
        more(load)
        c.wait_whole()
        load.stop()
        load.check()


def both(*cases):
    """At once: most of each is waiting."""
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        for f in [pool.submit(hand_over, case) for case in cases]:
            f.result()


def test_the_new_one_goes_on():
    both(lambda old, third, new: [], lambda old, third, new: ["distributor", "querier"])


def test_who_it_is_is_not_known():
    both(lambda old, third, new: [old, "distributor", "querier"],
         lambda old, third, new: [old, third, "distributor", "querier"])


def test_the_old_one_goes_on():
    both(lambda old, third, new: [new], lambda old, third, new: [new, third, "distributor", "querier"])


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_the_new_one_goes_on, test_who_it_is_is_not_known, test_the_old_one_goes_on])
