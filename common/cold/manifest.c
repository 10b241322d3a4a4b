/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest: sorted arrays that are copied when they change. A change comes with an offload, or when
 * rows are deleted that lie in parts (retention, purges): some a minute at most, while readers come
 * by the thousand and must not wait. A deleted row stays in its part; its range is remembered, as
 * long as the part is.
 */
#include "common/cold/manifest.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/keys.h"

#define VERSION 1

static const char *const family_names[KV_CFS] = { "raw", "fine", "coarse", "ru", "tl",
                                                  "fn",  "meta", "wid",    "exm" };

bool manifest_may(enum kv_cf cf)
{
    return cf == KV_FINE || cf == KV_COARSE || cf == KV_RU || cf == KV_TL || cf == KV_FN;
}

bool manifest_is_row(enum kv_cf cf, struct str key)
{
    return cf == KV_META && key.len > 2 &&
           ((uint8_t)key.ptr[0] == KEY_COLD || (uint8_t)key.ptr[0] == KEY_COLD_HIDE);
}

void manifest_part_name(uint32_t shard, enum kv_cf cf, struct hash128 hash, char *ret)
{
    int n = snprintf(ret, OBJECT_NAME_MAX + 1, "shard-%08" PRIx32 "/%s/%016" PRIx64 "%016" PRIx64,
                     shard, family_names[cf], hash.hi, hash.lo);

    CHECK(n > 0 && n <= OBJECT_NAME_MAX);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct str copy(struct str s)
{
    return str_n(xmemdup(s.ptr, s.len), s.len);
}

static void free_str(struct str s)
{
    xfree((void *)(uintptr_t)s.ptr);
}

void cold_part_unref(struct cold_part *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    CHECK(!p->index_users);
    part_index_free(p->index);
    free_str(p->first);
    free_str(p->last);
    xfree(p);
}

struct manifest *manifest_new(uint32_t shard)
{
    struct manifest *m = XNEW(struct manifest);

    atomic_store(&m->refs, 1);
    m->shard = shard;
    return m;
}

struct manifest *manifest_clone(const struct manifest *m)
{
    struct manifest *c = manifest_new(m->shard);

    for (int cf = 0; cf < KV_CFS; cf++) {
        const struct cold_family *from = &m->of[cf];
        struct cold_family *to = &c->of[cf];

        vec_for (i, &from->parts) {
            atomic_fetch_add(&from->parts.ptr[i]->refs, 1);
            vec_push(&to->parts, from->parts.ptr[i]);
        }
        vec_for (i, &from->hides)
            vec_push(&to->hides, ((struct cold_hide){ copy(from->hides.ptr[i].from),
                                                      copy(from->hides.ptr[i].to) }));
    }
    return c;
}

struct manifest *manifest_ref(struct manifest *m)
{
    atomic_fetch_add(&m->refs, 1);
    return m;
}

static void free_hide(struct cold_hide *h)
{
    free_str(h->from);
    free_str(h->to);
}

void manifest_unref(struct manifest *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1)
        return;
    for (int cf = 0; cf < KV_CFS; cf++) {
        struct cold_family *f = &m->of[cf];

        vec_for (i, &f->parts)
            cold_part_unref(f->parts.ptr[i]);
        vec_for (i, &f->hides)
            free_hide(&f->hides.ptr[i]);
        vec_free(&f->parts);
        vec_free(&f->hides);
    }
    xfree(m);
}

/* ---- looking -------------------------------------------------------------------------------- */

size_t manifest_part_at(const struct cold_family *f, struct str key)
{
    size_t low = 0, high = f->parts.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (str_cmp(f->parts.ptr[mid]->last, key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool manifest_intersects(const struct cold_family *f, struct str from, struct str to)
{
    size_t i = f->parts.len ? manifest_part_at(f, from) : 0;

    return i < f->parts.len && (!to.len || str_cmp(f->parts.ptr[i]->first, to) < 0);
}

/* The first deleted range that ends behind key. */
static size_t hide_at(const struct cold_family *f, struct str key)
{
    size_t low = 0, high = f->hides.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (str_cmp(f->hides.ptr[mid].to, key) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const struct cold_hide *manifest_hidden(const struct cold_family *f, struct str key)
{
    size_t i = f->hides.len ? hide_at(f, key) : 0;

    return i < f->hides.len && str_cmp(f->hides.ptr[i].from, key) <= 0 ? &f->hides.ptr[i] : NULL;
}

/* ---- changes -------------------------------------------------------------------------------- */

#define REMOVE_AT(v, i)                                                                      \
    do {                                                                                     \
        memmove((v)->ptr + (i), (v)->ptr + (i) + 1, ((v)->len - (i)-1) * sizeof(*(v)->ptr)); \
        (v)->len--;                                                                          \
    } while (0)
#define INSERT_AT(v, i, value)                                                             \
    do {                                                                                   \
        vec_reserve((v), (v)->len + 1);                                                    \
        memmove((v)->ptr + (i) + 1, (v)->ptr + (i), ((v)->len - (i)) * sizeof(*(v)->ptr)); \
        (v)->ptr[i] = (value);                                                             \
        (v)->len++;                                                                        \
    } while (0)

static void row_key(struct buf *key, enum key_table table, enum kv_cf cf, struct str rest)
{
    buf_reset(key);
    (void)wr_u8(key, (uint8_t)table);
    (void)wr_u8(key, (uint8_t)cf);
    (void)buf_add_str(key, rest);
    CHECK(buf_ok(key));
}

void manifest_part_row(enum kv_cf cf, const struct part_info *i, struct buf *key, struct buf *value)
{
    row_key(key, KEY_COLD, cf, i->first);
    buf_reset(value);
    (void)wr_u8(value, VERSION);
    (void)wr_varint(value, i->last.len);
    (void)buf_add_str(value, i->last);
    (void)wr_varint(value, i->size);
    (void)wr_varint(value, i->rows);
    (void)wr_u64be(value, i->hash.hi);
    (void)wr_u64be(value, i->hash.lo);
    CHECK(buf_ok(value));
}

static bool read_part(struct str value, struct part_info *ret)
{
    struct rd r = rd_of(value);
    uint8_t version;
    uint64_t len;

    return rd_u8(&r, &version) && version == VERSION && rd_varint(&r, &len) && len > 0 &&
           len <= PART_KEY_MAX && rd_bytes(&r, (size_t)len, &ret->last) &&
           rd_varint(&r, &ret->size) && rd_varint(&r, &ret->rows) && rd_u64be(&r, &ret->hash.hi) &&
           rd_u64be(&r, &ret->hash.lo) && !rd_left(&r);
}

static int put_part(struct manifest *m, enum kv_cf cf, struct str first, struct str value,
                    struct err *e)
{
    struct cold_family *f = &m->of[cf];
    struct part_info info;
    struct cold_part *p;
    size_t i;

    if (!read_part(value, &info) || str_cmp(first, info.last) > 0)
        return err_set(e, ERR_CORRUPT, "the row of a part of %zu bytes cannot be read", value.len);
    i = manifest_part_at(f, first);
    if (i < f->parts.len && str_cmp(f->parts.ptr[i]->first, info.last) <= 0)
        return err_set(e, ERR_CORRUPT, "two parts of %s overlap", family_names[cf]);
    p = XNEW(struct cold_part);
    atomic_store(&p->refs, 1);
    p->cf = cf;
    p->first = copy(first);
    p->last = copy(info.last);
    p->size = info.size;
    p->rows = info.rows;
    p->hash = info.hash;
    manifest_part_name(m->shard, cf, info.hash, p->name);
    INSERT_AT(&f->parts, i, p);
    return 0;
}

static int put_hide(struct cold_family *f, struct str from, struct str to, struct err *e)
{
    size_t i = hide_at(f, from);

    if (!to.len || str_cmp(from, to) >= 0 ||
        (i < f->hides.len && str_cmp(f->hides.ptr[i].from, to) < 0))
        return err_set(e, ERR_CORRUPT, "a deleted range of parts is empty or overlaps another");
    INSERT_AT(&f->hides, i, ((struct cold_hide){ copy(from), copy(to) }));
    return 0;
}

static void remove_part(struct cold_family *f, size_t i)
{
    cold_part_unref(f->parts.ptr[i]);
    REMOVE_AT(&f->parts, i);
}

static void remove_hide(struct cold_family *f, size_t i)
{
    free_hide(&f->hides.ptr[i]);
    REMOVE_AT(&f->hides, i);
}

int manifest_row(struct manifest *m, struct str key, struct str value, struct err *e)
{
    enum kv_cf cf = (enum kv_cf)(uint8_t)key.ptr[1];
    bool hide = (uint8_t)key.ptr[0] == KEY_COLD_HIDE;
    struct str at = str_sub(key, 2, key.len);
    size_t i;

    CHECK(manifest_is_row(KV_META, key));
    if ((unsigned)cf >= KV_CFS || !manifest_may(cf) || at.len > PART_KEY_MAX)
        return err_set(e, ERR_CORRUPT, "a row of parts names family %d", (int)cf);
    struct cold_family *f = &m->of[cf];
    if (value.ptr)
        return hide ? put_hide(f, at, value, e) : put_part(m, cf, at, value, e);
    i = hide ? hide_at(f, at) : manifest_part_at(f, at);
    if (hide && i < f->hides.len && str_eq(f->hides.ptr[i].from, at))
        remove_hide(f, i);
    else if (!hide && i < f->parts.len && str_eq(f->parts.ptr[i]->first, at))
        remove_part(f, i);
    return 0;
}

/* Takes deleted ranges that touch [from, to] into one, and the rows of the old ones away. */
static void hide_range(struct manifest *m, enum kv_cf cf, struct str from, struct str to,
                       struct kv_batch *rows)
{
    struct cold_family *f = &m->of[cf];
    struct str low = copy(from), high = copy(to);
    struct buf key;
    size_t i = hide_at(f, from);

    buf_init(&key, PART_KEY_MAX + KIB);
    if (i > 0 && str_eq(f->hides.ptr[i - 1].to, from))
        i--;
    while (i < f->hides.len && str_cmp(f->hides.ptr[i].from, high) <= 0) {
        struct cold_hide *h = &f->hides.ptr[i];

        if (str_cmp(h->from, low) < 0) {
            free_str(low);
            low = copy(h->from);
        }
        if (str_cmp(h->to, high) > 0) {
            free_str(high);
            high = copy(h->to);
        }
        row_key(&key, KEY_COLD_HIDE, cf, h->from);
        kv_batch_del(rows, KV_META, buf_str(&key));
        remove_hide(f, i);
    }
    INSERT_AT(&f->hides, i, ((struct cold_hide){ low, high }));
    row_key(&key, KEY_COLD_HIDE, cf, low);
    kv_batch_put(rows, KV_META, buf_str(&key), high);
    buf_deinit(&key);
}

/* A part went: deleted ranges that no part meets any more go, too. */
static void forget_hides(struct manifest *m, enum kv_cf cf, struct str first, struct str last,
                         struct kv_batch *rows)
{
    struct cold_family *f = &m->of[cf];
    struct buf key;

    buf_init(&key, PART_KEY_MAX + KIB);
    for (size_t i = hide_at(f, first); i < f->hides.len;) {
        struct cold_hide *h = &f->hides.ptr[i];

        if (str_cmp(h->from, last) > 0)
            break;
        if (manifest_intersects(f, h->from, h->to)) {
            i++;
            continue;
        }
        row_key(&key, KEY_COLD_HIDE, cf, h->from);
        kv_batch_del(rows, KV_META, buf_str(&key));
        remove_hide(f, i);
    }
    buf_deinit(&key);
}

/* True if the whole range is hidden already. */
static bool is_hidden(const struct cold_family *f, struct str from, struct str to)
{
    const struct cold_hide *h = manifest_hidden(f, from);

    return h && str_cmp(h->to, to) >= 0;
}

bool manifest_delete(struct manifest *m, enum kv_cf cf, struct str from, struct str to,
                     struct kv_batch *rows)
{
    struct cold_family *f = &m->of[cf];
    bool changed = false;
    struct buf key, end;

    buf_init(&key, PART_KEY_MAX + KIB);
    buf_init(&end, PART_KEY_MAX + KIB);
    for (size_t i = manifest_part_at(f, from);
         i < f->parts.len && str_cmp(f->parts.ptr[i]->first, to) < 0;) {
        struct cold_part *p = f->parts.ptr[i];
        bool from_start = str_cmp(from, p->first) <= 0, to_end = str_cmp(p->last, to) < 0;

        if (from_start && to_end) {
            struct str first = copy(p->first), last = copy(p->last);
            row_key(&key, KEY_COLD, cf, first);
            kv_batch_del(rows, KV_META, buf_str(&key));
            row_key(&key, KEY_COLD_OWNERS, cf, first);
            kv_batch_del(rows, KV_META, buf_str(&key));
            remove_part(f, i);
            forget_hides(m, cf, first, last, rows);
            free_str(first);
            free_str(last);
            changed = true;
            continue;
        }
        buf_reset(&end); /* the first key behind the part */
        CHECK(buf_add_str(&end, p->last) && buf_add_c(&end, '\0'));
        struct str low = from_start ? p->first : from, high = to_end ? buf_str(&end) : to;
        if (!is_hidden(f, low, high)) {
            hide_range(m, cf, low, high, rows);
            changed = true;
        }
        i++;
    }
    buf_deinit(&end);
    buf_deinit(&key);
    return changed;
}

int manifest_load(struct kv *kv, const struct kv_snap *snap, uint32_t shard, struct manifest **ret,
                  struct err *e)
{
    struct manifest *m = manifest_new(shard);
    char from = (char)KEY_COLD, to = (char)(KEY_COLD_HIDE + 1);
    struct kv_iter *it = kv_iter_new(kv, snap, KV_META, str_n(&from, 1), str_n(&to, 1));
    int rc = 0;

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str value = kv_iter_value(it);

        if (!manifest_is_row(KV_META, kv_iter_key(it)))
            rc = err_set(e, ERR_CORRUPT, "a key of %zu bytes in the table of parts",
                         kv_iter_key(it).len);
        else
            rc = manifest_row(m, kv_iter_key(it), value.ptr ? value : STR(""), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (rc) {
        manifest_unref(m);
        return rc;
    }
    *ret = m;
    return 0;
}
