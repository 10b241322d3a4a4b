/* SPDX-License-Identifier: Apache-2.0
 *
 * symbol_sessions.h: the symbol sessions of all services (formats/pprof/symbol_session.h), within
 * one bound.
 *
 * A push takes a session of its service and puts it back when it is packed. Meanwhile another push
 * of the service takes the next session or makes one. So a busy service has about as many
 * as the pool has threads, and none of them needs a lock while it is used.
 *
 * Thread: any.
 */
#ifndef DISTRIBUTOR_SEND_SYMBOL_SESSIONS_H
#define DISTRIBUTOR_SEND_SYMBOL_SESSIONS_H

#include "common/sys/env.h"
#include "distributor/formats/pprof/symbol_session.h"

struct symbol_sessions;

struct symbol_sessions *symbol_sessions_new(size_t bytes_max, struct env *env, uint64_t seed);
void symbol_sessions_free(struct symbol_sessions *a); /* NULL is fine; all are put back */
/* NULL: the service is new, or an ingester did not understand its session lately. */
struct symbol_session *symbol_sessions_take(struct symbol_sessions *a, struct str tenant,
                                            struct str service, uint64_t symbol_keep,
                                            uint64_t now_ms);
void symbol_sessions_put(struct symbol_sessions *a, struct symbol_session *k);
/* The ingester did not understand it: drops the session and makes no other for the service for a
 * time, which grows with each refusal. */
void symbol_sessions_refused(struct symbol_sessions *a, struct symbol_session *k, uint64_t now_ms);
void symbol_sessions_understood(struct symbol_sessions *a, struct symbol_session *k,
                                const struct symbol_session_counts *upto);
size_t symbol_sessions_bytes(struct symbol_sessions *a);
void symbol_sessions_shrink(struct symbol_sessions *a, unsigned percent); /* of its bound */

#endif
