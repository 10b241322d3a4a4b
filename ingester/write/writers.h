/* SPDX-License-Identifier: Apache-2.0
 *
 * writers.h: the tenants that have writes on this ingester right now, and what each holds of the
 * two bounds that all writes share: their number (ingester.writes_max) and their bytes. A tenant
 * gets its share (common/sys/share.h) and beyond it ERR_RATE, so that writes of one tenant never
 * use up what others need. With one tenant only the bounds themselves hold.
 *
 * Thread: the loop's, but for writers_more.
 */
#ifndef INGESTER_WRITE_WRITERS_H
#define INGESTER_WRITE_WRITERS_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/sys/share.h"

struct writers;
struct writer; /* one tenant while it has writes here */

struct writers_opts {
    struct budget *bytes; /* borrowed */
    size_t writes_max;
    bool many; /* several tenants */
};
struct writers *writers_new(const struct writers_opts *o);
void writers_free(struct writers *ws); /* no writes any more; NULL is fine */

/* One more write of the tenant, which holds `bytes`: writers_leave gives both back. ERR_RATE: the
 * tenant holds its share. ERR_BUSY: the queue is full for all tenants. */
NODISCARD int writers_enter(struct writers *ws, struct str tenant, size_t bytes,
                            struct writer **ret, struct err *e);
/* The same write, which holds `own`, takes n more bytes. Any thread. */
NODISCARD int writers_more(struct writer *w, size_t own, size_t n, struct err *e);
void writers_leave(struct writer *w, size_t bytes);
size_t writers_pending(const struct writers *ws); /* writes */
size_t writers_len(const struct writers *ws);     /* tenants */

#endif
