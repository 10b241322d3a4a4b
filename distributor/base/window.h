/* SPDX-License-Identifier: Apache-2.0
 *
 * window.h: when a push happened, and over which leaves it is spread.
 */
#ifndef DISTRIBUTOR_BASE_WINDOW_H
#define DISTRIBUTOR_BASE_WINDOW_H

#include "common/base/arena.h"
#include "distributor/formats/push.h"

#define WINDOW_DEFAULT_MS 10000 /* where one end, or both, are not given */
#define WINDOW_WHOLE_MS   15000 /* up to this long a push is one point: what agents send */

struct window {
    int64_t start_ms, end_ms; /* end >= start */
};
struct window_accept {
    int64_t now_ms;
    uint64_t past_ms, future_ms;
};
/* What starts before is refused. */
int64_t window_oldest_ms(const struct window_accept *a);
/* from and until of the request; where it has neither the body's own time; else the last 10 s.
 * ERR_INPUT: from after until, absurd, or not in the accepted window. */
NODISCARD int window_of(const struct ingest *in, const struct push *p,
                        const struct window_accept *accept, struct window *ret, struct err *e);

/* Slots a window covers, one per leaf, and how much of it falls on each. */
struct leaves {
    uint32_t *slots;   /* ascending */
    uint32_t *weights; /* sum = weight, each > 0 */
    size_t len;        /* >= 1 */
    uint64_t weight;
    uint32_t duration_ms; /* of the window */
    uint32_t spread;      /* slots of 5 s that the part of a leaf covers: 1 to 3 */
};
/* At most leaves_max: a longer window gets evenly spread points. False if the arena is full. */
bool leaves_of(const struct window *w, size_t leaves_max, struct arena *a, struct leaves *ret);

/* The part of a series that belongs to one slot. */
struct piece {
    uint32_t slot;
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
};
/* Divides the values in whole multiples of series->unit (1 where a value is not a multiple) by
 * largest remainder: sums are exact, the same input gives the same pieces, and what a leaf got too
 * little with one stack it gets with the next. Gauges and single leaves are one piece. Empty pieces
 * are left out. False if the arena is full. */
bool split_series(const struct push_series *s, const struct leaves *l, struct arena *a,
                  struct piece **ret, size_t *ret_len);

#endif
