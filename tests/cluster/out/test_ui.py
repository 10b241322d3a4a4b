"""The page in headless Chromium, on a server that profiles itself; and the page's own unit tests.

Screenshots: build/ui-test/shots/. Needs Node, npm and Debian's chromium; says SKIPPED otherwise.
"""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
from ui_modules import npm_ci

WORK = cluster.ROOT / "build" / "ui-test"


def test_page():
    modules = npm_ci(cluster.ROOT / "tests" / "ui", "browser")
    with cluster.AllInOne("--selfprof.enabled") as server:
        for version, body in (("v1", b"serve;pay 20\nserve;list 10\n"),
                              ("v2", b"serve;pay 10\nserve;cart 2\n")):
            r = server.ingest(body, "shop.cpu{version=%s}" % version)
            assert r.status == 200, r
        # More nodes than the page draws: those of b are the ones that are cut.
        wide = "".join(f"main;a;f{i} {i + 20001}\nmain;b;f{i} {i + 1}\n" for i in range(12000))
        assert server.ingest(wide.encode(), "wide.cpu").status == 200
        for _ in range(300):  # something to see in the self-profile
            assert server.render(cluster.CPU_TYPE + '{service_name="shop"}').status == 200
        command = ["node", str(cluster.ROOT / "tests" / "ui" / "page.mjs"),
                   f"http://127.0.0.1:{server.process.port}", str(WORK / "shots"), str(modules),
                   shutil.which("chromium")]
        assert subprocess.run(command, timeout=240).returncode == 0, "see above"


if __name__ == "__main__":
    missing = [tool for tool in ("node", "npm", "chromium") if not shutil.which(tool)]
    if missing:
        print(f"SKIPPED: test_ui.py: not installed: {', '.join(missing)}")
        print("0 passed, 0 failed, 1 skipped")
        sys.exit(0)
    cluster.main([test_page])
