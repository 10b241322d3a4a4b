"""PushRequests and the three RPC protocols around them, written by hand: nothing is shared with the
server. gRPC goes out through curl, which speaks HTTP/2 without TLS (--http2-prior-knowledge).
"""
import base64
import gzip
import json
import re
import subprocess
import time

import golden

PATH = "/push.v1.PusherService/Push"


def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7f | 0x80])
        v >>= 7
    return out + bytes([v])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def pprof(value, leaf="leaf", time_ns=0, types=(("cpu", "nanoseconds"),), labels=()):
    """One stack main;<leaf> whose samples have this value; labels: (key, text) of a second sample
    of the same stack and value."""
    strings = ["", leaf, "main", "cpu", "nanoseconds"]

    def text(s):
        if s not in strings:
            strings.append(s)
        return strings.index(s)

    def sample(tags):
        return field(2, field(1, b"\1\2") + b"".join(field(2, value) for _ in types)
                     + b"".join(field(3, field(1, text(k)) + field(2, text(v))) for k, v in tags))

    out = b"".join(field(1, field(1, text(t)) + field(2, text(u))) for t, u in types)
    out += sample(())
    if labels:
        out += sample(labels)
    for i in (1, 2):
        out += field(4, field(1, i) + field(4, field(1, i)))
        out += field(5, field(1, i) + field(2, i))
    out += field(11, field(1, text("cpu")) + field(2, text("nanoseconds"))) + field(12, 10000000)
    if time_ns:
        out += field(9, time_ns)
    return out + b"".join(field(6, s.encode()) for s in strings)


def at_time(body, time_ns):
    """A profile, gzip'd or not, with another time_nanos; it may be cut or broken at its end."""
    plain, out, at = golden.plain(body), b"", 0

    def read_varint(at):
        v = shift = 0
        while True:
            v |= (plain[at] & 0x7f) << shift
            shift += 7
            at += 1
            if plain[at - 1] < 0x80:
                return v, at

    while at < len(plain):
        start = at
        tag, at = read_varint(at)
        n, at = read_varint(at) if tag & 7 in (0, 2) else (0, at + {1: 8, 5: 4}[tag & 7])
        at += n if tag & 7 == 2 else 0
        out += b"" if tag >> 3 == 9 else plain[start:at]
    return out + field(9, time_ns)


def now_ns(back_s=5):
    return time.time_ns() // 10**9 * 10**9 - back_s * 10**9


def request(*series):
    """Each a pair: labels as a dict, samples as a list of (bytes, id)."""
    return b"".join(
        field(1, b"".join(field(1, field(1, k.encode()) + field(2, v.encode()))
                          for k, v in labels.items())
              + b"".join(field(2, field(1, raw) + (field(2, i.encode()) if i else b""))
                         for raw, i in samples))
        for labels, samples in series)


def request_json(*series):
    return json.dumps({"series": [
        {"labels": [{"name": k, "value": v} for k, v in labels.items()],
         "samples": [{"rawProfile": base64.b64encode(raw).decode(), "ID": i} for raw, i in samples]}
        for labels, samples in series]})


def frame(message, flags=0):
    return bytes([flags]) + len(message).to_bytes(4, "big") + message


def frames(body):
    out = []
    while body:
        n = int.from_bytes(body[1:5], "big")
        out.append((body[0], body[5:5 + n]))
        body = body[5 + n:]
    return out


class Status:
    """Of gRPC: a number and its text."""

    def __init__(self, lines):
        found = dict((name.lower(), value) for name, value in re.findall(
            r"(?mi)^(grpc-status|grpc-message|x-embertree-left-out): ?(.*?)\r?$", lines))
        self.code = int(found.get("grpc-status", -1))
        self.message = found.get("grpc-message", "")
        self.left_out = found.get("x-embertree-left-out", "")

    def __repr__(self):
        return f"<grpc {self.code} {self.message!r}>"


def left_out(r):
    """What of a push an answer says was left out or changed, as a dict."""
    said = r.left_out if isinstance(r, Status) else r.headers.get("X-Embertree-Left-Out", "")
    return {k: int(v) for k, v in (one.split("=") for one in said.split(", ") if one)}


def push_proto(process, message, headers=None):
    return process.post(PATH, message, {"Content-Type": "application/proto"} | (headers or {}))


def push_json(process, message, headers=None):
    return process.post(PATH, message, {"Content-Type": "application/json"} | (headers or {}))


def push_web(process, message, headers=None, zipped=False):
    """gRPC-Web over HTTP/1.1."""
    more = {"grpc-encoding": "gzip"} if zipped else {}
    body = frame(gzip.compress(message), 1) if zipped else frame(message)
    r = process.post(PATH, body, {"Content-Type": "application/grpc-web+proto"} | more
                     | (headers or {}))
    assert r.status == 200, r
    head = "".join(f"{k}: {v}\n" for k, v in r.headers.items())
    return Status(head + "".join(text.decode() for flags, text in frames(r.body) if flags == 0x80))


def push_grpc(process, message, headers=None, path=PATH, zipped=False):
    """gRPC over HTTP/2 without TLS."""
    more = {"Content-Type": "application/grpc", "TE": "trailers"} | (headers or {})
    if zipped:
        more["grpc-encoding"] = "gzip"
    command = ["curl", "-sS", "--http2-prior-knowledge", "--max-time", "60", "-D", "-", "-o",
               "/dev/null", "--data-binary", "@-"]
    for name, value in more.items():
        command += ["-H", f"{name}: {value}"]
    body = frame(gzip.compress(message), 1) if zipped else frame(message)
    r = subprocess.run(command + [f"http://127.0.0.1:{process.port}{path}"], input=body,
                       capture_output=True, check=False)
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith(b"HTTP/2 200"), r.stdout
    return Status(r.stdout.decode())
