/* SPDX-License-Identifier: Apache-2.0
 *
 * http_shares.h: what each tenant holds of the budget for bodies of requests
 * (http.in_flight_bytes), so that the uploads of one tenant do not keep out those of the others.
 * The rule is that of common/sys/share.h.
 *
 * A tenant is known by its requests' X-Scope-OrgID, else by their credentials. Whether the name is
 * authentic is checked later, by the handler; until then each name has a share of its own.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_NET_HTTP_SHARES_H
#define COMMON_NET_HTTP_SHARES_H

#include "common/net/cbuf.h"
#include "common/net/http.h"
#include "common/sys/share.h"

#define HTTP_SHARE_TEXT                                                                           \
    "in_flight_limit: requests of this tenant hold its share of the bytes of bodies that may be " \
    "held at once (http.in_flight_bytes); send fewer at once and try again"
#define HTTP_FULL_TEXT "too many bytes of requests are held at once; try again"

struct http_shares;
struct http_share;
/* Of one request, or one part of it. All 0: nothing is shared, the budget alone decides. */
struct http_hold {
    struct http_share *share;
    size_t bytes;
};

struct http_shares *http_shares_new(void);
/* No hold begins any more; it goes with the last one. NULL is fine. */
void http_shares_free(struct http_shares *s);
/* s NULL: nothing is shared. */
void http_hold_begin(struct http_shares *s, const struct http_req *r, struct http_hold *ret);
/* All bytes taken must have been given back. */
void http_hold_end(struct http_hold *h);
/* 0, ERR_RATE (the tenant has its share), ERR_BUSY (the budget is full). */
NODISCARD int http_hold_take(struct http_hold *h, struct budget *g, size_t n);
void http_hold_give(struct http_hold *h, struct budget *g, size_t n);
/* The same for cbuf_add and cbuf_free. */
NODISCARD int http_hold_add(struct http_hold *h, struct budget *g, struct cbuf *b, struct str s,
                            size_t max);
void http_hold_free(struct http_hold *h, struct budget *g, struct cbuf *b);
/* The text of the two errors. */
const char *http_hold_why(int code);

#endif
