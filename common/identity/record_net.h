/* SPDX-License-Identifier: Apache-2.0
 *
 * record_net.h: ranges of addresses as texts; net_range_parse and net_range_has are in record.h.
 */
#ifndef COMMON_IDENTITY_RECORD_NET_H
#define COMMON_IDENTITY_RECORD_NET_H

#include "common/identity/record.h"

#define NET_RANGE_TEXT 56 /* bytes of the longest text, its NUL included */

/* "10.0.0.0/8", "::1/128": as net_range_parse takes it. */
void net_range_format(const struct net_range *r, char to[NET_RANGE_TEXT]);

#endif
