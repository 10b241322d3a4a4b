/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant_doc.h: small things that tenants keep: uploaded profiles, settings, rules, results of
 * queries in the background. They stand in the
 * tenant's home shard (shard_of with no service), by name of the tenant, since a tenant may have
 * some before its first profile and a number.
 *
 *   70 tenant 00 kind u8 id          version u8 = 1 | created ms u64 | updated ms u64 |
 *                                    revision u64 | bytes u64 | meta: all that is left
 *   71 tenant 00 kind u8 id 00 u32   chunk of the body, DOC_CHUNK bytes but for the last
 *
 *   "x" of kind 1 of tenant "t", first written at 1,000 ms, no body, meta "m":
 *   70 74 00 01 78      01 00000000000003e8 00000000000003e8 0000000000000001 0000000000000000 6d
 *
 * A document is written whole, in one fsynced batch; its revision goes up by one each time, and a
 * writer may say which one it has seen. Names of tenants and ids have no byte 00.
 */
#ifndef COMMON_STORE_DELETE_TENANT_DOC_H
#define COMMON_STORE_DELETE_TENANT_DOC_H

#include "common/base/vec.h"
#include "common/store/store.h"

#define DOC_CHUNK    (256 * KIB)
#define DOC_ID_MAX   200
#define DOC_META_MAX (16 * KIB)
#define DOC_BODY_MAX (16 * MIB)
#define DOC_LIST_MAX 1000 /* of one call */

/* What a document is; the number stands in keys. */
enum doc_kind {
    DOC_PROFILE = 1,
    DOC_SETTING = 2,
    DOC_RULE = 3,
    DOC_RESULT = 4,
    DOC_ANNOTATION = 5
};
#define DOC_KIND_LAST DOC_ANNOTATION

struct doc {
    struct str id;
    int64_t created_ms, updated_ms;
    uint64_t revision; /* 1 when new */
    uint64_t bytes;    /* of the body */
    struct str meta;   /* shown in lists */
    struct str body;   /* only from store_doc_get */
};
struct doc_name {
    struct str tenant;
    enum doc_kind kind;
    struct str id; /* 1..DOC_ID_MAX bytes */
};
/* What a kind may have of one tenant. */
struct doc_limits {
    uint64_t docs, bytes;
};
#define DOC_ANY_REVISION UINT64_MAX

/* One write of a document; all strings are borrowed for the call. */
struct doc_put {
    struct doc_name name;
    struct str meta, body;    /* at most DOC_META_MAX, DOC_BODY_MAX bytes */
    uint64_t seen;            /* the revision the writer knows (0: it must be new), or
                                 DOC_ANY_REVISION */
    struct doc_limits limits; /* with this document in place of its old revision */
};
/* Writes the document and returns its new head in *ret, without meta and body. A put that is sent
 * again because its answer was lost returns 0 and writes nothing. ERR_CONFLICT: the stored revision
 * is another; ERR_LIMIT: meta or body is too long; ERR_RATE: the limits are reached; ERR_INPUT: the
 * name is invalid; else as store_write_batch. Shard thread. */
NODISCARD int store_doc_put(struct store *s, const struct doc_put *p, struct doc *ret,
                            struct err *e);
/* ERR_NOT_FOUND. Shard thread. */
NODISCARD int store_doc_delete(struct store *s, const struct doc_name *n, struct err *e);
/* Those of a tenant into the batch of its delete; none is fine. */
void docs_drop(struct str tenant, struct kv_batch *b);

/* Any thread. Texts go to the arena. ERR_NOT_FOUND, ERR_LIMIT where the arena is full. */
NODISCARD int store_doc_get(struct store_view *v, const struct doc_name *n, struct arena *a,
                            struct doc *ret, struct err *e);
/* By id, behind n->id (empty: from the first), at most `max`. */
struct doc_list {
    VEC(struct doc) at;
    bool more;
};
NODISCARD int store_doc_list(struct store_view *v, const struct doc_name *n, size_t max,
                             struct arena *a, struct doc_list *ret, struct err *e);
void doc_list_deinit(struct doc_list *l);

/* For who checks rows: the value of a row 70, without id and body; how many rows 71 it has. */
bool doc_row_read(struct str row, struct doc *ret);
size_t doc_chunks(uint64_t bytes);

#endif
