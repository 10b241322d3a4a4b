/* SPDX-License-Identifier: Apache-2.0
 *
 * build_read: jobs: the rows of the children of a node, by column family and id, from one snapshot.
 *
 *   coarse   rows of fine or coarse one level below, of each series
 *   ru       rows of ru one level below, of each group, and of the members its lists lead to
 *   fn       rows of fn one level below, of each group
 *
 * A node's children stand in one bucket, by id and time: a walk seeks once or twice per id.
 *
 * At level 2 a job has members alone: their children are leaves, and groups are made of level 1 by
 * rollup_build2 when the node's last job is applied.
 *
 * A node that was dirtied after it was built may have rows whose children are gone (deletes): they
 * are in the job as sums without rows.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/build/build_state.h"
#include "common/store/build/rollup_build.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/function_cost.h"
#include "common/store/mask/purging.h"
#include "common/store/state/due.h"
#include "common/store/state/view.h"

/* ---- one row per (id, slot) of a level within some slots ---- */

struct walk {
    struct kv_iter *it;
    uint32_t level, from, to;
    struct member m; /* of the row it stands on */
    uint32_t t;
};

/* Seeks on to a row it wants. */
static int settle(struct walk *w, bool *ret_found, struct err *e)
{
    uint32_t level, entry;
    struct key k;

    *ret_found = false;
    while (kv_iter_valid(w->it)) {
        if (!key_ru_read(kv_iter_key(w->it), &level, &w->m, &w->t, &entry))
            return err_set(e, ERR_CORRUPT, "key of a vector has %zu bytes", kv_iter_key(w->it).len);
        if (w->t >= w->from && w->t < w->to) {
            *ret_found = true;
            return 0;
        }
        if (w->t >= w->to && ++w->m.series == 0)
            break;
        key_member(&k, w->level, &w->m, w->from);
        kv_iter_seek(w->it, key_str(&k));
    }
    return kv_iter_status(w->it, e);
}

/* From w->m.series on; level, range and m are set. */
static int walk_open(struct walk *w, struct store_view *v, enum kv_cf cf, bool *ret_found,
                     struct err *e)
{
    struct member last = w->m;
    struct key k, end;

    last.series = UINT64_MAX;
    key_member(&k, w->level, &w->m, w->from);
    key_member(&end, w->level, &last, w->to - 1);
    key_end(&end);
    w->it = kv_iter_new(v->kv, v->snap, cf, key_str(&k), key_str(&end));
    return settle(w, ret_found, e);
}

static int walk_next(struct walk *w, bool *ret_found, struct err *e)
{
    kv_iter_next(w->it);
    return settle(w, ret_found, e);
}

static void walk_close(struct walk *w)
{
    kv_iter_free(w->it);
}

/* ---- sums ---- */

static void add_meta(struct build_sum *s, const struct vec_meta *m)
{
    s->total = u64_add_sat(s->total, m->total);
    s->fp = fp_add(s->fp, m->fp);
    s->saturated |= m->saturated;
}

static int head(struct str row, bool sound, struct vec_reader *r, struct err *e)
{
    return sound ? vec_open(row, r, e) : vec_peek(row, r, e);
}

static int add_fn(struct build_sum *s, struct str row, bool sound, struct err *e)
{
    struct vec_reader r;
    struct function_cost_row f;

    if (fn_read(row, &f, e) || head(f.self, sound, &r, e))
        return e->code;
    add_meta(s, &r.meta);
    s->writes = u64_add_sat(s->writes, r.meta.writes);
    if (head(f.total, sound, &r, e))
        return e->code;
    add_meta(s, &r.meta);
    return 0;
}

static int add_ru(struct build_sum *s, struct str row, bool sound, struct err *e)
{
    struct vec_reader r;
    struct rollup_row u;

    if (rollup_row_read(row, &u, e) || (sound && u.vector.len && vec_open(u.vector, &r, e)))
        return e->code;
    add_meta(s, &u.meta);
    s->writes = u64_add_sat(s->writes, u.meta.writes);
    return 0;
}

int build_sum_add(struct build_sum *s, struct str row, bool sound, struct err *e)
{
    struct vec_reader r;

    if (s->cf == KV_FN)
        return add_fn(s, row, sound, e);
    if (s->cf == KV_RU)
        return add_ru(s, row, sound, e);
    if (head(row, sound, &r, e))
        return e->code;
    add_meta(s, &r.meta);
    s->writes = u64_add_sat(s->writes, r.meta.writes);
    return 0;
}

/* ---- reading ---- */

struct reader {
    struct store_view *v;
    const struct build_node *n;
    struct build_cursor *c;
    size_t bytes_max, rows_max, bytes;
    struct arena *a;
    struct build_job *job;
    size_t id_rows; /* of the job, where the rows of the last id begin */
};

static void begin_id(struct reader *r, enum kv_cf cf, uint64_t id)
{
    struct build_sum s = { .cf = cf, .id = id };

    r->id_rows = r->job->rows.len;
    vec_push(&r->job->sums, s);
}

/* No room for another id. */
static bool full(const struct reader *r)
{
    return r->job->sums.len && (r->bytes >= r->bytes_max || r->job->rows.len >= r->rows_max);
}

/* The arena had no room for all rows of the last id: it comes in the next job. */
static int drop_id(struct reader *r, struct err *e)
{
    r->job->rows.len = r->id_rows;
    r->job->sums.len--;
    if (r->job->sums.len)
        return 0;
    return err_set(e, ERR_LIMIT, "the children of one series or group have more than %zu bytes",
                   arena_limit(r->a));
}

static void stop_at(struct reader *r, enum kv_cf cf, uint64_t id)
{
    r->job->last = false;
    r->c->cf = cf;
    r->c->id = id;
}

/* Bytes are in the arena. */
static int add_row(struct reader *r, enum kv_cf cf, uint64_t id, uint32_t t, struct str bytes,
                   struct err *e)
{
    struct build_row row = { .cf = cf, .id = id, .t = t, .bytes = bytes };
    int rc = build_sum_add(&r->job->sums.ptr[r->job->sums.len - 1], bytes, false, e);

    if (rc)
        return err_wrap(e, "row at slot %u of %016" PRIx64, t, id);
    vec_push(&r->job->rows, row);
    r->bytes += bytes.len;
    return 0;
}

/* ERR_LIMIT without a text: no room. */
static int copy_row(struct reader *r, enum kv_cf cf, uint64_t id, uint32_t t, struct str bytes,
                    struct err *e)
{
    char *copy = arena_alloc(r->a, bytes.len);

    if (!copy)
        return ERR_LIMIT;
    memcpy(copy, bytes.ptr, bytes.len);
    return add_row(r, cf, id, t, str_n(copy, bytes.len), e);
}

/* Rows of members, from an id on. *ret_done: none is left. */
static int read_members(struct reader *r, uint64_t from, bool *ret_done, struct err *e)
{
    const struct build_node *n = r->n;
    uint32_t below = level_below(false, n->level);
    bool found, any = false;
    uint64_t id = 0;
    struct walk w = { .level = below, .from = n->t, .to = n->t + LEVELS[n->level].node, .m = n->m };

    w.m.series = from;
    int rc = walk_open(&w, r->v, below ? KV_COARSE : KV_FINE, &found, e);
    while (!rc && found) {
        if (!any || id != w.m.series) {
            id = w.m.series;
            if (full(r)) {
                stop_at(r, KV_COARSE, id);
                break;
            }
            begin_id(r, KV_COARSE, id);
            any = true;
        }
        rc = copy_row(r, KV_COARSE, id, w.t, kv_iter_value(w.it), e);
        if (rc == ERR_LIMIT) {
            rc = drop_id(r, e);
            stop_at(r, KV_COARSE, id);
            break;
        }
        if (!rc)
            rc = walk_next(&w, &found, e);
    }
    *ret_done = r->job->last;
    walk_close(&w);
    return rc;
}

static int read_group(struct reader *r, const struct member *m, struct err *e)
{
    struct rollup_children c = { 0 };
    struct rollup_node at = { .kv = r->v->kv,
                              .snap = r->v->snap,
                              .level = r->n->level,
                              .m = *m,
                              .t = r->n->t,
                              .arena = r->a };
    int rc = rollup_children(&at, &c, e);

    for (size_t i = 0; !rc && i < c.at.len; i++)
        rc = add_row(r, KV_RU, m->series, c.at.ptr[i].t, c.at.ptr[i].row, e);
    vec_free(&c.at);
    return rc;
}

static int read_functions(struct reader *r, const struct member *m, struct err *e)
{
    const struct build_node *n = r->n;
    struct member row;
    uint32_t level, t;
    struct key from, to;
    int rc = 0;

    key_ru(&from, n->level - 1, m, n->t);
    key_ru(&to, n->level - 1, m, n->t + LEVELS[n->level].node - 1);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(r->v->kv, r->v->snap, KV_FN, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_member_read(kv_iter_key(it), &level, &row, &t))
            rc = err_set(e, ERR_CORRUPT, "key of functions has %zu bytes", kv_iter_key(it).len);
        else
            rc = copy_row(r, KV_FN, m->series, t, kv_iter_value(it), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc && r->job->rows.len == r->id_rows) /* only stacks of the root: no functions */
        r->job->sums.len--;
    return rc;
}

/* The same for groups, or for their functions: of groups that have a row in the node. */
static int read_groups(struct reader *r, enum kv_cf cf, uint64_t from, bool *ret_done,
                       struct err *e)
{
    struct kv_view kv = { r->v->kv, r->v->snap };
    struct member m = r->n->m;
    bool found;
    int rc = 0;

    for (m.series = from; !rc; m.series++) {
        rc = rollup_next_group(&kv, r->n->level, &m, r->n->t, &found, e);
        if (rc || !found)
            break;
        if (full(r)) {
            stop_at(r, cf, m.series);
            break;
        }
        begin_id(r, cf, m.series);
        rc = cf == KV_RU ? read_group(r, &m, e) : read_functions(r, &m, e);
        if (rc == ERR_LIMIT) {
            rc = drop_id(r, e);
            stop_at(r, cf, m.series);
            break;
        }
    }
    *ret_done = r->job->last;
    return rc;
}

/* ---- rows whose children are gone ---- */

static int by_id(const void *a, const void *b)
{
    const struct build_sum *x = a, *y = b;

    if (x->cf != y->cf)
        return x->cf < y->cf ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Adds sums for rows of the node from (cf, id) on that the job, as far as it goes, has none for. */
static int find_gone(struct reader *r, enum kv_cf cf, uint64_t id, struct err *e)
{
    const struct build_node *n = r->n;
    struct build_job *j = r->job;
    size_t known = j->sums.len;
    struct walk w = { .level = n->level, .from = n->t, .to = n->t + 1, .m = n->m };
    bool found;

    w.m.series = id;
    int rc = walk_open(&w, r->v, cf, &found, e);
    while (!rc && found && (j->last || r->c->cf != cf || w.m.series < r->c->id)) {
        struct build_sum s = { .cf = cf, .id = w.m.series, .gone = true };
        if (!known || !bsearch(&s, j->sums.ptr, known, sizeof(s), by_id))
            vec_push(&j->sums, s);
        rc = walk_next(&w, &found, e);
    }
    walk_close(&w);
    if (j->sums.len > known)
        qsort(j->sums.ptr, j->sums.len, sizeof(*j->sums.ptr), by_id);
    return rc;
}

/* ---- a job ---- */

static const enum kv_cf ORDER[] = { KV_COARSE, KV_RU, KV_FN };

/* Does the node have rows of this kind that are sums of children? */
static bool has(const struct build_node *n, const struct floors *f, enum kv_cf cf)
{
    if (cf == KV_COARSE)
        return floors_base(f, false, n->t) < n->level;
    return n->level > DIRTY_FIRST && floors_base(f, true, n->t) < n->level;
}

static int read_all(struct reader *r, const struct floors *f, struct err *e)
{
    struct build_cursor at = *r->c;
    bool done = true;
    int rc = 0;

    for (size_t i = 0; !rc && done && i < ARRAY_LEN(ORDER); i++) {
        enum kv_cf cf = ORDER[i];
        uint64_t from = cf == at.cf ? at.id : 0;
        if (cf < at.cf || !has(r->n, f, cf))
            continue;
        rc = cf == KV_COARSE ? read_members(r, from, &done, e) : read_groups(r, cf, from, &done, e);
        if (!rc && at.entry)
            rc = find_gone(r, cf, from, e);
    }
    return rc;
}

/* Children that are being corrected would be read half before and half after it. */
static int is_purging(struct store_view *v, const struct member *m, bool *ret, struct err *e)
{
    struct purging p = { 0 };
    int rc = purging_load(&p, v->kv, v->snap, e);

    *ret = !rc && purging_has(&p, m->tenant, m->scope);
    vec_free(&p.at);
    return rc;
}

/* The mark as the snapshot has it, if the node can be built from there. */
static int check_mark(struct store_view *v, const struct build_node *n, struct build_cursor *c,
                      struct err *e)
{
    struct dirty_set d = { 0 };
    struct dirty_mark mark;
    struct kv_view kv = { v->kv, v->snap };
    uint32_t end = n->t + LEVELS[n->level].node;
    bool child = false, purging;
    int rc = is_purging(v, &n->m, &purging, e);

    if (rc || purging)
        return rc ? rc
                  : err_set(e, ERR_NOT_FOUND, "a delete of service %u is being purged", n->m.scope);
    rc = dirty_get(&kv, &n->m, n->level, n->t, &mark, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_NOT_FOUND, "the node at slot %u of level %u is clean", n->t,
                       n->level);
    if (!rc && n->level > DIRTY_FIRST)
        rc = dirty_load(&d, &kv, &n->m, n->t, end, e);
    if (!rc && n->level > DIRTY_FIRST)
        child = dirty_any(&d, n->level - 1, n->t, end);
    dirty_deinit(&d);
    if (rc)
        return rc;
    if (child || (c->begun && mark.entry != c->entry) ||
        dirty_due_ms(v->s, n->level, n->t) > v->engine_ms)
        return err_set(e, ERR_NOT_FOUND, "the node at slot %u of level %u has changed", n->t,
                       n->level);
    c->begun = true;
    c->entry = mark.entry;
    return 0;
}

int build_read_node(struct store_view *v, const struct build_node *n, struct build_cursor *c,
                    const struct build_room *room, struct build_job *ret, struct err *e)
{
    struct reader r = {
        .v = v,
        .n = n,
        .c = c,
        .bytes_max = room->bytes_max,
        .rows_max = room->rows_max,
        .a = room->arena,
        .job = ret,
    };
    struct floors f;

    CHECK(n->level >= DIRTY_FIRST && n->level < KEY_LEVELS && n->t == node_of(n->level, n->t));
    ret->rows.len = ret->sums.len = 0;
    ret->last = true;
    ret->node = *n;
    ret->node.m.series = 0;
    if (floors_load(v->kv, v->snap, &n->m, &f, e))
        return e->code;
    ret->entry = c->entry;
    ret->applied = v->hot.applied;
    int rc = read_all(&r, &f, e);
    return rc ? err_wrap(e, "building level %u at slot %u of service %u", n->level, n->t,
                         n->m.scope)
              : 0;
}

int store_build_read(struct store_view *v, const struct build_node *n, struct build_cursor *c,
                     const struct build_room *room, struct build_job *ret, struct err *e)
{
    int rc = check_mark(v, n, c, e);

    return rc ? rc : build_read_node(v, n, c, room, ret, e);
}

void build_job_deinit(struct build_job *j)
{
    vec_free(&j->rows);
    vec_free(&j->sums);
}
