"""deploy/helm/embertree: options as the binaries have them, manifests that fit together, and processes
that really start and work with the arguments and files of their pods.

Needs helm (tests/lib/helm_bed.py gets it) and PyYAML; what cannot be had is said: `SKIPPED: ...`,
and fails in CI.
"""
import base64
import copy
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "clients"))
import bed
import cluster
import helm_bed

try:
    import yaml
except ImportError:
    print("SKIPPED: test_helm: python3-yaml is not installed\n0 passed, 0 failed")
    sys.exit(0)

FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # of libyaml: a fifth of the time
load_yaml = functools.partial(yaml.load, Loader=FAST)
load_yaml_all = functools.partial(yaml.load_all, Loader=FAST)
DEPLOY = cluster.ROOT / "deploy" / "helm"
CHART = DEPLOY / "embertree"
ROLES = ("ingester", "distributor", "querier", "compactor")
LIST = {"coordination": "list"}
KEYS = "k1: " + base64.b64encode(bytes(range(32))).decode() + "\n"
VARIANTS = {  # of the values: what a user may set, by name
    "monolithic": {},
    "monolithic-cold": {"config": {"cold": {"url": "s3://b/p", "s3_endpoint": "http://127.0.0.1:9"}},
                        "monolithic": {"restore": True}, "secrets": {"coldCredentials": "key\nsecret\n"}},
    "monolithic-tls": {"tls": {"secretName": "t", "clientCA": True}, "fullnameOverride": "prof"},
    "distributed": {"mode": "distributed", "cluster": LIST},
    "distributed-all": {
        "mode": "distributed", "cluster": LIST, "tls": {"secretName": "t", "only": True},
        "ingress": {"enabled": True, "className": "nginx", "hosts": [{"host": "p.example.com"}]},
        "serviceMonitor": {"enabled": True, "labels": {"team": "obs"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prom"}}, "commonLabels": {"team": "obs"},
        "serviceAccount": {"discovery": True}, "config": {"cluster": {"shards": 24}},
        "files": {"overrides": {"defaults": {"max_series_per_tenant": 1000000}},
                  "retention": "tenant=a 10s=2d\n", "scrape": {"scrape_configs": []}},
        "secrets": {"tokens": {"users": {}}, "clusterKeys": KEYS, "writeId": "0123456789abcdef0123456789abcdef"},
        "ingester": {"replicas": 2, "zones": [
            {"name": z, "nodeSelector": {"topology.kubernetes.io/zone": "eu-1" + z}} for z in "abc"]},
        "distributor": {"persistence": {"enabled": True}, "replicas": 3, "preStopSeconds": 20,
                        "extraArgs": ["--log.level=debug"]},
        "compactor": {"tolerations": [{"operator": "Exists"}]}},
    "distributed-no-disk": {"mode": "distributed", "cluster": LIST, "ingester": {"persistence": {"enabled": False}},
                            "config": {"shutdown": {"deadline": "2m"}}},
    "distributed-etcd": {
        "mode": "distributed", "cluster": {"shards": 6}, "ingester": {"replicas": 1, "zones": [{"name": z} for z in "abc"]}},
    "distributed-etcd-there": {
        "mode": "distributed", "ingester": {"replicas": 4}, "cluster": {"etcd": {
            "endpoints": ["https://e1:2379", "https://e2:2379"], "prefix": "/p", "tlsSecret": "t",
            "clientCert": True, "user": "u", "passwordSecret": "t"}}},
}


HELM = helm_bed.helm_path()
ETCD = {"mode": "distributed"}


def helm(*arguments, values=None, check=True):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(values or {}, f)
        f.flush()
        r = subprocess.run([HELM, *arguments, "--values", f.name], capture_output=True, text=True)
    assert not check or r.returncode == 0, (arguments, r.stderr)
    return r


def template(values, check=True, there=()):
    """As `helm install` renders it where these objects are there already; None: without any cluster."""
    words = ["template", "r", str(CHART), "--namespace", "profiling", "--kube-version", "1.31.0"]
    if there is None:
        return helm(*words, values=values, check=check)
    with helm_bed.Kube(there) as kube:
        return helm(*words, *kube.flags, values=values, check=check)


def rendered(values, there=()):
    return [m for m in load_yaml_all(template(values, there=there).stdout) if m]


@functools.cache
def _manifests(name):
    return rendered(VARIANTS[name])


def manifests(name):
    return copy.deepcopy(_manifests(name))


def of_kind(objects, *kinds):
    return [m for m in objects if m["kind"] in kinds]


def component(workload):
    return workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]


def workloads(objects):
    """Of the roles."""
    return [w for w in of_kind(objects, "StatefulSet", "Deployment") if component(w) != "etcd"]


def etcd_of(objects):
    (one,) = [w for w in of_kind(objects, "StatefulSet") if component(w) == "etcd"]
    return one


def container(workload):
    return workload["spec"]["template"]["spec"]["containers"][0]


def by_name(objects, kind, name):
    found = [m for m in of_kind(objects, kind) if m["metadata"]["name"] == name]
    assert len(found) == 1, (kind, name, len(found))
    return found[0]


def config_file(objects, workload):
    volumes = {v["name"]: v for v in workload["spec"]["template"]["spec"]["volumes"]}
    return by_name(objects, "ConfigMap", volumes["config"]["configMap"]["name"])["data"]["embertree.yaml"]


def binary_of(workload):
    path = pathlib.PurePath(container(workload)["command"][0])
    assert path.parent == pathlib.PurePath("/usr/bin"), path
    return path.name


def print_config(binary, *arguments):
    r = subprocess.run([cluster.BIN / binary, *arguments, "--print-config"], capture_output=True, text=True)
    assert r.returncode == 0, (binary, arguments, r.stderr)
    return r.stdout


# ---- without helm -----------------------------------------------------------------------------------

def test_generated_files_are_fresh():
    """Every option of every binary stands in the schema and in the chart's README."""
    r = subprocess.run([sys.executable, DEPLOY / "generate", "--check", cluster.BIN], capture_output=True,
                       text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    schema = json.loads((CHART / "values.schema.json").read_text())
    reference = (cluster.ROOT / "deploy" / "config" / "REFERENCE.md").read_text()
    options = re.findall(r"^\| `(\w+)\.(\w+)` \|", reference, re.M)
    assert len(options) > 100, len(options)
    readme = (CHART / "README.md").read_text()
    for section, name in options:
        assert name in schema["definitions"][section]["properties"], (section, name)
        assert f"| `config.{section}.{name}` |" in readme, (section, name)


def test_templates_are_balanced():
    """What can be said without helm: every block is closed, every name that is included is defined."""
    defined, included = set(), set()
    for path in sorted((CHART / "templates").rglob("*")):
        if not path.is_file():
            continue
        text = path.read_text()
        assert "{{" not in re.sub(r"\{\{.*?\}\}", "", text, flags=re.S), path
        actions = re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", text, re.S)
        opens = sum(re.match(r"(if|range|with|define)\b", a) is not None for a in actions)
        assert opens == sum(a == "end" for a in actions), path
        defined |= set(re.findall(r'define "([^"]+)"', text))
        included |= set(re.findall(r'include "([^"]+)"', text))
    assert included == defined, included ^ defined


def check_rules(spec):
    """What the operator's schema wants of a PrometheusRule."""
    (group,) = spec["groups"]
    assert spec.keys() == {"groups"} and group.keys() == {"name", "rules"} and len(group["rules"]) > 10, spec
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert isinstance(rule["expr"], str) and re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s")), rule
        assert rule["labels"]["severity"] in ("page", "ticket"), rule
        assert all(isinstance(text, str) for text in rule["annotations"].values()), rule
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names), names


def test_alerts_are_those_of_the_repository():
    """Their template puts the file in as it is, so what holds of the file holds of the object."""
    check_rules(load_yaml((CHART / "files" / "alerts.yaml").read_text()))
    text = (cluster.ROOT / "deploy" / "config" / "alerts.yaml").read_text()
    assert (CHART / "files" / "alerts.yaml").read_text() == text, "stale: run deploy/helm/generate"
    template_ = (CHART / "templates" / "rules.yaml").read_text()
    assert template_.count('spec:\n  {{- .Files.Get "files/alerts.yaml" | nindent 2 }}\n') == 1, template_
    values = load_yaml((CHART / "values.yaml").read_text())
    assert values["prometheusRule"] == {"enabled": False, "labels": {}}, values["prometheusRule"]


# ---- with helm --------------------------------------------------------------------------------------

def test_lint():
    for name, values in VARIANTS.items():
        r = helm("lint", "--strict", str(CHART), values=values)
        assert "0 chart(s) failed" in r.stdout, (name, r.stdout)


def test_kubernetes_knows_every_field():
    """Kubernetes and the Prometheus operator accept each object; no object has a field they do not know."""
    folder = helm_bed.packages()
    if not folder or not shutil.which("node"):
        assert not os.environ.get("CI"), "no packages of npm or no node, and CI does not skip"
        print("SKIPPED: strict decoding: npm or node is not to be had", flush=True)
        return

    def strict(objects):
        return subprocess.run(["node", folder / "strict.cjs"], input=json.dumps(objects), capture_output=True, text=True)

    for name in VARIANTS:
        r = strict(manifests(name))
        assert r.returncode == 0 and int(r.stdout) == len(manifests(name)), (name, r.stdout, r.stderr)
    for right, wrong in (('"readinessProbe"', '"readynessProbe"'), ('"fsGroup": 10001', '"fsGroup": "ten"'),
                         ('"apps/v1"', '"apps/v2"'), ('"containerPort": 4040', '"containerPort": 4040, "colour": 1')):
        text = json.dumps(manifests("monolithic"))
        assert right in text, right
        r = strict(json.loads(text.replace(right, wrong)))
        assert r.returncode == 1 and r.stderr, (wrong, r)


def check_pod(name, objects, workload):
    what = (name, workload["metadata"]["name"])
    template_ = workload["spec"]["template"]
    pod, one = template_["spec"], container(workload)
    selector = workload["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template_["metadata"]["labels"].items(), what
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["fsGroup"] == 10001, what
    assert one["securityContext"]["readOnlyRootFilesystem"], what
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}, what
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert {"httpGet", "exec", "tcpSocket"} & one[probe].keys(), (what, probe)
    claims = [c["metadata"]["name"] for c in workload["spec"].get("volumeClaimTemplates", [])]
    volumes = [v["name"] for v in pod["volumes"]] + claims
    assert len(set(volumes)) == len(volumes), (what, volumes)
    assert {m["name"] for m in one["volumeMounts"]} == set(volumes), (what, volumes)
    for volume in pod["volumes"]:
        if "configMap" in volume:
            by_name(objects, "ConfigMap", volume["configMap"]["name"])
        if volume.get("secret", {}).get("secretName", "t") != "t":
            by_name(objects, "Secret", volume["secret"]["secretName"])
    # Time to go: the pause before, the drain's deadline, some to spare.
    pause = 0
    if "lifecycle" in one:
        command = one["lifecycle"]["preStop"]["exec"]["command"]
        assert command[0] == "sleep", (what, command)
        pause = int(command[1])
    deadline = load_yaml(config_file(objects, workload)).get("shutdown", {}).get("deadline", "30s")
    seconds = {"30s": 30, "2m": 120}[deadline]
    assert pod["terminationGracePeriodSeconds"] >= pause + seconds + 10, what


def test_rules_of_alerting():
    assert not of_kind(manifests("distributed"), "PrometheusRule", "ServiceMonitor")
    (one,) = of_kind(manifests("distributed-all"), "PrometheusRule")
    want = load_yaml((cluster.ROOT / "deploy" / "config" / "alerts.yaml").read_text())
    assert one["spec"] == want, one["spec"]
    check_rules(one["spec"])
    assert one["metadata"]["labels"]["release"] == "prom" and one["metadata"]["labels"]["team"] == "obs", one


def test_manifests_fit_together():
    for name in VARIANTS:
        objects = manifests(name)
        names = [(m["kind"], m["metadata"]["name"]) for m in objects]
        assert len(set(names)) == len(names), (name, sorted(names))
        pods = [w["spec"]["template"]["metadata"]["labels"]
                for w in of_kind(objects, "StatefulSet", "Deployment")]
        for w in workloads(objects):
            check_pod(name, objects, w)
            if w["kind"] == "StatefulSet":
                headless = by_name(objects, "Service", w["spec"]["serviceName"])
                assert headless["spec"]["clusterIP"] == "None", headless
        for m in of_kind(objects, "Service", "PodDisruptionBudget"):
            selector = m["spec"]["selector"].get("matchLabels", m["spec"]["selector"])
            chosen = [p for p in pods if selector.items() <= p.items()]
            assert chosen, (name, m["metadata"]["name"], selector)
            assert len({p["app.kubernetes.io/component"] for p in chosen}) == 1, (name, m)
        for m in of_kind(objects, "Ingress"):
            for path in m["spec"]["rules"][0]["http"]["paths"]:
                by_name(objects, "Service", path["backend"]["service"]["name"])


def test_every_option_goes_through():
    """`config` with every option, each at its default: what the binaries read is what they have
    without a file, number by number."""
    reference = (cluster.ROOT / "deploy" / "config" / "REFERENCE.md").read_text()
    config = {}
    for line in reference.splitlines():
        row = re.match(r"\| `(\w+)\.(\w+)` \| (.*?) \| (?:`(.*?)`)? ?\|", line)
        if not row:
            continue
        section, name, kind, default = row[1], row[2], row[3], row[4] or ""
        value = (default == "true" if kind == "bool" else int(default) if kind == "number" else
                 [v for v in default.split(",") if v] if kind == "a,b,..." else default)
        config.setdefault(section, {})[name] = value
    for mode in ("monolithic", "distributed"):
        objects = rendered({"mode": mode, "config": config} | ({"cluster": LIST} if mode != "monolithic" else {}))
        for w in workloads(objects):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
                f.write(config_file(objects, w))
                f.flush()
                got = print_config(binary_of(w), f"--config={f.name}")
            assert got == print_config(binary_of(w)), (w["metadata"]["name"], got)


def test_wrong_values_are_refused():
    for values, word in [
            ({"config": {"ingester": {"seal_dely": "1m"}}}, "seal_dely"),
            ({"config": {"cluster": {"shards": 0}}}, "shards"),
            ({"config": {"cluster": {"shards": "many"}}}, "shards"),
            ({"config": {"log": {"level": "loud"}}}, "level"),
            ({"config": {"retention": {"10s": "soon"}}}, "10s"),
            ({"querier": {"config": {"ingester": {}}}}, "ingester"),
            ({"mode": "other"}, "mode"),
            ({"replicas": 3}, "replicas"),
            ({"ports": {"rpc": 40000}}, "rpc"),
            ({"mode": "distributed", "cluster": LIST, "config": {"cluster": {"shards": 2}}}, "want 3 to 24"),
            ({"mode": "distributed", "cluster": LIST, "config": {"cluster": {"shards": 25}}}, "want 3 to 24"),
            ({"config": {"cold": {"url": "s3://b/p"}}}, "secrets.coldCredentialsExisting"),
            ({"mode": "distributed", "config": {"cold": {"url": "s3://b/p"}}}, "secrets.coldCredentialsExisting"),
            (ETCD | {"etcd": {"tls": {"existing": "t"}}}, "etcd.tls.clientExisting"),
            ({"cluster": {"coordination": "raft"}}, "coordination"),
            ({"etcd": {"replicas": 2}}, "replicas"),
            (ETCD | {"config": {"cluster": {"replicas": 4}}}, "4 for 3 ingesters"),
            (ETCD | {"config": {"cluster": {"shards": 33}}}, "more than 32"),
            (ETCD | {"ingester": {"persistence": {"enabled": False}}}, "persistence"),
            ({"mode": "distributed", "cluster": LIST, "config": {"cluster": {"coordination": "etcd"}}}, "set cluster.coordination"),
            ({"mode": "distributed", "clusterDomain": "x" * 90}, "at most 127")]:
        r = template(values, check=False)
        assert r.returncode != 0 and word in r.stderr, (values, r.stdout[:200], r.stderr)


def test_rules_for_zones_and_updates():
    objects = manifests("distributed-all")
    sets = [w for w in of_kind(objects, "StatefulSet") if "ingester" in w["metadata"]["name"]]
    assert [s["metadata"]["name"] for s in sets] == [f"r-embertree-ingester-{z}" for z in "abc"]
    for s, zone in zip(sets, "abc"):
        # Kubernetes would update all three at once.
        assert s["spec"]["updateStrategy"] == {"type": "OnDelete"} and s["spec"]["replicas"] == 2
        selector = s["spec"]["template"]["spec"]["nodeSelector"]
        assert selector == {"topology.kubernetes.io/zone": "eu-1" + zone}, selector
    # One budget over all zones.
    assert len([m for m in of_kind(objects, "PodDisruptionBudget") if "ingester" in m["metadata"]["name"]]) == 1
    everywhere = {json.dumps(load_yaml(config_file(objects, w))["cluster"]) for w in workloads(objects)}
    assert len(everywhere) == 1, everywhere
    listed = json.loads(everywhere.pop())["ingesters"]
    assert len(listed) == 6 and len(set(listed)) == 6, listed
    single = [w for w in of_kind(manifests("distributed"), "StatefulSet")]
    assert [w["spec"]["updateStrategy"]["type"] for w in single] == ["RollingUpdate"]


def test_rules_for_copies():
    """Leaders are read from etcd at the names of its pods; an ingester has a node name and a zone of its own."""
    objects = manifests("distributed-etcd")
    etcd = etcd_of(objects)
    pods = [f"r-embertree-etcd-{i}" for i in range(etcd["spec"]["replicas"])]
    where = [f"{p}.{etcd['spec']['serviceName']}.profiling.svc.cluster.local" for p in pods]
    assert len(pods) == 3 and by_name(objects, "Service", etcd["spec"]["serviceName"])["spec"][
        "publishNotReadyAddresses"]
    assert f"--initial-cluster={','.join(f'{p}=https://{w}:2380' for p, w in zip(pods, where))}" in container(
        etcd)["args"]
    for w in workloads(objects):
        told = load_yaml(config_file(objects, w))["cluster"]
        assert told["coordination"] == "etcd" and told["etcd"] == [f"https://{w}:2379" for w in where], told
        assert told["etcd_prefix"] == "/embertree/profiling/r-embertree" and told["replicas"] == 3, told
        assert told["shards"] == 6 and "ingesters" not in told, told
        own = [a for a in container(w)["args"] if a.startswith("--cluster.")]
        zone = w["metadata"]["name"][-1]
        want = ["--cluster.node=$(POD_NAME)", f"--cluster.zone={zone}"] if component(w) == "ingester" else []
        assert own == want, own
    (policy,) = of_kind(objects, "NetworkPolicy")
    to_etcd = [r for r in policy["spec"]["ingress"] if {"port": "etcd", "protocol": "TCP"} in r["ports"]]
    assert len(to_etcd) == 1 and to_etcd[0]["from"], policy
    # More ingesters change nothing that the other pods are started with.
    more = VARIANTS["distributed-etcd"] | {"ingester": {"replicas": 2, "zones": [{"name": z} for z in "abc"]}}
    grown = rendered(more)
    for before, after in zip(workloads(objects), workloads(grown)):
        assert before["spec"]["template"] == after["spec"]["template"], before["metadata"]["name"]
    there = manifests("distributed-etcd-there")
    assert not [w for w in of_kind(there, "StatefulSet") if component(w) == "etcd"]
    for w in workloads(there):
        told = load_yaml(config_file(there, w))["cluster"]
        folders = {m["mountPath"] for m in container(w)["volumeMounts"]}
        for key, name in (("etcd_ca", "ca.crt"), ("etcd_cert", "tls.crt"), ("etcd_key", "tls.key")):
            assert told[key] == f"/etc/embertree/etcd-tls/{name}", told
        assert told["etcd_password_file"] == "/etc/embertree/etcd-password/password", told
        assert told["etcd_user"] == "u" and told["etcd_prefix"] == "/p", told
        assert {"/etc/embertree/etcd-tls", "/etc/embertree/etcd-password"} <= folders, folders


def test_cold_tier():
    """Only who stores has the credentials, as a file; a restore has all that its process has."""
    objects = manifests("monolithic-cold")
    (w,) = workloads(objects)
    told = load_yaml(config_file(objects, w))["cold"]
    assert told == {"url": "s3://b/p", "s3_endpoint": "http://127.0.0.1:9",
                    "s3_credentials_file": "/etc/embertree/cold/credentials"}, told
    secret = by_name(objects, "Secret", "r-embertree-cold")["data"]["credentials"]
    assert base64.b64decode(secret) == b"key\nsecret\n"
    (first,) = w["spec"]["template"]["spec"]["initContainers"]
    assert first["command"] == ["/usr/bin/embertree", "restore"], first
    assert first["volumeMounts"] == container(w)["volumeMounts"], first
    assert "initContainers" not in workloads(manifests("monolithic"))[0]["spec"]["template"]["spec"]
    more = VARIANTS["monolithic-cold"] | {"mode": "distributed"}
    for w in workloads(rendered(more)):
        has = "cold" in [v["name"] for v in w["spec"]["template"]["spec"]["volumes"]]
        assert has == (component(w) == "ingester"), w["metadata"]["name"]


def test_restore_works():
    """A process of the chart backs up into a folder; without its volume, the init container's words
    and then the pod's bring all of it back."""
    folder = tempfile.TemporaryDirectory(prefix="embertree-test-")
    values = {"config": {"cold": {"url": f"dir:{folder.name}/cold", "backup_interval": "1s", "interval": "1s"}},
              "monolithic": {"restore": True}}
    objects = rendered(values)
    (w,) = workloads(objects)
    (first,) = w["spec"]["template"]["spec"]["initContainers"]
    with folder, Pods(objects) as pods:
        (p,) = pods.processes
        check_works([p], [p])
        done = p.metric("embertree_cold_backups_total")
        until = time.monotonic() + 60
        while p.metric("embertree_cold_backups_total") < done + 2:  # the next but one began after the push
            assert time.monotonic() < until, p.tail()
            time.sleep(0.1)
        assert p.stop() == 0
        shutil.rmtree(p.folder / "data")
        said = subprocess.run([str(cluster.BIN / "embertree"), "restore", f"--config={p.folder / 'embertree.yaml'}",
                               f"--data.dir={p.folder / 'data'}"], capture_output=True, text=True)
        assert first["args"] == ["--config=/etc/embertree/config/embertree.yaml"] and said.returncode == 0, said
        p.start()
        r = p.get("/pyroscope/render", query=cluster.CPU_TYPE + '{service_name="shop"}', from_="now-1h",
                  until="now", format="json")
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 10_000_000, r


# ---- what a release remembers -----------------------------------------------------------------------

def made(objects):
    """Of a rendering, what a cluster would remember of it."""
    return [m for m in objects if m["kind"] in ("Secret", "ConfigMap") or
            m["kind"] == "StatefulSet" and component(m) == "etcd"]


def test_secrets_are_made_once():
    """At the first install; every later rendering finds and keeps them. Where nothing can be looked up
    nothing is made, and the text names what to give."""
    for values, want in (({}, {"r-embertree-write-id", "r-embertree-admin"}),
                         (ETCD, {"r-embertree-write-id", "r-embertree-admin", "r-embertree-cluster-keys",
                                 "r-embertree-etcd-server", "r-embertree-etcd-client"})):
        first = rendered(values)
        secrets = {m["metadata"]["name"]: m["data"] for m in of_kind(first, "Secret")}
        assert secrets.keys() == want, secrets.keys()
        again = rendered(values, there=made(first))
        assert {m["metadata"]["name"]: m["data"] for m in of_kind(again, "Secret")} == secrets
        other = {m["metadata"]["name"]: m["data"] for m in of_kind(rendered(values), "Secret")}
        assert all(other[name] != secrets[name] for name in secrets), other.keys()
    keys = base64.b64decode(secrets["r-embertree-cluster-keys"]["cluster-keys"]).decode()
    assert re.fullmatch(r"k1: \S+\n", keys) and len(base64.b64decode(keys[4:])) == 32, keys
    # One of the two certificates' secrets was lost: both are made, by one authority.
    halved = rendered(ETCD, there=[m for m in made(first) if not m["metadata"]["name"].endswith("etcd-client")])
    authorities = {m["data"]["ca.crt"] for m in of_kind(halved, "Secret") if "ca.crt" in m["data"]}
    assert len(authorities) == 1 and authorities != {secrets["r-embertree-etcd-server"]["ca.crt"]}

    r = template(ETCD, there=None, check=False)
    for name in ("writeIdExisting", "adminTokenExisting", "clusterKeysExisting", "etcd.tls.existing"):
        assert r.returncode != 0 and name in r.stderr, (name, r.stderr)
    named = {"secrets": {"writeIdExisting": "a", "adminTokenExisting": "b", "clusterKeysExisting": "c"},
             "etcd": {"tls": {"existing": "d", "clientExisting": "e"}}}
    for values in (ETCD | named, {"secrets": {"writeId": "w" * 32, "adminToken": "t" * 32}}):
        assert template(values, there=None).stdout == template(values, there=None).stdout
    used = json.dumps([w["spec"]["template"]["spec"]["volumes"] for w in of_kind(
        rendered(ETCD | named), "StatefulSet", "Deployment")])
    assert all(f'"secretName": "{name}"' in used for name in "bcde") and "r-embertree-etcd-" not in used, used


def test_changes_that_would_hide_data_are_refused():
    """Each change of what is fixed when a release is made, against the objects of that release."""
    rows = [  # installed values; changed values; the text that must be said
        ({}, {"mode": "distributed"}, "set mode=monolithic|Keep mode=monolithic"),
        (ETCD, {"mode": "monolithic"}, "Set mode=distributed"),
        (ETCD, {"cluster": LIST}, "Set cluster.coordination=etcd"),
        (ETCD, {"cluster": {"shards": 24}}, "set cluster.shards=12"),
        (ETCD, {"cluster": {"replicas": 1}}, "set cluster.replicas=3"),
        (ETCD, {"config": {"cluster": {"shards": 13}}}, "set cluster.shards=12"),
        (ETCD, {"cluster": {"etcd": {"prefix": "/other"}}}, "set cluster.etcd.prefix=/embertree/profiling/r-embertree"),
        (ETCD, {"etcd": {"replicas": 5}}, "set etcd.replicas=3"),
        (ETCD, {"etcd": {"tls": {"enabled": False}}}, "Set etcd.tls.enabled=true"),
        (ETCD | {"etcd": {"tls": {"enabled": False}}}, {"etcd": {"tls": {"enabled": True}}}, "Set etcd.tls.enabled=false"),
        (ETCD | {"cluster": LIST}, {"cluster": {"coordination": "etcd"}}, "Set cluster.coordination=list"),
        (ETCD | {"cluster": LIST}, {"ingester": {"replicas": 4}}, "ingester.replicas"),
        (ETCD | {"cluster": LIST}, {"ports": {"rpc": 9999}}, "ports.rpc"),
        (ETCD | {"cluster": LIST}, {"config": {"cluster": {"shards": 6}}}, "set config.cluster.shards=3"),
    ]
    for was, change, words in rows:
        there = made(rendered(was))
        same = template(was, there=there, check=False)
        assert same.returncode == 0, (was, same.stderr)
        r = template(was | change, there=there, check=False)
        assert r.returncode != 0 and any(w in r.stderr for w in words.split("|")), (was, change, r.stderr, r.stdout[:300])
    # Values that may change do so, and the objects of another release are not compared.
    there = made(rendered(ETCD))
    assert template(ETCD | {"ingester": {"replicas": 5}}, there=there).returncode == 0
    for m in there:
        if m["kind"] == "ConfigMap":
            m["metadata"]["labels"]["app.kubernetes.io/instance"] = "other"
    assert template({}, there=there).returncode == 0


def test_keys_come_in_two_updates():
    """A release that ran without keys first takes them beside pods that have none, then only them."""
    first = rendered(ETCD)
    before = [m for m in copy.deepcopy(made(first)) if "cluster-keys" not in m["metadata"]["name"]]
    for m in of_kind(before, "ConfigMap"):
        m["data"]["embertree.yaml"] = re.sub(r"  key_file: .*\n?", "", m["data"]["embertree.yaml"])
    for there, optional in ((before, True), (made(first), None)):
        for w in workloads(objects := rendered(ETCD, there=there)):
            told = load_yaml(config_file(objects, w))["cluster"]
            assert told["key_file"] == "/etc/embertree/keys/cluster-keys", told
            assert told.get("key_optional") == optional, (optional, told)


def test_defaults_are_safe():
    """What a values file leaves out: three copies, keys, certificates, ports closed to unauthenticated peers."""
    objects = rendered(ETCD)
    for w in workloads(objects):
        told = load_yaml(config_file(objects, w))["cluster"]
        assert told["replicas"] == 3 and told["coordination"] == "etcd" and told["key_file"], told
        assert all(url.startswith("https://") for url in told["etcd"]) and told["etcd_cert"], told
    (policy,) = of_kind(objects, "NetworkPolicy")
    for rule in policy["spec"]["ingress"]:
        ports = {p["port"] for p in rule["ports"]}
        assert ports <= {"http", "etcd-metrics"} or rule["from"], rule
    args = container(etcd_of(objects))["args"]
    assert {"--client-cert-auth", "--peer-client-cert-auth", "--peer-cert-allowed-cn=etcd"} <= set(args), args
    assert not [a for a in args if "http://" in a and "metrics" not in a], args



class Pods:
    """The pods of some manifests as processes on loopback: their commands, their arguments, their
    files; only addresses and folders are of this machine."""

    def __init__(self, objects, more=()):
        self.objects, self.more = objects, more
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="embertree-test-"))
        self.http, self.addresses, self.processes, self.etcds = {}, {}, [], []
        for w in [w for w in of_kind(objects, "StatefulSet") if component(w) == "etcd"]:
            self.etcds = [f"{w['metadata']['name']}-{i}" for i in range(w["spec"]["replicas"])]
            for pod in self.etcds:
                for port in (2379, 2380):
                    there = f"https://{pod}.{w['spec']['serviceName']}.profiling.svc.cluster.local:{port}"
                    self.addresses[there] = f"https://127.0.0.1:{cluster.free_port()}"
        for w in workloads(objects):
            for i in range(w["spec"]["replicas"]):
                self.http[w["metadata"]["name"], i] = cluster.free_port()
                if w["kind"] == "StatefulSet":
                    pod = f"{w['metadata']['name']}-{i}"
                    where = f"tcp://{pod}.{w['spec']['serviceName']}.profiling.svc.cluster.local:9095"
                    self.addresses[where] = f"tcp://127.0.0.1:{cluster.free_port()}"

    def here(self, text, env):
        for name, value in env.items():
            text = text.replace(f"$({name})", value)
        for there, here in self.addresses.items():
            text = text.replace(there, here)
        return text.replace("/etc/etcd-tls/", f"{self.folder}/etcd-server/").replace("/etc/embertree/", f"{self.folder}/etc/")

    def environment(self, workload, i):
        env = {"POD_NAME": f"{workload['metadata']['name']}-{i}", "POD_IP": "127.0.0.1", "POD_INDEX": str(i)}
        for row in container(workload)["env"]:
            if "value" in row:
                env[row["name"]] = row["value"]
                continue
            ref = row["valueFrom"].get("secretKeyRef")
            if ref:
                secret = by_name(self.objects, "Secret", ref["name"])["data"][ref["key"]]
                env[row["name"]] = base64.b64decode(secret).decode()
            else:
                assert row["name"] in env, row
        return env

    def process(self, workload, i):
        env = self.environment(workload, i)
        binary, home = binary_of(workload), self.folder / env["POD_NAME"]
        home.mkdir()
        config = home / "embertree.yaml"
        config.write_text(self.here(config_file(self.objects, workload), env))
        arguments = [self.here(a, env) for a in container(workload)["args"]]
        assert arguments[0].startswith("--config="), arguments
        arguments[0] = f"--config={config}"
        role = binary.rpartition("-")[2]
        # Pods have an address each, processes here share one.
        rpc = [a for a in arguments if a.startswith("--ingester.advertise=")]
        listen = rpc[0].partition("=")[2] if rpc else f"tcp://127.0.0.1:{cluster.free_port()}"
        last = [f"--{role}.listen={listen}"] if role in ROLES else []
        return cluster.Process(binary, *arguments, f"--http.listen=127.0.0.1:{self.http[env['POD_NAME'][:-2], i]}",
                               f"--data.dir={home / 'data'}", *last, *self.more, folder=home,
                               http_port=self.http[env["POD_NAME"][:-2], i])

    def secrets(self):
        """Their files, as the pods have them."""
        for end, folder in (("server", "etcd-server"), ("client", "etc/etcd-tls")):
            for m in of_kind(self.objects, "Secret"):
                if m["metadata"]["name"].endswith("-etcd-" + end):
                    (self.folder / folder).mkdir(parents=True)
                    for name, data in m["data"].items():
                        (self.folder / folder / name).write_bytes(base64.b64decode(data))
                        (self.folder / folder / name).chmod(0o440)
        for m in of_kind(self.objects, "Secret"):
            for folder, name in (("admin", "admin-token"), ("tokens", "tokens.yaml"), ("keys", "cluster-keys"), ("write-id", "write-id")):
                if name in m["data"]:
                    path = self.folder / "etc" / folder / name
                    path.parent.mkdir(parents=True)
                    path.write_bytes(base64.b64decode(m["data"][name]))
                    path.chmod(0o440)

    def inside(self, workload, i, *command):
        """Runs a command that an operator types inside a pod."""
        env = self.environment(workload, i)
        url = env["EMBERTREE_URL"].replace(":4040", f":{self.http[workload['metadata']['name'], i]}")
        return subprocess.run(
            [str(cluster.BIN / command[0]), *command[1:]], capture_output=True, text=True, timeout=60,
            env=os.environ | {"EMBERTREE_URL": url, "EMBERTREE_TOKEN_FILE": self.here(env["EMBERTREE_TOKEN_FILE"], {})})

    def admin(self, process, path):
        (secret,) = [m for m in of_kind(self.objects, "Secret") if "admin-token" in m["data"]]
        token = base64.b64decode(secret["data"]["admin-token"]).decode()
        assert len(token) >= 16 and process.get(path).status == 401, path
        return process.request("GET", path, headers={"Authorization": f"Bearer {token}"})

    def start_etcd(self):
        """Debian's, with the arguments of its pods."""
        self.children = []
        for pod in self.etcds:
            env = {"POD_NAME": pod}
            arguments = [self.here(a, env).replace("=/data/", f"={self.folder}/{pod}/")
                         for a in container(etcd_of(self.objects))["args"]]
            for what in ("client", "peer"):  # pods have an address each, processes here share one
                (url,) = [a.partition("=")[2] for a in arguments
                          if a.startswith(("--advertise-" if what == "client" else "--initial-advertise-") + what)]
                arguments = [f"--listen-{what}-urls={url}" if a.startswith(f"--listen-{what}") else a
                             for a in arguments if not a.startswith("--listen-metrics")]
            with open(self.folder / f"{pod}.log", "wb") as out:
                self.children.append(subprocess.Popen(["etcd", *arguments], stdout=out, stderr=out))

    def __enter__(self):
        if self.etcds:
            self.start_etcd()
        for m in of_kind(self.objects, "ConfigMap"):
            if m["metadata"]["name"].endswith("-files"):
                (self.folder / "etc" / "files").mkdir(parents=True)
                for name, text in m["data"].items():
                    (self.folder / "etc" / "files" / name).write_text(text)
        self.secrets()
        with cluster.ended_unless_started(self):
            for w in workloads(self.objects):
                for i in range(w["spec"]["replicas"]):
                    self.processes.append(self.process(w, i))
                    self.processes[-1].start(wait=False)
            for p in self.processes:
                p.wait_ready()
        return self

    def of(self, role):
        return [p for p in self.processes if p.binary.endswith(role)]

    def __exit__(self, kind, *_):
        for p in self.processes:
            if kind:
                print(f"log of {p.binary} ({p.folder.name}):\n{p.tail(10)}", flush=True)
            p.cleanup()
        for child in getattr(self, "children", []):
            child.kill()
            child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def check_works(writers, readers):
    for i, writer in enumerate(writers):
        r = writer.post("/ingest", b"main;work %d\n" % (i + 1), name="shop.cpu{pod=p%d}" % i)
        assert r.status == 200, r
    want = sum(range(1, len(writers) + 1)) * 10_000_000
    for reader in readers:
        r = reader.get("/pyroscope/render", query=cluster.CPU_TYPE + '{service_name="shop"}',
                       from_="now-1h", until="now", format="json")
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == want, r


def test_pods_work_distributed():
    with Pods(manifests("distributed"), more=["--memory.limit=256MiB"]) as pods:
        assert [len(pods.of(r)) for r in ROLES] == [3, 2, 2, 1]
        check_works(pods.of("distributor"), pods.of("querier"))
        for p in reversed(pods.processes):
            assert p.stop() == 0, p.binary


def test_pods_work_with_everything():
    """Zones, files, tokens, scraping shared by index; TLS is the next test's."""
    objects = rendered(VARIANTS["distributed-all"] | {"tls": {}})
    with Pods(objects, more=["--memory.limit=256MiB"]) as pods:
        assert [len(pods.of(r)) for r in ROLES] == [6, 3, 2, 1]
        check_works(pods.of("distributor"), pods.of("querier"))
        for i, d in enumerate(pods.of("distributor")):
            config = load_yaml(pods.admin(d, "/config").body)
            assert config["distributor"]["scrape_index"] == i, config["distributor"]
            assert config["cluster"]["key_file"] == f"{pods.folder}/etc/keys/cluster-keys", config["cluster"]
            assert config["distributor"]["scrape_of"] == 3 and config["log"]["level"] == "debug", config
            limits = load_yaml(d.get("/api/v1/tenant_limits").body)
            assert limits["max_series_per_tenant"] == 1000000, limits


def check_admin(pods):
    """`kubectl exec` of embertreectl works, and nothing does without the token."""
    for w in workloads(pods.objects):
        said = pods.inside(w, 0, "embertreectl", "cluster", "status")
        assert said.returncode < 2 and "12 shards" not in said.stderr and "leader" in said.stdout, said
    node = pods.of("ingester")[0].folder.name
    for what in ("drain", "undrain"):
        assert pods.of("querier")[0].post(f"/api/v1/cluster/nodes/{node}/{what}", b"").status == 401
        said = pods.inside(w, 0, "embertreectl", "cluster", what, node)
        # Three are needed for three copies: the last of them cannot go.
        assert said.returncode in (0, 2) and "401" not in said.stderr, said


def test_pods_work_with_copies():
    """The bundled etcd and ingesters of three zones; one of each is lost, nothing with it."""
    if not shutil.which("etcd"):
        print("SKIPPED: pods with copies: etcd-server is not installed", flush=True)
        return
    with Pods(manifests("distributed-etcd"), more=["--memory.limit=256MiB"]) as pods:
        assert [len(pods.of(r)) for r in ROLES] == [3, 2, 2, 1] and len(pods.children) == 3
        check_works(pods.of("distributor"), pods.of("querier"))
        ring = pods.admin(pods.of("ingester")[0], "/ring").json()["roles"]["ingester"]
        assert len(ring["replicas"]) == 6, ring
        check_admin(pods)
        lost = pods.of("ingester")[0]
        pods.children[0].kill()
        lost.kill()
        r = pods.of("distributor")[0].post("/ingest", b"main;more 5\n", name="shop.cpu{pod=p9}")
        assert r.status == 200, r
        r = pods.of("querier")[0].get("/pyroscope/render", query=cluster.CPU_TYPE + '{service_name="shop"}',
                                      from_="now-1h", until="now", format="json")
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 80_000_000, r
        for p in reversed([p for p in pods.processes if p is not lost]):
            assert p.stop() == 0, (p.binary, p.tail())


def test_pod_and_probes_work_behind_tls():
    """Clients need a certificate: the probes show the server's own."""
    objects = manifests("monolithic-tls")
    pods = Pods(objects)
    pods.secrets()
    certs = bed.certificates(pods.folder / "etc" / "tls")
    # Signed for both ends, as certificate managers do it.
    (certs / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                               "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
    bed.openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
                "-set_serial", "7", "-extfile", "ext", "-out", "tls.crt", cwd=certs)
    (certs / "key.pem").rename(certs / "tls.key")
    (certs / "ca.pem").rename(certs / "ca.crt")
    try:
        (workload,) = workloads(objects)
        p = pods.process(workload, 0)
        pods.processes.append(p)
        p.start(wait=False)
        probe = container(workload)["readinessProbe"]["exec"]["command"]
        command = [str(cluster.BIN / probe[0])] + [
            pods.here(a, {}).replace(":4040", f":{p.port}") for a in probe[1:]]
        r = None
        for _ in range(100):
            r = subprocess.run(command, capture_output=True, text=True, timeout=20)
            if r.returncode == 0:
                break
        assert r.returncode == 0, (command, r, p.tail())
        bare = [a for a in command if not a.startswith("--tls-")]
        assert subprocess.run(bare, capture_output=True, timeout=20).returncode != 0
    finally:
        pods.__exit__(None)


def test_ingress_sends_pushes_to_distributors():
    """Every path that only distributors serve is in their list."""
    paths = (CHART / "files" / "distributor-paths.txt").read_text().split()
    (ingress,) = of_kind(manifests("distributed-all"), "Ingress")
    rules = {p["path"]: p["backend"]["service"]["name"] for p in ingress["spec"]["rules"][0]["http"]["paths"]}
    assert rules == {p: "r-embertree-distributor" for p in paths} | {"/": "r-embertree-querier"}, rules
    folder = tempfile.TemporaryDirectory(prefix="embertree-test-")
    files = pathlib.Path(folder.name)
    (files / "scrape.yaml").write_text("scrape_configs: []\n")
    (files / "forward.yaml").write_text("targets: {a: {url: 'http://127.0.0.1:9'}}\n")
    with folder, cluster.FourProcesses(distributor=[
            f"--distributor.scrape-config-file={files / 'scrape.yaml'}",
            f"--distributor.forward-config-file={files / 'forward.yaml'}"]) as server:
        reader, writer = server.reader, server.writer
        for path in paths:
            tried = [writer.request(m, path + tail, b"" if m == "POST" else None).status
                     for m in ("POST", "GET") for tail in ("", "/x")]
            assert set(tried) != {404}, (path, tried)
            assert {reader.request(m, path).status for m in ("POST", "GET")} <= {404, 405}, path


def printed_commands():
    """The command lines of the chart's README, before its first table."""
    head = (CHART / "README.md").read_text().partition("\n|")[0]
    return [shlex.split(line, comments=True) for line in head.splitlines() if line.startswith("    ")]


def test_the_printed_lines_work():
    """The image that the README builds and pushes is the image that the pods of its next line want."""
    lines = printed_commands()
    assert [words[:2] for words in lines[:3]] == [["make", "image"], ["helm", "install"], ["helm", "install"]], lines
    images = set()
    for words in lines:
        if words[0] == "make":
            made = subprocess.run([*words, "-n"], cwd=cluster.ROOT, capture_output=True, text=True, check=True).stdout
            (built,) = re.findall(r"docker build -f (\S+) -t (\S+) \.", made)
            assert (cluster.ROOT / built[0]).is_file(), built
            images = {built[1]}
        elif words[:2] == ["docker", "push"]:
            assert set(words[2:]) == images, words
        else:
            assert words[:2] == ["helm", "install"] and words[3] == "deploy/helm/embertree", words
            with helm_bed.Kube(()) as kube:
                r = subprocess.run([HELM, "template", *words[2:], "--namespace", "profiling", "--kube-version", "1.31.0",
                                    *kube.flags],
                                   cwd=cluster.ROOT, capture_output=True, text=True, check=True)
            wanted = set(re.findall(r"^ *image: (\S*embertree\S*)", r.stdout, re.M))
            assert wanted == images, (words, wanted, images)


def main():
    tests = [test_generated_files_are_fresh, test_templates_are_balanced, test_alerts_are_those_of_the_repository]
    if HELM:
        tests += [test_lint, test_the_printed_lines_work, test_kubernetes_knows_every_field, test_rules_of_alerting, test_manifests_fit_together,
                  test_every_option_goes_through, test_wrong_values_are_refused,
                  test_rules_for_zones_and_updates, test_rules_for_copies, test_cold_tier, test_secrets_are_made_once,
                  test_changes_that_would_hide_data_are_refused, test_keys_come_in_two_updates, test_defaults_are_safe,
                  test_restore_works,
                  test_pods_work_distributed, test_pods_work_with_everything, test_pods_work_with_copies, test_pod_and_probes_work_behind_tls,
                  test_ingress_sends_pushes_to_distributors]
    else:
        print("SKIPPED: nothing is rendered: helm is not installed (deploy/helm/README.md)", flush=True)
    cluster.main(tests)


if __name__ == "__main__":
    main()
