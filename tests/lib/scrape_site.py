"""Programs to scrape, and a Kubernetes API server to find them with: both on threads of the test."""
import http.server
import json
import queue
import socketserver
import threading
import urllib.parse

from push_client import field

HEAP = (("alloc_objects", "count"), ("alloc_space", "bytes"),
        ("inuse_objects", "count"), ("inuse_space", "bytes"))
CPU = (("samples", "count"), ("cpu", "nanoseconds"))


def pprof(types, rows, period=("space", "bytes", 524288)):
    """rows: {leaf: values, one per type}; each is a stack main;<leaf>."""
    strings = ["", "main"]

    def text(s):
        if s not in strings:
            strings.append(s)
        return strings.index(s)

    out = b"".join(field(1, field(1, text(t)) + field(2, text(u))) for t, u in types)
    for i, (leaf, values) in enumerate(rows.items(), 2):
        out += field(2, b"".join(field(1, x) for x in (i, 1)) + b"".join(field(2, v) for v in values))
        out += field(4, field(1, i) + field(4, field(1, i)))
        out += field(5, field(1, i) + field(2, text(leaf)))
    out += field(4, field(1, 1) + field(4, field(1, 1))) + field(5, field(1, 1) + field(2, 1))
    out += field(11, field(1, text(period[0])) + field(2, text(period[1]))) + field(12, period[2])
    return out + b"".join(field(6, s.encode()) for s in strings)


class Site:
    """answer(path, query, headers) gives (status, body), or a generator of pieces."""

    def __init__(self, answer):
        site = self
        self.lock = threading.Lock()
        self.requests = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(url.query))
                with site.lock:
                    site.requests.append((url.path, query, dict(self.headers)))
                status, body = answer(url.path, query, self.headers)
                self.send_response(status)
                try:
                    if isinstance(body, bytes):
                        self.send_header("Content-Length", str(len(body)))
                        self.end_headers()
                        self.wfile.write(body)
                        return
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in body:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                except OSError:
                    self.close_connection = True

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 100

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        self.address = f"127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def seen(self, path):
        with self.lock:
            return [r for r in self.requests if r[0] == path]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def endpoint_slice(name, port, addresses, ready=True, namespace="shop", pod=None):
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": "1",
                         "labels": {"kubernetes.io/service-name": name, "app.kubernetes.io/tier": "x"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [a], "conditions": {"ready": ready}, "nodeName": "node-1",
                           "targetRef": {"kind": "Pod", "name": pod or f"{name}-0"}}
                          for a in addresses],
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}]}


class Kubernetes:
    """EndpointSlices by list (in pages of `page`) and watch. change() tells the watchers; expire()
    makes their version too old."""

    def __init__(self, token, page=1):
        self.token, self.page, self.version = token, page, 10
        self.objects, self.watchers, self.lists, self.refused, self.old = {}, [], 0, 0, 0
        self.lock = threading.Lock()
        self.site = Site(self.answer)

    def answer(self, path, query, headers):
        if headers.get("Authorization") != f"Bearer {self.token}":
            self.refused += 1
            return 401, b"{}"
        if path != "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices":
            return 404, b"{}"
        with self.lock:
            if query.get("watch"):
                if int(query["resourceVersion"]) < self.old:
                    return 410, b"{}"
                events = queue.Queue()
                self.watchers.append(events)
                return 200, self.events(events)
            self.lists += query.get("continue") is None
            names = sorted(self.objects)
            at = int(query.get("continue", 0))
            meta = {"resourceVersion": str(self.version)}
            if at + self.page < len(names):
                meta["continue"] = str(at + self.page)
            return 200, json.dumps({"metadata": meta, "items": [
                self.objects[n] for n in names[at:at + self.page]]}).encode()

    def events(self, events):
        while True:
            event = events.get()
            if event is None:
                return
            line = json.dumps(event).encode() + b"\n"
            yield line[:20]  # in two pieces
            yield line[20:]

    def change(self, kind, obj):
        with self.lock:
            self.version += 1
            obj["metadata"]["resourceVersion"] = str(self.version)
            if kind == "DELETED":
                del self.objects[obj["metadata"]["name"]]
            else:
                self.objects[obj["metadata"]["name"]] = obj
            for w in self.watchers:
                w.put({"type": kind, "object": obj})

    def expire(self, by_event):
        """All watches end with 410, as an event or as the answer to the next one."""
        with self.lock:
            self.version += 100
            self.old = self.version
            for w in self.watchers:
                if by_event:
                    w.put({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
                w.put(None)
            self.watchers = []
