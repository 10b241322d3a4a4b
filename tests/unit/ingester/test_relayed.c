/* SPDX-License-Identifier: Apache-2.0
 *
 * A relayed copy of a write counts as the write itself: once, whether it comes first, second, while
 * the other copy is being stored, or when its caller does not wait for it any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/role/route/relay.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

enum { COPIES = 6 };

static void counts_once(bool simulated, uint64_t seed)
{
    const char *const flags[] = { "--ingester.seal_delay=1h", NULL };
    struct write_gen g = { .wid = seed };
    struct write_model want, got;
    struct rpc_bed_call c[COPIES];
    struct ingester_bed b;
    struct prng p;
    struct buf in, relayed;
    uint32_t stored = 0, duplicates = 0;
    struct err e;

    prng_init(&p, seed);
    ingester_bed_init(&b, simulated, seed, flags);
    assert_int_equal(ingester_bed_start(&b, &e), 0);
    g.slot = ingester_bed_slot(&b);
    write_model_init(&want);
    buf_init(&in, MIB);
    write_gen_pack(&g, &p, &in, &want);
    relay_pack(&(struct relay_call){ RPC_WRITE, 0, buf_str(&in) }, &relayed);

    /* Direct and relayed calls in any order, one of them canceled, and all at once. */
    for (size_t i = 0; i < COPIES; i++) {
        bool round = prng_below(&p, 2) || i == 1;

        rpc_bed_call(&c[i], b.peer, round ? RPC_RELAY : RPC_WRITE, buf_str(round ? &relayed : &in),
                     10000);
        if (i == 2)
            rpc_cancel(b.client, c[i].id);
        if (prng_below(&p, 3) == 0)
            rpc_bed_sleep(&b.rpc, 20);
    }
    for (size_t i = 0; i < COPIES; i++) {
        if (i != 2) {
            assert_int_equal(rpc_bed_end(&b.rpc, &c[i]), 0);
            Embertree__WriteReply *r = embertree__write_reply__unpack(
                NULL, c[i].reply.len, (const uint8_t *)(const void *)c[i].reply.ptr);
            assert_non_null(r);
            stored += r->stored;
            duplicates += r->duplicates;
            embertree__write_reply__free_unpacked(r, NULL);
        }
        rpc_bed_call_deinit(&c[i]);
    }
    /* The canceled call may have been the first. */
    assert_true(stored <= 1);
    assert_int_equal(stored + duplicates, COPIES - 1);
    write_model_init(&got);
    assert_int_equal(
        ingester_bed_merge(&b, "svc", slot_to_ms(g.slot) - 60000, slot_to_ms(g.slot) + 60000, &got),
        0);
    assert_true(write_model_eq(&want, &got));
    write_model_deinit(&want);
    write_model_deinit(&got);
    buf_deinit(&in);
    buf_deinit(&relayed);
    ingester_bed_deinit(&b);
}

static void test_simulated(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        counts_once(true, seed);
}

static void test_threads(void **state)
{
    (void)state;
    counts_once(false, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulated),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
