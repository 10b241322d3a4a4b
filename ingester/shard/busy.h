/* SPDX-License-Identifier: Apache-2.0
 *
 * busy.h: the services that send most, and how much: what the controller spreads them by.
 * Thread: the loop's.
 */
#ifndef INGESTER_SHARD_BUSY_H
#define INGESTER_SHARD_BUSY_H

#include "common/base/arena.h"
#include "common/cluster/map/progress.h"

struct busy;

struct busy *busy_new(void);
void busy_free(struct busy *b); /* NULL is fine */
void busy_add(struct busy *b, struct str tenant, struct str service, uint64_t bytes);
/* Once a period of `ms`: the services of at least `least` bytes a second, the busiest first. The
 * names live until the next busy_add. Returns how many. */
size_t busy_report(struct busy *b, uint64_t ms, uint64_t least, struct progress_service *ret,
                   size_t max);

#endif
