/* SPDX-License-Identifier: Apache-2.0
 *
 * record_net.h: ranges of addresses from which a key may be used. Thread: any.
 */
#ifndef COMMON_IDENTITY_RECORD_NET_H
#define COMMON_IDENTITY_RECORD_NET_H

#include "common/identity/record.h"

#define NET_RANGE_TEXT 56 /* bytes of the longest text, its NUL included */

/* "10.0.0.0/8", "::1". ERR_INPUT. */
NODISCARD int net_range_parse(struct str text, struct net_range *ret, struct err *e);
/* `peer` as in http_req: "10.1.2.3:4242", "[::1]:9". */
bool net_range_has(const struct net_range *nets, size_t n, const char *peer);
/* "10.0.0.0/8", "::1/128": as net_range_parse takes it. */
void net_range_format(const struct net_range *r, char to[NET_RANGE_TEXT]);

#endif
