/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/pause.h"

#include <stdatomic.h>

static void (*_Atomic pause_fn)(void);

void pause_set(void (*fn)(void))
{
    atomic_store_explicit(&pause_fn, fn, memory_order_relaxed);
}

void pause_point(void)
{
    void (*fn)(void) = atomic_load_explicit(&pause_fn, memory_order_relaxed);

    if (fn)
        fn();
}
