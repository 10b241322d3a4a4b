/* SPDX-License-Identifier: Apache-2.0
 *
 * placement_history.h: embertreectl cluster spread and tenant: over how many shards something is
 * spread.
 */
#ifndef DEPLOY_CTL_SERVER_PLACES_H
#define DEPLOY_CTL_SERVER_PLACES_H

#include "common/net/json_in.h"
#include "deploy/ctl/cli/cli.h"

/* c->args: "spread TENANT SERVICE N" or "tenant TENANT N". */
NODISCARD int places_change(struct cli *c, struct err *e);
/* What the map has, where it has anything; NULL: an older server. */
NODISCARD int places_ask(struct cli *c, struct json_doc **ret, struct err *e);
void places_text(const struct json_doc *doc, struct buf *out);

#endif
