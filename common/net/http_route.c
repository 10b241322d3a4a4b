/* SPDX-License-Identifier: Apache-2.0
 *
 * http_route: exact paths in a hash map, prefixes in an array, longest first.
 *
 * Routes of one path and different methods form a chain, and the map holds the first of it. A
 * request looks for its exact path, then for the longest prefix, and only then for the method in
 * that chain: so a path is either unknown (404) or known with other methods (405, with Allow).
 * Routes are added before the server listens and are not changed afterwards. Thread: the loop's.
 */
#include "common/net/http_route.h"

static const struct {
    const char *name;
    enum http_method method;
} methods_known[HTTP_METHODS] = {
    { "GET", HTTP_GET },     { "HEAD", HTTP_HEAD },     { "POST", HTTP_POST },
    { "PUT", HTTP_PUT },     { "DELETE", HTTP_DELETE }, { "OPTIONS", HTTP_OPTIONS },
    { "PATCH", HTTP_PATCH },
};

size_t http_method_index(enum http_method method)
{
    size_t i = 0;

    while (i < HTTP_METHODS && methods_known[i].method != method)
        i++;
    return i;
}

const char *http_method_name(size_t index)
{
    return index < HTTP_METHODS ? methods_known[index].name : "other";
}

enum http_method http_method_of(struct str name)
{
    for (size_t i = 0; i < HTTP_METHODS; i++) {
        if (str_eqc(name, methods_known[i].name))
            return methods_known[i].method;
    }
    return (enum http_method)0;
}

void http_methods_text(unsigned methods, struct buf *out)
{
    for (size_t i = 0; i < HTTP_METHODS; i++) {
        if (methods & methods_known[i].method)
            buf_addf(out, "%s%s", out->len ? ", " : "", methods_known[i].name);
    }
}

void http_routes_init(struct http_routes *t)
{
    *t = (struct http_routes){ .exact = map_str_new() };
}

void http_routes_deinit(struct http_routes *t)
{
    map_str_free(t->exact);
    vec_for (i, &t->all) {
        xfree(t->all.ptr[i]->path);
        xfree(t->all.ptr[i]->owned);
        xfree(t->all.ptr[i]);
    }
    vec_free(&t->all);
    vec_free(&t->hints);
    vec_free(&t->prefixes);
}

static struct http_route *prefix_find(const struct http_routes *t, struct str match)
{
    vec_for (i, &t->prefixes) {
        if (str_eq(t->prefixes.ptr[i]->match, match))
            return t->prefixes.ptr[i];
    }
    return NULL;
}

static void prefix_add(struct http_routes *t, struct http_route *r)
{
    vec_push(&t->prefixes, r);
    for (size_t i = t->prefixes.len - 1; i > 0; i--) {
        struct http_route *before = t->prefixes.ptr[i - 1];
        if (before->match.len >= r->match.len)
            break;
        t->prefixes.ptr[i - 1] = r;
        t->prefixes.ptr[i] = before;
    }
}

struct http_route *http_routes_add(struct http_routes *t, const char *path)
{
    struct http_route *r = XNEW(struct http_route);
    struct str s;

    CHECK(path[0] == '/');
    r->path = xstrdup(path);
    s = str_c(r->path);
    r->prefix = s.ptr[s.len - 1] == '*';
    r->match = str_sub(s, 0, s.len - r->prefix);
    vec_push(&t->all, r);
    struct http_route *first =
        r->prefix ? prefix_find(t, r->match) : map_str_get(t->exact, r->match);
    if (first) {
        r->next = first->next;
        first->next = r;
    } else if (r->prefix) {
        prefix_add(t, r);
    } else {
        (void)map_str_put(t->exact, r->match, r);
    }
    return r;
}

/* Of the routes of that path, by whatever method. */
static struct http_route *chain_of(const struct http_routes *t, struct str path)
{
    struct http_route *first = map_str_get(t->exact, path);

    for (size_t i = 0; !first && i < t->prefixes.len; i++) {
        if (str_starts(path, t->prefixes.ptr[i]->match))
            first = t->prefixes.ptr[i];
    }
    return first;
}

unsigned http_routes_acts(const struct http_routes *t, struct str path)
{
    unsigned acts = 0;

    for (const struct http_route *r = chain_of(t, path); r; r = r->next)
        acts |= r->acts;
    return acts;
}

struct http_route *http_routes_find(const struct http_routes *t, struct str path,
                                    enum http_method method, unsigned *ret_allow)
{
    struct http_route *first = chain_of(t, path);

    *ret_allow = 0;
    for (struct http_route *r = first; r; r = r->next) {
        unsigned allowed = r->methods | (r->methods & HTTP_GET ? HTTP_HEAD : 0u);
        if (allowed & method)
            return r;
        *ret_allow |= allowed;
    }
    if (first && first->prefix && first->match.len == 1)
        *ret_allow = 0;
    else if (first)
        *ret_allow |= HTTP_OPTIONS;
    return NULL;
}
