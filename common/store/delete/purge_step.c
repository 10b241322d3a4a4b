/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_step: the batch of one step of a purge, and its budget.
 */
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/delete/purge.h"
#include "common/store/state/store_impl.h"

#define BATCH_BYTES MIB

void purge_touch(struct purge_step *x, enum kv_cf cf, uint32_t lead, uint32_t bucket)
{
    struct key k;

    key_tomb_span(&k, x->t->tenant, x->t->entry, cf, lead, bucket);
    kv_batch_put(x->b, KV_META, key_str(&k), STR(""));
}

void purge_count(struct purge_step *x, uint64_t rows, uint64_t bytes)
{
    x->rows += rows;
    x->bytes += bytes;
    x->rows_left -= MIN(x->rows_left, MAX(rows, 1u));
    x->full = x->full || !x->rows_left;
}

/* With room for what comes last: the tomb, its progress, rows of the ledger. */
int purge_fits(const struct purge_step *x, struct err *e)
{
    size_t max = kv_batch_max(x->s->kv);

    if (kv_batch_bytes(x->b) <= max - MIN(max / 8, (size_t)MIB))
        return 0;
    return err_set(e, ERR_LIMIT, "a step of %zu bytes is larger than a batch may be",
                   kv_batch_bytes(x->b));
}

void purge_look_full(struct purge_step *x)
{
    size_t most = MIN((size_t)BATCH_BYTES, kv_batch_max(x->s->kv) / 4);

    x->full = x->full || kv_batch_bytes(x->b) >= most;
}

size_t purge_mask_at(const struct tomb *t)
{
    return t->cursor.len == 4 ? get_u32be(t->cursor.ptr) : 0;
}

void purge_set_mask(struct tomb *t, size_t mask)
{
    char at[4];

    put_u32be(at, (uint32_t)mask);
    buf_reset(&t->cursor);
    buf_add(&t->cursor, at, sizeof(at));
}
