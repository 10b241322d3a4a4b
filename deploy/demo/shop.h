/* SPDX-License-Identifier: Apache-2.0
 *
 * shop.h: one worker of the demo shop: it serves requests, one after the other, as a web shop does:
 * searches and orders come in as JSON, pages and receipts go out compressed.
 * Thread: one at a time.
 */
#ifndef DEPLOY_DEMO_SHOP_H
#define DEPLOY_DEMO_SHOP_H

#include "deploy/demo/catalog.h"

enum shop_version { SHOP_V1, SHOP_V2 };

struct shop {
    enum shop_version version;
    struct catalog *catalog; /* owned */
    struct prng prng;
    struct buf request, page, packed;
    uint64_t requests;
    uint64_t checksum; /* of everything sent, so that no work can be left out */
};

struct shop *shop_new(enum shop_version version, uint64_t seed);
void shop_free(struct shop *s);
/* Makes up the next request and serves it. */
void shop_serve_one(struct shop *s);

/* suggest.c: what to show below the hits; product numbers, best first. */
enum { SUGGESTIONS = 12 };
size_t suggest_products(const struct shop *s, const struct hit *hits, size_t n,
                        uint32_t ret[SUGGESTIONS]);
/* page.c */
void page_render(struct shop *s, struct str query, const struct hit *hits, size_t n,
                 const uint32_t *suggested, size_t suggested_len);
void page_compress(struct shop *s);
/* order.c: reads the order in s->request, prices it, writes the receipt to s->page. */
void order_make_up(struct shop *s);
void order_checkout(struct shop *s);

#endif
