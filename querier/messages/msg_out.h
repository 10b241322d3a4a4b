/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_out.h: reply messages, written once, as protobuf or as proto3 JSON.
 *
 *   msg_out_init(&o, json, &buf);
 *   msg_out_list(&o, 1, "series");          a list that gets no item leaves no trace
 *   msg_out_obj(&o, MSG_ITEM);              an item of it
 *   msg_out_i64(&o, 2, "timestamp", ms);    left out when 0; "123" in JSON
 *   msg_out_obj_end(&o); msg_out_list_end(&o);
 *   msg_out_end(&o);
 *
 * Fields are left out when they have their default value, items of lists never are. Limits and
 * failure are the buffer's. Protobuf goes out as other writers do it: shortest lengths, numbers of
 * lists packed.
 *
 * Formats: proto/FORMATS.md, "Protobuf", and proto/WIRE.md, "proto3 JSON".
 */
#ifndef QUERIER_MESSAGES_MSG_OUT_H
#define QUERIER_MESSAGES_MSG_OUT_H

#include "common/base/json.h"
#include "common/model/label.h"

#define MSG_OUT_DEPTH 16
#define MSG_ITEM      0, NULL /* in place of number and name: the next item of the open list */

struct msg_out {
    struct buf *out; /* borrowed */
    struct json json;
    bool is_json;
    unsigned depth;
    struct msg_out_level {
        uint32_t number;  /* a list's */
        const char *name; /* a list's */
        bool list;
        bool any;       /* a list that got an item */
        size_t start;   /* a message's: of its length */
        unsigned width; /* bytes kept for the length */
    } level[MSG_OUT_DEPTH];
};

void msg_out_init(struct msg_out *o, bool json, struct buf *out);
void msg_out_end(struct msg_out *o);

void msg_out_obj(struct msg_out *o, uint32_t number, const char *name);
/* The same where its bytes in protobuf are about `bytes`: a large message need not be moved when
 * its length is known at its end. */
void msg_out_obj_of(struct msg_out *o, uint32_t number, const char *name, size_t bytes);
void msg_out_obj_end(struct msg_out *o);
void msg_out_list(struct msg_out *o, uint32_t number, const char *name);
void msg_out_list_end(struct msg_out *o);

void msg_out_str(struct msg_out *o, uint32_t number, const char *name, struct str v);
void msg_out_bytes(struct msg_out *o, uint32_t number, const char *name, struct str v);
void msg_out_i64(struct msg_out *o, uint32_t number, const char *name, int64_t v);
void msg_out_u64(struct msg_out *o, uint32_t number, const char *name, uint64_t v);
void msg_out_i32(struct msg_out *o, uint32_t number, const char *name, int32_t v); /* 5, not "5" */
void msg_out_double(struct msg_out *o, uint32_t number, const char *name, double v);
void msg_out_bool(struct msg_out *o, uint32_t number, const char *name, bool v);
void msg_out_enum(struct msg_out *o, uint32_t number, const char *name, uint32_t v,
                  const char *text);
/* Whole lists of numbers. The first is int64: values over its largest stay at it. */
void msg_out_i64s(struct msg_out *o, uint32_t number, const char *name, const uint64_t *v,
                  size_t n);
void msg_out_i32s(struct msg_out *o, uint32_t number, const char *name, const uint32_t *v,
                  size_t n);
void msg_out_doubles(struct msg_out *o, uint32_t number, const char *name, const double *v,
                     size_t n);
/* repeated types.v1.LabelPair */
void msg_out_labels(struct msg_out *o, uint32_t number, const char *name, const struct labels *l);
/* A message that is there as protobuf: as it is. Not for JSON. */
void msg_out_raw(struct msg_out *o, uint32_t number, struct str message);

/* Bytes in protobuf: of one item that has n bytes; of n numbers without tag and length. */
size_t msg_out_size(uint32_t number, size_t n);
size_t msg_out_i64s_size(const uint64_t *v, size_t n);

#endif
