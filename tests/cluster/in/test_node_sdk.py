"""The Node SDK as applications use it, from its registry and unmodified, over HTTP and HTTPS: its
wall, CPU and heap profiles arrive with the function that really burnt the time.

Other languages' SDKs: tests/clients. Needs Node and npm; says SKIPPED otherwise.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib"), os.path.join(HERE, "..", "..", "clients")]
import cluster
import sdks


def skip(why):
    print(f"SKIPPED: test_node_sdk.py: {why}")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)


def main():
    missing = [tool for tool in ("node", "npm", "openssl") if not shutil.which(tool)]
    if missing:
        skip(f"not installed: {', '.join(missing)}")
    sdks.bed.SECONDS = int(os.environ.get("CLIENT_SECONDS", "8"))
    try:
        prepared = sdks.node_prepare()
    except (sdks.Missing, subprocess.CalledProcessError) as e:
        skip(f"no @pyroscope/nodejs: {e}")
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        certs = sdks.bed.certificates(pathlib.Path(folder) / "certs")

        def test_node_sdk_plain():
            sdks.node(prepared, certs, tls=False)

        def test_node_sdk_tls():
            sdks.node(prepared, certs, tls=True)

        cluster.main([test_node_sdk_plain, test_node_sdk_tls])


if __name__ == "__main__":
    main()
