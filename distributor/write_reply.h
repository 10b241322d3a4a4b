/* SPDX-License-Identifier: Apache-2.0
 *
 * write_reply.h: what an ingester says about a write (WriteReply of proto/ingest.proto), read off
 * its bytes: there is one for each push.
 */
#ifndef DISTRIBUTOR_WRITE_REPLY_H
#define DISTRIBUTOR_WRITE_REPLY_H

#include "common/base/err.h"
#include "common/base/str.h"

struct write_reply {
    uint32_t stored, duplicates; /* series */
    bool learnt;                 /* the session is known up to what was told */
};

/* ERR_INTERNAL if it is none. */
NODISCARD int write_reply_read(struct str bytes, struct write_reply *ret, struct err *e);

#endif
