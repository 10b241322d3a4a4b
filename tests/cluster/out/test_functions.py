"""What functions cost over time, through a real process: pushes of three hours and of now, answered
by /api/v1/functions, beside adding up what was pushed; the same by the flame graph; limits."""
import collections
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
FUNCTIONS = ["main", "serve", "pay", "list", "gc"]


def random_profile(rng):
    """{stack: value}; functions recur in a stack."""
    out = collections.Counter()
    for _ in range(rng.randrange(1, 8)):
        stack = ("main",) + tuple(rng.choice(FUNCTIONS) for _ in range(rng.randrange(5)))
        out[stack] += rng.randrange(1, 50)
    return out


def add(to, profile):
    for stack, value in profile.items():
        to["self", stack[-1]] += value
        to["all", ""] += value
        for name in set(stack):
            to["total", name] += value


class Pushes:
    def __init__(self, server, rng):
        self.server, self.rng, self.at = server, rng, []

    def push(self, second, service, pod):
        profile = random_profile(self.rng)
        body = "".join(f"{';'.join(stack)} {value}\n" for stack, value in profile.items())
        reply = self.server.ingest(body.encode(), f"{service}.cpu{{pod={pod}}}", format="folded",
                                   from_=str(second), until=str(second + 10), sampleRate="100")
        assert reply.status == 200, reply
        self.at.append((second, service, pod, profile))

    def sums(self, start, step, points, service, pod=None):
        """By point: {(self or total or all, function): value}."""
        out = [collections.Counter() for _ in range(points)]
        for second, s, p, profile in self.at:
            k = (second - start) // step
            if 0 <= k < points and s == service and pod in (None, p):
                add(out[k], profile)
        return out


def check(server, pushes, start, step, points, service, pod=None, scale=1, **more):
    selector = f'service_name="{service}"' + (f',pod="{pod}"' if pod else "")
    reply = server.reader.get("/api/v1/functions", query=f"{TYPE}{{{selector}}}", from_=str(start),
                              until=str(start + step * points), step=str(step), **more)
    assert reply.status == 200, reply
    got, want = reply.json(), pushes.sums(start, step, points, service, pod)
    assert got["allAt"] == [scale * w["all", ""] for w in want], (got["allAt"], want)
    assert got["all"] == sum(got["allAt"]) and got["points"] == points
    for f in got["functions"]:
        for kind in ("self", "total"):
            assert f[kind + "At"] == [scale * w[kind, f["name"]] for w in want], (f, want)
            assert f[kind] == sum(f[kind + "At"])
    return got


def scale_of(server):
    """Nanoseconds that a sample of sampleRate 100 became."""
    return 10**7


def test_functions_are_what_was_pushed():
    seed = int(os.environ.get("SEED", time.time()))
    print(f"SEED={seed}")
    rng = random.Random(seed)
    with cluster.AllInOne("--ingester.seal-delay=0ms") as server:
        pushes, now = Pushes(server, rng), int(time.time()) // 10 * 10
        begin = (now - 3 * 3600) // 3600 * 3600
        for second in range(begin, now - 20, 370):
            for pod in "abcdef":
                pushes.push(second // 10 * 10, "shop", pod)
            pushes.push(second // 10 * 10, "cart", "a")
        for wait in (0, 2, 15):  # unsealed; sealed; nodes of 10 minutes and more are built
            time.sleep(wait)
            for pod in "ab":
                pushes.push(int(time.time()) // 10 * 10 - 10, "shop", pod)
            for step, points in ((3600, 4), (600, 24), (60, 200), (10, 100), (4 * 3600, 1)):
                check(server, pushes, begin, step, points, "shop", scale=scale_of(server))
            check(server, pushes, begin, 600, 24, "shop", pod="b", scale=scale_of(server))
            check(server, pushes, begin + 30, 70, 100, "cart", scale=scale_of(server))

        # The best by sums of the whole range; and those that were asked for, in their order.
        sums = pushes.sums(begin, 4 * 3600, 1, "shop")[0]
        got = check(server, pushes, begin, 600, 24, "shop", scale=scale_of(server), top="2",
                    sort="total")
        best = sorted(FUNCTIONS, key=lambda f: (-sums["total", f], -sums["self", f], f))[:2]
        assert [f["name"] for f in got["functions"]] == best, (got, sums)
        got = check(server, pushes, begin, 600, 24, "shop", scale=scale_of(server), name="pay")
        assert [f["name"] for f in got["functions"]] == ["pay"]

        # The flame graph of the same range.
        flame = server.render(f'{TYPE}{{service_name="shop"}}', from_=str(begin),
                              until=str(begin + 4 * 3600)).json()["flamebearer"]
        self = collections.Counter()
        for stack, value in cluster.leaves(flame).items():
            self[stack[-1]] += value
        got = check(server, pushes, begin, 4 * 3600, 1, "shop", scale=scale_of(server))
        assert {f["name"]: f["self"] for f in got["functions"] if f["self"]} == dict(self)
        assert got["all"] == flame["numTicks"]


def test_errors_say_what_to_do():
    with cluster.AllInOne() as server:
        for query, text in (({"query": "{a=\"b\"}"}, "profile type"),
                            ({"query": f"{TYPE}{{}}", "step": "0"}, "step"),
                            ({"query": f"{TYPE}{{}}", "top": "x"}, "top"),
                            ({"query": f"{TYPE}{{}}", "from": "now", "until": "now-1h"}, "until"),
                            ({"query": f"{TYPE}{{}}", "from": "1", "step": "1"}, "use a step")):
            reply = server.reader.get("/api/v1/functions", **query)
            assert reply.status == 400 and text in reply.json()["message"], reply
        reply = server.reader.get("/api/v1/functions", query=f"{TYPE}{{}}")
        assert reply.status == 200 and reply.json()["functions"] == [], reply


if __name__ == "__main__":
    cluster.main([test_functions_are_what_was_pushed, test_errors_say_what_to_do])
