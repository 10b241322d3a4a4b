/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_reach: one pointer of each thread, or fiber. An argument through every function that reads
 * rows would say the same a hundred times.
 */
#include "common/store/kv/kv_reach.h"

#include <stddef.h>

#include "common/sys/fiber.h"

static _Thread_local struct kv_reach *reach;

struct kv_reach *kv_reach_set(struct kv_reach *r)
{
    void **slot = fiber_slot();
    struct kv_reach *before = slot ? *slot : reach;

    if (slot)
        *slot = r;
    else
        reach = r;
    return before;
}

struct kv_reach *kv_reach(void)
{
    void **slot = fiber_slot();

    return slot ? *slot : reach;
}
