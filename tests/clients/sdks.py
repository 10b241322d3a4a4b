"""The clients: how each is had from its registry, run on its workload, and what must have arrived.

`x_prepare()` installs or builds below build/clients and returns what `x()` needs; it raises Missing
with the reason where that is impossible here. Nothing of it is committed but lock files.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bed
from bed import Bed

ROOT = bed.cluster.ROOT
WORK = ROOT / "build" / "clients"
SRC = ROOT / "tests" / "clients"
LIMIT_S = int(os.environ.get("CLIENT_BUILD_SECONDS", "1800"))
CPU = bed.cluster.CPU_TYPE


class Missing(Exception):
    """Why a client cannot run here."""


def need(*tools):
    lost = [t for t in tools if not shutil.which(t)]
    if lost:
        raise Missing(f"not installed: {', '.join(lost)}")


def make(name, *commands, cwd, made=(), env=None):
    """Runs commands once per content of a client's folder; the last words of what fails."""
    to = WORK / name
    to.mkdir(parents=True, exist_ok=True)
    mark = hashlib.sha256(repr(commands).encode())
    for path in sorted(p for p in (SRC / name).rglob("*") if p.is_file()):
        mark.update(path.read_bytes())
    done = to / "made"
    if done.exists() and done.read_text() == mark.hexdigest() and all(p.exists() for p in made):
        return to
    for command in commands:
        try:
            ran = subprocess.run(["nice", "-n", "10", *map(str, command)], cwd=cwd, timeout=LIMIT_S,
                                 capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                 env=os.environ | (env or {}))
        except subprocess.TimeoutExpired:
            raise Missing(f"{command[0]} took over {LIMIT_S} s") from None
        if ran.returncode:
            lines = [l for l in (ran.stderr + ran.stdout).splitlines() if l.strip()]
            raise Missing(f"{' '.join(map(str, command[:3]))}: {' | '.join(lines[-3:])[:400]}")
    done.write_text(mark.hexdigest())
    return to


def burnt(b, kind, hot, cold, low_s, high_s, **labels):
    """The hot function leads and the sum is what the client really used."""
    b.check_sum(kind, b.check_hot(kind, hot, cold, **labels), low_s, high_s)


# ---- Node ----------------------------------------------------------------------------------------


def node_prepare(name="node"):
    need("node", "npm")
    to = WORK / name
    to.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(SRC / name / file, to)
    return make(name, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
                         "--fetch-retries=1", "--fetch-retry-mintimeout=2000"], cwd=to,
                made=[to / "node_modules"])


def node(modules, certs, tls):
    with Bed("client.node", tls, certs) as b:
        # Inlined, the hot function would be its caller's own time as often as not: when V8 does that
        # depends on the machine's load.
        cpu, wall, _ = b.run(["node", "--no-turbo-inlining", SRC / "node" / "main.cjs"],
                             NODE_PATH=str(modules / "node_modules"))
        b.check_nothing_refused()
        b.check_types(["wall:wall:nanoseconds:wall:nanoseconds",
                       "wall:samples:count:wall:nanoseconds",
                       "process_cpu:cpu:nanoseconds:wall:nanoseconds",
                       "memory:inuse_objects:count:inuse_space:bytes",
                       "memory:inuse_space:bytes:inuse_space:bytes"])
        b.check_labels(region="north", job="burn", pyroscope_spy="nodespy")
        hot, cold = r"main\.cjs:burnHot:", r"main\.cjs:burnCold:"
        burnt(b, "wall:wall:nanoseconds:wall:nanoseconds", hot, cold, wall, wall)
        burnt(b, "process_cpu:cpu:nanoseconds:wall:nanoseconds", hot, cold, cpu, cpu)
        b.check_hot("wall:samples:count:wall:nanoseconds", hot, cold, job="burn", region="north")
        own, _ = b.selves("memory:inuse_space:bytes:inuse_space:bytes")
        kept = sum(v for k, v in own.items() if ":keepMemory:" in k)
        assert kept > 1 << 19, f"keepMemory keeps {kept} bytes: {own}"
        b.check_other_tenant_sees_nothing()


# ---- Python --------------------------------------------------------------------------------------


def python_prepare():
    to = WORK / "python"
    pip = to / "bin" / "pip"
    return make("python", [sys.executable, "-m", "venv", to],
                [pip, "install", "-q", "--disable-pip-version-check", "-r",
                 SRC / "python" / "requirements.txt"], cwd=ROOT, made=[to / "bin" / "python"])


def python(venv, certs, tls):
    with Bed("client.python", tls, certs) as b:
        cpu, wall, _ = b.run([venv / "bin" / "python", SRC / "python" / "main.py"])
        b.check_nothing_refused()
        b.check_types([CPU])
        b.check_labels(region="north", job="burn")
        # py-spy counts by the wall's clock while a thread wants to run, so load makes it more.
        burnt(b, CPU, r"burn_hot", r"burn_cold", min(cpu, wall), wall)
        b.check_hot(CPU, r"burn_hot", r"burn_cold", job="burn")
        b.check_other_tenant_sees_nothing()


# ---- Go ------------------------------------------------------------------------------------------


def go_build(name):
    need("go")
    binary = WORK / name / "client"
    make(name, ["go", "build", "-p", "1", "-o", binary, "."], cwd=SRC / name, made=[binary],
         env={"GOFLAGS": "-mod=readonly"})
    return binary


def go_prepare():
    return go_build("go")


def go(binary, certs, tls):
    with Bed("client.go", tls, certs) as b:
        cpu, _, said = b.run([binary])
        assert "[ERROR]" not in said, said[-2000:]
        b.check_nothing_refused()
        b.check_types([CPU, "memory:alloc_objects:count:space:bytes",
                       "memory:alloc_space:bytes:space:bytes",
                       "memory:inuse_objects:count:space:bytes",
                       "memory:inuse_space:bytes:space:bytes",
                       "goroutines:goroutine:count:goroutine:count",
                       "mutex:contentions:count:contentions:count",
                       "mutex:delay:nanoseconds:contentions:count",
                       "block:contentions:count:contentions:count",
                       "block:delay:nanoseconds:contentions:count"])
        b.check_labels(region="north", job="burn", pyroscope_spy="gospy")
        assert "__session_id__" not in b.labels()
        burnt(b, CPU, r"main\.burnHot", r"main\.burnCold", cpu, cpu)
        b.check_hot(CPU, r"main\.burnHot", r"main\.burnCold", job="burn")
        own, _ = b.selves("memory:alloc_space:bytes:space:bytes")
        kept = own.get("main.keepMemory", 0)  # 64 MiB in pieces large enough to be sampled each
        assert 32 << 20 <= kept <= 96 << 20, f"keepMemory got {kept} bytes: {own}"
        own, _ = b.selves("mutex:delay:nanoseconds:contentions:count")
        assert own and re.search(r"Unlock", max(own, key=own.get)), own
        # Four fight for one lock. What they waited before the first profile is in none.
        waited, _ = b.part("mutex:delay:nanoseconds:contentions:count", r"main\.fightForLock")
        b.check_sum("waiting for a lock", waited, bed.SECONDS, 4 * bed.SECONDS)
        b.check_other_tenant_sees_nothing()


# ---- Rust ----------------------------------------------------------------------------------------


def rust_prepare():
    need("cargo", "cc")
    to = WORK / "rust"
    binary = to / "release" / "embertree-client-rust"
    make("rust", ["cargo", "build", "--release", "-j", "1", "--target-dir", to],
         cwd=SRC / "rust", made=[binary])
    return binary


def rust(binary, certs, tls):
    with Bed("client.rust", tls, certs) as b:
        cpu, _, _ = b.run([binary])
        b.check_nothing_refused()
        b.check_types([CPU])
        b.check_labels(region="north", job="burn")
        burnt(b, CPU, r"burn_hot", r"burn_cold", cpu, cpu)
        b.check_hot(CPU, r"burn_hot", r"burn_cold", job="burn")
        b.check_other_tenant_sees_nothing()


# ---- Java ----------------------------------------------------------------------------------------


def java_prepare():
    need("java", "javac", "keytool", "mvn")
    to = WORK / "java"
    pom = SRC / "java" / "pom.xml"
    return make("java",
                ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
                 f"-DoutputDirectory={to / 'jars'}", "-Dmdep.stripVersion=true"],
                ["javac", "-g", "-d", to / "classes", SRC / "java" / "Work.java"],
                cwd=to.parent, made=[to / "jars" / "agent.jar"])


def java_run(b, command, **more):
    """A JVM that trusts our CA, and the agent's configuration."""
    options = []
    if b.tls:
        store = b.certs / "trust.p12"
        if not store.exists():
            subprocess.run(["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file",
                            b.certs / "ca.pem", "-keystore", store, "-storepass", "changeit",
                            "-storetype", "PKCS12"], check=True, capture_output=True)
        options = [f"-Djavax.net.ssl.trustStore={store}",
                   "-Djavax.net.ssl.trustStorePassword=changeit"]
    auth = ({"PYROSCOPE_TENANT_ID": bed.TENANT, "PYROSCOPE_AUTH_TOKEN": bed.TOKEN} if b.tls else
            {"PYROSCOPE_BASIC_AUTH_USER": bed.USER, "PYROSCOPE_BASIC_AUTH_PASSWORD": bed.PASSWORD})
    return b.run(["java", *options, *command], PYROSCOPE_APPLICATION_NAME=b.app,
                 PYROSCOPE_SERVER_ADDRESS=b.url(), PYROSCOPE_UPLOAD_INTERVAL="5s",
                 PYROSCOPE_LABELS="region=north", **auth, **more)


def java_work(b, made, **more):
    return java_run(b, [f"-javaagent:{made / 'jars' / 'agent.jar'}", "-cp", made / "classes",
                        "Work"], **more)


def java_jfr(made, certs, tls):
    with Bed("client.java", tls, certs) as b:
        cpu, _, _ = java_work(b, made, PYROSCOPE_FORMAT="jfr", PYROSCOPE_PROFILER_EVENT="itimer",
                              PYROSCOPE_PROFILER_ALLOC="512k", PYROSCOPE_PROFILER_LOCK="10ms")
        b.check_nothing_refused()
        b.check_types([CPU, "memory:alloc_in_new_tlab_bytes:bytes:space:bytes",
                       "memory:alloc_in_new_tlab_objects:count:space:bytes",
                       "mutex:contentions:count:mutex:count", "mutex:delay:nanoseconds:mutex:count"])
        b.check_labels(region="north", pyroscope_spy="javaspy")
        burnt(b, CPU, r"Work\.burnHot", r"Work\.burnCold", cpu, cpu)
        allocated, total = b.part("memory:alloc_in_new_tlab_bytes:bytes:space:bytes", r"Work\.allocate")
        assert allocated > 8 << 20 and allocated > 0.5 * total, (allocated, total)
        # Two fight for one lock: one of them waits nearly always.
        waited, total = b.part("mutex:delay:nanoseconds:mutex:count", r"Work\.fight")
        assert waited > 0.9 * total, (waited, total)
        b.check_sum("waiting for a lock", waited, bed.SECONDS, 2 * bed.SECONDS)
        b.check_other_tenant_sees_nothing()


def java_otlp(made, certs, tls):
    """The agent sends neither its name nor its labels by OTLP, and says so in its log."""
    kind = "itimer:itimer:ns:itimer:ns"
    with Bed("unknown_service", tls, certs) as b:
        cpu, _, _ = java_work(b, made, PYROSCOPE_FORMAT="otlp", PYROSCOPE_PROFILER_EVENT="itimer")
        b.check_nothing_refused()
        b.check_types([kind])
        burnt(b, kind, r"Work\.burnHot", r"Work\.burnCold", cpu, cpu)
        b.check_other_tenant_sees_nothing()


# ---- Ruby, .NET ----------------------------------------------------------------------------------


def ruby_prepare():
    """The gem; or a folder that has it unpacked and built, RUBY_PYROSCOPE=/path."""
    need("ruby")
    unpacked = os.environ.get("RUBY_PYROSCOPE")
    if unpacked:
        lib = pathlib.Path(unpacked).resolve() / "lib"
        lost = [name for name in ("pyroscope.rb", "rbspy/rbspy.so") if not (lib / name).exists()]
        if lost:
            raise Missing(f"RUBY_PYROSCOPE={unpacked} has no lib/{lost[0]}")
        return ["ruby", "-I", lib], {}
    need("gem")
    to = WORK / "ruby"
    make("ruby", ["gem", "install", "--no-document", "--install-dir", to / "gems", "-v", "~> 1.0",
                  "pyroscope"], cwd=WORK, made=[to / "gems" / "gems"])
    return ["ruby"], {"GEM_PATH": str(to / "gems")}


def ruby(made, certs, tls):
    command, env = made
    with Bed("client.ruby", tls, certs) as b:
        cpu, wall, _ = b.run([*command, SRC / "ruby" / "main.rb"], **env)
        b.check_nothing_refused()
        b.check_types([CPU])
        b.check_labels(region="north", job="burn")
        burnt(b, CPU, r"burn_hot", r"burn_cold", min(cpu, wall), wall)
        b.check_hot(CPU, r"burn_hot", r"burn_cold", job="burn")
        b.check_other_tenant_sees_nothing()


def dotnet_prepare():
    need("dotnet")
    raise Missing("its native profiler comes as a release archive or an image, by no registry")


# ---- OpenTelemetry -------------------------------------------------------------------------------


def otel_prepare():
    return go_build("otel")


def otel(binary, certs, tls, protocol):
    kind = "cpu:cpu:nanoseconds:cpu:nanoseconds"
    with Bed("client.otel" + protocol, tls, certs) as b:
        b.run([binary], PROTOCOL=protocol, SERVER=b.url(scheme=protocol == "http"))
        b.check_nothing_refused()
        b.check_types([kind])
        b.check_labels(region="north", job="burn")
        own, total = b.selves(kind)
        want = {"burnHot": 3_000_000_000, "burnCold": 1_000_000_000}
        assert own == want and total == 4_000_000_000, (own, want)
        b.check_other_tenant_sees_nothing()


def otel_http(binary, certs, tls):
    otel(binary, certs, tls, "http")


def otel_grpc(binary, certs, tls):
    otel(binary, certs, tls, "grpc")


# ---- Grafana's and Go's command lines ------------------------------------------------------------


def querier_prepare():
    return go_build("querier")


def querier(binary, certs, tls):
    """The generated client of Grafana's data source asks everything by every protocol it speaks."""
    with Bed("client.querier", tls, certs) as b:
        for env in ("prod", "dev"):
            reply = b.server.ingest(f"main;burn_{env} 30\nmain 4\n".encode(),
                                    f"client.querier.cpu{{env={env}}}", b.headers, sampleRate="100")
            assert reply.status == 200, reply
        times = b.server.range_ms()
        _, _, said = b.run([binary], START=times["start"], END=times["end"], TYPE=CPU,
                           SELECTOR='{service_name="client.querier"}')
        ways = json.loads(said)
        want = ways["connect"]
        for way, answers in ways.items():
            for method, answer in answers.items():
                if method == "Wrong":
                    assert answer["error"] == "invalid_argument" and "matchers[0]" in answer["text"]
                else:
                    assert "error" not in answer, (way, method, answer)
                    assert answer == want[method], (way, method, answer, want[method])
        assert {t["ID"] for t in want["ProfileTypes"]["profileTypes"]} == {CPU}
        assert want["Flame"]["flamegraph"]["total"] == str(68 * 10**7)
        assert want["Diff"]["flamegraph"]["leftTicks"] == want["Diff"]["flamegraph"]["rightTicks"]
        for profile in (want["Profile"], want["Pprof"]["pprof"]["profile"]):
            assert sum(int(s["value"][0]) for s in profile["sample"]) == 68 * 10**7
        assert want["Tree"]["tree"] and want["Dot"]["dot"].startswith("digraph")
        assert len(want["SelectSeries"]["series"]) == 2
        assert want["GetProfileStats"]["dataIngested"] is True
        assert want["AnalyzeQuery"]["queryImpact"]["totalQueriedSeries"] == "2"
        assert "main" in want["Flame"]["flamegraph"]["names"]


# Stored names, and how `go tool pprof` shows them: it demangles what is mangled, and must
# not take <...> or (...) from other names.
NAMES = {"<module>": "<module>", "main.<lambda>": "main.<lambda>",
         "std::vec<int>::push(int)": "std::vec<int>::push(int)",
         "<T as Iterator>::next": "<T as Iterator>::next",
         "_ZN4shop4cartEv": "shop::cart"}


def pprof_prepare():
    need("go")
    app = WORK / "pgo" / "app"
    make("pgo", ["go", "build", "-o", app, "."], cwd=SRC / "pgo", made=[app])
    return app


def pprof(_, certs, tls):
    """`go tool pprof` reads what SelectMergeProfile and render export."""
    with Bed("client.pprof", tls, certs) as b:
        reply = b.server.ingest(b"main;burn_hot 30\nmain;burn_cold 10\n", "client.pprof.cpu",
                                b.headers, sampleRate="100")
        assert reply.status == 200, reply
        reply = b.server.ingest("".join(f"{name} 10\n" for name in NAMES).encode(),
                                "client.names.cpu", b.headers, sampleRate="100")
        assert reply.status == 200, reply
        message = b.server.range_ms() | {"profile_typeID": CPU, "label_selector":
                                         '{service_name="client.pprof"}'}
        reply = b.server.connect("SelectMergeProfile", message, b.headers)
        assert reply.status == 200, reply
        top = pprof_top(b, "client.pprof")
        assert re.search(r"300ms\s+75\.?0*%.*burn_hot", top), top
        top = pprof_top(b, "client.names")
        for name, shown in NAMES.items():
            assert re.search(rf"100ms .*%\s+{re.escape(shown)}$", top, re.M), (name, top)


def decisions(profile, to):
    """What Go's compiler thinks of each call, by the profile: {place: (caller, hottest callee)} and
    the weights by place."""
    command = ["go", "build", f"-pgo={profile}", "-gcflags=-d=pgodebug=3", "-o", to, "."]
    ran = subprocess.run(list(map(str, command)), cwd=SRC / "pgo", capture_output=True, text=True,
                         timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr[-2000:]
    calls = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    assert calls, ran.stderr[:2000]
    return ({c["Pos"]: (c["Caller"], c["Hottest"]) for c in calls},
            {c["Pos"]: c["Weight"] for c in calls})


def pgo(app, certs, tls):
    """`go build -pgo` makes the same of our default.pgo as of the profile that was pushed."""
    with Bed("client.pgo", tls, certs) as b:
        pushed = b.server.process.folder / "cpu.pprof"
        subprocess.run([app, pushed], check=True, capture_output=True, timeout=60)
        reply = b.server.ingest(pushed.read_bytes(), "client.pgo", b.headers, format="pprof")
        assert reply.status == 200, reply
        want, weights = decisions(pushed, app.with_name("by-pushed"))
        assert any(weights.values()), "the profile says nothing of the program"
        for name, query in (("default.pgo", {"format": "pgo"}),
                            ("all.pgo", {"format": "pprof"})):
            url = "/pyroscope/render?" + urllib.parse.urlencode({
                "query": CPU + '{service_name="client.pgo"}', "from": "now-1h", "until": "now"}
                | query)
            reply = b.server.reader.request("GET", url, None, b.headers)
            assert reply.status == 200, reply
            path = b.server.process.folder / name
            path.write_bytes(reply.body)
            got, heavy = decisions(path, app.with_name("by-ours"))
            assert got == want, (name, got, want)
            # Weights are samples in the one, nanoseconds in the other: 10 ms each.
            assert heavy == {k: v * 10**7 for k, v in weights.items()}, (name, heavy, weights)


def pprof_top(b, service):
    path = b.server.process.folder / "export.pb"
    url = "/pyroscope/render?" + urllib.parse.urlencode({
        "query": CPU + f'{{service_name="{service}"}}', "from": "now-1h", "until": "now",
        "format": "pprof"})
    reply = b.server.reader.request("GET", url, None, b.headers)
    assert reply.status == 200, reply
    path.write_bytes(reply.body)
    return subprocess.run(["go", "tool", "pprof", "-top", "-unit=ms", path], check=True,
                          capture_output=True, text=True).stdout
