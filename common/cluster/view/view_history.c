/* SPDX-License-Identifier: Apache-2.0
 *
 * view_check_history: this process's state compared with the coordination service's.
 *
 * A value that does not parse proves nothing: it may be a newer build's, and the view keeps its
 * previous value anyway (view_coord.c). A missing key does prove something: the map and the records
 * of shards are never deleted.
 */
#include "common/cluster/view/view_history.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/map/map_pending.h"

/* True if `there` equals `ours`, or may have followed it. Within one term the leader, the members
 * and the previous members never change; learners come and go. */
static bool record_goes_on(const struct repl_record *ours, const struct repl_record *there)
{
    if (there->term != ours->term)
        return there->term > ours->term;
    return strcmp(there->leader, ours->leader) == 0 &&
           name_set_eq(&there->members, &ours->members) &&
           (there->established || !ours->established);
}

static const struct repl_record *known(const struct view *v, uint32_t shard)
{
    return shard < v->slots_len && v->slots[shard]->known ? &v->slots[shard]->record : NULL;
}

static void less(struct verdict *ret, const char *what, uint64_t there, uint64_t here)
{
    if (ret->is != JUDGED_RIGHT)
        return;
    ret->is = JUDGED_LESS;
    (void)err_set(&ret->why, ERR_CONFLICT,
                  "etcd knows less of this cluster than this node, as after a restore of an old "
                  "backup: %s %" PRIu64 " there, %" PRIu64 " here",
                  what, there, here);
}

/* The service's map was changed since by a process that knew less. */
static void lacks(struct verdict *ret, const struct map *there, const struct map *here,
                  const struct map_whose *w)
{
    if (ret->is != JUDGED_RIGHT)
        return;
    ret->is = JUDGED_LESS;
    (void)err_set(&ret->why, ERR_CONFLICT,
                  "etcd knows less of this cluster than this node, as after a restore of an old "
                  "backup that was in use since: map %" PRIu64
                  " there lacks places that map %" PRIu64 " here has (%s%.*s%s%.*s)",
                  there->version, here->version, w->tenant.len ? "tenant " : "all tenants",
                  STR_ARG(str_sub(w->tenant, 0, 60)), w->service.len ? ", service " : "",
                  STR_ARG(str_sub(w->service, 0, 60)));
}

/* The same by what others told, of what this node does not know itself. */
static void less_than_told(struct verdict *ret, const char *what, uint64_t there, uint64_t told)
{
    if (ret->is != JUDGED_RIGHT || there >= told)
        return;
    ret->is = JUDGED_LESS;
    (void)err_set(&ret->why, ERR_CONFLICT,
                  "etcd knows less of this cluster than other nodes, as after a restore of an old "
                  "backup: %s %" PRIu64 " there, %" PRIu64 " as they say",
                  what, there, told);
}

bool view_told_more(const struct view *v)
{
    if (v->told_map > (v->map ? v->map->version : 0))
        return true;
    for (uint32_t i = 0; i < v->slots_len; i++)
        if (v->slots[i]->told > (v->slots[i]->known ? v->slots[i]->record.term : 0))
            return true;
    return false;
}

static void judge_map(const struct view *v, const struct coord_kv *kv, struct verdict *ret)
{
    struct map_whose w;
    const struct map *m;
    struct err e;

    if (map_parse("map", kv->value, false, &m, &e))
        return;
    for (size_t i = 0; i < m->nodes_len; i++)
        ret->nodes += m->nodes[i].state == MAP_ACTIVE;
    if (v->map && m->version < v->map->version)
        less(ret, "map", m->version, v->map->version);
    else if (v->map && !map_keeps_steps(m, v->map, &w))
        lacks(ret, m, v->map, &w);
    less_than_told(ret, "map", m->version, v->told_map);
    map_unref(m);
}

static void judge_record(const struct view *v, uint32_t shard, const struct coord_kv *kv,
                         struct verdict *ret)
{
    const struct repl_record *ours = known(v, shard);
    struct repl_record there;
    char what[64];
    struct err e;

    if (record_parse(kv->value, &there, &e))
        return;
    (void)snprintf(what, sizeof(what), "shard %" PRIu32 " is of term", shard);
    if (shard < v->slots_len)
        less_than_told(ret, what, there.term, v->slots[shard]->told);
    if (!ours || record_goes_on(ours, &there))
        return;
    (void)snprintf(what, sizeof(what), "shard %" PRIu32 " is of %sterm", shard,
                   there.term == ours->term ? "another " : "");
    less(ret, what, there.term, ours->term);
}

static void judge_missing(const struct view *v, const bool *there, struct verdict *ret)
{
    char what[64];

    for (uint32_t i = 0; i < v->slots_len; i++) {
        if (there[i])
            continue;
        (void)snprintf(what, sizeof(what), "shard %" PRIu32 " has no record, term", i);
        if (v->slots[i]->known)
            less(ret, what, 0, v->slots[i]->record.term);
        less_than_told(ret, what, 0, v->slots[i]->told);
    }
}

/* Judges the state as a whole, after its keys. */
static void judge_whole(const struct view *v, struct verdict *ret)
{
    if (!v->map)
        return;
    if (!ret->map) {
        ret->is = JUDGED_EMPTY;
        (void)err_set(&ret->why, ERR_CONFLICT,
                      "etcd has no map of a cluster, while this node knows one of version %" PRIu64
                      ": it is empty, or cluster.etcd_prefix is another one",
                      v->map->version);
    } else if (v->cluster[0] && strcmp(v->cluster, ret->id) != 0) {
        ret->is = JUDGED_OTHER;
        (void)err_set(&ret->why, ERR_CONFLICT,
                      "etcd holds another cluster (%s) than this node's (%s)",
                      ret->id[0] ? ret->id : "one without an id", v->cluster);
    }
}

void view_check_history(const struct view *v, struct str prefix, int64_t map_rev,
                        const struct coord_kv *kvs, size_t n, struct verdict *ret)
{
    bool *there = XNEW_ARRAY(bool, MAX(v->slots_len, 1));
    struct err e;

    *ret = (struct verdict){ .is = JUDGED_RIGHT };
    for (size_t i = 0; i < n; i++) {
        struct str node;
        uint32_t shard;

        switch (key_parse(prefix, kvs[i].key, &shard, &node)) {
        case KEY_CLUSTER:
            if (cluster_id_parse(kvs[i].value, ret->id, &e))
                ret->id[0] = '\0';
            break;
        case KEY_MAP:
            ret->map = true;
            if (!map_rev || kvs[i].mod_rev != map_rev)
                judge_map(v, &kvs[i], ret);
            break;
        case KEY_SHARD:
            if (shard >= v->slots_len)
                break;
            there[shard] = true;
            if (!map_rev || kvs[i].mod_rev != v->slots[shard]->rev)
                judge_record(v, shard, &kvs[i], ret);
            break;
        case KEY_LIVE:
            ret->lives++;
            break;
        case KEY_STATE:
        case KEY_OTHER:
            break;
        }
    }
    judge_missing(v, there, ret);
    judge_whole(v, ret);
    xfree(there);
}

bool view_judge_one(const struct view *v, struct str prefix, const struct coord_kv *kv)
{
    struct verdict said = { .is = JUDGED_RIGHT };
    char id[CLUSTER_ID_LEN + 1];
    struct str node;
    uint32_t shard;
    struct err e;

    switch (key_parse(prefix, kv->key, &shard, &node)) {
    case KEY_CLUSTER:
        return !v->cluster[0] || (!kv->deleted && cluster_id_parse(kv->value, id, &e) == 0 &&
                                  strcmp(id, v->cluster) == 0);
    case KEY_MAP:
        if (kv->deleted)
            return !v->map;
        judge_map(v, kv, &said);
        return said.is == JUDGED_RIGHT;
    case KEY_SHARD:
        if (kv->deleted)
            return !known(v, shard);
        judge_record(v, shard, kv, &said);
        return said.is == JUDGED_RIGHT;
    case KEY_LIVE:
    case KEY_STATE:
    case KEY_OTHER:
        break;
    }
    return true;
}
