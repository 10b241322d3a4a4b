/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy.h: application names of the old API: `service.kind`, such as `shop.cpu`. Pure.
 *
 * Names: proto/WIRE.md, "Profile kinds".
 */
#ifndef QUERIER_SELECT_LEGACY_H
#define QUERIER_SELECT_LEGACY_H

#include "common/model/ptype.h"

struct legacy_kind;
struct legacy_app {
    struct str service;
    const struct legacy_kind *kind;
};
/* A suffix that is no kind belongs to the name, and the kind is cpu. */
struct legacy_app legacy_app_of(struct str name);
/* How well a profile type answers the kind: 0 best, higher less, -1 not at all. */
int legacy_rank(const struct legacy_kind *k, const struct ptype *t);
/* The type id that folded text pushed under the kind gets. */
const char *legacy_type_id(const struct legacy_kind *k);
/* The kind's suffix for a type, or NULL: the old API cannot name it. */
const char *legacy_suffix(const struct ptype *t);

#endif
