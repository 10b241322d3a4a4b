/* SPDX-License-Identifier: Apache-2.0
 *
 * http_shares: a table of the tenants that hold something now. An entry is made by the first
 * request that brings a body and goes with the last one, so there are never more than requests.
 */
#include "common/net/http_shares.h"

#include "common/base/map.h"
#include "common/base/mem.h"

struct http_share {
    struct share share;
    struct http_shares *of;
    struct str name; /* owned */
    size_t holds;
};
struct http_shares {
    struct map_str *by_name; /* of struct http_share, owned */
    bool closed;             /* freed with the last hold: of a job of the pool, perhaps */
};

struct http_shares *http_shares_new(void)
{
    struct http_shares *s = XNEW(struct http_shares);

    s->by_name = map_str_new();
    return s;
}

void http_shares_free(struct http_shares *s)
{
    if (!s)
        return;
    s->closed = true;
    if (map_str_len(s->by_name))
        return;
    map_str_free(s->by_name);
    xfree(s);
}

static struct str name_of(const struct http_req *r)
{
    struct str name = http_header(r, "X-Scope-OrgID");

    if (r->tenants_len) /* the caller was asked who it is: what it says of itself does not count */
        return r->tenants[0];
    return name.len ? name : http_header(r, "Authorization");
}

void http_hold_begin(struct http_shares *s, const struct http_req *r, struct http_hold *ret)
{
    *ret = (struct http_hold){ 0 };
    if (!s)
        return;
    struct str name = name_of(r);
    struct http_share *t = map_str_get(s->by_name, name);
    if (!t) {
        t = XNEW(struct http_share);
        t->of = s;
        t->name = str_n(xmemdup(name.len ? name.ptr : "", name.len), name.len);
        (void)map_str_put(s->by_name, t->name, t);
    }
    t->holds++;
    ret->share = t;
}

void http_hold_end(struct http_hold *h)
{
    struct http_share *t = h->share;
    struct http_shares *s = t ? t->of : NULL;

    CHECK(h->bytes == 0);
    h->share = NULL;
    if (!t || --t->holds)
        return;
    CHECK(share_held(&t->share) == 0);
    (void)map_str_del(s->by_name, t->name);
    xfree((void *)(uintptr_t)t->name.ptr);
    xfree(t);
    if (s->closed)
        http_shares_free(s);
}

int http_hold_take(struct http_hold *h, struct budget *g, size_t n)
{
    switch (share_take(h->share ? &h->share->share : NULL, g, h->bytes, n)) {
    case SHARE_OVER:
        return ERR_RATE;
    case SHARE_FULL:
        return ERR_BUSY;
    case SHARE_TAKEN:
        break;
    }
    h->bytes += h->share ? n : 0;
    return 0;
}

void http_hold_give(struct http_hold *h, struct budget *g, size_t n)
{
    CHECK(!h->share || h->bytes >= n);
    share_give(h->share ? &h->share->share : NULL, g, n);
    h->bytes -= h->share ? n : 0;
}

int http_hold_add(struct http_hold *h, struct budget *g, struct cbuf *b, struct str s, size_t max)
{
    size_t had = b->cap, need = b->len + s.len;

    if (need <= had || !h->share)
        return cbuf_add(b, g, s, max) ? 0 : ERR_BUSY;
    if (share_is_over(&h->share->share, g, h->bytes, need - had))
        return ERR_RATE;
    if (!cbuf_add(b, g, s, max))
        return ERR_BUSY;
    share_count(&h->share->share, b->cap - had);
    h->bytes += b->cap - had;
    return 0;
}

void http_hold_free(struct http_hold *h, struct budget *g, struct cbuf *b)
{
    http_hold_give(h, g, b->cap);
    xfree(b->ptr);
    *b = (struct cbuf){ 0 };
}

const char *http_hold_why(int code)
{
    return code == ERR_RATE ? HTTP_SHARE_TEXT : HTTP_FULL_TEXT;
}
