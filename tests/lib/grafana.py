"""Requests as Grafana's data source and the app Profiles Drilldown send them (proto/WIRE.md,
"Grafana requests"), byte by byte: heads, encodings, spellings. `UPDATE=1 python3
tests/lib/grafana.py` writes those of a fixed time to tests/golden/grafana/*.req, which
tests/unit/querier/test_grafana.c sends.
"""
import gzip
import json
import os
import pathlib
import re
import sys

import querier_v1 as v1

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "grafana"
NOW = 1750000000000  # of tests/lib/roles/querier_bed.h
GO = "connect-go/1.18.1 (go1.24.4)"


class Request:
    """method: as v1.call takes it; message: canonical, for tests that ask the same in another way."""

    def __init__(self, name, method, message, headers, body, verb="POST", path=None):
        self.name, self.method, self.message = name, method, message
        self.headers, self.body, self.verb = headers, body, verb
        self.path = path or "/" + (method if "/" in method else f"{v1.SERVICE}/{method}")

    def raw(self):
        head = f"{self.verb} {self.path} HTTP/1.1\r\nHost: pyroscope:4040\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in self.headers.items())
        return head.encode() + b"\r\n" + self.body


def datasource(name, method, message, zipped=False):
    """The backend plugin: connect-go with its defaults; zipped as with WithSendGzip."""
    body = v1.encode(v1.messages_of(method)[0], message)
    body = gzip.compress(body, 6, mtime=0) if zipped else body
    headers = {"User-Agent": GO, "Content-Length": str(len(body)), "Accept-Encoding": "gzip",
               **({"Content-Encoding": "gzip"} if zipped else {}),
               "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "29999",
               "Content-Type": "application/proto", "X-Scope-Orgid": "anonymous"}
    return Request("ds_" + name, method, message, headers, body)


def app(name, method, text, message):
    """The browser through Grafana's proxy, which takes Origin away: JSON as the app spells it."""
    body = json.dumps(text, separators=(",", ":")).encode()
    headers = {"User-Agent": "Grafana/12.0.2", "Content-Length": str(len(body)),
               "Accept": "application/json, text/plain, */*", "Accept-Encoding": "gzip",
               "Content-Type": "application/json",
               "X-Forwarded-For": "127.0.0.1", "X-Grafana-Device-Id": "0",
               "X-Scope-Orgid": "anonymous"}
    return Request("app_" + name, method, message, headers, body)


def of_datasource(now):
    start, end = str(now - 100000), str(now)
    times = {"start": start, "end": end}
    profile = {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}', **times}
    yield datasource("health", "ProfileTypes", {})
    yield datasource("types", "ProfileTypes", times)
    yield datasource("types_gzip", "ProfileTypes", times, zipped=True)
    yield datasource("label_names", "LabelNames", {"matchers": ['{service_name="shop"}'], **times})
    yield datasource("label_values", "LabelValues", {"name": "env", "matchers": ["{}"], **times})
    yield datasource("series", "SelectSeries", profile | {"groupBy": ["env"], "step": 15.0})
    yield datasource("series_limit", "SelectSeries", profile | {
        "labelSelector": "{}", "groupBy": ["service_name"], "step": 0.5, "limit": "1",
        "exemplarType": "EXEMPLAR_TYPE_NONE"}, zipped=True)
    yield datasource("stacktraces", "SelectMergeStacktraces", profile | {"maxNodes": "16384"})
    yield datasource("stacktraces_gzip", "SelectMergeStacktraces", profile | {"maxNodes": "2"},
                     zipped=True)
    yield datasource("no_type", "SelectMergeStacktraces", profile | {"profileTypeID": ""})


def of_app(now):
    start, end = now - 100000, now
    times = {"start": str(start), "end": str(end)}
    yield app("services", "Series",
              {"start": start, "end": end, "labelNames": ["service_name", "__profile_type__"],
               "matchers": []},
              {"labelNames": ["service_name", "__profile_type__"], **times})
    yield app("label_names", "LabelNames", {"matchers": ['{service_name="shop"}'], "start": start,
                                            "end": end},
              {"matchers": ['{service_name="shop"}'], **times})
    yield app("label_values", "LabelValues", {"name": "pod", "matchers": ['{service_name="shop"}'],
                                              "start": start, "end": end},
              {"name": "pod", "matchers": ['{service_name="shop"}'], **times})
    yield app("mixed", "SelectMergeStacktraces",
              {"profile_typeID": CPU, "label_selector": '{service_name="shop"}', "start": start,
               "end": end, "stackTraceSelector": {"call_site": [{"name": "main"},
                                                                {"name": "serve"}]},
               "maxNodes": 500},
              {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}', **times,
               "stackTraceSelector": {"callSite": [{"name": "main"}, {"name": "serve"}]},
               "maxNodes": "500"})
    yield app("profile", "SelectMergeProfile",
              {"profile_typeID": CPU, "label_selector": '{service_name="shop"}', "start": start,
               "end": end},
              {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}', **times})
    yield app("analyze", "AnalyzeQuery", {"query": '{service_name="shop"}', "start": start,
                                          "end": end},
              {"query": '{service_name="shop"}', **times})
    yield app("stats", "GetProfileStats", {}, {})
    setting = {"name": "pluginSettings",
               "value": '{"collapsedFlamegraphs":false,"maxNodes":16384}', "modifiedAt": end}
    yield app("settings_set", v1.SETTINGS + "Set", {"setting": setting},
              {"setting": setting | {"modifiedAt": str(end)}})
    yield app("settings_get", v1.SETTINGS + "Get", {}, {})
    yield app("flags", "capabilities.v1.FeatureFlagsService/GetFeatureFlags", {}, {})
    yield app("github", "vcs.v1.VCSService/GithubApp", {}, {})


def download(now):
    """The app's download: proto, and its reply is kept as a .pprof."""
    message = {"profileTypeID": CPU, "labelSelector": '{service_name="shop"}',
               "start": str(now - 100000), "end": str(now)}
    r = datasource("x", "SelectMergeProfile", message)
    r.name = "app_download"
    return r


def requests(now):
    return [*of_datasource(now), *of_app(now), download(now)]


def plain(raw):
    """Without its compression, which differs from one library to the next, and its length."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"Content-Encoding: gzip" not in head:
        return raw
    return re.sub(rb"Content-Length: \d+", b"", head), gzip.decompress(body)


def main():
    GOLDEN.mkdir(exist_ok=True)
    stale = 0
    for r in requests(NOW):
        path = GOLDEN / f"{r.name}.req"
        if os.environ.get("UPDATE"):
            path.write_bytes(r.raw())
        elif not path.is_file() or plain(path.read_bytes()) != plain(r.raw()):
            print(f"{path} is not what is sent")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
