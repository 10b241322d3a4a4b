/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_keep.h: what the next profiles are subtracted from, over a restart.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_KEEP_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_KEEP_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/sys/env.h"

#define SCRAPE_KEEP_MS INT64_C(3600000) /* older ones are of no use */

struct scrape_kept { /* one last profile */
    uint64_t id;     /* of its entry */
    int64_t at_ms;   /* wall: when it was fetched */
    struct str bytes;
};
/* Appends the file's head, then each one, then its end. */
void scrape_keep_head(struct buf *out);
void scrape_keep_one(const struct scrape_kept *k, struct buf *out);
void scrape_keep_end(struct buf *out);
/* Calls fn for each that is young enough; slices are of the text. ERR_INPUT: it is no such file, or
 * broken; fn was not called then. */
NODISCARD int scrape_keep_each(struct str text, int64_t now_ms,
                               void (*fn)(void *cookie, const struct scrape_kept *k), void *cookie,
                               struct err *e);

#endif
