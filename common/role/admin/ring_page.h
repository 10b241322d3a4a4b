/* SPDX-License-Identifier: Apache-2.0
 *
 * ring_page.h: /ring for people with a browser: nodes, shards and roles as tables that renew
 * themselves. Programs get JSON (admin.h), and what is to be done says `embertreectl cluster
 * status`.
 */
#ifndef COMMON_ROLE_ADMIN_RING_PAGE_H
#define COMMON_ROLE_ADMIN_RING_PAGE_H

#include "common/net/http.h"

struct process_core;

/* The client names HTML among what it takes; curl and programs do not. */
bool ring_page_wanted(const struct http_req *r);
/* Without headers. */
void ring_page(const struct process_core *p, struct buf *out);
void ring_page_reply(const struct process_core *p, struct http_req *r);

#endif
