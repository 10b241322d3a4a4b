/* SPDX-License-Identifier: Apache-2.0
 *
 * series.h: label sets and their ids, as the shard thread gives them out.
 *
 * A series is a label set of one service; its id is a hash of the labels that leads all its keys.
 * Two label sets never share an id: on a clash the later one takes the next free id. Beside the id
 * it has an ordinal, dense per tenant, for postings (postings.h).
 *
 * As with names.h, getting may fail and reserves; emitting cannot fail.
 */
#ifndef COMMON_STORE_CATALOG_SERIES_H
#define COMMON_STORE_CATALOG_SERIES_H

#include "common/base/arena.h"
#include "common/base/vec.h"
#include "common/model/label.h"
#include "common/store/catalog/names.h"

/* When a series had data of one type. */
struct series_type {
    uint16_t ptype;
    struct days days;
};
struct group_of; /* group.h */
struct series {
    uint32_t tenant, scope;
    uint64_t id;
    uint32_t ordinal;
    bool reserved; /* in no batch yet; has no ordinal */
    uint64_t seq;  /* last batch that has something of it; 0: all on disk */
    VEC(struct series_type) types;
    VEC(struct known_name *) pairs; /* of its labels, while reserved */
    struct str labels;              /* canonical; owned */
    VEC(struct group_of) groups;    /* by rule: group.h */
    char key[17];                   /* meta key of the id */
};

struct series_cache;
struct series_cache *series_cache_new(struct kv *kv, size_t bytes_max, uint64_t hash_mask);
void series_cache_free(struct series_cache *c);
/* The series of a service that has these labels. */
struct series_want {
    struct names *names;
    struct tenant *tenant;
    uint32_t scope;
    struct str labels; /* canonical bytes */
};
/* Finds the series, or reserves a new one and its label pairs in w->names. */
NODISCARD int series_get(struct series_cache *c, const struct series_want *w, struct series **ret,
                         struct err *e);
/* A series in memory, or NULL. */
struct series *series_peek(struct series_cache *c, uint32_t tenant, uint32_t scope, uint64_t id);
/* After a request that failed: its label pairs may go, so the reserved ones must. */
void series_forget_reserved(struct series_cache *c, struct series *s);
/* Rows of a reserved one: id, labels, postings. */
void series_emit(struct series_cache *c, struct names *names, struct tenant *t, struct series *s,
                 uint64_t seq, struct kv_batch *b);
/* It has data of a type on a day; a row only when that is news. */
void series_touch(struct series *s, uint16_t ptype, uint16_t day, uint64_t seq, struct kv_batch *b);
size_t series_cache_bytes(const struct series_cache *c);
/* Another limit for series_cache_trim. */
void series_cache_resize(struct series_cache *c, size_t bytes_max);
void series_cache_trim(struct series_cache *c, uint64_t committed);
/* Forgets all; nothing may be reserved or in a batch that is not committed. For deletes. */
void series_cache_drop(struct series_cache *c);
/* The value of a deleted series' id row: its id stays taken, so that the same labels get
 * another. */
#define SERIES_RETIRED UINT32_MAX

/* ---- rows, for readers too ---- */

struct series_row {
    uint32_t scope;
    uint64_t id;
    struct str labels; /* canonical bytes */
};
NODISCARD int series_row_read(struct str row, struct series_row *ret, struct err *e);
NODISCARD int series_type_read(struct str key, struct str row, struct series_type *ret,
                               struct err *e);

#endif
