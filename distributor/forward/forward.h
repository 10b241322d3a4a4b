/* SPDX-License-Identifier: Apache-2.0
 *
 * forward.h: sends what was accepted on to other servers: see README.md.
 */
#ifndef DISTRIBUTOR_FORWARD_FORWARD_H
#define DISTRIBUTOR_FORWARD_FORWARD_H

#include "common/base/err.h"

struct distributor;
struct forward;

/* With distributor.forward_config_file: opens the spools, begins to send, sets d->tap, adds the
 * route GET /api/v1/forward. Without it *ret is NULL. ERR_CONFIG, ERR_IO. */
NODISCARD int forward_new(struct distributor *d, struct forward **ret, struct err *e);
/* Spools what it was given, ends the threads. NULL is fine. Loop; no push is in work any more, or
 * none that can still be stored. */
void forward_free(struct forward *f);

#endif
