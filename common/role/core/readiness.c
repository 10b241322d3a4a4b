/* SPDX-License-Identifier: Apache-2.0 */
#include "common/role/core/readiness.h"

bool readiness_check(const struct process_core *p, const char **ret_role, const char **ret_why)
{
    *ret_role = NULL;
    if (p->state != PROCESS_RUNNING) {
        *ret_why = p->state == PROCESS_STARTING ? "starting" : "draining";
        return false;
    }
    for (size_t i = 0; i < p->parts_len; i++) {
        const struct process_part *part = &p->parts[i];

        *ret_why = "not ready";
        if (part->role->ready && !part->role->ready(part->self, ret_why)) {
            *ret_role = part->role->name;
            return false;
        }
    }
    return true;
}
