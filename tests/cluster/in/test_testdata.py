"""Every pprof and folded file of the test data, pushed as the README shows, read back exactly."""
import os
import re
import sys
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden


def push(server, row, service):
    body = golden.read(row["path"])
    name = service if row["format"].startswith("pprof") else service + ".cpu"
    more = {"format": "pprof"} if row["format"].startswith("pprof") else {}
    # Folded counts are samples: sampleRate=0 keeps them unchanged.
    return server.ingest(body, name, sampleRate=0, **more)


UNSYMBOLISED = re.compile(r"(.*)!0x([0-9a-f]+)$")


def without_load_address(top, want):
    """Expected names of unsymbolised frames have the address in memory, ours the offset in the file
    (decisions, "Frame identity"): they must differ by the same amount in one module."""
    moved = {}
    for i, ((have, _), (expected, value)) in enumerate(zip(top, want)):
        ours, theirs = UNSYMBOLISED.match(have), UNSYMBOLISED.match(expected)
        if not ours or not theirs or ours[1] != theirs[1]:
            continue
        by = int(theirs[2], 16) - int(ours[2], 16)
        if moved.setdefault(ours[1], by) == by:
            want[i] = (have, value)
    return top, want


def check_stacks(stacks, kind, what):
    """Totals and the five largest self values of one sample type."""
    total = sum(stacks.values())
    assert total == kind["total"], f"{what}: total {total}, expected {kind['total']}"
    top = golden.best((stack[-1] if stack else "", value) for stack, value in stacks.items())
    want = golden.best([tuple(pair) for pair in kind["top_self"]])
    top, want = without_load_address(top, want)
    if [name for name, _ in want] == ["<missing function>"]:
        # .NET without function ids: the server repairs what the expected numbers leave as it is.
        assert top and top[0][1] == want[0][1], f"{what}: top {top}"
        return
    # Normalisation may bring names together: then the expected five are parts of larger sums.
    if len({golden.normalized(n) for n, _ in kind["top_self"]}) == len(kind["top_self"]):
        assert top == want, f"{what}: top {top}, expected {want}"


def read_both_ways(server, service, type_id):
    query = f'{type_id}{{service_name="{service}"}}'
    r = server.render(query)
    assert r.status == 200, r
    rendered = cluster.leaves(r.json()["flamebearer"])
    r = server.connect("SelectMergeStacktraces", {
        "profileTypeID": type_id, "labelSelector": f'{{service_name="{service}"}}',
        "maxNodes": "1000000", **server.range_ms()})
    assert r.status == 200, r
    selected = cluster.leaves(cluster.flamegraph(r.json()))
    assert rendered == selected, f"{service} {type_id}: the two ways differ"
    return rendered


def type_ids(server, service):
    r = server.connect("Series", {"labelNames": ["service_name", "__profile_type__"],
                                  "matchers": [f'{{service_name="{service}"}}'],
                                  **server.range_ms()})
    assert r.status == 200, r
    return {p["value"] for s in r.json().get("labelsSet", []) for p in s["labels"]
            if p["name"] == "__profile_type__"}


def check_pprof(server, row, service):
    want = golden.expected(row["path"])
    ids = type_ids(server, service)
    for kind in want["sample_types"]:
        what = f"{row['path']} {kind['type']}:{kind['unit']}"
        if kind["nonzero_samples"] == 0 or kind["negative_samples"]:
            continue
        sample = [kind["type"] or "unknown", kind["unit"]]
        named = [i for i in ids if i.split(":")[1:3] in (
            sample, [sample[0].replace("-", "_"), sample[1]])]
        assert len(named) == 1, f"{what}: profile types {sorted(ids)}"
        stacks = read_both_ways(server, service, named[0])
        check_stacks(stacks, kind, what)
        if len(want["sample_types"]) == 1 and kind["nonzero_samples"] == want["usable_samples"]:
            normal = {tuple(golden.normalized(n) for n in s) for s in stacks}
            assert len(normal) == want["distinct_stacks"], (
                f"{what}: {len(normal)} stacks, expected {want['distinct_stacks']}")


def check_folded(server, row, service):
    want = golden.expected(row["path"])
    ids = type_ids(server, service)
    if not want["total"]:
        assert not ids, f"{row['path']}: {ids}"
        return
    assert len(ids) == 1, f"{row['path']}: {ids}"
    stacks = read_both_ways(server, service, ids.pop())
    check_stacks(stacks, want, row["path"])
    assert len(stacks) == want["distinct_stacks"], (
        f"{row['path']}: {len(stacks)} stacks, expected {want['distinct_stacks']}")


def push_and_check(server, rows):
    problems = []
    for i, row in enumerate(rows):
        r = push(server, row, f"file{i}")
        if r.status != 200 or r.body:
            problems.append(f"{row['path']}: {r}")
    for i, row in enumerate(rows):
        try:
            (check_pprof if row["format"].startswith("pprof") else check_folded)(
                server, row, f"file{i}")
        except AssertionError as e:
            problems.append(str(e))
    assert not problems, f"{len(problems)} of {len(rows)}:\n" + "\n".join(problems)
    print(f"     {len(rows)} files")


def good_rows():
    return [r for r in golden.manifest("pprof", "collapsed")
            if r["expected"] and not r["path"].startswith(("corrupt/", "pprof-legacy/"))]


def test_every_file_through_one_process():
    with cluster.AllInOne() as server:
        push_and_check(server, good_rows())


def test_every_file_through_four_processes():
    with cluster.FourProcesses() as server:
        push_and_check(server, good_rows())


def multipart(parts):
    boundary = "----embertree-test-boundary"
    out = b""
    for name, body in parts:
        out += (f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; '
                f'filename="{name}"\r\n\r\n').encode() + body + b"\r\n"
    return out + f"--{boundary}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={boundary}"}


def test_multipart_and_content_encoding():
    rows = [r for r in good_rows() if r["path"] in ("pprof/go_heap.pb.gz", "pprof/go_cpu.pb.gz")]
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows):
            packed = golden.read(row["path"])
            for k, body in enumerate((packed, golden.plain(packed))):
                form, headers = multipart([("profile", body)])
                r = server.ingest(form, f"form{i}.{k}", headers, path="/pyroscope/ingest")
                assert r.status == 200, r
                check_pprof(server, row, f"form{i}.{k}")
            r = server.ingest(packed, f"coded{i}", {"Content-Encoding": "gzip"}, format="pprof")
            assert r.status == 200, r
            check_pprof(server, row, f"coded{i}")


def corrupt_rows():
    for file, (kind, verdict, text) in golden.verdicts().items():
        if kind in ("pprof", "collapsed"):
            yield file, kind, verdict, text


def check_verdict(server, i, file, kind, verdict, text):
    service = f"corrupt{i}"
    more = {"format": "pprof"} if kind == "pprof" else {}
    name = service if kind == "pprof" else service + ".cpu"
    if file.startswith("pp_time_"):
        # Their own time is what is wrong with them: let it count.
        path = "/ingest?" + urllib.parse.urlencode({"name": name, "sampleRate": 0, **more})
        r = server.writer.post(path, golden.read("corrupt/" + file))
    else:
        r = server.ingest(golden.read("corrupt/" + file), name, sampleRate=0, **more)
    want = golden.expected("corrupt/" + file)
    if verdict in ("reject", "limit"):
        assert r.status in (400, 413), f"{file} ({text}): {r}"
        said = r.json()
        assert said["code"] and said["message"], f"{file}: {r}"
        assert not type_ids(server, service), f"{file}: something was stored"
    else:
        assert r.status == 200 and not r.body, f"{file} ({text}): {r}"
        if verdict == "ok" and want and kind == "pprof" and file not in (
                "pp_int64_overflow.pb", "pp_no_samples.pb"):
            check_pprof(server, {"path": "corrupt/" + file}, service)
        elif want and kind == "collapsed":
            check_folded(server, {"path": "corrupt/" + file}, service)


def test_every_verdict():
    problems = []
    rows = list(corrupt_rows())
    with cluster.AllInOne() as server:
        for i, row in enumerate(rows):
            try:
                check_verdict(server, i, *row)
            except AssertionError as e:
                problems.append(str(e))
        assert server.render(cluster.CPU_TYPE + "{}").status == 200
    assert not problems, f"{len(problems)} of {len(rows)}:\n" + "\n".join(problems)
    print(f"     {len(rows)} files")


if __name__ == "__main__":
    if not golden.available():
        print(golden.skip_line("test_testdata.py"))
        print("0 passed, 0 failed, 4 skipped")
        sys.exit(0)
    cluster.main([test_every_file_through_one_process, test_every_file_through_four_processes,
                  test_multipart_and_content_encoding, test_every_verdict])
