/* SPDX-License-Identifier: Apache-2.0
 *
 * retention.h: from the section "retention" and its file of rules to the shards.
 */
#ifndef INGESTER_BACKGROUND_RETENTION_H
#define INGESTER_BACKGROUND_RETENTION_H

#include "ingester/base/state.h"

struct store; /* common/store/store.h */

/* Reads the rules: a file that cannot be read or understood is ERR_CONFIG at the start. */
NODISCARD int retention_open(struct ingester *in, struct err *e);
/* Begins to read the file again and again. */
void retention_begin(struct ingester *in);
/* Before the shard's thread runs: what the first push finds must hold for it. */
void retention_open_shard(struct ingester *in, uint32_t number, struct store *store);
/* Reads the file no more. */
void retention_stop(struct ingester *in);
/* True while nothing of it is with the pool or a shard. */
bool retention_idle(const struct ingester *in);
void retention_free(struct ingester *in);

#endif
