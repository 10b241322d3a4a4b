/* SPDX-License-Identifier: Apache-2.0
 *
 * outq.h: what a connection still has to send: heads as text, bodies moved in or borrowed.
 * Thread: the loop's.
 */
#ifndef COMMON_NET_OUTQ_H
#define COMMON_NET_OUTQ_H

#include "common/base/buf.h"
#include "common/net/stream.h"
#include "common/sys/budget.h"

#define OUTQ_SEGS      STREAM_SLICES_MAX
#define OUTQ_PER_REPLY 2          /* segments one reply takes at most */
#define OUTQ_COPY_MAX  (4 * KIB)  /* shorter bodies are copied behind their head */
#define OUTQ_CORK_MAX  (64 * KIB) /* replies collected before they are written */

struct outq_seg {
    struct buf own;   /* owned */
    struct str bytes; /* in own, or constant; own is text if NULL */
};
struct outq {
    struct stream *stream;    /* borrowed */
    struct budget *in_flight; /* borrowed; bytes a slow reader holds up are charged if possible */
    struct outq_seg segs[OUTQ_SEGS];
    size_t len;
    size_t frozen; /* segments under way in a write */
    size_t bytes;  /* queued, frozen ones included */
    size_t charged;
};
enum outq_result { OUTQ_EMPTY, OUTQ_LATER, OUTQ_BROKEN };

/* Collecting stops while there is room for two more replies: one for the request that is let in
 * now, and one beside it for the go-ahead (100) that may come before. */
static_assert(OUTQ_SEGS >= 4 * OUTQ_PER_REPLY, "corking needs room");

/* Is there room for another reply, and is collecting it better than writing now? */
bool outq_may_cork(const struct outq *q);
/* Text goes here; call outq_text_end with the number of bytes appended. */
struct buf *outq_text(struct outq *q);
void outq_text_end(struct outq *q, size_t appended);
/* `own`, if not NULL, is moved out and holds `bytes`; else they must be constant. */
void outq_body(struct outq *q, struct str bytes, struct buf *own);
enum outq_result outq_flush(struct outq *q);
void outq_written(struct outq *q); /* the write under way is done */
void outq_free(struct outq *q);

#endif
