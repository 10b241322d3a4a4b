/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_write.h: what parca-agent sends, as Arrow streams, to pushes.
 *
 * v2 (WriteArrow) is one stream that has everything. v1 (Write) comes in two: samples that name
 * their stacks by ids, then the stacks the server asked for. Pure: any thread. Rows that are wrong
 * only in themselves are rejected through the sink; ERR_INPUT, ERR_LIMIT: all of it is.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_WRITE_H
#define DISTRIBUTOR_PARCA_PARCA_WRITE_H

#include "distributor/formats/batch.h"

struct parca_turn;
struct parca_opts {
    const char *drop_labels; /* names, separated by commas */
    uint64_t seed;           /* of tables; random, so that no client can make their keys collide */
    struct parca_turn
        *turn; /* WriteRaw: remembers counters (parca_since.h); NULL: stores them unchanged */
};

NODISCARD int parca_arrow_push(struct str body, const struct parca_opts *o,
                               const struct batch_sink *sink, struct err *e);
NODISCARD int parca_samples_push(struct str samples, struct str stacks, const struct parca_opts *o,
                                 const struct batch_sink *sink, struct err *e);
/* The stream that asks for the stacks of all ids in `samples`, each once. *ret_ids: how many. */
NODISCARD int parca_samples_ask(struct str samples, const struct limits *l, uint64_t seed,
                                struct buf *out, size_t *ret_ids, struct err *e);

#endif
