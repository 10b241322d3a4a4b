/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the section "distributor" of the configuration. Rows and defaults: options.c.
 */
#ifndef DISTRIBUTOR_BASE_OPTIONS_H
#define DISTRIBUTOR_BASE_OPTIONS_H

#include "common/conf/conf.h"
#include "distributor/formats/limits.h"

struct distributor_conf {
    const char *listen; /* rpc address for answers; "": one is picked */
    struct limits limits;
    uint64_t request_profiles;   /* in one request of a protocol that carries several */
    uint64_t past_ms, future_ms; /* accepted window around now */
    uint64_t ack_ms;             /* a push is refused if it is not stored by then */
    uint64_t ledger_epoch_ms;    /* 0: none */
    uint64_t attempt_ms;         /* one attempt to reach an ingester */
    uint64_t in_flight_bytes;
    bool known_stacks;
    uint64_t symbol_session_bytes; /* memory of all pushes being decoded; 0: a share of the
    limit */
    uint64_t tenant_requests;      /* in flight, of one tenant */
    uint64_t tenant_rate_bytes;    /* per second, of bodies; 0 = unlimited */
    bool tenant_limits;            /* those of a shared server, where there are several tenants */
    uint64_t limits_of;          /* distributors among which a tenant spreads; 0: those that live */
    uint64_t stored_interval_ms; /* between two questions what tenants have stored */
    uint64_t tenant_burst_bytes;
    const char *otlp_layout; /* "auto", or the revision all bodies are of */
    const char *parca_drop_labels;
    uint64_t parca_last_bytes; /* 0: Parca's counters are stored as they come */
    uint64_t debuginfo_file_bytes, debuginfo_tenant_bytes, debuginfo_bytes;
    uint64_t adhoc_max, adhoc_bytes_max; /* uploaded profiles kept of one tenant */
    uint64_t debuginfo_stale_ms;         /* an unfinished upload may be restarted after this time */
    const char *overrides_file;          /* "" = none */
    uint64_t overrides_interval_ms;
    const char *forward_config_file; /* "" = nothing is forwarded */
    const char *scrape_config_file;  /* "": nothing is scraped */
    uint64_t scrape_refresh_ms, scrape_running, scrape_targets, scrape_bytes;
    uint64_t scrape_index, scrape_of; /* which part of the targets is this distributor's */
    const char *tokens_file;          /* "" = none */
    const char *write_id_secret;      /* "" = the file in the data folder */
    const char *write_id_secret_file; /* "" = none; instead of the option above */
};
extern const struct conf_table distributor_table;
extern const struct conf_table *const distributor_tables[];
#define DISTRIBUTOR_TABLES 1

#endif
