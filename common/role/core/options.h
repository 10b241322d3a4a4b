/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the sections every binary has, and what their zeros mean on this machine.
 */
#ifndef COMMON_ROLE_CORE_OPTIONS_H
#define COMMON_ROLE_CORE_OPTIONS_H

#include "common/role/core/role.h"

struct log_conf {
    const char *level;
};
struct data_guard_conf { /* section "data", with struct data_conf */
    bool create;
};
extern const struct conf_table data_guard_options;
struct memory_conf {
    uint64_t limit; /* bytes; 0: see options_memory_limit */
};
struct shutdown_conf {
    uint64_t deadline_ms;
};
struct selfprof_conf {
    bool enabled;
    uint64_t hz;
    const char *url; /* "": this process, if it has a distributor */
    const char *tenant;
};

extern const struct conf_table http_options, log_options, cluster_options, data_options,
    memory_options, tenancy_options, shutdown_options, selfprof_options;

#define ADMIN_SOCKET "admin.sock" /* default of http.admin_socket */

#define OPTIONS_TABLES_MAX 24
/* The common tables, then those of every role in `list` (NULL-ended). Returns how many. */
size_t options_collect(const struct role *const *list,
                       const struct conf_table *ret[OPTIONS_TABLES_MAX]);

/* The section "http" for the checks below: with identity.mode require callers are asked for keys,
 * so that any address may be listened on. */
struct common_conf options_http(const struct conf *conf);
/* What single rows cannot say: listen addresses, ingester lists that no other process can reach,
 * shards and ingesters that do not go together. ERR_CONFIG says what to change. */
NODISCARD int options_check_http(const struct common_conf *http, struct err *e);
NODISCARD int options_check_cluster(const struct cluster_conf *cluster, bool all_in_one,
                                    struct err *e);
NODISCARD int options_check(const struct common_conf *http, const struct cluster_conf *cluster,
                            bool all_in_one, struct err *e);

/* The view of a cluster that is a list of ingesters (common/cluster/view/view.h). */
struct view *options_view(const struct cluster_conf *cluster);

#define OPTIONS_MEMORY_LEAST (64 * MIB)
/* `configured`, or if that is 0: 80 % of the cgroup's limit if there is one, else half of the
 * machine's memory. Never less than 64 MiB. */
uint64_t options_memory_limit(uint64_t configured);
/* The same from given figures; 0 = unknown. For tests. */
uint64_t options_memory_from(uint64_t configured, uint64_t cgroup, uint64_t machine);

#endif
