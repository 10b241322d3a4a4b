"""Knots: objects of a room that need each other, directly or through others.

`python3 tests/lint/knots.py [--edges] ROOM...` reads the objects of a release build, resolves each
undefined symbol to the object of the room that defines it, and prints the strongly connected
components with more than one object, largest first. With --edges it prints the symbols that tie
each of them together, too. Callbacks and the layout of structs cannot be seen this way.

A room in LIMITS may have no knot with more objects than its limit: exit 1. Other rooms only print.
"""
import pathlib
import subprocess
import sys

LIMITS = {"common/store": 4}


def symbols(path):
    """What an object defines for others, and what it needs from them."""
    defined, needed = set(), set()
    out = subprocess.run(["nm", "-g", str(path)], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        kind, name = line.split()[-2:]
        (needed if kind in "Uwv" else defined).add(name)
    return defined, needed


def graph(room):
    """{object: {object it needs: symbols}}, by the paths of their sources."""
    root = pathlib.Path("build/release")
    objects = {}
    for path in sorted((root / room).rglob("*.o")):
        source = str(path.relative_to(root))[:-len(".o")]
        if pathlib.Path(source).exists():  # else it was moved since
            objects[source] = symbols(path)
    home = {name: source for source, (defined, _) in objects.items() for name in defined}
    edges = {source: {} for source in objects}
    for source, (_, needed) in objects.items():
        for name in needed & home.keys():
            edges[source].setdefault(home[name], set()).add(name)
    return edges


def reach(edges, start):
    seen, todo = set(), [start]
    while todo:
        for to in edges[todo.pop()]:
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return seen


def knots(edges):
    """Strongly connected components of more than one object, largest first."""
    far = {source: reach(edges, source) for source in edges}
    found = {tuple(sorted(b for b in far[a] if a in far[b])) for a in edges if a in far[a]}
    return sorted((k for k in found if len(k) > 1), key=lambda k: (-len(k), k))


def main():
    args = [a for a in sys.argv[1:] if a != "--edges"]
    if not args:
        sys.exit(__doc__)
    bad = False
    for room in args:
        edges = graph(room)
        if not edges:
            sys.exit(f"{room}: no objects below build/release: run make all")
        found = knots(edges)
        largest = max(map(len, found), default=1)
        over = largest > LIMITS.get(room, largest)
        bad |= over
        print(f"{room}: {len(edges)} objects, {len(found)} knots, the largest of {largest}"
              + (f", over its limit of {LIMITS[room]}" if over else ""))
        for knot in found:
            print(f"  {len(knot)}: " + " ".join(source[len(room) + 1:] for source in knot))
            if "--edges" not in sys.argv:
                continue
            for source in knot:
                for to in sorted(edges[source].keys() & set(knot) - {source}):
                    print(f"     {source[len(room) + 1:]} -> {to[len(room) + 1:]}: "
                          + " ".join(sorted(edges[source][to])))
    sys.exit(bad)


if __name__ == "__main__":
    main()
