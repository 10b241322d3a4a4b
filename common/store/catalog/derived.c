/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/catalog/derived.h"

const char *const DERIVED_NAMES[DERIVED_LABELS] = {
    [DERIVED_NAME] = "__name__",
    [DERIVED_PERIOD_TYPE] = "__period_type__",
    [DERIVED_PERIOD_UNIT] = "__period_unit__",
    [DERIVED_PROFILE] = "__profile_type__",
    [DERIVED_SERVICE] = "__service_name__",
    [DERIVED_TYPE] = "__type__",
    [DERIVED_UNIT] = "__unit__",
};

int derived_find(struct str name)
{
    if (!str_starts(name, STR("__")))
        return -1;
    for (int i = 0; i < DERIVED_LABELS;
         i++) /* by the third letter first: it is asked for each label */
        if (name.len > 2 && name.ptr[2] == DERIVED_NAMES[i][2] && str_eqc(name, DERIVED_NAMES[i]))
            return i;
    return -1;
}

struct str derived_value(enum derived d, struct str id, const struct ptype *t)
{
    switch (d) {
    case DERIVED_NAME:
        return t->name;
    case DERIVED_PERIOD_TYPE:
        return t->period_type;
    case DERIVED_PERIOD_UNIT:
        return t->period_unit;
    case DERIVED_PROFILE:
        return id;
    case DERIVED_TYPE:
        return t->sample_type;
    case DERIVED_UNIT:
        return t->sample_unit;
    case DERIVED_SERVICE:
    case DERIVED_LABELS:
        break;
    }
    CHECK(false);
}
