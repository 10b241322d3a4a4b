/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes and their retries while the map changes: services are spread, tenants get other sizes. A
 * distributor knows a map within LAG of its making, or it is cut off and has an old one; a sender's
 * clock is ahead by FUTURE at most. Every accepted attempt goes where the first one went: one
 * shard's write ids know all of them. And each earlier place is among those that readers of any
 * later map ask.
 *
 * SEED=n and ROUNDS=m repeat and lengthen it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cluster/map/map_edit.h"
#include "common/model/slot.h"

enum { MAPS = 40, PUSHES = 400, STEPS = 4000, SHARDS = 23 };
#define LAG_MS    60000
#define FUTURE_MS 600000
#define AFTER_MS  (FUTURE_MS + LAG_MS)
#define T0        INT64_C(1700000000000)

static const char *const names[] = { "a", "b", "big", "huge" };

struct push {
    struct str tenant, service;
    uint64_t series;
    bool fixed;      /* its time is its own */
    int64_t when_ms; /* of a fixed one */
    bool tried;
    uint32_t shard; /* of the first attempt */
};
struct world {
    struct prng prng;
    int64_t now;
    const struct map *maps[MAPS];
    int64_t made[MAPS];
    size_t len;
    struct push pushes[PUSHES];
    uint64_t attempts, refused, stale;
};

static uint64_t env_or(const char *name, uint64_t other)
{
    const char *given = getenv(name);

    if (given)
        (void)str_u64(str_c(given), &other);
    return other;
}

static struct str one_name(struct world *w)
{
    return str_c(names[prng_below(&w->prng, ARRAY_LEN(names))]);
}

static void change(struct world *w)
{
    const struct map *m = w->maps[w->len - 1], *next;
    struct err e;
    int code;

    if (w->len == MAPS)
        return;
    switch (prng_below(&w->prng, 5)) {
    case 0:
        code = map_edit_tenant(m, one_name(w), (uint32_t)prng_below(&w->prng, SHARDS + 1),
                               w->now + AFTER_MS, &next, &e);
        break;
    case 1:
        code = map_edit_tenants(m, (uint32_t)prng_below(&w->prng, 9), w->now + AFTER_MS, &next, &e);
        break;
    default:
        code = map_edit_spread(m, &(struct map_whose){ one_name(w), one_name(w) },
                               1 + (uint32_t)prng_below(&w->prng, 9), w->now + AFTER_MS, &next, &e);
    }
    if (code)
        return;
    w->made[w->len] = w->now;
    w->maps[w->len++] = next;
}

/* Any map that was the newest within LAG. */
static const struct map *heard_of(struct world *w)
{
    size_t first = w->len - 1;

    while (first > 0 && w->made[first] > w->now - LAG_MS)
        first--;
    return w->maps[first + prng_below(&w->prng, w->len - first)];
}

static void new_push(struct world *w, struct push *p)
{
    int64_t back = (int64_t)prng_below(&w->prng, 10) ? 20000 : 30 * INT64_C(86400000);

    *p = (struct push){
        .tenant = one_name(w),
        .service = one_name(w),
        .series = prng_u64(&w->prng),
        .fixed = prng_below(&w->prng, 4) > 0,
        .when_ms = w->now + FUTURE_MS - (int64_t)prng_below(&w->prng, (uint64_t)(FUTURE_MS + back)),
    };
}

static void attempt(struct world *w, struct push *p)
{
    bool cut_off = prng_below(&w->prng, 5) == 0;
    const struct map *its = cut_off ? w->maps[prng_below(&w->prng, w->len)] : heard_of(w);
    const struct map *ingester = heard_of(w), *newest = w->maps[w->len - 1];
    int64_t arrived = p->fixed ? p->when_ms : w->now - 10000;
    int64_t slot_ms = slot_to_ms(slot_of_ms(arrived));
    uint32_t places[MAP_PLACES_MAX];
    bool found = false;

    w->attempts++;
    w->stale += cut_off;
    if (map_outdates(ingester, p->tenant, p->service, its->version, slot_ms)) {
        assert_true(cut_off); /* a distributor with a recent map is not refused */
        w->refused++;
        return;
    }
    uint32_t shard =
        map_shard(its, p->tenant, p->service, p->series,
                  p->fixed ? slot_to_ms(slot_leaf(slot_of_ms(p->when_ms))) : MAP_WHEN_FIRST);
    if (p->tried && p->shard != shard)
        fail_msg("a retry went to shard %u, the first attempt to %u", shard, p->shard);
    p->tried = true;
    p->shard = shard;
    size_t n = map_places(newest, p->tenant, p->service, places, ARRAY_LEN(places));
    assert_true(n <= ARRAY_LEN(places));
    for (size_t i = 0; i < n; i++)
        found = found || places[i] == shard;
    assert_true(found);
}

static void round_of(uint64_t seed)
{
    struct world w = { .now = T0, .len = 1, .made = { T0 } };
    const struct map from = { .version = 1, .shards = SHARDS, .replicas = 1 };
    struct err e;

    prng_init(&w.prng, seed);
    assert_int_equal(map_new(&from, &w.maps[0], &e), 0);
    for (size_t i = 0; i < PUSHES; i++)
        new_push(&w, &w.pushes[i]);
    for (int i = 0; i < STEPS; i++) {
        struct push *p = &w.pushes[prng_below(&w.prng, PUSHES)];

        w.now += (int64_t)prng_below(&w.prng, 30000);
        if (prng_below(&w.prng, 60) == 0)
            change(&w);
        if (prng_below(&w.prng, 6) == 0)
            new_push(&w, p);
        attempt(&w, p);
    }
    print_message("seed %llu: %zu maps, %llu attempts, %llu by the cut off, %llu refused\n",
                  (unsigned long long)seed, w.len, (unsigned long long)w.attempts,
                  (unsigned long long)w.stale, (unsigned long long)w.refused);
    assert_true(w.len > 10 && w.refused > 10);
    for (size_t i = 0; i < w.len; i++)
        map_unref(w.maps[i]);
}

static void test_retries_meet_their_ids(void **state)
{
    (void)state;
    uint64_t seed = env_or("SEED", 20261122), rounds = env_or("ROUNDS", 20);

    for (uint64_t i = 0; i < rounds; i++)
        round_of(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_retries_meet_their_ids) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
