"""Grafana's command line against us: uploads, each of its queries, its recording rules, its debug
info, and the probes of its canary.

It is run where it stands, `PROFILECLI=/path` or in PATH; nothing here fetches or builds it.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bed
import sdks
import pprof_ref

CPU = bed.cluster.CPU_TYPE
STACKS = {("main", "burn_hot"): 300_000_000, ("main", "burn_cold"): 100_000_000}  # of one upload
CANARY_S = 60  # two rounds of probes take 18


def prepare():
    at = os.environ.get("PROFILECLI") or shutil.which("profilecli")
    if not at:
        raise sdks.Missing("not in PATH, and no PROFILECLI=/path says where it is")
    if not os.access(at, os.X_OK):
        raise sdks.Missing(f"PROFILECLI={at} cannot be run")
    return os.path.abspath(at)


class Tool:
    """One server's profilecli: the address and the credentials come by environment."""

    def __init__(self, b, binary):
        self.b, self.binary = b, binary
        self.folder = pathlib.Path(b.server.process.folder)
        self.env = b.environment() | {"PROFILECLI_URL": b.url()}
        self.env |= ({"PROFILECLI_TENANT_ID": bed.TENANT, "PROFILECLI_TOKEN": bed.TOKEN} if b.tls
                     else {"PROFILECLI_USERNAME": bed.USER, "PROFILECLI_PASSWORD": bed.PASSWORD})

    def run(self, *words):
        """What it prints; its log of what it does goes to the other stream."""
        ran = subprocess.run([self.binary, *map(str, words)], env=self.env, capture_output=True,
                             text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert ran.returncode == 0, (words, ran.stdout[-1000:], ran.stderr[-2000:])
        return ran.stdout

    def json(self, *words):
        return json.loads(self.run(*words, "--output=json"))

    def profile(self, *words, command="profile"):
        """{stack: nanoseconds} of what it writes for `go tool pprof`."""
        path = self.folder / "answer.pb"
        self.run("query", command, f"--query={self.b.selector()}", "--force",
                 f"--output=pprof={path}", *words)
        return dict(pprof_ref.Profile(path.read_bytes()).sums(0))


def seed(b, tool):
    """A profile for uploads: pushed as text, asked for as pprof."""
    reply = b.server.ingest(b"main;burn_hot 30\nmain;burn_cold 10\n", "client.seed.cpu", b.headers,
                            sampleRate="100")
    assert reply.status == 200, reply
    query = urllib.parse.urlencode({"query": CPU + '{service_name="client.seed"}',
                                    "from": "now-1h", "until": "now", "format": "pprof"})
    reply = b.server.reader.request("GET", "/pyroscope/render?" + query, None, b.headers)
    assert reply.status == 200, reply
    path = tool.folder / "seed.pb"
    path.write_bytes(reply.body)
    return path


def upload(b, tool, path, *words):
    tool.run("upload", "--override-timestamp", f"--extra-labels=service_name={b.app}",
             "--extra-labels=region=north", *words, path)


# ---- what it asks -------------------------------------------------------------------------------


def series(b, tool):
    me = f"--query={b.selector()}"
    got = tool.json("query", "series", me, "--label-names=service_name", "--label-names=region")
    assert got["series"] == [{"service_name": b.app, "region": "north"}], got
    got = tool.run("query", "label-values-cardinality", me)
    assert re.search(r"\| region +\| +1 \|", got), got
    got = tool.json("query", "top", "--label-names=region", me)
    assert [(s["labels"], s["total"]) for s in got["series"]] == [
        ({"region": "north"}, sum(STACKS.values()))], got


def profiles(tool):
    got = {way: tool.profile(*way) for way in ((), ("--function-names-only",), ("--async",))}
    assert all(answer == STACKS for answer in got.values()), got
    assert tool.profile(command="go-pgo") == STACKS
    assert tool.profile("--stacktrace-selector=main", "--stacktrace-selector=burn_cold") == {
        ("main", "burn_cold"): STACKS[("main", "burn_cold")]}
    assert tool.profile("--span-selector=0102030405060708") == {}
    assert tool.profile("--trace-id=0102030405060708090a0b0c0d0e0f10") == {}


def exemplars(b, tool):
    """One names the profile that was uploaded, with and without the dashes of a UUID."""
    me = f"--query={b.selector()}"
    got = tool.json("query", "exemplars", "profile", me)["exemplars"]
    assert [e["value"] for e in got] == [sum(STACKS.values())], got
    name = got[0]["profile_id"].replace("-", "")
    dashed = "-".join((name[:8], name[8:12], name[12:16], name[16:20], name[20:]))
    other = name[:-1] + ("0" if name[-1] != "0" else "1")
    for id_, want in ((name, STACKS), (dashed, STACKS), (other, {})):
        assert tool.profile(f"--profile-id={id_}") == want, id_
    assert not tool.json("query", "exemplars", "span", me)["exemplars"]


def protocols(b, tool, path):
    """gRPC is for HTTP/2, which a Go program speaks over TLS only."""
    ways = ["connect", "grpc-web"] + (["grpc"] if b.tls else [])
    me = f"--query={b.selector()}"
    for way in ways:
        got = tool.json("query", "series", me, "--label-names=region", f"--protocol={way}")
        assert got["series"] == [{"region": "north"}], (way, got)
    for more, way in enumerate(ways, 2):
        upload(b, tool, path, f"--protocol={way}")
        want = {stack: more * value for stack, value in STACKS.items()}
        assert tool.profile(f"--protocol={way}") == want, way


# ---- what it keeps here -------------------------------------------------------------------------


def rules(tool):
    path = tool.folder / "rule.yaml"
    path.write_text("matchers:\n  - '{ __profile_type__=\"" + CPU + "\", region=\"north\"}'\n"
                    "metric_name: profiles_recorded_north\ngroup_by:\n  - service_name\n")
    made = re.search(r"created with id: (\S+)", tool.run("recording-rules", "create", "-f", path))
    for command in (("list",), ("get", made[1])):
        got = tool.run("recording-rules", *command)
        assert made[1] in got and "profiles_recorded_north" in got and 'region="north"' in got, got
    tool.run("recording-rules", "delete", made[1])
    assert made[1] not in tool.run("recording-rules", "list")


def debug_info(tool):
    binary = bed.cluster.BIN / "embertreectl"
    said = tool.run("debuginfo", "upload", binary)
    listed = tool.run("debuginfo", "list")
    found = re.search(r"build_id=(\S+) name=embertreectl .*STATE_UPLOADED", listed)
    assert found, (said, listed)
    tool.run("debuginfo", "delete", found[1])
    assert found[1] not in tool.run("debuginfo", "list")


# ---- its canary ---------------------------------------------------------------------------------


def canary(tool):
    """Two rounds of all its probes. They ask for five seconds of data that the round pushed before:
    sooner than every ten seconds, our width of a slot, two rounds are in one answer."""
    log = tool.folder / "canary.log"
    with open(log, "wb") as out:
        child = subprocess.Popen([tool.binary, "canary-exporter", "--query-probe-set=all",
                                  f"--listen-address=127.0.0.1:{bed.cluster.free_port()}"],
                                 env=tool.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            until = time.monotonic() + CANARY_S
            while True:
                said = log.read_text(errors="replace")
                done = re.findall(r"probe successful\" probe_name=(\S+)", said)
                if done.count("query-exemplars") == 2:  # the last of a round
                    break
                assert time.monotonic() < until and child.poll() is None, said[-4000:]
                time.sleep(0.2)
        finally:
            child.kill()
            child.wait()
    assert "probe failed" not in said, said[-4000:]
    assert len(set(done)) >= 16 and all(done.count(name) == 2 for name in done), sorted(done)


def profilecli(binary, certs, tls):
    with bed.Bed("client.profilecli", tls, certs) as b:
        tool = Tool(b, binary)
        tool.run("ready")
        path = seed(b, tool)
        upload(b, tool, path)
        series(b, tool)
        profiles(tool)
        exemplars(b, tool)
        protocols(b, tool, path)
        rules(tool)
        debug_info(tool)
        canary(tool)
        b.check_nothing_refused()
        b.check_other_tenant_sees_nothing()
