/* SPDX-License-Identifier: Apache-2.0
 *
 * seal_steps.h: what the files of the seal and of deletes share.
 */
#ifndef COMMON_STORE_SEAL_SEAL_STEPS_H
#define COMMON_STORE_SEAL_SEAL_STEPS_H

#include "common/store/codec/timeline_row.h"
#include "common/store/codec/vecsum.h"
#include "common/store/seal/seal.h"
#include "common/store/store.h"

/* One entry while its batch is made. */
struct apply {
    struct store *s;
    const struct seal_entry *n;
    struct kv_batch *b;
    struct vecsum fold;
    struct tl tl;
    struct buf old, out;
    const struct seal_rows *rows;
    VEC(uint64_t) gids;    /* base groups of rows, if hot sums are kept */
    VEC(uint32_t) windows; /* nodes of 10 m with rows, of a part */
};
/* All that rows of one service and type change but raw and wid: rows in order of series, then t. */
NODISCARD int seal_section(struct apply *a, const struct seal_row *rows, size_t n, struct err *e);
/* The entry's row and the marks that move with it; raw rows are taken from s->raw already. */
void seal_put_log(struct store *s, const struct seal_entry *n, struct kv_batch *b);
NODISCARD int seal_mark_wids(struct apply *a, const struct seal_rows *rows, struct err *e);

#endif
