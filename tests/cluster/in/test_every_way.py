"""What test_transports leaves: every file that can be fetched, imported or forwarded comes through
with its totals, and every file of testdata/corrupt gets its verdict by each way in. What is
stored of such a file is the same by all ways."""
import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push
import test_jfr
import test_otlp as otlp
import test_parca as parca
import test_scrape as scrape
import test_testdata as files
import test_transports as transports
from push_client import field
from scrape_site import Site

WAIT_S = 120
LONG_AGO = "20200101"  # the files are older than what is read by default
PPROF = ("pprof", "legacy")


def pprof_rows():
    return [r for r in transports.all_rows() if r["format"] in PPROF
            and not r["path"].startswith("corrupt/")]


def check(server, row, service, problems):
    """Totals, and stacks where the numbers have them; a problem is written down."""
    try:
        if row["format"] == "pprof" and golden.expected(row["path"]):
            files.check_pprof(server, row, service)
        elif row["format"] == "jfr":
            test_jfr.check(server, row, service)
        else:
            transports.check_totals(server, row, service, problems)
    except AssertionError as e:
        problems.append(f"{service}: {e}")


# ---- every file, fetched, imported, forwarded -----------------------------------------------------


def names_of(bodies):
    return [f"f{i}" for i in range(len(bodies))]


def fetched(bodies, server_options=()):
    """A server that fetched each body once, and the error of each body that it refused."""
    served = set()

    def answer(path, query, headers):
        name = path[1:]
        if name in served:
            return 404, b""
        served.add(name)
        return 200, bodies[int(name[1:])]

    with Site(answer) as site:
        # A job each, since a profile's path is the job's; nothing is subtracted.
        jobs = [scrape.job(n, {n: "/" + n}, scrape_timeout="900ms", static_configs=[
            {"targets": [site.address], "labels": {"service_name": n}}]) for n in names_of(bodies)]
        server = scrape.Config(*jobs).server("--distributor.scrape-running=8", *server_options)
        errors = {}

        def all_seen():
            for t in scrape.targets(server)["targets"]:
                if t["last_error"] and "404" not in t["last_error"]:
                    errors[t["job"]] = t["last_error"]
            return len(served)

        server.__enter__()
        try:
            scrape.until(all_seen, len(bodies), WAIT_S)
            # Each is fetched again, and gone: so the first one was acted on.
            scrape.until(lambda: all_seen() and all(
                t["failures"] for t in scrape.targets(server)["targets"]), True, WAIT_S)
        except BaseException:
            server.__exit__(*sys.exc_info())
            raise
        return server, errors


def test_every_pprof_fetched():
    rows, problems = pprof_rows(), []
    # A body's own time counts, and these are old.
    server, errors = fetched([push.at_time(golden.read(r["path"]), push.now_ns())
                              if r["format"] == "pprof" else golden.read(r["path"]) for r in rows])
    try:
        for n, row in zip(names_of(rows), rows):
            if n in errors:
                problems.append(f"{row['path']}: {errors[n]}")
            check(server, row, n, problems)
    finally:
        server.__exit__(None, None, None)
    transports.finish(problems, len(rows))


def test_every_file_imported():
    """`embertree import`, each file as of a time of its own."""
    rows = [r for r in transports.all_rows() if r["format"] in transports.FORMATS
            and r["format"] not in ("jfr", "speedscope") and not r["path"].startswith("corrupt/")]
    problems, at = [], int(time.time()) - 1800
    with cluster.AllInOne() as server, tempfile.TemporaryDirectory() as folder:
        for i, row in enumerate(rows):
            name = f"im{i}" + (".cpu" if row["format"] in transports.NAMED_BY_SUFFIX else "")
            file = pathlib.Path(folder, f"file{i}")
            file.write_bytes(golden.read(row["path"]))
            r = subprocess.run(
                [str(cluster.BIN / "embertree"), "import", "-s",
                 f"http://127.0.0.1:{server.process.port}", "--name", name, "-f",
                 transports.FORMATS[row["format"]], "--from", str(at), "--step", "10s", str(file)],
                capture_output=True, timeout=100)
            if r.returncode:
                problems.append(f"{row['path']}: {r.stderr.decode()[-300:]}")
        for i, row in enumerate(rows):
            if row["format"] in transports.NAMED_BY_SUFFIX:  # a sample is 10 ms
                want = {("cpu" if k == "samples" else k): n * 10**7
                        for k, n in transports.want_totals(row).items()}
                transports.check_totals(server, row, f"im{i}", problems, want)
            else:
                check(server, row, f"im{i}", problems)
    transports.finish(problems, len(rows))


def test_every_file_forwarded():
    """From one server to another: what is read there is what is read here."""
    rows = [r for r in transports.all_rows() if r["format"] in transports.FORMATS
            and not r["path"].startswith("corrupt/")]
    problems, sent = [], []
    with tempfile.TemporaryDirectory() as folder, cluster.AllInOne() as far:
        config = pathlib.Path(folder, "forward.yaml")
        config.write_text(json.dumps({"targets": {"far": {
            "url": f"http://127.0.0.1:{far.process.port}", "min_backoff": "50ms"}}}))
        with cluster.AllInOne("--no-selfprof.enabled",
                              f"--distributor.forward-config-file={config}") as near:
            for i, row in enumerate(rows):
                r = transports.ingest(near, row, f"fw{i}", golden.read(row["path"]))
                if r.status == 200:
                    sent.append((f"fw{i}", row))
            assert len(sent) > len(rows) * 9 // 10, f"{len(sent)} of {len(rows)}"
            scrape.until(lambda: [t["spoolRequests"] for t in
                                  near.process.get("/api/v1/forward").json()["targets"]], [0], WAIT_S)
            for name, row in sent:
                here, there = ({t: files.read_both_ways(s, name, t) for t in files.type_ids(s, name)}
                               for s in (near, far))
                if here != there:
                    sums = [{t: sum(v.values()) for t, v in x.items()} for x in (here, there)]
                    problems.append(f"{row['path']}: {sums[0]} here, {sums[1]} there")
    transports.finish(problems, len(rows))


def test_old_pprof_by_write_raw():
    rows = [r for r in pprof_rows() if r["format"] == "legacy"]
    ways = [parca.raw_by_proto, parca.raw_by_json, parca.raw_by_web, parca.raw_by_grpc]
    problems = []
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows):
            raw = golden.read(row["path"])
            r = ways[i % 4](server, [gzip.compress(raw) if i % 3 else raw],
                            {"__name__": "some_name", "service_name": f"raw{i}"})
            if getattr(r, "code", 0) or getattr(r, "status", 200) != 200:
                problems.append(f"{row['path']}: {r}")
            transports.check_totals(server, row, f"raw{i}", problems)
    transports.finish(problems, len(rows))


# ---- every verdict by every way -------------------------------------------------------------------


def by_ingest(server, service, kind, body):
    how = {"pprof": "pprof", "jfr": "jfr", "collapsed": "groups", "trie": "trie", "tree": "tree",
           "speedscope": "speedscope"}[kind]
    # No from= and until=: a body's own time is what is wrong with some.
    return server.writer.post("/ingest", body, name=service, format=how, sampleRate=0)


def by_form(server, service, kind, body):
    form, headers = files.multipart([("jfr" if kind == "jfr" else "profile", body)])
    more = {"format": "jfr"} if kind == "jfr" else {}
    return server.writer.post("/ingest", form, headers, name=service, sampleRate=0, **more)


def coded(coding):
    def way(server, service, kind, body):
        return server.writer.post("/ingest", transports.CODERS[coding](body),
                                  {"Content-Encoding": coding}, name=service, sampleRate=0,
                                  format="groups" if kind == "collapsed" else kind)
    return way


def by_push(call):
    def way(server, service, kind, body):
        series = ({"__name__": "process_cpu", "service_name": service}, [(body, service)])
        make = push.request_json if call is push.push_json else push.request
        return call(server.writer, make(series))
    return way


def by_write_raw(call):
    def way(server, service, kind, body):
        return call(server, [body], {"__name__": "process_cpu", "service_name": service})
    return way


def by_otlp_grpc(server, service, kind, body):
    return push.push_grpc(server.writer, body, path=otlp.EXPORT)


def by_otlp_web(server, service, kind, body):
    r = server.writer.post(otlp.EXPORT, push.frame(body), {"Content-Type": "application/grpc-web+proto"})
    text = b"".join(text for flags, text in push.frames(r.body) if flags == 0x80)
    return push.Status(text.decode())


def by_arrow_grpc(server, service, kind, body):
    return push.push_grpc(server.writer, field(1, body), path=parca.STORE + "WriteArrow")


def by_arrow_stream(server, service, kind, body):
    """As the first message of Write, which then ends."""
    return push.push_grpc(server.writer, field(1, body), path=parca.STORE + "Write")


PUSHES = {"Push proto": by_push(push.push_proto), "Push JSON": by_push(push.push_json),
          "Push gRPC": by_push(push.push_grpc), "Push gRPC-Web": by_push(push.push_web),
          "WriteRaw": by_write_raw(parca.raw_by_proto), "WriteRaw gRPC": by_write_raw(parca.raw_by_grpc)}
CODED = {f"in {c}": coded(c) for c in transports.CODERS}
WAYS = {
    "pprof": {"ingest": by_ingest, "form": by_form, **CODED, **PUSHES},
    "jfr": {"ingest": by_ingest, "form": by_form, **CODED},
    "collapsed": {"ingest": by_ingest, **CODED},
    "trie": {"ingest": by_ingest, **CODED},
    "tree": {"ingest": by_ingest, **CODED},
    "speedscope": {"ingest": by_ingest, **CODED},
}
SATURATES = "pp_int64_overflow.pb"  # its parts are more than their sum: no drawing of it is exact
# Not a verdict on these bytes: two gzips are one too many, and unzipped ones may be fine.
ZIPPED_AGAIN = ("in gzip",)


def refused(r):
    """True, False, or None for an answer that is neither."""
    if isinstance(r, push.Status):
        return {0: False, 3: True, 8: True}.get(r.code)
    return {200: False, 400: True, 413: True, 429: True}.get(r.status)


def since_long_ago(back_s=0):
    return {"start": "1577836800000", "end": str(int(time.time() * 1000) + 1000)}


def sums(server, service):
    """{(sample type, unit, stack): value}"""
    out = {}
    for t in files.type_ids(server, service):
        r = server.render(f'{t}{{service_name="{service}"}}', **{"from": LONG_AGO})
        for stack, value in cluster.leaves(r.json()["flamebearer"]).items():
            key = (t.split(":")[1], t.split(":")[2], stack)
            out[key] = out.get(key, 0) + value
    return out


# What answers say was left out or changed, beside the 200; of a file that is not here: nothing.
TOLD = {
    "pp_string_index_oob.pb": {"string_index": 1},
    "pp_string_index_negative.pb": {"string_index": 1},
    "pp_no_strings.pb": {"string_index": 6},  # its sample type is called `unknown`
    "pp_location_oob.pb": {"unknown_location": 1},
    "pp_location_zero.pb": {"unknown_location": 1},
    "pp_value_count_short.pb": {"value_count": 1},
    "pp_negative_value.pb": {"negative_value": 1},
    "pp_int64_overflow.pb": {"value_saturated": 1},
    "pp_reserved_labels.pb": {"sample_label": 2},
    "jfr_missing_stack.jfr": {"no_stack": 3},
    "col_no_value.collapsed": {"line_without_count": 5},
    "col_long_line.collapsed": {"stack_truncated": 1},
}


def test_every_verdict_by_every_way():
    """Also: a 200 for less than was sent says so, the same by all ways."""
    problems, n = [], 0
    with cluster.AllInOne(*otlp.LONG) as server:
        server.range_ms = since_long_ago
        for i, (file, (kind, verdict, text)) in enumerate(golden.verdicts().items()):
            body, left = golden.read("corrupt/" + file), {}
            for k, (name, way) in enumerate(WAYS.get(kind, {}).items()):
                if name in ZIPPED_AGAIN and body[:2] == b"\x1f\x8b":
                    continue
                n += 1
                service = f"v{i}w{k}"
                r = way(server, service, kind, body)
                # Agents send a form with nothing in its part when there was nothing.
                want = verdict in ("reject", "limit") and (file, name) != ("pp_empty.pb", "form")
                if refused(r) is not want:
                    problems.append(f"{file} ({text}) by {name}: {r}")
                elif want and files.type_ids(server, service):
                    problems.append(f"{file} by {name}: refused, and something was stored")
                elif not want and file != SATURATES:
                    left[name] = sums(server, service)
                if not want and push.left_out(r) != TOLD.get(file, {}):
                    problems.append(f"{file} by {name} tells {push.left_out(r)}")
            if any(v != left.get("ingest", {}) for v in left.values()):
                problems.append(f"{file}: {left}")
            empty = file in (SATURATES, "pp_no_samples.pb")
            if verdict == "ok" and not empty and kind in WAYS and not left.get("ingest"):
                problems.append(f"{file}: nothing is left")
        assert server.writer.get("/readyz").status == 200
    transports.finish(problems, n)


def test_every_verdict_of_otlp_and_arrow():
    ways = {"otlp": {"gRPC": by_otlp_grpc, "gRPC-Web": by_otlp_web},
            "parca-arrow": {"gRPC": by_arrow_grpc, "Write": by_arrow_stream}}
    problems, n = [], 0
    with cluster.AllInOne(*otlp.LONG) as server:
        for file, (kind, verdict, text) in golden.verdicts().items():
            for name, way in ways.get(kind, {}).items():
                body = golden.plain(golden.read("corrupt/" + file))
                n += 1
                r = way(server, "", kind, body)
                # Write wants the schema of older agents: what is not of it is refused as well.
                want = None if name == "Write" and verdict == "ok" else verdict in ("reject", "limit")
                if want is not None and refused(r) is not want or refused(r) is None:
                    problems.append(f"{file} ({text}) by {name}: {r}")
        assert server.writer.get("/readyz").status == 200
    transports.finish(problems, n)


def test_every_verdict_of_uploads():
    """An upload must hold something; the server finds the format from the bytes, the sender does not name it."""
    problems, n = [], 0
    with cluster.AllInOne("--distributor.adhoc_max=1000") as server:
        for file, (kind, verdict, text) in golden.verdicts().items():
            if kind in ("trie", "tree", "otlp", "parca-arrow"):
                continue  # these say nowhere what they are
            n += 1
            r = transports.upload(server, golden.read("corrupt/" + file))
            if refused(r) is None or (verdict in ("reject", "limit")) and r.status == 200:
                problems.append(f"{file} ({text}): {r}")
            elif verdict == "ok" and r.status != 200 and file != "pp_no_samples.pb":
                problems.append(f"{file} ({text}): {r}")
            elif r.status != 200 and len(r.json()["message"]) < 10:
                problems.append(f"{file} ({text}): {r}")
            elif r.status == 200 and file != SATURATES:
                transports.uploaded_totals(server, r)
        assert server.writer.get("/readyz").status == 200
    transports.finish(problems, n)


def test_every_verdict_fetched():
    rows = [(file, row) for file, row in golden.verdicts().items() if row[0] == "pprof"]
    server, errors = fetched([golden.read("corrupt/" + file) for file, _ in rows], otlp.LONG)
    server.range_ms = since_long_ago
    problems = []
    try:
        for n, (file, (_, verdict, text)) in zip(names_of(rows), rows):
            want = verdict in ("reject", "limit")
            if (n in errors) is not want:
                problems.append(f"{file} ({text}): {errors.get(n)}")
            if n in errors and files.type_ids(server, n):
                problems.append(f"{file}: refused, and something was stored")
        assert server.process.get("/readyz").status == 200
    finally:
        server.__exit__(None, None, None)
    transports.finish(problems, len(rows))


if __name__ == "__main__":
    TESTS = [v for k, v in list(globals().items()) if k.startswith("test_") and callable(v)]
    if not golden.available():
        print(golden.skip_line("test_every_way.py"))
        print(f"0 passed, 0 failed, {len(TESTS)} skipped")
        sys.exit(0)
    cluster.main(TESTS)
