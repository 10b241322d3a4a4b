/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_reach: one pointer of each thread. An argument through every function that reads rows would
 * say the same a hundred times.
 */
#include "common/store/kv_reach.h"

#include <stddef.h>

static _Thread_local struct kv_reach *reach;

struct kv_reach *kv_reach_set(struct kv_reach *r)
{
    struct kv_reach *before = reach;

    reach = r;
    return before;
}

struct kv_reach *kv_reach(void)
{
    return reach;
}
