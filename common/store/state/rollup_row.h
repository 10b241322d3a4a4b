/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_row.h: the bytes of one roll-up row (keys.h, CF ru): what a group of series did in one
 * node.
 *
 *   row   version  u8      1
 *         flags    u8      bit 0 ROLLED0: level 1 alone: rows of level 0 exist for all its leaves
 *                          bit 1 LIST, bit 2 VECTOR: field present; at least one; others refused
 *         n        varint  LIST: members that have data in the node, 1..ROLLUP_ROW_LIST_MAX
 *         ids      n x u64be  LIST: series ids, ascending
 *         total    varint  LIST without VECTOR: the sum that the members' rows have, and so on,
 *         writes   varint    >= 1
 *         F        u64le     < 2^61-1
 *         crc      u32le   LIST: crc32c of all bytes before
 *         vector   ...     VECTOR: vec.h, to the end
 *
 *   level 0      VECTOR
 *   level 1      VECTOR with LIST (fewer than 32 members, whose leaves answer for parts of the
 *                minute) or with ROLLED0
 *   level 2..7   VECTOR, or LIST alone: so few members (< 4) that their own rows are read
 *
 *   Late data may stand in rows of their own behind t (keys.h): the node is the sum of its rows,
 *   its members are those of all lists, and it is ROLLED0 if one row says so.
 *
 *   list of two series, total 30, 3 writes, F = 0x11:
 *   01 02 | 02 | 00000000000000a1 00000000000000b2 | 1e 03 | 11 00 00 00 00 00 00 00 | xx xx xx xx
 *   a vector in a minute that is ROLLED0:                     01 05 | 01 02 f6 36 .. (vec.h)
 */
#ifndef COMMON_STORE_STATE_ROLLUP_ROW_H
#define COMMON_STORE_STATE_ROLLUP_ROW_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/store/codec/vecsum.h"

#define ROLLUP_ROW_LIST_MAX    1024
#define ROLLUP_ROW_ROLLED      32 /* members of a minute from which it has rows of level 0 (K0) */
#define ROLLUP_ROW_VECTOR_FROM 4  /* members from which on a node of level 2 and up has a vector */

struct rollup_row {
    bool rolled0;
    const uint8_t *ids; /* borrowed; NULL: no list */
    size_t len;
    struct str vector;    /* borrowed; {NULL, 0}: none */
    struct vec_meta meta; /* of the vector (by vec_peek), or as the row says */
};
/* Checks all but the inside of the vector. ERR_CORRUPT. */
NODISCARD int rollup_row_read(struct str row, struct rollup_row *ret, struct err *e);
static inline uint64_t rollup_row_id(const struct rollup_row *r, size_t i)
{
    return get_u64be(r->ids + 8 * i);
}

/* ---- sums of rows: of one node, or of all its children ---- */

struct rollup_row_sum {
    struct vecsum fold;
    VEC(uint64_t) ids; /* members by lists; sorted and distinct after rollup_row_sum_ids */
    bool rolled0;      /* a row says so */
    bool many;         /* a row has a vector and no list: members are more than lists say */
    bool lists;        /* a row has a list and no vector: its members' rows must be added */
    size_t rows;
    struct vec_meta meta; /* of all rows */
    struct buf vector;
};
void rollup_row_sum_init(struct rollup_row_sum *s);
void rollup_row_sum_deinit(struct rollup_row_sum *s);
void rollup_row_sum_begin(struct rollup_row_sum *s);
/* Bytes must stay until the end. Also to be added: late vectors, their members. */
NODISCARD int rollup_row_sum_add(struct rollup_row_sum *s, struct str row, struct err *e);
/* A vector that is no row: of a new leaf; counted in meta. */
NODISCARD int rollup_row_sum_vector(struct rollup_row_sum *s, struct str vector, struct err *e);
/* All but its vector; and the row of a member that a list without vector stands for, whose sum is
 * in the head of the list. */
NODISCARD int rollup_row_sum_head(struct rollup_row_sum *s, struct str row, struct err *e);
NODISCARD int rollup_row_sum_listed(struct rollup_row_sum *s, struct str vector, struct err *e);
void rollup_row_sum_member(struct rollup_row_sum *s, uint64_t id);
/* Sorts ids; how many there are. */
size_t rollup_row_sum_ids(struct rollup_row_sum *s);
/* One row: level 1 with `rolled0` or the list; level 0, 2..7 a vector alone. */
enum rollup_row_form {
    ROLLUP_ROW_LIST,
    ROLLUP_ROW_LIST_VECTOR,
    ROLLUP_ROW_ROLLED_VECTOR,
    ROLLUP_ROW_VECTOR
};
/* Replaces *out. ERR_LIMIT. ROLLUP_ROW_LIST writes meta and needs no vector; for the others the
 * vectors must add up to what the rows say: ERR_CORRUPT if rows of members are missing or twice
 * there. */
NODISCARD int rollup_row_sum_end(struct rollup_row_sum *s, enum rollup_row_form form,
                                 struct buf *out, struct err *e);

/* ---- building: levels 2..7 from the rows of all children ---- */

/* The row of the parent: a list if it has fewer than ROLLUP_ROW_VECTOR_FROM members, else a
 * vector. Pure: the order of children does not matter. A child that is a list without a vector can
 * only be part of a list: else it comes with both (rollup_children). ret_meta: as the rows add up.
 */
NODISCARD int rollup_row_merge(struct rollup_row_sum *s, const struct str *rows, size_t n,
                               struct buf *out, struct vec_meta *ret_meta, struct err *e);
/* *ret is true if these rows make a list. Then the rows of their members are not needed. */
NODISCARD int rollup_row_merge_is_list(struct rollup_row_sum *s, const struct str *rows, size_t n,
                                       bool *ret, struct err *e);

#endif
