/* SPDX-License-Identifier: Apache-2.0
 *
 * knowns.h: the symbol sessions of all services (formats/pprof/known.h), within one bound.
 *
 * A push takes a session of its service and puts it back when it is packed. Meanwhile another push
 * of the service takes the next session or makes one. So a busy service has about as many
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
/* NULL: the service is new, or an ingester did not understand its session lately. */
struct known *knowns_take(struct knowns *a, struct str tenant, struct str service,
                          uint64_t symbol_keep, uint64_t now_ms);
void knowns_put(struct knowns *a, struct known *k);
/* The ingester did not understand it: drops the session and makes no other for the service for a
 * time, which grows with each refusal. */
void knowns_refused(struct knowns *a, struct known *k, uint64_t now_ms);
void knowns_understood(struct knowns *a, struct known *k, const struct known_counts *upto);
size_t knowns_bytes(struct knowns *a);
void knowns_shrink(struct knowns *a, unsigned percent); /* of its bound */

#endif
