/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.h: what the querier's RPCs have beyond common/net/svc.h.
 */
#ifndef QUERIER_CONNECT_H
#define QUERIER_CONNECT_H

#include "common/net/http.h"

/* True if Accept allows label names beyond [A-Za-z_][A-Za-z0-9_]*. */
bool connect_utf8_names(const struct http_req *r);

#endif
