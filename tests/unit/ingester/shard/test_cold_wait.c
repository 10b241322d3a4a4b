/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a shard's thread waits for far rows, and how long not: by a clock that the test sets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "ingester/shard/cold_wait.h"

/* Work that asks for far rows and takes so long; the pause that follows. UINT64_MAX: not let in. */
static uint64_t pause_after(struct cold_wait *f, struct clock_fake *c, int64_t ms, int code)
{
    struct cold_read *r;

    cold_wait_begin(f);
    r = cold_read();
    r->entered = r->enter(r->cookie);
    r->refused = !r->entered;
    bool in = r->entered;
    clock_fake_advance(c, ms);
    (void)cold_wait_end(f, in ? code : ERR_BUSY);
    return in ? cold_wait_wait(f, clock_mono_ms(&c->clock)) : UINT64_MAX;
}

static void test_pauses(void **state)
{
    struct clock_fake c;
    struct cold_wait f;

    (void)state;
    clock_fake_init(&c, 0);
    clock_fake_advance(&c, 1000);
    cold_wait_init(&f, &c.clock);
    assert_int_equal(pause_after(&f, &c, 20, 0), 0);
    assert_int_equal(pause_after(&f, &c, 200, 0), 600);
    assert_int_equal(pause_after(&f, &c, 1, 0), UINT64_MAX);
    clock_fake_advance(&c, 600);
    assert_int_equal(pause_after(&f, &c, 500, ERR_TIMEOUT), 5000);
    clock_fake_advance(&c, 5000);
    assert_int_equal(pause_after(&f, &c, 1000, ERR_TIMEOUT), 10000); /* twice as much was allowed */
}

/* A delete that had its far rows at once and then waited for a quorum. */
static void test_other_waits(void **state)
{
    struct clock_fake c;
    struct cold_wait f;

    (void)state;
    clock_fake_init(&c, 0);
    clock_fake_advance(&c, 1000);
    cold_wait_init(&f, &c.clock);
    assert_int_equal(pause_after(&f, &c, 60000, ERR_UNAVAILABLE), 5000);
    clock_fake_advance(&c, 5000);
    assert_int_equal(pause_after(&f, &c, 60000, 0), 3000);
    clock_fake_advance(&c, 3000);
    for (int i = 0; i < 10; i++) { /* however often: forty seconds at most */
        uint64_t pause = pause_after(&f, &c, 60000, ERR_TIMEOUT);
        assert_in_range(pause, 1, 40000);
        clock_fake_advance(&c, (int64_t)pause);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_other_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
