/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding with the known stacks of a service gives the same as decoding from nothing: random
 * profiles beside the generator's model, all sample files twice, in any order, and under small
 * bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/formats/pprof/symbol_session.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

struct shelf_of_one {
    struct symbol_session *known;
    size_t bytes_max, taken, put;
};

static struct symbol_session *take(void *cookie, const struct push *push)
{
    static const uint8_t session[SYMBOL_SESSION_BYTES] = "a session";
    struct shelf_of_one *s = cookie;

    assert_true(push->service.len > 0);
    if (s->known && atomic_load(&s->known->dead)) {
        symbol_session_unref(s->known);
        s->known = NULL;
    }
    if (!s->known)
        s->known = symbol_session_new(session, 7, limits_default().symbol_keep_bytes, s->bytes_max);
    s->taken++;
    return symbol_session_ref(s->known);
}

static void put(void *cookie, struct symbol_session *k)
{
    struct shelf_of_one *s = cookie;

    assert_ptr_equal(k, s->known);
    s->put++;
}

/* As dist_decode, with a memory. */
static int decode(struct shelf_of_one *s, struct dist_push *d, struct str body,
                  const struct limits *l, struct err *e)
{
    struct ingest_raw raw = { .name = STR("app"), .format = STR("pprof") };

    *d = (struct dist_push){ .arena = arena_new((size_t)l->decode_bytes) };
    push_init(&d->push, d->arena, l, UINT64_C(0x5eed));
    d->push.memory = (struct push_memory){ take, put, s };
    if (ingest_parse(&raw, l, DIST_NOW_MS, d->arena, &d->in, e))
        return e->code;
    return formats_decode(&(struct decode_job){ &d->in, l, DIST_NOW_MS, &d->push }, body, e);
}

static void check_numbers(const struct push *p)
{
    struct symbol_session_counts now = symbol_session_now(p->known);

    assert_int_equal(p->stacks.node_parent.len, 0);
    assert_memory_equal(&now, &p->known_upto, sizeof(now));
    for (size_t i = 0; i < p->known_len; i++) {
        assert_in_range(p->known_nodes[i], 1, now.nodes - 1);
        for (size_t k = 0; k < i && p->known_len < 300; k++)
            assert_int_not_equal(p->known_nodes[i], p->known_nodes[k]);
    }
}

static void expand(struct dist_push *d, const struct limits *l)
{
    struct err e = { 0 };

    if (d->push.known)
        check_numbers(&d->push);
    if (push_known_expand(&d->push, &e))
        fail_msg("%s", e.text);
    assert_null(d->push.known);
    dist_check(&d->push, l);
}

static uint64_t seed_of(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;

    print_message("SEED=%" PRIu64 "\n", seed);
    return seed;
}

static void test_random(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = 8 * MIB };
    struct limits l = limits_default();
    struct prng p;
    size_t known = 0;

    prng_init(&p, seed_of());
    for (int round = 0; round < 200; round++) {
        struct gen_random r;
        struct dist_push d;
        struct buf rows;
        struct err e = { 0 };
        gen_random_pprof(&p, 1 + prng_below(&p, 120), &r);
        if (decode(&s, &d, buf_str(&r.body), &l, &e))
            fail_msg("round %d: %s", round, e.text);
        known += d.push.known != NULL;
        expand(&d, &l);
        dist_rows(&d.push, &rows);
        if (!str_eq(buf_str(&rows), buf_str(&r.rows)))
            fail_msg("round %d: got\n%.*swant\n%.*s", round, STR_ARG(buf_str(&rows)),
                     STR_ARG(buf_str(&r.rows)));
        assert_int_equal(d.push.drops[DROP_NEGATIVE] + d.push.drops[DROP_UNKNOWN_LOCATION],
                         r.dropped);
        buf_deinit(&rows);
        dist_push_free(&d);
        gen_random_deinit(&r);
        assert_int_equal(s.taken, s.put);
    }
    assert_in_range(known, 100, 200);
    symbol_session_unref(s.known);
}

struct file_test {
    struct shelf_of_one s;
    struct limits l;
    size_t files, known;
};

static void one_file(const char *name, void *cookie)
{
    struct file_test *t = cookie;
    char path[512];
    struct buf body, want, got;

    snprintf(path, sizeof(path), "pprof/%s", name);
    testdata_read(path, &body);
    struct dist_push a, b;
    struct err ea = { 0 }, eb = { 0 };
    int rc = dist_decode(&a, "app", "pprof", NULL, buf_str(&body), &t->l, &ea);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(decode(&t->s, &b, buf_str(&body), &t->l, &eb), rc);
        if (rc) {
            assert_string_equal(ea.text, eb.text);
        } else {
            t->known += b.push.known != NULL;
            expand(&b, &t->l);
            assert_memory_equal(a.push.drops, b.push.drops, sizeof(a.push.drops));
            dist_whole(&a.push, &want);
            dist_whole(&b.push, &got);
            if (!str_eq(buf_str(&want), buf_str(&got)))
                fail_msg("%s is another profile in round %d", name, round);
            buf_deinit(&want);
            buf_deinit(&got);
        }
        dist_push_free(&b);
    }
    t->files++;
    dist_push_free(&a);
    buf_deinit(&body);
}

static void test_files(void **state)
{
    (void)state;
    struct file_test t = { .s = { .bytes_max = 256 * MIB }, .l = limits_default() };

    if (!testdata_here("sample files decoded with known stacks"))
        skip();
    testdata_each("pprof", one_file, &t);
    assert_in_range(t.known, t.files, 2 * t.files); /* most files, both times */
    assert_int_equal(t.s.taken, t.s.put);
    symbol_session_unref(t.s.known);
}

/* Over its bound the table is dropped, and the push is decoded without it. */
static void test_small(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct prng p;
    size_t dead = 0;

    prng_init(&p, seed_of());
    for (size_t bytes = 2000; bytes < 60000; bytes += 3000) {
        struct shelf_of_one s = { .bytes_max = bytes };
        for (int round = 0; round < 12; round++) {
            struct gen_random r;
            struct dist_push d;
            struct buf rows;
            struct err e = { 0 };
            gen_random_pprof(&p, 60, &r);
            assert_int_equal(decode(&s, &d, buf_str(&r.body), &l, &e), 0);
            dead += atomic_load(&s.known->dead);
            assert_true(d.push.known || s.taken == s.put);
            expand(&d, &l);
            dist_rows(&d.push, &rows);
            assert_true(str_eq(buf_str(&rows), buf_str(&r.rows)));
            buf_deinit(&rows);
            dist_push_free(&d);
            gen_random_deinit(&r);
        }
        symbol_session_unref(s.known);
    }
    assert_true(dead > 0);
}

/* Compares decoding with known stacks and from nothing. True if known stacks were used. */
static bool same_as_plain(struct shelf_of_one *s, struct str body, const struct limits *l)
{
    struct dist_push a, b;
    struct buf want, got;
    struct err e = { 0 };

    assert_int_equal(dist_decode(&a, "app", "pprof", NULL, body, l, &e), 0);
    assert_int_equal(decode(s, &b, body, l, &e), 0);
    bool known = b.push.known != NULL;
    expand(&b, l);
    assert_memory_equal(a.push.drops, b.push.drops, sizeof(a.push.drops));
    dist_whole(&a.push, &want);
    dist_whole(&b.push, &got);
    if (!str_eq(buf_str(&want), buf_str(&got)))
        fail_msg("got\n%.*swant\n%.*s", STR_ARG(buf_str(&got)), STR_ARG(buf_str(&want)));
    buf_deinit(&want);
    buf_deinit(&got);
    dist_push_free(&a);
    dist_push_free(&b);
    return known;
}

/* Of an inlined call: in one location, in two, or in both forms. */
static void body_of_calls(bool one, bool two, struct buf *body)
{
    struct gen_pprof g;

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t fn[2] = { gen_function(&g, "leaf", "a.go"), gen_function(&g, "root", "a.go") };
    uint64_t inlined = gen_location_inlined(&g, fn, 2);
    uint64_t apart[2] = { gen_location_inlined(&g, &fn[0], 1),
                          gen_location_inlined(&g, &fn[1], 1) };
    if (one)
        gen_sample(&g, &inlined, 1, (int64_t[]){ 3 }, 1);
    if (two)
        gen_sample(&g, apart, 2, (int64_t[]){ 4 }, 1);
    buf_init(body, MIB);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

/* Frames that were inlined in one profile and not in the next are one stack. */
static void test_inlined(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    uint32_t nodes = 0;

    for (unsigned form = 1; form <= 3; form++) {
        struct buf body;
        body_of_calls(form & 1, form & 2, &body);
        assert_true(same_as_plain(&s, buf_str(&body), &l));
        if (nodes)
            assert_int_equal(symbol_session_now(s.known).nodes, nodes);
        nodes = symbol_session_now(s.known).nodes;
        buf_deinit(&body);
    }
    assert_int_equal(nodes, 3);
    symbol_session_unref(s.known);
}

enum { FORM_LOCATIONS = 400, FORM_STACKS = 60, FORM_SAMPLES = 500 };

/* Samples of few stacks, so that most were seen before, with labels of all sorts between them. */
static void body_of_form(struct prng *r, size_t types, struct buf *body)
{
    static const char *const keys[] = { "bytes", "bytes", "bytes", "thread", "span_id" };
    uint64_t at[FORM_LOCATIONS], stacks[FORM_STACKS][40];
    size_t lens[FORM_STACKS];
    int64_t values[10];
    struct gen_pprof g;

    gen_pprof_init(&g);
    g.unpacked = prng_below(r, 2);
    g.values_first = prng_below(r, 4) > 0;
    for (size_t t = 0; t < types; t++)
        gen_type(&g, (char[]){ 't', (char)('0' + t), 0 }, "count");
    uint64_t fn = gen_function(&g, "f", "a.go");
    for (size_t i = 0; i < FORM_LOCATIONS; i++)
        at[i] = gen_location(&g, fn, (int64_t)i + 1);
    for (size_t i = 0; i < FORM_STACKS; i++) {
        lens[i] = 1 + prng_below(r, ARRAY_LEN(stacks[0]));
        for (size_t k = 0; k < lens[i]; k++)
            stacks[i][k] = at[prng_below(r, FORM_LOCATIONS)];
    }
    size_t labelled = prng_below(r, 3); /* none, few, all */
    for (size_t i = 0, stack = 0; i < FORM_SAMPLES; i++) {
        size_t len = types + (prng_below(r, 90) == 0);
        stack = prng_below(r, 2) ? stack : prng_below(r, FORM_STACKS); /* often the previous one */
        for (size_t t = 0; t < len; t++)
            values[t] = prng_below(r, 3) ? (int64_t)(prng_u64(r) >> (14 + prng_below(r, 50))) : 0;
        if (prng_below(r, 60) == 0)
            values[0] = -1;
        if (labelled == 2 || (labelled && prng_below(r, 8) == 0))
            gen_label_num(&g, keys[prng_below(r, ARRAY_LEN(keys))], (int64_t)prng_below(r, 5000));
        if (labelled && prng_below(r, 40) == 0)
            gen_label(&g, "vehicle", "car");
        gen_sample(&g, stacks[stack], lens[stack], values, len);
    }
    buf_init(body, MIB);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

/* Whatever the form of a sample is, whether it is read in one go (pprof_plain.h) or not. */
static void test_forms(void **state)
{
    (void)state;
    static const size_t types[] = { 1, 2, 4, 8, 9 };
    struct shelf_of_one s = { .bytes_max = 64 * MIB };
    struct limits l = limits_default();
    struct prng r;
    size_t known = 0;

    prng_init(&r, seed_of());
    for (size_t round = 0; round < 200; round++) {
        struct buf body;
        body_of_form(&r, types[round % ARRAY_LEN(types)], &body);
        known += same_as_plain(&s, buf_str(&body), &l);
        buf_deinit(&body);
    }
    assert_int_equal(known, 200);
    symbol_session_unref(s.known);
}

/* The same bytes are other ids where they are packed: "8, 9" there, "9" with its tag here. */
static void test_packed_beside_not(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    uint64_t at[10];
    struct gen_pprof g;
    struct buf body;

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    for (size_t i = 1; i < ARRAY_LEN(at); i++)
        at[i] = gen_location(&g, gen_function(&g, (char[]){ 'f', (char)('0' + i), 0 }, "a.go"), 1);
    g.values_first = true;
    for (int i = 0; i < 40; i++) {
        g.unpacked = i % 4 == 3;
        if (g.unpacked)
            gen_sample(&g, &at[9], 1, (int64_t[]){ 100 }, 1);
        else
            gen_sample(&g, &at[8], 2, (int64_t[]){ 1 }, 1);
    }
    buf_init(&body, MIB);
    gen_pprof_finish(&g, &body);
    for (int round = 0; round < 2; round++)
        assert_true(same_as_plain(&s, buf_str(&body), &l));
    gen_pprof_deinit(&g);
    buf_deinit(&body);
    symbol_session_unref(s.known);
}

/* One function that calls itself, up to `most` deep, each location with `inlined` of them. */
static void body_of_recursion(size_t most, size_t inlined, struct buf *body)
{
    uint64_t fn[8], at[64];
    struct gen_pprof g;

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    fn[0] = gen_function(&g, "again", "a.go");
    for (size_t i = 1; i < ARRAY_LEN(fn); i++)
        fn[i] = fn[0];
    at[0] = gen_location_inlined(&g, fn, inlined);
    for (size_t i = 1; i < ARRAY_LEN(at); i++)
        at[i] = at[0];
    for (size_t n = 1; n <= most; n++)
        gen_sample(&g, at, n, (int64_t[]){ (int64_t)n }, 1);
    buf_init(body, MIB);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

/* Paths are filled up to whole groups: those that differ in length only are not the same. */
static void test_lengths(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    struct buf body;

    body_of_recursion(33, 1, &body);
    for (int round = 0; round < 2; round++)
        assert_true(same_as_plain(&s, buf_str(&body), &l));
    assert_int_equal(symbol_session_now(s.known).nodes, 34);
    buf_deinit(&body);
    symbol_session_unref(s.known);
}

/* The limit of a stack's depth is read again each time, in frames: a tenant's limit may change. */
static void test_depth(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    struct buf body;

    body_of_recursion(10, 4, &body);
    for (int round = 0; round < 3; round++) {
        l.frames_keep = 39; /* of frames; of locations there are 10 */
        assert_false(same_as_plain(&s, buf_str(&body), &l));
        l.frames_keep = 40;
        assert_true(same_as_plain(&s, buf_str(&body), &l));
    }
    buf_deinit(&body);
    symbol_session_unref(s.known);
    s.known = NULL;
    body_of_recursion(20, 1, &body);
    l.frames_keep = 16;
    assert_false(same_as_plain(&s, buf_str(&body), &l));
    assert_false(atomic_load(&s.known->dead));
    buf_deinit(&body);
    symbol_session_unref(s.known);
}

/* No location has the id 0; what fills up paths has. */
static void test_id_zero(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();

    for (int unpacked = 0; unpacked < 2; unpacked++) {
        struct gen_pprof g;
        struct buf body;
        gen_pprof_init(&g);
        g.unpacked = unpacked;
        gen_type(&g, "cpu", "nanoseconds");
        uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
        for (size_t n = 1; n < 12; n++) {
            uint64_t at[12];
            for (size_t i = 0; i < 12; i++)
                at[i] = i == n / 2 ? 0 : leaf;
            gen_sample(&g, at, n, (int64_t[]){ 1 }, 1);
        }
        gen_sample(&g, &leaf, 1, (int64_t[]){ 1 }, 1);
        buf_init(&body, MIB);
        gen_pprof_finish(&g, &body);
        assert_true(same_as_plain(&s, buf_str(&body), &l));
        assert_int_equal(symbol_session_now(s.known).nodes, 2);
        gen_pprof_deinit(&g);
        buf_deinit(&body);
    }
    symbol_session_unref(s.known);
}

/* Of a table only entries that a sample has are kept, in a new table or next to known entries. */
static void test_unused(void **state)
{
    (void)state;
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    struct symbol_session_counts before = { 0 };
    size_t texts = 0;

    for (int round = 0; round < 3; round++) {
        struct gen_pprof g;
        struct buf body;
        gen_pprof_init(&g);
        gen_type(&g, "cpu", "nanoseconds");
        uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
        for (int i = 0; i < 100 * round; i++) {
            char name[24];
            snprintf(name, sizeof(name), "unused.%d", i);
            gen_location(&g, gen_function(&g, name, i % 2 ? "a.go" : "unused.go"), 7);
        }
        gen_sample(&g, &leaf, 1, (int64_t[]){ 1 }, 1);
        buf_init(&body, MIB);
        gen_pprof_finish(&g, &body);
        assert_true(same_as_plain(&s, buf_str(&body), &l));
        struct symbol_session_counts now = symbol_session_now(s.known);
        if (round) {
            assert_memory_equal(&now, &before, sizeof(now));
            assert_int_equal(s.known->texts.len, texts);
        }
        before = now;
        texts = s.known->texts.len;
        gen_pprof_deinit(&g);
        buf_deinit(&body);
    }
    symbol_session_unref(s.known);
}

enum { LONG_NAME = 2000, LONG_NAMES = 3 };

/* Names and files that many functions share by their index, short and long ones. */
static void body_of_long_names(const char *const names[LONG_NAMES],
                               const char *const files[LONG_NAMES], struct buf *body)
{
    struct gen_pprof g;
    uint64_t value = 1;

    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t name[LONG_NAMES], file[LONG_NAMES], mapping[2];
    for (size_t i = 0; i < LONG_NAMES; i++) {
        name[i] = gen_string(&g, names[i]);
        file[i] = gen_string(&g, files[i]);
    }
    mapping[0] = gen_mapping(&g, 0x1000, 0x2000, 0, files[2], "f00d");
    mapping[1] = gen_mapping(&g, 0x3000, 0x4000, 0, files[2], "");
    for (size_t i = 0; i < 2 * LONG_NAMES * LONG_NAMES; i++) { /* each pair twice */
        struct buf m;
        buf_init(&m, 64);
        gen_u64(&m, 1, ++g.functions);
        gen_u64(&m, 2, name[i % LONG_NAMES]);
        gen_u64(&m, 4, file[i / LONG_NAMES % LONG_NAMES]);
        gen_bytes(&g.body, 5, buf_str(&m));
        buf_deinit(&m);
        uint64_t at = gen_location(&g, g.functions, 7);
        gen_sample(&g, &at, 1, (int64_t[]){ (int64_t)value++ }, 1);
    }
    for (size_t i = 0; i < 6; i++) {
        uint64_t at = gen_location_address(&g, mapping[i % 2], 0x1000 + 0x2000 * (i % 2) + i);
        gen_sample(&g, &at, 1, (int64_t[]){ (int64_t)value++ }, 1);
    }
    buf_init(body, MIB);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

/* A long name is looked at once for all functions that have it: with each its own file. */
static void test_long_names(void **state)
{
    (void)state;
    static char a[LONG_NAME + 1], b[LONG_NAME + 1], c[LONG_NAME + 1];
    const char *names[] = { a, b, "short" }, *files[] = { "a.rb", "b.rb", c };
    struct shelf_of_one s = { .bytes_max = MIB };
    struct limits l = limits_default();
    struct ingest_raw raw = { .name = STR("app"),
                              .format = STR("pprof"),
                              .spy_name = STR("rbspy") };
    struct dist_push joined;
    struct buf body, text, want;
    struct err e = { 0 };

    memset(a, 'a', LONG_NAME);
    memset(b, 'b', LONG_NAME);
    memset(c, 'c', LONG_NAME);
    body_of_long_names(names, files, &body);
    for (int round = 0; round < 2; round++)
        assert_true(same_as_plain(&s, buf_str(&body), &l));
    symbol_session_unref(s.known);
    assert_int_equal(dist_decode_raw(&joined, &raw, buf_str(&body), &l, &e), 0);
    dist_whole(&joined.push, &text);
    for (size_t i = 0; i < LONG_NAMES * LONG_NAMES; i++) {
        buf_init(&want, 3 * (size_t)LONG_NAME);
        (void)buf_addf(&want, "%s %s", files[i / LONG_NAMES], names[i % LONG_NAMES]);
        assert_true(str_contains(buf_str(&text), buf_str(&want)));
        buf_deinit(&want);
    }
    buf_deinit(&text);
    buf_deinit(&body);
    dist_push_free(&joined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_inlined),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_id_zero),
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_packed_beside_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
