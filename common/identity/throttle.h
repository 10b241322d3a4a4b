/* SPDX-License-Identifier: Apache-2.0
 *
 * throttle.h: a source whose keys are wrong too often has to wait. Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_THROTTLE_H
#define COMMON_IDENTITY_THROTTLE_H

#include "common/base/base.h"

#define THROTTLE_COUNTERS 4096
#define THROTTLE_BURST    10   /* failures of a source at once */
#define THROTTLE_EVERY_MS 6000 /* and one more after this time */

struct throttle;

struct throttle *throttle_new(void);
void throttle_free(struct throttle *t); /* NULL is fine */
/* Counts a failure of a source (http_req.peer: "10.1.2.3:4242", "[::1]:9") at monotonic time. 0: it
 * is answered as what it is; else after how many seconds the next one would be. */
uint32_t throttle_fail(struct throttle *t, const char *peer, uint64_t now_ms);

#endif
