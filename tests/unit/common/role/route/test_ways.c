/* SPDX-License-Identifier: Apache-2.0
 *
 * Knowledge of paths is bounded: addresses come and go, paths that races use stay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/map.h"
#include "common/role/route/ways.h"
#include "tests/lib/net/rpc_bed.h"

static void on_tick(void *ways)
{
    (void)ways;
}

static void the_oldest_goes(void **state)
{
    struct rpc_bed bed;
    struct way *held;
    struct ways *w;
    char addr[64];

    (void)state;
    rpc_bed_init(&bed, RPC_BED_MEM, 1);
    w = ways_new(bed.loop, 50, NULL, on_tick);
    held = way_hold(ways_at(w, "mem://held"));
    held->no_help_ns = ways_at(w, "mem://other")->no_help_ns = 7;
    rpc_bed_sleep(&bed, 10);
    for (int i = 0; i < 2 * WAYS_MAX; i++) {
        (void)snprintf(addr, sizeof(addr), "mem://%d", i);
        (void)ways_at(w, addr);
    }
    assert_int_equal(map_str_len(w->by_addr), WAYS_MAX);
    assert_ptr_equal(ways_at(w, "mem://held"), held);
    assert_int_equal(held->no_help_ns, 7);
    assert_int_equal(ways_at(w, "mem://other")->no_help_ns, 0); /* another one of that name */
    way_drop(held);
    ways_free(w);
    rpc_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_oldest_goes) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
