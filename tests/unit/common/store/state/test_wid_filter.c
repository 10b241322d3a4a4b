/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter never says that an id is not there which is, and seldom the other way round.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv_mem.h"
#include "common/store/state/wid_filter.h"

static void wid_of(uint64_t n, uint8_t wid[16])
{
    put_u64le(wid, n * UINT64_C(0x9e3779b97f4a7c15));
    put_u64le(wid + 8, n ^ UINT64_C(0x1234567));
}

static bool may(struct wid_filter *f, uint32_t bucket, uint32_t tenant, uint64_t n)
{
    uint8_t wid[16];
    struct err e;
    bool ret;

    wid_of(n, wid);
    assert_int_equal(wid_filter_may(f, bucket, tenant, wid, &ret, &e), 0);
    return ret;
}

static void add(struct wid_filter *f, uint32_t bucket, uint32_t tenant, uint64_t n)
{
    uint8_t wid[16];

    wid_of(n, wid);
    wid_filter_add(f, bucket, tenant, wid);
}

static void test_all_found(void **state)
{
    (void)state;
    struct kv *kv = kv_mem_new(NULL);
    struct wid_filter *f = wid_filter_new(kv, MIB);
    size_t wrong = 0, n = 100000;

    for (size_t i = 0; i < n; i++) {
        wrong += may(f, 7, 1, i);
        add(f, 7, 1, i);
    }
    for (size_t i = 0; i < n; i++)
        assert_true(may(f, 7, 1, i));
    for (size_t i = 0; i < n; i++)
        wrong += may(f, 7, 1, n + i) + may(f, 7, 2, i);
    assert_in_range(wrong, 0, 3 * n / 10); /* chains of filters, 1 % each */
    assert_false(may(f, 8, 1, 5));         /* another hour */

    wid_filter_forget(f, 8);
    assert_true(may(f, 7, 1, n + 1)); /* nothing is known of it any more */
    add(f, 7, 1, n + 1);
    assert_false(may(f, 9, 1, 5));
    assert_false(may(f, 9 + 512, 1, 5)); /* the same place of the ring */
    assert_true(may(f, 9, 1, 5));
    wid_filter_free(f);
    kv_close(kv);
}

/* What stood there before, and what does not fit, is left to the database. */
static void test_perhaps(void **state)
{
    (void)state;
    struct kv *kv = kv_mem_new(NULL);
    struct kv_batch *b = kv_batch_new();
    struct err e;
    struct key k;
    uint8_t wid[16];

    wid_of(3, wid);
    key_wid(&k, 20, 1, wid);
    kv_batch_put(b, KV_WID, key_str(&k), STR("row"));
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    kv_batch_free(b);
    struct wid_filter *f = wid_filter_new(kv, 16 * KIB);
    assert_true(may(f, 20, 1, 4));
    assert_false(may(f, 19, 1, 4));
    assert_false(may(f, 21, 1, 4));
    for (size_t i = 0; i < 20000; i++)
        add(f, 21, 1, i);
    for (size_t i = 0; i < 20000; i++)
        assert_true(may(f, 21, 1, i));
    assert_true(may(f, 21, 1, 999999)); /* over the bound: all perhaps */
    wid_filter_free(f);
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_found),
        cmocka_unit_test(test_perhaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
