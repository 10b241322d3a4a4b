/* SPDX-License-Identifier: Apache-2.0
 *
 * fair.h: whose job is next, where many tenants want the same thing: a queue per key, served so
 * that keys that want as much get as much, whatever one of them piles up.
 *
 * It is start-time fair queueing: each key has a clock that its jobs move by what they cost; next
 * is the key whose clock is furthest behind. A key that was away gets no credit for it, one job
 * that cost much more than was thought is paid for by the key's next turns. Within a key: first
 * come, first served.
 *
 *      fair_push ─> waiting ──fair_next, fair_take──> running ──fair_done──> forgotten
 *                    │ └─────────────fair_pause────────┘                         │
 *                    └──────────fair_drop────────────────────────────────────────┘
 *
 * Pure: no clock, no lock; the order follows from the calls alone. Thread: the caller's, one at a
 * time.
 */
#ifndef COMMON_SYS_FAIR_H
#define COMMON_SYS_FAIR_H

#include "common/base/list.h"

struct fair;
struct fair_key;
struct fair_item { /* in the caller's job; zeroed before the first fair_push */
    struct list link;
    struct fair_key *key; /* NULL: not in a queue */
    uint64_t cost;        /* the guess; while it runs what the key was charged */
    uint64_t weight; /* set by the caller, may be 0: what it holds of something while it runs */
    bool running;
    bool paused; /* ran, and waits to continue */
};
struct fair_opts {
    size_t running_max;  /* of one key at once; 0: any */
    size_t waiting_max;  /* of one key; 0: any */
    uint64_t weight_max; /* of one key's running items, unless it is one; 0: any */
    uint64_t debt_max;   /* a key is never further ahead than this, in units of cost; 0: any */
};

struct fair *fair_new(const struct fair_opts *o);
void fair_free(struct fair *f); /* empty; NULL is fine */

/* False, and nothing is done, where the key has waiting_max waiting. `cost` is the best guess, 1 or
 * more. */
bool fair_push(struct fair *f, uint64_t key, uint64_t cost, struct fair_item *i) NODISCARD;
/* Another running_max for this key, as long as it has items. */
void fair_limit(struct fair *f, uint64_t key, size_t running_max);
/* The item whose turn it is. NULL: no waiting item may run. It stays in the queue. */
struct fair_item *fair_next(struct fair *f);
/* It runs now. */
void fair_take(struct fair *f, struct fair_item *i);
/* It ended, and this is what it did cost (0: the guess stands). */
void fair_done(struct fair *f, struct fair_item *i, uint64_t cost);
/* It stops for others, and is the first of its key to continue. `cost`: of this turn; `guess`: of
 * its next one. */
void fair_pause(struct fair *f, struct fair_item *i, uint64_t cost, uint64_t guess);
/* True if another key has had less than the key of `i`, which runs and has cost `cost` so far.
 * Looks at keys that wait and may run; with `running` also at keys that run. */
bool fair_ahead(const struct fair *f, const struct fair_item *i, uint64_t cost, bool running);
/* Its key has nothing else here. */
bool fair_alone(const struct fair_item *i);
/* It does not wait any more. */
void fair_drop(struct fair *f, struct fair_item *i);

size_t fair_waiting(const struct fair *f);
size_t fair_running(const struct fair *f);
size_t fair_keys(const struct fair *f); /* that are remembered */

#endif
