"""google.v1.Profile (perftools.profiles.Profile), read by hand: nothing is shared with the server.

For tests that compute what an answer must be from the bytes that were pushed, and that look into
pprof answers. Raises ValueError where the message makes no sense.
"""
import collections

import golden


def fields(data):
    """(number, value) of a message: ints for varints, bytes for what has a length."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            n, at = varint(data, at)
            if at + n > end:
                raise ValueError("a field ends behind the message")
            value, at = data[at:at + n], at + n
        elif kind in (1, 5):
            n = 8 if kind == 1 else 4
            value, at = int.from_bytes(data[at:at + n], "little"), at + n
        else:
            raise ValueError(f"wire type {kind}")
        yield tag >> 3, value


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def numbers(value):
    """A repeated integer field, packed or not."""
    if isinstance(value, int):
        return [value]
    out, at = [], 0
    while at < len(value):
        n, at = varint(value, at)
        out.append(n)
    return out


def one(message, **names):
    """The last value of each field named: one(data, id=1, name=2)."""
    found = dict(fields(message))
    return {name: found.get(number, 0) for name, number in names.items()}


class Profile:
    """types: (type, unit) each; samples: (stack of names, root first; values; labels) each. A stack
    has None where a frame has no function with a name."""

    def __init__(self, body):
        data = golden.plain(body)
        lists = collections.defaultdict(list)
        for number, value in fields(data):
            lists[number].append(value)
        self.strings = [s.decode(errors="replace") for s in lists[6]] or [""]
        self.types = [self.value_type(t) for t in lists[1]]
        self.period_type = self.value_type(lists[11][-1]) if lists[11] else ("", "")
        self.period = lists[12][-1] if lists[12] else 0
        self.time_ns = lists[9][-1] if lists[9] else 0
        self.duration_ns = lists[10][-1] if lists[10] else 0
        self.default_type = self.strings[lists[14][-1]] if lists[14] else ""
        self.mappings = [one(m, id=1, start=2, limit=3, offset=4, file=5, build_id=6)
                         for m in lists[3]]
        self.functions = {f["id"]: f for f in (one(m, id=1, name=2, system=3, file=4, line=5)
                                               for m in lists[5])}
        self.locations = {}
        for m in lists[4]:
            location = one(m, id=1, mapping=2, address=3)
            location["lines"] = [one(v, function=1, line=2) for n, v in fields(m) if n == 4]
            self.locations[location["id"]] = location
        self.samples = [self.sample(m) for m in lists[2]]

    def value_type(self, message):
        t = one(message, type=1, unit=2)
        return self.strings[t["type"]], self.strings[t["unit"]]

    def names(self, location_id):
        """Names of a location, the innermost first."""
        out = [self.strings[self.functions.get(line["function"], {"name": 0})["name"]]
               for line in self.locations[location_id]["lines"]]
        return [golden.normalized(name) if name else None for name in out] or [None]

    def sample(self, message):
        ids, values, labels = [], [], {}
        for number, value in fields(message):
            if number == 1:
                ids += numbers(value)
            elif number == 2:
                values += [signed(v) for v in numbers(value)]
            elif number == 3:
                label = one(value, key=1, text=2)
                if label["text"]:
                    labels[self.strings[label["key"]]] = self.strings[label["text"]]
        stack = [name for i in ids for name in self.names(i)]
        return tuple(reversed(stack)), values, labels

    def has_all_names(self):
        return all(None not in stack and stack for stack, _, _ in self.samples)

    def sums(self, index):
        """{stack: value} of one type, all labels together."""
        out = collections.Counter()
        for stack, values, _ in self.samples:
            if values[index]:
                out[stack] += values[index]
        return out
