/* SPDX-License-Identifier: Apache-2.0
 *
 * derived.h: labels that follow from the profile type and the service of a series. They are not
 * stored with the labels, else each profile type of a pod would be a label set of its own; answers
 * and matchers see them as if they were.
 */
#ifndef COMMON_STORE_CATALOG_DERIVED_H
#define COMMON_STORE_CATALOG_DERIVED_H

#include "common/model/label.h"
#include "common/model/ptype.h"

/* In order of name. */
enum derived {
    DERIVED_NAME,        /* __name__ */
    DERIVED_PERIOD_TYPE, /* __period_type__ */
    DERIVED_PERIOD_UNIT, /* __period_unit__ */
    DERIVED_PROFILE,     /* __profile_type__ */
    DERIVED_SERVICE,     /* __service_name__: that of service_name */
    DERIVED_TYPE,        /* __type__ */
    DERIVED_UNIT,        /* __unit__ */
    DERIVED_LABELS,
};
extern const char *const DERIVED_NAMES[DERIVED_LABELS];
#define SERVICE_LABEL STR("service_name")

int derived_find(struct str name); /* enum derived, or -1 */
/* For all but DERIVED_SERVICE. `id` is the profile type's, `t` its parts. */
struct str derived_value(enum derived d, struct str id, const struct ptype *t);

#endif
