/* SPDX-License-Identifier: Apache-2.0
 *
 * stored.h: how many bytes each tenant has stored, as ingesters said some time ago (stored.c says
 * how exact that is).
 *
 * Thread: the loop's.
 */
#ifndef DISTRIBUTOR_RULES_STORED_H
#define DISTRIBUTOR_RULES_STORED_H

#include "common/base/str.h"

struct distributor;
struct stored;

/* Asks as long as some tenant has a limit (rules_limit_stored). */
struct stored *stored_new(struct distributor *d);
void stored_free(struct stored *s); /* NULL is fine; the route lives still */
/* True if a limit holds for the tenant. None holds for the tenant of this server's own profiles,
 * and with one tenant the disk is the limit. */
bool stored_counts(const struct stored *s, struct str tenant);
/* 0: none, or not known yet. */
uint64_t stored_bytes(const struct stored *s, struct str tenant);

#endif
