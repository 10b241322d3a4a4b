"""kill -9 at random moments under load: every push that got its 200 is there exactly once.

First several all-in-one processes side by side, each on a folder of its own. One life of a process: start,
push from several threads, kill -9 at a random moment (sometimes during the start itself). Every
push has a stack of its own, so that after each restart presence and count of every single one can
be checked with one query. Pushes go to several minutes of the past and the seal delay is nothing,
so that sealing, late data and writes are all cut in the middle. A push without an answer is retried
after the restart under its Idempotency-Key, as an agent would: it must not count twice.

KILLS=200 and SEED=n change a run.
"""
import http.client
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

KILLS = int(os.environ.get("KILLS", "208"))
SEED = int(os.environ.get("SEED", str(time.time_ns() % 10**9)))
SIDE_BY_SIDE = 4
TICK = 10_000_000  # nanoseconds of one sample at the default 100 Hz
PUSHERS = 3
SERVICES = 3


def send(push, connection):
    """True if it was answered 200. Raises if there was no answer."""
    push.sent_at = push.sent_at or int(time.time()) - push.age_s
    path = (f"/ingest?name={push.service}.cpu%7Bx%3Dy%7D&from={push.sent_at}"
            f"&until={push.sent_at + 1}")
    connection.request("POST", path, f"root;{push.stack} {push.value}\n",
                       {"Idempotency-Key": push.key})
    reply = connection.getresponse()
    body = reply.read()
    if reply.status == 200:
        push.acked = True
    elif reply.status not in (503, 504):  # busy is an answer; anything else is a bug
        raise AssertionError(f"{reply.status} {body[:200]}")
    return push.acked


def patiently(ask, fine, tries=60):
    """Asks again while the answer is an honest "not now": a process that was just killed and started
    may be taken for down once more on a busy machine. What it then says is held to the letter."""
    for _ in range(tries):
        answer = ask()
        if fine(answer):
            return answer
        time.sleep(0.5)
    return answer


def check_all(server, pushes, began):
    """Everything acked is there once; nothing at all is there twice or with another value."""
    found = {}
    for s in range(SERVICES):
        query = cluster.CPU_TYPE + '{service_name="svc%d"}' % s
        r = patiently(lambda: server.render(query, **{"from": str(began - 900), "until": "now"}),
                      lambda reply: reply.status not in (503, 504))
        assert r.status == 200, r
        for stack, value in cluster.leaves(r.json()["flamebearer"]).items():
            found[(f"svc{s}", stack[-1])] = value // TICK
            assert value % TICK == 0, (stack, value)
    for push in pushes:
        value = found.pop((push.service, push.stack), 0)
        assert value in ((push.value,) if push.acked else (0, push.value)), (
            f"push {push.stack} of {push.value}, acked: {push.acked}, reads {value}")
    assert not found, f"never pushed: {list(found)[:3]}"


class Push:
    def __init__(self, number, rng):
        self.stack = f"p{number}"
        self.value = rng.randrange(1, 1000)
        self.service = f"svc{rng.randrange(SERVICES)}"
        self.age_s = rng.choice((5, 5, 70, 200, 330))
        self.key = f"key-{number}-{rng.getrandbits(64):x}"
        self.sent_at = None
        self.acked = False


class Worker:
    """One folder, many lives."""

    def __init__(self, number, kills):
        self.rng = random.Random(SEED * 100 + number)
        self.kills = kills
        self.number = number
        self.server = cluster.AllInOne("--ingester.seal-delay=0ms", "--memory.limit=256MiB",
                                       "--log.level=warn", "--no-selfprof.enabled")
        self.pushes, self.lock = [], threading.Lock()
        self.began = int(time.time())
        self.killed_in_start = self.retried = self.checks = self.seals = 0
        self.error = None

    def pusher(self, seed, retries):
        rng = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.process.port, timeout=120)
        try:
            for push in retries:
                send(push, connection)
                self.retried += 1
            while True:
                with self.lock:
                    push = Push(len(self.pushes), rng)
                    self.pushes.append(push)
                send(push, connection)
        except (OSError, http.client.HTTPException):
            return  # the process is gone
        except Exception as e:  # reported by run()
            self.error = e
        finally:
            connection.close()

    def life(self):
        process = self.server.process
        process.start(wait=False)
        if self.rng.random() < 0.15:
            time.sleep(self.rng.random() * 0.1)
            process.kill()
            self.killed_in_start += 1
            return
        process.wait_ready()
        self.check()
        unanswered = [p for p in self.pushes if not p.acked]
        self.rng.shuffle(unanswered)
        threads = [threading.Thread(target=self.pusher,
                                    args=(self.rng.getrandbits(32), unanswered[i::2 * PUSHERS]))
                   for i in range(PUSHERS)]
        for t in threads:
            t.start()
        time.sleep(self.rng.choice((0.01, 0.05, 0.15, 0.6)) * (0.2 + self.rng.random()))
        process.kill()
        for t in threads:
            t.join()

    def check(self):
        check_all(self.server, self.pushes, self.began)
        self.checks += 1

    def sealed(self):
        """How often; at least once. On a busy machine no life may have been long enough: then this one is, and is
        killed as well."""
        count = lambda: self.server.process.metric("embertree_ingester_seal_log_entries")
        if not count():
            until = time.monotonic() + 120
            while not count():
                assert time.monotonic() < until, "nothing was sealed"
                time.sleep(0.01)
            self.server.process.kill()
            self.server.process.start()
            self.check()
        return count()

    def run(self):
        try:
            for _ in range(self.kills):
                self.life()
                if self.error:
                    raise self.error
            self.server.process.start()
            self.check()
            self.seals = self.sealed()
            connection = http.client.HTTPConnection("127.0.0.1", self.server.process.port)
            for push in self.pushes:  # in the end every one is retried until it is acked
                if not push.acked:
                    assert patiently(lambda p=push: send(p, connection), bool), push.stack
            connection.close()
            self.check()
            assert self.server.process.stop() == 0
        except Exception as e:
            self.error = e
            print(f"worker {self.number}: {e!r}\n{self.server.process.tail()}", flush=True)
        finally:
            self.server.process.cleanup()


def test_kill9():
    print(f"SEED={SEED} KILLS={KILLS}", flush=True)
    workers = [Worker(i, KILLS // SIDE_BY_SIDE) for i in range(SIDE_BY_SIDE)]
    threads = [threading.Thread(target=w.run) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    acked = sum(p.acked for w in workers for p in w.pushes)
    print(f"{sum(w.kills for w in workers)} kills, {sum(w.killed_in_start for w in workers)} of them "
          f"during the start; {acked} pushes acked, {sum(w.retried for w in workers)} retried; "
          f"{sum(w.checks for w in workers)} checks of everything; "
          f"{sum(w.seals for w in workers):.0f} seal entries")
    failed = [w.error for w in workers if w.error]
    assert not failed, failed
    assert acked > KILLS, "hardly anything was pushed"
    assert all(w.seals for w in workers), "nothing was sealed"


def test_kill9_of_one_role():
    """Four processes; the ingester is killed under the distributor's hands and comes back."""
    rng, kills = random.Random(SEED), max(KILLS // 20, 2)
    pushes, lock, stop, errors = [], threading.Lock(), threading.Event(), []
    began = int(time.time())

    def pusher(server, seed):
        own = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", server.writer.port, timeout=60)
        try:
            while not stop.is_set():
                with lock:
                    push = Push(len(pushes), own)
                    pushes.append(push)
                if not send(push, connection):
                    time.sleep(0.02)
        except Exception as e:  # the distributor lives: every push gets an answer
            errors.append(e)
        finally:
            connection.close()

    with cluster.FourProcesses("--cluster.heartbeat=100ms", "--cluster.dead-after=500ms",
                               "--log.level=error",
                               ingester=["--ingester.seal-delay=0ms"]) as server:
        threads = [threading.Thread(target=pusher, args=(server, rng.getrandbits(32)))
                   for _ in range(PUSHERS)]
        for t in threads:
            t.start()
        ingester = server.by_role["ingester"]
        for _ in range(kills):
            time.sleep(0.1 + 0.4 * rng.random())
            ingester.kill()
            ingester.start()
        stop.set()
        for t in threads:
            t.join()
        assert not errors, errors[:3]
        for process in server.processes:
            process.wait_ready()
        check_all(server, pushes, began)
        refused = [p for p in pushes if not p.acked]
        connection = http.client.HTTPConnection("127.0.0.1", server.writer.port, timeout=60)
        for push in refused:
            assert patiently(lambda: send(push, connection), bool), push.stack
        connection.close()
        check_all(server, pushes, began)
        print(f"{kills} kills of the ingester, {len(pushes)} pushes, {len(refused)} refused first")


if __name__ == "__main__":
    cluster.main([test_kill9, test_kill9_of_one_role])
