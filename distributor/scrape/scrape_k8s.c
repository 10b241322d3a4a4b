/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_k8s: list and watch, per namespace (or once for all).
 *
 *   LIST page by page ─> the whole set replaces the old one ─> WATCH from its version ─┐
 *     ^                                                          │ closed: again <─────┤
 *     └── 410 Gone, or an event that cannot be read <────────────┘ each line: an event ┘
 *
 * Known objects stay while the server does not answer: an API server that is down must not end the
 * profiling of a cluster. Failures are retried after 1 s, then twice as long, up to a minute. The
 * bytes that objects hold are bounded; an object that would exceed the bound is left out and
 * logged.
 */
#include "distributor/scrape/scrape_k8s.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/sys/secret_file.h"
#include "distributor/scrape/scrape_k8s_json.h"

#define IN_CLUSTER     "/var/run/secrets/kubernetes.io/serviceaccount/"
#define PAGE           500
#define PAGE_BYTES     (64 * MIB)
#define LINE_BYTES     (8 * MIB)
#define OBJECT_BYTES   (8 * MIB)   /* of one */
#define OBJECTS_BYTES  (256 * MIB) /* of all of a namespace */
#define LIST_MS        60000
#define WATCH_S        300
#define RETRY_FIRST_MS 1000
#define RETRY_DOUBLES  6
#define CONTINUE_MAX   (64 * KIB)
#define TOKEN_MAX      (64 * KIB)

struct object {
    struct k8s_object o;
    struct arena *arena; /* owned; holds this struct */
};
struct watch {
    struct scrape_k8s *k;
    char *path;              /* owned: up to the query */
    struct map_str *objects; /* struct object */
    struct map_str *listing; /* those of the pages so far, or NULL */
    size_t bytes, listing_bytes;
    char version[128];
    struct buf next; /* continue of the list */
    struct buf line; /* the event so far */
    struct http_call *call;
    struct timer *timer;
    uint32_t failures;
    bool listed, relist, watching;
};
struct scrape_k8s {
    struct scrape_k8s_opts o;

    char *base, *job;
    struct scrape_client client;
    bool pods;
    VEC(struct watch *) watches;
    struct scrape_k8s_state state;
    char error[ERR_TEXT_MAX + 64];
    bool stopped;
};

static void list(struct watch *w);
static void watch(struct watch *w);

/* ---- objects -------------------------------------------------------------------------------- */

static void object_free(struct object *x)
{
    if (x)
        arena_free(x->arena);
}

static void objects_free(struct map_str *m)
{
    struct str key;
    size_t pos = 0;
    void *x;

    while (m && map_str_next(m, &pos, &key, &x))
        object_free(x);
    map_str_free(m);
}

static void fail(struct scrape_k8s *k, const char *what, const char *why)
{
    k->state.errors++;
    (void)snprintf(k->error, sizeof(k->error), "%s: %s", what, why);
}

static void forget(struct map_str *m, size_t *bytes, struct str key)
{
    struct object *old = map_str_del(m, key);

    if (old)
        *bytes -= arena_used(old->arena);
    object_free(old);
}

static void keep(struct watch *w, struct map_str *m, size_t *bytes, const struct json_val *v)
{
    struct arena *a = arena_new(OBJECT_BYTES);
    struct object *x = ARENA_NEW(a, struct object);
    struct err e;

    CHECK(x);
    x->arena = a;
    if (k8s_object_of(v, w->k->pods, a, &x->o, &e)) {
        fail(w->k, "an object was left out", e.text);
        arena_free(a);
        return;
    }
    forget(m, bytes, x->o.key);
    if (*bytes + arena_used(a) > OBJECTS_BYTES) {
        fail(w->k, "an object was left out", "they take more memory than they may");
        arena_free(a);
        return;
    }
    *bytes += arena_used(a);
    CHECK(!map_str_put(m, x->o.key, x));
}

static void changed(struct watch *w)
{
    w->k->o.changed(w->k->o.cookie);
}

static void set_version(struct watch *w, struct str version)
{
    if (version.len && version.len < sizeof(w->version))
        (void)snprintf(w->version, sizeof(w->version), "%.*s", STR_ARG(version));
}

/* ---- again, later --------------------------------------------------------------------------- */

static void on_timer(void *cookie)
{
    struct watch *w = cookie;

    if (w->relist || !w->listed)
        list(w);
    else
        watch(w);
}

static void again(struct watch *w, bool failed)
{
    uint64_t pause = RETRY_FIRST_MS << MIN(w->failures, RETRY_DOUBLES);

    w->failures = failed ? MIN(w->failures + 1, RETRY_DOUBLES) : 0;
    if (!w->k->stopped)
        loop_timer_start(w->timer, failed ? pause : 0, 0);
}

static void relist(struct watch *w, bool failed)
{
    objects_free(w->listing);
    w->listing = NULL;
    buf_reset(&w->next);
    w->relist = true;
    again(w, failed);
}

/* ---- requests ------------------------------------------------------------------------------- */

static int read_secret(const struct scrape_k8s *k, const char *path, struct buf *to, struct err *e)
{
    buf_init(to, TOKEN_MAX);
    if (!path[0])
        return 0;
    if (secret_file_check(path, e) || k->o.env->fs->read_file(k->o.env->fs, path, to, e))
        return e->code;
    while (to->len && (to->ptr[to->len - 1] == '\n' || to->ptr[to->len - 1] == '\r'))
        to->len--;
    return buf_add_c(to, '\0') ? 0 : err_set(e, ERR_LIMIT, "%s is too long", path);
}

static void request(struct watch *w, const struct buf *query, struct http_multi_req *req)
{
    const struct scrape_client *c = &w->k->client;
    struct buf url, bearer, password;
    struct err e;
    int rc;

    buf_init(&url, 2 * CONTINUE_MAX);
    rc = read_secret(w->k, c->bearer_file, &bearer, &e);
    buf_init(&password, TOKEN_MAX);
    if (!rc)
        rc = read_secret(w->k, c->password_file, &password, &e);
    buf_addf(&url, "%s%s?", w->k->base, w->path);
    buf_add_str(&url, buf_str(query));
    if (!rc && (!buf_ok(query) || !buf_add_c(&url, '\0')))
        rc = err_set(&e, ERR_LIMIT, "the URL is too long");
    req->url = url.ptr;
    req->user = c->user;
    req->password = c->password_file[0] ? password.ptr : c->password;
    req->bearer = c->bearer_file[0] ? bearer.ptr : c->bearer;
    req->tls = c->tls;
    req->cookie = w;
    if (rc) {
        fail(w->k, "request", e.text);
        again(w, true);
    } else {
        w->call = http_multi_start(w->k->o.client, req);
    }
    buf_deinit(&url);
    buf_deinit(&bearer);
    buf_deinit(&password);
}

static void add_escaped(struct buf *b, const char *name, struct str s)
{
    if (!s.len)
        return;
    buf_addf(b, "&%s=", name);
    for (size_t i = 0; i < s.len; i++)
        buf_addf(b, "%%%02X", (unsigned char)s.ptr[i]);
}

static void add_selectors(const struct watch *w, struct buf *b)
{
    add_escaped(b, "labelSelector", w->k->o.conf->label);
    add_escaped(b, "fieldSelector", w->k->o.conf->field);
}

static bool answered(struct watch *w, const char *what, const struct http_multi_reply *r)
{
    char text[64];

    if (r->err) {
        fail(w->k, what, r->err->text);
        return false;
    }
    if (r->status == 200)
        return true;
    (void)snprintf(text, sizeof(text), "answered with status %d", r->status);
    fail(w->k, what, text);
    return false;
}

/* ---- list ----------------------------------------------------------------------------------- */

static void list_complete(struct watch *w)
{
    objects_free(w->objects);
    w->objects = w->listing;
    w->bytes = w->listing_bytes;
    w->listing = NULL;
    w->listed = true;
    w->relist = false;
    w->failures = 0;
    w->k->state.lists++;
    w->k->error[0] = '\0';
    changed(w);
    watch(w);
}

static int take_page(struct watch *w, struct str text, struct err *e)
{
    const struct json_val *items;
    struct json_doc *doc = NULL;
    struct str version, more;

    if (json_parse(text, &doc, e))
        return e->code;
    int rc = k8s_list_of(json_root(doc), &items, &version, &more, e);
    for (size_t i = 0; !rc && i < json_len(items); i++)
        keep(w, w->listing, &w->listing_bytes, json_at(items, i));
    if (!rc) {
        set_version(w, version);
        buf_reset(&w->next);
        if (!buf_add_str(&w->next, more))
            rc = err_set(e, ERR_LIMIT, "a continue of %zu bytes", more.len);
    }
    json_doc_free(doc);
    return rc;
}

static void on_list(void *cookie, struct http_multi_reply *r)
{
    struct watch *w = cookie;
    struct err e;

    w->call = NULL;
    if (!answered(w, "list", r)) {
        relist(w, true);
    } else if (take_page(w, buf_str(&r->body), &e)) {
        fail(w->k, "list", e.text);
        relist(w, true);
    } else if (w->next.len) {
        list(w);
    } else {
        list_complete(w);
    }
}

static void list(struct watch *w)
{
    struct http_multi_req req = { .timeout_ms = LIST_MS, .body_max = PAGE_BYTES, .done = on_list };
    struct buf query;

    if (!w->listing) {
        w->listing = map_str_new();
        w->listing_bytes = 0;
    }
    buf_init(&query, 2 * CONTINUE_MAX);
    buf_addf(&query, "limit=%d", PAGE);
    add_selectors(w, &query);
    add_escaped(&query, "continue", buf_str(&w->next));
    request(w, &query, &req);
    buf_deinit(&query);
}

/* ---- watch ---------------------------------------------------------------------------------- */

/* False: this watch cannot continue. */
static bool take_event(struct watch *w, const struct json_val *v)
{
    struct k8s_object named;
    struct k8s_event ev;
    struct arena *a;
    struct err e;

    if (k8s_event_of(v, &ev, &e)) {
        fail(w->k, "watch", e.text);
        return false;
    }
    if (ev.type == K8S_ERROR) { /* usually 410: the version is too old */
        fail(w->k, "watch", ev.code == 410 ? "410 Gone: listing again" : "an error event");
        return false;
    }
    a = arena_new(OBJECT_BYTES);
    if (k8s_object_name(ev.object, a, &named, &e) == 0) {
        set_version(w, named.version);
        if (ev.type == K8S_DELETED)
            forget(w->objects, &w->bytes, named.key);
    }
    arena_free(a);
    if (ev.type == K8S_ADDED || ev.type == K8S_MODIFIED)
        keep(w, w->objects, &w->bytes, ev.object);
    w->k->state.events++;
    w->failures = 0;
    if (ev.type != K8S_BOOKMARK)
        changed(w);
    return true;
}

static bool take_line(struct watch *w, struct str line)
{
    struct json_doc *doc;
    struct err e;

    if (str_trim(line).len == 0)
        return true;
    if (json_parse(line, &doc, &e)) {
        fail(w->k, "watch", e.text);
        return false;
    }
    bool fine = take_event(w, json_root(doc));
    json_doc_free(doc);
    return fine;
}

static void on_data(void *cookie, struct str bytes)
{
    struct watch *w = cookie;
    bool fine = true;

    while (fine && bytes.len) {
        ptrdiff_t end = str_find(bytes, '\n');
        size_t n = end < 0 ? bytes.len : (size_t)end;
        fine = buf_add_str(&w->line, str_sub(bytes, 0, n));
        bytes = str_sub(bytes, end < 0 ? n : n + 1, bytes.len);
        if (!fine)
            fail(w->k, "watch", "an event is too long");
        if (fine && end >= 0) {
            fine = take_line(w, buf_str(&w->line));
            buf_reset(&w->line);
        }
    }
    if (fine)
        return;
    http_call_cancel(w->call);
    w->call = NULL;
    w->watching = false;
    relist(w, true);
}

static void on_watch(void *cookie, struct http_multi_reply *r)
{
    struct watch *w = cookie;

    w->call = NULL;
    w->watching = false;
    if (r->status == 410) {
        fail(w->k, "watch", "410 Gone: listing again");
        relist(w, true);
    } else {
        again(w, !answered(w, "watch", r) || r->took_ms < RETRY_FIRST_MS);
    }
}

static void watch(struct watch *w)
{
    struct http_multi_req req = {
        .timeout_ms = (WATCH_S + 30) * 1000, .body_max = MIB, .on_data = on_data, .done = on_watch
    };
    struct buf query;

    buf_init(&query, CONTINUE_MAX);
    buf_addf(&query, "watch=1&allowWatchBookmarks=true&timeoutSeconds=%d", WATCH_S);
    add_escaped(&query, "resourceVersion", str_c(w->version));
    add_selectors(w, &query);
    buf_reset(&w->line);
    request(w, &query, &req);
    w->watching = w->call != NULL;
    buf_deinit(&query);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void add_watch(struct scrape_k8s *k, const struct str *ns)
{
    const char *api = k->pods ? "/api/v1" : "/apis/discovery.k8s.io/v1";
    struct watch *w = XNEW(struct watch);
    struct buf path;

    buf_init(&path, 4096);
    buf_addf(&path, "%s%s%.*s/%s", api, ns ? "/namespaces/" : "", ns ? (int)MIN(ns->len, 255) : 0,
             ns ? ns->ptr : "", k->pods ? "pods" : "endpointslices");
    buf_add_c(&path, '\0');
    w->k = k;
    w->path = xstrdup(path.ptr);
    buf_deinit(&path);
    w->objects = map_str_new();
    buf_init(&w->next, CONTINUE_MAX / 3);
    buf_init(&w->line, LINE_BYTES);
    w->timer = loop_timer_new(k->o.loop, on_timer, w);
    vec_push(&k->watches, w);
    loop_timer_start(w->timer, 0, 0);
}

/* The address of the API server and our identity, from what Kubernetes gives every pod. */
static const char *api_host(void)
{
    return getenv("KUBERNETES_SERVICE_HOST");
}

static const char *api_port(void)
{
    return getenv("KUBERNETES_SERVICE_PORT");
}

int scrape_k8s_check(const struct scrape_k8s_conf *c, const char *job, struct err *e)
{
    return c->api_server[0] || (api_host() && api_port())
               ? 0
               : err_set(e, ERR_CONFIG,
                         "kubernetes_sd_configs of job %s: this is no pod of a cluster; give an "
                         "api_server",
                         job);
}

static void in_cluster(struct scrape_k8s *k, char *base, size_t size)
{
    const char *host = api_host(), *port = api_port();
    bool v6 = strchr(host, ':') != NULL;

    (void)snprintf(base, size, "https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port);
    if (!k->client.bearer[0] && !k->client.bearer_file[0] && !k->client.user[0])
        k->client.bearer_file = IN_CLUSTER "token";
    if (!k->client.tls.ca_file[0])
        k->client.tls.ca_file = IN_CLUSTER "ca.crt";
}

int scrape_k8s_new(const struct scrape_k8s_opts *o, struct scrape_k8s **ret, struct err *e)
{
    struct scrape_k8s *k;
    char base[512];

    if (scrape_k8s_check(o->conf, o->job, e))
        return e->code;
    k = XNEW(struct scrape_k8s);
    k->o = *o;
    k->job = xstrdup(o->job);
    k->client = o->conf->client;
    k->pods = o->conf->pods;
    (void)snprintf(base, sizeof(base), "%s", o->conf->api_server);
    if (!base[0])
        in_cluster(k, base, sizeof(base));
    while (base[0] && base[strlen(base) - 1] == '/')
        base[strlen(base) - 1] = '\0';
    k->base = xstrdup(base);
    for (size_t i = 0; i < o->conf->namespaces_len; i++)
        add_watch(k, &o->conf->namespaces[i]);
    if (!o->conf->namespaces_len)
        add_watch(k, NULL);
    *ret = k;
    return 0;
}

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_client(const struct scrape_client *a, const struct scrape_client *b)
{
    return same_text(a->user, b->user) && same_text(a->password, b->password) &&
           same_text(a->password_file, b->password_file) && same_text(a->bearer, b->bearer) &&
           same_text(a->bearer_file, b->bearer_file) && same_text(a->tls.ca_file, b->tls.ca_file) &&
           same_text(a->tls.cert_file, b->tls.cert_file) &&
           same_text(a->tls.key_file, b->tls.key_file) && a->tls.insecure == b->tls.insecure;
}

bool scrape_k8s_same(const struct scrape_k8s *k, const struct scrape_k8s_conf *c, const char *job)
{
    const struct scrape_k8s_conf *had = k->o.conf;
    bool same = strcmp(k->job, job) == 0 && had->pods == c->pods &&
                same_text(had->api_server, c->api_server) &&
                same_client(&had->client, &c->client) && str_eq(had->label, c->label) &&
                str_eq(had->field, c->field) && had->namespaces_len == c->namespaces_len;

    for (size_t i = 0; same && i < c->namespaces_len; i++)
        same = str_eq(had->namespaces[i], c->namespaces[i]);
    return same;
}

void scrape_k8s_stop(struct scrape_k8s *k)
{
    if (k->stopped)
        return;
    k->stopped = true;
    vec_for (i, &k->watches) {
        struct watch *w = k->watches.ptr[i];
        loop_timer_stop(w->timer);
        http_call_cancel(w->call);
        w->call = NULL;
    }
}

void scrape_k8s_free(struct scrape_k8s *k)
{
    if (!k)
        return;
    scrape_k8s_stop(k);
    vec_for (i, &k->watches) {
        struct watch *w = k->watches.ptr[i];
        loop_timer_free(w->timer);
        objects_free(w->objects);
        objects_free(w->listing);
        buf_deinit(&w->next);
        buf_deinit(&w->line);
        xfree(w->path);
        xfree(w);
    }
    vec_free(&k->watches);
    xfree(k->base);
    xfree(k->job);
    xfree(k);
}

bool scrape_k8s_groups(const struct scrape_k8s *k, struct arena *a, struct scrape_groups *out)
{
    size_t n = 0, pos;
    struct str key;
    void *x;

    vec_for (i, &k->watches)
        for (pos = 0; map_str_next(k->watches.ptr[i]->objects, &pos, &key, &x);)
            n += ((struct object *)x)->o.groups.len;
    *out = (struct scrape_groups){ ARENA_ARRAY(a, struct scrape_group, n + 1), 0 };
    if (!out->ptr)
        return false;
    vec_for (i, &k->watches) {
        for (pos = 0; map_str_next(k->watches.ptr[i]->objects, &pos, &key, &x);) {
            const struct scrape_groups *g = &((struct object *)x)->o.groups;
            if (g->len)
                memcpy(out->ptr + out->len, g->ptr, g->len * sizeof(*g->ptr));
            out->len += g->len;
        }
    }
    return true;
}

void scrape_k8s_state(const struct scrape_k8s *k, struct scrape_k8s_state *ret)
{
    *ret = k->state;
    ret->error = k->error;
    vec_for (i, &k->watches) {
        ret->objects += map_str_len(k->watches.ptr[i]->objects);
        ret->watches += k->watches.ptr[i]->watching;
    }
}

const char *scrape_k8s_job(const struct scrape_k8s *k)
{
    return k->job;
}
