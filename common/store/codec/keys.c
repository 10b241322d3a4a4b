/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: writes and reads the keys that keys.h draws, one pair of functions for each table.
 *
 * A key is a fixed array on the caller's stack: nothing allocates and nothing fails. Readers check
 * the length and the leading byte, and return false for anything else, because a damaged or foreign
 * row must be an error of the caller and never a wrong number. Numbers are written big-endian by
 * add_u8 to add_u64 alone, so that the order of bytes is the order of numbers. The table of levels
 * stands here, too: another level must get its widths here, and TREE.md says what follows from it.
 *
 * Pure: any thread.
 */
#include "common/store/codec/keys.h"

#define MINUTE 12u
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)

static_assert(DAY == DAY_SLOTS && MINUTE == RAW_BUCKET_SLOTS, "widths are in slots of 5 s");

const struct key_level LEVELS[KEY_LEVELS] = {
    { LEAF_SLOTS, 6 * HOUR, 1, 10 * MINUTE },     { MINUTE, DAY, MINUTE, 2 * HOUR },
    { 10 * MINUTE, 4 * DAY, 10 * MINUTE, DAY },   { HOUR, 16 * DAY, HOUR, 4 * DAY },
    { 6 * HOUR, 64 * DAY, 6 * HOUR, 32 * DAY },   { DAY, 256 * DAY, DAY, 128 * DAY },
    { 8 * DAY, 1024 * DAY, 8 * DAY, 1024 * DAY }, { 64 * DAY, 4096 * DAY, 64 * DAY, 4096 * DAY },
};

static void add_u8(struct key *k, uint8_t v)
{
    DCHECK(k->len + 1 <= sizeof(k->b));
    k->b[k->len++] = (char)v;
}

static void add_u16(struct key *k, uint16_t v)
{
    DCHECK(k->len + 2 <= sizeof(k->b));
    put_u16be(k->b + k->len, v);
    k->len += 2;
}

static void add_u32(struct key *k, uint32_t v)
{
    DCHECK(k->len + 4 <= sizeof(k->b));
    put_u32be(k->b + k->len, v);
    k->len += 4;
}

static void add_u64(struct key *k, uint64_t v)
{
    DCHECK(k->len + 8 <= sizeof(k->b));
    put_u64be(k->b + k->len, v);
    k->len += 8;
}

static void add_wid(struct key *k, const uint8_t wid[16])
{
    DCHECK(k->len + 16 <= sizeof(k->b));
    memcpy(k->b + k->len, wid, 16);
    k->len += 16;
}

void key_end(struct key *k)
{
    while (k->len && (uint8_t)k->b[k->len - 1] == 0xff)
        k->len--;
    CHECK(k->len);
    k->b[k->len - 1]++;
}

/* ---- vectors and timelines ---- */

/* `width` of a bucket in slots; `first` is the level byte. */
static void member_key(struct key *k, uint8_t first, uint32_t width, const struct member *m,
                       uint32_t t)
{
    k->len = 0;
    add_u8(k, first);
    add_u32(k, t / width);
    add_u32(k, m->tenant);
    add_u32(k, m->scope);
    add_u16(k, m->ptype);
    add_u64(k, m->series);
    add_u32(k, t);
}

static bool member_key_read(struct str key, uint32_t width, struct member *ret_m, uint32_t *ret_t)
{
    uint32_t t = get_u32be(key.ptr + KEY_MEMBER_HEAD);

    if (get_u32be(key.ptr + 1) != t / width)
        return false;
    *ret_m = (struct member){
        .tenant = get_u32be(key.ptr + 5),
        .scope = get_u32be(key.ptr + 9),
        .ptype = get_u16be(key.ptr + 13),
        .series = get_u64be(key.ptr + 15),
    };
    *ret_t = t;
    return true;
}

void key_member(struct key *k, uint32_t level, const struct member *m, uint32_t t)
{
    DCHECK(level < KEY_LEVELS);
    member_key(k, (uint8_t)level, LEVELS[level].bucket, m, t);
}

bool key_member_read(struct str key, uint32_t *ret_level, struct member *ret_m, uint32_t *ret_t)
{
    if (key.len != KEY_MEMBER_LEN || (uint8_t)key.ptr[0] >= KEY_LEVELS)
        return false;
    *ret_level = (uint8_t)key.ptr[0];
    return member_key_read(key, LEVELS[*ret_level].bucket, ret_m, ret_t);
}

void key_ru(struct key *k, uint32_t level, const struct member *m, uint32_t t)
{
    key_member(k, level, m, t);
}

void key_ru_delta(struct key *k, uint32_t level, const struct member *m, uint32_t t, uint32_t entry)
{
    key_member(k, level, m, t);
    add_u32(k, entry);
}

bool key_ru_read(struct str key, uint32_t *ret_level, struct member *ret_m, uint32_t *ret_t,
                 uint32_t *ret_entry)
{
    *ret_entry = 0;
    if (key.len == KEY_RU_DELTA_LEN) {
        *ret_entry = get_u32be(key.ptr + KEY_MEMBER_LEN);
        key.len = KEY_MEMBER_LEN;
        if (!*ret_entry)
            return false;
    }
    return key_member_read(key, ret_level, ret_m, ret_t);
}

void key_tl(struct key *k, uint32_t flags, uint32_t level, const struct member *m, uint32_t t)
{
    DCHECK(level < KEY_LEVELS && !(flags & ~(KEY_TL_GROUP | KEY_TL_PRESENCE)));
    member_key(k, (uint8_t)(flags | level),
               flags & KEY_TL_PRESENCE ? KEY_PRESENCE_BUCKET : LEVELS[level].bucket, m, t);
}

bool key_tl_read(struct str key, uint32_t *ret_flags, uint32_t *ret_level, struct member *ret_m,
                 uint32_t *ret_t)
{
    if (key.len != KEY_MEMBER_LEN)
        return false;
    *ret_flags = (uint8_t)key.ptr[0] & (KEY_TL_GROUP | KEY_TL_PRESENCE);
    *ret_level = (uint8_t)key.ptr[0] & 0x3f;
    if (*ret_level >= KEY_LEVELS || (*ret_flags & KEY_TL_PRESENCE && *ret_level))
        return false;
    return member_key_read(
        key, *ret_flags & KEY_TL_PRESENCE ? KEY_PRESENCE_BUCKET : LEVELS[*ret_level].bucket, ret_m,
        ret_t);
}

/* ---- raw ---- */

void key_raw_bucket(struct key *k, uint32_t bucket)
{
    k->len = 0;
    add_u32(k, bucket);
}

void key_raw_scope(struct key *k, uint32_t bucket, uint32_t tenant, uint32_t scope)
{
    key_raw_bucket(k, bucket);
    add_u32(k, tenant);
    add_u32(k, scope);
}

void key_raw(struct key *k, const struct member *m, uint32_t t, const uint8_t wid[16])
{
    key_raw_scope(k, raw_bucket(t), m->tenant, m->scope);
    add_u32(k, t);
    add_u16(k, m->ptype);
    add_u64(k, m->series);
    add_wid(k, wid);
}

bool key_raw_read(struct str key, struct member *ret_m, uint32_t *ret_t, const uint8_t **ret_wid)
{
    if (key.len != KEY_RAW_LEN)
        return false;
    uint32_t t = get_u32be(key.ptr + 12);
    if (get_u32be(key.ptr) != raw_bucket(t))
        return false;
    *ret_m = (struct member){
        .tenant = get_u32be(key.ptr + 4),
        .scope = get_u32be(key.ptr + 8),
        .ptype = get_u16be(key.ptr + 16),
        .series = get_u64be(key.ptr + 18),
    };
    *ret_t = t;
    *ret_wid = (const uint8_t *)(const void *)(key.ptr + 26);
    return true;
}

/* ---- wid ---- */

void key_wid_bucket(struct key *k, uint32_t bucket)
{
    k->len = 0;
    add_u32(k, bucket);
}

void key_wid(struct key *k, uint32_t bucket, uint32_t tenant, const uint8_t wid[16])
{
    key_wid_bucket(k, bucket);
    add_u32(k, tenant);
    add_wid(k, wid);
}

/* ---- meta ---- */

static void table(struct key *k, enum key_table t)
{
    k->len = 0;
    add_u8(k, (uint8_t)t);
}

void key_wid_print_bucket(struct key *k, uint32_t bucket)
{
    table(k, KEY_WID_PRINT);
    add_u32(k, bucket);
}

void key_wid_print(struct key *k, uint32_t bucket, uint32_t tenant, const uint8_t wid[16])
{
    key_wid_print_bucket(k, bucket);
    add_u32(k, tenant);
    add_wid(k, wid);
}

void key_format(struct key *k)
{
    table(k, KEY_FORMAT);
}

void key_control(struct key *k, enum key_control id)
{
    table(k, KEY_CONTROL);
    add_u8(k, (uint8_t)id);
}

void key_table(struct key *k, enum key_table t, uint32_t tenant)
{
    table(k, t);
    add_u32(k, tenant);
}

void key_tenant(struct key *k, uint32_t tenant)
{
    key_table(k, KEY_TENANT, tenant);
}

void key_scope(struct key *k, uint32_t tenant, uint32_t scope)
{
    key_table(k, KEY_SCOPE, tenant);
    add_u32(k, scope);
}

void key_ptype(struct key *k, uint32_t tenant, uint32_t ptype)
{
    DCHECK(ptype <= UINT16_MAX);
    key_table(k, KEY_PTYPE, tenant);
    add_u16(k, (uint16_t)ptype);
}

void key_epoch(struct key *k, uint32_t tenant, uint32_t scope, uint32_t epoch)
{
    key_table(k, KEY_EPOCH, tenant);
    add_u32(k, scope);
    add_u32(k, epoch);
}

void key_dict(struct key *k, uint32_t tenant, uint32_t scope, uint32_t epoch, enum key_dict kind,
              uint32_t first)
{
    key_table(k, KEY_DICT, tenant);
    add_u32(k, scope);
    add_u32(k, epoch);
    add_u8(k, (uint8_t)kind);
    add_u32(k, first);
}

void key_active(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype)
{
    DCHECK(ptype <= UINT16_MAX);
    key_table(k, KEY_ACTIVE, tenant);
    add_u32(k, scope);
    add_u16(k, (uint16_t)ptype);
}

void key_series(struct key *k, uint32_t tenant, uint32_t scope, uint64_t series)
{
    key_table(k, KEY_SERIES, tenant);
    add_u32(k, scope);
    add_u64(k, series);
}

void key_ord(struct key *k, uint32_t tenant, uint32_t ordinal)
{
    key_table(k, KEY_ORD, tenant);
    add_u32(k, ordinal);
}

void key_ord_type(struct key *k, uint32_t tenant, uint32_t ordinal, uint32_t ptype)
{
    DCHECK(ptype <= UINT16_MAX);
    key_ord(k, tenant, ordinal);
    add_u16(k, (uint16_t)ptype);
}

void key_post_pair(struct key *k, uint32_t tenant, uint32_t pair)
{
    key_table(k, KEY_POST, tenant);
    add_u32(k, pair);
}

void key_post(struct key *k, uint32_t tenant, uint32_t pair, uint32_t chunk)
{
    DCHECK(chunk <= UINT16_MAX);
    key_post_pair(k, tenant, pair);
    add_u16(k, (uint16_t)chunk);
}

void key_post_tail(struct key *k, uint32_t tenant, uint32_t pair, uint32_t ordinal)
{
    key_post(k, tenant, pair, ordinal >> POST_CHUNK_BITS);
    add_u16(k, (uint16_t)ordinal);
}

void key_seal(struct key *k, uint64_t entry)
{
    table(k, KEY_SEAL);
    add_u64(k, entry);
}

void key_rule(struct key *k, uint32_t tenant, uint32_t scope)
{
    key_table(k, KEY_RULE, tenant);
    add_u32(k, scope);
}

void key_rule_number(struct key *k, uint32_t tenant, uint32_t scope, uint32_t rule)
{
    key_rule(k, tenant, scope);
    add_u32(k, rule);
}

void key_group(struct key *k, uint32_t tenant, uint32_t scope, uint64_t gid)
{
    key_table(k, KEY_GROUP, tenant);
    add_u32(k, scope);
    add_u64(k, gid);
}

void key_group_of(struct key *k, uint32_t tenant, uint32_t scope, uint64_t series)
{
    key_table(k, KEY_GROUP_OF, tenant);
    add_u32(k, scope);
    add_u64(k, series);
}

void key_floors(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype)
{
    DCHECK(ptype <= UINT16_MAX);
    key_table(k, KEY_FLOORS, tenant);
    add_u32(k, scope);
    add_u16(k, (uint16_t)ptype);
}

void key_floors_end(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype)
{
    key_floors(k, tenant, scope, ptype);
    k->b[0] = KEY_FLOORS_END;
}

void key_dirty(struct key *k, const struct member *m, uint32_t level, uint32_t t)
{
    DCHECK(level < KEY_LEVELS);
    key_table(k, KEY_DIRTY, m->tenant);
    add_u32(k, m->scope);
    add_u16(k, m->ptype);
    add_u8(k, (uint8_t)level);
    add_u32(k, t);
}

bool key_dirty_read(struct str key, struct member *ret_m, uint32_t *ret_level, uint32_t *ret_t)
{
    if (key.len != KEY_DIRTY_LEN || key.ptr[0] != KEY_DIRTY || (uint8_t)key.ptr[11] >= KEY_LEVELS)
        return false;
    *ret_m = (struct member){
        .tenant = get_u32be(key.ptr + 1),
        .scope = get_u32be(key.ptr + 5),
        .ptype = get_u16be(key.ptr + 9),
    };
    *ret_level = (uint8_t)key.ptr[11];
    *ret_t = get_u32be(key.ptr + 12);
    return true;
}

/* ---- meta keys with text ---- */

bool key_tenant_name(struct buf *out, struct str name)
{
    buf_reset(out);
    wr_u8(out, KEY_TENANT_NAME);
    buf_add_str(out, name);
    return buf_ok(out);
}

bool key_name(struct buf *out, enum key_table t, uint32_t tenant, struct str name)
{
    buf_reset(out);
    wr_u8(out, (uint8_t)t);
    wr_u32be(out, tenant);
    buf_add_str(out, name);
    return buf_ok(out);
}

/* 00 becomes 00 ff and the end 00 01, so that a shorter name sorts before every longer one. */
bool key_pair_name(struct buf *out, uint32_t tenant, struct str name)
{
    buf_reset(out);
    wr_u8(out, KEY_PAIR);
    wr_u32be(out, tenant);
    for (size_t i = 0; i < name.len; i++) {
        buf_add_c(out, name.ptr[i]);
        if (!name.ptr[i])
            buf_add_c(out, '\xff');
    }
    buf_add(out, "\0\1", 2);
    return buf_ok(out);
}

bool key_pair(struct buf *out, uint32_t tenant, struct str name, struct str value)
{
    return key_pair_name(out, tenant, name) && buf_add_str(out, value);
}

bool key_pair_read(struct str key, struct buf *name, struct str *ret_value)
{
    buf_reset(name);
    for (size_t i = 5; i < key.len; i++) {
        if (key.ptr[i]) {
            buf_add_c(name, key.ptr[i]);
            continue;
        }
        if (++i == key.len)
            return false;
        if (key.ptr[i] == '\1') {
            *ret_value = str_sub(key, i + 1, key.len);
            return buf_ok(name);
        }
        if (key.ptr[i] != '\xff')
            return false;
        buf_add_c(name, '\0');
    }
    return false;
}

/* ---- small values ---- */

void key_u32(struct key *v, uint32_t n)
{
    v->len = 0;
    add_u32(v, n);
}

void key_u64(struct key *v, uint64_t n)
{
    v->len = 0;
    add_u64(v, n);
}

bool key_u16_read(struct str v, uint32_t *ret)
{
    if (v.len != 2)
        return false;
    *ret = get_u16be(v.ptr);
    return true;
}

bool key_u32_read(struct str v, uint32_t *ret)
{
    if (v.len != 4)
        return false;
    *ret = get_u32be(v.ptr);
    return true;
}

bool key_u64_read(struct str v, uint64_t *ret)
{
    if (v.len != 8)
        return false;
    *ret = get_u64be(v.ptr);
    return true;
}
