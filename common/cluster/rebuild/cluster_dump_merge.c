/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_dump_join: merges dumps, one after the other.
 *
 * A dump is merged into `all` and not stored: of a thousand nodes each knows everything, so memory
 * for all dumps would be a thousand times the size of one. The result is complete only after
 * cluster_dump_merge_end, which raises the terms of shards whose logs promised more than any
 * record.
 */
#include "common/cluster/rebuild/cluster_dump_merge.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"

struct name {
    char text[NODE_NAME_MAX + 1];
};
struct cluster_dump_join {
    struct cluster_dump all;
    bool first;           /* one has been taken */
    bool *untold;         /* owned; by shard: a member did not say what its log has promised */
    enum kept_why *why;   /* owned; by shard */
    VEC(struct name) ans; /* the nodes that answered */
};

struct cluster_dump_join *cluster_dump_merge_new(void)
{
    return XNEW(struct cluster_dump_join);
}

void cluster_dump_merge_free(struct cluster_dump_join *j)
{
    if (!j)
        return;
    cluster_dump_deinit(&j->all);
    vec_free(&j->ans);
    xfree(j->untold);
    xfree(j->why);
    xfree(j);
}

/* ---- does it go with the others? ------------------------------------------------------------- */

static bool maps_eq(const struct map *a, const struct map *b)
{
    struct buf one, two;

    buf_init(&one, MAP_BYTES_MAX * 2);
    buf_init(&two, MAP_BYTES_MAX * 2);
    map_write(a, &one);
    map_write(b, &two);
    bool same = buf_ok(&one) && buf_ok(&two) && str_eq(buf_str(&one), buf_str(&two));
    buf_deinit(&one);
    buf_deinit(&two);
    return same;
}

static int check_maps(const struct cluster_dump *all, const struct cluster_dump *k,
                      const char *from, struct err *e)
{
    if (strcmp(all->cluster, k->cluster) != 0)
        return err_set(e, ERR_CONFLICT,
                       "%.100s keeps cluster %s, and those asked before keep %s: ask the nodes of "
                       "one cluster only",
                       from, k->cluster[0] ? k->cluster : "without an id",
                       all->cluster[0] ? all->cluster : "one without an id");
    if (all->map->shards != k->map->shards ||
        (all->map->version == k->map->version && !maps_eq(all->map, k->map)))
        return err_set(e, ERR_CONFLICT,
                       "%.100s keeps another map (version %" PRIu64 ", %" PRIu32
                       " shards) than those asked before (version %" PRIu64 ", %" PRIu32
                       "): it is not of this cluster",
                       from, k->map->version, k->map->shards, all->map->version, all->map->shards);
    return 0;
}

/* Of one term there is one leader and one set of members. */
static bool records_agree(const struct repl_record *a, const struct repl_record *b)
{
    return a->term != b->term ||
           (strcmp(a->leader, b->leader) == 0 && name_set_eq(&a->members, &b->members));
}

static int check(const struct cluster_dump_join *j, const struct cluster_dump *k, const char *from,
                 struct err *e)
{
    int code = j->first ? check_maps(&j->all, k, from, e) : 0;

    for (uint32_t i = 0; !code && j->first && i < k->map->shards; i++) {
        const struct cluster_dump_shard *a = &j->all.shards[i], *b = &k->shards[i];

        if (a->known && b->known && !records_agree(&a->record, &b->record))
            code = err_set(e, ERR_CONFLICT,
                           "shard %" PRIu32 ", term %" PRIu64
                           ": %.100s says that %s leads, and those asked before say %s, or they "
                           "have other members; it is not of this cluster",
                           i, b->record.term, from, b->record.leader, a->record.leader);
    }
    return code;
}

/* ---- taking it ------------------------------------------------------------------------------- */

static void take_map(struct cluster_dump_join *j, const struct cluster_dump *k)
{
    if (!j->first) {
        cluster_dump_init(&j->all, map_ref(k->map));
        memcpy(j->all.cluster, k->cluster, sizeof(j->all.cluster));
        j->untold = XNEW_ARRAY(bool, k->map->shards);
        j->why = XNEW_ARRAY(enum kept_why, k->map->shards);
        j->first = true;
    } else if (k->map->version > j->all.map->version) {
        map_unref(j->all.map);
        j->all.map = map_ref(k->map);
    }
}

static void take_shard(struct cluster_dump_join *j, const struct cluster_dump *k, uint32_t shard)
{
    struct cluster_dump_shard *a = &j->all.shards[shard];
    const struct cluster_dump_shard *b = &k->shards[shard];

    if (b->known &&
        (!a->known || b->record.term > a->record.term ||
         (b->record.term == a->record.term && b->record.established && !a->record.established)))
        a->record = b->record;
    bool fresh = k->keeps && !b->promised && name_set_has(&b->fresh, k->node);

    a->known |= b->known;
    a->promised = MAX(a->promised, b->promised);
    if (fresh)
        (void)name_set_add(&a->fresh, k->node);
    j->untold[shard] |= k->keeps && b->known && !b->promised && !fresh &&
                        (name_set_has(&b->record.members, k->node) ||
                         name_set_has(&b->record.prev_members, k->node));
}

int cluster_dump_merge_add(struct cluster_dump_join *j, const struct cluster_dump *k,
                           const char *from, struct err *e)
{
    struct name n;

    if (!k->map)
        return 0;
    if (check(j, k, from, e))
        return e->code;
    take_map(j, k);
    for (uint32_t i = 0; i < k->map->shards; i++)
        take_shard(j, k, i);
    if (k->keeps && k->node[0] && !cluster_dump_merge_answered(j, k->node)) {
        memcpy(n.text, k->node, sizeof(n.text));
        vec_push(&j->ans, n);
    }
    return 0;
}

/* ---- the nodes that answered ----------------------------------------------------------------- */

bool cluster_dump_merge_answered(const struct cluster_dump_join *j, const char *node)
{
    vec_for (i, &j->ans)
        if (strcmp(j->ans.ptr[i].text, node) == 0)
            return true;
    return false;
}

size_t cluster_dump_merge_answers(const struct cluster_dump_join *j)
{
    return j->ans.len;
}

const char *cluster_dump_merge_missing(const struct cluster_dump_join *j, size_t n)
{
    for (size_t i = 0; j->all.map && i < j->all.map->nodes_len; i++) {
        const struct map_node *node = &j->all.map->nodes[i];

        if (node->state != MAP_LEFT && !cluster_dump_merge_answered(j, node->name) && n-- == 0)
            return node->name;
    }
    return NULL;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The leader if it answered, else a member that answered, if any did. */
static const char *leader_of(const struct cluster_dump_join *j, const struct repl_record *r)
{
    for (uint32_t i = 0; !cluster_dump_merge_answered(j, r->leader) && i < r->members.len; i++)
        if (cluster_dump_merge_answered(j, r->members.names[i]))
            return r->members.names[i];
    return r->leader;
}

static void renew(struct cluster_dump_join *j, uint32_t shard, uint64_t term, enum kept_why why)
{
    struct cluster_dump_shard *s = &j->all.shards[shard];
    struct repl_record *r = &s->record, next;

    if (!s->seen)
        s->seen = r->term;
    record_next_leader(r, leader_of(j, r), &next);
    next.term = term;
    *r = next;
    j->why[shard] = why;
}

int cluster_dump_merge_end(struct cluster_dump_join *j, const struct cluster_dump **ret,
                           struct err *e)
{
    if (!j->all.map)
        return err_set(e, ERR_NOT_FOUND,
                       "none of the processes that answered has a map of the cluster: ask the "
                       "ingesters, with their previous data folders");
    for (uint32_t i = 0; i < j->all.map->shards; i++) {
        const struct cluster_dump_shard *s = &j->all.shards[i];

        if (s->known && s->promised > s->record.term)
            renew(j, i, s->promised + 1, KEPT_PROMISED);
    }
    *ret = &j->all;
    return 0;
}

void cluster_dump_merge_lost(struct cluster_dump_join *j)
{
    bool missing = cluster_dump_merge_missing(j, 0) != NULL;

    for (uint32_t i = 0; i < j->all.map->shards; i++)
        if (j->all.shards[i].known && (missing || j->untold[i]))
            renew(j, i, j->all.shards[i].record.term + KEPT_LEAP,
                  missing ? KEPT_MISSING : KEPT_UNTOLD);
}

enum kept_why cluster_dump_merge_why(const struct cluster_dump_join *j, uint32_t shard)
{
    return j->why[shard];
}

int cluster_dump_merge_differs(struct cluster_dump_join *j, uint32_t shard, uint64_t map_version,
                               struct err *e)
{
    const struct map *next;
    struct map from;

    if (shard < CLUSTER_SHARDS_MAX) {
        CHECK(shard < j->all.map->shards && j->all.shards[shard].known);
        renew(j, shard, j->all.shards[shard].record.term + KEPT_LEAP, KEPT_DIFFERS);
        return 0;
    }
    from = *j->all.map;
    from.version = MAX(from.version, map_version) + 1;
    if (map_new(&from, &next, e))
        return e->code;
    map_unref(j->all.map);
    j->all.map = next;
    return 0;
}
