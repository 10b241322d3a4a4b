"""deploy/config/REFERENCE.md says what the binary says; UPDATE=1 rewrites it, and what the chart says."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

FILE = cluster.ROOT / "deploy" / "config" / "REFERENCE.md"
HEAD = ("# Configuration reference\n\nMade by `embertree --print-reference`; "
        "`tests/cluster/operate/test_reference.py` checks that it is fresh.\n\n")


def test_reference_is_fresh():
    said = subprocess.run([cluster.BIN / "embertree", "--print-reference"], capture_output=True,
                          text=True, check=True).stdout
    assert "`http.listen`" in said and "`ingester.seal_delay`" in said, said[:500]
    if os.environ.get("UPDATE"):
        FILE.write_text(HEAD + said)
        subprocess.run([sys.executable, cluster.ROOT / "deploy" / "helm" / "generate", cluster.BIN], check=True)
    assert FILE.read_text() == HEAD + said, "stale: run it with UPDATE=1"


if __name__ == "__main__":
    cluster.main([test_reference_is_fresh])
