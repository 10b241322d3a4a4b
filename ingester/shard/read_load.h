/* SPDX-License-Identifier: Apache-2.0
 *
 * read_load.h: what the queue of queries (read/rpc_read.c) shows to other work: whether queries
 * wait, and the places of threads that may wait for the cold tier.
 *
 * A place is the right of one thread to wait for the object store (cold_read.h). Queries and
 * background work take places from the same number, so that a hanging object store cannot occupy
 * all threads.
 */
#ifndef INGESTER_SHARD_READ_LOAD_H
#define INGESTER_SHARD_READ_LOAD_H

#include <stdbool.h>
#include <stdint.h>

struct fair; /* common/sys/fair.h */
struct read_load;

struct read_load *read_load_new(void);
void read_load_free(struct read_load *l); /* NULL is fine */

/* True while a query waits for its turn: background work should wait, too. Loop. */
bool read_load_waiting(const struct read_load *l);
/* Takes a place. False: all places are taken. Any thread. */
bool read_load_far_enter(struct read_load *l);
/* Leaves a place that work other than a query took; a query that waits may get it. Loop. */
void read_load_far_leave(struct read_load *l);

/* ---- for the queue itself: loop ---- */
struct read_load_queue {
    const struct fair *queue; /* borrowed until read_load_end */
    uint32_t far_max;         /* places */
    void (*far_left)(
        void *cookie); /* passes the place to a query, or calls read_load_far_release */
    void *cookie;
};
void read_load_begin(struct read_load *l, const struct read_load_queue *q);
void read_load_end(struct read_load *l);
/* The number of free places grows by one. Any thread. */
void read_load_far_release(struct read_load *l);

#endif
