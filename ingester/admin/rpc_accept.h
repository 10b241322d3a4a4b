/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_accept.h: serves RPC_LEDGER_ACCEPT: what the auditor found to differ of a tenant is looked at
 * again, and accepted as it is (common/store/check/ledger_accept.c). Loop.
 */
#ifndef INGESTER_ADMIN_RPC_ACCEPT_H
#define INGESTER_ADMIN_RPC_ACCEPT_H

#include "ingester/base/state.h"

/* After the auditor is made. */
void rpc_accept_serve(struct ingester *in);
bool rpc_accept_idle(const struct ingester *in);
void rpc_accept_free(struct ingester *in); /* when idle; not served is fine */

#endif
