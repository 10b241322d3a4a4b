"""Every format of the render routes on the real binary: they say the same of the same question, on
testdata; files are files; hostile names stay names; SVG and HTML work in headless Chromium."""
import html.parser
import json
import os
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import golden
import pprof_ref
import ui_modules

WORK = cluster.ROOT / "build" / "ui-test" / "outputs"
CPU = cluster.CPU_TYPE
FILES = ("pprof/go_cpu.pb.gz", "pprof/go_heap.pb.gz", "pprof/cpu_partly_symbolised.pb.gz", "pprof/java_cpu.pb.gz",
         "pprof/python_pyroscope.pb.gz", "pprof/invalid_utf8.pb.gz")
HOSTILE = ["</script><script>owned=1</script>", "]]></script><script>owned=1</script>",
           "\"><img src=x onerror=owned=1>", "<img src=x onerror=owned=1>", "' onload='owned=1",
           "back\\slash\"quote", "&lt;b&gt;", "<!--", "tab\there", "${x}{{y}}%s", "}]; N1 -> N2",
           "\u2028line\u202eright", "\U0001f525"]


# ---- readers that share nothing with the server ----

def tree_stacks(data):
    """{stack: self} of the bytes of format `tree`."""
    out, at = {}, 0

    def number():
        nonlocal at
        v, at = pprof_ref.varint(data, at)
        return v
    path = []  # [children left]
    names = []
    while at < len(data):
        n = number()
        name, at = data[at:at + n].decode(errors="replace"), at + n
        own, children = number(), number()
        names.append(name)
        path.append(children)
        if own:
            out[tuple(names[1:])] = out.get(tuple(names[1:]), 0) + own
        while path and path[-1] == 0:
            path.pop()
            names.pop()
        if path:
            path[-1] -= 1
    return out


def folded_stacks(text):
    out = {}
    for line in text.rstrip("\n").split("\n"):
        stack, _, value = line.rpartition(" ")
        key = () if stack == "(empty stack)" else tuple(stack.split(";"))
        out[key] = out.get(key, 0) + int(value)
    return out


class Page(html.parser.HTMLParser):
    """Tags, and the text of scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.inside = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "script":
            self.inside = dict(attrs).get("id", "")

    def handle_endtag(self, tag):
        self.inside = None if tag == "script" else self.inside

    def handle_data(self, data):
        if self.inside is not None:
            self.scripts[self.inside] = self.scripts.get(self.inside, "") + data


def html_stacks(body):
    data = json.loads(Page(body.decode()).scripts["profile"])
    return cluster.leaves({"names": data["names"], "levels": data["levels"]})


def svg_bars(body):
    """[(name, x, y, width)] of an SVG, which must be well-formed XML."""
    ns = "{http://www.w3.org/2000/svg}"
    root = xml.etree.ElementTree.fromstring(body)
    bars = root.find(f"{ns}g[@id='bars']")
    out = []
    for g in bars:
        rect = g.find(ns + "rect")
        out.append((g.find(ns + "title").text.partition("\n")[0],
                    *(float(rect.get(k)) for k in ("x", "y", "width"))))
    assert len(root.findall(ns + "script")) == 1
    return out


def plain(stacks):
    """Names as formats with fewer characters can say them."""
    out = {}
    for stack, value in stacks.items():
        key = tuple(name.replace(";", ":").replace("\n", " ").replace("\r", " ") for name in stack)
        out[key] = out.get(key, 0) + value
    return out


# ---- tests ----

def check_formats(server, service, kind):
    query = f'{kind}{{service_name="{service}"}}'
    graph = server.render(query).json()["flamebearer"]
    stacks = cluster.leaves(graph)
    assert stacks, service

    def get(form):
        r = server.render(query, format=form)
        assert r.status == 200, (form, r)
        return r.body
    assert tree_stacks(get("tree")) == stacks, service
    assert html_stacks(get("html")) == stacks, service
    assert folded_stacks(get("collapsed").decode(errors="replace")) == plain(stacks), service
    bars = svg_bars(get("svg"))
    assert len(bars) == sum(len(level) for level in graph["levels"]) // 4, service
    assert abs(bars[0][3] - 1180) < 1e-6
    p = pprof_ref.Profile(get("pprof"))
    name = kind.split(":")
    assert p.types == [(name[1], name[2])] and p.default_type == name[1], p.types
    assert sum(p.sums(0).values()) == graph["numTicks"] == sum(stacks.values()), service
    if p.has_all_names():
        assert dict(p.sums(0)) == {tuple(map(golden.normalized, k)): v for k, v in stacks.items()}
    dot = get("dot").decode()
    assert dot.startswith('digraph "') and dot.endswith("}\n"), service
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tplain"], input=dot.encode(), check=True, capture_output=True)


def test_formats_say_the_same():
    if not golden.available():
        print(golden.skip_line("test_outputs.py: formats"))
        return
    with cluster.AllInOne() as server:
        for path in FILES:
            service = path.partition("/")[2].partition(".")[0]
            r = server.ingest(golden.read(path), service, format="pprof", sampleRate=0)
            assert r.status == 200, (path, r)
            r = server.connect("Series", {"labelNames": ["__profile_type__"],
                                          "matchers": [f'{{service_name="{service}"}}'],
                                          **server.range_ms()})
            for one in r.json()["labelsSet"]:
                check_formats(server, service, one["labels"][0]["value"])


def test_heads():
    with cluster.AllInOne() as server:
        assert server.ingest(b"a;b 3\n", "app.cpu").status == 200
        query = CPU + '{service_name="app"}'
        rows = {"pprof": ("application/octet-stream", "profile.pb.gz"),
                "pgo": ("application/octet-stream", "default.pgo"),
                "tree": ("application/octet-stream", "profile.tree"),
                "collapsed": ("text/plain; charset=utf-8", "profile.folded.txt"),
                "dot": ("text/plain; charset=utf-8", None),
                "svg": ("image/svg+xml; charset=utf-8", None),
                "html": ("text/html; charset=utf-8", None),
                "json": ("application/json", None),
                "something": ("application/json", None)}
        for form, (kind, file) in rows.items():
            r = server.render(query, format=form)
            assert r.status == 200 and r.headers["Content-Type"] == kind, (form, r.headers)
            assert r.headers["X-Content-Type-Options"] == "nosniff"
            said = r.headers.get("Content-Disposition")
            assert said == (f'attachment; filename="{file}"' if file else None), (form, said)
            policy = r.headers.get("Content-Security-Policy", "")
            assert ("sandbox" in policy) == (form in ("svg", "html")), (form, policy)
        assert server.render(query, format="pprof").body[:2] == b"\x1f\x8b"
        for form in ("pprof", "collapsed"):
            r = server.render("app.cpu", path="/render", format=form)
            assert r.headers["Content-Type"] == "application/octet-stream", r.headers
        for path, status, more in (("/render", 400, {"format": "png"}),
                                   ("/pyroscope/render", 400, {"from": "0"}),
                                   ("/pyroscope/render", 400, {"max-nodes": "9999999999"}),
                                   ("/pyroscope/render", 400, {"query": "nothing"}),
                                   ("/pyroscope/render", 400, {"query": ""}),
                                   ("/pyroscope/render", 200, {"max-nodes": "x"})):  # as Pyroscope: the default
            r = server.render(**({"query": query, "path": path} | more))
            assert r.status == status, (path, more, r)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            r = server.reader.request(method, "/pyroscope/render?query=x")
            assert r.status == 405, (method, r)


def diff(server, path="/pyroscope/render-diff", **more):
    r = server.reader.get(path, **({"leftFrom": "now-1h", "leftUntil": "now",
                                    "rightFrom": "now-1h", "rightUntil": "now"} | more))
    return r


def test_diff():
    with cluster.AllInOne() as server:
        server.ingest(b"main;pay 30\nmain;list 22\n", "shop.cpu{version=v1}", sampleRate="1000000000")
        server.ingest(b"main;pay 60\nmain;list 3\n", "shop.cpu{version=v2}", sampleRate="1000000000")
        sides = {"leftQuery": CPU + '{version="v1"}', "rightQuery": CPU + '{version="v2"}'}
        r = diff(server, **sides)
        assert r.status == 200, r
        got = r.json()
        assert got["metadata"]["format"] == "double" and got["timeline"] is None
        assert (got["leftTicks"], got["rightTicks"]) == (52, 63)
        graph = got["flamebearer"]
        assert graph["numTicks"] == 115 and graph["maxSelf"] == 60
        names = [graph["names"][i] for i in graph["levels"][2][6::7]]
        assert names == ["list", "pay"] and graph["levels"][2][1::7] == [22, 30]
        assert graph["levels"][2][4::7] == [3, 60]
        old = diff(server, "/render-diff", leftQuery='shop.cpu{version="v1"}',
                   rightQuery='shop.cpu{version="v2"}')
        assert old.json()["flamebearer"] == graph, old
        both = diff(server, "/render-diff", query="shop.cpu")
        assert both.json()["leftTicks"] == both.json()["rightTicks"] == 115, both
        r = diff(server, **(sides | {"rightQuery": "memory:inuse_space:bytes::{}"}))
        assert r.status == 400 and "profile types must match" in r.json()["message"], r
        assert diff(server, **(sides | {"leftFrom": "0"})).status == 400
        assert diff(server, leftQuery=sides["leftQuery"]).status == 400
        assert diff(server, **sides, format="pprof").status == 400


def test_exemplars_query():
    with cluster.AllInOne() as server:
        for i in range(1, 5):
            r = server.ingest(b"main;pay%d %d\n" % (i, 10 * i), "shop.cpu{profile_id=%016x}" % i,
                              sampleRate="1000000000")
            assert r.status == 200, r
        server.ingest(b"main;other 1000\n", "shop.cpu", sampleRate="1000000000")
        r = server.render("shop.cpu", path="/api/exemplars:query", heatmapTimeBuckets="8",
                          heatmapValueBuckets="4")
        assert r.status == 200, r
        got = r.json()
        assert got["flamebearer"]["numTicks"] == 100, got["flamebearer"]  # without the nameless push
        heat = got["heatmap"]
        assert (heat["minValue"], heat["maxValue"]) == (10, 40), heat
        assert len(heat["values"]) == 8 and {len(c) for c in heat["values"]} == {4}
        assert [sum(c[y] for c in heat["values"]) for y in range(4)] == [1, 1, 1, 1], heat
        r = server.render("shop.cpu", path="/api/exemplars:query", minValue="15", maxValue="30")
        assert r.json()["flamebearer"]["numTicks"] == 50, r
        assert sum(map(sum, r.json()["heatmap"]["values"])) == 4, "the heat map has all of them"
        r = server.render("none.cpu", path="/api/exemplars:query")
        assert r.status == 200 and r.json()["heatmap"] is None, r
        r = server.render("shop.cpu", path="/api/exemplars:query", heatmapTimeBuckets="1000000")
        assert r.status == 400, r


def small_world(server):
    for body, version in ((b"main;pay 30\nmain;list 22\n", "v1"),
                          (b"main;pay 60\nmain;list 3\n", "v2")):
        r = server.ingest(body, "shop.cpu{version=%s}" % version, sampleRate="1000000000")
        assert r.status == 200, r
    text = "".join(f"main;{name.replace(';', ':')} {100 + i}\n" for i, name in enumerate(HOSTILE))
    r = server.ingest(text.encode(), "hostile.cpu", sampleRate="1000000000")
    assert r.status == 200, r


def test_hostile_names():
    with cluster.AllInOne() as server:
        small_world(server)
        query = CPU + '{service_name="hostile"}'
        stacks = cluster.leaves(server.render(query).json()["flamebearer"])
        assert len(stacks) == len(HOSTILE)
        body = server.render(query, format="html").body
        assert html_stacks(body) == stacks
        page = Page(body.decode())
        assert page.tags.count("script") == 2 and "img" not in page.tags, page.tags
        names = {name for name, *_ in svg_bars(server.render(query, format="svg").body)}
        want = {name.replace("\t", " ") for (_, name) in stacks}
        assert want <= names, want - names
        title = server.render(CPU + '{service_name!="</title><script>owned=1</script>"}',
                              format="html").body
        assert Page(title.decode()).tags.count("script") == 2


def test_in_a_browser():
    missing = [tool for tool in ("node", "npm", "chromium") if not shutil.which(tool)]
    if missing:
        print(f"SKIPPED: test_outputs.py: browser: not installed: {', '.join(missing)}")
        return
    modules = ui_modules.npm_ci(cluster.ROOT / "tests" / "ui", "browser")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    with cluster.AllInOne() as server:
        small_world(server)
        base = f"http://127.0.0.1:{server.process.port}"

        def url(path, **query):
            return base + path + "?" + urllib.parse.urlencode(query)
        one = {"query": CPU + '{version="v1"}', "from": "now-1h", "until": "now"}
        bad = one | {"query": CPU + '{service_name="hostile"}'}
        two = {"leftQuery": CPU + '{version="v1"}', "rightQuery": CPU + '{version="v2"}',
               **{side + end: when for side in ("left", "right")
                  for end, when in (("From", "now-1h"), ("Until", "now"))}}
        urls = {}
        for form in ("svg", "html"):
            urls[form] = url("/pyroscope/render", **one, format=form)
            urls["hostile" + form.title()] = url("/pyroscope/render", **bad, format=form)
            urls["diff" + form.title()] = url("/pyroscope/render-diff", **two, format=form)
            r = server.render(one["query"], format=form)
            (WORK / f"flame.{form}").write_bytes(r.body)
        command = ["node", str(cluster.ROOT / "tests" / "ui" / "outputs.mjs"), json.dumps(urls),
                   str(WORK), str(modules), shutil.which("chromium")]
        assert subprocess.run(command, timeout=240).returncode == 0, "see above"


if __name__ == "__main__":
    cluster.main([test_formats_say_the_same, test_heads, test_diff, test_exemplars_query,
                  test_hostile_names, test_in_a_browser])
