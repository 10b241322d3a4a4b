/* SPDX-License-Identifier: Apache-2.0
 *
 * tenants: a row per tenant seen lately.
 *
 * With one tenant only the bound on requests does not apply: the process-wide budgets are his. The
 * byte rate is a token bucket that refills continuously; a body larger than the whole bucket passes
 * when the bucket is full, so that a burst limit below the body limit does not lock anybody out.
 *
 * Names come from a header, so rows must not pile up: when there are many, those that have nothing
 * in work and a full bucket (nothing would be forgotten) go.
 */
#include "distributor/tenants.h"

#include "common/base/map.h"
#include "common/base/mem.h"

#define SWEEP_FROM   1024 /* rows; then at every doubling */
#define SWEEP_AGE_NS UINT64_C(60000000000)
#define NS_PER_S     1e9

struct tenants {
    const struct clock *clock;
    const struct distributor_conf *conf;
    struct write_secret cluster;
    bool multi;
    struct map_str *rows; /* name -> struct tenant, owned */
    size_t sweep_at;
};

struct tenants *tenants_new(const struct clock *clock, const struct distributor_conf *conf,
                            const struct write_secret *cluster, bool multi)
{
    struct tenants *t = XNEW(struct tenants);

    *t = (struct tenants){ .clock = clock,
                           .conf = conf,
                           .cluster = *cluster,
                           .multi = multi,
                           .rows = map_str_new(),
                           .sweep_at = SWEEP_FROM };
    return t;
}

static void tenant_free(struct tenant *row)
{
    xfree((void *)(uintptr_t)row->name.ptr);
    xfree(row);
}

void tenants_free(struct tenants *t)
{
    struct str name;
    void *row;
    size_t pos = 0;

    if (!t)
        return;
    while (map_str_next(t->rows, &pos, &name, &row)) {
        CHECK(((struct tenant *)row)->requests == 0);
        tenant_free(row);
    }
    map_str_free(t->rows);
    xfree(t);
}

size_t tenants_len(const struct tenants *t)
{
    return map_str_len(t->rows);
}

/* At most the burst. */
static void refill(const struct tenants *t, struct tenant *row, uint64_t now)
{
    uint64_t burst = t->conf->tenant_burst_bytes, rate = t->conf->tenant_rate_bytes;
    double more = (double)(now - row->refilled_ns) * (double)rate / NS_PER_S;

    if (rate == 0 || more < 1)
        return; /* keep the time that has passed until it is worth a byte */
    row->tokens = more >= (double)(burst - row->tokens) ? burst : row->tokens + (uint64_t)more;
    row->refilled_ns = now;
}

static void sweep(struct tenants *t, uint64_t now)
{
    struct map_str *kept = map_str_new();
    struct str name;
    void *at;
    size_t pos = 0;

    while (map_str_next(t->rows, &pos, &name, &at)) {
        struct tenant *row = at;
        refill(t, row, now);
        bool idle = row->requests == 0 && now - row->used_ns > SWEEP_AGE_NS &&
                    (t->conf->tenant_rate_bytes == 0 || row->tokens == t->conf->tenant_burst_bytes);
        if (idle)
            tenant_free(row);
        else
            map_str_put(kept, row->name, row);
    }
    map_str_free(t->rows);
    t->rows = kept;
    t->sweep_at = MAX(SWEEP_FROM, map_str_len(kept) * 2);
}

static struct tenant *find_or_add(struct tenants *t, struct str name, uint64_t now)
{
    struct tenant *row = map_str_get(t->rows, name);

    if (row)
        return row;
    if (map_str_len(t->rows) >= t->sweep_at)
        sweep(t, now);
    row = XNEW(struct tenant);
    row->name = str_n(xmemdup(name.ptr, name.len), name.len);
    row->secret = write_secret_tenant(&t->cluster, name);
    row->tokens = t->conf->tenant_burst_bytes;
    row->refilled_ns = now;
    map_str_put(t->rows, row->name, row);
    return row;
}

int tenants_enter(struct tenants *t, struct str name, size_t bytes, struct tenant **ret,
                  struct err *e)
{
    uint64_t now = clock_mono_ns(t->clock);
    struct tenant *row = find_or_add(t, name, now);
    uint64_t cost = MIN(bytes, t->conf->tenant_burst_bytes);

    row->used_ns = now;
    refill(t, row, now);
    if (t->multi && row->requests >= t->conf->tenant_requests)
        return err_set(e, ERR_RATE, "tenant has %" PRIu64 " pushes in work, at most %" PRIu64,
                       row->requests, t->conf->tenant_requests);
    if (t->conf->tenant_rate_bytes && cost > row->tokens)
        return err_set(e, ERR_RATE, "tenant is over %" PRIu64 " bytes per second",
                       t->conf->tenant_rate_bytes);
    if (t->conf->tenant_rate_bytes)
        row->tokens -= cost;
    row->requests++;
    *ret = row;
    return 0;
}

void tenants_leave(struct tenants *t, struct tenant *tenant)
{
    (void)t;
    CHECK(tenant->requests > 0);
    tenant->requests--;
}
