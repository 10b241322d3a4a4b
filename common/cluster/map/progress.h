/* SPDX-License-Identifier: Apache-2.0
 *
 * progress.h: what a node reports to the controller every few seconds: how far its replicas are,
 * and which services are the busiest. JSON in one key.
 */
#ifndef COMMON_CLUSTER_MAP_PROGRESS_H
#define COMMON_CLUSTER_MAP_PROGRESS_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/cluster/map/record.h"

#define PROGRESS_BYTES_MAX    MIB
#define PROGRESS_SERVICES_MAX 64
#define PROGRESS_RATE_MAX     (UINT64_C(1) << 40) /* more is taken for this: sums stay small */
#define PROGRESS_STORED_MAX   (UINT64_C(1) << 50)

struct progress_coming { /* a database that comes in, of another replica */
    bool files, rows;    /* which of them; neither: none */
    uint64_t bytes;      /* that are here */
    uint64_t total;      /* 0: not known; of rows it never is */
    bool timed;          /* per_s is known */
    uint64_t per_s;      /* bytes, of late */
};
struct progress_shard {
    uint32_t shard;
    uint64_t term;         /* of the last entry of its log */
    uint64_t last, commit; /* indexes in the log; a leader's `commit` is what others must reach */
    bool leads;            /* it leads now, as far as it knows */
    bool full;             /* its disk is as good as full, or it fails: it should not lead */
    bool lost;             /* its log is gone: it says nothing to others (repl/protocol/replica.h,
    silent) */
    uint64_t rate;         /* bytes per second that its log takes, a slow mean; leading or not */
    uint64_t bytes;        /* that its database stores */
    /* Only of a shard that is served, else 0. No profile that is, or may yet be, stored in it
     * through this node is later than this, except profiles placed by maps later than `map`. At
     * least 1. */
    int64_t newest_ms;
    struct progress_coming coming;
    struct str why; /* no copy comes in, though one should: for people; else empty */
    bool timed;     /* per_s is known */
    uint64_t per_s; /* entries that its log grew by, of late */
};
struct progress_bad { /* a copy that takes nothing: it is no copy, whatever its node's lease says */
    uint32_t shard;
    struct str node; /* empty: the node that says so; else a member that acks nothing to us */
    struct str why;  /* for people */
};
#define PROGRESS_BAD_MAX 256
#define PROGRESS_WHY_MAX 200 /* bytes; more is cut */
enum progress_room { PROGRESS_ROOM_UNSAID, PROGRESS_ROOM, PROGRESS_NO_ROOM };
struct progress_service { /* of what this node's leaders take in */
    struct str tenant, name;
    uint64_t rate; /* bytes per second */
};
struct progress {
    const struct progress_shard *shards;
    size_t shards_len;
    const struct progress_service *services;
    size_t services_len;
    struct str cold; /* what is wrong with its object store: for people; else empty */
    const struct progress_bad *bad;
    size_t bad_len;
    struct str trouble;      /* nothing is stored on this node now, for its disk: why; else empty */
    enum progress_room room; /* on its disk; `full` of its shards may have other reasons */
    uint64_t replace_ms;     /* cluster.replace_after there; 0: it does not say */
    uint64_t map; /* version that this node goes by, also after a restart; 0: it does not say */
};
void progress_write(const struct progress *p, struct buf *out);
/* In the arena, strings too. */
NODISCARD int progress_parse(struct str text, struct arena *a, struct progress *ret, struct err *e);

#endif
