/* SPDX-License-Identifier: Apache-2.0
 *
 * http_lost: answers for paths without a route, with a hint where one is likely.
 *
 * The path is tidied (double and trailing slashes), then compared without regard to case: with all
 * routes, with the registered hints, and then with the ends of routes of at least TAIL_LEAST bytes.
 * Linear searches are fine here: hints are few, and these requests are mistakes. Paths longer than
 * PATH_SHOWN get no hint, so the work for one request is bounded.  Thread: the loop's.
 */
#include "common/net/http_not_found.h"

#include "common/net/http_server.h"
#include "common/net/svc/svc_wire.h"

#define PATH_SHOWN   200
#define TAIL_LEAST   5 /* bytes: a shorter path at the end of another is chance */
#define MESSAGE_MAX  (2 * KIB)
#define UNKNOWN_CODE 12 /* of gRPC: unimplemented */

void http_not_found_hint(struct http_server *s, const char *path, const char *text)
{
    CHECK(path[0] == '/');
    vec_push(&s->routes.hints, ((struct http_hint){ path, text }));
}

/* One slash where there are several, none at the end but that of "/". */
static struct str tidied(struct str path, char to[PATH_SHOWN])
{
    size_t n = 0;

    if (path.len > PATH_SHOWN)
        return STR_NULL;
    for (size_t i = 0; i < path.len; i++)
        if (path.ptr[i] != '/' || !n || to[n - 1] != '/')
            to[n++] = path.ptr[i];
    while (n > 1 && to[n - 1] == '/')
        n--;
    return str_n(to, n);
}

static bool ends_nocase(struct str path, struct str end)
{
    return path.len >= end.len && str_eq_nocase(str_sub(path, path.len - end.len, path.len), end);
}

/* The longest route that is the path, or with `tail` its end. */
static const struct http_route *alike(const struct http_routes *t, struct str path, bool tail)
{
    const struct http_route *best = NULL;

    vec_for (i, &t->all) {
        const struct http_route *r = t->all.ptr[i];

        if (r->prefix || (best && r->match.len <= best->match.len))
            continue;
        if (tail ? r->match.len >= TAIL_LEAST && ends_nocase(path, r->match)
                 : str_eq_nocase(path, r->match))
            best = r;
    }
    return best;
}

static const char *hint_of(const struct http_routes *t, struct str path)
{
    vec_for (i, &t->hints) {
        struct str known = str_c(t->hints.ptr[i].path);
        bool prefix = known.ptr[known.len - 1] == '*';

        known.len -= prefix;
        if (prefix ? str_starts(path, known) : str_eq_nocase(path, known))
            return t->hints.ptr[i].text;
    }
    return NULL;
}

void http_lost_text(const struct http_routes *t, struct str path, struct buf *out)
{
    char to[PATH_SHOWN];
    struct str tidy = tidied(path, to);
    const struct http_route *r;
    const char *text;

    if (!tidy.len)
        return;
    r = alike(t, tidy, false);
    text = r ? NULL : hint_of(t, tidy);
    if (!r && !text)
        r = alike(t, tidy, true);
    if (r)
        buf_addf(out, "; did you mean %s?", r->path);
    else if (text)
        buf_addf(out, ": %s", text);
}

void http_reply_not_found(struct http_req *r)
{
    const struct http_xchg *x = container_of(r, struct http_xchg, req);
    struct buf b, text;
    struct err e;

    buf_init(&b, MESSAGE_MAX);
    http_lost_text(&x->server->routes, r->path, &b);
    (void)err_set(&e, ERR_NOT_FOUND, "there is nothing at %.*s%.*s",
                  (int)MIN(r->path.len, (size_t)PATH_SHOWN), r->path.ptr ? r->path.ptr : "",
                  STR_ARG(buf_str(&b)));
    buf_deinit(&b);
    if (!str_starts(http_header(r, "Content-Type"), STR("application/grpc")) ||
        str_starts(http_header(r, "Content-Type"), STR("application/grpc-web"))) {
        http_reply_err(r, &e);
        return;
    }
    buf_init(&text, MESSAGE_MAX);
    svc_status_text(&e, &text);
    buf_init(&b, 8);
    buf_addf(&b, "%d", UNKNOWN_CODE);
    http_reply_header(r, "grpc-status", buf_str(&b));
    http_reply_header(r, "grpc-message", buf_str(&text));
    buf_deinit(&text);
    buf_deinit(&b);
    http_reply(r, 200, "application/grpc", NULL);
}

static void on_end(struct http_req *r, const struct err *e)
{
    (void)e;
    http_reply_not_found(r);
}

void http_lost_taken(struct http_req *r)
{
    r->on_end = on_end;
    r->on_gone = http_reply_not_found;
}
