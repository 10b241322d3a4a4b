/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that come after the delete: refused for as long as the guard lasts, by the monotonic clock
 * alone, and for the full time after a restart; then taken as new. In random order:
 * tests/prop/test_delete.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/tomb_bed.h"

#define GUARD_MS 60000

static struct store_bed bed;
static uint32_t now; /* slot, start of a minute */
static struct err e;

static int setup(void **state)
{
    (void)state;
    now = tomb_bed_init(&bed, GUARD_MS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void seconds(int n)
{
    clock_fake_advance(&bed.clock, n * INT64_C(1000));
}

/* Rows that were stored: 1, or 0 for a duplicate; or the error. */
static int push(const char *service, uint32_t slot, uint64_t wid)
{
    struct bed_push p = { .service = service, .slot = slot, .wid = wid, .stacks = "m;x=1" };
    struct store_batch *b = store_batch_new(bed.s);
    struct store_result r;

    int rc = store_bed_stage(&bed, b, &p, &r, &e);
    struct err why = e;
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    e = why;
    return rc ? -rc : (int)r.stored;
}

static const char *merge(void)
{
    return store_bed_merge(&bed, NULL, "{}", NULL, now - 1000, now + 1000);
}

static void gone(const char *tenant, const char *selector)
{
    (void)tomb_bed_delete(&bed, tenant, selector, 0, 0, NULL);
}

static void test_unsealed_and_sealed(void **state)
{
    (void)state;
    assert_int_equal(push("api", now - 24, 1), 1);
    seconds(60);
    store_bed_seal(&bed);
    assert_int_equal(push("api", now + 12, 2), 1);
    assert_int_equal(push("db", now + 12, 3), 1);
    gone(NULL, "{service_name=\"api\"}");
    tomb_bed_check(&bed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(push("api", now - 24, 1), -ERR_BUSY);
        assert_non_null(strstr(e.text, "from 60 s on it is taken as new"));
        assert_int_equal(e.again_s, 60);
        assert_int_equal(push("api", now + 12, 2), -ERR_BUSY);
        assert_int_equal(push("db", now + 12, 3), 0);
        assert_string_equal(merge(), "m;x=1");
        (void)tomb_bed_purge(&bed, 100);
    }
    seconds(59);
    assert_int_equal(push("api", now + 12, 2), -ERR_BUSY);
    assert_int_equal(push("api", now + 12, 4), 1);
    seconds(1);
    assert_int_equal(push("api", now - 24, 1), 1);
    assert_int_equal(push("api", now + 12, 2), 1);
    assert_int_equal(push("api", now + 12, 2), 0);
    assert_string_equal(merge(), "m;x=4");
    tomb_bed_check(&bed);
}

/* A wall clock that is an hour ahead, here or at the next leader, ends no guard. */
static void test_clock_jumps(void **state)
{
    (void)state;
    assert_int_equal(push("api", now, 1), 1);
    gone(NULL, "{service_name=\"api\"}");
    clock_fake_jump(&bed.clock, 3600000);
    assert_int_equal(push("api", now, 1), -ERR_BUSY);
    seconds(50);
    store_bed_reopen(&bed, KV_MEM_POWER, 0);
    seconds(59);
    assert_int_equal(push("api", now, 1), -ERR_BUSY);
    seconds(1);
    assert_int_equal(push("api", now, 1), 1);
    tomb_bed_check(&bed);
}

static void test_old_ones_need_none(void **state)
{
    (void)state;
    assert_int_equal(push("api", now, 1), 1);
    gone(NULL, "{service_name=\"api\"}");
    for (int i = 0; i < 62; i++) {
        seconds(60);
        (void)store_now(bed.s);
    }
    store_bed_seal(&bed);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(push("api", now, 1), 1);
}

/* A delete that took nothing says nothing about what one before it took. */
static void test_nothing_guards_nothing(void **state)
{
    (void)state;
    assert_int_equal(push("api", now, 1), 1);
    gone(NULL, "{service_name=\"api\"}");
    seconds(60);
    gone(NULL, "{service_name=\"api\"}");
    assert_int_equal(push("api", now, 1), 1);
}

/* Only that tenant, under whatever number it has now; its write ids go, but not before. */
static void test_tenant(void **state)
{
    uint32_t number;

    (void)state;
    assert_int_equal(push("api", now, 1), 1);
    gone("t", NULL);
    tomb_bed_check(&bed);
    number = bed.s->tombs->at.ptr[0]->tenant;
    (void)tomb_bed_purge(&bed, 1);
    assert_int_equal(tomb_bed_keys(&bed, number, 0, 0), 1);
    tomb_bed_check(&bed);
    assert_int_equal(push("api", now, 1), -ERR_BUSY);
    assert_int_equal(push("api", now, 2), 1);
    assert_int_equal(push("api", now, 1), -ERR_BUSY);
    seconds(60);
    (void)tomb_bed_purge(&bed, 1);
    assert_int_equal(tomb_bed_keys(&bed, number, 0, 0), 0);
    tomb_bed_check(&bed);
    assert_int_equal(push("api", now, 1), 1);
    assert_string_equal(merge(), "m;x=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unsealed_and_sealed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_clock_jumps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_old_ones_need_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_guards_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tenant, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
