/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_map: makes the map, with the cluster's id, and corrects it when it differs from the
 * nodes that live.
 *
 * Each function compares the map with what is seen and writes at most one next version, in one
 * transaction that compares the fence and the map's revision. The cluster's id is written with the
 * first map and never again: a process that finds the key `ring/cluster` knows that the
 * cluster exists.
 */
#include <stdio.h>

#include "common/cluster/control/controller_impl.h"
#include "common/cluster/map/map_edit.h"
#include "common/cluster/map/map_pending.h"

#define SPREAD_EVERY_MS 10000
#define RESIZE_AFTER_MS 300000

/* ---- the map --------------------------------------------------------------------------------- */

/* Writes the map; the first one together with the cluster's id. Where an id exists without a map,
 * an operator is rebuilding the cluster, and the transaction fails. */
static void put_both(struct controller *c, struct str map, int64_t rev)
{
    struct coord_key fence = key_controller(str_c(c->prefix)), key = key_map(str_c(c->prefix));
    struct coord_key name = key_cluster(str_c(c->prefix));
    size_t n = rev == 0 && c->id[0] ? 2 : 1;
    struct coord_compare cmp[3] = { controller_fence(c, &fence),
                                    { .key = key_str(&key), .rev = rev },
                                    { .key = key_str(&name) } };
    struct buf id;

    buf_init(&id, KIB);
    if (n == 2)
        cluster_id_write(c->id, &id);
    struct coord_change chg[2] = { { .key = key_str(&key), .value = map },
                                   { .key = key_str(&name), .value = buf_str(&id) } };
    coord_txn(c->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = n + 1, .chg = chg, .chg_len = n },
              controller_on_called, controller_call(c, CLUSTER_SHARDS_MAX, rev));
    buf_deinit(&id);
}

void controller_put_map(struct controller *c, const struct map *m, int64_t rev)
{
    struct buf text;

    buf_init(&text, COORD_VALUE_MAX);
    map_write(m, &text);
    if (buf_ok(&text))
        put_both(c, buf_str(&text), rev);
    else
        controller_say(c, "the map would take more than %zu bytes", (size_t)COORD_VALUE_MAX);
    buf_deinit(&text);
}

/* Gives an id to a cluster of an older build, which had none. It is created once, never changed. */
bool controller_name_cluster(struct controller *c)
{
    struct coord_key fence = key_controller(str_c(c->prefix));
    struct coord_key name = key_cluster(str_c(c->prefix));
    struct coord_compare cmp[2] = { controller_fence(c, &fence), { .key = key_str(&name) } };
    struct buf id;

    if (!c->id[0] || view_cluster_rev(c->o.view))
        return true;
    controller_say(c, "gives the cluster an id");
    buf_init(&id, KIB);
    cluster_id_write(c->id, &id);
    struct coord_change chg = { .key = key_str(&name), .value = buf_str(&id) };
    coord_txn(c->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
              controller_on_called, controller_call(c, CLUSTER_SHARDS_MAX, 0));
    buf_deinit(&id);
    return false;
}

static void node_of(const struct view_node *n, struct map_node *ret)
{
    *ret = (struct map_node){ .state = MAP_ACTIVE };
    (void)snprintf(ret->name, sizeof(ret->name), "%s", n->name);
    (void)snprintf(ret->addr, sizeof(ret->addr), "%s", n->addr);
    (void)snprintf(ret->zone, sizeof(ret->zone), "%s", n->zone);
}

void controller_make_map(struct controller *c)
{
    size_t n = view_nodes_len(c->o.view), len = 0;
    struct map from = { .version = 1, .shards = c->o.shards, .replicas = c->o.replicas };
    uint32_t few = MIN(c->o.tenant_shards, c->o.shards);
    struct map_node *nodes;
    const struct map *m;
    struct err e;

    if (c->live < c->o.replicas || controller_now_ms(c) - c->changed_ms < c->o.settle_ms) {
        controller_say(
            c, "%zu nodes live; the map is made once %u do and none has come for %" PRIu64 " ms",
            c->live, c->o.replicas, c->o.settle_ms);
        return;
    }
    if (view_cluster_rev(c->o.view)) {
        controller_say(c, "there is a cluster's id and no map: it is being rebuilt (embertreectl "
                          "cluster recover), or its map was deleted");
        return;
    }
    nodes = XNEW_ARRAY(struct map_node, MAX(n, 1));
    for (size_t i = 0; i < n; i++) {
        struct view_node node;

        view_node(c->o.view, i, &node);
        if (node.live)
            node_of(&node, &nodes[len++]);
    }
    from.nodes = nodes;
    from.nodes_len = len;
    if (few)
        from.tenant_steps = (struct map_steps){ .at = { { .n = few } }, .len = 1 };
    if (map_new(&from, &m, &e)) {
        controller_say(c, "no map can be made: %s", e.text);
    } else {
        controller_say(c, "makes the map of %u shards on %zu nodes", from.shards, len);
        controller_put_map(c, m, 0);
        map_unref(m);
    }
    xfree(nodes);
}

static bool has_shards(const struct controller *c, const char *name)
{
    const struct repl_record *r;

    for (uint32_t i = 0; i < view_shards(c->o.view); i++) {
        r = view_record(c->o.view, i, NULL);
        if (r && (name_set_has(&r->members, name) || name_set_has(&r->learners, name) ||
                  name_set_has(&r->prev_members, name)))
            return true;
    }
    return false;
}

/* The next version for one node, or NULL: it is as it should be. */
static const struct map *node_edit(struct controller *c, const struct map *m,
                                   const struct view_node *n)
{
    const struct map *next = NULL;
    struct map_node as;
    struct err e;

    node_of(n, &as);
    as.state = n->drained ? MAP_LEFT : MAP_ACTIVE; /* of one the map has, its state there stays */
    if (n->live && map_edit_node(m, &as, &next, &e) == 0)
        return next;
    if (!n->mapped || n->state == MAP_ACTIVE || has_shards(c, n->name))
        return NULL;
    if (n->state == MAP_DRAINING)
        (void)!map_edit_state(m, n->name, MAP_LEFT, &next, &e);
    else if (!n->live)
        (void)!map_edit_remove(m, n->name, &next, &e);
    return next;
}

bool controller_mend_map(struct controller *c, const struct map *m, int64_t rev)
{
    for (size_t i = 0; i < view_nodes_len(c->o.view); i++) {
        const struct map *next;
        struct view_node n;

        view_node(c->o.view, i, &n);
        next = node_edit(c, m, &n);
        if (!next)
            continue;
        controller_say(c, "writes what changed about node %s", n.name);
        controller_put_map(c, next, rev);
        map_unref(next);
        return false;
    }
    return true;
}

/* ---- busy services --------------------------------------------------------------------------- */

static uint64_t rate_of(const struct controller *c, const struct progress_service *s)
{
    const struct progress *p;
    uint64_t sum = 0;

    for (size_t pos = 0; (p = reports_next(c->reports, &pos));)
        for (size_t i = 0; i < p->services_len; i++)
            if (str_eq(p->services[i].tenant, s->tenant) && str_eq(p->services[i].name, s->name))
                sum += p->services[i].rate;
    return sum;
}

/* Only ever spreads more: a service may need again what it needed once, and each change is read
 * permanently. One change at a time. */
static bool spread_one(struct controller *c, const struct map *m, int64_t rev,
                       const struct progress_service *s)
{
    uint64_t want = rate_of(c, s) / c->o.spread_bytes + 1, most = MIN(m->shards, MAP_SPREAD_MAX);
    struct map_whose w = { s->tenant, s->name };
    uint32_t has = map_whose_last(m, &w);
    const struct map_service *v = map_service(m, s->tenant, s->name);
    const struct map *next;
    struct err e;

    if (v && v->steps.next.version)
        return false;
    if (want > has)
        want = MAX(want, (uint64_t)has * 2); /* steps are few */
    want = MIN(want, most);
    if (want <= has || map_pending_request(m, &w, (uint32_t)want, &next, &e))
        return false;
    controller_say(c, "wants service %.*s on %u shards", STR_ARG(str_sub(s->name, 0, 64)),
                   (unsigned)want);
    controller_put_map(c, next, rev);
    map_unref(next);
    return true;
}

/* Nodes are given a new setting one after the other, and each may be the controller for a while: so
 * it must stand for some time before it counts. */
static bool resize_tenants(struct controller *c, const struct map *m, int64_t rev)
{
    uint32_t few = MIN(c->o.tenant_shards, m->shards);
    const struct map_whose all = { { NULL, 0 }, { NULL, 0 } };
    const struct map *next;
    struct err e;

    if (map_step_at(&m->tenant_steps, INT64_MAX, 0) == few)
        c->resize_ms = 0;
    else if (!c->resize_ms)
        c->resize_ms = controller_now_ms(c);
    if (!c->resize_ms || controller_now_ms(c) - c->resize_ms < RESIZE_AFTER_MS ||
        map_pending_request(m, &all, few, &next, &e))
        return false;
    controller_say(c, "wants each tenant on %" PRIu32 " shards", few);
    controller_put_map(c, next, rev);
    map_unref(next);
    return true;
}

void controller_spread(struct controller *c, const struct map *m, int64_t rev)
{
    const struct progress *p;

    if (resize_tenants(c, m, rev))
        return;
    if (!c->o.spread_bytes || controller_now_ms(c) - c->spread_ms < SPREAD_EVERY_MS)
        return;
    c->spread_ms = controller_now_ms(c);
    for (size_t pos = 0; (p = reports_next(c->reports, &pos));)
        for (size_t i = 0; i < p->services_len; i++)
            if (spread_one(c, m, rev, &p->services[i]))
                return;
}

void controller_calm(struct controller *c, const struct map *m, int64_t rev)
{
    const struct map *next;
    struct err e;

    if (!m->moves || map_edit_moves(m, 0, &next, &e))
        return;
    controller_say(c, "all shards are where they belong; moves as few at once as before");
    controller_put_map(c, next, rev);
    map_unref(next);
}
