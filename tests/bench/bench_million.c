/* SPDX-License-Identifier: Apache-2.0
 *
 * P6: memory of a shard with 1,000,000 series, 1,000 services of 1,000 each, each written once in
 * 10 minutes. (Everything else of P6 is tests/cluster/store/test_memory.py: a cgroup of 640 MiB.)
 */
#include <stdlib.h>

#include "common/base/wr.h"
#include "common/model/slot.h"
#include "tests/lib/gen/year_bed.h"

#define STACKS     40
#define PER_COMMIT 20 /* services */

static uint32_t number(const char *name, uint32_t otherwise)
{
    uint64_t n;

    return str_u64(str_c(getenv(name)), &n) ? (uint32_t)n : otherwise;
}

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "%s: %s\n", what, e->text);
    exit(1);
}

/* Call stacks of a service: names of its own, as no two services share a dictionary. */
static void make_stacks(struct stacks *st, uint32_t service, uint32_t *leaves)
{
    char text[96];

    stacks_init(st, 4 * MIB, 1);
    for (uint32_t i = 0; i < STACKS; i++) {
        uint32_t at = 0;
        for (uint32_t k = 0; k < 8; k++) {
            uint32_t f = k < 5 ? k : k * 100 + i;
            int n = snprintf(text, sizeof(text), "svc%u/module%u.function%u", (unsigned)service,
                             (unsigned)k, (unsigned)f);
            struct frame frame = { .func = stacks_string(st, str_n(text, (size_t)n)), .line = f };
            at = stacks_node(st, at, stacks_frame(st, &frame));
        }
        leaves[i] = at;
    }
}

/* Series [first, first + n) of a service in one request, each with one vector. */
static void push(struct year_bed *b, struct prng *p, struct store_batch *batch, uint32_t service,
                 uint32_t first, uint32_t n, uint32_t slot)
{
    struct arena *a = arena_new(64 * MIB);
    struct store_series *series = ARENA_ARRAY(a, struct store_series, n);
    struct store_vector *vectors = ARENA_ARRAY(a, struct store_vector, n);
    uint32_t leaves[STACKS];
    struct store_result r;
    struct stacks st;
    struct err e;
    char text[64];

    CHECK(series && vectors);
    make_stacks(&st, service, leaves);
    int len = snprintf(text, sizeof(text), "service-%04u", (unsigned)service);
    struct str name = arena_strdup(a, str_n(text, (size_t)len));
    for (uint32_t i = 0; i < n; i++) {
        struct label *l = ARENA_ARRAY(a, struct label, 3);
        uint32_t *nodes = ARENA_ARRAY(a, uint32_t, STACKS);
        uint64_t *values = ARENA_ARRAY(a, uint64_t, STACKS);
        CHECK(l && nodes && values);
        len = snprintf(text, sizeof(text), "pod-%08x-%05u", (unsigned)(service * 2654435761u),
                       (unsigned)(first + i));
        l[0] = (struct label){ STR("namespace"), STR("production") };
        l[1] = (struct label){ STR("pod"), arena_strdup(a, str_n(text, (size_t)len)) };
        l[2] = (struct label){ STR("service_name"), name };
        vectors[i] = (struct store_vector){ slot, nodes, values, 0 };
        for (uint32_t k = 0; k < STACKS; k++)
            if (prng_chance(p, 0.3)) {
                nodes[vectors[i].len] = leaves[k];
                values[vectors[i].len++] = 10000000 * (1 + prng_below(p, 5));
            }
        series[i] = (struct store_series){
            .labels = { l, 3 }, .profile_type = STR(YEAR_TYPE), .vectors = &vectors[i], .len = 1
        };
        put_u64le(series[i].wid, prng_u64(p));
        put_u64le(series[i].wid + 8, prng_u64(p));
    }
    struct stacks_view view = stacks_view(&st);
    struct store_write w = { STR(YEAR_TENANT), name, &view, series, n, NULL, 0, 0, 0 };
    if (store_stage(b->s, batch, &w, &r, &e))
        die("stage", &e);
    b->profiles += r.stored;
    stacks_deinit(&st);
    arena_free(a);
}

int main(void)
{
    uint32_t services = number("SERVICES", 1000),
             each = number("EACH", number("LONG", 0) ? 1000 : 100);
    uint32_t slot = 1995 * YEAR_DAY_SLOTS, rounds = 60; /* of 10 s */
    struct year_bed_opts bo = { .slot = slot,
                                .memory = (uint64_t)number("MEMORY_MIB", 1024) * MIB,
                                .retention = true };
    struct year_bed b;
    struct prng p;
    struct err e;
    uint64_t most = 0;
    uint32_t done = 0;

    prng_init(&p, 1);
    year_bed_open(&b, &bo);
    uint64_t empty = year_rss();
    double t = year_wall_s();
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t until = (uint32_t)((uint64_t)each * (round + 1) / rounds);
        for (uint32_t s = 0; until > done && s < services; s += PER_COMMIT) {
            struct store_batch *batch = store_batch_new(b.s);
            for (uint32_t k = s; k < MIN(s + PER_COMMIT, services); k++)
                push(&b, &p, batch, k, done, until - done, slot + round * LEAF_SLOTS);
            if (store_commit(b.s, batch, &e))
                die("commit", &e);
        }
        done = until;
        clock_fake_advance(&b.clock, LEAF_MS);
        if (round % 6 == 5)
            year_bed_work(&b);
        most = MAX(most, year_rss());
    }
    year_bed_advance(&b, slot + rounds * LEAF_SLOTS + 240);
    most = MAX(most, year_rss());
    t = year_wall_s() - t;
    struct year_answer one =
        year_bed_merge(&b, "{service_name=\"service-0007\"}", slot, slot + rounds * LEAF_SLOTS, 9);
    struct store_stats stats;
    store_stats(b.s, &stats);
    printf("P6 %" PRIu64 " series (%" PRIu32 " services of %" PRIu32 "), each written once in 10 "
           "min: resident %.0f MiB at most, %.0f MiB when empty, shares of %" PRIu64
           " MiB; goal <= 2048 MiB: %s\n",
           b.profiles, services, each, (double)most / MIB, (double)empty / MIB, b.o.memory / MIB,
           most > 2 * GIB          ? "MISSED"
           : b.profiles >= 1000000 ? "reached"
                                   : "not the full number: LONG=1");
    printf("  %" PRIu64 " series in the index, %" PRIu64
           " nodes in dictionaries; loaded in %.0f s, "
           "us CPU per series: seal %.1f, build %.1f; flame graph of one service %.2f ms, %" PRIu64
           " rows\n",
           stats.series, stats.dict_nodes, t, b.seal_s * 1e6 / (double)b.profiles,
           b.build_s * 1e6 / (double)b.profiles, one.ms, one.rows);
    year_bed_remove(&b);
    return 0;
}
