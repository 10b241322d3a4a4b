/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/tomb_two.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

struct tomb_two two;

int two_setup(void **state)
{
    (void)state;
    two.now = tomb_bed_init(&two.bed, 0);
    return 0;
}

int two_teardown(void **state)
{
    (void)state;
    store_bed_deinit(&two.bed);
    return 0;
}

void two_minutes(int n)
{
    clock_fake_advance(&two.bed.clock, n * INT64_C(60000));
}

int two_push(const char *service, const char *labels, uint32_t slot, uint64_t wid,
             const char *stacks)
{
    return store_bed_push(
        &two.bed,
        &(struct bed_push){
            .service = service, .labels = labels, .slot = slot, .wid = wid, .stacks = stacks });
}

const char *two_merge(const char *selector)
{
    return store_bed_merge(&two.bed, NULL, selector, NULL, two.now - 1000, two.now + 1000);
}

void two_fill(void)
{
    two_push("api", "pod=a", two.now, 1, "m;x=1");
    two_push("api", "pod=b", two.now, 2, "m;x=10");
    two_push("db", "pod=a", two.now, 3, "m;x=100");
    two_push("db", "zone=z", two.now, 4, "m;x=1000");
    two_minutes(2);
    store_bed_seal(&two.bed);
    two_push("api", "pod=a", two.now + 14, 5, "m;y=1");
    two_push("api", "pod=b", two.now + 14, 6, "m;y=10");
    two_push("db", "pod=a", two.now + 14, 7, "m;y=100");
    two_push("db", "zone=z", two.now + 14, 8, "m;y=1000");
    assert_string_equal(two_merge("{}"), "m;x=1111 m;y=1111");
}

void two_seal_later(void)
{
    two_minutes(5);
    store_bed_seal(&two.bed);
}
