/* SPDX-License-Identifier: Apache-2.0
 *
 * Locations, lines, functions and strings of usual and of odd forms, mixed, against what was
 * written: whether a message is read in a run or the long way, its columns are the same. Every
 * body is as long as its memory, and is read cut at each byte, too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/formats/pprof/pprof.h"

enum { ROUNDS = 400, MOST = 12, LINES_MOST = 5 };

struct bytes {
    uint8_t at[600];
    size_t len;
};
struct model {
    struct pprof_location locations[MOST];
    struct pprof_line lines[MOST * LINES_MOST];
    struct pprof_function functions[MOST];
    size_t strings[MOST], samples[MOST]; /* lengths */
    size_t n, lines_len;
    size_t ends[5 * MOST + 2], ends_len; /* of messages in the body */
};

static void add_number(struct bytes *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        b->at[b->len++] = (uint8_t)(v | 0x80);
    b->at[b->len++] = (uint8_t)v;
}

static void add_field(struct bytes *b, uint32_t number, uint64_t v)
{
    add_number(b, number << 3);
    add_number(b, v);
}

static void add_message(struct buf *to, uint32_t number, const struct bytes *b, struct model *m)
{
    struct bytes head = { .len = 0 };

    add_number(&head, number << 3 | 2);
    add_number(&head, b->len);
    assert_true(buf_add(to, head.at, head.len) && buf_add(to, b->at, b->len));
    if (m)
        m->ends[m->ends_len++] = to->len;
}

/* Of all lengths, most of one or two bytes. */
static uint64_t any(struct prng *r)
{
    unsigned bits = prng_below(r, 4) ? (unsigned)prng_below(r, 15) : (unsigned)prng_below(r, 65);

    return bits ? prng_u64(r) >> (64 - bits) : 0;
}

/* Fields of a message in the order of their numbers, or in another, or with unknown ones. */
static void add_fields(struct prng *r, struct bytes *b, const uint64_t *v, uint32_t n)
{
    uint32_t from = prng_below(r, 6) ? 0 : (uint32_t)prng_below(r, n);

    if (prng_below(r, 12) == 0)
        add_field(b, 77, any(r));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = (from + i) % n;
        if (v[at] || prng_below(r, 9) == 0)
            add_field(b, at + 1, v[at]);
    }
}

static void add_location(struct prng *r, struct buf *to, struct model *m, size_t i)
{
    uint64_t v[] = { i + 1, any(r), any(r) }, way = prng_below(r, 4);
    size_t lines = prng_below(r, LINES_MOST);
    struct bytes b = { .len = 0 };

    if (way == 0) {
        add_field(&b, 1, v[0]);
        add_field(&b, 3, v[2]);
    } else {
        add_fields(r, &b, v, ARRAY_LEN(v));
    }
    for (size_t k = 0; k < lines; k++) {
        uint64_t line[] = { any(r), any(r), prng_below(r, 5) ? 0 : any(r) };
        struct bytes in = { .len = 0 };
        struct buf message;
        add_fields(r, &in, line, ARRAY_LEN(line));
        buf_init(&message, KIB);
        add_message(&message, 4, &in, NULL);
        memcpy(b.at + b.len, message.ptr, message.len);
        b.len += message.len;
        buf_deinit(&message);
        m->lines[m->lines_len++] =
            (struct pprof_line){ line[0], line[1] < UINT32_MAX ? (uint32_t)line[1] : 0 };
    }
    if (way == 0)
        add_field(&b, 2, v[1]); /* as Go itself */
    if (prng_below(r, 9) == 0)
        add_field(&b, 5, 1);
    add_message(to, 4, &b, m);
    m->locations[i] = (struct pprof_location){ v[0], v[1], v[2], (uint32_t)m->lines_len };
}

static void add_function(struct prng *r, struct buf *to, struct model *m, size_t i)
{
    uint64_t v[] = { i + 1, prng_below(r, 3), any(r) % 3, prng_below(r, 3), any(r) };
    struct bytes b = { .len = 0 };

    add_fields(r, &b, v, ARRAY_LEN(v));
    add_message(to, 5, &b, m);
    m->functions[i] = (struct pprof_function){ v[0], (uint32_t)v[1], (uint32_t)v[2], (uint32_t)v[3],
                                               v[4] <= INT32_MAX ? (uint32_t)v[4] : 0 };
}

/* Kinds in runs, or mixed. */
static void make_body(struct prng *r, struct model *m, struct buf *to)
{
    struct bytes type = { .len = 0 }, filler = { .len = 0 };
    bool runs = prng_below(r, 2);

    *m = (struct model){ .n = 1 + prng_below(r, MOST) };
    buf_init(to, MIB);
    add_field(&type, 1, 0); /* the empty name, which every string table has */
    add_message(to, 1, &type, m);
    memset(filler.at, 0x7f, sizeof(filler.at));
    for (size_t i = 0; i < 4 * m->n; i++) {
        size_t kind = runs ? i / m->n : i % 4, at = runs ? i % m->n : i / 4;
        if (kind == 0) {
            add_location(r, to, m, at);
        } else if (kind == 1) {
            add_function(r, to, m, at);
        } else {
            filler.len = prng_below(r, 3) ? prng_below(r, 100) : prng_below(r, 400);
            *(kind == 2 ? &m->samples[at] : &m->strings[at]) = filler.len;
            add_message(to, kind == 2 ? 2 : 6, &filler, m);
        }
    }
}

static void check_columns(const struct pprof *p, const struct model *m)
{
    assert_int_equal(p->locations.len, m->n);
    assert_int_equal(p->lines.len, m->lines_len);
    assert_int_equal(p->functions.len, m->n);
    assert_int_equal(p->strings.len, m->n);
    assert_int_equal(p->samples.len, m->n);
    for (size_t i = 0; i < m->n; i++) {
        const struct pprof_location *a = &p->locations.ptr[i], *b = &m->locations[i];
        const struct pprof_function *f = &p->functions.ptr[i], *g = &m->functions[i];
        assert_true(a->id == b->id && a->mapping_id == b->mapping_id && a->address == b->address);
        assert_int_equal(a->lines_end, b->lines_end);
        assert_true(f->id == g->id && f->name == g->name && f->system_name == g->system_name);
        assert_true(f->file == g->file && f->start_line == g->start_line);
        assert_int_equal(p->strings.ptr[i].len, m->strings[i]);
        assert_int_equal(p->samples.ptr[i].len, m->samples[i]);
    }
    for (size_t i = 0; i < m->lines_len; i++) {
        assert_true(p->lines.ptr[i].function_id == m->lines[i].function_id);
        assert_int_equal(p->lines.ptr[i].line, m->lines[i].line);
    }
}

static int parse(struct str body, struct pprof *p)
{
    char *exact = xmalloc(MAX(body.len, (size_t)1));
    struct limits l = limits_default();
    struct err e = { 0 };

    memcpy(exact, body.ptr, body.len);
    int rc = pprof_parse(p, str_n(exact, body.len), &l, &e);
    xfree(exact);
    return rc;
}

static void test_forms(void **state)
{
    const char *given = getenv("SEED");
    struct prng r;

    (void)state;
    prng_init(&r, given ? strtoull(given, NULL, 0) : 1);
    for (int round = 0; round < ROUNDS; round++) {
        struct model m;
        struct pprof p;
        struct buf body;
        make_body(&r, &m, &body);
        assert_int_equal(parse(buf_str(&body), &p), 0);
        check_columns(&p, &m);
        pprof_deinit(&p);
        buf_deinit(&body);
    }
}

/* Cut between two messages it is another body, cut within one it is refused. */
static void test_cut(void **state)
{
    struct prng r;

    (void)state;
    prng_init(&r, 2);
    for (int round = 0; round < ROUNDS / 10; round++) {
        struct model m;
        struct buf body;
        size_t end = 0;
        make_body(&r, &m, &body);
        for (size_t len = m.ends[0]; len < body.len; len++) {
            struct pprof p;
            while (m.ends[end] < len)
                end++;
            assert_int_equal(parse(str_n(body.ptr, len), &p), m.ends[end] == len ? 0 : ERR_INPUT);
            pprof_deinit(&p);
        }
        buf_deinit(&body);
    }
}

/* A number of more than 64 bits, a length that passes its message, another wire type: refused
 * where they stand, in the middle of a run. */
static void test_malformed(void **state)
{
    static const struct {
        uint8_t at[16], len;
    } bad[] = {
        { { 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02 }, 11 },
        { { 0x08, 0x05, 0x18, 0x80 }, 4 },
        { { 0x08, 0x05, 0x22, 0x05, 0x08, 0x01 }, 6 },
        { { 0x08, 0x05, 0x22, 0x03, 0x08, 0x01, 0x10 }, 7 },
        { { 0x08, 0x05, 0x22, 0x02, 0x08, 0x81, 0x10, 0x01 }, 8 },
        { { 0x08, 0x05, 0x20, 0x02 }, 4 },
        { { 0x08, 0x05, 0x10 }, 3 },
        { { 0x08, 0x05, 0x00 }, 3 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct bytes type = { .len = 0 }, b, good = { .at = { 8, 1 }, .len = 2 };
        struct bytes filler = { .at = { 'a' }, .len = 100 };
        for (int whole = 0; whole < 2; whole++) {
            struct pprof p;
            struct buf body;
            buf_init(&body, MIB);
            type.len = 0;
            add_field(&type, 1, 0); /* the empty name, which every string table has */
            add_message(&body, 1, &type, NULL);
            add_message(&body, 4, &good, NULL);
            memcpy(b.at, bad[i].at, bad[i].len);
            b.len = bad[i].len;
            if (!whole)
                add_message(&body, 4, &b, NULL);
            add_message(&body, 6, &filler, NULL);
            assert_int_equal(parse(buf_str(&body), &p), whole ? 0 : ERR_INPUT);
            pprof_deinit(&p);
            buf_deinit(&body);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_malformed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
