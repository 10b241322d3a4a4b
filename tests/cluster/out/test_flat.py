"""Timelines of steady load are flat lines at every step, below a call site, too, whatever the rhythm of the agents and the step: pushes of 10 and
15 s that begin anywhere, at steps that dashboards and the page take; and neighbouring ranges add up."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

MINUTES = 12
SITE = {"stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "lock"}]}}  # a fourth of all


def push_steadily(server, service, every_s, offset_ms, base_s):
    """As many samples a second as any other service."""
    for at in range(base_s * 1000 + offset_ms, (base_s + 60 * MINUTES) * 1000, every_s * 1000):
        r = server.ingest(f"main;work {every_s * 75}\nmain;lock;wait {every_s * 25}\n".encode(), f"{service}.cpu",
                          **{"from": at, "until": at + every_s * 1000})
        assert r.status == 200, r


def points(server, service, start_s, end_s, step, **more):
    r = server.connect("SelectSeries", {
        "profileTypeID": cluster.CPU_TYPE, "labelSelector": f'{{service_name="{service}"}}',
        "start": str(start_s * 1000), "end": str(end_s * 1000), "step": step} | more)
    assert r.status == 200, r
    return [p["value"] for p in r.json()["series"][0]["points"]]


def test_steady_load_is_flat():
    with cluster.AllInOne() as server:
        base = int(time.time()) // 60 * 60 - 60 * (MINUTES + 2)
        agents = {"ten": (10, 0), "ten-late": (10, 7300), "fifteen": (15, 0), "fifteen-late": (15, 8100)}
        for service, (every, offset) in agents.items():
            push_steadily(server, service, every, offset, base)
        first, last = base + 120, base + 60 * (MINUTES - 2)
        for service, (every, _) in agents.items():
            for step in (5, 10, 15, 20, 30, 45, 60, 120):
                got = points(server, service, first, last, step)
                assert len(got) == (last - first) // step + 1, (service, step, len(got))
                assert set(got) == {step * 10**9}, (service, step, got)
            # The page's own question, and a grid that no agent has.
            r = server.render(f'{cluster.CPU_TYPE}{{service_name="{service}"}}', **{"from": first, "until": last})
            line = r.json()["timeline"]
            assert set(line["samples"]) == {line["durationDelta"] * 10**9}, (service, line)
            odd = points(server, service, first + 3, last, 15)
            assert set(odd) == {15 * 10**9}, (service, odd)
            # Below a call site: as much of each push.
            for step in (5, 10, 15, 20, 30, 45, 60, 120):
                for more in ({}, {"groupBy": ["service_name"]}):
                    below = points(server, service, first, last, step, **SITE, **more)
                    assert len(below) == (last - first) // step + 1, (service, step, len(below))
                    assert set(below) == {step * 10**9 // 4}, (service, step, below)
            assert set(points(server, service, first + 3, last, 15, **SITE)) == {15 * 10**9 // 4}, service
            mean = points(server, service, first, last, 30, aggregation="TIME_SERIES_AGGREGATION_TYPE_AVERAGE", **SITE)
            assert set(mean) == {every * 10**9 // 4}, (service, mean)
            # A mean per push is that of whole pushes.
            mean = points(server, service, first, last, 15, aggregation="TIME_SERIES_AGGREGATION_TYPE_AVERAGE")
            assert set(mean) == {every * 10**9}, (service, mean)


if __name__ == "__main__":
    cluster.main([test_steady_load_is_flat])
