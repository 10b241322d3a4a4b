/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_fix: the units of time in which the deleted series of a mask have rows.
 *
 *   run    rows of one column family, level, bucket and type: one iterator
 *   unit   leaves: a minute; nodes: a node; presence: a day
 *
 * In a run the slot of the next row of each series is remembered, so a unit without rows costs
 * nothing, and one with rows a seek for each series that has some. A unit is read as far as bytes
 * and rows of a step allow; the rest of its series come in the next step, when the row of their
 * group is without the first ones.
 *
 * Levels come in order, the finest first, and each is written before the next one is begun: what is
 * built again from children reads children that are corrected.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/delete/purge.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define UNIT_BYTES  (16 * MIB) /* of rows read */
#define BATCH_BYTES (16 * MIB)

/* ---- a run ---- */

static uint32_t unit_width(const struct fix *f)
{
    if (f->cf == KV_TL)
        return DAY_SLOTS;
    return f->run.lead ? LEVELS[f->run.lead].node : LEVELS[1].node;
}

static uint32_t bucket_width(const struct fix *f)
{
    return f->cf == KV_TL ? KEY_PRESENCE_BUCKET : LEVELS[f->run.lead].bucket;
}

/* lead | bucket | tenant | scope | ptype | series | t */
static void row_key(const struct fix_place *r, const struct member *m, uint32_t t, struct key *k)
{
    k->b[0] = (char)r->lead;
    put_u32be(k->b + 1, r->bucket);
    put_u32be(k->b + 5, m->tenant);
    put_u32be(k->b + 9, m->scope);
    put_u16be(k->b + 13, m->ptype);
    put_u64be(k->b + 15, m->series);
    put_u32be(k->b + 23, t);
    k->len = KEY_MEMBER_LEN;
}

static void begin_run(struct fix *f, const struct fix_place *p)
{
    if (f->in_run && f->run.stage == p->stage && f->run.lead == p->lead &&
        f->run.bucket == p->bucket && f->run.ptype == p->ptype)
        return;
    f->in_run = true;
    f->run = *p;
    f->part = (struct member){ f->x->t->tenant, f->m->scope, (uint16_t)p->ptype, 0 };
    f->next.len = 0;
    for (size_t i = 0; i < f->m->series_len; i++)
        vec_push(&f->next, 0);
    f->width = unit_width(f);
}

static struct kv_iter *run_iter(const struct fix *f)
{
    struct member first = f->part, last = f->part;
    struct key from, to;

    first.series = 0;
    last.series = UINT64_MAX;
    row_key(&f->run, &first, 0, &from);
    row_key(&f->run, &last, UINT32_MAX, &to);
    key_end(&to);
    return kv_iter_new(f->x->s->kv, NULL, f->cf, key_str(&from), key_str(&to));
}

/* Moves `it` to the first row of a series at or behind slot t; which one, UINT32_MAX: none. */
static uint32_t seek_row(struct fix *f, struct kv_iter *it, uint32_t index, uint32_t t)
{
    struct key k;

    f->part.series = f->m->series[index];
    row_key(&f->run, &f->part, t, &k);
    kv_iter_seek(it, key_str(&k));
    if (!kv_iter_valid(it) || kv_iter_key(it).len != KEY_MEMBER_LEN ||
        memcmp(kv_iter_key(it).ptr, k.b, KEY_MEMBER_HEAD) != 0)
        return UINT32_MAX;
    return get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD);
}

/* The first slot >= low with a row of any of the series. */
static uint32_t least_row(struct fix *f, struct kv_iter *it, uint32_t low)
{
    uint32_t least = UINT32_MAX;

    vec_for (i, &f->next) {
        if (f->next.ptr[i] < low)
            f->next.ptr[i] = seek_row(f, it, (uint32_t)i, low);
        least = MIN(least, f->next.ptr[i]);
    }
    return least;
}

/* ---- a unit ---- */

/* What has to be done to groups in the unit, before anything of it is read. */
static int decide(struct fix *f, struct err *e)
{
    uint32_t level = f->run.lead, since = MIN(f->g.since[GROUP_WHOLE], f->g.since[GROUP_BASE]);
    uint32_t member = floors_base(&f->floors, false, f->t);
    uint32_t group = floors_base(&f->floors, true, f->t);
    struct dirty_mark mark;

    f->what = FIX_SKIP;
    if (!f->g.rules || f->t < since || level < member)
        return 0;
    if (!level) {
        f->what = FIX_MINUTE;
    } else if (level == group) {
        f->what = FIX_BASE;
    } else if (level == member) {
        return err_set(e, ERR_CORRUPT, "minutes at slot %u of service %u outlive their leaves",
                       f->t, f->part.scope);
    } else {
        int rc = dirty_get(&(struct kv_view){ .kv = f->x->s->kv }, &f->part, level, f->t, &mark, e);
        if (rc && rc != ERR_NOT_FOUND)
            return rc;
        f->what = rc ? FIX_REBUILD : FIX_DROP;
    }
    return 0;
}

/* Rows of the base level, which the ledger counts. */
static bool is_truth(const struct fix *f)
{
    return f->cf != KV_TL && floors_base(&f->floors, false, f->t) == f->run.lead;
}

/* Rows of one series in the unit, from where `it` is moved. */
static int read_series(struct fix *f, struct kv_iter *it, uint32_t index, size_t *bytes,
                       struct err *e)
{
    bool wanted = f->what == FIX_MINUTE || f->what == FIX_BASE || f->cf == KV_TL || is_truth(f);
    uint32_t t = seek_row(f, it, index, f->t);
    struct str head = { 0 };
    char key[KEY_MEMBER_HEAD];

    if (t != UINT32_MAX) {
        memcpy(key, kv_iter_key(it).ptr, sizeof(key));
        head = str_n(key, sizeof(key));
    }
    while (t < f->t + f->width) {
        struct fix_row row = { .index = index, .t = t };
        if (wanted) {
            row.bytes = arena_strdup(f->arena, kv_iter_value(it));
            if (!row.bytes.ptr)
                return err_set(e, ERR_LIMIT, "rows of a series have more than %zu bytes",
                               arena_limit(f->arena));
            *bytes += row.bytes.len;
        }
        vec_push(&f->rows, row);
        kv_iter_next(it);
        if (!kv_iter_valid(it) || !str_starts(kv_iter_key(it), head))
            break;
        t = get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD);
    }
    f->next.ptr[index] = 0;
    return kv_iter_status(it, e);
}

/* Reads the rows of deleted series in one unit; *ret_cut: more series remain for the next step.
 * Presence is never cut: a later phase deletes its rows, so the next step would read the same rows
 * again. They are small. If the presence rows of all deleted series in a day do not fit the arena,
 * the roll-ups are started again (purge_groups.c). */
static int read_unit(struct fix *f, struct kv_iter *it, bool *ret_cut, struct err *e)
{
    size_t bytes = 0;
    int rc = 0;

    f->rows.len = 0;
    arena_reset(f->arena);
    *ret_cut = false;
    for (size_t i = 0; !rc && !*ret_cut && i < f->next.len; i++) {
        if (f->next.ptr[i] < f->t || f->next.ptr[i] >= f->t + f->width)
            continue;
        *ret_cut = f->cf != KV_TL && f->rows.len &&
                   (f->rows.len >= f->x->rows_left || bytes >= UNIT_BYTES);
        if (!*ret_cut)
            rc = read_series(f, it, (uint32_t)i, &bytes, e);
    }
    return rc;
}

static int delete_rows(struct fix *f, struct err *e)
{
    bool counts = is_truth(f);
    struct key k;

    vec_for (i, &f->rows) {
        const struct fix_row *r = &f->rows.ptr[i];
        f->part.series = f->m->series[r->index];
        row_key(&f->run, &f->part, r->t, &k);
        if (counts && ledger_outs_add(&f->x->outs, &f->part, r->t, false, r->bytes, e))
            return e->code;
        kv_batch_del(f->x->b, f->cf, key_str(&k));
        purge_count(f->x, 1, k.len + r->bytes.len);
    }
    purge_touch(f->x, f->cf, f->run.lead, f->run.bucket);
    return 0;
}

static int do_day(struct fix *f, struct kv_iter *it, bool *ret_cut, struct err *e)
{
    int rc = fix_survivors(f, ret_cut, e);

    if (rc || *ret_cut)
        return rc;
    rc = read_unit(f, it, ret_cut, e);
    purge_count(f->x, f->rows.len, 0);
    if (!rc)
        rc = fix_presence(f, e);
    fix_left_drop(f);
    return rc;
}

static int do_unit(struct fix *f, struct kv_iter *it, bool *ret_cut, struct err *e)
{
    if (f->cf == KV_TL)
        return do_day(f, it, ret_cut, e);
    int rc = decide(f, e);

    if (!rc)
        rc = read_unit(f, it, ret_cut, e);
    if (!rc && f->what != FIX_SKIP)
        rc = fix_rollups(f, e);
    if (!rc)
        rc = delete_rows(f, e);
    return rc;
}

/* All units of a run from p->t on, which moves. */
static int do_run(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e)
{
    bool cut = false;
    int rc;

    begin_run(f, p);
    rc = floors_get(f->x->s, &f->part, &f->floors, e);
    struct kv_iter *it = run_iter(f);
    uint64_t bucket = (uint64_t)p->bucket * bucket_width(f);
    size_t most = MIN((size_t)BATCH_BYTES, kv_batch_max(f->x->s->kv) / 4);
    uint32_t end = (uint32_t)MIN(bucket + bucket_width(f), (uint64_t)f->m->to);
    while (!rc && !f->x->full) {
        p->t = MAX(p->t, f->m->from - f->m->from % f->width);
        uint32_t t = least_row(f, it, p->t);
        rc = kv_iter_status(it, e);
        *ret_done = !rc && t >= end;
        if (rc || *ret_done)
            break;
        f->t = p->t = t - t % f->width;
        rc = do_unit(f, it, &cut, e);
        p->t += cut ? 0 : f->width;
        f->x->full = f->x->full || cut || kv_batch_bytes(f->x->b) >= most;
    }
    kv_iter_free(it);
    return rc;
}

/* ---- all runs of a stage ---- */

/* The first type of the mask from p->ptype on with rows in the bucket; > 65,535: none. */
static int next_type(const struct fix *f, struct fix_place *p, struct err *e)
{
    struct member m = { f->x->t->tenant, f->m->scope, 0, 0 };
    struct key from, to;
    int rc = 0;

    row_key(p, &m, 0, &from);
    from.len = 13;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(f->x->s->kv, NULL, f->cf, key_str(&from), key_str(&to));
    for (bool found = false; !rc && !found && p->ptype <= UINT16_MAX;) {
        m.ptype = (uint16_t)p->ptype;
        row_key(p, &m, 0, &from);
        kv_iter_seek(it, key_str(&from));
        rc = kv_iter_status(it, e);
        uint32_t type = UINT16_MAX + 1u;
        if (!rc && kv_iter_valid(it) && kv_iter_key(it).len >= 15)
            type = get_u16be(kv_iter_key(it).ptr + 13);
        p->t = type == p->ptype ? p->t : 0;
        p->ptype = type;
        found = type <= UINT16_MAX && mask_has_type(f->m, (uint16_t)type);
        if (!found && type <= UINT16_MAX) {
            p->ptype++;
            p->t = 0;
        }
    }
    kv_iter_free(it);
    return rc;
}

static int do_bucket(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e)
{
    bool done = true;

    for (*ret_done = false; !f->x->full;) {
        if (next_type(f, p, e))
            return e->code;
        if (p->ptype > UINT16_MAX) {
            *ret_done = true;
            return 0;
        }
        int rc = do_run(f, p, &done, e);
        if (rc || !done)
            return rc;
        p->ptype++;
        p->t = 0;
    }
    return 0;
}

int fix_units(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e)
{
    struct purge_step *x = f->x;
    struct purge_span span = { .head = 1, .lead = p->lead, .bucket = p->bucket };
    int rc = 0, more = 0;

    f->cf = p->stage == FIX_LEAVES ? KV_FINE : p->stage == FIX_NODES ? KV_COARSE : KV_TL;
    span.cf = f->cf;
    while (!rc && !x->full) {
        more = purge_next_span(x->s->kv, NULL, x->t->tenant, f->m->scope, &span, e);
        if (more < 0)
            return e->code;
        *ret_done =
            !more || (f->cf == KV_TL ? span.lead != KEY_TL_PRESENCE : span.lead >= KEY_LEVELS);
        if (*ret_done)
            return 0;
        bool level = span.lead != p->lead;
        if (level || span.bucket != p->bucket) {
            p->lead = (uint8_t)span.lead;
            p->bucket = span.bucket;
            p->ptype = p->t = 0;
        }
        if (level && kv_batch_count(x->b)) {
            x->full = true;
            break;
        }
        bool done = false;
        rc = do_bucket(f, p, &done, e);
        if (rc || !done)
            break;
        purge_span_step(&span);
    }
    return rc;
}
