/* SPDX-License-Identifier: Apache-2.0
 *
 * tenants.h: bounds the pushes in work and the rate of each tenant, so that no tenant can take the
 * whole server. Thread: the loop's.
 */
#ifndef DISTRIBUTOR_BASE_TENANTS_H
#define DISTRIBUTOR_BASE_TENANTS_H

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/base/str.h"
#include "common/sys/share.h"
#include "distributor/base/options.h"
#include "distributor/base/write_secret.h"

#define TENANTS_STORED_AGAIN_S 60 /* what is stored is not known to be less before that */

#define TENANTS_MAX 16384 /* remembered at once; idle ones make room */

struct tenants;
struct tenant_rates {
    uint64_t rate_bytes, burst_bytes; /* per second; 0: no limit */
    uint64_t ingest_bytes, ingest_ms; /* so many per period; 0: no limit */
    uint64_t stored_max, stored;      /* bytes of files, and how many there are; 0: no limit */
};
struct tenant {
    struct str name;            /* owned */
    struct write_secret secret; /* of its write ids */
    uint64_t requests;          /* in work; may not be forgotten meanwhile */
    struct share held;          /* of distributor.in_flight_bytes, by these requests */
    struct share *share;        /* that; NULL: there is one tenant only, and nothing to share */
    struct list undecoded;      /* of struct intake: those that wait for a thread, oldest first */
    double tokens;              /* bytes it may send now */
    uint64_t refilled_ms;       /* monotonic */
    struct tenant_rates rates;  /* those of its last push */
    uint64_t period_ms;         /* when the period of ingest_bytes began, monotonic */
    uint64_t period_bytes;      /* what came in it */
};

/* `secret` NULL: it comes later (tenants_secret); until then tenant_enter is ERR_UNAVAILABLE. */
struct tenants *tenants_new(const struct distributor_conf *conf, const struct write_secret *secret,
                            bool many);
void tenants_secret(struct tenants *t, const struct write_secret *secret); /* once */
void tenants_free(struct tenants *t); /* NULL is fine; nothing in work */
/* Rates by tenant, asked at each push; without it those of the options hold for all. */
void tenants_rates(struct tenants *t,
                   void (*fn)(void *cookie, struct str tenant, struct tenant_rates *ret),
                   void *cookie);
/* Each distributor allows this part of a tenant's rate and ingest_limits: one in n. 1 at first. */
void tenants_part(struct tenants *t, uint64_t n);
/* Counts a push of `bytes` in: leave with tenant_leave. ERR_RATE over a bound. */
NODISCARD int tenant_enter(struct tenants *t, struct str name, size_t bytes, uint64_t now_ms,
                           struct tenant **ret, struct err *e);
/* Nothing of its `bytes` was stored: they do not count for ingest_limits. */
void tenant_refund(struct tenant *tenant, size_t bytes);
/* Enters again for a request that has entered already: counts one more request, but no bytes. */
void tenant_enter_again(struct tenant *tenant);
void tenant_leave(struct tenant *tenant);

#endif
