/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_walk.h: the state of an audit: what it has read of one service, for the code that stores
 * its result (ledger_accept.c).
 */
#ifndef COMMON_STORE_CHECK_LEDGER_WALK_H
#define COMMON_STORE_CHECK_LEDGER_WALK_H

#include "common/store/ledger/adjust.h"
#include "common/store/ledger/ledger_mem.h"

struct ledger_node {
    uint32_t number;
    struct ledger_sum in;
    struct ledger_out out;
    struct ledger_found found;
    struct ledger_adjust adjust;
    struct ledger_sum at[3]; /* by enum ledger_where: the stored rows */
    bool away;               /* some of its rows are remote and were skipped (cold_read.h) */
};
struct ledger_part {
    struct member m;
    struct floors floors;
    struct ledger_whole whole;
    bool counted; /* by this generation */
    VEC(struct ledger_node) buckets;
};
struct ledger_run {
    size_t part;
    enum ledger_where where;
    uint32_t level, from, to;
};
struct ledger_audit {
    struct store_view *v;
    VEC(struct ledger_part) parts;
    VEC(struct ledger_run) runs;
    size_t run;  /* the one at work */
    bool raw;    /* unsealed rows are done */
    bool begun;  /* the runs are known */
    bool first;  /* it makes a baseline, which counts all rows, remote ones, too */
    bool in_run; /* `next` is a key of it */
    struct key next;
    uint32_t generation;
    size_t deep_rows;
    char names[2][STORE_NAME_MAX];
    struct ledger_result result;
};

/* What must be stored according to the ledger rows of a bucket. */
struct ledger_sum ledger_want_raw(const struct ledger_node *b);
struct ledger_sum ledger_want_sealed(const struct ledger_node *b);
/* The same, corrected by accepted differences. If lost rows that were accepted have come back, they
 * are no difference. */
struct ledger_sum ledger_want(const struct ledger_node *b, enum ledger_where where);
bool ledger_same(const struct ledger_sum *x, const struct ledger_sum *y, bool rows);

#endif
