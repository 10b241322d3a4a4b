/* SPDX-License-Identifier: Apache-2.0
 *
 * owners: one more row for each part. It is not in the part's own row, since the previous version
 * reads that row to its last byte; and not in memory, since only a report asks for it.
 *
 * The previous version moves buckets without writing such rows, and leaves those of the parts it
 * replaces. So a row names its part by the part's hash: a part whose row is missing or names
 * another part has no known owner. Left-over rows are deleted when their bucket is moved the next
 * time.
 *
 * What an owner has of a part is a share: rows are compressed together, by blocks that owners
 * share. Shares are cut from a running sum, so that they add up to the object to the byte.
 */
#include "common/cold/usage.h"

#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/store/codec/keys.h"

#define VERSION   1
#define OWNER_AT  5 /* level u8, bucket u32 */
#define OWNER_LEN 8

void cold_usage_deinit(struct cold_usage *o)
{
    vec_free(&o->of);
}

void cold_usage_clear(struct cold_usage *o)
{
    o->of.len = 0;
    o->plain = 0;
}

void cold_usage_add(struct cold_usage *o, struct str key, struct str value)
{
    uint64_t bytes = key.len + value.len;
    struct kv_far_owner *last = o->of.len ? &o->of.ptr[o->of.len - 1] : NULL;
    struct kv_far_owner now = { .bytes = bytes };

    if (key.len >= OWNER_AT + OWNER_LEN) {
        now.tenant = get_u32be(key.ptr + OWNER_AT);
        now.scope = get_u32be(key.ptr + OWNER_AT + 4);
    }
    o->plain += bytes;
    if (last && last->tenant == now.tenant && last->scope == now.scope)
        last->bytes += bytes;
    else if (o->of.len < COLD_USAGE_MAX)
        vec_push(&o->of, now);
}

void cold_usage_key(enum kv_cf cf, struct str first, struct buf *key)
{
    buf_reset(key);
    (void)wr_u8(key, KEY_COLD_OWNERS);
    (void)wr_u8(key, (uint8_t)cf);
    (void)buf_add_str(key, first);
    CHECK(buf_ok(key));
}

static uint64_t share(uint64_t size, uint64_t part, uint64_t all)
{

    return (uint64_t)((u128)size * part / all);
}

void cold_usage_row(const struct cold_usage *o, enum kv_cf cf, const struct part_info *i,
                    struct buf *key, struct buf *value)
{
    uint64_t before = 0;

    CHECK(o->of.len && o->plain);
    cold_usage_key(cf, i->first, key);
    buf_reset(value);
    (void)wr_u8(value, VERSION);
    (void)wr_u64be(value, i->hash.hi);
    (void)wr_u64be(value, i->hash.lo);
    (void)wr_varint(value, o->of.len);
    vec_for (n, &o->of) {
        const struct kv_far_owner *one = &o->of.ptr[n];
        uint64_t to = before + one->bytes;

        (void)wr_varint(value, one->tenant);
        (void)wr_varint(value, one->scope);
        (void)wr_varint(value, share(i->size, to, o->plain) - share(i->size, before, o->plain));
        before = to;
    }
    CHECK(buf_ok(value));
}

static bool read_owner(struct rd *r, uint64_t *left, struct kv_far_owner *ret)
{
    uint64_t tenant, scope;

    if (!rd_varint(r, &tenant) || !rd_varint(r, &scope) || !rd_varint(r, &ret->bytes) ||
        tenant > UINT32_MAX || scope > UINT32_MAX || ret->bytes > *left)
        return false;
    ret->tenant = (uint32_t)tenant;
    ret->scope = (uint32_t)scope;
    *left -= ret->bytes;
    return true;
}

int cold_usage_read(struct str value, struct hash128 hash, uint64_t size, struct cold_usage *ret,
                    struct err *e)
{
    struct rd r = rd_of(value);
    struct hash128 of;
    uint8_t version;
    uint64_t n;

    cold_usage_clear(ret);
    if (!rd_u8(&r, &version))
        return err_set(e, ERR_CORRUPT, "the row of a part's owners is empty");
    if (version != VERSION)
        return 0;
    if (!rd_u64be(&r, &of.hi) || !rd_u64be(&r, &of.lo) || !rd_varint(&r, &n) || n > COLD_USAGE_MAX)
        return err_set(e, ERR_CORRUPT, "the row of a part's owners of %zu bytes cannot be read",
                       value.len);
    if (!hash128_eq(of, hash))
        return 0;
    for (uint64_t i = 0; i < n; i++) {
        struct kv_far_owner one;

        if (!read_owner(&r, &size, &one))
            return err_set(e, ERR_CORRUPT, "owner %" PRIu64 " of %" PRIu64 " of a part is wrong", i,
                           n);
        vec_push(&ret->of, one);
    }
    return rd_left(&r) ? err_set(e, ERR_CORRUPT, "%zu bytes behind the owners of a part",
                                 (size_t)rd_left(&r))
                       : 0;
}

/* Rows of owners and parts have one order. */
struct walking {
    struct kv_iter *it;
    struct buf key;
    struct cold_usage owners;
    kv_far_fn each;
    void *cookie;
};

static int walk_part(struct walking *w, const struct cold_part *p, struct err *e)
{
    struct kv_far far = { .cf = p->cf, .first = p->first, .bytes = p->size };

    cold_usage_key(p->cf, p->first, &w->key);
    while (kv_iter_valid(w->it) && str_cmp(kv_iter_key(w->it), buf_str(&w->key)) < 0)
        kv_iter_next(w->it);
    cold_usage_clear(&w->owners);
    if (kv_iter_valid(w->it) && str_eq(kv_iter_key(w->it), buf_str(&w->key)) &&
        cold_usage_read(kv_iter_value(w->it), p->hash, p->size, &w->owners, e))
        return err_wrap(e, "%s", p->name);
    far.owners = w->owners.of.ptr;
    far.owners_len = w->owners.of.len;
    return w->each(w->cookie, &far, e);
}

int cold_usage_each(const struct manifest *m, struct kv *inner, const struct kv_snap *snap,
                    kv_far_fn each, void *cookie, struct err *e)
{
    char from = (char)KEY_COLD_OWNERS, to = (char)(KEY_COLD_OWNERS + 1);
    struct walking w = { .each = each, .cookie = cookie };
    int rc = 0;

    w.it = kv_iter_new(inner, snap, KV_META, str_n(&from, 1), str_n(&to, 1));
    buf_init(&w.key, PART_KEY_MAX + KIB);
    for (int cf = 0; cf < KV_CFS; cf++)
        for (size_t i = 0; !rc && i < m->of[cf].parts.len; i++)
            rc = walk_part(&w, m->of[cf].parts.ptr[i], e);
    if (!rc)
        rc = kv_iter_status(w.it, e);
    kv_iter_free(w.it);
    buf_deinit(&w.key);
    cold_usage_deinit(&w.owners);
    return rc;
}
