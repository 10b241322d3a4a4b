/* SPDX-License-Identifier: Apache-2.0
 *
 * cold_read: one pointer of each thread, or fiber. An argument through every function that reads
 * rows would say the same a hundred times.
 */
#include "common/store/kv/cold_read.h"

#include <stddef.h>

#include "common/sys/fiber.h"

static _Thread_local struct cold_read *reach;

struct cold_read *cold_read_policy_set(struct cold_read *r)
{
    void **slot = fiber_slot();
    struct cold_read *before = slot ? *slot : reach;

    if (slot)
        *slot = r;
    else
        reach = r;
    return before;
}

struct cold_read *cold_read(void)
{
    void **slot = fiber_slot();

    return slot ? *slot : reach;
}
