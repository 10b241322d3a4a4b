/* SPDX-License-Identifier: Apache-2.0
 *
 * retain: deletes rows that are too old, level by level.
 *
 *   a round, every interval:
 *     FLOORS   each service and type: raises floors to where its policy wants them, in one batch
 *              with range deletes of the buckets that are wholly below them  (retain_floor.c)
 *     PURGE    rows below a floor in the bucket that the floor is inside     (retain_trim.c)
 *     FILES    per level, the buckets below the floors of *all* types: drops whole files
 *     EPOCHS   once a day: dictionaries that no row can name any more        (retain_epoch.c)
 *
 * A floor is the read cutoff: from the batch that moves it, no new view looks below it. Older views
 * see their rows until they end. Only drops of files ignore views, so they wait until every view
 * that is older than the last move of a floor has ended.
 *
 * The floor of a level moves only over ranges where the next level is clean, so the rows that are
 * deleted are summed up in rows that stay. If a build is late, fine rows stay longer.
 *
 * Which files are dropped is decided from the floors of all services and types, as the round found
 * them. A service that begins meanwhile, with older floors, lowers that mark at once
 * (retain_begin), on the same thread.
 *
 * Retention needs no log: floors only rise, and all steps that follow from them can be repeated.
 * Thread: the shard's.
 */
#include "common/store/retain/retain.h"

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define HELD_WAIT_MS  1000
#define IDLE_WAIT_MS  60000
#define VIEWS_WAIT_MS (INT64_C(10) * 60000)
#define DAY_MS        INT64_C(86400000)

struct retain *retain_new(void)
{
    struct retain *r = XNEW(struct retain);

    r->next_round_ms = INT64_MIN;
    r->next_epochs_ms = INT64_MIN;
    r->purge = true;
    mutex_init(&r->lock);
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        r->low[l] = r->walk_low[l] = UINT32_MAX;
    return r;
}

void retain_free(struct retain *r)
{
    if (!r)
        return;
    retain_policy_unref(r->policy);
    mutex_deinit(&r->lock);
    xfree(r);
}

void store_set_retention(struct store *s, struct retain_policy *p)
{
    struct retain *r = s->retain;

    retain_policy_ref(p);
    retain_policy_unref(r->policy);
    r->policy = p;
    r->next_round_ms = INT64_MIN;
    if (r->phase == RETAIN_IDLE)
        return;
    r->phase = RETAIN_IDLE; /* the round begins again with the new policy */
}

/* ---- stage ---- */

static struct retain_keep keep_of(const struct store *s, const struct retain_of *of)
{
    return retain_policy_keep(s->retain->policy, of->tenant, of->service, of->type);
}

/* Below this slot nothing is kept. What is a day old at most is not looked up among the rules: the
 * coarsest floor moves by 64 days. */
static int lowest(struct store *s, const struct retain_of *of, uint32_t low, int64_t engine_ms,
                  uint32_t *ret, struct err *e)
{
    struct retain_keep keep;
    struct floors f = { 0 };

    /* Floors of a batch that is not committed are not in the database. */
    if (of->committed && floors_get(s, &of->m, &f, e))
        return e->code;
    *ret = f.at[KEY_LEVELS - 1];
    if (!s->retain->policy || slot_to_ms(low) >= engine_ms - DAY_MS)
        return 0;
    keep = keep_of(s, of);
    *ret = MAX(*ret, slot_of_ms(engine_ms - (int64_t)keep.ms[KEY_LEVELS - 1]));
    return 0;
}

int retain_admit(struct store *s, const struct retain_of *of, uint32_t low, int64_t engine_ms,
                 struct err *e)
{
    uint32_t least = 0;

    if (lowest(s, of, low, engine_ms, &least, e))
        return e->code;
    if (low >= least)
        return 0;
    return err_set(e, ERR_INPUT,
                   "not_in_ingestion_window: the profile is %" PRId64
                   " days old, more than the %" PRId64
                   " that are kept of service %.*s (retention.64d, retention.overrides); from= and "
                   "until= in the URL store it under another time",
                   (engine_ms - slot_to_ms(low)) / DAY_MS, (engine_ms - slot_to_ms(least)) / DAY_MS,
                   (int)MIN(of->service.len, 100), of->service.ptr);
}

void retain_begin(struct store *s, const struct retain_of *of, int64_t engine_ms,
                  struct kv_batch *b)
{
    struct retain *r = s->retain;
    struct floors f = { 0 };

    /* While deletes are purged, floors stay: purging finds the base level of older rows by them. */
    if (r->policy && !tombs_pending_on(s, of->m.tenant, of->m.scope)) {
        struct retain_keep keep = keep_of(s, of);

        retain_floors(&keep, engine_ms, &f);
        floors_put(b, &of->m, &f);
        floors_know(s, &of->m, &f); /* it may have had others, before all of it was deleted */
    }
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        r->low[l] = MIN(r->low[l], f.at[l]);
        r->walk_low[l] = MIN(r->walk_low[l], f.at[l]);
    }
}

/* ---- files ---- */

/* One run a step. */
static int drop_files(struct store *s, struct err *e)
{
    struct retain *r = s->retain;
    uint32_t at = r->files_at++, level = at / RETAIN_RUNS, i = at % RETAIN_RUNS;
    struct retain_run runs[RETAIN_RUNS];
    char from[1], to[5];

    if (level == KEY_LEVELS) {
        r->phase = RETAIN_EPOCHS;
        r->cursor.len = 0;
        return 0;
    }
    if (i >= retain_runs(level, runs) || r->low[level] == UINT32_MAX)
        return 0;
    uint32_t bucket = r->low[level] / runs[i].bucket;
    if (bucket < r->dropped[level][i] || (bucket == r->dropped[level][i] && !r->again[level][i]))
        return 0;
    from[0] = to[0] = (char)runs[i].first;
    put_u32be(to + 1, bucket);
    /* Once after each start the range is dropped without knowing whether anything is there: rows
     * hidden by range deletes cannot be seen, their files can be dropped. */
    int rc = store_drop_range(s, runs[i].cf, str_n(from, 1), str_n(to, 5), e);
    if (rc)
        return rc;
    /* Once more in the next round: that sets off the compaction of files at the edges. */
    r->again[level][i] = bucket > r->dropped[level][i];
    r->dropped[level][i] = bucket;
    r->stats.file_drops++;
    return 0;
}

/* ---- the step ---- */

static void begin_round(struct store *s, int64_t engine_ms)
{
    struct retain *r = s->retain;

    r->phase = RETAIN_FLOORS;
    r->cursor.len = 0;
    r->engine_ms = engine_ms;
    r->files_at = 0;
    r->walk_first = UINT32_MAX;
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        r->walk_low[l] = UINT32_MAX;
}

static void end_floors(struct store *s)
{
    struct retain *r = s->retain;

    memcpy(r->low, r->walk_low, sizeof(r->low));
    r->first = r->walk_first;
    r->view = view_latest(s);
    r->phase = r->purge ? RETAIN_PURGE : RETAIN_FILES;
    r->cursor.len = 0;
    r->in_part = false;
    r->purge = false;
}

static int end_round(struct store *s, struct err *e)
{
    struct retain *r = s->retain;

    if (retain_forecast(s, e))
        return e->code;
    r->phase = RETAIN_IDLE;
    r->next_round_ms = r->engine_ms + (int64_t)retain_policy_interval_ms(r->policy);
    r->stats.round_ms = r->engine_ms;
    return 0;
}

static int one_step(struct store *s, size_t rows_max, struct err *e)
{
    struct retain *r = s->retain;
    bool done = false;
    int rc = 0;

    switch (r->phase) {
    case RETAIN_IDLE:
        break;
    case RETAIN_FLOORS:
        rc = retain_floor_step(s, rows_max, &done, e);
        if (!rc && done)
            end_floors(s);
        break;
    case RETAIN_PURGE:
        rc = retain_trim_step(s, rows_max, &done, e);
        if (!rc && done)
            r->phase = RETAIN_FILES;
        break;
    case RETAIN_FILES:
        if (view_oldest(s) < r->view && store_now(s) - r->engine_ms < VIEWS_WAIT_MS) {
            r->view_wait = true;
            break;
        }
        if (view_oldest(s) < r->view) { /* a reader takes its time: in the next round, then */
            r->phase = RETAIN_EPOCHS;
            r->cursor.len = 0;
            break;
        }
        rc = drop_files(s, e);
        break;
    case RETAIN_EPOCHS:
        if (r->engine_ms >= r->next_epochs_ms)
            rc = retain_epoch_step(s, rows_max, &done, e);
        else
            done = true;
        if (!rc && done) {
            if (r->engine_ms >= r->next_epochs_ms)
                r->next_epochs_ms = r->engine_ms + DAY_MS;
            rc = end_round(s, e);
        }
        break;
    }
    return rc;
}

int store_retain(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    struct retain *r = s->retain;
    int64_t engine_ms = store_now(s);
    int rc;

    *ret_more = false;
    if (store_check_writable(s, e))
        return e->code;
    if (s->clock.held || !r->policy)
        return 0;
    CHECK(rows_max > 0);
    if (r->phase == RETAIN_IDLE && engine_ms >= r->next_round_ms)
        begin_round(s, engine_ms);
    if (r->phase == RETAIN_IDLE)
        return 0;
    r->view_wait = false;
    rc = one_step(s, rows_max, e);
    r->stats.steps++;
    *ret_more = !rc && r->phase != RETAIN_IDLE && !r->view_wait;
    mutex_lock(&r->lock);
    r->shown = r->stats;
    mutex_unlock(&r->lock);
    return rc;
}

uint64_t store_retain_wait_ms(const struct store *s)
{
    const struct retain *r = s->retain;
    struct engine_clock clock = s->clock;
    int64_t now = engine_clock_now(&clock);

    if (!r->policy)
        return IDLE_WAIT_MS;
    if (clock.held || r->view_wait)
        return HELD_WAIT_MS;
    if (r->phase != RETAIN_IDLE || now >= r->next_round_ms)
        return 0;
    return MIN((uint64_t)(r->next_round_ms - now), (uint64_t)IDLE_WAIT_MS);
}

void store_retain_stats(struct store *s, struct retain_stats *ret)
{
    mutex_lock(&s->retain->lock);
    *ret = s->retain->shown;
    mutex_unlock(&s->retain->lock);
}
