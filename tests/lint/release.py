"""One version, the same everywhere, and a changelog that keeps up with it.

deploy/VERSION is compared with the tag of HEAD, the chart, the images that READMEs name and the newest
section of deploy/CHANGELOG.md; that section with the options of deploy/config/REFERENCE.md, and its table
with the formats of common/store. `make help` names every target that is not a step of another one, and
tests/README.md every step of the gate.
"""
import hashlib
import pathlib
import re
import subprocess

VERSION = pathlib.Path("deploy/VERSION")
CHANGELOG = pathlib.Path("deploy/CHANGELOG.md")
REFERENCE = pathlib.Path("deploy/config/REFERENCE.md")
CHART = pathlib.Path("deploy/helm/embertree/Chart.yaml")
MAKEFILE = pathlib.Path("Makefile")


def options_sum(text):
    """Names, kinds, defaults and bounds of all options; not their texts, which may be put better."""
    rows = []
    for line in text.splitlines():
        if line.startswith("| `"):
            rows.append("|".join(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:6]))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12]


def check_tag(say, version):
    tags = subprocess.run(["git", "tag", "--points-at", "HEAD"], capture_output=True, text=True,
                          check=False).stdout.split()
    for tag in (t for t in tags if re.match(r"v\d", t)):
        if tag != "v" + version:
            say(VERSION, 1, f"is {version}, but HEAD has the tag {tag}")
        elif f"## {version} (not released yet)" in CHANGELOG.read_text():
            say(CHANGELOG, 1, f"HEAD has the tag {tag}: write the date in place of \"not released yet\"")


def check_chart(say, version):
    for key in ("version", "appVersion"):
        found = re.search(rf'^{key}: "?([^"\n]*)"?$', CHART.read_text(), re.M)
        if not found or found[1] != version:
            say(CHART, 1, f"{key} is not the {version} of {VERSION}")


def check_images(say, version):
    printed = [pathlib.Path("README.md"), pathlib.Path("deploy/docker/Dockerfile"),
               *sorted(pathlib.Path("deploy").rglob("*.md"))]
    for path in printed:
        if path == CHANGELOG:
            continue  # names images of earlier versions
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for named in re.findall(r"\bembertree:(\d+\.\d+[\w.]*)", line):
                if named != version:
                    say(path, number, f"names the image embertree:{named}; {VERSION} is {version}")


def check_changelog(say, version):
    sections = re.split(r"^## ", CHANGELOG.read_text(), flags=re.M)
    newest = next((s for s in sections if re.match(r"\d", s)), "")
    if newest.split(" ")[0] != version:
        say(CHANGELOG, 1, f"the newest section is not that of {version}, which {VERSION} has")
    noted, now = re.search(r"<!-- options: (\w+) -->", newest), options_sum(REFERENCE.read_text())
    if not noted or noted[1] != now:
        say(CHANGELOG, 1, f"{REFERENCE} has other options than the newest section was written for: say there "
            f"what changed for an operator, and put <!-- options: {now} --> below its heading")
    formats = {}
    for path in pathlib.Path("common/store").rglob("*.h"):
        formats |= dict(re.findall(r"^#define (FORMAT_WRITTEN|FORMAT_LEAST_READER)\s+(\d+)",
                                   path.read_text(), re.M))
    row = f"| {version} | 1 to {formats['FORMAT_WRITTEN']} | {formats['FORMAT_WRITTEN']} " \
          f"| {formats['FORMAT_LEAST_READER']} |"
    if row not in CHANGELOG.read_text():
        say(CHANGELOG, 1, f"the table of compatibility has no row \"{row}\"")


def check_help(say):
    text = MAKEFILE.read_text()
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)", text, re.M)
    for name in phony[1].replace("\\", " ").split():
        if not re.search(rf"^{name}:[^#\n]*##", text, re.M):
            say(MAKEFILE, 1, f"make help says nothing of {name}: put ## and a text behind its rule")


def check_stages(say):
    readme = pathlib.Path("tests/README.md")
    rows = re.findall(r"^\| `([a-z-]+)` \|", readme.read_text(), re.M)
    for name in re.findall(r'^step "([^"]+)"', pathlib.Path(".ci/run").read_text(), re.M):
        if name.replace(" ", "-") not in rows:
            say(readme, 1, f"the table of stages has no row for the step \"{name}\" of .ci/run")


def check(say):
    version = VERSION.read_text().strip()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        say(VERSION, 1, f"\"{version}\" is not MAJOR.MINOR.PATCH")
    check_tag(say, version)
    check_chart(say, version)
    check_images(say, version)
    check_changelog(say, version)
    check_help(say)
    check_stages(say)
