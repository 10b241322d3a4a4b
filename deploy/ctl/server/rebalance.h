/* SPDX-License-Identifier: Apache-2.0
 *
 * rebalance.h: embertreectl cluster rebalance.
 */
#ifndef DEPLOY_CTL_SERVER_REBALANCE_H
#define DEPLOY_CTL_SERVER_REBALANCE_H

#include "common/base/rate_estimate.h"
#include "deploy/ctl/cli/cli.h"

struct json_val;

/* Says what is to be moved; with --apply has it moved at once, with --wait until it is. */
NODISCARD int rebalance(struct cli *c, struct err *e);
/* The server's answer, for people. */
void rebalance_text(const struct json_val *root, struct buf *out);

/* ---- for commands that wait ---- */
/* Gets the number of shards that are to be moved, and the bytes that are to be copied for that.
 * `node`: counts only shards that leave this node; NULL: all shards. */
NODISCARD int rebalance_left(struct cli *c, const char *node, uint64_t *ret_shards,
                             uint64_t *ret_bytes, struct err *e);
struct rebalance_wait { /* all zero: begins */
    struct rate_estimate speed;
    uint64_t most, shards, bytes, said_ms;
    bool begun;
};
/* "3 shards are to be moved, 1.2 GiB to be copied, 31 MiB/s, 40 s left", with `node` of that node;
 * at each change of the first number, and at intervals. */
void rebalance_say(struct cli *c, struct rebalance_wait *w, const char *node, uint64_t shards,
                   uint64_t bytes);

#endif
