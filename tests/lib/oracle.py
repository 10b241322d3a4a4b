"""The slow, obvious engine: a list of what was pushed, added up again for every question.

Pushes are of leaves (10 s) that they fill, so that no push is split. Values are integers, names are
normalised by golden.normalized, which is a copy of the rules and shares nothing with the server.
"""
import collections
import re

LEAF_MS = 10_000
GAUGES = ("inuse_space", "inuse_objects", "goroutine", "goroutines")


class Matcher:
    OPS = {"=": lambda have, want: have == want,
           "!=": lambda have, want: have != want,
           "=~": lambda have, want: re.fullmatch(want, have, re.S) is not None,
           "!~": lambda have, want: re.fullmatch(want, have, re.S) is None}

    def __init__(self, name, op, value):
        self.name, self.op, self.value = name, op, value

    def matches(self, labels):
        return self.OPS[self.op](labels.get(self.name, ""), self.value)

    def __str__(self):
        text = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.name}{self.op}"{text}"'


def selector(matchers):
    return "{" + ",".join(map(str, matchers)) + "}"


class Row:
    """What one push has of one series: its labels, its type, its leaf, {stack: value}."""

    def __init__(self, labels, kind, at_ms, stacks):
        self.labels, self.kind, self.at_ms, self.stacks = labels, kind, at_ms, stacks
        self.total = sum(stacks.values())


class Oracle:
    def __init__(self):
        self.rows = []
        self.units = {}

    def add(self, profile, labels, at_ms):
        """One pushed pprof_ref.Profile. Labels of samples make series of their own."""
        parts = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
        for stack, values, sample_labels in profile.samples:
            where = tuple(sorted({**labels, **sample_labels}.items()))
            for (kind, unit), value in zip(profile.types, values):
                if value:
                    self.units[kind] = unit
                    parts[where][kind][stack] += value
        for where, by_kind in parts.items():
            for kind, stacks in by_kind.items():
                self.rows.append(Row(dict(where), kind, at_ms, stacks))

    def rows_of(self, kind, matchers, start_ms, end_ms):
        """Those whose leaf meets [start, end)."""
        first = start_ms // LEAF_MS * LEAF_MS
        return [r for r in self.rows if r.kind == kind and first <= r.at_ms < end_ms
                and all(m.matches(r.labels) for m in matchers)]

    @staticmethod
    def stacks(rows):
        out = collections.Counter()
        for r in rows:
            out.update(r.stacks)
        return out

    @staticmethod
    def leaves(rows):
        return len({r.at_ms for r in rows})

    @staticmethod
    def functions(stacks):
        """{name: [self, total]}; a stack counts once for a function, however often it is in it."""
        out = collections.defaultdict(lambda: [0, 0])
        for stack, value in stacks.items():
            out[stack[-1]][0] += value
            for name in set(stack):
                out[name][1] += value
        return out

    @staticmethod
    def nodes(stacks):
        """{path: total} of the call tree, the empty path left out."""
        out = collections.Counter()
        for stack, value in stacks.items():
            for depth in range(1, len(stack) + 1):
                out[stack[:depth]] += value
        return out


def rounded(value, by):
    """Half goes up."""
    return (2 * value + by) // (2 * by)


def is_cut_of(shown, stacks, max_nodes):
    """Asserts that {path: total} of a flame graph's bars is the tree of these stacks, cut: the
    rest of a parent is in a bar `other`. Real functions named `other` must not occur."""
    nodes = Oracle.nodes(stacks)
    limit = sorted(nodes.values(), reverse=True)[max_nodes - 1] if len(nodes) > max_nodes else 0
    want = {path: total for path, total in nodes.items() if total >= limit}
    for path, total in nodes.items():
        if total < limit and (len(path) == 1 or path[:-1] in want):
            other = path[:-1] + ("other",)
            want[other] = want.get(other, 0) + total
    assert shown == want, (f"{len(shown)} bars, expected {len(want)}; "
                           f"{list((set(shown.items()) ^ set(want.items())))[:4]}")
