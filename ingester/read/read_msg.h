/* SPDX-License-Identifier: Apache-2.0
 *
 * read_msg.h: the requests of proto/query.proto as the engine wants them, checked; and its replies.
 */
#ifndef INGESTER_READ_READ_MSG_H
#define INGESTER_READ_READ_MSG_H

#include "common/rpc/rpc.h"
#include "common/store/exemplar/exm.h"
#include "common/store/store.h"
#include "proto/common.pb-c.h"

#define READ_SHARDS_MAX  4096
#define READ_POINTS_MAX  1000000
#define READ_TIME_MS_MAX (INT64_MAX / 4)

enum read_exm { READ_EXM_MERGE, READ_EXM_LIST, READ_EXM_TIMELINE }; /* travels */

struct read_msg {
    enum rpc_method method; /* RPC_MERGE, _TIMELINE, _LABELS, .. */
    struct selector selector;
    const uint32_t *shards; /* none: all */
    size_t shards_len;
    uint64_t map_version;     /* placement_guard_read; 0: not said */
    struct store_query query; /* MERGE, TIMELINE */
    uint64_t bytes_max;       /* MERGE; 0: only the ingester's own limit */
    uint64_t cost_max;        /* MERGE, FUNCTIONS: of bytes to be read; 0: any */
    const struct str *call_site;
    size_t call_site_len;
    int64_t origin_ms, step_ms; /* TIMELINE */
    uint32_t points;
    const struct str *group_by;
    size_t group_by_len;
    struct store_labels_query labels; /* LABELS */
    const struct str *names;          /* FUNCTIONS, with the grid of TIMELINE; none: all */
    size_t names_len;
    bool leaf_items;            /* TIMELINE, FUNCTIONS: the reply says which leaves of a gauge */
    bool detail;                /* ESTIMATE: `query` and this; SPACE: not by tenant alone */
    enum read_exm what;         /* EXEMPLARS: `query` and the next */
    struct store_exm_query exm; /* its q is not set */
    uint32_t limit;
    const struct Embertree__LedgerRequest *ledger; /* LEDGER of a distributor, else NULL */
};

/* Everything lives in the arena but the regexes: read_msg_deinit, also after an error. ret->query
 * points into *ret. ERR_INPUT names what is wrong. Any thread. */
NODISCARD int read_msg_decode(enum rpc_method method, struct str payload, struct arena *a,
                              struct read_msg *ret, struct err *e);
void read_msg_deinit(struct read_msg *m);

/* For decoders of other files. */
NODISCARD int read_take_matchers(Embertree__Matcher *const *in, size_t n, struct arena *a,
                                 struct selector *ret, struct err *e);
NODISCARD int read_take_strs(const ProtobufCBinaryData *in, size_t n, struct arena *a,
                             const struct str **ret, size_t *ret_len, struct err *e);
/* The fields of all requests but their matchers, which are compiled last: the shards that have the
 * data, by which map, and the tenant. Each message is a type of its own to protobuf-c. */
struct read_head {
    const uint32_t *shards;
    size_t shards_len;
    uint64_t map_version;
    ProtobufCBinaryData tenant;
};
#define READ_HEAD(in) \
    (&(struct read_head){ (in)->shards, (in)->n_shards, (in)->map_version, (in)->tenant })
/* ERR_LIMIT: too many shards. */
NODISCARD int read_take_head(const struct read_head *h, struct read_msg *m, struct err *e);
/* Sets origin, step, points and the times of the query. */
NODISCARD int read_take_grid(int64_t origin_ms, int64_t step_ms, uint32_t points,
                             struct read_msg *m, struct err *e);
NODISCARD int read_check_times(int64_t start_ms, int64_t end_ms, struct err *e);
/* And for those who pack: room in *out or NULL with ERR_LIMIT; labels in the arena or NULL. */
uint8_t *reply_room(struct buf *out, size_t size, struct err *e);
Embertree__LabelPair **pack_labels(const struct labels *l, struct arena *a);

/* Append the packed reply to *out, whose max is the limit: ERR_LIMIT. */
NODISCARD int merge_reply_pack(const struct store_merge *m, struct buf *out, struct err *e);
/* leaf_items: with those of the series. */
NODISCARD int timeline_reply_pack(const struct store_timeline *t, bool leaf_items, struct arena *a,
                                  struct buf *out, struct err *e);
NODISCARD int functions_reply_pack(const struct store_functions *f, bool leaf_items,
                                   struct arena *a, struct buf *out, struct err *e);
NODISCARD int labels_reply_pack(const struct store_labels *l, struct arena *a, struct buf *out,
                                struct err *e);

#endif
