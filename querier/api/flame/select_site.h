/* SPDX-License-Identifier: Apache-2.0
 *
 * select_site.h: SelectSeries below a call site, between select_site.c, which asks for the sums of
 * cells, and select_site_points.c, which makes the answer of them.
 */
#ifndef QUERIER_API_FLAME_SELECT_SITE_H
#define QUERIER_API_FLAME_SELECT_SITE_H

#include "querier/api/flame/select.h"

#define SELECT_SITE_BATCH 32
#define SELECT_SITE_NODES 8

enum {
    ASK_WRITES = SELECT_SITE_BATCH,
    ASK_SETS = 2 * SELECT_SITE_BATCH,
    ASK_EXEMPLARS,
    ASK_STARTS,
    ASK_SPREAD
};

struct site {
    struct select_series *s;
    struct labels *groups;    /* one without labels where nothing is grouped by */
    struct query_spec *specs; /* of the groups */
    size_t groups_len;
    struct plan_grid cells; /* that of the points; or of leaves, if flat */
    bool flat;              /* select_flat.h */
    size_t next;            /* cell: group * cells.points + its number */
    size_t batch;           /* so many at once, up to SELECT_SITE_BATCH */
    int64_t *edges;         /* cells.points + 1 of them: where each begins, and the last ends */
    /* Edges up to it stand at multiples of this length, or of a longer one. */
    int64_t until[SELECT_SITE_NODES];
    int64_t crossed; /* the last edge that was inside a node; 0: none */
    uint64_t *sum, *writes;
    uint32_t *leaves;
    bool gauge;
};

/* All cells are read: asks for what else the answer needs, and sets the last step. */
NODISCARD int select_site_reply(struct query *q, const struct site *x, struct err *e);
int select_site_no_room(struct err *e); /* ERR_LIMIT */

#endif
