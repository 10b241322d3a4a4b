/* SPDX-License-Identifier: Apache-2.0
 *
 * A node that lives long keeps copies of more shards, one after another, than it has places.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ingester/shard/shards.h"

static void test_places_come_back(void **state)
{
    struct shards_opts o = { .moves = true };
    struct shards *t = shards_new(&o);
    struct err e;

    (void)state;
    for (uint32_t i = 0; i < SHARDS_MAX; i++)
        assert_int_equal(shards_place(t, 1000 + i), i);
    assert_int_equal(shards_place(t, 1003), 3); /* has one */
    assert_int_equal(shards_place(t, 5), SHARDS_MAX);
    for (uint32_t i = 0; i < 10 * SHARDS_MAX; i++) {
        size_t at = i * 7 % SHARDS_MAX;
        uint32_t old = shards_number(t, at);

        shards_leave(t, old);
        assert_int_equal(shards_number(t, at), SHARDS_NO);
        assert_int_equal(shards_place(t, 2000 + i), at);
        assert_int_equal(shards_number(t, at), 2000 + i);
        assert_int_equal(shards_place(t, old), SHARDS_MAX);
    }
    assert_int_equal(shards_len(t), SHARDS_MAX);
    shards_leave(t, 1); /* has none */
    assert_null(shards_get(t, 2000, &e));
    assert_int_equal(e.code, ERR_UNAVAILABLE);
    assert_int_equal(shards_serving(t), 0);
    shards_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_places_come_back) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
