/* SPDX-License-Identifier: Apache-2.0
 *
 * What a shard's answer means for acks: nothing is lost in any order of tries that are answered, or
 * not; and a write that was acked and not stored, stored twice, or another one, is noticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/sys/clock.h"
#include "distributor/send/ack_audit.h"

#define WRITES 40

struct world {
    struct prng p;
    struct acks sure, said; /* said: what the shard stored under our name */
    struct ledger_doubt doubts[WRITES];
    uint8_t stored[WRITES][16];
    size_t doubts_len, stored_len;
};

static void make_id(struct world *w, uint8_t id[16])
{
    uint64_t words[2] = { prng_u64(&w->p), prng_u64(&w->p) };

    memcpy(id, words, sizeof(words));
}

/* One push and what becomes of it. */
static void push(struct world *w)
{
    struct ledger_doubt d = { 0 };
    uint8_t id[16];
    bool unsure = false, stored = prng_chance(&w->p, 0.1); /* by another distributor, before */
    bool ours = false;

    make_id(w, id);
    for (int tries = 0; tries < 3; tries++) {
        bool was = stored, arrives = prng_chance(&w->p, 0.8);
        if (arrives && !stored) {
            acks_add(&w->said, id);
            stored = ours = true;
        }
        if (!arrives || prng_chance(&w->p, 0.2)) { /* no answer */
            unsure = true;
            continue;
        }
        if (!was)
            acks_add(&w->sure, id);
        else if (unsure)
            d.acked = true;
        unsure = d.acked;
        break;
    }
    if (ours)
        memcpy(w->stored[w->stored_len++], id, 16);
    if (!unsure)
        return;
    memcpy(d.wid, id, 16);
    d.known = stored;
    w->doubts[w->doubts_len++] = d;
}

static struct ledger_verdict judge(const struct world *w)
{
    return ledger_judge(&w->sure, w->doubts, w->doubts_len, false, &w->said);
}

static void take(struct acks *a, const uint8_t id[16])
{
    struct acks one = { 0 };

    acks_add(&one, id);
    a->count -= one.count;
    a->high -= one.high;
    a->low -= one.low;
}

static void test_random(void **state)
{
    uint64_t seed = (uint64_t)clock_wall_ms(clock_real());
    size_t noticed = 0, mutants = 0;

    (void)state;
    printf("SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 400; i++) {
        struct world w = { 0 };
        prng_init(&w.p, seed + i);
        for (uint64_t n = 1 + prng_below(&w.p, WRITES - 1); n > 0; n--)
            push(&w);
        struct ledger_verdict v = judge(&w);
        assert_int_equal(v.lost, 0);
        assert_int_equal(v.doubled, 0);
        if (w.doubts_len > LEDGER_DOUBTS_SUMMED || w.doubts_len || !w.stored_len)
            continue;
        struct acks whole = w.said;
        take(&w.said, w.stored[0]); /* lost */
        mutants++;
        noticed += judge(&w).lost == 1;
        w.said = whole;
        acks_add(&w.said, w.stored[0]); /* twice */
        mutants++;
        noticed += judge(&w).doubled == 1;
        w.said = whole;
        w.said.low ^= 1; /* as many, but others */
        mutants++;
        noticed += judge(&w).lost == 1;
    }
    assert_true(mutants > 30);
    assert_int_equal(noticed, mutants);
}

static void test_doubts(void **state)
{
    struct acks sure = { 0 }, said = { 0 };
    struct ledger_doubt d[3] = { { { 1 }, true, true }, { { 2 }, true, true }, { { 3 }, 0, 0 } };

    (void)state;
    acks_add(&said, d[1].wid);
    assert_int_equal(ledger_judge(&sure, d, 3, false, &said).lost, 0);
    d[0].known = false; /* acked, and the shard never received it */
    assert_int_equal(ledger_judge(&sure, d, 3, false, &said).lost, 1);
    d[0].known = true;
    said.high++; /* no subset of them */
    assert_int_equal(ledger_judge(&sure, d, 3, false, &said).lost, 1);
    said.high--;
    said.count = 4;
    assert_int_equal(ledger_judge(&sure, d, 3, false, &said).doubled, 1);
    assert_int_equal(ledger_judge(&sure, d, 3, true, &said).doubled, 0); /* not all are listed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_doubts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
