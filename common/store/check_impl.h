/* SPDX-License-Identifier: Apache-2.0
 *
 * check_impl.h: shared by check.c (meta) and check_rows.c (vectors, timelines, write ids).
 */
#ifndef COMMON_STORE_CHECK_IMPL_H
#define COMMON_STORE_CHECK_IMPL_H

#include "common/base/map.h"
#include "common/store/check.h"
#include "common/store/dict.h"
#include "common/store/store_impl.h"

/* Everything owned; keys are fixed-width bytes. */
struct check {
    struct store_view *v;
    struct check_report *report;
    struct map_str *maps[6];
    struct buf row, text;
    struct arena *arena;
    _Atomic size_t dict_bytes;
};
enum check_map {
    CHECK_DICTS,  /* tenant scope epoch -> struct dict, open for writing (for its hashes) */
    CHECK_SERIES, /* tenant scope series ptype -> struct days */
    CHECK_ACTIVE, /* tenant scope ptype -> struct days */
    CHECK_LEAVES, /* key of a leaf -> struct check_leaf */
    CHECK_WIDS,   /* key of a write id -> raw rows, uint64_t */
    CHECK_PAIRS,  /* tenant pair -> uses, uint64_t */
};
struct check_leaf {
    uint64_t total, writes;       /* of the vector */
    uint64_t tl_total, tl_writes; /* of the timeline */
    bool saturated;
};
/* The value under the key, made of `size` zero bytes if it is new. */
void *check_entry(struct check *c, enum check_map map, struct str key, size_t size);
void *check_find(struct check *c, enum check_map map, struct str key);
typedef int (*check_fn)(struct check *c, struct str key, struct str value, struct err *e);
/* fn for each row of a column family; of one meta table only if table is not 0. */
NODISCARD int check_each(struct check *c, enum kv_cf cf, unsigned table, check_fn fn,
                         struct err *e);
/* Into c->row; ERR_CORRUPT if it is not there. */
NODISCARD int check_get(struct check *c, enum kv_cf cf, struct str key, const char *what,
                        struct err *e);
NODISCARD int check_rows(struct check *c, struct err *e);

#endif
