/* SPDX-License-Identifier: Apache-2.0 */
#include "compactor/options.h"

#define ST struct compactor_conf

static const struct conf_row rows[] = {
    CONF_STR(ST, listen, "listen", "",
             "Rpc address that ingesters answer to; empty: one is picked."),
    CONF_DURATION(ST, check_interval_ms, "check_interval", "2s", "50ms", "10m",
                  "Ask every ingester this often how far sealing is."),
    CONF_DURATION(ST, lag_warn_ms, "lag_warn", "5m", "1s", "7d",
                  "Warn when sealing is behind by more than this."),
    CONF_DURATION(ST, build_interval_ms, "build_interval", "2s", "10ms", "10m",
                  "A shard without coarse nodes to build is asked again after this."),
    CONF_DURATION(ST, build_timeout_ms, "build_timeout", "1m", "100ms", "1h",
                  "A question to an ingester about builds may take this long."),
    CONF_DURATION(ST, build_lag_warn_ms, "build_lag_warn", "1h", "1s", "30d",
                  "Warn when a coarse node has waited longer than this."),
    CONF_U64(ST, build_share, "build_share", "50", "1", "100",
             "Percent of the time a shard may be worked for; it rests for the others."),
    CONF_U64(ST, build_jobs, "build_jobs", "2", "1", "64",
             "Nodes, or parts of one, built at once."),
    CONF_BYTES(ST, build_memory, "build_memory", "0", NULL, NULL,
               "Memory of these jobs together; 0 is the share of builds in the memory limit."),
};

const struct conf_table compactor_options = { "compactor", "The compactor", rows, ARRAY_LEN(rows),
                                              sizeof(ST) };
