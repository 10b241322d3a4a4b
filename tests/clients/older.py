"""Other releases of the same clients: the oldest that people still run, and the newest where the one
of `sdks.py` is held back. The workloads are the same.
"""
import os
import pathlib
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import recorders
import sdks
from bed import Bed
from sdks import CPU, SRC, WORK

HERE_SRC = SRC / "older"


# ---- SDKs ----------------------------------------------------------------------------------------


def python_prepare():
    to = WORK / "older" / "python"
    return sdks.make("older/python", [sys.executable, "-m", "venv", to],
                     [to / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r",
                      HERE_SRC / "python" / "requirements.txt"], cwd=sdks.ROOT,
                     made=[to / "bin" / "python"])


def python_08(venv, certs, tls):
    """Before 1.0 it sent text to /ingest."""
    sdks.python(venv, certs, tls)


def java_prepare():
    sdks.need("java", "javac", "keytool", "mvn")
    to = WORK / "older" / "java"
    return sdks.make("older/java",
                     ["mvn", "-q", "-B", "-f", HERE_SRC / "java" / "pom.xml",
                      "dependency:copy-dependencies", f"-DoutputDirectory={to / 'jars'}",
                      "-Dmdep.stripVersion=true"],
                     ["javac", "-g", "-d", to / "classes", SRC / "java" / "Work.java"],
                     cwd=sdks.ROOT, made=[to / "jars" / "agent.jar"])


def java_012(made, certs, tls):
    sdks.java_jfr(made, certs, tls)


def go_prepare():
    """The same program; go.mod says which release it is built with."""
    sdks.need("go")
    binary = WORK / "older" / "go" / "client"
    sdks.make("older/go", ["go", "build", "-p", "1", f"-modfile={HERE_SRC / 'go' / 'go.mod'}", "-o",
                           binary, "."], cwd=SRC / "go", made=[binary],
              env={"GOFLAGS": "-mod=readonly"})
    return binary


def go_12(binary, certs, tls):
    sdks.go(binary, certs, tls)


def node_prepare():
    """Node 18 is what the product's own tests have; this one wants a newer."""
    sdks.need("node", "npm")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    if tuple(map(int, said.lstrip("v").split("."))) < (20, 20, 2):
        raise sdks.Missing(f"wants Node 20.20.2 or later, this is {said}")
    return sdks.node_prepare("older/node")


def node_06(modules, certs, tls):
    sdks.node(modules, certs, tls)


# ---- async-profiler ------------------------------------------------------------------------------

# The release, and what of it is sent. OTLP was another message in each: revision 1.7, then 1.8 or 1.9.
ASYNC = (("2.9", "jfr", "collapsed"), ("4.1", "jfr", "otlp"), ("4.3", "otlp"))


def async_prepare():
    sdks.need("curl", "java", "javac", "mvn")
    to = WORK / "older" / "async"
    jars = [to / f"async-profiler-{release}.jar" for release, *_ in ASYNC]
    copies = [["mvn", "-q", "-B", "dependency:copy",
               f"-Dartifact=tools.profiler:async-profiler:{release}", f"-DoutputDirectory={to}"]
              for release, *_ in ASYNC]
    sdks.make("older/async", *copies,
              ["javac", "-g", "-d", to / "classes", SRC / "java" / "Work.java"],
              cwd=sdks.ROOT, made=jars)
    libraries = {}
    for (release, *_), jar in zip(ASYNC, jars):
        lib = to / f"libasyncProfiler-{release}.so"
        name = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(os.uname().machine, "none")
        with zipfile.ZipFile(jar) as files:
            lib.write_bytes(files.read(f"{name}/libasyncProfiler.so"))
        libraries[release] = lib
    return to / "classes", libraries


def async_record(b, made, release, kind):
    classes, libraries = made
    path = b.server.process.folder / f"async.{kind}"
    agent = f"{libraries[release]}=start,event=itimer,interval=10ms,{kind},file={path}"
    cpu, wall, _ = b.run(["java", f"-agentpath:{agent}", "-cp", classes, "Work"],
                         SECONDS_TO_RUN=recorders.SECONDS, LINGER_MS="0")
    return path, cpu, wall


def async_older(made, certs, tls):
    for release, *kinds in ASYNC:
        for kind in kinds:
            app = "unknown_service" if kind == "otlp" else f"client.async{release}.{kind}"
            with Bed(app, tls, certs) as b:
                try:
                    async_check(b, made, release, kind)
                except AssertionError as e:
                    raise AssertionError(f"async-profiler {release}, {kind}") from e


def async_check(b, made, release, kind):
    hot, cold = r"Work[./]burnHot", r"Work[./]burnCold"
    path, cpu, wall = async_record(b, made, release, kind)
    if kind == "otlp":
        recorders.curl(b, path, "/v1development/profiles", "application/x-protobuf")
        kinds = b.types()
        assert kinds and all(k.startswith("itimer:itimer:") for k in kinds), kinds
        for name in kinds:
            ticks = recorders.TICK_NS if name.split(":")[2] == "count" else 1
            b.check_sum(name, b.check_hot(name, hot, cold) * ticks, cpu, cpu)
    else:
        query = {"format": "folded", "sampleRate": "100"} if kind == "collapsed" else \
            {"format": "jfr"}
        recorders.ingest(b, path, round(wall), **query)
        b.check_types([CPU])
        b.check_labels(region="north")
        sdks.burnt(b, CPU, hot, cold, cpu, cpu)
        recorders.uploaded(b, path, hot, cold)
    b.check_nothing_refused()
    b.check_other_tenant_sees_nothing()
