/* SPDX-License-Identifier: Apache-2.0
 *
 * async_share.h: states and results of queries in the background, where other queriers find them:
 * short-lived documents (common/store/delete/tenant_doc.h) in the home shard of the tenant. Of one
 * tenant; what reads several stays with the querier that was asked.
 *
 *      meta: status u8, with bit 7: fingerprint 32 bytes | why it failed, or that it is a part
 *      body: the message, as async.c keeps it
 *
 * The fingerprint says for which identity it was made; a document without one was made on a server
 * that asks for no keys. An older querier takes a status with bit 7 for a damaged document.
 *
 * Thread: the loop's, but for share_read.
 */
#ifndef QUERIER_ASYNC_ASYNC_SHARE_H
#define QUERIER_ASYNC_ASYNC_SHARE_H

#include "common/identity/scope.h"
#include "querier/async/async.h"

#define SHARE_DOCS_MAX 256 /* of a tenant */

struct share;
struct share *share_new(struct querier *qr);
/* Cancels calls in flight without calling their `done`. NULL is fine. */
void share_free(struct share *s);

struct shared {
    const uint8_t *scope; /* SCOPE_BYTES; all zeros: no identity */
    enum async_status status;
    struct str error, result; /* of share_read: live as long as the query */
    int64_t updated_ms;       /* of share_read */
};
/* "In progress" is written only if there is no document yet; the result replaces the document. done
 * (may be NULL) is called later in any case: a querier that cannot write still has the result. */
void share_put(struct share *s, struct str tenant, struct str id, const struct shared *what,
               void (*done)(void *cookie), void *cookie);
void share_delete(struct share *s, struct str tenant, struct str id);
/* Deletes documents of the tenant that were not changed for keep_ms: their querier died. */
void share_sweep(struct share *s, struct str tenant, uint64_t keep_ms);

/* The query's last question; ERR_NOT_FOUND: there is no such document. */
NODISCARD int share_ask(struct query *q, struct str id, struct err *e);
/* In the step after it. ERR_NOT_FOUND as for a document that is not there, if `scope` is not its
 * fingerprint. */
NODISCARD int share_read(struct query *q, struct str id, const uint8_t *scope, struct shared *ret,
                         struct err *e);

#endif
