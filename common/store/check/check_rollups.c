/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rollups: the tree of groups, and how it hangs together with that of members.
 *
 *   rows        sound; their vectors as those of members; beside each node of level 2 and up the
 *               point of the group's timeline
 *   sums        a node of level 2 and up that is clean and not the base of its time is what its
 *               children make, byte for byte; and where there are children it is there
 *   members     in each node the groups of a dimension add up to total, writes and F of all series:
 *               level 1 against leaves, level 2 and up against the members' nodes
 *   functions   sound; from level 3 on the sum of their children; each beside a row of its group
 *
 * The third rule walks runs of one (level, bucket, service and type), in which there are at most
 * some 1,440 nodes.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/build/rollup_build.h"
#include "common/store/check/check_impl.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/function_cost.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/query/cover.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define ROW_MAX   GIB
#define NODES_MAX 1440

struct total {
    uint64_t total, writes, fp;
    bool saturated;
};
struct rollups {
    struct check *c;
    bool known; /* of the part: */
    struct member part;
    struct floors floors;
    struct dirty_set dirty;
    struct group_service groups;
    struct rollup_row_sum sum;
    struct buf want;
    struct arena *arena;
    struct tl tl;
    struct total members[NODES_MAX], dims[GROUP_DIMS][NODES_MAX];
};

static int wrong(struct err *e, uint32_t level, const struct member *m, uint32_t t,
                 const char *what)
{
    return err_set(e, ERR_CORRUPT, "level %u, slot %u, service %u, group %016" PRIx64 ": %s", level,
                   t, m->scope, m->series, what);
}

static bool same_part(const struct member *a, const struct member *b)
{
    return a->tenant == b->tenant && a->scope == b->scope && a->ptype == b->ptype;
}

static int know_part(struct rollups *x, const struct member *m, struct err *e)
{
    struct kv *kv = x->c->v->kv;
    const struct kv_snap *snap = x->c->v->snap;

    if (x->known && same_part(&x->part, m))
        return 0;
    dirty_deinit(&x->dirty);
    x->known = false;
    if (floors_load(kv, snap, m, &x->floors, e) ||
        dirty_load(&x->dirty, &(struct kv_view){ kv, snap }, m, 0, UINT32_MAX, e) ||
        group_service_get(kv, snap, m->tenant, m->scope, &x->groups, e))
        return e->code;
    x->part = *m;
    x->known = true;
    return 0;
}

/* Is the node of the group the sum of its children? */
static bool is_sum(const struct rollups *x, uint32_t level, const struct member *m, uint32_t t)
{
    uint32_t dim = GID_DIM(m->series);

    return level >= DIRTY_FIRST && level > floors_base(&x->floors, true, t) &&
           !dirty_has(&x->dirty, level, t) && dim < GROUP_DIMS && t >= x->groups.since[dim];
}

/* ---- rows ---- */

static int check_merge(struct rollups *x, uint32_t level, const struct member *m, uint32_t t,
                       struct str row, struct err *e)
{
    struct rollup_children c = { 0 };
    VEC(struct str) rows = { 0 };
    struct vec_meta meta;

    arena_reset(x->arena);
    struct rollup_node n = {
        .kv = x->c->v->kv, .snap = x->c->v->snap, .level = level, .t = t, .m = *m, .arena = x->arena
    };
    int rc = rollup_children(&n, &c, e);
    vec_for (i, &c.at)
        vec_push(&rows, c.at.ptr[i].row);
    if (!rc && !rows.len)
        rc = wrong(e, level, m, t, "has no children");
    if (!rc)
        rc = rollup_row_merge(&x->sum, rows.ptr, rows.len, &x->want, &meta, e);
    if (!rc && !str_eq(buf_str(&x->want), row))
        rc = wrong(e, level, m, t, "is not the sum of its children");
    vec_free(&c.at);
    vec_free(&rows);
    return rc;
}

static int check_parent(struct rollups *x, enum kv_cf cf, uint32_t level, const struct member *m,
                        uint32_t t, struct err *e)
{
    struct key k;

    if (level + 1 == KEY_LEVELS)
        return 0;
    t = node_of(level + 1, t);
    if (!is_sum(x, level + 1, m, t))
        return 0;
    key_ru(&k, level + 1, m, t);
    int rc = kv_get(x->c->v->kv, x->c->v->snap, cf, key_str(&k), &x->c->row, e);
    return rc == ERR_NOT_FOUND ? wrong(e, level + 1, m, t, "is missing, its children are there")
                               : rc;
}

static int check_point(struct rollups *x, uint32_t level, const struct member *m, uint32_t t,
                       const struct vec_meta *meta, struct err *e)
{
    const struct key_level *l = &LEVELS[level];
    struct key k;

    if (dirty_has(&x->dirty, level, t)) /* not read, and built again with its points */
        return 0;
    key_tl(&k, KEY_TL_GROUP, level, m, t - t % l->tl_chunk);
    int rc = check_get(x->c, KV_TL, key_str(&k), "timeline of a group", e);
    if (!rc)
        rc = timeline_row_decode(buf_str(&x->c->row), l->tl_chunk / l->tl_point, &x->tl, e);
    if (rc)
        return rc;
    vec_for (i, &x->tl.points) {
        const struct tl_point *p = &x->tl.points.ptr[i];
        if (p->point == t % l->tl_chunk / l->tl_point)
            return p->total == meta->total && p->writes == meta->writes
                       ? 0
                       : wrong(e, level, m, t, "its point says something else");
    }
    return wrong(e, level, m, t, "it has no point");
}

static int on_ru(struct rollups *x, struct str key, struct str value, struct err *e)
{
    struct vec_reader v;
    struct member m;
    uint32_t level, t, entry;
    struct rollup_row r;

    if (!key_ru_read(key, &level, &m, &t, &entry) || t % LEVELS[level].node ||
        (entry && level > 1) || GID_DIM(m.series) >= GROUP_DIMS)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len);
    if (purging_has(&x->c->purging, m.tenant, m.scope))
        return 0;
    if (know_part(x, &m, e) || rollup_row_read(value, &r, e) ||
        (r.vector.ptr && check_vector(x->c, m.tenant, m.scope, r.vector, &v, e)))
        return err_wrap(e, "level %u, slot %u, group %016" PRIx64, level, t, m.series);
    if (t < x->floors.at[level]) /* waits to be deleted */
        return 0;
    if (level >= DIRTY_FIRST && check_point(x, level, &m, t, &r.meta, e))
        return e->code;
    if (is_sum(x, level, &m, t) && check_merge(x, level, &m, t, value, e))
        return e->code;
    return level ? check_parent(x, KV_RU, level, &m, t, e) : 0;
}

/* ---- functions ---- */

static int merge_children(struct rollups *x, uint32_t level, const struct member *m, uint32_t t,
                          struct err *e)
{
    VEC(struct str) rows = { 0 };
    struct key from, to;
    int rc = 0;

    arena_reset(x->arena);
    key_ru(&from, level - 1, m, t);
    key_ru(&to, level - 1, m, t + LEVELS[level].node - 1);
    key_end(&to);
    struct kv_iter *it =
        kv_iter_new(x->c->v->kv, x->c->v->snap, KV_FN, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str row = arena_strdup(x->arena, kv_iter_value(it));
        CHECK(row.ptr);
        vec_push(&rows, row);
    }
    rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc)
        rc = rows.len ? function_cost_merge(rows.ptr, rows.len, &x->want, e)
                      : wrong(e, level, m, t, "functions without any below");
    vec_free(&rows);
    return rc;
}

/* Each value of the node is the self value of one function. A list has its members' sum. */
static int check_against_node(const struct buf *node, const struct vec_reader *self, uint32_t level,
                              const struct member *m, uint32_t t, struct err *e)
{
    struct rollup_row r;

    if (rollup_row_read(buf_str(node), &r, e))
        return e->code;
    if (!r.meta.saturated && !self->meta.saturated && r.meta.total != self->meta.total)
        return wrong(e, level, m, t, "the self values of its functions are not its total");
    return 0;
}

static int on_fn(struct rollups *x, struct str key, struct str value, struct err *e)
{
    struct vec_reader self, all;
    struct member m;
    uint32_t level, t;
    struct function_cost_row r;
    struct key k;

    if (!key_member_read(key, &level, &m, &t) || level < DIRTY_FIRST || t % LEVELS[level].node)
        return err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len);
    if (purging_has(&x->c->purging, m.tenant, m.scope))
        return 0;
    if (know_part(x, &m, e) || fn_read(value, &r, e) || vec_open(r.self, &self, e) ||
        vec_open(r.total, &all, e))
        return err_wrap(e, "level %u, slot %u, group %016" PRIx64, level, t, m.series);
    if (t < x->floors.at[level])
        return 0;
    key_ru(&k, level, &m, t);
    if (check_get(x->c, KV_RU, key_str(&k), "roll-up beside functions", e))
        return e->code;
    if (!dirty_has(&x->dirty, level, t) && check_against_node(&x->c->row, &self, level, &m, t, e))
        return e->code;
    if (level > DIRTY_FIRST && is_sum(x, level, &m, t)) {
        if (merge_children(x, level, &m, t, e))
            return e->code;
        if (!str_eq(buf_str(&x->want), value))
            return wrong(e, level, &m, t, "functions are not the sum of their children");
    }
    return check_parent(x, KV_FN, level, &m, t, e);
}

/* ---- groups against members ---- */

static void add(struct total *to, const struct vec_meta *m)
{
    to->total = u64_add_sat(to->total, m->total);
    to->writes = u64_add_sat(to->writes, m->writes);
    to->fp = fp_add(to->fp, m->fp);
    to->saturated |= m->saturated;
}

struct rollups_run { /* rows of a part */
    enum kv_cf cf;
    uint32_t row_level, level; /* of the rows, and of the nodes in which they are added up */
    uint32_t from, to;         /* slots [from, to) */
};

/* Adds up all rows of the run, by node. */
static int add_run(struct rollups *x, const struct rollups_run *run, struct err *e)
{
    const struct key_level *level = &LEVELS[run->level];
    struct member low = x->part, high = x->part, m;
    struct key first, end;
    int rc = 0;

    low.series = 0;
    high.series = UINT64_MAX;
    key_member(&first, run->row_level, &low, run->from);
    key_member(&end, run->row_level, &high, run->to - 1);
    key_end(&end);
    struct kv_iter *it =
        kv_iter_new(x->c->v->kv, x->c->v->snap, run->cf, key_str(&first), key_str(&end));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct vec_reader v;
        struct rollup_row r;
        uint32_t l, t, entry;
        if (!key_ru_read(kv_iter_key(it), &l, &m, &t, &entry) || t < run->from || t >= run->to)
            continue;
        uint32_t i = t % level->bucket / level->node;
        if (run->cf == KV_RU) {
            rc = rollup_row_read(kv_iter_value(it), &r, e);
            if (!rc && GID_DIM(m.series) < GROUP_DIMS)
                add(&x->dims[GID_DIM(m.series)][i], &r.meta);
        } else {
            rc = vec_peek(kv_iter_value(it), &v, e);
            if (!rc)
                add(&x->members[i], &v.meta);
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* Do members and groups both have rows of the node that count? */
static bool both(const struct rollups *x, uint32_t level, uint32_t t)
{
    uint32_t member = floors_base(&x->floors, false, t);
    uint32_t group = floors_base(&x->floors, true, t);

    if (level == 1)
        return member == 0 && group <= 1;
    return level >= member && level >= group &&
           (!dirty_has(&x->dirty, level, t) || (level == member && level == group));
}

static int compare(struct rollups *x, uint32_t level, uint32_t from, uint32_t to, struct err *e)
{
    for (uint32_t t = from, i = 0; t < to; t += LEVELS[level].node, i++) {
        if (!x->members[i].writes && !x->dims[0][i].writes && !x->dims[1][i].writes)
            continue;
        for (uint32_t dim = 0; both(x, level, t) && dim < GROUP_DIMS; dim++) {
            const struct total *m = &x->members[i], *g = &x->dims[dim][i];
            if (t < x->groups.since[dim] || m->saturated || g->saturated ||
                (m->total == g->total && m->writes == g->writes && m->fp == g->fp))
                continue;
            int rc = err_set(e, ERR_CORRUPT,
                             "level %u, slot %u, service %u: groups of dimension %u have %" PRIu64
                             " in %" PRIu64 " writes, F %016" PRIx64 "; series %" PRIu64
                             " in %" PRIu64 ", F %016" PRIx64,
                             level, t, x->part.scope, dim, g->total, g->writes, g->fp, m->total,
                             m->writes, m->fp);
            if (check_found(x->c, rc, e))
                return e->code;
        }
    }
    return 0;
}

static int check_run(struct rollups *x, const struct member *m, uint32_t level, uint32_t t,
                     struct err *e)
{
    uint32_t from = t - t % LEVELS[level].bucket, to = from + LEVELS[level].bucket;
    uint32_t step = LEVELS[0].bucket;

    if (purging_has(&x->c->purging, m->tenant, m->scope))
        return 0;
    check_here();
    int rc = know_part(x, m, e);

    CHECK(LEVELS[level].bucket / LEVELS[level].node <= NODES_MAX);
    memset(x->members, 0, sizeof(x->members));
    memset(x->dims, 0, sizeof(x->dims));
    if (!rc)
        rc = add_run(x, &(struct rollups_run){ KV_RU, level, level, from, to }, e);
    if (!rc && level > 1)
        rc = add_run(x, &(struct rollups_run){ KV_COARSE, level, level, from, to }, e);
    for (uint32_t at = from; !rc && level == 1 && at < to; at += step)
        rc = add_run(x, &(struct rollups_run){ KV_FINE, 0, 1, at, at + step }, e);
    rc = check_found(x->c, rc, e);
    return rc ? rc : compare(x, level, from, to, e);
}

/* Calls check_run for each run that the rows of cf lead to; of fine: runs of level 1. */
static int check_runs(struct rollups *x, enum kv_cf cf, struct err *e)
{
    struct kv_iter *it = kv_iter_new(x->c->v->kv, x->c->v->snap, cf, STR(""), STR_NULL);
    struct member m, last = { 0 };
    uint32_t level, t, entry, last_level = KEY_LEVELS, last_bucket = 0;
    int rc = 0;

    while (!rc && kv_iter_valid(it)) {
        struct key k;
        if (!key_ru_read(kv_iter_key(it), &level, &m, &t, &entry) || (cf == KV_RU && !level)) {
            kv_iter_next(it);
            continue;
        }
        uint32_t own = level, bucket = t / LEVELS[own].bucket;
        level = MAX(level, 1u);
        if (level != last_level || t / LEVELS[level].bucket != last_bucket || !same_part(&m, &last))
            rc = check_run(x, &m, level, t, e);
        last = m;
        last_level = level;
        last_bucket = t / LEVELS[level].bucket;
        m.series = UINT64_MAX; /* behind all rows of the part in this bucket */
        key_member(&k, own, &m, (bucket + 1) * LEVELS[own].bucket - 1);
        key_end(&k);
        kv_iter_seek(it, key_str(&k));
    }
    check_here();
    if (!rc)
        rc = check_found(x->c, kv_iter_status(it, e), e);
    kv_iter_free(it);
    return rc;
}

/* ---- the whole ---- */

static int each(struct rollups *x, enum kv_cf cf,
                int (*fn)(struct rollups *, struct str, struct str, struct err *), struct err *e)
{
    struct kv_iter *it = kv_iter_new(x->c->v->kv, x->c->v->snap, cf, STR(""), STR_NULL);
    int rc = 0;

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = check_row(x->c, e);
        if (!rc)
            rc = check_found(x->c, fn(x, kv_iter_key(it), kv_iter_value(it), e), e);
    }
    check_here();
    if (!rc)
        rc = check_found(x->c, kv_iter_status(it, e), e);
    kv_iter_free(it);
    return rc;
}

int check_rollups(struct check *c, struct err *e)
{
    struct rollups *x;
    int rc;

    if (c->v->s->format < 2)
        return 0;
    x = XNEW(struct rollups);
    x->c = c;
    x->arena = arena_new(SIZE_MAX / 2);
    rollup_row_sum_init(&x->sum);
    buf_init(&x->want, ROW_MAX);
    check_begin(c, CHECK_ROLLUPS);
    rc = each(x, KV_RU, on_ru, e);
    if (!rc)
        rc = check_runs(x, KV_RU, e);
    if (!rc)
        rc = check_runs(x, KV_COARSE, e);
    if (!rc)
        rc = check_runs(x, KV_FINE, e);
    check_begin(c, CHECK_FN);
    if (!rc)
        rc = each(x, KV_FN, on_fn, e);
    arena_free(x->arena);
    rollup_row_sum_deinit(&x->sum);
    buf_deinit(&x->want);
    vec_free(&x->tl.points);
    dirty_deinit(&x->dirty);
    xfree(x);
    return rc;
}
