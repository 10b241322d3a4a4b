"""Every JFR file of the test data, pushed as agents do, read back exactly."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import test_testdata as files


def kinds(want):
    """(name, what is expected of a sample type), as this server calls them."""
    for key, profile in want["profiles"].items():
        for kind in profile["sample_types"]:
            if kind["unit"] == "ticks" or not kind["total"]:
                continue
            plain = dict(kind, top_self=[[n.removeprefix("."), v] for n, v in kind["top_self"]])
            if key == "native:native":
                plain["type"] = "samples"
            yield key.split(":")[0], plain, profile["distinct_stacks"]


def check(server, row, service):
    want = golden.expected(row["path"])
    ids = files.type_ids(server, service)
    expected = list(kinds(want))
    assert len(ids) == len(expected), f"{row['path']}: {sorted(ids)}"
    for name, kind, stacks in expected:
        what = f"{row['path']} {name} {kind['type']}"
        named = [i for i in ids if i.split(":")[:2] == [name, kind["type"]]]
        assert len(named) == 1, f"{what}: {sorted(ids)}"
        have = files.read_both_ways(server, service, named[0])
        assert sum(have.values()) == kind["total"], f"{what}: total {sum(have.values())}"
        # Not the best five of both: names differ by their dot, and so does the order of equals.
        self_of = {}
        for stack, value in have.items():
            self_of[stack[-1]] = self_of.get(stack[-1], 0) + value
        for leaf, value in kind["top_self"]:
            # A library that is no temporary copy keeps its name.
            got = self_of.get(golden.normalized(leaf), self_of.get(leaf))
            assert got == value, f"{what}: self of {leaf} is {got}, expected {value}"
        assert len(have) <= stacks, f"{what}: {len(have)} stacks, expected {stacks}"


def rows():
    return [r for r in golden.manifest("jfr") if r["expected"]
            and "error" not in golden.expected(r["path"])]


def push_and_check(server):
    problems = []
    for i, row in enumerate(rows()):
        body = golden.read(row["path"])
        r = server.ingest(body, f"jfr{i}", format="jfr", sampleRate=0)
        form, headers = files.multipart([("jfr", golden.plain(body))])
        f = server.ingest(form, f"form{i}", headers, format="jfr", sampleRate=0)
        if r.status != 200 or f.status != 200:
            problems.append(f"{row['path']}: {r} {f}")
    for i, row in enumerate(rows()):
        for service in (f"jfr{i}", f"form{i}"):
            try:
                check(server, row, service)
            except AssertionError as e:
                problems.append(f"{service}: {e}")
    assert not problems, f"{len(problems)}:\n" + "\n".join(problems)
    print(f"     {len(rows())} files")


def test_every_file_through_one_process():
    with cluster.AllInOne() as server:
        push_and_check(server)


def label_values(server, service, name):
    r = server.connect("LabelValues", {"name": name, **server.range_ms(),
                                       "matchers": [f'{{service_name="{service}"}}']})
    assert r.status == 200, r
    return sorted(r.json().get("names", []))


def test_labels_of_contexts():
    with cluster.AllInOne() as server:
        for file, labels, name, value in (
                ("jfr/dump1.jfr.gz", "jfr/dump1.labels.pb.gz", "thread_name", "pool-2-thread-7"),
                ("jfr/new_spancontext.jfr.gz", "jfr/new_spancontext.labels.gz", "dyn2", "v2")):
            form, headers = files.multipart([("jfr", golden.read(file)),
                                             ("labels", golden.read(labels))])
            service = name
            r = server.ingest(form, service, headers, format="jfr", sampleRate=0)
            assert r.status == 200, r
            check(server, {"path": file}, service)
            assert value in label_values(server, service, name), file
            assert label_values(server, service, "jfr_event"), file


def test_never_finished():
    """A recording whose last chunk its writer never finished: the rest is stored, and told."""
    good = golden.plain(golden.read("corrupt/jfr_good.jfr"))
    dead = bytearray(good)
    dead[8:32] = (1 << 30).to_bytes(8, "big") + bytes(16)  # as async-profiler begins a chunk
    with cluster.AllInOne() as server:
        r = server.ingest(good + bytes(dead), "crashed", format="jfr", sampleRate=0)
        assert r.status == 200 and not r.body, r
        assert r.headers["X-Embertree-Left-Out"] == f"unfinished_bytes={len(dead)}", r.headers
        ids = files.type_ids(server, "crashed")
        assert sum(sum(files.read_both_ways(server, "crashed", i).values()) for i in ids) == 3
        r = server.ingest(bytes(dead), "nothing", format="jfr")
        assert r.status == 400 and "nothing of these" in r.json()["message"], r
        r = server.ingest(good, "whole", format="jfr")
        assert r.status == 200 and "X-Embertree-Left-Out" not in r.headers, r.headers


def test_every_verdict():
    problems = []
    with cluster.AllInOne() as server:
        for i, (file, (kind, verdict, text)) in enumerate(golden.verdicts().items()):
            if kind != "jfr":
                continue
            r = server.ingest(golden.read("corrupt/" + file), f"bad{i}", format="jfr")
            refused = verdict in ("reject", "limit")
            if (r.status in (400, 413)) != refused or (r.status == 200) == refused:
                problems.append(f"{file} ({text}): {r}")
            if refused and files.type_ids(server, f"bad{i}"):
                problems.append(f"{file}: something was stored")
    assert not problems, "\n".join(problems)


if __name__ == "__main__":
    if not golden.available():
        print(golden.skip_line("test_jfr.py"))
        print("0 passed, 0 failed, 4 skipped")
        sys.exit(0)
    cluster.main([test_every_file_through_one_process, test_labels_of_contexts,
                  test_never_finished, test_every_verdict])
