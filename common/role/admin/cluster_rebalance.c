/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_rebalance: the controller moves shards to their targets by itself, a few at a time, so
 * that requests are not slowed down. This page says which shards move or wait, and what each node
 * has now and will have. An operator can let more of them move at once:
 *
 *   GET  /api/v1/cluster/rebalance            the plan
 *   POST /api/v1/cluster/rebalance?moves=N    N at once, until nothing is left to be moved
 *
 * The plan is computed for each request from the map, the records and the reports of nodes (how
 * much each copy stores and takes), by the functions the controller uses. So it holds leaders that
 * are to change for evenness, which the controller makes some of at a time. A node that died a
 * moment ago is left out of it here, while the controller still waits whether it comes back.
 */
#include "common/role/admin/cluster_rebalance.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/map_edit.h"
#include "common/cluster/place/reports.h"
#include "common/cluster/view/map_change.h"
#include "common/obs/log.h"
#include "common/role/admin/cluster_reply.h"
#include "common/role/core/readiness.h"

#define PATH      "/api/v1/cluster/rebalance"
#define REPLY_MAX (16 * MIB)
#define MOVES     16

struct counts { /* of one node */
    const char *name;
    enum map_state state;
    bool live;
    uint32_t copies, leads, copies_to, leads_to;
    uint64_t bytes, bytes_to; /* that it stores */
    uint64_t takes, takes_to; /* bytes per second into what it leads */
};
struct plan {
    const struct view *view;
    const struct map *map;
    struct place_shard *shards; /* owned */
    struct name_set *wanted;    /* by shard; owned */
    struct counts *nodes;       /* owned; those of the map */
    uint32_t pending;
    uint64_t to_copy; /* bytes */
};

/* ---- the plan ------------------------------------------------------------------------------- */

static bool members_off(const struct plan *p, uint32_t shard)
{
    const struct repl_record *r = p->shards[shard].now;

    return !r || !name_set_eq(&r->members, &p->wanted[shard]) || r->learners.len;
}

static bool is_off(const struct plan *p, uint32_t shard)
{
    return members_off(p, shard) ||
           strcmp(p->shards[shard].now->leader, p->wanted[shard].names[0]) != 0;
}

static void count(struct plan *p)
{
    for (size_t i = 0; i < p->map->nodes_len; i++) {
        const struct map_node *m = &p->map->nodes[i];
        struct view_node v;

        p->nodes[i] = (struct counts){ .name = m->name, .state = m->state };
        p->nodes[i].live = view_node_find(p->view, m->name, &v) && v.live;
    }
    for (uint32_t s = 0; s < p->map->shards; s++) {
        const struct repl_record *r = p->shards[s].now;
        const struct place_shard *is = &p->shards[s];

        p->pending += is_off(p, s);
        for (uint32_t i = 0; i < p->wanted[s].len; i++)
            p->to_copy += r && !name_set_has(&r->members, p->wanted[s].names[i]) ? is->bytes : 0;
        for (size_t i = 0; i < p->map->nodes_len; i++) {
            struct counts *n = &p->nodes[i];
            bool has = r && name_set_has(&r->members, n->name);
            bool leads = r && strcmp(r->leader, n->name) == 0;
            bool has_to = name_set_has(&p->wanted[s], n->name);
            bool leads_to = strcmp(p->wanted[s].names[0], n->name) == 0;

            n->copies += has;
            n->leads += leads;
            n->copies_to += has_to;
            n->leads_to += leads_to;
            n->bytes += has ? is->bytes : 0;
            n->bytes_to += has_to ? is->bytes : 0;
            n->takes += leads ? is->rate : 0;
            n->takes_to += leads_to ? is->rate : 0;
        }
    }
}

static void work_out(struct plan *p, const struct reports *reports, const struct place_node *nodes,
                     size_t n)
{
    uint32_t shards = p->map->shards;
    struct place_in in = { nodes, n, NULL, shards, p->map->replicas };

    p->wanted = XNEW_ARRAY(struct name_set, shards);
    p->shards = XNEW_ARRAY(struct place_shard, shards);
    p->nodes = XNEW_ARRAY(struct counts, MAX(p->map->nodes_len, 1));
    for (uint32_t i = 0; i < shards; i++)
        reports_place(reports, p->view, i, &p->shards[i]);
    in.shards = p->shards;
    placement_target(&in, p->wanted);
    /* As the controller does: a leader stays while the members of its shard change. */
    for (uint32_t i = 0; i < shards; i++)
        p->shards[i].stay = members_off(p, i);
    (void)place_leaders(&in, p->wanted, UINT32_MAX);
    count(p);
}

static int plan_make(struct process_core *proc, const struct reports *reports, struct plan *ret,
                     struct err *e)
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
    work_out(&p, reports, nodes, n);
    xfree(nodes);
    *ret = p;
    return 0;
}

static const struct counts *counts_of(const struct plan *p, const char *name)
{
    for (size_t i = 0; i < p->map->nodes_len; i++)
        if (strcmp(p->nodes[i].name, name) == 0)
            return &p->nodes[i];
    return NULL;
}

/* Returns a node that has a copy and is to have none; NULL: no such node. */
static const char *loser(const struct plan *p, uint32_t shard)
{
    const struct repl_record *r = p->shards[shard].now;

    for (uint32_t i = 0; i < r->members.len; i++)
        if (!name_set_has(&p->wanted[shard], r->members.names[i]))
            return r->members.names[i];
    return NULL;
}

/* For people: what is wrong with where the shard is. */
static void why(const struct plan *p, uint32_t shard, char *ret, size_t size)
{
    const struct repl_record *r = p->shards[shard].now;
    const char *from = r ? loser(p, shard) : NULL;
    const struct counts *n = counts_of(p, from ? from : r ? r->leader : "");

    if (!r)
        (void)snprintf(ret, size, "no node has it yet");
    else if (!members_off(p, shard))
        (void)snprintf(ret, size, "%s leads more than others, by what that takes", r->leader);
    else if (!from)
        (void)snprintf(ret, size, "it has too few copies, or one is on its way");
    else if (!n || !n->live || n->state != MAP_ACTIVE)
        (void)snprintf(ret, size, "%s %s", from,
                       !n || !n->live ? "does not live" : "is being emptied");
    else if (n->copies_to < n->copies)
        (void)snprintf(ret, size, "%s has %" PRIu32 " copies, its share is %" PRIu32, from,
                       n->copies, n->copies_to);
    else if (n->bytes_to < n->bytes)
        (void)snprintf(ret, size, "%s stores %" PRIu64 " MiB, others less", from, n->bytes / MIB);
    else
        (void)snprintf(ret, size, "%s makes room for a copy that must be elsewhere", from);
}

static void put_names(struct json *j, const char *key, const struct name_set *s)
{
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; s && i < s->len; i++)
        json_cstr(j, s->names[i]);
    json_arr_end(j);
}

static void node_json(const struct counts *n, struct json *j)
{
    json_obj(j);
    json_put_cstr(j, "name", n->name);
    json_put_u64(j, "copies", n->copies);
    json_put_u64(j, "copiesTo", n->copies_to);
    json_put_u64(j, "leads", n->leads);
    json_put_u64(j, "leadsTo", n->leads_to);
    json_put_u64(j, "bytes", n->bytes);
    json_put_u64(j, "bytesTo", n->bytes_to);
    json_put_u64(j, "bytesPerSecond", n->takes);
    json_put_u64(j, "bytesPerSecondTo", n->takes_to);
    json_obj_end(j);
}

static void shard_json(const struct plan *p, uint32_t shard, struct json *j)
{
    const struct repl_record *r = p->shards[shard].now;
    char text[256];

    json_obj(j);
    json_put_u64(j, "shard", shard);
    put_names(j, "members", r ? &r->members : NULL);
    put_names(j, "membersTo", &p->wanted[shard]);
    json_put_cstr(j, "leader", r ? r->leader : "");
    json_put_cstr(j, "leaderTo", p->wanted[shard].names[0]);
    json_put_u64(j, "bytes", p->shards[shard].bytes);
    json_put_u64(j, "bytesPerSecond", p->shards[shard].rate);
    why(p, shard, text, sizeof(text));
    json_put_cstr(j, "why", text);
    json_obj_end(j);
}

static void plan_json(const struct plan *p, uint32_t moves, struct json *j)
{
    json_obj(j);
    json_put_u64(j, "pending", p->pending);
    json_put_u64(j, "atOnce", moves);
    json_put_u64(j, "bytesToCopy", p->to_copy);
    json_key(j, "nodes");
    json_arr(j);
    for (size_t i = 0; i < p->map->nodes_len; i++)
        node_json(&p->nodes[i], j);
    json_arr_end(j);
    json_key(j, "shards");
    json_arr(j);
    for (uint32_t s = 0; s < p->map->shards; s++)
        if (is_off(p, s))
            shard_json(p, s, j);
    json_arr_end(j);
    json_obj_end(j);
}

/* ---- what nodes tell ------------------------------------------------------------------------ */

struct ask {
    struct http_req *r;
    struct process_core *p;
    uint32_t moves;
};

static void answer(const struct ask *a, const struct reports *reports)
{
    struct plan p = { .pending = 0 };
    struct json j;
    struct buf b;
    struct err e;

    if (plan_make(a->p, reports, &p, &e) || !p.map || !p.nodes) {
        http_reply_err(a->r, &e);
        return;
    }
    buf_init(&b, REPLY_MAX);
    json_init(&j, &b);
    plan_json(&p, a->moves, &j);
    (void)buf_add_c(&b, '\n');
    xfree(p.wanted);
    xfree(p.shards);
    xfree(p.nodes);
    http_reply(a->r, 200, "application/json", &b);
}

static void on_states(void *cookie, const struct coord_reply *r)
{
    struct ask *a = cookie;
    struct reports *reports;

    if (r->err) {
        http_reply_err(a->r, r->err);
        xfree(a);
        return;
    }
    reports = reports_new();
    for (size_t i = 0; i < r->kvs_len; i++) {
        char name[NODE_NAME_MAX + 1] = { 0 };
        struct str node, prefix = str_c(a->p->ctx.cluster->etcd_prefix);
        uint32_t shard;
        struct err e;

        if (key_parse(prefix, r->kvs[i].key, &shard, &node) != KEY_STATE)
            continue;
        memcpy(name, node.ptr, node.len);
        /* What cannot be read is as if it was not said. */
        (void)!reports_take(reports, name, r->kvs[i].value, &e);
    }
    answer(a, reports);
    reports_free(reports);
    xfree(a);
}

static void reply(struct process_core *proc, struct http_req *r, uint32_t moves)
{
    struct coord_key states = key_states(str_c(proc->ctx.cluster->etcd_prefix));
    struct ask *a = XNEW(struct ask);

    *a = (struct ask){ r, proc, moves };
    coord_list(proc->ctx.coord, key_str(&states), on_states, a);
}

/* ---- faster --------------------------------------------------------------------------------- */

struct change {
    struct http_req *r;
    struct process_core *p;
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

static bool is_etcd(const struct process_core *p, struct http_req *r)
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
    struct process_core *p = r->route_cookie;
    const struct map *m;
    int64_t rev;

    if (!is_etcd(p, r))
        return;
    m = view_map(p->ctx.view, &rev);
    reply(p, r, m ? m->moves : 0);
}

static void on_post(struct http_req *r)
{
    struct process_core *p = r->route_cookie;
    uint64_t moves = MOVES;
    struct change *c;
    struct str text;
    struct err e;

    if (!is_etcd(p, r) || !cluster_followed(p->ctx.view, r))
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

void cluster_rebalance_routes(struct process_core *p)
{
    http_route(p->ctx.http, HTTP_GET, PATH, 0, on_get, p);
    http_route(p->ctx.http, HTTP_POST, PATH, 0, on_post, p);
}
