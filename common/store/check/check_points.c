/* SPDX-License-Identifier: Apache-2.0
 *
 * check_points: vectors of one level against the points of their timelines, which are rows of
 * another column family: each vector's total and writes must be what its points add up to, and no
 * point may stand where no vector is.
 *
 * Both have the same key up to t, and a row of points covers a whole number of vectors: so one
 * iterator over each, side by side, a row of points (a chunk of time of one series) at a time.
 */
#include "common/base/mem.h"
#include "common/store/check/check_impl.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"
#include "common/store/state/view.h"

#define POINTS_MAX 4096 /* vectors under one row of points; the widest level has 64 */

struct sums {
    uint64_t total, writes;
    bool saturated;
};
struct walk {
    struct kv_iter *it;
    bool valid;
    struct member m;
    uint32_t t; /* of the chunk that holds the row */
    uint32_t first;
};
struct point_check { /* both iterators, and what the chunk at hand adds up to, by node */
    uint32_t level;
    struct walk vectors, points;
    struct sums of_vectors[POINTS_MAX], of_points[POINTS_MAX];
};

/* Rows whose keys make no sense are findings, and passed over. */
static int settle(struct check *c, struct walk *w, bool points, uint32_t level, struct err *e)
{
    for (; (w->valid = kv_iter_valid(w->it)); kv_iter_next(w->it)) {
        uint32_t got = 0, flags = 0;
        struct str key = kv_iter_key(w->it);

        if (points ? key_tl_read(key, &flags, &got, &w->m, &w->first)
                   : key_member_read(key, &got, &w->m, &w->first)) {
            w->t = w->first - w->first % LEVELS[level].tl_chunk;
            if (purging_has(&c->purging, w->m.tenant, w->m.scope))
                continue;
            return 0;
        }
        if (points && check_found(c, err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len), e))
            return e->code;
    }
    return kv_iter_status(w->it, e);
}

static int order(const struct walk *a, const struct walk *b, uint32_t level)
{
    struct key ka, kb;

    if (!a->valid || !b->valid)
        return a->valid ? -1 : b->valid ? 1 : 0;
    key_member(&ka, level, &a->m, a->t);
    key_member(&kb, level, &b->m, b->t);
    return str_cmp(key_str(&ka), key_str(&kb));
}

static int take_vectors(struct check *c, struct walk *w, uint32_t level, struct sums *into,
                        struct err *e)
{
    struct walk at = *w;
    int rc = 0;

    while (!rc && w->valid && order(&at, w, level) == 0) {
        struct vec_reader r;
        struct sums *s = &into[(w->first - w->t) / LEVELS[level].node];
        if (vec_peek(kv_iter_value(w->it), &r, e)) /* found by the rule of vectors already */
            s->saturated = true;
        else
            *s = (struct sums){ r.meta.total, r.meta.writes, r.meta.saturated };
        err_clear(e);
        kv_iter_next(w->it);
        rc = settle(c, w, false, level, e);
    }
    return rc;
}

static int take_points(struct check *c, struct walk *w, uint32_t level, struct sums *into,
                       struct err *e)
{
    const struct key_level *l = &LEVELS[level];
    struct tl row = { 0 };
    int rc = timeline_row_decode(kv_iter_value(w->it), l->tl_chunk / l->tl_point, &row, e);

    if (!rc)
        rc = w->first == w->t ? 0 : err_set(e, ERR_CORRUPT, "it begins inside its chunk");
    if (rc)
        rc = err_wrap(e, "timeline at slot %u of series %016" PRIx64, w->first, w->m.series);
    vec_for (i, &row.points) {
        const struct tl_point *p = &row.points.ptr[i];
        struct sums *s = &into[(uint64_t)p->point * l->tl_point / l->node];
        s->total = u64_add_sat(s->total, p->total);
        s->writes += p->writes;
    }
    vec_free(&row.points);
    c->report->timelines++;
    rc = check_found(c, rc, e);
    kv_iter_next(w->it);
    return rc ? rc : settle(c, w, true, level, e);
}

/* Is the node marked dirty? Then it is not read, and will be built again with its points. */
static int is_marked(struct check *c, const struct member *m, uint32_t level, uint32_t t, bool *ret,
                     struct err *e)
{
    struct dirty_mark mark;
    int rc = level < DIRTY_FIRST
                 ? ERR_NOT_FOUND
                 : dirty_get(&(struct kv_view){ c->v->kv, c->v->snap }, m, level, t, &mark, e);

    *ret = rc == 0;
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* The sums of m in the chunk that begins at t. */
static int compare(struct check *c, const struct point_check *x, const struct member *m, uint32_t t,
                   struct err *e)
{
    const struct sums *v = x->of_vectors, *p = x->of_points;
    uint32_t level = x->level;

    for (uint32_t i = 0; i < LEVELS[level].tl_chunk / LEVELS[level].node; i++) {
        struct floors f;

        if (v[i].saturated || (v[i].total == p[i].total && v[i].writes == p[i].writes))
            continue;
        /* A row of points goes when all of it is below the floor, vectors one by one. */
        if (floors_load(c->v->kv, c->v->snap, m, &f, e))
            return e->code;
        if (t + i * LEVELS[level].node < f.at[level])
            continue;
        bool marked = false;
        if (is_marked(c, m, level, t + i * LEVELS[level].node, &marked, e))
            return e->code;
        if (marked)
            continue;
        int rc = err_set(e, ERR_CORRUPT,
                         "level %u, slot %u, series %016" PRIx64 ": vector has %" PRIu64
                         " in %" PRIu64 " writes, timeline %" PRIu64 " in %" PRIu64,
                         level, t + i * LEVELS[level].node, m->series, v[i].total, v[i].writes,
                         p[i].total, p[i].writes);
        if (check_found(c, rc, e))
            return e->code;
    }
    return 0;
}

/* Compares the chunk that comes first in either. */
static int step(struct check *c, struct point_check *x, struct err *e)
{
    size_t n = LEVELS[x->level].tl_chunk / LEVELS[x->level].node;
    int which = order(&x->vectors, &x->points, x->level);
    struct walk at = which <= 0 ? x->vectors : x->points;
    int rc = check_row(c, e);

    CHECK(n <= POINTS_MAX);
    memset(x->of_vectors, 0, n * sizeof(*x->of_vectors));
    memset(x->of_points, 0, n * sizeof(*x->of_points));
    if (!rc && which <= 0)
        rc = take_vectors(c, &x->vectors, x->level, x->of_vectors, e);
    if (!rc && which >= 0)
        rc = take_points(c, &x->points, x->level, x->of_points, e);
    return rc ? rc : compare(c, x, &at.m, at.t, e);
}

int check_points(struct check *c, enum kv_cf cf, uint32_t level, struct err *e)
{
    struct kv *kv = c->v->kv;
    check_here();
    struct key from = { .len = 1, .b = { (char)level } },
               to = { .len = 1, .b = { (char)(level + 1) } };
    struct point_check *x = XNEW(struct point_check);

    x->level = level;
    x->vectors.it = kv_iter_new(kv, c->v->snap, cf, key_str(&from), key_str(&to));
    x->points.it = kv_iter_new(kv, c->v->snap, KV_TL, key_str(&from), key_str(&to));
    bool away = check_is_away(); /* some of either: sums cannot be compared */
    int rc = settle(c, &x->vectors, false, level, e);

    c->report->left_out += away;
    if (!rc)
        rc = settle(c, &x->points, true, level, e);
    while (!rc && !away && (x->vectors.valid || x->points.valid))
        rc = step(c, x, e);
    kv_iter_free(x->vectors.it);
    kv_iter_free(x->points.it);
    xfree(x);
    return check_found(c, rc, e);
}
