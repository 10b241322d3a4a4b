/* SPDX-License-Identifier: Apache-2.0
 *
 * view_coord: a view that follows the coordination service.
 *
 * One watch on <prefix>/ring/. Its changes are applied at once; watchers are called from a timer of
 * no delay, once for all changes that came together.
 *
 * A value that does not parse is counted, remembered for the operator, and the previous value
 * stays: one broken key must not remove the routes of all others. Revisions only increase: an
 * answer to a doubt may be newer than the watch, and then the watch must not undo it.
 *
 * Records and the map are one picture: a node that sees itself as leader since some moment also
 * sees the map of that moment, or a later one (README.md builds on that). So a doubt asks for all
 * of ring/ at once, and the file is written whole. A state of the service is judged
 * (view_history.h) first:
 *
 *   SURE ──unsure: a state or change that cannot be──> UNSURE ──strange: all keys agree──> STRANGE
 *     ^                                                  │                                  │
 *     └────────────── believe: all keys are right ───────┴── on_anew: every few seconds ────┘
 *
 * UNSURE is short: an answer to a doubt may be newer than the watch. While STRANGE the view acts as
 * if the service were away, until that holds its earlier state again. A process that keeps shards
 * reads all keys again after a time without contact: another service may have taken the place,
 * whose revisions happen to continue where the first one's ended. A process without shards, which
 * has nothing to lose, follows another cluster once most of its nodes have lived by it for a time.
 *
 * The last state is written to a file, whole, a second after a change. A process that starts while
 * the service is away continues with it: that is as safe as any old view, since a leader must ask a
 * majority of its shard before it leads. A file does not say which nodes live: all of the map's
 * nodes count as alive until the service says otherwise.
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/view/view_file.h"
#include "common/cluster/view/view_history.h"
#include "common/obs/log.h"

#define DOUBT_EVERY_MS  1000
#define AWAY_MS         5000   /* after so long without contact it may be another service */
#define STRANGE_MS      5000   /* how often a service that is not trusted is read again */
#define STRANGE_NEWS_MS 1000   /* ... and when a change comes from it */
#define LEARNT_MS       600000 /* since the start: what was seen since then is established */
#define LIVED_MS        75000  /* longer than any lease: those of a backup come back with it */

enum trust { SURE, UNSURE, STRANGE };

struct lives {
    char name[NODE_NAME_MAX + 1];
    struct live live;
    int64_t rev, create_rev;
};
struct view_feed {
    struct view *v;
    struct view_opts o;
    struct str prefix;      /* owned */
    char *path;             /* owned; NULL: nothing is kept */
    struct view_file *file; /* NULL with it */
    struct coord_watch *watch;
    struct timer *tell, *doubt, *anew;
    enum trust trust;
    struct verdict said; /* STRANGE: what is wrong */
    struct err strange;  /* the same, and what to do */
    uint64_t store, anew_ms;
    uint64_t lived_ms; /* nodes live by the other cluster's service since then; 0: none does */
    int64_t cluster_rev;
    uint64_t began_ms;
    bool learnt;               /* all that is known came from the service, none of it from a file */
    bool bare, born;           /* the watch began where no cluster was; one was made there since */
    int64_t id_made, map_made; /* revisions at which events created them; 0: not seen */
    VEC(struct lives) lives;
    int64_t map_rev, last_rev; /* of the map; of the store, the highest believed */
    bool heard;                /* the service has spoken since the start */
    bool told;                 /* ... and the nodes are as it said */
    uint64_t heard_ms, doubted_ms;
    bool asking;       /* a doubt's list is under way */
    bool dirty, leads; /* what is not in the file yet: anything; that this node is to lead */
    uint64_t bad;
    struct err bad_why;
};

static uint64_t now_ms(const struct view_feed *f)
{
    return clock_mono_ms(loop_clock(f->o.loop));
}

static void bad(struct view_feed *f, struct str key, const struct err *e)
{
    f->bad++;
    f->bad_why = *e;
    (void)err_wrap(&f->bad_why, "%.*s", STR_ARG(str_sub(key, 0, 200)));
}

/* ---- nodes: those of the map, and those that live -------------------------------------------- */

static int peer_order(const void *a, const void *b)
{
    return strcmp(((const struct view_peer *)a)->name, ((const struct view_peer *)b)->name);
}

static struct view_peer *push_peer(struct view *v, const char *name)
{
    struct view_peer p = { .state = MAP_ACTIVE };

    memcpy(p.name, name, sizeof(p.name));
    vec_push(&v->peers, p);
    return &v->peers.ptr[v->peers.len - 1];
}

/* Notes since when nodes are gone that lived until now. */
static void peers_gone(struct view_feed *f, const struct view_peer *before, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct view_peer *p = view_peer(f->v, before[i].name);

        if (p && !p->live)
            p->gone_ms = before[i].live ? now_ms(f) : before[i].gone_ms;
    }
}

static void peers_make(struct view_feed *f)
{
    struct view *v = f->v;
    const struct map *m = v->map;
    size_t before_len = f->told ? v->peers.len : 0;
    struct view_peer *before = XNEW_ARRAY(struct view_peer, MAX(before_len, 1));

    if (before_len)
        memcpy(before, v->peers.ptr, before_len * sizeof(*before));
    f->told = f->heard; /* a file's list of nodes that live is a guess */
    v->peers.len = 0;
    for (size_t i = 0; m && i < m->nodes_len; i++) {
        struct view_peer *p = push_peer(v, m->nodes[i].name);

        memcpy(p->addr, m->nodes[i].addr, sizeof(p->addr));
        memcpy(p->zone, m->nodes[i].zone, sizeof(p->zone));
        p->state = m->nodes[i].state;
        p->mapped = true;
        p->live = !f->heard && p->state != MAP_LEFT;
    }
    vec_reserve(&v->peers, v->peers.len + f->lives.len); /* the index points into it */
    view_index(v);
    for (size_t i = 0; i < f->lives.len; i++) {
        const struct lives *l = &f->lives.ptr[i];
        struct view_peer *p = view_peer(v, l->name);

        p = p ? p : push_peer(v, l->name);
        p->live = true;
        memcpy(p->addr, l->live.addr, sizeof(p->addr)); /* it may have moved */
        memcpy(p->zone, l->live.zone, sizeof(p->zone));
        p->methods = l->live.methods;
        p->drained = l->live.drained;
    }
    if (v->peers.len)
        qsort(v->peers.ptr, v->peers.len, sizeof(*v->peers.ptr), peer_order);
    view_index(v);
    peers_gone(f, before, before_len);
    xfree(before);
}

static void live_del(struct view_feed *f, struct str name, int64_t rev)
{
    vec_for (i, &f->lives)
        if (str_eqc(name, f->lives.ptr[i].name) && f->lives.ptr[i].rev < rev)
            f->lives.ptr[i] = f->lives.ptr[--f->lives.len];
}

static void live_put(struct view_feed *f, struct str name, const struct coord_kv *kv)
{
    struct lives l = { .rev = kv->mod_rev, .create_rev = kv->create_rev };
    struct err e;

    if (live_parse(kv->value, &l.live, &e)) {
        bad(f, kv->key, &e);
        return;
    }
    memcpy(l.name, name.ptr, name.len);
    vec_for (i, &f->lives)
        if (strcmp(l.name, f->lives.ptr[i].name) == 0) {
            f->lives.ptr[i] = l;
            return;
        }
    if (f->lives.len < MAP_NODES_MAX)
        vec_push(&f->lives, l);
}

/* ---- map and records ------------------------------------------------------------------------- */

static void map_put(struct view_feed *f, const struct coord_kv *kv)
{
    const struct map *m;
    struct err e;

    if (kv->mod_rev <= f->map_rev)
        return;
    if (map_parse("map", kv->value, false, &m, &e)) {
        bad(f, kv->key, &e);
        return;
    }
    f->map_rev = kv->mod_rev;
    f->dirty = true;
    view_set_map(f->v, m);
}

static void record_put(struct view_feed *f, uint32_t shard, const struct coord_kv *kv)
{
    struct repl_record r;
    struct err e;

    view_slots_room(f->v, shard + 1);
    if (f->v->slots[shard]->known && kv->mod_rev <= f->v->slots[shard]->rev)
        return;
    if (record_parse(kv->value, &r, &e)) {
        bad(f, kv->key, &e);
        return;
    }
    f->dirty = true;
    f->leads |= view_is_to_lead(f->v, shard, &r);
    view_set_record(f->v, shard, &r, kv->mod_rev);
}

/* Once it is known it stays, whatever becomes of the key: else nothing would be judged by it. */
static void cluster_put(struct view_feed *f, const struct coord_kv *kv)
{
    char id[CLUSTER_ID_LEN + 1];
    struct err e;

    f->cluster_rev = kv->mod_rev;
    if (cluster_id_parse(kv->value, id, &e)) {
        bad(f, kv->key, &e);
        return;
    }
    f->dirty |= strcmp(id, f->v->cluster) != 0;
    memcpy(f->v->cluster, id, sizeof(id));
}

/* True: the nodes changed. */
static bool apply(struct view_feed *f, const struct coord_kv *kv)
{
    struct str node;
    uint32_t shard;

    switch (key_parse(f->prefix, kv->key, &shard, &node)) {
    case KEY_CLUSTER:
        if (!kv->deleted)
            cluster_put(f, kv);
        return false;
    case KEY_MAP:
        if (!kv->deleted)
            map_put(f, kv);
        return true;
    case KEY_SHARD:
        if (!kv->deleted)
            record_put(f, shard, kv);
        return false;
    case KEY_LIVE:
        if (kv->deleted)
            live_del(f, node, kv->mod_rev);
        else
            live_put(f, node, kv);
        return true;
    case KEY_STATE:
    case KEY_OTHER:
        break;
    }
    return false;
}

static void changed(struct view_feed *f)
{
    loop_timer_start(f->tell, 0, 0);
    if (f->file && f->dirty)
        view_file_changed(f->file, f->leads);
    f->dirty = f->leads = false;
}

static void on_tell(void *cookie)
{
    struct view_feed *f = cookie;

    view_changed(f->v);
}

/* ---- whether the service is trusted ---------------------------------------------------------- */

static void look_anew(struct view_feed *f, uint64_t after_ms)
{
    f->anew_ms = now_ms(f) + after_ms;
    loop_timer_start(f->anew, after_ms, 0);
}

static void doubts_end(struct view_feed *f)
{
    coord_cancel(f->o.coord, f);
    loop_timer_stop(f->doubt);
    f->asking = false;
}

/* Does not follow the last state, and reads all keys again. */
static void unsure(struct view_feed *f)
{
    f->trust = UNSURE;
    doubts_end(f);
    look_anew(f, 0);
}

static void strange(struct view_feed *f, const struct verdict *said)
{
    bool news = f->trust != STRANGE || f->said.is != said->is;

    f->dirty |= view_told_more(f->v) && !f->v->led_astray;
    f->v->led_astray |= view_told_more(f->v);
    f->trust = STRANGE;
    f->said = *said;
    (void)err_set(&f->strange, ERR_CONFLICT,
                  "%s. Nothing it says is followed, and nothing is written to it. Bring back its "
                  "data, or have it rebuilt from what the nodes know: embertreectl cluster recover",
                  said->why.text);
    look_anew(f, STRANGE_MS);
    if (!news)
        return;
    log_error("the coordination service is not followed: it is not what it was",
              KV_ERR(&f->strange));
    changed(f);
}

/* Revisions of another store, or of an earlier time, are not to be compared with those here. */
static void revisions_anew(struct view_feed *f, const struct verdict *said)
{
    f->store++;
    f->map_rev = 0;
    f->cluster_rev = 0;
    for (uint32_t i = 0; i < f->v->slots_len; i++) {
        f->v->slots[i]->rev = 0;
        if (said->is != JUDGED_RIGHT)
            f->v->slots[i]->told = 0;
        if (said->is == JUDGED_OTHER)
            f->v->slots[i]->known = false;
    }
    if (said->is != JUDGED_RIGHT)
        f->v->told_map = 0;
}

static void believe(struct view_feed *f, const struct coord_kv *kvs, size_t n, int64_t rev,
                    const struct verdict *said)
{
    if (f->trust == STRANGE && said->is == JUDGED_RIGHT)
        log_info("the coordination service is followed again",
                 KV_CSTR("cluster", said->id[0] ? said->id : "without an id"));
    if (said->is != JUDGED_RIGHT)
        log_warn(
            "the coordination service is not what it was, and nodes live by it: it is followed "
            "from here on",
            KV_ERR(&said->why));
    if (f->trust != SURE)
        revisions_anew(f, said);
    if (said->is != JUDGED_RIGHT)
        f->v->cluster[0] = '\0';
    f->bare = !f->v->map && !said->map && !said->id[0];
    if (f->v->told_map) { /* and so much is there */
        f->dirty |= f->v->led_astray;
        f->v->led_astray = false;
    }
    f->trust = SURE;
    f->heard = true;
    f->heard_ms = now_ms(f);
    f->last_rev = rev;
    f->lives.len = 0;
    loop_timer_stop(f->anew);
    for (size_t i = 0; i < n; i++)
        (void)apply(f, &kvs[i]);
    peers_make(f);
    changed(f);
}

/* Another one may have come in its place. */
static bool was_away(const struct view_feed *f)
{
    return f->o.keeps && f->heard && now_ms(f) - f->heard_ms >= AWAY_MS;
}

static void on_heard(void *cookie)
{
    struct view_feed *f = cookie;

    if (f->trust == SURE && was_away(f))
        unsure(f);
    else if (f->trust == SURE)
        f->heard_ms = now_ms(f);
}

/* For a process without shards: true if another cluster lives in the service, without our past. */
static bool others_live(struct view_feed *f, const struct verdict *said)
{
    if (f->trust != STRANGE || !said->map || !said->lives || said->lives * 2 < said->nodes)
        f->lived_ms = 0;
    else if (!f->lived_ms)
        f->lived_ms = MAX(now_ms(f), UINT64_C(1));
    return !f->o.keeps && f->lived_ms && now_ms(f) - f->lived_ms >= LIVED_MS;
}

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct view_feed *f = cookie;
    struct verdict said;

    if (f->trust == SURE && (rev < f->last_rev || was_away(f))) {
        unsure(f);
        return;
    }
    view_check_history(f->v, f->prefix, 0, kvs, n, &said);
    if (said.is == JUDGED_RIGHT || others_live(f, &said))
        believe(f, kvs, n, rev, &said);
    else if (f->trust == SURE)
        unsure(f);
    else
        strange(f, &said);
}

/* True if it is later than our state of this key, by revisions of the same store. */
static bool is_news(const struct view_feed *f, const struct coord_kv *kv)
{
    struct str node;
    uint32_t shard;

    switch (key_parse(f->prefix, kv->key, &shard, &node)) {
    case KEY_MAP:
        return kv->mod_rev > f->map_rev;
    case KEY_SHARD:
        return shard >= f->v->slots_len || kv->mod_rev > f->v->slots[shard]->rev;
    case KEY_CLUSTER:
    case KEY_LIVE:
    case KEY_STATE:
    case KEY_OTHER:
        break;
    }
    return true;
}

/* A cluster begins with its map and its id in one transaction; what is rebuilt does not. */
static void note_made(struct view_feed *f, const struct coord_kv *kv)
{
    struct str node;
    uint32_t shard;
    enum key_kind kind;

    if (!f->bare || kv->deleted || kv->create_rev != kv->mod_rev)
        return;
    kind = key_parse(f->prefix, kv->key, &shard, &node);
    if (kind == KEY_CLUSTER)
        f->id_made = kv->mod_rev;
    else if (kind == KEY_MAP)
        f->map_made = kv->mod_rev;
    f->born |= f->id_made && f->id_made == f->map_made;
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct view_feed *f = cookie;

    on_heard(f);
    if (f->trust == STRANGE && f->anew_ms > now_ms(f) + STRANGE_NEWS_MS)
        look_anew(f, STRANGE_NEWS_MS);
    else if (f->trust == SURE && is_news(f, kv) && !view_judge_one(f->v, f->prefix, kv))
        unsure(f);
    if (f->trust != SURE)
        return; /* all keys are read again */
    f->last_rev = MAX(f->last_rev, kv->mod_rev);
    note_made(f, kv);
    if (apply(f, kv))
        peers_make(f);
    changed(f);
}

static void watch_ring(struct view_feed *f)
{
    struct coord_key ring = key_ring(f->prefix);
    struct coord_watch_opts w = {
        .prefix = key_str(&ring), .all = on_all, .event = on_event, .heard = on_heard, .cookie = f
    };

    f->watch = coord_watch(f->o.coord, &w);
}

static void on_anew(void *cookie)
{
    struct view_feed *f = cookie;

    coord_unwatch(f->o.coord, f->watch);
    watch_ring(f);
    if (f->trust == STRANGE)
        look_anew(f, STRANGE_MS);
}

/* ---- doubts ---------------------------------------------------------------------------------- */

static void on_listed(void *cookie, const struct coord_reply *r)
{
    struct view_feed *f = cookie;
    struct verdict said;

    f->asking = false;
    if (r->err || r->rev < f->last_rev)
        return; /* older than what the watch brought; if it is another store, the watch will see */
    view_check_history(f->v, f->prefix, view_told_more(f->v) ? 0 : f->map_rev, r->kvs, r->kvs_len,
                       &said);
    if (said.is != JUDGED_RIGHT) {
        unsure(f);
        return;
    }
    f->last_rev = r->rev;
    /* Not a sign of life: only the watch says which nodes live, not this list. */
    for (size_t i = 0; i < r->kvs_len; i++) {
        struct str node;
        uint32_t shard;

        if (key_parse(f->prefix, r->kvs[i].key, &shard, &node) != KEY_LIVE && apply(f, &r->kvs[i]))
            peers_make(f);
    }
    changed(f);
}

static void on_doubt(void *cookie)
{
    struct view_feed *f = cookie;
    struct coord_key key = key_ring(f->prefix);

    f->doubted_ms = now_ms(f);
    f->asking = true;
    coord_list(f->o.coord, key_str(&key), on_listed, f);
}

static void doubt(struct view_feed *f)
{
    uint64_t since = now_ms(f) - f->doubted_ms;

    if (f->asking || f->trust != SURE)
        return;
    f->asking = true;
    loop_timer_start(f->doubt, since < DOUBT_EVERY_MS ? DOUBT_EVERY_MS - since : 0, 0);
}

void view_feed_doubt(struct view_feed *f, uint32_t shard, uint64_t term)
{
    const struct view_slot *s = shard < f->v->slots_len ? f->v->slots[shard] : NULL;

    if (!s || !s->known || s->record.term <= term)
        doubt(f);
}

/* Only for a view that came from the service alone: a process that knew the cluster itself would
 * have seen that the service lost data, and the report may come from a node with a stale view. */
void view_feed_told(struct view_feed *f, uint32_t shard, uint64_t term, uint64_t map_version)
{
    struct view_slot *s;

    if (!f->learnt || !f->v->map || shard >= f->v->map->shards ||
        (f->trust == SURE && now_ms(f) - f->began_ms > LEARNT_MS))
        return;
    s = f->v->slots[shard];
    s->told = MAX(s->told, term);
    f->v->told_map = MAX(f->v->told_map, map_version);
    if (view_told_more(f->v))
        doubt(f);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A file that cannot be written is no reason to stop routing: said in bad_why. */
static void on_not_saved(void *cookie, const struct err *e)
{
    struct view_feed *f = cookie;

    bad(f, str_c(f->path), e);
}

/* A file that cannot be read is like none: the service will say. */
static void load(struct view_feed *f)
{
    struct err e;
    int code = view_file_load(f->file, &e);

    if (code && code != ERR_NOT_FOUND)
        bad(f, str_c(f->path), &e);
    peers_make(f);
    f->learnt = !f->v->map || f->v->led_astray;
    if (!code)
        f->v->version++;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct view *view_new_coord(const struct view_opts *o)
{
    struct view *v = view_new_kind(VIEW_COORD);
    struct view_feed *f = XNEW(struct view_feed);

    v->feed = f;
    f->v = v;
    f->o = *o;
    v->node = o->node;
    f->prefix = str_c(xstrdup(o->prefix));
    f->path = o->file ? xstrdup(o->file) : NULL;
    f->tell = loop_timer_new(o->loop, on_tell, f);
    f->doubt = loop_timer_new(o->loop, on_doubt, f);
    f->anew = loop_timer_new(o->loop, on_anew, f);
    f->heard_ms = f->began_ms = now_ms(f);
    f->learnt = true;
    if (f->path) {
        f->file = view_file_new(&(struct view_file_opts){ .loop = o->loop,
                                                          .pool = o->pool,
                                                          .fs = o->fs,
                                                          .path = f->path,
                                                          .view = v,
                                                          .failed = on_not_saved,
                                                          .cookie = f });
        load(f);
    }
    watch_ring(f);
    return v;
}

void view_feed_free(struct view_feed *f)
{
    if (!f)
        return;
    coord_unwatch(f->o.coord, f->watch);
    coord_cancel(f->o.coord, f);
    loop_timer_free(f->tell);
    loop_timer_free(f->doubt);
    loop_timer_free(f->anew);
    vec_free(&f->lives);
    xfree((void *)(uintptr_t)f->prefix.ptr);
    view_file_free(f->file);
    xfree(f->path);
    xfree(f);
}

const char *view_feed_stranger(const struct view_feed *f)
{
    return f->trust == STRANGE ? f->strange.text : "";
}

bool view_feed_trusts(const struct view_feed *f)
{
    return f->trust == SURE && f->heard;
}

uint64_t view_feed_store(const struct view_feed *f)
{
    return f->store;
}

bool view_feed_born(const struct view_feed *f)
{
    return f->born;
}

int64_t view_feed_cluster_rev(const struct view_feed *f)
{
    return f->cluster_rev;
}

const char *view_feed_why(const struct view_feed *f)
{
    return f->trust == STRANGE ? f->strange.text : coord_why(f->o.coord);
}

uint64_t view_feed_age_ms(const struct view_feed *f)
{
    return now_ms(f) - f->heard_ms;
}

uint64_t view_feed_now_ms(const struct view_feed *f)
{
    return now_ms(f);
}

uint64_t view_feed_bad(const struct view_feed *f, const char **ret_why)
{
    *ret_why = f->bad ? f->bad_why.text : "";
    return f->bad;
}

int64_t view_feed_map_rev(const struct view_feed *f)
{
    return f->map_rev;
}

uint64_t view_feed_kept(const struct view_feed *f)
{
    return f->file ? view_file_kept(f->file) : UINT64_MAX;
}

bool view_feed_heard(const struct view_feed *f)
{
    return f->heard;
}
