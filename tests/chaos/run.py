"""`make cluster`: chaos over real processes in network namespaces, under load; what was acked is there
once, whatever happened meanwhile. README.md says what is done and how to read what it prints.

CHAOS_SECONDS=1800   SEED=n   RATE=pushes a second   KINDS=kill,cut: only these faults   KEEP=1: keeps logs
"""
import concurrent.futures
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
import faults
import s3_server
import wire
import world as worlds
from load import Load

SECONDS = int(os.environ.get("CHAOS_SECONDS", "1800"))
SEED = int(os.environ.get("SEED") or time.time_ns() % 10**9)
RATE = float(os.environ.get("RATE", "30"))
KEEP = bool(os.environ.get("KEEP"))
ONLY = os.environ.get("KINDS", "")
BOUND_S = 30.0      # writes are possible again so long after whatever happened
CALM_EVERY_S = 150  # then all is healed once, and nodes come or go
TOGETHER = 3        # faults at once
WHOLE_S = 120


class Chaos:
    def __init__(self, world, load, rng):
        self.world, self.load, self.rng = world, load, rng
        self.truth = faults.Truth(world)
        self.active = []  # [due, name, claims, generator]
        self.counts, self.deaths, self.findings = {}, [], []
        self.began, self.moves, self.slowest_whole = time.monotonic(), 0, 0.0
        self.doing, self.moving = "nothing", []
        self.stop = threading.Event()

    def say(self, text):
        print(f"[{time.monotonic() - self.began:7.1f}] {text}", flush=True)

    def find(self, text):
        self.findings.append(text)
        self.say("FOUND " + text)

    # ---- faults ----

    def begin_one(self, some=faults.KINDS):
        weights, kinds = zip(*[k for k in some if not ONLY or k[1].__name__ in ONLY.split(",")])
        kind = self.rng.choices(kinds, weights)[0]
        made = kind(self.world, self.rng, self.truth)
        claimed = set().union(*[a[2] for a in self.active])
        if made is None or made[1] & claimed:
            return
        name, claims, steps = made
        self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
        self.active.append([0.0, name, claims, steps])
        self.say("+ " + name)

    def step(self, at_once=False):
        now, changed = time.monotonic(), False
        for fault in list(self.active):
            if now < fault[0] and not at_once:
                continue
            changed = True
            try:
                fault[0] = now + next(fault[3])
            except StopIteration:
                self.active.remove(fault)
        for server in list(self.world.servers.values()):
            code = server.watch()
            if code is not None:
                changed = True
                self.deaths.append(f"{server.host} ended with {code}")
                self.say(self.deaths[-1] + "\n" + server.died[-1][1])
                if code < 0:
                    self.find(f"{server.host} crashed with {code}:\n{server.died[-1][1]}")
        if changed:
            now = [*self.moving, *(f[1] for f in self.active)]
            self.doing = ", ".join(now) or "nothing"
            self.truth.note(now)

    def heal(self):
        while self.active:
            self.step(at_once=True)
            time.sleep(0.05)
        self.truth.note([])

    def calm(self):
        """Everything is healed, and the cluster is whole again; then a node comes, or goes."""
        self.heal()
        took = self.world.wait_whole(WHOLE_S)
        self.slowest_whole = max(self.slowest_whole, took)
        self.say(f"whole {took:.1f} s after everything was healed")

    def move(self):
        self.moves += 1
        moves = (faults.join_and_leave, faults.disk_lost, faults.grow_and_shrink)
        what = moves[self.moves % 3] if self.moves <= 3 else self.rng.choice(moves)
        self.say("+ " + what.__name__)
        self.truth.moving, self.doing, self.moving = True, what.__name__, [what.__name__]
        self.truth.note(self.moving)
        began = next_at = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1) as aside:
            move = aside.submit(what, self.world, random.Random(self.rng.random()), self.moves)
            while not move.done():
                self.step()
                if time.monotonic() >= next_at and not self.active:
                    self.begin_one(faults.WHILE_MOVING)
                    next_at = time.monotonic() + self.rng.expovariate(1 / 7.0)
                time.sleep(0.05)
        self.heal()
        if move.result():
            self.find(f"{what.__name__}: {move.result()}")
        self.world.wait_whole(WHOLE_S)
        self.truth.moving, self.moving = False, []
        self.truth.note([])
        self.counts[what.__name__] = self.counts.get(what.__name__, 0) + 1
        self.say(f"- {what.__name__} after {time.monotonic() - began:.1f} s")

    def run(self):
        until = self.began + SECONDS
        calm_at = self.began + CALM_EVERY_S
        next_at = self.began + 3
        self.truth.note([])
        while time.monotonic() < until:
            self.step()
            now = time.monotonic()
            if now >= calm_at:
                self.calm()
                if not ONLY:
                    self.move()
                calm_at = time.monotonic() + CALM_EVERY_S
            elif now >= next_at and len(self.active) < TOGETHER:
                self.begin_one()
                next_at = now + self.rng.expovariate(1 / 7.0)
            time.sleep(0.05)
        self.calm()

    # ---- telling ----

    def progress(self):
        while not self.stop.wait(30):
            b, load = self.load.book, self.load
            self.say(f"{b.pushes} pushes, {b.acks} acked, {len(b.open)} under way, "
                     f"{sum(b.refusals.values())} refusals; {load.answers} answers; now: {self.doing}")
            for text in load.wrong[:5]:
                self.say("WRONG " + text)

    def unavailability(self):
        """Longest waits while writes had to be possible, by cause; those over the bound are findings."""
        rows = {}
        for push in list(self.load.book.slow):
            seconds, causes = self.truth.longest(push.began, push.done)
            if seconds > rows.get(causes, (0,))[0]:
                rows[causes] = (seconds, push)
        print("longest waits while a quorum was there, and what was wrong meanwhile:")
        for causes, (seconds, push) in sorted(rows.items(), key=lambda r: -r[1][0])[:12]:
            print(f"  {seconds:5.1f} s  {causes}")
            if seconds > BOUND_S:
                shard = ", ".join(f"{s[0]} of {push.tenant}" for s in push.series)
                at = push.began - self.began
                self.find(f"a push ({shard}) waited {seconds:.1f} s from {at:.1f} on although a "
                          f"quorum was there: {causes}; it heard: "
                          + " ".join(f"{t - push.began:.1f}:{w}" for t, w in push.refused[:20]))


def settle(chaos, load, world):
    """After the last fault: everything acked, sealed, the same everywhere."""
    if not load.drain(90):
        for push in list(load.book.open)[:5]:
            chaos.find(f"a push is not acked 90 s after everything was healed: {push.refused[-3:]}")
    never = [p for p in load.book.slow if p.state == "never acked"]
    if never:
        chaos.find(f"{len(never)} pushes were never acked: {never[0].refused[-3:]}")
    chaos.doing = "asking for everything"
    load.stop_asking()
    until = time.monotonic() + 120
    while world.metric(world.ingesters, "embertree_ingester_raw_rows"):
        if time.monotonic() > until:
            chaos.find("raw rows are not sealed after 120 s")
            break
        time.sleep(0.5)
    chaos.findings += load.check_all(world.queriers)
    differ = world.metric(world.ingesters, "embertree_repl_differences_total")
    if differ:
        chaos.find(f"replicas differed {differ:.0f} times")
    for name, servers in (("acks_lost_total", world.all("distributor")),
                          ("acks_doubled_total", world.all("distributor")),
                          ("difference", world.ingesters)):
        wrong = world.metric(servers, "embertree_ledger_" + name)
        if wrong:
            chaos.find(f"embertree_ledger_{name} is {wrong:.0f}")
    code, text = world.ctl("status")
    if code:
        chaos.find(f"cluster status: {text}")
    return {
        "digests": world.metric(world.ingesters, "embertree_repl_digests_total"),
        "nodes built by the compactor": world.metric(world.all("compactor"),
                                                     "embertree_compactor_nodes_built_total"),
        "acks audited": world.metric(world.all("distributor"),
                                     "embertree_ledger_acks_audited_total"),
        "acks not audited": world.metric(world.all("distributor"),
                                         "embertree_ledger_acks_unaudited_total"),
        "rows in the cold tier": world.metric(world.ingesters, "embertree_cold_rows_total"),
        "backups": world.metric(world.ingesters, "embertree_cold_backups_total"),
        "refused by the S3 server": world.fail_s3(0)["refused"],
    }


def wait_backups(chaos, world):
    """Two more of each shard: the last of them began after the last push."""
    name = "embertree_cold_backups_total"
    want = world.metric(world.ingesters, name) + 2 * worlds.SHARDS
    until = time.monotonic() + 120
    while world.metric(world.ingesters, name) < want:
        if time.monotonic() > until:
            chaos.find("backups are not written")
            return
        time.sleep(0.5)


def fsck(chaos, world):
    """All stop in order; then every database is looked through."""
    for role in ("distributor", "querier", "compactor", "ingester"):
        for s in world.all(role):
            s.wanted = False
            try:
                if s.stop(60) != 0:
                    chaos.find(f"{s.host} ended with {s.child.returncode}")
            except RuntimeError as e:
                chaos.find(f"{s.host}: {e}")
    looked = 0
    for s in world.ingesters:
        for folder in sorted((s.folder / "data").glob("shard-*")):
            command = [str(world.bin / "embertree"), "fsck", "--cold", *world.cold, str(folder)]
            r = subprocess.run(world.wire.inside(s.host, command), stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=300, check=False)
            looked += 1
            if r.returncode or "0 findings" not in r.stdout or "left out" in r.stdout:
                chaos.find(f"fsck of {s.host} {folder.name}: {r.returncode}: {r.stdout[-1500:]}"
                           f"{r.stderr[-500:]}")
    return looked


def restored(chaos, load, world):
    """Every disk is lost: one process gets everything back from the bucket."""
    folder = world.folder / "restored"
    options = [f"--cluster.shards={worlds.SHARDS}", *world.cold]
    command = [str(world.bin / "embertree"), "restore", f"--data.dir={folder / 'data'}", *options]
    r = subprocess.run(world.wire.inside("ingester-a", command), capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, timeout=300, check=False)
    if r.returncode:
        chaos.find(f"restore: {r.returncode}: {r.stdout[-500:]} {r.stderr[-1500:]}")
        return
    server = worlds.Server(world, "ingester-a", "embertree", "--http.insecure-open",
                           "--tenancy.multi", "--no-selfprof.enabled", "--memory.limit=512MiB",
                           *options, *world.fast, folder=folder)
    server.start(wait=True)
    chaos.findings += ["restored: " + text for text in load.check_all([server])]
    server.stop()


def test():
    rng = random.Random(SEED)
    print(f"SEED={SEED} CHAOS_SECONDS={SECONDS}, {RATE:.0f} pushes a second", flush=True)
    passed = failed = 0
    with worlds.World() as world, Load(world, SEED, RATE) as load:
        chaos = Chaos(world, load, rng)
        if disks.broken(world.no_power) and os.environ.get("CI") == "true":
            chaos.find(world.no_power)
        threading.Thread(target=chaos.progress, daemon=True).start()
        figures = {}
        try:
            chaos.run()
            chaos.say("settling")
            figures = settle(chaos, load, world)
            chaos.doing = "waiting for backups"
            wait_backups(chaos, world)
            chaos.doing = "fsck"
            figures["databases looked through"] = fsck(chaos, world)
            chaos.doing = "restoring"
            restored(chaos, load, world)
            chaos.say("done")
        except Exception:  # whatever it is, the logs are kept and the findings are printed
            chaos.find(traceback.format_exc())
        chaos.stop.set()
        b = load.book
        chaos.findings += load.wrong[:50]
        print(f"faults: {sum(chaos.counts.values())}: "
              + ", ".join(f"{n} {k}" for k, n in sorted(chaos.counts.items())))
        print(f"wire: {world.wire.stats()}")
        print(f"power cuts of single disks: {world.cuts}" if not world.no_power
              else f"SKIPPED: {world.no_power}")
        print(f"starts: " + ", ".join(f"{s.host} {s.starts}" for s in world.servers.values()))
        print(f"ended by themselves: {chaos.deaths or 'none'}")
        print(f"pushes: {b.pushes}, acked {b.acks}, abandoned {b.given_up}, "
              f"attempts refused {sum(b.refusals.values())}: {b.refusals}")
        print(f"answers: {load.answers}, partial {load.partial}, none: {load.no_answers}, "
              f"longest time without one {load.longest_silence:.1f} s, "
              f"without one of recent data {load.longest_recent:.1f} s")
        print(f"writes were impossible for {chaos.truth.impossible_s():.0f} s; whole after at most "
              f"{chaos.slowest_whole:.1f} s")
        print(", ".join(f"{k}: {v}" for k, v in figures.items()))
        chaos.unavailability()
        lost = [f for f in chaos.findings if " lost at " in f or " missing at " in f]
        doubled = [f for f in chaos.findings if " wrong value at " in f or " strange at " in f]
        print(f"lost: {len(lost)}, doubled or wrong: {len(doubled)}, findings: {len(chaos.findings)}")
        for text in chaos.findings:
            print("FAIL " + text)
        failed, passed = int(bool(chaos.findings)), int(not chaos.findings)
    if failed or KEEP:
        print(f"logs: {world.keep()}")
    else:
        world.remove()
    print(f"{passed} passed, {failed} failed")
    return failed


def main():
    try:
        s3_server.modules()  # while there is still a network
    except s3_server.Missing as e:
        print(f"SKIPPED: run.py: {e}\n0 passed, 0 failed, 1 skipped")
        return 0
    wire.apart(os.path.abspath(__file__))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(1))
    return test()


if __name__ == "__main__":
    sys.exit(main())
