"""Profilers that write a file, and curl, which sends it: to /ingest, to /v1development/profiles, or as
an uploaded profile."""
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bed
import sdks
from bed import Bed
from sdks import CPU, SRC, WORK

HERE_SRC = SRC / "recorders"
SECONDS = "6"  # that a recording takes
TICK_NS = 10_000_000


def curl(b, path, to, content_type="application/octet-stream", **query):
    """Sends a file as people do; what the server says."""
    env = b.environment()
    command = ["curl", "--silent", "--show-error", "--fail-with-body", "--max-time", "60",
               "--request", "POST", "--header", f"Content-Type: {content_type}", "--data-binary",
               f"@{path}", "--url", b.url() + to]
    for name, value in query.items():
        command += ["--url-query", f"{name}={value}"]
    if b.tls:
        command += ["--cacert", env["CA_FILE"], "--header", f"X-Scope-OrgID: {bed.TENANT}",
                    "--oauth2-bearer", bed.TOKEN]
    else:
        command += ["--user", f"{bed.USER}:{bed.PASSWORD}"]
    ran = subprocess.run(command, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, (to, query, ran.stdout[-2000:], ran.stderr[-2000:])
    return ran.stdout


def ingest(b, path, began, name=None, **query):
    """`began` is how long ago the recording began."""
    curl(b, path, "/ingest", name=name or f"{b.app}{{region=north}}", **{"from": f"now-{began}s"},
         until="now", **query)


def uploaded(b, path, hot, cold):
    """The file as an uploaded profile: the type shown first has the hot function as the largest.
    {type: its total}"""
    url = "/api/v1/adhoc"
    given = json.loads(curl(b, path, url, name=path.name))
    reply = b.server.reader.request("GET", f"{url}/{given['id']}", None, b.headers)
    assert reply.status == 200, reply
    own = {}
    for stack, value in bed.cluster.leaves(reply.json()["flamebearer"]).items():
        own[stack[-1]] = own.get(stack[-1], 0) + value
    top = sorted(own.items(), key=lambda x: -x[1])[:6]
    assert re.search(hot, max(own, key=own.get)), top
    hots, colds = (sum(v for k, v in own.items() if re.search(name, k)) for name in (hot, cold))
    assert 1.5 * colds < hots < 6 * colds, (hots, colds, top)
    return {t["type"]: t["total"] for t in given["types"]}


# ---- py-spy --------------------------------------------------------------------------------------


def py_spy_prepare():
    sdks.need("curl")
    to = WORK / "recorders" / "python"
    return sdks.make("recorders/python", [sys.executable, "-m", "venv", to],
                     [to / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r",
                      HERE_SRC / "python" / "requirements.txt"], cwd=sdks.ROOT,
                     made=[to / "bin" / "py-spy"])


def py_spy(venv, certs, tls):
    hot, cold = "burn_hot", "burn_cold"
    for kind, query in (("speedscope", {"format": "speedscope"}),
                        ("raw", {"format": "folded", "sampleRate": "100"})):
        with Bed(f"client.pyspy.{kind}", tls, certs) as b:
            path = b.server.process.folder / f"py-spy.{kind}"
            _, wall, _ = b.run([venv / "bin" / "py-spy", "record", "--nonblocking", "--rate", "100",
                                "--format", kind, "--output", path, "--", sys.executable,
                                HERE_SRC / "work.py"], SECONDS_TO_RUN=SECONDS)
            ingest(b, path, round(wall), **query)
            b.check_labels(region="north")
            kinds = sorted(b.types())
            assert len(kinds) == 1, kinds
            sdks.burnt(b, kinds[0], hot, cold, wall, wall)
            if kind == "speedscope":
                uploaded(b, path, hot, cold)
            b.check_nothing_refused()
            b.check_other_tenant_sees_nothing()


# ---- Austin --------------------------------------------------------------------------------------


def austin_prepare():
    sdks.need("curl")
    to = WORK / "recorders" / "austin"
    sdks.make("recorders/austin", [sys.executable, "-m", "venv", to],
              [to / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r",
               HERE_SRC / "austin" / "requirements.txt"], cwd=sdks.ROOT,
              made=[to / "bin" / "austin"])
    ran = subprocess.run([to / "bin" / "austin", "--version"], capture_output=True, text=True)
    if ran.returncode:
        raise sdks.Missing(f"austin does not start: {ran.stderr.strip()[-200:]}")
    return to


def austin(venv, certs, tls):
    """Microseconds: an uploaded file says so itself, to /ingest the sender says it."""
    hot, cold = ":burn_hot:", ":burn_cold:"
    with Bed("client.austin", tls, certs) as b:
        path = b.server.process.folder / "austin.txt"
        _, wall, _ = b.run([venv / "bin" / "austin", "-i", "1ms", "-o", path, sys.executable,
                            HERE_SRC / "work.py"], SECONDS_TO_RUN=SECONDS)
        ingest(b, path, round(wall), name=f"{b.app}.wall{{region=north}}", format="folded",
               sampleRate="1000000")
        kind = "wall:wall:nanoseconds:cpu:nanoseconds"
        assert b.types() == {kind}, b.types()
        sdks.burnt(b, kind, hot, cold, wall, wall)
        types = uploaded(b, path, hot, cold)
        b.check_sum("uploaded", types["wall"], wall, wall)
        b.check_nothing_refused()
        b.check_other_tenant_sees_nothing()


# ---- async-profiler ------------------------------------------------------------------------------


def async_prepare():
    sdks.need("curl", "java", "javac", "mvn")
    to = WORK / "recorders" / "java"
    return sdks.make("recorders/java",
                     ["mvn", "-q", "-B", "-f", HERE_SRC / "java" / "pom.xml",
                      "dependency:copy-dependencies", f"-DoutputDirectory={to / 'jars'}",
                      "-Dmdep.stripVersion=true"],
                     ["javac", "-g", "-d", to / "classes", SRC / "java" / "Work.java"],
                     cwd=sdks.ROOT, made=[to / "jars" / "async-profiler.jar"])


def async_record(b, made, kind, *more):
    path = b.server.process.folder / f"async.{kind}"
    agent = ",".join(["start", "event=itimer", "interval=10ms", kind, f"file={path}", *more])
    cpu, wall, _ = b.run(["java", f"-javaagent:{made / 'jars' / 'async-profiler.jar'}={agent}",
                          "-cp", made / "classes", "Work"], SECONDS_TO_RUN=SECONDS, LINGER_MS="0")
    return path, cpu, wall


def async_profiler(made, certs, tls):
    """Its three formats. Collapsed stacks are counts: the sender says the rate."""
    hot, cold = r"Work[./]burnHot", r"Work[./]burnCold"
    with Bed("client.async.jfr", tls, certs) as b:
        path, cpu, wall = async_record(b, made, "jfr", "alloc=512k")
        ingest(b, path, round(wall), format="jfr")
        b.check_types([CPU, "memory:alloc_in_new_tlab_bytes:bytes:space:bytes"])
        b.check_labels(region="north")
        sdks.burnt(b, CPU, hot, cold, cpu, cpu)
        uploaded(b, path, hot, cold)
        b.check_nothing_refused()
        b.check_other_tenant_sees_nothing()
    with Bed("client.async.collapsed", tls, certs) as b:
        path, cpu, wall = async_record(b, made, "collapsed")
        ingest(b, path, round(wall), format="folded", sampleRate="100")
        b.check_types([CPU])
        sdks.burnt(b, CPU, hot, cold, cpu, cpu)
        b.check_nothing_refused()
    with Bed("unknown_service", tls, certs) as b:
        path, cpu, _ = async_record(b, made, "otlp")
        curl(b, path, "/v1development/profiles", "application/x-protobuf")
        kind = "itimer:itimer:count:itimer:ns"  # a count of ticks; the period is beside it
        b.check_types([kind])
        b.check_sum(kind, b.check_hot(kind, hot, cold) * TICK_NS, cpu, cpu)
        b.check_nothing_refused()


# ---- pprof-rs, Node ------------------------------------------------------------------------------


def pprof_rs_prepare():
    sdks.need("cargo", "cc", "curl")
    to = WORK / "recorders" / "rust"
    binary = to / "release" / "embertree-recorder-rust"
    sdks.make("recorders/rust", ["cargo", "build", "--release", "-j", "1", "--target-dir", to],
              cwd=HERE_SRC / "rust", made=[binary])
    return binary


def pprof_rs(binary, certs, tls):
    hot, cold = "burn_hot", "burn_cold"
    with Bed("client.pprofrs", tls, certs) as b:
        path = b.server.process.folder / "rust.pb"
        cpu, wall, _ = b.run([binary, path], SECONDS_TO_RUN=SECONDS)
        ingest(b, path, round(wall), format="pprof")
        b.check_types([CPU])
        b.check_labels(region="north")
        sdks.burnt(b, CPU, hot, cold, cpu, cpu)
        uploaded(b, path, hot, cold)
        b.check_nothing_refused()
        b.check_other_tenant_sees_nothing()


def node_prepare():
    sdks.need("curl", "node")


def node_cpu_prof(_, certs, tls):
    """The .cpuprofile of Chrome and Node is for looking at: an uploaded profile."""
    with Bed("client.cpuprofile", tls, certs) as b:
        folder = b.server.process.folder
        b.run(["node", "--no-turbo-inlining", "--cpu-prof", f"--cpu-prof-dir={folder}",
               "--cpu-prof-name=node.cpuprofile", HERE_SRC / "work.cjs"], SECONDS_TO_RUN=SECONDS)
        uploaded(b, folder / "node.cpuprofile", "burnHot", "burnCold")
        b.check_nothing_refused()
