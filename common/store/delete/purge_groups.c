/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_groups: corrects the roll-ups of services that lose some of their series.
 *
 * A row of a group is the sum of the rows of its members. It is corrected by subtracting the rows
 * of the deleted series, while those rows still exist. For each mask, in stages:
 *
 *   FLOORS    deletes minutes of groups where a deleted series had data and the leaves of members
 *             have expired: floor[1] rises (purge_floor.c)
 *   LEAVES    minute by minute: subtracts the leaves of the deleted series from levels 1 and 0 of
 *             their groups, and from the points of these levels
 *   NODES     level by level, node by node: at its base level, the rows of the deleted series are
 *             subtracted from a group; above the base, its row is built again from its children;
 *             the row of a dirty node is only deleted
 *   PRESENCE  day by day: clears the leaves in which no remaining member had data
 *   OF        deletes the rows that say to which groups the deleted series belonged
 *
 * A unit (a minute, a node) of a series is corrected in the same batch that deletes the rows of the
 * series there. So a row of a deleted series exists exactly as long as it is part of its group's
 * sum. Whatever a power cut takes back, no row is subtracted twice or left out, and the cursor only
 * saves searching. Until the end the masks are in force: queries read members instead of groups,
 * and no node is built. The cost grows with the rows of the deleted series, plus one row of a group
 * for each unit and step. It does not grow with the rows of the service.
 *
 * Building the roll-ups again from the remaining members would need all rows of all other series:
 * if one pod of ten thousand is deleted, ten thousand times the work.
 *
 * The fallback. If a sum has saturated at 2^64-1, the rows of one unit do not fit a batch, or sums
 * contradict each other, the roll-ups of the service are started again: `since` of each dimension
 * moves behind all existing data, the group rows before it are deleted, and queries of that time
 * read members. The results stay exact. tomb_stats.rollups_restarted
 * counts the services. Staging changes the service's row, too, so the fallback waits until no
 * staged write is uncommitted.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/names.h"
#include "common/store/delete/purge.h"
#include "common/store/state/commit.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define CURSOR_LEN 20
#define ROW_MAX    GIB
#define ARENA_MAX  GIB

/* ---- memory ---- */

static struct fix *fix_new(struct store *s)
{
    struct fix *f = XNEW(struct fix);

    f->mask = UINT32_MAX;
    f->tl_rows = s->tl_rows;
    f->arena = arena_new(ARENA_MAX);
    rollup_row_sum_init(&f->sum);
    vecsum_init(&f->less);
    vecdiff_init(&f->diff);
    buf_init(&f->all, ROW_MAX);
    buf_init(&f->taken, ROW_MAX);
    buf_init(&f->left, ROW_MAX);
    buf_init(&f->row, ROW_MAX);
    buf_init(&f->fn, ROW_MAX);
    f->calc = fn_calc_new(s->dicts);
    f->rebuild = rollup_rebuild_new(s);
    return f;
}

void fix_free(struct fix *f)
{
    if (!f)
        return;
    vec_free(&f->begins);
    vec_free(&f->of);
    vec_free(&f->groups);
    vec_free(&f->next);
    vec_free(&f->rows);
    vec_free(&f->items);
    vec_free(&f->ids);
    vec_free(&f->old);
    vec_free(&f->tl.points);
    arena_free(f->arena);
    rollup_row_sum_deinit(&f->sum);
    vecsum_deinit(&f->less);
    vecdiff_deinit(&f->diff);
    buf_deinit(&f->all);
    buf_deinit(&f->taken);
    buf_deinit(&f->left);
    buf_deinit(&f->row);
    buf_deinit(&f->fn);
    fn_calc_free(f->calc);
    rollup_rebuild_free(f->rebuild);
    fix_left_drop(f);
    xfree(f);
}

/* ---- rules ---- */

static int load_rules(struct fix *f, struct err *e)
{
    struct group_rule *r = XNEW(struct group_rule);
    struct kv *kv = f->x->s->kv;
    struct key k;
    int rc = group_service_get(kv, NULL, f->x->t->tenant, f->m->scope, &f->g, e);

    f->begins.len = 0;
    for (uint32_t i = 1; !rc && i <= f->g.rules; i++) {
        key_rule_number(&k, f->x->t->tenant, f->m->scope, i);
        rc = kv_get(kv, NULL, KV_META, key_str(&k), &f->row, e);
        if (!rc)
            rc = group_rule_read(buf_str(&f->row), r, e);
        vec_push(&f->begins, i == 1 ? 0 : r->since);
    }
    xfree(r);
    return rc == ERR_NOT_FOUND
               ? err_set(e, ERR_CORRUPT, "a grouping rule of service %u is missing", f->m->scope)
               : rc;
}

/* ---- the fallback: roll-ups are started again ---- */

/* Column families with rows of groups; in `tl` a flag of the level marks such rows. */
static const struct purge_cf OF_GROUPS[] = { { KV_RU, 1 }, { KV_FN, 1 }, { KV_TL, 1 } };

/* The first slot behind all data of the service, at least behind now. */
static int behind_all(struct purge_step *x, uint32_t scope, uint32_t *ret, struct err *e)
{
    uint32_t day = slot_of_ms(store_now(x->s)) / DAY_SLOTS;
    struct key from, to;
    struct days d;
    int rc = 0;

    key_active(&from, x->t->tenant, scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = days_read(kv_iter_value(it), &d, e);
        if (!rc)
            day = MAX(day, d.last);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    *ret = (day + 1) * DAY_SLOTS;
    return rc;
}

static int move_since(struct purge_step *x, uint32_t scope, bool *ret_moved, struct err *e)
{
    struct group_service g;
    struct buf row;
    uint32_t since;
    struct key k;

    *ret_moved = false;
    if (behind_all(x, scope, &since, e) ||
        group_service_get(x->s->kv, NULL, x->t->tenant, scope, &g, e))
        return e->code;
    for (size_t i = 0; i < GROUP_DIMS; i++) {
        if (g.since[i] == GROUP_NEVER || g.since[i] >= since)
            continue;
        g.since[i] = since;
        *ret_moved = true;
    }
    if (!*ret_moved)
        return 0;
    buf_init(&row, KIB);
    group_service_put(&g, &row);
    key_rule(&k, x->t->tenant, scope);
    kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&row));
    buf_deinit(&row);
    groups_drop(x->s->groups);
    return 0;
}

static int drop_rows(struct purge_step *x, uint32_t scope, const struct purge_cf *cf, struct err *e)
{
    struct purge_span span = { .cf = cf->cf, .head = cf->head };
    int more;

    while ((more = purge_next_span(x->s->kv, NULL, x->t->tenant, scope, &span, e)) > 0) {
        if (cf->cf != KV_TL || span.lead & KEY_TL_GROUP) {
            if (purge_drop_span(x, scope, &span, e))
                return e->code;
        }
        purge_span_step(&span);
    }
    return more < 0 ? e->code : 0;
}

/* Instead of all that this step has done. `why` is the answer if that cannot help. */
static int begin_anew(struct fix *f, struct err *why)
{
    struct purge_step *x = f->x;
    bool moved;
    struct err e;

    kv_batch_clear(x->b);
    tl_rows_reset(x->s->tl_rows);
    part_cache_clear(x->s->parts);
    x->rows = x->bytes = 0;
    x->outs.at.len = x->outs.last = 0;
    f->in_run = false;
    x->wants_quiet = !x->quiet;
    if (x->wants_quiet)
        return 0;
    x->full = true;
    if (move_since(x, f->m->scope, &moved, &e)) {
        *why = e;
        return e.code;
    }
    if (!moved)
        return why->code;
    for (size_t c = 0; c < ARRAY_LEN(OF_GROUPS); c++)
        if (drop_rows(x, f->m->scope, &OF_GROUPS[c], &e)) {
            *why = e;
            return e.code;
        }
    x->s->tombs->rollups_restarted++;
    return 0;
}

/* ---- the phase ---- */

static const fix_fn STAGES[FIX_STAGES] = {
    [FIX_FLOORS] = fix_floors,  [FIX_LEAVES] = fix_units, [FIX_NODES] = fix_units,
    [FIX_PRESENCE] = fix_units, [FIX_OF] = fix_forget,
};

static void read_cursor(const struct buf *c, struct fix_place *p)
{
    *p = (struct fix_place){ 0 };
    if (c->len != CURSOR_LEN)
        return;
    p->mask = get_u32be(c->ptr);
    p->stage = (uint8_t)c->ptr[4];
    p->lead = (uint8_t)c->ptr[5];
    p->bucket = get_u32be(c->ptr + 8);
    p->ptype = get_u32be(c->ptr + 12);
    p->t = get_u32be(c->ptr + 16);
}

static void put_cursor(const struct fix_place *p, struct buf *c)
{
    char b[CURSOR_LEN] = { 0 };

    put_u32be(b, p->mask);
    b[4] = (char)p->stage;
    b[5] = (char)p->lead;
    put_u32be(b + 8, p->bucket);
    put_u32be(b + 12, p->ptype);
    put_u32be(b + 16, p->t);
    buf_reset(c);
    buf_add(c, b, sizeof(b));
}

static int begin_mask(struct fix *f, uint32_t mask, struct err *e)
{
    f->m = &f->x->t->masks.at.ptr[mask];
    if (f->mask != mask) {
        f->mask = mask;
        f->in_run = false;
        f->groups.len = 0;
        f->of.len = 0;
        for (size_t i = 0; i < f->m->series_len; i++)
            vec_push(&f->of, ((struct fix_of){ 0 }));
    }
    return load_rules(f, e);
}

/* One stage of a mask, or a part of it. */
static int run_stage(struct fix *f, struct fix_place *p, struct err *e)
{
    bool done = false;
    int rc = begin_mask(f, p->mask, e);

    if (!rc)
        rc = STAGES[p->stage](f, p, &done, e);
    if (rc || !done)
        return rc;
    uint8_t next = p->stage + 1;
    *p = (struct fix_place){ .mask = p->mask + (next == FIX_STAGES),
                             .stage = next % FIX_STAGES,
                             .lead = next == FIX_PRESENCE ? KEY_TL_PRESENCE : 0 };
    /* What comes next reads what this one wrote. */
    f->x->full = f->x->full || kv_batch_count(f->x->b);
    return 0;
}

int purge_groups(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    struct purge *purge = x->s->tombs->purge;
    struct fix_place p, first;
    int rc = 0;

    if (!purge->fix)
        purge->fix = fix_new(x->s);
    struct fix *f = purge->fix;
    f->x = x;
    read_cursor(&x->t->cursor, &p);
    first = p;
    while (!rc && !x->full && p.mask < m->at.len) {
        if (!m->at.ptr[p.mask].series_len) /* all of them: rows of groups just go (purge_rows.c) */
            p.stage = FIX_OF;
        rc = run_stage(f, &p, e);
    }
    if (!rc)
        rc = tl_rows_put(x->s->tl_rows, UINT32_MAX, x->b, e);
    if (!rc)
        rc = purge_fits(x, e);
    if (rc == ERR_CORRUPT || rc == ERR_LIMIT) {
        p = first;
        rc = begin_anew(f, e);
    }
    if (rc) {
        tl_rows_reset(x->s->tl_rows);
        part_cache_clear(x->s->parts);
        f->in_run = false;
        return rc;
    }
    put_cursor(&p, &x->t->cursor);
    x->permille = (uint32_t)(((uint64_t)p.mask * FIX_STAGES + p.stage) * 1000 /
                             MAX(m->at.len * FIX_STAGES, 1u));
    *ret_done = p.mask >= m->at.len;
    return 0;
}
