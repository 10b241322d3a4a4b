/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: what a start of an ingester refuses in its options (common/role/process/check.h).
 */
#ifndef INGESTER_CHECK_H
#define INGESTER_CHECK_H

#include "common/role/process/check.h"
#include "ingester/base/options.h"

void ingester_check(struct role_checks *c);
/* Its place in cluster.ingesters, and its number of shards there. ERR_CONFIG. */
NODISCARD int ingester_check_index(const struct cluster_conf *c, const struct ingester_conf *own,
                                   size_t *ret, struct err *e);

#endif
