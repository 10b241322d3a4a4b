/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_doc.h: serves RPC_DOC (proto/doc.proto): documents of the tenants whose home is here.
 */
#ifndef INGESTER_ADMIN_RPC_DOC_H
#define INGESTER_ADMIN_RPC_DOC_H

#include "ingester/base/state.h"

/* After the shards are open. */
void rpc_doc_serve(struct ingester *in);
/* True while nothing is at work. */
bool rpc_doc_idle(const struct ingester *in);

#endif
