/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/store/store_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/store/check/check.h"

/* ---- seeds ---- */

static void run_one(void (*run)(uint64_t seed), uint64_t seed)
{
    printf("SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    run(seed);
}

uint64_t steps_seeds(void (*run)(uint64_t seed), uint64_t seeds)
{
    const char *one = getenv("SEED"), *more = getenv("SEEDS");
    uint64_t base = (uint64_t)time(NULL) * 1000;

    if (one && *one) {
        run_one(run, strtoull(one, NULL, 10));
        return 1;
    }
    if (more && *more)
        seeds = strtoull(more, NULL, 10);
    for (uint64_t i = 0; i < seeds; i++)
        run_one(run, i < seeds / 2 ? i : base + i); /* some the same each time, some new */
    return seeds;
}

/* ---- steps ---- */

int steps_try_stage(struct store_bed *b, struct store_batch *to, struct model_world *w,
                    const struct model_request *q, struct stacks *st, struct store_result *ret,
                    struct err *e)
{
    struct arena *a = arena_new(16 * MIB);
    struct store_write write;

    model_request_write(w, q, st, a, &write);
    int rc = store_stage(b->s, to, &write, ret, e);
    arena_free(a);
    return rc;
}

void steps_stage(struct store_bed *b, struct store_batch *to, struct model_world *w,
                 const struct model_request *q, uint64_t stacks_seed, struct store_result *ret)
{
    struct stacks st;
    struct err e;

    stacks_init(&st, 64 * MIB, stacks_seed);
    if (steps_try_stage(b, to, w, q, &st, ret, &e))
        fail_msg("stage: %s", e.text);
    stacks_deinit(&st);
}

bool steps_seal(struct store_bed *b, size_t rows_max)
{
    bool more;
    struct err e;

    if (store_seal(b->s, rows_max, &more, &e))
        fail_msg("seal: %s", e.text);
    return more;
}

bool steps_build(struct store_bed *b, size_t rows_max)
{
    bool more;
    struct err e;

    if (store_build(b->s, rows_max, &more, &e))
        fail_msg("build: %s", e.text);
    return more;
}

void steps_check(struct store_bed *b)
{
    struct store_view *v = store_view_get(b->s);
    struct check_report report;
    struct err e;
    int rc = store_check(v, &report, &e);

    store_view_put(v);
    if (rc)
        fail_msg("check: %s", e.text);
}

/* ---- jobs ---- */

void steps_due(struct store_view *v, struct store_bed *b, size_t max, struct build_nodes *ret)
{
    struct build_search f = { .low = 2, .high = 7, .max = max };
    struct store_clock now;
    struct err e;

    store_clock(b->s, &now);
    f.engine_ms = now.engine_ms;
    if (store_build_due(v, &f, ret, &e))
        fail_msg("due: %s", e.text);
}

bool steps_held_next(struct store_view *v, struct steps_held *h, size_t bytes_max)
{
    struct build_room room = { .bytes_max = bytes_max, .rows_max = SIZE_MAX, .arena = h->arena };
    struct build_node n = h->job.node;
    struct err e;

    arena_reset(h->arena);
    int rc = store_build_read(v, &n, &h->cursor, &room, &h->job, &e);
    if (rc && rc != ERR_NOT_FOUND)
        fail_msg("read: %s", e.text);
    if (!rc && build_merge(&h->job, h->arena, &h->result, &e))
        fail_msg("merge: %s", e.text);
    return !rc;
}

struct steps_held *steps_held_read(struct store_view *v, const struct build_node *n,
                                   size_t bytes_max)
{
    struct steps_held *h = XNEW(struct steps_held);

    h->arena = arena_new(64 * MIB);
    h->job.node = *n;
    if (steps_held_next(v, h, bytes_max))
        return h;
    steps_held_free(h);
    return NULL;
}

bool steps_held_try(struct store_bed *b, struct steps_held *h)
{
    struct err e;
    int rc = store_build_apply(b->s, &h->job, &h->result, &e);

    if (rc && rc != ERR_NOT_FOUND)
        fail_msg("apply: %s", e.text);
    return !rc;
}

void steps_held_apply(struct store_bed *b, struct steps_held *h)
{
    (void)steps_held_try(b, h);
    steps_held_free(h);
}

void steps_held_free(struct steps_held *h)
{
    if (!h)
        return;
    build_job_deinit(&h->job);
    build_result_deinit(&h->result);
    arena_free(h->arena);
    xfree(h);
}
