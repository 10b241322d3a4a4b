/* SPDX-License-Identifier: Apache-2.0
 *
 * label.h: labels of a series: names and values, sorted by name, each name once.
 *
 * Canonical bytes (for hashing and storing): varint count, then per label varint length + bytes of
 * name and of value. Slices are borrowed unless a function says that it copies.
 */
#ifndef COMMON_MODEL_LABEL_H
#define COMMON_MODEL_LABEL_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"

struct label {
    struct str name;
    struct str value;
};
struct labels {
    struct label *ptr; /* in an arena or borrowed */
    size_t len;
};

/* Adds or replaces (by name); keeps the order. A new name moves the array to a fresh one from the
 * arena; a known one is changed in place. ERR_LIMIT when the arena is full, ERR_INPUT for an empty
 * name. */
NODISCARD int labels_set(struct labels *l, struct arena *a, struct str name, struct str value,
                         struct err *e);
void labels_del(struct labels *l, struct str name);
/* {NULL,0} when absent: a missing label equals the empty string. */
struct str labels_get(const struct labels *l, struct str name);
bool labels_eq(const struct labels *a, const struct labels *b);
/* Sorts in place, and refuses a duplicate or empty name (ERR_INPUT). */
NODISCARD int labels_sort(struct labels *l, struct err *e);
void labels_encode(const struct labels *l, struct buf *out);
size_t labels_encoded_len(const struct labels *l);
void labels_encode_to(const struct labels *l, uint8_t *to); /* so many bytes */
/* Slices point into `in`; the array comes from the arena. ERR_CORRUPT on anything odd. */
NODISCARD int labels_decode(struct str in, struct arena *a, struct labels *ret, struct err *e);
uint64_t labels_hash(const struct labels *l, uint64_t seed); /* of the canonical bytes */
/* {a="b", c="d"} with Go-style escapes, for people; a name that is not plain is quoted too. */
void labels_format(const struct labels *l, struct buf *out);
/* [A-Za-z_][A-Za-z0-9_]* */
bool label_name_plain(struct str name);

#endif
