/* SPDX-License-Identifier: Apache-2.0
 *
 * exid.h: ids of exemplars: of a span, of a trace, of a whole profile.
 *
 * The same id comes as hex text from one agent and as bytes from another, so there is one form,
 * *packed*, which is stored, sent and compared:
 *
 *   0     1
 *   | len | len bytes |      bit 7 of len: the bytes stand for hex digits, len is 8 or 16 then
 *
 *   16 or 32 hex digits of either case, a UUID with its dashes, 8 or 16 bytes    hex
 *   any other text of 1 .. 64 bytes                                              as it is
 *   empty, longer, only zeros (how agents write "no span")                       no id
 *
 *   "00000bac2a5ab0c7" and "00000BAC2A5AB0C7":  88 00000bac2a5ab0c7
 *   "req-7":                                    05 7265712d37
 */
#ifndef COMMON_MODEL_EXID_H
#define COMMON_MODEL_EXID_H

#include "common/base/str.h"

#define EXID_BYTES_MAX  64
#define EXID_PACKED_MAX (1 + EXID_BYTES_MAX)
#define EXID_HEX        0x80u

/* What an id names; stored and sent, never renumber. */
enum exid_kind {
    EXID_NONE = 0,
    EXID_SPAN = 1,    /* labels span_id and profile_id of samples */
    EXID_TRACE = 2,   /* trace_id */
    EXID_PROFILE = 3, /* a whole push: profile_id in its name, or its sender's own id */
};
#define EXID_KINDS 4 /* one more than the highest */

struct exid {
    uint8_t len; /* of packed */
    char packed[EXID_PACKED_MAX];
};
static inline struct str exid_str(const struct exid *id)
{
    return (struct str){ id->packed, id->len };
}
/* False: no id. */
bool exid_parse(struct str text, struct exid *ret);
bool exid_bytes(struct str bytes, struct exid *ret); /* 8 or 16 of them */
bool exid_number(uint64_t n, struct exid *ret);      /* 8 bytes */
/* Is this a packed id that the functions above can have made? */
bool exid_valid(struct str packed);
/* Bytes of the packed id that `s` begins with; 0 if it begins with none. */
size_t exid_len(struct str s);
/* The text of a valid one: hex in lower case, otherwise as it came. Returns its length. */
size_t exid_text(struct str packed, char out[EXID_BYTES_MAX]);

/* What a label of a sample names: profile_id, span_id, trace_id; else EXID_NONE. */
enum exid_kind exid_label(struct str name);

#endif
