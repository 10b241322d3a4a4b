"""Importing old data: `embertree import` from files, and POST /api/v1/import itself: what it takes,
what it refuses and how it says so; a repeated import is no double."""
import gzip
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

EPOCH_2020 = 1577836800
TICK = 10_000_000
DAY = 86400


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7f | 0x80])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fixed32(values):
    return b"".join(struct.pack("<I", v) for v in values)


def fixed64(values):
    return b"".join(struct.pack("<Q", v) for v in values)


def write_request(service, vectors, labels=None, tenant="", wid=b"", stacks=("main", "work"),
                  ptype=cluster.CPU_TYPE, times=1):
    """vectors: [(slot, [(node, value)])]; the nodes are one stack, one below the other."""
    strings = ("",) + tuple(stacks)
    n = len(stacks)
    columns = [field(1, "".join(strings)), field(2, fixed32(len(s.encode()) for s in strings)),
               field(3, fixed32(range(1, n + 1)))]
    columns += [field(k, fixed32([0] * n)) for k in (4, 5, 6)] + [field(7, fixed64([0] * n))]
    columns += [field(8, fixed32(range(n))), field(9, fixed32(range(n)))]
    series = b"".join(field(1, field(1, k) + field(2, v))
                      for k, v in sorted((labels or {"service_name": service}).items()))
    series += field(2, ptype) + (field(4, wid) if wid else b"")
    for slot, pairs in vectors:
        series += field(5, field(1, slot) + field(2, fixed32(p[0] for p in pairs))
                        + field(3, fixed64(p[1] for p in pairs)))
    return (field(1, tenant) if tenant else b"") + field(2, service) + \
        field(4, b"".join(columns)) + times * field(5, series)


def body(*messages):
    return b"".join(varint(len(m)) + m for m in messages)


def slot_of(seconds):
    return int(seconds - EPOCH_2020) // 5


def total(server, service, start, end, kind=cluster.CPU_TYPE):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": kind, "labelSelector": '{service_name="%s"}' % service,
        "maxNodes": "100000", "start": str(int(start * 1000)), "end": str(int(end * 1000))})
    assert r.status == 200, r
    return int(cluster.flamegraph(r.json())["numTicks"]), \
        cluster.leaves(cluster.flamegraph(r.json()))


def run_import(server, *args):
    command = [str(cluster.BIN / "embertree"), "import",
               f"--url=http://127.0.0.1:{server.writer.port}", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def make_files(folder, begin, count, rng):
    """Folded files named by their time, one each 10 s; returns the sum of each stack."""
    want = {}
    for i in range(count):
        lines = []
        for name in ("parse", "write", "wait"):
            n = rng.randrange(1, 50)
            lines.append(f"main;work;{name} {n}")
            want["main", "work", name] = want.get(("main", "work", name), 0) + n * TICK
        (folder / f"shop-{int(begin) + 10 * i}.txt").write_text("\n".join(lines) + "\n")
    return want


def test_command_imports_old_files_once():
    seed = int(os.environ.get("SEED", time.time()))
    print("seed", seed)
    rng = random.Random(seed)
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp) / "in"
        folder.mkdir()
        begin = int(time.time() - 200 * DAY) // 3600 * 3600
        want = make_files(folder, begin, 300, rng)
        name, state = "--name=shop.cpu{pod=a}", f"--state={tmp}/state"
        r = run_import(server, name, state, "--level=1m", folder)
        assert r.returncode == 0 and "imported 300 of 300 files" in r.stderr, r
        n, stacks = total(server, "shop", begin - 3600, begin + 7200)
        assert stacks == want and n == sum(want.values()), (stacks, want)
        r = run_import(server, name, state, folder)  # the state file knows them
        assert r.returncode == 0 and "imported 0 of 300 files, 300 known" in r.stderr, r
        r = run_import(server, name, "--level=1m", folder)  # the server does, too
        assert r.returncode == 0 and "imported 300" in r.stderr, r
        assert total(server, "shop", begin - 3600, begin + 7200)[1] == want
        assert server.writer.metric("embertree_distributor_duplicates_total") >= 300


def test_command_says_what_is_wrong():
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        r = run_import(server, folder)
        assert r.returncode == 2 and "--name is needed" in r.stderr, r
        r = run_import(server, "--name=x", "--bogus=1", folder)
        assert r.returncode == 2 and "--bogus is no option" in r.stderr, r
        (folder / "bad.pb.gz").write_bytes(b"\x1f\x8b nothing")
        (folder / "good.txt").write_text("a;b 3\n")
        r = run_import(server, "--name=x.cpu", folder)
        assert r.returncode == 1 and "bad.pb.gz" in r.stderr, r
        assert "imported 1 of 2 files, 0 known, 1 refused" in r.stderr, r
        r = run_import(server, "--name=x.cpu", "--from=20210101", folder / "good.txt")
        assert r.returncode == 2 and "not_in_ingestion_window" in r.stderr, r
        port = cluster.free_port()
        r = subprocess.run([str(cluster.BIN / "embertree"), "import", "--name=x", "--retries=0",
                            f"--url=http://127.0.0.1:{port}", str(folder / "good.txt")],
                           capture_output=True, text=True, timeout=60, check=False)
        assert r.returncode == 2 and "is the server up?" in r.stderr, r


def test_command_spreads_files_over_a_range():
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        for i in range(6):
            (folder / f"{i}.folded").write_text(f"main;f{i} 1\n")
        begin = int(time.time() - 2 * DAY) // 3600 * 3600
        r = run_import(server, "--name=s.cpu", f"--from={begin}", "--step=1m", folder)
        assert r.returncode == 0, r
        for i in range(6):
            _, stacks = total(server, "s", begin + 60 * i, begin + 60 * i + 59)
            assert stacks == {("main", f"f{i}"): TICK}, stacks


def test_command_looks_at_files_without_a_known_name():
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        file = pathlib.Path(tmp) / "stacks"
        file.write_text("[unknown];main 3\n{lambda};main 2\n")
        begin = int(time.time() - 2 * DAY) // 3600 * 3600
        r = run_import(server, "--name=s.cpu", f"--from={begin}", "--step=1m", file)
        assert r.returncode == 0 and "imported 1 of 1 files" in r.stderr, r
        _, stacks = total(server, "s", begin, begin + 59)
        assert stacks == {("[unknown]", "main"): 3 * TICK, ("{lambda}", "main"): 2 * TICK}, stacks


def test_resumes_after_a_kill():
    """The importer is killed in its middle; what it does afterwards completes the sum."""
    rng = random.Random(5)
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp) / "in"
        folder.mkdir()
        begin = int(time.time() - 40 * DAY) // 3600 * 3600
        want = make_files(folder, begin, 9000, rng)
        args = ["--name=shop.cpu{pod=a}", f"--state={tmp}/state", "--level=1m", folder]
        command = [str(cluster.BIN / "embertree"), "import",
                   f"--url=http://127.0.0.1:{server.writer.port}", *map(str, args)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
            state = pathlib.Path(tmp) / "state"
            until = time.monotonic() + 90
            while child.poll() is None and time.monotonic() < until and not state.exists():
                time.sleep(0.002)
            child.kill()
        r = run_import(server, *args)
        assert r.returncode == 0, r
        assert total(server, "shop", begin - DAY, begin + 2 * DAY)[1] == want


def test_messages():
    with cluster.AllInOne() as server:
        post = lambda data, level="", headers=None: server.writer.post(
            "/api/v1/import" + (f"?level={level}" if level else ""), data, headers)
        begin = int(time.time() - 100 * DAY) // DAY * DAY
        s = slot_of(begin)
        one = write_request("m", [(s, [(1, 5), (2, 7)]), (s + 2, [(2, 11)])])
        two = write_request("m", [(s + 12, [(2, 1)])], {"service_name": "m", "pod": "x"})
        r = post(body(one, two))
        assert r.status == 200, r
        assert r.json() == {"messages": 2, "profiles": 3, "samples": 4, "stored_series": 2,
                            "duplicate_series": 0, "left_out": {}}, r
        r = post(gzip.compress(body(one, two)), headers={"Content-Encoding": "gzip"})
        assert r.status == 200 and r.json()["duplicate_series"] == 2, r
        assert total(server, "m", begin - 600, begin + 1200)[1] == {
            ("main",): 5, ("main", "work"): 19}
        # A level: what meets at the start of a node is one vector.
        r = post(body(write_request("lv", [(s + 4, [(1, 2)]), (s + 6, [(1, 3), (2, 4)])])), "1m")
        assert r.status == 200, r
        assert total(server, "lv", begin, begin + 60)[1] == {("main",): 5, ("main", "work"): 4}
        # A series that is written twice counts twice, unless its sender says that both are the same.
        for wid, want in (b"", 2), (b"0123456789abcdef", 1):
            message = body(write_request("tw" + str(want), [(s, [(2, 5)])], wid=wid, times=2))
            for stored in want, 0:
                r = post(message)
                assert r.status == 200 and r.json()["stored_series"] == stored, r
            assert total(server, "tw" + str(want), begin, begin + 60)[0] == 5 * want
        assert post(b"").status == 200
        assert post(b"", "2m").status == 400


def test_refused_messages():
    with cluster.AllInOne("--distributor.past=30d") as server:
        now = time.time()
        s = slot_of(now - DAY)
        good = write_request("r", [(s, [(1, 1)])])
        bad = {
            "no WriteRequest": b"\xff\xff\xff",
            "no service": write_request("", [(s, [(1, 1)])]),
            "another tenant": write_request("r", [(s, [(1, 1)])], tenant="other"),
            "service_name is": write_request("r", [(s, [(1, 1)])], {"service_name": "q"}),
            "node 9 of 2": write_request("r", [(s, [(9, 1)])]),
            "do not ascend": write_request("r", [(s, [(2, 1), (1, 1)])]),
            "is 0 or over": write_request("r", [(s, [(1, 0)])]),
            "after slot": write_request("r", [(s, [(1, 1)]), (s, [(1, 1)])]),
            "no vectors": write_request("r", []),
            "write id of 3 bytes": write_request("r", [(s, [(1, 1)])], wid=b"abc"),
            "more than is kept": write_request("r", [(slot_of(now - 31 * DAY), [(1, 1)])]),
            "ahead of this server": write_request("r", [(slot_of(now + DAY), [(1, 1)])]),
        }
        for words, message in bad.items():
            r = server.writer.post("/api/v1/import", body(good, message))
            assert r.status == 400 and words in r.json()["message"], (words, r)
            assert "message 1" in r.json()["message"], r
            assert r.headers["X-Embertree-Stored-Messages"] in ("0", "1"), r.headers
        r = server.writer.post("/api/v1/import", body(good)[:-1])
        assert r.status == 400 and "at byte 0" in r.json()["message"], r
        r = server.writer.post("/api/v1/import", body(good), {"Content-Encoding": "lzma"})
        assert r.status == 400 and "zstd" in r.json()["message"], r
        # Whatever was sent with it, the good one counts once.
        assert server.writer.post("/api/v1/import", body(good)).status == 200
        assert total(server, "r", now - 2 * DAY, now)[1] == {("main",): 1}


def test_tenants():
    with cluster.AllInOne("--tenancy.multi=true") as server:
        s = slot_of(time.time() - DAY)
        message = body(write_request("t", [(s, [(1, 1)])]))
        assert server.writer.post("/api/v1/import", message).status == 401
        r = server.writer.post("/api/v1/import", message, {"X-Scope-OrgID": "one"})
        assert r.status == 200 and r.json()["stored_series"] == 1, r
        r = server.writer.post("/api/v1/import", message, {"X-Scope-OrgID": "two"})
        assert r.status == 200 and r.json()["stored_series"] == 1, r


def leaves_of(server, service, begin, tenant):
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="%s"}' % service,
        "maxNodes": "100000", "start": str(begin * 1000), "end": str((begin + 1200) * 1000)},
        {"X-Scope-OrgID": tenant})
    assert r.status == 200, r
    return cluster.leaves(cluster.flamegraph(r.json()))


def test_rules():
    """What holds of every other way in holds of imports: tenants' limits, drop, relabel, sampling."""
    text = """
tenants:
  drop: {drop: ['{env="dev"}']}
  move: {relabel: [{source_labels: [pod], target_label: service_name, regex: 'p(.*)', replacement: 'svc-$1'},
                   {action: labeldrop, regex: 'pod|env'}]}
  none: {sampling: [{match: '{}', probability: 0}]}
  half: {sampling: [{match: '{}', probability: 0.5}]}
  young: {reject_older_than: 1h}
  few: {max_series_per_tenant: 2}
  names: {max_label_names_per_series: 2}
  slow: {ingestion_rate_mb: 0.001, ingestion_burst_size_mb: 0.001}
  small: {ingestion_body_limit_mb: 0.0001}
"""
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "overrides.yaml"
        path.write_text(text)
        with cluster.AllInOne("--tenancy.multi", f"--distributor.overrides-file={path}") as server:
            begin = int(time.time() - DAY) // DAY * DAY
            s = slot_of(begin)
            # One series over three slots, two more that meet in a slot once the pod is gone.
            data = body(
                write_request("a", [(s, [(1, 5), (2, 7)]), (s + 1, [(2, 11)]), (s + 60, [(2, 1)])],
                              {"env": "dev", "pod": "p1", "service_name": "a"}),
                write_request("a", [(s, [(2, 100)])],
                              {"env": "dev", "pod": "p2", "service_name": "a"}),
                write_request("a", [(s, [(2, 1000)]), (s + 60, [(1, 3)])],
                              {"env": "prod", "pod": "p2", "service_name": "a"}))
            all_of_it = {("main",): 8, ("main", "work"): 1119}

            def post(tenant, data=data):
                return server.writer.post("/api/v1/import", data, {"X-Scope-OrgID": tenant})

            def count(name, **labels):
                return server.process.metric(name, **labels) or 0

            r = post("plain")
            assert r.status == 200 and r.json()["stored_series"] == 3, r
            assert leaves_of(server, "a", begin, "plain") == all_of_it
            r = post("drop")
            assert r.status == 200 and r.json()["messages"] == 3 and r.json()["samples"] == 2, r
            assert leaves_of(server, "a", begin, "drop") == {("main",): 3, ("main", "work"): 1000}
            assert count("embertree_discarded_profiles_total", reason="dropped_by_relabel_rules",
                         tenant="drop") == 4
            for again in range(2):
                r = post("move")
                assert r.status == 200 and r.json()["duplicate_series"] == 6 * again, r
                assert leaves_of(server, "svc-1", begin, "move") == {
                    ("main",): 5, ("main", "work"): 19}
                assert leaves_of(server, "svc-2", begin, "move") == {
                    ("main",): 3, ("main", "work"): 1100}
                assert leaves_of(server, "a", begin, "move") == {}
            assert post("none").json()["stored_series"] == 0
            assert leaves_of(server, "a", begin, "none") == {}
            # A series of 400 slots: about half of its 10 s are there, each of them whole.
            many = write_request("h", [(s + i, [(2, 1)]) for i in range(240)])
            assert post("half", body(many)).status == 200
            kept = sum(leaves_of(server, "h", begin, "half").values())
            assert 60 < kept < 180 and kept % 2 == 0, kept
            for tenant, code, words in (("young", 400, "not_in_ingestion_window"),
                                        ("few", 429, "series_limit"),
                                        ("names", 400, "3 labels, at most 2"),
                                        ("small", 413, "body_size_limit_exceeded")):
                r = post(tenant)
                assert r.status == code and words in r.json()["message"], (tenant, r)
            codes = [post("slow").status for _ in range(4)]
            assert codes[0] == 200 and 429 in codes, codes
            assert count("embertree_discarded_profiles_total", reason="rate_limited",
                         tenant="slow") >= 1


def test_forwarded():
    """Imported data are forwarded to other servers, slot by slot, and once."""
    with cluster.AllInOne() as far, tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "forward.yaml"
        path.write_text(f"targets:\n  far:\n    url: http://127.0.0.1:{far.writer.port}\n")
        with cluster.AllInOne(f"--distributor.forward-config-file={path}") as near:
            begin = int(time.time() - 3600) // 600 * 600
            s = slot_of(begin)
            data = body(write_request("f", [(s + i, [(1, 1 + i), (2, 10)]) for i in range(100)]))
            for _ in range(2):
                r = near.writer.post("/api/v1/import", data)
                assert r.status == 200 and r.json()["profiles"] == 100, r
            want = {("main",): 5050, ("main", "work"): 1000}
            assert total(near, "f", begin, begin + 600)[1] == want
            until = time.monotonic() + 60
            while total(far, "f", begin, begin + 600)[1] != want:
                assert time.monotonic() < until, total(far, "f", begin, begin + 600)
                time.sleep(0.2)
            # In their own slots.
            assert total(far, "f", begin, begin + 9)[1] == total(near, "f", begin, begin + 9)[1]


def test_same_as_in_process():
    """An hour of the simulated year: over HTTP and through the engine in process, the same sums."""
    tool = cluster.ROOT / os.environ.get("O", "build/release") / "tests/lib/tools/tool_year"
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as tmp:
        for back in (3, 60, 300):
            said = subprocess.run([str(tool), f"{tmp}/body", f"{tmp}/folded", str(back)],
                                  capture_output=True, text=True, check=True, timeout=120).stdout
            start, end, want_total = map(int, said.splitlines()[-1].split())
            r = server.writer.post("/api/v1/import?level=1m", pathlib.Path(f"{tmp}/body").read_bytes())
            assert r.status == 200 and r.json()["profiles"] == 240, r
            want = {}
            for line in pathlib.Path(f"{tmp}/folded").read_text().splitlines():
                stack, _, value = line.rpartition(" ")
                key = tuple(stack.split("\x1f"))
                want[key] = want.get(key, 0) + int(value)
            n, stacks = total(server, "node", start / 1000, end / 1000 - 1)
            assert n == want_total, (back, n, want_total)
            assert stacks == want, (back, len(stacks), len(want))


if __name__ == "__main__":
    cluster.main([test_messages, test_refused_messages, test_tenants, test_rules, test_forwarded,
                  test_command_imports_old_files_once, test_command_says_what_is_wrong,
                  test_command_spreads_files_over_a_range,
                  test_command_looks_at_files_without_a_known_name, test_resumes_after_a_kill,
                  test_same_as_in_process])
