/* SPDX-License-Identifier: Apache-2.0
 *
 * buf.h: bytes that grow up to a maximum. Going over it sets a sticky `failed` flag instead of
 * growing, so a writer may write on and check once at the end (buf_ok), or each time.
 */
#ifndef COMMON_BASE_BUF_H
#define COMMON_BASE_BUF_H

#include "common/base/base.h"
#include "common/base/str.h"

struct buf {
    char *ptr; /* owned */
    size_t len;
    size_t cap;
    size_t max;  /* bytes; never passed */
    bool failed; /* something did not fit; contents up to len are still well-formed bytes */
};

void buf_init(struct buf *b, size_t max);
void buf_deinit(struct buf *b); /* frees; usable again after buf_init */
void buf_reset(struct buf *b);  /* keeps memory and max, clears failed */
/* Makes room for n more bytes and returns where they go, or NULL (failed set). */
char *buf_room(struct buf *b, size_t n);
bool buf_add(struct buf *b, const void *p, size_t n);
bool buf_add_str(struct buf *b, struct str s);
bool buf_add_c(struct buf *b, char c);
bool buf_addf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
bool buf_add_u64(struct buf *b, uint64_t v); /* decimal, fast */
bool buf_add_i64(struct buf *b, int64_t v);
static inline bool buf_ok(const struct buf *b)
{
    return !b->failed;
}
static inline struct str buf_str(const struct buf *b)
{
    return (struct str){ b->ptr, b->len };
}
/* Moves the bytes out: *b is left empty with the same max. Free with xfree. */
struct str buf_take(struct buf *b);
/* Swaps contents; used to hand a finished buffer over without copying. */
void buf_move(struct buf *to, struct buf *from); /* frees what `to` had; `from` is left empty */

#endif
