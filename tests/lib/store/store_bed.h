/* SPDX-License-Identifier: Apache-2.0
 *
 * store_bed.h: a store over memory, with a clock that tests move and a disk that fails on request.
 */
#ifndef TESTS_LIB_STORE_STORE_BED_H
#define TESTS_LIB_STORE_STORE_BED_H

#include "common/store/kv/kv_mem.h"
#include "common/store/store.h"

struct store_bed {
    struct kv_mem_faults faults;
    struct clock_fake clock;
    struct store_opts o; /* o.kv is that of the open store */
    struct store *s;
    size_t ahead; /* parts that were staged ahead of pushes */
};
/* Fields of *o but kv and clock; begins at BED_START_MS. Opens. */
#define BED_START_MS INT64_C(1750000000000)
void store_bed_init(struct store_bed *b, const struct store_opts *o);
void store_bed_deinit(struct store_bed *b);
/* Closes and opens, as after `how`; nothing may be in flight that the caller still wants. */
void store_bed_reopen(struct store_bed *b, enum kv_mem_crash how, uint64_t keep);
uint32_t store_bed_slot(const struct store_bed *b); /* now */

/* A push in words: labels "pod=a,zone=b", stacks "a;b=5 a;b;c=3" (names of functions; "=4" alone is
 * the root). NULL: tenant "t", service "svc", a cpu type, no labels. */
struct bed_push {
    const char *tenant, *service, *type, *labels, *stacks;
    uint32_t slot;
    uint64_t wid;
    bool gauge;
    uint32_t times, every; /* that often the same, so many slots apart; 0: once */
    const char *exemplars; /* "<kind>:<id>:<stacks>|...", sorted: "1:0123456789abcdef:a;b=5" */
    uint32_t duration_ms;  /* of those; 0: 10,000 */
    uint32_t spread;       /* slots it covers; 0: not said */
    uint64_t print;        /* fingerprint; 0: not known */
    unsigned ahead;        /* store_bed_push: its stacks before it, in so many parts */
};
#define BED_TIMES_MAX 64
#define BED_CPU       "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
/* Into a batch; the code of store_stage. Fails where it becomes larger than store_write_bytes. */
int store_bed_stage(struct store_bed *b, struct store_batch *to, const struct bed_push *p,
                    struct store_result *ret, struct err *e);
/* A batch of its own, committed: 1 stored, 0 a duplicate. Stops the test on an error. */
int store_bed_push(struct store_bed *b, const struct bed_push *p);
/* Seals all that is due. */
void store_bed_seal(struct store_bed *b);
/* What a selector means over a range of slots, as "a;b=5 a;b;c=3" in order of text. */
const char *store_bed_merge(struct store_bed *b, const char *tenant, const char *selector,
                            const char *type, uint32_t from, uint32_t to);
/* An answer in the same words. Both return the same few static bytes. */
const char *store_bed_text(const struct store_merge *m);

#endif
