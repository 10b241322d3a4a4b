/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the sections "ingester", "exemplars", "rollups", "scrub" and "retention".
 */
#ifndef INGESTER_BASE_OPTIONS_H
#define INGESTER_BASE_OPTIONS_H

#include "common/conf/conf.h"

struct ingester_conf {
    const char *listen;    /* rpc address */
    const char *advertise; /* "": the listen address */
    uint64_t writes_max;   /* waiting or being written */
    uint64_t tenants_max;  /* of a shard; 0: any */
    uint64_t group_bytes_max;
    uint64_t group_wait_ms;
    uint64_t seal_delay_ms;
    uint64_t build_delay_ms;
    uint64_t build_pace_ms;
    uint64_t seal_rows;
    uint64_t wid_horizon_ms;
    uint64_t delete_guard_ms;
    uint64_t reads_max, reads_tenant_max; /* running or waiting */
    uint64_t answer_bytes_max;
    uint64_t dict_service_nodes, dict_tenant_nodes; /* new ones a day */
    uint64_t build_timeout_ms;
    uint64_t disk_timeout_ms; /* 0: off */
};
extern const struct conf_table ingester_options;

struct scrub_conf {
    uint64_t rate; /* rows per second; 0: off */
    uint64_t delay_ms, interval_ms;
    uint64_t sample;
    bool cold;
    uint64_t audit_rate; /* heads of rows per second; 0: off */
    uint64_t audit_delay_ms, audit_interval_ms;
};
extern const struct conf_table scrub_options;

struct retention_conf {
    uint64_t keep_ms[8]; /* by level: KEY_LEVELS, which background/retention.c checks */
    const char *overrides;
    uint64_t interval_ms;
};
extern const struct conf_table retention_options;

struct exemplar_conf {
    uint64_t retention_ms;
    uint64_t rows_per_minute;
    uint64_t bytes_per_minute;
    uint64_t list_max;
};
extern const struct conf_table exemplar_options;

struct rollup_conf {
    struct conf_list drop, tenants;
};
extern const struct conf_table rollup_options;

/* All sections of an ingester's options, those of the cold tier among them. */
#define INGESTER_TABLES 6
extern const struct conf_table *const ingester_tables[INGESTER_TABLES];

#endif
