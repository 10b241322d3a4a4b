/* SPDX-License-Identifier: Apache-2.0
 *
 * wheel.h: many coarse deadlines on one timer. A deadline fires between 0 and about 2 ticks late,
 * never early. Moving one to a later time costs nothing, which is what connections do all the time.
 * Thread: the loop's.
 */
#ifndef COMMON_NET_WHEEL_H
#define COMMON_NET_WHEEL_H

#include "common/base/list.h"
#include "common/sys/loop.h"

#define WHEEL_SLOTS   256
#define WHEEL_TICK_MS 50

struct wheel_entry { /* inside its owner; zero before first use */
    struct list link;
    uint64_t due_ms; /* monotonic */
    uint64_t tick;   /* when it is looked at next; 0: not in the wheel */
};
typedef void (*wheel_fn)(
    struct wheel_entry *e); /* the entry is out of the wheel; may set it again */

struct wheel {
    struct loop *loop;   /* borrowed */
    struct timer *timer; /* owned; runs only while there are entries */
    wheel_fn expired;
    struct list slots[WHEEL_SLOTS];
    uint64_t tick;       /* everything up to here was looked at */
    uint64_t armed_tick; /* of the timer; UINT64_MAX: not running */
    size_t len;
};

void wheel_init(struct wheel *w, struct loop *loop, wheel_fn expired);
void wheel_deinit(struct wheel *w); /* must be empty */
void wheel_set(struct wheel *w, struct wheel_entry *e, uint64_t due_ms);
void wheel_clear(struct wheel *w, struct wheel_entry *e); /* twice is fine */

#endif
