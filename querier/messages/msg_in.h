/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_in.h: request messages, described by tables, read from protobuf or proto3 JSON into one form.
 *
 * A message is a plain struct; its table says which field of the wire goes where. Handlers read the
 * struct and never see which encoding the caller speaks. Both decoders treat bytes as hostile:
 * counts, nesting (a table's, not the input's) and memory (the arena's) are bounded. Unknown fields
 * are skipped; so is a known one with another wire type. Pure: any thread.
 *
 * Formats: proto/FORMATS.md, "Protobuf", and proto/WIRE.md, "proto3 JSON".
 */
#ifndef QUERIER_MESSAGES_MSG_IN_H
#define QUERIER_MESSAGES_MSG_IN_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/net/json_in.h"

enum msg_kind {
    MSG_I64,    /* int64_t; also int32, uint32, uint64 on the wire */
    MSG_BOOL,   /* bool */
    MSG_DOUBLE, /* double */
    MSG_STR,    /* struct str; UTF-8, borrowed from the input */
    MSG_ENUM,   /* int64_t */
    MSG_MSG,    /* a pointer to the struct; NULL: absent */
};
/* Repeated fields. ptr: struct str for MSG_STR, the structs themselves for MSG_MSG. */
struct msg_list {
    void *ptr;
    size_t len;
};
static inline const struct str *msg_strs(const struct msg_list *l)
{
    return l->ptr;
}

struct msg_enum {
    const char *const *names; /* index = number */
    size_t len;
};
struct msg_desc;
struct msg_field {
    const char *json;  /* lowerCamel */
    const char *proto; /* the other spelling that is taken; may be NULL */
    uint32_t number;
    enum msg_kind kind;
    size_t at;                    /* of the member */
    size_t max;                   /* repeated: entries at most; 0: not repeated */
    const struct msg_desc *desc;  /* MSG_MSG */
    const struct msg_enum *names; /* MSG_ENUM */
};
struct msg_desc {
    const char *name;
    size_t size; /* of the struct */
    const struct msg_field *fields;
    size_t len;
};
#define MSG_DESC(text, type, table)                 \
    {                                               \
        text, sizeof(type), table, ARRAY_LEN(table) \
    }

/* Both fill *ret (d->size bytes), zeroed first: what is absent is 0, NULL, empty. ERR_INPUT names
 * the field; ERR_LIMIT: a list over its max, or the arena is full. *ret is borrowed from the input
 * and the arena. */
NODISCARD int msg_in_proto(const struct msg_desc *d, struct str message, struct arena *a, void *ret,
                           struct err *e);
NODISCARD int msg_in_json(const struct msg_desc *d, const struct json_val *root, struct arena *a,
                          void *ret, struct err *e);

#endif
