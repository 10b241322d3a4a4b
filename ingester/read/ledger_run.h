/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_run.h: RPC_LEDGER: what the ledgers of the shards say of tenants, and of a distributor's
 * acks.
 */
#ifndef INGESTER_READ_LEDGER_RUN_H
#define INGESTER_READ_LEDGER_RUN_H

#include "ingester/read/read_run.h"

NODISCARD int ledger_decode(struct str payload, struct arena *a, struct read_msg *ret,
                            struct err *e);
NODISCARD int ledger_run(const struct read_msg *m, const struct read_source *src, struct arena *a,
                         struct buf *out, struct err *e);

#endif
