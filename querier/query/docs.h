/* SPDX-License-Identifier: Apache-2.0
 *
 * docs.h: small things that a tenant keeps (common/store/delete/tenant_doc.h), asked of the
 * ingester that has the tenant's home shard. For steps of queries of one tenant (query.h).
 */
#ifndef QUERIER_QUERY_DOCS_H
#define QUERIER_QUERY_DOCS_H

#include "common/store/delete/tenant_doc.h"
#include "querier/query/query.h"

struct docs_item {
    struct str id, meta;
    uint64_t revision;
};
struct docs {
    const struct docs_item *at; /* by id */
    size_t len;
    bool more; /* behind them */
};

/* All of a kind, at most DOC_LIST_MAX. ERR_INPUT where the request names several tenants. */
NODISCARD int docs_ask_list(struct query *q, enum doc_kind kind, struct err *e);
/* The same behind an id: a page of them. */
NODISCARD int docs_ask_page(struct query *q, enum doc_kind kind, struct str after, struct err *e);
/* In the next step. The texts live as long as the query. */
NODISCARD int docs_list(struct query *q, struct docs *ret, struct err *e);
const struct docs_item *docs_find(const struct docs *d, struct str id); /* NULL: none */
/* Each is the last question; its step need not read anything. `seen`: the revision this is written
 * over, 0: it must be new; where another is there, the query ends with ERR_CONFLICT. */
NODISCARD int docs_ask_put(struct query *q, enum doc_kind kind, const struct docs_item *item,
                           uint64_t seen, uint64_t docs_max, struct err *e);
/* A document that does not exist is not an error. */
NODISCARD int docs_ask_drop(struct query *q, enum doc_kind kind, struct str id, struct err *e);
NODISCARD int docs_ask_delete(struct query *q, enum doc_kind kind, struct str id, struct err *e);

#endif
