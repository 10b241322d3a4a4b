/* SPDX-License-Identifier: Apache-2.0
 *
 * async_share.h: states and results of queries in the background, where other queriers find them:
 * short-lived documents (common/store/delete/doc.h) in the home shard of the tenant. Of one
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
/* Gives up what is on its way, and calls nobody. NULL is fine. */
void share_free(struct share *s);

/* That it is in progress is written once, where nothing is; how it ended over what is there. done
 * (may be NULL) is called later in any case: who cannot write still has the result himself. */
void share_put(struct share *s, struct str tenant, struct str id, enum async_status status,
               struct str error, struct str result, void (*done)(void *cookie), void *cookie);
void share_delete(struct share *s, struct str tenant, struct str id);
/* Deletes those of the tenant that nobody has touched for keep_ms: their querier died. */
void share_sweep(struct share *s, struct str tenant, uint64_t keep_ms);

struct shared {
    enum async_status status;
    struct str error, result; /* live as long as the query */
    int64_t updated_ms;
};
/* The query's last question; ERR_NOT_FOUND where there is none. */
NODISCARD int share_ask(struct query *q, struct str id, struct err *e);
/* In the step after it. */
NODISCARD int share_read(struct query *q, struct shared *ret, struct err *e);

#endif
