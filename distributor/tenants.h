/* SPDX-License-Identifier: Apache-2.0
 *
 * tenants.h: who has how much in work, so that one tenant cannot keep out the others.
 *
 * Thread: the loop's.
 */
#ifndef DISTRIBUTOR_TENANTS_H
#define DISTRIBUTOR_TENANTS_H

#include "common/sys/clock.h"
#include "distributor/options.h"
#include "distributor/write_id.h"

struct tenants;
struct tenant {
    struct str name;            /* owned */
    struct write_secret secret; /* for write ids */
    uint64_t requests;          /* in work */
    uint64_t tokens;            /* bytes that may still be sent now */
    uint64_t refilled_ns;       /* when tokens was worked out */
    uint64_t used_ns;
};

struct tenants *tenants_new(const struct clock *clock, const struct distributor_conf *conf,
                            const struct write_secret *cluster, bool multi);
void tenants_free(struct tenants *t); /* nobody is in work; NULL is fine */
/* Counts a request of so many bytes in. ERR_RATE: too many in work, or too many bytes per second.
 * The tenant stays valid until tenants_leave. */
NODISCARD int tenants_enter(struct tenants *t, struct str name, size_t bytes, struct tenant **ret,
                            struct err *e);
void tenants_leave(struct tenants *t, struct tenant *tenant);
size_t tenants_len(const struct tenants *t);

#endif
