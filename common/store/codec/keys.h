/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.h: every key of a shard, byte by byte. Numbers are big-endian, so that bytes sort as
 * numbers. Nothing here may ever change its meaning: a new layout takes a new table, level or
 * column family, and FORMAT_WRITTEN below goes up.
 *
 * Time is counted in slots of 5 s since 2020-01-01 (model/slot.h). What is called a number (tenant,
 * scope, profile type, series ordinal, label pair) is given out in order of first sight and never
 * used again for something else. A scope is one service of one tenant.
 *
 * ---- raw: unsealed rows, slot-major: a minute of a service is one run, a seal reads one run
 * ------
 *
 *   0       4        8       12    16      18       26      42
 *   | bucket | tenant | scope | t   | ptype | series | wid   |      bucket = t / 12, one minute
 *     u32      u32      u32     u32   u16     u64      16 bytes
 *
 *   value   version u8 = 1 | wid bucket u32 | wid rows varint | vector (vec.h, one section)
 *
 *   slot 37,500,003 of tenant 1, scope 2, type 3, series 0xabcdef0123456789, wid 00..0f:
 *   002faf08 00000001 00000002 023c3463 0003 abcdef0123456789 000102030405060708090a0b0c0d0e0f
 *
 * ---- fine (level 0, 1), coarse (level 2..7): sealed vectors; ru: the same of roll-ups ---------
 *
 *   0       1        5        9       13      15       23    27
 *   | level | bucket | tenant | scope | ptype | series | t   |
 *     u8      u32      u32      u32     u16     u64      u32
 *   t = first slot of the node; bucket = t / LEVELS[level].bucket
 *
 *   value   vector (vec.h). In ru `series` is the group id (dimension u8 << 56 | ordinal u32), the
 *           value that of rollup_row.h, and a late delta has the seal entry (u32) behind t.
 *   leaf 37,500,002 of the series above, in bucket 8,680 of 6 h:
 *   00 000021e8 00000001 00000002 0003 abcdef0123456789 023c3462
 *
 * ---- tl: timelines; never a stack
 * ----------------------------------------------------------------
 *
 *   key     as fine; t = first slot of the chunk of LEVELS[level].tl_chunk slots. Bit 7 of the
 * level
 *           is set in rows of a roll-up group, whose id stands in `series`. Bit 6: presence of a
 *           gauge (presence.h), level 0, in chunks of a day and buckets of 256 days.
 *   value   timeline_row.h. Level 0 has a point per slot, level n one per node of level n.
 *
 * ---- wid: write ids by arrival ------------------------------------------------------------------
 *
 *   0        4        8      24
 *   | bucket | tenant | wid  |        bucket = hours of engine time since 2020-01-01, at arrival
 *     u32      u32     16 bytes
 *   value   version u8 = 2 | t u32 (first slot) | rows varint | folded varint (rows in sealed
 *           vectors, or deleted) | entry varint (last seal entry that folded one; none: the
 *           last there was at arrival; version 1: 0)
 *
 * ---- fn: values of functions, per group and node of level 2 and up
 * --------------------------------
 *
 *   key     as ru without entry       value   function_cost.h
 *
 * ---- exm: exemplars: exm.h draws its keys
 * ---------------------------------------------------------
 *
 * ---- meta: the first byte is the table
 * ------------------------------------------------------------
 *
 *   01                                      format: "EMBR" | written by u16 | least reader u16
 *   02 id u8                                control, enum key_control
 *   10 name                                 tenant by name: tenant u32
 *   11 tenant                               version u8 = 1 | seed u64 | next scope u32 | next ptype
 *                                           u32 | next ordinal u32 | next pair u32 | name
 *   12 tenant name                          service by name: scope u32
 *   13 tenant scope                         version u8 = 1 | open epoch u32 | name
 *   14 tenant id                            profile type by id: ptype u16
 *   15 tenant ptype u16                     version u8 = 1 | gauge u8 | id
 *   20 tenant scope epoch u32               version u8 = 1 | closed u8 | strings u32 | frames u32 |
 *                                           nodes u32: how many entries the dictionary has
 *   21 tenant scope epoch u32 kind u8 first u32      entries first.. of it: dict_rows.h
 *   22 tenant scope ptype u16               first day u16 | last day u16 with data, from 2020-01-01
 *   30 tenant scope series u64              ordinal u32; ffffffff: deleted, the id is never used
 * again
 *   31 tenant ordinal u32                   version u8 = 1 | scope u32 | series u64 | labels
 *   31 tenant ordinal u32 ptype u16         first day u16 | last day u16 with data, since
 * 2020-01-01
 *   32 tenant name 00 01 value              label pair: pair u32; a byte 00 in name is 00 ff
 *   33 tenant pair u32 chunk u16            postings: ordinals (low 16 bits) with this pair,
 * Roaring
 *   33 tenant pair u32 chunk u16 low u16    one more of them, empty value; joins the row above
 * later
 *   40 entry u64                            seal log: seal.h
 *   50 tenant scope                         how its series are grouped: group.h
 *   50 tenant scope rule u32                label names a rule drops: group.h
 *   51 tenant scope gid u64                 group by id: group.h
 *   53 tenant scope series u64              groups of a series: group.h
 *   54 tenant scope ptype u16               floors: 8 x slot u32, by level: floors.h
 *   55 tenant scope ptype u16 level u8 t u32   dirty node: entry u64: dirty.h
 *   56 57 58 59                             what came and went, 72 73 of tenants: ledger.h
 *   5a tenant scope ptype                   slots a push covers: spread.h
 *   5b tenant scope ptype                   slot u32 before which nothing is answered: floors.h
 *   5c tenant scope ptype u16               floors up to which rows were purged: as 54
 *   5d tenant scope epoch u32               closed epoch: rows that name it lie before slot u32
 *   5e 5f                                   reserved for the tree of time, not used
 *   60 .. 6f                                deletes: tomb.h
 *   70 71                                   documents of tenants: tenant_doc.h
 *   74 .. 77                                kept for what else tenants have
 *   78 79                                   parts in the cold tier: common/cold/manifest.h
 *   7a                                      who acts on them: common/cold/generation.h
 *   7b                                      whose their bytes are: common/cold/usage.h
 *   7c                                      which node acts on them: generation.h
 *   7d .. 7f                                reserved for the cold tier, not used
 *   80                                      what was stored for whom: acks.h
 *   81 bucket u32 tenant wid                fingerprint of the push under this write id, where the
 *                                           client named it: version u8 = 1 | u64; bucket as in wid
 *
 *   posting of ordinal 65,537 + pair 5 + tenant 1, before and after it joined its chunk:
 *   33 00000001 00000005 0001 0001          33 00000001 00000005 0001
 */
#ifndef COMMON_STORE_CODEC_KEYS_H
#define COMMON_STORE_CODEC_KEYS_H

#include "common/base/buf.h"
#include "common/base/wr.h"
#include "common/model/slot.h"

/* A database is opened if its "least reader" <= FORMAT_WRITTEN of this program. */
#define FORMAT_WRITTEN      2 /* 1: level 0 alone; no groups, floors, dirty nodes */
#define FORMAT_LEAST_READER 2 /* an older program would miss what only higher levels still have */

/* Widths in slots. Each level's node divides the next one's, nodes and chunks divide buckets. */
struct key_level {
    uint32_t node;     /* a vector covers this */
    uint32_t bucket;   /* a run of keys; dropped whole where retention allows */
    uint32_t tl_point; /* a point of a timeline row covers this */
    uint32_t tl_chunk; /* a timeline row covers this */
};
/* 10 s, 1 m, 10 m, 1 h, 6 h, 1 d, 8 d, 64 d. The number of a level is the first byte of stored
 * keys, so another one can only be added behind the last: common/store/README.md, Recipes. */
#define KEY_LEVELS 8
extern const struct key_level LEVELS[KEY_LEVELS];

#define RAW_BUCKET_SLOTS 12
#define WID_BUCKET_MS    INT64_C(3600000)
#define DAY_SLOTS        17280
#define POST_CHUNK_BITS  16
/* Slots from here on are refused: days fit 16 bits, and no sum of slots and widths passes 32. */
#define KEY_SLOT_MAX (UINT32_C(65535) * DAY_SLOTS)

enum key_table {
    KEY_FORMAT = 0x01,
    KEY_CONTROL = 0x02,
    KEY_TENANT_NAME = 0x10,
    KEY_TENANT = 0x11,
    KEY_SCOPE_NAME = 0x12,
    KEY_SCOPE = 0x13,
    KEY_PTYPE_NAME = 0x14,
    KEY_PTYPE = 0x15,
    KEY_EPOCH = 0x20,
    KEY_DICT = 0x21,
    KEY_ACTIVE = 0x22,
    KEY_SERIES = 0x30,
    KEY_ORD = 0x31,
    KEY_PAIR = 0x32,
    KEY_POST = 0x33,
    KEY_SEAL = 0x40,
    KEY_RULE = 0x50,
    KEY_GROUP = 0x51,
    KEY_GROUP_OF = 0x53,
    KEY_FLOORS = 0x54,
    KEY_DIRTY = 0x55,
    KEY_LEDGER_IN = 0x56,
    KEY_LEDGER_OUT = 0x57,
    KEY_LEDGER_FOUND = 0x58,
    KEY_LEDGER_WHOLE = 0x59,
    KEY_SPREAD = 0x5a,
    KEY_FLOORS_END = 0x5b,
    KEY_PURGED = 0x5c,
    KEY_EPOCH_LAST = 0x5d,
    KEY_TOMB = 0x60,
    KEY_TOMB_AT = 0x61,
    KEY_TOMB_MASK = 0x62,
    KEY_TOMB_SPAN = 0x63,
    KEY_DOC = 0x70,
    KEY_DOC_CHUNK = 0x71,
    KEY_LEDGER_PAST = 0x72,
    KEY_LEDGER_DUPLICATES = 0x73,
    KEY_LEDGER_ACCEPTED = 0x74,
    KEY_COLD = 0x78,
    KEY_COLD_HIDE = 0x79,
    KEY_ACKS = 0x80,
    KEY_WID_PRINT = 0x81,
    KEY_COLD_GENERATION = 0x7a,
    KEY_COLD_OWNERS = 0x7b,
    KEY_COLD_HOLDER = 0x7c,
};
enum key_control {
    CONTROL_CLOCK = 1,    /* engine time, ms since 1970, u64 */
    CONTROL_APPLIED = 2,  /* last seal entry u64 | highest raw bucket any entry touched u32 */
    CONTROL_RAW_LOW = 3,  /* no unsealed row stands in a bucket below this, u32 */
    CONTROL_WID_LOW = 4,  /* no write id stands in a bucket below this, u32 */
    CONTROL_TENANTS = 5,  /* next tenant number, u32 */
    CONTROL_WID_HIGH = 6, /* no write id stands in a bucket above this, u32; none: any */
    CONTROL_FORECAST = 7, /* bytes of files by day: forecast.h */
    CONTROL_REPL = 8,     /* last entry of the replication log: common/repl/apply.h */
    CONTROL_LEDGER = 9,   /* by whom the ledger is kept: ledger.c */
    CONTROL_STOOD = 10,   /* a clock far ahead: ms it stood so u64 | what it showed u64
    (engine_clock.h) */
};
enum key_dict { DICT_STRINGS = 1, DICT_FRAMES = 2, DICT_NODES = 3 };

/* What leads every vector and timeline. */
struct member {
    uint32_t tenant, scope;
    uint16_t ptype;
    uint64_t series;
};

struct key {
    size_t len;
    char b[48];
};
static inline struct str key_str(const struct key *k)
{
    return (struct str){ k->b, k->len };
}
/* The first key behind all that start with k: the end of a range. k is not all ff. */
void key_end(struct key *k);

#define KEY_MEMBER_LEN     27
#define KEY_MEMBER_HEAD    23 /* up to t */
#define KEY_RAW_LEN        42
#define KEY_RAW_SCOPE_LEN  12 /* bucket, tenant, scope */
#define KEY_WID_LEN        24
#define KEY_WID_PRINT_LEN  25
#define KEY_POST_LEN       11
#define KEY_POST_TAIL_LEN  13
#define KEY_ORD_LEN        9
#define KEY_ORD_TYPE_LEN   11
#define KEY_ACTIVE_LEN     11
#define KEY_RU_DELTA_LEN   31
#define KEY_DIRTY_LEN      16
#define KEY_DICT_LEN       18
#define KEY_DICT_FIRST_OFF 14

void key_member(struct key *k, uint32_t level, const struct member *m, uint32_t t);
/* False on a wrong length, an unknown level or a bucket that is not t's. */
bool key_member_read(struct str key, uint32_t *ret_level, struct member *ret_m, uint32_t *ret_t);

void key_raw(struct key *k, const struct member *m, uint32_t t, const uint8_t wid[16]);
void key_raw_scope(struct key *k, uint32_t bucket, uint32_t tenant, uint32_t scope);
void key_raw_bucket(struct key *k, uint32_t bucket);
/* Roll-ups: m->series is the group id. A late delta has its entry behind t; base row: 0, none. */
void key_ru(struct key *k, uint32_t level, const struct member *m, uint32_t t);
void key_ru_delta(struct key *k, uint32_t level, const struct member *m, uint32_t t,
                  uint32_t entry);
bool key_ru_read(struct str key, uint32_t *ret_level, struct member *ret_m, uint32_t *ret_t,
                 uint32_t *ret_entry);
/* Timelines: `flags` goes into the level byte. Presence rows have a bit per leaf: presence.h. */
#define KEY_TL_GROUP        0x80u
#define KEY_TL_PRESENCE     0x40u
#define KEY_PRESENCE_BUCKET (256 * DAY_SLOTS)
void key_tl(struct key *k, uint32_t flags, uint32_t level, const struct member *m, uint32_t t);
bool key_tl_read(struct str key, uint32_t *ret_flags, uint32_t *ret_level, struct member *ret_m,
                 uint32_t *ret_t);

bool key_raw_read(struct str key, struct member *ret_m, uint32_t *ret_t, const uint8_t **ret_wid);

void key_wid(struct key *k, uint32_t bucket, uint32_t tenant, const uint8_t wid[16]);
void key_wid_bucket(struct key *k, uint32_t bucket);
void key_wid_print(struct key *k, uint32_t bucket, uint32_t tenant, const uint8_t wid[16]);
void key_wid_print_bucket(struct key *k, uint32_t bucket);

/* Meta keys of fixed length. */
void key_format(struct key *k);
void key_control(struct key *k, enum key_control id);
void key_tenant(struct key *k, uint32_t tenant);
void key_scope(struct key *k, uint32_t tenant, uint32_t scope);
void key_ptype(struct key *k, uint32_t tenant, uint32_t ptype);       /* ptype < 65,536 */
void key_table(struct key *k, enum key_table table, uint32_t tenant); /* prefix of all of it */
void key_epoch(struct key *k, uint32_t tenant, uint32_t scope, uint32_t epoch);
void key_dict(struct key *k, uint32_t tenant, uint32_t scope, uint32_t epoch, enum key_dict kind,
              uint32_t first);
void key_active(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype);
void key_series(struct key *k, uint32_t tenant, uint32_t scope, uint64_t series);
void key_ord(struct key *k, uint32_t tenant, uint32_t ordinal);
void key_ord_type(struct key *k, uint32_t tenant, uint32_t ordinal, uint32_t ptype);
void key_post_pair(struct key *k, uint32_t tenant, uint32_t pair); /* prefix of all its chunks */
void key_post(struct key *k, uint32_t tenant, uint32_t pair, uint32_t chunk);
void key_post_tail(struct key *k, uint32_t tenant, uint32_t pair, uint32_t ordinal);
void key_seal(struct key *k, uint64_t entry);
void key_rule(struct key *k, uint32_t tenant, uint32_t scope);
void key_rule_number(struct key *k, uint32_t tenant, uint32_t scope, uint32_t rule);
void key_group(struct key *k, uint32_t tenant, uint32_t scope, uint64_t gid);
void key_group_of(struct key *k, uint32_t tenant, uint32_t scope, uint64_t series);
void key_floors(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype);
void key_floors_end(struct key *k, uint32_t tenant, uint32_t scope, uint32_t ptype);
void key_dirty(struct key *k, const struct member *m /* series unused */, uint32_t level,
               uint32_t t);
bool key_dirty_read(struct str key, struct member *ret_m, uint32_t *ret_level, uint32_t *ret_t);

/* Meta keys with text: replace *out. False: it would pass out->max. */
NODISCARD bool key_name(struct buf *out, enum key_table table, uint32_t tenant, struct str name);
NODISCARD bool key_tenant_name(struct buf *out, struct str name);
NODISCARD bool key_pair(struct buf *out, uint32_t tenant, struct str name, struct str value);
NODISCARD bool key_pair_name(struct buf *out, uint32_t tenant, struct str name); /* prefix */
/* *name is replaced with the unescaped name; *ret_value points into key. */
NODISCARD bool key_pair_read(struct str key, struct buf *name, struct str *ret_value);

/* Values of a few bytes: one big-endian number. Reading checks the length. */
void key_u32(struct key *v, uint32_t n);
void key_u64(struct key *v, uint64_t n);
bool key_u16_read(struct str v, uint32_t *ret);
bool key_u32_read(struct str v, uint32_t *ret);
bool key_u64_read(struct str v, uint64_t *ret);

static inline uint32_t raw_bucket(uint32_t slot)
{
    return slot / RAW_BUCKET_SLOTS;
}
static inline uint32_t wid_bucket(int64_t engine_ms)
{
    return engine_ms <= SLOT_EPOCH_MS ? 0 : (uint32_t)((engine_ms - SLOT_EPOCH_MS) / WID_BUCKET_MS);
}

#endif
