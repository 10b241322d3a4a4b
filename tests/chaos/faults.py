"""What goes wrong, by seed: each fault is a generator that does harm, yields how long it lasts, and
undoes it. Faults overlap; each claims what it touches, so that two do not do the same.

`Truth` knows at every moment whether writes had to be possible: whether enough ingesters that live
see each other, etcd and a distributor that clients see. What it cannot tell counts as impossible, so
that whatever is reported is a finding.
"""
import contextlib
import itertools
import os
import shutil
import time

from world import ETCDS, HOSTS, VOLUME_MIB, ZONES


class Truth:
    def __init__(self, world):
        self.world = world
        self.slow = set()       # pairs of hosts whose line is too bad to promise anything
        self.moments = []       # (time, could be written, what was wrong then)
        self.moving = False     # members of shards change
        self.fine_since = self.etcd_since = None
        self.carried = False    # etcd went while all was well, and all ingesters are there yet

    def open(self, a, b):
        return self.world.wire.open(a, b) and (a, b) not in self.slow and (b, a) not in self.slow

    def together(self, hosts, want):
        """Are so many of them on speaking terms, each with each?"""
        return any(all(self.open(a, b) for a, b in itertools.combinations(group, 2))
                   for group in itertools.combinations(hosts, want))

    def etcd_members(self):
        """The members that surely answer, whichever of them leads. Where not all live members see each
        other, this is certain only of those that see all the others."""
        live = [h for h in ETCDS if self.world.servers[h].alive()]
        sees = {h: [o for o in live if o != h and self.open(h, o)] for h in live}
        joined = [h for h in live if sees[h]]
        return [h for h in joined if len(sees[h]) == len(joined) - 1]

    def can_write(self, now):
        servers = self.world.servers
        members = [s.host for s in self.world.ingesters if not s.gone]
        live = [h for h in members if servers[h].alive()]
        fine = len(live) == len(members) and self.together(members, len(members))
        self.fine_since = (self.fine_since or now) if fine else None
        etcds = self.etcd_members()
        etcd = any(self.open(h, m) for h in live for m in etcds)
        if not etcd and self.etcd_since:
            # Without etcd no node takes over, so all must have been well for 15 s before.
            self.carried = fine and now - max(self.fine_since, self.etcd_since) > 15
        self.carried = self.carried and fine and not etcd
        self.etcd_since = (self.etcd_since or now) if etcd else None
        for d in self.world.distributors:
            if not d.alive() or not self.open(d.host, "client"):
                continue
            reach = [h for h in live if self.open(h, d.host)]
            if self.carried and len(reach) == len(members):
                return True
            if any(self.open(d.host, m) for m in etcds):
                reach = [h for h in reach if any(self.open(h, m) for m in etcds)]
                if self.together(reach, len(members) - (not self.moving)):
                    return True
        return False

    def note(self, active):
        """After every change."""
        now = time.monotonic()
        self.moments.append((now, self.can_write(now), ", ".join(active) or "nothing"))

    def longest(self, began, ended):
        """(seconds, what was wrong meanwhile): the longest time in there without a break in which
        writes had to be possible."""
        best, causes, run, seen = 0.0, "", 0.0, []
        times = [m[0] for m in self.moments[1:]] + [ended]
        for (at, could, what), until in zip(self.moments, times):
            here = min(until, ended) - max(at, began)
            if here <= 0:
                continue
            if not could:
                run, seen = 0.0, []
                continue
            run += here
            if not seen or seen[-1] != what:
                seen.append(what)
            if run > best:
                best, causes = run, " > ".join(seen)
        return best, causes

    def impossible_s(self):
        times = [m[0] for m in self.moments[1:]] + [time.monotonic()]
        return sum(until - m[0] for m, until in zip(self.moments, times) if not m[1])


# ---- the faults: fault(world, rng, truth) -> (name, claims, generator) ---------------------------

def kill(world, rng, truth, hosts=None):
    host = rng.choice(hosts or world.settled())
    server = world.servers[host]

    def run():
        server.kill()
        yield rng.uniform(0, 20)
        server.start()
        yield 3

    return f"kill -9 {host}", {host}, run()


def end(world, rng, truth):
    host = rng.choice([h for h in world.servers if h != "s3"])
    server = world.servers[host]

    def run():
        server.terminate()
        for _ in range(60):
            if server.child.poll() is not None:
                break
            yield 0.5
        server.kill()
        server.start()
        yield 3

    return f"restart {host}", {host}, run()


def freeze(world, rng, truth):
    host = rng.choice(world.settled())
    server = world.servers[host]

    def run():
        server.pause()
        yield rng.uniform(0.5, 20)
        server.go_on()
        yield 2

    return f"SIGSTOP {host}", {host}, run()


def without(hosts, others):
    return [h for h in hosts if h not in others]


def cut(world, rng, truth):
    """Partitions of every shape between zones."""
    zones = list(ZONES)
    rng.shuffle(zones)
    one, two, three = (world.in_zone(z) for z in zones)
    everybody = list(world.wire.names)
    shape, both, pairs = rng.choice([
        (f"zone {zones[0]} | everything", True, [(one, [h for h in everybody if h not in one])]),
        (f"zone {zones[0]} | zones {zones[1]}, {zones[2]}", True, [(one, two + three)]),
        (f"zone {zones[0]} | zone {zones[1]}", True, [(one, two)]),
        (f"zone {zones[0]} -> zones {zones[1]}, {zones[2]}", False, [(one, two + three)]),
        (f"zones {zones[1]}, {zones[2]} -> zone {zones[0]}", False, [(two + three, one)]),
        (f"zone {zones[0]} -> zone {zones[1]}", False, [(one, two)]),
        (f"zone {zones[0]} | etcd", True, [(without(one, ETCDS), ETCDS)]),
        (f"zone {zones[0]} -> etcd", False, [(without(one, ETCDS), ETCDS)]),
        (f"etcd -> zone {zones[0]}", False, [(ETCDS, without(one, ETCDS))]),
        (f"zone {zones[0]} | clients", True, [(one, ["client"])]),
        ("zones a | b | c", True, [(one, two), (two, three), (one, three)]),
        ("etcd | everything", True, [(ETCDS, without(everybody, ETCDS))]),
        ("etcd | etcd | etcd", True, list(itertools.combinations([[h] for h in ETCDS], 2))),
        ("S3 | everything", True, [(["s3"], without(everybody, ["s3"]))]),
    ])

    def each(act):
        for a, b in pairs:
            act(a, b)
            if both:
                act(b, a)

    def run():
        each(world.wire.cut)
        yield rng.choice((rng.uniform(1, 25), 50))
        each(world.wire.heal)
        yield 2

    return f"cut {shape}", {"cut"}, run()


def cut_one(world, rng, truth):
    """One process from some others; one way or both."""
    host = rng.choice([h for h in world.servers if h != "s3"])
    others = [h for h in world.wire.names if h != host]
    others = rng.sample(others, rng.randrange(1, len(others)))
    ways = rng.choice(("both", "out", "in"))

    def run():
        if ways != "in":
            world.wire.cut([host], others)
        if ways != "out":
            world.wire.cut(others, [host])
        yield rng.uniform(1, 20)
        if ways != "in":
            world.wire.heal([host], others)
        if ways != "out":
            world.wire.heal(others, [host])
        yield 2

    return f"cut {host} from {len(others)} hosts ({ways})", {"cut " + host}, run()


def bad_line(world, rng, truth):
    """Loss, delay, resets, and lines that dribble; between two zones, or everywhere."""
    a, b = rng.sample(ZONES, 2)
    here, there = world.in_zone(a), world.in_zone(b)
    where = f"{a}-{b}"
    if rng.random() < 0.3:
        here = there = list(world.wire.names)
        where = "everywhere"
    what, keys = rng.choice([
        ("loses 2 %", {"loss": 20000}), ("loses 10 %", {"loss": 100000}),
        ("is 20 to 60 ms long", {"delay": 20000, "jitter": 40000}),
        ("is 150 ms long", {"delay": 150000}),
        ("loses 3 %, 5 to 30 ms", {"loss": 30000, "delay": 5000, "jitter": 25000}),
        ("resets", {"reset": 3000}),
        ("dribbles", {"rate": 20000}),
    ])
    pairs = [(x, y) for x in here for y in there if x < y or here is not there and x != y]
    slow = {p for p in pairs if "dribbles" in what or "10 %" in what or "resets" in what}

    def run():
        for x, y in pairs:
            world.wire.set(x, y, **keys)
        truth.slow |= slow
        yield rng.uniform(3, 25)
        for x, y in pairs:
            world.wire.set(x, y, **{k: 0 for k in keys})
        truth.slow -= slow
        yield 1

    return f"line {where} {what}", {"line"}, run()


def quorum_gone(world, rng, truth):
    victims = rng.sample([s.host for s in world.ingesters if not s.gone], 2)

    def run():
        for h in victims:
            world.servers[h].kill()
        yield rng.uniform(1, 15)
        for h in victims:
            world.servers[h].start()
        yield 3

    return f"kill -9 {' '.join(sorted(victims))}", set(victims), run()


def all_killed(world, rng, truth):
    victims = [h for h in world.servers if h != "s3" or rng.random() < 0.5]

    def run():
        for h in victims:
            world.servers[h].kill()
        yield rng.uniform(0, 3)
        rng.shuffle(victims)
        for h in victims:
            world.servers[h].start()
        yield 10

    return "kill -9 of everything", {*victims, "s3"}, run()


def power_of(world, rng, hosts, name, away_s):
    """A power cut of some hosts; half of them within seconds of a restart, when files of the life before may still be
    in memory only."""
    if world.no_power:
        return None
    again = rng.random() < 0.5
    away = rng.uniform(0, away_s)

    def run():
        if again:
            for h in hosts:
                world.servers[h].kill()
            for h in hosts:
                world.servers[h].start()
            yield rng.uniform(0.1, 9)
        world.cut_power(hosts)
        yield away
        world.power_on(hosts)
        yield 3

    return f"power cut of {name}" + ", just restarted" * again, set(hosts), run()


def power(world, rng, truth):
    host = rng.choice([h for h in world.settled() if world.servers[h].disk] or [None])
    return power_of(world, rng, world.machine(host), host, 15) if host else None


def power_zone(world, rng, truth):
    zone = rng.choice(ZONES)
    return power_of(world, rng, world.in_zone(zone), f"zone {zone}", 40)


def power_all(world, rng, truth):
    return power_of(world, rng, [h for h in world.servers if h != "s3"], "everything", 3)


def etcd_gone(world, rng, truth):
    """Two members, so there is no majority: everything continues with the last map."""
    victims = rng.sample(ETCDS, 2)

    def run():
        for h in victims:
            world.servers[h].kill()
        yield rng.uniform(5, 45)
        for h in victims:
            world.servers[h].start()
        yield 3

    return f"kill -9 {' '.join(sorted(victims))}", set(victims), run()


def zone_lost(world, rng, truth):
    """All that is in a zone ends, and stays away for minutes."""
    zone = rng.choice(ZONES)
    victims = world.in_zone(zone)

    def run():
        for h in victims:
            world.servers[h].kill()
        yield rng.uniform(30, 150)
        for h in victims:
            world.servers[h].start()
        yield 5

    return f"zone {zone} is lost", set(victims), run()


def s3_errors(world, rng, truth):
    status = rng.choice((503, 500, 0))

    def run():
        try:
            world.fail_s3(10**6, status)
        except OSError:
            return
        yield rng.uniform(3, 25)
        while True:
            try:
                world.fail_s3(0)
                return
            except OSError:
                yield 0.5

    return f"S3 fails with {status}", {"s3"}, run()


def s3_killed(world, rng, truth):
    return kill(world, rng, truth, ["s3"])


def full_disk(world, rng, truth):
    small = world.small
    if small is None or small is not world.servers.get("ingester-c"):
        return None
    ballast = small.folder / "ballast"

    def run():
        small.full = True
        leave, until = rng.choice((0, 1, 40)) * 2**20, time.monotonic() + rng.uniform(3, 20)
        while time.monotonic() < until:  # what it frees meanwhile is taken, too
            left = os.statvfs(small.folder)
            with contextlib.suppress(OSError), open(ballast, "ab") as f:
                n = left.f_bavail * left.f_frsize - leave
                if n > 0:
                    os.posix_fallocate(f.fileno(), f.tell(), n)
            yield 0.5
        ballast.unlink()
        small.full = False
        yield 5

    return f"full disk of ingester-c ({VOLUME_MIB} MiB)", {"ingester-c"}, run()


def read_only_disk(world, rng, truth):
    """The kernel found an error in an ingester's file system and writes nothing any more; later it is repaired."""
    host = rng.choice([s.host for s in world.ingesters])
    server = world.servers[host]
    if not server.disk or host in world.moving:
        return None

    def run():
        server.full = True  # no member to count on
        server.disk.make_read_only()
        yield rng.uniform(5, 30)
        server.kill()
        server.disk.repair()
        server.full = False
        server.start()
        yield 3

    return f"read-only disk of {host}", {host}, run()


def clock(world, rng, truth):
    """Comes back with another clock, and later with the right one."""
    host = rng.choice([s.host for s in world.ingesters])
    server, by = world.servers[host], rng.choice((-3600, -90, -20, 20, 90, 3600))

    def run():
        server.kill()
        server.clock = f"{by:+d}"
        server.start()
        yield rng.uniform(5, 30)
        server.kill()
        server.clock = ""
        server.start()
        yield 3

    return f"clock of {host} {by:+d} s", {host}, run()


def rotate_key(world, rng, truth):
    def run():
        world.rotate()
        yield 15  # files are looked at every few seconds; twice in between would lose a key

    return "another cluster key", {"key"}, run()


KINDS = [(7, kill), (2, end), (6, freeze), (7, cut), (4, cut_one), (5, bad_line), (1, quorum_gone),
         (0.5, all_killed), (1, etcd_gone), (1, zone_lost), (2, s3_errors), (1, s3_killed), (1, full_disk),
         (4, power), (1.5, power_zone), (1.5, power_all), (1, read_only_disk), (1, clock), (0.5, rotate_key)]


# While nodes come and go, one at a time.
WHILE_MOVING = [(4, kill), (2, power), (3, freeze), (2, s3_errors), (1, s3_killed), (0.5, rotate_key)]


# ---- nodes that join and leave -------------------------------------------------------------------

def drained(world, host, limit_s=150):
    """By embertreectl, then stopped in order. Text if it failed."""
    name = world.ingester_names[host]
    code, text = 1, ""
    world.moving.add(host)
    until = time.monotonic() + limit_s
    while code and time.monotonic() < until:
        code, text = world.ctl("drain", name, "--wait", limit_s=limit_s + 30)
        time.sleep(0.5)
    if code:
        return f"drain of {name}: {text}"
    server = world.servers[host]
    server.gone = True
    server.terminate()
    for _ in range(400):
        if server.child.poll() is not None:
            world.moving.discard(host)
            return "" if server.child.returncode == 0 else f"{name} ended with {server.child.returncode}"
        time.sleep(0.1)
    server.kill()
    return f"{name} does not end"


def join_and_leave(world, rng, number):
    """A fourth ingester comes, and one of the three goes: it is drained. Then it comes back empty,
    under another name, and the fourth goes."""
    fourth = join(world, world.free(rng.choice(ZONES)), number)
    leaver = rng.choice([h for h in movable(world) if h != fourth])
    wrong = drained(world, leaver)
    if wrong:
        return wrong
    world.wait_whole(120)
    join(world, leaver, number)
    wrong = drained(world, fourth)
    world.remove_host(fourth)
    return wrong


def grow_and_shrink(world, rng, number):
    """From 3 ingesters to 6, two in each zone, and back to 3: of each zone one or the other goes."""
    fresh = [world.free(z) for z in ZONES]
    for host in fresh:
        world.moving.add(host)
        world.add_ingester(host, f"{host}-{number}").start()
    for host in fresh:
        world.servers[host].wait_ready(60)
    for host in fresh:
        wait_member(world, host)
    world.moving.clear()
    keep = {world.small.host} if world.small else set()
    leavers = [rng.choice([h for h in world.ingesters_of(z) if h not in keep]) for z in ZONES]
    rng.shuffle(leavers)
    for host in leavers:
        wrong = drained(world, host)
        if wrong:
            return wrong
        world.remove_host(host)
    return ""


def movable(world):
    """Ingesters whose folder is no volume of its own."""
    return [s.host for s in world.ingesters if s is not world.small]


def join(world, host, number):
    world.moving.add(host)
    world.add_ingester(host, f"{host}-{number}").start()
    world.servers[host].wait_ready(60)
    wait_member(world, host)
    world.moving.discard(host)
    return host


def disk_lost(world, rng, number):
    """An ingester's disk is gone: it comes back empty under its name, or another one with its address
    takes its place."""
    host = rng.choice(movable(world))
    server, name = world.servers[host], world.ingester_names[host]
    world.moving.add(host)
    server.kill()
    if rng.random() < 0.5:
        shutil.rmtree(server.folder / "data")
        server.start()
    else:
        name = f"{host}-{number}"
        server = world.add_ingester(host, name).start()
    server.wait_ready(120)
    wait_member(world, host)
    world.moving.discard(host)
    return ""


def wait_member(world, host, limit_s=150):
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if world.rings().get(host, {}).get("replicas"):
            world.wait_whole(limit_s)
            return
        time.sleep(0.3)
    raise AssertionError(f"{host} ({world.ingester_names[host]}) was given nothing in {limit_s} s: "
                         f"{HOSTS[host]}")
