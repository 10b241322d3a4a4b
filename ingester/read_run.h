/* SPDX-License-Identifier: Apache-2.0
 *
 * read_run.h: one query over the shards of this process: read, unite, pack.
 */
#ifndef INGESTER_READ_RUN_H
#define INGESTER_READ_RUN_H

#include "ingester/read_msg.h"

struct auditor; /* ledger.h */

struct read_source {
    struct store *const *stores;
    size_t len;
    uint64_t stacks_bytes_max; /* memory for the merged stacks */
    size_t reply_bytes_max;
    size_t exemplars_max; /* in a list */
    uint64_t disk_free, disk_reserve;
    uint64_t node_id; /* of the volume's node, and its name; SPACE */
    struct str node;
    const bool *cancel;
    struct auditor *auditor; /* LEDGER */
    const uint32_t *numbers; /* of the stores */
};
/* Appends the packed reply to *out (initialised here). *ret_rows counts stored rows looked at. */
NODISCARD int read_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                       struct buf *out, uint64_t *ret_rows, struct err *e);

/* Adds an answer over the same builder of stacks. */
void merge_unite(struct store_merge *to, const struct store_merge *from);
/* Keeps the stacks that start with the functions `site`, root first: *from becomes the smaller
 * answer; its builder is replaced by `out`, which holds only what is needed. ERR_LIMIT. */
NODISCARD int merge_cut(struct store_merge *from, const struct str *site, size_t site_len,
                        struct stacks *out, struct err *e);

#endif
