"""`make test-upgrade`: from the version before to this one and back again, under load, one process after
the other, without one failed request; and one process with stored data, there and back.

OLD=commit of the version before (else the one in `previous`). It is built below build/upgrade. Clients
do what clients behind a service do: they ask servers that are ready, and go to another one only where
the connection is refused (tests/cluster/copies/test_rolling.py).
"""
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "cluster" / "copies")]
import cluster
import replicated
import test_rolling

OLD = os.environ.get("OLD") or (HERE / "previous").read_text().strip()
SECRET = "0123456789abcdef0123456789abcdef"


def build(commit):
    """The binaries of a commit; None where its history is not there."""
    probe = subprocess.run(["git", "-C", cluster.ROOT, "rev-parse", "--verify", "-q",
                            commit + "^{commit}"], capture_output=True, text=True, check=False)
    if probe.returncode:
        return None
    folder = cluster.ROOT / "build" / "upgrade" / probe.stdout.strip()
    done = folder / "built"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", cluster.ROOT, "archive", probe.stdout.strip()],
                                   stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
        assert archive.wait() == 0
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "O", "B")}
        subprocess.run(["make", "-j2", "all"], cwd=folder, check=True, env=env,
                       stdout=subprocess.DEVNULL)
        done.touch()
    return folder / "build" / "release" / "bin"


class Gated(test_rolling.Client):
    """Leaves out servers that are not ready, as a service does."""

    def __init__(self, servers, keep, number):
        super().__init__(servers, keep, number)
        self.servers = servers

    def request(self, method, path, body=None, headers=None):
        for _ in self.servers:
            if getattr(self.servers[self.turn % len(self.servers)], "gated", False):
                self.turn += 1
        return super().request(method, path, body, headers)


test_rolling.Client = Gated


class Upgraded(replicated.Cluster):
    """replicated.Cluster with two distributors, two queriers and a compactor; versions change."""

    def __init__(self, bin_of):
        super().__init__(options=["--memory.limit=256MiB"])
        secret = f"--distributor.write-id-secret={SECRET}"
        self.distributors = [self.process("distributor", secret, folder=f"distributor-{i}")
                             for i in (1, 2)]
        self.queriers = [self.process("querier", folder=f"querier-{i}") for i in (1, 2)]
        self.compactor = self.process("compactor")
        self.distributor, self.querier = self.distributors[0], self.queriers[0]
        self.names = {p: p.binary for p in self.processes()}
        for p in self.processes():
            p.binary = str(bin_of / self.names[p])

    def processes(self):
        return ([n.process for n in self.nodes.values()] + [self.compactor, *self.queriers,
                                                            *self.distributors])

    def change(self, process, bin_to, load):
        """One process to another version, as an orchestrator does it."""
        code = process.stop(40)
        assert code == 0, f"{process.folder.name} ended with {code}:\n" + process.tail()
        process.gated = True
        process.binary = str(bin_to / self.names[process])
        process.start(wait=False)
        process.wait_ready(60)
        process.gated = False
        if process.folder.name.startswith("node"):
            self.wait_whole(60)
        load.more(15)


def exact(server, seen):
    """Answers of the one process: what was pushed, to the sample."""
    for service, stacks in seen.items():
        r = server.render(cluster.CPU_TYPE + '{service_name="%s"}' % service,
                          **{"from": "now-5d", "until": "now"})
        assert r.status == 200, r
        got = {s[-1]: v // test_rolling.TICK for s, v in
               cluster.leaves(r.json()["flamebearer"]).items()}
        assert got == stacks, (service, len(got), len(stacks),
                               sorted(set(got.items()) ^ set(stacks.items()))[:6])


def fill(server, seen, rng, n):
    for _ in range(n):
        service, stack = f"old-{rng.randrange(3)}", f"f{rng.randrange(60)}"
        value, back = rng.randrange(1, 100), rng.choice((10, 700, 5000, 90000, 300000))
        at = int(time.time()) - back
        r = server.ingest(f"main;{stack} {value}\n", f"{service}.cpu{{pod=p{value % 4}}}",
                          from_=at, until=at + 10)
        assert r.status == 200, r
        stacks = seen.setdefault(service, {})
        stacks[stack] = stacks.get(stack, 0) + value


def main():
    old = build(OLD)
    if old is None:
        print(f"SKIPPED: upgrade.py: commit {OLD} is not in this repository's history")
        print("0 passed, 0 failed, 1 skipped")
        return
    new = cluster.BIN

    def test_one_process():
        rng = random.Random(11)
        folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        seen = {}
        try:
            for name, binaries in (("old", old), ("new", new), ("old", old), ("new", new)):
                server = cluster.AllInOne("--ingester.seal-delay=0ms", "--ingester.build-delay=0ms",
                                          "--ingester.build-pace=100ms", "--no-selfprof.enabled",
                                          folder=folder)
                server.process.binary = str(binaries / "embertree")
                with server:
                    exact(server, seen)
                    fill(server, seen, rng, 150)
                    exact(server, seen)
                    # Old rows are due at once; those of the running minute stay raw until it ends.
                    until = time.monotonic() + 90
                    while not server.process.metric("embertree_ingester_sealed_rows_total"):
                        assert time.monotonic() < until, "nothing is sealed"
                        time.sleep(0.1)
                    exact(server, seen)
                    assert server.process.stop(40) == 0
                fsck = subprocess.run([str(binaries / "embertreectl"), "fsck",
                                       str(folder / "data")], stdin=subprocess.DEVNULL,
                                      capture_output=True, text=True, check=False)
                assert fsck.returncode == 0, (name, fsck)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def test_cluster():
        with Upgraded(old) as c, test_rolling.Load(c, pushers=6, askers=3) as load:
            c.wait_whole()
            load.more(50)
            for name, binaries, order in (("new", new, c.processes()),
                                          ("old", old, c.processes()[::-1])):
                for process in order:
                    c.change(process, binaries, load)
                print(f"     all are {name}: {load.pushes()} pushes, {load.asked} answers, "
                      f"{len(load.wrong)} failed", flush=True)
                assert not load.wrong, f"{len(load.wrong)} failed: {load.wrong[:5]}"
            load.__exit__()
            assert not load.wrong, f"{len(load.wrong)} failed: {load.wrong[:5]}"
            test_rolling.check_stored(c, load)
            again = sum(k.again for k in load.clients)
            print(f"     {load.pushes()} pushes, {load.asked} answers, {again} sent again on kept "
                  "connections", flush=True)

    tests = [test_one_process]
    if replicated.available():
        tests.append(test_cluster)
    else:
        print("SKIPPED: test_cluster: there is no etcd (package etcd-server)")
    cluster.main(tests)


if __name__ == "__main__":
    main()
