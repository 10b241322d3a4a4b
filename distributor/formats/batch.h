/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: bodies that hold several profiles (Push, OTLP, Parca) hand them over one by one.
 *
 * The decoder calls begin, fills the push (push_base, stacks, push_add), sets its time, and calls
 * end; the receiver checks its window and packs it. A push that cannot be taken is rejected with
 * its reason while the others continue. Thread: the decoder's, a pool thread.
 */
#ifndef DISTRIBUTOR_FORMATS_BATCH_H
#define DISTRIBUTOR_FORMATS_BATCH_H

#include "distributor/formats/push.h"

struct batch_sink {
    /* A new push, initialised, with its own stacks; `in` (name, labels, window, spy) must live
     * until end. NULL with *e set: over the number of pushes of a request, or out of memory. */
    struct push *(*begin)(void *cookie, const struct ingest *in, struct err *e);
    /* It is complete; without series it counts as empty. `identity`: the bytes that a retry
     * repeats (STR_NULL: none). `id`: the sender's own id of this profile, or STR_NULL; with one,
     * a repeat is stored once. An error that it returns refuses the push and the whole request; an
     * error of this push only is passed to reject, inside. */
    int (*end)(void *cookie, struct push *p, struct str identity, struct str id, struct err *e);
    /* Drops a push between begin and end, or (p = NULL) profiles for which begin was not called. */
    void (*reject)(void *cookie, struct push *p, uint64_t profiles, const struct err *why);
    const struct limits *limits;
    int64_t now_ms, oldest_ms; /* a push that begins before that is refused */
    void *cookie;
};

#endif
