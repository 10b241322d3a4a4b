/* SPDX-License-Identifier: Apache-2.0
 *
 * Points of timelines and presence: bytes of presence as drawn, and rows gathered over many batches
 * beside plain maps in memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/state/commit.h"
#include "common/store/state/presence.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "tests/lib/store/store_bed.h"

#define GAUGE "memory:inuse_space:bytes::"

static struct prng rnd;
static struct store_bed bed;
static struct tl_rows *rows;
static struct buf row;
static struct err e;

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB, .wid_horizon_ms = 3600 * 1000 };
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    store_bed_init(&bed, &o);
    rows = tl_rows_new(bed.s->kv);
    buf_init(&row, MIB);
    /* Type 0 adds up, type 1 is a gauge. */
    struct bed_push p = { .wid = 1, .slot = store_bed_slot(&bed), .stacks = "a=1" };
    assert_int_equal(store_bed_push(&bed, &p), 1);
    p = (struct bed_push){
        .wid = 2, .slot = p.slot, .stacks = "a=1", .type = GAUGE, .gauge = true
    };
    assert_int_equal(store_bed_push(&bed, &p), 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tl_rows_free(rows);
    buf_deinit(&row);
    store_bed_deinit(&bed);
    return 0;
}

/* ---- presence rows ---- */

static void want_hex(const char *hex)
{
    char text[512];
    size_t n = 0;

    for (size_t i = 0; i < row.len - 4; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", (uint8_t)row.ptr[i]);
    assert_string_equal(text, hex);
}

static void test_presence_bytes(void **state)
{
    static struct presence p, back;
    static const uint32_t some[] = { 2, 3, 4, 10 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(some); i++)
        presence_set(&p, some[i]);
    presence_encode(&p, &row);
    want_hex("01000202030401");
    assert_int_equal(presence_decode(buf_str(&row), &back, &e), 0);
    assert_memory_equal(&p, &back, sizeof(p));
    for (size_t i = 0; i < row.len * 8; i++) {
        row.ptr[i / 8] ^= (char)(1 << i % 8);
        assert_int_equal(presence_decode(buf_str(&row), &back, &e), ERR_CORRUPT);
        row.ptr[i / 8] ^= (char)(1 << i % 8);
    }
    memset(&p, 0xff, sizeof(p));
    presence_encode(&p, &row);
    want_hex("01000100c043");
}

static void test_presence_random(void **state)
{
    static struct presence p, back;

    (void)state;
    for (int round = 0; round < 2000; round++) {
        double gap = prng_unit(&rnd), run = prng_unit(&rnd) * prng_unit(&rnd);
        bool on = prng_chance(&rnd, 0.5);
        memset(&p, 0, sizeof(p));
        presence_set(&p, (uint32_t)prng_below(&rnd, PRESENCE_LEAVES));
        for (uint32_t i = 0; i < PRESENCE_LEAVES; i++) {
            if (on)
                presence_set(&p, i);
            on = prng_chance(&rnd, on ? 1 - run : gap * gap);
        }
        presence_encode(&p, &row);
        assert_true(row.len <= PRESENCE_LEAVES / 8 + 6);
        assert_int_equal(presence_decode(buf_str(&row), &back, &e), 0);
        assert_memory_equal(&p, &back, sizeof(p));
    }
}

/* ---- gathered rows beside a model ---- */

#define SERIES       3
#define SPAN         (20 * 720) /* slots: 20 hours, so over a midnight or not */
#define LEVELS_MODEL 4          /* 0, 1, 2, 3 */

struct cell {
    uint64_t total, writes;
};
struct model {
    uint32_t base;                                 /* first slot */
    struct cell at[2][SERIES][LEVELS_MODEL][SPAN]; /* by group, series, level, point from base */
    bool leaf[2][SERIES][SPAN / LEAF_SLOTS];
};

static struct member member_of(uint64_t series, uint16_t ptype)
{
    return (struct member){ 1, 1, ptype, series };
}

static void put_batch(struct model *x)
{
    struct kv_batch *b = kv_batch_new();

    (void)x;
    assert_int_equal(tl_rows_put(rows, UINT32_MAX, b, &e), 0);
    assert_int_equal(store_write_batch(bed.s, b, false, &e), 0);
    kv_batch_free(b);
}

static void sealed(bool group, const struct member *m, const uint32_t floor[KEY_LEVELS], uint32_t t,
                   struct cell c)
{
    tl_rows_sealed(rows, floor,
                   &(struct tl_rows_point){
                       .m = m, .group = group, .t = t, .total = c.total, .writes = c.writes });
}

static void random_change(struct model *x, const uint32_t floor[KEY_LEVELS])
{
    bool group = prng_chance(&rnd, 0.5);
    size_t series = prng_below(&rnd, SERIES);
    struct member m = member_of(series + 1, 1);
    uint32_t at = (uint32_t)prng_below(&rnd, SPAN), t = x->base + at;
    uint64_t total = prng_below(&rnd, 1000), writes = 1 + prng_below(&rnd, 3);

    if (prng_chance(&rnd, 0.7)) {
        sealed(group, &m, floor, t, (struct cell){ total, writes });
        for (uint32_t l = 0; l < 2; l++) {
            struct cell *c = &x->at[group][series][l][at / LEVELS[l].tl_point];
            bool member1 = l == 1 && !group && t >= floor[0];
            if (t < floor[l] || member1)
                continue;
            c->total += total;
            c->writes += writes;
        }
        x->leaf[group][series][at / LEAF_SLOTS] = true;
        return;
    }
    uint32_t level = 2 + (uint32_t)prng_below(&rnd, 2), node = LEVELS[level].node;
    struct cell *c = &x->at[group][series][level][at / node];
    if (prng_chance(&rnd, 0.2)) {
        tl_rows_gone(rows, group, level, &m, t - at % node);
        *c = (struct cell){ 0 };
    } else {
        tl_rows_built(rows, &(struct tl_rows_point){ .m = &m,
                                                     .group = group,
                                                     .level = level,
                                                     .t = t - at % node,
                                                     .total = total,
                                                     .writes = writes });
        *c = (struct cell){ total, writes };
    }
}

struct seen {
    struct model *x;
    struct cell at[SERIES][SPAN];
    uint32_t level;
};

static int on_row(void *cookie, size_t i, uint32_t chunk, struct str value, struct err *err)
{
    struct seen *s = cookie;
    uint32_t width = LEVELS[s->level].tl_point;
    struct tl tl = { 0 };

    assert_int_equal(timeline_row_decode(value, LEVELS[s->level].tl_chunk / width, &tl, err), 0);
    vec_for (k, &tl.points) {
        uint32_t at = (chunk + tl.points.ptr[k].point * width - s->x->base) / width;
        if (at >= SPAN / width)
            fail_msg("a point behind the span");
        s->at[i][at] = (struct cell){ tl.points.ptr[k].total, tl.points.ptr[k].writes };
    }
    vec_free(&tl.points);
    return 0;
}

static void compare(struct model *x, bool group)
{
    static const uint64_t ids[SERIES] = { 1, 2, 3 };
    static struct seen s;
    struct store_view *v = store_view_get(bed.s);
    struct timeline_row_scan c = { .v = v,
                                   .tenant = 1,
                                   .scope = 1,
                                   .ptype = 1,
                                   .flags = group ? KEY_TL_GROUP : 0,
                                   .ids = ids,
                                   .len = SERIES,
                                   .from = x->base,
                                   .to = x->base + SPAN,
                                   .fn = on_row,
                                   .cookie = &s };

    for (c.level = 0; c.level < LEVELS_MODEL; c.level++) {
        memset(&s, 0, sizeof(s));
        s.x = x;
        s.level = c.level;
        assert_int_equal(timeline_row_scan(&c, &e), 0);
        for (size_t i = 0; i < SERIES; i++)
            assert_memory_equal(s.at[i], x->at[group][i][c.level], sizeof(s.at[i]));
    }
    c.level = 0;
    /* Presence of some of them in a part of the range. */
    c.len = 1 + prng_below(&rnd, SERIES);
    c.from += (uint32_t)prng_below(&rnd, SPAN / 2) / 2 * 2;
    c.to -= (uint32_t)prng_below(&rnd, SPAN / 2 - 10) / 2 * 2;
    roaring_bitmap_t *leaves = roaring_bitmap_create();
    assert_int_equal(presence_read(&c, leaves, &e), 0);
    for (uint32_t at = 0; at < SPAN / LEAF_SLOTS; at++) {
        uint32_t leaf = x->base / LEAF_SLOTS + at;
        bool want = false;
        for (size_t i = 0; i < c.len; i++)
            want = want || x->leaf[group][i][at];
        want = want && leaf >= c.from / LEAF_SLOTS && leaf < c.to / LEAF_SLOTS;
        assert_int_equal(roaring_bitmap_contains(leaves, leaf), want);
    }
    roaring_bitmap_free(leaves);
    store_view_put(v);
}

static void test_model(void **state)
{
    static struct model x;
    uint32_t floor[KEY_LEVELS] = { 0 };

    (void)state;
    memset(&x, 0, sizeof(x));
    x.base = store_bed_slot(&bed) / LEVELS[3].tl_chunk * LEVELS[3].tl_chunk +
             (uint32_t)prng_below(&rnd, 4) * 720 * 12;
    x.base -= x.base % 1440;
    floor[0] = x.base + SPAN / 3 / 120 * 120;
    floor[1] = x.base + SPAN / 5 / 120 * 120;
    for (int batch = 0; batch < 60; batch++) {
        for (size_t n = 1 + prng_below(&rnd, 60); n; n--)
            random_change(&x, floor);
        put_batch(&x);
    }
    compare(&x, false);
    compare(&x, true);
}

/* Minutes of a member are set from its slots, also over what stood there. */
static void test_minutes(void **state)
{
    static struct model x;
    uint32_t floor[KEY_LEVELS] = { 0 }, t = store_bed_slot(&bed) / 120 * 120;
    struct member m = member_of(9, 0);

    (void)state;
    for (int round = 0; round < 20; round++) {
        struct cell want[10] = { 0 };
        for (size_t n = prng_below(&rnd, 40); n; n--) {
            uint32_t at = (uint32_t)prng_below(&rnd, 120);
            uint64_t total = prng_below(&rnd, 1000);
            sealed(false, &m, floor, t + at, (struct cell){ total, 2 });
            want[at / 12].total += total;
            want[at / 12].writes += 2;
        }
        put_batch(&x);
        for (int again = 0; again < 2; again++) { /* the same a second time */
            assert_int_equal(tl_rows_minutes(rows, &m, t, &e), 0);
            put_batch(&x);
        }
        struct key k;
        struct tl tl = { 0 };
        key_tl(&k, 0, 1, &m, t - t % LEVELS[1].tl_chunk);
        int rc = kv_get(bed.s->kv, NULL, KV_TL, key_str(&k), &row, &e);
        if (rc != ERR_NOT_FOUND)
            assert_int_equal(timeline_row_decode(buf_str(&row), 120, &tl, &e), 0);
        struct cell have[10] = { 0 };
        vec_for (i, &tl.points) {
            uint32_t at = tl.points.ptr[i].point - t % LEVELS[1].tl_chunk / 12;
            if (at >= 10) /* of the nodes before */
                continue;
            have[at] = (struct cell){ tl.points.ptr[i].total, tl.points.ptr[i].writes };
        }
        assert_memory_equal(have, want, sizeof(have));
        vec_free(&tl.points);
        t += 120;
    }
}

/* Types that add up have no presence. */
static void test_no_presence(void **state)
{
    static const uint64_t ids[] = { 5 };
    uint32_t floor[KEY_LEVELS] = { 0 }, t = store_bed_slot(&bed);
    struct member m = member_of(5, 0);

    (void)state;
    sealed(true, &m, floor, t, (struct cell){ 1, 1 });
    put_batch(NULL);
    struct store_view *v = store_view_get(bed.s);
    roaring_bitmap_t *leaves = roaring_bitmap_create();
    struct timeline_row_scan c = { .v = v,
                                   .tenant = 1,
                                   .scope = 1,
                                   .ptype = 0,
                                   .flags = KEY_TL_GROUP,
                                   .ids = ids,
                                   .len = 1,
                                   .from = 0,
                                   .to = t + 10 };
    assert_int_equal(presence_read(&c, leaves, &e), 0);
    assert_int_equal(roaring_bitmap_get_cardinality(leaves), 0);
    roaring_bitmap_free(leaves);
    store_view_put(v);
}

/* A type that is not there is an error told when the batch is made. */
static void test_unknown_type(void **state)
{
    uint32_t floor[KEY_LEVELS] = { 0 };
    struct member m = member_of(5, 99);
    struct kv_batch *b = kv_batch_new();

    (void)state;
    sealed(false, &m, floor, 1000000, (struct cell){ 1, 1 });
    assert_int_equal(tl_rows_put(rows, UINT32_MAX, b, &e), ERR_NOT_FOUND);
    kv_batch_free(b);
}

/* ---- taking out ---- */

/* The point of slot t, zeros: none. */
static struct cell point_of(const struct member *m, uint32_t level, uint32_t t)
{
    uint32_t width = LEVELS[level].tl_point, chunk = t - t % LEVELS[level].tl_chunk;
    struct cell c = { 0 };
    struct tl tl = { 0 };
    struct key k;

    key_tl(&k, KEY_TL_GROUP, level, m, chunk);
    if (kv_get(bed.s->kv, NULL, KV_TL, key_str(&k), &row, &e))
        return c;
    assert_int_equal(timeline_row_decode(buf_str(&row), LEVELS[level].tl_chunk / width, &tl, &e),
                     0);
    assert_true(tl.points.len > 0);
    vec_for (i, &tl.points)
        if (tl.points.ptr[i].point == (t - chunk) / width)
            c = (struct cell){ tl.points.ptr[i].total, tl.points.ptr[i].writes };
    vec_free(&tl.points);
    return c;
}

/* What some members had, and a part of that taken out again, leaves what the others had. */
static void test_taken(void **state)
{
    struct member m = member_of(77, 0);
    uint32_t floor[KEY_LEVELS] = { 0 }, base = store_bed_slot(&bed) / 720 * 720;

    (void)state;
    floor[0] = base + 240;
    for (int round = 0; round < 20; round++, base += 720, floor[0] += 720) {
        struct cell want[2][720] = { { { 0 } } };
        struct {
            uint32_t at;
            struct cell had;
            bool goes;
        } seen[60];
        for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
            seen[i].at = (uint32_t)prng_below(&rnd, prng_chance(&rnd, 0.5) ? 720 : 30);
            seen[i].had = (struct cell){ prng_below(&rnd, 1000), 1 + prng_below(&rnd, 3) };
            seen[i].goes = prng_chance(&rnd, round == 7 ? 1 : 0.6);
            sealed(true, &m, floor, base + seen[i].at, seen[i].had);
            for (uint32_t l = 0; l < 2 && !seen[i].goes; l++) {
                struct cell *c = &want[l][seen[i].at / LEVELS[l].tl_point];
                c->total += base + seen[i].at >= floor[l] ? seen[i].had.total : 0;
                c->writes += base + seen[i].at >= floor[l] ? seen[i].had.writes : 0;
            }
        }
        put_batch(NULL);
        for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
            if (seen[i].goes)
                tl_rows_taken(rows, &m, floor, base + seen[i].at, seen[i].had.total,
                              seen[i].had.writes);
            if (prng_chance(&rnd, 0.2))
                put_batch(NULL);
        }
        put_batch(NULL);
        for (uint32_t l = 0; l < 2; l++)
            for (uint32_t at = 0; at < 720; at += LEVELS[l].tl_point) {
                struct cell c = point_of(&m, l, base + at), *w = &want[l][at / LEVELS[l].tl_point];
                assert_true(c.total == w->total && c.writes == w->writes);
            }
    }
}

static void take_refused(const struct member *m, uint32_t t, uint64_t total, uint64_t writes)
{
    uint32_t floor[KEY_LEVELS] = { 0 };
    struct kv_batch *b = kv_batch_new();

    tl_rows_taken(rows, m, floor, t, total, writes);
    assert_int_equal(tl_rows_put(rows, UINT32_MAX, b, &e), ERR_CORRUPT);
    tl_rows_reset(rows);
    kv_batch_free(b);
}

/* What is not there, or more than there is, cannot be taken; nor out of what stayed at 2^64-1. */
static void test_taken_refused(void **state)
{
    uint32_t floor[KEY_LEVELS] = { 0 }, t = store_bed_slot(&bed) / 720 * 720;
    struct member m = member_of(78, 0), never = member_of(79, 0);

    (void)state;
    sealed(true, &m, floor, t, (struct cell){ 100, 3 });
    sealed(true, &m, floor, t + 24, (struct cell){ UINT64_MAX, 3 });
    put_batch(NULL);
    take_refused(&never, t, 1, 1);     /* no row */
    take_refused(&m, t + 12, 1, 1);    /* no point */
    take_refused(&m, t, 101, 1);       /* more than the total */
    take_refused(&m, t, 100, 4);       /* more writes */
    take_refused(&m, t, 99, 3);        /* a total of no write would be left */
    take_refused(&m, t + 24, 1, 1);    /* the sum is not known */
    take_refused(&m, t + 720, 100, 3); /* the next row */
    assert_int_equal(point_of(&m, 0, t).total, 100);
    tl_rows_taken(rows, &m, floor, t, 100, 2); /* a push without samples is left */
    put_batch(NULL);
    assert_true(point_of(&m, 0, t).total == 0 && point_of(&m, 0, t).writes == 1);
    tl_rows_taken(rows, &m, floor, t, 0, 1);
    put_batch(NULL);
    assert_int_equal(point_of(&m, 0, t).writes, 0);
    assert_int_equal(point_of(&m, 1, t).writes, 0);
    assert_int_equal(point_of(&m, 1, t + 24).writes, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_presence_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_presence_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_minutes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_presence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unknown_type, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
