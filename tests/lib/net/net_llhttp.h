/* SPDX-License-Identifier: Apache-2.0
 *
 * net_llhttp.h: what llhttp alone makes of a connection's bytes: the second opinion that our own
 * reading (gate, llhttp for the head, strict body decoders) is held against.
 */
#ifndef TESTS_LIB_NET_NET_LLHTTP_H
#define TESTS_LIB_NET_NET_LLHTTP_H

#include "common/base/buf.h"

#define NET_MESSAGES_MAX 256

struct net_message {
    struct str method;     /* in the input */
    size_t body, body_len; /* in net_reading.bodies */
};
struct net_reading {
    struct net_message all[NET_MESSAGES_MAX];
    size_t len;
    struct buf bodies;
};
void net_llhttp_read(struct str bytes, struct net_reading *ret); /* buf_deinit(&ret->bodies) */

#endif
