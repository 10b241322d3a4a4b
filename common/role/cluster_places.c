/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_places: a person says how many shards a service or a tenant has. The map gets a step
 * (common/cluster/README.md) that lies cluster.place_after ahead; the answer says from when on.
 *
 *   POST /api/v1/cluster/services?tenant=T&service=S&shards=N
 *   POST /api/v1/cluster/tenants?tenant=T&shards=N      0: all; tenant=*: those without a number
 *   GET  /api/v1/cluster/places                         what the map has; a static one, too
 */
#include "common/role/cluster_places.h"

#include "common/base/mem.h"
#include "common/cluster/map_change.h"
#include "common/cluster/map_edit.h"
#include "common/obs/log.h"
#include "common/role/process.h"

#define PLACES    "/api/v1/cluster/places"
#define SERVICES  "/api/v1/cluster/services"
#define TENANTS   "/api/v1/cluster/tenants"
#define NAME_MOST 512
#define REPLY_MAX (16 * MIB)
#define ALL       "*"

struct change {
    struct http_req *r;
    struct process *p;
    struct str tenant, service; /* in the request; service.len 0: the tenant's size */
    uint32_t shards;
    int64_t from_ms; /* as it is now in the map */
    bool changed;
};

/* ---- changing it ---------------------------------------------------------------------------- */

static const struct map_steps *steps_of(const struct change *c, const struct map *m)
{
    static const struct map_steps none;
    const struct map_service *s = map_service(m, c->tenant, c->service);

    if (c->service.len)
        return s ? &s->steps : &none;
    return str_eqc(c->tenant, ALL) ? &m->tenant_steps : map_tenant_steps(m, c->tenant);
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

static int on_edit(void *cookie, const struct map *m, const struct map **ret, struct err *e)
{
    struct change *c = cookie;
    const struct map_steps *s = steps_of(c, m);
    uint32_t none = c->service.len ? 1 : 0;
    int64_t from = clock_wall_ms(c->p->ctx.env->clock) + (int64_t)c->p->ctx.cluster->place_after_ms;
    int code = check(c, m, e);

    c->changed = false;
    c->from_ms = s->len ? s->at[s->len - 1].from_ms : 0;
    if (code || map_step_at(s, INT64_MAX, none) == c->shards)
        return code;
    if (c->service.len)
        code = map_edit_spread(m, c->tenant, c->service, c->shards, from, ret, e);
    else if (str_eqc(c->tenant, ALL))
        code = map_edit_tenants(m, c->shards, from, ret, e);
    else
        code = map_edit_tenant(m, c->tenant, c->shards, from, ret, e);
    if (code)
        return code;
    s = steps_of(c, *ret);
    c->from_ms = s->at[s->len - 1].from_ms;
    c->changed = true;
    return 0;
}

static void put_str(struct json *j, const char *key, struct str s)
{
    json_key(j, key);
    json_str(j, s);
}

static void on_changed(void *cookie, const struct err *e)
{
    struct change *c = cookie;
    struct json j;
    struct buf b;

    if (e) {
        http_reply_err(c->r, e);
        xfree(c);
        return;
    }
    if (c->changed)
        log_info("the shards of a service or tenant change", KV_STR("tenant", c->tenant),
                 KV_STR("service", c->service), KV_U64("shards", c->shards),
                 KV_CSTR("peer", c->r->peer));
    buf_init(&b, 16 * KIB);
    json_init(&j, &b);
    json_obj(&j);
    put_str(&j, "tenant", c->tenant);
    if (c->service.len)
        put_str(&j, "service", c->service);
    json_key(&j, "shards");
    json_u64(&j, c->shards);
    json_key(&j, "from");
    json_i64(&j, c->from_ms);
    json_key(&j, "changed");
    json_bool(&j, c->changed);
    json_obj_end(&j);
    (void)buf_add_c(&b, '\n');
    http_reply(c->r, 200, "application/json", &b);
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
    struct process *p = r->route_cookie;
    struct change *c;
    struct err e;

    if (!access_changes(&p->access, r))
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

static void steps_json(const struct map_steps *s, uint32_t none, int64_t now_ms, struct json *j)
{
    json_key(j, "shards");
    json_u64(j, map_step_at(s, now_ms, none));
    json_key(j, "steps");
    json_arr(j);
    for (uint32_t i = 0; i < s->len; i++) {
        json_obj(j);
        json_key(j, "from");
        json_i64(j, i ? s->at[i].from_ms : 0);
        json_key(j, "shards");
        json_u64(j, s->at[i].n);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void places_json(const struct map *m, int64_t now_ms, struct json *j)
{
    json_obj(j);
    json_key(j, "map_version");
    json_u64(j, m->version);
    json_key(j, "shards");
    json_u64(j, m->shards);
    json_key(j, "tenants");
    json_arr(j);
    json_obj(j);
    put_str(j, "tenant", STR(ALL));
    steps_json(&m->tenant_steps, 0, now_ms, j);
    json_obj_end(j);
    for (size_t i = 0; i < m->tenants_len; i++) {
        json_obj(j);
        put_str(j, "tenant", m->tenants[i].name);
        steps_json(&m->tenants[i].steps, 0, now_ms, j);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_key(j, "services");
    json_arr(j);
    for (size_t i = 0; i < m->services_len; i++) {
        json_obj(j);
        put_str(j, "tenant", m->services[i].tenant);
        put_str(j, "service", m->services[i].name);
        steps_json(&m->services[i].steps, 1, now_ms, j);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void on_places(struct http_req *r)
{
    struct process *p = r->route_cookie;
    const struct map *m;
    struct json j;
    struct buf b;
    struct err e;
    int64_t rev;

    if (!access_allows(&p->access, r))
        return;
    m = view_map(p->ctx.view, &rev);
    if (!m) {
        (void)err_set(&e, ERR_UNAVAILABLE, "the map of the cluster is not known yet");
        http_reply_err(r, &e);
        return;
    }
    buf_init(&b, REPLY_MAX);
    json_init(&j, &b);
    places_json(m, clock_wall_ms(p->ctx.env->clock), &j);
    (void)buf_add_c(&b, '\n');
    http_reply(r, 200, "application/json", &b);
}

void cluster_places_routes(struct process *p)
{
    http_route(p->http, HTTP_GET, PLACES, 0, on_places, p);
    http_route(p->http, HTTP_POST, SERVICES, 0, on_service, p);
    http_route(p->http, HTTP_POST, TENANTS, 0, on_tenant, p);
}
