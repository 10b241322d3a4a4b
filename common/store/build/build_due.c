/* SPDX-License-Identifier: Apache-2.0
 *
 * build_due: which dirty nodes can be built. One pass over the marks, which are in order of
 * (service and type, level, t): those of the level below were seen just before.
 */
#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/build/build_state.h"
#include "common/store/mask/purging.h"
#include "common/store/state/commit.h"
#include "common/store/state/due.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define WATCH_ROWS     8192 /* of a step */
#define WATCH_EVERY_MS 30000

struct pass {
    struct store *s;
    int64_t engine_ms, next_ms;
    uint32_t low, high;
    size_t max;
    struct build_nodes *ret;
    struct member part;
    uint32_t level;
    VEC(uint32_t) below, marks; /* of the level below and this one, ascending */
    struct purging purging;     /* their children still hold what is deleted: later */
};

static void begin_level(struct pass *p, const struct member *part, uint32_t level)
{
    bool same = p->part.tenant == part->tenant && p->part.scope == part->scope &&
                p->part.ptype == part->ptype;

    if (same && p->level == level)
        return;
    if (same && p->level + 1 == level) {
        vec_reserve(&p->below, p->marks.len);
        if (p->marks.len)
            memcpy(p->below.ptr, p->marks.ptr, p->marks.len * sizeof(*p->marks.ptr));
        p->below.len = p->marks.len;
    } else {
        p->below.len = 0;
    }
    p->marks.len = 0;
    p->part = *part;
    p->level = level;
}

static bool child_dirty(const struct pass *p, uint32_t t)
{
    size_t at = vec_lower_u32(p->below.ptr, p->below.len, t);

    return at < p->below.len && p->below.ptr[at] - t < LEVELS[p->level].node;
}

/* Adds the node of a mark to p->ret if it can be built. The walk continues at the next row if this
 * returns true, else at the key *ret. */
static bool take(struct pass *p, uint32_t t, const struct dirty_mark *m, struct key *ret)
{
    int64_t at = build_due_ms(p->s, p->level, t, m);

    vec_push(&p->marks, t);
    if (p->level < p->low)
        return true;
    if (at <= p->engine_ms) {
        struct build_node n = { p->part, p->level, t, at };
        if (!child_dirty(p, t))
            vec_push(&p->ret->at, n);
        return true;
    }
    p->next_ms = MIN(p->next_ms, at);
    if (m->entry || p->level < p->high)
        return true;
    key_dirty(ret, &p->part, KEY_LEVELS - 1, UINT32_MAX); /* all behind are younger still */
    key_end(ret);
    return false;
}

static int walk(struct pass *p, struct kv_iter *it, struct err *e)
{
    while (kv_iter_valid(it) && p->ret->at.len < p->max) {
        uint32_t level, t;
        struct dirty_mark mark;
        struct member part;
        struct key k;

        if (!key_dirty_read(kv_iter_key(it), &part, &level, &t))
            return err_set(e, ERR_CORRUPT, "key of a mark has %zu bytes", kv_iter_key(it).len);
        if (dirty_row_read(kv_iter_value(it), &mark, e))
            return e->code;
        bool purging = purging_has(&p->purging, part.tenant, part.scope);
        if (level + 1 < p->low && !purging) {
            key_dirty(&k, &part, p->low - 1, 0);
            kv_iter_seek(it, key_str(&k));
            continue;
        }
        if (level > p->high || purging) {
            key_dirty(&k, &part, KEY_LEVELS - 1, UINT32_MAX);
            key_end(&k);
            kv_iter_seek(it, key_str(&k));
            continue;
        }
        begin_level(p, &part, level);
        if (take(p, t, &mark, &k))
            kv_iter_next(it);
        else
            kv_iter_seek(it, key_str(&k));
    }
    return kv_iter_status(it, e);
}

int build_find(struct store *s, const struct kv_snap *snap, const struct build_search *f,
               struct build_nodes *ret, int64_t *ret_next, struct err *e)
{
    struct pass p = {
        .s = s,
        .engine_ms = f->engine_ms,
        .next_ms = INT64_MAX,
        .low = MAX(f->low, DIRTY_FIRST),
        .high = MIN(f->high, KEY_LEVELS - 1),
        .max = ret->at.len + f->max,
        .ret = ret,
    };
    struct key from = { .len = 1, .b = { KEY_DIRTY } }, to = from;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(s->kv, snap, KV_META, key_str(&from), key_str(&to));
    int rc = purging_load(&p.purging, s->kv, snap, e);
    if (!rc)
        rc = walk(&p, it, e);
    kv_iter_free(it);
    vec_free(&p.purging.at);
    vec_free(&p.below);
    vec_free(&p.marks);
    *ret_next = p.next_ms;
    return rc;
}

int store_build_due(struct store_view *v, const struct build_search *f, struct build_nodes *ret,
                    struct err *e)
{
    struct build_search shown = *f;
    int64_t next;

    /* A mark says whether its entry found the node due: entries behind the view may not have. */
    shown.engine_ms = MIN(f->engine_ms, v->engine_ms);
    return build_find(v->s, v->snap, &shown, ret, &next, e);
}

/* ---- how far behind ---- */

struct mark_count {             /* one step of counting marks */
    const struct kv_snap *snap; /* NULL: now */
    int64_t engine_ms;
    size_t rows_max;
};

/* Adds up to c->rows_max marks from *from on to *ret, and moves *from behind the last one. At the
 * end of all marks from->len becomes 0. */
static int count_marks(struct store *s, const struct mark_count *c, struct key *from,
                       struct build_stats *ret, struct err *e)
{
    struct key to = { .len = 1, .b = { KEY_DIRTY + 1 } };
    struct dirty_mark mark;
    struct member part;
    uint32_t level, t;
    int rc = 0;

    struct kv_iter *it = kv_iter_new(s->kv, c->snap, KV_META, key_str(from), key_str(&to));
    for (size_t left = c->rows_max; kv_iter_valid(it) && left; kv_iter_next(it), left--) {
        if (!key_dirty_read(kv_iter_key(it), &part, &level, &t))
            rc = err_set(e, ERR_CORRUPT, "key of a mark has %zu bytes", kv_iter_key(it).len);
        else
            rc = dirty_row_read(kv_iter_value(it), &mark, e);
        if (rc)
            break;
        int64_t lag = c->engine_ms - build_due_ms(s, level, t, &mark);
        ret->marks[level]++;
        if (lag < 0)
            continue;
        ret->due[level]++;
        if (level == DIRTY_FIRST)
            ret->lag_ms = MAX(ret->lag_ms, lag);
        else
            ret->lag_coarse_ms = MAX(ret->lag_coarse_ms, lag);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    from->len = 0;
    if (!rc && kv_iter_valid(it))
        key_dirty(from, &part, level, t + 1);
    kv_iter_free(it);
    return rc;
}

static void count_built(struct store *s, struct build_stats *ret)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        ret->built[l] = atomic_load_explicit(&s->nodes_built[l], memory_order_relaxed);
    ret->rows = atomic_load_explicit(&s->rows_built, memory_order_relaxed);
}

int store_build_stats(struct store_view *v, int64_t engine_ms, struct build_stats *ret,
                      struct err *e)
{
    struct mark_count c = { .snap = v->snap, .engine_ms = engine_ms, .rows_max = SIZE_MAX };
    struct key from = { .len = 1, .b = { KEY_DIRTY } };

    *ret = (struct build_stats){ 0 };
    count_built(v->s, ret);
    return count_marks(v->s, &c, &from, ret, e);
}

int store_build_watch(struct store *s, bool *ret_more, struct err *e)
{
    struct build_watch *w = &s->build->watch;

    *ret_more = false;
    if (store_build_watch_ms(s))
        return 0;
    if (!w->next.len) {
        w->next = (struct key){ .len = 1, .b = { KEY_DIRTY } };
        w->stats = (struct build_stats){ 0 };
    }
    struct mark_count c = { .engine_ms = store_now(s), .rows_max = WATCH_ROWS };
    int rc = count_marks(s, &c, &w->next, &w->stats, e);
    *ret_more = !rc && w->next.len;
    if (rc || *ret_more)
        return rc;
    w->at_ms = clock_mono_ms(s->o.clock) + WATCH_EVERY_MS;
    uint64_t marks = 0, due = 0;
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        marks += w->stats.marks[l];
        due += w->stats.due[l];
    }
    atomic_store_explicit(&s->marks, marks, memory_order_relaxed);
    atomic_store_explicit(&s->marks_due, due, memory_order_relaxed);
    atomic_store_explicit(&s->build_lag_ms, w->stats.lag_ms, memory_order_relaxed);
    atomic_store_explicit(&s->build_lag_coarse_ms, w->stats.lag_coarse_ms, memory_order_relaxed);
    return 0;
}

uint64_t store_build_watch_ms(struct store *s)
{
    uint64_t now = clock_mono_ms(s->o.clock), at = s->build->watch.at_ms;

    return at > now ? at - now : 0;
}
