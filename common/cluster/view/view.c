/* SPDX-License-Identifier: Apache-2.0
 *
 * view: the cluster as this process knows it, and the two kinds that never change.
 *
 * Records, nodes and the map are stored apart, as they arrive apart and in any order: a record may
 * name a leader whose address is not known yet (its address is then ""), and a node may live before
 * the map has it. A caller gets the parts that exist.
 */
#include "common/cluster/view/view.h"

#include <stdio.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/view/view_impl.h"

struct view *view_new_kind(enum view_kind kind)
{
    struct view *v = XNEW(struct view);

    v->kind = kind;
    v->index = map_str_new();
    return v;
}

/* ---- filling it ------------------------------------------------------------------------------ */

void view_slots_room(struct view *v, uint32_t n)
{
    CHECK(n <= CLUSTER_SHARDS_MAX);
    if (n <= v->slots_len)
        return;
    v->slots = xreallocarray(v->slots, n, sizeof(struct view_slot *));
    for (; v->slots_len < n; v->slots_len++)
        v->slots[v->slots_len] = XNEW(struct view_slot);
}

/* Nodes leave the map only by being drained. So a node that was in it and is missing now was
 * drained, even if this process did not see it. */
static bool drained_by(const struct view *v, const struct map *m)
{
    const struct map_node *n = map_node(m, v->node);

    if (n)
        return n->state != MAP_ACTIVE;
    return v->drained || (v->map && map_node(v->map, v->node));
}

void view_set_map(struct view *v, const struct map *m)
{
    v->drained = v->node && drained_by(v, m);
    map_unref(v->map);
    v->map = m;
    view_slots_room(v, m->shards);
}

bool view_is_to_lead(const struct view *v, uint32_t shard, const struct repl_record *r)
{
    const struct view_slot *s = v->slots[shard];

    return v->node && strcmp(r->leader, v->node) == 0 && (!s->known || s->record.term != r->term);
}

void view_set_record(struct view *v, uint32_t shard, const struct repl_record *r, int64_t rev)
{
    struct view_slot *s;

    CHECK(shard < v->slots_len);
    s = v->slots[shard];
    s->record = *r;
    s->rev = rev;
    s->known = true;
    for (uint32_t i = 0; i < r->members.len; i++)
        s->members[i] = s->record.members.names[i];
}

void view_index(struct view *v)
{
    map_str_free(v->index);
    v->index = map_str_new();
    vec_for (i, &v->peers)
        (void)map_str_put(v->index, str_c(v->peers.ptr[i].name), (void *)(uintptr_t)(i + 1));
}

struct view_peer *view_peer(const struct view *v, const char *name)
{
    uintptr_t i = (uintptr_t)map_str_get(v->index, str_c(name));

    return i ? &v->peers.ptr[i - 1] : NULL;
}

/* Watchers may unwatch themselves in their call. */
void view_changed(struct view *v)
{
    v->version++;
    for (size_t i = v->watchers_len; i-- > 0;)
        if (i < v->watchers_len)
            v->watchers[i].fn(v->watchers[i].cookie);
}

static void add_peer(struct view *v, const struct map_node *n, bool live)
{
    struct view_peer p = { .state = n->state, .live = live, .mapped = true };

    memcpy(p.name, n->name, sizeof(p.name));
    memcpy(p.addr, n->addr, sizeof(p.addr));
    memcpy(p.zone, n->zone, sizeof(p.zone));
    vec_push(&v->peers, p);
}

/* ---- kinds that do not change ---------------------------------------------------------------- */

struct view *view_new_list(const char *const *addrs, size_t n, uint32_t shards)
{
    struct map_node *nodes = XNEW_ARRAY(struct map_node, MAX(n, 1));
    struct map from = { .shards = shards, .replicas = 1, .nodes = nodes, .nodes_len = n };
    struct view *v = view_new_kind(VIEW_LIST);
    const struct map *m;
    struct err e;

    CHECK(n > 0 && n <= MAP_NODES_MAX);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(nodes[i].name, sizeof(nodes[i].name), "ingester-%zu", i);
        (void)snprintf(nodes[i].addr, sizeof(nodes[i].addr), "%s", addrs[i]);
    }
    CHECK(map_new(&from, &m, &e) == 0);
    view_set_map(v, m);
    for (size_t i = 0; i < n; i++)
        add_peer(v, &m->nodes[i], true);
    view_index(v);
    for (uint32_t i = 0; i < shards; i++) {
        struct repl_record r = { .established = true };

        memcpy(r.leader, nodes[i % n].name, sizeof(r.leader));
        (void)name_set_add(&r.members, r.leader);
        view_set_record(v, i, &r, 0);
    }
    xfree(nodes);
    v->version = 1;
    return v;
}

int view_new_static(const struct map *m, struct view **ret, struct err *e)
{
    struct view *v;

    if (!m->replicas_of)
        return err_set(e, ERR_CONFIG,
                       "the map of a static cluster must name the replicas of each shard "
                       "(replicas_of, a list of %u lists of names, the leader first)",
                       m->shards);
    for (size_t i = 0; i < m->nodes_len; i++)
        if (!m->nodes[i].addr[0])
            return err_set(e, ERR_CONFIG, "node %s has no addr", m->nodes[i].name);
    v = view_new_kind(VIEW_STATIC);
    view_set_map(v, map_ref(m));
    for (size_t i = 0; i < m->nodes_len; i++)
        add_peer(v, &m->nodes[i], true);
    view_index(v);
    for (uint32_t i = 0; i < m->shards; i++) {
        struct repl_record r = { .term = 1, .members = m->replicas_of[i], .established = true };

        CHECK(r.members.len > 0);
        memcpy(r.leader, r.members.names[0], sizeof(r.leader));
        view_set_record(v, i, &r, 0);
    }
    v->version = 1;
    *ret = v;
    return 0;
}

void view_free(struct view *v)
{
    if (!v)
        return;
    view_feed_free(v->feed);
    map_unref(v->map);
    vec_free(&v->peers);
    map_str_free(v->index);
    for (uint32_t i = 0; i < v->slots_len; i++)
        xfree(v->slots[i]);
    xfree(v->slots);
    xfree(v);
}

/* ---- answers --------------------------------------------------------------------------------- */

enum view_kind view_kind(const struct view *v)
{
    return v->kind;
}

bool view_ready(const struct view *v)
{
    return v->map != NULL;
}

uint32_t view_shards(const struct view *v)
{
    return v->map ? v->map->shards : 0;
}

bool view_shard(const struct view *v, uint32_t shard, struct view_shard *ret)
{
    const struct view_slot *s = shard < v->slots_len ? v->slots[shard] : NULL;
    const struct view_peer *p;

    if (!s || !s->known)
        return false;
    p = view_peer(v, s->record.leader);
    *ret = (struct view_shard){ .term = s->record.term,
                                .leader = s->record.leader,
                                .leader_addr = p ? p->addr : "",
                                .members = s->members,
                                .members_len = s->record.members.len,
                                .established = s->record.established,
                                .leader_live = p && p->live };
    return true;
}

const struct repl_record *view_record(const struct view *v, uint32_t shard, int64_t *ret_rev)
{
    if (shard >= v->slots_len || !v->slots[shard]->known)
        return NULL;
    if (ret_rev)
        *ret_rev = v->slots[shard]->rev;
    return &v->slots[shard]->record;
}

uint32_t view_place(const struct view *v, struct str tenant, struct str service,
                    uint64_t series_hash, int64_t when_ms)
{
    CHECK(v->map);
    return map_shard(v->map, tenant, service, series_hash, when_ms);
}

size_t view_places(const struct view *v, struct str tenant, struct str service, uint32_t *ret,
                   size_t max)
{
    CHECK(v->map);
    return map_places(v->map, tenant, service, ret, max);
}

const struct map *view_map_ref(const struct view *v)
{
    CHECK(v->map);
    return map_ref(v->map);
}

const struct map *view_map(const struct view *v, int64_t *ret_rev)
{
    *ret_rev = v->feed ? view_feed_map_rev(v->feed) : 0;
    return v->map;
}

uint64_t view_kept(const struct view *v)
{
    uint64_t now = v->map ? v->map->version : 0;

    return v->feed ? MIN(now, view_feed_kept(v->feed)) : now;
}

size_t view_nodes_len(const struct view *v)
{
    return v->peers.len;
}

static void tell(const struct view_peer *p, struct view_node *ret)
{
    *ret = (struct view_node){ .name = p->name,
                               .addr = p->addr,
                               .zone = p->zone,
                               .state = p->state,
                               .live = p->live,
                               .mapped = p->mapped,
                               .gone_ms = p->gone_ms,
                               .methods = p->methods,
                               .drained = p->drained };
}

void view_node(const struct view *v, size_t i, struct view_node *ret)
{
    CHECK(i < v->peers.len);
    tell(&v->peers.ptr[i], ret);
}

bool view_node_find(const struct view *v, const char *name, struct view_node *ret)
{
    const struct view_peer *p = view_peer(v, name);

    if (p)
        tell(p, ret);
    return p != NULL;
}

/* ---- changes --------------------------------------------------------------------------------- */

void view_watch(struct view *v, void (*fn)(void *cookie), void *cookie)
{
    CHECK(v->watchers_len < VIEW_WATCHERS_MAX);
    v->watchers[v->watchers_len++] = (struct view_watcher){ fn, cookie };
}

void view_unwatch(struct view *v, void (*fn)(void *cookie), void *cookie)
{
    for (size_t i = 0; i < v->watchers_len; i++) {
        if (v->watchers[i].fn != fn || v->watchers[i].cookie != cookie)
            continue;
        v->watchers_len--;
        for (; i < v->watchers_len; i++)
            v->watchers[i] = v->watchers[i + 1];
        return;
    }
}

void view_suspect_leader(struct view *v, uint32_t shard, uint64_t term)
{
    if (v->feed)
        view_feed_doubt(v->feed, shard, term);
}

void view_note_peer_state(struct view *v, uint32_t shard, uint64_t term, uint64_t map_version)
{
    if (v->feed)
        view_feed_told(v->feed, shard, term, map_version);
}

bool view_is_stale_bootstrap(const struct view *v)
{
    return v->led_astray;
}

uint64_t view_version(const struct view *v)
{
    return v->version;
}

bool view_knows_liveness(const struct view *v)
{
    return !v->feed || view_feed_heard(v->feed);
}

const char *view_cluster_id(const struct view *v)
{
    return v->cluster;
}

int64_t view_cluster_rev(const struct view *v)
{
    return v->feed ? view_feed_cluster_rev(v->feed) : 0;
}

const char *view_stranger(const struct view *v)
{
    return v->feed ? view_feed_stranger(v->feed) : "";
}

bool view_trusts(const struct view *v)
{
    return !v->feed || view_feed_trusts(v->feed);
}

uint64_t view_store(const struct view *v)
{
    return v->feed ? view_feed_store(v->feed) : 0;
}

bool view_born(const struct view *v)
{
    return v->feed && view_feed_born(v->feed);
}

bool view_drained(const struct view *v)
{
    return v->drained;
}

const char *view_why(const struct view *v)
{
    return v->feed ? view_feed_why(v->feed) : "";
}

uint64_t view_age_ms(const struct view *v)
{
    return v->feed ? view_feed_age_ms(v->feed) : 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void put_set(struct json *j, const char *key, const struct name_set *s)
{
    json_key(j, key);
    json_arr(j);
    for (uint32_t i = 0; i < s->len; i++)
        json_cstr(j, s->names[i]);
    json_arr_end(j);
}

static void nodes_json(const struct view *v, struct json *j)
{
    static const char *const states[] = { "active", "draining", "left" };

    json_arr(j);
    vec_for (i, &v->peers) {
        const struct view_peer *p = &v->peers.ptr[i];

        json_obj(j);
        json_put_cstr(j, "name", p->name);
        json_put_cstr(j, "addr", p->addr);
        json_put_cstr(j, "zone", p->zone);
        json_put_cstr(j, "state", p->mapped ? states[p->state] : "joining");
        json_put_bool(j, "live", p->live);
        if (v->feed && p->gone_ms)
            json_put_u64(j, "gone_ms", view_feed_now_ms(v->feed) - p->gone_ms);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static void shards_json(const struct view *v, struct json *j)
{
    json_arr(j);
    for (uint32_t i = 0; i < v->slots_len; i++) {
        const struct repl_record *r = &v->slots[i]->record;
        struct view_shard s;

        if (!view_shard(v, i, &s))
            continue;
        json_obj(j);
        json_put_u64(j, "shard", i);
        json_put_u64(j, "term", r->term);
        json_put_cstr(j, "leader", r->leader);
        json_put_bool(j, "leader_live", s.leader_live);
        json_put_bool(j, "established", r->established);
        put_set(j, "members", &r->members);
        put_set(j, "learners", &r->learners);
        json_obj_end(j);
    }
    json_arr_end(j);
}

void view_json(const struct view *v, struct json *j)
{
    static const char *const kinds[] = { "none", "static", "etcd" };
    const char *why;

    json_put_cstr(j, "coordination", kinds[v->kind]);
    if (v->cluster[0])
        json_put_cstr(j, "cluster_id", v->cluster);
    json_put_u64(j, "map_version", v->map ? v->map->version : 0);
    json_put_u64(j, "replicas", v->map ? v->map->replicas : 0);
    json_put_u64(j, "age_ms", view_age_ms(v));
    if (view_stranger(v)[0])
        json_put_bool(j, "stranger", true);
    if (view_why(v)[0])
        json_put_cstr(j, "trouble", view_why(v));
    if (v->feed && view_feed_bad(v->feed, &why))
        json_put_cstr(j, "unreadable", why);
    json_key(j, "nodes");
    nodes_json(v, j);
    json_key(j, "shards");
    shards_json(v, j);
}
