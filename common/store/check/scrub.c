/* SPDX-License-Identifier: Apache-2.0
 *
 * scrub: a round has two parts.
 *
 * Rows: fine, coarse, ru, fn and tl are read in the order of their keys. RocksDB verifies the
 * checksums of the blocks it reads from disk, and this code verifies the contents of each row. A
 * damaged row at the base level of its time is lost; above it, its node is built again.
 *
 * Nodes: for each service and type of each level and bucket, each node without a dirty mark is read
 * as a build would read it (build_read.c), with its members, lists, groups and functions. The sums
 * of the children are compared with the rows of the node. For one node in `sample` the children are
 * added up entry by entry and the bytes are compared: an equal job gives equal bytes on every
 * machine. Level 2 of groups, which the shard makes without a job, is left to the offline check.
 *
 * If the reader of this thread skips remote rows (cold_read.h), nodes that need one are skipped,
 * too.
 *
 * Changes during a round are no findings: a step has one snapshot, a node that needs two jobs is
 * started again if it was marked in between, and services with unfinished deletes are skipped.
 */
#include "common/store/check/scrub.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/build/build_state.h"
#include "common/store/codec/function_cost.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/delete/purge.h"
#include "common/store/kv/cold_read.h"
#include "common/store/mask/purging.h"
#include "common/store/state/commit.h"
#include "common/store/state/dirty.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define JOB_BYTES (4 * MIB)
#define STEP_MS   50 /* sparse data take time, though they have few rows */

/* Phases below the last walk the rows of a family. */
static const enum kv_cf ROWS[] = { KV_FINE, KV_COARSE, KV_RU, KV_FN, KV_TL };
#define NODES ARRAY_LEN(ROWS)

struct step {
    struct store_view *v;
    struct scrub *s;
    const struct scrub_opts *o;
    struct scrub_found *found;
    size_t rows; /* of this step */
};

static void find(struct step *x, enum scrub_kind kind, const struct build_node *n,
                 const struct err *e)
{
    struct scrub_finding f = { .kind = kind };

    if (x->found->at.len >= SCRUB_FOUND_MAX) {
        x->found->more++;
        return;
    }
    if (n)
        f.node = *n;
    memcpy(f.text, e->text, sizeof(f.text));
    vec_push(&x->found->at, f);
}

/* ---- rows ---- */

static int sound(enum kv_cf cf, struct str key, struct str value, struct err *e)
{
    struct build_sum sum = { .cf = cf };
    uint32_t level, t, flags;
    struct member m;
    struct tl row = { 0 };

    if (cf != KV_TL)
        return build_sum_add(&sum, value, true, e);
    if (!key_tl_read(key, &flags, &level, &m, &t))
        return err_set(e, ERR_CORRUPT, "key of %zu bytes", key.len);
    if (flags & KEY_TL_PRESENCE)
        return 0;
    int rc = timeline_row_decode(value, TL_POINTS_MAX, &row, e);
    vec_free(&row.points);
    return rc;
}

/* A damaged row: of a node that can be built again, or the truth. */
static int damaged(struct step *x, enum kv_cf cf, struct str key, struct err *e)
{
    struct build_node n = { 0 };
    struct floors f;
    uint32_t entry;
    bool group = cf == KV_RU || cf == KV_FN;

    if (cf == KV_TL || !key_ru_read(key, &n.level, &n.m, &n.t, &entry)) {
        find(x, SCRUB_ROW, NULL, e);
        return 0;
    }
    (void)err_wrap(e, "level %u, slot %u, service %u, %016" PRIx64, n.level, n.t, n.m.scope,
                   n.m.series);
    struct err why = *e;
    if (floors_load(x->v->kv, x->v->snap, &n.m, &f, e))
        return e->code;
    bool rebuilt = n.level >= DIRTY_FIRST && n.level > floors_base(&f, group, n.t);
    find(x, rebuilt ? SCRUB_NODE : SCRUB_ROW, &n, &why);
    return 0;
}

static int walk_rows(struct step *x, enum kv_cf cf, struct err *e)
{
    struct scrub *s = x->s;
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, cf, str_n(s->key, s->key_len), STR_NULL);
    int rc = 0;

    for (; !rc && x->rows < x->o->rows_max && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        x->rows++;
        s->rows++;
        if (sound(cf, key, kv_iter_value(it), e))
            rc = e->code == ERR_CORRUPT ? damaged(x, cf, key, e) : e->code;
    }
    if (!rc && kv_iter_valid(it)) {
        struct str key = kv_iter_key(it);
        s->key_len = MIN(key.len, sizeof(s->key));
        memcpy(s->key, key.ptr, s->key_len);
    } else if (!rc) {
        /* A block that cannot be read ends the walk of its family. */
        rc = kv_iter_status(it, e);
        if (rc == ERR_CORRUPT) {
            find(x, SCRUB_ROW, NULL, e);
            rc = 0;
        }
        s->phase++;
        s->key_len = 0;
    }
    kv_iter_free(it);
    return rc;
}

/* ---- nodes ---- */

static bool deletes_run(struct step *x, uint32_t tenant, uint32_t scope)
{
    struct purging p = { 0 };
    struct err e;

    bool any = purging_load(&p, x->v->kv, x->v->snap, &e) || purging_has(&p, tenant, scope);
    vec_free(&p.at);
    return any;
}

/* The row of the node for a sum against it. */
static int compare(struct step *x, const struct build_node *n, const struct build_sum *want,
                   struct buf *row, struct err *e)
{
    struct build_sum got = { .cf = want->cf, .id = want->id };
    struct member m = n->m;
    struct key k;

    m.series = want->id;
    if (want->cf == KV_COARSE)
        key_member(&k, n->level, &m, n->t);
    else
        key_ru(&k, n->level, &m, n->t);
    int rc = kv_get(x->v->kv, x->v->snap, want->cf, key_str(&k), row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT, "%016" PRIx64 " is missing, its children are there",
                       want->id);
    if (!rc && want->gone)
        return err_set(e, ERR_CORRUPT, "%016" PRIx64 " has no children", want->id);
    if (!rc)
        rc = build_sum_add(&got, buf_str(row), false, e);
    if (rc || got.saturated || want->saturated)
        return rc;
    if (got.total != want->total || got.writes != want->writes || got.fp != want->fp)
        return err_set(e, ERR_CORRUPT,
                       "%016" PRIx64 " has %" PRIu64 " in %" PRIu64 " writes, F %016" PRIx64
                       "; its children %" PRIu64 " in %" PRIu64 ", F %016" PRIx64,
                       want->id, got.total, got.writes, got.fp, want->total, want->writes,
                       want->fp);
    return 0;
}

/* Entry by entry: the bytes a build would write. */
static int compare_bytes(struct step *x, const struct build_job *j, struct buf *row, struct err *e)
{
    struct build_result r = { 0 };
    struct key k;
    int rc = build_merge(j, x->o->arena, &r, e);

    x->s->sampled++;
    vec_for (i, &r.rows) {
        const struct build_row *want = &r.rows.ptr[i];
        struct member m = j->node.m;

        if (rc)
            break;
        m.series = want->id;
        key_member(&k, j->node.level, &m, j->node.t);
        rc = kv_get(x->v->kv, x->v->snap, want->cf, key_str(&k), row, e);
        if (!rc && !str_eq(buf_str(row), want->bytes))
            rc = err_set(e, ERR_CORRUPT, "%016" PRIx64 " is not the sum of its children, by entry",
                         want->id);
    }
    build_result_deinit(&r);
    return rc == ERR_NOT_FOUND ? err_set(e, ERR_CORRUPT, "a row is missing") : rc;
}

static bool in_sample(const struct step *x, const struct build_node *n)
{
    struct {
        uint32_t tenant, scope, level, t;
    } id = { n->m.tenant, n->m.scope, n->level, n->t };

    return x->o->sample && hash64(&id, sizeof(id), n->m.ptype) % x->o->sample == 0;
}

static int check_job(struct step *x, const struct build_job *j, struct err *e)
{
    struct buf row;
    int rc = 0;

    buf_init(&row, GIB);
    vec_for (i, &j->sums)
        if (!rc)
            rc = compare(x, &j->node, &j->sums.ptr[i], &row, e);
    if (!rc && in_sample(x, &j->node))
        rc = compare_bytes(x, j, &row, e);
    buf_deinit(&row);
    return rc;
}

/* What timelines of the level below say that all rows of an id within the node have. */
static int points_of(struct step *x, const struct build_node *n, const struct build_sum *s,
                     struct build_sum *ret, struct err *e)
{
    bool group = s->cf != KV_COARSE;
    uint32_t below = level_below(group, n->level), level, t, flags;
    uint32_t end = n->t + LEVELS[n->level].node;
    struct member m = n->m, row_m;
    struct tl row = { 0 };
    struct key from, to;
    int rc = 0;

    m.series = s->id;
    key_tl(&from, group ? KEY_TL_GROUP : 0, below, &m, n->t - n->t % LEVELS[below].tl_chunk);
    key_tl(&to, group ? KEY_TL_GROUP : 0, below, &m, end - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_TL, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_tl_read(kv_iter_key(it), &flags, &level, &row_m, &t))
            rc = err_set(e, ERR_CORRUPT, "key of a timeline");
        else
            rc = timeline_row_decode(kv_iter_value(it), TL_POINTS_MAX, &row, e);
        for (size_t i = 0; !rc && i < row.points.len; i++) {
            const struct tl_point *p = &row.points.ptr[i];
            uint32_t at = t + p->point * LEVELS[below].tl_point;
            if (at < n->t || at >= end)
                continue;
            ret->total = u64_add_sat(ret->total, p->total);
            ret->writes += p->writes;
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    vec_free(&row.points);
    return rc;
}

/* Where the children are the truth of their time and one of them is gone, the node may be the last
 * that knows the sum. Their timelines know whether they are all there. */
static bool children_whole(struct step *x, const struct build_job *j)
{
    const struct build_node *n = &j->node;
    struct floors f;
    struct err skip;

    if (floors_load(x->v->kv, x->v->snap, &n->m, &f, &skip))
        return false;
    vec_for (i, &j->sums) {
        const struct build_sum *s = &j->sums.ptr[i];
        struct build_sum points = { 0 };
        bool group = s->cf != KV_COARSE;

        if (s->cf == KV_FN || level_below(group, n->level) > floors_base(&f, group, n->t))
            continue;
        if (points_of(x, n, s, &points, &skip) ||
            (!s->saturated && (points.total != s->total || points.writes != s->writes)))
            return false;
    }
    return true;
}

/* Is it the node that is wrong, or a child? A damaged one was found among the rows. */
static bool children_sound(const struct build_job *j)
{
    struct err skip;

    vec_for (i, &j->rows) {
        const struct build_row *r = &j->rows.ptr[i];
        struct build_sum sum = { .cf = r->cf };

        if (build_sum_add(&sum, r->bytes, true, &skip))
            return false;
    }
    return true;
}

/* A job of the node at hand. */
static int check_node(struct step *x, struct err *e)
{
    struct scrub *s = x->s;
    struct build_job j = { 0 };
    struct build_room room = { .bytes_max = JOB_BYTES,
                               .rows_max = x->o->rows_max,
                               .arena = x->o->arena };
    struct cold_read *reach = cold_read();
    struct dirty_mark mark;

    if (reach)
        reach->met = false;
    int rc = dirty_get(&(struct kv_view){ x->v->kv, x->v->snap }, &s->node.m, s->node.level,
                       s->node.t, &mark, e);

    if (rc != ERR_NOT_FOUND) { /* it is not used, and will be built */
        s->in_node = false;
        return rc;
    }
    err_clear(e);
    arena_reset(x->o->arena);
    s->cursor.entry = 1; /* rows without children, too */
    rc = build_read_node(x->v, &s->node, &s->cursor, &room, &j, e);
    bool read = !rc;
    if (reach && reach->met) { /* nothing can be said */
        s->away++;
        err_clear(e);
        rc = 0;
        j.last = true;
    } else if (!rc) {
        x->rows += j.rows.len;
        s->rows += j.rows.len;
        rc = check_job(x, &j, e);
    }
    if (reach && reach->met && rc == ERR_CORRUPT) {
        s->away++;
        err_clear(e);
        rc = 0;
    }
    if (rc == ERR_CORRUPT) {
        (void)err_wrap(e, "level %u, slot %u, service %u", s->node.level, s->node.t,
                       s->node.m.scope);
        if (read && children_sound(&j))
            find(x, children_whole(x, &j) ? SCRUB_NODE : SCRUB_ROW, &s->node, e);
        err_clear(e);
        rc = 0;
        j.last = true;
    }
    if (rc || j.last)
        s->in_node = false;
    build_job_deinit(&j);
    return rc;
}

/* The next slot with a row of the level, by service and type: one seek each. */
static int next_node(struct step *x, struct err *e)
{
    struct scrub *s = x->s;
    uint32_t level, t;
    struct member m;
    struct key k = { 0 };

    if (s->key_len == 0) {
        s->node = (struct build_node){ .level = DIRTY_FIRST };
        k = (struct key){ .len = 1, .b = { DIRTY_FIRST } };
    } else {
        memcpy(k.b, s->key, s->key_len);
        k.len = s->key_len;
    }
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_COARSE, key_str(&k), STR_NULL);
    bool found = kv_iter_valid(it) && key_member_read(kv_iter_key(it), &level, &m, &t);
    int rc = found ? 0 : kv_iter_status(it, e);
    x->rows++;
    if (found) {
        /* Nodes of a part within its bucket, each as a whole; then the next part. */
        bool same = s->key_len && level == s->node.level && m.tenant == s->node.m.tenant &&
                    m.scope == s->node.m.scope && m.ptype == s->node.m.ptype &&
                    t / LEVELS[level].bucket == s->node.t / LEVELS[level].bucket;
        uint32_t first = t - t % LEVELS[level].bucket;
        s->node.t = same ? s->node.t + LEVELS[level].node : first;
        s->node.level = level;
        s->node.m = m;
        s->node.m.series = 0;
        /* The search continues at this part until its last node, then behind it. */
        key_member(&k, level, &s->node.m, first);
        k.len = KEY_MEMBER_LEN - 12; /* up to the type */
        if (s->node.t + LEVELS[level].node >= first + LEVELS[level].bucket)
            key_end(&k);
        memcpy(s->key, k.b, k.len);
        s->key_len = k.len;
        s->in_node = !deletes_run(x, m.tenant, m.scope);
        s->cursor = (struct build_cursor){ 0 };
        s->nodes += s->in_node;
    } else if (!rc) {
        s->done = true;
    }
    kv_iter_free(it);
    return rc;
}

int store_scrub(struct store_view *v, struct scrub *s, const struct scrub_opts *o,
                struct scrub_found *ret, struct err *e)
{
    struct step x = { .v = v, .s = s, .o = o, .found = ret };
    int rc = 0;

    uint64_t until = clock_mono_ms(v->s->o.clock) + STEP_MS;
    while (!rc && !s->done && x.rows < o->rows_max && clock_mono_ms(v->s->o.clock) <= until) {
        if (s->phase < NODES)
            rc = walk_rows(&x, ROWS[s->phase], e);
        else
            rc = s->in_node ? check_node(&x, e) : next_node(&x, e);
    }
    return rc;
}

int store_scrub_mark(struct store *s, const struct build_node *n, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    int64_t engine_ms = store_now(s);
    int rc = store_check_writable(s, e);

    if (!rc)
        rc = dirty_mark(s, b,
                        &(struct dirty_change){ .m = n->m,
                                                .t = n->t,
                                                .base = n->level - 1,
                                                .engine_ms = engine_ms,
                                                .entry = dirty_entry(s) },
                        e);
    if (!rc)
        rc = store_write_batch(s, b, true, e);
    else
        part_cache_clear(s->parts);
    kv_batch_free(b);
    return rc;
}
