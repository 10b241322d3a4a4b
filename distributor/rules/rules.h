/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h: the overrides file in force: read again while the server runs, what it did is counted,
 * and `GET /api/v1/tenant_limits`, `GET /runtime_config` show it. Thread: the loop's, but for what
 * a comment says.
 */
#ifndef DISTRIBUTOR_RULES_RULES_H
#define DISTRIBUTOR_RULES_RULES_H

#include "common/net/http.h"
#include "distributor/base/tenants.h"
#include "distributor/rules/actives.h"
#include "distributor/rules/apply.h"

#define RULES_LABELS_MAX  100  /* tenants with metrics of their own; the others are "other" */
#define RULES_ACTIVES_MAX 4096 /* tenants whose series are counted */

struct distributor;
struct rules;

/* Reads distributor.overrides_file; a wrong one is an error here, and later keeps the old one. */
NODISCARD int rules_new(struct distributor *d, struct rules **ret, struct err *e);
void rules_free(struct rules *r); /* NULL is fine */
/* Has any tenant a limit of stored bytes? */
bool rules_limit_stored(const struct rules *r);
void rules_routes(struct rules *r);

/* What one request needs; stays in force for it when the file changes. */
struct rules_hold {
    struct overrides *overrides;
    const struct policy *policy;
    struct actives *actives, *services; /* NULL: no limit of series, of services */
    struct str label;                   /* of the tenant, in metrics */
};
void rules_hold(struct rules *r, struct str tenant, struct rules_hold *ret);
void rules_drop(struct rules_hold *h); /* twice is fine */
/* ERR_FORBIDDEN: no push of the tenant is taken (ingest: off). */
NODISCARD int rules_off(const struct rules_hold *h, struct err *e);
/* Is there a rule, or a limit of series, that a decoded push would be held against? */
bool rules_any(const struct rules_hold *h);
/* Valid until the loop turns. */
const struct limits *rules_limits(const struct rules *r, struct str tenant);
/* For tenants_rates. */
void rules_rates(void *rules, struct str tenant, struct tenant_rates *ret);

/* Any thread. Applies all that h says to a decoded push; `bytes` are those of its body. */
NODISCARD int rules_run(struct rules *r, const struct rules_hold *h, struct push *p,
                        const struct window *w, uint64_t bytes, struct err *e);
/* Any thread. Profiles that were refused for good, or over a rate; other errors are not counted:
 * the sender comes again. */
void rules_refused(struct rules *r, struct str label, const struct err *why, uint64_t profiles,
                   uint64_t bytes);
/* "label_name_too_long", ...: the reason in an error's text, else that of its code; NULL: none. */
const char *rules_reason(const struct err *why);

#endif
