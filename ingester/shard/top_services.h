/* SPDX-License-Identifier: Apache-2.0
 *
 * top_services.h: the services that send most, and how much: what the controller spreads them by.
 * Thread: the loop's.
 */
#ifndef INGESTER_SHARD_TOP_SERVICES_H
#define INGESTER_SHARD_TOP_SERVICES_H

#include "common/base/arena.h"
#include "common/cluster/map/progress.h"

struct top_services;

struct top_services *top_services_new(void);
void top_services_free(struct top_services *b); /* NULL is fine */
void top_services_add(struct top_services *b, struct str tenant, struct str service,
                      uint64_t bytes);
/* Once a period of `ms`: the services of at least `least` bytes a second, the busiest first. The
 * names live until the next top_services_add. Returns how many. */
size_t top_services_report(struct top_services *b, uint64_t ms, uint64_t least,
                           struct progress_service *ret, size_t max);

#endif
