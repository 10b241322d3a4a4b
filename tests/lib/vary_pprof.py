"""A pprof body as the next ten seconds of the same program would be: the same code, mostly the same
stacks, but other ids, another order of all tables, other values, some stacks gone and a few new."""
import random


def _varint(v):
    out = bytearray()
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    out.append(v)
    return bytes(out)


def _read(b, i):
    v = shift = 0
    while True:
        c = b[i]
        i += 1
        v |= (c & 127) << shift
        shift += 7
        if c < 128:
            return v, i


def _fields(b):
    out, i = [], 0
    while i < len(b):
        tag, i = _read(b, i)
        if tag & 7 == 2:
            n, i = _read(b, i)
            out.append((tag >> 3, b[i:i + n]))
            i += n
        else:
            v, i = _read(b, i)
            out.append((tag >> 3, v))
    return out


def _field(number, v):
    if isinstance(v, int):
        return _varint(number << 3) + _varint(v)
    return _varint(number << 3 | 2) + _varint(len(v)) + bytes(v)


def _numbers(fields, number):
    """Repeated numbers, packed or not."""
    out = []
    for n, v in fields:
        if n == number and isinstance(v, int):
            out.append(v)
        elif n == number:
            i = 0
            while i < len(v):
                one, i = _read(v, i)
                out.append(one)
    return out


def _like(fields, number, values):
    """Repeated numbers, packed or not as `fields` has them."""
    if any(n == number and isinstance(v, int) for n, v in fields):
        return b"".join(_field(number, v) for v in values)
    return _field(number, b"".join(_varint(v) for v in values))


class Profile:
    def __init__(self, body):
        fields = _fields(body)
        self.rest = [(n, v) for n, v in fields if n not in (2, 4, 5, 6)]
        self.strings = [v for n, v in fields if n == 6]
        self.samples = [_fields(v) for n, v in fields if n == 2]
        self.locations = [_fields(v) for n, v in fields if n == 4]
        self.functions = [_fields(v) for n, v in fields if n == 5]

    def next(self, rnd, gone=0.1, new=0.02):
        """Bytes of another body. Strings keep their index: many messages refer to them."""
        locations, functions = self.locations[:], self.functions[:]
        samples = [s for s in self.samples if rnd.random() >= gone]
        for order in (samples, locations, functions):
            rnd.shuffle(order)
        location = {dict(f)[1]: i + 1 for i, f in enumerate(locations)}
        function = {dict(f)[1]: i + 1 for i, f in enumerate(functions)}
        out = [_field(n, v) for n, v in self.rest]
        for s in samples:
            ids = [location[i] for i in _numbers(s, 1)]
            if rnd.random() < new and len(ids) > 1:
                ids = ids[rnd.randrange(1, len(ids)):]
            values = [v and max(1, int(v * rnd.uniform(0.5, 2))) if v < 1 << 60 else v
                      for v in _numbers(s, 2)]
            labels = b"".join(_field(3, v) for n, v in s if n == 3)
            parts = [(1, _like(s, 1, ids)), (2, _like(s, 2, values))]
            if s[0][0] == 2:
                parts.reverse()
            out.append(_field(2, b"".join(part for _, part in parts) + labels))
        for f in locations:
            out.append(_field(4, b"".join(
                _field(n, location[v] if n == 1 else b"".join(
                    _field(k, function[w] if k == 1 else w) for k, w in _fields(v))
                    if n == 4 else v) for n, v in f)))
        for f in functions:
            out.append(_field(5, b"".join(_field(n, function[v] if n == 1 else v) for n, v in f)))
        return b"".join(out + [_field(6, s) for s in self.strings])


def bodies(body, count, seed=1):
    profile, rnd = Profile(body), random.Random(seed)
    return [profile.next(rnd) for _ in range(count)]
