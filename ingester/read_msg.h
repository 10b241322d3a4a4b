/* SPDX-License-Identifier: Apache-2.0
 *
 * read_msg.h: the requests of proto/query.proto as the engine wants them, checked; and its replies.
 */
#ifndef INGESTER_READ_MSG_H
#define INGESTER_READ_MSG_H

#include "common/rpc/rpc.h"
#include "common/store/store.h"

#define READ_SHARDS_MAX 4096

struct read_msg {
    enum rpc_method method; /* RPC_MERGE, RPC_TIMELINE, RPC_LABELS or RPC_FUNCTIONS */
    struct selector selector;
    const uint32_t *shards; /* none: all */
    size_t shards_len;
    struct store_query query; /* MERGE, TIMELINE */
    uint64_t bytes_max;       /* MERGE; 0: only the ingester's own limit */
    const struct str *call_site;
    size_t call_site_len;
    int64_t origin_ms, step_ms; /* TIMELINE */
    uint32_t points;
    const struct str *group_by;
    size_t group_by_len;
    struct store_labels_query labels; /* LABELS */
    const struct str *names;          /* FUNCTIONS, with the grid of TIMELINE; none: all */
    size_t names_len;
};

/* Everything lives in the arena but the regexes: read_msg_deinit, also after an error. ret->query
 * points into *ret. ERR_INPUT names what is wrong. Any thread. */
NODISCARD int read_msg_decode(enum rpc_method method, struct str payload, struct arena *a,
                              struct read_msg *ret, struct err *e);
void read_msg_deinit(struct read_msg *m);

/* Append the packed reply to *out, whose max is the limit: ERR_LIMIT. */
NODISCARD int merge_reply_pack(const struct store_merge *m, struct buf *out, struct err *e);
NODISCARD int timeline_reply_pack(const struct store_timeline *t, struct arena *a, struct buf *out,
                                  struct err *e);
NODISCARD int functions_reply_pack(const struct store_functions *f, struct arena *a,
                                   struct buf *out, struct err *e);
NODISCARD int labels_reply_pack(const struct store_labels *l, struct arena *a, struct buf *out,
                                struct err *e);

#endif
