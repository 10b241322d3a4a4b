"""What every run of a client needs: a fresh server, plain and TLS on one port, a CA of its own, and
questions about what arrived."""
import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import cluster

TENANT, TOKEN, USER, PASSWORD = "team-a", "glsa_a.b-c", "agent", "p:ss word"
SECONDS = int(os.environ.get("CLIENT_SECONDS", "16"))


def openssl(*command, cwd):
    subprocess.run(["openssl", *command], cwd=cwd, check=True, capture_output=True)


def certificates(folder):
    """A CA and a server certificate for 127.0.0.1 and localhost."""
    folder.mkdir(parents=True, exist_ok=True)
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *ec, "-days", "2", "-subj", "/CN=Embertree test CA", "-addext",
            "keyUsage=critical,keyCertSign", "-keyout", "ca.key", "-out", "ca.pem", cwd=folder)
    openssl("req", *ec, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "req.pem",
            cwd=folder)
    (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                                "basicConstraints=critical,CA:FALSE\n"
                                "extendedKeyUsage=serverAuth\n")
    openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2",
            "-set_serial", "0x" + os.urandom(8).hex(), "-extfile", "ext", "-out", "cert.pem",
            cwd=folder)
    return folder


class Bed:
    """One fresh all-in-one. Over TLS it has many tenants and the client is `TENANT` with a token;
    plain, one tenant and Basic auth."""

    def __init__(self, app, tls, certs, *more):
        self.app, self.tls, self.certs = app, tls, certs
        options = [f"--http.tls_cert={certs / 'cert.pem'}", f"--http.tls_key={certs / 'key.pem'}"]
        self.server = cluster.AllInOne(*options, *(["--tenancy.multi"] if tls else []), *more)
        self.headers = {"X-Scope-OrgID": TENANT} if tls else {}

    def __enter__(self):
        self.server.__enter__()
        self.before = self.refused()
        return self

    def __exit__(self, *exc):
        return self.server.__exit__(*exc)

    def url(self, scheme=True):
        name = f"127.0.0.1:{self.server.process.port}"
        return name if not scheme else ("https://" if self.tls else "http://") + name

    def environment(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYROSCOPE_")}
        env |= {"SERVER": self.url(), "APP": self.app, "SECONDS_TO_RUN": str(SECONDS)}
        env |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        if not self.tls:
            return env | {"BASIC_USER": USER, "BASIC_PASSWORD": PASSWORD}
        ca = str(self.certs / "ca.pem")
        return env | {"TENANT": TENANT, "BEARER": TOKEN, "CA_FILE": ca, "SSL_CERT_FILE": ca,
                      "NODE_EXTRA_CA_CERTS": ca}

    def run(self, command, **more):
        """Runs a client to its end; the CPU and wall seconds it took, and what it said."""
        log = self.server.process.folder / "client.log"
        began = time.monotonic()
        with open(log, "wb") as out:
            child = subprocess.Popen([str(c) for c in command], env=self.environment() | more,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            until = began + SECONDS + 120
            while True:
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() > until:
                    child.kill()
                    os.wait4(child.pid, 0)
                    status, usage = -1, None
                    break
                time.sleep(0.1)
        child.returncode = 0  # waited for above
        said = log.read_text(errors="replace")
        if status:
            raise AssertionError(f"the client ended with {status}:\n{said[-4000:]}")
        return usage.ru_utime + usage.ru_stime, time.monotonic() - began, said

    def refused(self):
        """{route, status: replies of class 4xx and 5xx, and what was refused before any route}."""
        found = {}
        for line in self.server.process.get("/metrics").body.decode().splitlines():
            head, _, number = line.rpartition(" ")
            if re.match(r"embertree_http_requests_total\{.*status=\"[45]", head) or \
                    head.startswith("embertree_http_refused_total"):
                if float(number) and "readyz" not in head:
                    found[head] = float(number)
        return found

    def ask(self, method, **message):
        reply = self.server.connect(method, self.server.range_ms() | message, self.headers)
        assert reply.status == 200, (method, message, reply)
        return reply.json()

    def selector(self, **labels):
        labels = {"service_name": self.app} | labels
        return "{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}"

    def types(self):
        """Of this service; the server's own profiles have others."""
        listed = {t["ID"] for t in self.ask("ProfileTypes").get("profileTypes", [])}
        mine = self.labels().get("__profile_type__", set())
        assert mine <= listed, f"{sorted(mine - listed)} of Series are not in ProfileTypes"
        return mine

    def labels(self):
        """{label: its values} over all series of the service."""
        found = {}
        answer = self.ask("Series", matchers=[self.selector()], labelNames=[])
        for one in answer.get("labelsSet", []):
            for pair in one.get("labels", []):
                found.setdefault(pair["name"], set()).add(pair["value"])
        return found

    def stacks(self, kind, more=None, **labels):
        """{stack from the root on: its own share of the sum}; `more` goes into the question."""
        answer = self.ask("SelectMergeStacktraces", profile_typeID=kind, maxNodes="100000",
                          labelSelector=self.selector(**labels), **more or {})
        return cluster.leaves(cluster.flamegraph(answer))

    def selves(self, kind, more=None, **labels):
        """{function: its own share of the sum}, and the sum."""
        by_name = {}
        for stack, own in self.stacks(kind, more, **labels).items():
            by_name[stack[-1]] = by_name.get(stack[-1], 0) + own
        return by_name, sum(by_name.values())

    # ---- what must hold ----

    def check_nothing_refused(self):
        now = {k: v for k, v in self.refused().items() if v > self.before.get(k, 0)}
        assert not now, f"Embertree refused requests of the client: {now}"
        assert self.server.process.metric("embertree_http_requests_total", status="2xx") > 0

    def check_types(self, want):
        missing = set(want) - self.types()
        assert not missing, f"no profiles of {sorted(missing)}; there are {sorted(self.types())}"

    def check_labels(self, **want):
        have = self.labels()
        for name, value in want.items():
            assert value in have.get(name, ()), f"no {name}={value} in {have}"

    def check_hot(self, kind, hot, cold, **labels):
        """The function that burns three quarters has the largest share of its own, the other one about
        a third of that."""
        own, total = self.selves(kind, **labels)
        assert total > 0, f"no samples of {kind}"
        largest = max(own, key=own.get)
        top = sorted(own.items(), key=lambda x: -x[1])[:6]
        assert re.search(hot, largest), f"{kind}: {largest} has the largest share: {top}"
        hots, colds = (sum(v for k, v in own.items() if re.search(name, k)) for name in (hot, cold))
        assert 1.5 * colds < hots < 6 * colds, f"{kind}: {hots} of {hot}, {colds} of {cold}: {top}"
        return total

    def part(self, kind, function):
        """What the stacks with such a function on them add up to, and all of them."""
        stacks = self.stacks(kind)
        on = sum(v for k, v in stacks.items() if any(re.search(function, name) for name in k))
        return on, sum(stacks.values())

    def check_sum(self, what, nanoseconds, low_s, high_s):
        got = nanoseconds / 1e9
        assert 0.3 * low_s <= got <= 1.3 * high_s, \
            f"{what} adds up to {got:.1f} s; the client used {low_s:.1f} to {high_s:.1f} s"

    def check_other_tenant_sees_nothing(self):
        if self.tls:
            reply = self.server.connect("ProfileTypes", self.server.range_ms(),
                                        {"X-Scope-OrgID": "team-b"})
            assert reply.status == 200 and not reply.json().get("profileTypes"), reply
