/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_fill DIR GIB: fills a data folder with so many GiB of sealed and built rows, old enough that
 * nothing of it is due any more when a server opens it. Values are random, so that they stay large.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/model/slot.h"
#include "tests/lib/gen/year_bed.h"

#define STACKS 20000
#define PODS   20

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "tool_fill: %s: %s\n", what, e->text);
    exit(1);
}

static void make_stacks(struct stacks *st, uint32_t *leaves)
{
    char text[64];

    stacks_init(st, 256 * MIB, 1);
    for (uint32_t i = 0; i < STACKS; i++) {
        int n = snprintf(text, sizeof(text), "filler.function%u", (unsigned)i);
        struct frame f = { .func = stacks_string(st, str_n(text, (size_t)n)) };
        leaves[i] = stacks_node(st, i % 7 ? leaves[i - 1] : 0, stacks_frame(st, &f));
    }
}

/* A profile of every pod in this leaf: all stacks, any values. */
static void push(struct year_bed *b, struct prng *p, const struct stacks_view *view,
                 const uint32_t *leaves, uint32_t slot)
{
    struct store_batch *batch = store_batch_new(b->s);
    uint64_t *values = XNEW_ARRAY(uint64_t, STACKS);
    struct store_result r;
    struct err e;
    char name[32];

    for (uint32_t pod = 0; pod < PODS; pod++) {
        for (uint32_t i = 0; i < STACKS; i++)
            values[i] = 1 + (prng_u64(p) & 0xffffffff);
        int n = snprintf(name, sizeof(name), "filler-%u", (unsigned)pod);
        struct label l[] = { { STR("pod"), str_n(name, (size_t)n) },
                             { STR("service_name"), STR("filler") } };
        struct store_vector v = { slot, leaves, values, STACKS };
        struct store_series s = {
            .labels = { l, 2 }, .profile_type = STR(YEAR_TYPE), .vectors = &v, .len = 1
        };
        put_u64le(s.wid, prng_u64(p));
        put_u64le(s.wid + 8, prng_u64(p));
        struct store_write w = { STR(YEAR_TENANT), STR("filler"), view, &s, 1, NULL, 0, 0, 0 };
        if (store_stage(b->s, batch, &w, &r, &e))
            die("stage", &e);
    }
    if (store_commit(b->s, batch, &e))
        die("commit", &e);
    xfree(values);
}

int main(int argc, char **argv)
{
    struct timespec now;
    double gib = argc == 3 ? strtod(argv[2], NULL) : 0;
    uint64_t parts[KV_CFS];
    uint32_t leaves[STACKS];
    struct stacks st;
    struct prng p;

    if (!(gib > 0)) {
        fprintf(stderr, "usage: tool_fill DIR GIB\n");
        return 2;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    uint32_t slot = slot_of_ms((int64_t)now.tv_sec * 1000) / YEAR_DAY_SLOTS * YEAR_DAY_SLOTS;
    slot -= 3 * YEAR_DAY_SLOTS;
    struct year_bed_opts o = { .dir = argv[1], .slot = slot, .retention = true };
    struct year_bed b;
    prng_init(&p, 1);
    make_stacks(&st, leaves);
    struct stacks_view view = stacks_view(&st);
    year_bed_open(&b, &o);
    /* A leaf every 10 minutes for two days, then closer: leaves are most of the bytes. */
    for (uint32_t i = 0; (double)year_bed_bytes(&b, parts) < gib * (double)GIB; i++) {
        push(&b, &p, &view, leaves, slot + i % 17000 * 2);
        clock_fake_advance(&b.clock, i < 17000 ? LEAF_MS : 0);
        if (i % 6 == 5)
            year_bed_work(&b);
    }
    year_bed_advance(&b, slot + 2 * YEAR_DAY_SLOTS);
    stacks_deinit(&st);
    year_bed_remove(&b);
    return 0;
}
