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
#include "common/role/route/peer_paths.h"
#include "tests/lib/net/rpc_bed.h"

static void on_tick(void *ways)
{
    (void)ways;
}

static void the_oldest_goes(void **state)
{
    struct rpc_bed bed;
    struct way *held;
    struct peer_paths *w;
    char addr[64];

    (void)state;
    rpc_bed_init(&bed, RPC_BED_MEM, 1);
    w = peer_paths_new(bed.loop, 50, NULL, on_tick);
    held = way_hold(peer_paths_at(w, "mem://held"));
    held->no_help_ns = peer_paths_at(w, "mem://other")->no_help_ns = 7;
    rpc_bed_sleep(&bed, 10);
    for (int i = 0; i < 2 * PEER_PATHS_MAX; i++) {
        (void)snprintf(addr, sizeof(addr), "mem://%d", i);
        (void)peer_paths_at(w, addr);
    }
    assert_int_equal(map_str_len(w->by_addr), PEER_PATHS_MAX);
    assert_ptr_equal(peer_paths_at(w, "mem://held"), held);
    assert_int_equal(held->no_help_ns, 7);
    assert_int_equal(peer_paths_at(w, "mem://other")->no_help_ns, 0); /* another one of that name */
    way_drop(held);
    peer_paths_free(w);
    rpc_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_oldest_goes) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
