/* SPDX-License-Identifier: Apache-2.0
 *
 * division.h: how the shards of one ingester share its part of the memory, while they come and go.
 *
 * Thread: the loop's, unless said otherwise.
 */
#ifndef INGESTER_REPLICAS_DIVISION_H
#define INGESTER_REPLICAS_DIVISION_H

#include "common/store/kv/kv_pool.h"
#include "ingester/base/state.h"

struct division;
/* Before the first database is opened. */
struct division *division_new(struct ingester *in);
void division_start(struct division *d); /* in->shards is there */
/* Before in->shards goes; NULL is fine. */
void division_stop(struct division *d);
void division_free(struct division *d); /* no database is open; NULL is fine */

/* For databases; NULL where they have no files. Any thread. */
struct kv_pool *division_pool(const struct division *d);
/* Call when a shard opens or closes. Recomputes the shares in a later round of the loop. */
void division_now(struct division *d);

/* Divides `total` among n that want so much each. None gets less than it wants while another gets
 * more than an equal part. The part that none wants is divided equally. Pure. */
#define DIVISION_MORE UINT64_MAX /* as much as there is */
void division_fill(uint64_t total, const uint64_t *wants, size_t n, uint64_t *ret);

#endif
