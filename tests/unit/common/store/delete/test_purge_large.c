/* SPDX-License-Identifier: Apache-2.0
 *
 * A large service loses a few of its series: the work of correcting its roll-ups is that of the
 * few, and afterwards a long range reads as few rows as before, not those of every member that is
 * left. Answers are compared with sums kept here, and with what members say. And a roll-up above
 * its base level that is made again from its children has the bytes it had.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/slot.h"
#include "common/store/build/rollup_build.h"
#include "common/store/catalog/group.h"
#include "common/store/check/check.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "tests/lib/store/rollup_check.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

#define PODS   1000
#define GONE   10 /* pod-0 .. pod-9 */
#define STACKS 7
#define ALL    "{service_name=\"svc\"}"
#define HOURS  60

static struct store_bed bed;
static struct err e;
static uint32_t start; /* slot of the first push */
static uint64_t want[2][STACKS];

static struct group_drop drop_pod(void *cookie, struct str tenant)
{
    static const struct str pod = { "pod", 3 };

    (void)cookie, (void)tenant;
    return (struct group_drop){ &pod, 1 };
}

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600 * 1000,
                            .build_all = true,
                            .group_drop = drop_pod };

    (void)state;
    memset(want, 0, sizeof(want));
    store_bed_init(&bed, &o);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

/* ---- data ---- */

/* `zones` groups; each pod every `every` hours, one stack of STACKS at a time. */
static void push_hour(uint32_t hour, uint32_t pods, uint32_t zones, uint32_t every)
{
    static uint64_t wid;
    char labels[64], stacks[64];

    for (uint32_t p = 0; p < pods; p++) {
        if ((p + hour) % every)
            continue;
        uint32_t stack = (p * 3 + hour) % STACKS;
        uint64_t value = 1 + (p * 31 + hour * 17) % 97;
        (void)snprintf(labels, sizeof(labels), "pod=pod-%u,zone=z%u", p, p % zones);
        (void)snprintf(stacks, sizeof(stacks), "main;f%u=%" PRIu64, stack, value);
        struct bed_push push = {
            .wid = ++wid, .slot = store_bed_slot(&bed) + p % 700, .labels = labels, .stacks = stacks
        };
        assert_int_equal(store_bed_push(&bed, &push), 1);
        want[p < GONE][stack] += value;
    }
}

static void build_all(void)
{
    for (int i = 0; i < 4; i++) {
        clock_fake_advance(&bed.clock, 3600000);
        store_bed_seal(&bed);
    }
    clock_fake_advance(&bed.clock, INT64_C(3600000) * 24 * 80); /* 64 days are over */
    store_bed_seal(&bed);
    for (int i = 0; i < 100000 && steps_build(&bed, 1000); i++)
        ;
    steps_check(&bed);
}

static void fill(uint32_t pods, uint32_t zones, uint32_t every)
{
    start = store_bed_slot(&bed);
    for (uint32_t h = 0; h < HOURS; h++) {
        push_hour(h, pods, zones, every);
        clock_fake_advance(&bed.clock, 3600000);
        store_bed_seal(&bed);
    }
    build_all();
}

/* ---- questions ---- */

/* What the service did in slots [from, to), in words; *ret_rows: rows read for it. */
static const char *read_range(uint32_t from, uint32_t to, bool members, uint64_t *ret_rows)
{
    struct arena *a = arena_new(MIB);
    struct selector s;
    struct stacks st;
    struct store_merge got = { .stacks = &st };

    assert_int_equal(selector_parse(STR(ALL), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = {
        .tenant = STR("t"),
        .selector = &s,
        .profile_type = STR(BED_CPU),
        .start_ms = slot_to_ms(from),
        .end_ms = slot_to_ms(to),
        .members = members,
    };
    stacks_init(&st, 64 * MIB, 1);
    struct store_view *v = store_view_get(bed.s);
    if (store_merge(v, &q, &got, &e))
        fail_msg("merge: %s", e.text);
    store_view_put(v);
    const char *text = store_bed_text(&got);
    *ret_rows = got.rows;
    store_merge_deinit(&got);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return text;
}

/* Rows read for all of the service and its time; the answer must be `want`. */
static uint64_t ask(bool gone_too, bool members)
{
    char text[512] = "";
    uint64_t rows;
    size_t n = 0;

    for (uint32_t i = 0; i < STACKS; i++) {
        uint64_t value = want[0][i] + (gone_too ? want[1][i] : 0);
        if (value)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%smain;f%u=%" PRIu64, n ? " " : "",
                                  i, value);
    }
    assert_string_equal(
        read_range(start / DAY_SLOTS * DAY_SLOTS, store_bed_slot(&bed), members, &rows), text);
    return rows;
}

/* Ranges that begin and end anywhere, so all levels are read: groups say what members do. */
static void ask_parts(void)
{
    char text[512];
    uint64_t groups = 0, members = 0, rows;

    for (uint32_t i = 0; i < 20; i++) {
        uint32_t from = start + i * 211, to = start + (HOURS - 3) * 720 + i * 97;
        (void)snprintf(text, sizeof(text), "%s", read_range(from, to, true, &rows));
        members += rows;
        assert_string_equal(read_range(from, to, false, &rows), text);
        groups += rows;
    }
    assert_true(groups * 5 < members);
    printf("in parts: rows of groups %" PRIu64 ", of members %" PRIu64 "\n", groups, members);
}

static void check_all(void)
{
    struct rollup_counts counts = { 0 };
    struct store_view *v = store_view_get(bed.s);

    rollup_check(v, &counts);
    store_view_put(v);
    steps_check(&bed);
    assert_true(counts.vectors > 0);
}

static void lose_some(uint32_t pods, uint32_t zones, uint32_t every)
{
    struct tomb_stats st;

    fill(pods, zones, every);
    uint64_t before = ask(true, false), each = ask(true, true);
    assert_true(before < pods / 10 && each >= pods);
    struct tomb_result r =
        tomb_bed_delete(&bed, NULL, "{service_name=\"svc\",pod=~\"pod-.\"}", 0, 0, NULL);
    assert_int_equal(r.kind, TOMB_SERIES);
    assert_int_equal(r.series, GONE);
    uint64_t masked = ask(false, false);
    size_t rows = tomb_bed_keys(&bed, 1, 0, 0);
    assert_true(masked >= pods - GONE);
    (void)tomb_bed_purge(&bed, 500);
    uint64_t after = ask(false, false);
    store_delete_stats(bed.s, &st);
    printf("%u pods in %u groups: rows read %" PRIu64 ", while purged %" PRIu64 ", after %" PRIu64
           " (of members %" PRIu64 "); rows purged %" PRIu64 " of %zu\n",
           pods, zones, before, masked, after, ask(false, true), st.rows, rows);
    /* A node that had four members in a group of few may now be a list, which reads three. */
    assert_true(after <= before + 3 * (zones - 1) && after * 10 < pods);
    ask_parts();
    assert_int_equal(st.rollups_restarted, 0);
    assert_true(st.rows * 10 < rows);
    check_all();
    /* What comes later stands beside it: also of new series with the names of the deleted. */
    memset(want[1], 0, sizeof(want[1]));
    push_hour(HOURS, pods, zones, every);
    build_all();
    assert_true(ask(true, false) < pods / 10);
    check_all();
}

static void test_one_group(void **state)
{
    (void)state;
    lose_some(PODS, 1, 6);
}

/* More than eight groups, so that there is a sum of them, too. */
static void test_many_groups(void **state)
{
    (void)state;
    lose_some(600, 12, 4);
}

/* ---- made again ---- */

struct node {
    struct member m;
    uint32_t t;
};
typedef VEC(struct node) nodes;

static void list_nodes(uint32_t want_level, nodes *ret)
{
    uint32_t level, entry;
    struct node n;

    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_RU, STR_NULL, STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        assert_true(key_ru_read(kv_iter_key(it), &level, &n.m, &n.t, &entry));
        if (level == want_level)
            vec_push(ret, n);
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
}

/* All rows of roll-ups, their functions and points. */
static void dump(struct buf *out)
{
    static const enum kv_cf of[] = { KV_RU, KV_FN, KV_TL };

    buf_reset(out);
    for (size_t i = 0; i < ARRAY_LEN(of); i++) {
        struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, of[i], STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            assert_true(buf_add(out, kv_iter_key(it).ptr, kv_iter_key(it).len));
            assert_true(buf_add(out, kv_iter_value(it).ptr, kv_iter_value(it).len));
        }
        assert_int_equal(kv_iter_status(it, &e), 0);
        kv_iter_free(it);
    }
}

static void write_batch(struct kv_batch *b)
{
    assert_int_equal(tl_rows_put(bed.s->tl_rows, UINT32_MAX, b, &e), 0);
    assert_int_equal(store_write_batch(bed.s, b, false, &e), 0);
    kv_batch_clear(b);
}

static void drop_nodes(uint32_t level, const nodes *n, struct kv_batch *b)
{
    vec_for (i, n)
        rollup_drop(bed.s, level, &n->ptr[i].m, n->ptr[i].t, b);
    write_batch(b);
}

/* Every level above the minutes is dropped and made again, with the same lists, vectors, functions
 * and points. */
static void test_again(void **state)
{
    struct rollup_rebuild *x = rollup_rebuild_new(bed.s);
    struct kv_batch *b = kv_batch_new();
    nodes all[KEY_LEVELS] = { 0 };
    struct buf before, after;
    size_t whole = 0; /* rows of the sum of all groups */

    (void)state;
    fill(60, 20, 5);
    buf_init(&before, GIB);
    buf_init(&after, GIB);
    dump(&before);
    for (uint32_t l = 2; l < KEY_LEVELS; l++) {
        list_nodes(l, &all[l]);
        vec_for (i, &all[l])
            whole += GID_DIM(all[l].ptr[i].m.series) == GROUP_WHOLE;
        drop_nodes(l, &all[l], b);
    }
    dump(&after);
    assert_true(after.len < before.len && whole > 0 && all[7].len == 20);
    for (uint32_t l = 2; l < KEY_LEVELS; l++) {
        vec_for (i, &all[l])
            assert_int_equal(rollup_rebuild(x, l, &all[l].ptr[i].m, all[l].ptr[i].t, b, &e), 0);
        write_batch(b);
    }
    dump(&after);
    assert_int_equal(after.len, before.len);
    assert_memory_equal(after.ptr, before.ptr, before.len);
    steps_check(&bed);
    buf_deinit(&before);
    buf_deinit(&after);
    kv_batch_free(b);
    rollup_rebuild_free(x);
    for (uint32_t l = 2; l < KEY_LEVELS; l++)
        vec_free(&all[l]);
}

/* Without children there is no row; a child that is damaged is an error that says where. */
static void test_again_of_nothing(void **state)
{
    struct rollup_rebuild *x = rollup_rebuild_new(bed.s);
    struct kv_batch *b = kv_batch_new();
    nodes two = { 0 }, three = { 0 }, left = { 0 };
    struct key k;

    (void)state;
    fill(60, 20, 5);
    list_nodes(2, &two);
    list_nodes(3, &three);
    drop_nodes(2, &two, b);
    for (size_t i = 0; i < three.len; i++)
        assert_int_equal(rollup_rebuild(x, 3, &three.ptr[i].m, three.ptr[i].t, b, &e), 0);
    write_batch(b);
    list_nodes(3, &left);
    assert_int_equal(left.len, 0);
    key_ru(&k, 2, &two.ptr[0].m, two.ptr[0].t);
    kv_batch_put(b, KV_RU, key_str(&k), STR("damaged"));
    write_batch(b);
    uint32_t t = two.ptr[0].t - two.ptr[0].t % LEVELS[3].node;
    assert_int_equal(rollup_rebuild(x, 3, &two.ptr[0].m, t, b, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "of level 3"));
    kv_batch_free(b);
    rollup_rebuild_free(x);
    vec_free(&two);
    vec_free(&three);
    vec_free(&left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(test_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_again_of_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
