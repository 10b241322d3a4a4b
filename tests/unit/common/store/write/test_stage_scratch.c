/* SPDX-License-Identifier: Apache-2.0
 *
 * What requests leave for the next ones is counted, bounded by what was said, and given back when
 * none come. What is stored does not depend on it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "tests/lib/store/store_bed.h"

#define ALL    "{service_name=\"svc\"}"
#define STACKS 450

static struct store_bed bed;
static struct buf text;
static uint32_t begin; /* slot; the clock advances with each push */

static int setup(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = 16 * MIB, .hot_bytes_max = MIB, .wid_horizon_ms = 3600000, .seed = 1
    };

    (void)state;
    store_bed_init(&bed, &o);
    begin = store_bed_slot(&bed);
    buf_init(&text, MIB);
    for (int i = 0; i < STACKS; i++)
        buf_addf(&text, "%sf%d=%d", i ? " " : "", i, 1 + i % 9);
    buf_add_c(&text, '\0');
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    buf_deinit(&text);
    return 0;
}

static void push(const char *stacks, uint32_t slots_ago)
{
    struct bed_push p = { .stacks = stacks, .slot = begin - slots_ago };

    p.wid = slots_ago;
    assert_int_equal(store_bed_push(&bed, &p), 1);
}

static uint64_t held(uint64_t *ret_wants)
{
    struct store_stats st;

    store_stats(bed.s, &st);
    *ret_wants = st.stage_wants;
    return st.stage_bytes;
}

static void share(uint64_t bytes)
{
    struct store_shares to = { 16 * MIB, 16 * MIB, MIB, bytes }, had;

    store_share(bed.s, &to);
    store_shares(bed.s, &had);
    assert_int_equal(had.stage_bytes, bytes);
}

static void test_given_back(void **state)
{
    uint64_t wants, bytes;

    (void)state;
    push(text.ptr, 1);
    bytes = held(&wants);
    assert_true(bytes > STACKS * sizeof(uint64_t));
    store_trim(bed.s); /* a request came since the last time */
    assert_int_equal(held(&wants), bytes);
    assert_true(wants >= bytes);
    store_trim(bed.s);
    assert_int_equal(held(&wants), 0);
    for (int i = 0; i < 200; i++)
        store_trim(bed.s);
    (void)held(&wants);
    assert_int_equal(wants, 0); /* others may have it */
    push(text.ptr, 2);
    assert_true(held(&wants) > 0);
}

static void test_bounded(void **state)
{
    const uint64_t most = 6 * KIB;
    uint64_t wants;
    const char *all;

    (void)state;
    push(text.ptr, 1);
    assert_true(held(&wants) > most);
    share(most);
    store_trim(bed.s);
    assert_true(held(&wants) <= most);
    for (uint32_t i = 2; i < 6; i++) {
        push(text.ptr, i);
        assert_true(held(&wants) <= most);
    }
    push("small=1", 7);
    assert_true(held(&wants) > 0 && held(&wants) <= most);
    store_trim(bed.s);
    (void)held(&wants);
    assert_true(wants > most); /* so that it gets more, if there is */
    share(0);
    push(text.ptr, 8);
    assert_true(held(&wants) > most);
    /* Six times the same: put in order by the table, or sorted. */
    all = store_bed_merge(&bed, NULL, ALL, NULL, begin - 60, begin + 60);
    assert_int_equal(strncmp(all, "f0=6 f100=12 f101=18 ", 21), 0);
    assert_string_equal(all + strlen(all) - 12, "f9=6 small=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_given_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bounded, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
