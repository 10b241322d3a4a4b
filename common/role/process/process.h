/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h: one running process: what its roles share, and its life from start to exit.
 */
#ifndef COMMON_ROLE_PROCESS_PROCESS_H
#define COMMON_ROLE_PROCESS_PROCESS_H

#include "common/net/svc/svc.h"
#include "common/obs/selfprof.h"
#include "common/role/admin/debug.h"
#include "common/role/admin/keys_routes.h"
#include "common/role/cluster/cluster_keys.h"
#include "common/role/cluster/cluster_source.h"
#include "common/role/core/access.h"
#include "common/role/core/options.h"
#include "common/role/core/readiness.h"
#include "common/role/core/usage.h"
#include "common/role/host/notify.h"
#include "common/sys/signal.h"

struct process {
    uint32_t magic;
    const char *program;
    const struct conf *conf;
    struct process_core core; /* pages read it, too */
    size_t draining;          /* core.parts[draining] is being drained; those above are done */

    struct loop *loop; /* owned, as all below */
    struct pool *pool;
    struct metrics *metrics;
    struct http_server *http;
    struct svc_health health;
    struct rpc_net *rpc;
    struct cluster_keys keys;
    struct cluster_source coordinate;
    struct budget in_flight;
    struct usage usage;
    struct memory *memory;
    struct data_conf data; /* a copy; data.disk_reserve stays as configured */
    struct signals *signals;
    struct debug debug;
    struct identity *identity; /* API keys */
    struct keys_routes keys_api;
    struct access access; /* to pages about the process */
    char *socket;         /* owned; path of the operator's Unix socket; NULL: none */
    struct notify notify;
    struct timer *tick;     /* usage, and the "ready" line */
    struct timer *deadline; /* of the drain */
    uint64_t deadline_ms;
    uint64_t start_mono_ns;
    bool ready; /* when last looked */
    int lock_fd;
    int exit_code;
};

/* Everything up to the roles' start. On failure what was made stays for the exit to clean up. */
NODISCARD int process_start(struct process *p, const char *program, const struct conf *conf,
                            const struct role *const *list, struct err *e);
/* Serves until a signal ends it and everything is drained. Returns the exit code. */
int process_run(struct process *p);

#endif
