/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_labels.h: label sets of Parca's samples to services and labels of series.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_LABELS_H
#define DISTRIBUTOR_PARCA_PARCA_LABELS_H

#include "common/base/map.h"
#include "common/base/vec.h"
#include "common/model/exid.h"
#include "common/model/label.h"
#include "distributor/formats/limits.h"

#define PARCA_DROP_LABELS "cpu,thread_id"
#define PARCA_OVERFLOW    "[overflow]"
#define PARCA_NO_SERVICE  "unknown_service"
#define PARCA_NO_ID       UINT32_MAX

/* What a set of labels as sent becomes. Text is in the arena. */
struct parca_set {
    struct str service;
    struct labels labels;        /* canonical, without service_name, ids and hidden ones */
    struct exid ids[EXID_KINDS]; /* len 0: none */
    uint64_t dropped;            /* labels that cannot be stored */
};
/* Makes a set of the labels as sent, in any order. `drop`: names, separated by commas, of labels to
 * leave out. ERR_LIMIT: the arena is full. */
NODISCARD int parca_set(const struct labels *given, const char *drop, const struct limits *l,
                        struct arena *a, struct parca_set *ret, struct err *e);

/* The sets of one body. Those that were sent and differ may be one set in the end. */
struct parca_sent {
    const struct str *values; /* by column, {NULL, 0}: not there */
    uint32_t set;             /* of sets */
    struct exid ids[EXID_KINDS];
};
struct parca_sets {
    struct arena *arena; /* borrowed, as all else */
    const struct limits *limits;
    const char *drop;
    const struct str *names; /* of columns */
    size_t columns;
    uint64_t seed;
    VEC(struct parca_sent) sent; /* owned, as all below */
    VEC(struct parca_set) sets;
    struct map_u64 sent_ids, set_ids;
};
void parca_sets_init(struct parca_sets *s);
void parca_sets_deinit(struct parca_sets *s);
/* The place in s->sent of one value per column. ERR_LIMIT. */
NODISCARD int parca_sets_find(struct parca_sets *s, const struct str *values, uint32_t *ret,
                              struct err *e);

#endif
