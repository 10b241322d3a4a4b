/* SPDX-License-Identifier: Apache-2.0
 *
 * offload: a bucket at a time.
 *
 *   watch the range ─> rows, merged with parts it has already ─> new parts ─> upload ─> read back
 *   ─> nothing changed? ─> one batch {delete the range, parts} ─> (else: later again)
 *
 * Nothing local is dropped before the object store has given every byte back. An upload whose batch
 * is never written leaves objects that nothing names: backup.c sweeps them.
 */
#include "common/cold/offload.h"

#include "common/base/mem.h"
#include "common/cold/usage.h"

static const enum kv_cf families[] = { KV_FN, KV_TL, KV_RU, KV_COARSE, KV_FINE };

static size_t family_at(enum kv_cf cf)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (families[i] == cf)
            return i;
    return 0;
}

static uint32_t bucket_slots(enum kv_cf cf, uint8_t head)
{
    if (cf == KV_TL && head & KEY_TL_PRESENCE)
        return KEY_PRESENCE_BUCKET;
    uint8_t level = head & (uint8_t) ~(KEY_TL_GROUP | KEY_TL_PRESENCE);

    return level < KEY_LEVELS ? LEVELS[level].bucket : UINT32_MAX; /* unknown: it stays here */
}

static void prefix(struct key *k, struct str s)
{
    memcpy(k->b, s.ptr, s.len);
    k->len = s.len;
}

/* The next unit of family unit->cf, at or behind key unit->from. */
static int next_in(struct kv *inner, uint32_t before, struct cold_unit *unit, bool *ret_found,
                   struct err *e)
{
    struct kv_iter *it = kv_iter_new(inner, NULL, unit->cf, key_str(&unit->from), STR_NULL);
    int rc = 0;

    while (!*ret_found && kv_iter_valid(it)) {
        struct str key = kv_iter_key(it);
        uint8_t head = (uint8_t)key.ptr[0];

        if (key.len < 5) {
            rc = err_set(e, ERR_CORRUPT, "a key of %zu bytes among sealed rows", key.len);
            break;
        }
        uint64_t end = ((uint64_t)get_u32be(key.ptr + 1) + 1) * bucket_slots(unit->cf, head);
        if (end <= before) {
            prefix(&unit->from, str_sub(key, 0, 5));
            unit->to = unit->from;
            key_end(&unit->to);
            *ret_found = true;
        } else if (head < 0xff) { /* all that follow at this level are younger */
            char next = (char)(head + 1);
            kv_iter_seek(it, str_n(&next, 1));
        } else {
            break;
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int cold_unit_next(struct kv *k, uint32_t before, struct cold_unit *unit, bool *ret_found,
                   struct err *e)
{
    size_t i = unit->cf == KV_RAW ? 0 : family_at(unit->cf);
    struct cold_unit next = { .from = { 0 } };
    int rc = 0;

    if (unit->cf != KV_RAW)
        next.from = unit->to;
    *ret_found = false;
    for (; !rc && !*ret_found && i < ARRAY_LEN(families); i++) {
        next.cf = families[i];
        rc = next_in(kv_cold_inner(k), before, &next, ret_found, e);
        if (*ret_found)
            *unit = next;
        next.from.len = 0;
    }
    return rc;
}

int cold_upload(struct object_store *o, uint32_t shard, enum kv_cf cf, const struct part_info *info,
                struct str object, struct err *e)
{
    char name[OBJECT_NAME_MAX + 1];
    struct buf back;
    int rc;

    manifest_part_name(shard, cf, info->hash, name);
    rc = object_put(o, str_c(name), object, e);
    if (rc)
        return rc;
    buf_init(&back, object.len);
    rc = object_read(o, str_c(name), 0, object.len, &back, e);
    if (!rc && !hash128_eq(hash128(back.ptr, back.len, 0), info->hash))
        rc = err_set(e, ERR_CORRUPT, "%s gives other bytes back for %s than were put",
                     object_where(o), name);
    buf_deinit(&back);
    return rc;
}

struct packing {
    uint32_t shard;
    enum kv_cf cf;
    const struct cold_target *to;
    struct part_writer *w;
    struct kv_batch *b;
    struct cold_moved *moved;
    struct cold_usage owners;
    struct buf key, value;
};

static int end_part(struct packing *p, struct err *e)
{
    struct part_info info;
    struct str object;

    if (!part_bytes(p->w))
        return 0;
    part_finish(p->w, &info, &object);
    part_stamp(p->w, p->to->generation, &info, &object);
    if (cold_upload(p->to->o, p->shard, p->cf, &info, object, e))
        return e->code;
    manifest_part_row(p->cf, &info, &p->key, &p->value);
    kv_batch_put(p->b, KV_META, buf_str(&p->key), buf_str(&p->value));
    cold_usage_row(&p->owners, p->cf, &info, &p->key, &p->value);
    kv_batch_put(p->b, KV_META, buf_str(&p->key), buf_str(&p->value));
    cold_usage_clear(&p->owners);
    p->moved->rows += info.rows;
    p->moved->parts++;
    p->moved->bytes += info.size;
    return 0;
}

static int pack(struct packing *p, struct kv_iter *it, struct err *e)
{
    int rc = 0;

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = part_add(p->w, kv_iter_key(it), kv_iter_value(it), e);
        cold_usage_add(&p->owners, kv_iter_key(it), kv_iter_value(it));
        if (!rc && part_bytes(p->w) >= PART_BYTES)
            rc = end_part(p, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    return rc ? rc : end_part(p, e);
}

/* Also those that a program of the version before left there. */
static void del_owners(struct packing *p, const struct cold_unit *unit)
{
    cold_usage_key(unit->cf, key_str(&unit->from), &p->key);
    cold_usage_key(unit->cf, key_str(&unit->to), &p->value);
    kv_batch_del_range(p->b, KV_META, buf_str(&p->key), buf_str(&p->value));
}

int cold_offload(struct kv *k, const struct cold_unit *unit, const struct cold_target *to,
                 struct kv_batch **ret, struct cold_moved *ret_moved, struct err *e)
{
    struct manifest *m = kv_cold_manifest(k, NULL);
    struct packing p = { .shard = m->shard, .cf = unit->cf, .to = to, .moved = ret_moved };
    struct kv_snap *snap = kv_snap_new(k);
    struct kv_iter *it;
    int rc;

    manifest_unref(m);
    *ret_moved = (struct cold_moved){ 0 };
    p.w = part_writer_new();
    p.b = kv_batch_new();
    buf_init(&p.key, 2 * PART_KEY_MAX);
    buf_init(&p.value, COLD_USAGE_ROW_MAX);
    kv_batch_del_range(p.b, unit->cf, key_str(&unit->from), key_str(&unit->to));
    del_owners(&p, unit);
    it = kv_iter_new(k, snap, unit->cf, key_str(&unit->from), key_str(&unit->to));
    rc = pack(&p, it, e);
    kv_iter_free(it);
    kv_snap_free(k, snap);
    cold_usage_deinit(&p.owners);
    buf_deinit(&p.value);
    buf_deinit(&p.key);
    part_writer_free(p.w);
    if (rc) {
        kv_batch_free(p.b);
        return rc;
    }
    *ret = p.b;
    return 0;
}
