"""P8: how long after kill -9 a server is ready again, with a large database, in the middle of pushes.

The database is filled by tool_fill through the engine, `GIB` of it (default 1; P8 asks for 10), and
then served by the real program. What was acked before the kill is read back afterwards.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster

TOOL = cluster.ROOT / os.environ.get("O", "build/release") / "tests/lib/tools/tool_fill"
GIB = float(os.environ.get("GIB", "10" if os.environ.get("LONG") else "1"))
GOAL_S = 2


def folder_bytes(path):
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def push_until(server, stop, acked, number):
    n = 0
    while not stop.is_set():
        try:
            body = b"".join(b"main;work;f%d_%d %d\n" % (number, i, 1 + i % 7) for i in range(200))
            if server.ingest(body, "live.cpu{pod=p%d}" % number).status == 200:
                acked[number] += sum(1 + i % 7 for i in range(200))
            n += 1
        except OSError:
            return


def total(server):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="live"}',
        "maxNodes": "16", **server.range_ms()})
    assert r.status == 200, r
    return int(cluster.flamegraph(r.json())["numTicks"])


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-restart-"))
    try:
        (folder / "data").mkdir()
        began = time.monotonic()
        subprocess.run([str(TOOL), str(folder / "data"), str(GIB)], check=True)
        size = folder_bytes(folder / "data")
        print(f"filled {size / 2**30:.2f} GiB in {time.monotonic() - began:.0f} s", flush=True)
        with cluster.AllInOne() as empty:
            empty.process.kill()
            began = time.monotonic()
            empty.process.start()
            bare = time.monotonic() - began
            bare_cpu = empty.process.cpu_seconds()
        print(f"  an empty server is ready after {bare:.2f} s, {bare_cpu:.2f} s of CPU", flush=True)
        server = cluster.AllInOne(folder=folder)
        process = server.process
        process.start()
        worst = 0
        acked = [0] * 8
        for round_ in range(3):
            stop = threading.Event()
            threads = [threading.Thread(target=push_until, args=(server, stop, acked, i))
                       for i in range(len(acked))]
            for t in threads:
                t.start()
            time.sleep(15)
            process.kill()
            stop.set()
            for t in threads:
                t.join()
            began = time.monotonic()
            process.start()
            ready = time.monotonic() - began
            worst = max(worst, ready)
            cpu = process.cpu_seconds()
            have, want = total(server) // 10_000_000, sum(acked)
            print(f"  kill {round_ + 1}: ready after {ready:.2f} s, {cpu:.2f} s of CPU; {want} samples acked, {have} "
                  f"there{'' if have >= want else ': LOST'}", flush=True)
        process.stop()
        print(f"P8 ready after kill -9 with {size / 2**30:.1f} GiB stored: {worst:.2f} s at worst; "
              f"goal <= {GOAL_S} s: {'reached' if worst <= GOAL_S else 'MISSED'}"
              + f"; an empty one {bare:.2f} s" + ("" if GIB >= 10 else " (GIB=10 for the size the goal names)"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
