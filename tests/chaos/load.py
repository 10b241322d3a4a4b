"""Pushers and askers that never rest, and what they know.

Every stack is pushed by one push alone, so each push can be looked for. A push that is refused, cut off
or not answered is sent again under its key, to the other distributor, as a client behind a service
would; some are abandoned after their first failure, and may then be stored once or not at all.
"""
import contextlib
import http.client
import json
import random
import threading
import time
import urllib.parse

import cluster
import push_client
from world import HTTP, TENANTS

TICK = 10_000_000  # nanoseconds of one sample at 100 Hz
SERVICES = [f"shop-{i}" for i in range(6)]
ANSWER_S = 13.0   # a client's patience with one attempt; the distributor's own is 10 s
GIVEN_UP = 0.03   # of pushes, after a first failure
SLOW_S = 5.0
HOUR = 3600


class Push:
    """A request of one or two series. `times` are whole slots of 10 s."""

    __slots__ = ("key", "tenant", "series", "began", "done", "refused", "state")

    def __init__(self, key, tenant, series):
        self.key, self.tenant, self.series = key, tenant, series  # [(service, stack, value, at)]
        self.began, self.done, self.refused, self.state = time.monotonic(), 0.0, [], "open"


class Book:
    """All pushes with their outcome. Lists only grow, so a length is a snapshot."""

    def __init__(self):
        self.lock = threading.Lock()
        self.tried = {(t, s): {} for t in TENANTS for s in SERVICES}  # stack -> (value, at, push)
        self.acked = {(t, s): [] for t in TENANTS for s in SERVICES}  # (stack, value, at)
        self.pushes = self.acks = self.given_up = self.attempts = 0
        self.refusals = {}
        self.open, self.slow = set(), []
        self.lacking, self.altered = set(), set()  # (tenant, service, stack) that an answer was wrong about

    def begin(self, push):
        with self.lock:
            self.pushes += 1
            self.open.add(push)
            for service, stack, value, at in push.series:
                self.tried[push.tenant, service][stack] = (value, at, push)

    def refused(self, push, why):
        with self.lock:
            self.attempts += 1
            push.refused.append((time.monotonic(), why))
            self.refusals[why] = self.refusals.get(why, 0) + 1

    def end(self, push, state):
        with self.lock:
            push.done, push.state = time.monotonic(), state
            self.open.discard(push)
            self.attempts += 1
            if state == "acked":
                self.acks += 1
                for service, stack, value, at in push.series:
                    self.acked[push.tenant, service].append((stack, value, at))
            else:
                self.given_up += 1
            if push.done - push.began > SLOW_S:
                self.slow.append(push)


class Client:
    """One kept connection to each of several servers; uses the next server after a failure."""

    def __init__(self, world, servers, number):
        self.hosts = [s.host for s in servers]
        self.world, self.turn, self.kept = world, number, {}

    def request(self, method, path, body=None, headers=None, timeout=ANSWER_S):
        """(host, reply or exception). A kept connection that ended meanwhile is no failure: pushes have
        keys, so they are sent again at once."""
        kept = self.hosts[self.turn % len(self.hosts)] in self.kept
        host, r = self.once(method, path, body, headers, timeout)
        if kept and isinstance(r, (http.client.RemoteDisconnected, BrokenPipeError,
                                   ConnectionResetError)):
            host, r = self.once(method, path, body, headers, timeout)
        return host, r

    def once(self, method, path, body, headers, timeout):
        host = self.hosts[self.turn % len(self.hosts)]
        fresh = host not in self.kept
        c = self.kept.pop(host, None) or http.client.HTTPConnection(self.world.ip(host), HTTP,
                                                                    timeout=timeout)
        try:
            if fresh:
                c.timeout = 3
                c.connect()
            c.sock.settimeout(timeout)
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            reply = cluster.Reply(r.status, r.headers, r.read())
            if r.will_close:
                c.close()
            else:
                self.kept[host] = c
            return host, reply
        except (OSError, http.client.HTTPException) as e:
            c.close()
            return host, e

    def other(self):
        self.turn += 1


class Load:
    def __init__(self, world, seed, rate, pushers=6, askers=3, book=None, first=0):
        """`book`: of another load, to be gone on with; then `first` is the first number of a pusher that is new in it."""
        self.world, self.seed, self.rate, self.pushers = world, seed, rate, pushers
        self.book = book or Book()
        self.began = int(time.time())
        self.stopping, self.asking, self.finish_by = threading.Event(), threading.Event(), None
        self.wrong, self.answers, self.no_answers, self.partial = [], 0, {}, 0
        self.last_answer = self.last_recent = time.monotonic()
        self.longest_silence = self.longest_recent = 0.0
        self.threads = [threading.Thread(target=self.push_all, args=(first + i,), daemon=True)
                        for i in range(pushers)]
        self.ask_threads = [threading.Thread(target=self.ask_all, args=(i,), daemon=True)
                            for i in range(askers)]

    def __enter__(self):
        for t in self.threads + self.ask_threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.asking.set()

    # ---- writes ----

    def when(self, rng):
        """Most are fresh; some are hours old, for buckets that leave for the cold tier and, later,
        get late data there."""
        now = int(time.time())
        kind = rng.random()
        if kind < 0.7:
            return now - rng.randrange(0, 20)
        if kind < 0.85:
            return now - rng.randrange(20, 400)
        turn = (now - self.began) // 60 % 10
        if kind > 0.99:
            turn = rng.randrange(10)
        return now - (3 + 5 * turn) * HOUR + rng.randrange(0, 600)

    def make(self, rng, number, n):
        series = []
        for i in range(1 + (rng.random() < 0.3)):
            series.append((rng.choice(SERVICES), f"p{number}-{n}-{i}", rng.randrange(1, 1000),
                           self.when(rng) // 10 * 10))
        return Push(f"{self.seed}-{self.began}-{number}-{n}", rng.choice(TENANTS), series)

    def push_all(self, number):
        rng = random.Random(self.seed * 100 + number)
        client = Client(self.world, self.world.distributors, number)
        n = 0
        while not self.stopping.is_set():
            push = self.make(rng, number, n)
            n += 1
            self.book.begin(push)
            self.book.end(push, self.send(client, rng, push))
            time.sleep(self.pushers / self.rate * rng.random() * 2)

    def send(self, client, rng, push):
        headers = {"X-Scope-OrgID": push.tenant, "Idempotency-Key": push.key}
        if len(push.series) > 1 or rng.random() < 0.3:
            path, body = push_client.PATH, push_client.request(*(
                ({"__name__": "process_cpu", "service_name": service, "pod": f"p{value % 5}"},
                 [(push_client.pprof(value * TICK, stack, at * 10**9), "")])
                for service, stack, value, at in push.series))
            headers["Content-Type"] = "application/proto"
        else:
            service, stack, value, at = push.series[0]
            path = "/ingest?" + urllib.parse.urlencode(
                {"name": f"{service}.cpu{{pod=p{value % 5}}}", "from": at, "until": at + 10})
            body = f"main;{stack} {value}\n"
        give_up = rng.random() < GIVEN_UP
        while self.finish_by is None or time.monotonic() < self.finish_by:
            host, r = client.request("POST", path, body, headers)
            status = getattr(r, "status", None)
            if status == 200:
                return "acked"
            if status is not None and status not in (429, 502, 503, 504):
                self.wrong.append(f"push {push.key} to {host}: {r}")
            self.book.refused(push, str(status) if status else type(r).__name__)
            client.other()
            if give_up:
                return "abandoned"
            after = r.headers.get("Retry-After") if status else None
            time.sleep(min(2.0, float(after or 0.2)) * (0.5 + rng.random()))
        return "never acked"

    # ---- reads ----

    def ask_all(self, number):
        """The first asks for what is recent only: nothing of that is ever in the cold tier."""
        rng = random.Random(self.seed * 100 + 50 + number)
        client = Client(self.world, self.world.queriers, number)
        while not self.asking.is_set():
            self.ask(client, rng, number == 0)
            time.sleep(0.3 * rng.random())

    def ask(self, client, rng, recent):
        tenant, service = rng.choice(TENANTS), rng.choice(SERVICES)
        now = int(time.time()) // 10 * 10
        start, end = {0: (self.began // 10 * 10 - 100 * HOUR, now + 600),
                      1: (now - 300, now + 10),
                      2: (now - 10 * HOUR, now - 2 * HOUR)}[1 if recent else rng.choice((0, 0, 1, 2))]
        found = self.look(client, tenant, service, start, end)
        if isinstance(found, str):
            self.no_answers[found] = self.no_answers.get(found, 0) + 1
            client.other()
            time.sleep(0.3)
            return
        self.answers += 1
        t = time.monotonic()
        self.longest_silence = max(self.longest_silence, t - self.last_answer)
        self.last_answer = t
        if recent:
            self.longest_recent = max(self.longest_recent, t - self.last_recent)
            self.last_recent = t
        if found:
            self.wrong.append(f"{tenant} {service} {start}..{end}: " + "; ".join(found))

    def look(self, client, tenant, service, start, end, exact=False):
        """Returns the faults of the answer, or a text if no answer came."""
        have = len(self.book.acked[tenant, service])
        query = urllib.parse.urlencode({
            "query": cluster.CPU_TYPE + '{service_name="%s"}' % service, "from": start,
            "until": end, "format": "json", "max-nodes": "1000000"})
        host, r = client.request("GET", "/pyroscope/render?" + query, None,
                                 {"X-Scope-OrgID": tenant}, 25)
        status = getattr(r, "status", None)
        if status != 200:
            skewed = status == 412 and b"RequestTimeTooSkewed" in r.body  # fault `clock`
            if status is not None and status not in (429, 502, 503, 504) and not skewed:
                self.wrong.append(f"query at {host}: {r}")
            return str(status or type(r).__name__)
        answer = json.loads(r.body)
        partial = bool(answer.get("partial"))
        self.partial += partial
        with self.book.lock:
            must = self.book.acked[tenant, service][:have]
            tried = dict(self.book.tried[tenant, service])
        got = {}
        for stack, value in cluster.leaves(answer["flamebearer"]).items():
            got[stack[-1]] = got.get(stack[-1], 0) + value
        lost = [] if partial else [k for k, _, at in must if start <= at < end and k not in got]
        strange = [(k, v) for k, v in got.items() if k not in tried]
        wrong = [(k, v / TICK, tried[k][0]) for k, v in got.items()
                 if k in tried and v != tried[k][0] * TICK]
        outside = [k for k in got if k in tried and not start - 10 <= tried[k][1] <= end + 10]
        open_yet = [k for k in tried if exact and k not in got and tried[k][2].state == "acked"]
        key = tenant, service
        self.book.lacking |= {(*key, k) for k in (*lost, *open_yet)}
        self.book.altered |= {(*key, k[0]) for k in (*strange, *wrong)}
        said = []
        for name, some in (("lost", lost), ("strange", strange), ("wrong value", wrong),
                           ("outside the range", outside), ("missing", open_yet)):
            if some:
                said.append(f"{len(some)} {name} at {host}: {some[:4]}")
        return said

    # ---- the end ----

    def drain(self, limit_s):
        """No new pushes; those under way come to their end. True: all did."""
        self.finish_by = time.monotonic() + limit_s
        self.stopping.set()
        for t in self.threads:
            t.join(limit_s + ANSWER_S + 10)
        return not self.book.open

    def stop_asking(self):
        self.asking.set()
        for t in self.ask_threads:
            t.join(40)

    def check_all(self, servers, limit_s=60, exact=True):
        """Everything, exactly, from each of the servers; not `exact`: pushes are under way. Findings as text."""
        findings = []
        for server in servers:
            client = Client(self.world, [server], 0)
            for tenant in TENANTS:
                for service in SERVICES:
                    found = self.check_one(client, tenant, service, limit_s, exact)
                    if any("no answer" in text for text in found):
                        limit_s = 5  # the full limit for each of them would take minutes
                    findings += found
        return findings

    def check_one(self, client, tenant, service, limit_s, exact):
        until = time.monotonic() + limit_s
        while True:
            start = self.began // 10 * 10 - 100 * HOUR
            found = self.look(client, tenant, service, start, int(time.time()) + 700, exact)
            if not isinstance(found, str):
                return [f"{tenant} {service}: {text}" for text in found]
            if time.monotonic() > until:
                return [f"{tenant} {service}: no answer from {client.hosts[0]}: {found}"]
            with contextlib.suppress(OSError):
                time.sleep(0.5)
