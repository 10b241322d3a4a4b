/* SPDX-License-Identifier: Apache-2.0
 *
 * query.h: the life of one request, whatever it asks.
 *
 * A query is a chain of steps on pool threads. A step either asks ingesters something (query_ask_*)
 * and names the step that continues with the replies, or writes the reply (query->out) and is the
 * last.
 */
#ifndef QUERIER_QUERY_QUERY_H
#define QUERIER_QUERY_QUERY_H

#include <stdatomic.h>

#include "common/base/vec.h"
#include "common/net/svc/svc.h"
#include "querier/ask/fanout.h"
#include "querier/ask/wire.h"
#include "querier/base/state.h"
#include "querier/base/tenant_queues.h"
#include "querier/messages/msg_out.h"

#define QUERY_TENANTS_MAX 16

struct query;
/* Pool thread. ERR_ codes end the query with that error. */
typedef int (*query_step_fn)(struct query *q, struct err *e);

struct query_route {
    unsigned methods;
    const char *path; /* also the name in metrics */
    size_t body_max;
    query_step_fn first;
    bool connect; /* Connect's rules for requests, errors and replies */
};

/* Appends about `want` bytes of the answer to *out; *ret_more: there is more. Pool thread. */
typedef int (*query_piece_fn)(struct query *q, void *cookie, size_t want, struct buf *out,
                              bool *ret_more, struct err *e);
/* What async/ does with a query that works without its request; called on the loop. */
struct query_ending {
    /* After a step of a query with async_ask: detaches it, which answers its request, or finds what
     * it asks for. */
    int (*on_loop)(struct query *q, struct err *e);
    void (*end)(struct query *q);     /* http is NULL: takes q->out or q->err */
    void (*release)(struct query *q); /* q->async is set: a reader of a result ends */
};
struct query_stream { /* query_stream.c */
    query_piece_fn next;
    void (*free)(void *cookie);
    void *cookie;
    struct gzip_stream *zip; /* NULL: as it is */
    size_t at;               /* of the piece at hand: handed over */
    bool more, began;        /* began: pieces were sent */
    bool varies;             /* would be compressed for a client that wants it */
    bool waits;              /* for the client to take them */
};

struct query {
    uint32_t magic;
    struct querier *qr;
    const struct query_route *route;
    struct http_req *http; /* until the reply; its arena may be used by steps. NULL: see async.h */
    struct svc_call call;  /* of it, where route->connect */
    struct arena *arena;   /* owned: what a query says and is asked */
    struct arena *data;    /* owned: decoded replies; NULL before there are any */
    struct str tenants[QUERY_TENANTS_MAX];
    size_t tenants_len;
    struct key_record *identity; /* a reference: a query may outlive its request. NULL: no one was
                                    asked who they are, and everything may be seen */
    const struct map *map;       /* a reference: one and the same for all steps */
    struct plan_targets targets;
    query_step_fn step;   /* the next one */
    query_step_fn before; /* runs once in front of it, on the same thread; NULL: nothing does */
    void *state;          /* of the steps, in the arena */
    struct buf message;   /* the request, where it came compressed or in base64 */
    void *doc;            /* the parsed body, freed by doc_free; may be NULL */
    void (*doc_free)(void *doc);

    VEC(struct fanout_call) calls; /* asked by the last step, answered for the next one */
    size_t calls_max;
    struct fanout *fanout; /* while calls run */
    bool allow_partial;
    bool acted;                    /* something was asked that may change something: not again */
    bool looks;                    /* for a newer map, by `wait` */
    unsigned map_retries;          /* how often it was begun again */
    uint64_t looks_ns;             /* since */
    struct fanout_missing missing; /* missing > 0: the answer is partial */
    atomic_bool cancel;            /* set on the loop, polled by steps */
    uint64_t began_ns, deadline_ns;
    uint64_t went_ns; /* its turn came; 0: not yet */
    struct tenant_queue turn;
    struct timer *wait; /* for its turn, or for a newer map; NULL: does not */
    size_t held;        /* taken from the budgets */
    struct err err;
    struct async_entry *async; /* what this works for, then http is NULL; or what it reads */
    int async_ask;             /* of async.c */
    const struct query_ending *ending; /* NULL: it ends with its request; set with async_ask */

    /* The reply. */
    struct query_stream stream;
    struct buf out;
    int status; /* 0: 200 */
    const char *content_type;
    const char *attachment;                 /* file name for Content-Disposition, or NULL */
    const char *policy;                     /* Content-Security-Policy, or NULL */
    uint64_t saturated;                     /* sums that hit the largest number */
    uint64_t overflow;                      /* values of stacks that lost their names */
    struct str notice;                      /* what a reader of the answer must know; "" */
    size_t collectors;                      /* questions of collectors.c that wait for replies */
    unsigned collectors_apart;              /* bits of its labels: shown apart */
    bool truncated;                         /* a list was cut at querier.labels_max */
    int64_t bounds_start_ms, bounds_end_ms; /* real bounds of a flame graph; 0, 0: none */
};

/* All of them: querier.c. */
const struct query_route *query_routes(size_t *ret_len);

/* HTTP handler: route_cookie is a struct querier_route. */
void query_on_http(struct http_req *r);

/* ---- for steps ---- */

/* Reserves memory until the query ends. ERR_LIMIT over the query's own limit, ERR_RATE over that of
 * its tenant, ERR_BUSY over that of all. */
NODISCARD int query_take(struct query *q, size_t n, struct err *e);
void query_give(struct query *q, size_t n);
/* Bytes that may still be taken. */
size_t query_left(const struct query *q);

/* Each queues a question to every ingester that may know: those of the places of the service that
 * the selectors name, else of all shards of the tenant. `ask` is the caller's number for it.
 * ERR_LIMIT when a request has become too many questions. */
NODISCARD int query_ask_merge(struct query *q, size_t ask, const struct wire_query *wq,
                              const struct str *call_site, size_t call_site_len, struct err *e);
NODISCARD int query_ask_timeline(struct query *q, size_t ask, const struct wire_query *wq,
                                 const struct wire_timeline *tl, struct err *e);
/* The same; an answer that would take more memory than it may (ERR_LIMIT) is left out, and the
 * query continues. */
NODISCARD int query_ask_timeline_if(struct query *q, size_t ask, const struct wire_query *wq,
                                    const struct wire_timeline *tl, struct err *e);
NODISCARD int query_ask_functions(struct query *q, size_t ask, const struct wire_query *wq,
                                  struct wire_functions f, struct err *e);
NODISCARD int query_ask_labels(struct query *q, size_t ask, const struct wire_query *wq,
                               struct wire_labels l, struct err *e);
NODISCARD int query_ask_exemplars(struct query *q, size_t ask, const struct wire_query *wq,
                                  struct wire_exemplars x, struct err *e);
/* wq->profile_type empty: all types. detail: series, writes, index_bytes, dictionary_bytes, too.
 * Takes some milliseconds per service. */
NODISCARD int query_ask_estimate(struct query *q, size_t ask, const struct wire_query *wq,
                                 bool detail, struct err *e);
/* Drops the answered calls, their memory too, before new questions. */
void query_calls_reset(struct query *q);
/* The arena q->data, for decoded replies and for tables that are as large. */
struct arena *query_data(struct query *q);
/* Drops decoded replies, with what else is in q->data; between rounds of many questions. */
void query_data_reset(struct query *q);
/* Reads the next reply to `ask` after call *pos (start with 0): 1, 0 at the end, -1 error. The
 * decoded reply lives in q->data until the query ends. */
int query_next_merged(struct query *q, size_t ask, size_t *pos, struct wire_merged *ret,
                      struct err *e);
int query_next_timelines(struct query *q, size_t ask, size_t *pos, uint32_t points,
                         struct wire_timelines *ret, struct err *e);
int query_next_functions(struct query *q, size_t ask, size_t *pos, uint32_t points,
                         struct wire_function_list *ret, struct err *e);
int query_next_labels(struct query *q, size_t ask, size_t *pos, struct wire_label_lists *ret,
                      struct err *e);
int query_next_exemplars(struct query *q, size_t ask, size_t *pos, struct wire_exm_list *ret,
                         struct err *e);
int query_next_estimate(struct query *q, size_t ask, size_t *pos, struct wire_estimate *ret,
                        struct err *e);
/* What a query would read, asked of the ingesters before it is read: query_ask_estimate, then in
 * the next step query_estimate, which adds up all replies to `ask`. */
struct estimate_part {
    size_t target;            /* of fanout.h */
    struct wire_estimate sum; /* over all tenants */
};
struct estimate {
    struct wire_estimate sum; /* over all that answered */
    struct estimate_part *at; /* in the request's arena */
    size_t len;
};
NODISCARD int query_estimate(struct query *q, size_t ask, struct estimate *ret, struct err *e);
/* Starts q->out as JSON, or as a message in the caller's encoding. It may use the rest of the
 * query's memory; query_out_end checks it. */
void query_json(struct query *q, struct json *j);
void query_msg(struct query *q, struct msg_out *o);
NODISCARD int query_out_end(struct query *q, struct err *e);
/* Instead of all that: the answer in pieces, for what may be many times larger than what it is made
 * from. Nothing is said of its length before, small answers go out as any other. Last thing of the
 * last step, which has set content_type and attachment; free(cookie) is called in any case, when
 * the query ends. Messages of gRPC are collected: they begin with their length. */
NODISCARD int query_stream(struct query *q, query_piece_fn next, void (*free)(void *cookie),
                           void *cookie, struct err *e);

/* ---- between query.c and query_stream.c; loop thread ---- */
void query_run_step(struct query *q);
void query_end(struct query *q); /* replies with what is in q->err or q->out, and frees it */
void query_reply_headers(struct query *q);
bool query_stream_send(struct query *q); /* false: there are no pieces to send */
void query_stream_end(struct query *q);
void query_stream_free(struct query *q);

#endif
