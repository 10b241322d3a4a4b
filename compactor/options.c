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
};

const struct conf_table compactor_options = { "compactor", "The compactor", rows, ARRAY_LEN(rows),
                                              sizeof(ST) };
