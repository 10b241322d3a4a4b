/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "distributor/parca/arrow/arrow.h"
#include "tests/lib/gen/gen_arrow.h"
#include "tests/lib/testdata.h"

static bool bad_row(const char *why)
{
    print_error("  cell: %s\n", why);
    return false;
}

/* Is the cell what the model says? Recursion: the types are ours. */
static bool same(struct arrow *a, struct arrow_cell c, const struct ga_type *t,
                 const struct ga_value *v)
{
    struct arrow_cell at = c;
    uint64_t n = 0;
    int64_t num;
    struct str s;

    if (t->kind == GA_RUNS || t->kind == GA_DICT)
        return same(a, c, t->kids[0], v); /* the reader goes through by itself */
    if (v->null)
        return !arrow_resolve(a, &at) || bad_row("not null");
    switch (t->kind) {
    case GA_INT:
    case GA_TIME:
    case GA_BOOL:
        return (arrow_i64(a, c, &num) && num == v->num) || bad_row("number");
    case GA_FIXED:
    case GA_UTF8:
    case GA_BINARY:
    case GA_VIEW:
    case GA_LARGE:
        return (arrow_bytes(a, c, &s) && str_eq(s, v->bytes)) || bad_row("bytes");
    case GA_LIST:
    case GA_LISTVIEW:
        if (!arrow_list(a, c, &at, &n) || n != v->n)
            return bad_row("list");
        for (size_t i = 0; i < v->n; i++, at.row++)
            if (!same(a, at, t->kids[0], &v->items[i]))
                return false;
        return true;
    case GA_STRUCT:
        if (!arrow_struct(a, &at))
            return bad_row("struct");
        for (size_t k = 0, f = at.field + 1; k < t->kids_len; f = a->schema.fields.ptr[f].end, k++)
            if (!same(a, arrow_in(at, (uint32_t)f), t->kids[k], &v->items[k]))
                return false;
        return true;
    case GA_RUNS:
    case GA_DICT:
        break;
    }
    return false;
}

/* Depth and width are bounded, as hostile lists may share their elements. */
static void touch(struct arrow *a, struct arrow_cell first)
{
    struct arrow_cell todo[256];
    size_t n = 0, work = 0;

    todo[n++] = first;
    while (n && work++ < 2000) {
        struct arrow_cell c = todo[--n], at;
        uint64_t len = 0, u;
        struct str s;
        int64_t i;
        if (!arrow_resolve(a, &c))
            continue;
        const struct arrow_field *f = &a->schema.fields.ptr[c.field];
        switch (f->kind) {
        case ARROW_BOOL:
        case ARROW_INT:
            (void)(f->is_signed ? arrow_i64(a, c, &i) : arrow_u64(a, c, &u));
            break;
        case ARROW_FIXED:
        case ARROW_BYTES:
        case ARROW_VIEW:
            if (arrow_bytes(a, c, &s))
                for (size_t k = 0; k < s.len; k++)
                    work += s.ptr[k] == 'q';
            break;
        case ARROW_LIST:
        case ARROW_LISTVIEW:
        case ARROW_FIXEDLIST:
            if (arrow_list(a, c, &at, &len))
                for (; len && n < ARRAY_LEN(todo); len--, at.row++)
                    todo[n++] = at;
            break;
        case ARROW_STRUCT:
            for (uint32_t k = c.field + 1; k < f->end && n < ARRAY_LEN(todo);
                 k = a->schema.fields.ptr[k].end)
                todo[n++] = arrow_in(c, k);
            break;
        case ARROW_NULL:
        case ARROW_RUNS:
        case ARROW_DICT:
            break;
        }
    }
}

static void one_stream(uint64_t seed)
{
    struct limits l = limits_default();
    struct arena *arena = arena_new(64 * MIB), *mine = arena_new(64 * MIB);
    struct ga_value *values[3][8];
    size_t rows[3], batches, field;
    struct arrow a;
    struct buf out;
    struct prng r;
    struct ga g;
    struct err e;
    bool more;

    prng_init(&r, seed);
    buf_init(&out, 16 * MIB);
    ga_init(&g, mine, &out);
    g.codec = (enum ga_codec)prng_below(&r, 3);
    g.replace = prng_chance(&r, 0.3);
    batches = prng_below(&r, 4);
    size_t columns = 1 + prng_below(&r, 7);
    for (size_t c = 0; c < columns; c++)
        ga_column(&g, ga_random_type(&g, &r, "c", 1 + (unsigned)prng_below(&r, 5)));
    ga_schema(&g);
    for (size_t b = 0; b < batches; b++) {
        rows[b] = prng_below(&r, 60);
        for (size_t c = 0; c < columns; c++) {
            values[b][c] = arena_alloc(mine, (rows[b] + 1) * sizeof(struct ga_value));
            for (size_t i = 0; i < rows[b]; i++)
                values[b][c][i] = i && prng_chance(&r, 0.4) ? values[b][c][i - 1]
                                                            : ga_random(&g, &r, g.columns[c]);
        }
        ga_batch(&g, values[b], rows[b]);
    }
    if (prng_chance(&r, 0.8))
        ga_end(&g);
    if (arrow_open(&a, buf_str(&out), &l, arena, &e))
        fail_msg("seed %llu: %s", (unsigned long long)seed, e.text);
    for (size_t b = 0; b < batches; b++) {
        if (arrow_next(&a, &more, &e) || !more)
            fail_msg("seed %llu: batch %zu of %zu: %s", (unsigned long long)seed, b, batches,
                     more ? e.text : "end");
        assert_int_equal(a.batch.rows, rows[b]);
        field = 0;
        for (size_t c = 0; c < columns; field = a.schema.fields.ptr[field].end, c++)
            for (size_t k = 0; k < rows[b]; k++) {
                size_t i = prng_chance(&r, 0.5) ? k : prng_below(&r, rows[b]);
                if (!same(&a, arrow_cell(&a, (uint32_t)field, i), g.columns[c], &values[b][c][i]))
                    fail_msg("seed %llu: batch %zu column %zu row %zu: %s",
                             (unsigned long long)seed, b, c, i, a.fault.text);
            }
    }
    assert_int_equal(arrow_next(&a, &more, &e), 0);
    assert_false(more);
    assert_int_equal(a.fault.code, 0);
    arrow_close(&a);
    ga_free(&g);
    buf_deinit(&out);
    arena_free(arena);
    arena_free(mine);
}

static void test_random_streams(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < (given ? 1 : 300); i++)
        one_stream(seed + (uint64_t)i);
}

/* Reads every cell of every column, whatever its type, without a model. */
static int read_all(struct str body, struct err *e)
{
    struct limits l = limits_default();
    struct arena *arena = arena_new(8 * MIB);
    struct arrow a;
    bool more = true;

    int rc = arrow_open(&a, body, &l, arena, e);
    while (!rc && more) {
        rc = arrow_next(&a, &more, e);
        for (uint32_t f = 0; !rc && more && f < a.schema.columns_end;
             f = a.schema.fields.ptr[f].end)
            for (uint64_t row = 0; row < a.batch.rows; row++)
                touch(&a, arrow_cell(&a, f, row));
        if (!rc && a.fault.code) {
            *e = a.fault;
            rc = e->code;
        }
    }
    arrow_close(&a);
    arena_free(arena);
    return rc;
}

static void verdict(const char *file, const char *want, void *cookie)
{
    char path[256];
    struct err e = { 0 };
    struct buf body;

    (void)cookie;
    (void)snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = read_all(buf_str(&body), &e);
    print_message("%s: %s %s\n", file, err_name(rc), rc ? e.text : "");
    if (strcmp(want, "ok") == 0 ? rc != 0 : rc != ERR_INPUT && rc != ERR_LIMIT)
        fail_msg("%s: want %s", file, want);
    buf_deinit(&body);
}

static void test_verdicts(void **state)
{
    (void)state;
    if (testdata_here("Arrow streams"))
        testdata_verdicts("parca-arrow", verdict, NULL);
}

static void one_sample(const char *name, void *cookie)
{
    char path[256];
    struct err e;
    struct buf body;

    (void)cookie;
    (void)snprintf(path, sizeof(path), "parca-arrow/%s", name);
    testdata_read(path, &body);
    if (read_all(buf_str(&body), &e))
        fail_msg("%s: %s", path, e.text);
    buf_deinit(&body);
}

static void test_samples(void **state)
{
    (void)state;
    if (testdata_here("Arrow streams"))
        testdata_each("parca-arrow", one_sample, NULL);
}

/* Every prefix, and every byte turned over: an error or not, but never a read outside. */
static void test_damaged(void **state)
{
    struct arena *mine = arena_new(16 * MIB);
    struct buf out;
    struct prng r;
    struct ga g;
    struct err e;

    (void)state;
    for (uint64_t seed = 1; seed < 12; seed++) {
        struct ga_value *values[4];
        prng_init(&r, seed);
        buf_init(&out, 16 * MIB);
        ga_init(&g, mine, &out);
        g.codec = (enum ga_codec)(seed % 3);
        for (int c = 0; c < 4; c++) {
            ga_column(&g, ga_random_type(&g, &r, "c", 5));
            values[c] = arena_alloc(mine, 20 * sizeof(struct ga_value));
            for (int i = 0; i < 20; i++)
                values[c][i] = ga_random(&g, &r, g.columns[c]);
        }
        ga_schema(&g);
        ga_batch(&g, values, 20);
        ga_end(&g);
        assert_int_equal(read_all(buf_str(&out), &e), 0);
        size_t step = 1 + out.len / 1500;
        for (size_t i = 0; i < out.len; i += step) {
            char *cut = xmemdup(out.ptr, i + 1); /* on its own: ASan sees the end */
            (void)read_all(str_n(cut, i), &e);
            xfree(cut);
            char was = out.ptr[i];
            out.ptr[i] = (char)(was ^ (1 << (i % 8)));
            (void)read_all(buf_str(&out), &e);
            out.ptr[i] = (char)0xff;
            (void)read_all(buf_str(&out), &e);
            out.ptr[i] = was;
        }
        ga_free(&g);
        buf_deinit(&out);
    }
    arena_free(mine);
}

/* A column of `rows` equal values of `width` bytes, in *out, with the codec. */
static void equal_values(struct buf *out, enum ga_codec codec, size_t rows, unsigned width)
{
    static const char sevens[256] = { 7, 7, 7, 7, 7, 7, 7, 7 };
    struct arena *mine = arena_new(256 * MIB);
    struct ga_value *values = arena_alloc(mine, rows * sizeof(*values));
    struct ga g;

    assert_non_null(values);
    for (size_t i = 0; i < rows; i++)
        values[i] = ga_bytes(str_n(sevens, width));
    ga_init(&g, mine, out);
    g.codec = codec;
    struct ga_type *t = ga_type(&g, GA_FIXED, "c", NULL);
    t->width = width;
    ga_column(&g, t);
    ga_schema(&g);
    ga_batch(&g, &values, rows);
    ga_end(&g);
    ga_free(&g);
    arena_free(mine);
}

/* Reads the batches of a stream under limits; the error, or 0. */
static int read_under(struct str body, const struct limits *l, struct err *e)
{
    struct arena *arena = arena_new(64 * MIB);
    struct arrow a;
    bool more = true;

    int rc = arrow_open(&a, body, l, arena, e);
    while (!rc && more)
        rc = arrow_next(&a, &more, e);
    arrow_close(&a);
    arena_free(arena);
    return rc;
}

/* zstd makes a few kilobytes of 2.5 MB of equal values: that is over the ratio. */
static void test_expansion(void **state)
{
    struct limits l = limits_default();
    struct err e = { 0 };
    struct buf out;

    (void)state;
    buf_init(&out, 16 * MIB);
    equal_values(&out, GA_ZSTD, 10000, 250);
    assert_true(out.len * l.inflated_ratio < 2500000);
    assert_int_equal(read_under(buf_str(&out), &l, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "expand more than"));
    l.inflated_ratio = 1000000;
    assert_int_equal(read_under(buf_str(&out), &l, &e), 0);
    l.inflated_bytes = 2 * MIB;
    assert_int_equal(read_under(buf_str(&out), &l, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "all together may have"));
    buf_deinit(&out);
}

/* The number in front of a compressed buffer is a claim. Of LZ4, which cannot do 256:1, a claim
 * that is too high is refused before memory for it is taken. */
static void test_claimed_sizes(void **state)
{
    struct limits l = limits_default();
    uint64_t claim = 0;
    struct err e = { 0 };
    struct buf out;
    size_t at = 0;

    (void)state;
    buf_init(&out, MIB);
    equal_values(&out, GA_LZ4, 64, 8);
    for (size_t i = 0; i + 12 <= out.len; i++) { /* in front of the magic number of an LZ4 frame */
        memcpy(&claim, out.ptr + i, 8);
        at = claim == 64 * 8 && memcmp(out.ptr + i + 8, "\x04\x22\x4d\x18", 4) == 0 ? i : at;
    }
    assert_int_not_equal(at, 0);
    assert_int_equal(read_under(buf_str(&out), &l, &e), 0);
    claim = 900 * KIB; /* below what the ratio begins at */
    memcpy(out.ptr + at, &claim, 8);
    assert_int_equal(read_under(buf_str(&out), &l, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "so few lz4 bytes"));
    buf_deinit(&out);
}

/* A buffer that is one byte shorter than its rows need is refused, nothing behind it is read. */
static void test_short_buffers(void **state)
{
    struct limits l = limits_default();
    struct err e = { 0 };
    struct buf out;
    int found = 0;

    (void)state;
    buf_init(&out, MIB);
    equal_values(&out, GA_PLAIN, 64, 8);
    assert_int_equal(read_under(buf_str(&out), &l, &e), 0);
    for (size_t i = 0; i + 8 <= out.len; i++) {
        uint64_t v;
        memcpy(&v, out.ptr + i, 8);
        if (v != 64 * 8)
            continue;
        v--; /* the length of the column's buffer */
        memcpy(out.ptr + i, &v, 8);
        if (read_under(buf_str(&out), &l, &e) == ERR_INPUT && strstr(e.text, "too short"))
            found++;
        v++;
        memcpy(out.ptr + i, &v, 8);
    }
    assert_int_equal(found, 1);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_streams), cmocka_unit_test(test_samples),
        cmocka_unit_test(test_verdicts),       cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_expansion),      cmocka_unit_test(test_claimed_sizes),
        cmocka_unit_test(test_short_buffers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
