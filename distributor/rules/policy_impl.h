/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_impl.h: the table of limits, for the code that parses and the code that prints them.
 */
#ifndef DISTRIBUTOR_RULES_POLICY_IMPL_H
#define DISTRIBUTOR_RULES_POLICY_IMPL_H

#include "distributor/rules/policy.h"

enum limit_kind { LIMIT_COUNT, LIMIT_BYTES, LIMIT_MB, LIMIT_MS };
struct limit_row {
    const char *key;
    enum limit_kind kind;
    size_t offset;     /* in struct policy, a uint64_t */
    uint64_t min, max; /* 0 in the file: max, and where that is UINT64_MAX there is no limit */
};
extern const struct limit_row policy_limits[];
extern const size_t policy_limits_len;

static inline uint64_t policy_value(const struct policy *p, const struct limit_row *r)
{
    uint64_t v;

    memcpy(&v, (const char *)p + r->offset, sizeof(v));
    return v;
}

#endif
