/* SPDX-License-Identifier: Apache-2.0
 *
 * year_stacks.h: the call stacks of a simulated service: real ones of the test data, and as many
 * more as asked for, put together from their parts. A deploy moves lines, so that stacks change.
 */
#ifndef TESTS_LIB_GEN_YEAR_STACKS_H
#define TESTS_LIB_GEN_YEAR_STACKS_H

#include "common/base/prng.h"
#include "common/model/stacks.h"

enum year_kind { YEAR_KAFKA, YEAR_NODE, YEAR_PYTHON };
#define YEAR_KINDS 3

/* What was measured on real services of this kind, per 10 s and process. */
struct year_kind_row {
    const char *name;
    const char *files[4]; /* of the test data */
    uint32_t samples, stacks, depth;
    double beta;      /* distinct stacks of n windows grow like n^beta, once n is large */
    uint64_t unit;    /* value of a sample, ns */
    uint32_t gzip;    /* bytes of a profile as gzip'd pprof */
    double functions; /* share of new frames that are new functions */
    double more;      /* chance that a new stack has one new node more */
};
extern const struct year_kind_row year_kinds[YEAR_KINDS];

struct year_follow {
    uint32_t func, frame;
};
struct year_stacks {
    const struct year_kind_row *row;
    struct prng prng;
    struct stacks all;             /* of all times */
    VEC(uint32_t) node;            /* by stack: its node today */
    VEC(struct year_follow) after; /* what was seen to follow a function; sorted */
    size_t real;                   /* how many of the stacks are */
    uint32_t deploy;               /* number of the last one */
    bool synthetic;                /* no test data: everything is made up */
};
/* `count` stacks; says loudly if the test data are missing. */
void year_stacks_init(struct year_stacks *y, enum year_kind kind, uint32_t count, uint64_t seed);
void year_stacks_deinit(struct year_stacks *y);
/* The next deploy: so many stacks of 1,000 get other lines near their leaf. */
void year_stacks_deploy(struct year_stacks *y, uint32_t permille);
uint32_t year_stacks_depth(const struct year_stacks *y, uint32_t node);

#endif
