/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_rpc.h: what the two upload services share: messages, the caller's tenant, the last
 * step.
 *
 * Messages: proto/WIRE.md, "Debug info upload".
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_RPC_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_RPC_H

#include "common/net/svc/svc.h"
#include "distributor/parca/debuginfo/debuginfo_upload.h"
#include "distributor/parca/parca_json.h"

#define DEBUGINFO_SMALL  (64 * KIB) /* a message that holds no file */
#define DEBUGINFO_FIELDS 8
#define DEBUGINFO_MAGIC  MAGIC('d', 'b', 'g', 'u') /* of uploads in work */

struct api_debuginfo {
    struct distributor *d;
    struct debuginfo *index;
};

/* The fields 1 .. DEBUGINFO_FIELDS - 1 of a message; the last of equal ones counts. */
struct debuginfo_msg {
    struct str text[DEBUGINFO_FIELDS];
    uint64_t num[DEBUGINFO_FIELDS];
};
NODISCARD int debuginfo_rpc_read(struct str message, struct debuginfo_msg *m, struct err *e);
/* A field, unless it is empty or 0. */
void debuginfo_rpc_text(struct buf *b, unsigned field, struct str s);
void debuginfo_rpc_num(struct buf *b, unsigned field, uint64_t v);

/* The tenant, unless this server is going down. */
NODISCARD int debuginfo_rpc_enter(const struct api_debuginfo *a, const struct http_req *r,
                                  struct str *ret_tenant, struct err *e);
/* A unary call's tenant and message, of proto or JSON; answers it itself if something is wrong.
 * Messages are small, so they are unpacked here and now. True: free tmp. */
bool debuginfo_rpc_call(struct svc_call *c, const struct parca_shape *shape, struct str *tenant,
                        struct buf *tmp, struct debuginfo_msg *m);
/* Answers with a message, in what the caller speaks; moves *b out. */
void debuginfo_rpc_reply(struct svc_call *c, const struct parca_shape *shape, struct buf *b);
void debuginfo_rpc_should(struct svc_call *c, bool yes, const char *why); /* {1 bool, 2 reason} */
/* Makes a received upload count, then answers the call. x may be NULL; upload_id empty: any. */
void debuginfo_rpc_finish(struct svc_call *c, struct debuginfo_entry *x, struct str upload_id);

/* api_debuginfo_alloy.c */
void api_debuginfo_alloy_routes(struct api_debuginfo *a);

#endif
