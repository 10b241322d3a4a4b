/* SPDX-License-Identifier: Apache-2.0
 *
 * write.h: one write request to the ingester that has its shard, until it is stored or time is up.
 */
#ifndef DISTRIBUTOR_WRITE_H
#define DISTRIBUTOR_WRITE_H

#include "distributor/state.h"

struct write {
    /* Set by the caller; all functions run on the loop but `pack`, which runs on the pool. */
    struct distributor *d;
    uint32_t shard;
    uint64_t deadline_ns; /* monotonic */
    /* Packs the request once more: the same bytes, so the ingester counts them once. */
    int (*pack)(void *cookie, struct buf *out, struct err *e);
    /* Called once, never inside write_start. e NULL: stored, fsynced, on its replica. */
    void (*done)(void *cookie, uint64_t duplicates, const struct err *e);
    void *cookie;
    /* The rest is write.c's. */
    struct buf message;
    struct timer *timer;
    uint32_t attempts;
    uint64_t began_ns;
    struct err err;
};

/* Moves *message. */
void write_start(struct write *w, struct buf *message);

#endif
