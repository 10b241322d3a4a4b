/* SPDX-License-Identifier: Apache-2.0
 *
 * estimate: the plan of store_merge, and the sizes of a few rows of it.
 *
 *   targets ──> per service: cover ──> per run of nodes: SAMPLE_NODES x SAMPLE_UNITS evenly spaced
 *                                      look-ups, each for (nodes x units) / looked at
 *
 * Why look-ups and not the sizes RocksDB tells of key ranges: those leave out memtables, where the
 * last minutes are, and are exact to a block only, while most questions are about few rows. The
 * same readers as in a merge find the rows (rollup_read follows lists to members), so the counted
 * rows are those that a merge would read. A year's cover has some 15 runs: at most about a thousand
 * look-ups for a service; over many services the sample of each gets smaller. Where there are few
 * rows in a wide range, all are walked, since a sample would miss rare pushes.
 *
 * Ranges masked by deletes that are not purged yet count as if they were there.
 */
#include "common/store/query/estimate.h"

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/vec.h"
#include "common/store/query/cover.h"
#include "common/store/query/rollup_read.h"
#include "common/store/query/targets.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ARENA_MAX    (256 * MIB)
#define SAMPLE_NODES 8 /* of a run */
#define SAMPLE_UNITS 8 /* of a service */
#define LOOKUPS_MAX  16384
#define RUNS_TYPICAL 15
#define TRY_ROWS     16    /* rows for each look-up that are walked where they may be few */
#define RAW_ROWS_MAX 65536 /* of a service that are looked at */
#define SERIES_MAX   4096  /* of a type that are looked at one by one */

struct estimate {
    struct store_view *v;
    const struct store_estimate_query *q;
    struct store_estimate *ret;
    struct targets_part part;
    uint32_t from, to;
    size_t per_run;      /* look-ups a run may take */
    uint64_t rows, size; /* looked at in the run at hand */
    uint64_t samples;
    uint64_t rows_max; /* of them */
    bool full;         /* there were more */
    uint64_t raw_left;
    struct cover cover;
    VEC(uint64_t) units; /* sampled */
};

static uint64_t mul_sat(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* n x whole / part without passing 64 bits on the way. */
static uint64_t scale(uint64_t n, uint64_t whole, uint64_t part)
{
    u128 r = (u128)n * whole / part;

    return r > UINT64_MAX ? UINT64_MAX : (uint64_t)r;
}

void store_estimate_add(struct store_estimate *to, const struct store_estimate *from)
{
    to->services = u64_add_sat(to->services, from->services);
    to->units = u64_add_sat(to->units, from->units);
    to->nodes = u64_add_sat(to->nodes, from->nodes);
    to->rows = u64_add_sat(to->rows, from->rows);
    to->bytes = u64_add_sat(to->bytes, from->bytes);
    to->samples = u64_add_sat(to->samples, from->samples);
    to->sampled |= from->sampled;
    to->more |= from->more;
    to->series = u64_add_sat(to->series, from->series);
    to->writes = u64_add_sat(to->writes, from->writes);
    to->index_bytes = u64_add_sat(to->index_bytes, from->index_bytes);
    to->dictionary_bytes = u64_add_sat(to->dictionary_bytes, from->dictionary_bytes);
}

/* ---- sealed rows ---- */

#define ENOUGH ERR_LIMIT

static int on_row(void *cookie, size_t unit, uint32_t t, struct str value, struct err *e)
{
    struct estimate *x = cookie;

    uint64_t n;

    (void)unit;
    (void)t;
    if (x->rows == x->rows_max) {
        x->full = true;
        return err_set(e, ENOUGH, "enough rows");
    }
    if (vec_count(value, &n, e))
        return e->code;
    x->rows++;
    x->size += value.len;
    x->samples += n;
    return 0;
}

static int look_up(struct estimate *x, const struct cover_run *r, uint32_t from, uint32_t to,
                   struct err *e)
{
    struct scan c = x->part.scan;

    c.series = x->units.ptr;
    c.len = x->units.len;
    struct rollup_read groups = targets_groups(&c, on_row, NULL, x);
    if (x->part.group)
        return rollup_read(&groups, r->level, from, to, e);
    c.from = from;
    c.to = to;
    c.fn = on_row;
    c.cookie = x;
    return scan_level(&c, r->level ? KV_COARSE : KV_FINE, r->level, e);
}

/* Every k-th of the units, so that at most `max` are left. */
static void pick_units(struct estimate *x, size_t max)
{
    size_t len = x->part.scan.len, n = MIN(len, max);

    x->units.len = 0;
    for (size_t i = 0; i < n; i++)
        vec_push(&x->units, x->part.scan.series[i * len / n]);
}

static void add_run(struct estimate *x, uint64_t all, uint64_t looked)
{
    x->ret->rows = u64_add_sat(x->ret->rows, scale(x->rows, all, looked));
    x->ret->bytes = u64_add_sat(x->ret->bytes, scale(x->size, all, looked));
    x->ret->samples = u64_add_sat(x->ret->samples, scale(x->samples, all, looked));
}

/* Where few of the rows that could be there are, evenly spaced look-ups would find none: walks
 * them, if walking takes few seeks and they turn out to be few. */
static bool try_all(struct estimate *x, const struct cover_run *r, int *ret_rc, struct err *e)
{
    uint64_t buckets = (r->to - r->from) / LEVELS[r->level].bucket + 2;

    x->rows = x->size = x->samples = 0;
    x->rows_max = x->per_run * TRY_ROWS;
    x->full = false;
    if (mul_sat(buckets, x->part.scan.len) > x->rows_max)
        return false;
    pick_units(x, x->part.scan.len);
    *ret_rc = look_up(x, r, r->from, r->to, e);
    if (*ret_rc == ENOUGH && x->full) {
        *ret_rc = 0;
        return false;
    }
    add_run(x, 1, 1);
    return true;
}

static int sample_run(struct estimate *x, const struct cover_run *r, struct err *e)
{
    uint32_t width = LEVELS[r->level].node;
    uint64_t nodes = (r->to - r->from + width - 1) / width;
    uint64_t looks = MIN(nodes, MIN(x->per_run, SAMPLE_NODES));
    uint64_t all = mul_sat(nodes, x->part.scan.len);
    int rc = 0;

    x->ret->nodes = u64_add_sat(x->ret->nodes, all);
    if (all > x->per_run && try_all(x, r, &rc, e))
        return rc;
    x->rows = x->size = x->samples = 0;
    x->rows_max = UINT64_MAX;
    pick_units(x, MAX(x->per_run / looks, 1));
    bool whole = all <= x->per_run;
    if (whole) { /* few: all of them */
        pick_units(x, x->part.scan.len);
        rc = look_up(x, r, r->from, r->to, e);
    }
    for (uint64_t i = 0; !rc && !whole && i < looks; i++) {
        uint32_t from = r->from + (uint32_t)(i * nodes / looks) * width;
        rc = look_up(x, r, from, MIN(from + width, r->to), e);
    }
    uint64_t looked = whole ? all : looks * x->units.len;
    x->ret->sampled |= looked < all;
    add_run(x, all, looked);
    return rc;
}

/* ---- unsealed rows ---- */

static int on_raw(void *cookie, size_t unit, uint32_t t, struct str value, struct err *e)
{
    struct estimate *x = cookie;

    if (!x->raw_left--) {
        x->raw_left = 0;
        x->ret->more = true;
        return err_set(e, ENOUGH, "enough unsealed rows");
    }
    return on_row(cookie, unit, t, value, e);
}

static int on_hot(void *cookie, size_t unit, const struct hot_leaf *l, struct err *e)
{
    struct estimate *x = cookie;

    (void)unit;
    (void)e;
    x->rows++;
    for (size_t i = 0; i < l->len; i++)
        x->samples += l->sections[i].len;
    for (size_t i = 0; i < l->len; i++)
        x->size += l->sections[i].len * (sizeof(uint32_t) + sizeof(uint64_t));
    return 0;
}

static int count_raw(struct estimate *x, uint32_t raw_low, struct err *e)
{
    struct scan c = x->part.scan;
    struct rollup_read groups = targets_groups(&c, on_raw, on_hot, x);
    uint32_t from = x->cover.from, to = x->cover.to;
    int rc;

    if (from >= to)
        return 0;
    x->rows = x->size = x->samples = 0;
    x->rows_max = UINT64_MAX;
    x->raw_left = RAW_ROWS_MAX;
    c.from = from;
    c.to = to;
    c.fn = on_raw;
    c.cookie = x;
    rc = x->part.group ? rollup_raw(&groups, x->part.all, raw_low, from, to, e)
                       : scan_raw(&c, raw_low, e);
    x->ret->rows = u64_add_sat(x->ret->rows, x->rows);
    x->ret->bytes = u64_add_sat(x->ret->bytes, x->size);
    x->ret->samples = u64_add_sat(x->ret->samples, x->samples);
    return rc == ENOUGH && x->ret->more ? 0 : rc;
}

/* ---- one service ---- */

static int make_cover(struct estimate *x, struct err *e)
{
    struct member part = { x->part.scan.tenant, x->part.scan.scope, x->part.scan.ptype, 0 };
    struct kv *kv = x->v->kv;
    struct dirty_set dirty = { 0 };
    struct floors floors;
    struct cover_in in = { .from = x->from,
                           .to = x->to,
                           .group = x->part.group,
                           .since = x->part.group ? x->part.since : 0,
                           .floors = &floors,
                           .dirty = &dirty };
    int rc = floors_load_read(kv, x->v->snap, &part, &floors, e);

    if (!rc && x->part.until < UINT32_MAX)
        in.to = MIN(in.to, cover_split(&floors, x->part.until));
    if (!rc)
        rc = dirty_load(&dirty, &(struct kv_view){ kv, x->v->snap }, &part, x->from, x->to, e);
    if (!rc)
        cover_make(&in, &x->cover);
    dirty_deinit(&dirty);
    return rc;
}

/* Bytes that keys from one to another take in files. */
static int add_size(struct estimate *x, enum kv_cf cf, struct key *prefix, uint64_t *sum,
                    struct err *e)
{
    struct key to = *prefix;
    uint64_t bytes = 0;

    key_end(&to);
    struct kv_range range = { key_str(prefix), key_str(&to) };
    int rc = kv_sizes(x->v->kv, cf, &range, 1, &bytes, e);
    *sum = u64_add_sat(*sum, bytes);
    return rc;
}

static int size_service(struct estimate *x, struct err *e)
{
    uint32_t tenant = x->part.scan.tenant, scope = x->part.scan.scope;
    struct key k;

    key_series(&k, tenant, scope, 0);
    k.len -= sizeof(uint64_t);
    if (add_size(x, KV_META, &k, &x->ret->index_bytes, e))
        return e->code;
    key_epoch(&k, tenant, scope, 0);
    k.len -= sizeof(uint32_t);
    k.b[0] = KEY_DICT;
    return add_size(x, KV_META, &k, &x->ret->dictionary_bytes, e);
}

static int estimate_part(struct estimate *x, uint32_t raw_low, uint32_t *last, struct err *e)
{
    int rc = make_cover(x, e);

    x->ret->units = u64_add_sat(x->ret->units, x->part.scan.len);
    if (*last != x->part.scan.scope) {
        *last = x->part.scan.scope;
        x->ret->services++;
        if (!rc && x->q->detail)
            rc = size_service(x, e);
    }
    for (size_t i = 0; !rc && i < x->cover.runs.len; i++)
        rc = sample_run(x, &x->cover.runs.ptr[i], e);
    return rc ? rc : count_raw(x, raw_low, e);
}

/* ---- one profile type ---- */

static int count_series(struct estimate *x, const struct store_query *q, struct arena *a,
                        struct err *e)
{
    struct store_timeline_query members = { .q = *q };
    struct targets t;
    struct store_timeline tl = { 0 };
    struct targets_query tq = {
        .q = q, .start_ms = slot_to_ms(x->from), .end_ms = slot_to_ms(x->to), .arena = a
    };
    int rc = targets_open(&t, x->v, &tq, e);

    size_t most = rc ? 0 : t.at.len;
    targets_close(&t);
    arena_reset(a);
    /* A timeline of one point: its writes are exact, and it touches no stack. Of members it also
     * says which have data. */
    members.q.members = most <= SERIES_MAX;
    members.step_ms = slot_to_ms(x->to) - slot_to_ms(x->from);
    members.origin_ms = slot_to_ms(x->to) - 1;
    members.points = 1;
    if (!rc && members.step_ms > 0)
        rc = store_timeline(x->v, &members, a, &tl, e);
    vec_for (i, &tl.series)
        vec_for (k, &tl.series.ptr[i].writes)
            x->ret->writes = u64_add_sat(x->ret->writes, tl.series.ptr[i].writes.ptr[k]);
    x->ret->series += members.q.members ? tl.targets : most;
    store_timeline_deinit(&tl);
    arena_reset(a);
    return rc;
}

static int estimate_type(struct estimate *x, const struct store_query *q, struct arena *a,
                         struct err *e)
{
    struct targets t;
    uint32_t raw_low, last = UINT32_MAX;
    int rc = scan_raw_low(x->v, &raw_low, e);

    if (!rc && x->q->detail)
        rc = count_series(x, q, a, e);
    if (rc)
        return rc;
    struct targets_query tq = {
        .q = q, .start_ms = slot_to_ms(x->from), .end_ms = slot_to_ms(x->to), .arena = a
    };
    rc = targets_plan(&t, x->v, &tq, e);
    x->per_run = LOOKUPS_MAX / RUNS_TYPICAL / MAX(t.spans.len, 1);
    x->per_run = MIN(MAX(x->per_run, 1), SAMPLE_NODES * SAMPLE_UNITS);
    for (size_t i = 0; !rc && targets_part(&t, q, i, &x->part); i++) {
        rc = estimate_part(x, raw_low, &last, e);
        if (!rc)
            rc = store_check_canceled(q->cancel, e);
    }
    targets_close(&t);
    arena_reset(a);
    return rc;
}

/* Its types, as texts in the arena. */
static int all_types(struct estimate *x, struct arena *keep, struct str **ret, size_t *ret_len,
                     struct err *e)
{
    struct match m;
    int rc = match_open_types(&m, x->v, x->q->q.tenant, x->q->q.selector, keep, e);

    *ret_len = rc ? 0 : m.types.len;
    *ret = ARENA_ARRAY(keep, struct str, *ret_len + 1);
    if (!*ret)
        rc = err_set(e, ERR_LIMIT, "the profile types do not fit the request's memory");
    for (size_t i = 0; !rc && i < *ret_len; i++)
        (*ret)[i] = m.types.ptr[i].id;
    match_close(&m);
    return rc;
}

int store_estimate(struct store_view *v, const struct store_estimate_query *q,
                   struct store_estimate *ret, struct err *e)
{
    struct estimate x = { .v = v, .q = q, .ret = ret };
    struct arena *keep = arena_new(ARENA_MAX), *a = arena_new(ARENA_MAX);
    struct store_query one = q->q;
    struct str *types = &one.profile_type;
    size_t n = 1;
    int rc = 0;

    *ret = (struct store_estimate){ 0 };
    x.from = MIN(slot_leaf(slot_of_ms(q->q.start_ms)), KEY_SLOT_MAX);
    x.to = x.from;
    if (q->q.end_ms > q->q.start_ms && q->q.end_ms > SLOT_EPOCH_MS)
        x.to = MIN(slot_leaf(slot_of_ms(q->q.end_ms - 1)), KEY_SLOT_MAX - LEAF_SLOTS) + LEAF_SLOTS;
    if (!q->q.profile_type.len)
        rc = all_types(&x, keep, &types, &n, e);
    for (size_t i = 0; !rc && i < n && x.from < x.to; i++) {
        one.profile_type = types[i];
        rc = estimate_type(&x, &one, a, e);
    }
    cover_deinit(&x.cover);
    vec_free(&x.units);
    arena_free(a);
    arena_free(keep);
    return rc;
}
