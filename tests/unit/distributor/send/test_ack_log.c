/* SPDX-License-Identifier: Apache-2.0
 *
 * Acks until they are asked about: against a plain table, through random times, tenants and shards;
 * what falls due and when; and what happens where there is no room: whole entries are left out,
 * never parts of one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/sys/clock.h"
#include "distributor/send/ack_log.h"

#define EPOCH   1000
#define SETTLE  300
#define SHARDS  40
#define TENANTS 7
#define EPOCHS  64

static const struct ack_log_opts roomy = { EPOCH, SETTLE, 64 * MIB, 1 };

struct cell {
    struct acks sum;
    size_t doubts;
    unsigned taken, refused; /* adds */
    bool over;
};
struct world {
    struct prng p;
    struct ack_log *a;
    uint64_t now, first_ms[EPOCHS];
    struct cell cells[SHARDS][EPOCHS][TENANTS];
    uint64_t groups, entries;
};

static struct cell *cell_of(struct world *w, const struct ack_log_entry *x)
{
    struct str n = x->tenant;

    assert_int_equal(n.len, 2);
    return &w->cells[x->group->shard][x->group->epoch][n.ptr[1] - '0'];
}

static void add(struct world *w, uint32_t shard, uint32_t epoch, unsigned tenant)
{
    char name[] = { 't', (char)('0' + tenant) };
    struct ledger_write lw = { shard, epoch, str_n(name, 2) };
    struct cell *c = &w->cells[shard][epoch][tenant];
    struct ledger_doubt d = { 0 };
    struct acks one = { 0 };
    uint64_t id[2] = { prng_u64(&w->p), prng_u64(&w->p) };

    memcpy(d.wid, id, sizeof(d.wid));
    acks_add(&one, d.wid);
    bool doubt = prng_chance(&w->p, 0.1);
    bool ok = doubt ? ack_log_doubt(w->a, &lw, &d, w->now) : ack_log_add(w->a, &lw, &one, w->now);
    if (!w->first_ms[epoch])
        w->first_ms[epoch] = w->now;
    c->taken += ok;
    c->refused += !ok;
    c->doubts += ok && doubt;
    if (!ok || doubt)
        return;
    c->sum.count++;
    c->sum.high += one.high;
    c->sum.low += one.low;
}

/* All added writes become due, and not before their time. */
static void take(struct world *w)
{
    struct ack_log_group *g;

    while ((g = ack_log_take(w->a, w->now))) {
        assert_true(w->now >= w->first_ms[g->epoch] + 2 * EPOCH + SETTLE);
        if (prng_chance(&w->p, 0.2)) { /* no answer */
            ack_log_later(w->a, g, w->now + prng_below(&w->p, 500));
            if (prng_chance(&w->p, 0.5))
                break;
            continue;
        }
        w->groups++;
        list_for (l, &g->entries) {
            struct ack_log_entry *x = container_of(l, struct ack_log_entry, link);
            struct cell *c = cell_of(w, x);
            assert_false(c->over);
            c->over = true;
            assert_memory_equal(&c->sum, &x->sure, sizeof(c->sum));
            assert_int_equal(c->doubts, x->doubts.len);
            w->entries++;
            if (prng_chance(&w->p, 0.7))
                ack_log_drop(w->a, x);
        }
        ack_log_end(w->a, g);
    }
}

static void test_random(void **state)
{
    uint64_t seed = (uint64_t)clock_wall_ms(clock_real());
    struct world *w = XNEW(struct world);
    size_t cells = 0;

    (void)state;
    printf("SEED=%llu\n", (unsigned long long)seed);
    prng_init(&w->p, seed);
    w->a = ack_log_new(&roomy);
    w->now = EPOCH;
    for (; w->now / EPOCH < EPOCHS - 8; w->now += prng_below(&w->p, 4)) {
        uint32_t epoch = (uint32_t)(w->now / EPOCH) - (prng_chance(&w->p, 0.2) ? 1 : 0);
        add(w, (uint32_t)prng_below(&w->p, SHARDS), epoch, (unsigned)prng_below(&w->p, TENANTS));
        take(w);
    }
    for (; ack_log_len(w->a); w->now += 100)
        take(w);
    for (size_t i = 0; i < sizeof(w->cells) / sizeof(struct cell); i++) {
        const struct cell *c = &w->cells[0][0][0] + i;
        assert_int_equal(c->refused, 0);
        assert_int_equal(c->over, c->taken > 0);
        cells += c->over;
    }
    assert_true(cells > 2000 && cells == w->entries);
    assert_int_equal(ack_log_due_ms(w->a), UINT64_MAX);
    assert_int_equal(ack_log_bytes(w->a), 0);
    ack_log_free(w->a);
    xfree(w);
}

/* 64 KiB are some 300 entries: of each key all acks are in, or none; and later on most fit. */
static void test_full(void **state)
{
    struct world *w = XNEW(struct world);
    struct ack_log_opts o = { EPOCH, SETTLE, 64 * KIB, 7 };
    size_t whole = 0, none = 0, parts = 0;
    unsigned thinned = 0;

    (void)state;
    prng_init(&w->p, 3);
    w->a = ack_log_new(&o);
    for (w->now = EPOCH; w->now / EPOCH < EPOCHS - 8; w->now++) {
        add(w, (uint32_t)prng_below(&w->p, SHARDS), (uint32_t)(w->now / EPOCH),
            (unsigned)prng_below(&w->p, TENANTS));
        take(w);
        thinned = MAX(thinned, ack_log_thinned(w->a));
        assert_true(ack_log_bytes(w->a) < o.bytes_max);
    }
    for (; ack_log_len(w->a); w->now += 100)
        take(w);
    for (size_t i = 0; i < sizeof(w->cells) / sizeof(struct cell); i++) {
        const struct cell *c = &w->cells[0][0][0] + i;
        whole += c->taken && !c->refused;
        none += !c->taken && c->refused;
        parts += c->taken && c->refused;
    }
    assert_int_equal(parts, 0);
    assert_true(thinned > 0);
    assert_true(whole > 1000 && none > 1000);
    ack_log_free(w->a);
    xfree(w);
}

static void test_late(void **state)
{
    struct ack_log *a = ack_log_new(&roomy);
    struct ledger_write w = { 3, 10, STR("a") }, other = { 3, 10, STR("b") };
    struct ledger_write much_later = { 3, 10 + 64, STR("a") };
    struct acks one = { 1, 2, 3 };
    uint64_t now = 10 * EPOCH, closed = now + 2 * EPOCH + SETTLE;
    char long_name[600];

    (void)state;
    assert_true(ack_log_add(a, &w, &one, now));
    assert_true(ack_log_add(a, &w, &one, closed)); /* it is here: asked about or not, all of it */
    assert_false(ack_log_add(a, &other, &one, closed)); /* may have been, and may be gone */
    struct ack_log_group *g = ack_log_take(a, closed + EPOCH);
    assert_non_null(g);
    assert_int_equal(g->len, 1);
    ack_log_end(a, g);
    assert_false(ack_log_add(a, &w, &one, closed + EPOCH));
    assert_true(ack_log_add(a, &much_later, &one, closed + 60 * EPOCH));
    assert_false(ack_log_add(a, &w, &one, closed + 60 * EPOCH)); /* a newer epoch took its place */
    memset(long_name, 'x', sizeof(long_name));
    w = (struct ledger_write){ 3, 10 + 64, str_n(long_name, sizeof(long_name)) };
    assert_false(ack_log_add(a, &w, &one, closed + 60 * EPOCH));
    ack_log_free(a); /* with what is in it */
}

/* Many tenants of a shard make several groups; many doubts of a push are counted, not kept. */
static void test_bounds(void **state)
{
    struct ack_log *a = ack_log_new(&roomy);
    struct acks one = { 1, 2, 3 };
    struct ledger_doubt d = { 0 };
    size_t groups = 0, entries = 0, listed = 0;
    struct ack_log_group *g;
    char name[16];

    (void)state;
    for (int i = 0; i < 3 * ACK_LOG_GROUP_ENTRIES; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        assert_true(ack_log_add(a, &(struct ledger_write){ 1, 5, str_c(name) }, &one, 5 * EPOCH));
    }
    for (int i = 0; i < 2 * ACK_LOG_ENTRY_DOUBTS; i++)
        listed += ack_log_doubt(a, &(struct ledger_write){ 1, 5, STR("t7") }, &d, 5 * EPOCH);
    assert_int_equal(listed, ACK_LOG_ENTRY_DOUBTS);
    while ((g = ack_log_take(a, 20 * EPOCH))) {
        assert_int_equal(g->len, ACK_LOG_GROUP_ENTRIES);
        groups++;
        entries += g->len;
        list_for (l, &g->entries) {
            const struct ack_log_entry *x = container_of(l, struct ack_log_entry, link);
            assert_int_equal(x->unlisted, str_eqc(x->tenant, "t7") ? ACK_LOG_ENTRY_DOUBTS : 0);
        }
        ack_log_end(a, g);
    }
    assert_int_equal(groups, 3);
    assert_int_equal(entries, 3 * ACK_LOG_GROUP_ENTRIES);
    ack_log_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
