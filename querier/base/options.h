/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the section "querier".
 */
#ifndef QUERIER_BASE_OPTIONS_H
#define QUERIER_BASE_OPTIONS_H

#include "common/conf/conf.h"

struct querier_conf {
    const char *listen; /* rpc address; "": made up */
    uint64_t timeout_ms;
    uint64_t queries_max, queue_max;
    uint64_t tenant_queries, tenant_queue;
    uint64_t tenant_bytes_max;  /* 0: half of bytes_max if there are several tenants, else all */
    struct conf_list tenants;   /* limits of some */
    const char *overrides_file; /* the same, read again; "": none */
    uint64_t overrides_interval_ms;
    uint64_t bytes_max;            /* of all queries; 0: a share of memory.limit */
    uint64_t query_bytes_max;      /* of one */
    uint64_t query_read_bytes_max; /* of stored vectors, by an estimate; 0: any */
    uint64_t nodes_default, nodes_max;
    uint64_t points_max;
    uint64_t labels_max;
};
extern const struct conf_table querier_options;

#endif
