/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_forms: the writer. These vary: the order of the fields of samples (values, ids, labels;
 * packed or not or both, in pieces, empty), the length of numbers, the order of ids, the places of
 * tables, unknown fields, and references to nothing.
 */
#include "tests/lib/gen/pprof_forms.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

#define BODY_MAX  (16 * MIB)
#define NAMES     60
#define FILES     5
#define IDS_MOST  200
#define LABELS    4 /* of a sample, at most */
#define TYPES_MAX 64

enum { STRING_POD = 1 + NAMES + FILES, STRING_POD1, STRING_POD2, STRING_BYTES, STRING_THREAD };
enum { STRING_SPAN = STRING_THREAD + 1, STRING_UNIT, STRING_TYPES };

struct forms {
    struct prng *r;
    VEC(struct str) messages; /* owned: top-level fields, by kind */
    uint64_t types, functions, locations, mappings;
    uint64_t id_add, id_mul;
    uint64_t last[IDS_MOST]; /* ids of the sample before */
    size_t last_len;
    unsigned usual; /* of 16 samples so many are of one form */
    unsigned padded, labelled;
    bool ids_packed, ids_first;
    bool calm; /* samples are as agents write them: none is odd */
};

static struct buf empty(void)
{
    struct buf b;

    buf_init(&b, BODY_MAX);
    return b;
}

static bool one_in(struct forms *f, uint64_t n)
{
    return prng_below(f->r, n) == 0;
}

static bool odd(struct forms *f, uint64_t n)
{
    return !f->calm && one_in(f, n);
}

/* At random longer than needed, up to the ten bytes a number may have. */
static void number(struct forms *f, struct buf *b, uint64_t v)
{
    size_t len = 1, pad = f->padded && one_in(f, 24) ? 1 + prng_below(f->r, 8) : 0;

    for (; v >= 0x80; v >>= 7, len++)
        buf_add_c(b, (char)(0x80 | (v & 0x7f)));
    if (len + pad > 10)
        pad = 10 - len;
    buf_add_c(b, (char)(pad ? v | 0x80 : v));
    for (; pad > 1; pad--)
        buf_add_c(b, (char)0x80);
    if (pad)
        buf_add_c(b, 0);
}

static void field(struct forms *f, struct buf *b, uint32_t n, uint64_t v)
{
    number(f, b, (uint64_t)n << 3);
    number(f, b, v);
}

static void bytes(struct forms *f, struct buf *b, uint32_t n, struct str s)
{
    number(f, b, (uint64_t)n << 3 | 2);
    number(f, b, s.len);
    buf_add_str(b, s);
}

/* An unknown field. */
static void stranger(struct forms *f, struct buf *b)
{
    if (one_in(f, 2))
        field(f, b, 100, prng_u64(f->r));
    else
        bytes(f, b, 16, STR("not used"));
}

static void message(struct forms *f, uint32_t n, struct buf *m)
{
    struct buf b = empty();

    bytes(f, &b, n, buf_str(m));
    buf_deinit(m);
    struct str s = { xmemdup(b.ptr, b.len), b.len };
    vec_push(&f->messages, s);
    buf_deinit(&b);
}

/* ---- tables ---- */

static void strings(struct forms *f)
{
    static const char *const fixed[] = { "pod", "p1", "p2", "bytes", "thread", "span_id", "count" };
    char text[160];

    for (size_t i = 0; i < STRING_TYPES + f->types; i++) {
        struct buf b = empty();
        if (i && i <= NAMES) { /* of all lengths: long ones begin alike */
            int len = snprintf(text, sizeof(text), "%.*sf%zu", (int)(i * i / 30),
                               "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
                               "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
                               i);
            buf_add_str(&b, str_n(text, (size_t)len));
        } else if (i && i <= NAMES + FILES) {
            buf_addf(&b, "file%zu.go", i - NAMES);
        } else if (i >= STRING_TYPES) {
            buf_addf(&b, "t%zu", i - STRING_TYPES);
        } else if (i) {
            buf_add_str(&b, str_c(fixed[i - STRING_POD]));
        }
        message(f, 6, &b);
    }
}

static uint64_t id_of(const struct forms *f, uint64_t i)
{
    return i * f->id_mul + f->id_add;
}

static void functions(struct forms *f)
{
    f->functions = 1 + prng_below(f->r, 80);
    for (uint64_t i = 1; i <= f->functions; i++) {
        struct buf b = empty();
        field(f, &b, 1, id_of(f, i));
        if (!one_in(f, 20))
            field(f, &b, 2, 1 + prng_below(f->r, NAMES));
        if (!one_in(f, 3))
            field(f, &b, 3, 1 + prng_below(f->r, NAMES));
        if (!one_in(f, 8))
            field(f, &b, 4, 1 + NAMES + prng_below(f->r, FILES));
        if (one_in(f, 2))
            field(f, &b, 5, one_in(f, 9) ? prng_u64(f->r) : prng_below(f->r, 300));
        if (one_in(f, 20))
            field(f, &b, 2, 1 + prng_below(f->r, NAMES)); /* the last one counts */
        if (one_in(f, 20))
            stranger(f, &b);
        message(f, 5, &b);
    }
}

static void mappings(struct forms *f)
{
    f->mappings = prng_below(f->r, 4);
    for (uint64_t i = 1; i <= f->mappings; i++) {
        struct buf b = empty();
        field(f, &b, 1, id_of(f, i));
        if (!one_in(f, 4))
            field(f, &b, 5, 1 + NAMES + prng_below(f->r, FILES));
        message(f, 3, &b);
    }
}

static void line(struct forms *f, struct buf *to)
{
    struct buf b = empty();

    if (one_in(f, 60))
        field(f, &b, 1, id_of(f, f->functions + 5)); /* does not exist */
    else
        field(f, &b, 1, id_of(f, 1 + prng_below(f->r, f->functions)));
    if (!one_in(f, 20))
        field(f, &b, 2, one_in(f, 20) ? prng_u64(f->r) : prng_below(f->r, 50));
    if (one_in(f, 10))
        field(f, &b, 3, prng_below(f->r, 1000));
    bytes(f, to, 4, buf_str(&b));
    buf_deinit(&b);
}

static void locations(struct forms *f)
{
    f->locations = 10 + prng_below(f->r, 300);
    for (uint64_t i = 1; i <= f->locations; i++) {
        struct buf b = empty();
        bool late = one_in(f, 4), mapped = f->mappings && one_in(f, 2);
        uint64_t mapping = mapped ? id_of(f, 1 + prng_below(f->r, f->mappings)) : 0;
        field(f, &b, 1, id_of(f, i));
        if (mapped && !late)
            field(f, &b, 2, mapping);
        if (!mapped && !one_in(f, 4)) /* with a mapping it would be an offset */
            field(f, &b, 3, prng_u64(f->r) >> prng_below(f->r, 64));
        for (size_t n = one_in(f, 15) ? 0 : 1 + prng_below(f->r, 3) / 2; n > 0; n--)
            line(f, &b);
        if (mapped && late)
            field(f, &b, 2, mapping);
        if (one_in(f, 30))
            field(f, &b, 5, 1);
        message(f, 4, &b);
    }
}

/* ---- samples ---- */

/* The numbers v of field n: packed, one by one, or in pieces of both. */
static void numbers(struct forms *f, struct buf *to, uint32_t n, const uint64_t *v, size_t len,
                    bool packed)
{
    bool pieces = prng_below(f->r, 16) >= f->usual;

    for (size_t i = 0, part; i < len || (pieces && one_in(f, 6)); i += part) {
        part = pieces ? prng_below(f->r, 4) : len;
        part = MIN(part, len - i);
        if (pieces ? one_in(f, 2) : packed) {
            struct buf b = empty();
            for (size_t k = i; k < i + part; k++)
                number(f, &b, v[k]);
            bytes(f, to, n, buf_str(&b));
            buf_deinit(&b);
        } else {
            for (size_t k = i; k < i + part; k++)
                field(f, to, n, v[k]);
        }
    }
}

static void values(struct forms *f, struct buf *to)
{
    uint64_t v[TYPES_MAX + 2];
    size_t len = f->types + (odd(f, 60) ? 1 : 0) - (odd(f, 60) ? 1 : 0);

    for (size_t i = 0; i < len; i++)
        v[i] = odd(f, 3) ? 0 : 1 + (prng_u64(f->r) >> (24 + prng_below(f->r, 40)));
    if (len && odd(f, 60))
        v[prng_below(f->r, len)] = prng_u64(f->r); /* negative, or much */
    numbers(f, to, 2, v, len, f->types > 1 || one_in(f, 9));
}

static void label(struct forms *f, struct buf *to)
{
    struct buf b = empty();

    switch (prng_below(f->r, 12)) {
    case 0: /* a span: stored besides */
        field(f, &b, 1, STRING_SPAN);
        field(f, &b, 3, prng_below(f->r, 5));
        break;
    case 1:
        field(f, &b, 3, prng_u64(f->r));
        field(f, &b, 1, STRING_THREAD);
        break;
    default:
        field(f, &b, 1, STRING_BYTES);
        field(f, &b, 3, one_in(f, 9) ? prng_u64(f->r) : prng_below(f->r, 2000));
        if (one_in(f, 4))
            field(f, &b, 4, STRING_BYTES);
    }
    bytes(f, to, 3, buf_str(&b));
    buf_deinit(&b);
}

static void labels(struct forms *f, struct buf *to)
{
    if (f->labelled == 2 || (f->labelled && one_in(f, 9)))
        for (size_t n = 1 + prng_below(f->r, LABELS) / 3; n > 0; n--)
            label(f, to);
    if (f->labelled && one_in(f, 30)) {
        struct buf b = empty();
        field(f, &b, 1, STRING_POD);
        field(f, &b, 2, one_in(f, 2) ? STRING_POD1 : STRING_POD2);
        bytes(f, to, 3, buf_str(&b));
        buf_deinit(&b);
    }
}

/* Often those of the sample before; 8 is also the tag of an id that is not packed. */
static void choose_ids(struct forms *f)
{
    if (f->last_len && one_in(f, 2))
        return;
    if (one_in(f, 6)) {
        f->last_len = 2 * (1 + prng_below(f->r, 3));
        for (size_t i = 0; i < f->last_len; i++)
            f->last[i] = i % 2 ? id_of(f, 1 + prng_below(f->r, 4)) : 8;
        return;
    }
    f->last_len = one_in(f, 20) ? prng_below(f->r, IDS_MOST) : prng_below(f->r, 12);
    for (size_t i = 0; i < f->last_len; i++)
        f->last[i] = id_of(f, 1 + prng_below(f->r, one_in(f, 2) ? 9 : f->locations));
    if (f->last_len && odd(f, 30)) /* does not exist */
        f->last[prng_below(f->r, f->last_len)] = one_in(f, 2) ? 0 : id_of(f, f->locations + 9);
}

static void ids(struct forms *f, struct buf *to)
{
    uint64_t other[IDS_MOST];
    size_t n = 0;

    if (f->last_len && f->last[0] == 8 && one_in(f, 3)) { /* the same bytes, one by one */
        for (size_t i = 1; i < f->last_len; i += 2)
            other[n++] = f->last[i];
        numbers(f, to, 1, other, n, false);
    } else {
        numbers(f, to, 1, f->last, f->last_len, f->ids_packed);
    }
}

static void sample(struct forms *f)
{
    struct buf b = empty();

    choose_ids(f);
    if (odd(f, 80)) { /* nothing at all */
        message(f, 2, &b);
        return;
    }
    if (prng_below(f->r, 16) >= f->usual) {
        void (*parts[])(struct forms *, struct buf *) = { values, ids, labels, stranger };
        size_t n = one_in(f, 4) ? 4 : 3, from = prng_below(f->r, 3), step = 1 + prng_below(f->r, 2);
        for (size_t i = 0; i < 3; i++)
            parts[(from + step * i) % 3](f, &b);
        if (n == 4)
            stranger(f, &b);
    } else {
        if (f->ids_first)
            ids(f, &b);
        values(f, &b);
        if (!f->ids_first)
            ids(f, &b);
        labels(f, &b);
    }
    message(f, 2, &b);
}

/* ---- the whole ---- */

static void types(struct forms *f)
{
    static const uint64_t few[] = { 1, 1, 1, 1, 1, 2, 3, 4, 4, 5, 8, 9, TYPES_MAX };

    f->types = few[prng_below(f->r, ARRAY_LEN(few))];
    for (uint64_t i = 0; i < f->types; i++) {
        struct buf b = empty();
        field(f, &b, 1, STRING_TYPES + i);
        field(f, &b, 2, STRING_UNIT);
        message(f, 1, &b);
    }
}

static void choose(struct forms *f)
{
    static const struct {
        uint64_t add, mul;
    } id_forms[] = { { 0, 1 }, { 0, 1 },       { 0, 1 },
                     { 5, 3 }, { 0, 1000003 }, { UINT64_C(1) << 63, 1 } };
    size_t i = prng_below(f->r, ARRAY_LEN(id_forms));

    f->id_add = id_forms[i].add;
    f->id_mul = id_forms[i].mul;
    f->calm = one_in(f, 2);
    f->usual = f->calm ? 16 : (unsigned)(8 * prng_below(f->r, 3));
    f->padded = (unsigned)prng_below(f->r, 2);
    f->labelled = (unsigned)prng_below(f->r, 3);
    f->ids_packed = one_in(f, 2);
    f->ids_first = one_in(f, 3);
}

/* The messages by kind, kinds in any order; or samples among all others. */
static void put(struct forms *f, const size_t *ends, size_t kinds, struct buf *ret)
{
    size_t first = prng_below(f->r, kinds), at = 0;
    bool mixed = one_in(f, 4);

    for (size_t n = 0; n < kinds; n++) {
        size_t k = (first + n) % kinds;
        for (size_t i = k ? ends[k - 1] : 0; i < ends[k]; i++) {
            buf_add_str(ret, f->messages.ptr[i]);
            if (mixed && k + 1 < kinds && at < ends[kinds - 1] - ends[kinds - 2])
                buf_add_str(ret, f->messages.ptr[ends[kinds - 2] + at++]);
        }
        if (mixed && k + 1 == kinds)
            continue;
        if (one_in(f, 8))
            stranger(f, ret);
    }
}

void pprof_forms_body(struct prng *r, struct buf *ret)
{
    struct forms f = { .r = r };
    void (*const tables[])(struct forms *) = { types, strings, functions, mappings, locations };
    size_t ends[ARRAY_LEN(tables) + 1];

    buf_init(ret, BODY_MAX);
    choose(&f);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        tables[i](&f);
        ends[i] = f.messages.len;
    }
    for (size_t n = prng_below(r, 400); n > 0; n--)
        sample(&f);
    ends[ARRAY_LEN(tables)] = f.messages.len;
    put(&f, ends, ARRAY_LEN(ends), ret);
    CHECK(buf_ok(ret));
    vec_for (i, &f.messages)
        xfree((void *)(uintptr_t)f.messages.ptr[i].ptr);
    vec_free(&f.messages);
}
