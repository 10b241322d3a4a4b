"""The cases of power.py. A case restarts something, pushes for a few seconds more, cuts the power, starts again and
asks for everything: each answer is exact, or an error, or marked as partial. Behind a cut `embertree fsck` looks through
every database before anything runs on it.
"""
import contextlib
import os
import shutil
import signal
import subprocess
import time
import urllib.parse

import cluster as lib
import world as worlds
from load import Client, Push

OLD_BIN = os.environ.get("OLD_BIN", "")  # of the version before; "": its history is not here
READY_S, WHOLE_S = 90, 120
BOUND_S = 30       # so long after a disk failed writes succeed, and leads are handed over
BACKUPS_S = 180
PATIENCE_S = 60


def wait(what, fine, limit_s):
    until = time.monotonic() + limit_s
    while not fine():
        if time.monotonic() > until:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.2)


def ended(power, server, told=False):
    """Stopped in order; `told`: it has its SIGTERM already."""
    if not told:
        server.terminate()
    try:
        server.child.wait(60)
    except subprocess.TimeoutExpired:
        power.find(f"{server.host} does not end in 60 s after SIGTERM")
        server.kill()
        return
    if server.child.returncode:
        power.find(f"{server.host} ended with {server.child.returncode}: {server.tail(10)}")


def some_pushes(power):
    """Waits while pushes run; one time of four so short that the started process still opens databases."""
    rng = power.rng
    time.sleep(rng.uniform(0, 3) if rng.random() < 0.25 else rng.uniform(3, 9))


# ---- purges --------------------------------------------------------------------------------------

class Purge:
    """A service of its own is pushed and deleted; it must not come back."""

    def __init__(self, power):
        self.power, load = power, power.load
        self.name, self.tenant = f"gone-{power.counts[power.doing]}-{power.rng.randrange(10**6)}", "red"
        rng, now = power.rng, int(time.time()) // 10 * 10
        writer = Client(load.world, load.world.distributors, 0)
        pushes = [Push(f"{self.name}-{i}", self.tenant, [(self.name, f"{self.name}-{i}", 7 + i, now - 700 * i)])
                  for i in range(6)]
        self.sure = all([load.send(writer, rng, p) == "acked" for p in pushes])
        self.selector = '{service_name="%s"}' % self.name
        query = urllib.parse.urlencode({"query": self.selector, "confirm": self.selector, "id": self.name})
        self.ask("POST", "/api/v1/delete?" + query)

    def ask(self, method, path):
        """Until it is answered."""
        world = self.power.load.world
        client, until = Client(world, world.queriers, 0), time.monotonic() + PATIENCE_S
        while True:
            host, r = client.request(method, path, b"" if method == "POST" else None, {"X-Scope-OrgID": self.tenant})
            if getattr(r, "status", None) == 200:
                return r
            assert time.monotonic() < until, f"{method} {path} at {host}: {r}"
            client.other()
            time.sleep(0.3)

    def check(self):
        r = self.ask("GET", "/pyroscope/render?" + urllib.parse.urlencode({
            "query": lib.CPU_TYPE + self.selector, "from": "now-6h", "until": "now", "format": "json"}))
        found = lib.leaves(r.json()["flamebearer"])
        if found and self.sure:
            self.power.find(f"{self.name} was deleted, and is there again: {list(found.items())[:3]}")


# ---- one server without copies -------------------------------------------------------------------

def cut_alone(power, alone):
    server = alone.server
    worlds.cut_power([server])
    server.power_on()
    power.fsck(server, alone.world.cold)
    server.start()
    server.wait_ready(READY_S)


def one_server(power, alone, book):
    """Upgraded, killed, stopped, purged: and the power goes each time."""
    server = alone.server
    if OLD_BIN:
        server.bin = OLD_BIN
    else:
        print("SKIPPED: power.py: an upgrade: the version before is not in this repository's history", flush=True)
    server.start()
    server.wait_ready(READY_S)
    with power.loaded(alone, book, 0):
        some_pushes(power)
        if OLD_BIN:
            with power.case("one server: upgrade, then cut"):
                ended(power, server)
                server.bin = None
                server.start()
                server.wait_ready(READY_S)
                some_pushes(power)
                cut_alone(power, alone)
                power.exact([server])
        for kind in ("kill -9", "SIGTERM"):
            with power.case(f"one server: {kind}, then cut"):
                server.kill() if kind == "kill -9" else ended(power, server)
                server.start()
                server.wait_ready(READY_S)
                some_pushes(power)
                cut_alone(power, alone)
                power.exact([server])
        with power.case("one server: purge, then cut"):
            purge = Purge(power)
            time.sleep(power.rng.uniform(0, 3))
            cut_alone(power, alone)
            purge.check()
            power.exact([server])
        power.drained()
        with power.case("one server: restore, then cut"):
            restore(power, alone)
            power.exact([server])


def restore(power, alone):
    """Its data are gone. The power fails in the middle of the restore, and again as soon as it is done."""
    server, cold = alone.server, alone.world.cold
    want = server.metric("embertree_cold_backups_total") + 2 * worlds.SHARDS
    wait("backups", lambda: server.metric("embertree_cold_backups_total") >= want, BACKUPS_S)
    ended(power, server)
    shutil.rmtree(server.folder / "data")

    def cut_midway(child):
        time.sleep(power.rng.uniform(0.02, 0.5))
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGSTOP)
        server.disk.shut_down()
        child.kill()

    args = ["restore", f"--data.dir={server.folder / 'data'}", *alone.options]
    code, _ = alone.tool(*args, started=cut_midway)
    midway = code != 0
    server.disk.umount()
    server.disk.mount()
    code, said = alone.tool(*args)
    if code:
        power.find(f"restore, after the power failed {'in the middle of' if midway else 'behind'} one: {code}: {said[-800:]}")
        shutil.rmtree(server.folder / "data")
        code, said = alone.tool(*args)
        assert code == 0, f"restore into an empty folder: {code}: {said[-800:]}"
    server.options = (*server.options, "--cold.take-over")
    try:
        cut_alone(power, alone)
    except RuntimeError as e:  # it does not start on what restore said was restored
        power.find(f"a restore is not durable when it ends with 0: {str(e).splitlines()[-1]}")
        code, said = alone.tool(*args)
        assert code == 0, f"restore, once more: {code}: {said[-800:]}"
        server.start()
        server.wait_ready(READY_S)


def adopted(power, alone):
    """The one server's data become the first node's of a cluster; its power fails as soon as that is said to be done."""
    world, server = alone.world, alone.server
    node = world.servers[alone.host]
    with power.case("adopt, then cut"):
        last = power_last_server(power)
        ended(power, last)
        code, said = alone.tool("adopt", f"--data.dir={server.folder / 'data'}", *node.options)
        assert code == 0, f"adopt: {code}: {said[-1500:]}"
        etcd = world.servers["etcd-a"]
        worlds.cut_power([node, etcd])
        for s in (node, etcd):
            s.power_on()
        power.fsck(node)
        etcd.start()
        node.options = (*node.options, "--cold.take-over")


def power_last_server(power):
    """The process that one_server() left running."""
    return power.load.world.servers["ingester-a"]


# ---- a cluster -----------------------------------------------------------------------------------

def restart_none(power, world, hosts):
    pass


def restart_kill(power, world, hosts):
    for h in hosts:
        world.servers[h].kill()
    for h in hosts:
        world.servers[h].start()


def restart_kill_twice(power, world, hosts):
    restart_kill(power, world, hosts)
    some_pushes(power)
    restart_kill(power, world, hosts)


def restart_power(power, world, hosts):
    """The power comes back, and fails again soon."""
    machines = [m for h in hosts for m in world.machine(h)]
    world.cut_power(machines)
    world.power_on(machines)


def restart_term(power, world, hosts):
    servers = [world.servers[h] for h in hosts]
    for s in servers:
        s.terminate()
    for s in servers:
        ended(power, s, told=True)
        power.fsck(s)
        s.start()


def restart_copy(power, world, hosts):
    """One data folder is lost and comes again from the leaders; the others keep theirs."""
    server = world.servers[hosts[0]]
    server.kill()
    shutil.rmtree(server.folder / "data")
    server.start()


def restart_upgrade(power, world, hosts):
    """The version before for some seconds, and this one again, of every ingester."""
    servers = world.ingesters
    for binary in (OLD_BIN, None):
        for s in servers:
            ended(power, s)
            s.bin = binary
            s.start()
        for s in servers:
            s.wait_ready(READY_S)
        if binary:
            some_pushes(power)


def restart_purge(power, world, hosts):
    power.purge = Purge(power)


def who(power, world, cut):
    """The ingesters whose power is cut."""
    everyone = [s.host for s in world.ingesters]
    if cut == "all":
        return everyone
    if cut == "most":
        leads = list(world.leaders().values())
        return [max(everyone, key=leads.count)]
    return [power.rng.choice(everyone)]


def cut_round(power, world, restart, cut):
    """One case of a cluster."""
    power.purge, hosts = None, who(power, world, cut)
    restart(power, world, hosts)
    some_pushes(power)
    if cut == "all":
        machines = [h for h in world.servers]
    else:
        machines = [m for h in hosts for m in world.machine(h)]
    world.cut_power(machines)
    time.sleep(power.rng.uniform(0, 3))
    back_again(power, world, machines)


def back_again(power, world, machines):
    for h in machines:
        world.servers[h].power_on()
    for h in machines:
        if h.startswith("ingester"):
            power.fsck(world.servers[h])
    for h in machines:
        world.servers[h].start()
    whole(power, world)
    if power.purge:
        power.purge.check()


def whole(power, world):
    """All is well again: everything is asked of both queriers, and no copies ever differed."""
    for s in world.servers.values():
        if not s.host.startswith("etcd"):
            s.wait_ready(READY_S)
    world.wait_whole(WHOLE_S)
    power.exact(world.queriers)
    differ = world.metric(world.ingesters, "embertree_repl_differences_total")
    if differ:
        power.find(f"replicas differed {differ:.0f} times")


# ---- disks that fail without a power cut ---------------------------------------------------------

def storing(power, world, tell):
    """Pushes of every service are acked within the bound."""
    began, load = time.monotonic(), power.load
    before = {k: len(v) for k, v in load.book.acked.items()}
    missing = set(before)
    while missing and time.monotonic() < began + BOUND_S:
        missing = {k for k in missing if len(load.book.acked[k]) <= before[k]}
        time.sleep(0.2)
    if missing:
        power.find(f"{tell}: no push was acked in {BOUND_S} s of {sorted(missing)}")


def leads_nothing(power, world, host, tell):
    until = time.monotonic() + BOUND_S
    while host in world.leaders().values():
        if time.monotonic() > until:
            leads = [n for n, h in world.leaders().items() if h == host]
            power.find(f"{tell}: it leads shards {leads} yet, {BOUND_S} s later")
            return
        time.sleep(0.3)


def status_names(power, world, host, tell):
    """`embertreectl cluster status` says that all is not well, and names the node."""
    until, name = time.monotonic() + BOUND_S, world.ingester_names[host]
    while True:
        code, text = world.ctl("status")
        if code == 1 and any(name in line and ("ead-only" in line or "disk" in line or "failed" in line)
                             for line in text.splitlines()):
            return
        if time.monotonic() > until:
            power.find(f"{tell}: `cluster status` ends with {code} and says:\n{text}")
            return
        time.sleep(1)


def read_only(power, world):
    host = who(power, world, "most")[0]
    server, tell = world.servers[host], f"the disk of {host} is read-only"
    server.disk.make_read_only()
    leads_nothing(power, world, host, tell)
    storing(power, world, tell)
    status_names(power, world, host, tell)
    power.purge = None
    server.kill()
    server.disk.repair()
    power.fsck(server)
    server.start()
    whole(power, world)


def fill(server):
    """Nothing is left on its disk. The ballast is there after a power cut, too."""
    with open(server.folder / "ballast", "ab") as f:
        for step in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while server.disk.free() >= step:
                    n = server.disk.free() // step * step
                    os.posix_fallocate(f.fileno(), f.seek(0, os.SEEK_END), n)
        os.fsync(f.fileno())


def full(power, world):
    """Full, then cut, started while it is full, and given its room back."""
    host = who(power, world, "most")[0]
    server, tell = world.servers[host], f"the disk of {host} is full"
    fill(server)
    leads_nothing(power, world, host, tell)
    storing(power, world, tell)
    machines = world.machine(host)
    world.cut_power(machines)
    world.power_on(machines)
    some_pushes(power)
    (server.folder / "ballast").unlink()
    power.purge = None
    whole(power, world)


# ---- the order -----------------------------------------------------------------------------------

ROUNDS = [
    ("kill -9 of all, all cut", restart_kill, "all"),
    ("kill -9 of one twice, it is cut", restart_kill_twice, "most"),
    ("SIGTERM of all, all cut", restart_term, "all"),
    ("a copy is installed, it is cut", restart_copy, "one"),
    ("purge, all cut", restart_purge, "all"),
    ("upgrade of all, all cut", restart_upgrade, "all"),
    ("no restart, all cut", restart_none, "all"),
    ("power cut of all twice", restart_power, "all"),
    ("a copy is installed, all cut", restart_copy, "all"),
    ("SIGTERM of one, it is cut", restart_term, "most"),
    ("kill -9 of one, it is cut", restart_kill, "one"),
    ("power cut of one twice", restart_power, "most"),
    ("upgrade of all, the leader of most is cut", restart_upgrade, "most"),
    ("purge, the leader of most is cut", restart_purge, "most"),
]
DISKS = [("read-only disk", read_only), ("full disk", full)]


def installs(power, world):
    """The first copies of a cluster come from the node that was adopted; the power fails meanwhile."""
    for s in world.servers.values():
        if s.starts == 0 or not s.alive():
            s.start()
    time.sleep(power.rng.uniform(1, 6))
    cut = power.rng.choice((["ingester-b"], ["ingester-c"], ["ingester-a", "ingester-b", "ingester-c"]))
    machines = [m for h in cut for m in world.machine(h)]
    world.cut_power(machines)
    power.purge = None
    back_again(power, world, machines)


def cluster(power, book, until, only):
    """The first copies, each of the cases in turn, then any of them until the time is over. Where something was found
    this cluster ends: what is lost now is missing in all later answers, too."""
    world = power.world
    with power.loaded(world, book, 100):
        with power.case("a cluster: first copies, then cut"):
            installs(power, world)
        cases = [(name, lambda r=r, c=c: cut_round(power, world, r, c)) for name, r, c in ROUNDS
                 if OLD_BIN or r is not restart_upgrade]
        cases[4:4] = [(name, lambda f=f: f(power, world)) for name, f in DISKS]
        cases = [c for c in cases if any(w in c[0] for w in only.split(","))]
        before, first = len(power.findings), power.turn
        while power.turn == first or time.monotonic() < until:
            name, case = cases[power.turn] if power.turn < len(cases) else power.rng.choice(cases)
            power.turn += 1
            with power.case(name):
                case()
            if len(power.findings) > before:
                return
    with power.case("the end of a cluster"):
        last_look(power, world)


def last_look(power, world):
    """Everything is acked: exact answers, digests that agree, databases without a finding."""
    name = "embertree_repl_digests_total"
    want = world.metric(world.ingesters, name) + worlds.SHARDS
    whole(power, world)
    wait("digests", lambda: world.metric(world.ingesters, name) >= want, PATIENCE_S)
    code, text = world.ctl("status")
    if code:
        power.find(f"cluster status: {text}")
    for s in world.servers.values():
        s.wanted = False
    for role in ("distributor", "querier", "compactor", "ingester"):
        for s in world.all(role):
            ended(power, s)
    for s in world.ingesters:
        power.fsck(s, world.cold)
