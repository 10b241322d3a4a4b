/* SPDX-License-Identifier: Apache-2.0
 *
 * fanout.h: a set of calls to ingesters that ends once: with all replies, with what could be had,
 * or with the first error that decides.
 *
 * Thread: the loop's.
 */
#ifndef QUERIER_ASK_FANOUT_H
#define QUERIER_ASK_FANOUT_H

#include "common/role/route/route.h"

/* What was asked, of whom; the answer. */
struct fanout_call {
    size_t ask;      /* number of the question, the caller's */
    size_t ingester; /* a target of common/role/route/route.h */
    enum rpc_method method;
    bool optional;      /* ERR_LIMIT of it or of its reply is an empty reply */
    struct buf payload; /* moved out when it starts */
    struct buf reply;   /* filled; the caller frees it (fanout_calls_deinit) */
    struct err err;     /* code 0: replied */
    /* private */
    struct fanout *fanout;
    struct route_call *call; /* NULL: ended */
};

struct fanout_opts {
    struct route *route;
    struct fanout_call *calls; /* live until done or fanout_cancel; len > 0 */
    size_t len;
    uint64_t deadline_ms; /* from now */
    size_t ingesters;     /* of the cluster; call.ingester is below it */
    bool allow_partial;   /* an ingester that cannot answer does not end the query */
    bool again;           /* but ERR_CONFLICT still ends it: the caller asks by a newer map */
    /* Asks for the bytes of a reply before it is copied; its error fails the query. */
    int (*take)(void *cookie, size_t bytes, struct err *e);
    /* Once, not inside fanout_start. err NULL: use the replies of calls without err. Copy *err
     * before freeing the calls. */
    void (*done)(void *cookie, const struct err *err);
    void *cookie;
};
/* Of the ingesters that were asked, how many gave no complete answer, and why the first did not. */
struct fanout_missing {
    size_t asked, missing;
    struct err why;
};
struct fanout;

struct fanout *fanout_start(const struct fanout_opts *o);
/* Ends it without calling done, and cancels the calls at the peers. NULL is fine. */
void fanout_cancel(struct fanout *f);
/* Valid in done and after it, on the calls. */
struct fanout_missing fanout_missing_of(const struct fanout_call *calls, size_t len,
                                        size_t ingesters);
void fanout_calls_deinit(struct fanout_call *calls, size_t len);
/* True if the error says that an ingester cannot answer now, or not by our map, not that the query
 * is wrong. */
bool fanout_tolerates(int code);

#endif
