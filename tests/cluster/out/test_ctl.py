"""embertreectl, the real binary: every command against a real server, --json read and compared with what
was pushed, exit codes, terminals, pipes that close, servers that are down, refuse, or send anything."""
import collections
import contextlib
import fcntl
import gzip
import http.server
import json
import os
import pathlib
import pty
import re
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

CTL = str(cluster.BIN / "embertreectl")
TICK = 10_000_000
ALLOC = "memory:alloc_space:bytes::"
EVIL = "evil\x1b[2J\u202ename\u009b31m"
PODS = {"a": {("main", "serve", "pay"): 30, ("main", "serve", "list"): 20, ("main", "gc"): 10},
        "b": {("main", "serve", "pay"): 60, ("main", "serve", "list"): 15, ("main", "gc"): 10,
              ("main", EVIL): 5}}


def environment(**more):
    plain = {k: v for k, v in os.environ.items()
             if not k.startswith("EMBERTREE_") and k not in ("NO_COLOR", "COLUMNS")}
    return plain | {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"} | more


def ctl(server, *args, stdin=subprocess.DEVNULL, timeout=60, **env):
    """`server`: an object with a reader, a URL, or None."""
    if server is not None:
        url = server if isinstance(server, str) else f"http://127.0.0.1:{server.reader.port}"
        env = {"EMBERTREE_URL": url} | env
    return subprocess.run([CTL, *map(str, args)], stdin=stdin, capture_output=True,
                          timeout=timeout, env=environment(**env), check=False)


def ok(server, *args, code=0, **more):
    r = ctl(server, *args, **more)
    assert r.returncode == code, (args, r)
    return r.stdout.decode()


def refused(server, *args, says="", code=2, **more):
    r = ctl(server, *args, **more)
    assert r.returncode == code and says in r.stderr.decode(), (args, says, r)
    return r.stderr.decode()


def on_terminal(server, *args, columns=80, answers=(), limit_s=60, **env):
    """Runs on a pseudo terminal, both outputs; `answers`: (text to wait for, what to type)."""
    if server:
        env = {"EMBERTREE_URL": f"http://127.0.0.1:{server.reader.port}"} | env
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen([CTL, *map(str, args)], stdin=other, stdout=other, stderr=other,
                             env=environment(**env))
    os.close(other)
    out, answers, until = b"", list(answers), time.monotonic() + limit_s
    while time.monotonic() < until:
        if answers and answers[0][0].encode() in out:
            os.write(main, answers.pop(0)[1].encode() + b"\n")
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        out += part
    os.close(main)
    return child.wait(10), out.decode(errors="replace").replace("\r\n", "\n")


def columns_of(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line
               if not unicodedata.combining(c))


@contextlib.contextmanager
def shop(*options):
    """A server with two pods of a shop, in this hour, and one older push."""
    with cluster.AllInOne("--selfprof.enabled=false", *options) as server:
        fill(server)
        yield server


def fill(server):
    for pod, stacks in PODS.items():
        body = "".join(";".join(s) + f" {n}\n" for s, n in stacks.items()).encode()
        reply = server.ingest(body, f"shop.cpu{{pod={pod}}}")
        assert reply.status == 200, reply
    reply = server.ingest(b"main;old 7\n", "shop.cpu{pod=a}", from_="now-100m", until="now-99m")
    assert reply.status == 200, reply
    reply = server.ingest(b"main;alloc 1048576\n", "shop.alloc_space{pod=a}")
    assert reply.status == 200, reply


def want_functions(pods="ab"):
    self, total = collections.Counter(), collections.Counter()
    for pod in pods:
        for stack, n in PODS[pod].items():
            self[stack[-1]] += n * TICK
            for name in set(stack):
                total[name] += n * TICK
    return {name: (self[name], total[name]) for name in total}


def test_top_and_tree():
    with shop() as server:
        got = json.loads(ok(server, "top", "shop", "--json"))
        assert {f["name"]: (f["self"], f["total"]) for f in got["functions"]} == want_functions()
        assert got["total"] == 150 * TICK and got["unit"] == "nanoseconds" and not got["partial"]
        assert got["untilMs"] - got["fromMs"] == 3600_000, got
        got = json.loads(ok(server, "top", "shop", "-q", 'pod="a"', "--sort=total", "-n2", "--json"))
        assert [f["name"] for f in got["functions"]] == ["main", "serve"], got
        text = ok(server, "top", "shop")
        assert "process_cpu:cpu of shop" in text and "1.50 s" in text, text
        assert re.search(r"900 ms +60\.0 % +900 ms +60\.0 % +pay\n", text), text
        assert "\x1b" not in text and "evil?[2J?name?31m" in text, repr(text)

        got = json.loads(ok(server, "tree", "shop", "--json", "--min-percent=0"))
        path, leaves = [], {}
        for node in got["nodes"]:
            path[node["depth"]:] = [node["name"]]
            if node["self"]:
                leaves[tuple(path[1:])] = node["self"]
        want = collections.Counter()
        for stacks in PODS.values():
            want.update({s: n * TICK for s, n in stacks.items()})
        assert leaves == want and got["total"] == 150 * TICK, got
        text = ok(server, "tree", "shop", "--width=100")
        assert "└ " in text and "\x1b" not in text, text
        assert "|-" in ok(server, "tree", "shop", LC_ALL="C"), text
        text = ok(server, "tree", "shop", "--depth", "1")
        assert "main" in text and "serve" not in text and "(" in text, text
        # Another type by its short name; the answer is in bytes.
        text = ok(server, "top", "shop", "-t", "alloc_space")
        assert re.search(r"1 MiB +100\.0 %", text), text


def test_files():
    with shop() as server, tempfile.TemporaryDirectory() as folder:
        want = {s: n for s, n in PODS["a"].items()}
        folded = ok(server, "query", "shop", "-q", "pod='a'")
        got = {tuple(line.rpartition(" ")[0].split(";")): int(line.rpartition(" ")[2])
               for line in folded.splitlines()}
        assert got == {s: n * TICK for s, n in want.items()}, got
        flame = json.loads(ok(server, "query", "shop", "--format=json", "--query", '{pod="a"}'))
        assert cluster.leaves(flame["flamebearer"]) == got, flame
        kinds = {"pprof": b"\x1f\x8b", "svg": b"<?xml", "html": b"<!DOCTYPE html>",
                 "dot": b"digraph", "folded": b"main;", "tree": b"", "pgo": b"\x1f\x8b"}
        for kind, begins in kinds.items():
            path = pathlib.Path(folder, "out." + kind)
            r = ctl(server, "query", "shop", "-q", "pod=\"a\"", "-f", kind, "-o", path)
            assert r.returncode == 0 and not r.stdout, r
            body = path.read_bytes()
            assert body.startswith(begins) and len(body) > 20, (kind, body[:80])
            if kind == "pprof":
                assert b"serve" in gzip.decompress(body)
        # Piped, bytes are bytes; a name keeps what it has.
        assert EVIL in ok(server, "query", "shop")
        assert ctl(server, "query", "shop", "-f", "pprof").stdout.startswith(b"\x1f\x8b")
        refused(server, "query", "shop", "-o", folder + "/no/such/x", says="--output")
        refused(server, "query", "shop", "-f", "bmp", says="want one of")


def test_lists():
    with shop() as server:
        assert ok(server, "services", "--names") == "shop\n"
        got = json.loads(ok(server, "services", "--json"))
        assert [s["name"] for s in got["services"]] == ["shop"], got
        assert set(got["services"][0]["types"]) == {cluster.CPU_TYPE, ALLOC}, got
        assert ok(server, "types", "shop").splitlines() == sorted([cluster.CPU_TYPE, ALLOC])
        assert json.loads(ok(server, "types", "--json"))["types"] == sorted([cluster.CPU_TYPE, ALLOC])
        assert "pod" in ok(server, "labels").split()
        assert ok(server, "labels", "pod", "shop") == "a\nb\n"
        assert json.loads(ok(server, "labels", "pod", "--json")) == {"name": "pod",
                                                                     "values": ["a", "b"]}
        got = json.loads(ok(server, "series", "shop", "--by", "pod,service_name", "--json"))
        assert sorted(map(str, got["series"])) == sorted(
            str({"pod": p, "service_name": "shop"}) for p in "ab"), got
        assert '{pod="a"}\n' in ok(server, "series", "--by=pod")
        assert ok(server, "series", "nosuch", code=1) == ""


def test_diff_is_a_gate():
    with shop() as server:
        ab = ("diff", "shop", "-q", 'pod="b"', "--base-query", 'pod="a"')
        got = json.loads(ok(server, *ab, "--mode=absolute", "--json"))
        rows = {f["name"]: f for f in got["functions"]}
        a, b = want_functions("a"), want_functions("b")
        assert set(rows) == set(a) | set(b), got
        for name, f in rows.items():
            zero = (0, 0)
            assert (f["baseSelf"], f["baseTotal"]) == a.get(name, zero), f
            assert (f["newSelf"], f["newTotal"]) == b.get(name, zero), f
            assert f["delta"] == f["newSelf"] - f["baseSelf"], f
            assert abs(f["growthPercent"] - 100 * f["delta"] / (60 * TICK)) < 1e-9, f
        assert rows[EVIL]["changePercent"] is None and rows["gc"]["changePercent"] == 0
        # 30 of 60, as everything: that is named by an empty name.
        assert got["worst"] == "" and got["worstPercent"] == 50 and not got["failed"], got
        # pay grew by 50 % of the base, everything by 50 %.
        ok(server, *ab, "--fail-over=50.1")
        r = ctl(server, *ab, "--fail-over=49.9%")
        assert r.returncode == 1 and b"over --fail-over" in r.stderr, r
        assert json.loads(ok(server, *ab, "--fail-over=1", "--json", code=1))["failed"]
        # As shares, pay went from 1/2 to 2/3.
        got = json.loads(ok(server, *ab, "--mode=relative", "--json"))
        assert abs(got["worstPercent"] - 100 / 6) < 1e-6 and got["growthPercent"] == 0, got
        text = ok(server, *ab, "--sort=total")
        assert "(everything)" in text and "\x1b" not in text and "new" in text, text
        # What grew most is found, though what is shown first shrank.
        one = json.loads(ok(server, *reversed_sides(ab), "-n1", "--mode=absolute", "--json"))
        assert len(one["functions"]) == 1 and one["functions"][0]["name"] == "pay", one
        assert one["worst"] == "list" and one["worstPercent"] > 0, one
        # Without a base: the time just before, here an hour earlier with one push of pod a.
        got = json.loads(ok(server, "diff", "shop", "--json"))
        assert got["base"]["total"] == 7 * TICK and got["new"]["total"] == 150 * TICK, got
        # A gate that cannot judge is no regression: CI must tell them apart.
        old = ("--base-from=now-10h", "--base-until=now-9h")
        for args, says in ((("shop", *old), b"no profiles"),
                           (("shop", *(a.replace("base-", "") for a in old), "--base-from=now-2h"), b"no profiles"),
                           (("nosuch",), b"nosuch"),
                           (("shop", "-q", 'pod="nosuch"', "--base=shop"), b"no profiles"),
                           (("shop", "-q", 'pod="x"', "--base-query", 'pod="y"'), b"no profiles")):
            r = ctl(server, "diff", *args, "--fail-over=5")
            assert r.returncode == 2 and says in r.stderr, (args, r)
        assert ctl(server, "diff", "nosuch").returncode == 1
        refused(server, "diff", "shop", "--base-until=now", says="--base-from")


def reversed_sides(args):
    return [{'pod="a"': 'pod="b"', 'pod="b"': 'pod="a"'}.get(a, a) for a in args]


def test_tail():
    with shop() as server:
        lines = ok(server, "tail", "shop", "--count=2", "--interval=1s", "--window=10m",
                   "--json").splitlines()
        assert len(lines) == 2
        assert json.loads(lines[0])["functions"][0]["name"] == "pay", lines
        text = ok(server, "tail", "shop", "-c1", "--window=10m")
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +1\.50 s +60 % pay", text), text


def test_sandwich():
    with shop() as server:
        got = json.loads(ok(server, "sandwich", "serve", "shop", "--json", "--min-percent=0"))
        self, total = want_functions()["serve"]
        assert (got["function"], got["self"], got["total"], got["all"]) == (
            "serve", self, total, 150 * TICK), got
        assert [(n["name"], n["total"]) for n in got["callers"]] == [
            ("total", total), ("serve", total), ("main", total)], got
        assert [(n["name"], n["total"]) for n in got["callees"]] == [
            ("total", total), ("serve", total), ("pay", 90 * TICK), ("list", 35 * TICK)], got
        text = ok(server, "sandwich", "serve", "shop")
        assert "serve\nself 0 ns, total 1.25 s, 83.3 % of everything" in text, text
        ok(server, "sandwich", "nosuch", "shop", code=1)
        refused(server, "sandwich", says="want FUNCTION")


def test_grew():
    with shop() as server:
        reply = server.ingest(b"main;old 5\nmain;pay 2\n", "cart.cpu")
        assert reply.status == 200, reply
        got = json.loads(ok(server, "grew", "--mode=absolute", "--json"))
        assert got["rows"][0]["name"] == "pay", got
        assert (got["rows"][0]["self"]["before"], got["rows"][0]["self"]["after"]) == (0, 92 * TICK)
        got = json.loads(ok(server, "grew", "--per-service", "--json", "-n1000"))
        assert {(r["service"], r["name"]) for r in got["rows"]} >= {("shop", "pay"), ("cart", "old")}
        text = ok(server, "grew", "--per-service", "--mode=absolute")
        assert re.search(r"0 ns +900 ms +\+900 ms +new .* shop: pay\n", text), text
        assert re.search(r"70 ms +1\.57 s .* \(everything\)\n", text), text
        ok(server, "grew", "cart", "--from=now-1h", "--until=now-30m", code=1)
        refused(server, "grew", "--base-until=now", says="--base-from")


def test_timeline():
    with shop() as server:
        got = json.loads(ok(server, "timeline", "shop", "--from=now-2h", "--step=30m", "--json"))
        assert got["stepMs"] == 1800_000 and len(got["series"]) == 1, got
        values = got["series"][0]["values"]
        assert values == [7 * TICK, 0, 0, 150 * TICK] and got["series"][0]["sum"] == 157 * TICK, got
        got = json.loads(ok(server, "timeline", "shop", "--function=pay", "--by=pod", "--json"))
        assert {s["labels"]["pod"]: s["sum"] for s in got["series"]} == {"a": 30 * TICK,
                                                                         "b": 60 * TICK}, got
        got = json.loads(ok(server, "timeline", "shop", "--function=main", "--sort=total", "--json"))
        assert got["series"][0]["sum"] == 150 * TICK and got["function"] == "main", got
        text = ok(server, "timeline", "shop", "--by=pod")
        assert re.search(r"900 ms +900 ms  .*█.* pod=\"b\"\n", text), text
        assert "@" in ok(server, "timeline", "shop", LC_ALL="C")
        ok(server, "timeline", "shop", "--function=nosuch", code=1)
        refused(server, "timeline", "shop", "--step=0", says="--step")
        refused(server, "timeline", "shop", "--from=now-1y", "--step=1s", says="use a step")


def test_server_side():
    with shop() as server:
        assert "ready     yes" in ok(server, "admin")
        assert json.loads(ok(server, "admin", "status", "--json"))["ready"] is True
        assert ok(server, "admin", "ready") == "ready\n"
        assert ok(server, "admin", "ready", "--quiet") == "" == ok(server, "--quiet", "admin", "ready")
        assert json.loads(ok(server, "admin", "ready", "--json")) == {"ready": True, "why": ""}
        assert "roles" in json.loads(ok(server, "admin", "ring"))
        assert "http:" in ok(server, "admin", "config")
        assert "embertree_" in json.loads(ok(server, "admin", "metrics", "--json"))["metrics"]
        refused(server, "admin", "bogus", says="want status")
        assert "(everything)" in ok(server, "space")
        assert "bytes" in json.loads(ok(server, "space", "--json"))
        # Delete: without a terminal there is no question; a dry run deletes nothing; then it does.
        refused(server, "delete", "shop", says="standard input is not a terminal")
        refused(server, "delete", says="which service?")
        refused(server, "delete", "shop", "--all", "--yes", says="--all")
        assert "would delete" in ok(server, "delete", "shop", "-q", 'pod="b"', "--dry-run")
        assert ok(server, "labels", "pod") == "a\nb\n"
        ok(server, "delete", "nosuch", "--yes", code=1)
        got = json.loads(ok(server, "delete", "shop", "-q", 'pod="b"', "--yes", "--id=x1", "--json"))
        assert got["id"] == "x1" and not got["dryRun"] and got["series"] >= 1, got
        assert json.loads(ok(server, "delete", "shop", "-q", 'pod="a"', "--until=now-90m", "--json",
                             "--yes"))["kind"] == "range"
        assert EVIL not in ok(server, "query", "shop")
        assert "x1" in ok(server, "deletes")
        assert {d["id"] for d in json.loads(ok(server, "deletes", "--json"))["deletes"]} >= {"x1"}
        ok(server, "delete", "--all", "--yes")
        ok(server, "top", "shop", code=1)


def test_terminal():
    with shop() as server:
        for width in (48, 60, 100):
            for args in (("top", "shop"), ("tree", "shop", "--min-percent=0"), ("space",),
                         ("diff", "shop", "-q", 'pod="b"', "--base-query", 'pod="a"'),
                         ("tail", "shop", "-c1", "--window=10m"),
                         ("timeline", "shop", "--by=pod"), ("sandwich", EVIL, "shop"),
                         ("grew", "--per-service")):
                code, out = on_terminal(server, *args, columns=width, NO_COLOR="1")
                assert code == 0 and "\x1b" not in out and EVIL not in out, (args, out)
                if args[0] == "space":
                    continue
                wide = [x for x in out.splitlines() if columns_of(x) > width and " UTC (" not in x]
                assert not wide, (args, width, wide)
        code, out = on_terminal(server, "tree", "shop")
        assert code == 0 and "\x1b[31m" in out and "evil\x1b" not in out, repr(out)
        assert "\x1b" not in on_terminal(server, "tree", "shop", "--color=never")[1]
        assert "\x1b" not in on_terminal(server, "tree", "shop", TERM="dumb")[1]
        assert "\x1b[31m" in ok(server, "tree", "shop", "--color=always")
        for args in (("query", "shop"), ("query", "shop", "--json"), ("top", "shop", "--json"),
                     ("tree", "shop", "--json"), ("query", "shop", "-f", "html")):
            code, out = on_terminal(server, *args)
            assert code == 0 and not re.search("[\x1b\u202e\u009b]", out), (args, out)
        code, out = on_terminal(server, "query", "shop", "-f", "pprof")
        assert code == 2 and "--output FILE" in out, out
        # A question is asked at a terminal; anything but yes is no.
        code, out = on_terminal(server, "delete", "shop", answers=[("Type yes: ", "no")])
        assert code == 1 and "nothing was deleted" in out, out
        assert ok(server, "services", "--names") == "shop\n"
        code, out = on_terminal(server, "delete", "shop", answers=[("Type yes: ", "yes")])
        assert code == 0 and "deleted {service_name" in out, out
        assert ok(server, "services", "--names", code=1) == ""


def test_uploads_and_progress():
    with shop() as server, tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder, f"f{i}.txt") for i in range(3)]
        for p in paths:
            p.write_text("a;b 3\n")
        got = json.loads(ok(server, "upload", "--json", *paths))
        assert [u["file"] for u in got] == list(map(str, paths)) and got[0]["id"] in got[0]["link"]
        code, out = on_terminal(server, "upload", *paths)
        assert code == 0 and "] 3 of 3" in out and out.count("#adhoc=") == 3, out
        paths[1].write_text("nothing\n")
        r = ctl(server, "upload", *paths)
        assert r.returncode == 1 and b"f1.txt" in r.stderr and r.stdout.count(b"#adhoc=") == 2, r
        assert "] 3 of 3" not in r.stderr.decode()
        r = ctl(server, "import", "--name=old.cpu", "--from=now-2h", paths[0])
        assert r.returncode == 0 and b"imported 1 of 1" in r.stderr, r
        # The page and the commands show newer times at first: it says where to look.
        look = re.search(rb"look with (--from=\d+) (--until=\d+), or at (http://[^/]+/#from=\d+&until=\d+)", r.stderr)
        assert look, r
        assert "a;b" in ok(server, "query", "old", look[1].decode(), look[2].decode(), "-f", "folded"), r
        r = ctl(server, "import", "--name=new.cpu", "--from=now-1m", paths[0])
        assert r.returncode == 0 and b"look with" not in r.stderr, r
        assert "old" in ok(server, "services", "--from=now-3h", "--names")
        refused(server, "import", paths[0], says="--name is needed")
        r = ctl(server, "fsck")
        assert r.returncode == 2 and b"usage:" in r.stderr, r


def test_wrong_calls():
    for args, says in ((("tpo",), "did you mean top?"), (("top", "--limt=3"), "did you mean --limit?"),
                       (("top", "a", "b"), "one argument too many"), (("upload",), "want FILE"),
                       (("top", "--from=yesterday"), "--from"), (("top", "--limit"), "wants a value"),
                       (("top", "--server=ftp://x"), "http://host:port"),
                       (("top", "--token-file=/no/such/file"), "cannot be read"),
                       (("top", "--tenant=a\nb"), "line break"),
                       (("top", "-q", "a="), "column"), (("completion", "tcsh"), "bash, zsh"),
                       (("cluster", "drain", "a", "b"), "wants the name of a node"),
                       (("cluster", "recover", "nonsense"), "http://host:port"),
                       (("top", "--from=now", "--until=now-1h"), "not before")):
        refused(None, *args, says=says)
    r = ctl(None)
    assert r.returncode == 2 and b"usage:" in r.stderr and not r.stdout, r
    assert "usage: embertreectl diff" in ok(None, "diff", "--help")
    assert ok(None, "--version").startswith("embertreectl ")
    assert "Commands" in ok(None, "--help")


def test_closed_pipe_and_full_disk():
    with cluster.AllInOne("--selfprof.enabled=false") as server:
        body = "".join(f"main;{'f' * 60}{i};g{i % 7} {i + 1}\n" for i in range(40000)).encode()
        assert server.ingest(body, "big.cpu").status == 200
        for args in (("query", "big"), ("query", "big", "-f", "json"),
                     ("tree", "big", "--json", "--max-nodes=100000", "--min-percent=0",
                      "-n1000000")):
            env = environment(EMBERTREE_URL=f"http://127.0.0.1:{server.reader.port}")
            with subprocess.Popen([CTL, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=env) as child:
                assert child.stdout.read(10)
                child.stdout.close()
                said = child.stderr.read()
            assert child.returncode == 0 and not said, (args, child.returncode, said)
        with open("/dev/full", "w", encoding="utf-8") as full:
            r = subprocess.run([CTL, "query", "big"], stdout=full, stderr=subprocess.PIPE,
                               env=environment(EMBERTREE_URL=f"http://127.0.0.1:{server.reader.port}"),
                               check=False, timeout=60)
        assert r.returncode == 2 and b"cannot write the result" in r.stderr, r


class Fake(http.server.BaseHTTPRequestHandler):
    """Answers what the server object has; keeps what it was asked."""

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.path, dict(self.headers), body))
        status, headers, out = self.server.answer(self.path, self.headers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(out)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def fake(answer):
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fake)
    site.answer, site.asked = answer, []
    thread = threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site, f"http://127.0.0.1:{site.server_address[1]}"
    finally:
        site.shutdown()
        site.server_close()
        thread.join()


SERIES = json.dumps({"labelsSet": [{"labels": [{"name": "__profile_type__",
                                                "value": cluster.CPU_TYPE}]}]}).encode()
FUNCTIONS = json.dumps({"all": 5, "functions": [{"name": "f", "self": 5, "total": 5}]}).encode()


def test_who_asks():
    def answer(path, headers):
        if headers.get("Authorization") != "Bearer s3cret":
            return 401, {}, b'{"code":"unauthenticated","message":"no such token"}'
        return 200, {"Content-Type": "application/json"}, SERIES if "Series" in path else FUNCTIONS

    with fake(answer) as (site, url), tempfile.NamedTemporaryFile("w") as secret:
        refused(url, "top", says="401: no such token; --token, --token-file or --tenant")
        refused(url, "top", "--token=wrong", says="is the token right?")
        secret.write("s3cret\n")
        secret.flush()
        for more in (("--token=s3cret",), ("--token-file", secret.name)):
            assert " f\n" in ok(url, "top", *more), more
        ok(url, "top", EMBERTREE_TOKEN_FILE=secret.name)
        ok(url, "top", "--token=s3cret", EMBERTREE_TOKEN_FILE="/no/such/file")
        refused(url, "top", says="cannot be read", EMBERTREE_TOKEN_FILE="/no/such/file")
        secret.seek(0)
        secret.write("# the server's own file\n\ns3cret\nan older one\n")
        secret.flush()
        ok(url, "top", "--token-file", secret.name)
        ok(url, "top", EMBERTREE_TOKEN="s3cret", EMBERTREE_TENANT="a|b")
        path, headers, _ = site.asked[-1]
        assert headers["X-Scope-OrgID"] == "a|b" and path.startswith("/api/v1/functions?"), path
        ok(url + "/", "top", "--token=s3cret")  # a slash behind the URL is no part of the path
        assert site.asked[-1][0].startswith("/api/"), site.asked[-1]
    with cluster.AllInOne("--tenancy.multi") as server:
        reply = server.ingest(b"main;x 3\n", "shop.cpu", {"X-Scope-OrgID": "acme"})
        assert reply.status == 200, reply
        refused(server, "services", says="401")
        assert ok(server, "services", "--names", "--tenant=acme") == "shop\n"
        assert ok(server, "services", "--names", "--tenant=other", code=1) == ""


def test_partial_answers_are_said():
    def answer(path, _headers):
        more = {"X-Embertree-Partial": "1 of 2 ingesters missing", "Content-Type": "application/json"}
        return 200, more, SERIES if "Series" in path else FUNCTIONS

    with fake(answer) as (site, url):
        r = ctl(url, "top", "--allow-partial")
        assert r.returncode == 1 and b"ingesters are missing" in r.stderr and b" f\n" in r.stdout, r
        assert site.asked[-1][1]["X-Embertree-Allow-Partial"] == "1"
        assert json.loads(ok(url, "top", "--json", code=1))["partial"] is True


COMMANDS = (("top",), ("tree",), ("sandwich", "f"), ("grew",), ("timeline",), ("query", "-f", "folded"),
            ("diff",), ("tail", "-c1"), ("services",), ("types",), ("labels",), ("labels", "pod"),
            ("series",), ("space",), ("deletes",), ("delete", "x", "--yes"), ("admin",),
            ("admin", "ready"), ("admin", "ring"))
TYPED = {"top", "grew", "tree", "sandwich", "timeline", "query", "diff", "tail"}


def test_servers_that_send_anything():
    deep = b'{"a":' * 100000 + b"1" + b"}" * 100000
    bodies = [b"", b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"<html>\x1b[2J", deep,
              b'{"flamebearer":{"names":["a"],"levels":[[0,1,0,7]]}}',
              b'{"functions":[{"name":5}],"names":[1],"labelsSet":[{"labels":[{"value":1}]}]}',
              b'{"labelsSet":3,"names":3,"functions":3,"rows":3,"deletes":3,"roles":3}',
              b'{"labelsSet":[[]],"names":[[]],"functions":[[]],"rows":[[]],"deletes":[[]]}']
    for status in (200, 500):
        for body in bodies if status == 200 else bodies[:8:3]:
            with fake(lambda *_: (status, {"Content-Type": "application/json"}, body)) as (_, url):
                for args in COMMANDS:
                    r = ctl(url, *args, "--type", cluster.CPU_TYPE) \
                        if args[0] in TYPED else ctl(url, *args)
                    assert r.returncode in ((0, 1, 2) if status == 200 else (2,)), (args, body[:40], r)
                    assert b"\x1b" not in r.stderr and r.returncode >= 0, (args, r)
                    if args[0] not in ("query",):
                        assert b"\x1b" not in r.stdout, (args, r)


def test_hostile_names_in_every_list():
    evil = "\x1b]0;title\x07\x9b31m\u202e\n"
    labels = [{"name": n, "value": evil} for n in ("service_name", "__profile_type__", evil)]
    everything = {"labelsSet": [{"labels": labels}], "names": [evil], "all": 1, "mode": evil,
                  "functions": [{"name": evil, "self": 1, "total": 1}], "matching": 1, "bytes": 1,
                  "left": {"total": 1, "factor": 1}, "right": {"total": 2, "factor": 1},
                  "rows": [{"name": evil, "tenant": evil, "service": evil, "bytes": 1,
                            "self": {"left": 1, "right": 2, "shown": [1, 2]},
                            "total": {"left": 1, "right": 2, "shown": [1, 2]}}],
                  "deletes": [{"id": evil, "what": evil, "state": evil, "created": 1, "percent": 1}],
                  "id": evil, "what": evil, "tenant": evil, "series": 1, "services": 1,
                  **{k: {"names": [evil], "levels": [[0, 1, 1, 0]]}
                     for k in ("flamebearer", "callers", "callees")}, "allAt": [1], "version": evil,
                  "function": {"name": evil, "self": 1, "total": 1}, "total": 1,
                  "groups": [{"labels": {evil: evil}, "allAt": [1]}],
                  "message": evil, "roles": {evil: {"ready": True}}}
    body = json.dumps(everything, ensure_ascii=False).encode()
    for status in (200, 503):
        with fake(lambda *_: (status, {"Content-Type": "application/json"}, body)) as (_, url):
            for args in COMMANDS:
                more = ("--type", cluster.CPU_TYPE) if args[0] in TYPED else ()
                if args[0] == "query" or args == ("admin", "ring"):
                    continue  # bytes as the server has them
                r = ctl(url, *args, *more)
                text = (r.stdout + r.stderr).decode()
                assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), (args, text)


def test_server_down_or_silent():
    port = cluster.free_port()
    says = refused(f"http://127.0.0.1:{port}", "top", says="is the server up?")
    assert f"127.0.0.1:{port}" in says and "EMBERTREE_URL" in says, says
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        refused(url, "services", "--timeout=1s", says="--timeout")
    with fake(lambda *_: (503, {"Retry-After": "7"}, b'{"message":"draining"}')) as (_, url):
        refused(url, "services", says="503: draining; try again in 7 s")
        assert json.loads(ok(url, "admin", "ready", "--json", code=1)) == {"ready": False,
                                                                           "why": "draining"}
    with fake(lambda *_: (404, {}, b"page not found")) as (_, url):
        refused(url, "space", says="older version, or another program?")


def test_waiting_is_shown_to_people_only():
    def answer(*_):
        time.sleep(1.8)
        return 200, {"Content-Type": "application/json"}, b'{"names":["x"]}'

    with fake(answer) as (_, url):
        code, out = on_terminal(None, "labels", EMBERTREE_URL=url)
        assert code == 0 and "waiting for " + url in out and out.endswith("\x1b[Kx\n"), repr(out)
        code, out = on_terminal(None, "labels", "--quiet", EMBERTREE_URL=url)
        assert (code, out) == (0, "x\n"), repr(out)
        r = ctl(url, "labels")
        assert r.returncode == 0 and r.stderr == b"", r


def test_tls():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", f"{folder}/key", "-out", f"{folder}/cert"], check=True,
                       capture_output=True)
        server = cluster.Process("embertree", f"--http.tls_cert={folder}/cert",
                                 f"--http.tls_key={folder}/key", "--selfprof.enabled=false")
        try:
            server.start(wait=False)
            url = f"https://localhost:{server.port}"
            until = time.monotonic() + cluster.READY_S
            while ctl(url, "admin", "ready", "--tls-ca", f"{folder}/cert").returncode:
                assert time.monotonic() < until and server.child.poll() is None, server.tail()
                time.sleep(0.1)
            refused(url, "services", says="--tls-ca FILE names who signed")
            ok(url, "services", "--tls-ca", f"{folder}/cert", code=1)  # no service is stored
            ok(url, "services", "--insecure", code=1)
            # The name in the certificate counts.
            refused(f"https://127.0.0.1:{server.port}", "services", "--tls-ca", f"{folder}/cert",
                    says="cannot ask")
        finally:
            server.cleanup()


def test_manual_and_completion():
    page = ok(None, "man")
    for name in ("top", "diff", "fail\\-over", "EMBERTREE_URL"):
        assert name in page
    if shutil.which("groff"):
        r = subprocess.run(["groff", "-ww", "-man", "-Tutf8"], input=page, capture_output=True,
                           text=True, check=True)
        assert not r.stderr and "--fail-over" in re.sub(r"\x1b\[\d*m|.\x08", "", r.stdout), r.stderr
    else:
        print("SKIPPED: groff is not installed; the manual page was not formatted")
    for shell in ("bash", "zsh", "fish"):
        text = ok(None, "completion", shell)
        if not shutil.which(shell):
            print(f"SKIPPED: {shell} is not installed; its completion was not parsed")
            continue
        r = subprocess.run([shell, "-n", "/dev/stdin"], input=text, capture_output=True, text=True)
        assert r.returncode == 0 and not r.stderr, (shell, r)
    if shutil.which("fish"):
        script = "embertreectl completion fish | source; complete -C 'embertreectl sandw'; " \
                 "complete -C 'embertreectl top --sort '"
        r = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, check=True,
                           env=environment(PATH=f"{cluster.BIN}:{os.environ['PATH']}"))
        assert [x.split("\t")[0] for x in r.stdout.splitlines()] == ["sandwich", "self", "total"], r
    if shutil.which("zsh"):
        script = "autoload -U compinit; compinit -D -u; source <(embertreectl completion zsh); " \
                 "print ${_comps[embertreectl]}"
        r = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, check=True,
                           env=environment(PATH=f"{cluster.BIN}:{os.environ['PATH']}"))
        assert r.stdout.strip() == "_embertreectl" and not r.stderr, r
    assert completed("to") == ["top"]
    assert completed("top --lim") == ["--limit"]
    assert completed("top --sort ") == ["self", "total"]
    assert completed("--server http://x tree --de") == ["--depth"]
    assert completed("--server http : //x tree --de") == ["--depth"]  # as bash cuts it
    assert completed("top --sort = s") == ["self"]
    assert completed("completion ") == ["bash", "zsh", "fish"]
    assert completed("top --depth") == []
    with shop() as server:
        url = f"http://127.0.0.1:{server.reader.port}"
        assert completed("top sh", EMBERTREE_URL=url) == ["shop"]
        assert completed("top --service ", EMBERTREE_URL=url) == ["shop"]


def completed(line, **env):
    """What bash would offer behind this."""
    words = ["embertreectl", *line.split(" ")]
    script = (f"PATH={cluster.BIN}:$PATH; source <(embertreectl completion bash)\n"
              f"COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}\n"
              "_embertreectl; printf '%s\\n' \"${COMPREPLY[@]}\"\n")
    r = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True,
                       env=environment(**env))
    assert not r.stderr, r
    return r.stdout.split()


if __name__ == "__main__":
    cluster.main([test_top_and_tree, test_files, test_lists, test_diff_is_a_gate, test_sandwich,
                  test_grew, test_timeline, test_tail,
                  test_server_side, test_terminal, test_uploads_and_progress, test_wrong_calls,
                  test_closed_pipe_and_full_disk, test_who_asks, test_partial_answers_are_said,
                  test_servers_that_send_anything, test_hostile_names_in_every_list,
                  test_server_down_or_silent, test_waiting_is_shown_to_people_only,
                  test_tls, test_manual_and_completion])
