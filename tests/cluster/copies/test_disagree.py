"""Processes whose settings place services in different shards: without a coordination service no other process
could notice, and a push would be stored (200) where no query looks for it. They refuse each other, are not
ready, and name the setting.
"""
import contextlib
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

SERVICES = 8
OTHER = "a process has other settings"


def pushes(server):
    return [server.ingest(b"main;a 5\n", f"svc{i}.cpu").status for i in range(SERVICES)]


def total(server, service):
    r = server.render(cluster.CPU_TYPE + '{service_name="%s"}' % service)
    return r.json()["flamebearer"]["numTicks"] // 10_000_000 if r.status == 200 else r


def start(four, *but):
    """All, and those that go together are ready."""
    for p in four.processes:
        p.start(wait=False)
    for p in four.processes:
        if p not in but:
            p.wait_ready()


def not_ready(process, says):
    until = time.monotonic() + 90
    while True:
        r = None
        with contextlib.suppress(OSError):  # it may not listen yet
            r = process.get("/readyz")
            if r.status == 503 and says in r.body.decode():
                return
        assert time.monotonic() < until, r
        time.sleep(0.1)


def refuses_writes(four, says):
    not_ready(four.writer, says)
    r = four.ingest(b"main;a 5\n", "svc0.cpu")
    assert r.status == 503 and says in r.body.decode(), r
    assert OTHER in four.by_role["ingester"].log.read_text(errors="replace")


def corrected(four, role, right):
    """The process, started again with the right settings, and all works."""
    p = four.by_role[role]
    p.stop()
    p.options = right
    p.start()
    assert pushes(four) == [200] * SERVICES
    assert [total(four, f"svc{i}") for i in range(SERVICES)] == [5] * SERVICES


class Four(cluster.FourProcesses):
    def __enter__(self):
        return self


def test_a_distributor_with_another_number():
    with Four("--cluster.shards=3", distributor=["--cluster.shards=1"]) as four:
        p = four.by_role["distributor"]
        start(four, p)
        refuses_writes(four, "cluster.shards 3 there, cluster.shards 1 here")
        corrected(four, "distributor", p.options[:-1])


def test_a_querier_and_a_compactor_with_another_number():
    with Four("--cluster.shards=3", querier=["--cluster.shards=1"], compactor=["--cluster.shards=2"]) as four:
        q, c = four.by_role["querier"], four.by_role["compactor"]
        start(four, q, c)
        not_ready(q, "cluster.shards 3 there, cluster.shards 1 here")
        not_ready(c, "cluster.shards 3 there, cluster.shards 2 here")
        assert pushes(four) == [200] * SERVICES
        r = four.render(cluster.CPU_TYPE + '{service_name="svc0"}')
        assert r.status == 503, r
        c.stop()
        c.options = c.options[:-1]
        c.start()
        q.stop()
        q.options = q.options[:-1]
        q.start()
        assert [total(four, f"svc{i}") for i in range(SERVICES)] == [5] * SERVICES


def static_map(folder, name, addr, more):
    path = pathlib.Path(folder) / name
    path.write_text(f'shards: 3\nreplicas: 1\nnodes: [{{name: a, addr: "{addr}"}}]\n'
                    f"replicas_of: [[a], [a], [a]]\n{more}")
    return [f"--cluster.map-file={path}"]


def test_maps_of_one_version_that_differ():
    """The distributor spreads a service, and no other process knows."""
    services = "services: [" + ", ".join("{tenant: anonymous, name: svc%d, spread: 3}" % i
                                         for i in range(SERVICES)) + "]\n"
    with tempfile.TemporaryDirectory() as folder, \
            Four("--cluster.coordination=static", "--cluster.node=a") as four:
        addr = four.by_role["ingester"].options[1].partition("=")[2]
        plain = static_map(folder, "plain.yaml", addr, "version: 1\n")
        wide = static_map(folder, "wide.yaml", addr, "version: 1\n" + services)
        for p in four.processes:
            p.options += tuple(wide if p is four.writer else plain)
        start(four, four.writer)
        refuses_writes(four, "under the same version")
        corrected(four, "distributor", (*four.writer.options[:-1], *plain))


if __name__ == "__main__":
    cluster.main([test_a_distributor_with_another_number, test_a_querier_and_a_compactor_with_another_number,
                  test_maps_of_one_version_that_differ])
