/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups as pushes make them, seen through the rows and through what queries read.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/catalog/group.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/rollup_check.h"
#include "tests/lib/store/store_bed.h"
#include "tests/lib/store/store_steps.h"

static struct err e;
static uint64_t wid;

static void push(struct store_bed *b, const char *labels, uint32_t slot)
{
    struct bed_push p = { .labels = labels, .stacks = "a;b=1", .slot = slot, .wid = ++wid };

    assert_int_equal(store_bed_push(b, &p), 1);
}

static struct group_service service(struct store_bed *b)
{
    struct group_service g;

    assert_int_equal(group_service_get(b->s->kv, NULL, 1, 1, &g, &e), 0);
    return g;
}

static struct group_rule rule(struct store_bed *b, uint32_t number, struct buf *row)
{
    struct group_rule r;
    struct key k;

    key_rule_number(&k, 1, 1, number);
    assert_int_equal(kv_get(b->s->kv, NULL, KV_META, key_str(&k), row, &e), 0);
    assert_int_equal(group_rule_read(buf_str(row), &r, &e), 0);
    return r;
}

static uint64_t rows_of(struct store_bed *b, const char *selector, uint32_t from, uint32_t to)
{
    struct arena *a = arena_new(MIB);
    struct store_merge m = { 0 };
    struct selector s;
    struct stacks st;

    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    assert_int_equal(selector_compile(&s, &e), 0);
    struct store_query q = { .tenant = STR("t"),
                             .selector = &s,
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(from),
                             .end_ms = slot_to_ms(to) };
    struct store_view *v = store_view_get(b->s);
    stacks_init(&st, MIB, 1);
    m.stacks = &st;
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    uint64_t rows = m.rows;
    store_merge_deinit(&m);
    store_view_put(v);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return rows;
}

static void check(struct store_bed *b)
{
    struct rollup_counts c = { 0 };
    struct store_view *v = store_view_get(b->s);

    rollup_check(v, &c);
    store_view_put(v);
}

static void seal(struct store_bed *b)
{
    for (int i = 0; i < 4; i++) {
        clock_fake_advance(&b->clock, 60000);
        store_bed_seal(b);
    }
}

static void rows_as_drawn(void **state)
{
    static const uint8_t service_row[] = { 1,    0,    0,    0,    1, 0, 0, 0, 3,
                                           0x02, 0x3c, 0x34, 0x60, 0, 0, 0, 0 };
    static const uint8_t rule_row[] = { 1, 0, 0,   0,   0,   2,   1,   3,   'p', 'o', 'd',
                                        0, 8, 'i', 'n', 's', 't', 'a', 'n', 'c', 'e' };
    static const uint8_t of_row[] = { 1, 1, 0, 0, 0, 1, 0, 0, 0, 2 };
    struct group_service g = { 1, 3, { 37500000, 0 } };
    struct group_rule r = { .names = { STR("pod"), STR("instance") },
                            .flags = { GROUP_SEEN, 0 },
                            .len = 2 };
    struct group_of of = { 1, 2 };
    struct buf row;

    (void)state;
    buf_init(&row, KIB);
    group_service_put(&g, &row);
    assert_int_equal(row.len, sizeof(service_row));
    assert_memory_equal(row.ptr, service_row, row.len);
    group_rule_put(&r, &row);
    assert_int_equal(row.len, sizeof(rule_row));
    assert_memory_equal(row.ptr, rule_row, row.len);
    group_of_put(&of, 1, &row);
    assert_int_equal(row.len, sizeof(of_row));
    assert_memory_equal(row.ptr, of_row, row.len);
    assert_int_equal(group_rule_drops(&r, STR("pod")), 0);
    assert_int_equal(group_rule_drops(&r, STR("podx")), -1);
    r.names[1] = STR("*");
    assert_int_equal(group_rule_drops(&r, STR("zone")), 1);
    assert_int_equal(group_rule_drops(&r, STR("service_name")), -1);
    buf_deinit(&row);
}

/* Forty pods, one group: a minute is one row, whatever the number of pods. */
static void pods_cost_one(void **state)
{
    struct store_opts o = { .dict_bytes_max = MIB, .wid_horizon_ms = 3600000 };
    struct store_bed b;
    char labels[64];

    (void)state;
    store_bed_init(&b, &o);
    uint32_t slot = store_bed_slot(&b) / 120 * 120;
    for (int pod = 0; pod < 40; pod++) {
        (void)snprintf(labels, sizeof(labels), "pod=p%d,zone=z", pod);
        for (uint32_t i = 0; i < 3; i++)
            push(&b, labels, slot + i * 2);
    }
    assert_int_equal(service(&b).next, 1);
    assert_int_equal(rows_of(&b, "{}", slot, slot + 12), 120); /* unsealed */
    seal(&b);
    assert_int_equal(rows_of(&b, "{}", slot, slot + 12), 1);
    assert_int_equal(rows_of(&b, "{zone=\"z\"}", slot, slot + 4), 2); /* ROLLED0: by leaf */
    assert_int_equal(rows_of(&b, "{zone!=\"z\"}", slot, slot + 12), 0);
    assert_int_equal(rows_of(&b, "{host=\"\"}", slot, slot + 12), 1); /* no series has a host */
    assert_int_equal(rows_of(&b, "{pod=~\"p[0-4]\"}", slot, slot + 12), 15);
    check(&b);
    store_bed_deinit(&b);
}

/* Too many groups: the label with the most values goes; what was grouped stays where it was. */
static void too_many(void **state)
{
    struct store_opts o = { .dict_bytes_max = MIB,
                            .wid_horizon_ms = 3600000,
                            .test = { .groups_max = 4, .whole_after = 100 } };
    struct store_bed b;
    struct buf row;
    char labels[64];

    (void)state;
    buf_init(&row, MIB);
    store_bed_init(&b, &o);
    uint32_t slot = store_bed_slot(&b) / 120 * 120;
    for (int i = 0; i < 20; i++) {
        (void)snprintf(labels, sizeof(labels), "request=r%d,zone=z%d", i, i % 2);
        push(&b, labels, slot);
    }
    struct group_rule r = rule(&b, 1, &row);
    int at = group_rule_drops(&r, STR("request"));
    assert_true(at >= 0 && r.flags[at] == (GROUP_SEEN | GROUP_VARIED));
    assert_int_equal(group_rule_drops(&r, STR("zone")), -1);
    assert_int_equal(service(&b).next, 6); /* four with, two without it */
    store_bed_reopen(&b, KV_MEM_KILL, 0);
    push(&b, "request=r1,zone=z1", slot);
    push(&b, "request=r77,zone=z1", slot);
    assert_int_equal(service(&b).next, 6);
    seal(&b);
    assert_int_equal(rows_of(&b, "{}", slot, slot + 12), 6);
    assert_int_equal(rows_of(&b, "{zone=\"z1\"}", slot, slot + 12), 3);
    assert_int_equal(rows_of(&b, "{request=\"r1\"}", slot, slot + 12), 1);
    assert_int_equal(rows_of(&b, "{request=~\"r1|r77.*\"}", slot, slot + 12), 2); /* members */
    check(&b);
    store_bed_deinit(&b);
    buf_deinit(&row);
}

static const struct str POD[] = { { "pod", 3 } };
static const struct str ZONE[] = { { "zone", 4 } };
static struct group_drop dropped;

static struct group_drop drop(void *cookie, struct str tenant)
{
    (void)cookie;
    (void)tenant;
    return dropped;
}

/* Another rule holds from behind everything on; late data still go where their time belongs. */
static void rules_follow(void **state)
{
    struct store_opts o = { .dict_bytes_max = MIB, .wid_horizon_ms = 36000000, .group_drop = drop };
    struct store_bed b;
    struct buf row;

    (void)state;
    buf_init(&row, MIB);
    dropped = (struct group_drop){ POD, 1 };
    store_bed_init(&b, &o);
    uint32_t slot = store_bed_slot(&b) / 120 * 120;
    push(&b, "pod=a,zone=x", slot);
    push(&b, "pod=b,zone=x", slot);
    dropped = (struct group_drop){ ZONE, 1 };
    push(&b, "pod=a,zone=x", slot + 12);
    assert_int_equal(service(&b).next, 1); /* the rule has not begun */
    seal(&b);
    for (int i = 0; i < 8; i++) {
        clock_fake_advance(&b.clock, 200000);
        store_bed_seal(&b);
    }
    uint32_t now = store_bed_slot(&b);
    push(&b, "pod=a,zone=x", now);
    push(&b, "pod=b,zone=x", now + 1);
    struct group_rule r = rule(&b, 2, &row);
    assert_true(r.since > slot + 12 && r.since % 120 == 0 && r.since <= slot + 240);
    assert_int_equal(service(&b).next, 3);
    push(&b, "pod=b,zone=y", slot); /* late, by the first rule */
    assert_int_equal(service(&b).next, 4);
    store_bed_reopen(&b, KV_MEM_KILL, 0);
    push(&b, "pod=b,zone=y", slot + 1);
    assert_int_equal(service(&b).rules, 2);
    assert_int_equal(service(&b).next, 4);
    seal(&b);
    check(&b);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, slot, now + 12), "a;b=7");
    assert_string_equal(store_bed_merge(&b, NULL, "{pod=\"b\"}", NULL, slot, now + 12), "a;b=4");
    assert_string_equal(store_bed_merge(&b, NULL, "{zone=\"y\"}", NULL, slot, now + 12), "a;b=2");
    store_bed_deinit(&b);
    buf_deinit(&row);
}

static void hours(struct store_bed *b, int n)
{
    for (int i = 0; i < n; i++) {
        clock_fake_advance(&b->clock, 3600000);
        store_bed_seal(b);
    }
    clock_fake_advance(&b->clock, 60000);
    for (int i = 0; i < 1000 && steps_build(b, 1000); i++)
        ;
}

/* A rule is on disk when the request that found it is, even before a node needs it: nodes in which
 * it begins are built by it. */
static void rule_at_once(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = MIB, .wid_horizon_ms = 36000000, .group_drop = drop, .build_all = true
    };
    struct store_bed b;
    struct buf row;

    (void)state;
    buf_init(&row, MIB);
    dropped = (struct group_drop){ POD, 1 };
    store_bed_init(&b, &o);
    clock_fake_advance(&b.clock, 3600000 - BED_START_MS % 3600000 + 300000);
    uint32_t slot = store_bed_slot(&b);
    push(&b, "pod=a,zone=x", slot);
    dropped = (struct group_drop){ ZONE, 1 };
    push(&b, "pod=a,zone=x", slot + 1);
    assert_int_equal(service(&b).rules, 2);
    struct group_rule r = rule(&b, 2, &row);
    assert_true(r.since > slot + 1 && r.since <= slot + 1 + 120);
    hours(&b, 3);
    steps_check(&b);
    push(&b, "pod=a,zone=x", store_bed_slot(&b));
    hours(&b, 3);
    steps_check(&b);
    store_bed_deinit(&b);
    buf_deinit(&row);
}

/* A failed request has written no rule; the request that does may come hours later, when nodes in
 * between have been built. */
static void rule_put_off(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = MIB, .wid_horizon_ms = 36000000, .group_drop = drop, .build_all = true
    };
    struct group_scope *scope;
    struct store_bed b;
    struct buf row;

    (void)state;
    buf_init(&row, MIB);
    dropped = (struct group_drop){ POD, 1 };
    store_bed_init(&b, &o);
    clock_fake_advance(&b.clock, 3600000 - BED_START_MS % 3600000 + 300000);
    uint32_t slot = store_bed_slot(&b);
    push(&b, "pod=a,zone=x", slot);
    dropped = (struct group_drop){ ZONE, 1 };
    struct group_push again = { .tenant = 1, .tenant_name = STR("t"), .scope = 1, .now = slot };
    assert_int_equal(groups_scope(b.s->groups, &again, &scope, &e), 0);
    assert_int_equal(service(&b).rules, 1);
    hours(&b, 3);
    uint32_t later = store_bed_slot(&b);
    push(&b, "pod=b,zone=x", slot + 1); /* late, by the first rule */
    assert_int_equal(service(&b).rules, 2);
    struct group_rule r = rule(&b, 2, &row);
    assert_true(r.since >= later && r.since < later + 120);
    hours(&b, 3);
    push(&b, "pod=a,zone=x", r.since);
    r = rule(&b, 2, &row); /* it stays where it began */
    assert_true(r.since >= later && r.since < later + 120);
    hours(&b, 3);
    steps_check(&b);
    check(&b);
    store_bed_deinit(&b);
    buf_deinit(&row);
}

/* The whole service is a group from a time on that no data have reached. */
static void whole_service(void **state)
{
    struct store_opts o = { .dict_bytes_max = MIB, .wid_horizon_ms = 36000000 };
    struct store_bed b;
    char labels[64];

    (void)state;
    store_bed_init(&b, &o);
    uint32_t slot = store_bed_slot(&b) / 120 * 120;
    for (int i = 0; i < 12; i++) {
        (void)snprintf(labels, sizeof(labels), "zone=z%d", i);
        push(&b, labels, slot + 5);
    }
    uint32_t since = service(&b).since[GROUP_WHOLE];
    assert_int_equal(since, slot + 120);
    for (int i = 0; i < 5; i++) {
        clock_fake_advance(&b.clock, 200000);
        store_bed_seal(&b);
    }
    for (int i = 0; i < 12; i++) {
        (void)snprintf(labels, sizeof(labels), "zone=z%d", i);
        push(&b, labels, since + 5);
    }
    seal(&b);
    check(&b);
    assert_int_equal(rows_of(&b, "{}", slot, slot + 12), 12);
    assert_int_equal(rows_of(&b, "{}", since, since + 12), 1);
    assert_int_equal(rows_of(&b, "{}", slot, since + 12), 13);
    assert_int_equal(rows_of(&b, "{zone=\"z3\"}", slot, since + 12), 2);
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_as_drawn), cmocka_unit_test(pods_cost_one),
        cmocka_unit_test(too_many),      cmocka_unit_test(rules_follow),
        cmocka_unit_test(rule_at_once),  cmocka_unit_test(rule_put_off),
        cmocka_unit_test(whole_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
