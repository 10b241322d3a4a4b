/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_make.h: a push as the requests that carry it to a target.
 *
 *   push ─> groups of series that differ in their type only ─> a gzip'd pprof each, made once
 *             └─ for each target: its selectors, labels, rules ─> requests
 *
 * Requests: proto/WIRE.md, "Push messages" and "Remote write".
 */
#ifndef DISTRIBUTOR_FORWARD_FORWARD_MAKE_H
#define DISTRIBUTOR_FORWARD_FORWARD_MAKE_H

#include "distributor/forward/forward_conf.h"
#include "distributor/intake/intake.h"

#define FORWARD_RECORD_MAX (64 * MIB)

struct forward_made; /* the groups of one push, with their profiles */
/* Borrows from *p and is to be freed before it goes. ERR_LIMIT. */
NODISCARD int forward_made_new(const struct intake_packed *p, struct forward_made **ret,
                               struct err *e);
void forward_made_free(struct forward_made *m); /* NULL is fine */
/* Calls add(cookie, record) for each request to t, a record of forward_req; *ret_left_out counts
 * the groups its rules dropped. */
NODISCARD int forward_make(struct forward_made *m, struct forward_target_conf *t,
                           void (*add)(void *cookie, struct str record), void *cookie,
                           uint64_t *ret_left_out, struct err *e);

#endif
