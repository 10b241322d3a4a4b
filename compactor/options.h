/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the section "compactor".
 */
#ifndef COMPACTOR_OPTIONS_H
#define COMPACTOR_OPTIONS_H

#include "common/conf/conf.h"

struct compactor_conf {
    const char *listen; /* rpc address for answers; "": picked */
    uint64_t check_interval_ms;
    uint64_t lag_warn_ms;
    uint64_t build_interval_ms, build_timeout_ms, build_lag_warn_ms;
    uint64_t build_share; /* percent */
    uint64_t build_jobs;
    uint64_t build_memory; /* bytes; 0: 5 % of the limit */
};
extern const struct conf_table compactor_options;

#endif
