/* SPDX-License-Identifier: Apache-2.0
 *
 * wid_filter: by bucket a chain of blocked Bloom filters, each twice as large as the one before.
 *
 * All bits of an id stand in one block of 64 bytes (Putze, Sanders, Singler 2007), so that a "no"
 * costs one cache line of each link. 12 bits an id give some 1 % of false "perhaps"; each costs as
 * much as a look-up without the filter. Only the store writes ids while it is open. An id whose
 * batch failed stays in the filter, which is harmless.
 */
#include "common/store/state/wid_filter.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/store/codec/keys.h"

#define RING       512 /* buckets; a horizon has 169 at most */
#define BLOCK_IDS  42  /* of 512 bits: 12 each */
#define BLOCKS_MIN 64
#define BITS       6 /* of an id */

struct link {
    uint64_t (*blocks)[8]; /* owned */
    uint32_t blocks_len;
    size_t ids;
};
struct hour {
    uint32_t bucket;
    bool used, whole; /* asked about; all its ids are here */
    VEC(struct link) links;
};
struct wid_filter {
    struct kv *kv; /* borrowed */
    size_t bytes, bytes_max;
    uint32_t low;
    struct hour hours[RING];
};

struct wid_filter *wid_filter_new(struct kv *kv, size_t bytes_max)
{
    struct wid_filter *f = XNEW(struct wid_filter);

    f->kv = kv;
    f->bytes_max = bytes_max;
    return f;
}

static void drop_links(struct wid_filter *f, struct hour *h)
{
    vec_for (i, &h->links) {
        f->bytes -= h->links.ptr[i].blocks_len * sizeof(*h->links.ptr[i].blocks);
        xfree(h->links.ptr[i].blocks);
    }
    vec_free(&h->links);
    h->whole = false;
}

void wid_filter_free(struct wid_filter *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < RING; i++)
        drop_links(f, &f->hours[i]);
    xfree(f);
}

void wid_filter_forget(struct wid_filter *f, uint32_t low)
{
    if (low <= f->low)
        return;
    f->low = low;
    for (size_t i = 0; i < RING; i++) {
        struct hour *h = &f->hours[i];
        if (!h->used || h->bucket >= low)
            continue;
        drop_links(f, h);
        h->used = false;
    }
}

static struct hour *hour_of(struct wid_filter *f, uint32_t bucket)
{
    struct hour *h = &f->hours[bucket % RING];

    return h->used && h->bucket == bucket ? h : NULL;
}

/* An empty bucket is known from now on. */
static int look(struct wid_filter *f, uint32_t bucket, struct hour **ret, struct err *e)
{
    struct hour *h = &f->hours[bucket % RING];
    struct key from, to;

    *ret = NULL;
    if (bucket < f->low || (h->used && h->bucket > bucket))
        return 0;
    key_wid_bucket(&from, bucket);
    key_wid_bucket(&to, bucket + 1);
    struct kv_iter *it = kv_iter_new(f->kv, NULL, KV_WID, key_str(&from), key_str(&to));
    kv_iter_seek(it, key_str(&from));
    bool any = kv_iter_valid(it);
    int rc = any ? 0 : kv_iter_status(it, e);
    kv_iter_free(it);
    if (rc)
        return rc;
    drop_links(f, h);
    *h = (struct hour){ .bucket = bucket, .used = true, .whole = !any };
    *ret = h;
    return 0;
}

struct place {
    uint64_t block, bits;
};

static struct place place_of(uint32_t tenant, const uint8_t wid[16])
{
    uint64_t h = hash_mix(get_u64le(wid) ^ UINT64_C(0xa0761d6478bd642f),
                          get_u64le(wid + 8) ^ (tenant + UINT64_C(0xe7037ed1a0b428db)));

    return (struct place){ h >> 32, hash_u64(h) };
}

static uint64_t *block_of(const struct link *l, const struct place *p)
{
    return l->blocks[p->block * l->blocks_len >> 32];
}

static bool has(const struct link *l, const struct place *p)
{
    const uint64_t *block = block_of(l, p);
    uint64_t bits = p->bits;

    for (int i = 0; i < BITS; i++, bits >>= 9)
        if (!(block[bits >> 6 & 7] >> (bits & 63) & 1))
            return false;
    return true;
}

int wid_filter_may(struct wid_filter *f, uint32_t bucket, uint32_t tenant, const uint8_t wid[16],
                   bool *ret, struct err *e)
{
    struct hour *h = hour_of(f, bucket);

    *ret = true;
    if (!h && look(f, bucket, &h, e))
        return e->code;
    if (!h || !h->whole)
        return 0;
    struct place p = place_of(tenant, wid);
    for (size_t i = h->links.len; i > 0; i--)
        if (has(&h->links.ptr[i - 1], &p))
            return 0;
    *ret = false;
    return 0;
}

void wid_filter_add(struct wid_filter *f, uint32_t bucket, uint32_t tenant, const uint8_t wid[16])
{
    struct hour *h = hour_of(f, bucket);

    if (!h || !h->whole)
        return;
    struct link *last = h->links.len ? &h->links.ptr[h->links.len - 1] : NULL;
    if (!last || last->ids >= (size_t)last->blocks_len * BLOCK_IDS) {
        struct link new = { .blocks_len = last ? last->blocks_len * 2 : BLOCKS_MIN };
        size_t bytes = new.blocks_len * sizeof(*new.blocks);
        if (new.blocks_len > UINT32_MAX / 4 || bytes > f->bytes_max - MIN(f->bytes, f->bytes_max)) {
            drop_links(f, h); /* the database knows */
            return;
        }
        new.blocks = xcalloc(new.blocks_len, sizeof(*new.blocks));
        f->bytes += bytes;
        vec_push(&h->links, new);
        last = &h->links.ptr[h->links.len - 1];
    }
    struct place p = place_of(tenant, wid);
    uint64_t *block = block_of(last, &p), bits = p.bits;
    for (int i = 0; i < BITS; i++, bits >>= 9)
        block[bits >> 6 & 7] |= UINT64_C(1) << (bits & 63);
    last->ids++;
}
