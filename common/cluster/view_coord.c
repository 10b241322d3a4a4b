/* SPDX-License-Identifier: Apache-2.0
 *
 * view_coord: a view that follows the coordination service.
 *
 * One watch on <prefix>/ring/. What it hands over is applied at once; watchers are told from a
 * timer of no delay, once for all changes that came together.
 *
 * A value that does not parse is counted, remembered for people, and what was there before stays:
 * one broken key must not take the routes of all others away. Revisions only go up: an answer to a
 * doubt may be newer than the watch, and then the watch must not take it back.
 *
 * Records and the map are one picture: whoever sees that it leads since some moment also sees the
 * map of that moment, or a later one (README.md builds on that). So a doubt asks for all of ring/
 * at once, and the file is written whole.
 *
 * What was seen last is kept in a file, whole, a second after a change. A process that starts while
 * the service is away goes on with it: that is as safe as any old view, since a leader must ask a
 * majority of its shard before it leads. Who lives is not known from a file: all of the map's nodes
 * are taken for alive until the service says otherwise.
 */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/cluster/keyspace.h"
#include "common/cluster/view_file.h"

#define DOUBT_EVERY_MS 1000

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
    struct timer *tell, *doubt;
    VEC(struct lives) lives;
    int64_t map_rev, last_rev; /* of the map; of the store, the highest seen */
    bool heard;                /* the service has spoken since the start */
    bool told;                 /* ... and the nodes are as it said */
    uint64_t heard_ms, doubted_ms;
    bool asking; /* a doubt's list is under way */
    bool dirty;  /* map or records are others than those in the file */
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

/* Since when those are gone who lived a moment ago. */
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
    f->told = f->heard; /* what a file says of who lives is a guess */
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
    view_set_record(f->v, shard, &r, kv->mod_rev);
}

/* True: the nodes changed. */
static bool apply(struct view_feed *f, const struct coord_kv *kv)
{
    struct str node;
    uint32_t shard;

    switch (key_parse(f->prefix, kv->key, &shard, &node)) {
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
        view_file_changed(f->file);
    f->dirty = false;
}

static void on_tell(void *cookie)
{
    struct view_feed *f = cookie;

    view_changed(f->v);
}

static void on_heard(void *cookie)
{
    struct view_feed *f = cookie;

    f->heard_ms = now_ms(f);
}

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct view_feed *f = cookie;

    on_heard(f);
    f->heard = true;
    f->lives.len = 0;
    if (rev < f->last_rev) { /* another store, or a restored one: its word counts */
        f->map_rev = 0;
        for (uint32_t i = 0; i < f->v->slots_len; i++)
            f->v->slots[i]->rev = 0;
    }
    f->last_rev = rev;
    for (size_t i = 0; i < n; i++)
        (void)apply(f, &kvs[i]);
    peers_make(f);
    changed(f);
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct view_feed *f = cookie;

    on_heard(f);
    f->last_rev = MAX(f->last_rev, kv->mod_rev);
    if (apply(f, kv))
        peers_make(f);
    changed(f);
}

/* ---- doubts ---------------------------------------------------------------------------------- */

static void on_listed(void *cookie, const struct coord_reply *r)
{
    struct view_feed *f = cookie;

    f->asking = false;
    if (r->err)
        return;
    /* Not heard, as an age: of who lives the list says nothing, only the watch does. */
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

void view_feed_doubt(struct view_feed *f, uint32_t shard, uint64_t term)
{
    uint64_t since = now_ms(f) - f->doubted_ms;
    const struct view_slot *s = shard < f->v->slots_len ? f->v->slots[shard] : NULL;

    if (f->asking || (s && s->known && s->record.term > term))
        return;
    f->asking = true;
    loop_timer_start(f->doubt, since < DOUBT_EVERY_MS ? DOUBT_EVERY_MS - since : 0, 0);
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
    if (!code)
        f->v->version++;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct view *view_new_coord(const struct view_opts *o)
{
    struct view *v = view_new_kind("etcd");
    struct view_feed *f = XNEW(struct view_feed);
    struct coord_key ring;
    struct coord_watch_opts w = {
        .all = on_all, .event = on_event, .heard = on_heard, .cookie = f
    };

    v->feed = f;
    f->v = v;
    f->o = *o;
    f->prefix = str_c(xstrdup(o->prefix));
    f->path = o->file ? xstrdup(o->file) : NULL;
    f->tell = loop_timer_new(o->loop, on_tell, f);
    f->doubt = loop_timer_new(o->loop, on_doubt, f);
    f->heard_ms = now_ms(f);
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
    ring = key_ring(f->prefix);
    w.prefix = key_str(&ring);
    f->watch = coord_watch(o->coord, &w);
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
    vec_free(&f->lives);
    xfree((void *)(uintptr_t)f->prefix.ptr);
    view_file_free(f->file);
    xfree(f->path);
    xfree(f);
}

const char *view_feed_why(const struct view_feed *f)
{
    return coord_why(f->o.coord);
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
