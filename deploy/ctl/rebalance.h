/* SPDX-License-Identifier: Apache-2.0
 *
 * rebalance.h: embertreectl cluster rebalance.
 */
#ifndef DEPLOY_CTL_REBALANCE_H
#define DEPLOY_CTL_REBALANCE_H

#include "deploy/ctl/cli.h"

/* Says what is to be moved; with --apply has it moved at once, with --wait until it is. */
NODISCARD int rebalance(struct cli *c, struct err *e);

#endif
