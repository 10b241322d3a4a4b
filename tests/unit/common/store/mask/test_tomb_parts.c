/* SPDX-License-Identifier: Apache-2.0
 *
 * Deletes of more unsealed rows than fit one batch: they are done in parts. The checker finds each
 * part right, and no answer says that the delete is done before the last. A caller that stops
 * halfway continues by sending the request again; rows outside the delete stay; rows of a deleted
 * part are no duplicates behind the delete.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/store/kv/kv_impl.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/tomb_bed.h"

#define PUSHES 120 /* of each service */
#define TIMES  20  /* rows of a push, over three minutes */

static struct store_bed bed;
static uint32_t now;
static struct err e;

static int setup(void **state)
{
    (void)state;
    now = tomb_bed_init(&bed, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static int push(const char *service, uint64_t wid)
{
    char labels[32];

    (void)snprintf(labels, sizeof(labels), "pod=%s", wid % 2 ? "a" : "b");
    return store_bed_push(&bed, &(struct bed_push){ .service = service,
                                                    .labels = labels,
                                                    .slot = now,
                                                    .wid = wid,
                                                    .stacks = "m;x=1",
                                                    .times = TIMES,
                                                    .every = 2 });
}

static void fill(void)
{
    for (uint64_t i = 0; i < PUSHES; i++) {
        push("api", 1 + 2 * i);
        push("api", 2 + 2 * i);
        push("db", 100001 + 2 * i);
    }
    bed.s->kv->batch_max = 160 * KIB; /* and so parts of 40 KiB */
}

static uint64_t sum(const char *selector)
{
    const char *text = store_bed_merge(&bed, NULL, selector, NULL, now - 1000, now + 1000);
    unsigned long long n = 0;

    return sscanf(text, "m;x=%llu", &n) == 1 ? n : 0;
}

static size_t listed(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct arena *a = arena_new(MIB);
    struct tomb_list l;

    assert_int_equal(store_deletes(v, STR_NULL, a, &l, &e), 0);
    size_t n = l.at.len;
    tomb_list_deinit(&l);
    arena_free(a);
    store_view_put(v);
    return n;
}

/* In parts, with a restart in the middle if asked for. `left`: of what the selector means, and of
 * all. */
static void in_parts(const char *selector, uint32_t from, uint32_t to, bool crash, uint64_t meant,
                     uint64_t other)
{
    struct tomb_result r = { .more = true };
    uint64_t parts = 0, rows = 0;

    assert_int_equal(sum("{}"), meant + other);
    while (r.more) {
        uint64_t before = sum("{}");
        if (tomb_bed_try(&bed, NULL, selector, from, to, "one", &r, &e))
            fail_msg("delete: %s", e.text);
        assert_false(store_read_only(bed.s));
        rows += r.raw_rows;
        tomb_bed_check(&bed);
        if (!r.more)
            break;
        parts++;
        assert_true(r.raw_rows > 0 && !r.repeated);
        assert_int_equal(sum("{}"), before - r.raw_rows); /* each row is one sample */
        assert_int_equal(listed(), 0);
        if (crash && parts == 2) {
            store_bed_reopen(&bed, KV_MEM_POWER, 0);
            bed.s->kv->batch_max = 160 * KIB;
        }
    }
    assert_true(parts > 3);
    assert_int_equal(rows, meant);
    assert_int_equal(sum("{}"), other);
    assert_int_equal(listed(), 1);
    assert_int_equal(tomb_bed_try(&bed, NULL, selector, from, to, "one", &r, &e), 0);
    assert_true(r.repeated && !r.more);
    clock_fake_advance(&bed.clock, 6 * INT64_C(60000));
    bed.s->kv->batch_max = 0;
    store_bed_seal(&bed);
    tomb_bed_purge(&bed, 100);
    tomb_bed_check(&bed);
    assert_int_equal(sum("{}"), other);
}

#define ALL ((uint64_t)PUSHES * TIMES)

static void test_tenant(void **state)
{
    (void)state;
    fill();
    in_parts("", 0, 0, false, 3 * ALL, 0);
    assert_int_equal(push("api", 1), 1);
    assert_int_equal(sum("{}"), TIMES);
}

static void test_service(void **state)
{
    (void)state;
    fill();
    in_parts("{service_name=\"api\"}", 0, 0, true, 2 * ALL, ALL);
    assert_int_equal(push("api", 1), 1); /* of the first part */
    assert_int_equal(push("db", 100001), 0);
    assert_int_equal(sum("{}"), ALL + TIMES);
}

static void test_series(void **state)
{
    (void)state;
    fill();
    in_parts("{pod=\"a\"}", 0, 0, true, 2 * ALL, ALL);
    assert_int_equal(push("api", 1), 1);
    assert_int_equal(push("api", 2), 0);
}

/* A part of each push: the rest of it is there, so it stays a duplicate. */
static void test_range(void **state)
{
    (void)state;
    fill();
    in_parts("{service_name=\"api\"}", now, now + 24, true, 2 * PUSHES * 12,
             3 * ALL - 2 * PUSHES * 12);
    assert_int_equal(push("api", 1), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { T(test_tenant), T(test_service), T(test_series),
                                        T(test_range) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
