/* SPDX-License-Identifier: Apache-2.0
 *
 * pause.h: points inside long work of this layer at which the thread may be given to others. What
 * that means is said by the layer above: common/sys/pool.h.
 */
#ifndef COMMON_BASE_PAUSE_H
#define COMMON_BASE_PAUSE_H

#include <stddef.h>

/* Once a process, before there are threads; the same function again is fine. */
void pause_set(void (*fn)(void));
/* Nothing where none is set. */
void pause_point(void);
/* The same in a loop of short steps, of which this is step i. */
static inline void pause_step(size_t i)
{
    if ((i & 4095) == 4095)
        pause_point();
}

#endif
