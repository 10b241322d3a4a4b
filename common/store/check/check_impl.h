/* SPDX-License-Identifier: Apache-2.0
 *
 * check_impl.h: declarations that the files check_*.c share. Each of them holds the rules of a few
 * kinds of rows.
 *
 * A rule returns ERR_CORRUPT with a sentence. check_each notes it as a finding and continues with
 * the next row. Rules that check_each does not call pass their result through check_found, which
 * does the same.
 */
#ifndef COMMON_STORE_CHECK_CHECK_IMPL_H
#define COMMON_STORE_CHECK_CHECK_IMPL_H

#include "common/base/map.h"
#include "common/store/check/check.h"
#include "common/store/codec/vec.h"
#include "common/store/delete/purge.h"
#include "common/store/dict/dict.h"
#include "common/store/mask/purging.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

/* Keys are fixed-width bytes. */
enum check_map {
    CHECK_MAP_DICTS,  /* tenant scope epoch -> struct dict, open for writing (for its hashes) */
    CHECK_MAP_SERIES, /* tenant scope series ptype -> struct days */
    CHECK_MAP_ACTIVE, /* tenant scope ptype -> struct days */
    CHECK_MAP_WIDS,   /* key of a write id -> raw rows, uint64_t */
    CHECK_MAP_PAIRS,  /* tenant pair -> uses, uint64_t */
    CHECK_MAPS_LEN,
};
/* Everything owned. */
struct check {
    struct store_view *v;
    struct check_opts o;
    struct check_report *report;
    bool strict; /* the first finding ends it */
    enum check_kind kind;
    struct map_str *maps[CHECK_MAPS_LEN];
    struct buf row, text;
    struct purging purging; /* services whose deletes are not purged: half of their rows are gone */
    struct arena *arena;
    _Atomic size_t dict_bytes;
};
/* The value under the key, made of `size` zero bytes if it is new. */
void *check_entry(struct check *c, enum check_map map, struct str key, size_t size);
void *check_find(struct check *c, enum check_map map, struct str key);

/* From here on findings are of this kind. */
void check_begin(struct check *c, enum check_kind kind);
/* Handles the result of a rule. Returns 0 for 0 and for ERR_CORRUPT, which is noted as a finding,
 * unless the check is strict. Any other code is returned and ends the check. */
NODISCARD int check_found(struct check *c, int rc, struct err *e);
/* Begins the rows of a rule. If a remote row is skipped from here on, the rule is not checked:
 * check_is_away. */
void check_here(void);
bool check_is_away(void);
/* One more row was looked at, check_here: counts, tells progress, polls cancel. */
NODISCARD int check_row(struct check *c, struct err *e);

typedef int (*check_fn)(struct check *c, struct str key, struct str value, struct err *e);
/* fn for each row of a column family; of one meta table only if table is not 0. A key shorter than
 * key_min is a finding and not shown to fn. */
NODISCARD int check_each(struct check *c, enum kv_cf cf, unsigned table, size_t key_min,
                         check_fn fn, struct err *e);
/* Into c->row; ERR_CORRUPT if it is not there. */
NODISCARD int check_get(struct check *c, enum kv_cf cf, struct str key, const char *what,
                        struct err *e);

/* A vector by itself: sound; ids exist in their epochs' dictionaries; F is that of the contents.
 * `r` is left at its meta. */
NODISCARD int check_vector(struct check *c, uint32_t tenant, uint32_t scope, struct str row,
                           struct vec_reader *r, struct err *e);
/* And its series exists, and says that it has data of the type on that day. */
NODISCARD int check_member(struct check *c, const struct member *m, uint32_t t, uint32_t node,
                           struct err *e);
/* Vectors of one level against their timelines, both in key order: the points of tl rows with these
 * flags add up to totals and writes of the vectors in cf, one by one. */
NODISCARD int check_points(struct check *c, enum kv_cf cf, uint32_t level, struct err *e);

/* ---- the parts, in order ---- */
NODISCARD int check_meta(struct check *c, struct err *e);      /* check_meta.c */
NODISCARD int check_rows(struct check *c, struct err *e);      /* check_rows.c */
NODISCARD int check_levels(struct check *c, struct err *e);    /* check_levels.c */
NODISCARD int check_rollups(struct check *c, struct err *e);   /* check_rollups.c */
NODISCARD int check_presence(struct check *c, struct err *e);  /* check_presence.c */
NODISCARD int check_exemplars(struct check *c, struct err *e); /* check_exm.c */
NODISCARD int check_docs(struct check *c, struct err *e);      /* check_doc.c */
NODISCARD int check_ledger(struct check *c, struct err *e);    /* check_ledger.c */

#endif
