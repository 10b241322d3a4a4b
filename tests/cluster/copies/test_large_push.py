"""One push that is valid, and would be written as more than replicas exchange at once: it is refused,
and its shard still takes all others.

Its samples carry labels, so that it becomes hundreds of series; each label is written some times:
in the series, in the index, in the labels of groups.
"""
import gzip
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import push_client
import replicated
from push_client import field

SAMPLES, LABELS, VALUE = 600, 27, 1980
RANDOM = random.Random(1)


def labelled(time_ns):
    """A profile of one stack, whose samples have labels of their own: 32 MB of text."""
    strings = ["", "leaf", "main", "cpu", "nanoseconds"]

    def text(s):
        strings.append(s)
        return len(strings) - 1

    keys = [text(f"label{k}") for k in range(LABELS)]
    out = [field(1, field(1, 3) + field(2, 4))]
    for _ in range(SAMPLES):
        out.append(field(2, field(1, b"\1\2") + field(2, 10) + b"".join(
            field(3, field(1, k) + field(2, text(RANDOM.randbytes(VALUE // 2).hex()))) for k in keys)))
    for i in (1, 2):
        out.append(field(4, field(1, i) + field(4, field(1, i))) + field(5, field(1, i) + field(2, i)))
    out.append(field(11, field(1, 3) + field(2, 4)) + field(12, 10000000) + field(9, time_ns))
    return b"".join(out + [field(6, s.encode()) for s in strings])


def push(c, service, body, number):
    labels = {"service_name": service, "__name__": "process_cpu"}
    return push_client.push_proto(c.distributor,
                                  push_client.request((labels, [(body, f"id{number}")])))


def test_large_push():
    if not replicated.available():
        print("SKIPPED: no etcd-server")
        return
    with replicated.Cluster(shards=1) as c:
        now = push_client.now_ns()
        small = push_client.pprof(10, time_ns=now)
        assert push(c, "small", small, 1).status == 200
        large = push(c, "large", gzip.compress(labelled(now), 1), 2)
        assert large.status == 400 and b"send it in parts" in large.body, large
        for number in range(3, 8):
            reply = push(c, "small", small, number)
            assert reply.status == 200, reply


if __name__ == "__main__":
    cluster.main([test_large_push])
