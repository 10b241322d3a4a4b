"""Uploaded profiles: every file of the test data that people could bring, listed with the totals that
independent readers worked out, shown, compared, deleted; limits, tenants, restarts, the RPC service,
`embertree upload`, and what fsck says afterwards."""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden

URL = "/api/v1/adhoc"
SERVICE = "/adhocprofiles.v1.AdHocProfileService/"
SPEEDSCOPE = {"none": 10**7, "seconds": 10**9, "milliseconds": 10**6, "microseconds": 10**3,
              "nanoseconds": 1, "bytes": 1}
PADDED_EVENTS = 2  # of single-line-stacks.txt: the reader of the numbers takes them for none
TICK = 10**7  # JFR counts samples: without a rate each stands for 10 ms, as on /ingest
# The period that recordings of the JDK name themselves: `jfr print --events jdk.ActiveSetting`.
PERIODS = {"cpool-uint64-constant-index": 9 * 10**6, "object-allocation-sample": 9 * 10**6,
           "event-with-type-zero": 2 * TICK, "jmc_flush_incremental_metadata": 2 * TICK,
           "jmc_jdk21": 2 * TICK}
SAMPLY_WEIGHTS = 13069  # a row of samples may have a weight; expected are rows


def web(server):
    """The process that takes uploads."""
    return getattr(server, "writer", None) or server.process


def headers(tenant=None, **more):
    return {**({"X-Scope-OrgID": tenant} if tenant else {}), **more}


def upload(server, body, name, tenant=None, **more):
    return web(server).post(URL, body, headers(tenant, **more), name=name)


def listed(server, tenant=None):
    r = web(server).request("GET", URL, headers=headers(tenant))
    assert r.status == 200, r
    return r.json()["profiles"]


def view(server, path, tenant=None):
    return web(server).request("GET", f"{URL}/{path}", headers=headers(tenant))


def call(server, method, message, tenant=None):
    return web(server).post(SERVICE + method, json.dumps(message).encode(),
                            headers(tenant, **{"Content-Type": "application/json"}))


def delete(server, profile, tenant=None):
    return web(server).request("DELETE", f"{URL}/{profile}", headers=headers(tenant))


# ---- every file


def wanted(row):
    """[(profile type's name or None, sample type, total)] of a file."""
    want, path = golden.expected(row["path"]), row["path"]
    if row["format"] == "cpuprofile":
        return [] if "error" in want else [(None, "samples", want["samples"])]
    if row["format"] == "heapprofile":
        return [(None, "inuse_space", want["total_bytes"])]
    if row["format"] == "firefox":
        n = sum(t["samples"] - t.get("null_stacks", 0) for t in want["threads"])
        n = SAMPLY_WEIGHTS if "samply" in path else n
        return [(None, "samples", n), (None, "wall", round(n * want["interval_ms"] * 10**6))]
    if row["format"] == "perf-script":
        single = "single-line" in path
        return [(None, "samples", PADDED_EVENTS if single else sum(want["events_by_name"].values()))]
    if "incomplete-trace" in path:  # what is open at the end is closed there
        return [(None, "cpu", 100 * SPEEDSCOPE["none"])]
    if row["format"] == "speedscope":
        return [(None, None, sum(p["total"] * SPEEDSCOPE[p["unit"]] for p in want["profiles"]))]
    if row["format"] == "jfr":
        tick = PERIODS.get(os.path.basename(path).split(".")[0], TICK)
        kinds = [(key.split(":")[0], "samples" if key == "native:native" else kind["type"],
                  kind["total"] * (tick if kind["type"] in ("cpu", "wall") else 1))
                 for key, profile in want["profiles"].items() for kind in profile["sample_types"]
                 if kind["unit"] != "ticks"]
        return [k for k in kinds if k[2]]
    return [(None, (k["type"] or "unknown").replace("-", "_"), k["total"])
            for k in want["sample_types"] if k["nonzero_samples"] and not k["negative_samples"]]


def nothing_in(row):
    """No samples, or frames closed that are not open."""
    return "out-of-order" in row["path"] or (row["format"] == "jfr" and not wanted(row))


def check(row, profile):
    types = [(t["id"].split(":")[0], t["id"].split(":")[1], t["total"]) for t in profile["types"]]
    for name, sample, total in wanted(row):
        sums = {t for n, s, t in types if name in (None, n) and sample in (None, s)}
        if sample and row["format"] == "perf-script":
            sums = {sum(t for _, s, t in types if s == sample)}
        if sample is None:
            sums = {sum(t for _, _, t in types)}
        assert sums == {total}, f"{row['path']} {name} {sample}: {total} expected, {types}"


def files():
    rows = golden.manifest("pprof", "jfr", "cpuprofile", "heapprofile", "firefox", "perf-script",
                           "speedscope")
    good = [r for r in rows if r["expected"] and not r["path"].startswith("corrupt/")]
    return [r for r in good if r["format"] != "jfr" or "error" not in golden.expected(r["path"])]


def shown(server, profile):
    """Each type of it as a flame graph and as text; both have the total of the list."""
    for t in profile["types"]:
        r = web(server).get(f"{URL}/{profile['id']}", type=t["type"], max_nodes=0)
        flame = r.json()["flamebearer"]
        assert flame["numTicks"] == t["total"], (profile["name"], t, flame["numTicks"])
        assert sum(cluster.leaves(flame).values()) == t["total"], (profile["name"], t)
        r = web(server).get(f"{URL}/{profile['id']}", type=t["type"], format="collapsed")
        sums = sum(int(line.rpartition(b" ")[2]) for line in r.body.splitlines())
        assert r.status == 200 and sums == t["total"], (profile["name"], t, sums)


def every_file(server):
    problems, ids = [], {}
    for row in files():
        r = upload(server, golden.read(row["path"]), row["path"])
        if nothing_in(row):
            if r.status != 400:
                problems.append(f"{row['path']}: {r}")
            continue
        if r.status != 200:
            problems.append(f"{row['path']}: {r}")
            continue
        ids[r.json()["id"]] = row
    profiles = listed(server)
    assert {p["id"] for p in profiles} == set(ids), "the list has others"
    for p in profiles:
        try:
            assert p["name"] == ids[p["id"]]["path"] and p["size"] > 0
            check(ids[p["id"]], p)
            shown(server, p)
        except AssertionError as e:
            problems.append(str(e))
    assert not problems, f"{len(problems)} of {len(files())}:\n" + "\n".join(problems)
    print(f"     {len(ids)} files")
    return profiles


def test_every_file():
    with cluster.AllInOne("--distributor.adhoc_max=1000") as server:
        before = every_file(server)
        process = server.process
        process.kill()
        process.start()
        assert listed(server) == before, "an acked upload is lost"
        shown(server, before[0])
        assert process.stop() == 0
        fsck(process)
        process.start()
        for p in before:
            assert delete(server, p["id"]).status == 200
        assert listed(server) == []
        assert process.stop() == 0
        fsck(process)
        process.start()


def fsck(process):
    """No findings in any shard."""
    for db in sorted((process.folder / "data").glob("**/CURRENT")):
        r = subprocess.run([str(cluster.BIN / "embertree"), "fsck", str(db.parent)],
                           capture_output=True, timeout=100)
        assert r.returncode == 0, r


def test_four_processes():
    with cluster.FourProcesses() as server:
        a = upload(server, b"a;b 3\n", "a.txt").json()["id"]
        b = upload(server, b"a;c 4\n", "b.txt").json()["id"]
        assert [p["id"] for p in listed(server)] == [a, b]
        r = view(server, f"{a}/diff/{b}")
        assert r.status == 200 and r.json()["flamebearer"]["numTicks"] == 7 * 10**7, r
        assert delete(server, a).status == 200
        assert [p["id"] for p in listed(server)] == [b]


# ---- what is asked


def test_compare():
    with cluster.AllInOne() as server:
        a = upload(server, b"main;x 30\nmain;y 10\n", "../one file.txt").json()["id"]
        form = (b'--B\r\nContent-Disposition: form-data; name="f"; filename="two.txt"\r\n\r\n'
                b"main;x 5\nmain;z 5\n\r\n--B--\r\n")
        r = web(server).post(URL, form, {"Content-Type": "multipart/form-data; boundary=B"})
        assert r.status == 200, r
        b = r.json()["id"]
        assert a.endswith("-one_file.txt") and b.endswith("-two.txt"), (a, b)
        d = view(server, f"{a}/diff/{b}").json()
        assert d["leftTicks"] == 40 * 10**7 and d["rightTicks"] == 10 * 10**7, d
        assert d["metadata"]["format"] == "double" and d["profileType"] == "cpu", d
        assert d["flamebearer"]["levels"][0] == [0, 40 * 10**7, 0, 0, 10 * 10**7, 0, 0], d
        assert d["adhoc"]["id"] == a and d["adhocRight"]["name"] == "two.txt", d
        assert view(server, f"{a}/diff/{a[:26]}-no").status == 404
        assert view(server, f"{a}/other/{b}").status == 404
        for bad in ("x", a + "?type=none", a + "?max-nodes=x", a + "?max-nodes=99999999",
                    a + "?format=pprof", f"{a}/diff/{b}?format=collapsed"):
            assert view(server, bad).status == 400, bad
        for name in ("max-nodes", "maxNodes", "max_nodes"):
            for value in ("x", "1.5", "-1", "99999999"):
                r = view(server, f"{a}?{name}={value}")
                assert r.status == 400 and f'{name} is \\"{value}\\"'.encode() in r.body, (name, value, r)
            assert view(server, f"{a}?{name}=").status == 200
            assert view(server, f"{a}?{name}=1").json()["flamebearer"]["numTicks"] == 40 * 10**7
        few = view(server, a + "?max-nodes=1").json()["flamebearer"]
        assert few["numTicks"] == 40 * 10**7 and "other" in few["names"], few


def test_refused():
    with cluster.AllInOne("--distributor.adhoc_max=2", "--distributor.adhoc_bytes_max=3KiB") as server:
        for body in (b"", b"no profile\n", b"PERFILE2....", b"{}", b"\x1f\x8b\x08broken"):
            r = upload(server, body, "x")
            assert r.status == 400, (body, r)
        r = upload(server, b"a;b 1\nno count\n", "half")
        assert r.status == 200 and r.headers["X-Embertree-Left-Out"] == "line_without_count=1", r
        assert delete(server, r.json()["id"]).status == 200
        noise = "".join(f"f{i * 2654435761 % 2**32:x};g{i} {i + 1}\n" for i in range(2000)).encode()
        r = upload(server, noise, "large")
        assert r.status == 429 and b"delete some first" in r.body, r
        first = upload(server, b"a 1\n", "a").json()["id"]
        r = upload(server, b"a 1\n", "a")
        assert r.status == 200 and "X-Embertree-Left-Out" not in r.headers, r
        assert upload(server, b"a 1\n", "a").status == 429
        assert delete(server, first).status == 200
        assert delete(server, first).status == 404
        assert upload(server, b"a 1\n", "a").status == 200
        assert len(listed(server)) == 2
        if golden.available():
            for file, (format_, verdict, _) in golden.verdicts().items():
                r = upload(server, golden.read("corrupt/" + file), file)
                assert r.status in (400, 413, 429), (file, format_, verdict, r)
        else:
            print(golden.skip_line("damaged uploads"))
        assert len(listed(server)) == 2
        assert server.process.get("/readyz").status == 200


def test_service():
    """As Grafana's application calls it."""
    with cluster.AllInOne() as server:
        ids = []
        for text in (b"m;a 1\nm;b 2\n", b"m;a 4\n"):
            r = call(server, "Upload", {"name": "n.txt", "profile": base64.b64encode(text).decode()})
            assert r.status == 200, r
            up = r.json()
            assert up["profileType"] == "cpu" and up["profileTypes"] == ["cpu"], up
            assert json.loads(up["flamebearerProfile"])["version"] == 1, up
            ids.append(up["id"])
        rows = call(server, "List", {}).json()["profiles"]
        assert [p["id"] for p in rows] == ids and rows[0]["name"] == "n.txt", rows
        assert int(rows[0]["uploadedAt"]) > 1.6e12, rows
        got = call(server, "Get", {"id": ids[0], "profileType": "cpu", "maxNodes": 10}).json()
        assert got["uploadedAt"] == rows[0]["uploadedAt"], got
        flame = json.loads(got["flamebearerProfile"])
        assert flame["metadata"] == {"format": "single", "spyName": "", "sampleRate": 10**9,
                                     "units": "samples", "name": "cpu"}, flame
        assert flame["timeline"] is None and flame["flamebearer"]["numTicks"] == 3 * 10**7, flame
        d = call(server, "Diff", {"leftId": ids[0], "right_id": ids[1]}).json()
        assert d["profileTypes"] == ["cpu"], d
        assert json.loads(d["flamebearerProfile"])["rightTicks"] == 4 * 10**7, d
        r = call(server, "Get", {"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV-x"})
        assert r.status == 404 and r.json()["code"] == "not_found", r
        assert call(server, "Get", {"id": "x"}).status == 400
        r = call(server, "Upload", {"name": "n", "profile": "%%%"})
        assert r.status == 400 and r.json()["code"] == "invalid_argument", r
        # The same in proto: {1: id}
        message = b"\x0a" + bytes([len(ids[0])]) + ids[0].encode()
        r = web(server).post(SERVICE + "Get", message, {"Content-Type": "application/proto"})
        assert r.status == 200 and r.body.startswith(message), r
        assert got["flamebearerProfile"].encode() in r.body, r


def test_tenants():
    with cluster.AllInOne("--tenancy.multi=true") as server:
        assert upload(server, b"a 1\n", "x").status == 401
        mine = upload(server, b"a 1\n", "x", "acme").json()["id"]
        other = upload(server, b"a 2\n", "x", "other").json()["id"]
        assert [p["id"] for p in listed(server, "acme")] == [mine]
        for path in (mine, f"{other}/diff/{mine}"):
            assert view(server, path, "other").status == 404, path
        assert delete(server, mine, "other").status == 404
        assert call(server, "Get", {"id": mine}, "other").status == 404
        r = server.reader.post("/api/v1/delete", b"", headers("acme"), all="1", confirm="acme")
        assert r.status == 200, r
        assert listed(server, "acme") == []
        assert view(server, mine, "acme").status == 404
        assert [p["id"] for p in listed(server, "other")] == [other]


def test_command():
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as folder:
        good, bad = pathlib.Path(folder, "a b&c.txt"), pathlib.Path(folder, "bad.txt")
        good.write_bytes(b"a;b 3\n")
        bad.write_bytes(b"nothing\n")
        url = f"http://127.0.0.1:{web(server).port}"
        command = [str(cluster.BIN / "embertree"), "upload", "--url", url]
        r = subprocess.run([*command, str(good), str(bad)], capture_output=True, text=True,
                           timeout=60)
        [profile] = listed(server)
        assert r.returncode == 1 and "bad.txt: the server says 400" in r.stderr, r
        assert r.stdout == f"{good}: {url}/#adhoc={profile['id']}\n", r
        assert profile["name"] == "a b&c.txt", profile
        r = subprocess.run([*command, "--name=other", str(good)], capture_output=True, timeout=60)
        assert r.returncode == 0 and listed(server)[1]["name"] == "other", r
        assert subprocess.run(command, capture_output=True, timeout=60).returncode == 2
        command[-1] = "http://127.0.0.1:1"
        assert subprocess.run([*command, str(good)], capture_output=True,
                              timeout=60).returncode == 2


if __name__ == "__main__":
    tests = [test_every_file] if golden.available() else []
    if not tests:
        print(golden.skip_line("test_every_file"))
    cluster.main(tests + [test_four_processes, test_compare, test_refused, test_service,
                          test_tenants, test_command])
