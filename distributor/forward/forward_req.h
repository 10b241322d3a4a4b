/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_req.h: a request as it lies in a spool: what the push made of it. Where it goes and how
 * it proves who it is comes from the target's configuration when it is sent.
 */
#ifndef DISTRIBUTOR_FORWARD_FORWARD_REQ_H
#define DISTRIBUTOR_FORWARD_FORWARD_REQ_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define FORWARD_HOPS_MAX 4 /* servers in a row; ends a ring of them */

struct forward_req {
    unsigned hops;           /* of the request; 1 for what came from a profiler */
    struct str tenant;       /* of the push */
    struct str key;          /* Idempotency-Key, or "" */
    struct str path;         /* "/ingest?name=...", printable ASCII */
    struct str content_type; /* the same */
    struct str body;
};
void forward_req_write(const struct forward_req *r, struct buf *out);
/* Slices point into `record`. ERR_CORRUPT. */
NODISCARD int forward_req_read(struct str record, struct forward_req *ret, struct err *e);

#endif
