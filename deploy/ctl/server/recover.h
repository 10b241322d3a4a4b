/* SPDX-License-Identifier: Apache-2.0
 *
 * recover.h: embertreectl cluster recover: an etcd that lost its data is filled again from what the
 * nodes kept.
 */
#ifndef DEPLOY_CTL_SERVER_RECOVER_H
#define DEPLOY_CTL_SERVER_RECOVER_H

#include "deploy/ctl/cli/cli.h"

/* c->args: "recover [URL...]". Returns an exit code. */
int recover(struct cli *c);

#endif
