/* SPDX-License-Identifier: Apache-2.0
 *
 * Two deletes in one service: its days say where rows stand until the last of them is purged,
 * not the first. The whole of the service, which becomes a group between the two, begins behind
 * what the second one still has to take out of roll-ups.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"
#include "tests/lib/store/tomb_bed.h"

static struct store_bed bed;
static uint32_t now; /* slot, start of a minute */
static struct err e;

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
                            .group_drop = drop_pod,
                            .test = { .whole_after = 1 } };

    (void)state;
    store_bed_init(&bed, &o);
    now = store_bed_slot(&bed) / 12 * 12;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void push_to(const char *tenant, const char *labels, uint32_t slot, const char *stacks)
{
    static uint64_t wid;
    struct bed_push p = {
        .tenant = tenant, .labels = labels, .slot = slot, .wid = ++wid, .stacks = stacks
    };

    assert_int_equal(store_bed_push(&bed, &p), 1);
}

static void push(const char *labels, uint32_t slot, const char *stacks)
{
    push_to(NULL, labels, slot, stacks);
}

static void seal_later(void)
{
    clock_fake_advance(&bed.clock, INT64_C(300000));
    store_bed_seal(&bed);
}

/* Days of the service's only type; none: first > last. */
static struct days days_of_service(uint32_t tenant)
{
    struct days d = DAYS_NONE;
    struct key from, to;
    int rows = 0;

    key_table(&from, KEY_ACTIVE, tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it), rows++)
        assert_int_equal(days_read(kv_iter_value(it), &d, &e), 0);
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    assert_true(rows <= 1);
    return d;
}

/* Steps until so many deletes are left to purge. */
static void purge_until(size_t pending)
{
    bool more = true;

    for (int i = 0; i < 1000 && bed.s->tombs->pending > pending; i++)
        assert_int_equal(store_purge(bed.s, 10, &more, &e), 0);
    assert_int_equal(bed.s->tombs->pending, pending);
}

static const char *merge(void)
{
    return store_bed_merge(&bed, NULL, "{}", NULL, now - DAY_SLOTS * 10, now + 1000);
}

/* Pods a and b are deleted, c in another zone comes when a is purged and b is not. */
static void between(uint32_t slot_of_c, uint32_t since_min)
{
    struct group_service g;
    struct tomb_stats st;

    push("pod=a,zone=x", now, "m;f=1");
    push("pod=b,zone=x", now, "m;f=10");
    seal_later();
    struct days before = days_of_service(1);
    struct tomb_result a = tomb_bed_delete(&bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    struct tomb_result b = tomb_bed_delete(&bed, NULL, "{pod=\"b\"}", 0, 0, NULL);
    assert_int_equal(a.kind, TOMB_SERIES);
    assert_int_equal(b.kind, TOMB_SERIES);
    purge_until(1);
    struct days d = days_of_service(1);
    assert_int_equal(d.first, before.first);
    assert_int_equal(d.last, before.last);
    store_bed_reopen(&bed, KV_MEM_KILL, 0); /* memory and disk say the same */

    push("pod=c,zone=x", slot_of_c, "m;g=100");
    push("pod=c,zone=y", slot_of_c, "m;g=1000");
    assert_int_equal(group_service_get(bed.s->kv, NULL, 1, 1, &g, &e), 0);
    assert_true(g.since[GROUP_WHOLE] != GROUP_NEVER && g.since[GROUP_WHOLE] >= since_min);
    seal_later();
    steps_check(&bed);
    purge_until(0);
    store_delete_stats(bed.s, &st);
    assert_int_equal(st.rollups_restarted, 0);
    assert_string_equal(merge(), "m;g=1100");
    steps_check(&bed);
}

static void test_later(void **state)
{
    (void)state;
    between(now + 24, now + 1);
    struct days d = days_of_service(1);
    assert_int_equal(d.first, now / DAY_SLOTS);
}

/* Nothing stands at the days of the deleted any more: they shrink with the second delete. */
static void test_days_before(void **state)
{
    (void)state;
    between(now - DAY_SLOTS * 5, now + 1);
    struct days d = days_of_service(1);
    assert_int_equal(d.first, now / DAY_SLOTS - 5);
    assert_int_equal(d.last, now / DAY_SLOTS - 5);
}

/* Where the second delete is of another service, the first one's days shrink at once. */
static void test_other_service(void **state)
{
    (void)state;
    push("pod=a", now, "m;f=1");
    push("pod=b", now - DAY_SLOTS * 3, "m;f=10");
    seal_later();
    push_to("u", "pod=a", now, "m;f=5");
    push_to("u", "pod=b", now, "m;f=6");
    seal_later();
    (void)tomb_bed_delete(&bed, "t", "{pod=\"a\"}", 0, 0, NULL);
    (void)tomb_bed_delete(&bed, "u", "{pod=\"a\"}", 0, 0, NULL);
    purge_until(1);
    struct days d = days_of_service(1);
    assert_int_equal(d.last, now / DAY_SLOTS - 3);
    purge_until(0);
    steps_check(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_days_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_other_service, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
