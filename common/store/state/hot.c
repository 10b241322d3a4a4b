/* SPDX-License-Identifier: Apache-2.0
 *
 * hot: one object per (tenant, service, type, group) with a short array of leaves.
 *
 *   leaf   rows     committed and unsealed, counted always
 *          whole    its sum is that of all of them. Not so if the group was quiet when the leaf
 *                   began, if its memory was taken back, if a sum did not fit
 *
 * A leaf begins with its first row, so a sum that is there from the beginning is complete. Folding
 * subtracts: an entry may end in the middle of a leaf, and sums are exact. A leaf without rows is
 * forgotten; should late rows come, it begins again.
 *
 * A group without leaves is forgotten, too; that it was folded lives on in `gone`, which counts for
 * all groups that are not here. So a reader whose snapshot is older than that scans: seldom, and
 * only while it overlaps a seal.
 */
#include "common/store/state/hot.h"

#include <stdlib.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/size.h"
#include "common/store/codec/vec.h"
#include "common/sys/thread.h"

#define SCOPE_KEY_LEN 8 /* what a group's key begins with */
#define GROUP_KEY_LEN 18
#define LEAVES_MAX    128 /* of a group; unsealed are usually some 20 */
#define EPOCHS_MAX    4   /* of one leaf; more are scanned */

struct part {             /* one dictionary epoch of a leaf */
    uint32_t epoch, last; /* the highest id */
    struct map_u64 at;    /* id -> index */
    VEC(uint32_t) ids;
    VEC(uint64_t) values;
};
struct leaf {
    uint32_t t;
    bool whole;
    uint64_t rows, bound; /* sum of totals: no value is larger */
    uint64_t seq;         /* last batch that added to it */
    uint64_t total[LEAF_SLOTS], writes[LEAF_SLOTS];
    VEC(struct part) parts;
    size_t bytes; /* as counted in hot.bytes */
};
struct group {
    struct list all; /* hot.all */
    struct list lru; /* hot.lru, while it has sums */
    char key[GROUP_KEY_LEN];
    uint64_t folded;         /* last entry that took rows */
    uint64_t busy;           /* rows of the last leaf that ended */
    VEC(struct leaf) leaves; /* ascending t, at most leaves_max */
    uint32_t low;            /* rows before it are not told apart, but there are */
    uint64_t below;          /* so many; 0: low is 0 */
    size_t bytes;
};
struct block { /* of one service */
    char key[SCOPE_KEY_LEN];
    uint32_t known_from;
};
struct hot {
    struct hot_opts o;
    struct mutex lock;
    struct map_str *groups;
    struct map_str *blocked; /* of struct block */
    struct list all;         /* groups */
    struct list lru;         /* those with sums, asked for least recently first */
    size_t bytes;            /* of sums */
    uint64_t gone;           /* highest `folded` of groups that were forgotten */
    bool stopped;
};

static struct str group_key(const struct member *m, char out[GROUP_KEY_LEN])
{
    put_u32be(out, m->tenant);
    put_u32be(out + 4, m->scope);
    put_u16be(out + 8, m->ptype);
    put_u64be(out + 10, m->series);
    return str_n(out, GROUP_KEY_LEN);
}

/* ---- memory ---- */

static void free_parts(struct leaf *l)
{
    vec_for (i, &l->parts) {
        map_u64_deinit(&l->parts.ptr[i].at);
        vec_free(&l->parts.ptr[i].ids);
        vec_free(&l->parts.ptr[i].values);
    }
    vec_free(&l->parts);
}

static void charge(struct hot *h, struct group *g, struct leaf *l)
{
    size_t bytes = 0;

    vec_for (i, &l->parts) {
        const struct part *p = &l->parts.ptr[i];
        bytes += map_u64_bytes(&p->at) + p->ids.cap * sizeof(uint32_t) +
                 p->values.cap * sizeof(uint64_t) + sizeof(*p);
    }
    g->bytes += bytes - l->bytes;
    h->bytes += bytes - l->bytes;
    l->bytes = bytes;
    if (!g->bytes)
        list_del(&g->lru);
    else if (list_empty(&g->lru))
        list_add_tail(&h->lru, &g->lru);
}

/* The rows stay counted; a reader scans them. */
static void drop_sum(struct hot *h, struct group *g, struct leaf *l)
{
    l->whole = false;
    free_parts(l);
    charge(h, g, l);
}

static void free_group(struct hot *h, struct group *g)
{
    vec_for (i, &g->leaves)
        drop_sum(h, g, &g->leaves.ptr[i]);
    vec_free(&g->leaves);
    list_del(&g->all);
    map_str_del(h->groups, str_n(g->key, GROUP_KEY_LEN));
    xfree(g);
}

static void trim(struct hot *h)
{
    list_for (at, &h->lru) {
        struct group *g = container_of(at, struct group, lru);
        if (h->bytes <= h->o.bytes_max)
            return;
        vec_for (i, &g->leaves)
            drop_sum(h, g, &g->leaves.ptr[i]);
    }
}

struct hot *hot_new(const struct hot_opts *o)
{
    struct hot *h = XNEW(struct hot);

    h->o = *o;
    mutex_init(&h->lock);
    h->groups = map_str_new();
    h->blocked = map_str_new();
    if (!h->o.leaves_max)
        h->o.leaves_max = LEAVES_MAX;
    list_init(&h->all);
    list_init(&h->lru);
    return h;
}

static void clear(struct hot *h)
{
    list_for (at, &h->all)
        free_group(h, container_of(at, struct group, all));
}

void hot_free(struct hot *h)
{
    struct str key;
    size_t pos = 0;
    void *b;

    if (!h)
        return;
    clear(h);
    while (map_str_next(h->blocked, &pos, &key, &b))
        xfree(b);
    map_str_free(h->blocked);
    map_str_free(h->groups);
    mutex_deinit(&h->lock);
    xfree(h);
}

void hot_stop(struct hot *h)
{
    mutex_lock(&h->lock);
    clear(h);
    h->stopped = true;
    mutex_unlock(&h->lock);
}

void hot_block(struct hot *h, uint32_t tenant, uint32_t scope, uint32_t known_from)
{
    char key[SCOPE_KEY_LEN];

    put_u32be(key, tenant);
    put_u32be(key + 4, scope);
    mutex_lock(&h->lock);
    list_for (at, &h->all) {
        struct group *g = container_of(at, struct group, all);
        if (memcmp(g->key, key, SCOPE_KEY_LEN))
            continue;
        h->gone = MAX(h->gone, g->folded);
        free_group(h, g);
    }
    struct block *b = map_str_get(h->blocked, str_n(key, SCOPE_KEY_LEN));
    if (!b) {
        b = XNEW(struct block);
        memcpy(b->key, key, SCOPE_KEY_LEN);
        map_str_put(h->blocked, str_n(b->key, SCOPE_KEY_LEN), b);
    }
    b->known_from = MAX(b->known_from, known_from);
    mutex_unlock(&h->lock);
}

/* Leaves from here on are known. */
static uint32_t known_from(const struct hot *h, const struct member *m)
{
    char key[GROUP_KEY_LEN];
    uint32_t from = h->o.known_from;

    if (map_str_len(h->blocked)) {
        const struct block *b =
            map_str_get(h->blocked, str_n(group_key(m, key).ptr, SCOPE_KEY_LEN));
        from = b ? MAX(from, b->known_from) : from;
    }
    return slot_leaf(from + LEAF_SLOTS - 1);
}

size_t hot_bytes(struct hot *h)
{
    mutex_lock(&h->lock);
    size_t bytes = h->bytes;
    mutex_unlock(&h->lock);
    return bytes;
}

void hot_resize(struct hot *h, size_t bytes_max)
{
    mutex_lock(&h->lock);
    h->o.bytes_max = MAX(bytes_max, 1u); /* 0 would mean no sums at all */
    trim(h);
    mutex_unlock(&h->lock);
}

/* ---- rows ---- */

static struct group *find_group(struct hot *h, const struct member *m, bool make)
{
    char key[GROUP_KEY_LEN];
    struct group *g = map_str_get(h->groups, group_key(m, key));

    if (g || !make)
        return g;
    g = XNEW(struct group);
    memcpy(g->key, key, GROUP_KEY_LEN);
    g->folded = h->gone;
    list_init(&g->lru);
    list_add_tail(&h->all, &g->all);
    map_str_put(h->groups, str_n(g->key, GROUP_KEY_LEN), g);
    return g;
}

/* Index of the first leaf at or behind t. */
static size_t leaf_at(const struct group *g, uint32_t t)
{
    size_t i = g->leaves.len;

    while (i && g->leaves.ptr[i - 1].t >= t)
        i--;
    return i;
}

static struct leaf *make_leaf(struct hot *h, struct group *g, size_t i, uint32_t t)
{
    struct leaf fresh = { .t = t };

    if (i && g->leaves.ptr[i - 1].t < t)
        g->busy = g->leaves.ptr[i - 1].rows;
    fresh.whole = g->busy >= h->o.members_min;
    vec_push(&g->leaves, fresh);
    memmove(&g->leaves.ptr[i + 1], &g->leaves.ptr[i],
            (g->leaves.len - 1 - i) * sizeof(*g->leaves.ptr));
    g->leaves.ptr[i] = fresh;
    return &g->leaves.ptr[i];
}

static struct part *find_part(struct leaf *l, uint32_t epoch)
{
    struct part fresh = { .epoch = epoch };

    vec_for (i, &l->parts)
        if (l->parts.ptr[i].epoch == epoch)
            return &l->parts.ptr[i];
    if (l->parts.len == EPOCHS_MAX)
        return NULL;
    map_u64_init(&fresh.at);
    vec_push(&l->parts, fresh);
    return &l->parts.ptr[l->parts.len - 1];
}

/* *at: where the entry of the next id stands, most likely: rows of a group bring the same stacks in
 * the same order. */
static void add_entry(struct part *p, uint32_t *at, uint32_t id, uint64_t value, bool minus)
{
    uint32_t i = *at;

    if (i >= p->ids.len || p->ids.ptr[i] != id)
        i = map_u64_put(&p->at, id, (uint32_t)p->ids.len);
    if (i == MAP_U64_EMPTY) {
        i = (uint32_t)p->ids.len;
        vec_push(&p->ids, id);
        vec_push(&p->values, 0);
        p->last = MAX(p->last, id);
    }
    p->values.ptr[i] = minus ? p->values.ptr[i] - value : p->values.ptr[i] + value;
    *at = i + 1;
}

/* False: it cannot be summed up. */
static bool add_vector(struct leaf *l, struct str vector, bool minus)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_section s;
    struct vec_reader r;
    struct vec_iter it;
    struct err e;
    size_t n;

    if (vec_open(vector, &r, &e) || r.meta.saturated)
        return false;
    if (minus)
        l->bound -= r.meta.total;
    else if (!u64_add(l->bound, r.meta.total, &l->bound))
        return false;
    while (vec_next(&r, &s)) {
        struct part *p = find_part(l, s.epoch);
        if (!p)
            return false;
        uint32_t at = 0;
        vec_iter_init(&it, &s);
        while ((n = vec_iter_next(&it, ids, values)) > 0)
            for (size_t i = 0; i < n; i++)
                add_entry(p, &at, ids[i], values[i], minus);
    }
    return true;
}

static void count(struct leaf *l, uint32_t slot, struct str vector, bool minus)
{
    uint32_t i = slot % LEAF_SLOTS;
    struct vec_reader r;
    struct err e;

    if (vec_peek(vector, &r, &e)) {
        l->whole = false; /* a reader that scans it reports what is wrong */
        return;
    }
    if (r.meta.writes > 1)
        l->whole = false; /* a row of old data (stage_fold.h): they are few */
    l->total[i] = minus ? l->total[i] - r.meta.total : l->total[i] + r.meta.total;
    l->writes[i] = minus ? l->writes[i] - r.meta.writes : l->writes[i] + r.meta.writes;
}

static void add_row(struct hot *h, struct group *g, uint32_t slot, struct str vector, uint64_t seq)
{
    uint32_t t = slot_leaf(slot);
    size_t i = leaf_at(g, t);
    struct leaf *l =
        i < g->leaves.len && g->leaves.ptr[i].t == t ? &g->leaves.ptr[i] : make_leaf(h, g, i, t);
    l->rows++;
    l->seq = seq;
    count(l, slot, vector, false);
    if (l->whole && !add_vector(l, vector, false))
        l->whole = false;
    if (l->whole)
        charge(h, g, l);
    else if (l->bytes)
        drop_sum(h, g, l);
}

static void remove_leaf(struct hot *h, struct group *g, size_t i)
{
    drop_sum(h, g, &g->leaves.ptr[i]);
    g->leaves.len--;
    memmove(&g->leaves.ptr[i], &g->leaves.ptr[i + 1], (g->leaves.len - i) * sizeof(*g->leaves.ptr));
}

/* Imports scatter rows over months: of those before the last leaves only the number is known. */
static void cut_leaves(struct hot *h, struct group *g)
{
    while (g->leaves.len > h->o.leaves_max) {
        g->low = g->leaves.ptr[0].t + LEAF_SLOTS;
        g->below += g->leaves.ptr[0].rows;
        remove_leaf(h, g, 0);
    }
}

void hot_add(struct hot *h, const struct member *m, uint32_t slot, struct str vector, uint64_t seq)
{
    mutex_lock(&h->lock);
    if (!h->stopped && slot_leaf(slot) >= known_from(h, m)) {
        struct group *g = find_group(h, m, true);
        if (slot < g->low) {
            g->below++;
        } else {
            add_row(h, g, slot, vector, seq);
            cut_leaves(h, g);
            trim(h);
        }
    }
    mutex_unlock(&h->lock);
}

static void fold_row(struct hot *h, struct group *g, uint32_t slot, struct str vector)
{
    uint32_t t = slot_leaf(slot);
    size_t i = leaf_at(g, t);
    struct leaf *l = i < g->leaves.len && g->leaves.ptr[i].t == t ? &g->leaves.ptr[i] : NULL;

    if (l && --l->rows == 0) {
        remove_leaf(h, g, i);
    } else if (l) {
        count(l, slot, vector, true);
        if (l->whole && !add_vector(l, vector, true))
            drop_sum(h, g, l);
    }
}

void hot_fold(struct hot *h, const struct member *m, uint32_t slot, struct str vector, uint64_t n)
{
    mutex_lock(&h->lock);
    struct group *g = h->stopped ? NULL : find_group(h, m, false);
    if (!g) {
        h->gone = MAX(h->gone, n);
    } else {
        g->folded = MAX(g->folded, n);
        if (slot >= g->low)
            fold_row(h, g, slot, vector);
        else if (slot_leaf(slot) >= known_from(h, m) && --g->below == 0)
            g->low = 0;
        if (!g->leaves.len && !g->below) {
            h->gone = MAX(h->gone, g->folded);
            free_group(h, g);
        }
    }
    mutex_unlock(&h->lock);
}

/* ---- reading ---- */

static void must_scan(hot_ranges *scan, uint32_t from, uint32_t to)
{
    struct hot_range r = { from, to };

    if (from < to)
        vec_push(scan, r);
}

static int by_from(const void *a, const void *b)
{
    const struct hot_range *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

/* Sorts and joins. */
static void tidy(hot_ranges *scan)
{
    size_t n = 0;

    if (scan->len)
        qsort(scan->ptr, scan->len, sizeof(*scan->ptr), by_from);
    vec_for (i, scan) {
        struct hot_range r = scan->ptr[i];
        if (n && scan->ptr[n - 1].to >= r.from)
            scan->ptr[n - 1].to = MAX(scan->ptr[n - 1].to, r.to);
        else
            scan->ptr[n++] = r;
    }
    scan->len = n;
}

static bool scanned(const hot_ranges *scan, uint32_t t)
{
    vec_for (i, scan)
        if (t >= scan->ptr[i].from && t < scan->ptr[i].to)
            return true;
    return false;
}

static int give(const struct leaf *l, size_t group, hot_fn fn, void *cookie, struct err *e)
{
    struct hot_section sections[EPOCHS_MAX];
    struct hot_leaf out = { .t = l->t, .rows = l->rows, .sections = sections, .len = l->parts.len };

    memcpy(out.total, l->total, sizeof(out.total));
    memcpy(out.writes, l->writes, sizeof(out.writes));
    vec_for (i, &l->parts) {
        const struct part *p = &l->parts.ptr[i];
        sections[i] =
            (struct hot_section){ p->epoch, p->last, p->ids.ptr, p->values.ptr, p->ids.len };
    }
    return fn(cookie, group, &out, e);
}

struct reading {
    struct hot *h;
    const struct hot_state *v;
    const struct hot_query *q;
    uint32_t from, to;
    hot_ranges *scan;
};

static struct group *group_at(const struct reading *r, size_t i)
{
    struct member m = r->q->m;

    m.series = r->q->gids[i];
    return find_group(r->h, &m, false);
}

/* What must be scanned for group i. */
static void find_scans(struct reading *r, size_t i)
{
    struct hot *h = r->h;
    struct group *g = group_at(r, i);

    if (h->stopped || (g ? g->folded : h->gone) > r->v->applied) {
        must_scan(r->scan, r->from, r->to);
        return;
    }
    if (!g)
        return;
    must_scan(r->scan, r->from, MIN(g->low, r->to));
    if (g->bytes) {
        list_del(&g->lru);
        list_add_tail(&h->lru, &g->lru);
    }
    for (size_t k = leaf_at(g, r->from); k < g->leaves.len && g->leaves.ptr[k].t < r->to; k++) {
        const struct leaf *l = &g->leaves.ptr[k];
        if (!l->whole || (!r->v->live && l->seq > r->v->seq))
            must_scan(r->scan, l->t, l->t + LEAF_SLOTS);
    }
}

static int give_group(const struct reading *r, size_t i, struct err *e)
{
    const struct group *g = group_at(r, i);
    int rc = 0;

    if (!g)
        return 0;
    for (size_t k = leaf_at(g, r->from); !rc && k < g->leaves.len && g->leaves.ptr[k].t < r->to;
         k++)
        if (!scanned(r->scan, g->leaves.ptr[k].t))
            rc = give(&g->leaves.ptr[k], i, r->q->fn, r->q->cookie, e);
    return rc;
}

int hot_read(struct hot *h, const struct hot_state *v, const struct hot_query *q, hot_ranges *scan,
             struct err *e)
{
    struct reading r = { .h = h, .v = v, .q = q, .from = q->from, .to = q->to, .scan = scan };
    int rc = 0;

    scan->len = 0;
    mutex_lock(&h->lock);
    r.from = h->o.bytes_max ? MIN(MAX(q->from, known_from(h, &q->m)), q->to) : q->to;
    must_scan(scan, q->from, r.from);
    for (size_t i = 0; r.from < r.to && i < q->len; i++)
        find_scans(&r, i);
    tidy(scan);
    for (size_t i = 0; !rc && r.from < r.to && i < q->len; i++)
        rc = give_group(&r, i, e);
    mutex_unlock(&h->lock);
    return rc;
}
