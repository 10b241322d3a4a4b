/* SPDX-License-Identifier: Apache-2.0
 *
 * readiness.h: the roles of a process, its state, and whether it can serve. This is the part of a
 * process that its pages (admin/) read; process/ owns it and alone changes it. Thread: the loop's.
 */
#ifndef COMMON_ROLE_CORE_READINESS_H
#define COMMON_ROLE_CORE_READINESS_H

#include "common/role/core/role.h"

#define PROCESS_ROLES_MAX 8

struct peer_health; /* common/role/cluster/peer_health.h */
struct selfprof;    /* common/obs/selfprof.h */

enum process_state { PROCESS_STARTING, PROCESS_RUNNING, PROCESS_DRAINING, PROCESS_STOPPED };

struct process_part {
    const struct role *role;
    void *self; /* owned; NULL until started */
};

struct process_core {
    enum process_state state;
    struct process_part parts[PROCESS_ROLES_MAX];
    size_t parts_len;
    struct role_ctx ctx;
    struct peer_health *heard; /* borrowed; NULL: no other processes */
    struct selfprof *selfprof; /* owned by the process; NULL: off */
};

/* True if all roles can serve and the process is not draining. Else *ret_role names the role and
 * *ret_why the reason; *ret_role is NULL where the process itself is starting or draining. */
bool readiness_check(const struct process_core *p, const char **ret_role, const char **ret_why);

#endif
