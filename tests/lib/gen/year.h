/* SPDX-License-Identifier: Apache-2.0
 *
 * year.h: a simulated year of one service, seeded: the same options give the same profiles, each a
 * pure function of (pod, slot, length), as long as time does not go back over a deploy.
 *
 * Pods do about the same with their own moods, more by day than at night and at weekends; every few
 * days a deploy moves lines and renames all pods; at random a pod restarts with a new name.
 *
 *   struct year *y = year_new(&opts);
 *   year_begin(y);
 *   for each pod and time: year_add(y, pod, slot, slots);
 *   store_stage(s, batch, year_end(y), ...);           or year_pack() for the wire
 */
#ifndef TESTS_LIB_GEN_YEAR_H
#define TESTS_LIB_GEN_YEAR_H

#include <stdio.h>

#include "common/store/store.h"
#include "tests/lib/gen/year_stacks.h"

#define YEAR_TYPE      "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
#define YEAR_TENANT    "anonymous"
#define YEAR_DAY_SLOTS 17280u

struct year_opts {
    uint64_t seed;
    enum year_kind kind;
    uint32_t pods;
    uint32_t stacks;      /* how many different ones there are between two deploys */
    uint32_t deploy_days; /* 0: never */
    uint32_t moved;       /* stacks of 1,000 that change at a deploy */
    uint32_t zones;       /* values of the label zone; 0: no such label */
    uint32_t samples;     /* per 10 s; 0: as the kind */
    bool no_nights;       /* the same load at all times */
    bool no_restarts;     /* pods keep their names between deploys */
    uint32_t start;       /* first slot, at midnight */
    const char *service;  /* NULL: the name of the kind */
};
struct year;
struct year *year_new(const struct year_opts *o);
void year_free(struct year *y);
const struct year_stacks *year_stacks(const struct year *y);

/* One profile: nodes of year_stacks(y)->all, ascending, values > 0; valid until the next call. */
struct year_profile {
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
    uint64_t samples;
};
/* What `pod` did in [slot, slot + slots). */
struct year_profile year_profile(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots);
/* Its labels then, sorted; valid as long as `text`. */
struct year_labels {
    char pod[96], zone[16];
    struct label at[4];
    struct labels labels;
};
void year_labels(const struct year *y, uint32_t pod, uint32_t slot, struct year_labels *ret);

/* A request of many profiles; those of a pod come in order of time. */
void year_begin(struct year *y);
void year_add(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots);
const struct store_write *year_end(struct year *y); /* valid until year_begin */
size_t year_profiles(const struct year *y);         /* in the request */
/* The request as a WriteRequest message, appended. */
void year_pack(const struct store_write *w, uint32_t shard, struct buf *out);
/* The profile as agents send it: gzip'd pprof; replaces *out. */
void year_pprof(struct year *y, uint32_t pod, uint32_t slot, uint32_t slots, struct buf *out);

/* Prints what was measured on real services beside what this one does. */
void year_print_fit(struct year *y, FILE *to);

#endif
