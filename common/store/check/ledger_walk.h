/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_walk.h: a walk of the auditor from inside: what it read of one service, for those who
 * write it down (ledger_accept.c).
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
    struct ledger_sum at[3]; /* by enum ledger_where: what is there */
    bool away;               /* some of it is far away, and was passed over (cold_read.h) */
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
    bool first;  /* a baseline is wanted: of all there is, wherever it is */
    bool in_run; /* `next` is a key of it */
    struct key next;
    uint32_t generation;
    size_t deep_rows;
    char names[2][STORE_NAME_MAX];
    struct ledger_result result;
};

/* What must be there by the rows of a bucket. */
struct ledger_sum ledger_want_raw(const struct ledger_node *b);
struct ledger_sum ledger_want_sealed(const struct ledger_node *b);
/* The same, but for what was accepted; where that came back, it is no difference either. */
struct ledger_sum ledger_want(const struct ledger_node *b, enum ledger_where where);
bool ledger_same(const struct ledger_sum *x, const struct ledger_sum *y, bool rows);

#endif
