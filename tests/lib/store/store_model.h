/* SPDX-License-Identifier: Apache-2.0
 *
 * store_model.h: random pushes, and the slow obvious engine: a list of all pushes, summed again for
 * each question. What the real one answers must be the same, sample by sample.
 *
 * A world has a few tenants, services, label sets, types and stacks: pushes meet each other.
 * Stacks are texts: frames "func|file|module|line|addr" joined by ';', root first; "" is the root.
 */
#ifndef TESTS_LIB_STORE_STORE_MODEL_H
#define TESTS_LIB_STORE_STORE_MODEL_H

#include "common/base/map.h"
#include "common/base/prng.h"
#include "common/store/store.h"

struct model_stack {
    VEC(struct frame) frames; /* strings are indexes into `strings` of the world */
    struct str text;
};
struct model_type {
    const char *id;
    bool gauge;
};
struct model_series {
    const char *tenant, *service;
    struct labels labels; /* with service_name, without what follows from the type */
};
struct model_world {
    struct prng prng;
    struct arena *arena; /* of everything below */
    VEC(struct str) strings;
    VEC(struct model_stack) stacks;
    VEC(struct model_series) series;
    uint64_t wids; /* next write id */
};
#define MODEL_TYPES 4
extern const struct model_type model_types[MODEL_TYPES];

struct model_sample {
    uint32_t stack; /* of the world */
    uint64_t value;
};
struct model_vector {
    uint32_t slot;
    VEC(struct model_sample) samples;
};
/* One series of a request. */
struct model_push {
    uint32_t series, type;
    uint8_t wid[16];
    VEC(struct model_vector) vectors;
};
struct model_request { /* pushes to one service */
    VEC(struct model_push) pushes;
};
struct model {
    struct model_world *w;
    bool floors;                   /* edges of answers may snap to nodes wider than leaves */
    VEC(struct model_push) pushes; /* borrowed from requests */
};

void model_world_init(struct model_world *w, uint64_t seed);
void model_world_deinit(struct model_world *w);
/* A random request around a slot; free with model_request_free. */
struct model_request *model_request_new(struct model_world *w, uint32_t slot);
void model_request_free(struct model_request *r);
/* As the store takes it; everything in the arena. */
void model_request_write(struct model_world *w, const struct model_request *r, struct stacks *st,
                         struct arena *a, struct store_write *ret);
void model_add(struct model *m, const struct model_request *r);

/* A random selector, as text in the arena, compiled. */
struct selector model_selector(struct model_world *w, struct arena *a);
/* The labels of a series and type with all that follows from the type. */
struct labels model_labels(const struct model_world *w, uint32_t series, uint32_t type,
                           struct arena *a);

/* Answers of the model's first n pushes, and comparisons with those of a view. They stop the test
 * with the first difference. */
void model_check_merge(const struct model *m, size_t n, struct store_view *v,
                       const struct store_query *q);
void model_check_timeline(const struct model *m, size_t n, struct store_view *v,
                          const struct store_query *q, int64_t origin_ms, int64_t step_ms,
                          uint32_t points, const struct str *group_by, size_t group_by_len);
void model_check_labels(const struct model *m, size_t n, struct store_view *v,
                        const struct store_labels_query *q);

#endif
