"""deploy/docs/INSTALL.md, "Three machines, by hand": its lines, run for three addresses of loopback, make a
cluster that loses a machine and nothing else.

What only root can do (packages, users, units) is left out; the processes are started here.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

ROLES = ("ingester", "distributor", "querier", "compactor")
PORTS = {"ingester": 4042, "distributor": 4041, "querier": 4040, "compactor": 4043}
NET = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}."


def of_section(title):
    """The commands of a section of the page, without those that only root of a real machine may run."""
    page = (cluster.ROOT / "deploy/docs/INSTALL.md").read_text()
    part = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    text = "\n".join(re.findall(r"^```sh\n(.*?)\n```$", part, re.M | re.S))
    left_out = re.compile(r"(apt-get|systemctl|useradd|chown) ")
    return "\n".join(line for line in text.splitlines() if not left_out.match(line))


def lines(folder, number):
    """The page's commands for one machine, below a folder."""
    text = of_section("Three machines, by hand")
    text = text.replace("self=10.0.0.1 zone=rack-1", f"self=10.0.0.{number} zone=rack-{number}")
    assert f"self=10.0.0.{number} " in text and text.count("ETCD_") == 9, text
    return text.replace("10.0.0.", NET).replace("/etc/", f"{folder}/etc/").replace("/var/", f"{folder}/var/")


class Machine:
    def __init__(self, folder, number, keys):
        self.folder, self.at = folder / f"m{number}", f"{NET}{number}"
        for name in ("etc/default", "etc/embertree", "var/lib/etcd"):
            (self.folder / name).mkdir(parents=True)
        done = subprocess.run(["bash", "-euc", lines(self.folder, number)], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done
        if keys:
            shutil.copy(keys, self.keys())
        settings = (self.folder / "etc/default/etcd").read_text().split()
        with open(self.folder / "etcd.log", "wb") as out:
            self.etcd = subprocess.Popen(["etcd"], stdout=out, stderr=out, env=dict(
                os.environ, **dict(line.split("=", 1) for line in settings)))
        self.roles = {r: cluster.Process(
            f"embertree-{r}", f"--config={self.folder}/etc/embertree/{r}.yaml", "--memory.limit=256MiB",
            *([f"--cluster.node=m{number}"] if r == "ingester" else []), "--no-selfprof.enabled",
            folder=self.folder / r) for r in ROLES}

    def keys(self):
        return self.folder / "etc/embertree/cluster.keys"

    def kill(self):
        for p in self.roles.values():
            p.cleanup()
        self.etcd.kill()
        self.etcd.wait()


def test_page():
    if not shutil.which("etcd"):
        print("SKIPPED: etcd-server is not installed", flush=True)
        return
    folder = tempfile.TemporaryDirectory(prefix="embertree-test-")
    machines = []
    with folder:
        try:
            for number in (1, 2, 3):
                machines.append(Machine(pathlib.Path(folder.name), number, machines and machines[0].keys()))
            assert machines[0].keys().stat().st_mode & 0o777 == 0o640
            everybody = [p for m in machines for p in m.roles.values()]
            for p in everybody:
                p.start(wait=False)
            for p in everybody:
                p.wait_ready()
            told = machines[1].roles["querier"].get("/config").body.decode()
            assert f'"http://{NET}1:2379", "http://{NET}2:2379"' in told and "cluster.keys" in told, told
            for i, m in enumerate(machines):
                r = m.roles["distributor"].post("/ingest", b"main;work 7\n", name="shop.cpu{pod=p%d}" % i)
                assert r.status == 200, r
            machines.pop(0).kill()
            for m in machines:
                r = m.roles["distributor"].post("/ingest", b"main;work 7\n", name="shop.cpu{pod=%s}" % m.at)
                assert r.status == 200, r
            for m in machines:
                r = m.roles["querier"].get("/pyroscope/render", from_="now-1h", until="now", format="json",
                                           query=cluster.CPU_TYPE + '{service_name="shop"}')
                assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 350_000_000, r
        except BaseException:
            for m in machines:
                for p in m.roles.values():
                    print(f"log of {m.at} {p.binary}:\n{p.tail(8)}", flush=True)
            raise
        finally:
            for m in machines:
                m.kill()


def samples(m):
    r = m.roles["querier"].get("/pyroscope/render", from_="now-1h", until="now", format="json",
                               query=cluster.CPU_TYPE + '{service_name="shop"}')
    assert r.status == 200, r
    return r.json()["flamebearer"]["numTicks"]


def test_one_to_three_as_on_the_page():
    """The server of the package, with the package's configuration and one shard, becomes the cluster of the page."""
    if not shutil.which("etcd"):
        print("SKIPPED: etcd-server is not installed", flush=True)
        return
    folder = tempfile.TemporaryDirectory(prefix="embertree-test-")
    machines = []
    with folder:
        root = pathlib.Path(folder.name)
        try:
            for number in (1, 2, 3):
                machines.append(Machine(root, number, machines and machines[0].keys()))
            first = machines[0]
            state = first.folder / "var/lib/embertree"
            state.mkdir(parents=True)
            sample = (cluster.ROOT / "deploy/config/allinone.yaml").read_text()
            data = re.search(r"^  dir: (\S+)", sample, re.M)[1]
            with cluster.AllInOne("--no-selfprof.enabled", "--memory.limit=256MiB", f"--data.dir={state / data}",
                                  folder=first.folder / "solo") as solo:
                assert solo.ingest("main;work 7\n", "shop.cpu").status == 200
                assert solo.process.stop() == 0
            text = of_section("From one server to three").replace("/etc/", f"{first.folder}/etc/") \
                .replace("/var/", f"{first.folder}/var/").replace("embertree adopt", "embertree adopt --cluster.node=m1")
            done = subprocess.run(["bash", "-euc", text], capture_output=True, text=True,
                                  env=dict(os.environ, PATH=f"{cluster.BIN}:{os.environ['PATH']}"), check=False)
            assert done.returncode == 0 and str(state / data) in done.stdout, done
            ingester = first.roles["ingester"]
            told = subprocess.run([cluster.BIN / "embertree-ingester", *ingester.options, "--print-config"],
                                  capture_output=True, text=True, check=True).stdout
            assert f'dir: "{state / data}"' in told, told
            ingester.own_data = False
            everybody = [p for m in machines for p in m.roles.values()]
            for p in everybody:
                p.start(wait=False)
            for p in everybody:
                p.wait_ready()
            assert [samples(m) for m in machines] == [70_000_000] * 3
        except BaseException:
            for m in machines:
                for p in m.roles.values():
                    print(f"log of {m.at} {p.binary}:\n{p.tail(8)}", flush=True)
            raise
        finally:
            for m in machines:
                m.kill()


def test_http_as_on_the_page():
    """What the other case overrides: where HTTP listens, by each binary's own words."""
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        for name in ("etc/default", "etc/embertree", "var/lib/etcd"):
            (pathlib.Path(folder) / name).mkdir(parents=True)
        subprocess.run(["bash", "-euc", lines(folder, 2)], check=True)
        for role in ROLES:
            said = subprocess.run([cluster.BIN / f"embertree-{role}", f"--config={folder}/etc/embertree/{role}.yaml",
                                   "--print-config"], capture_output=True, text=True)
            assert said.returncode == 0, said
            for want in (f'listen: "{NET}2:{PORTS[role]}"', "insecure_open: true", f'dir: "embertree-data/{role}"'):
                assert want in said.stdout, (role, want, said.stdout)


if __name__ == "__main__":
    cluster.main([test_page, test_one_to_three_as_on_the_page, test_http_as_on_the_page])
