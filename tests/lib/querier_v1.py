"""querier.v1 and its neighbours by every way in: a small protobuf codec of its own, and calls.

Messages are dicts in proto3 JSON (lowerCamel, int64 as strings, defaults left out), whatever the
way: encode() and decode() turn them into protobuf and back. Nothing is shared with the server.
"""
import base64
import gzip
import json
import os
import shutil
import struct
import subprocess
import tempfile

import push_client as push

SERVICE = "querier.v1.QuerierService"

# message -> {number: (name, kind)}; kinds: s(tring) i(nt64) u(int64) n (int32) b(ool) d(ouble) y (bytes),
# E:<names of an enum>, or the name of a message; a star: repeated.
FORMAT = "E:PROFILE_FORMAT_ UNSPECIFIED FLAMEGRAPH TREE DOT PPROF"
EXEMPLAR = "E:EXEMPLAR_TYPE_ UNSPECIFIED NONE INDIVIDUAL SPAN"
HEATMAP = "E:HEATMAP_QUERY_TYPE_ UNSPECIFIED INDIVIDUAL SPAN"
SUM = "E:TIME_SERIES_AGGREGATION_TYPE_ SUM AVERAGE"
FORCE = "E:ASYNC_QUERY_TYPE_ DISABLED FORCE"
STATUS = "E:ASYNC_QUERY_STATUS_ UNKNOWN IN_PROGRESS SUCCESS FAILURE"
SCHEMA = {
    "ProfileTypesRequest": {1: ("start", "i"), 2: ("end", "i")},
    "ProfileTypesResponse": {1: ("profileTypes", "ProfileType*")},
    "ProfileType": {1: ("ID", "s"), 2: ("name", "s"), 4: ("sampleType", "s"), 5: ("sampleUnit", "s"),
                    6: ("periodType", "s"), 7: ("periodUnit", "s")},
    "LabelValuesRequest": {1: ("name", "s"), 2: ("matchers", "s*"), 3: ("start", "i"),
                           4: ("end", "i")},
    "LabelValuesResponse": {1: ("names", "s*")},
    "LabelNamesRequest": {1: ("matchers", "s*"), 2: ("start", "i"), 3: ("end", "i")},
    "LabelNamesResponse": {1: ("names", "s*")},
    "SeriesRequest": {1: ("matchers", "s*"), 2: ("labelNames", "s*"), 3: ("start", "i"),
                      4: ("end", "i")},
    "SeriesResponse": {2: ("labelsSet", "Labels*")},
    "Labels": {1: ("labels", "LabelPair*")},
    "LabelPair": {1: ("name", "s"), 2: ("value", "s")},
    "SelectMergeStacktracesRequest": {
        1: ("profileTypeID", "s"), 2: ("labelSelector", "s"), 3: ("start", "i"), 4: ("end", "i"),
        5: ("maxNodes", "i"), 6: ("format", FORMAT), 7: ("stackTraceSelector", "StackTraceSelector"),
        8: ("profileIdSelector", "s*"), 9: ("async", "AsyncQueryRequest"),
        10: ("traceIdSelector", "s*"), 11: ("spanSelector", "s*")},
    "AsyncQueryRequest": {1: ("requestId", "s"), 2: ("type", FORCE)},
    "AsyncQueryResponse": {1: ("requestId", "s"), 2: ("status", STATUS), 3: ("errorMessage", "s")},
    "StackTraceSelector": {1: ("callSite", "Location*"), 2: ("goPgo", "GoPGO")},
    "Location": {1: ("name", "s")},
    "GoPGO": {1: ("keepLocations", "n"), 2: ("aggregateCallees", "b")},
    "SelectMergeStacktracesResponse": {
        1: ("flamegraph", "FlameGraph"), 2: ("tree", "y"), 3: ("dot", "s"),
        4: ("async", "AsyncQueryResponse"), 5: ("pprof", "PprofProfile")},
    "PprofProfile": {1: ("profile", "Profile")},
    "FlameGraph": {1: ("names", "s*"), 2: ("levels", "Level*"), 3: ("total", "i"),
                   4: ("maxSelf", "i")},
    "Level": {1: ("values", "i*")},
    "SelectMergeSpanProfileRequest": {
        1: ("profileTypeID", "s"), 2: ("labelSelector", "s"), 3: ("spanSelector", "s*"),
        4: ("start", "i"), 5: ("end", "i"), 6: ("maxNodes", "i"), 7: ("format", FORMAT)},
    "SelectMergeSpanProfileResponse": {1: ("flamegraph", "FlameGraph"), 2: ("tree", "y")},
    "SelectMergeProfileRequest": {
        1: ("profileTypeID", "s"), 2: ("labelSelector", "s"), 3: ("start", "i"), 4: ("end", "i"),
        5: ("maxNodes", "i"), 6: ("stackTraceSelector", "StackTraceSelector"),
        7: ("profileIdSelector", "s*"), 8: ("traceIdSelector", "s*")},
    "Profile": {
        1: ("sampleType", "ValueType*"), 2: ("sample", "Sample*"), 3: ("mapping", "Mapping*"),
        4: ("location", "PLocation*"), 5: ("function", "Function*"), 6: ("stringTable", "s*"),
        7: ("dropFrames", "i"), 8: ("keepFrames", "i"), 9: ("timeNanos", "i"),
        10: ("durationNanos", "i"), 11: ("periodType", "ValueType"), 12: ("period", "i"),
        13: ("comment", "i*"), 14: ("defaultSampleType", "i")},
    "ValueType": {1: ("type", "i"), 2: ("unit", "i")},
    "Sample": {1: ("locationId", "u*"), 2: ("value", "i*"), 3: ("label", "PLabel*")},
    "PLabel": {1: ("key", "i"), 2: ("str", "i"), 3: ("num", "i"), 4: ("numUnit", "i")},
    "Mapping": {1: ("id", "u"), 2: ("memoryStart", "u"), 3: ("memoryLimit", "u"),
                4: ("fileOffset", "u"), 5: ("filename", "i"), 6: ("buildId", "i"),
                7: ("hasFunctions", "b"), 8: ("hasFilenames", "b"), 9: ("hasLineNumbers", "b"),
                10: ("hasInlineFrames", "b")},
    "PLocation": {1: ("id", "u"), 2: ("mappingId", "u"), 3: ("address", "u"), 4: ("line", "Line*"),
                  5: ("isFolded", "b")},
    "Line": {1: ("functionId", "u"), 2: ("line", "i")},
    "Function": {1: ("id", "u"), 2: ("name", "i"), 3: ("systemName", "i"), 4: ("filename", "i"),
                 5: ("startLine", "i")},
    "SelectSeriesRequest": {
        1: ("profileTypeID", "s"), 2: ("labelSelector", "s"), 3: ("start", "i"), 4: ("end", "i"),
        5: ("groupBy", "s*"), 6: ("step", "d"), 7: ("aggregation", SUM),
        8: ("stackTraceSelector", "StackTraceSelector"), 9: ("limit", "i"),
        10: ("exemplarType", EXEMPLAR)},
    "SelectSeriesResponse": {1: ("series", "SeriesOf*")},
    "SeriesOf": {1: ("labels", "LabelPair*"), 2: ("points", "Point*")},
    "Point": {1: ("value", "d"), 2: ("timestamp", "i"), 4: ("exemplars", "Exemplar*")},
    "Exemplar": {1: ("timestamp", "i"), 2: ("profileId", "s"), 3: ("spanId", "s"), 4: ("value", "i"),
                 5: ("labels", "LabelPair*"), 6: ("traceId", "s")},
    "SelectHeatmapRequest": {
        1: ("profileTypeID", "s"), 2: ("labelSelector", "s"), 3: ("start", "i"), 4: ("end", "i"),
        5: ("step", "d"), 6: ("groupBy", "s*"), 7: ("queryType", HEATMAP),
        8: ("exemplarType", EXEMPLAR), 9: ("limit", "i")},
    "SelectHeatmapResponse": {1: ("series", "HeatmapSeries*")},
    "HeatmapSeries": {1: ("labels", "LabelPair*"), 2: ("slots", "HeatmapSlot*")},
    "HeatmapSlot": {1: ("timestamp", "i"), 2: ("yMin", "d*"), 3: ("counts", "n*"),
                    4: ("exemplars", "Exemplar*")},
    "DiffRequest": {1: ("left", "SelectMergeStacktracesRequest"),
                    2: ("right", "SelectMergeStacktracesRequest")},
    "DiffResponse": {1: ("flamegraph", "FlameGraphDiff")},
    "FlameGraphDiff": {1: ("names", "s*"), 2: ("levels", "Level*"), 3: ("total", "i"),
                       4: ("maxSelf", "i"), 5: ("leftTicks", "i"), 6: ("rightTicks", "i")},
    "GetProfileStatsRequest": {},
    "GetProfileStatsResponse": {1: ("dataIngested", "b"), 2: ("oldestProfileTime", "i"),
                                3: ("newestProfileTime", "i")},
    "AnalyzeQueryRequest": {2: ("start", "i"), 3: ("end", "i"), 4: ("query", "s")},
    "AnalyzeQueryResponse": {1: ("queryScopes", "QueryScope*"), 2: ("queryImpact", "QueryImpact")},
    "QueryScope": {1: ("componentType", "s"), 2: ("componentCount", "u"), 3: ("blockCount", "u"),
                   4: ("seriesCount", "u"), 5: ("profileCount", "u"), 6: ("sampleCount", "u"),
                   7: ("indexBytes", "u"), 8: ("profileBytes", "u"), 9: ("symbolBytes", "u")},
    "QueryImpact": {2: ("totalBytesInTimeRange", "u"), 3: ("totalQueriedSeries", "u"),
                    4: ("deduplicationNeeded", "b")},
    "Nothing": {},
    "GetSettingsResponse": {1: ("settings", "Setting*")},
    "SetSettingsRequest": {1: ("setting", "Setting")},
    "SetSettingsResponse": {1: ("setting", "Setting")},
    "DeleteSettingsRequest": {1: ("name", "s")},
    "Setting": {1: ("name", "s"), 2: ("value", "s"), 3: ("modifiedAt", "i")},
    "UpsertRecordingRuleRequest": {
        1: ("id", "s"), 2: ("metricName", "s"), 3: ("matchers", "s*"), 4: ("groupBy", "s*"),
        5: ("externalLabels", "LabelPair*"), 6: ("generation", "i")},
    "RecordingRule": {
        1: ("id", "s"), 2: ("metricName", "s"), 3: ("profileType", "s"), 4: ("matchers", "s*"),
        5: ("groupBy", "s*"), 6: ("externalLabels", "LabelPair*"), 7: ("generation", "i")},
    "RuleResponse": {1: ("rule", "RecordingRule")},
    "ListRecordingRulesResponse": {1: ("rules", "RecordingRule*")},
    "RuleRequest": {1: ("id", "s")},
    "GetFeatureFlagsResponse": {1: ("featureFlags", "FeatureFlag*")},
    "FeatureFlag": {1: ("name", "s"), 2: ("enabled", "b"), 3: ("description", "s"),
                    4: ("documentationUrl", "s")},
    "VersionResponse": {1: ("QuerierAPI", "u")},
}
SETTINGS, RULES = "settings.v1.SettingsService/", "settings.v1.RecordingRulesService/"
# path -> (request, response), where the names do not follow from the method
OTHERS = {
    "SelectMergeProfile": ("SelectMergeProfileRequest", "Profile"),
    SETTINGS + "Get": ("Nothing", "GetSettingsResponse"),
    SETTINGS + "Set": ("SetSettingsRequest", "SetSettingsResponse"),
    SETTINGS + "Delete": ("DeleteSettingsRequest", "Nothing"),
    RULES + "GetRecordingRule": ("RuleRequest", "RuleResponse"),
    RULES + "ListRecordingRules": ("Nothing", "ListRecordingRulesResponse"),
    RULES + "UpsertRecordingRule": ("UpsertRecordingRuleRequest", "RuleResponse"),
    RULES + "DeleteRecordingRule": ("RuleRequest", "Nothing"),
    "capabilities.v1.FeatureFlagsService/GetFeatureFlags": ("Nothing", "GetFeatureFlagsResponse"),
    "version.v1.Version/Version": ("Nothing", "VersionResponse"),
    "vcs.v1.VCSService/GithubApp": ("Nothing", "Nothing"),
    "querier.v1.QuerierService/SelectNothing": ("Nothing", "Nothing"),
}


# ---- protobuf ----

def names_of(kind):
    prefix, *names = kind[2:].split(" ")
    return [prefix + name for name in names]


def scalar(number, kind, v):
    if kind == "s":
        return push.field(number, v.encode())
    if kind == "y":
        return push.field(number, base64.b64decode(v))
    if kind == "d":
        return push.varint(number << 3 | 1) + struct.pack("<d", v)
    if kind in SCHEMA:
        return push.field(number, encode(kind, v))
    if kind.startswith("E:"):
        v = v if isinstance(v, int) else names_of(kind).index(v)
    return push.field(number, int(v))


def encode(message, value):
    """As connect-go does: by number, numbers of lists packed."""
    out = b""
    numbers = {name: (number, kind) for number, (name, kind) in SCHEMA[message].items()}
    assert set(value) <= set(numbers), set(value) - set(numbers)
    for number, (name, kind) in sorted(SCHEMA[message].items()):
        if name not in value:
            continue
        if not kind.endswith("*"):
            out += scalar(number, kind, value[name])
        elif kind[0] in "iun" and len(kind) == 2:
            out += push.field(number, b"".join(push.varint(int(v)) for v in value[name]))
        elif kind == "d*":
            out += push.field(number, struct.pack(f"<{len(value[name])}d", *value[name]))
        else:
            out += b"".join(scalar(number, kind[:-1], v) for v in value[name])
    return out


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            assert shift <= 7 or byte or shift == 70, "a longer length than needed"
            return value, at


def number_of(kind, v):
    if kind in ("i", "n") and v >> 63:
        v -= 1 << 64
    return v if kind == "n" else str(v)


def read_field(data, at):
    tag, at = varint(data, at)
    if tag & 7 == 0:
        value, at = varint(data, at)
    elif tag & 7 == 1:
        value, at = struct.unpack_from("<d", data, at)[0], at + 8
    else:
        assert tag & 7 == 2, tag
        n, at = varint(data, at)
        assert at + n <= len(data), "a field ends behind its message"
        value, at = data[at:at + n], at + n
    return tag >> 3, tag & 7, value, at


def one_value(kind, value):
    if kind == "s":
        return value.decode()  # strict: readers of proto3 are
    if kind == "y":
        return base64.b64encode(value).decode()
    if kind == "d":
        return int(value) if value == int(value) else value
    if kind == "b":
        return bool(value)
    if kind.startswith("E:"):
        return names_of(kind)[value]
    return decode(kind, value) if kind in SCHEMA else number_of(kind, value)


def list_of(kind, wire, value):
    if wire != 2 or kind in "sy" or kind in SCHEMA:
        return [one_value(kind, value)]
    if kind == "d":
        return [one_value(kind, v[0]) for v in struct.iter_unpack("<d", value)]
    out, at = [], 0
    while at < len(value):
        v, at = varint(value, at)
        out.append(one_value(kind, v))
    return out


def decode(message, data):
    """Every field must be known, and a field with its default value must be absent."""
    out, at = {}, 0
    while at < len(data):
        number, wire, value, at = read_field(data, at)
        name, kind = SCHEMA[message][number]
        if kind.endswith("*"):
            out.setdefault(name, []).extend(list_of(kind[:-1], wire, value))
        else:
            assert name not in out and (value or kind in SCHEMA), (message, name)
            out[name] = one_value(kind, value)
    return out


# ---- calls ----

class Answer:
    """code: "" or Connect's name of the error."""

    def __init__(self, code, message, text="", size=0):
        self.code, self.message, self.text, self.size = code, message, text, size

    def __repr__(self):
        return f"<{self.code or 'ok'} {self.text!r} {str(self.message)[:2000]}>"


CODES = {1: "canceled", 2: "unknown", 3: "invalid_argument", 4: "deadline_exceeded", 5: "not_found",
         6: "already_exists", 7: "permission_denied", 8: "resource_exhausted", 12: "unimplemented",
         13: "internal", 14: "unavailable", 16: "unauthenticated"}
WAYS = ("json", "proto", "proto-gzip", "grpc", "grpc-gzip", "grpc-json", "web", "web-text",
        "web-json")


def messages_of(path):
    method = path.split("/")[-1]
    return OTHERS.get(path, (method + "Request", method + "Response"))


def connect(server, path, body, kind, headers, zipped=False):
    more = {"Content-Type": f"application/{kind}", "Connect-Protocol-Version": "1"}
    if zipped:
        body = gzip.compress(body)
        more |= {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    r = server.post(path, body, more | headers)
    plain = gzip.decompress(r.body) if r.headers.get("Content-Encoding") == "gzip" else r.body
    if r.status != 200:
        error = json.loads(plain)
        assert r.headers["Content-Type"] == "application/json", r.headers
        return Answer(error["code"], None, error.get("message", ""))
    assert r.headers["Content-Type"] == f"application/{kind}", r.headers
    return Answer("", plain)


def framed(status, body, packed):
    data = [(flags, message) for flags, message in push.frames(body) if not flags & 0x80]
    if status.code:
        assert not data
        return Answer(CODES[status.code], None, status.message)
    assert len(data) == 1, data
    flags, message = data[0]
    assert bool(flags & 1) <= packed
    return Answer("", gzip.decompress(message) if flags & 1 else message)


def certificate(folder):
    """For localhost: (certificate, key), or None where there is no openssl."""
    if not shutil.which("openssl"):
        return None
    cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


def grpc(server, path, body, kind, headers, zipped=False, ca=None):
    """HTTP/2 without TLS; with a certificate to trust, by TLS to localhost."""
    more = {"Content-Type": f"application/grpc+{kind}", "TE": "trailers"} | headers
    if zipped:
        more |= {"grpc-encoding": "gzip", "grpc-accept-encoding": "gzip"}
        body = push.frame(gzip.compress(body), 1)
    else:
        body = push.frame(body)
    with tempfile.NamedTemporaryFile() as out:
        how = ["--http2", "--cacert", ca, "--resolve", f"localhost:{server.port}:127.0.0.1"] if ca \
            else ["--http2-prior-knowledge"]
        command = ["curl", "-sS", *how, "--max-time", "60", "-D", "-", "-o", out.name,
                   "--data-binary", "@-"]
        for name, value in more.items():
            command += ["-H", f"{name}: {value}"]
        where = f"https://localhost:{server.port}" if ca else f"http://127.0.0.1:{server.port}"
        r = subprocess.run(command + [where + path], input=body, capture_output=True, check=False)
        assert r.returncode == 0, r.stderr
        assert r.stdout.startswith(b"HTTP/2 200"), r.stdout
        return framed(push.Status(r.stdout.decode()), out.read(), zipped)


def web(server, path, body, kind, headers, text=False):
    body = push.frame(body)
    name = f"application/grpc-web{'-text' if text else ''}+{kind}"
    r = server.post(path, base64.b64encode(body) if text else body,
                    {"Content-Type": name} | headers)
    assert r.status == 200, r
    got = base64.b64decode(r.body) if text else r.body
    tail = "".join(t.decode() for flags, t in push.frames(got) if flags & 0x80)
    return framed(push.Status(tail), got, False)


def call(server, method, message, way="json", headers=None):
    """The answer's message is a dict, whatever the way. server: a process of cluster.py, for
    "grpc-tls" with the path of its certificate as `ca`; method: of querier.v1, or a path without its
    first slash."""
    request, response = messages_of(method)
    path = "/" + (method if "/" in method else f"{SERVICE}/{method}")
    kind = "json" if way.endswith("json") else "proto"
    body = json.dumps(message).encode() if kind == "json" else encode(request, message)
    headers = headers or {}
    if way.startswith("grpc"):
        a = grpc(server, path, body, kind, headers, way == "grpc-gzip",
                 server.ca if way == "grpc-tls" else None)
    elif way.startswith("web"):
        a = web(server, path, body, kind, headers, way == "web-text")
    else:
        a = connect(server, path, body, kind, headers, way == "proto-gzip")
    if not a.code:
        a.size = len(a.message)
        a.message = json.loads(a.message) if kind == "json" else decode(response, a.message)
    return a
