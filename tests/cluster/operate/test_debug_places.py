"""Profiles on demand cost a place each, and by default need no token: no caller takes the places of the
others or of the operator, and a caller that goes away gives its place back."""
import http.client
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

LONG = "/debug/pprof/profile?seconds=300"


def begin(server, source="127.0.0.1", path=LONG):
    """A request under way, from one of this machine's addresses."""
    c = http.client.HTTPConnection("127.0.0.1", server.reader.port, timeout=60, source_address=(source, 0))
    c.request("GET", path)
    return c


def answer(c):
    r = c.getresponse()
    reply = cluster.Reply(r.status, r.headers, r.read())
    c.close()
    return reply


def running(server, n):
    """Waits until so many of 127.0.0.1 are taken: one more is refused, and with fewer is not."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        r = answer(begin(server, path="/debug/pprof/profile?seconds=1"))
        if (r.status == 429) == (n == 2):
            return r
        time.sleep(0.05)
    raise AssertionError(f"{n} places of this address: {r}")


def places(*options):
    with cluster.AllInOne(*options) as server:
        held = [begin(server) for _ in range(2)]
        refused = running(server, 2)
        assert "profiles are being taken for 127.0.0.1 already" in refused.json()["message"], refused
        assert refused.headers["Retry-After"], refused.headers
        other = begin(server, "127.0.0.2")
        until = time.monotonic() + 60
        while True:  # until the other's request has arrived
            last = answer(begin(server, "127.0.0.3", "/debug/pprof/profile?seconds=1"))
            if last.status != 200 or time.monotonic() > until:
                break
        assert last.status == 503 and "Unix socket" in last.json()["message"], last
        operator = server.process.operate("/debug/pprof/profile?seconds=1", method="GET")
        assert operator.status == 200 and operator.body[:2] == b"\x1f\x8b", operator
        held.pop().close()
        assert running(server, 1).status == 200
        other.close()
        while answer(begin(server, "127.0.0.3", "/debug/pprof/profile?seconds=1")).status != 200:
            assert time.monotonic() < until + 60
        held.pop().close()


def test_places():
    places()


def test_places_of_a_sampler_of_its_own():
    places("--no-selfprof.enabled")


def test_index_is_inert():
    with cluster.AllInOne() as server:
        for path in ("/debug/pprof", "/debug/pprof/"):
            r = server.process.get(path)
            assert r.headers["X-Content-Type-Options"] == "nosniff", r.headers
            policy = r.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, policy


if __name__ == "__main__":
    cluster.main([test_places, test_places_of_a_sampler_of_its_own, test_index_is_inert])
