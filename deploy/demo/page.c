/* SPDX-License-Identifier: Apache-2.0
 *
 * page: the result page as HTML, compressed.
 */
#include "common/base/compress/compress.h"
#include "common/base/hash.h"
#include "deploy/demo/shop.h"

NOINLINE static void add_escaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        switch (s.ptr[i]) {
        case '<':
            (void)buf_add_str(out, STR("&lt;"));
            break;
        case '&':
            (void)buf_add_str(out, STR("&amp;"));
            break;
        case '"':
            (void)buf_add_str(out, STR("&quot;"));
            break;
        default:
            (void)buf_add_c(out, s.ptr[i]);
        }
    }
}

NOINLINE static void add_product(struct buf *out, const struct product *p, bool whole)
{
    (void)buf_add_str(out, STR("<li class=\"product\"><h3>"));
    add_escaped(out, p->name);
    (void)buf_addf(out, "</h3><span class=\"price\">%u.%02u</span>", p->price_cents / 100,
                   p->price_cents % 100);
    if (whole) {
        (void)buf_add_str(out, STR("<p>"));
        add_escaped(out, p->description);
        (void)buf_add_str(out, STR("</p>"));
    }
    (void)buf_add_str(out, STR("</li>\n"));
}

void page_render(struct shop *s, struct str query, const struct hit *hits, size_t n,
                 const uint32_t *suggested, size_t suggested_len)
{
    const struct product *products = s->catalog->products;

    (void)buf_add_str(&s->page, STR("<!doctype html><title>"));
    add_escaped(&s->page, query);
    (void)buf_add_str(&s->page, STR("</title><ul class=\"hits\">\n"));
    for (size_t i = 0; i < n; i++)
        add_product(&s->page, &products[hits[i].product], true);
    (void)buf_add_str(&s->page, STR("</ul><h2>Others also bought</h2><ul>\n"));
    for (size_t i = 0; i < suggested_len; i++)
        add_product(&s->page, &products[suggested[i]], false);
    (void)buf_add_str(&s->page, STR("</ul>\n"));
    CHECK(buf_ok(&s->page));
}

void page_compress(struct shop *s)
{
    struct err e = { 0 };

    buf_reset(&s->packed);
    CHECK(gzip(buf_str(&s->page), 5, &s->packed, &e) == 0);
    s->checksum ^= hash64(s->packed.ptr, s->packed.len, s->requests);
}
