/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_json.h: messages that exist as protobuf (a pprof that was written as one, an answer that was
 * kept) as proto3 JSON, by tables. Ours, so what is odd in them is a bug and no input. Pure.
 *
 * Format: proto/WIRE.md, "proto3 JSON".
 */
#ifndef QUERIER_ASYNC_MSG_JSON_H
#define QUERIER_ASYNC_MSG_JSON_H

#include "common/base/json.h"

struct msg_json_table;

extern const struct msg_json_table msg_json_profile;     /* google.v1.Profile */
extern const struct msg_json_table msg_json_stacktraces; /* SelectMergeStacktracesResponse */

/* Writes the message as one object. False: it is no such message. */
bool msg_json(const struct msg_json_table *t, struct str message, struct json *j) NODISCARD;

#endif
