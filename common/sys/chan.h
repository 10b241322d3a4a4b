/* SPDX-License-Identifier: Apache-2.0
 *
 * chan.h: a bounded queue of pointers between threads. Messages are moved: the receiver owns them.
 */
#ifndef COMMON_SYS_CHAN_H
#define COMMON_SYS_CHAN_H

#include "common/base/base.h"

struct chan;

/* `wake`, if not NULL, is called (on the sender's thread) when the queue turns non-empty. */
struct chan *chan_new(size_t max, void (*wake)(void *cookie), void *cookie);
void chan_free(struct chan *c); /* must be empty; NULL is fine */
/* False if full or closed: the message stays the sender's. Any thread. */
bool chan_send(struct chan *c, void *msg) NODISCARD;
/* The same for a message that a chan_wait_for may sleep over. */
bool chan_send_lazily(struct chan *c, void *msg) NODISCARD;
/* Up to `max` messages without waiting; returns how many. */
size_t chan_take(struct chan *c, void **ret_msgs, size_t max);
/* As chan_take, but waits up to wait_ms (UINT64_MAX: without a limit) for the first; 0 on timeout
 * or when closed and empty. */
size_t chan_wait(struct chan *c, void **ret_msgs, size_t max, uint64_t wait_ms);
/* For a sole receiver that has something else to wait for: lazy messages fewer than `least` do not
 * end the wait. Any other message does, and then all are returned, in the order they were sent. */
size_t chan_wait_for(struct chan *c, size_t least, void **ret_msgs, size_t max, uint64_t wait_ms);
void chan_close(struct chan *c); /* no more sends; waiters wake */
size_t chan_len(const struct chan *c);

#endif
