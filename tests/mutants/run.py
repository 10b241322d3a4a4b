#!/usr/bin/env python3
"""Breaks the product on purpose, one line at a time, and sees whether a test notices.

    make mutants                 all of them
    make mutants MUTANT=h2_      those whose name begins so

`table.py` names the edits. Each is made in a copy below build/mutants: the changed file is compiled
with the product's own flags and linked in front of the archives into the one test program that should
notice, which must then fail. Nothing in the source tree changes. A mutant that lives is a failure, as
is an edit whose text is not in its file exactly once (the code moved on: update the table), and a
test that fails without any edit.

Environment: O, CC, CFLAGS, LDFLAGS, LDLIBS, ARCHIVES as the Makefile has them; JOBS.
"""
import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys
import time

import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(os.environ.get("O", "build/release"))
WORK = OUT.parent / "mutants"
HANGS_S = 120  # a mutant that makes its test hang is noticed, too


def flags(name):
    return shlex.split(os.environ[name])


def edited(mutant):
    """The changed file's text, or what is wrong with the edit."""
    text = (ROOT / mutant.file).read_text()
    found = text.count(mutant.old)
    if found != 1:
        return None, f"its text is {found} times in {mutant.file}: update tests/mutants/table.py"
    return text.replace(mutant.old, mutant.new), None


def build(mutant, folder):
    """Compiles and links; the reason why it did not work, or None."""
    text, why = edited(mutant)
    if why:
        return why
    source = folder / pathlib.Path(mutant.file).name
    source.write_text(text)
    # Optimised little: it is compiled once and run for moments. A warning is no reason not to try it.
    compiled = subprocess.run([*flags("CC"), *flags("CFLAGS"), "-O1", "-Wno-error", "-w", "-c", source, "-o",
                               folder / "mutant.o"], capture_output=True, text=True)
    if compiled.returncode:
        return "does not compile: " + compiled.stderr.strip()[-400:]
    linked = subprocess.run([*flags("CC"), *flags("LDFLAGS"), "-o", folder / "test", folder / "mutant.o",
                             OUT / (mutant.test + ".c.o"), *flags("ARCHIVES"), *flags("LDLIBS")],
                            capture_output=True, text=True)
    return "does not link: " + linked.stderr.strip()[-400:] if linked.returncode else None


def fails(program):
    """Does this test program fail? Its last words as well."""
    try:
        r = subprocess.run([program], capture_output=True, text=True, errors="replace", timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return True, f"hung for {HANGS_S} s"
    lines = [line for line in (r.stderr + r.stdout).splitlines() if "FAILED" in line or "error" in line.lower()]
    return r.returncode != 0, (lines or ["ended with %d" % r.returncode])[0].strip()[:120]


def tried(mutant):
    """(was it noticed, why)"""
    folder = WORK / mutant.name
    folder.mkdir(parents=True, exist_ok=True)
    why = build(mutant, folder)
    if why:
        return False, why
    noticed, words = fails(folder / "test")
    for file in folder.iterdir():
        file.unlink()
    return noticed, words if noticed else f"lives: {mutant.test} does not notice"


def healthy(test):
    """A test that fails anyway notices nothing."""
    broken, words = fails(OUT / test)
    return not broken, f"{test} fails without any edit: {words}"


def main():
    chosen = [m for m in table.MUTANTS if m.name.startswith(os.environ.get("MUTANT", ""))]
    names = [m.name for m in table.MUTANTS]
    assert len(set(names)) == len(names), "two mutants have one name"
    if sys.argv[1:] == ["--tests"]:  # for the Makefile: what must be built
        print(" ".join(sorted({m.test for m in chosen})))
        return 0
    began, passed, failed = time.monotonic(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        rows = [(test, pool.submit(healthy, test)) for test in sorted({m.test for m in chosen})]
        rows += [(m.name, pool.submit(tried, m)) for m in chosen]
        for name, future in rows:
            good, words = future.result()
            passed, failed = passed + good, failed + (not good)
            if not good:
                print(f"FAIL {name}: {words}", flush=True)
            elif os.environ.get("V", "0") != "0":
                print(f"ok   {name}: {words}", flush=True)
    print(f"{len(chosen)} mutants in {time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
