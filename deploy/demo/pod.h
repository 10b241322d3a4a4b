/* SPDX-License-Identifier: Apache-2.0
 *
 * pod.h: one process of the demo shop: two workers and the self-profiler.
 */
#ifndef DEPLOY_DEMO_POD_H
#define DEPLOY_DEMO_POD_H

#include "deploy/demo/shop.h"

struct pod_opts {
    enum shop_version version;
    const char *region, *name; /* labels */
    const char *url;           /* where profiles go */
    uint64_t seconds;          /* 0: until a signal */
    double load;               /* share of a core, as version 1 would use it */
    uint64_t seed;
};
/* SIGTERM, SIGINT and SIGHUP must be blocked; returns the exit code after one of them. */
int pod_run(const struct pod_opts *o);

#endif
