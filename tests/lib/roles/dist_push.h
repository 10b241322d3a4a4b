/* SPDX-License-Identifier: Apache-2.0
 *
 * dist_push.h: decode one body as the distributor does, and read what came out by names.
 */
#ifndef TESTS_LIB_ROLES_DIST_PUSH_H
#define TESTS_LIB_ROLES_DIST_PUSH_H

#include "distributor/formats/formats.h"

#define DIST_NOW_MS INT64_C(1790000000000) /* 2026-09-21 */

struct dist_push {
    struct arena *arena;
    struct ingest in;
    struct push push;
};
/* name = "app.cpu" and the like; format and content_type may be NULL. d is to be freed always. */
int dist_decode(struct dist_push *d, const char *name, const char *format, const char *content_type,
                struct str body, const struct limits *l, struct err *e);
int dist_decode_raw(struct dist_push *d, const struct ingest_raw *raw, struct str body,
                    const struct limits *l, struct err *e);
void dist_push_free(struct dist_push *d);

/* "<sample type>\t{label=value,...}\t<root;...;leaf>\t<value>" per node of each series, sorted;
 * labels that every push has are left out. */
void dist_rows(const struct push *p, struct buf *out);
/* ";function|file|module|line|address" for each frame, root first. */
void dist_stack(const struct stacks *s, uint32_t node, struct buf *out);
/* All that is stored, a line for each value of each series and exemplar: type, labels, unit, gauge,
 * all parts of the frames; sorted. */
void dist_whole(const struct push *p, struct buf *out);
/* CHECKs that both left out the same. Of sums that stay at 2^63 - 1 only whether there are any: it
 * is additions that are counted, and how many go over depends on their order. */
void dist_same_drops(const struct push *a, const struct push *b);
/* The series with this sample type and no or any labels; NULL if missing. */
const struct push_series *dist_series(const struct push *p, const char *sample_type);
/* Function, or file!0xaddr if it has no name. */
void dist_frame_name(const struct stacks *s, uint32_t frame, struct buf *out);
/* The exemplars of a series: ids differ within a kind, samples are the series'. CHECKed. */
void dist_check_exemplars(const struct push_series *s);
/* All invariants of a push: CHECKed. */
void dist_check(const struct push *p, const struct limits *l);

/* Sum over all series of that sample type, by name of the leaf, largest first, then by name. */
struct dist_self {
    char *name; /* owned */
    size_t len;
    uint64_t value;
};
struct dist_summary {
    uint64_t total;         /* not saturated: may wrap only in tests that expect it */
    size_t stacks;          /* distinct lists of names */
    struct dist_self *self; /* owned */
    size_t self_len;
};
void dist_summarise(const struct push *p, const char *sample_type, struct dist_summary *ret);
void dist_summary_deinit(struct dist_summary *s);

#endif
