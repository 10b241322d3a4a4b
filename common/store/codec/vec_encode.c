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
#include "common/store/codec/fp.h"
#include "common/store/codec/vec.h"
#include "common/store/codec/vec_impl.h"
#include "common/store/codec/vec_pack.h"

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

static uint64_t divides(const struct divisor *d, uint64_t v)
{
    return quotient(d, v) <= d->max;
}

/* Of n values; `any`: all of them or'ed. What all can be halved by, that can: so only odd divisors
 * are looked for value by value, four at a time while they fit. */
static struct divisor common_divisor(const uint64_t *values, size_t n, uint64_t any)
{
    unsigned twos = (unsigned)__builtin_ctzll(any);
    struct divisor d = divisor_of(values[0] >> __builtin_ctzll(values[0]) << twos);

    for (size_t i = 0; i < n && d.g >> twos != 1; i++) {
        const uint64_t *v = values + i;
        while (i + 4 <= n &&
               (divides(&d, v[0]) & divides(&d, v[1]) & divides(&d, v[2]) & divides(&d, v[3]))) {
            i += 4;
            v += 4;
        }
        if (i < n && !divides(&d, values[i]))
            d = divisor_of(gcd(d.g >> twos, values[i] >> twos) << twos);
    }
    return d;
}

/* Quotients are divided out in pieces of this many; a divisor of 1 needs no copy. */
#define PIECE 256

static const uint64_t *quotients(const struct divisor *d, const uint64_t *values, size_t n,
                                 uint64_t room[PIECE])
{
    if (d->g == 1)
        return values;
    for (size_t i = 0; i < n; i++)
        room[i] = quotient(d, values[i]);
    return room;
}

/* ret[k]: how many have more than k bytes, k = 1 to 7; `any`: no quotient has a bit above its
 * highest. */
static void count_long(const struct divisor *d, const uint64_t *values, size_t n, uint64_t any,
                       uint64_t ret[8])
{
    uint64_t room[PIECE], bytes[9] = { 0 };

    for (size_t at = 0, len; at < n; at += len) {
        len = MIN(n - at, (size_t)PIECE);
        const uint64_t *q = quotients(d, values + at, len, room);
        if (any <= UINT32_MAX)
            vec_count_long(q, len, &ret[1]);
        else
            for (size_t i = 0; i < len; i++)
                bytes[(71 - __builtin_clzll(q[i])) / 8]++;
    }
    for (size_t k = 7; k > 0 && any > UINT32_MAX; k--)
        ret[k] = (k < 7 ? ret[k + 1] : 0) + bytes[k + 1];
}

/* The smallest k for which fewer than n/16 values need more than k bytes, and how many do. `any` is
 * all values or'ed. */
static uint32_t choose_planes(const struct divisor *d, const uint64_t *values, size_t n,
                              uint64_t any, size_t *ret_longer)
{
    uint64_t longer[9] = { 0 }; /* [8] stays 0 */
    uint32_t k = 8;

    any /= d->g;
    *ret_longer = 0;
    if (any <= 255)
        return 1;
    count_long(d, values, n, any, longer);
    while (k > 1 && longer[k - 1] * 16 < n)
        k--;
    *ret_longer = longer[k];
    return k;
}

static size_t escapes_len(const uint32_t *ids, size_t n)
{
    uint64_t base = 0; /* previous id + 1 */
    size_t len = 0, far = 0;

    CHECK(vec_ascend(ids, n, &far));
    for (size_t i = 0; far; i++) {
        uint64_t gap = ids[i] - base;
        if (gap >= 255) {
            len += varint_len(gap - 255);
            far--;
        }
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

static struct plan plan_section(const struct vec_part *s, uint64_t any)
{
    struct plan p = { .by = common_divisor(s->values, s->len, any) };

    p.planes = choose_planes(&p.by, s->values, s->len, any, &p.longer);
    p.escapes = escapes_len(s->ids, s->len);
    p.overflow = put_overflow(&p, s, NULL);
    return p;
}

static uint8_t *put_ids(uint8_t *to, const struct plan *p, const struct vec_part *s)
{
    uint8_t *escape = to + s->len, *end = escape + p->escapes;

    vec_put_gaps(s->ids, s->len, to);
    for (size_t i = 0; escape < end; i++)
        if (to[i] == 255)
            escape += varint_put(escape, (i ? s->ids[i] - s->ids[i - 1] - 1 : s->ids[0]) - 255);
    CHECK(escape == end);
    return escape;
}

static uint8_t *put_planes(uint8_t *to, const struct plan *p, const struct vec_part *s)
{
    uint64_t room[PIECE];
    size_t n = s->len, at = 0;

    while (at + 8 <= n) {
        size_t len = MIN((n - at) / 8 * 8, (size_t)PIECE);
        const uint64_t *q = quotients(&p->by, s->values + at, len, room);
        for (size_t i = 0; i < len; i += 8)
            vec_put_planes8(q + i, to + at + i, n, p->planes);
        at += len;
    }
    for (; at < n; at++) {
        uint64_t q = quotient(&p->by, s->values[at]);
        for (size_t k = 0; k < p->planes; k++)
            to[k * n + at] = (uint8_t)(q >> 8 * k);
    }
    return to + n * p->planes;
}

#define SECTION_HEAD_MAX (5 + 5 + 1 + 10 + 10 + 10)

/* look: at its values. */
static bool put_section(const struct vec_part *s, const struct vec_look *look, struct buf *out)
{
    CHECK(s->len > 0 && s->len <= UINT32_MAX && !look->zero);
    struct plan p = plan_section(s, look->any);
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

bool vec_sound(const uint32_t *ids, const uint64_t *values, size_t n)
{
    size_t far = 0;

    return vec_ascend(ids, n, &far) && !vec_look_at(values, n).zero;
}

/* Sum of everything; false if it stays at 2^64 - 1. *ret_first: a look at the first part. */
static bool total_of(const struct vec_part *parts, size_t count, uint64_t *ret,
                     struct vec_look *ret_first)
{
    uint64_t total = 0;
    bool exact = true;

    for (size_t i = 0; i < count; i++) {
        struct vec_look look = vec_look_at(parts[i].values, parts[i].len);
        if (!i)
            *ret_first = look;
        if (look.any <= UINT64_MAX / MAX(parts[i].len, (size_t)1)) { /* no sum goes round */
            exact = u64_add(total, look.sum, &total) && exact;
            continue;
        }
        for (size_t k = 0; exact && k < parts[i].len; k++)
            exact = u64_add(total, parts[i].values[k], &total);
    }
    *ret = exact ? total : UINT64_MAX;
    return exact;
}

bool vec_encode(const struct vec_part *parts, size_t count, const struct vec_meta *meta,
                struct buf *out)
{
    size_t start = out->len;
    uint64_t total;
    struct vec_look look = { 0 };
    bool exact = total_of(parts, count, &total, &look);

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
        if (i)
            look = vec_look_at(parts[i].values, parts[i].len);
        if (!put_section(&parts[i], &look, out))
            return false;
    }
    if (!buf_ok(out))
        return false;
    return wr_u32le(out, crc32c(0, out->ptr + start, out->len - start));
}
