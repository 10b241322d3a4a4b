"""A leader without followers and without etcd, so that no other leader can be named. It cannot know that it is
still the leader, so it answers no query; but dashboards send more. The rows that a query asks for are read, and
wait for a confirmation: that must end, and its memory be freed, although nothing comes back for hours.
"""
import concurrent.futures
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

SERVICES = 12


def ask(c, service):
    query = cluster.CPU_TYPE + '{service_name="svc%d"}' % service
    return c.render(query, **{"from": "now-1h", "until": "now"})


def waiting(node):
    """Questions that are not answered, and bytes held for them."""
    return (node.process.metric("embertree_ingester_reads_pending"),
            node.process.metric("embertree_memory_bytes", part="reads"))


def free_again(node):
    until = time.monotonic() + 90
    while waiting(node) != (0, 0):
        assert time.monotonic() < until, waiting(node)
        time.sleep(0.2)


def test_questions_end():
    c = replicated.Cluster()
    c.querier = c.reader = c.process("querier", "--querier.timeout=10s")
    with c:
        c.wait_whole()
        for s in range(SERVICES):
            assert c.distributor.post(f"/ingest?name=svc{s}.cpu%7B%7D&from=now-10s&until=now", "root;x 7\n").status == 200
        assert all(ask(c, s).status == 200 for s in range(SERVICES))
        alone = max(c.nodes.values(), key=lambda n: list(c.leaders().values()).count(n.name))
        free_again(alone)
        c.etcd.kill()
        for n in c.nodes.values():
            if n is not alone:
                n.process.kill()
        with concurrent.futures.ThreadPoolExecutor(SERVICES) as pool:
            answers = [pool.submit(ask, c, s) for s in range(SERVICES)]
            until = time.monotonic() + 60
            while min(waiting(alone)) == 0:
                assert time.monotonic() < until, waiting(alone)
                time.sleep(0.05)
            assert all(a.result().status in (503, 504) for a in answers), [a.result() for a in answers]
        free_again(alone)
        assert alone.ring()["replicas"] and alone.process.child.poll() is None


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_questions_end])
