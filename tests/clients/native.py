"""Profilers of native programs: what gperftools, jemalloc, perf and heaptrack write, sent by curl.

`recorders/c/work.c` burns and allocates; what it allocates is known to the byte.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bed
import recorders
import sdks
from bed import Bed
from sdks import CPU, WORK

SOURCE = sdks.SRC / "recorders" / "c" / "work.c"
SECONDS = "3"  # of CPU time
KEPT, KEPT_PIECES = 64 << 20, 32  # of work.c
CHURNED, CHURNED_PIECES = 32 << 20, 32768
OBJECTS, SPACE = "memory:{}_objects:count:space:bytes", "memory:{}_space:bytes:space:bytes"


def compile_work():
    """Names that a symbol table has: no clones for constant arguments."""
    sdks.need("cc", "curl")
    work = WORK / "recorders" / "c" / "work"
    sdks.make("recorders/c", ["cc", "-std=gnu17", "-O2", "-g", "-fno-omit-frame-pointer", "-fno-ipa-cp",
                              "-fno-ipa-sra", "-o", work, SOURCE], cwd=sdks.ROOT, made=[work])
    return work


def library(name, *packages):
    """Of the system; or unpacked from Debian's packages, which need not be installed for it."""
    to = WORK / "debian"
    found = sorted(to.glob(f"root/usr/lib/*/{name}"))
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True,
                            env=os.environ | {"PATH": os.environ["PATH"] + ":/sbin"}).stdout
    for line in listed.splitlines():
        if line.split()[:1] == [name]:
            return pathlib.Path(line.split()[-1])
    if not found:
        sdks.need("apt-get", "dpkg-deb")
        to.mkdir(parents=True, exist_ok=True)
        ran = subprocess.run(["apt-get", "-q", "download", *packages], cwd=to, capture_output=True,
                             text=True, stdin=subprocess.DEVNULL)
        if ran.returncode:
            raise sdks.Missing(f"no {name}, and {packages[0]}: {ran.stderr.strip()[-200:]}")
        for package in sorted(to.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, to / "root"], check=True)
        found = sorted(to.glob(f"root/usr/lib/*/{name}"))
    if not found:
        raise sdks.Missing(f"{', '.join(packages)}: no {name} in it")
    return found[0]


def run(b, work, preload, seconds=SECONDS, **env):
    """`preload` is a library, or a command in front of the program."""
    if isinstance(preload, list):
        return b.run([*preload, work], SECONDS_TO_RUN=seconds, **env)
    return b.run([work], SECONDS_TO_RUN=seconds, LD_PRELOAD=str(preload),
                 LD_LIBRARY_PATH=str(preload.parent), **env)


def resolve(work, own):
    """{function: share} of {work!0xoffset: share}; other files keep their names."""
    table = subprocess.run(["nm", "--defined-only", "--numeric-sort", work], capture_output=True,
                           text=True, check=True).stdout
    symbols = [(int(at, 16), name) for at, kind, name in map(str.split, table.splitlines())
               if kind in "tT"]
    found = {}
    for frame, value in own.items():
        at = re.fullmatch(r"work!0x([0-9a-f]+)", frame)
        below = [name for start, name in symbols if at and start <= int(at[1], 16)]
        name = below[-1] if below else frame
        found[name] = found.get(name, 0) + value
    return found


def whose(work, stacks):
    """{the last function of work.c on the stack: share}."""
    by_frame = {}
    for stack, value in stacks.items():
        last = next((f for f in reversed(stack) if f.startswith("work!")), stack[-1])
        by_frame[last] = by_frame.get(last, 0) + value
    return resolve(work, by_frame)


def check_burnt(b, work, cpu):
    own = whose(work, b.stacks(CPU))
    assert own.get("burn_hot", 0) > 2 * own.get("burn_cold", 0) > 0, own
    assert own["burn_hot"] + own["burn_cold"] > 0.9 * sum(own.values()), own
    b.check_sum(CPU, sum(own.values()), cpu, cpu)


def check_done(b):
    b.check_nothing_refused()
    b.check_other_tenant_sees_nothing()


# ---- gperftools ----------------------------------------------------------------------------------


def gperftools_prepare():
    sdks.need("nm")
    packages = ("libgoogle-perftools4", "libtcmalloc-minimal4", "libunwind8", "google-perftools")
    return compile_work(), library("libprofiler.so.0", *packages), \
        library("libtcmalloc.so.4", *packages)


def gperftools_cpu(made, certs, tls):
    """The binary CPU profile, and what its own pprof makes of it, which has the names."""
    work, profiler, _ = made
    with Bed("client.gperftools.cpu", tls, certs) as b:
        folder = b.server.process.folder
        path = folder / "cpu.prof"
        cpu, wall, _ = run(b, work, profiler, CPUPROFILE=str(path), CPUPROFILE_FREQUENCY="100")
        recorders.ingest(b, path, round(wall), name="client.gperftools{region=north}",
                         format="pprof")
        b.app = "client.gperftools"
        b.check_types([CPU, "process_cpu:samples:count:cpu:nanoseconds"])
        b.check_labels(region="north")
        check_burnt(b, work, cpu)
        _, raw = b.selves(CPU)
        script = profiler.parents[2] / "bin" / "google-pprof"
        if script.exists() or shutil.which(script.name):
            text = subprocess.run(["perl", script if script.exists() else shutil.which(script.name),
                                   "--collapsed", work, path], capture_output=True, text=True,
                                  check=True).stdout
            folded = folder / "cpu.folded"
            folded.write_text(text)
            recorders.ingest(b, folded, round(wall), name="client.gperftools.names",
                             format="folded", sampleRate="100")
            b.app = "client.gperftools.names"
            own, total = b.selves(CPU)
            assert total == raw, (total, raw)
            assert own.get("burn_hot", 0) > 2 * own.get("burn_cold", 0) > 0, own
        check_done(b)


def gperftools_heap(made, certs, tls):
    """The heap profiler counts every allocation."""
    work, _, tcmalloc = made
    with Bed("client.gperftools.heap", tls, certs) as b:
        prefix = b.server.process.folder / "heap"
        run(b, work, tcmalloc, seconds="1", HEAPPROFILE=str(prefix))
        dumps = sorted(prefix.parent.glob("heap.*.heap"))
        assert dumps, "no heap profile was written"
        recorders.ingest(b, dumps[-1], 1, format="pprof")
        for kind, kept, churned in ((OBJECTS, KEPT_PIECES, CHURNED_PIECES), (SPACE, KEPT, CHURNED)):
            used = whose(work, b.stacks(kind.format("inuse")))
            assert used.get("keep_memory") == kept and "churn" not in used, used
            allocated = whose(work, b.stacks(kind.format("alloc")))
            assert allocated.get("keep_memory") == kept, allocated
            assert allocated.get("churn") == churned, allocated
        check_done(b)


# ---- jemalloc ------------------------------------------------------------------------------------


def jemalloc_prepare():
    sdks.need("nm")
    return compile_work(), library("libjemalloc.so.2", "libjemalloc2")


def jemalloc(made, certs, tls):
    """Sampled every 64 KiB: pieces of 2 MiB are seen each, of the small ones one in 64."""
    work, lib = made
    with Bed("client.jemalloc", tls, certs) as b:
        prefix = b.server.process.folder / "je"
        run(b, work, lib, seconds="1",
            MALLOC_CONF=f"prof:true,prof_accum:true,prof_final:true,lg_prof_sample:16,"
                        f"prof_prefix:{prefix}")
        dumps = sorted(prefix.parent.glob("je.*.heap"))
        if not dumps:
            raise sdks.Missing("this libjemalloc was built without its profiler")
        recorders.ingest(b, dumps[-1], 1, format="pprof")
        used = whose(work, b.stacks(SPACE.format("inuse")))
        assert used.get("keep_memory") == KEPT and "churn" not in used, used
        pieces = whose(work, b.stacks(OBJECTS.format("inuse")))
        assert pieces.get("keep_memory") == KEPT_PIECES, pieces
        allocated = whose(work, b.stacks(SPACE.format("alloc")))
        assert allocated.get("keep_memory") == KEPT, allocated
        assert 0.7 * CHURNED < allocated.get("churn", 0) < 1.3 * CHURNED, allocated
        check_done(b)


# ---- perf ----------------------------------------------------------------------------------------


def perf_prepare():
    sdks.need("perf")
    work = compile_work()
    data = work.with_name("perf.data")
    ran = subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-o", data, "true"],
                         capture_output=True, text=True)
    if ran.returncode:
        raise sdks.Missing(f"perf may not record here: {ran.stderr.strip()[:200]}")
    return work


def perf(work, certs, tls):
    """`perf script` of the perf that is here, with its defaults and with the fields people add."""
    with Bed("client.perf", tls, certs) as b:
        folder = b.server.process.folder
        data = folder / "perf.data"
        cpu, _, _ = run(b, work, ["perf", "record", "-q", "-F", "100", "-e", "cpu-clock", "-g",
                                  "-o", data])
        for name, more in (("default", []),
                           ("fields", ["--header", "-F", "comm,pid,tid,time,event,ip,sym,dso,period"]),
                           ("lines", ["-F", "+srcline,+symoff"])):
            path = folder / f"perf.{name}.txt"
            with open(path, "wb") as out:
                subprocess.run(["perf", "script", "-i", data, *more], stdout=out, check=True,
                               stderr=subprocess.DEVNULL)
            types = recorders.uploaded(b, path, "^burn_hot$", "^burn_cold$")
            b.check_sum(name, types["cpu"], cpu, cpu)
            assert types["cpu"] == 10**7 * types["samples"], (name, types)
        check_done(b)


# ---- heaptrack -----------------------------------------------------------------------------------


def heaptrack_prepare():
    sdks.need("heaptrack", "heaptrack_print")
    return compile_work()


def heaptrack(work, certs, tls):
    """Folded stacks of costs that the sender names."""
    with Bed("client.heaptrack", tls, certs) as b:
        folder = b.server.process.folder
        run(b, work, ["heaptrack", "-o", folder / "track"], seconds="1")
        data = next(folder.glob("track.*"))
        for cost, suffix, kept, churned in (
                ("allocations", "alloc_objects", KEPT_PIECES, CHURNED_PIECES),
                ("peak", "inuse_space", KEPT, None)):
            path = folder / f"{cost}.folded"
            subprocess.run(["heaptrack_print", "-f", data, "--flamegraph-cost-type", cost, "-F",
                            path], check=True, capture_output=True)
            recorders.ingest(b, path, 1, name=f"{b.app}.{suffix}{{region=north}}", format="folded")
            unit = "bytes" if suffix.endswith("space") else "count"
            own, _ = b.selves(f"memory:{suffix}:{unit}::", region="north")
            assert own.get("keep_memory (work.c)") == kept, own
            if churned:
                assert own.get("churn (work.c)") == churned, own
        check_done(b)
