/* SPDX-License-Identifier: Apache-2.0
 *
 * busy: a table of as many services as fit, each with the bytes of this period and a rate that
 * follows them slowly, so that a burst spreads nothing.
 *
 * A service has its place by hash among PROBE neighbours. A new service that finds them taken
 * replaces the slowest and begins at zero. A busy service sends again at once and grows; idle ones
 * are replaced. Rates are reported with two digits, so that the report does not change with every
 * fluctuation.
 */
#include "ingester/shard/top_services.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"

#define SLOTS     512
#define PROBE     8
#define NAME_MOST 512
#define SLOW_MS   30000 /* after so long a rate is two thirds of the new one */

struct entry {
    uint64_t hash; /* 0: free */
    char *names;   /* owned: tenant, then service */
    size_t tenant_len, service_len;
    uint64_t bytes, rate;
};
struct top_services {
    struct entry at[SLOTS];
};

struct top_services *top_services_new(void)
{
    return XNEW(struct top_services);
}

void top_services_free(struct top_services *b)
{
    for (size_t i = 0; b && i < SLOTS; i++)
        xfree(b->at[i].names);
    xfree(b);
}

static uint64_t hash_of(struct str tenant, struct str service)
{
    return hash64(service.ptr, service.len, hash64(tenant.ptr, tenant.len, 1)) | 1;
}

void top_services_add(struct top_services *b, struct str tenant, struct str service, uint64_t bytes)
{
    uint64_t hash = hash_of(tenant, service);
    struct entry *to = NULL;

    for (size_t i = 0; i < PROBE; i++) {
        struct entry *at = &b->at[(hash / 2 + i) % SLOTS];

        if (at->hash == hash) {
            at->bytes += bytes;
            return;
        }
        if (!to || !at->hash || (to->hash && at->rate + at->bytes < to->rate + to->bytes))
            to = at;
        if (!to->hash)
            break;
    }
    if (tenant.len + service.len > NAME_MOST)
        return;
    xfree(to->names);
    *to = (struct entry){ .hash = hash,
                          .names = xmalloc(tenant.len + service.len + 1),
                          .tenant_len = tenant.len,
                          .service_len = service.len,
                          .bytes = bytes };
    if (tenant.len)
        memcpy(to->names, tenant.ptr, tenant.len);
    if (service.len)
        memcpy(to->names + tenant.len, service.ptr, service.len);
}

static uint64_t two_digits(uint64_t n)
{
    uint64_t scale = 1;

    while (n / scale >= 100)
        scale *= 10;
    return n / scale * scale;
}

static int busiest_first(const void *a, const void *b)
{
    const struct progress_service *x = a, *y = b;

    return (x->rate < y->rate) - (x->rate > y->rate);
}

size_t top_services_report(struct top_services *b, uint64_t ms, uint64_t least,
                           struct progress_service *ret, size_t max)
{
    struct progress_service all[SLOTS];
    size_t n = 0;

    ms = MIN(MAX(ms, UINT64_C(1)), (uint64_t)SLOW_MS);
    for (size_t i = 0; i < SLOTS; i++) {
        struct entry *at = &b->at[i];

        if (!at->hash)
            continue;
        uint64_t now = at->bytes * 1000 / ms;
        at->rate = (at->rate * (SLOW_MS - ms) + now * ms) / SLOW_MS;
        at->bytes = 0;
        if (at->rate == 0) {
            xfree(at->names);
            *at = (struct entry){ 0 };
        } else if (at->rate >= least) {
            all[n++] =
                (struct progress_service){ str_n(at->names, at->tenant_len),
                                           str_n(at->names + at->tenant_len, at->service_len),
                                           two_digits(at->rate) };
        }
    }
    qsort(all, n, sizeof(*all), busiest_first);
    n = MIN(n, max);
    if (n)
        memcpy(ret, all, n * sizeof(*ret));
    return n;
}
