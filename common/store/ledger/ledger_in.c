/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_in: counts accepted writes while they are staged.
 *
 * A row of the ledger is a running sum. This module keeps each sum as of the last staged request. A
 * batch copies the sums that it changed when it ends, and writes each once, however many requests
 * it holds. Batches are committed in the order they were made, so the sums on disk are those of
 * exactly the batches on disk. Committed sums may be dropped from memory and read again.
 *
 * Thread: the shard's. ledger_in_commit is the committer's; then no other thread changes the batch.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/state/store_batch.h"
#include "common/store/state/store_impl.h"

#define ENTRIES_MAX 32768

struct ledger_entry {
    struct key k;
    struct ledger_sum sum;
    uint64_t count; /* of duplicates */
    uint64_t seq;   /* of the last batch it changed in; 0: none since it was read */
    size_t at;      /* in that batch */
    bool unsaved;   /* duplicates that no batch holds */
    struct acks acks;
};

void ledger_in_clear(struct ledger *l)
{
    size_t pos = 0;
    struct str key;
    void *p;

    while (map_str_next(l->at, &pos, &key, &p))
        xfree(p);
    map_str_free(l->at);
    l->at = map_str_new();
    l->last = NULL;
}

void ledger_forget(struct store *s)
{
    ledger_in_clear(s->ledger);
}

static struct ledger_entry *find(struct ledger *l, const struct key *k)
{
    if (l->last && str_eq(key_str(&l->last->k), key_str(k)))
        return l->last;
    struct ledger_entry *x = map_str_get(l->at, key_str(k));
    if (x)
        l->last = x;
    return x;
}

static struct ledger_entry *add(struct ledger *l, const struct key *k)
{
    struct ledger_entry *x = XNEW(struct ledger_entry);

    x->k = *k;
    (void)map_str_put(l->at, key_str(&x->k), x);
    l->last = x;
    return x;
}

static void drop(struct ledger *l, struct ledger_entry *x)
{
    (void)map_str_del(l->at, key_str(&x->k));
    l->last = NULL;
    xfree(x);
}

void ledger_trim(struct store *s, uint64_t committed)
{
    struct ledger *l = s->ledger;
    struct map_str *kept;
    size_t pos = 0;
    struct str key;
    void *p;

    if (map_str_len(l->at) <= ENTRIES_MAX)
        return;
    kept = map_str_new();
    while (map_str_next(l->at, &pos, &key, &p)) {
        struct ledger_entry *x = p;
        if (x->seq > committed || x->unsaved)
            (void)map_str_put(kept, key_str(&x->k), x);
        else
            xfree(x);
    }
    map_str_free(l->at);
    l->at = kept;
    l->last = NULL;
}

bool ledger_in_settled(struct store *s, const struct member *m, uint32_t bucket)
{
    struct key k;

    ledger_key(&k, KEY_LEDGER_IN, m, bucket);
    struct ledger_entry *x = find(s->ledger, &k);
    if (!x)
        return true;
    if (x->seq > atomic_load_explicit(&s->committed, memory_order_acquire))
        return false;
    drop(s->ledger, x);
    return true;
}

/* ---- a series ---- */

int ledger_in_plan(struct store *s, const struct member *m, uint32_t slot, struct err *e)
{
    struct ledger_sum sum;
    struct key k;

    ledger_key(&k, KEY_LEDGER_IN, m, ledger_bucket(slot));
    if (find(s->ledger, &k))
        return 0;
    if (ledger_get_in(s->kv, NULL, m, ledger_bucket(slot), &sum, e))
        return e->code;
    add(s->ledger, &k)->sum = sum;
    return 0;
}

/* Its row in the batch. */
static struct ledger_row *row_of(struct ledger_entry *x, struct store_batch *b)
{
    if (x->seq != b->seq) {
        x->seq = b->seq;
        x->at = b->ledger.len;
        vec_push(&b->ledger, ((struct ledger_row){ .k = x->k }));
    }
    return &b->ledger.ptr[x->at];
}

void ledger_in_add(struct store *s, struct store_batch *b, const struct member *m, uint32_t slot,
                   struct str vector)
{
    struct ledger_sum more;
    struct ledger_row *r;
    struct err e;
    struct key k;

    ledger_key(&k, KEY_LEDGER_IN, m, ledger_bucket(slot));
    struct ledger_entry *x = find(s->ledger, &k);
    CHECK(x); /* ledger_in_plan */
    CHECK(ledger_of(vector, &more, &e) == 0);
    ledger_add(&x->sum, &more);
    r = row_of(x, b);
    r->len = LEDGER_IN_LEN;
    static_assert(sizeof(r->row) >= LEDGER_IN_LEN, "a row of a batch holds one of the ledger");
    ledger_in_put(&x->sum, r->row);
}

/* ---- duplicates ---- */

static uint64_t read_count(struct store *s, const struct key *k)
{
    uint64_t n = 0;
    struct err skip;

    /* A row that cannot be read is no reason to refuse a push; check.c finds it. */
    if (kv_get(s->kv, NULL, KV_META, key_str(k), &s->row, &skip) == 0)
        (void)key_u64_read(buf_str(&s->row), &n);
    return n;
}

void ledger_in_duplicates(struct store *s, uint32_t tenant, uint32_t n, struct store_batch *b)
{
    struct key k, v;

    key_table(&k, KEY_LEDGER_DUPLICATES, tenant);
    struct ledger_entry *x = find(s->ledger, &k);
    if (!n && !(x && x->unsaved))
        return;
    if (!x) {
        x = add(s->ledger, &k);
        x->count = read_count(s, &k);
    }
    x->count += n;
    x->unsaved = !b;
    if (!b)
        return;
    struct ledger_row *r = row_of(x, b);
    key_u64(&v, x->count);
    r->len = v.len;
    memcpy(r->row, v.b, v.len);
}

/* ---- acks ---- */

void ledger_acks_key(struct key *k, uint64_t distributor, uint32_t epoch, uint32_t tenant)
{
    k->b[0] = (char)KEY_ACKS;
    put_u64be(k->b + 1, distributor);
    put_u32be(k->b + 9, epoch);
    put_u32be(k->b + 13, tenant);
    k->len = 17;
}

int ledger_acks_read(struct str row, struct ledger_acks *ret, struct err *e)
{
    if (row.len != LEDGER_ACKS_LEN || row.ptr[0] != 1)
        return err_set(e, ERR_CORRUPT, "a row of acks of %zu bytes", row.len);
    ret->sum = (struct acks){ .count = get_u64be(row.ptr + 1),
                              .high = get_u64be(row.ptr + 9),
                              .low = get_u64be(row.ptr + 17) };
    ret->last_ms = (int64_t)get_u64be(row.ptr + 25);
    return 0;
}

int ledger_acks_plan(struct store *s, const struct store_write *w, uint32_t tenant, struct err *e)
{
    struct ledger_acks got = { 0 };
    struct key k;

    if (!w->distributor)
        return 0;
    ledger_acks_key(&k, w->distributor, w->epoch, tenant);
    if (find(s->ledger, &k))
        return 0;
    int rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &s->row, e);
    if (!rc)
        rc = ledger_acks_read(buf_str(&s->row), &got, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    add(s->ledger, &k)->acks = got.sum;
    return 0;
}

void ledger_acks_add(struct store *s, struct store_batch *b, const struct store_write *w,
                     uint32_t tenant, const uint8_t wid[16], int64_t engine_ms)
{
    struct key k;

    if (!w->distributor)
        return;
    ledger_acks_key(&k, w->distributor, w->epoch, tenant);
    struct ledger_entry *x = find(s->ledger, &k);
    CHECK(x); /* ledger_acks_plan */
    acks_add(&x->acks, wid);
    struct ledger_row *r = row_of(x, b);
    r->len = LEDGER_ACKS_LEN;
    r->row[0] = 1;
    put_u64be(r->row + 1, x->acks.count);
    put_u64be(r->row + 9, x->acks.high);
    put_u64be(r->row + 17, x->acks.low);
    put_u64be(r->row + 25, (uint64_t)engine_ms);
}

/* ---- a batch ---- */

void ledger_in_commit(struct store_batch *b)
{
    vec_for (i, &b->ledger) {
        const struct ledger_row *r = &b->ledger.ptr[i];
        kv_batch_put(b->kb, KV_META, key_str(&r->k), str_n(r->row, r->len));
    }
}

/* *ret_born: the service and type has no row of the ledger, so its counters begin now. If all its
 * series were deleted and new ones come, its old rows are continued. If it is older than the
 * ledger, it has only the rows of later writes. */
int ledger_birth_plan(struct store *s, const struct member *m, bool *ret_born, struct err *e)
{
    static const enum key_table tables[] = { KEY_LEDGER_IN, KEY_LEDGER_OUT, KEY_LEDGER_WHOLE };
    bool any = false;
    int rc = 0;

    for (size_t i = 0; !rc && !any && i < ARRAY_LEN(tables); i++) {
        struct key from, to;

        ledger_part_key(&from, tables[i], m);
        to = from;
        key_end(&to);
        struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
        any = kv_iter_valid(it);
        rc = kv_iter_status(it, e);
        kv_iter_free(it);
    }
    *ret_born = !any;
    return rc;
}

void ledger_birth(struct store *s, const struct member *m, struct kv_batch *b)
{
    struct ledger_whole w = { .generation = s->ledger->generation };
    char row[LEDGER_WHOLE_LEN];
    struct key k;

    ledger_whole_put(&w, row);
    ledger_part_key(&k, KEY_LEDGER_WHOLE, m);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}
