/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_docs.h: RPC_DOC of fake ingesters: documents in a list, as
 * common/store/delete/tenant_doc.h has them.
 */
#ifndef TESTS_LIB_ROLES_QUERIER_DOCS_H
#define TESTS_LIB_ROLES_QUERIER_DOCS_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/vec.h"

struct fake_doc {
    char *tenant, *id; /* owned */
    uint32_t kind;
    uint64_t revision;
    struct str meta, body; /* owned */
    int64_t updated_ms;
};
struct fake_docs {
    VEC(struct fake_doc) at; /* by id */
    int64_t now_ms;          /* of the next answer */
    size_t puts, gets;
    bool raced; /* another client deletes the same document just before */
};
void fake_docs_free(struct fake_docs *d);
/* Returns 0 or the error's code. */
int fake_docs_answer(struct fake_docs *d, struct str payload, struct buf *out, struct err *e);

#endif
