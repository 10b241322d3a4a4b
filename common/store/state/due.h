/* SPDX-License-Identifier: Apache-2.0
 *
 * due.h: when nodes of 10 m and up can be built (due.c).
 */
#ifndef COMMON_STORE_STATE_DUE_H
#define COMMON_STORE_STATE_DUE_H

#include "common/store/state/dirty.h"

/* Engine time from which a node can be built, if no child is dirty: without a mark, with this. */
int64_t dirty_due_ms(const struct store *s, uint32_t level, uint32_t t);
int64_t build_due_ms(const struct store *s, uint32_t level, uint32_t t, const struct dirty_mark *m);
int64_t build_pace_ms(const struct store *s, uint32_t level); /* late data gather so long */
uint32_t build_level_high(const struct store *s); /* the coarsest that the shard builds itself */
/* A node of the level becomes due at this engine time. Shard thread. */
void build_schedule(struct store *s, uint32_t level, int64_t due_ms);

#endif
