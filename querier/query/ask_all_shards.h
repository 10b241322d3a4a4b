/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_all_shards.h: one question to every target of a query, each about its own shards; and the
 * answers. For what is asked of all shards alike: space, the ledger, deletes. Pool threads.
 */
#ifndef QUERIER_QUERY_ASK_ALL_SHARDS_H
#define QUERIER_QUERY_ASK_ALL_SHARDS_H

#include <protobuf-c/protobuf-c.h>

#include "querier/query/query.h"

#define ASK_ALL_SHARDS_COST 16 /* memory of a decoded answer : its bytes, mostly */

/* A message that all targets get, each with its own shards. Borrowed for the call. */
struct ask_all_message {
    ProtobufCMessage *m;
    uint32_t **shards; /* this and the next are fields of m, and are set for each target */
    size_t *shards_len;
    size_t bytes_max; /* of the packed message */
};
/* Queues the message for each target. ERR_LIMIT: it is larger than bytes_max. */
NODISCARD int ask_all(struct query *q, enum rpc_method method, const struct ask_all_message *ask,
                      struct err *e);
/* The answer of a call without error, in q->data; takes `cost` bytes of memory. NULL with *e. */
const void *ask_all_shards_answer(struct query *q, const struct fanout_call *c,
                                  const ProtobufCMessageDescriptor *what, size_t cost,
                                  struct err *e);

#endif
