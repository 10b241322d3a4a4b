/* SPDX-License-Identifier: Apache-2.0
 *
 * async_share.h: states and results of queries in the background, where other queriers find them:
 * short-lived documents (common/store/delete/tenant_doc.h) in the home shard of the tenant. Of one
 * tenant; what reads several stays with the querier that was asked.
 *
 *      meta: status u8 | why it failed, or that it is a part
 *      body: the message, as async.c keeps it
 *
 * Thread: the loop's, but for share_read.
 */
#ifndef QUERIER_ASYNC_ASYNC_SHARE_H
#define QUERIER_ASYNC_ASYNC_SHARE_H

#include "querier/async/async.h"

#define SHARE_DOCS_MAX 256 /* of a tenant */

struct share;
struct share *share_new(struct querier *qr);
/* Cancels calls in flight without calling their `done`. NULL is fine. */
void share_free(struct share *s);

/* A state to be written; texts are borrowed for the call. */
struct share_write {
    struct str tenant, id;
    enum async_status status;
    struct str error, result;
    void (*done)(void *cookie); /* may be NULL; called later in any case, since a querier that
                                   cannot write still has the result */
    void *cookie;
};
/* Writes "in progress" only if there is no document yet; a result replaces the document. */
void share_put(struct share *s, const struct share_write *w);
void share_delete(struct share *s, struct str tenant, struct str id);
/* Deletes documents of the tenant that were not changed for keep_ms: their querier died. */
void share_sweep(struct share *s, struct str tenant, uint64_t keep_ms);

struct shared {
    enum async_status status;
    struct str error, result; /* live as long as the query */
    int64_t updated_ms;
};
/* The query's last question; ERR_NOT_FOUND: there is no such document. */
NODISCARD int share_ask(struct query *q, struct str id, struct err *e);
/* In the step after it. */
NODISCARD int share_read(struct query *q, struct shared *ret, struct err *e);

#endif
