"""What a delete that is done leaves in files: nothing of it, in tables and write-ahead logs, on any
copy of a shard. A copy that is down holds nothing up and does its part when it is back.

Names of functions and values of labels are looked for, also in compressed blocks (tests/lib/bytes_left.py).
The text of the request stays in the list of deletes, so services have other names.
"""
import os
import secrets
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bytes_left
import cluster
import replicated
import test_delete as t


def tables(folder, marker, kinds=(".sst", ".log")):
    """Names of tables and write-ahead logs with the marker."""
    return [p.name for p in bytes_left.files_with(folder, marker.encode()) if p.suffix in kinds]


def fill(server, now, service, marker):
    for minute in range(3):
        t.push(server, service, "pod" + marker, "fn" + marker, 1, now - 90 - 60 * minute,
               key=f"{service}-{now}-{minute}")


def delete(server, service):
    text = f'{{service_name="{service}"}}'
    reply = t.delete(server, query=text, confirm=text)
    assert reply.status == 200, reply


def wait_done(server, behind=0, limit_s=180):
    until = time.monotonic() + limit_s
    found = None
    while time.monotonic() < until:
        found = t.deletes(server)
        if all(d["state"] == "done" for d in found) and \
                max(d["copiesBehind"] for d in found) == behind:
            return
        time.sleep(0.2)
    raise AssertionError(f"not done with {behind} copies behind after {limit_s} s: {found}")


def wait_told(c, words, limit_s=180):
    """Waits for these words of the command. While a round begins it also counts each copy that has not yet reported."""
    until = time.monotonic() + limit_s
    while True:
        told = subprocess.run([cluster.BIN / "embertreectl", "deletes", "--server", f"http://127.0.0.1:{c.reader.port}"],
                              capture_output=True, text=True, check=True).stdout
        if words in told:
            return
        assert time.monotonic() < until, told
        time.sleep(0.2)


def into_tables(server, folders, markers):
    """Everything is written to tables: what a purge does last."""
    now = int(time.time()) // 60 * 60
    fill(server, now, "other", secrets.token_hex(8))
    for i, marker in enumerate(markers):
        fill(server, now, f"service{i}", marker)
    fill(server, now, "kept", "kept")
    time.sleep(2)  # sealed
    delete(server, "other")
    wait_done(server)
    for folder in folders:
        for marker in (*markers, "kept"):
            assert tables(folder, marker, (".sst",)), (folder, marker)


def wait_nowhere(folders, marker, limit_s=180):
    """Until no file has it, logs between copies neither."""
    until = time.monotonic() + limit_s
    found = None
    while time.monotonic() < until:
        found = [p for folder in folders for p in bytes_left.files_with(folder, marker.encode())]
        if not found:
            return
        time.sleep(0.5)
    raise AssertionError(f"after {limit_s} s it is in {found}")


def test_one():
    with cluster.AllInOne(*t.FAST) as server:
        folder, gone = server.process.folder / "data", secrets.token_hex(8)
        into_tables(server, [folder], [gone])
        fill(server, int(time.time()) // 60 * 60 + 60, "service0", gone)  # unsealed
        delete(server, "service0")
        wait_done(server)
        assert tables(folder, gone) == []
        assert tables(folder, "kept") and t.total(server) == {"fnkept": 3}


def test_copies():
    with replicated.Cluster(ingesters=3, shards=1) as c:
        c.wait_whole()
        folders = {n.name: n.process.folder / "data" for n in c.nodes.values()}
        one, two = secrets.token_hex(8), secrets.token_hex(8)
        into_tables(c, folders.values(), [one, two])
        delete(c, "service0")
        wait_done(c)
        for folder in folders.values():
            assert tables(folder, one) == [] and tables(folder, two), folder
        wait_nowhere(folders.values(), one)

        down = next(n for n in c.nodes.values() if n is not c.leader_of(0))
        down.process.kill()
        delete(c, "service1")
        wait_done(c, behind=1)
        wait_told(c, "1 copy of its shards may still hold bytes")
        for name, folder in folders.items():
            assert (tables(folder, two) == []) == (name != down.name), name
        down.process.start()
        wait_done(c)
        for folder in folders.values():
            assert tables(folder, two) == [] and tables(folder, "kept"), folder
        wait_nowhere(folders.values(), two)
        assert t.total(c) == {"fnkept": 3}


if __name__ == "__main__":
    tests = [test_one]
    if replicated.available():
        tests.append(test_copies)
    else:
        print("SKIPPED: copies: there is no etcd-server")
    cluster.main(tests)
