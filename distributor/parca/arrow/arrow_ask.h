/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_ask.h: the one Arrow stream that we write: a column of bytes, in one batch, not compressed.
 */
#ifndef DISTRIBUTOR_PARCA_ARROW_ARROW_ASK_H
#define DISTRIBUTOR_PARCA_ARROW_ARROW_ASK_H

#include "common/base/buf.h"
#include "common/base/vec.h"

#define ARROW_ASK_MAX (64 * MIB)

struct arrow_ask {
    struct buf data;    /* owned, as below */
    VEC(uint32_t) ends; /* of each value in data */
};
void arrow_ask_init(struct arrow_ask *a);
void arrow_ask_deinit(struct arrow_ask *a);
bool arrow_ask_add(struct arrow_ask *a, struct str v); /* false: more than may be */
static inline size_t arrow_ask_len(const struct arrow_ask *a)
{
    return a->ends.len;
}
struct str arrow_ask_at(const struct arrow_ask *a, size_t i);
/* Appends the stream; false if out is full. */
bool arrow_ask_write(const struct arrow_ask *a, struct str column, struct buf *out);

#endif
