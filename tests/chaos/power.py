"""`make power`: power cuts at the worst moments, one case after the other, under a little load. Each machine has a real
ext4 file system whose power is cut (disks.py): seconds after a restart of every kind, an upgrade, a purge, a restore, an
adopt, an install of a copy; and disks that are read-only or full. README.md says what must hold and how to read it.

POWER_SECONDS=60   SEED=n   RATE=pushes a second   CASE=words: only these cases (of a cluster)   KEEP=1: keeps logs
O=folder of another build: tests O/bin/embertree...
"""
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[1] / "lib")]
import cluster
import disks
import power_cases
import upgrade
import wire
import world as worlds
from load import Book, Load

SECONDS = int(os.environ.get("POWER_SECONDS") or "60")
SEED = int(os.environ.get("SEED") or time.time_ns() % 10**9)
RATE = float(os.environ.get("RATE") or "8")
KEEP = bool(os.environ.get("KEEP"))
CASE = os.environ.get("CASE", "")
LIFE_S = 900      # then everything begins again, with one server
ALONE = "ingester-a"
EMPTY = ("the database is open for reading only", "no database was found in",
         "Column family not found")  # nothing was synced yet: no row, no file, or not all of its families


class Alone:
    """One server with all roles and without copies, on the disk that later is the first ingester's."""

    def __init__(self, world):
        self.world, self.host = world, ALONE
        options = [f"--cluster.shards={worlds.SHARDS}", *world.cold, *world.fast]
        ingester = world.servers[ALONE]
        self.server = worlds.Server(world, ALONE, "embertree", "--http.insecure-open", "--tenancy.multi",
                                    "--no-selfprof.enabled", "--memory.limit=384MiB", *options,
                                    folder=ingester.folder)
        self.server.log = world.folder / "alone.log"
        self.server.disk = ingester.disk
        self.options = options
        self.servers = {ALONE: self.server}
        self.distributors = self.queriers = [self.server]
        self.ip = world.ip

    def tool(self, *args, limit_s=120, started=None):
        """`embertree restore` and so on, on its machine; `started` gets the process while it runs."""
        command = [str(self.world.bin / "embertree"), *args]
        child = subprocess.Popen(self.world.wire.inside(ALONE, command), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if started:
            started(child)
        try:
            said = child.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            said = child.communicate()[0] + f" (no end in {limit_s} s)"
        return child.returncode, said


class Power:
    def __init__(self, seed):
        self.rng, self.seed = random.Random(seed), seed
        self.began = time.monotonic()
        self.findings, self.counts, self.cuts = [], {}, 0
        self.pushes = self.acks = self.answers = self.partial = 0
        self.lost, self.altered, self.lacking = set(), set(), set()
        self.doing, self.looked, self.empty = "nothing", 0, 0
        self.turn = 0     # of the cases of a cluster; over all lives
        self.purge = None
        self.world = self.load = None

    def say(self, text):
        print(f"[{time.monotonic() - self.began:7.1f}] {text}", flush=True)

    def find(self, text):
        self.findings.append(f"{self.doing}: {text}")
        self.say(f"FOUND {self.doing}: {text[:3000]}")

    @contextlib.contextmanager
    def case(self, name):
        """One case: what is found in it is said under its name; the next one runs whatever it was."""
        self.doing, began, before = name, time.monotonic(), len(self.findings)
        self.counts[name] = self.counts.get(name, 0) + 1
        self.say("+ " + name)
        try:
            yield
        except Exception:  # whatever it is, the logs are kept and the next case is tried
            self.find(traceback.format_exc())
        self.take_wrong()
        found = len(self.findings) - before
        self.say(f"- {name}: {f'{found} findings' if found else 'exact'} after {time.monotonic() - began:.1f} s")

    def take_wrong(self):
        """What the askers saw while it ran."""
        if self.load:
            wrong, self.load.wrong = self.load.wrong, []
            for text in wrong[:20]:
                self.find("while it ran: " + text)

    def exact(self, servers, tell=""):
        """Every service of every tenant from each of the servers; what is lost is lost for good."""
        before = set(self.load.book.lacking)
        findings = self.load.check_all(servers, exact=self.load.stopping.is_set())
        self.lost |= self.load.book.lacking - before
        for text in findings:
            self.find(tell + text)
        return not findings

    def fsck(self, server, cold=()):
        """Every database of a machine whose processes are gone. One of which nothing was synced yet is empty: its
        replica has everything in its log. `cold`: with the bucket; a copy that lost what its log brings again may name
        objects that are replaced by now, so this is for one server and for the end."""
        for folder in sorted((server.folder / "data").glob("shard-*")):
            command = [str(self.world.bin / "embertree"), "fsck", *(["--cold", *cold] if cold else []), str(folder)]
            r = subprocess.run(self.world.wire.inside(server.host, command), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=300, check=False)
            if r.returncode == 2 and any(text in r.stderr for text in EMPTY):
                self.empty += 1
                continue
            self.looked += 1
            left_out = cold and "left out" in r.stdout
            if r.returncode or "0 findings" not in r.stdout or left_out:
                self.find(f"fsck of {server.host} {folder.name}: {r.returncode}: {r.stdout[-800:]}{r.stderr[-300:]}")

    # ---- the load ----

    @contextlib.contextmanager
    def loaded(self, world, book, first):
        with Load(world, self.seed, RATE, pushers=3, askers=1, book=book, first=first) as load:
            self.load = load
            try:
                yield load
            finally:
                self.drained()
                load.stop_asking()
                self.take_wrong()
                self.answers += load.answers
                self.partial += load.partial

    def drained(self):
        if not self.load.drain(60):
            for push in list(self.load.book.open)[:3]:
                self.find(f"a push is not acked in 60 s: {push.refused[-3:]}")

    # ---- a life: one server, restored, adopted, a cluster ----

    def life(self, until):
        """A life after one in which something was found begins as a cluster."""
        book, found = Book(), len(self.findings)
        with contextlib.ExitStack() as stack:
            world = self.world = worlds.World(s3=False, digest_s=10, backup_s=4)
            stack.callback(self.ended, world, book, found)
            stack.callback(world.close)
            try:
                if not CASE and not found:
                    power_cases.one_server(self, Alone(world), book)
                    world.begin_etcd()
                    power_cases.adopted(self, Alone(world))
                else:
                    world.begin_etcd()
                power_cases.cluster(self, book, min(until, time.monotonic() + LIFE_S), CASE)
            except Exception:
                self.find(traceback.format_exc())

    def ended(self, world, book, before):
        self.pushes += book.pushes
        self.acks += book.acks
        self.lacking |= book.lacking
        self.altered |= book.altered
        self.cuts += world.cuts
        if len(self.findings) > before or KEEP:
            print(f"logs: {world.keep()}", flush=True)
        else:
            world.remove()

    def summary(self):
        print(f"seed: {self.seed}")
        print(f"cases: {sum(self.counts.values())}: "
              + ", ".join(f"{n} {k}" for k, n in sorted(self.counts.items())))
        print(f"faults: {self.cuts} power cuts of single disks")
        print(f"pushes: {self.pushes}, acked {self.acks}; answers: {self.answers}, partial {self.partial}; "
              f"databases looked through: {self.looked}, "
              f"empty after a cut: {self.empty}")
        print(f"lost: {len(self.lost)}, doubled or wrong: {len(self.altered)}, silently missing at some time: "
              f"{len(self.lacking)}, findings: {len(self.findings)}")
        for text in self.findings[:60]:
            print("FAIL " + text[:2000])
        failed = int(bool(self.findings))
        print(f"{1 - failed} passed, {failed} failed")
        return failed


def test():
    print(f"SEED={SEED} POWER_SECONDS={SECONDS}, {RATE:.0f} pushes a second", flush=True)
    power = Power(SEED)
    until = time.monotonic() + SECONDS
    while True:
        power.life(until)
        if time.monotonic() > until - 30:
            return power.summary()


def main():
    if "OLD_BIN" not in os.environ and not wire.why_not():
        os.environ["OLD_BIN"] = str(upgrade.build(upgrade.OLD) or "")
    wire.apart(os.path.abspath(__file__))
    why = disks.why_not()
    if why:
        failed = int(disks.broken(why) and os.environ.get("CI") == "true")
        print(f"SKIPPED: power.py: {why}\n0 passed, {failed} failed, 1 skipped")
        return failed
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(1))
    return test()


if __name__ == "__main__":
    sys.exit(main())
