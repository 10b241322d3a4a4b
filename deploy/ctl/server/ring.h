/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h: the cluster as /ring of one server has it: nodes, shards, leaders and how far members are
 * behind; read, judged, and shown.
 */
#ifndef DEPLOY_CTL_SERVER_RING_H
#define DEPLOY_CTL_SERVER_RING_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/ask/progress.h"
#include "deploy/ctl/cli/cli.h"

struct ring_node {
    struct str name, addr, zone, state; /* state: active, draining, left, joining */
    bool live;
    uint64_t gone_ms;       /* how long ago the server asked saw it go; 0: it did not */
    uint32_t shards, leads; /* counted in the records, learners as well */
    bool full;              /* its disk is, as it says itself */
    uint32_t lost;          /* shards whose log it has lost */
    struct str trouble;     /* its disk stores nothing, as it says: why; else empty */
    struct str cold;        /* what is wrong with its object store; else empty */
    bool refused;           /* etcd takes no changes of it (ring_heard.c) */
    bool clock_known;       /* the same; ahead_ms is */
    int64_t ahead_ms;       /* of the clock of the server asked, at least */
};
enum ring_trouble {
    RING_FINE,
    RING_UNNAMED,    /* no member was named yet */
    RING_LEADERLESS, /* its leader does not live */
    RING_MINORITY,   /* half or more of its members do not */
    RING_STARTING,   /* its leader has not begun yet */
    RING_COPIES,     /* fewer copies live than there should be */
    RING_BEHIND,     /* a copy lacks much of the log */
};
struct ring_shard {
    uint64_t shard, term;
    struct str leader;
    bool named, established, leader_live;
    const struct json_val *members, *learners; /* arrays of names */
    const struct json_val *peers; /* of the leader, if it is whom we asked; else NULL */
    enum ring_trouble trouble;
};
struct ring_copy { /* what a node says of its copy of a shard */
    uint64_t shard;
    struct str node;
    uint64_t last, commit; /* indexes in the log */
    bool leads, lost;
    bool timed;     /* per_s is known */
    uint64_t per_s; /* entries that the log grows by */
    struct str why; /* all of it should come in, and does not; else empty */
    bool coming;    /* it does */
    struct progress_now come;
};
struct ring_bad { /* a copy that takes nothing */
    uint64_t shard;
    struct str node, why;
    bool own; /* its node says so; else the leader of the shard */
};
struct ring_coming {         /* all copies that come in */
    size_t copies, open;     /* open: of unknown size */
    struct progress_now sum; /* of the others */
};
#define RING_BEHIND_MOST 1000  /* entries of the log; under load some are always on their way */
#define RING_AGE_MOST_MS 30000 /* a state that is older than this may be wrong */
/* Strings are borrowed from the document. */
struct ring {
    struct str coordination; /* none, static, etcd */
    struct str trouble;      /* what the coordination service has against us */
    uint64_t map_version, replicas, age_ms;
    bool unreadable;   /* something in the coordination service does not parse */
    struct str not_in; /* the server asked is an ingester and not registered: why; else empty */
    struct str cold;   /* what is wrong with the object store of the server asked; else empty */
    bool refused_here; /* etcd takes no changes of the server asked */
    size_t refused;    /* the same of so many other nodes */
    bool ready;        /* the server asked */
    bool watched;      /* false: it is not known whether nodes live (none, static) */
    VEC(struct ring_node) nodes;
    VEC(struct ring_shard) shards;
    VEC(struct ring_copy) copies; /* of ring_copies_read */
    VEC(struct ring_bad) bad;     /* the same, and of the server asked */
    uint64_t replace_ms;          /* cluster.replace_after of the ingesters; 0: not known */
    struct ring_coming coming;    /* the same */
    size_t moving;                /* shards with learners, or with more members than copies */
    size_t troubles[RING_BEHIND + 1];
};
/* ERR_IO where the answer is not that of a server, or its shards are more than there can be. */
NODISCARD int ring_read(const struct cli *c, const struct json_val *root, struct ring *ret,
                        struct err *e);
void ring_deinit(struct ring *r);
bool ring_healthy(const struct ring *r);
/* Of an object store that is wrong: no node has one. */
bool ring_cold_right(const struct ring *r);
/* Each shard's trouble, by all that was read. */
void ring_judge(struct ring *r);
/* Why this copy takes nothing: empty, it does as far as is known. */
struct str ring_bad_why(const struct ring *r, uint64_t shard, struct str node);
/* A member's node lives and its copy takes what comes. */
bool ring_takes(const struct ring *r, const struct ring_shard *s, struct str node);
/* NULL: unknown. */
const struct ring_node *ring_node(const struct ring *r, struct str name);
struct str ring_name(const struct json_val *names, size_t i);

/* What other nodes reported to the server asked. ring_heard.c */
void ring_heard_read(struct ring *r, const struct json_val *cluster,
                     const struct json_val *ingester);

/* How far copies are, from whichever server; *ret NULL: an older server, or one without copies. The
 * document has to outlive what is read from it into the ring. */
NODISCARD int ring_copies_ask(struct cli *c, struct json_doc **ret, struct err *e);
void ring_copies_read(struct ring *r, const struct json_val *root);
/* Of what nodes say of their copies. */
void ring_coming(const struct json_val *root, struct ring_coming *ret);
/* Bytes that are there of the copy of a shard that comes in to a node; 0: none does. root: NULL is
 * fine. */
uint64_t ring_coming_of(const struct json_val *root, uint64_t shard, struct str node);
struct ring_lag {
    uint64_t behind;  /* entries of the log */
    uint32_t percent; /* of them are there */
    bool far, lost;
    bool timed;      /* left_s is known */
    uint64_t left_s; /* until it is there; RATE_ESTIMATE_NEVER at this speed */
    const struct ring_copy *copy;
};
/* False: unknown. */
bool ring_lag(const struct ring *r, const struct ring_shard *s, struct str node,
              struct ring_lag *ret);

/* Each thing that is wrong, as a sentence that says what to do. */
typedef void (*ring_advice_fn)(void *cookie, struct str sentence);
void ring_advice(const struct ring *r, ring_advice_fn fn, void *cookie);
/* The part of it that is of ring_heard_read; b is empty before and after. */
void ring_heard_advice(const struct ring *r, ring_advice_fn fn, void *cookie, struct buf *b);

/* "3 nodes, 12 shards with 3 copies; all have a leader" */
void ring_words(const struct ring *r, struct buf *out);
void ring_text(const struct term *t, const struct ring *r, struct buf *out);
void ring_json(const struct ring *r, struct json *j);

#endif
