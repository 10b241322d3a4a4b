/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_read.h: how far the reads of this thread may go, where a part of a kv's rows is remote
 * (common/cold). The reader sets it once for everything that is called below it.
 */
#ifndef COMMON_STORE_KV_COLD_READ_H
#define COMMON_STORE_KV_COLD_READ_H

#include <stdbool.h>
#include <stdint.h>

struct cold_read {
    bool local;           /* remote rows are passed over, as if they did not exist */
    bool met;             /* set when that may have happened; the function that looks clears it */
    uint64_t deadline_ms; /* monotonic; no waiting for far rows after that; 0: none */
    /* Asked before this thread waits for far rows for the first time; false: it must not, and the
     * read ends with ERR_BUSY. NULL: it may. */
    bool (*enter)(void *cookie);
    void *cookie;
    bool entered, refused;
};
/* From now on, on this thread; NULL: all there is, for as long as it takes. What was set before. */
struct cold_read *cold_read_policy_set(struct cold_read *r);
struct cold_read *cold_read(void);

#endif
