"""Each refusal of a start, by an option or by a file that an option names, is a refusal of check-config, in the same
words, by the all-in-one binary, the role's own and embertreectl; and all that is wrong is said at once. A start that is
refused makes nothing, not even its data folder."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

ALL = "embertree"
KEY = "k1: " + "ab" * 32 + "\n"

# Binary that is started, options ({d}: a folder of files), and what is said of them.
REFUSED = [
    (ALL, ("--http.listen=0.0.0.0:1",), "--http.insecure-open"),
    (ALL, ("--http.listen=localhost",), "is not host:port"),
    (ALL, ("--http.hosts=a b",), "http.hosts"),
    (ALL, ("--http.origins=example.org",), "http.origins"),
    (ALL, ("--http.tls-only",), "no http.tls_cert"),
    (ALL, ("--http.tls-cert={d}/none",), "need each other"),
    (ALL, ("--http.tls-cert={d}/none", "--http.tls-key={d}/none"), "{d}/none"),
    (ALL, ("--http.admin-token-file={d}/none",), "http.admin_token_file"),
    (ALL, ("--http.admin-token-file={d}/short",), "16"),
    (ALL, ("--http.admin-token-file={d}/open",), "chmod 0600"),
    (ALL, ("--cluster.key-file={d}/none",), "{d}/none"),
    (ALL, ("--cluster.key-file={d}/short",), "line 1"),
    (ALL, ("--cluster.key-file={d}/open",), "chmod 0600"),
    (ALL, ("--cluster.key-optional",), "cluster.key_optional"),
    (ALL, ("--cluster.ingesters=",), "cluster.ingesters is empty"),
    (ALL, ("--cluster.dead-after=100ms", "--cluster.heartbeat=90ms"), "two heartbeats"),
    (ALL, ("--cluster.shards=9",), "at most 8 shards"),
    (ALL, ("--cluster.coordination=static",), "--cluster.map-file"),
    (ALL, ("--cluster.coordination=static", "--cluster.map-file={d}/short"), "cluster.map_file"),
    (ALL, ("--cluster.coordination=static", "--cluster.map-file={d}/map", "--cluster.node=a b"), "is no name of a node"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd="), "cluster.etcd names 0 URLs"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd=here"), "is no URL"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd=http://h:1", "--cluster.etcd-prefix=x"), "etcd_prefix"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd=http://h:1", "--cluster.node=a b"), "is no name of a node"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd=http://h:1", "--cluster.etcd-key={d}/open"), "cluster.etcd_key"),
    (ALL, ("--cluster.coordination=etcd", "--cluster.etcd=http://h:1", "--cluster.etcd-password-file={d}/open"),
     "cluster.etcd_password_file"),
    (ALL, ("--cold.url=ftp://b/p",), "want dir:/path or s3://bucket/prefix"),
    (ALL, ("--cold.url=dir:{d}/short",), "is not a folder"),
    (ALL, ("--cold.url=s3://b/p",), "cold.s3_credentials_file"),
    (ALL, ("--cold.url=s3://bucket/p", "--cold.s3-endpoint=http://h", "--cold.s3-credentials-file={d}/short"), "{d}/short"),
    (ALL, ("--cold.url=s3://bucket/p", "--cold.s3-endpoint=http://h", "--cold.s3-credentials-file={d}/open"), "chmod 0600"),
    (ALL, ("--cold.url=s3://b%b/p", "--cold.s3-endpoint=http://h", "--cold.s3-credentials-file={d}/s3"), "is no name of a bucket"),
    (ALL, ("--cold.url=s3://bucket/p", "--cold.s3-credentials-file={d}/s3"), "endpoint of S3"),
    (ALL, ("--rollups.tenants=nonsense",), "rollups.tenants"),
    (ALL, ("--retention.overrides={d}/short",), "retention"),
    (ALL, ("--distributor.write-id-secret=abc",), "distributor.write_id_secret has 3 characters"),
    (ALL, ("--distributor.overrides-file={d}/odd.yaml",), "odd.yaml"),
    (ALL, ("--distributor.forward-config-file={d}/odd.yaml",), "odd.yaml"),
    (ALL, ("--distributor.scrape-config-file={d}/odd.yaml",), "odd.yaml"),
    (ALL, ("--distributor.tokens-file={d}/odd.yaml",), "odd.yaml"),
    (ALL, ("--distributor.tokens-file={d}/open",), "chmod 0600"),
    (ALL, ("--querier.overrides-file={d}/odd.yaml",), "odd.yaml"),
    (ALL, ("--querier.tenants=a=quries:8",), "querier.tenants"),
    (ALL, ("--log.level=x",), "log.level"),
    (ALL, ("--memory.limit=abc",), "memory.limit"),
    (ALL, ("--no.such=1",), "unknown flag"),
    (ALL, ("--config={d}/odd.yaml",), "unknown section"),
    ("ingester", ("--ingester.listen=tcp://10.9.9.9:5406",), "--cluster.key-file"),
    ("ingester", ("--ingester.listen=tcp://127.0.0.1:1",), "is not in cluster.ingesters"),
    ("ingester", ("--ingester.listen=carrier://pigeon",), "ingester.listen"),
    ("ingester", ("--ingester.listen=tcp://0.0.0.0:1", "--http.insecure-open", "--cluster.ingesters=tcp://0.0.0.0:1"),
     "advertise"),
    ("distributor", ("--distributor.listen=tcp://10.9.9.9:5406", "--cluster.ingesters=tcp://127.0.0.1:1"),
     "--cluster.key-file"),
    ("querier", ("--querier.listen=nowhere", "--cluster.ingesters=tcp://127.0.0.1:1"), "querier.listen"),
    ("compactor", ("--compactor.listen=nowhere", "--cluster.ingesters=tcp://127.0.0.1:1"), "compactor.listen"),
    ("querier", (), "can only be reached inside one process"),
    ("distributor", ("--cluster.shards=2", "--cluster.ingesters=tcp://a:1,tcp://a:1"), "twice"),
    ("distributor", ("--cluster.shards=1", "--cluster.ingesters=tcp://a:1,tcp://b:1"), "at least one shard"),
]


def run(binary, *args):
    r = subprocess.run([str(cluster.BIN / binary), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=60, check=False)
    return r.returncode, r.stdout + r.stderr


def files(folder):
    for name, text in (("short", "short\n"), ("odd.yaml", "no_such_thing: 1\n"), ("open", KEY), ("s3", "access\nsecret\n"),
                       ("map", "version: 1\nshards: 1\nreplicas: 1\nnodes: [{name: a, addr: \"tcp://h:1\"}]\n"
                               "replicas_of: [[a]]\n")):
        (folder / name).write_text(text)
    (folder / "open").chmod(0o644)


def test_each_refusal_of_a_start():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        d = pathlib.Path(temp)
        files(d)
        for role, options, says in REFUSED:
            given = [o.format(d=d) for o in options]
            says = says.format(d=d)
            binary = ALL if role == ALL else f"embertree-{role}"
            data = f"--data.dir={d}/data"
            started = [data, *given] if any("--http.listen" in o for o in given) \
                else [data, f"--http.listen=127.0.0.1:{cluster.free_port()}", *given]
            code, text = run(binary, *started)
            assert code in (1, 2) and says in text, (binary, given, code, text)
            assert not (d / "data").exists(), (binary, given)
            told = text.strip().splitlines()
            code, text = run(binary, "check-config", *given)
            assert code == 1 and says in text and "fine" not in text, (binary, given, code, text)
            for line in told:  # the same words, behind the program's name
                assert line.partition(": ")[2] in text, (given, line, text)
            if says == "can only be reached inside one process":
                continue  # right for all in one
            for other in ("embertree", "embertreectl"):
                code, text = run(other, "check-config", *given)
                assert code == 1 and says in text, (other, given, code, text)


def test_all_at_once():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as temp:
        d = pathlib.Path(temp)
        files(d)
        config = d / "all.yaml"
        config.write_text("log: {level: x}\nmemory: {limit: abc}\nno_such: {a: 1, b: [1, 2]}\n"
                          "querier: {tenants: ['a=quries:8'], nosuch: [1], queries_max: 0}\ncold: {url: 'ftp://b/p'}\n"
                          "http: {listen: '0.0.0.0:1', tls_only: true}\n")
        want = ("log.level", "memory.limit", "no_such", "querier.tenants", "nosuch", "queries_max", "cold.url",
                "http.listen", "no http.tls_cert", "--what.is=1")
        for binary in (ALL, "embertreectl"):
            code, text = run(binary, "check-config", f"--config={config}", "--what.is=1")
            assert code == 1 and all(w.lstrip("-").partition("=")[0] in text for w in want), text
            assert text.count("\n") == len(want), text
        code, text = run(ALL, f"--config={config}")  # a start says all that is wrong with the options' values
        assert code == 2 and all(w in text for w in ("log.level", "memory.limit", "no_such", "nosuch", "queries_max")), text


def test_taken_otherwise_than_said():
    """A start continues with these, and says so; check-config does, too."""
    options = ("--memory.limit=1", "--retention.10s=5d", "--retention.1m=1d", "--retention.10m=2d")
    for binary in (ALL, "embertree-ingester", "embertreectl"):
        alone = () if binary != "embertree-ingester" else ("--cluster.ingesters=tcp://127.0.0.1:1",
                                                           "--ingester.listen=tcp://127.0.0.1:1")
        code, text = run(binary, "check-config", *options, *alone)
        assert code == 0 and "memory.limit is 1 bytes" in text and "64 MiB" in text, text
        assert "retention.1m is shorter than retention.10s" in text, text
        assert "retention.10m is shorter than retention.10s" in text and text.count("warning") == 3, text
    with cluster.AllInOne("--no-selfprof.enabled", *options) as server:
        log = server.process.whole_log()
        assert "memory.limit is 1 bytes" in log and "retention.1m is shorter" in log, log


if __name__ == "__main__":
    cluster.main([test_each_refusal_of_a_start, test_all_at_once, test_taken_otherwise_than_said])
