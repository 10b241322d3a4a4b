/* SPDX-License-Identifier: Apache-2.0
 *
 * read: store_merge: the sum of all vectors in a range.
 *
 *   targets ──> per service: cover ──> fine, coarse + raw rows ──> dense array per dictionary
 *                                                                  epoch, by node id
 *                                                                      │ only nodes on a path
 *                                                                      ▼ to a value
 *                                                             the caller's struct stacks
 *
 * Sealed and unsealed rows come from one snapshot, in which each push is in exactly one of them.
 * Adding touches no stack; strings and frames are looked up once per node that is in the answer,
 * when a service is done. Nodes of different epochs and services meet in the caller's stacks.
 *
 * Sums: while the sum of row totals stays below 2^64 no value can overflow, and adding checks
 * nothing; beyond that each addition is checked and stays at 2^64-1 (`saturated` counts).
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/catalog/postings.h"
#include "common/store/codec/vec.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/query/cover.h"
#include "common/store/query/rollup_read.h"
#include "common/store/query/targets.h"
#include "common/store/state/presence.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

#define ARENA_MAX (256 * MIB)

struct acc { /* one epoch of the service being read */
    uint32_t epoch;
    struct dict *d; /* referenced */
    struct dict_counts n;
    uint64_t *values; /* by node */
};
struct merge {
    struct store_view *v;
    const struct store_query *q;
    struct store_merge *ret;
    uint32_t from, to;        /* real bounds, once find_bounds is done */
    struct targets_part part; /* being read */
    struct scan scan;         /* its */
    struct masks *masks;      /* of the query's targets */
    const uint32_t *index;    /* of scan.series among those of the service; NULL: the same */
    struct cover cover;       /* of the part */
    bool raw;                 /* its unsealed rows are being read */
    VEC(struct acc) accs;
    VEC(bool) seen;           /* by target of the scan */
    VEC(uint64_t) out;        /* by node of ret->stacks */
    roaring_bitmap_t *leaves; /* gauges */
    uint64_t bound;           /* no value is larger: the sum of all totals so far */
    bool checked;             /* the bound passed 2^64-1 */
};

/* ---- adding ---- */

/* `fresh`: it may be newer than the snapshot. */
static int find_acc(struct merge *m, uint32_t epoch, bool fresh, struct acc **ret, struct err *e)
{
    struct dict_id id = { m->scan.tenant, m->scan.scope, epoch };
    struct acc a = { .epoch = epoch };

    for (size_t i = m->accs.len; i > 0; i--) {
        if (m->accs.ptr[i - 1].epoch == epoch) {
            *ret = &m->accs.ptr[i - 1];
            return 0;
        }
    }
    int rc = dict_cache_read(m->v->dicts, fresh ? NULL : m->v->snap, id, &a.d, &a.n, e);
    if (rc)
        return rc;
    a.values = xcalloc(a.n.nodes, sizeof(*a.values));
    vec_push(&m->accs, a);
    *ret = &m->accs.ptr[m->accs.len - 1];
    return 0;
}

static int add_row(void *cookie, size_t series, uint32_t t, struct str value, struct err *e)
{
    struct merge *m = cookie;
    struct vec_section s;
    struct vec_reader r;
    struct acc *a;

    if (vec_open(value, &r, e))
        return err_wrap(e, "vector at slot %u", t);
    if (m->q->rows_max && m->ret->rows == m->q->rows_max)
        return err_set(e, ERR_LIMIT,
                       "the query reads more than %" PRIu64
                       " rows: ask for a shorter range or fewer series",
                       m->q->rows_max);
    m->ret->rows++;
    m->seen.ptr[m->index ? m->index[series] : series] = true;
    if (m->leaves && m->raw)
        roaring_bitmap_add(m->leaves, t / LEAF_SLOTS);
    m->ret->saturated += r.meta.saturated;
    m->checked = m->checked || !u64_add(m->bound, r.meta.total, &m->bound);
    while (vec_next(&r, &s)) {
        if (find_acc(m, s.epoch, false, &a, e))
            return e->code;
        bool ok = m->checked ? vec_add_dense_sat(&s, a->values, a->n.nodes, &m->ret->saturated)
                             : vec_add_dense(&s, a->values, a->n.nodes);
        if (!ok)
            return err_set(e, ERR_CORRUPT,
                           "vector at slot %u names node %u of a dictionary of %u (service %u)", t,
                           s.last, a->n.nodes, m->scan.scope);
    }
    return 0;
}

/* Sums may be newer than the snapshot, and so may the nodes they name. */
static int grow_acc(struct merge *m, struct acc *a, struct err *e)
{
    struct dict_id id = { m->scan.tenant, m->scan.scope, a->epoch };
    uint32_t had = a->n.nodes;
    struct dict *d;
    int rc = dict_cache_read(m->v->dicts, NULL, id, &d, &a->n, e);

    if (rc)
        return rc;
    dict_unref(a->d);
    a->d = d;
    a->values = xreallocarray(a->values, a->n.nodes, sizeof(*a->values));
    memset(a->values + had, 0, (a->n.nodes - had) * sizeof(*a->values));
    return 0;
}

/* The sum of the unsealed rows of a group in a leaf. */
static int add_hot(void *cookie, size_t series, const struct hot_leaf *l, struct err *e)
{
    struct merge *m = cookie;
    struct acc *a;

    m->ret->rows++;
    m->seen.ptr[m->index ? m->index[series] : series] = true;
    if (m->leaves)
        roaring_bitmap_add(m->leaves, l->t / LEAF_SLOTS);
    for (size_t i = 0; i < LEAF_SLOTS; i++)
        m->checked = m->checked || !u64_add(m->bound, l->total[i], &m->bound);
    for (size_t i = 0; i < l->len; i++) {
        const struct hot_section *s = &l->sections[i];
        if (find_acc(m, s->epoch, true, &a, e) || (s->last >= a->n.nodes && grow_acc(m, a, e)))
            return e->code;
        if (s->last >= a->n.nodes)
            return err_set(e, ERR_CORRUPT, "unsealed rows at slot %u name node %u of %u", l->t,
                           s->last, a->n.nodes);
        for (size_t k = 0; k < s->len; k++) {
            uint64_t *at = &a->values[s->ids[k]];
            if (m->checked && !u64_add(*at, s->values[k], at)) {
                *at = UINT64_MAX;
                m->ret->saturated++;
            } else if (!m->checked) {
                *at += s->values[k];
            }
        }
    }
    return 0;
}

/* ---- giving out ---- */

struct emit {
    struct acc *a;
    struct stacks *to;
    uint32_t *strings, *frames, *nodes; /* ids there, or STACKS_FULL = not yet */
    uint8_t *wanted;                    /* nodes that lead to a value */
};

static uint32_t *unknown_ids(size_t n)
{
    uint32_t *ids = xreallocarray(NULL, n ? n : 1, sizeof(*ids));

    memset(ids, 0xff, n * sizeof(*ids));
    return ids;
}

static uint32_t emit_string(struct emit *x, uint32_t id)
{
    if (x->strings[id] == STACKS_FULL)
        x->strings[id] = stacks_string(x->to, dict_string(x->a->d, id));
    return x->strings[id];
}

static uint32_t emit_frame(struct emit *x, uint32_t id)
{
    if (x->frames[id] != STACKS_FULL)
        return x->frames[id];
    const struct frame *f = dict_frame(x->a->d, id);
    struct frame there = { .func = emit_string(x, f->func),
                           .file = emit_string(x, f->file),
                           .module = emit_string(x, f->module),
                           .line = f->line,
                           .addr = f->addr };
    if (there.func != STACKS_FULL && there.file != STACKS_FULL && there.module != STACKS_FULL)
        x->frames[id] = stacks_frame(x->to, &there);
    return x->frames[id];
}

static void want_paths(struct emit *x)
{
    const struct acc *a = x->a;

    for (uint32_t i = a->n.nodes - 1; i > 0; i--) {
        pool_slice_step(i);
        if (a->values[i])
            x->wanted[i] = 1;
        if (x->wanted[i])
            x->wanted[dict_node(a->d, i)->parent] = 1;
    }
}

static bool emit_nodes(struct emit *x)
{
    x->nodes[0] = 0;
    for (uint32_t i = 1; i < x->a->n.nodes; i++) {
        pool_slice_step(i);
        if (!x->wanted[i])
            continue;
        const struct dict_node *n = dict_node(x->a->d, i);
        uint32_t frame = emit_frame(x, n->frame);
        if (frame == STACKS_FULL)
            return false;
        x->nodes[i] = stacks_node(x->to, x->nodes[n->parent], frame);
        if (x->nodes[i] == STACKS_FULL)
            return false;
    }
    return true;
}

static void add_out(struct merge *m, uint32_t node, uint64_t value)
{
    size_t had = m->out.len;

    if (node >= had) {
        vec_reserve(&m->out, (size_t)node + 1);
        memset(m->out.ptr + had, 0, (node + 1 - had) * sizeof(*m->out.ptr));
        m->out.len = (size_t)node + 1;
    }
    if (!u64_add(m->out.ptr[node], value, &value)) {
        value = UINT64_MAX;
        m->ret->saturated++;
    }
    m->out.ptr[node] = value;
}

static int emit_acc(struct merge *m, struct acc *a, struct err *e)
{
    struct emit x = {
        .a = a,
        .to = m->ret->stacks,
        .strings = unknown_ids(a->n.strings),
        .frames = unknown_ids(a->n.frames),
        .nodes = unknown_ids(a->n.nodes),
        .wanted = xcalloc(a->n.nodes, 1),
    };
    want_paths(&x);
    bool ok = emit_nodes(&x);
    for (uint32_t i = 0; ok && i < a->n.nodes; i++)
        if (a->values[i])
            add_out(m, x.nodes[i], a->values[i]);
    xfree(x.strings);
    xfree(x.frames);
    xfree(x.nodes);
    xfree(x.wanted);
    return ok ? 0
              : err_set(e, ERR_LIMIT,
                        "the stacks of the answer need more than %zu bytes: ask for a shorter "
                        "range or fewer series",
                        m->ret->stacks->bytes_max);
}

static void free_accs(struct merge *m)
{
    vec_for (i, &m->accs) {
        dict_unref(m->accs.ptr[i].d);
        xfree(m->accs.ptr[i].values);
    }
    m->accs.len = 0;
}

/* ---- one part: series or groups of a service ---- */

/* Sealed rows: what the runs of the cover say. */
static int read_sealed(struct merge *m, struct err *e)
{
    struct rollup_read groups = targets_groups(&m->scan, add_row, add_hot, m);
    int rc = 0;

    for (size_t i = 0; !rc && i < m->cover.runs.len; i++) {
        const struct cover_run *r = &m->cover.runs.ptr[i];
        m->scan.from = r->from;
        m->scan.to = r->to;
        rc = m->part.group ? rollup_read(&groups, r->level, r->from, r->to, e)
                           : scan_level(&m->scan, r->level ? KV_COARSE : KV_FINE, r->level, e);
    }
    return rc;
}

/* Unsealed rows of the same time, whatever its levels. */
static int read_raw(struct merge *m, uint32_t raw_low, struct err *e)
{
    struct rollup_read groups = targets_groups(&m->scan, add_row, add_hot, m);
    int rc = 0;

    for (size_t i = 0, end; !rc && i < m->cover.runs.len; i = end) {
        const struct cover_run *r = m->cover.runs.ptr;
        for (end = i + 1; end < m->cover.runs.len && r[end].from == r[end - 1].to;)
            end++;
        m->scan.from = r[i].from;
        m->scan.to = r[end - 1].to;
        m->raw = true;
        rc = m->part.group ? rollup_raw(&groups, m->part.all, raw_low, m->scan.from, m->scan.to, e)
                           : scan_raw(&m->scan, raw_low, e);
        m->raw = false;
    }
    return rc;
}

/* Leaves in which a gauge has data, at whatever level its values are kept. */
static int read_leaves(struct merge *m, struct err *e)
{
    struct timeline_row_scan c = {
        .v = m->v,
        .tenant = m->scan.tenant,
        .scope = m->scan.scope,
        .ptype = m->scan.ptype,
        .flags = m->part.group ? KEY_TL_GROUP : 0,
        .ids = m->scan.series,
        .len = m->scan.len,
        .cancel = m->scan.cancel,
    };
    int rc = 0;

    for (size_t i = 0; !rc && m->leaves && i < m->cover.runs.len; i++) {
        c.from = m->cover.runs.ptr[i].from;
        c.to = m->cover.runs.ptr[i].to;
        rc = presence_read(&c, m->leaves, e);
    }
    return rc;
}

static struct member part_of(const struct merge *m)
{
    return (struct member){ m->scan.tenant, m->scan.scope, m->scan.ptype, 0 };
}

static int make_cover(struct merge *m, uint32_t from, uint32_t to, struct err *e)
{
    struct member part = part_of(m);
    struct kv *kv = m->v->kv;
    struct dirty_set dirty = { 0 };
    struct floors floors;
    struct cover_in in = {
        .from = from,
        .to = to,
        .group = m->part.group,
        .since = m->part.group ? m->part.since : 0,
        .floors = &floors,
        .dirty = &dirty,
    };
    int rc = floors_load_read(kv, m->v->snap, &part, &floors, e);

    if (!rc && m->part.until < UINT32_MAX)
        in.to = MIN(in.to, cover_split(&floors, m->part.until));
    if (!rc)
        rc = dirty_load(&dirty, &(struct kv_view){ kv, m->v->snap }, &part, from, to, e);
    if (!rc)
        cover_make(&in, &m->cover);
    dirty_deinit(&dirty);
    return rc;
}

/* The sealed part, cut by deletes that are not purged; usually it is one. */
static int read_parts(struct merge *m, struct err *e)
{
    struct scan whole = m->scan;
    struct mask_part all = {
        .from = m->from, .to = m->to, .series = whole.series, .len = whole.len
    };
    mask_parts parts = { 0 };
    int rc;

    if (m->part.group) { /* nothing of it is masked: targets_plan.c */
        rc = read_sealed(m, e);
        return rc ? rc : read_leaves(m, e);
    }
    rc = masks_split(m->masks, whole.scope, whole.ptype, &all, &parts, e);

    for (size_t i = 0; !rc && i < parts.len; i++) {
        const struct mask_part *p = &parts.ptr[i];
        m->scan.series = p->series;
        m->scan.len = p->len;
        m->index = p->index;
        if (p->from != m->from || p->to != m->to)
            rc = make_cover(m, p->from, p->to, e);
        if (!rc)
            rc = read_sealed(m, e);
        if (!rc)
            rc = read_leaves(m, e);
    }
    m->scan = whole;
    m->index = NULL;
    vec_free(&parts);
    return rc;
}

static int merge_part(struct merge *m, uint32_t raw_low, struct err *e)
{
    vec_reserve(&m->seen, m->scan.len);
    memset(m->seen.ptr, 0, m->scan.len * sizeof(*m->seen.ptr));
    int rc = make_cover(m, m->from, m->to, e);
    if (!rc)
        rc = read_raw(m, raw_low, e);
    if (!rc)
        rc = read_parts(m, e);
    for (size_t i = 0; !rc && i < m->accs.len; i++)
        rc = emit_acc(m, &m->accs.ptr[i], e);
    for (size_t i = 0; i < m->scan.len; i++)
        m->ret->series += m->seen.ptr[i];
    free_accs(m);
    return rc;
}

/* ---- the query ---- */

/* Widens m->from, m->to to the bounds that this service has to answer with. */
static int widen(struct merge *m, uint32_t *from, uint32_t *to, struct err *e)
{
    struct member part = part_of(m);
    struct floors floors;
    struct cover_in in = { .from = m->from, .to = m->to, .floors = &floors };
    uint32_t real_from, real_to;
    int rc = floors_load_read(m->v->kv, m->v->snap, &part, &floors, e);

    if (rc)
        return rc;
    cover_bounds(&in, &real_from, &real_to);
    if (real_from < real_to) {
        *from = MIN(*from, real_from);
        *to = MAX(*to, real_to);
    }
    return 0;
}

/* One range for all services, whose edges fall into no node of any: so that the answer is exactly
 * the sum over its real bounds. Each round ends on coarser nodes than the one before, or is the
 * last. */
static int find_bounds(struct merge *m, struct targets *t, struct err *e)
{
    for (;;) {
        uint32_t from = UINT32_MAX, to = 0;
        int rc = 0;

        for (size_t i = 0; !rc && targets_part(t, m->q, i, &m->part); i++) {
            m->scan = m->part.scan;
            rc = widen(m, &from, &to, e);
        }
        if (rc || from >= to || (from == m->from && to == m->to))
            return rc;
        m->from = from;
        m->to = to;
    }
}

/* Targets and bounds. Other bounds may mean other days, other series, and those other floors. */
static int open_targets(struct merge *m, struct targets *t, struct arena *arena, struct err *e)
{
    for (;;) {
        uint32_t from = m->from, to = m->to;
        struct targets_query tq = {
            .q = m->q,
            .start_ms = slot_to_ms(from),
            .end_ms = slot_to_ms(to),
            .arena = arena,
        };
        int rc = targets_plan(t, m->v, &tq, e);
        if (!rc && m->from < m->to)
            rc = find_bounds(m, t, e);
        if (rc || (m->from >= from && m->to <= to))
            return rc;
        targets_close(t);
        arena_reset(arena);
    }
}

static int merge_targets(struct merge *m, struct targets *t, struct err *e)
{
    uint32_t raw_low;
    int rc = scan_raw_low(m->v, &raw_low, e);

    m->masks = &t->match.masks;
    for (size_t i = 0; !rc && targets_part(t, m->q, i, &m->part); i++) {
        m->scan = m->part.scan;
        m->scan.fn = add_row;
        m->scan.cookie = m;
        rc = merge_part(m, raw_low, e);
    }
    return rc;
}

static void finish(struct merge *m)
{
    vec_for (i, &m->out) {
        if (!m->out.ptr[i])
            continue;
        vec_push(&m->ret->nodes, (uint32_t)i);
        vec_push(&m->ret->values, m->out.ptr[i]);
        m->ret->total = u64_add_sat(m->ret->total, m->out.ptr[i]);
    }
    if (!m->leaves)
        return;
    size_t n = (size_t)roaring_bitmap_get_cardinality(m->leaves);
    vec_reserve(&m->ret->leaves, n);
    if (n)
        roaring_bitmap_to_uint32_array(m->leaves, m->ret->leaves.ptr);
    m->ret->leaves.len = n;
}

/* Slots of a range in ms, snapped outward to leaves. */
static void snap(int64_t start_ms, int64_t end_ms, uint32_t *ret_from, uint32_t *ret_to)
{
    *ret_from = MIN(slot_leaf(slot_of_ms(start_ms)), KEY_SLOT_MAX);
    *ret_to = *ret_from;
    if (end_ms > start_ms && end_ms > SLOT_EPOCH_MS)
        *ret_to = MIN(slot_leaf(slot_of_ms(end_ms - 1)), KEY_SLOT_MAX - LEAF_SLOTS) + LEAF_SLOTS;
}

void store_merge_deinit(struct store_merge *m)
{
    vec_free(&m->nodes);
    vec_free(&m->values);
    vec_free(&m->leaves);
}

int store_merge(struct store_view *v, const struct store_query *q, struct store_merge *ret,
                struct err *e)
{
    struct merge m = { .v = v, .q = q, .ret = ret };
    struct arena *arena = arena_new(ARENA_MAX);
    struct targets t;

    snap(q->start_ms, q->end_ms, &m.from, &m.to);
    *ret = (struct store_merge){ .stacks = ret->stacks };
    int rc = open_targets(&m, &t, arena, e);
    ret->gauge = t.type.gauge;
    if (ret->gauge)
        m.leaves = roaring_bitmap_create();
    if (!rc && m.from < m.to)
        rc = merge_targets(&m, &t, e);
    ret->start_ms = slot_to_ms(m.from);
    ret->end_ms = slot_to_ms(m.to);
    if (!rc)
        finish(&m);
    else
        store_merge_deinit(ret);
    if (m.leaves)
        roaring_bitmap_free(m.leaves);
    cover_deinit(&m.cover);
    vec_free(&m.accs);
    vec_free(&m.seen);
    vec_free(&m.out);
    targets_close(&t);
    arena_free(arena);
    return rc;
}
