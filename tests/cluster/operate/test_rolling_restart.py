"""deploy/helm/rolling-restart against a kubectl that plays a cluster: pods that are away for a while
after an eviction, a budget that allows one at a time, StatefulSets of three zones."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

SCRIPT = cluster.ROOT / "deploy" / "helm" / "rolling-restart"
KUBECTL = '''#!%s -IS
import json, os, re, sys
path = os.environ["PLAY"]
play = json.load(open(path))
args = sys.argv[1:]
space = "default"
if args[0] == "-n":
    space, args = args[1], args[2:]
assert space == "profiling", args
def done(code=0, text="", error=""):
    json.dump(play, open(path, "w"))
    sys.stdout.write(text); sys.stderr.write(error); sys.exit(code)
def tick():
    for name, pod in play["pods"].items():  # the controller makes the pod again, the kubelet readies it
        if pod["away"]:
            pod["away"] -= 1
            if pod["away"] == 0:
                pod["revision"] = play["sets"][name.rpartition("-")[0]]["want"]
                pod["ready"] = name not in play["broken"]
def answer(object, template):
    def one(match):
        if match[1] == '.status.conditions[?(@.type=="Ready")].status':
            return "True" if object["ready"] else "False"
        return {".metadata.uid": lambda: object["uid"], ".metadata.namespace": lambda: space,
                ".status.updateRevision": lambda: object["want"], ".spec.replicas": lambda: str(object["replicas"]),
                ".metadata.labels.controller-revision-hash": lambda: object["revision"]}[match[1]]()
    return re.sub(r"\\{(.*)\\}", one, template)
tick()
if args[:2] == ["get", "statefulset"] and args[2] == "-l":
    assert "app.kubernetes.io/component=ingester" in args[3] and "instance=r" in args[3], args
    done(text="".join(n + "\\n" for n in sorted(play["sets"])))
if args[0] == "get":
    objects = play["sets"] if args[1] == "statefulset" else play["pods"]
    object = objects[args[2]]
    template = args[-1].partition("jsonpath=")[2]
    if object.get("away", 0) > 1:
        done()  # gone, not yet made again
    done(text=answer(object, template))
if args[:2] == ["create", "--raw"]:
    body = json.load(sys.stdin)
    name = body["metadata"]["name"]
    assert args[2] == "/api/v1/namespaces/profiling/pods/%%s/eviction" %% name, args
    pod = play["pods"][name]
    assert body["deleteOptions"]["preconditions"]["uid"] == pod["uid"], (body, pod)
    if play["budget_refuses"] > 0:
        play["budget_refuses"] -= 1
        done(1, error="Error from server (TooManyRequests): Cannot evict pod as it would violate the pod's disruption budget.\\n")
    play["away_at_once"] = max(play["away_at_once"], 1 + sum(not p["ready"] for p in play["pods"].values()))
    play["evicted"].append(name)
    pod.update(uid=pod["uid"] + "x", ready=False, away=3)
    done()
raise SystemExit("unknown: %%r" %% args)
''' % sys.executable


class Play:
    def __init__(self, **more):
        self.folder = tempfile.TemporaryDirectory(prefix="embertree-test-")
        where = pathlib.Path(self.folder.name)
        (where / "kubectl").write_text(KUBECTL)
        (where / "kubectl").chmod(0o755 | stat.S_IXUSR)
        sets = {f"r-embertree-ingester-{z}": {"want": "new", "replicas": 2} for z in "abc"}
        pods = {f"{s}-{i}": {"uid": f"{s}{i}", "ready": True, "away": 0, "revision": "old"}
                for s in sets for i in range(2)}
        self.path = where / "play.json"
        self.path.write_text(json.dumps({"sets": sets, "pods": pods, "broken": [], "budget_refuses": 0,
                                         "away_at_once": 0, "evicted": []} | more))
        self.env = dict(os.environ, PATH=f"{where}:{os.environ['PATH']}", PLAY=str(self.path), PAUSE_S="0",
                        READY_S="2")

    def run(self, *arguments):
        return subprocess.run([SCRIPT, "-n", "profiling", *arguments], env=self.env, capture_output=True,
                              text=True, timeout=60)

    def now(self):
        return json.loads(self.path.read_text())


ALL = [f"r-embertree-ingester-{z}-{i}" for z in "abc" for i in (1, 0)]


def test_one_by_one():
    play = Play(budget_refuses=3)
    r = play.run("r")
    assert r.returncode == 0, r
    now = play.now()
    assert now["evicted"] == ALL and now["away_at_once"] == 1, now
    assert all(p["ready"] and p["revision"] == "new" for p in now["pods"].values()), now


def test_up_to_date_is_passed_over():
    play = Play()
    assert play.run("r").returncode == 0
    r = play.run("r")
    assert r.returncode == 0 and len(play.now()["evicted"]) == 6 and "up to date" in r.stdout, r
    assert play.run("--all", "r").returncode == 0
    assert play.now()["evicted"] == ALL + ALL


def test_stops_at_the_first_that_is_not_ready():
    play = Play(broken=["r-embertree-ingester-b-1"])
    r = play.run("r")
    assert r.returncode == 1 and "r-embertree-ingester-b-1 is not ready" in r.stderr, r
    assert play.now()["evicted"] == ALL[:3], play.now()
    # Again while it is still not ready: no other pod is evicted.
    r = play.run("r")
    assert r.returncode == 1 and play.now()["evicted"] == ALL[:3], r


def test_usage():
    play = Play()
    assert play.run().returncode == 2
    assert play.run("--what", "r").returncode == 2
    play.path.write_text(json.dumps(play.now() | {"sets": {}}))
    r = play.run("r")
    assert r.returncode == 1 and "has no ingesters" in r.stderr, r


if __name__ == "__main__":
    cluster.main([test_one_by_one, test_up_to_date_is_passed_over,
                  test_stops_at_the_first_that_is_not_ready, test_usage])
