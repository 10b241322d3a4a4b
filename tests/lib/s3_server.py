"""The S3 server of tests/s3 as a context: a bucket "profiles", keys test-key and test/secret+key."""
import json
import shutil
import subprocess
import urllib.request

import cluster
import ui_modules

KEY, SECRET, BUCKET = "test-key", "test/secret+key", "profiles"


class Missing(Exception):
    pass


def modules():
    """The folder to run server.mjs in, with what it imports."""
    for tool in ("node", "npm"):
        if not shutil.which(tool):
            raise Missing(f"{tool} is not installed")
    try:
        folder = ui_modules.npm_ci(cluster.ROOT / "tests" / "s3", "s3")
    except subprocess.CalledProcessError as e:
        raise Missing(f"no packages: {e}") from e
    shutil.copy(cluster.ROOT / "tests" / "s3" / "server.mjs", folder)
    return folder


class S3Server:
    def __init__(self, folder):
        self.child = subprocess.Popen(["node", "server.mjs", str(folder)], cwd=modules(),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.child.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def fail(self, n, status=503):
        """The next n requests fail: with a status, or cut off (0). Returns what was counted so far."""
        ask = urllib.request.Request(f"{self.url}/_fail?n={n}&status={status}", method="POST")
        with urllib.request.urlopen(ask, timeout=10) as reply:
            return json.load(reply)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        try:
            self.child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
