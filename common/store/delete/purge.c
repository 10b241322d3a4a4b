/* SPDX-License-Identifier: Apache-2.0
 *
 * purge: runs the phases of pending deletes (tombs), the oldest tomb first. Each step of a phase
 * writes one batch.
 *
 *   TENANT    ranges ─> tables
 *   SERVICES  ranges ─> labels ─> postings ─> pairs ─> tables
 *   SERIES    groups ─> rows ─> postings ─> pairs ─> days
 *   RANGE     marks ─> groups ─> rows ─> postings ─> pairs ─> days
 *
 * A phase searches for the rows to delete, so a phase that is restarted finds the rows that remain.
 * The cursor only saves searching the same keys again. The cursor and the counts are in the batch
 * of the step, which is not synced: a power cut takes back rows and cursor together.
 *
 * Two phases (postings, pairs) change rows that staging changes, too, and two others (days, groups)
 * rows that staging caches. Such changes are made only while no staged write is uncommitted:
 * `want_quiet` asks the shard to hold writes back for one commit.
 *
 * Thread: the shard's.
 */
#include "common/store/delete/purge.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/build/build_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/due.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ROW_MAX      (64 * MIB)
#define IDLE_WAIT_MS 60000
#define LOOK_MS      1000 /* between searches for files that compaction has rewritten */

struct phase {
    purge_phase fn;
    const char *name;
};
static const struct phase phases[] = {
    [TOMB_RANGES] = { purge_ranges, "ranges" },
    [TOMB_LABELS] = { purge_labels, "labels" },
    [TOMB_POSTINGS] = { purge_postings, "postings" },
    [TOMB_PAIRS] = { purge_pairs, "pairs" },
    [TOMB_TABLES] = { purge_tables, "tables" },
    [TOMB_MARKS] = { purge_marks, "marks" },
    [TOMB_GROUPS] = { purge_groups, "groups" },
    [TOMB_ROWS] = { purge_rows, "rows" },
    [TOMB_DAYS] = { purge_days, "days" },
};

/* ---- working memory ---- */

struct purge *purge_new(void)
{
    struct purge *p = XNEW(struct purge);

    p->alive = roaring_bitmap_create();
    buf_init(&p->row, ROW_MAX);
    return p;
}

void purge_close(struct tombs *t)
{
    struct purge *p = t ? t->purge : NULL;

    if (!p)
        return;
    t->purge = NULL;
    fix_free(p->fix);
    roaring_bitmap_free(p->alive);
    vec_free(&p->days);
    buf_deinit(&p->row);
    xfree(p);
}

bool store_wants_quiet(const struct store *s)
{
    return s->tombs->want_quiet && !store_read_only(s);
}

/* ---- batches ---- */

static void put_tomb(struct purge_step *x)
{
    struct key k;

    tomb_row_put(x->t, &x->s->tombs->purge->row);
    key_tomb(&k, KEY_TOMB, x->t->tenant, x->t->entry);
    kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&x->s->tombs->purge->row));
}

static void put_progress(struct purge_step *x)
{
    struct key k;

    tomb_at_put(x->t, &x->s->tombs->purge->row);
    key_tomb(&k, KEY_TOMB_AT, x->t->tenant, x->t->entry);
    kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&x->s->tombs->purge->row));
}

/* Names, stacks and label sets are rows of meta; unsealed rows are in raw. */
static void touch_rest(struct purge_step *x)
{
    static const uint8_t of_tenant[] = { KEY_TENANT_NAME, KEY_TENANT, KEY_DOC, KEY_DOC_CHUNK },
                         of_service[] = { KEY_SCOPE_NAME, KEY_SCOPE, KEY_PTYPE_NAME,
                                          KEY_PTYPE,      KEY_DICT,  KEY_RULE },
                         of_series[] = { KEY_ORD, KEY_PAIR };

    for (size_t i = 0; x->t->kind == TOMB_TENANT && i < ARRAY_LEN(of_tenant); i++)
        purge_touch(x, KV_META, of_tenant[i], 0);
    for (size_t i = 0; x->t->kind <= TOMB_SERVICES && i < ARRAY_LEN(of_service); i++)
        purge_touch(x, KV_META, of_service[i], 0);
    for (size_t i = 0; i < ARRAY_LEN(of_series); i++)
        purge_touch(x, KV_META, of_series[i], 0);
    purge_touch(x, KV_RAW, 0, 0);
}

/* No row is left: the masks go. */
static void put_end(struct purge_step *x)
{
    struct key from, to;

    touch_rest(x);

    key_tomb(&from, KEY_TOMB_MASK, x->t->tenant, x->t->entry);
    to = from;
    key_end(&to);
    kv_batch_del_range(x->b, KV_META, key_str(&from), key_str(&to));
    x->t->state = TOMB_PURGED;
    x->t->ended_ms = store_now(x->s);
    put_tomb(x);
}

/* ---- steps ---- */

static void ended(struct store *s, struct tomb *t)
{
    struct tombs *all = s->tombs;

    all->pending--;
    all->ranges -= t->kind == TOMB_RANGE;
    atomic_store(&all->purged_view, view_latest(s));
    build_schedule(s, DIRTY_FIRST, 0); /* what had to wait */
    masks_deinit(&t->masks);
    purge_close(all);
}

static int write_step(struct purge_step *x, bool last, struct err *e)
{
    struct tombs *all = x->s->tombs;
    int rc;

    x->t->rows += x->rows;
    x->t->bytes += x->bytes;
    x->t->of = tomb_phase_count(x->t) * 1000;
    x->t->done = x->t->phase * 1000u + (x->t->state == TOMB_PURGING ? MIN(x->permille, 999u) : 0);
    put_progress(x);
    rc = store_write_batch(x->s, x->b, last, e); /* purged_view counts on the last one */
    if (rc)
        return rc;
    all->rows += x->rows;
    all->bytes += x->bytes;
    return 0;
}

/* Phases until one has used the budget up, wants quiet, or was the last. */
static int run_phases(struct purge_step *x, struct err *e)
{
    struct tomb *t = x->t;
    uint32_t n = tomb_phase_count(t);
    int rc = 0;

    while (!rc && !x->full && !x->wants_quiet && t->phase < n) {
        bool done = false;
        x->permille = 0;
        const struct phase *phase = &phases[tomb_phase_at(t)];
        rc = phase->fn(x, &done, e);
        if (rc)
            return err_wrap(e, "%s", phase->name);
        if (!done)
            return 0;
        t->phase++;
        buf_reset(&t->cursor);
        x->full = true; /* a phase reads what the one before wrote */
    }
    return rc;
}

/* Resets the tomb to the state before a step that failed: phase, cursor, and all that the step
 * cached of rows, which it may not have read to the end. Nothing of the step was written. Without
 * the reset the next step would continue behind rows that still exist, and readers would see these
 * rows again when the masks are removed. */
static void take_back(struct store *s, struct tomb *t, uint8_t phase, struct str cursor)
{
    struct tombs *all = s->tombs;

    tl_rows_reset(s->tl_rows);
    part_cache_clear(s->parts);
    t->phase = phase;
    buf_reset(&t->cursor);
    buf_add_str(&t->cursor, cursor);
    purge_close(all);
}

static int step_tomb(struct store *s, struct tomb *t, size_t rows_max, struct err *e)
{
    struct purge_step x = {
        .s = s, .t = t, .rows_left = rows_max, .b = kv_batch_new(), .quiet = store_quiet(s)
    };
    struct tombs *all = s->tombs;
    uint8_t phase = t->phase;
    struct buf cursor;

    buf_init(&cursor, t->cursor.max);
    buf_add_str(&cursor, buf_str(&t->cursor));
    if (!all->purge)
        all->purge = purge_new();
    int rc = run_phases(&x, e);
    if (!rc) /* here: it reads, and may fail */
        rc = ledger_outs_put(s, &x.outs, x.b, e);
    if (!rc) /* a batch that is refused for its size would end all writing */
        rc = purge_fits(&x, e);
    if (rc)
        take_back(s, t, phase, buf_str(&cursor));
    buf_deinit(&cursor);
    bool last = !rc && t->phase == tomb_phase_count(t);
    if (last)
        put_end(&x);
    if (last) /* no earlier view is without it */
        atomic_store(&all->purged_view, view_latest(s) + 1);
    all->want_quiet = x.wants_quiet;
    if (!rc && (kv_batch_count(x.b) || !x.wants_quiet))
        rc = write_step(&x, last, e);
    if (!rc && last)
        ended(s, t);
    kv_batch_free(x.b);
    ledger_outs_deinit(&x.outs);
    return rc ? err_wrap(e, "purge of delete %" PRIu64, t->entry) : 0;
}

/* ---- write ids of a tenant ---- */

/* Deletes write ids of the tenant, which were kept until no copy of a push could be under way any
 * more. *ret_left: there may be more of them. */
static int step_wids(struct store *s, struct tomb *t, size_t rows_max, bool *ret_left,
                     struct err *e)
{
    struct purge_step x = { .s = s, .t = t, .rows_left = rows_max, .b = kv_batch_new() };
    struct tombs *all = s->tombs;

    all->purge = purge_new();
    int rc = purge_wids(&x, e);
    *ret_left = kv_batch_count(x.b) > 0;
    if (!rc && *ret_left)
        rc = write_step(&x, false, e);
    if (!rc && *ret_left)
        atomic_store(&all->purged_view, view_latest(s));
    purge_close(all);
    kv_batch_free(x.b);
    return rc ? err_wrap(e, "write ids of delete %" PRIu64, t->entry) : 0;
}

/* ---- deleted rows that are still in files ---- */

bool tomb_ripe(const struct store *s, const struct tomb *t)
{
    return t->kind != TOMB_TENANT || (t->wids_gone && !tomb_guarded(s, t));
}

int tomb_done(struct store *s, struct tomb *t, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct buf row;
    struct key k;

    t->state = TOMB_DONE;
    t->ended_ms = store_now(s);
    buf_init(&row, ROW_MAX);
    tomb_row_put(t, &row);
    key_tomb(&k, KEY_TOMB, t->tenant, t->entry);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&row));
    int rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    buf_deinit(&row);
    return rc;
}

/* Checks whether the bytes of a purged delete are reclaimed. Another thread compacts the ranges
 * that were purged and deletes the row of each (reclaim.h); without rows the bytes are free. */
static int step_reclaimed(struct store *s, struct tomb *t, size_t rows_max, bool *ret_more,
                          struct err *e)
{
    struct key from, to;
    bool wids = false;

    if (t->kind == TOMB_TENANT && tomb_guarded(s, t))
        return 0;
    if (t->kind == TOMB_TENANT && step_wids(s, t, rows_max, &wids, e))
        return e->code;
    *ret_more |= wids;
    if (wids)
        return 0;
    t->wids_gone = true;
    key_tomb(&from, KEY_TOMB_SPAN, t->tenant, t->entry);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    bool left = kv_iter_valid(it);
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc || left ? rc : tomb_done(s, t, e);
}

/* ---- the whole ---- */

static struct tomb *find_state(const struct store *s, enum tomb_state state)
{
    vec_for (i, &s->tombs->at)
        if (s->tombs->at.ptr[i]->state == state)
            return s->tombs->at.ptr[i];
    return NULL;
}

int store_purge(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    struct tomb *t = find_state(s, TOMB_PURGING);
    int rc = 0;

    CHECK(rows_max > 0);
    *ret_more = false;
    if (store_check_writable(s, e))
        return e->code;
    if (t) {
        rc = step_tomb(s, t, rows_max, e);
        *ret_more = !rc;
        return rc;
    }
    for (size_t i = 0; !rc && i < s->tombs->at.len; i++)
        if (s->tombs->at.ptr[i]->state == TOMB_PURGED)
            rc = step_reclaimed(s, s->tombs->at.ptr[i], rows_max, ret_more, e);
    s->tombs->idle = !find_state(s, TOMB_PURGED);
    s->tombs->look_after_ms = clock_mono_ms(s->o.clock) + LOOK_MS;
    return rc;
}

uint64_t store_purge_wait_ms(struct store *s)
{
    if (s->tombs->pending)
        return 0;
    if (s->tombs->idle)
        return IDLE_WAIT_MS;
    uint64_t next = s->tombs->look_after_ms, now = clock_mono_ms(s->o.clock);
    return next > now ? next - now : 0;
}
