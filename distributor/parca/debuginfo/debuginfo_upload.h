/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_upload.h: writes the bytes of one upload to disk, for both protocols, and makes it
 * count. Thread: the loop's; all work on files is done on the pool.
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_UPLOAD_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_UPLOAD_H

#include "distributor/base/state.h"
#include "distributor/parca/debuginfo/debuginfo.h"

/* One at a time of it: a write, the end, or the commit. */
struct debuginfo_upload {
    struct distributor *d;
    struct debuginfo *index;
    struct debuginfo_entry *entry; /* claimed; NULL once it is dropped or handed over */
    struct str bytes;              /* being written; the caller's */
    uint64_t checked;              /* size at which there was enough room on the disk */
    struct debuginfo_goners goners;
    uint64_t turn; /* whose jobs these are, where tenants take turns */
    struct err err;
    bool busy;
    void (*then)(void *cookie, const struct err *e); /* NULL: it went well */
    void *cookie;
};
/* Entry is claimed. Counts as a request in work until debuginfo_upload_close. */
void debuginfo_upload_open(struct debuginfo_upload *u, struct distributor *d,
                           struct debuginfo *index, struct debuginfo_entry *entry);
/* Not busy. What was not finished is removed and forgotten. */
void debuginfo_upload_close(struct debuginfo_upload *u);
/* Each calls then(cookie) once, later. After an error only close is left. */
void debuginfo_upload_write(struct debuginfo_upload *u, struct str bytes);
/* All bytes came: checked, synced, RECEIVED. */
void debuginfo_upload_end(struct debuginfo_upload *u);
/* It is RECEIVED and was claimed again: moved to its place, KEPT. */
void debuginfo_upload_keep(struct debuginfo_upload *u);
/* Files are worked on in the tenant's turns, as its pushes are decoded. False: ERR_BUSY. */
NODISCARD bool debuginfo_upload_submit(struct distributor *d, uint64_t turn, pool_fn work,
                                       pool_fn done, void *cookie);
uint64_t debuginfo_upload_turn(const struct distributor *d, struct str tenant);

#endif
