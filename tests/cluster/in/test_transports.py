"""Every file of the test data by every transport that can carry it: which test does which is the table
CARRIED, and a file that no row carries is a failure. Here: what other tests leave."""
import gzip
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push
import test_jfr
import test_testdata as files

# folder -> transport -> the test that does it
HERE = "test_transports"
REST = {"import": "test_every_way", "forward": "test_every_way"}
PPROF = {"ingest": "test_testdata", "multipart": HERE, "push": "test_push", "upload": HERE,
         "parca": "test_parca", "scrape": "test_every_way"} | REST
CARRIED = {
    "pprof": {"coded": HERE} | PPROF,
    "pprof-many": PPROF,
    "pprof-delta": PPROF,
    "pprof-legacy": {"ingest": HERE, "multipart": HERE, "coded": HERE, "push": HERE, "upload": HERE,
                     "parca": "test_every_way", "scrape": "test_every_way"} | REST,
    "collapsed": {"ingest": "test_testdata", "coded": HERE, "upload": HERE} | REST,
    "trie": {"ingest": HERE, "coded": HERE} | REST,
    "tree": {"ingest": HERE, "coded": HERE} | REST,
    "speedscope": {"ingest": HERE, "coded": HERE, "upload": HERE, "forward": "test_every_way"},
    "jfr": {"ingest": "test_jfr", "multipart": "test_jfr", "coded": HERE, "upload": HERE,
            "forward": "test_every_way"},
    "otlp": {"http": "test_otlp", "grpc": "test_otlp"},
    "parca-arrow": {"WriteArrow": "test_parca", "Write": "test_parca"},
    "cpuprofile": {"upload": HERE},
    "firefox": {"upload": HERE},
    "perf-script": {"upload": HERE},
    # What cannot be read says what to do instead: refused by upload.
    "perf-data": {"refused": HERE},
    "trace-event": {"refused": HERE},
    "dtrace": {"refused": HERE},
    # one verdict each
    "corrupt": {"ingest": "test_testdata", "jfr": "test_jfr", "otlp": "test_otlp",
                "arrow": "test_parca", "others": HERE, "by each way": "test_every_way"},
}
CODERS = {"gzip": lambda b: gzip.compress(b, 6),
          "br": lambda b: subprocess.run(["brotli", "-c", "-q", "5"], input=b, check=True,
                                         stdout=subprocess.PIPE).stdout,
          "zstd": lambda b: subprocess.run(["zstd", "-q", "-c"], input=b, check=True,
                                           stdout=subprocess.PIPE).stdout}
# What a sample of these recordings is worth in nanoseconds: the value of `period` of jdk.ExecutionSample in their
# jdk.ActiveSetting events, as the JDK's own `jfr print` shows it. All others have no such event: 10 ms.
JFR_PERIODS = {
    "jfr/cpool-uint64-constant-index.jfr.gz": 9 * 10**6, "jfr/object-allocation-sample.jfr.gz": 9 * 10**6,
    "jfr/event-with-type-zero.jfr.gz": 20 * 10**6, "jfr/jmc_flush_incremental_metadata.jfr": 20 * 10**6,
    "jfr/jmc_jdk21.jfr": 20 * 10**6}
FORMATS = {"pprof": "pprof", "legacy": "pprof", "trie": "trie", "tree": "tree", "jfr": "jfr",
           "speedscope": "speedscope", "collapsed": "groups"}
NAMED_BY_SUFFIX = ("collapsed", "trie", "tree")


def folder(row):
    return row["path"].split("/")[0]


def all_rows():
    rows = golden.manifest(*{line.split("\t")[1] for line in
                             (golden.DATA / "MANIFEST.tsv").read_text().splitlines()[1:]})
    return [r for r in rows if r["format"] not in ("pprof-string", "jfr-labels")]


def rows_of(transport):
    return [r for r in all_rows() if CARRIED.get(folder(r), {}).get(transport) == HERE]


def bad_jfr(row):
    return "error" in (golden.expected(row["path"]) or {"error": ""})


def test_no_file_is_left_out():
    missing = [r["path"] for r in all_rows() if not CARRIED.get(folder(r))]
    assert not missing, missing
    names = {os.path.basename(f)[:-3] for f in os.listdir(os.path.dirname(os.path.abspath(__file__)))}
    for where in CARRIED.values():
        assert set(where.values()) <= names, where
    on_disk = {str(p.relative_to(golden.DATA)) for p in golden.DATA.rglob("*") if p.is_file()}
    known = {r["path"] for r in golden.manifest(
        *{line.split("\t")[1] for line in
          (golden.DATA / "MANIFEST.tsv").read_text().splitlines()[1:]})}
    rest = {p for p in on_disk - known
            if not p.startswith(("expected/", "tools/")) and "/" in p and "VERDICTS" not in p}
    assert not rest, sorted(rest)


# ---- the totals of a file --------------------------------------------------------------------------


def want_totals(row):
    """{sample type: total}, or None where the file has no such numbers."""
    want = golden.expected(row["path"] if row["format"] != "legacy" else row["path"] + ".string")
    if row["format"] == "legacy":
        return {t.split("/")[0]: n for t, n in zip(want["sample_types"], want["totals"])}
    if row["format"] == "pprof":
        return {t["type"].replace("-", "_") or "unknown": t["total"] for t in want["sample_types"]
                if t["total"] and not t["negative_samples"]}
    if row["format"] in NAMED_BY_SUFFIX:
        return {"samples": want["total"]} if want["total"] else {}
    return None


def have_totals(server, service):
    out = {}
    for t in files.type_ids(server, service):
        stacks = cluster.leaves(server.render(f'{t}{{service_name="{service}"}}').json()["flamebearer"])
        kind = t.split(":")[1]
        assert kind not in out, (service, t)
        out[kind] = sum(stacks.values())
    return out


def check_totals(server, row, service, problems, like=None):
    have = have_totals(server, service)
    want = want_totals(row) if like is None else like
    if want is None:
        want = have if have else {"something": 1}
    if have != {k: v for k, v in want.items() if v}:
        problems.append(f"{row['path']} as {service}: {have}, expected {want}")


def ingest(server, row, service, body, headers=None, **more):
    name = service + (".cpu" if row["format"] in NAMED_BY_SUFFIX else "")
    query = {"format": FORMATS[row["format"]], "sampleRate": 0} | more
    return server.ingest(body, name, headers, **query)


def ok(r, what, problems):
    if r.status != 200 or r.body:
        problems.append(f"{what}: {r}")


def finish(problems, n):
    assert not problems, f"{len(problems)} of {n}:\n" + "\n".join(problems)
    print(f"     {n} bodies")


# ---- /ingest ---------------------------------------------------------------------------------------


def test_ingest():
    """trie, tree, speedscope and the old pprof formats, sent unchanged."""
    problems, n = [], 0
    with cluster.AllInOne() as server:
        for i, row in enumerate(r for r in rows_of("ingest") if r["format"] in FORMATS):
            n += 1
            r = ingest(server, row, f"raw{i}", golden.read(row["path"]))
            if row["format"] == "speedscope" and r.status == 400:
                assert all(p.get("error") for p in golden.expected(row["path"])["profiles"]), row
                continue
            ok(r, row["path"], problems)
            check_totals(server, row, f"raw{i}", problems)
        # Neither counts for what is stored (proto/WIRE.md, "Ingest parameters"): nothing is
        # refused or scaled for it.
        for i, more in enumerate(({"units": "bogus"}, {"units": "lock_samples"},
                                  {"aggregationType": "average"})):
            r = server.ingest(b"a;b 7\n", f"units{i}.cpu", sampleRate=0, **more)
            ok(r, str(more), problems)
            if have_totals(server, f"units{i}") != {"samples": 7}:
                problems.append(f"{more}: {have_totals(server, f'units{i}')}")
    finish(problems, n)


def test_coded():
    """Content-Encoding: gzip, br, zstd around every format: the totals of the plain body."""
    problems, n, seen = [], 0, {}
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows_of("coded")):
            if row["format"] not in FORMATS or (row["format"] == "jfr" and bad_jfr(row)):
                continue
            if seen.setdefault(row["format"], 0) >= 3 or len(golden.read(row["path"])) > 200000:
                continue  # three of each are enough to see the coding
            plain = golden.read(row["path"])
            r = ingest(server, row, f"plain{i}", plain)
            if r.status == 400 and row["format"] == "speedscope":
                continue
            seen[row["format"]] += 1
            ok(r, row["path"], problems)
            like = have_totals(server, f"plain{i}")
            check_totals(server, row, f"plain{i}", problems)
            for coding, code in CODERS.items():
                n += 1
                r = ingest(server, row, f"{coding}{i}", code(plain), {"Content-Encoding": coding})
                ok(r, f"{row['path']} in {coding}", problems)
                check_totals(server, row, f"{coding}{i}", problems, like)
    assert set(seen) == set(FORMATS) and all(seen.values()), seen
    finish(problems, n)


def test_multipart():
    problems, n = [], 0
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows_of("multipart")):
            n += 1
            body = golden.read(row["path"])
            form, headers = files.multipart([("profile", body if i % 2 else golden.plain(body))])
            r = server.ingest(form, f"form{i}", headers, path="/pyroscope/ingest")
            ok(r, row["path"], problems)
            check_totals(server, row, f"form{i}", problems)
    finish(problems, n)


def test_legacy_by_push():
    problems, n = [], 0
    ways = [push.push_proto, push.push_json, push.push_web, push.push_grpc]
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows_of("push")):
            way, n = ways[i % 4], n + 1
            raw = golden.read(row["path"])
            series = ({"__name__": "some_name", "service_name": f"push{i}"},
                      [(gzip.compress(raw) if i % 3 else raw, f"id-{i}")])
            make = push.request_json if way is push.push_json else push.request
            r = way(server.process, make(series))
            if getattr(r, "code", 0) or getattr(r, "status", 200) != 200:
                problems.append(f"{row['path']}: {r}")
            check_totals(server, row, f"push{i}", problems)
    finish(problems, n)


# ---- uploads ---------------------------------------------------------------------------------------


def upload(server, body):
    return server.writer.post("/api/v1/adhoc?name=file", body,
                              {"Content-Type": "application/octet-stream"})


def uploaded_totals(server, r):
    """As the reply says; what is read back must have the first of them."""
    said = r.json()
    out = {t["type"]: t["total"] for t in said["types"]}
    for kind in list(out)[:1]:
        got = server.reader.get(f"/api/v1/adhoc/{said['id']}", type=kind, format="json")
        assert got.status == 200, got
        stacks = cluster.leaves(got.json()["flamebearer"])
        assert sum(stacks.values()) == out[kind], (kind, got)
    return out


def test_upload():
    problems, n = [], 0
    with cluster.AllInOne() as server:
        for row in rows_of("upload"):
            if row["format"] == "jfr" and bad_jfr(row):
                continue
            n += 1
            r = upload(server, golden.read(row["path"]))
            broken = row["format"] == "speedscope" and all(
                p.get("error") for p in golden.expected(row["path"])["profiles"])
            want = want_totals(row)
            nothing = want == {} or (row["format"] == "jfr"
                                     and not list(test_jfr.kinds(golden.expected(row["path"]))))
            if broken or (nothing and r.status == 400):
                continue
            if r.status != 200:
                problems.append(f"{row['path']}: {r}")
                continue
            have = uploaded_totals(server, r)
            if row["format"] == "perf-script":
                counts = sorted(golden.expected(row["path"])["events_by_name"].values())
                if not set(counts) <= set(have.values()):
                    problems.append(f"{row['path']}: {have}, expected {counts}")
            elif row["format"] == "collapsed":  # samples of 10 ms, as /ingest takes them
                if list(have.values()) != [n * 10**7 for n in want.values()]:
                    problems.append(f"{row['path']}: {have}, expected {want}")
            elif row["format"] == "jfr":
                totals = sorted(k["total"] * (JFR_PERIODS.get(row["path"], 10**7) if k["type"] in ("cpu", "wall") else 1)
                                for _, k, _ in test_jfr.kinds(golden.expected(row["path"])))
                if sorted(have.values()) != totals:
                    problems.append(f"{row['path']}: {have}, expected {totals}")
            elif row["format"] == "cpuprofile" and golden.expected(row["path"]).get("samples"):
                if have["samples"] != golden.expected(row["path"])["samples"]:
                    problems.append(f"{row['path']}: {have}")
            elif want is not None and have != {k: v for k, v in want.items() if v}:
                problems.append(f"{row['path']}: {have}, expected {want}")
            elif not any(have.values()):
                problems.append(f"{row['path']}: nothing in it")
    finish(problems, n)


def test_refused():
    problems, n = [], 0
    with cluster.AllInOne() as server:
        for row in rows_of("refused"):
            n += 1
            r = upload(server, golden.read(row["path"]))
            if r.status != 400 or len(r.json()["message"]) < 20:
                problems.append(f"{row['path']}: {r}")
    finish(problems, n)


def test_other_verdicts():
    """Broken trie, tree, speedscope by /ingest; broken files of uploads."""
    by_ingest = {"trie": "trie", "tree": "tree", "speedscope": "speedscope"}
    problems, n = [], 0
    with cluster.AllInOne() as server:
        for i, (file, (kind, verdict, text)) in enumerate(golden.verdicts().items()):
            body = golden.read("corrupt/" + file)
            if kind in by_ingest:
                r = server.ingest(body, f"bad{i}.cpu", format=by_ingest[kind], sampleRate=0)
            elif kind in ("cpuprofile", "perf-script"):
                r = upload(server, body)
            else:
                assert kind in ("pprof", "jfr", "otlp", "collapsed", "parca-arrow"), kind
                continue
            n += 1
            refused = verdict in ("reject", "limit")
            if (r.status in (400, 413)) != refused or (r.status == 200) == refused:
                problems.append(f"{file} ({text}): {r}")
            if refused and kind in by_ingest and files.type_ids(server, f"bad{i}"):
                problems.append(f"{file}: something was stored")
    finish(problems, n)


if __name__ == "__main__":
    TESTS = [v for k, v in list(globals().items()) if k.startswith("test_") and callable(v)]
    if not golden.available():
        print(golden.skip_line("test_transports.py"))
        print(f"0 passed, 0 failed, {len(TESTS)} skipped")
        sys.exit(0)
    cluster.main(TESTS)
