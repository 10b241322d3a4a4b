/* SPDX-License-Identifier: Apache-2.0
 *
 * querier_fake_impl.h: what the files of the fake ingester share.
 */
#ifndef TESTS_LIB_ROLES_QUERIER_FAKE_IMPL_H
#define TESTS_LIB_ROLES_QUERIER_FAKE_IMPL_H

#include "proto/query.pb-c.h"
#include "tests/lib/roles/querier_fake.h"

/* 1 or 0; -1: an error. */
int fake_matches(const struct qbed_push *p, struct str tenant, Embertree__Matcher **matchers,
                 size_t n, struct arena *a, struct err *e);
/* Lives here, on one of these shards (none: any). */
bool fake_lives_here(const struct fake *f, const struct qbed_push *p, const uint32_t *shards,
                     size_t n);
void fake_pack(const ProtobufCMessage *m, struct buf *out);
/* The stack begins with these functions. */
bool fake_has_prefix(struct str folded, const ProtobufCBinaryData *site, size_t n);
Embertree__LabelPair **fake_pairs(const struct labels *l, struct arena *a);
int fake_exemplars(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                   struct err *e);
int fake_functions(const struct fake *f, struct str payload, struct arena *a, struct buf *out,
                   struct err *e);

#endif
