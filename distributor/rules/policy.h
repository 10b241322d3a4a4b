/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h: what holds for a tenant: its limits and its rules, out of the overrides file.
 *
 *   defaults: {max_label_names_per_series: 40, relabel: [...]}
 *   tenants:
 *     acme: {ingestion_rate_mb: 8, drop: ['{env="dev"}'], ingest_limits: {bytes: 1TiB, period: 1d}}
 *
 * A tenant has what its entry says, else what `defaults` says, else what the options say, else,
 * with several tenants, the limits of a shared server. A list replaces the list of the defaults.
 * Thread: the loop's, but for rules_lock.
 */
#ifndef DISTRIBUTOR_RULES_POLICY_H
#define DISTRIBUTOR_RULES_POLICY_H

#include "common/model/selector.h"
#include "common/sys/thread.h"
#include "distributor/base/options.h"
#include "distributor/rules/relabel.h"

#define POLICY_FILE_MAX    ((size_t)1024 * 1024)
#define POLICY_LIST_MAX    100  /* rules of each kind */
#define POLICY_GROUPS_MAX  32   /* usage groups of a tenant */
#define POLICY_RULES_MAX   1000 /* tenants with rules of their own */
#define POLICY_TENANTS_MAX 20000
/* What a tenant of a shared server (distributor.tenant_limits) may have where nothing else is set:
 * at 12 KB a process each 10 s the rate is that of 13,000 processes. */
#define POLICY_SHARED_RATE     ((uint64_t)16 * 1000 * 1000)
#define POLICY_SHARED_SERIES   100000
#define POLICY_SHARED_SERVICES 5000

struct rule_drop {
    struct selector match;
    struct str text;
};
struct rule_sample {
    struct selector match; /* of the usage group, where one is named */
    struct str text, group;
    double probability; /* to be kept */
};
struct rule_group {
    struct selector match;
    struct str name, text;
};
/* Compiled once and shared by the tenants that have no lists of their own. */
struct rule_set {
    struct mutex lock; /* regexes own match buffers: held while a push is looked at */
    struct relabel *relabel;
    struct rule_drop *drops;
    struct rule_sample *samples;
    struct rule_group *groups;
    size_t drops_len, samples_len, groups_len;
};
struct policy {
    struct limits limits;
    uint64_t past_ms, future_ms;
    uint64_t rate_bytes, burst_bytes; /* per second; 0: no limit */
    uint64_t body_bytes;              /* of one request; 0: the server's limit */
    uint64_t max_series;              /* active ones; 0: no limit */
    uint64_t max_services;            /* the same of services */
    uint64_t stored_bytes;            /* in files and the cold tier; 0: no limit */
    bool shared_series;               /* max_series is not set: it is POLICY_SHARED_SERIES */
    bool off;                         /* no push of the tenant is taken */
    uint64_t ingest_bytes, ingest_ms; /* so many per period; 0: no limit */
    struct rule_set *rules;           /* borrowed */
};
struct overrides;

/* The text of a file ("" is fine: options only). ERR_CONFIG with file and line. */
NODISCARD int overrides_parse(const char *file, struct str text, const struct distributor_conf *c,
                              const struct limits *l, struct overrides **ret, struct err *e);
void overrides_hold(struct overrides *o); /* one more owner; loop thread */
void overrides_free(struct overrides *o); /* one less; NULL is fine */
/* Has any tenant a limit of stored bytes? */
bool overrides_limit_stored(const struct overrides *o);
const struct policy *overrides_policy(const struct overrides *o, struct str tenant);
/* As YAML that overrides_parse takes as an entry of `tenants`. */
void policy_format(const struct policy *p, struct buf *out);

#endif
