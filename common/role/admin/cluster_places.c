/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_places: an operator sets how many shards a service or a tenant has. The map gets that as
 * a wish (common/cluster/README.md). The controller makes it a step that begins cluster.place_after
 * later, once all nodes concerned have confirmed it. The page shows the progress, and for which
 * nodes it waits.
 *
 *   POST /api/v1/cluster/services?tenant=T&service=S&shards=N
 *   POST /api/v1/cluster/tenants?tenant=T&shards=N      0: all; tenant=*: those without a number
 *   GET  /api/v1/cluster/places                         what the map has; a static one, too
 */
#include "common/role/admin/cluster_places.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/place/step_confirm.h"
#include "common/cluster/view/map_change.h"
#include "common/obs/log.h"
#include "common/role/admin/cluster_reply.h"
#include "common/role/core/readiness.h"

#define PLACES    "/api/v1/cluster/places"
#define SERVICES  "/api/v1/cluster/services"
#define TENANTS   "/api/v1/cluster/tenants"
#define NAME_MOST 512
#define REPLY_MAX (16 * MIB)
#define ALL       "*"

struct change {
    struct http_req *r;
    struct process_core *p;
    struct str tenant, service; /* in the request; service.len 0: the tenant's size */
    uint32_t shards;
    int64_t from_ms; /* as it is in the map; 0: it has no time yet, or always was so */
    bool wanted;     /* it is no step yet */
    bool changed;
};

/* ---- changing it ---------------------------------------------------------------------------- */

static struct map_whose whose_of(const struct change *c)
{
    return (struct map_whose){ str_eqc(c->tenant, ALL) ? STR_NULL : c->tenant, c->service };
}

static int check(const struct change *c, const struct map *m, struct err *e)
{
    if (c->shards > m->shards)
        return err_set(e, ERR_INPUT, "shards is %" PRIu32 ", and the cluster has %" PRIu32,
                       c->shards, m->shards);
    if (c->service.len && (c->shards < 1 || c->shards > MAP_SPREAD_MAX))
        return err_set(e, ERR_INPUT, "shards is %" PRIu32 "; a service has 1 to %d", c->shards,
                       MAP_SPREAD_MAX);
    return 0;
}

/* How it stands in a map. */
static void note(struct change *c, const struct map *m, const struct map_whose *w)
{
    const struct map_steps *s = map_whose_steps(m, w);

    c->wanted = s && s->next.version && s->next.n == c->shards;
    c->from_ms = 0;
    if (c->wanted)
        c->from_ms = s->next.from_ms;
    else if (s && s->len > 1)
        c->from_ms = s->at[s->len - 1].from_ms;
}

static int on_edit(void *cookie, const struct map *m, const struct map **ret, struct err *e)
{
    struct change *c = cookie;
    const struct map_whose w = whose_of(c);
    int code = check(c, m, e);

    c->changed = false;
    if (code)
        return code;
    code = map_pending_request(m, &w, c->shards, ret, e);
    if (code && code != ERR_CONFLICT)
        return code;
    c->changed = !code;
    note(c, code ? m : *ret, &w);
    return 0;
}

static void done_json(void *cookie, struct json *j)
{
    const struct change *c = cookie;

    if (c->changed)
        log_info("the shards of a service or tenant are to change", KV_STR("tenant", c->tenant),
                 KV_STR("service", c->service), KV_U64("shards", c->shards),
                 KV_CSTR("peer", c->r->peer));
    json_put_str(j, "tenant", c->tenant);
    if (c->service.len)
        json_put_str(j, "service", c->service);
    json_put_u64(j, "shards", c->shards);
    json_put_i64(j, "from", c->from_ms);
    json_put_bool(j, "wanted", c->wanted);
    json_put_bool(j, "changed", c->changed);
}

static void on_changed(void *cookie, const struct err *e)
{
    struct change *c = cookie;

    cluster_reply(c->r, e, done_json, c);
    xfree(c);
}

static int param(const struct http_req *r, const char *name, struct str *ret, struct err *e)
{
    if (!http_param(r, name, ret) || !ret->len)
        return err_set(e, ERR_INPUT, "%s is missing", name);
    if (ret->len > NAME_MOST)
        return err_set(e, ERR_INPUT, "%s has %zu bytes, at most %d", name, ret->len, NAME_MOST);
    return 0;
}

static int parse(struct change *c, bool service, struct err *e)
{
    struct str text;
    uint64_t n;
    int code = param(c->r, "tenant", &c->tenant, e);

    if (!code && service)
        code = param(c->r, "service", &c->service, e);
    if (!code)
        code = param(c->r, "shards", &text, e);
    if (!code && (!str_u64(text, &n) || n > CLUSTER_SHARDS_MAX))
        code = err_set(e, ERR_INPUT, "shards is \"%.*s\"; want a number up to %d",
                       STR_ARG(str_sub(text, 0, 20)), CLUSTER_SHARDS_MAX);
    if (!code)
        c->shards = (uint32_t)n;
    if (!code && !c->p->ctx.coord)
        code = err_set(e, ERR_UNIMPLEMENTED,
                       "cluster.coordination is %s: the map changes with etcd only (a static one "
                       "in its file, for all processes at once)",
                       c->p->ctx.cluster->coordination);
    return code;
}

static void change(struct http_req *r, bool service)
{
    struct process_core *p = r->route_cookie;
    struct change *c;
    struct err e;

    if (!cluster_followed(p->ctx.view, r))
        return;
    c = XNEW(struct change);
    *c = (struct change){ .r = r, .p = p };
    if (parse(c, service, &e)) {
        http_reply_err(r, &e);
        xfree(c);
        return;
    }
    map_change(&(struct map_change_opts){ .coord = p->ctx.coord,
                                          .prefix = p->ctx.cluster->etcd_prefix,
                                          .edit = on_edit,
                                          .done = on_changed,
                                          .cookie = c });
}

static void on_service(struct http_req *r)
{
    change(r, true);
}

static void on_tenant(struct http_req *r)
{
    change(r, false);
}

/* ---- showing it ----------------------------------------------------------------------------- */

struct showing {
    struct http_req *r;
    struct process_core *p;
    const struct map *m;
    struct reports *reports; /* NULL: nothing is known of confirmations */
};

static void next_json(const struct showing *q, const struct map_whose *w,
                      const struct map_pending *next, struct json *j)
{
    struct confirmed got;

    if (!next->version)
        return;
    json_key(j, "next");
    json_obj(j);
    json_put_u64(j, "shards", next->n);
    json_put_bool(j, "announced", next->from_ms != 0);
    json_put_i64(j, "from", next->from_ms);
    if (q->reports) {
        step_confirm_check(q->p->ctx.view, q->reports, w, next->version, &got);
        json_put_cstr(j, "waitsFor", got.why);
    }
    json_obj_end(j);
}

static void one_json(const struct showing *q, const struct map_whose *w, const struct map_steps *s,
                     struct json *j)
{
    json_obj(j);
    json_put_str(j, "tenant", w->tenant.len ? w->tenant : STR(ALL));
    if (w->service.len)
        json_put_str(j, "service", w->service);
    json_put_u64(j, "shards",
                 map_step_at(s, clock_wall_ms(q->p->ctx.env->clock), map_whose_none(w)));
    json_key(j, "steps");
    json_arr(j);
    for (uint32_t i = 0; i < s->len; i++) {
        json_obj(j);
        json_put_i64(j, "from", i ? s->at[i].from_ms : 0);
        json_put_u64(j, "shards", s->at[i].n);
        json_obj_end(j);
    }
    json_arr_end(j);
    next_json(q, w, &s->next, j);
    json_obj_end(j);
}

static void places_json(const struct showing *q, struct json *j)
{
    const struct map *m = q->m;
    struct map_whose w = { STR_NULL, STR_NULL };

    json_obj(j);
    json_put_u64(j, "map_version", m->version);
    json_put_u64(j, "shards", m->shards);
    json_key(j, "tenants");
    json_arr(j);
    one_json(q, &w, &m->tenant_steps, j);
    for (size_t i = 0; i < m->tenants_len; i++) {
        w.tenant = m->tenants[i].name;
        one_json(q, &w, &m->tenants[i].steps, j);
    }
    json_arr_end(j);
    json_key(j, "services");
    json_arr(j);
    for (size_t i = 0; i < m->services_len; i++) {
        w = (struct map_whose){ m->services[i].tenant, m->services[i].name };
        one_json(q, &w, &m->services[i].steps, j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void show(struct showing *q)
{
    struct json j;
    struct buf b;

    buf_init(&b, REPLY_MAX);
    json_init(&j, &b);
    places_json(q, &j);
    (void)buf_add_c(&b, '\n');
    http_reply(q->r, 200, "application/json", &b);
    reports_free(q->reports);
    map_unref(q->m);
    xfree(q);
}

/* Without an answer of the service the page shows the map that is known here. */
static void on_states(void *cookie, const struct coord_reply *reply)
{
    struct showing *q = cookie;

    if (!reply->err)
        q->reports = reports_new();
    for (size_t i = 0; !reply->err && i < reply->kvs_len; i++) {
        const struct coord_kv *kv = &reply->kvs[i];
        char name[NODE_NAME_MAX + 1];
        struct str node;
        uint32_t shard;
        struct err e;

        if (key_parse(str_c(q->p->ctx.cluster->etcd_prefix), kv->key, &shard, &node) != KEY_STATE)
            continue;
        (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(node));
        (void)!reports_take(q->reports, name, kv->value, &e); /* a bad report counts as none */
    }
    show(q);
}

static bool anything_wanted(const struct map *m)
{
    struct map_whose w;
    size_t pos = 0;

    return map_pending_each(m, &pos, &w);
}

static void on_places(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    struct coord_key key;
    struct showing *q;
    struct err e;

    if (!view_ready(p->ctx.view)) {
        (void)err_set(&e, ERR_UNAVAILABLE, "the map of the cluster is not known yet");
        http_reply_err(r, &e);
        return;
    }
    q = XNEW(struct showing);
    *q = (struct showing){ r, p, view_map_ref(p->ctx.view), NULL };
    if (!p->ctx.coord || !anything_wanted(q->m)) {
        show(q);
        return;
    }
    key = key_states(str_c(p->ctx.cluster->etcd_prefix));
    coord_list(p->ctx.coord, key_str(&key), on_states, q);
}

void cluster_places_routes(struct process_core *p)
{
    http_route(p->ctx.http, HTTP_GET, PLACES, 0, on_places, p);
    http_route(p->ctx.http, HTTP_POST, SERVICES, 0, on_service, p);
    http_route(p->ctx.http, HTTP_POST, TENANTS, 0, on_tenant, p);
}
