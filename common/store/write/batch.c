/* SPDX-License-Identifier: Apache-2.0
 *
 * batch: many staged requests that are committed together, by one fsync.
 *
 * A batch is all or nothing, and batches survive in order. So a database is at any time what some
 * prefix of the committed and sealed batches made it; every dictionary id a row names, every
 * series, every write id came in the same or an earlier batch.
 *
 * Threads: the shard's makes and fills batches, the committer commits them.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_batch.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define BATCH_RESERVED MIB /* of a new batch, at most */

struct store_batch *store_batch_new(struct store *s)
{
    struct store_batch *b = XNEW(struct store_batch);

    b->s = s;
    b->kb = kv_batch_new();
    b->seq = ++s->staged;
    /* The next one is about as large: it need not move while it grows. */
    kv_batch_reserve(b->kb, MIN(s->batch_bytes, (size_t)BATCH_RESERVED));
    return b;
}

size_t store_batch_max(const struct store *s)
{
    return kv_batch_max(s->kv);
}

size_t store_batch_bytes(const struct store_batch *b)
{
    return kv_batch_bytes(b->kb);
}

static void on_committed(void *cookie)
{
    struct store_batch *b = cookie;

    vec_for (i, &b->hot) {
        const struct hot_row *r = &b->hot.ptr[i];
        hot_add(b->s->hot, &r->m, r->slot, kv_batch_part(b->kb, r->at, r->len), b->seq);
    }
    b->s->published_seq = b->seq;
}

int store_commit(struct store *s, struct store_batch *b, struct err *e)
{
    int rc = store_check_writable(s, e);

    CHECK(b->s == s && (rc || b->seq == atomic_load(&s->committed) + 1));
    ledger_in_commit(b);
    if (!rc && kv_batch_count(b->kb))
        rc = store_write_then(s, b->kb, true, on_committed, b, e);
    if (!rc)
        atomic_store_explicit(&s->committed, b->seq, memory_order_release);
    kv_batch_free(b->kb);
    vec_free(&b->hot);
    vec_free(&b->ledger);
    xfree(b);
    return rc;
}
