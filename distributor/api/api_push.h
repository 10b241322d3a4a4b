/* SPDX-License-Identifier: Apache-2.0
 *
 * api_push.h: push.v1.PusherService/Push, what Alloy and `profilecli` send.
 *
 * Protocol: grafana/pyroscope at 3fe6a457a320 (proto/WIRE.md, "Push messages", "Push outcome").
 */
#ifndef DISTRIBUTOR_API_API_PUSH_H
#define DISTRIBUTOR_API_API_PUSH_H

struct distributor;

/* Registers the routes on the process's listener. */
void api_push_routes(struct distributor *d);

#endif
