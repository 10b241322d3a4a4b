"""Parca's services against a real server: WriteRaw, Write in two phases, WriteArrow, and debug info
as parca-agent and Alloy upload it. Messages and streams are written by hand here; nothing is shared
with the server."""
import base64
import gzip
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import push_client as push
import test_testdata
from push_client import Status, field, frame, now_ns, pprof, push_grpc

STORE = "/parca.profilestore.v1alpha1.ProfileStoreService/"
PARCA = "/parca.debuginfo.v1alpha1.DebuginfoService/"
ALLOY = "/debuginfo.v1alpha1.DebuginfoService/"
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
PROTO = {"Content-Type": "application/proto"}
JSON = {"Content-Type": "application/json"}
IN_PROGRESS = ("A previous upload is still in-progress and not stale yet (only stale uploads can "
               "be retried).")


def total(s, profile_type, service="", begin="now-1h", until="now"):
    query = profile_type + (f'{{service_name="{service}"}}' if service else "{}")
    r = s.render(query, **{"from": begin, "until": until})
    assert r.status == 200, r
    return r.json()["flamebearer"]["numTicks"]


def message(data):
    """The fields of a message, last ones of equal numbers."""
    out, at = {}, 0

    def number(at):
        v = shift = 0
        while True:
            v |= (data[at] & 0x7f) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return v, at

    while at < len(data):
        tag, at = number(at)
        n, at = number(at)
        if tag & 7 == 2:
            out.setdefault(tag >> 3, []).append(data[at:at + n])
            at += n
        else:
            out.setdefault(tag >> 3, []).append(n)
    return out


def write_raw(profiles, labels, normalized=0):
    series = field(1, b"".join(field(1, field(1, k.encode()) + field(2, v.encode()))
                               for k, v in labels.items()))
    series += b"".join(field(2, field(1, p)) for p in profiles)
    return field(2, series) + (field(3, normalized) if normalized else b"")


def test_write_raw():
    with cluster.AllInOne() as s:
        at = now_ns() + 7
        one = write_raw([pprof(1000, time_ns=at)], {"__name__": "process_cpu", "job": "raw"})
        r = s.writer.post(STORE + "WriteRaw", one, PROTO)
        assert (r.status, r.body) == (200, b""), r
        assert total(s, CPU, "raw") == 1000
        assert s.writer.post(STORE + "WriteRaw", one, PROTO).status == 200
        assert total(s, CPU, "raw") == 1000, "a retry counts once"
        two = write_raw([pprof(50, time_ns=at), pprof(7, time_ns=at, leaf="other")],
                        {"__name__": "process_cpu", "service_name": "raw2"})
        st = push_grpc(s.writer, two, path=STORE + "WriteRaw")
        assert st.code == 0, st
        assert total(s, CPU, "raw2") == 57
        for bad in (write_raw([b"junk"], {"job": "x"}), b"\xff\xff\xff", field(2, b"\xff")):
            r = s.writer.post(STORE + "WriteRaw", bad, PROTO)
            assert r.status == 400, r
        r = s.writer.post(STORE + "Nothing", b"", PROTO)
        assert r.status in (404, 501), r


def write_raw_json(profiles, labels):
    return json.dumps({"series": [{
        "labels": {"labels": [{"name": k, "value": v} for k, v in labels.items()]},
        "samples": [{"rawProfile": base64.b64encode(p).decode()} for p in profiles]}]}).encode()


def raw_by_proto(s, profiles, labels):
    return s.writer.post(STORE + "WriteRaw", write_raw(profiles, labels), PROTO)


def raw_by_json(s, profiles, labels):
    r = s.writer.post(STORE + "WriteRaw", write_raw_json(profiles, labels), JSON)
    assert r.status != 200 or r.body == b"{}", r
    return r


def raw_by_web(s, profiles, labels):
    r = s.writer.post(STORE + "WriteRaw", frame(write_raw(profiles, labels)),
                      {"Content-Type": "application/grpc-web+proto"})
    assert r.status == 200, r
    return Status("".join(t.decode() for flags, t in push.frames(r.body) if flags == 0x80))


def raw_by_grpc(s, profiles, labels):
    return push_grpc(s.writer, write_raw(profiles, labels), path=STORE + "WriteRaw")


def test_every_pprof_by_write_raw():
    """As test_testdata does by /ingest; the files' own times are long ago, so they get new ones."""
    if not golden.available():
        print(golden.skip_line("every pprof by WriteRaw"))
        return
    rows = [r for r in test_testdata.good_rows() if r["format"].startswith("pprof")]
    ways = [raw_by_proto, raw_by_json, raw_by_web, raw_by_grpc]
    problems = []
    with cluster.AllInOne("--distributor.parca-last-bytes=0") as s:
        for i, row in enumerate(rows):
            way = ways[i % len(ways)]
            raw = push.at_time(golden.read(row["path"]), now_ns())
            r = way(s, [gzip.compress(raw) if i % 3 else raw],
                    {"__name__": "some_name", "service_name": f"raw{i}"})
            if getattr(r, "code", 0) or getattr(r, "status", 200) != 200:
                problems.append(f"{row['path']} by {way.__name__}: {r}")
        for i, row in enumerate(rows):
            try:
                ids = test_testdata.type_ids(s, f"raw{i}")
                assert all(t.startswith("some_name:") for t in ids), (row["path"], ids)
                test_testdata.check_pprof(s, row, f"raw{i}")
            except AssertionError as e:
                problems.append(str(e))
    assert rows and not problems, f"{len(problems)} of {len(rows)}:\n" + "\n".join(problems)
    print(f"     {len(rows)} files")


HEAP = (("alloc_space", "bytes"), ("inuse_space", "bytes"))
ALLOC = "memory:alloc_space:bytes:cpu:nanoseconds"
INUSE = "memory:inuse_space:bytes:cpu:nanoseconds"


def test_counters_of_the_scraper_become_growth():
    """Parca in scraper mode sends the raw counters of a process: 1000, 1300, 1350 bytes since its
    start are 350 bytes of growth, and a second process has its own."""
    with cluster.AllInOne() as s:
        begin = now_ns(120)

        def scrape(value, seconds, instance="i", duration=0, ways=raw_by_proto):
            body = pprof(value, time_ns=begin + seconds * 10**9, types=HEAP)
            body += field(10, duration) if duration else b""
            r = ways(s, [gzip.compress(body)], {"__name__": "memory", "service_name": "grows",
                                                "instance": instance})
            assert getattr(r, "code", 0) == 0 and getattr(r, "status", 200) == 200, r

        def allocated(instance):
            r = s.render(ALLOC + f'{{service_name="grows",instance="{instance}"}}', **{"from": "now-1h"})
            assert r.status == 200, r
            return r.json()["flamebearer"]["numTicks"]

        scrape(1000, 0)
        assert allocated("i") == 0, "the first profile says nothing about growth"
        assert total(s, INUSE, "grows") == 1000, "a gauge counts from the first profile on"
        scrape(1300, 10)
        scrape(1350, 20, ways=raw_by_grpc)
        assert allocated("i") == 350
        scrape(1350, 20)
        scrape(1320, 15)
        assert allocated("i") == 350, "neither a repeat nor a late one counts"
        scrape(70000, 20, "other")
        scrape(70005, 30, "other", ways=raw_by_json)
        assert (allocated("i"), allocated("other")) == (350, 5)
        scrape(40, 30)
        assert allocated("i") == 390, "a process that was started again counts from 0"
        scrape(100, 95)
        assert allocated("i") == 450, "over 15 s it is spread, and whole"
        scrape(500, 100, "measured", duration=10**10)
        scrape(600, 110, "measured", duration=10**10)
        assert allocated("measured") == 1100, "what has a duration is growth already"


SAMPLES = "parca_agent:samples:count:cpu:nanoseconds"
WALL = "parca_agent:wallclock:nanoseconds:samples:count"
TIME = {"begin": "1767225590", "until": "1767225620"}


def arrow(name):
    return (golden.DATA / name).read_bytes()


def test_write_arrow():
    if not golden.available():
        print(golden.skip_line("WriteArrow"))
        return
    with cluster.AllInOne() as s:
        plain, lz4 = (field(1, arrow(f"parca-arrow/v2_samples{x}.arrows")) for x in ("", "_lz4"))
        r = s.writer.post(STORE + "WriteArrow", plain, PROTO)
        assert (r.status, r.body) == (200, b""), r
        assert total(s, SAMPLES, **TIME) == 5
        assert total(s, WALL, **TIME) == 12000001
        assert total(s, SAMPLES, "demo", **TIME) == 3
        assert s.writer.post(STORE + "WriteArrow", plain, PROTO).status == 200
        assert total(s, SAMPLES, **TIME) == 5, "a retry counts once"
        st = push_grpc(s.writer, lz4, path=STORE + "WriteArrow")
        assert st.code == 0, st
        assert total(s, SAMPLES, **TIME) == 10
        text = base64.b64encode(arrow("parca-arrow/v2_samples_lz4.arrows")).decode()
        r = s.writer.post(STORE + "WriteArrow", json.dumps({"ipcBuffer": text}).encode(), JSON)
        assert (r.status, r.body) == (200, b"{}"), r
        assert total(s, SAMPLES, **TIME) == 10, "the same stream in JSON is a retry"
        r = s.writer.post(STORE + "WriteArrow", b'{"ipcBuffer":"!"}', JSON)
        assert r.status == 400 and r.json()["code"] == "invalid_argument", r
        names = set()
        for stack in cluster.leaves(s.render(SAMPLES + "{}", **{
                "from": TIME["begin"], "until": TIME["until"]}).json()["flamebearer"]):
            names |= set(stack)
        assert "do_syscall_64" in names and "handler" in names, names


def test_hostile_arrow():
    if not golden.available():
        print(golden.skip_line("hostile Arrow streams"))
        return
    with cluster.AllInOne() as s:
        status = pathlib.Path(f"/proc/{s.writer.child.pid}/status")

        def peak_kib():
            return int(next(l for l in status.read_text().splitlines()
                            if l.startswith("VmHWM")).split()[1])

        for name, (kind, verdict, what) in golden.verdicts().items():
            if kind != "parca-arrow":
                continue
            body = field(1, arrow("corrupt/" + name))
            before = peak_kib()
            r = s.writer.post(STORE + "WriteArrow", body, PROTO)
            if name == "arrow_lz4_bomb.arrows":
                assert peak_kib() - before < 32 * 1024, "a claim must not allocate"
            # Over a limit is resource_exhausted, which Connect answers with 429.
            assert (r.status == 200) if verdict == "ok" else r.status in (400, 413, 429), \
                (name, what, r)
        assert total(s, SAMPLES, **TIME) == 5, "only arrow_no_eos was one"


class TwoWay:
    """gRPC-Web over HTTP/1.1, chunked both ways at once."""

    def __init__(self, process, path, more=""):
        self.sock = socket.create_connection(("127.0.0.1", process.port), 30)
        self.sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/grpc-web"
                          f"+proto\r\nTransfer-Encoding: chunked\r\n{more}\r\n".encode())
        self.got = b""
        self.body = b""
        self.head = None

    def send(self, data):
        self.sock.sendall(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end(self):
        self.sock.sendall(b"0\r\n\r\n")

    def more(self):
        data = self.sock.recv(65536)
        assert data, (self.head, self.body)
        self.got += data
        if self.head is None and b"\r\n\r\n" in self.got:
            self.head, self.got = self.got.split(b"\r\n\r\n", 1)
        while self.head is not None and b"\r\n" in self.got:
            size, rest = self.got.split(b"\r\n", 1)
            n = int(size, 16)
            if len(rest) < n + 2:
                break
            self.body, self.got = self.body + rest[:n], rest[n + 2:]

    def message(self):
        while len(self.body) < 5 or len(self.body) < 5 + int.from_bytes(self.body[1:5], "big"):
            self.more()
        n = 5 + int.from_bytes(self.body[1:5], "big")
        flags, out, self.body = self.body[0], self.body[5:n], self.body[n:]
        return flags, out

    def close(self):
        self.sock.close()


def test_write_two_phase():
    if not golden.available():
        print(golden.skip_line("Write"))
        return
    with cluster.AllInOne() as s:
        c = TwoWay(s.writer, STORE + "Write")
        c.send(frame(field(1, arrow("parca-arrow/v1_1_samples.arrows"))))
        flags, reply = c.message()
        assert flags == 0, (flags, reply)
        asked = message(reply)[1][0]
        assert all(bytes([k]) * 16 in asked for k in (1, 2, 3, 4)), asked
        c.send(frame(field(1, arrow("parca-arrow/v1_3_locations.arrows"))))
        c.end()
        flags, trailers = c.message()
        assert flags == 0x80 and Status(trailers.decode()).code == 0, trailers
        c.close()
        assert total(s, SAMPLES, **TIME) == 5
        assert total(s, WALL, **TIME) == 12000001

        c = TwoWay(s.writer, STORE + "Write")  # ends where stacks are due
        c.send(frame(field(1, arrow("parca-arrow/v1_1_samples.arrows"))))
        assert c.message()[0] == 0
        c.end()
        flags, trailers = c.message()
        assert flags == 0x80 and Status(trailers.decode()).code == 3, trailers
        c.close()
        c = TwoWay(s.writer, STORE + "Write")  # goes away
        c.send(frame(field(1, arrow("parca-arrow/v1_1_samples.arrows"))))
        assert c.message()[0] == 0
        c.close()
        c = TwoWay(s.writer, STORE + "Write")
        c.send(frame(field(1, b"no arrow")))
        flags, trailers = c.message()
        assert flags == 0x80 and Status(trailers.decode()).code == 3, trailers
        c.close()
        assert total(s, SAMPLES, **TIME) == 5


def test_limits_of_write():
    """The first message of a Write, its samples, is held to the limits of its tenant, as any push."""
    if not golden.available():
        print(golden.skip_line("limits of Write"))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "overrides.yaml"
        path.write_text("tenants: {spent: {ingest_limits: {bytes: 100, period: 1h}}, stopped: {ingest: off}}")
        with cluster.AllInOne("--tenancy.multi", f"--distributor.overrides-file={path}") as s:
            for tenant, code in (("spent", 8), ("stopped", 7), ("other", None)):
                c = TwoWay(s.writer, STORE + "Write", f"X-Scope-OrgID: {tenant}\r\n")
                c.send(frame(field(1, arrow("parca-arrow/v1_1_samples.arrows"))))
                flags, reply = c.message()
                assert (flags == 0 if code is None else Status(reply.decode()).code == code), (tenant, flags, reply)
                c.close()
            assert s.writer.metric("embertree_discarded_profiles_total", tenant="spent") == 1


# ---- debug info -----------------------------------------------------------------------------------

def elf(build_id, size=200_000):
    """A 64-bit ELF file with nothing but a note."""
    ident = bytes.fromhex(build_id)
    note = struct.pack("<III", 4, len(ident), 3) + b"GNU\0" + ident
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64,
                                                     56, 1, 64, 0, 0)
    head += struct.pack("<IIQQQQQQ", 4, 4, 120, 0, 0, len(note), len(note), 4)
    body = head + note
    return body + os.urandom(size - len(body))


def call(s, path, *fields):
    r = s.writer.post(path, b"".join(fields), PROTO)
    assert r.status == 200, (path, r)
    return message(r.body)


def text(n, s):
    return field(n, s.encode())


def kept(s):
    return sorted(p.relative_to(s.writer.folder / "data/debuginfo")
                  for p in (s.writer.folder / "data/debuginfo").rglob("*") if p.is_file())


def parca_should(s, build_id):
    m = call(s, PARCA + "ShouldInitiateUpload", text(1, build_id))
    return m.get(1, [0])[0], m[2][0].decode()


def parca_initiate(s, build_id, size):
    m = call(s, PARCA + "InitiateUpload", text(1, build_id), field(2, size), text(3, "hash"))
    m = message(m[1][0])
    assert m[1][0].decode() == build_id and m[3] == [1], m
    return m[2][0].decode()


def parca_upload(s, build_id, upload_id, data):
    body = frame(field(1, text(1, build_id) + text(2, upload_id)))
    body += b"".join(frame(field(2, data[i:i + 65536])) for i in range(0, len(data), 65536))
    r = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--max-time", "60", "-D", "-",
                        "-o", "/dev/null", "--data-binary", "@-", "-H",
                        "Content-Type: application/grpc", "-H", "TE: trailers",
                        f"http://127.0.0.1:{s.writer.port}{PARCA}Upload"],
                       input=body, capture_output=True, check=False)
    # 92: the server answered and reset the stream before it had all; curl then fails as well.
    assert r.returncode in (0, 92), r.stderr
    return Status(r.stdout.decode())


def parca_finished(s, build_id, upload_id):
    return s.writer.post(PARCA + "MarkUploadFinished", text(1, build_id) + text(2, upload_id), PROTO)


def test_debuginfo_parca():
    build_id = "c0ffee0123456789c0ffee0123456789c0ffee01"
    with cluster.AllInOne() as s:
        assert parca_should(s, build_id)[0] == 1
        data = elf(build_id)
        upload_id = parca_initiate(s, build_id, len(data))
        assert parca_should(s, build_id) == (0, IN_PROGRESS)
        st = parca_upload(s, build_id, "0" * 16, data)
        assert st.code != 0, "another upload's id"
        st = parca_upload(s, build_id, upload_id, data)
        assert st.code == 0, st
        r = parca_finished(s, build_id, upload_id)
        assert r.status == 200, r
        assert parca_should(s, build_id)[0] == 0
        files = kept(s)
        assert [f.name for f in files] == [build_id + ".debuginfo", build_id + ".debuginfo.meta"]
        assert (s.writer.folder / "data/debuginfo" / files[0]).read_bytes() == data
        s.writer.kill()
        s.writer.start()
        assert parca_should(s, build_id)[0] == 0, "kept over a crash"
        for bad in ("", "x", "../../etc/passwd" * 10, "a\nb"):
            assert parca_should(s, bad)[0] == 0
        go = "Abc_/def-1/../../x"
        data = elf("00" * 20)
        upload_id = parca_initiate(s, go, len(data))
        assert parca_upload(s, go, upload_id, data).code == 0
        assert parca_finished(s, go, upload_id).status == 200
        names = [f.name for f in kept(s)]
        assert len(names) == 4 and "x" + go.encode().hex() + ".debuginfo" in names, names


def test_debuginfo_json():
    """The calls around both agents' uploads, in JSON."""
    parca, alloy = "ab" * 20, "cd" * 20

    def ask(path, **fields):
        r = s.writer.post(path, json.dumps(fields).encode(), JSON)
        assert r.status == 200, (path, r)
        return r.json()

    with cluster.AllInOne() as s:
        assert ask(PARCA + "ShouldInitiateUpload", buildId=parca)["shouldInitiateUpload"] is True
        data = elf(parca)
        told = ask(PARCA + "InitiateUpload", buildId=parca, size=str(len(data)), hash="h",
                   type="DEBUGINFO_TYPE_DEBUGINFO_UNSPECIFIED")["uploadInstructions"]
        assert told["buildId"] == parca and told["uploadStrategy"] == "UPLOAD_STRATEGY_GRPC", told
        again = ask(PARCA + "ShouldInitiateUpload", build_id=parca)
        assert again == {"reason": IN_PROGRESS}, again
        assert parca_upload(s, parca, told["uploadId"], data).code == 0
        assert ask(PARCA + "MarkUploadFinished", buildId=parca, uploadId=told["uploadId"]) == {}
        file = {"gnuBuildId": alloy, "name": "x", "type": "TYPE_EXECUTABLE_FULL"}
        assert ask(ALLOY + "ShouldInitiateUpload", file=file)["shouldInitiateUpload"] is True
        data = elf(alloy)
        assert s.writer.post(ALLOY + "Upload/" + alloy, data).status == 200
        assert ask(ALLOY + "UploadFinished", gnuBuildId=alloy) == {}
        listed = {o["file"]["gnuBuildId"]: o for o in ask(ALLOY + "ListDebuginfo")["object"]}
        assert set(listed) == {parca, alloy}, listed
        one = listed[alloy]
        assert one["file"] == file and one["state"] == "STATE_UPLOADED", one
        assert one["sizeBytes"] == str(len(data)) and one["startedAt"].endswith("Z"), one
        assert ask(ALLOY + "DeleteDebuginfo", gnuBuildId=alloy) == {}
        for body in (b"[]", b'{"buildId":5}', b'{"type":"EXE"}', b"{"):
            r = s.writer.post(PARCA + "ShouldInitiateUpload", body, JSON)
            assert r.status == 400 and r.json()["code"] == "invalid_argument", (body, r)


def test_debuginfo_refused():
    right, wrong = "aa" * 20, "bb" * 20
    with cluster.AllInOne("--distributor.debuginfo-file-bytes=1MiB",
                          "--distributor.debuginfo-tenant-bytes=500KiB") as s:
        upload_id = parca_initiate(s, right, 1000)
        st = parca_upload(s, right, upload_id, elf(wrong))
        assert st.code == 3 and wrong in st.message, st
        upload_id = parca_initiate(s, right, 1000)  # the failed one is gone
        st = parca_upload(s, right, upload_id, b"no elf" * 100)
        assert st.code == 3, st
        upload_id = parca_initiate(s, right, 1000)
        st = parca_upload(s, right, upload_id, elf(right, 1_100_000))
        assert st.code != 0, st
        r = s.writer.post(PARCA + "InitiateUpload", text(1, right) + field(2, 2_000_000), PROTO)
        assert r.status == 400, r
        assert kept(s) == []
        for i in range(3):  # the oldest makes room
            build_id = f"{i:02x}" * 20
            upload_id = parca_initiate(s, build_id, 200_000)
            assert parca_upload(s, build_id, upload_id, elf(build_id)).code == 0
            assert parca_finished(s, build_id, upload_id).status == 200
        assert [parca_should(s, f"{i:02x}" * 20)[0] for i in range(3)] == [1, 0, 0]
        assert len(kept(s)) == 4, kept(s)


def alloy_should(s, build_id):
    m = call(s, ALLOY + "ShouldInitiateUpload",
             field(1, text(1, build_id) + text(4, "lib.so") + field(5, 1)))
    return m.get(1, [0])[0], m[2][0].decode()


def test_debuginfo_alloy():
    build_id = "dd" * 20
    with cluster.AllInOne() as s:
        data = elf(build_id, 3_000_000)
        r = s.writer.post(ALLOY + "Upload/" + build_id, data)
        assert r.status == 412, r
        assert alloy_should(s, build_id)[0] == 1
        assert alloy_should(s, build_id) == (0, IN_PROGRESS)
        r = s.writer.post(ALLOY + "UploadFinished", text(1, build_id), PROTO)
        assert r.status != 200, r
        pieces = (data[i:i + 100_000] for i in range(0, len(data), 100_000))
        r = s.writer.request("POST", ALLOY + "Upload/" + build_id, pieces,
                             {})  # chunked
        assert r.status == 200, r
        call(s, ALLOY + "UploadFinished", text(1, build_id))
        listed = message(call(s, ALLOY + "ListDebuginfo")[1][0])
        assert message(listed[1][0])[1][0].decode() == build_id
        assert listed[2] == [1] and listed[5] == [len(data)], listed
        assert alloy_should(s, build_id)[0] == 0
        call(s, ALLOY + "DeleteDebuginfo", text(1, build_id))
        assert kept(s) == [] and call(s, ALLOY + "ListDebuginfo") == {}
        r = s.writer.post(ALLOY + "Upload/..%2f..%2fx", data)
        assert r.status in (400, 404, 412), r


def test_debuginfo_kill():
    build_id = "ee" * 20
    with cluster.AllInOne() as s:
        assert alloy_should(s, build_id)[0] == 1
        data = elf(build_id, 2_000_000)
        with socket.create_connection(("127.0.0.1", s.writer.port), 30) as c:
            c.sendall(f"POST {ALLOY}Upload/{build_id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                      f"{len(data)}\r\n\r\n".encode() + data[:1_000_000])
            until = time.monotonic() + 90
            while not any(p.name.startswith("tmp-") for p in kept(s)):
                assert time.monotonic() < until, kept(s)
                time.sleep(0.02)
            s.writer.kill()
        assert len(kept(s)) == 1
        s.writer.start()
        assert kept(s) == [], "nothing half is left"
        assert alloy_should(s, build_id)[0] == 1, "and the agent may try again"
        # The client goes away instead: gone at once, no restart needed.
        with socket.create_connection(("127.0.0.1", s.writer.port), 30) as c:
            c.sendall(f"POST {ALLOY}Upload/{build_id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                      f"{len(data)}\r\n\r\n".encode() + data[:1_000_000])
        until = time.monotonic() + 90
        while kept(s) or alloy_should(s, build_id)[0] == 0:
            assert time.monotonic() < until, kept(s)
            time.sleep(0.05)


if __name__ == "__main__":
    cluster.main([test_write_raw, test_every_pprof_by_write_raw, test_write_arrow, test_hostile_arrow, test_write_two_phase,
                  test_limits_of_write,
                  test_debuginfo_parca, test_debuginfo_json, test_debuginfo_refused, test_debuginfo_alloy,
                  test_debuginfo_kill])
