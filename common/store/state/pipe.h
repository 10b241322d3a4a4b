/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe.h: the store's pipelined batches (kv.h), and what views may show while some are in flight.
 * If the database has no pipelined batches, they are written at once.
 */
#ifndef COMMON_STORE_STATE_PIPE_H
#define COMMON_STORE_STATE_PIPE_H

#include "common/store/store.h"

struct store_pipe *pipe_state_new(void);
void pipe_state_free(struct store_pipe *p); /* NULL is fine */

/* Writes one batch without an fsync. Shard thread. A batch that seals says which entry it is, the
 * last minute it has rows of, and how to take these rows out of the hot sums. */
struct pipe_seal {
    uint64_t entry;
    uint32_t bucket_high;
    void (*fold)(void *cookie);
    void *cookie;
};
NODISCARD int pipe_write(struct store *s, struct kv_batch *b, const struct pipe_seal *seal,
                         struct err *e);
/* Notes that staged batch `seq` has an unsealed row of this minute. Shard thread. */
void pipe_staged(struct store *s, uint64_t seq, uint32_t bucket);
/* Makes a snapshot, and sets s->published_applied to a seal entry that it shows. Holding `write`.
 */
struct kv_snap *pipe_snap(struct store *s);

#endif
