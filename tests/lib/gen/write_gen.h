/* SPDX-License-Identifier: Apache-2.0
 *
 * write_gen.h: WriteRequests for tests, and a slow obvious model of what they add up to.
 */
#ifndef TESTS_LIB_GEN_WRITE_GEN_H
#define TESTS_LIB_GEN_WRITE_GEN_H

#include "common/base/buf.h"
#include "common/base/map.h"
#include "common/base/prng.h"
#include "common/model/stacks.h"

/* Folded stack ("a;b;c", "" for the root) -> sum. */
struct write_model {
    struct map_str *sums; /* keys and values are owned */
    uint64_t total;
};
void write_model_init(struct write_model *m);
void write_model_deinit(struct write_model *m);
void write_model_add(struct write_model *m, struct str folded, uint64_t value);
uint64_t write_model_get(const struct write_model *m, struct str folded);
/* Every sum is the same in both; says the first difference on stderr. */
bool write_model_eq(const struct write_model *a, const struct write_model *b);
/* Adds the self values of a set of stacks. */
void write_model_add_stacks(struct write_model *m, const struct stacks_view *v,
                            const uint32_t *nodes, const uint64_t *values, size_t len);

struct write_gen {
    const char *tenant, *service, *profile_type; /* NULL: "t", "svc", a cpu type */
    const char *pod;                             /* value of the label pod; NULL: "p0" */
    uint32_t shard;
    uint32_t slot;
    uint64_t wid;    /* low half of the write id */
    uint32_t stacks; /* how many random stacks, 0: 5 */
    bool gauge;
    const char *leaf; /* not NULL: one stack of this one function, worth `value` */
    uint64_t value;
};
/* Appends a packed request with one series and one vector to *out, and its values to *m (may be
 * NULL). */
void write_gen_pack(const struct write_gen *g, struct prng *p, struct buf *out,
                    struct write_model *m);

#define WRITE_GEN_CPU "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

#endif
