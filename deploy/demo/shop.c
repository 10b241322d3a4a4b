/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/demo/shop.h"

#include "common/base/json.h"
#include "common/net/json_in.h"

/* One request in ORDER_EVERY is an order; the index is rebuilt after REINDEX_EVERY requests. */
enum { ORDER_EVERY = 3, REINDEX_EVERY = 600, BUF_BYTES = 1 << 20 };

struct shop *shop_new(enum shop_version version, uint64_t seed)
{
    struct shop *s = XNEW(struct shop);

    s->version = version;
    s->catalog = catalog_new(7); /* the same goods in every pod */
    prng_init(&s->prng, seed);
    buf_init(&s->request, BUF_BYTES);
    buf_init(&s->page, BUF_BYTES);
    buf_init(&s->packed, BUF_BYTES);
    return s;
}

void shop_free(struct shop *s)
{
    if (!s)
        return;
    catalog_free(s->catalog);
    buf_deinit(&s->request);
    buf_deinit(&s->page);
    buf_deinit(&s->packed);
    xfree(s);
}

static void make_up_search(struct shop *s)
{
    struct json j;
    struct buf query;

    buf_init(&query, KIB);
    catalog_random_query(s->catalog, &s->prng, &query);
    buf_reset(&s->request);
    json_init(&j, &s->request);
    json_obj(&j);
    json_put_str(&j, "query", buf_str(&query));
    json_obj_end(&j);
    buf_deinit(&query);
}

NOINLINE static void handle_search(struct shop *s)
{
    struct hit hits[HITS_MAX];
    uint32_t suggested[SUGGESTIONS];
    struct json_doc *d = NULL;
    struct str query = STR_NULL;
    struct err e = { 0 };
    size_t n, shown;

    CHECK(json_parse(buf_str(&s->request), &d, &e) == 0);
    CHECK(json_take_str(json_get(json_root(d), "query", NULL), "query", &query, &e) == 0);
    n = catalog_search(s->catalog, query, hits);
    shown = suggest_products(s, hits, n, suggested);
    page_render(s, query, hits, n, suggested, shown);
    json_doc_free(d);
}

NOINLINE static void handle_request(struct shop *s, bool order)
{
    buf_reset(&s->page);
    if (order)
        order_checkout(s);
    else
        handle_search(s);
    page_compress(s);
}

void shop_serve_one(struct shop *s)
{
    bool order = s->requests % ORDER_EVERY == 0;

    if (order)
        order_make_up(s);
    else
        make_up_search(s);
    handle_request(s, order);
    s->requests++;
    if (s->requests % REINDEX_EVERY == 0)
        catalog_reindex(s->catalog);
}
