/* SPDX-License-Identifier: Apache-2.0
 *
 * store_steps.h: what random tests of a store do between pushes and questions: seals, builds, jobs
 * of a compactor, checks; and the loop over seeds. Each stops the test on an error. Nothing here
 * draws a random number: what is random comes as an argument.
 */
#ifndef TESTS_LIB_STORE_STORE_STEPS_H
#define TESTS_LIB_STORE_STORE_STEPS_H

#include "common/store/build/build.h"
#include "tests/lib/store/store_bed.h"
#include "tests/lib/store/store_model.h"

/* SEED=n repeats one run, SEEDS=n makes so many, else `seeds`: half of them the same each time.
 * Says which. Returns how many were run. */
uint64_t steps_seeds(void (*run)(uint64_t seed), uint64_t seeds);

/* Adds the request to the batch. */
void steps_stage(struct store_bed *b, struct store_batch *to, struct model_world *w,
                 const struct model_request *q, uint64_t stacks_seed, struct store_result *ret);
/* The same with stacks that may hold something already; the code of store_stage. */
int steps_try_stage(struct store_bed *b, struct store_batch *to, struct model_world *w,
                    const struct model_request *q, struct stacks *st, struct store_result *ret,
                    struct err *e);
/* One step each; true: there is more to do. */
bool steps_seal(struct store_bed *b, size_t rows_max);
bool steps_build(struct store_bed *b, size_t rows_max);
/* store_check must find nothing. */
void steps_check(struct store_bed *b);

/* A job that was read, and not applied: the store may change in between. */
struct steps_held {
    struct arena *arena;
    struct build_cursor cursor;
    struct build_job job;
    struct build_result result;
};
/* The due nodes of a view, at most `max`. */
void steps_due(struct store_view *v, struct store_bed *b, size_t max, struct build_nodes *ret);
/* Reads and merges a node; NULL: it cannot be built. */
struct steps_held *steps_held_read(struct store_view *v, const struct build_node *n,
                                   size_t bytes_max);
/* The next job of the same node into *h; false: no job is left, free h. */
bool steps_held_next(struct store_view *v, struct steps_held *h, size_t bytes_max);
/* Was it applied? Refused is fine. */
bool steps_held_try(struct store_bed *b, struct steps_held *h);
void steps_held_apply(struct store_bed *b, struct steps_held *h); /* tries, and frees */
void steps_held_free(struct steps_held *h);                       /* NULL is fine */

#endif
