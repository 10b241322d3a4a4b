/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h: writes to the database of a store, its clock and its control values (commit.c).
 */
#ifndef COMMON_STORE_STATE_COMMIT_H
#define COMMON_STORE_STATE_COMMIT_H

#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"
#include "common/store/store.h"

/* Engine time now, also for store_clock. Shard thread. */
int64_t store_now(struct store *s);
/* One batch, with its fsync if `sync`; without, it may only be begun (pipe.h). A failure makes the
 * store read-only. */
NODISCARD int store_write_batch(struct store *s, struct kv_batch *b, bool sync, struct err *e);
/* The same; `then` runs after a write that succeeded, before anyone can see its effects or write
 * the next one: here published_seq, published_applied and the hot sums move. */
NODISCARD int store_write_then(struct store *s, struct kv_batch *b, bool sync,
                               void (*then)(void *cookie), void *cookie, struct err *e);
/* kv_drop_range, for rows no view needs any more (view_oldest). Shard thread. */
NODISCARD int store_drop_range(struct store *s, enum kv_cf cf, struct str from, struct str to,
                               struct err *e);
NODISCARD int store_check_writable(const struct store *s, struct err *e); /* if read-only */
void store_set_read_only(struct store *s, const struct err *why); /* holding `write`, or alone */
void store_put_control(struct kv_batch *b, enum key_control id, const struct key *value);
void store_put_clock(struct store *s, int64_t engine_ms, struct kv_batch *b);
/* Applies what store_share said of names. Shard thread. */
void store_share_names(struct store *s);

#endif
