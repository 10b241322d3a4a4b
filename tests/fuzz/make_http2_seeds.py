#!/usr/bin/env python3
"""Writes tests/fuzz/seeds/http2/*: inputs of fuzz_http2.c (its first comment says how they read)."""
import pathlib

OUT = pathlib.Path(__file__).parent / "seeds" / "http2"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def frame(kind, flags, stream, payload=b""):
    return bytes([kind, flags, stream]) + len(payload).to_bytes(2, "big") + payload


def raw(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def fields(*pairs):
    return b"".join(b"\0" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in pairs)


def request(method, path, *more):
    return fields((b":method", method), (b":scheme", b"http"), (b":path", path),
                  (b":authority", b"h"), *more)


SEEDS = {
    "get": frame(HEADERS, END_STREAM | END_HEADERS, 1, request(b"GET", b"/x?y=1")),
    "post": frame(HEADERS, END_HEADERS, 1, request(b"POST", b"/x")) + frame(DATA, 0, 1, b"abc")
            + frame(DATA, END_STREAM | PADDED, 1, b"\2de\0\0"),
    "stream": frame(HEADERS, END_HEADERS, 1, request(b"POST", b"/s")) + frame(DATA, 0, 1, b"a" * 300)
              + frame(WINDOW, 0, 1, b"\0\0\0\7") + frame(DATA, END_STREAM, 1, b"b"),
    "reset": frame(HEADERS, END_HEADERS, 1, request(b"POST", b"/s")) + frame(RST, 0, 1, b"\0\0\0\x08")
             + frame(HEADERS, END_STREAM | END_HEADERS, 3, request(b"GET", b"/")),
    "trailers": frame(HEADERS, END_HEADERS, 1, request(b"POST", b"/x")) + frame(DATA, 0, 1, b"abc")
                + frame(HEADERS, END_STREAM | END_HEADERS, 1, fields((b"t", b"v"))),
    "continuation": frame(HEADERS, END_STREAM, 1, request(b"GET", b"/x")[:20])
                    + frame(CONTINUATION, END_HEADERS, 1, request(b"GET", b"/x")[20:]),
    "shut_window": frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")
                   + frame(HEADERS, END_STREAM | END_HEADERS, 1, request(b"GET", b"/x"))
                   + frame(WINDOW, 0, 1, b"\0\0\1\0"),
    "control": frame(PING, 0, 0, b"12345678") + frame(PRIORITY, 0, 3, b"\0\0\0\1\7")
               + frame(GOAWAY, 0, 0, bytes(8)),
    "indexed": frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x82\x86\x84\x41\x01h"),
    "headers": frame(HEADERS, END_STREAM | END_HEADERS, 1, request(
        b"POST", b"/x", (b"content-length", b"0"), (b"expect", b"100-continue"), (b"te", b"trailers"))),
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, body in SEEDS.items():
        (OUT / name).write_bytes(b"\0ab" + body)
    (OUT / "raw").write_bytes(
        b"\1ab" + raw(SETTINGS, 0, 0)
        + raw(HEADERS, END_STREAM | END_HEADERS, 1, request(b"GET", b"/x")))
    (OUT / "no_preface").write_bytes(b"\3ab * HTTP/2.0\r\n\r\nXX")


if __name__ == "__main__":
    main()
