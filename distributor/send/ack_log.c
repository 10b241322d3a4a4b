/* SPDX-License-Identifier: Apache-2.0
 *
 * acked: entries until they are asked about.
 *
 *   ack_log_add ──> entry ──> group (shard, epoch) ──heap by due time──> ack_log_take ──> a
 * question
 *                                ^                                                       │
 *                                └──────────────── ack_log_later ──────────────────────────┤
 *                                                              ack_log_drop, ack_log_end <───┘
 *
 * An ack costs one look-up, a group two steps through a heap, and no operation walks all groups:
 * with 4,096 shards that is what keeps it small. A group falls due when no write of its epoch can
 * be under way any more; shards do so in some phases of an epoch, so that questions are spread over
 * it and still meet others for the same ingester.
 *
 * An entry is a sum that is compared with a sum: it is right only if it has all there was. So
 * whether a key is taken is decided once for an epoch. Where there are more of them than there is
 * room for, keys are thinned by a hash, at the same rate for a whole epoch, other ones in each; if
 * that is not enough, nothing new is taken in the rest of it. And where the shard may have been
 * asked already, no entry begins.
 */
#include "distributor/send/ack_log.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/wr.h"

#define SPANS      64
#define KEY_LEN    8
#define TENANT_MAX 512
#define SLOT_BYTES 64 /* of an entry in a map, about */
#define THIN_MOST  20

struct span { /* an epoch */
    uint32_t epoch;
    bool used, full;
    unsigned thin;
    uint64_t first_ms;
};
struct ack_log {
    struct ack_log_opts o;
    struct map_str *entries; /* struct ack_log_entry, owned */
    struct map_str *groups;  /* the youngest of each (shard, epoch) */
    VEC(struct ack_log_group *) heap;
    struct ack_log_entry *last;
    struct span spans[SPANS]; /* by epoch modulo */
    uint32_t newest;
    unsigned thin; /* of the next epoch */
    size_t bytes;
};

/* ---- heap ---- */

static void swap(struct ack_log *a, size_t i, size_t k)
{
    struct ack_log_group *g = a->heap.ptr[i];

    a->heap.ptr[i] = a->heap.ptr[k];
    a->heap.ptr[k] = g;
}

static bool before(const struct ack_log *a, size_t i, size_t k)
{
    return a->heap.ptr[i]->due_ms < a->heap.ptr[k]->due_ms;
}

static void heap_push(struct ack_log *a, struct ack_log_group *g)
{
    size_t i = a->heap.len;

    vec_push(&a->heap, g);
    for (; i && before(a, i, (i - 1) / 2); i = (i - 1) / 2)
        swap(a, i, (i - 1) / 2);
}

static struct ack_log_group *heap_pop(struct ack_log *a)
{
    struct ack_log_group *first = a->heap.ptr[0];
    size_t i = 0, child;

    a->heap.ptr[0] = a->heap.ptr[--a->heap.len];
    while ((child = 2 * i + 1) < a->heap.len) {
        if (child + 1 < a->heap.len && before(a, child + 1, child))
            child++;
        if (!before(a, child, i))
            break;
        swap(a, i, child);
        i = child;
    }
    return first;
}

/* ---- epochs ---- */

/* How much of an epoch that begins now is taken. */
static void thin(struct ack_log *a)
{
    if (a->bytes > a->o.bytes_max / 2)
        a->thin = MIN(a->thin + 1, THIN_MOST);
    else if (a->bytes < a->o.bytes_max / 8 && a->thin)
        a->thin--;
}

/* NULL: one of long ago. */
static struct span *span_of(struct ack_log *a, uint32_t epoch, uint64_t now_ms)
{
    struct span *s = &a->spans[epoch % SPANS];

    if (s->used && s->epoch == epoch)
        return s;
    if (s->used && s->epoch > epoch)
        return NULL;
    if (epoch > a->newest) {
        thin(a);
        a->newest = epoch;
    }
    *s = (struct span){ .epoch = epoch, .used = true, .thin = a->thin, .first_ms = now_ms };
    return s;
}

/* From then on its shards may be asked. */
static uint64_t closes_ms(const struct ack_log *a, const struct span *s)
{
    return s->first_ms + 2 * a->o.epoch_ms + a->o.settle_ms;
}

static bool is_taken(struct ack_log *a, struct span *s, struct str key, uint64_t now_ms)
{
    if (s->full || now_ms >= closes_ms(a, s))
        return false;
    if (a->bytes > a->o.bytes_max - a->o.bytes_max / 8) {
        s->full = true;
        return false;
    }
    return !s->thin || hash64(key.ptr, key.len, a->o.seed) >> (64 - s->thin) == 0;
}

/* ---- entries ---- */

static size_t entry_bytes(const struct ack_log_entry *x)
{
    return sizeof(*x) + x->key.len + SLOT_BYTES;
}

static struct str group_key(const struct ack_log_group *g)
{
    return str_n(g->key, KEY_LEN);
}

static struct ack_log_group *group_of(struct ack_log *a, struct str key,
                                      const struct ledger_write *w, const struct span *s,
                                      uint64_t now_ms)
{
    struct ack_log_group *g = map_str_get(a->groups, key);
    uint64_t phase = hash_u64(w->shard) % ACK_LOG_PHASES;

    if (g && g->len < ACK_LOG_GROUP_ENTRIES)
        return g;
    if (g)
        (void)map_str_del(a->groups, key);
    g = XNEW(struct ack_log_group);
    g->shard = w->shard;
    g->epoch = w->epoch;
    list_init(&g->entries);
    g->born_ms = now_ms;
    g->due_ms = closes_ms(a, s) + phase * a->o.epoch_ms / ACK_LOG_PHASES;
    memcpy(g->key, key.ptr, KEY_LEN);
    (void)map_str_put(a->groups, group_key(g), g);
    heap_push(a, g);
    a->bytes += sizeof(*g) + SLOT_BYTES;
    return g;
}

static struct ack_log_entry *entry_new(struct ack_log *a, struct str key,
                                       const struct ledger_write *w, const struct span *s,
                                       uint64_t now_ms)
{
    struct ack_log_group *g = group_of(a, str_sub(key, 0, KEY_LEN), w, s, now_ms);
    struct ack_log_entry *x = xcalloc(1, sizeof(*x) + key.len);

    memcpy(x->bytes, key.ptr, key.len);
    x->key = str_n(x->bytes, key.len);
    x->tenant = str_sub(x->key, KEY_LEN, x->key.len);
    x->group = g;
    list_add_tail(&g->entries, &x->link);
    g->len++;
    (void)map_str_put(a->entries, x->key, x);
    a->bytes += entry_bytes(x);
    return x;
}

/* NULL: it is not taken. */
static struct ack_log_entry *entry_of(struct ack_log *a, const struct ledger_write *w,
                                      uint64_t now_ms)
{
    char bytes[KEY_LEN + TENANT_MAX];

    if (a->last && a->last->group->shard == w->shard && a->last->group->epoch == w->epoch &&
        str_eq(a->last->tenant, w->tenant))
        return a->last;
    if (w->tenant.len > TENANT_MAX)
        return NULL;
    put_u32be(bytes, w->shard);
    put_u32be(bytes + 4, w->epoch);
    memcpy(bytes + KEY_LEN, w->tenant.ptr, w->tenant.len);
    struct str key = str_n(bytes, KEY_LEN + w->tenant.len);
    struct ack_log_entry *x = map_str_get(a->entries, key);
    struct span *s = x ? NULL : span_of(a, w->epoch, now_ms);
    if (s && is_taken(a, s, key, now_ms))
        x = entry_new(a, key, w, s, now_ms);
    if (x)
        a->last = x;
    return x;
}

bool ack_log_add(struct ack_log *a, const struct ledger_write *w, const struct acks *sums,
                 uint64_t now_ms)
{
    struct ack_log_entry *x = entry_of(a, w, now_ms);

    if (!x)
        return false;
    x->sure.count += sums->count;
    x->sure.high += sums->high;
    x->sure.low += sums->low;
    return true;
}

bool ack_log_doubt(struct ack_log *a, const struct ledger_write *w, const struct ledger_doubt *d,
                   uint64_t now_ms)
{
    struct ack_log_entry *x = entry_of(a, w, now_ms);

    if (!x)
        return false;
    if (x->doubts.len == ACK_LOG_ENTRY_DOUBTS || x->group->doubts == ACK_LOG_GROUP_DOUBTS ||
        a->bytes > a->o.bytes_max - a->o.bytes_max / 16) {
        x->unlisted++;
        return false;
    }
    a->bytes -= x->doubts.cap * sizeof(*d);
    vec_push(&x->doubts, *d);
    a->bytes += x->doubts.cap * sizeof(*d);
    x->group->doubts++;
    return true;
}

/* ---- groups ---- */

struct ack_log_group *ack_log_take(struct ack_log *a, uint64_t now_ms)
{
    return a->heap.len && a->heap.ptr[0]->due_ms <= now_ms ? heap_pop(a) : NULL;
}

void ack_log_later(struct ack_log *a, struct ack_log_group *g, uint64_t due_ms)
{
    g->due_ms = due_ms;
    heap_push(a, g);
}

void ack_log_drop(struct ack_log *a, struct ack_log_entry *x)
{
    (void)map_str_del(a->entries, x->key);
    if (a->last == x)
        a->last = NULL;
    list_del(&x->link);
    x->group->len--;
    x->group->doubts -= x->doubts.len;
    a->bytes -= entry_bytes(x) + x->doubts.cap * sizeof(*x->doubts.ptr);
    vec_free(&x->doubts);
    xfree(x);
}

void ack_log_end(struct ack_log *a, struct ack_log_group *g)
{
    list_for (l, &g->entries)
        ack_log_drop(a, container_of(l, struct ack_log_entry, link));
    if (map_str_get(a->groups, group_key(g)) == g)
        (void)map_str_del(a->groups, group_key(g));
    a->bytes -= sizeof(*g) + SLOT_BYTES;
    xfree(g);
}

/* ---- life ---- */

uint64_t ack_log_due_ms(const struct ack_log *a)
{
    return a->heap.len ? a->heap.ptr[0]->due_ms : UINT64_MAX;
}

size_t ack_log_len(const struct ack_log *a)
{
    return map_str_len(a->entries);
}

size_t ack_log_bytes(const struct ack_log *a)
{
    return a->bytes;
}

unsigned ack_log_thinned(const struct ack_log *a)
{
    return a->thin;
}

struct ack_log *ack_log_new(const struct ack_log_opts *o)
{
    struct ack_log *a = XNEW(struct ack_log);

    a->o = *o;
    a->entries = map_str_new();
    a->groups = map_str_new();
    return a;
}

void ack_log_free(struct ack_log *a)
{
    if (!a)
        return;
    while (a->heap.len)
        ack_log_end(a, heap_pop(a));
    CHECK(a->bytes == 0);
    vec_free(&a->heap);
    map_str_free(a->entries);
    map_str_free(a->groups);
    xfree(a);
}
