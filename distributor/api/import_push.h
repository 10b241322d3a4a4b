/* SPDX-License-Identifier: Apache-2.0
 *
 * import_push.h: what is in an imported message, as pushes: one per slot, so that rules, limits of
 * series and forwarding see what they see of every other way in. Thread: any, one at a time.
 */
#ifndef DISTRIBUTOR_API_IMPORT_PUSH_H
#define DISTRIBUTOR_API_IMPORT_PUSH_H

#include "distributor/api/import_msg.h"
#include "distributor/formats/batch.h"

struct import_pushes; /* in the arena of the message */
/* ERR_LIMIT: the arena is full. */
NODISCARD int import_pushes_new(const struct import_opened *m, struct arena *a,
                                struct import_pushes **ret, struct err *e);
size_t import_pushes_len(const struct import_pushes *p);
/* Pushes from .. from + n - 1; each counts for its share of the message's bytes. What one of them
 * cannot be is rejected in the sink. Asked again, the same ids. */
NODISCARD int import_pushes_run(struct import_pushes *p, size_t from, size_t n,
                                const struct batch_sink *sink, struct err *e);

#endif
