/* SPDX-License-Identifier: Apache-2.0
 *
 * seal_section: the rows of an entry that belong to one service and type.
 *
 *   fine    above the floor of level 0: the leaf of each (series, 10 s): itself + the rows
 *   coarse  below it: the base node of each series, itself + the rows: old data go straight to the
 *           level that keeps them, and late data of a time that has left level 0, too
 *   tl      the points beside both
 *   ru      the same of the groups (rollup_seal.h)
 *   meta    marks on all nodes above
 *
 * Late rows: a row may arrive for a minute that was sealed before. It stays raw, and visible, until
 * the next seal adds it to the leaf. A minute that no entry touched yet cannot have leaves, so the
 * usual case reads nothing before it writes (store.sealed_high).
 *
 * A leaf of one row takes the bytes of the row unchanged: no decoding, no encoding.
 */
#include <stdlib.h>

#include "common/store/ledger/ledger_counts.h"
#include "common/store/seal/rollup_seal.h"
#include "common/store/seal/seal_steps.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/tl_rows.h"

/* What stands under k, into a->old; *ret_found says whether. `t` is the first slot of its time:
 * none at or behind sealed_high has ever been sealed. */
static int read_old(struct apply *a, enum kv_cf cf, const struct key *k, uint32_t t,
                    bool *ret_found, struct err *e)
{
    *ret_found = false;
    if (raw_bucket(t) >= a->s->sealed_high)
        return 0;
    int rc = kv_get(a->s->kv, NULL, cf, key_str(k), &a->old, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    *ret_found = !rc;
    return rc;
}

struct node { /* the row of a node of a series */
    enum kv_cf cf;
    struct key k;
    uint32_t t;
};

/* Adds rows to a node; the bytes of the sum are in *ret until the next call. */
static int fold(struct apply *a, const struct node *to, const struct seal_row *r, size_t n,
                struct str *ret, struct err *e)
{
    bool found;
    int rc = read_old(a, to->cf, &to->k, to->t, &found, e);

    if (!rc && !found && n == 1) {
        *ret = r->vector;
        kv_batch_put(a->b, to->cf, key_str(&to->k), *ret);
        return 0;
    }
    vecsum_begin(&a->fold);
    if (!rc && found)
        rc = vecsum_add(&a->fold, buf_str(&a->old), e);
    for (size_t i = 0; !rc && i < n; i++)
        rc = vecsum_add(&a->fold, r[i].vector, e);
    if (!rc)
        rc = vecsum_end(&a->fold, &a->out, e);
    if (rc)
        return err_wrap(e, "node at slot %u of series %016" PRIx64, to->t, r->m.series);
    *ret = buf_str(&a->out);
    kv_batch_put(a->b, to->cf, key_str(&to->k), *ret);
    return 0;
}

/* Rows of one node of the base level `base`. */
static int fold_node(struct apply *a, uint32_t base, uint32_t t, const struct seal_row *r, size_t n,
                     struct err *e)
{
    struct node to; /* not initialised as a whole: the key is large */
    struct vec_reader v;
    struct str row;

    to.cf = base ? KV_COARSE : KV_FINE;
    to.t = t;
    key_member(&to.k, base, &r->m, t);
    if (fold(a, &to, r, n, &row, e))
        return e->code;
    if (!base)
        return 0;
    if (vec_peek(row, &v, e))
        return e->code;
    struct tl_rows_point point = {
        .m = &r->m, .level = base, .t = t, .total = v.meta.total, .writes = v.meta.writes
    };
    tl_rows_built(a->s->tl_rows, &point);
    return 0;
}

/* Level 0: a row of points covers many leaves, and changes with each minute's seal. */
static int fold_timeline(struct apply *a, uint32_t chunk, const struct seal_row *r, size_t n,
                         struct err *e)
{
    struct vec_reader v;
    struct key k;
    bool found;

    key_member(&k, 0, &r->m, chunk);
    a->tl.points.len = 0;
    int rc = read_old(a, KV_TL, &k, chunk, &found, e);
    if (!rc && found)
        rc = timeline_row_decode(buf_str(&a->old), LEVELS[0].tl_chunk, &a->tl, e);
    for (size_t i = 0; !rc && i < n; i++) {
        rc = vec_peek(r[i].vector, &v, e);
        if (!rc)
            tl_add(&a->tl, r[i].t - chunk, v.meta.total, v.meta.writes);
    }
    if (rc)
        return err_wrap(e, "timeline at slot %u of series %016" PRIx64, chunk, r->m.series);
    tl_encode(a->tl.points.ptr, a->tl.points.len, &a->out);
    kv_batch_put(a->b, KV_TL, key_str(&k), buf_str(&a->out));
    return 0;
}

/* How many rows from r on are of its series and before slot `end`. */
static size_t run(const struct seal_row *r, size_t n, uint32_t end)
{
    size_t len = 1;

    while (len < n && r[len].m.series == r->m.series && r[len].t < end)
        len++;
    return len;
}

static int fold_nodes(struct apply *a, const struct floors *f, const struct seal_row *r, size_t n,
                      struct err *e)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t base = floors_base(f, false, r[i].t);
        if (base == FLOORS_GONE) { /* retention overtook it */
            len = run(r + i, n - i, f->at[KEY_LEVELS - 1]);
            continue;
        }
        uint32_t t = node_of(base, r[i].t);
        len = run(r + i, n - i, t + LEVELS[base].node);
        int rc = fold_node(a, base, t, r + i, len, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int fold_timelines(struct apply *a, const struct floors *f, const struct seal_row *r,
                          size_t n, struct err *e)
{
    struct vec_reader v;
    size_t len;

    for (size_t i = 0; i < n; i++) {
        if (vec_peek(r[i].vector, &v, e))
            return e->code;
        struct tl_rows_point point = {
            .m = &r[i].m, .t = r[i].t, .total = v.meta.total, .writes = v.meta.writes
        };
        if (r[i].t >= f->at[KEY_LEVELS - 1])
            tl_rows_sealed_above(a->s->tl_rows, f->at, &point);
    }
    for (size_t i = 0; i < n; i += len) {
        uint32_t chunk = r[i].t - r[i].t % LEVELS[0].tl_chunk;
        len = run(r + i, n - i, chunk + LEVELS[0].tl_chunk);
        if (r[i].t < f->at[0]) /* a multiple of the chunk */
            continue;
        int rc = fold_timeline(a, chunk, r + i, len, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- marks ---- */

static int by_slot(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int mark(struct apply *a, const struct floors *f, const struct seal_row *r, size_t n,
                struct err *e)
{
    a->windows.len = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t t = node_of(DIRTY_FIRST, r[i].t);
        if (!a->windows.len || a->windows.ptr[a->windows.len - 1] != t)
            vec_push(&a->windows, t);
    }
    qsort(a->windows.ptr, a->windows.len, sizeof(*a->windows.ptr), by_slot);
    vec_for (i, &a->windows) {
        uint32_t t = a->windows.ptr[i];
        if (i && t == a->windows.ptr[i - 1])
            continue;
        struct dirty_change c = { .m = r->m,
                                  .t = t,
                                  .base = floors_base(f, true, t),
                                  .engine_ms = a->n->engine_ms,
                                  .entry = a->n->n };
        int rc = dirty_mark(a->s, a->b, &c, e);
        if (rc)
            return rc;
    }
    return 0;
}

int seal_section(struct apply *a, const struct seal_row *rows, size_t n, struct err *e)
{
    struct floors f;

    if (floors_get(a->s, &rows->m, &f, e) || fold_nodes(a, &f, rows, n, e) ||
        fold_timelines(a, &f, rows, n, e) || ledger_sealed(a->s, rows, n, &f, a->b, e) ||
        rollup_seal(a, rows, n, &f, e))
        return e->code;
    return mark(a, &f, rows, n, e);
}
