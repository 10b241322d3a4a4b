"""Hosts in network namespaces, and the wire between them (tests/lib/tools/tool_wire.c).

    apart(__file__)                       this program again, in namespaces of its own
    w = Wire({"a": "zone-a", "b": "zone-b"})
    w.run("a", ["ip", "addr"])            a child in the namespace of host a
    w.cut(["a"], ["b"])                   b hears nothing of a; a still hears b
    w.set("a", "b", loss=20000)           millionths, both ways

Everything lives in a pid namespace whose first process is the test: when it ends, however it ends,
the kernel kills all of it and nothing stays behind: no namespace, no device, no mount, no process.
"""
import os
import shutil
import subprocess
import sys

import cluster

NET = "10.77.0."
INSIDE = "EMBERTREE_APART"


def why_not():
    """Why there can be no namespaces here; empty: there can."""
    for tool in ("unshare", "nsenter"):
        if not shutil.which(tool):
            return f"there is no {tool}"
    probe = subprocess.run([*unshare(), "sh", "-c", "exec 3<>/dev/net/tun"], capture_output=True,
                           text=True, check=False)
    return probe.stderr.strip()


def unshare():
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def apart(program):
    """Returns in a process of its own namespaces; skips where the kernel gives none."""
    if os.environ.get(INSIDE):
        return
    why = why_not()
    if why:
        print(f"SKIPPED: {os.path.basename(program)}: no network namespaces: {why}")
        print("0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*unshare(), sys.executable, program, *sys.argv[1:]])


class Wire:
    """`hosts`: names and their zones. The test itself is the host "client"."""

    def __init__(self, hosts):
        self.zone = dict(hosts) | {"client": "client"}
        self.names = list(self.zone)
        self.ip = {n: f"{NET}{i + 1}" for i, n in enumerate(self.names)}
        self.holders = {n: subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
                        for n in self.names if n != "client"}
        for n, child in self.holders.items():
            while os.readlink(f"/proc/{child.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                assert child.poll() is None, f"no namespace for {n}"
        ends = [f"{self.holders[n].pid if n in self.holders else os.getpid()}:{self.ip[n]}"
                for n in self.names]
        tool = cluster.BIN.parent / "tests" / "lib" / "tools" / "tool_wire"
        self.tool = subprocess.Popen([str(tool), *ends], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True, bufsize=1)
        assert self.tool.stdout.readline() == "ready\n", "the wire does not start"
        self.cuts = {}  # (from, to) -> number of faults that cut it

    def close(self):
        self.tool.stdin.close()
        self.tool.wait()
        for child in self.holders.values():
            child.kill()
            child.wait()

    def inside(self, host, command):
        """The command, to be run on a host."""
        if host == "client":
            return command
        return ["nsenter", f"--net=/proc/{self.holders[host].pid}/ns/net", "--", *command]

    def say(self, line):
        self.tool.stdin.write(line + "\n")
        self.tool.stdin.flush()
        return self.tool.stdout.readline().strip()

    def rule(self, a, b, **keys):
        number = self.names.index
        said = self.say(f"set {number(a)} {number(b)} "
                        + " ".join(f"{k}={v}" for k, v in keys.items()))
        assert said == "ok", said

    def set(self, a, b, **keys):
        self.rule(a, b, **keys)
        self.rule(b, a, **keys)

    def cut(self, here, there):
        """One way. Cuts of several faults add up."""
        self._count(here, there, 1)

    def heal(self, here, there):
        self._count(here, there, -1)

    def _count(self, here, there, by):
        for a in here:
            for b in there:
                if a != b:
                    self.cuts[a, b] = self.cuts.get((a, b), 0) + by
                    self.rule(a, b, drop=int(self.cuts[a, b] > 0))

    def open(self, a, b):
        """Do packets pass both ways?"""
        return not self.cuts.get((a, b)) and not self.cuts.get((b, a))

    def stats(self):
        names = ("carried", "cut", "lost", "reset", "overflowed")
        return dict(zip(names, map(int, self.say("stats").split())))
