"""One version everywhere: every binary, /metrics, /ring, the page; a source tarball that builds without git;
and the linter's rules about it, each broken once."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "lib"), str(HERE.parents[1] / "lint")]
import cluster
import release

NUMBER = (cluster.ROOT / "deploy" / "VERSION").read_text().strip()
BUILD = rf"{re.escape(NUMBER)}(?: \(([0-9a-f]{{8,}}(?:-dirty)?)\))?"
BINARIES = ("embertree", "embertree-ingester", "embertree-distributor", "embertree-querier",
            "embertree-compactor", "embertree-demo", "embertreectl")


def ran(*words, **more):
    r = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, **more)
    assert r.returncode == 0, (words, r.stdout[-2000:], r.stderr[-2000:])
    return r.stdout


def test_every_binary_says_its_version():
    said = {ran(str(cluster.BIN / name), "--version").removeprefix(name) for name in BINARIES}
    assert len(said) == 1 and re.fullmatch(rf" {BUILD}\n", *said), said


def test_a_server_says_its_version():
    with cluster.AllInOne() as server:
        version = server.process.get("/ring").json()["version"]
        found = re.fullmatch(BUILD, version)
        assert found, version
        assert server.process.metric("embertree_build_info", version=NUMBER, commit=found[1] or "unknown") == 1
        page = server.process.get("/").body.decode()
        assert NUMBER in page and "@VERSION@" not in page, page[:2000]


def tarball(folder):
    folder.mkdir()
    path = pathlib.Path(ran(str(cluster.ROOT / "deploy" / "dist"), str(folder)).strip())
    assert path == folder / f"embertree-{NUMBER}.tar.gz", path
    return path


def test_a_tarball_builds_and_knows_its_version():
    """A checkout that is clean gives the same bytes twice; what is unpacked is no checkout."""
    if not (cluster.ROOT / ".git").exists():
        print("SKIPPED: this is no git checkout, so no tarball can be made")
        return
    commit = ran("git", "-C", str(cluster.ROOT), "rev-parse", "HEAD")[:8]
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "O", "B", "BUILD", "CC")}
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as name:
        folder = pathlib.Path(name)
        one, two = tarball(folder / "one"), tarball(folder / "two")
        assert one.read_bytes() == two.read_bytes()
        with tarfile.open(one) as tar:
            assert not [m.name for m in tar if m.mtime == 0 or m.uid or m.gid or m.mode & 0o022]
        ran("tar", "-xzf", str(one), "-C", str(folder))
        there = folder / f"embertree-{NUMBER}"
        # Around it is a checkout of something else: its commit is not that of the tarball.
        ran("git", "init", "-q", str(folder))
        assert (there / "deploy" / "COMMIT").read_text() == commit
        planned = ran("make", "-n", "all", cwd=there, env=env)
        assert all(f"build/release/bin/{b}" in planned for b in BINARIES), planned[-2000:]
        demo = "build/release/deploy/demo/main.c.o"  # prints the version, and needs few headers
        ran("make", demo, cwd=there, env=env)
        header = (there / "build" / "release" / "gen" / "version.h").read_text()
        assert header == (f'#define EMBERTREE_VERSION "{NUMBER}"\n#define EMBERTREE_COMMIT "{commit}"\n'
                          f'#define EMBERTREE_BUILD "{NUMBER} ({commit})"\n'), header
        assert f"{NUMBER} ({commit})".encode() in (there / demo).read_bytes()


def test_no_tarball_without_a_checkout():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as name:
        folder = pathlib.Path(name)
        (folder / "deploy").mkdir()
        shutil.copy(cluster.ROOT / "deploy" / "dist", folder / "deploy" / "dist")
        r = subprocess.run([str(folder / "deploy" / "dist"), str(folder / "out")], capture_output=True,
                           text=True, timeout=60, check=False)
        assert r.returncode == 1 and "no .git" in r.stderr and not (folder / "out").exists(), r


LINTED = ("README.md", "Makefile", "deploy/VERSION", "deploy/CHANGELOG.md", "deploy/config/REFERENCE.md",
          "deploy/helm/embertree/Chart.yaml", "deploy/helm/embertree/README.md", "deploy/docker/Dockerfile",
          "tests/README.md", ".ci/run")
BROKEN = (  # file, text in it, what stands in its place, what the linter says
    ("deploy/VERSION", NUMBER, "77.0.0", "is not the 77.0.0 of"),
    ("deploy/VERSION", NUMBER, "77.0", "is not MAJOR.MINOR.PATCH"),
    ("deploy/helm/embertree/Chart.yaml", f'appVersion: "{NUMBER}"', 'appVersion: "0.1"', "appVersion is not"),
    ("deploy/helm/embertree/README.md", f"embertree:{NUMBER}", "embertree:0.1", "names the image embertree:0.1"),
    ("deploy/CHANGELOG.md", f"## {NUMBER} ", "## 0.0.1 ", "the newest section is not that of"),
    ("deploy/CHANGELOG.md", f"| {NUMBER} | 1 to ", f"| {NUMBER} | 2 to ", "the table of compatibility has no row"),
    ("deploy/config/REFERENCE.md", "| `http.listen` |", "| `http.port` |", "has other options than"),
    ("Makefile", "\nlint:                  ##", "\nlint:                  #", "make help says nothing of lint"),
    (".ci/run", '\nstep "asan"', '\nstep "new one"', "has no row for the step \"new one\""),
)


def linted():
    said = []
    release.check(lambda path, line, text: said.append(f"{path}:{line}: {text}"))
    return said


def test_the_linter_notices_versions_that_differ():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as name, contextlib.chdir(name):
        for file in (*LINTED, *(str(p.relative_to(cluster.ROOT)) for p in
                                (cluster.ROOT / "common" / "store").rglob("keys.h"))):
            pathlib.Path(file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(cluster.ROOT / file, file)
        assert linted() == []
        for file, text, instead, says in BROKEN:
            whole = pathlib.Path(file).read_text()
            assert text in whole, (file, text)
            pathlib.Path(file).write_text(whole.replace(text, instead))
            assert any(says in line for line in linted()), (file, instead, linted())
            pathlib.Path(file).write_text(whole)
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")
        for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "x"), ("tag", f"v{NUMBER}")):
            ran(*git, *words)
        notes = pathlib.Path("deploy/CHANGELOG.md")
        notes.write_text(notes.read_text().replace("(not released yet)", "(1 December 2026)"))
        assert linted() == []
        ran(*git, "tag", "v0.0.1")
        assert any("HEAD has the tag v0.0.1" in line for line in linted()), linted()


if __name__ == "__main__":
    cluster.main([test_every_binary_says_its_version, test_a_server_says_its_version,
                  test_a_tarball_builds_and_knows_its_version, test_no_tarball_without_a_checkout,
                  test_the_linter_notices_versions_that_differ])
