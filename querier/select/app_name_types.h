/* SPDX-License-Identifier: Apache-2.0
 *
 * app_name_types.h: application names of the old API: `service.kind`, such as `shop.cpu`. Pure.
 *
 * Names: proto/WIRE.md, "Profile kinds".
 */
#ifndef QUERIER_SELECT_APP_NAME_TYPES_H
#define QUERIER_SELECT_APP_NAME_TYPES_H

#include "common/model/ptype.h"

struct app_name_types_kind;
struct app_name_types_app {
    struct str service;
    const struct app_name_types_kind *kind;
};
/* A suffix that is no kind belongs to the name, and the kind is cpu. */
struct app_name_types_app app_name_types_app_of(struct str name);
/* How well a profile type answers the kind: 0 best, higher less, -1 not at all. */
int app_name_types_rank(const struct app_name_types_kind *k, const struct ptype *t);
/* The type id that folded text pushed under the kind gets. */
const char *app_name_types_type_id(const struct app_name_types_kind *k);
/* The kind's suffix for a type, or NULL: the old API cannot name it. */
const char *app_name_types_suffix(const struct ptype *t);

#endif
