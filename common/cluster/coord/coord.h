/* SPDX-License-Identifier: Apache-2.0
 *
 * coord.h: the coordination service: a small ordered map of keys with revisions, leases and
 * watches, as etcd has it. Two kinds: coord_etcd.h for real, coord_sim.h in memory with faults.
 *
 * Every change gets the next revision of the whole store. A transaction compares revisions of keys
 * and then does all of its changes or none. A key under a lease goes when the lease runs out.
 *
 * Everything is asynchronous. Each call ends exactly once with its callback, also on a deadline or
 * when the service is away, but for those of coord_cancel and coord_free. A transaction that ended
 * with ERR_TIMEOUT or ERR_UNAVAILABLE may have happened: read again before repeating it.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_CLUSTER_COORD_COORD_H
#define COMMON_CLUSTER_COORD_COORD_H

#include "common/base/err.h"
#include "common/base/str.h"

#define COORD_KEY_MAX     512
#define COORD_VALUE_MAX   (MIB)
#define COORD_TXN_MAX     64 /* compares, and changes, in one transaction */
#define COORD_WATCHES_MAX 16

struct coord_kv {
    struct str key, value;
    int64_t create_rev, mod_rev;
    int64_t lease; /* 0: none */
    bool deleted;  /* events: the key is gone; no value, mod_rev is that of the deletion */
};

struct coord_compare {
    struct str key;
    bool create; /* compares the revision of creation, not of the last change */
    int64_t rev; /* 0: the key is not there */
};
struct coord_change {
    struct str key, value;
    int64_t lease; /* of a put; 0: none */
    bool del;
};
/* Both lists have at most COORD_TXN_MAX entries; no key occurs twice among the changes. */
struct coord_txn {
    const struct coord_compare *cmp; /* all must hold; may be empty */
    size_t cmp_len;
    const struct coord_change *chg; /* all are done, or none; at least one */
    size_t chg_len;
};
struct coord_reply {
    const struct err *err; /* NULL: the service answered */
    bool done;             /* transaction: the compares held */
    int64_t rev; /* of the store when it answered; after a transaction that did: its own */
    const struct coord_kv *kvs; /* list: by key, borrowed for the call */
    size_t kvs_len;
    int64_t lease;   /* grant */
    uint64_t ttl_ms; /* grant, keep: the time left; keep: 0 = the lease is gone */
    uint64_t store;  /* the number of the store that answered; 0: not said */
};
typedef void (*coord_fn)(void *cookie, const struct coord_reply *r);

/* A watch first hands over all keys there are, then each change in order of revisions, none left
 * out and none twice. Where it cannot continue (compacted, another cluster), all keys come
 * again. */
struct coord_watch_opts {
    struct str prefix;
    void (*all)(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev);
    void (*event)(void *cookie, const struct coord_kv *kv);
    void (*heard)(void *cookie); /* may be NULL: the service is there, with or without news */
    void *cookie;
};
struct coord_watch;

struct coord;
struct coord_ops {
    void (*list)(struct coord *c, struct str prefix, coord_fn fn, void *cookie);
    void (*txn)(struct coord *c, const struct coord_txn *t, coord_fn fn, void *cookie);
    void (*grant)(struct coord *c, uint64_t ttl_ms, coord_fn fn, void *cookie);
    void (*keep)(struct coord *c, int64_t lease, coord_fn fn, void *cookie);
    void (*revoke)(struct coord *c, int64_t lease, coord_fn fn, void *cookie);
    struct coord_watch *(*watch)(struct coord *c, const struct coord_watch_opts *o);
    void (*unwatch)(struct coord *c, struct coord_watch *w);
    void (*cancel)(struct coord *c, const void *cookie);
    void (*free)(struct coord *c);
    const char *(*why)(const struct coord *c); /* may be NULL */
};
struct coord { /* first member of each kind */
    const struct coord_ops *ops;
};

/* Keys that begin with `prefix`. */
static inline void coord_list(struct coord *c, struct str prefix, coord_fn fn, void *cookie)
{
    c->ops->list(c, prefix, fn, cookie);
}
/* Runs the transaction; everything in *t is copied. */
static inline void coord_txn(struct coord *c, const struct coord_txn *t, coord_fn fn, void *cookie)
{
    CHECK(t->cmp_len <= COORD_TXN_MAX && t->chg_len > 0 && t->chg_len <= COORD_TXN_MAX);
    c->ops->txn(c, t, fn, cookie);
}
/* A lease of at least `ttl_ms`; the service may round up to seconds. */
static inline void coord_grant(struct coord *c, uint64_t ttl_ms, coord_fn fn, void *cookie)
{
    c->ops->grant(c, ttl_ms, fn, cookie);
}
static inline void coord_keep(struct coord *c, int64_t lease, coord_fn fn, void *cookie)
{
    c->ops->keep(c, lease, fn, cookie);
}
/* The lease and all keys under it go at once. */
static inline void coord_revoke(struct coord *c, int64_t lease, coord_fn fn, void *cookie)
{
    c->ops->revoke(c, lease, fn, cookie);
}
static inline struct coord_watch *coord_watch(struct coord *c, const struct coord_watch_opts *o)
{
    return c->ops->watch(c, o);
}
/* No callback of it comes any more. NULL is fine. */
static inline void coord_unwatch(struct coord *c, struct coord_watch *w)
{
    if (w)
        c->ops->unwatch(c, w);
}
/* Open calls with this cookie end without their callbacks; what they asked for may happen. */
static inline void coord_cancel(struct coord *c, const void *cookie)
{
    c->ops->cancel(c, cookie);
}
/* The error of the last call, for the operator; "" if it succeeded. */
static inline const char *coord_why(const struct coord *c)
{
    return c && c->ops->why ? c->ops->why(c) : "";
}
/* Calls still open end without their callbacks. NULL is fine. */
static inline void coord_free(struct coord *c)
{
    if (c)
        c->ops->free(c);
}

#endif
