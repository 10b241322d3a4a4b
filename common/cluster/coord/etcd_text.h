/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_text.h: what is said to etcd's JSON gateway (v3) and what it answers. Pure.
 *
 * The gateway writes 64-bit integers as strings, bytes as base64, and leaves out what is zero,
 * false or empty. A stream is a line of JSON each, wrapped as {"result": ...}.
 *
 * Protocol: etcd 3.5, gRPC gateway (proto/WIRE.md, "etcd").
 */
#ifndef COMMON_CLUSTER_COORD_ETCD_TEXT_H
#define COMMON_CLUSTER_COORD_ETCD_TEXT_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/cluster/coord/coord.h"

#define ETCD_ANSWER_MAX (32 * MIB)

/* Keys that begin with `prefix`; `count`: only how many, to see that the service answers. */
void etcd_put_range(struct buf *out, struct str prefix, bool count);
void etcd_put_txn(struct buf *out, const struct coord_compare *cmp, size_t cmp_len,
                  const struct coord_change *chg, size_t chg_len);
void etcd_put_grant(struct buf *out, uint64_t ttl_ms); /* rounded up to seconds */
void etcd_put_lease(struct buf *out, int64_t lease);   /* keep, revoke */
void etcd_put_watch(struct buf *out, struct str prefix, int64_t from_rev);
void etcd_put_login(struct buf *out, const char *user, const char *password);

struct etcd_answer { /* what is missing is 0 */
    int64_t rev;
    uint64_t cluster;
    struct coord_kv *kvs; /* of a range, or the events of a watch */
    size_t kvs_len;
    bool succeeded; /* transaction */
    int64_t lease;
    uint64_t ttl_ms;
    bool created, canceled; /* watch */
    int64_t compacted;      /* watch: from this revision on there is a history */
    struct str token;       /* login */
    struct str error;       /* it says so, in words; "" none */
    int64_t error_code;     /* of gRPC: 5 not found, 16 unauthenticated, ... */
};
/* One answer or one line of a stream. All in the arena. ERR_INPUT, ERR_LIMIT. */
NODISCARD int etcd_parse(struct str text, struct arena *a, struct etcd_answer *ret, struct err *e);

#endif
