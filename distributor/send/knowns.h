/* SPDX-License-Identifier: Apache-2.0
 *
 * knowns.h: what is known of each service (formats/pprof/known.h), within one bound.
 *
 * A push takes what is known of its service and puts it back when it is packed; while it is out,
 * another push of the service takes the next one or makes it. So a busy service has about as many
 * as the pool has threads, and none of them needs a lock while it is used.
 *
 * Thread: any.
 */
#ifndef DISTRIBUTOR_SEND_KNOWNS_H
#define DISTRIBUTOR_SEND_KNOWNS_H

#include "common/sys/env.h"
#include "distributor/formats/pprof/known.h"

struct knowns;

struct knowns *knowns_new(size_t bytes_max, struct env *env, uint64_t seed);
void knowns_free(struct knowns *a); /* NULL is fine; all are put back */
/* NULL: the service is new, or what was known of it was not understood lately. */
struct known *knowns_take(struct knowns *a, struct str tenant, struct str service,
                          uint64_t symbol_keep, uint64_t now_ms);
void knowns_put(struct knowns *a, struct known *k);
/* The ingester did not understand it: it is given up, and for a while, longer at each time, none is
 * made for the service. */
void knowns_refused(struct knowns *a, struct known *k, uint64_t now_ms);
void knowns_understood(struct knowns *a, struct known *k, const struct known_counts *upto);
size_t knowns_bytes(struct knowns *a);
void knowns_shrink(struct knowns *a, unsigned percent); /* of its bound */

#endif
