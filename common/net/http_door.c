/* SPDX-License-Identifier: Apache-2.0
 *
 * http_door: three questions that every request is asked before its handler.
 *
 *   host    Is this server called by a name of its own?                         421
 *   site    Does a page of another site make a browser send a change?           403
 *   admit   May this caller use the route (common/identity, common/role/core/access.c)?
 *
 * The first two are about browsers. A page of any site can make the browser of a developer send
 * requests to http://127.0.0.1:4040. The browser keeps the answers from the page, since their
 * origins differ, but the requests arrive. And with DNS rebinding (the page's own name gets the
 * address 127.0.0.1 after it was loaded) the origins do not differ: the page reads and changes all
 * there is. Only the Host header tells then, because it has the page's name.
 *
 *   listener                  Host that is taken
 *   loopback                  localhost, *.localhost, 127.0.0.0/8, [::1], and http.hosts
 *   others, with http.hosts   the same, and any IP address
 *   others, without           any
 *
 * Why any IP address: rebinding needs a name. Kubernetes probes pods and Prometheus scrapes them by
 * address, and neither should need configuration. Why any name where nothing is listed: a server in
 * a container or a cluster is called by names that it cannot know (services, ingresses, aliases).
 * Names are compared without case, port and a dot at the end.
 *
 * The second question is asked where the route acts (struct http_door). Sec-Fetch-Site is believed
 * first, since no script can set it. A browser that does not send it (over plain HTTP) sends Origin
 * with every POST, which must be the Host that was checked. A request with neither header is not
 * from a page: agents, scripts, Grafana's backend. http.origins lists pages that may act; these get
 * the CORS headers that let a browser send, but answers to questions never have any.
 */
#include "common/net/http_door.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "common/net/http_param.h"

#define SHOWN_MAX         100  /* bytes of a header that an error repeats */
#define ALLOW_HEADERS_MAX 1024 /* names of headers that a preflight may ask for */
#define PREFLIGHT_SECONDS "600"

/* ---- names ---------------------------------------------------------------------------------- */

struct name {
    struct str text; /* without port, brackets and the dot at the end */
    bool ip, local;
};

static bool all_digits(struct str s)
{
    uint64_t port;

    return s.len > 0 && s.len <= 5 && str_u64(s, &port) && port <= 65535;
}

static struct str without_dot(struct str s)
{
    return s.len > 1 && s.ptr[s.len - 1] == '.' ? str_sub(s, 0, s.len - 1) : s;
}

static void classify(struct name *n)
{
    struct in6_addr v6;
    struct in_addr v4;
    char text[INET6_ADDRSTRLEN];

    if (n->text.len < sizeof(text)) {
        memcpy(text, n->text.ptr, n->text.len);
        text[n->text.len] = 0;
        if (inet_pton(AF_INET, text, &v4) == 1) {
            n->ip = true;
            n->local = ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
        } else if (inet_pton(AF_INET6, text, &v6) == 1) {
            n->ip = true;
            n->local = IN6_IS_ADDR_LOOPBACK(&v6) ||
                       (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
        }
    }
    const struct str inner = STR(".localhost");
    if (str_eq_nocase(n->text, STR("localhost")) ||
        (n->text.len > inner.len &&
         str_eq_nocase(str_sub(n->text, n->text.len - inner.len, n->text.len), inner)))
        n->local = true;
}

/* Cuts "name", "name:port", "[v6]" or "[v6]:port"; false if it is not one of these. */
static bool name_of(struct str host, struct name *ret)
{
    ptrdiff_t colon = str_rfind(host, ':'), end = str_find(host, ']');

    *ret = (struct name){ .text = host };
    if (host.len && host.ptr[0] == '[') {
        if (end < 0)
            return false;
        ret->text = str_sub(host, 1, (size_t)end);
        struct str port = str_sub(host, (size_t)end + 1, host.len);
        if (port.len && port.ptr[0] != ':')
            return false;
        classify(ret);
        return ret->ip && (!port.len || all_digits(str_sub(port, 1, port.len)));
    }
    if (colon >= 0) {
        ret->text = str_sub(host, 0, (size_t)colon);
        if (!all_digits(str_sub(host, (size_t)colon + 1, host.len)))
            return false;
    }
    ret->text = without_dot(ret->text);
    if (!ret->text.len || str_find(ret->text, ':') >= 0)
        return false;
    classify(ret);
    return true;
}

/* Is the name what an entry of http.hosts stands for? */
static bool listed(struct str entry, struct str name)
{
    if (str_eqc(entry, "*"))
        return true;
    entry = without_dot(entry);
    if (entry.len > 1 && entry.ptr[0] == '[')
        entry = str_sub(entry, 1, entry.len - 1);
    if (entry.len > 2 && entry.ptr[0] == '*') {
        entry = str_sub(entry, 1, entry.len); /* ".example.com": at least one byte before it */
        return name.len > entry.len &&
               str_eq_nocase(str_sub(name, name.len - entry.len, name.len), entry);
    }
    return str_eq_nocase(entry, name);
}

bool http_host_known(const struct http_server_opts *o, struct str host)
{
    struct name n;

    if (!o->local && !o->hosts.len)
        return true;
    if (!name_of(host, &n))
        return false;
    if (n.local || (n.ip && !o->local))
        return true;
    for (size_t i = 0; i < o->hosts.len; i++) {
        if (listed(str_c(o->hosts.items[i]), n.text))
            return true;
    }
    return false;
}

int http_hosts_check(const struct conf_list *hosts, struct err *e)
{
    for (size_t i = 0; i < hosts->len; i++) {
        struct str entry = str_c(hosts->items[i]), rest = entry;
        struct name n;

        if (str_eqc(entry, "*"))
            continue;
        if (str_starts(rest, STR("*.")))
            rest = str_sub(rest, 2, rest.len);
        bool bare = str_find(rest, ':') < 0 || (rest.len && rest.ptr[rest.len - 1] == ']');
        if (!bare) { /* IPv6 without brackets */
            n = (struct name){ .text = rest };
            classify(&n);
            bare = n.ip;
        } else {
            bare = name_of(rest, &n);
        }
        if (!bare || !http_host_ok(rest) || str_find(rest, '*') >= 0)
            return err_set(e, ERR_CONFIG,
                           "http.hosts: '%s' is not the name of a host; write a name or an address "
                           "without scheme, port and path (profiles.example.com, *.example.com), "
                           "or * for any",
                           hosts->items[i]);
    }
    return 0;
}

/* ---- pages of other sites ------------------------------------------------------------------- */

/* "https://host:port": the part behind the scheme, or STR_NULL. */
static struct str origin_host(struct str origin)
{
    ptrdiff_t at = str_find(origin, ':');

    if (at <= 0 || !str_starts(str_sub(origin, (size_t)at, origin.len), STR("://")))
        return STR_NULL;
    return str_sub(origin, (size_t)at + 3, origin.len);
}

int http_origins_check(const struct conf_list *origins, struct err *e)
{
    for (size_t i = 0; i < origins->len; i++) {
        struct str host = origin_host(str_c(origins->items[i]));
        struct name n;

        if (!host.len || !http_host_ok(host) || str_find(host, '*') >= 0 || !name_of(host, &n))
            return err_set(e, ERR_CONFIG,
                           "http.origins: '%s' is not the origin of a page; write scheme, host and "
                           "port as a browser does (https://app.example.com:8443), without a path",
                           origins->items[i]);
    }
    return 0;
}

static bool origin_listed(const struct http_server_opts *o, struct str origin)
{
    for (size_t i = 0; origin.len && i < o->origins.len; i++) {
        if (str_eq_nocase(origin, str_c(o->origins.items[i])))
            return true;
    }
    return false;
}

bool http_from_other_site(const struct http_server_opts *o, const struct http_req *r)
{
    struct str origin = http_header(r, "Origin"), site = http_header(r, "Sec-Fetch-Site");

    if (origin_listed(o, origin))
        return false;
    if (site.ptr) /* same-site is another origin, too: another port of this machine, say */
        return !str_eqc(site, "same-origin") && !str_eqc(site, "none");
    if (!origin.ptr)
        return false;
    origin = origin_host(origin);
    return !origin.len || !str_eq_nocase(origin, http_header(r, "Host"));
}

/* ---- answers -------------------------------------------------------------------------------- */

bool http_door_host(struct http_xchg *x)
{
    const struct http_server_opts *o = &x->server->o;
    struct str host = http_header(&x->req, "Host"), proof;
    char text[ERR_TEXT_MAX];
    struct err e;

    if (http_header_once(&x->req, "Authorization", &proof, &e)) {
        http_reply_err(&x->req, &e);
        return false;
    }
    if (http_host_known(o, host))
        return true;
    metric_add(x->server->refused[HTTP_REFUSED_HOST], 1);
    (void)snprintf(text, sizeof(text),
                   "the Host header is '%.*s', which is not a name of this server%s; add it to "
                   "http.hosts if clients should use it",
                   (int)MIN(host.len, SHOWN_MAX), host.ptr,
                   o->local ? ": it listens on this machine only and is called localhost, "
                              "127.0.0.1 or [::1]"
                            : "");
    http_reply_status(&x->req, 421, "misdirected_request", text);
    return false;
}

static void allow_origin(struct http_xchg *x)
{
    http_reply_header(&x->req, "Vary", STR("Origin"));
    http_reply_header(&x->req, "Access-Control-Allow-Origin", http_header(&x->req, "Origin"));
}

/* The row of the route and method; NULL: none, as of unknown paths. */
static const struct http_door *door_of(const struct http_xchg *x)
{
    enum http_method m = x->req.method == HTTP_HEAD ? HTTP_GET : x->req.method;
    size_t i = http_method_index(x->route->methods & x->req.method ? x->req.method : m);

    return i < HTTP_METHODS ? x->route->doors[i] : NULL;
}

static bool admitted(struct http_xchg *x)
{
    const struct http_server_opts *o = &x->server->o;
    const struct http_door *door = door_of(x);

    return !o->admit || !door || o->admit(o->admit_cookie, &x->req, door);
}

bool http_door_route(struct http_xchg *x)
{
    struct str origin = http_header(&x->req, "Origin");
    struct err e;

    if (!(x->route->acts & x->req.method))
        return admitted(x);
    if (!http_from_other_site(&x->server->o, &x->req)) {
        if (origin_listed(&x->server->o, origin))
            allow_origin(x);
        return admitted(x);
    }
    metric_add(x->server->refused[HTTP_REFUSED_SITE], 1);
    (void)err_set(&e, ERR_FORBIDDEN,
                  "a browser sent this for a page of another site%s%.*s, and such pages may not "
                  "change anything here; add the page's origin to http.origins if it should",
                  origin.len ? ", " : "", (int)MIN(origin.len, SHOWN_MAX), origin.ptr);
    http_reply_err(&x->req, &e);
    return false;
}

/* Names of headers, as a browser lists them. */
static bool header_names_ok(struct str v)
{
    for (size_t i = 0; i < v.len; i++) {
        if (!http_is_tchar((uint8_t)v.ptr[i]) && v.ptr[i] != ',' && v.ptr[i] != ' ')
            return false;
    }
    return v.len <= ALLOW_HEADERS_MAX;
}

bool http_door_preflight(struct http_xchg *x, unsigned acts)
{
    struct str method = http_header(&x->req, "Access-Control-Request-Method");
    struct str names = http_header(&x->req, "Access-Control-Request-Headers");

    if (!(http_method_of(method) & acts) || !header_names_ok(names) ||
        !origin_listed(&x->server->o, http_header(&x->req, "Origin")))
        return true;
    allow_origin(x);
    http_reply_header(&x->req, "Access-Control-Allow-Methods", method);
    if (names.len)
        http_reply_header(&x->req, "Access-Control-Allow-Headers", names);
    http_reply_header(&x->req, "Access-Control-Max-Age", STR(PREFLIGHT_SECONDS));
    http_reply(&x->req, 204, NULL, NULL);
    return false;
}

/* ---- the table ------------------------------------------------------------------------------ */

static const struct http_door *door_find(const struct http_server_opts *o, const char *path,
                                         unsigned method)
{
    for (size_t i = 0; i < o->doors_len; i++) {
        if (o->doors[i].methods & method && str_eq(str_c(o->doors[i].path), str_c(path)))
            return &o->doors[i];
    }
    return NULL;
}

void http_door_of(const struct http_server_opts *o, struct http_route *r)
{
    const unsigned safe = HTTP_GET | HTTP_HEAD | HTTP_OPTIONS;

    r->acts = o->doors_len ? 0 : r->methods & ~safe;
    for (size_t i = 0; o->doors_len && i < HTTP_METHODS; i++) {
        unsigned method = r->methods & (1u << i);
        const struct http_door *d = method ? door_find(o, r->path, method) : NULL;

        if (!method)
            continue;
        CHECK(d); /* a route without a row: common/role/core/doors.c has them all */
        r->acts |= d->acts ? method : 0;
        r->doors[i] = d;
    }
    r->acts |= r->acts & HTTP_GET ? HTTP_HEAD : 0u;
}
