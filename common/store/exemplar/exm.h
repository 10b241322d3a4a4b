/* SPDX-License-Identifier: Apache-2.0
 *
 * exm.h: exemplars: the samples of one span, trace or profile, kept apart from the sums they are
 * in. Rows of KV_EXM, byte by byte; numbers are big-endian.
 *
 *   0        4        8       12     13
 *   | bucket | tenant | scope | kind | id       | t   | ptype | series | wid |
 *     u32      u32      u32     u8     exid.h     u32   u16     u64      16 bytes
 *
 *   value   version u8 = 1 | duration in ms, varint | vector (vec.h, one section; writes: 1)
 *
 *   0        4        8       12   13      15       23
 *   | bucket | tenant | scope | 00 | ptype | series | t   | kind | id     | wid |
 *     u32      u32      u32     u8   u16     u64      u32   u8     exid.h   16 bytes
 *
 *   value   version u8 = 1 | duration in ms, varint | total varint
 *
 * The second is the index: all exemplars of a series in a range, for lists and heat maps; it never
 * leads to a vector without an id. bucket = t / EXM_BUCKET_SLOTS, six hours: retention drops whole
 * buckets, and a look-up by id without a time asks each bucket once. The scope stands before the
 * id, so that a service is deleted by one range per bucket. t is the slot of the start: an exemplar
 * is not split over leaves. The write id makes rows of two pushes differ; a push has one row per
 * (kind, id, type, series).
 *
 *   span 00000bac2a5ab0c7 of slot 37,500,002, tenant 1, scope 2, type 3, series abcdef0123456789,
 *   write id 00 .. 0f, 10,000 ms, total 7,030:
 *   000021e8 00000001 00000002 01 88 00000bac2a5ab0c7 023c3462 0003 abcdef0123456789 0001..0e0f
 *       01 904e <vector>
 *   000021e8 00000001 00000002 00 0003 abcdef0123456789 023c3462 01 88 00000bac2a5ab0c7 0001..0e0f
 *       01 904e f636
 *
 * A push without an id of its own has no row here: its leaf stands for it (exm_leaf.c).
 *
 * The samples are in the vectors of their series whether an exemplar is stored or not: an exemplar
 * that is over a bound, or older than the retention, is left out and counted, and nothing is lost
 * but that they were one request.
 */
#ifndef COMMON_STORE_EXEMPLAR_EXM_H
#define COMMON_STORE_EXEMPLAR_EXM_H

#include <stdatomic.h>

#include "common/base/map.h"
#include "common/model/exid.h"
#include "common/store/codec/keys.h"
#include "common/store/store.h"

#define EXM_BUCKET_SLOTS 4320
#define EXM_SCOPE_LEN    12
#define EXM_KEY_MAX      (EXM_SCOPE_LEN + 16 + EXID_PACKED_MAX + 16) /* of the index: the longer */

struct exm_key {
    size_t len;
    char b[EXM_KEY_MAX];
};
static inline struct str exm_key_str(const struct exm_key *k)
{
    return (struct str){ k->b, k->len };
}
static inline uint32_t exm_bucket(uint32_t slot)
{
    return slot / EXM_BUCKET_SLOTS;
}

/* What both keys of an exemplar say. */
struct exm_ref {
    struct member m;
    uint32_t t;
    enum exid_kind kind;
    struct str id; /* packed; borrowed */
    const uint8_t *wid;
};
void exm_row_key(struct exm_key *k, const struct exm_ref *x);
void exm_index_key(struct exm_key *k, const struct exm_ref *x);
/* False unless the key is one of the two, drawn by the functions above. Slices point into it. */
NODISCARD bool exm_key_read(struct str key, bool *ret_index, struct exm_ref *ret);

/* Beginnings of keys. */
void exm_bucket_prefix(struct exm_key *k, uint32_t bucket);
void exm_scope_prefix(struct exm_key *k, uint32_t bucket, uint32_t tenant, uint32_t scope);
void exm_id_prefix(struct exm_key *k, uint32_t bucket, const struct member *m, enum exid_kind kind,
                   struct str id);
void exm_series_prefix(struct exm_key *k, uint32_t bucket, const struct member *m);
/* The first key behind all that start with k. */
void exm_key_end(struct exm_key *k);

struct exm_row {
    uint32_t duration_ms;
    struct str vector;
};
void exm_row_begin(struct buf *out, uint32_t duration_ms); /* replaces *out; then vec_encode */
NODISCARD int exm_row_read(struct str row, struct exm_row *ret, struct err *e);

struct exm_mark {
    uint32_t duration_ms;
    uint64_t total;
};
void exm_mark_put(struct buf *out, const struct exm_mark *m); /* replaces *out */
NODISCARD int exm_mark_read(struct str row, struct exm_mark *ret, struct err *e);

/* The first bucket from *bucket on that has rows. */
bool exm_seek_bucket(struct kv_iter *it, uint32_t *bucket);

/* ---- reading: any thread ---- */

/* Points over time: k covers (origin + (k-1) step, origin + k step]. */
struct store_exm_grid {
    int64_t origin_ms, step_ms;
    uint32_t points; /* 0: no grid */
    bool leaves;     /* an exemplar counts where its leaf begins, not where it does */
};
bool store_exm_point(const struct store_exm_grid *g, int64_t start_ms, uint32_t *ret_k);
/* Which of so many equal buckets over [least, most]; what is outside in the first or last. */
uint32_t store_exm_bucket(uint64_t least, uint64_t most, uint32_t buckets, uint64_t value);
#define STORE_EXM_BUCKETS_MAX 256

struct store_exm_query {
    struct store_query q;  /* times as store_merge; 0, 0: all that is kept */
    unsigned kinds;        /* bit 1 << kind */
    const struct str *ids; /* packed; none: of any id. Those of leaves are among profiles */
    size_t ids_len;
    /* Lists: totals are of the stacks that begin with these functions, root first. Without ids,
     * what has no such stack is left out. */
    const struct str *call_site;
    size_t call_site_len;
    /* Lists, without ids. */
    bool leaves;                /* with profiles: leaves without a push that has an id, too */
    struct store_exm_grid grid; /* with points: the largest of each point, by the next */
    const struct str *group_by;
    size_t group_by_len;
    uint32_t buckets; /* of values; 0: one */
    uint64_t least, most;
    bool summary; /* count, least and most alone */
};
/* The sum of the samples under the ids, each sample of a push once, however many ids it has. With
 * no ids: of all exemplars of the kinds. Same answer as store_merge over these samples alone;
 * of all times without bounds. */
NODISCARD int store_exemplar_merge(struct store_view *v, const struct store_exm_query *q,
                                   struct store_merge *ret, struct err *e);

struct store_exm_item {
    enum exid_kind kind;
    struct str id; /* packed; in the arena */
    int64_t start_ms;
    uint32_t duration_ms;
    uint64_t total;
    uint64_t count, sum; /* of its cell of a grid: how many, and what they add up to */
    uint32_t series;     /* of store_exm_list.series */
};
struct store_exm_list {
    VEC(struct store_exm_item) items; /* by start, then total, largest first */
    VEC(struct labels) series;        /* as stored; in the arena */
    bool truncated;                   /* there are more than `limit`: those of the largest total */
    bool gauge;
    uint64_t count, least, most; /* of all, before `limit` */
    int64_t leaves_from_ms;      /* leaves before are not known one by one; 0: all of the range */
};
NODISCARD int store_exemplars(struct store_view *v, const struct store_exm_query *q, size_t limit,
                              struct arena *a, struct store_exm_list *ret, struct err *e);
void store_exm_list_deinit(struct store_exm_list *l);

/* ---- writing, retention, deletes: shard thread ---- */

/* Counts what came in this minute of engine time, so that no tenant fills the disk. */
struct exm_gate;
struct exm_gate *exm_gate_new(void);
void exm_gate_free(struct exm_gate *g); /* NULL is fine */

struct dict;
struct exemplar_stage {
    const struct store_series *in;
    struct member m;
    const struct dict *dict; /* s->scratch.node_map leads to its ids */
    /* Appends the vector of one exemplar, of nodes of the request being staged, to *out. */
    void (*encode)(struct store *s, const struct dict *d, const uint32_t *nodes,
                   const uint64_t *values, size_t len, struct buf *out);
    int64_t engine_ms;
};
NODISCARD int exemplar_check(const struct store_series *r, size_t nodes,
                             struct err *e); /* ERR_INPUT */
/* Both rows of each exemplar of the series into the batch, as far as the bounds allow. */
void exemplar_stage(struct store *s, const struct exemplar_stage *x, struct kv_batch *b,
                    struct store_result *ret);

/* Buckets below this are not read any more, and dropped a little later. */
uint32_t exm_low(const struct store *s, int64_t engine_ms);
/* Drops the buckets that the retention has passed; nothing while the clock is held. A chore, due
 * once a minute of engine time. */
NODISCARD int store_exemplars_retain(struct store *s, bool *ret_more, struct err *e);
uint64_t store_exemplars_retain_ms(struct store *s);

#endif
