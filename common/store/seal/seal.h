/* SPDX-License-Identifier: Apache-2.0
 *
 * seal.h: the seal log: entry n says which raw rows became sealed vectors, and its row is written
 * in the very batch that does it. seal.c is the only code that makes leaves.
 *
 *   row   version u8 = 1, or 2 of a delete (tomb.h): those rows are gone instead | engine time u64,
 *         ms since 1970 | lowest raw bucket u32 | highest u32 | rows u64 |
 *         sum of hash128(raw key without bucket) mod 2^128: high u64, low u64 |
 *         F u64, of all their vectors | total u64, staying at 2^64-1          57 bytes
 *
 * Rows, the sum of their keys, F and total describe the set of rows. Sealing itself reads none of
 * them back; fsck checks that the row of each entry can be decoded (check_meta.c).
 */
#ifndef COMMON_STORE_SEAL_SEAL_H
#define COMMON_STORE_SEAL_SEAL_H

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"
#include "common/store/codec/raw.h"
#include "common/store/kv/kv.h"

struct store;

struct seal_entry {
    uint64_t n; /* key: from 1 on, without gaps */
    int64_t engine_ms;
    uint32_t bucket_low, bucket_high;
    uint64_t rows;
    struct hash128 keys;
    uint64_t fp, total;
    bool tomb; /* a delete */
};
#define SEAL_ROW_LEN  57
#define SEAL_LOG_KEPT 43200 /* entries; a month of minutes */
void seal_row_put(const struct seal_entry *n, char out[SEAL_ROW_LEN]);
NODISCARD int seal_row_read(uint64_t n, struct str row, struct seal_entry *ret, struct err *e);

/* Adds a row to the digests of an entry. */
NODISCARD int seal_entry_add(struct seal_entry *n, struct str key, const struct seal_row *r,
                             struct err *e);
/* Folds the rows from which the entry was made and writes everything in one batch. */
NODISCARD int seal_apply(struct store *s, const struct seal_entry *n, struct seal_rows *rows,
                         struct err *e);

#endif
