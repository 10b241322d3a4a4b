/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_rebalance: the controller moves shards to where they belong by itself, a few at a time,
 * so that nobody notices. This says which are on their way or wait for their turn, and what each
 * node has now and will have; and a person who cannot wait lets more of them go at once:
 *
 *   GET  /api/v1/cluster/rebalance            the plan
 *   POST /api/v1/cluster/rebalance?moves=N    N at once, until nothing is left to be moved
 *
 * The plan is worked out anew from the map, by the function the controller uses. A node that died a
 * moment ago is left out of it here, while the controller still waits whether it comes back.
 */
#include "common/role/cluster_rebalance.h"

#include "common/base/mem.h"
#include "common/cluster/map_change.h"
#include "common/cluster/map_edit.h"
#include "common/cluster/place.h"
#include "common/obs/log.h"
#include "common/role/process.h"

#define PATH      "/api/v1/cluster/rebalance"
#define REPLY_MAX (16 * MIB)
#define MOVES     16

struct counts { /* of one node */
    const char *name;
    uint32_t copies, leads, copies_to, leads_to;
};
struct plan {
    const struct view *view;
    const struct map *map;
    struct name_set *wanted; /* by shard; owned */
    struct counts *nodes;    /* owned; those of the map */
    uint32_t pending;
};

/* ---- the plan ------------------------------------------------------------------------------- */

static bool is_off(const struct plan *p, uint32_t shard)
{
    const struct repl_record *r = view_record(p->view, shard, NULL);

    return !r || !name_set_eq(&r->members, &p->wanted[shard]) || r->learners.len ||
           strcmp(r->leader, p->wanted[shard].names[0]) != 0;
}

static void count(struct plan *p)
{
    for (size_t i = 0; i < p->map->nodes_len; i++)
        p->nodes[i].name = p->map->nodes[i].name;
    for (uint32_t s = 0; s < p->map->shards; s++) {
        const struct repl_record *r = view_record(p->view, s, NULL);

        p->pending += is_off(p, s);
        for (size_t i = 0; i < p->map->nodes_len; i++) {
            struct counts *n = &p->nodes[i];

            n->copies += r && name_set_has(&r->members, n->name);
            n->leads += r && strcmp(r->leader, n->name) == 0;
            n->copies_to += name_set_has(&p->wanted[s], n->name);
            n->leads_to += strcmp(p->wanted[s].names[0], n->name) == 0;
        }
    }
}

static int plan_make(struct process *proc, struct plan *ret, struct err *e)
{
    struct plan p = { .view = proc->ctx.view };
    struct place_node *nodes;
    size_t n = 0;
    int64_t rev;

    p.map = view_map(p.view, &rev);
    if (!p.map)
        return err_set(e, ERR_UNAVAILABLE, "the map of the cluster is not known yet");
    nodes = XNEW_ARRAY(struct place_node, MAX(p.map->nodes_len, 1));
    for (size_t i = 0; i < p.map->nodes_len; i++) {
        const struct map_node *m = &p.map->nodes[i];
        struct view_node v;

        if (m->state == MAP_ACTIVE && view_node_find(p.view, m->name, &v) && v.live)
            nodes[n++] = (struct place_node){ m->name, m->zone, false };
    }
    if (n < p.map->replicas) {
        xfree(nodes);
        return err_set(e, ERR_UNAVAILABLE,
                       "%zu active nodes live, and %u copies need as many: nothing can be moved", n,
                       p.map->replicas);
    }
    p.wanted = XNEW_ARRAY(struct name_set, p.map->shards);
    p.nodes = XNEW_ARRAY(struct counts, MAX(p.map->nodes_len, 1));
    struct place_shard *shards = XNEW_ARRAY(struct place_shard, p.map->shards);
    for (uint32_t i = 0; i < p.map->shards; i++)
        shards[i].now = view_record(p.view, i, NULL);
    place_wanted(&(struct place_in){ nodes, n, shards, p.map->shards, p.map->replicas }, p.wanted);
    xfree(shards);
    xfree(nodes);
    count(&p);
    *ret = p;
    return 0;
}

static void put_u32(struct json *j, const char *key, uint32_t n)
{
    json_key(j, key);
    json_u64(j, n);
}

static void put_names(struct json *j, const char *key, const struct name_set *s)
{
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; s && i < s->len; i++)
        json_cstr(j, s->names[i]);
    json_arr_end(j);
}

static void plan_json(const struct plan *p, uint32_t moves, struct json *j)
{
    json_obj(j);
    put_u32(j, "pending", p->pending);
    put_u32(j, "atOnce", moves);
    json_key(j, "nodes");
    json_arr(j);
    for (size_t i = 0; i < p->map->nodes_len; i++) {
        json_obj(j);
        json_key(j, "name");
        json_cstr(j, p->nodes[i].name);
        put_u32(j, "copies", p->nodes[i].copies);
        put_u32(j, "copiesTo", p->nodes[i].copies_to);
        put_u32(j, "leads", p->nodes[i].leads);
        put_u32(j, "leadsTo", p->nodes[i].leads_to);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_key(j, "shards");
    json_arr(j);
    for (uint32_t s = 0; s < p->map->shards; s++) {
        const struct repl_record *r = view_record(p->view, s, NULL);

        if (!is_off(p, s))
            continue;
        json_obj(j);
        put_u32(j, "shard", s);
        put_names(j, "members", r ? &r->members : NULL);
        put_names(j, "membersTo", &p->wanted[s]);
        json_key(j, "leader");
        json_cstr(j, r ? r->leader : "");
        json_key(j, "leaderTo");
        json_cstr(j, p->wanted[s].names[0]);
        json_obj_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
}

static void reply(struct process *proc, struct http_req *r, uint32_t moves)
{
    struct plan p;
    struct json j;
    struct buf b;
    struct err e;

    if (plan_make(proc, &p, &e)) {
        http_reply_err(r, &e);
        return;
    }
    buf_init(&b, REPLY_MAX);
    json_init(&j, &b);
    plan_json(&p, moves, &j);
    (void)buf_add_c(&b, '\n');
    xfree(p.wanted);
    xfree(p.nodes);
    http_reply(r, 200, "application/json", &b);
}

/* ---- faster --------------------------------------------------------------------------------- */

struct change {
    struct http_req *r;
    struct process *p;
    uint32_t moves;
};

static int on_edit(void *cookie, const struct map *m, const struct map **ret, struct err *e)
{
    struct change *c = cookie;

    return m->moves == c->moves ? 0 : map_edit_moves(m, c->moves, ret, e);
}

static void on_changed(void *cookie, const struct err *e)
{
    struct change *c = cookie;

    if (e) {
        http_reply_err(c->r, e);
    } else {
        log_info("shards are moved faster", KV_U64("at_once", c->moves),
                 KV_CSTR("peer", c->r->peer));
        reply(c->p, c->r, c->moves);
    }
    xfree(c);
}

static bool is_etcd(const struct process *p, struct http_req *r)
{
    struct err e;

    if (p->ctx.coord)
        return true;
    (void)err_set(&e, ERR_UNIMPLEMENTED, "shards do not move here: cluster.coordination is %s",
                  p->ctx.cluster->coordination);
    http_reply_err(r, &e);
    return false;
}

static void on_get(struct http_req *r)
{
    struct process *p = r->route_cookie;
    const struct map *m;
    int64_t rev;

    if (!access_allows(&p->access, r) || !is_etcd(p, r))
        return;
    m = view_map(p->ctx.view, &rev);
    reply(p, r, m ? m->moves : 0);
}

static void on_post(struct http_req *r)
{
    struct process *p = r->route_cookie;
    uint64_t moves = MOVES;
    struct change *c;
    struct str text;
    struct err e;

    if (!access_changes(&p->access, r) || !is_etcd(p, r))
        return;
    if (http_param(r, "moves", &text) &&
        (!str_u64(text, &moves) || moves < 1 || moves > MAP_MOVES_MAX)) {
        (void)err_set(&e, ERR_INPUT, "moves is \"%.*s\"; want 1 to %d",
                      STR_ARG(str_sub(text, 0, 20)), MAP_MOVES_MAX);
        http_reply_err(r, &e);
        return;
    }
    c = XNEW(struct change);
    *c = (struct change){ r, p, (uint32_t)moves };
    map_change(&(struct map_change_opts){ .coord = p->ctx.coord,
                                          .prefix = p->ctx.cluster->etcd_prefix,
                                          .edit = on_edit,
                                          .done = on_changed,
                                          .cookie = c });
}

void cluster_rebalance_routes(struct process *p)
{
    http_route(p->http, HTTP_GET, PATH, 0, on_get, p);
    http_route(p->http, HTTP_POST, PATH, 0, on_post, p);
}
