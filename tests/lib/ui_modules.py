"""Node packages that browser tests need, installed once below build/ui-test."""
import fcntl
import shutil
import subprocess

import cluster

WORK = cluster.ROOT / "build" / "ui-test"


def npm_ci(folder, name):
    """Installs the packages of a lock file in a folder below build/, once per lock file. Tests run next to each other:
    the second one waits until the first one has installed them."""
    to = WORK / name
    to.mkdir(parents=True, exist_ok=True)
    done = to / "installed"
    lock = (folder / "package-lock.json").read_bytes()
    with open(WORK / (name + ".lock"), "w") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        if not done.exists() or done.read_bytes() != lock:
            for file in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(folder / file, to)
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=to,
                           check=True)
            done.write_bytes(lock)
    return to
