/* SPDX-License-Identifier: Apache-2.0
 *
 * push_msg.h: push.v1.PushRequest (proto/WIRE.md, "Push messages"), as proto and as proto3
 * JSON.
 *
 *   PushRequest   1 series:  RawProfileSeries*
 *   RawProfileSeries  1 labels: LabelPair* (1 name, 2 value)   2 samples: RawSample*
 *   RawSample     1 raw_profile: bytes, a pprof, gzip'd or not   2 ID: string
 *
 * First the message is taken apart to a list of profiles, then they are decoded one by one; what is
 * wrong with one of them is its own. Thread: any, one at a time.
 */
#ifndef DISTRIBUTOR_FORMATS_PUSH_MSG_H
#define DISTRIBUTOR_FORMATS_PUSH_MSG_H

#include "common/net/json_in.h"
#include "distributor/formats/batch.h"

#define PUSH_MSG_ID_MAX 128 /* bytes kept of an ID */

/* One (series, sample). */
struct push_msg_profile {
    struct labels labels; /* as they came: not sorted, names perhaps twice; of all its series */
    size_t labels_more;   /* that are not in the list, since it would be too long anyway */
    struct str raw;       /* pprof; points into the message */
    bool base64;          /* raw is its text */
    struct str id;
};
struct push_msg {
    struct push_msg_profile *profiles;
    size_t len;
};

/* Everything but raw and the labels' texts, which point into the message, comes from the arena.
 * Over `most` profiles is ERR_LIMIT; what is no PushRequest ERR_INPUT. */
NODISCARD int push_msg_proto(struct str message, size_t most, struct arena *a, struct push_msg *ret,
                             struct err *e);
NODISCARD int push_msg_json(const struct json_val *root, size_t most, struct arena *a,
                            struct push_msg *ret, struct err *e);
/* Hands the profiles to the sink: one begin or one reject each, in their order. */
NODISCARD int push_msg_push(const struct push_msg *m, const struct batch_sink *sink, struct err *e);

#endif
