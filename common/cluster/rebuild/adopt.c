/* SPDX-License-Identifier: Apache-2.0
 *
 * adopt: look at everything below the prefix, make the next thing that is missing, look again.
 *
 *   plan ──> our number ──> records, some at a time ──> map, with the cluster's id ──> done
 *
 * Each of these writes requires that its key does not exist, so two processes that do it at once do
 * it once, and the next run continues where a dead one stopped. The map is last: before it exists
 * no controller names replicas, so no process can begin a shard of the plan empty. The first write
 * compares that there is no map: a cluster that exists is never touched.
 *
 * All nodes of the plan know the same places, if each has restored them from one bucket. A map that
 * exists must have the places that we know, or queries would not ask for our data.
 *
 * A record that exists and differs from the plan's has two possible reasons: a node has begun to
 * serve the shard since (through adopt: then all was done before), or the keys were written by
 * hand.
 */
#include "common/cluster/rebuild/adopt.h"

#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/placement_history.h"

#define STEPS_MAX    (CLUSTER_SHARDS_MAX / RECORDS_ONCE + 64)
#define PLAN_BYTES   (128 * KIB)
#define RECORDS_ONCE 32

struct adopt {
    struct adopt_opts o;
    char *prefix; /* owned */
    char self[NODE_NAME_MAX + 1];
    char cluster_id[CLUSTER_ID_LEN + 1];
    char (*names)[NODE_NAME_MAX + 1]; /* owned */
    const char **nodes;               /* owned; into names */
    struct coord_key plan_key, id_key, from_key;
    char *folder; /* owned */
    char all[KEY_PREFIX_MAX + 2];
    uint32_t steps;
    void (*done)(void *cookie, const struct err *e);
    void *cookie;
};

void adopt_plan_write(const struct adopt_plan *p, struct buf *out)
{
    struct json j;

    json_init(&j, out);
    json_obj(&j);
    json_put_u64(&j, "shards", p->shards);
    json_put_u64(&j, "replicas", p->replicas);
    json_key(&j, "nodes");
    json_arr(&j);
    for (size_t i = 0; i < p->nodes_len; i++)
        json_cstr(&j, p->nodes[i]);
    json_arr_end(&j);
    json_obj_end(&j);
}

bool adopt_plan_is(const struct adopt_plan *p, struct str text)
{
    struct buf mine;

    buf_init(&mine, PLAN_BYTES);
    adopt_plan_write(p, &mine);
    bool same = buf_ok(&mine) && str_eq(buf_str(&mine), text);
    buf_deinit(&mine);
    return same;
}

static void finish(struct adopt *a, const struct err *e)
{
    a->done(a->cookie, e);
    map_unref(a->o.places);
    xfree(a->names);
    xfree(a->nodes);
    xfree(a->prefix);
    xfree(a->folder);
    xfree(a);
}

static const char *owner(const struct adopt *a, uint32_t shard)
{
    return a->nodes[shard % a->o.plan.nodes_len];
}

/* ---- the keys below the prefix --------------------------------------------------------------- */

struct seen {
    const struct coord_kv *plan, *id, *map, *cluster;
    bool any_record;
    uint32_t records;
    bool *record; /* owned; by shard */
};

static int see_record(const struct adopt *a, uint32_t shard, struct str value, struct seen *s,
                      struct err *e)
{
    struct repl_record r;

    if (shard >= a->o.plan.shards)
        return err_set(e, ERR_CONFLICT, "there is a shard %" PRIu32 " already, of %" PRIu32, shard,
                       a->o.plan.shards);
    if (record_parse(value, &r, e))
        return e->code;
    s->record[shard] = true;
    s->records++;
    if (strcmp(owner(a, shard), a->self) != 0 ||
        (r.term == 1 && r.members.len == 1 && strcmp(r.leader, a->self) == 0))
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "shard %" PRIu32 " belongs to the cluster already (term %" PRIu64 ", led by %s)",
                   shard, r.term, r.leader);
}

static void see_keys(const struct adopt *a, const struct coord_reply *r, struct seen *s)
{
    struct coord_key map = key_map(str_c(a->prefix)), shards = key_shards(str_c(a->prefix));
    struct coord_key cluster = key_cluster(str_c(a->prefix));

    for (size_t i = 0; i < r->kvs_len; i++) {
        const struct coord_kv *kv = &r->kvs[i];

        if (str_eq(kv->key, key_str(&a->plan_key)))
            s->plan = kv;
        else if (str_eq(kv->key, key_str(&a->id_key)))
            s->id = kv;
        else if (str_eq(kv->key, key_str(&map)))
            s->map = kv;
        else if (str_eq(kv->key, key_str(&cluster)))
            s->cluster = kv;
        s->any_record |= str_starts(kv->key, key_str(&shards));
    }
}

static int see_records(const struct adopt *a, const struct coord_reply *r, struct seen *s,
                       struct err *e)
{
    int code = 0;

    for (size_t i = 0; i < r->kvs_len && !code; i++) {
        struct str node;
        uint32_t shard;

        if (key_parse(str_c(a->prefix), r->kvs[i].key, &shard, &node) == KEY_SHARD)
            code = see_record(a, shard, r->kvs[i].value, s, e);
    }
    return code;
}

static int judge(const struct adopt *a, const struct seen *s, struct err *e)
{
    char id[20];

    (void)snprintf(id, sizeof(id), "%016" PRIx64, a->o.id);
    if (!s->plan && (s->map || s->any_record))
        return err_set(e, ERR_CONFLICT,
                       "there is a cluster below %s already, and a database that is no copy cannot "
                       "join it; begin a new one under another cluster.etcd_prefix",
                       a->prefix);
    if (s->plan && !adopt_plan_is(&a->o.plan, s->plan->value))
        return err_set(e, ERR_CONFLICT,
                       "this cluster was begun with other settings: %.*s; give the same "
                       "cluster.shards, cluster.replicas and nodes, in the same order",
                       STR_ARG(str_sub(s->plan->value, 0, 200)));
    if (s->id && !str_eq(s->id->value, str_c(id)))
        return err_set(e, ERR_CONFLICT,
                       "another data folder was adopted as node %s before (its node-id is %.*s, "
                       "this one's is %s); give each its own cluster.node",
                       a->self, STR_ARG(str_sub(s->id->value, 0, 16)), id);
    if (a->o.served && !s->id)
        return err_set(
            e, ERR_CONFLICT,
            "%s holds copies that were served in another cluster: they may lack what the "
            "other copies have, and that cluster counts on them. Adopt the folder of a "
            "server without copies, or what `embertree restore` made",
            a->folder);
    return 0;
}

/* ---- what is missing ------------------------------------------------------------------------- */

static int check_map(const struct adopt *a, const struct coord_kv *map, struct err *e)
{
    const struct map *m;
    int code;

    if (!a->o.places)
        return 0;
    if (map_parse("map", map->value, false, &m, e))
        return e->code;
    code = placement_history_cover(m, a->o.places, e);
    map_unref(m);
    return code ? err_wrap(e, "the cluster's map lacks where data are that are in this folder") : 0;
}

static void look(struct adopt *a);

static void on_made(void *cookie, const struct coord_reply *r)
{
    struct adopt *a = cookie;
    struct err e;

    if (r->err) {
        finish(a, r->err);
    } else if (++a->steps > STEPS_MAX) {
        (void)err_set(&e, ERR_BUSY, "keys below %s change all the time; try again", a->prefix);
        finish(a, &e);
    } else {
        look(a); /* done or not: the keys that exist now decide the next step */
    }
}

static void make_plan(struct adopt *a)
{
    struct coord_key map = key_map(str_c(a->prefix));
    struct coord_compare cmp[2] = { { .key = key_str(&a->plan_key) }, { .key = key_str(&map) } };
    struct coord_change chg = { .key = key_str(&a->plan_key) };
    struct buf text;

    buf_init(&text, PLAN_BYTES);
    adopt_plan_write(&a->o.plan, &text);
    chg.value = buf_str(&text);
    coord_txn(a->o.coord,
              &(struct coord_txn){ .cmp = cmp, .cmp_len = 2, .chg = &chg, .chg_len = 1 }, on_made,
              a);
    buf_deinit(&text);
}

static void make_id(struct adopt *a)
{
    struct coord_compare cmp = { .key = key_str(&a->id_key) };
    char id[20];

    (void)snprintf(id, sizeof(id), "%016" PRIx64, a->o.id);
    struct coord_change chg[2] = { { .key = key_str(&a->id_key), .value = str_c(id) },
                                   { .key = key_str(&a->from_key), .value = str_c(a->folder) } };
    coord_txn(a->o.coord,
              &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = chg, .chg_len = 2 }, on_made,
              a);
}

static void make_records(struct adopt *a, const struct seen *s)
{
    struct coord_compare cmp[RECORDS_ONCE];
    struct coord_change chg[RECORDS_ONCE];
    struct coord_key keys[RECORDS_ONCE];
    struct buf text[RECORDS_ONCE];
    size_t n = 0;

    for (uint32_t i = 0; i < a->o.plan.shards && n < RECORDS_ONCE; i++) {
        struct repl_record r = { .term = 1 };

        if (s->record[i])
            continue;
        CHECK(name_set_add(&r.members, owner(a, i)));
        memcpy(r.leader, r.members.names[0], sizeof(r.leader));
        keys[n] = key_shard(str_c(a->prefix), i);
        buf_init(&text[n], RECORD_BYTES_MAX);
        record_write(&r, &text[n]);
        cmp[n] = (struct coord_compare){ .key = key_str(&keys[n]) };
        chg[n] = (struct coord_change){ .key = key_str(&keys[n]), .value = buf_str(&text[n]) };
        n++;
    }
    coord_txn(a->o.coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = n, .chg = chg, .chg_len = n },
              on_made, a);
    for (size_t i = 0; i < n; i++)
        buf_deinit(&text[i]);
}

static int first_map(const struct adopt *a, const struct map **ret, struct err *e)
{
    const struct map plain = { .version = 1,
                               .shards = a->o.plan.shards,
                               .replicas = a->o.plan.replicas };

    return a->o.places ? placement_history_begin(a->o.places, plain.replicas, ret, e)
                       : map_new(&plain, ret, e);
}

static void make_map(struct adopt *a, const struct seen *s)
{
    struct coord_key key = key_map(str_c(a->prefix)), name = key_cluster(str_c(a->prefix));
    struct coord_compare cmp[2] = { { .key = key_str(&key) }, { .key = key_str(&name) } };
    struct buf text, id;
    size_t n = s->cluster ? 1 : 2;
    const struct map *m;
    struct err e;

    if (first_map(a, &m, &e)) {
        finish(a, &e);
        return;
    }
    buf_init(&text, COORD_VALUE_MAX);
    buf_init(&id, KIB);
    map_write(m, &text); /* nodes come into it when they live */
    map_unref(m);
    CHECK(buf_ok(&text)); /* it was one before, with nodes */
    cluster_id_write(a->cluster_id, &id);
    struct coord_change chg[2] = { { .key = key_str(&key), .value = buf_str(&text) },
                                   { .key = key_str(&name), .value = buf_str(&id) } };
    coord_txn(a->o.coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = n, .chg = chg, .chg_len = n },
              on_made, a);
    buf_deinit(&text);
    buf_deinit(&id);
}

static void on_look(void *cookie, const struct coord_reply *r)
{
    struct adopt *a = cookie;
    struct seen s = { 0 };
    struct err e;
    int code;

    if (r->err) {
        finish(a, r->err);
        return;
    }
    s.record = XNEW_ARRAY(bool, a->o.plan.shards);
    see_keys(a, r, &s);
    code = judge(a, &s, &e);
    if (!code)
        code = see_records(a, r, &s, &e);
    if (code)
        finish(a, &e);
    else if (!s.plan)
        make_plan(a);
    else if (!s.id)
        make_id(a);
    else if (s.records < a->o.plan.shards)
        make_records(a, &s);
    else if (!s.map)
        make_map(a, &s);
    else
        finish(a, check_map(a, s.map, &e) ? &e : NULL);
    xfree(s.record);
}

static void look(struct adopt *a)
{
    coord_list(a->o.coord, str_c(a->all), on_look, a);
}

/* ---- life ------------------------------------------------------------------------------------ */

void cluster_adopt(const struct adopt_opts *o, void (*done)(void *cookie, const struct err *e),
                   void *cookie)
{
    struct adopt *a = XNEW(struct adopt);
    size_t n = o->plan.nodes_len;

    CHECK(n > 0 && n <= ADOPT_NODES_MAX && o->plan.shards > 0);
    CHECK(!o->places || o->places->shards == o->plan.shards);
    a->o = *o;
    a->o.places = o->places ? map_ref(o->places) : NULL;
    a->prefix = xstrdup(o->prefix);
    a->done = done;
    a->cookie = cookie;
    a->names = xcalloc(n, sizeof(*a->names));
    a->nodes = xcalloc(n, sizeof(*a->nodes));
    for (size_t i = 0; i < n; i++) {
        CHECK(node_name_ok(str_c(o->plan.nodes[i])));
        (void)snprintf(a->names[i], sizeof(a->names[i]), "%s", o->plan.nodes[i]);
        a->nodes[i] = a->names[i];
    }
    a->o.plan.nodes = a->nodes;
    (void)snprintf(a->self, sizeof(a->self), "%s", o->self);
    (void)snprintf(a->cluster_id, sizeof(a->cluster_id), "%s", o->cluster_id);
    (void)snprintf(a->all, sizeof(a->all), "%s/", a->prefix);
    a->folder = xstrdup(o->folder);
    a->plan_key = key_adopt(str_c(a->prefix));
    a->id_key = key_adopted(str_c(a->prefix), a->self);
    a->from_key = key_adopted_from(str_c(a->prefix), a->self);
    look(a);
}

/* ---- another folder, another name ------------------------------------------------------------ */

bool adopt_untouched(const struct repl_record *rec, const char *self)
{
    return rec->term == 1 && !rec->established && !rec->prev_members.len && rec->members.len == 1 &&
           strcmp(rec->members.names[0], self) == 0;
}

/* The notes of `embertree adopt`: of this node, and of the name for this folder. */
struct noted {
    struct str id, from; /* of this node's name; STR_NULL: nothing is noted */
    struct str name;     /* of the node that this folder is; STR_NULL: it was never adopted */
    bool plan;
};

static struct noted noted(struct str prefix, const struct coord_reply *keys,
                          const struct adopt_folder *f)
{
    struct coord_key plan = key_adopt(prefix), id = key_adopted(prefix, f->self);
    struct coord_key from = key_adopted_from(prefix, f->self), all = key_adopted(prefix, "");
    struct noted n = { .plan = false };
    char mine[20];

    (void)snprintf(mine, sizeof(mine), "%016" PRIx64, f->id);
    for (size_t i = 0; i < keys->kvs_len; i++) {
        const struct coord_kv *kv = &keys->kvs[i];

        n.plan |= str_eq(kv->key, key_str(&plan));
        if (str_eq(kv->key, key_str(&id)))
            n.id = kv->value;
        if (str_eq(kv->key, key_str(&from)))
            n.from = kv->value;
        if (str_starts(kv->key, key_str(&all)) && str_eq(kv->value, str_c(mine)))
            n.name = str_sub(kv->key, all.len, kv->key.len);
    }
    return n;
}

int adopt_check(struct str prefix, const struct coord_reply *keys, const struct adopt_folder *f,
                struct err *e)
{
    struct noted n = noted(prefix, keys, f);
    bool ours = n.name.len && str_eq(n.name, str_c(f->self));
    struct str from = n.from.len ? str_sub(n.from, 0, 200) : STR("a folder");

    if (n.name.len && !ours)
        return err_set(e, ERR_CONFLICT,
                       "data.dir %s was adopted as node %.*s, and cluster.node says %s: under that "
                       "name its data would be missing from answers. Start it with "
                       "--cluster.node=%.*s; a node called %s needs an empty data.dir of its own",
                       f->path, STR_ARG(n.name), f->self, STR_ARG(n.name), f->self);
    if (!n.plan || !f->untouched || (ours && f->has_logs))
        return 0;
    if (ours)
        return err_set(e, ERR_CONFLICT,
                       "data.dir %s was adopted as node %s, and a shard of it is not there: put "
                       "its folder back, or run `embertree adopt` again if that was cut off",
                       f->path, f->self);
    if (!n.id.len)
        return err_set(e, ERR_CONFLICT,
                       "the data of node %s are to be adopted from another folder than data.dir %s "
                       "(node-id %016" PRIx64 "): run `embertree adopt` on this machine for the "
                       "folder that has the data, then start the ingester with that data.dir",
                       f->self, f->path, f->id);
    return err_set(e, ERR_CONFLICT,
                   "the data of node %s are in another folder: %.*s (node-id %.*s) was adopted, "
                   "and data.dir is %s (node-id %016" PRIx64 "). Nothing is served from this one. "
                   "Set data.dir to the adopted folder, and keep that folder: it is the only copy",
                   f->self, STR_ARG(from), STR_ARG(str_sub(n.id, 0, 16)), f->path, f->id);
}
