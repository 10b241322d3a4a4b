"""Profiles of spans: the SDKs under OpenTelemetry's tracing, as their wrappers tie the two together.

Each workload has two traces of one span: `checkout` burns all of *hot*, `cart` all of *cold*. It prints
their ids; the profile of a span, or of a trace, must have what ran in it and nothing else.
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import sdks
from bed import Bed
from sdks import CPU, SRC, WORK

EDGE_NS = 20_000_000  # two ticks


def go_prepare():
    return sdks.go_build("spans/go")


def python_prepare():
    to = WORK / "spans" / "python"
    return sdks.make("spans/python", [sys.executable, "-m", "venv", to],
                     [to / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "-r",
                      SRC / "spans" / "python" / "requirements.txt"], cwd=sdks.ROOT,
                     made=[to / "bin" / "python"])


def java_prepare():
    sdks.need("java", "javac", "keytool", "mvn")
    to, src = WORK / "spans" / "java", SRC / "spans" / "java"
    return sdks.make("spans/java",
                     ["mvn", "-q", "-B", "-f", src / "pom.xml", "dependency:copy-dependencies",
                      f"-DoutputDirectory={to / 'jars'}", "-Dmdep.stripVersion=true"],
                     ["javac", "-cp", f"{to / 'jars'}/*", "-g", "-d", to / "classes",
                      src / "Spans.java"], cwd=sdks.ROOT, made=[to / "jars" / "otel.jar"])


def share(own, function):
    return sum(v for k, v in own.items() if re.search(function, k))


def check(b, said, hot, cold, traces=True):
    """By span and by trace; the name of a span is a label, no id is one. A sampler may take a stack
    just before a span changes and its labels just after: EDGE_NS."""
    ids = json.loads(next(line for line in said.splitlines() if line.startswith('{"')))
    whole, _ = b.selves(CPU)
    b.check_labels(span_name="checkout")
    b.check_labels(span_name="cart")
    assert not {"span_id", "trace_id", "profile_id"} & set(b.labels()), b.labels()
    for name, mine, other in (("checkout", hot, cold), ("cart", cold, hot)):
        by_span, total = b.selves(CPU, more={"spanSelector": [ids[name]["span"]]})
        assert total > 0 and share(by_span, mine) > 0.5 * total, (name, ids, by_span)
        assert share(by_span, other) <= EDGE_NS, (name, by_span)
        # Before and after its span, a function did not run.
        assert share(by_span, mine) >= 0.9 * share(whole, mine), (name, by_span, whole)
        by_trace, _ = b.selves(CPU, more={"traceIdSelector": [ids[name]["trace"]]})
        assert by_trace == (by_span if traces else {}), (name, by_trace, by_span)
        by_name, _ = b.selves(CPU, span_name=name)
        assert share(by_name, mine) > 0, (name, by_name)
        assert share(by_name, other) <= EDGE_NS, (name, by_name)
    none, total = b.selves(CPU, more={"spanSelector": ["00000000000000aa"]})
    assert (none, total) == ({}, 0), none


def go_spans(binary, certs, tls):
    with Bed("client.gospans", tls, certs) as b:
        _, _, said = b.run([binary])
        b.check_nothing_refused()
        check(b, said, r"main\.burnHot", r"main\.burnCold")
        b.check_other_tenant_sees_nothing()


def python_spans(venv, certs, tls):
    with Bed("client.pyspans", tls, certs) as b:
        _, _, said = b.run([venv / "bin" / "python", SRC / "spans" / "python" / "main.py"])
        b.check_nothing_refused()
        check(b, said, r"burn_hot", r"burn_cold")
        b.check_other_tenant_sees_nothing()


def java_spans(made, certs, tls):
    """The agent is OpenTelemetry's own; the profiler is its extension, which knows of no traces."""
    jars = made / "jars"
    path = [made / "classes", *sorted(jars.glob("opentelemetry-[!j]*.jar"))]  # not the agent's
    with Bed("client.javaspans", tls, certs) as b:
        _, _, said = sdks.java_run(
            b, [f"-javaagent:{jars / 'opentelemetry-javaagent.jar'}",
                f"-Dotel.javaagent.extensions={jars / 'otel.jar'}", "-cp",
                ":".join(map(str, path)), "Spans"],
            OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none", OTEL_LOGS_EXPORTER="none",
            PYROSCOPE_FORMAT="jfr", PYROSCOPE_PROFILER_EVENT="itimer")
        b.check_nothing_refused()
        check(b, said, r"Spans\.burnHot", r"Spans\.burnCold", traces=False)
        b.check_other_tenant_sees_nothing()
