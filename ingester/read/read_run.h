/* SPDX-License-Identifier: Apache-2.0
 *
 * read_run.h: one query over the shards of this process: read, unite, pack.
 */
#ifndef INGESTER_READ_READ_RUN_H
#define INGESTER_READ_READ_RUN_H

#include <stdatomic.h>

#include "ingester/read/read_msg.h"

struct auditor; /* auditor.h */

struct read_source {
    struct store *const *stores;
    size_t len;
    uint64_t stacks_bytes_max; /* memory for the merged stacks */
    size_t reply_bytes_max;
    size_t exemplars_max; /* in a list */
    uint64_t disk_free, disk_reserve;
    uint64_t node_id; /* of the volume's node, and its name; SPACE */
    struct str node;
    const atomic_bool *cancel;
    struct auditor *auditor; /* LEDGER */
    const uint32_t *numbers; /* of the stores */
};
/* Appends the packed reply to *out (initialised here). *ret_rows counts stored rows looked at. */
NODISCARD int read_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                       struct buf *out, uint64_t *ret_rows, struct err *e);

/* Merges what `fn` gives for each store, cuts it to the call site of the request, and appends the
 * packed reply. *ret is empty and has a builder of stacks, which all calls share. */
struct read_merge {
    int (*fn)(const void *cookie, struct store *s, struct store_merge *ret, struct err *e);
    const void *cookie;
};
NODISCARD int read_run_merge(const struct read_merge *how, const struct read_msg *m,
                             const struct read_source *src, struct buf *out, uint64_t *ret_rows,
                             struct err *e);

#endif
