/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/model/slot.h"

static void test_slots(void **state)
{
    static const struct {
        int64_t ms;
        uint32_t slot;
    } rows[] = {
        { INT64_MIN, 0 },
        { -1, 0 },
        { 0, 0 },
        { SLOT_EPOCH_MS - 1, 0 },
        { SLOT_EPOCH_MS, 0 },
        { SLOT_EPOCH_MS + 4999, 0 },
        { SLOT_EPOCH_MS + 5000, 1 },
        { INT64_C(1700000000000), 24432640 },                       /* 2023-11-14T22:13:20Z */
        { SLOT_EPOCH_MS + INT64_C(5000) * UINT32_MAX, UINT32_MAX }, /* year 2700 */
        { SLOT_EPOCH_MS + INT64_C(5000) * UINT32_MAX + 4999, UINT32_MAX },
        { SLOT_EPOCH_MS + INT64_C(5000) * UINT32_MAX + 5000, UINT32_MAX }, /* stays, never wraps */
        { INT64_MAX, UINT32_MAX },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(slot_of_ms(rows[i].ms), rows[i].slot);
}

static void test_inverse(void **state)
{
    (void)state;
    for (uint64_t i = 0; i <= UINT32_MAX; i += 65521) {
        uint32_t s = (uint32_t)i;
        assert_int_equal(slot_of_ms(slot_to_ms(s)), s);
        assert_int_equal(slot_of_ms(slot_to_ms(s) + SLOT_MS - 1), s);
        assert_true(slot_leaf(s) <= s && s - slot_leaf(s) < LEAF_SLOTS);
        assert_int_equal(slot_leaf(s) % LEAF_SLOTS, 0);
    }
    assert_int_equal(slot_to_ms(0), SLOT_EPOCH_MS);
    assert_int_equal(LEAF_MS, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_inverse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
