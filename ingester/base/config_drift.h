/* SPDX-License-Identifier: Apache-2.0
 *
 * config_drift.h: says when this node was given other numbers of shards or copies than its cluster
 * was made with. They are read when one is made, and later do nothing, which people should know.
 */
#ifndef INGESTER_BASE_CONFIG_DRIFT_H
#define INGESTER_BASE_CONFIG_DRIFT_H

#include "common/cluster/view/view.h"
#include "common/role/core/options.h"

struct config_drift;

/* Both outlive it. Loop. */
struct config_drift *config_drift_new(struct view *view, const struct cluster_conf *conf);
void config_drift_free(struct config_drift *a); /* NULL is fine */

#endif
