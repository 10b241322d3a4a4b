/* SPDX-License-Identifier: Apache-2.0
 *
 * config_fingerprint.h: compares the settings that decide where a service is placed. With etcd all
 * processes have the same map. Without it each has its own settings, and where those differ a push
 * is stored where no query looks: a 200, and later an answer that lacks it. So every frame carries
 * the settings in the place of a cluster's id, as one number, and processes whose numbers differ
 * refuse each other (common/rpc).
 *
 *   bits 63..48  a mark: this is no id of a cluster
 *        47      1: coordination static; 0: none
 *        46..36  none: addresses in cluster.ingesters; static: version of the map, mod 2,048
 *        35..24  shards, less one
 *        23..0   a hash of the tenants' and services' steps
 *
 * A file of a static map is brought to one process after the other, so maps of two versions go
 * together, as long as they have the same shards. Of one version they must be the same.
 */
#ifndef COMMON_CLUSTER_VIEW_CONFIG_FINGERPRINT_H
#define COMMON_CLUSTER_VIEW_CONFIG_FINGERPRINT_H

#include "common/cluster/view/view.h"

/* Returns the number of a view that never changes; 0: the view follows a coordination service. */
uint64_t config_fingerprint_number(const struct view *v);
/* Compares two numbers, or ids of clusters, neither 0. ERR_CONFIG: the settings differ; the text
 * names the settings of both processes and what the operator must do. ERR_CONFLICT: the peer is of
 * another cluster. */
NODISCARD int config_fingerprint_check(uint64_t mine, uint64_t theirs, struct err *e);

#endif
