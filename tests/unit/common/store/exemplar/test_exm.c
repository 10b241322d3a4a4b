/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/check/check.h"
#include "common/store/exemplar/exm.h"
#include "common/store/mask/tomb.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define HOURS INT64_C(3600000)
#define SPAN  (1u << EXID_SPAN)
#define TRACE (1u << EXID_TRACE)
#define PROF  (1u << EXID_PROFILE)

static const struct store_opts OPTS = {
    .dict_bytes_max = 64 * MIB,
    .seal_delay_ms = 60000,
    .wid_horizon_ms = 4 * 3600 * 1000,
    .exm = { .retention_ms = 24 * HOURS, .rows_per_minute = 1000, .bytes_per_minute = MIB },
};

/* ---- codec ---- */

/* The example of exm.h, byte by byte. */
static void test_example(void **state)
{
    static const char row[] = "\x00\x00\x21\xe8\x00\x00\x00\x01\x00\x00\x00\x02\x01"
                              "\x88\x00\x00\x0b\xac\x2a\x5a\xb0\xc7\x02\x3c\x34\x62\x00\x03"
                              "\xab\xcd\xef\x01\x23\x45\x67\x89"
                              "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
    static const char index[] = "\x00\x00\x21\xe8\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x03"
                                "\xab\xcd\xef\x01\x23\x45\x67\x89\x02\x3c\x34\x62\x01"
                                "\x88\x00\x00\x0b\xac\x2a\x5a\xb0\xc7"
                                "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
    static const uint8_t wid[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    struct exm_mark mark = { 10000, 7030 };
    struct exid id;
    struct exm_ref x = { { 1, 2, 3, 0xabcdef0123456789 }, 37500002, EXID_SPAN, STR_NULL, wid };
    struct exm_ref back;
    struct exm_key k;
    struct buf b;
    struct err e;
    bool is_index;

    (void)state;
    assert_true(exid_parse(STR("00000bac2a5ab0c7"), &id));
    x.id = exid_str(&id);
    exm_row_key(&k, &x);
    assert_true(str_eq(exm_key_str(&k), str_n(row, sizeof(row) - 1)));
    assert_true(exm_key_read(exm_key_str(&k), &is_index, &back) && !is_index);
    exm_index_key(&k, &x);
    assert_true(str_eq(exm_key_str(&k), str_n(index, sizeof(index) - 1)));
    assert_true(exm_key_read(exm_key_str(&k), &is_index, &back) && is_index);
    assert_true(back.t == x.t && back.m.series == x.m.series && back.kind == EXID_SPAN &&
                str_eq(back.id, x.id) && memcmp(back.wid, wid, 16) == 0);

    buf_init(&b, KIB);
    exm_mark_put(&b, &mark);
    assert_true(str_eq(buf_str(&b), STR("\x01\x90\x4e\xf6\x36")));
    mark = (struct exm_mark){ 0 };
    assert_int_equal(exm_mark_read(buf_str(&b), &mark, &e), 0);
    assert_true(mark.duration_ms == 10000 && mark.total == 7030);
    assert_int_equal(exm_mark_read(str_sub(buf_str(&b), 0, 4), &mark, &e), ERR_CORRUPT);
    b.ptr[0] = 2;
    assert_int_equal(exm_mark_read(buf_str(&b), &mark, &e), ERR_CORRUPT);
    buf_deinit(&b);
}

/* Both keys come back from their bytes, and no cut or longer key does. */
static void test_keys_random(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 11;
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int n = 0; n < 5000; n++) {
        char id_text[EXID_BYTES_MAX];
        uint8_t wid[16];
        size_t len = 1 + prng_below(&p, EXID_BYTES_MAX);
        struct exm_key keys[2];
        struct exm_ref back;
        struct exid id;
        bool index;

        for (size_t i = 0; i < len; i++)
            id_text[i] = (char)('g' + prng_below(&p, 10));
        for (size_t i = 0; i < 16; i++)
            wid[i] = (uint8_t)prng_u64(&p);
        assert_true(exid_parse(str_n(id_text, len), &id));
        struct exm_ref x = { .m = { (uint32_t)prng_u64(&p), (uint32_t)prng_u64(&p),
                                    (uint16_t)prng_u64(&p), prng_u64(&p) },
                             .t = (uint32_t)prng_below(&p, KEY_SLOT_MAX),
                             .kind = (enum exid_kind)(1 + prng_below(&p, EXID_KINDS - 1)),
                             .id = exid_str(&id),
                             .wid = wid };
        exm_row_key(&keys[0], &x);
        exm_index_key(&keys[1], &x);
        for (int i = 0; i < 2; i++) {
            struct str k = exm_key_str(&keys[i]);
            char longer[EXM_KEY_MAX + 1] = { 0 };
            assert_true(exm_key_read(k, &index, &back) && index == (i == 1));
            assert_true(back.m.tenant == x.m.tenant && back.m.scope == x.m.scope &&
                        back.m.ptype == x.m.ptype && back.m.series == x.m.series && back.t == x.t &&
                        back.kind == x.kind && str_eq(back.id, x.id) &&
                        memcmp(back.wid, wid, 16) == 0);
            memcpy(longer, k.ptr, k.len);
            assert_false(exm_key_read(str_n(longer, k.len + 1), &index, &back));
            assert_false(exm_key_read(str_sub(k, 0, prng_below(&p, k.len)), &index, &back));
        }
    }
}

/* ---- store ---- */

struct ask {
    unsigned kinds;
    const char *ids; /* blanks between; NULL: any */
    const char *selector, *type;
    uint32_t from, to; /* 0, 0: any time */
};

static void fill(const struct ask *k, struct arena *a, struct selector *s,
                 struct store_exm_query *q)
{
    struct str rest = str_c(k->ids), part;
    struct str *ids = ARENA_ARRAY(a, struct str, 100);
    bool more = true;
    struct err e;

    *q = (struct store_exm_query){
        .q = { .tenant = STR("t"),
               .selector = s,
               .profile_type = str_c(k->type ? k->type : BED_CPU),
               .start_ms = k->to ? slot_to_ms(k->from) : 0,
               .end_ms = k->to ? slot_to_ms(k->to) : 0 },
        .kinds = k->kinds,
        .ids = ids,
    };
    while (k->ids && str_next(&rest, ' ', &more, &part)) {
        struct exid id;
        assert_true(exid_parse(part, &id));
        ids[q->ids_len++] = arena_strdup(a, exid_str(&id));
    }
    assert_int_equal(
        selector_parse(str_c(k->selector ? k->selector : "{}"), SELECTOR_PROMETHEUS, a, s, &e), 0);
    assert_int_equal(selector_compile(s, &e), 0);
}

static const char *merged(struct store_bed *b, struct ask k)
{
    struct arena *a = arena_new(MIB);
    struct store_exm_query q;
    struct selector s;
    struct stacks st;
    struct store_merge m = { .stacks = &st };
    struct err e;

    fill(&k, a, &s, &q);
    stacks_init(&st, 64 * MIB, 3);
    struct store_view *v = store_view_get(b->s);
    if (store_exemplar_merge(v, &q, &m, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    const char *answer = store_bed_text(&m);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return answer;
}

/* "<kind>:<id>=<total>@<slots after `zero`>{pod}" by blanks. */
static const char *listed_below(struct store_bed *b, struct ask k, const char *site, size_t limit,
                                uint32_t zero)
{
    static char answer[4096];
    struct arena *a = arena_new(MIB);
    struct store_exm_query q;
    struct store_exm_list l;
    struct selector s;
    struct err e;
    size_t n = 0;

    fill(&k, a, &s, &q);
    struct str names[8], rest = str_c(site);
    bool more = rest.len > 0;
    for (q.call_site = names; more && str_next(&rest, ' ', &more, &names[q.call_site_len]);)
        q.call_site_len++;
    struct store_view *v = store_view_get(b->s);
    if (store_exemplars(v, &q, limit, a, &l, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    answer[0] = '\0';
    vec_for (i, &l.items) {
        const struct store_exm_item *x = &l.items.ptr[i];
        char id[EXID_BYTES_MAX];
        size_t len = exid_text(x->id, id);
        struct str pod = labels_get(&l.series.ptr[x->series], STR("pod"));
        assert_int_equal(x->duration_ms, 10000);
        n += (size_t)snprintf(answer + n, sizeof(answer) - n, "%s%d:%.*s=%" PRIu64 "@%u{%.*s}",
                              i ? " " : "", (int)x->kind, (int)len, id, x->total,
                              slot_of_ms(x->start_ms) - zero, STR_ARG(pod));
    }
    if (l.truncated)
        (void)snprintf(answer + n, sizeof(answer) - n, " ...");
    store_exm_list_deinit(&l);
    selector_deinit(&s);
    arena_free(a);
    return answer;
}

static const char *listed(struct store_bed *b, struct ask k, size_t limit, uint32_t zero)
{
    return listed_below(b, k, "", limit, zero);
}

#define S1 "0000000000000001"
#define S2 "0000000000000002"
#define T1 "000000000000000000000000000000aa"

static void push_some(struct store_bed *b, uint32_t t)
{
    store_bed_push(b, &(struct bed_push){ .labels = "pod=a",
                                          .stacks = "m;x=10 m;y=5 m;z=1",
                                          .slot = t,
                                          .wid = 1,
                                          .exemplars = "1:" S1 ":m;x=7|1:" S2 ":m;x=1 m;y=2|2:" T1
                                                       ":m;x=8 m;y=2" });
    store_bed_push(b, &(struct bed_push){ .labels = "pod=b",
                                          .stacks = "m;x=3",
                                          .slot = t + 4,
                                          .wid = 2,
                                          .exemplars = "1:" S1 ":m;x=3" });
}

static void test_by_id(void **state)
{
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b) - 20;
    push_some(&b, t);
    for (int sealed = 0; sealed < 3; sealed++) {
        assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, NULL, 0, 0 }), "m;x=10");
        assert_string_equal(merged(&b, (struct ask){ SPAN, S1 " " S2, NULL, NULL, 0, 0 }),
                            "m;x=11 m;y=2");
        assert_string_equal(merged(&b, (struct ask){ SPAN, S1, "{pod=\"b\"}", NULL, 0, 0 }),
                            "m;x=3");
        assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, NULL, t, t + 2 }), "m;x=7");
        assert_string_equal(merged(&b, (struct ask){ TRACE, T1, NULL, NULL, 0, 0 }), "m;x=8 m;y=2");
        assert_string_equal(merged(&b, (struct ask){ TRACE, S1, NULL, NULL, 0, 0 }), "");
        assert_string_equal(
            merged(&b, (struct ask){ SPAN, S1, "{service_name=\"no\"}", NULL, 0, 0 }), "");
        assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, "a:b:c:d:e", 0, 0 }), "");
        assert_string_equal(merged(&b, (struct ask){ SPAN, NULL, NULL, NULL, 0, 0 }),
                            "m;x=11 m;y=2");
        assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, t, t + 20), "m;x=13 m;y=5 m;z=1");
        if (sealed == 0) { /* the id's rows stay when the raw rows go */
            clock_fake_advance(&b.clock, 600000);
            store_bed_seal(&b);
        } else {
            store_bed_reopen(&b, KV_MEM_POWER, 0);
        }
    }
    store_bed_deinit(&b);
}

static void test_list(void **state)
{
    struct ask any = { SPAN | TRACE, NULL, NULL, NULL, 0, 0 };
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b) - 20;
    push_some(&b, t);
    any.kinds = SPAN;
    assert_string_equal(listed(&b, any, 100, t), "1:" S1 "=7@0{a} 1:" S2 "=3@0{a} 1:" S1 "=3@4{b}");
    any.kinds = TRACE;
    assert_string_equal(listed(&b, any, 100, t), "2:" T1 "=10@0{a}");
    any.kinds = SPAN;
    assert_string_equal(listed(&b, any, 1, t), "1:" S1 "=7@0{a} ...");
    any.ids = S2;
    assert_string_equal(listed(&b, any, 100, t), "1:" S2 "=3@0{a}");
    any = (struct ask){ SPAN, NULL, "{pod=\"b\"}", NULL, t + 2, t + 6 };
    assert_string_equal(listed(&b, any, 100, t), "1:" S1 "=3@4{b}");
    any.to = t + 4;
    assert_string_equal(listed(&b, any, 100, t), "");
    store_bed_deinit(&b);
}

/* What has nothing of the site is not there, unless it was asked for by id. */
static void test_list_below(void **state)
{
    struct ask any = { .kinds = SPAN }, one = { .kinds = SPAN, .ids = S1 };
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b) - 20;
    push_some(&b, t);
    struct bed_push other = { .service = "other", .stacks = "m;y;z=5 y=2", .slot = t + 6 };
    other.exemplars = "1:" S1 ":m;y;z=4|1:" S2 ":y=2";
    store_bed_push(&b, &other);
    const char *rows[][2] = { { "m",
                                "1:" S1 "=7@0{a} 1:" S2 "=3@0{a} 1:" S1 "=3@4{b} 1:" S1 "=4@6{}" },
                              { "m y", "1:" S2 "=2@0{a} 1:" S1 "=4@6{}" },
                              { "y", "1:" S2 "=2@6{}" } };
    for (int sealed = 0; sealed < 2; sealed++) {
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            assert_string_equal(listed_below(&b, any, rows[i][0], 100, t), rows[i][1]);
        assert_string_equal(listed_below(&b, any, "m y", 1, t), "1:" S1 "=4@6{} ...");
        assert_string_equal(listed_below(&b, one, "m x", 100, t),
                            "1:" S1 "=7@0{a} 1:" S1 "=3@4{b} 1:" S1 "=0@6{}");
        clock_fake_advance(&b.clock, 600000);
        store_bed_seal(&b);
    }
    store_bed_deinit(&b);
}

/* A push that is there as a profile is left out as a span. */
static void test_profiles(void **state)
{
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b) - 20;
    store_bed_push(&b, &(struct bed_push){ .stacks = "m;x=10 m;y=5",
                                           .slot = t,
                                           .wid = 1,
                                           .exemplars = "1:" S1 ":m;x=7|3:p:m;x=10 m;y=5" });
    store_bed_push(&b, &(struct bed_push){
                           .stacks = "m;x=2", .slot = t, .wid = 2, .exemplars = "1:" S1 ":m;x=2" });
    assert_string_equal(merged(&b, (struct ask){ SPAN | PROF, "p " S1, NULL, NULL, 0, 0 }),
                        "m;x=12 m;y=5");
    assert_string_equal(merged(&b, (struct ask){ SPAN | PROF, S1, NULL, NULL, 0, 0 }), "m;x=9");
    assert_string_equal(merged(&b, (struct ask){ PROF, "p", NULL, NULL, 0, 0 }), "m;x=10 m;y=5");
    store_bed_deinit(&b);
}

/* Twice the same write id: one row. After an fsync that failed: none. */
static void test_dedupe(void **state)
{
    struct bed_push p = { .stacks = "m;x=10", .wid = 1, .exemplars = "1:" S1 ":m;x=4" };
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    p.slot = store_bed_slot(&b) - 2;
    assert_int_equal(store_bed_push(&b, &p), 1);
    assert_int_equal(store_bed_push(&b, &p), 0);
    store_bed_reopen(&b, KV_MEM_POWER, 0);
    p.exemplars = "1:" S1 ":m;x=5";
    assert_int_equal(store_bed_push(&b, &p), 0);
    assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, NULL, 0, 0 }), "m;x=4");
    p.wid = 2;
    assert_int_equal(store_bed_push(&b, &p), 1);
    assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, NULL, 0, 0 }), "m;x=9");
    store_bed_deinit(&b);
}

static size_t count_rows(struct store_bed *b)
{
    struct kv_iter *it = kv_iter_new(b->s->kv, NULL, KV_EXM, STR_NULL, STR_NULL);
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

static void test_retention(void **state)
{
    struct bed_push p = { .stacks = "m;x=10", .exemplars = "1:" S1 ":m;x=4" };
    struct store_bed b;
    struct err e;
    bool more;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b);
    for (uint64_t i = 0; i < 40; i++) { /* one an hour */
        p.wid = i;
        p.slot = t + (uint32_t)i * 720;
        store_bed_push(&b, &p);
        for (int k = 0; k < 60; k++) {
            clock_fake_advance(&b.clock, 60000);
            if (!store_exemplars_retain_ms(b.s))
                assert_int_equal(store_exemplars_retain(b.s, &more, &e), 0);
        }
    }
    /* Kept: 24 hours, and up to a bucket and the hour of grace more. */
    size_t rows = count_rows(&b) / 2;
    assert_true(rows >= 24 && rows <= 24 + 6 + 1);
    const char *sum = merged(&b, (struct ask){ SPAN, S1, NULL, NULL, 0, 0 });
    unsigned long value = strtoul(sum + strlen("m;x="), NULL, 10);
    assert_true(value % 4 == 0 && value >= 24 * 4 && value <= 30 * 4);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, t, t + 40 * 720), "m;x=400");

    /* Older than that: not kept as an exemplar, but in the series. */
    p.wid = 100;
    p.slot = t;
    store_bed_push(&b, &p);
    assert_int_equal(count_rows(&b) / 2, rows);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, t, t + 40 * 720), "m;x=410");
    struct store_stats stats;
    store_stats(b.s, &stats);
    assert_int_equal(stats.exemplars, 40);
    assert_int_equal(stats.exemplars_old, 1);
    assert_int_equal(stats.exemplars_over, 0);
    store_bed_deinit(&b);
}

static void test_bounds(void **state)
{
    struct bed_push p = { .labels = "pod=a", .stacks = "m;x=100" };
    struct store_opts o = OPTS;
    struct store_stats stats;
    struct store_bed b;
    char text[2000], pod[16];
    size_t n = 0;

    (void)state;
    o.exm.rows_per_minute = 10;
    o.exm.bytes_per_minute = 5000;
    store_bed_init(&b, &o);
    for (int i = 1; i <= 15; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s1:%016x:m;x=1", n ? "|" : "", i);
    p.exemplars = text;
    p.slot = store_bed_slot(&b) - 2;
    p.wid = 1;
    store_bed_push(&b, &p);
    store_stats(b.s, &stats);
    assert_int_equal(stats.exemplars, 10); /* of a series */
    assert_int_equal(stats.exemplars_over, 5);
    for (p.wid = 2; p.wid < 9; p.wid++) { /* other series, the tenant's bytes */
        (void)snprintf(pod, sizeof(pod), "pod=%d", (int)p.wid);
        p.labels = pod;
        store_bed_push(&b, &p);
    }
    store_stats(b.s, &stats);
    assert_true(stats.exemplars > 20 && stats.exemplars < 40);
    assert_int_equal(stats.exemplars + stats.exemplars_over, 8 * 15);
    uint64_t before = stats.exemplars;
    p.tenant = "other";
    store_bed_push(&b, &p);
    store_stats(b.s, &stats);
    assert_int_equal(stats.exemplars, before + 10);
    clock_fake_advance(&b.clock, 60000);
    p.tenant = NULL;
    p.wid++;
    store_bed_push(&b, &p);
    store_stats(b.s, &stats);
    assert_int_equal(stats.exemplars, before + 20);
    /* The series has the left-out profiles like the rest. */
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2), "m;x=900");
    store_bed_deinit(&b);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "1:" S2 ":m;x=1|1:" S1 ":m;x=1", /* not sorted */
        "1:" S1 ":m;x=1|1:" S1 ":m;x=1", /* twice */
        "2:" S1 ":m;x=1|1:" S2 ":m;x=1", /* kinds not sorted */
        "4:" S1 ":m;x=1",                /* unknown kind */
        "1:" S1 ":m;x=0",
    };
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct bed_push p = {
            .stacks = "m;x=1", .slot = store_bed_slot(&b), .wid = i, .exemplars = bad[i]
        };
        struct store_batch *batch = store_batch_new(b.s);
        struct store_result r;
        struct err e;

        assert_int_equal(store_bed_stage(&b, batch, &p, &r, &e), ERR_INPUT);
        assert_int_equal(store_commit(b.s, batch, &e), 0);
    }
    assert_int_equal(count_rows(&b), 0);
    store_bed_deinit(&b);
}

static void delete_some(struct store_bed *b, const char *id, const char *selector, uint32_t from,
                        uint32_t to)
{
    struct arena *a = arena_new(MIB);
    struct tomb_result r;
    struct selector s;
    struct err e;

    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct tomb_request q = { .tenant = STR("t"),
                              .id = str_c(id),
                              .what = str_c(selector),
                              .selector = &s,
                              .from_ms = to ? slot_to_ms(from) : 0,
                              .to_ms = to ? slot_to_ms(to) : 0 };
    if (store_delete(b->s, &q, &r, &e))
        fail_msg("%s", e.text);
    assert_true(r.entry > 0);
    selector_deinit(&s);
    arena_free(a);
}

static void purge_all(struct store_bed *b)
{
    struct err e;
    bool more = true;

    while (more)
        if (store_purge(b->s, 100, &more, &e))
            fail_msg("%s", e.text);
}

/* What is deleted is gone from the answer at once, and from the disk after the purge. */
static void test_deletes(void **state)
{
    struct ask span = { SPAN, S1, NULL, NULL, 0, 0 };
    struct store_bed b;

    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        store_bed_init(&b, &OPTS);
        uint32_t t = store_bed_slot(&b) - store_bed_slot(&b) % 720;
        push_some(&b, t);
        store_bed_push(&b, &(struct bed_push){ .labels = "pod=a",
                                               .stacks = "m;x=10",
                                               .slot = t + 1440,
                                               .wid = 9,
                                               .exemplars = "1:" S1 ":m;x=10" });
        if (sealed) {
            for (int i = 0; i < 120; i++) {
                clock_fake_advance(&b.clock, 60000);
                store_now(b.s);
            }
            store_bed_seal(&b);
        }
        assert_string_equal(merged(&b, span), "m;x=20");
        delete_some(&b, "d1", "{pod=\"a\"}", t - 720, t + 720);
        assert_string_equal(merged(&b, span), "m;x=13");
        span.ids = NULL;
        assert_string_equal(listed(&b, span, 10, t), "1:" S1 "=3@4{b} 1:" S1 "=10@1440{a}");
        span.ids = S1;
        purge_all(&b);
        assert_string_equal(merged(&b, span), "m;x=13");
        assert_int_equal(count_rows(&b), 4);
        delete_some(&b, "d2", "{pod=\"a\"}", 0, 0);
        assert_string_equal(merged(&b, span), "m;x=3");
        purge_all(&b);
        assert_int_equal(count_rows(&b), 2);
        delete_some(&b, "d3", "{}", 0, 0);
        assert_string_equal(merged(&b, span), "");
        purge_all(&b);
        assert_int_equal(count_rows(&b), 0);
        store_bed_deinit(&b);
    }
}

static int check_store(struct store_bed *b, struct err *e)
{
    struct store_view *v = store_view_get(b->s);
    struct check_report r;
    int rc = store_check(v, &r, e);

    store_view_put(v);
    return rc;
}

/* The checker reads both kinds of rows, and finds a row that lost its counterpart, or contradicts
 * it. */
static void test_check(void **state)
{
    struct store_bed b;
    struct err e;

    (void)state;
    store_bed_init(&b, &OPTS);
    push_some(&b, store_bed_slot(&b) - 20);
    assert_int_equal(check_store(&b, &e), 0);
    for (size_t skip = 0; skip < 8; skip++) {
        for (int how = 0; how < 2; how++) {
            struct kv_iter *it = kv_iter_new(b.s->kv, NULL, KV_EXM, STR_NULL, STR_NULL);
            struct kv_batch *hurt = kv_batch_new(), *heal = kv_batch_new();
            struct buf value;

            for (size_t i = 0; i < skip; i++)
                kv_iter_next(it);
            buf_init(&value, MIB);
            buf_add_str(&value, kv_iter_value(it));
            value.ptr[1]++; /* the duration */
            if (how)
                kv_batch_put(hurt, KV_EXM, kv_iter_key(it), buf_str(&value));
            else
                kv_batch_del(hurt, KV_EXM, kv_iter_key(it));
            kv_batch_put(heal, KV_EXM, kv_iter_key(it), kv_iter_value(it));
            assert_int_equal(store_write_batch(b.s, hurt, true, &e), 0);
            assert_int_equal(check_store(&b, &e), ERR_CORRUPT);
            assert_int_equal(store_write_batch(b.s, heal, true, &e), 0);
            assert_int_equal(check_store(&b, &e), 0);
            kv_iter_free(it);
            kv_batch_free(hurt);
            kv_batch_free(heal);
            buf_deinit(&value);
        }
    }
    store_bed_deinit(&b);
}

/* Gauges say which leaves the exemplars stand in, and epochs of dictionaries meet in one answer. */
static void test_gauge_epochs(void **state)
{
    struct store_opts o = OPTS;
    struct store_bed b;
    struct bed_push p = { .type = "memory:inuse_space:bytes:space:bytes", .gauge = true };

    (void)state;
    o.epoch_nodes_max = 2;
    store_bed_init(&b, &o);
    p.slot = store_bed_slot(&b) - 20;
    for (p.wid = 1; p.wid < 9; p.wid++) {
        char stacks[64], exemplar[64];
        (void)snprintf(stacks, sizeof(stacks), "m;x%d=5 m;y=2", (int)p.wid % 4);
        (void)snprintf(exemplar, sizeof(exemplar), "1:" S1 ":m;x%d=5 m;y=1", (int)p.wid % 4);
        p.stacks = stacks;
        p.exemplars = exemplar;
        p.slot++;
        store_bed_push(&b, &p);
    }
    assert_string_equal(merged(&b, (struct ask){ SPAN, S1, NULL, p.type, 0, 0 }),
                        "m;x0=10 m;x1=10 m;x2=10 m;x3=10 m;y=8");
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),      cmocka_unit_test(test_keys_random),
        cmocka_unit_test(test_by_id),        cmocka_unit_test(test_list),
        cmocka_unit_test(test_list_below),   cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_dedupe),       cmocka_unit_test(test_retention),
        cmocka_unit_test(test_bounds),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_gauge_epochs), cmocka_unit_test(test_check),
        cmocka_unit_test(test_deletes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
