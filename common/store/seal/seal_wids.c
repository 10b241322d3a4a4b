/* SPDX-License-Identifier: Apache-2.0
 *
 * seal_wids: the write ids of an entry: how many of their rows are in sealed vectors, since which
 * entry.
 */
#include <stdlib.h>

#include "common/store/seal/seal_steps.h"
#include "common/store/state/store_impl.h"

static int by_wid(const void *a, const void *b)
{
    const struct seal_row *x = *(const struct seal_row *const *)a;
    const struct seal_row *y = *(const struct seal_row *const *)b;

    if (x->m.tenant != y->m.tenant)
        return x->m.tenant < y->m.tenant ? -1 : 1;
    return memcmp(x->wid, y->wid, 16);
}

static void put_wid(struct apply *a, const struct seal_row *r, const struct wid_row *w)
{
    char value[WID_ROW_MAX];
    struct key k;

    key_wid(&k, r->wid_bucket, r->m.tenant, r->wid);
    kv_batch_put(a->b, KV_WID, key_str(&k), str_n(value, wid_row_put(w, value)));
}

/* `folded` rows of one write id that came with several. */
static int mark_many(struct apply *a, const struct seal_row *r, size_t folded, struct err *e)
{
    struct wid_row w;
    struct key k;

    key_wid(&k, r->wid_bucket, r->m.tenant, r->wid);
    int rc = kv_get(a->s->kv, NULL, KV_WID, key_str(&k), &a->old, e);
    if (rc == ERR_NOT_FOUND)
        return 0; /* behind the horizon */
    if (!rc)
        rc = wid_row_read(buf_str(&a->old), &w, e);
    if (!rc && folded > w.rows - w.folded)
        rc = err_set(e, ERR_CORRUPT, "a write id of %u rows has %zu more than that", w.rows,
                     folded - (w.rows - w.folded));
    if (rc)
        return rc;
    w.folded += (uint32_t)folded;
    w.entry = a->n->n;
    put_wid(a, r, &w);
    return 0;
}

int seal_mark_wids(struct apply *a, const struct seal_rows *rows, struct err *e)
{
    VEC(const struct seal_row *) many = { 0 };
    uint32_t low = wids_low(a->s->wids, a->n->engine_ms);
    int rc = 0;

    vec_for (i, &rows->at) {
        const struct seal_row *r = &rows->at.ptr[i];
        struct wid_row w = { .t = r->t, .rows = 1, .folded = 1, .entry = a->n->n };
        if (r->wid_bucket < low)
            continue;
        if (r->wid_rows == 1)
            put_wid(a, r, &w);
        else
            vec_push(&many, r);
    }
    if (many.len)
        qsort(many.ptr, many.len, sizeof(*many.ptr), by_wid);
    for (size_t i = 0, end; !rc && i < many.len; i = end) {
        for (end = i + 1; end < many.len && !by_wid(&many.ptr[i], &many.ptr[end]);)
            end++;
        rc = mark_many(a, many.ptr[i], end - i, e);
    }
    vec_free(&many);
    return rc;
}
