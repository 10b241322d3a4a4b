"""Keys of callers in a real server, by HTTP and by embertreectl: from observing to requiring them, the first key of a
server, keys that are made, rotated and revoked, over a restart, and keys in a file that changes."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

KEY = re.compile(r"\bemb_k[0-9A-Za-z]{12}_[0-9A-Za-z]{49}\b")
BODY = b"main;work 10\n"
KEYS = "/api/v1/keys"


def server(*options, folder=None):
    return cluster.AllInOne("--memory.limit=256MiB", "--no-selfprof.enabled", *options, folder=folder)


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def push(s, key, name="shop"):
    return s.ingest(BODY, name, bearer(key), format="folded").status


def ask(s, key):
    return s.reader.request("GET", "/labels", None, bearer(key)).status


def ctl(s, *args, key=None, at=None):
    """Exit code, standard output, standard error; with a key as a token file, else through the socket."""
    with tempfile.NamedTemporaryFile("w") as f:
        more = []
        if key:
            f.write(key + "\n")
            f.flush()
            more = ["--token-file", f.name]
        where = at or (f"http://127.0.0.1:{s.process.port}" if key else f"unix:{s.process.folder}/data/admin.sock")
        done = subprocess.run([cluster.BIN / "embertreectl", "--server", where, *more, *args], capture_output=True,
                              text=True, timeout=60, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def make(s, *args, key=None):
    code, out, said = ctl(s, "key", "make", *args, key=key)
    assert code == 0 and KEY.fullmatch(out.strip()), (args, code, out, said)
    assert "once" in said and not KEY.search(said), said
    return out.strip()


def ident(key):
    return key[5:17]


def eventually(what, seconds=15):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def test_observe():
    """Nothing is refused, and the operator makes keys through the socket."""
    with server("--identity.mode=observe") as s:
        assert push(s, None) == 200
        assert s.process.get(KEYS).status in (401, 403)  # what makes keys is for the operator in any mode
        key = make(s, "--name", "agents", "--roles", "push")
        assert push(s, key) == 200
        listed = s.process.operate(KEYS, method="GET").json()
        assert [k["name"] for k in listed["keys"]] == ["agents"] and "hash" not in json.dumps(listed)
        assert not KEY.search(s.process.whole_log())  # no first key: the old ways are open


def test_off():
    with server() as s:
        code, out, said = ctl(s, "key", "list")
        assert code == 2 and "identity.mode" in said, (code, out, said)
        assert s.process.operate(KEYS, method="GET").status == 501


def test_life():
    with server("--identity.mode=require") as s:
        # the first key, told once; it makes another admin, and then has ended
        eventually(lambda: KEY.search(s.process.whole_log()))
        first, = KEY.findall(s.process.whole_log())
        assert push(s, None) == 401 and ask(s, None) == 401 and s.process.get(KEYS).status == 401
        assert s.process.get("/healthz").status == 200
        admin = make(s, "--name", "ops", "--for", "*", "--roles", "server-admin,tenant-admin,gateway,scrape", key=first)
        eventually(lambda: s.process.request("GET", KEYS, None, bearer(first)).status == 401)
        agent = make(s, "--name", "agents", "--roles", "push", "--owner", "team a", key=admin)
        reader = make(s, "--name", "page", "--roles", "read", "--valid-for", "30d", key=admin)
        for key, may_push, may_read in ((agent, 200, 403), (reader, 403, 200), (admin, 200, 200)):
            assert (push(s, key), ask(s, key)) == (may_push, may_read), key[:17]
        wrong = agent[:-7] + ("a" if agent[-7] != "a" else "b") + agent[-6:]
        assert push(s, wrong) == 401 and push(s, "nonsense") == 401
        # a key that may not hand out keys, and what is wrong with an order
        assert s.process.request("GET", KEYS, None, bearer(agent)).status == 403
        code, out, said = ctl(s, "key", "make", "--name", "x", "--roles", "fly", key=admin)
        assert code == 2 and "fly" in said and not out, (code, out, said)
        for args in (("make",), ("make", "--name", "x"), ("rotate",), ("revoke",), ("paint",), ("revoke", agent)):
            code, out, said = ctl(s, "key", *args, key=admin)
            assert code == 2 and said and agent not in said, (args, code, out, said)
        code, out, said = ctl(s, "key", "revoke", "k3fT9aQz07Lm", key=admin)
        assert code == 2 and "no key has the id" in said, (code, said)
        # lists: text and JSON
        code, out, said = ctl(s, "key", key=admin)
        assert code == 0 and ident(agent) in out and "good" in out and "push of anonymous" in out, (code, out, said)
        assert agent[18:] not in out
        code, out, said = ctl(s, "key", "list", "--json", key=admin)
        listed = {k["id"]: k for k in json.loads(out)["keys"]}
        assert listed[ident(agent)]["owner"] == "team a" and listed[ident(agent)]["last_use"] > 0
        assert listed[ident(reader)]["until"] > time.time() * 1000 + 29 * 86400_000
        assert listed[ident(first)]["why"]
        # a successor: both are good, and the old one has an end
        with tempfile.TemporaryDirectory() as folder:
            to = os.path.join(folder, "key")
            code, out, said = ctl(s, "key", "rotate", ident(agent), "--overlap", "2s", "--output", to, key=admin)
            assert code == 0 and not out and "the old one ends" in said, (code, out, said)
            assert os.stat(to).st_mode & 0o777 == 0o600
            with open(to) as f:
                successor = f.read().strip()
        assert push(s, agent) == push(s, successor) == 200  # 2 s, and 30 s for clocks that differ
        # revoked: at once, and after a restart
        code, out, said = ctl(s, "key", "revoke", ident(successor), "--reason", "was in a log", key=admin)
        assert code == 0 and "is revoked" in out, (code, out, said)
        assert push(s, successor) == 401 and ask(s, successor) == 401
        s.process.kill()
        s.process.start()
        assert push(s, successor) == 401 and push(s, admin) == 200 and ask(s, reader) == 200
        assert ask(s, first) == 401
        # nothing but the first key was ever told to the log, and no secret lies in the data folder
        assert set(KEY.findall(s.process.whole_log())) == {first}
        kept = s.process.folder / "data" / "identity.json"
        assert kept.stat().st_mode & 0o777 == 0o600
        text = kept.read_text()
        assert ident(admin) in text and not any(k[18:] in text for k in (first, admin, agent, reader, successor))
        # a file that was edited is not taken: it says which keys are revoked
        s.process.stop()
        kept.write_text(text.replace("was in a log", "was in a dog"))
        try:
            s.process.start()
            raise AssertionError("it started with an edited file")
        except RuntimeError as e:
            assert "identity.json" in str(e), e
        kept.write_text(text)
        s.process.start()
        assert push(s, successor) == 401 and push(s, admin) == 200


def offline(*args):
    with tempfile.TemporaryDirectory() as folder:
        to = os.path.join(folder, "key")
        done = subprocess.run([cluster.BIN / "embertreectl", "key", "make", "--offline", "--output", to, *args],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert not KEY.search(done.stdout + done.stderr)
        with open(to) as f:
            return f.read().strip(), done.stdout


def test_file():
    admin, admin_entry = offline("--name", "ops", "--for", "*", "--roles", "server-admin,tenant-admin")
    agent, agent_entry = offline("--name", "agents", "--roles", "push", "--set", "team=a", "--nets", "127.0.0.0/8")
    away, away_entry = offline("--name", "elsewhere", "--roles", "push", "--nets", "10.0.0.0/8")
    late, late_entry = offline("--name", "late", "--roles", "push", "--until", "now+1s")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "identity.yaml")

        def write(text):
            with open(file + ".new", "w", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
                f.write(text)
            os.replace(file + ".new", file)

        write("keys:\n" + admin_entry + agent_entry + away_entry + late_entry)
        with server("--identity.mode=require", f"--identity.file={file}") as s:
            assert push(s, agent) == 200 and push(s, away) == 401 and ask(s, agent) == 403
            assert not KEY.search(s.process.whole_log())  # there is an admin
            for path, method in ((f"{KEYS}/{ident(agent)}", "DELETE"), (f"{KEYS}/{ident(agent)}/rotate", "POST")):
                r = s.process.request(method, path, b"", bearer(admin))
                assert r.status == 409 and file in r.body.decode(), r
            code, out, said = ctl(s, "key", key=admin)
            assert code == 0 and re.search(ident(agent) + r" +file", out), out
            # a slip in the file changes nothing, and is said
            write("keys: [oops\n")
            eventually(lambda: "identity.file" in s.process.whole_log())
            time.sleep(1.5)
            assert push(s, agent) == 200
            # an entry less: the key has ended
            write("keys:\n" + admin_entry)
            eventually(lambda: push(s, agent) == 401)
            assert s.process.request("GET", KEYS, None, bearer(admin)).status == 200
        # a file that others may read, or that is wrong, stops a start, with what to do
        os.chmod(file, 0o644)
        for text in ("chmod", "line 1"):
            bad = cluster.Process("embertree", "--memory.limit=256MiB", "--identity.mode=require",
                                  f"--identity.file={file}")
            try:
                bad.start()
                raise AssertionError("it started")
            except RuntimeError as e:
                assert "identity.file" in str(e) and text in str(e), e
            finally:
                bad.cleanup()
            write("kees: []\n")


def test_offline_is_checked():
    """What a server would refuse is refused when it is made."""
    for args, want in ((("--name", "x", "--roles", "fly"), "fly"), (("--roles", "push"), "--name"),
                       (("--name", "x", "--roles", "push", "--nets", "x"), "net"),
                       (("--name", "x", "--roles", "push", "--set", "team"), "--set"),
                       (("--name", "x", "--roles", "push", "--valid-for", "soon"), "--valid-for"),
                       (("--name", "x", "--roles", "read", "--match", "{{"), "match")):
        done = subprocess.run([cluster.BIN / "embertreectl", "key", "make", "--offline", *args], capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 2 and want in done.stderr and not done.stdout, (args, done)


if __name__ == "__main__":
    cluster.main([test_offline_is_checked, test_off, test_observe, test_life, test_file])
