"""Keys of callers in a cluster with etcd: five processes, one first key; what one process makes or revokes is known
to all; revoked while etcd is away: at once where that was asked, also after its restart, and everywhere when etcd is back;
etcd wiped: filled again from what the processes keep; the cluster's key changed without a restart.
"""
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import replicated

KEY = re.compile(r"\bemb_k[0-9A-Za-z]{12}_[0-9A-Za-z]{49}\b")
KEYS = "/api/v1/keys"


def ident(key):
    return key[5:17]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def says(process, key):
    """Status of a route that any admin may use."""
    return process.request("GET", KEYS, None, bearer(key), timeout=10).status


def all_say(c, key, status, seconds=15):
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            got = [says(p, key) for p in c.processes()]
            if got == [status] * len(got):
                return
            assert time.monotonic() < until, (key[:17], got, status)
        time.sleep(0.1)


def make(process, admin, name):
    grants = [{"tenants": ["*"], "roles": ["server-admin", "tenant-admin", "gateway", "scrape"]}]
    r = process.request("POST", KEYS, json.dumps({"name": name, "grants": grants}), bearer(admin))
    assert r.status == 200, r
    return r.json()["key"]


def revoke(process, admin, key):
    return process.request("DELETE", f"{KEYS}/{ident(key)}?why=test", None, bearer(admin)).status


def write(file, *keys):
    file.with_suffix(".new").write_text("".join(f"{name}: {key}\n" for name, key in keys))
    file.with_suffix(".new").chmod(0o600)
    os.replace(file.with_suffix(".new"), file)


def logged(c, text, times):
    until = time.monotonic() + 30
    while not all(p.whole_log().count(text) >= times for p in c.processes()):
        assert time.monotonic() < until, text
        time.sleep(0.1)


def a_life(c, file, keys):
    first = set().union(*(KEY.findall(p.whole_log()) for p in c.processes()))
    assert len(first) == 1, first
    first = first.pop()
    all_say(c, first, 200)
    admin = make(c.querier, first, "ops")
    all_say(c, admin, 200)
    all_say(c, first, 401)  # its work is done
    node = c.nodes["node0"].process
    one, two = make(node, admin, "one"), make(c.distributor, admin, "two")
    for key in (one, two):
        all_say(c, key, 200)
    assert revoke(c.querier, admin, one) == 200
    all_say(c, one, 401, 5)

    # etcd is away: 202, and it holds where it was asked, over a kill; no key is made
    c.etcd.kill()
    assert revoke(c.distributor, admin, two) == 202
    assert says(c.distributor, two) == 401 and says(c.querier, two) == 200
    r = c.distributor.request("POST", KEYS, b'{"name":"x","grants":[{"tenants":["*"],"roles":["push"]}]}', bearer(admin))
    assert r.status == 503, r
    c.distributor.kill()
    c.distributor.start(wait=False)
    until = time.monotonic() + 20
    while True:
        with contextlib.suppress(OSError):
            assert says(c.distributor, two) == 401
            assert says(c.distributor, admin) == 200  # what it knows it knows from its own file
            break
        assert time.monotonic() < until
        time.sleep(0.1)
    c.etcd.start()
    all_say(c, two, 401, 30)

    # etcd lost everything: the keys are written back, and what was revoked stays so
    c.etcd.kill()
    shutil.rmtree(c.etcd.folder / "data")
    c.etcd.start()
    until = time.monotonic() + 60
    prefix = "/embertree/identity/"
    while not {f"{prefix}head", f"{prefix}key/{ident(admin)}", f"{prefix}block/{ident(two)}"} <= set(c.etcd_keys(prefix)):
        assert time.monotonic() < until, c.etcd_keys(prefix).keys()
        time.sleep(0.2)
    for key, status in ((admin, 200), (one, 401), (two, 401), (first, 401)):
        all_say(c, key, status, 30)
    three = make_when_ready(c.querier, admin, "three")
    all_say(c, three, 200)

    # another key of the cluster, as SECURE.md says: nothing restarts; then the old one is gone for good
    old, new = keys
    for step, lines in enumerate(((old, new), (new, old), (new,))):
        write(file, *lines)
        logged(c, "cluster keys read again", step + 1)
        time.sleep(4)  # what the old one signed is signed again
    c.querier.stop()
    (c.querier.folder / "data" / "identity.json").unlink()
    c.querier.start(wait=False)
    for key, status in ((admin, 200), (three, 200), (two, 401)):
        all_say(c, key, status, 30)
    for p in c.processes():
        assert not [k for k in (admin, one, two, three) if k in p.whole_log()]


def make_when_ready(process, admin, name):
    until = time.monotonic() + 30
    while True:
        with contextlib.suppress(AssertionError):
            return make(process, admin, name)
        assert time.monotonic() < until
        time.sleep(0.2)


def test_cluster():
    keys = [(f"k{i}", base64.b64encode(os.urandom(32)).decode()) for i in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cluster.keys"
        write(file, keys[0])
        with replicated.Cluster(shards=2, options=(f"--cluster.key-file={file}", "--identity.mode=require")) as c:
            until = time.monotonic() + 20
            while not any(KEY.search(p.whole_log()) for p in c.processes()):
                assert time.monotonic() < until
                time.sleep(0.1)
            a_life(c, file, keys)


if __name__ == "__main__":
    if not replicated.available():
        print("SKIPPED: there is no etcd (package etcd-server)")
        sys.exit(0)
    cluster.main([test_cluster])
