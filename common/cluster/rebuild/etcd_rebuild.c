/* SPDX-License-Identifier: Apache-2.0
 *
 * recover: look at the keys, write the next that are missing, look again.
 *
 *   ring/ ──> begun/ ──> judge ──┬─ id ──> look again
 *                                ├─ records and notes, some at a time ──> look again
 *                                ├─ map ──> look again
 *                                └─ nothing is missing ──> done
 *
 * The id is first: a node with an empty folder that would begin a new cluster in the empty service
 * creates it together with its map, and fails once the id exists. The map is last: before it exists
 * no process believes the service (view.h, view_stranger), so none acts on half of the records.
 * Each write compares the id, and the revision of the key that it replaces.
 */
#include "common/cluster/rebuild/etcd_rebuild.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/map/map_pending.h"

#define LOOKS_MAX   64
#define ONCE        (COORD_TXN_MAX - 1) /* changes in one transaction; the id is compared, too */
#define CONCERNED   (3 * RECORD_SET_MAX)
#define SHOWN       8
#define BEGUN_VALUE "recovered" /* no process takes it for its own: replicas_cluster.c */

struct shard { /* as of the last look */
    enum etcd_rebuild_is is;
    int64_t rev;
    uint64_t noted; /* bits of concerned() */
};
struct batch {
    struct coord_compare cmp[COORD_TXN_MAX];
    struct coord_change chg[COORD_TXN_MAX];
    struct coord_key keys[COORD_TXN_MAX];
    struct buf text[COORD_TXN_MAX];
    size_t len;
};
struct recovering {
    struct etcd_rebuild_opts o;
    struct cluster_dump k;
    char *prefix; /* owned */
    struct coord_key ring, begun, id_key, map_key;
    struct etcd_rebuild_found found;
    struct shard *shards; /* owned */
    uint32_t at;          /* the next shard of a round of writes */
    int64_t id_rev, map_rev;
    uint64_t map_version;
    enum etcd_rebuild_is map;
    uint32_t looks;
};

/* ---- whom a record counts on ----------------------------------------------------------------- */

static size_t add_names(const struct name_set *s, const char **names, size_t n)
{
    for (uint32_t i = 0; i < s->len; i++) {
        bool there = false;

        for (size_t k = 0; k < n; k++)
            there |= strcmp(names[k], s->names[i]) == 0;
        if (!there)
            names[n++] = s->names[i];
    }
    return n;
}

/* The nodes that get a note: their logs have begun, or may have, except logs known to be fresh. A
 * note for a log that has not begun costs that node a restart as a learner; a missing note for a
 * log that has begun may lose writes that it acked. */
static size_t concerned(const struct repl_record *r, const char *names[CONCERNED])
{
    size_t n = add_names(&r->members, names, 0);

    n = add_names(&r->learners, names, n);
    return add_names(&r->prev_members, names, n);
}

/* ---- the keys of the service ----------------------------------------------------------------- */

static enum etcd_rebuild_is compare_map(const struct recovering *v, const struct map *there)
{
    struct map_whose lacks;
    struct buf one, two;

    if (there->version < v->k.map->version)
        return ETCD_REBUILD_BEHIND;
    if (there->version > v->k.map->version)
        return map_keeps_steps(there, v->k.map, &lacks) ? ETCD_REBUILD_AHEAD : ETCD_REBUILD_DIFFERS;
    buf_init(&one, MAP_BYTES_MAX * 2);
    buf_init(&two, MAP_BYTES_MAX * 2);
    map_write(there, &one);
    map_write(v->k.map, &two);
    bool same = str_eq(buf_str(&one), buf_str(&two));
    buf_deinit(&one);
    buf_deinit(&two);
    return same ? ETCD_REBUILD_SAME : ETCD_REBUILD_DIFFERS;
}

static bool says_the_same(const struct repl_record *there, const struct repl_record *ours)
{
    return there->term == ours->term && strcmp(there->leader, ours->leader) == 0 &&
           name_set_eq(&there->members, &ours->members) &&
           (there->established || ours->established ||
            name_set_eq(&there->prev_members, &ours->prev_members));
}

/* A record of the service beyond the term that the nodes knew is newer than theirs, although the
 * record to be written has a higher term. */
static enum etcd_rebuild_is compare_record(const struct repl_record *there,
                                           const struct cluster_dump_shard *s)
{
    uint64_t known = s->seen ? s->seen : s->record.term;

    if (says_the_same(there, &s->record))
        return s->record.established && !there->established ? ETCD_REBUILD_BEHIND
                                                            : ETCD_REBUILD_SAME;
    if (there->term > known)
        return ETCD_REBUILD_AHEAD;
    return there->term < known || s->seen ? ETCD_REBUILD_BEHIND : ETCD_REBUILD_DIFFERS;
}

static int see_map(struct recovering *v, const struct coord_kv *kv, struct err *e)
{
    const struct map *m;
    int code = 0;

    v->map_rev = kv->mod_rev;
    if (map_parse("map", kv->value, false, &m, e))
        return err_wrap(e, "%s cannot be read, remove that key", v->map_key.text);
    v->map_version = m->version;
    if (m->shards != v->k.map->shards)
        code = err_set(e, ERR_CONFLICT,
                       "etcd holds another cluster below %s: %" PRIu32
                       " shards, and the nodes keep %" PRIu32,
                       v->prefix, m->shards, v->k.map->shards);
    else
        v->map = compare_map(v, m);
    map_unref(m);
    return code;
}

static int see_record(struct recovering *v, uint32_t shard, const struct coord_kv *kv,
                      struct err *e)
{
    struct repl_record r;

    if (shard >= v->k.map->shards)
        return err_set(e, ERR_CONFLICT,
                       "etcd holds another cluster below %s: it has a shard %" PRIu32
                       ", and the nodes' has %" PRIu32,
                       v->prefix, shard, v->k.map->shards);
    if (record_parse(kv->value, &r, e))
        return err_wrap(e, "%.*s cannot be read, remove that key", STR_ARG(kv->key));
    v->shards[shard].rev = kv->mod_rev;
    v->shards[shard].is =
        v->k.shards[shard].known ? compare_record(&r, &v->k.shards[shard]) : ETCD_REBUILD_AHEAD;
    return 0;
}

static int see_id(struct recovering *v, const struct coord_kv *kv, struct err *e)
{
    char id[CLUSTER_ID_LEN + 1];

    v->id_rev = kv->mod_rev;
    if (cluster_id_parse(kv->value, id, e))
        return err_wrap(e, "%s cannot be read, remove that key", v->id_key.text);
    if (strcmp(id, v->k.cluster) == 0)
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "etcd holds another cluster below %s (%s; the nodes keep %s). If it was begun "
                   "in the empty etcd by mistake, stop its processes, remove its keys (etcdctl "
                   "del --prefix %s/) and repeat this; else look at cluster.etcd and "
                   "cluster.etcd_prefix",
                   v->prefix, id, v->k.cluster[0] ? v->k.cluster : "one without an id", v->prefix);
}

static int see_ring(struct recovering *v, const struct coord_reply *r, struct err *e)
{
    int code = 0;

    v->id_rev = v->map_rev = 0;
    v->map_version = 0;
    v->map = ETCD_REBUILD_ABSENT;
    for (uint32_t i = 0; i < v->k.map->shards; i++)
        v->shards[i] =
            (struct shard){ .is = v->k.shards[i].known ? ETCD_REBUILD_ABSENT : ETCD_REBUILD_SAME };
    for (size_t i = 0; i < r->kvs_len && !code; i++) {
        const struct coord_kv *kv = &r->kvs[i];
        struct str node;
        uint32_t shard;

        switch (key_parse(str_c(v->prefix), kv->key, &shard, &node)) {
        case KEY_CLUSTER:
            code = see_id(v, kv, e);
            break;
        case KEY_MAP:
            code = see_map(v, kv, e);
            break;
        case KEY_SHARD:
            code = see_record(v, shard, kv, e);
            break;
        case KEY_LIVE:
        case KEY_STATE:
        case KEY_OTHER:
            break;
        }
    }
    return code;
}

static void see_note(struct recovering *v, struct str key)
{
    const char *names[CONCERNED];
    struct str rest = str_sub(key, v->begun.len, key.len);
    ptrdiff_t slash = str_find(rest, '/');
    uint64_t shard;
    size_t n;

    if (slash != 4 || !str_u64(str_sub(rest, 0, 4), &shard) || shard >= v->k.map->shards ||
        !v->k.shards[shard].known)
        return;
    rest = str_sub(rest, 5, rest.len);
    n = concerned(&v->k.shards[shard].record, names);
    for (size_t i = 0; i < n; i++)
        if (str_eqc(rest, names[i]))
            v->shards[shard].noted |= UINT64_C(1) << i;
}

static uint64_t notes_wanted(const struct recovering *v, uint32_t shard)
{
    const char *names[CONCERNED];

    uint64_t wanted = 0;
    size_t n;

    if (!v->k.shards[shard].known)
        return 0;
    n = concerned(&v->k.shards[shard].record, names);
    for (size_t i = 0; i < n; i++)
        if (!name_set_has(&v->k.shards[shard].fresh, names[i]))
            wanted |= UINT64_C(1) << i;
    return wanted;
}

/* ---- judging --------------------------------------------------------------------------------- */

static void list_differing(const struct recovering *v, struct buf *out)
{
    uint32_t n = 0;

    if (v->map == ETCD_REBUILD_DIFFERS)
        (void)buf_addf(out, " map");
    for (uint32_t i = 0; i < v->k.map->shards; i++)
        if (v->shards[i].is == ETCD_REBUILD_DIFFERS && n++ < SHOWN)
            (void)buf_addf(out, " %" PRIu32, i);
    if (n > SHOWN)
        (void)buf_addf(out, " and %" PRIu32 " more", n - SHOWN);
}

/* A cluster that had its id never lost it but with all that came later: what is without one and yet
 * newer somewhere did not come out of what the nodes keep. */
static int check_without_id(const struct recovering *v, struct err *e)
{
    bool newer = v->map == ETCD_REBUILD_AHEAD || v->map == ETCD_REBUILD_DIFFERS;

    for (uint32_t i = 0; i < v->k.map->shards; i++)
        newer |= v->shards[i].is == ETCD_REBUILD_AHEAD || v->shards[i].is == ETCD_REBUILD_DIFFERS;
    if (!newer || v->id_rev || !v->k.cluster[0])
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "etcd holds another cluster below %s: it has no id, and in part is newer than "
                   "the nodes' records. If it was begun in the empty etcd by mistake, stop "
                   "its processes, remove its keys (etcdctl del --prefix %s/) and repeat this",
                   v->prefix, v->prefix);
}

static int check_differing(const struct recovering *v, struct err *e)
{
    struct buf list;
    int code = 0;

    buf_init(&list, 4 * KIB);
    list_differing(v, &list);
    if (list.len && !v->o.look)
        code = err_set(e, ERR_CONFLICT,
                       "etcd says something else of the same terms or version than the nodes:%.*s; "
                       "embertreectl cluster recover gives them new ones: repeat it",
                       STR_ARG(buf_str(&list)));
    buf_deinit(&list);
    return code;
}

static void note_found(struct recovering *v)
{
    v->found.map = v->map;
    v->found.map_version = v->map_version;
    v->found.id = !v->id_rev && v->k.cluster[0];
    for (uint32_t i = 0; i < v->k.map->shards; i++) {
        v->found.shards[i] = v->shards[i].is;
        v->found.notes += (uint32_t)__builtin_popcountll(notes_wanted(v, i) & ~v->shards[i].noted);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void look(struct recovering *v);
static void write_some(struct recovering *v);

static void finish(struct recovering *v, const struct err *e)
{
    v->o.done(v->o.cookie, v->looks ? &v->found : NULL, e);
    cluster_dump_deinit(&v->k);
    xfree(v->found.shards);
    xfree(v->shards);
    xfree(v->prefix);
    xfree(v);
}

static void on_written(void *cookie, const struct coord_reply *r)
{
    struct recovering *v = cookie;

    if (r->err)
        finish(v, r->err);
    else if (!r->done || v->at == v->k.map->shards)
        look(v);
    else
        write_some(v);
}

/* The id is still what was read: this is the cluster that was judged. */
static void compare_id(const struct recovering *v, struct coord_compare *ret)
{
    *ret = (struct coord_compare){ .key = key_str(&v->id_key), .rev = v->id_rev };
}

static void write_id(struct recovering *v)
{
    struct coord_compare cmp[2] = { { .key = key_str(&v->map_key), .rev = v->map_rev } };
    struct coord_change chg = { .key = key_str(&v->id_key) };
    struct buf text;

    compare_id(v, &cmp[1]);
    buf_init(&text, KIB);
    cluster_id_write(v->k.cluster, &text);
    chg.value = buf_str(&text);
    v->at = v->k.map->shards;
    coord_txn(v->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
              on_written, v);
    buf_deinit(&text);
}

static void write_map(struct recovering *v)
{
    struct coord_compare cmp[2] = { { .key = key_str(&v->map_key), .rev = v->map_rev } };
    struct coord_change chg = { .key = key_str(&v->map_key) };
    struct buf text;
    struct err e;

    compare_id(v, &cmp[1]);
    buf_init(&text, COORD_VALUE_MAX);
    map_write(v->k.map, &text);
    chg.value = buf_str(&text);
    v->at = v->k.map->shards;
    if (buf_ok(&text)) {
        coord_txn(v->o.coord,
                  &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 },
                  on_written, v);
    } else {
        (void)err_set(&e, ERR_LIMIT, "the map takes more than %zu bytes", (size_t)COORD_VALUE_MAX);
        finish(v, &e);
    }
    buf_deinit(&text);
}

static struct buf *put(struct batch *b, const struct coord_key *key, int64_t rev)
{
    size_t n = b->len++;

    b->keys[n] = *key;
    b->cmp[n] = (struct coord_compare){ .key = key_str(&b->keys[n]), .rev = rev };
    buf_init(&b->text[n], RECORD_BYTES_MAX);
    return &b->text[n];
}

static void put_shard(const struct recovering *v, uint32_t shard, struct batch *b)
{
    const struct shard *s = &v->shards[shard];
    const struct repl_record *r = &v->k.shards[shard].record;
    struct coord_key key = key_shard(str_c(v->prefix), shard);
    uint64_t wanted = notes_wanted(v, shard) & ~s->noted;
    const char *names[CONCERNED];

    if (s->is == ETCD_REBUILD_ABSENT || s->is == ETCD_REBUILD_BEHIND)
        record_write(r, put(b, &key, s->rev));
    (void)concerned(r, names);
    for (size_t i = 0; i < CONCERNED; i++) {
        if (!(wanted >> i & 1))
            continue;
        key = key_begun(str_c(v->prefix), shard, names[i]);
        (void)buf_add_str(put(b, &key, 0), STR(BEGUN_VALUE));
    }
}

/* How many changes a shard needs. */
static size_t missing(const struct recovering *v, uint32_t shard)
{
    const struct shard *s = &v->shards[shard];

    return (size_t)(s->is == ETCD_REBUILD_ABSENT || s->is == ETCD_REBUILD_BEHIND) +
           (size_t)__builtin_popcountll(notes_wanted(v, shard) & ~s->noted);
}

static void write_some(struct recovering *v)
{
    struct batch *b = XNEW(struct batch);

    for (; v->at < v->k.map->shards && b->len + missing(v, v->at) <= ONCE; v->at++)
        if (v->k.shards[v->at].known)
            put_shard(v, v->at, b);
    for (size_t i = 0; i < b->len; i++)
        b->chg[i] = (struct coord_change){ .key = b->cmp[i].key, .value = buf_str(&b->text[i]) };
    compare_id(v, &b->cmp[b->len]);
    if (b->len)
        coord_txn(v->o.coord,
                  &(struct coord_txn){
                      .cmp = b->cmp, .cmp_len = b->len + 1, .chg = b->chg, .chg_len = b->len },
                  on_written, v);
    for (size_t i = 0; i < b->len; i++)
        buf_deinit(&b->text[i]);
    if (!b->len) /* nothing of the rest is missing */
        look(v);
    xfree(b);
}

/* ---- looking --------------------------------------------------------------------------------- */

static bool shards_missing(const struct recovering *v)
{
    for (uint32_t i = 0; i < v->k.map->shards; i++)
        if (missing(v, i))
            return true;
    return false;
}

static void go_on(struct recovering *v)
{
    struct err e;

    if (!v->looks++)
        note_found(v);
    v->at = 0;
    if (check_without_id(v, &e) || check_differing(v, &e)) {
        finish(v, &e);
    } else if (v->o.look) {
        finish(v, NULL);
    } else if (v->looks == LOOKS_MAX) {
        (void)err_set(&e, ERR_BUSY, "keys below %s change all the time; try again", v->prefix);
        finish(v, &e);
    } else if (!v->id_rev && v->k.cluster[0]) {
        write_id(v);
    } else if (shards_missing(v)) {
        write_some(v);
    } else if (v->map == ETCD_REBUILD_ABSENT || v->map == ETCD_REBUILD_BEHIND) {
        write_map(v);
    } else {
        finish(v, NULL);
    }
}

static void on_begun(void *cookie, const struct coord_reply *r)
{
    struct recovering *v = cookie;

    if (r->err) {
        finish(v, r->err);
        return;
    }
    for (size_t i = 0; i < r->kvs_len; i++)
        see_note(v, r->kvs[i].key);
    go_on(v);
}

static void on_ring(void *cookie, const struct coord_reply *r)
{
    struct recovering *v = cookie;
    struct err e;

    if (r->err)
        finish(v, r->err);
    else if (see_ring(v, r, &e))
        finish(v, &e);
    else
        coord_list(v->o.coord, key_str(&v->begun), on_begun, v);
}

static void look(struct recovering *v)
{
    coord_list(v->o.coord, key_str(&v->ring), on_ring, v);
}

void cluster_recover(const struct etcd_rebuild_opts *o)
{
    struct recovering *v = XNEW(struct recovering);
    char key[COORD_KEY_MAX + 1];

    CHECK(o->what->map);
    v->o = *o;
    v->k = *o->what;
    *o->what = (struct cluster_dump){ .map = NULL };
    v->prefix = xstrdup(o->prefix);
    v->ring = key_ring(str_c(v->prefix));
    v->id_key = key_cluster(str_c(v->prefix));
    v->map_key = key_map(str_c(v->prefix));
    (void)snprintf(key, sizeof(key), "%s/begun/", v->prefix);
    memcpy(v->begun.text, key, strlen(key) + 1);
    v->begun.len = strlen(key);
    v->shards = XNEW_ARRAY(struct shard, v->k.map->shards);
    v->found.shards = XNEW_ARRAY(enum etcd_rebuild_is, v->k.map->shards);
    look(v);
}
