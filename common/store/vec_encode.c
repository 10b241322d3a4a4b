/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_encode: writing vector rows; vec.h draws them, vec.c reads them.
 *
 * First every section is measured (divisor, planes, lengths of its streams), then written into room
 * of exactly that size. Dividing by the common divisor takes no division: a multiple of an odd m is
 * divided exactly by multiplying with the inverse of m modulo 2^64, and x is such a multiple just
 * if that product is at most (2^64 - 1) / m.
 *
 * The result depends on nothing but the input: replicas that hold the same sums write the same
 * bytes.
 */
#include "common/base/hash.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/fp.h"
#include "common/store/vec.h"
#include "common/store/vec_impl.h"

struct divisor {
    uint64_t g;
    unsigned shift;   /* g = odd << shift */
    uint64_t inverse; /* of odd */
    uint64_t max;     /* highest quotient by odd */
};

/* What one section will look like. */
struct plan {
    struct divisor by;
    uint32_t planes;
    size_t longer;            /* values that overflow */
    size_t escapes, overflow; /* bytes */
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    if (!a || !b)
        return a | b;
    int shift = __builtin_ctzll(a | b);
    a >>= __builtin_ctzll(a);
    while (b) {
        b >>= __builtin_ctzll(b);
        if (a > b) {
            uint64_t t = a;
            a = b;
            b = t;
        }
        b -= a;
    }
    return a << shift;
}

static struct divisor divisor_of(uint64_t g)
{
    struct divisor d = { .g = g, .shift = (unsigned)__builtin_ctzll(g) };
    uint64_t odd = g >> d.shift;

    d.inverse = odd; /* right in the lowest 3 bits; each step doubles them */
    for (int i = 0; i < 5; i++)
        d.inverse *= 2 - odd * d.inverse;
    d.max = UINT64_MAX / odd;
    return d;
}

/* Of a multiple. */
static uint64_t quotient(const struct divisor *d, uint64_t v)
{
    return (v >> d->shift) * d->inverse;
}

static bool divides(const struct divisor *d, uint64_t v)
{
    return (v & ((UINT64_C(1) << d->shift) - 1)) == 0 && quotient(d, v) <= d->max;
}

static struct divisor common_divisor(const uint64_t *values, size_t n)
{
    CHECK(values[0] > 0);
    struct divisor d = divisor_of(values[0]);

    for (size_t i = 1; i < n; i++) {
        CHECK(values[i] > 0);
        if (d.g != 1 && !divides(&d, values[i]))
            d = divisor_of(gcd(d.g, values[i]));
    }
    return d;
}

/* The smallest k for which fewer than n/16 values need more than k bytes, and how many do. */
static uint32_t choose_planes(const struct divisor *d, const uint64_t *values, size_t n,
                              size_t *ret_longer)
{
    size_t bytes[9] = { 0 }, longer = 0;
    uint32_t k = 8;

    for (size_t i = 0; i < n; i++) {
        uint64_t q = quotient(d, values[i]);
        if (q > 255) /* most fit: no wait for the counter just written */
            bytes[(71 - __builtin_clzll(q)) / 8]++;
    }
    for (; k > 1 && (longer + bytes[k]) * 16 < n; k--)
        longer += bytes[k];
    *ret_longer = longer;
    return k;
}

static size_t escapes_len(const uint32_t *ids, size_t n)
{
    uint64_t base = 0; /* previous id + 1 */
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        CHECK(ids[i] >= base);
        uint64_t gap = ids[i] - base;
        if (gap >= 255)
            len += varint_len(gap - 255);
        base = (uint64_t)ids[i] + 1;
    }
    return len;
}

/* Writes the overflow to `to`, or, with NULL, only says how long it is. */
static size_t put_overflow(const struct plan *p, const struct vec_part *s, uint8_t *to)
{
    size_t len = 0, next = 0, left = p->longer;

    for (size_t i = 0; left; i++) {
        uint64_t high = quotient(&p->by, s->values[i]) >> 8 * p->planes;
        if (!high)
            continue;
        if (to) {
            len += varint_put(to + len, i - next);
            len += varint_put(to + len, high);
        } else {
            len += varint_len(i - next) + varint_len(high);
        }
        next = i + 1;
        left--;
    }
    return len;
}

static struct plan plan_section(const struct vec_part *s)
{
    struct plan p = { .by = common_divisor(s->values, s->len) };

    p.planes = choose_planes(&p.by, s->values, s->len, &p.longer);
    p.escapes = escapes_len(s->ids, s->len);
    p.overflow = put_overflow(&p, s, NULL);
    return p;
}

static uint8_t *put_ids(uint8_t *to, const struct plan *p, const struct vec_part *s)
{
    uint8_t *escape = to + s->len;
    uint64_t base = 0;

    for (size_t i = 0; i < s->len; i++) {
        uint64_t gap = s->ids[i] - base;
        to[i] = (uint8_t)MIN(gap, 255);
        if (UNLIKELY(gap >= 255))
            escape += varint_put(escape, gap - 255);
        base = (uint64_t)s->ids[i] + 1;
    }
    CHECK(escape == to + s->len + p->escapes);
    return escape;
}

static uint8_t *put_planes(uint8_t *to, const struct plan *p, const struct vec_part *s)
{
    size_t n = s->len;

    for (size_t i = 0; i < n; i++) {
        uint64_t q = quotient(&p->by, s->values[i]);
        to[i] = (uint8_t)q;
        for (size_t k = 1; k < p->planes; k++)
            to[k * n + i] = (uint8_t)(q >> 8 * k);
    }
    return to + n * p->planes;
}

#define SECTION_HEAD_MAX (5 + 5 + 1 + 10 + 10 + 10)

static bool put_section(const struct vec_part *s, struct buf *out)
{
    CHECK(s->len > 0 && s->len <= UINT32_MAX);
    struct plan p = plan_section(s);
    size_t streams = s->len * (1 + (size_t)p.planes) + p.escapes + p.overflow;
    char *room = buf_room(out, SECTION_HEAD_MAX + streams);
    if (!room)
        return false;
    uint8_t *start = (uint8_t *)(void *)room, *to = start;

    to += varint_put(to, s->epoch);
    to += varint_put(to, s->len);
    *to++ = (uint8_t)(p.planes | (p.by.g > 1 ? VEC_FORM_SCALE : 0) |
                      (p.escapes ? VEC_FORM_ESCAPES : 0) | (p.overflow ? VEC_FORM_OVERFLOW : 0));
    if (p.by.g > 1)
        to += varint_put(to, p.by.g);
    if (p.escapes)
        to += varint_put(to, p.escapes);
    if (p.overflow)
        to += varint_put(to, p.overflow);
    to = put_ids(to, &p, s);
    to = put_planes(to, &p, s);
    to += put_overflow(&p, s, to);
    out->len += (size_t)(to - start);
    return true;
}

/* Sum of everything; false if it stays at 2^64 - 1. */
static bool total_of(const struct vec_part *parts, size_t count, uint64_t *ret)
{
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < parts[i].len; k++)
            if (!u64_add(total, parts[i].values[k], &total)) {
                *ret = UINT64_MAX;
                return false;
            }
    *ret = total;
    return true;
}

bool vec_encode(const struct vec_part *parts, size_t count, const struct vec_meta *meta,
                struct buf *out)
{
    size_t start = out->len;
    uint64_t total;
    bool exact = total_of(parts, count, &total);

    CHECK(count <= VEC_SECTIONS_MAX && meta->fp < FP_P);
    wr_u8(out, VEC_VERSION);
    wr_u8(out, (uint8_t)((meta->saturated || !exact ? VEC_SATURATED : 0) |
                         (meta->writes != 1 ? VEC_WRITES : 0) | (count != 1 ? VEC_SECTIONS : 0)));
    wr_varint(out, total);
    if (meta->writes != 1)
        wr_varint(out, meta->writes);
    if (count != 1)
        wr_varint(out, count);
    wr_u64le(out, meta->fp);
    for (size_t i = 0; i < count; i++) {
        CHECK(i == 0 || parts[i].epoch > parts[i - 1].epoch);
        if (!put_section(&parts[i], out))
            return false;
    }
    if (!buf_ok(out))
        return false;
    return wr_u32le(out, crc32c(0, out->ptr + start, out->len - start));
}
