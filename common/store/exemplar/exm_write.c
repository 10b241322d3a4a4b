/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_write: writes exemplars in the batch of their push, and deletes them by retention or with
 * their series.
 *
 * Written with the raw rows of the push, they are acked, deduped and lost or kept with them.
 *
 * Bounds: a service where each request is traced would write an exemplar per request, thousands a
 * second, and fill the disk with rows that are never read. So a series and type stores at most
 * rows_per_minute, a tenant at most bytes_per_minute (keys and values, before compression), in
 * minutes of engine time. A tenant can thus hold bytes_per_minute times the retention, plus a
 * minute's bytes for each restart. The first exemplars of a minute are kept: agents order samples
 * by stack or by time, not by span, so that choice is no worse than another, and rows already
 * written need not be read again.
 *
 * Counters go by a hash of the series; if two share one, they share the bound.
 */
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/store/codec/vec.h"
#include "common/store/exemplar/exm.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define MINUTE_MS 60000
#define GRACE_MS  INT64_C(3600000) /* a reader that began before a bucket fell due has ended */

struct exm_gate {
    int64_t minute;
    struct map_u64 series; /* hash of the member -> index into rows */
    VEC(uint32_t) rows;
    VEC(uint64_t) bytes; /* by tenant */
    int64_t retained;    /* minute of the last look at old buckets */
};

struct exm_gate *exm_gate_new(void)
{
    struct exm_gate *g = XNEW(struct exm_gate);

    g->minute = g->retained = -1;
    map_u64_init(&g->series);
    return g;
}

void exm_gate_free(struct exm_gate *g)
{
    if (!g)
        return;
    map_u64_deinit(&g->series);
    vec_free(&g->rows);
    vec_free(&g->bytes);
    xfree(g);
}

int exemplar_check(const struct store_series *r, size_t nodes, struct err *e)
{
    for (size_t i = 0; i < r->exemplars_len; i++) {
        const struct store_exemplar *x = &r->exemplars[i];
        if (x->kind < EXID_SPAN || x->kind >= EXID_KINDS || !exid_valid(x->id))
            return err_set(e, ERR_INPUT, "exemplar %zu has no id of a known kind", i);
        if (i && (x->kind < x[-1].kind || (x->kind == x[-1].kind && str_cmp(x[-1].id, x->id) >= 0)))
            return err_set(e, ERR_INPUT, "exemplars are not sorted, or an id is given twice");
        for (size_t k = 0; k < x->len; k++)
            if (x->nodes[k] > nodes || !x->values[k] || (k && x->nodes[k] <= x->nodes[k - 1]))
                return err_set(e, ERR_INPUT, "exemplar %zu: node %u of %zu, value %" PRIu64, i,
                               x->nodes[k], nodes, x->values[k]);
    }
    return 0;
}

static void gate_minute(struct exm_gate *g, int64_t engine_ms)
{
    if (engine_ms / MINUTE_MS == g->minute)
        return;
    g->minute = engine_ms / MINUTE_MS;
    map_u64_reset(&g->series);
    g->rows.len = g->bytes.len = 0;
}

static uint32_t *gate_rows(struct exm_gate *g, const struct member *m)
{
    uint64_t words[] = { m->series, (uint64_t)m->tenant << 32 | m->scope, m->ptype };
    uint32_t i = map_u64_put(&g->series, hash64(words, sizeof(words), 0), (uint32_t)g->rows.len);

    if (i == MAP_U64_EMPTY) {
        i = (uint32_t)g->rows.len;
        vec_push(&g->rows, 0);
    }
    return &g->rows.ptr[i];
}

static uint64_t *gate_bytes(struct exm_gate *g, uint32_t tenant)
{
    while (g->bytes.len <= tenant)
        vec_push(&g->bytes, 0);
    return &g->bytes.ptr[tenant];
}

/* One exemplar: its bytes, or 0 if they would pass `left`. */
static size_t put(struct store *s, const struct exemplar_stage *x, const struct store_exemplar *in,
                  uint64_t left, struct kv_batch *b)
{
    struct exm_ref ref = {
        .m = x->m, .t = x->in->vectors[0].slot, .kind = in->kind, .id = in->id, .wid = x->in->wid
    };
    struct exm_mark mark = { .duration_ms = in->duration_ms };
    struct exm_key row, index;
    struct exm_row stored;
    struct vec_reader r;
    struct err e;

    exm_row_begin(&s->row, in->duration_ms);
    x->encode(s, x->dict, in->nodes, in->values, in->len, &s->row);
    CHECK(exm_row_read(buf_str(&s->row), &stored, &e) == 0 && vec_peek(stored.vector, &r, &e) == 0);
    mark.total = r.meta.total;
    exm_row_key(&row, &ref);
    exm_index_key(&index, &ref);
    size_t bytes = row.len + s->row.len + index.len + 1 + 5 + 10;
    if (bytes > left)
        return 0;
    kv_batch_put(b, KV_EXM, exm_key_str(&row), buf_str(&s->row));
    exm_mark_put(&s->row, &mark);
    kv_batch_put(b, KV_EXM, exm_key_str(&index), buf_str(&s->row));
    return bytes;
}

void exemplar_stage(struct store *s, const struct exemplar_stage *x, struct kv_batch *b,
                    struct store_result *ret)
{
    const struct store_exm_opts *o = &s->o.exm;
    struct exm_gate *g = s->exm;
    size_t n = x->in->exemplars_len, stored = 0, old = 0;

    if (!n)
        return;
    gate_minute(g, x->engine_ms);
    uint32_t *rows = gate_rows(g, &x->m);
    uint64_t *bytes = gate_bytes(g, x->m.tenant);
    uint32_t low = exm_low(s, x->engine_ms);
    /* Under a delete that is not purged it would go with what was deleted. */
    bool held = tombs_hold(s, &x->m, x->in->vectors[0].slot);
    for (size_t i = 0; i < n; i++) {
        const struct store_exemplar *in = &x->in->exemplars[i];
        if (!o->retention_ms || exm_bucket(x->in->vectors[0].slot) < low || held) {
            old++;
            continue;
        }
        if (*rows >= o->rows_per_minute || *bytes >= o->bytes_per_minute)
            continue;
        size_t took = put(s, x, in, o->bytes_per_minute - *bytes, b);
        *bytes += took;
        *rows += took > 0;
        stored += took > 0;
    }
    ret->exemplars += (uint32_t)stored;
    ret->exemplars_left_out += (uint32_t)(n - stored);
    atomic_fetch_add_explicit(&s->exm_stored, stored, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->exm_old, old, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->exm_over, n - stored - old, memory_order_relaxed);
}

/* ---- taking away ---- */

uint32_t exm_low(const struct store *s, int64_t engine_ms)
{
    return exm_bucket(slot_of_ms(engine_ms - (int64_t)s->o.exm.retention_ms));
}

static int drop_below(struct store *s, uint32_t low, struct err *e)
{
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_EXM, STR_NULL, STR_NULL);
    struct exm_key from, to;
    uint32_t first = 0;
    bool any = exm_seek_bucket(it, &first) && first < low;
    int rc = kv_iter_status(it, e);

    kv_iter_free(it);
    if (rc || !any)
        return rc;
    exm_bucket_prefix(&from, first);
    exm_bucket_prefix(&to, low);
    mutex_lock(&s->write);
    rc = store_check_writable(s, e);
    if (!rc)
        rc = kv_drop_range(s->kv, KV_EXM, exm_key_str(&from), exm_key_str(&to), e);
    mutex_unlock(&s->write);
    return rc;
}

int store_exemplars_retain(struct store *s, bool *ret_more, struct err *e)
{
    int64_t now = store_now(s);

    *ret_more = false;
    s->exm->retained = now / MINUTE_MS;
    if (s->clock.held)
        return 0;
    return drop_below(s, exm_low(s, now - GRACE_MS), e) ? err_wrap(e, "exemplars past retention")
                                                        : 0;
}

uint64_t store_exemplars_retain_ms(struct store *s)
{
    int64_t now = store_now(s), next = (s->exm->retained + 1) * MINUTE_MS;

    return now < next ? (uint64_t)(next - now) : 0;
}
