/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: numbers of tenants, services, profile types and label pairs, as the shard thread gives
 * them out. Readers look them up in their snapshot (match.h).
 *
 * Getting a number may read the database and fail; then it is *reserved*: known here, in no batch.
 * Emitting puts the rows of what is reserved into a batch and cannot fail. So a request that fails
 * half way has left nothing behind but a number that a later request will use.
 */
#ifndef COMMON_STORE_CATALOG_NAMES_H
#define COMMON_STORE_CATALOG_NAMES_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

#define NAMES_RESERVED UINT64_MAX

/* Between which days, since 2020-01-01, there was data. A row of two u16. */
struct days {
    uint16_t first, last;
};
NODISCARD int days_read(struct str row, struct days *ret, struct err *e);
struct days days_add(struct days d, uint16_t day);
#define DAYS_NONE ((struct days){ UINT16_MAX, 0 })

/* Something with a number, under the meta key that leads from its text to it. */
struct known_name {
    uint64_t seq; /* the batch it is in; 0: on disk; NAMES_RESERVED: in none */
    uint32_t number;
    uint32_t extra;   /* service: open epoch. Profile type: 1 for gauges. */
    struct days days; /* activity */
    uint32_t key_len;
    char key[];
};
struct tenant {
    uint32_t number;
    uint64_t seed; /* of all hashes of its contents */
    uint32_t next_scope, next_ptype, next_ordinal, next_pair;
    bool dirty;               /* the row on disk is behind */
    struct known_name *known; /* owned; never dropped */
    struct str name;
};

struct names;
/* `seed` goes into the seeds of tenants created from now on; names_trim drops what is over
 * bytes_max. Reads the next tenant's number. */
NODISCARD int names_new(struct kv *kv, uint64_t seed, size_t bytes_max, struct names **ret,
                        struct err *e);
void names_free(struct names *n);

NODISCARD int names_tenant(struct names *n, struct str name, struct tenant **ret, struct err *e);
NODISCARD int names_scope(struct names *n, struct tenant *t, struct str name,
                          struct known_name **ret, struct err *e);
/* A known type keeps the kind (gauge or not) it was created with. */
NODISCARD int names_ptype(struct names *n, struct tenant *t, struct str id, bool gauge,
                          struct known_name **ret, struct err *e);
/* When a service had data of a type. */
NODISCARD int names_activity(struct names *n, const struct tenant *t, uint32_t scope,
                             uint32_t ptype, struct known_name **ret, struct err *e);
NODISCARD int names_pair(struct names *n, struct tenant *t, struct str name, struct str value,
                         struct known_name **ret, struct err *e);

/* Into batch number seq. Tenants come last: their row counts what the others used. */
void names_emit(struct names *n, struct known_name *k, uint64_t seq, struct kv_batch *b);
void names_emit_tenant(struct names *n, struct tenant *t, uint64_t seq, struct kv_batch *b);
/* There is data on this day; a row only when that is news. */
void names_touch(struct known_name *activity, uint16_t day, uint64_t seq, struct kv_batch *b);
/* A service begins a new epoch: always a row. */
void names_set_epoch(struct names *n, struct known_name *scope, uint32_t epoch, uint64_t seq,
                     struct kv_batch *b);
size_t names_bytes(const struct names *n);
/* Another limit for names_trim. */
void names_resize(struct names *n, size_t bytes_max);
/* Forgets what is on disk anyway, if there is much of it. Pointers given before are void then. */
void names_trim(struct names *n, uint64_t committed);
/* Forgets everything, tenants too; nothing may be in a batch that is not committed. For deletes: a
 * number that is gone on disk is not found in memory either. */
void names_drop(struct names *n);

/* ---- rows, for readers too ---- */

struct tenant_row {
    uint64_t seed;
    uint32_t next_scope, next_ptype, next_ordinal, next_pair;
    struct str name;
};
NODISCARD int tenant_row_read(struct str row, struct tenant_row *ret, struct err *e);
NODISCARD int scope_row_read(struct str row, uint32_t *ret_epoch, struct str *ret_name,
                             struct err *e);
NODISCARD int ptype_row_read(struct str row, bool *ret_gauge, struct str *ret_id, struct err *e);

#endif
