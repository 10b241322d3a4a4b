/* SPDX-License-Identifier: Apache-2.0
 *
 * api_push.h: push.v1.PusherService/Push, what Alloy and `profilecli` send.
 */
#ifndef DISTRIBUTOR_API_PUSH_H
#define DISTRIBUTOR_API_PUSH_H

struct distributor;

/* Registers the routes on the process's listener. */
void api_push_routes(struct distributor *d);

#endif
