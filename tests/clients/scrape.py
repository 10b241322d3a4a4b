"""A Go program that serves its profiles, fetched by Embertree: net/http/pprof, godeltaprof, fgprof.

Over TLS it is the program that has the certificate, and asks for a token; plain, for a password.
"""
import json
import os
import pathlib
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bed
import sdks
from sdks import CPU

INTERVAL_S = 4  # CPU is measured for one second less
MIB = 1 << 20
ALLOC = "memory:alloc_space:bytes:space:bytes"
COUNTS = ("process_cpu", "memory", "goroutine", "block", "mutex")
DIFFERENCES = ("fgprof", "godeltaprof_memory", "godeltaprof_mutex", "godeltaprof_block")


def prepare():
    return sdks.go_build("scrape")


def job(certs, tls, address, service, profiles):
    one = {"job_name": service, "scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": "10s",
           "profiles": {p: {"enabled": p in profiles} for p in COUNTS + DIFFERENCES},
           "static_configs": [{"targets": [address],
                               "labels": {"service_name": service, "region": "north"}}]}
    if not tls:
        return one | {"basic_auth": {"username": bed.USER, "password": bed.PASSWORD}}
    return one | {"scheme": "https", "tls_config": {"ca_file": str(certs / "ca.pem")},
                  "tenant": bed.TENANT, "authorization": {"credentials": bed.TOKEN}}


def fetched(b, pieces):
    """What both ways of measuring differences must say of the program."""
    b.check_types([ALLOC, "memory:inuse_space:bytes:space:bytes",
                   "mutex:contentions:count:contentions:count",
                   "mutex:delay:nanoseconds:contentions:count",
                   "block:delay:nanoseconds:contentions:count"])
    b.check_labels(region="north", job=b.app)
    own, _ = b.selves(ALLOC)
    # From the first look to the last: under load a program is seen late.
    assert 0.2 * pieces * MIB <= own.get("main.allocate", 0) <= 1.3 * pieces * MIB, (pieces, own)
    stacks = b.stacks("mutex:delay:nanoseconds:contentions:count")
    waited = sum(v for k, v in stacks.items() if "main.fightForLock" in k)
    assert waited > 1e9, stacks


def burnt(b, cpu):
    """By what is on the stack: fgprof stops the program so often that the interruption itself is on
    top of many."""
    stacks = b.stacks(CPU)
    hot, cold = (sum(v for k, v in stacks.items() if "main." + name in k)
                 for name in ("burnHot", "burnCold"))
    assert hot > 2 * cold > 0, (hot, cold, stacks)
    b.check_sum(CPU, sum(stacks.values()), cpu, cpu)


def scrape(binary, certs, tls):
    service = "client.scrape"
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        address = f"127.0.0.1:{bed.cluster.free_port()}"
        path = pathlib.Path(folder) / "scrape.yaml"  # JSON is YAML
        path.write_text(json.dumps({"scrape_configs": [
            job(certs, tls, address, service, COUNTS),
            job(certs, tls, address, service + ".delta", DIFFERENCES)]}))
        with bed.Bed(service, tls, certs, f"--distributor.scrape-config-file={path}") as b:
            more = {"CERT_FILE": str(certs / "cert.pem"), "KEY_FILE": str(certs / "key.pem")}
            cpu, _, said = b.run([binary], LISTEN=address, **(more if tls else {}))
            pieces = int(said.split()[-1])
            fetched(b, pieces)
            burnt(b, cpu)
            stacks = b.stacks("goroutine:goroutine:count:goroutine:count")
            assert {v for k, v in stacks.items() if "main.waitForNothing" in k} == {1}, stacks
            b.app += ".delta"
            fetched(b, pieces)
            stacks = b.stacks("fgprof:time:nanoseconds:wallclock:nanoseconds")
            for name in ("waitForNothing", "burnHot"):  # off the CPU and on it
                assert any("main." + name in k for k in stacks), (name, sorted(stacks))
            b.check_other_tenant_sees_nothing()
