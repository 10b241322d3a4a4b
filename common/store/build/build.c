/* SPDX-License-Identifier: Apache-2.0
 *
 * build: applying what was built, and the shard's own steps.
 *
 * A result is written only if it is the answer to the job: the mark of the node is the one the
 * first job was read under, and each row's total, writes and F are the sums of its children's. So
 * a compactor that is wrong, late or twice changes nothing.
 *
 * The shard's steps: a look for due nodes, then job after job of the first one. A look goes over
 * all marks of level 2, so it is made only when one can be due (build_look_ms: kept by dirty_mark,
 * too). Which node comes when has no influence on any byte that is written.
 *
 * Thread: the shard's.
 */
#include "common/store/build/build.h"

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/build/build_state.h"
#include "common/store/build/rollup_build.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/due.h"
#include "common/store/state/store_impl.h"

#define ARENA_MAX   (256 * MIB) /* one series or group and its sum fit, whatever it is */
#define BYTES_MAX   (8 * MIB)   /* of a job of the shard */
#define DUE_MAX     256         /* nodes of one look */
#define PAUSED_MS   1000
#define WAIT_MAX_MS 60000

/* ---- state ---- */

struct build_state *build_state_new(void)
{
    struct build_state *b = XNEW(struct build_state);

    b->arena = arena_new(ARENA_MAX);
    return b;
}

void build_state_free(struct build_state *b)
{
    if (!b)
        return;
    vec_free(&b->due.at);
    arena_free(b->arena);
    xfree(b);
}

/* ---- apply ---- */

/* The row must be what its children add up to. */
static int check_row(const struct build_sum *want, const struct build_row *r, struct err *e)
{
    struct build_sum have = { .cf = want->cf, .id = want->id };

    if (r->cf != want->cf || r->id != want->id)
        return err_set(e, ERR_CORRUPT,
                       "a sum of %016" PRIx64 " came where one of %016" PRIx64 " was due", r->id,
                       want->id);
    int rc = build_sum_add(&have, r->bytes, true, e);
    if (rc)
        return err_wrap(e, "sum of %016" PRIx64, r->id);
    if (have.total != want->total || have.writes != want->writes ||
        (!want->saturated && have.fp != want->fp))
        return err_set(e, ERR_CORRUPT,
                       "sum of %016" PRIx64 " has %" PRIu64 " in %" PRIu64 " writes, F %016" PRIx64
                       "; its children %" PRIu64 " in %" PRIu64 ", F %016" PRIx64,
                       r->id, have.total, have.writes, have.fp, want->total, want->writes,
                       want->fp);
    return 0;
}

static int check_rows(const struct build_job *x, const struct build_result *r, struct err *e)
{
    size_t at = 0;

    vec_for (i, &x->sums) {
        const struct build_sum *want = &x->sums.ptr[i];
        if (want->gone)
            continue;
        if (at == r->rows.len)
            return err_set(e, ERR_CORRUPT, "no sum of %016" PRIx64, want->id);
        int rc = check_row(want, &r->rows.ptr[at++], e);
        if (rc)
            return rc;
    }
    return at == r->rows.len
               ? 0
               : err_set(e, ERR_CORRUPT, "the result has rows that the job did not ask for");
}

static void put_row(struct store *s, const struct build_node *n, const struct build_sum *sum,
                    struct str bytes, struct kv_batch *b)
{
    struct member m = n->m;
    struct key k;

    m.series = sum->id;
    key_member(&k, n->level, &m, n->t);
    if (sum->gone)
        kv_batch_del(b, sum->cf, key_str(&k));
    else
        kv_batch_put(b, sum->cf, key_str(&k), bytes);
    if (sum->cf != KV_FN) /* gone: both are 0, and so goes the point */
        tl_rows_built(s->tl_rows, &(struct tl_rows_point){ .m = &m,
                                                           .group = sum->cf == KV_RU,
                                                           .level = n->level,
                                                           .t = n->t,
                                                           .total = sum->total,
                                                           .writes = sum->writes });
}

/* Points of level 1 of members are sums of those of level 0. */
static int put_minutes(struct store *s, const struct build_job *x, struct err *e)
{
    vec_for (i, &x->sums) {
        struct member m = x->node.m;
        m.series = x->sums.ptr[i].id;
        int rc = tl_rows_minutes(s->tl_rows, &m, x->node.t, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int make_batch(struct store *s, const struct build_job *x, const struct build_result *r,
                      struct kv_batch *b, struct err *e)
{
    const struct build_node *n = &x->node;
    size_t at = 0;
    int rc = 0;

    vec_for (i, &x->sums) {
        const struct build_sum *sum = &x->sums.ptr[i];
        put_row(s, n, sum, sum->gone ? STR_NULL : r->rows.ptr[at++].bytes, b);
    }
    if (n->level == DIRTY_FIRST)
        rc = put_minutes(s, x, e);
    if (!rc && x->last && n->level == DIRTY_FIRST)
        rc = rollup_build2(s, &n->m, n->t, x->entry != 0, b, e);
    if (!rc && x->last)
        dirty_clean(s, b, &n->m, n->level, n->t);
    return rc ? rc : tl_rows_put(s->tl_rows, UINT32_MAX, b, e);
}

static void count(struct store *s, const struct build_job *x)
{
    atomic_fetch_add_explicit(&s->rows_built, x->sums.len, memory_order_relaxed);
    if (!x->last)
        return;
    atomic_fetch_add_explicit(&s->nodes_built[x->node.level], 1, memory_order_relaxed);
    if (x->node.level + 1 <= build_level_high(s))
        s->build_look_ms = 0;
}

int store_build_apply(struct store *s, const struct build_job *expect, const struct build_result *r,
                      struct err *e)
{
    const struct build_node *n = &expect->node;
    struct dirty_mark mark;

    if (store_check_writable(s, e))
        return e->code;
    if (tombs_newer_than(s, expect->applied) || tombs_pending_on(s, n->m.tenant, n->m.scope))
        return err_set(e, ERR_NOT_FOUND, "something was deleted since the node was read");
    int rc = dirty_get(&(struct kv_view){ .kv = s->kv }, &n->m, n->level, n->t, &mark, e);
    if (rc == ERR_NOT_FOUND || (!rc && mark.entry != expect->entry))
        return err_set(e, ERR_NOT_FOUND,
                       "the node at slot %u of level %u has changed since it was read", n->t,
                       n->level);
    if (!rc)
        rc = check_rows(expect, r, e);
    if (rc)
        return err_wrap(e, "level %u at slot %u of service %u", n->level, n->t, n->m.scope);
    struct kv_batch *b = kv_batch_new();
    rc = make_batch(s, expect, r, b, e);
    if (!rc)
        rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    if (rc) {
        part_cache_clear(s->parts);
        tl_rows_reset(s->tl_rows);
        return rc;
    }
    count(s, expect);
    return 0;
}

/* ---- steps ---- */

static int look(struct store *s, int64_t engine_ms, struct err *e)
{
    struct build_state *b = s->build;
    struct build_search f = {
        .engine_ms = engine_ms, .low = DIRTY_FIRST, .high = build_level_high(s), .max = DUE_MAX
    };
    int64_t next;

    b->due.at.len = b->at = 0;
    int rc = build_find(s, NULL, &f, &b->due, &next, e);
    if (!rc)
        s->build_look_ms = b->due.at.len == DUE_MAX ? 0 : next;
    return rc;
}

/* One job of the node. *ret_last: nothing more of it. */
static int step(struct store *s, size_t rows_max, bool *ret_last, struct err *e)
{
    struct build_state *b = s->build;
    const struct build_node *n = &b->due.at.ptr[b->at];
    struct store_view *v = store_view_get(s);
    struct build_room room = { .bytes_max = BYTES_MAX, .rows_max = rows_max, .arena = b->arena };
    struct build_result result = { 0 };
    struct build_job job = { 0 };

    if (!b->busy)
        b->cursor = (struct build_cursor){ 0 };
    b->busy = true;
    arena_reset(b->arena);
    int rc = store_build_read(v, n, &b->cursor, &room, &job, e);
    if (!rc)
        rc = build_merge(&job, b->arena, &result, e);
    if (!rc)
        rc = store_build_apply(s, &job, &result, e);
    *ret_last = rc || job.last;
    build_result_deinit(&result);
    build_job_deinit(&job);
    store_view_put(v);
    return rc;
}

int store_build(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    struct build_state *b = s->build;
    int64_t engine_ms = store_now(s);
    bool last = false;
    int rc = 0;

    *ret_more = false;
    CHECK(rows_max > 0);
    if (store_check_writable(s, e))
        return e->code;
    if (s->clock.paused)
        return 0;
    if (b->at == b->due.at.len && s->build_look_ms <= engine_ms)
        rc = look(s, engine_ms, e);
    if (!rc && b->at < b->due.at.len) {
        rc = step(s, rows_max, &last, e);
        if (last) {
            b->at++;
            b->busy = false;
        }
        if (rc == ERR_NOT_FOUND) { /* changed meanwhile: it waits for its time again */
            s->build_look_ms = 0;
            rc = 0;
        }
    }
    *ret_more = !rc && (b->at < b->due.at.len || s->build_look_ms <= engine_ms);
    return rc;
}

uint64_t store_build_wait_ms(const struct store *s)
{
    const struct build_state *b = s->build;
    struct engine_clock clock = s->clock;
    int64_t now = engine_clock_now(&clock);

    if (clock.paused)
        return PAUSED_MS;
    if (b->at < b->due.at.len || s->build_look_ms <= now)
        return 0;
    return (uint64_t)MIN(s->build_look_ms - now, WAIT_MAX_MS);
}
