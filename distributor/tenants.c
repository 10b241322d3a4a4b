/* SPDX-License-Identifier: Apache-2.0
 *
 * A token bucket per tenant for bytes, a counter for pushes in work. A tenant with a full bucket
 * and
 * nothing in work has no state worth keeping: such ones go first when the table is full. If none
 * can go, all TENANTS_MAX are busy at this moment, and a new one has to come again.
 */
#include "distributor/tenants.h"

#include "common/base/map.h"
#include "common/base/mem.h"

struct tenants {
    struct map_str *by_name; /* of struct tenant, owned */
    const struct distributor_conf *conf;
    struct write_secret secret; /* of the cluster */
    bool many;                  /* with one tenant there is nobody to be fair to */
};

struct tenants *tenants_new(const struct distributor_conf *conf, const struct write_secret *secret,
                            bool many)
{
    struct tenants *t = XNEW(struct tenants);

    t->by_name = map_str_new();
    t->conf = conf;
    t->secret = *secret;
    t->many = many;
    return t;
}

static void tenant_free(struct tenant *tenant)
{
    char *name;

    CHECK(tenant->requests == 0);
    memcpy(&name, &tenant->name.ptr, sizeof(name));
    xfree(name);
    xfree(tenant);
}

void tenants_free(struct tenants *t)
{
    size_t pos = 0;
    struct str name;
    void *val;

    if (!t)
        return;
    while (map_str_next(t->by_name, &pos, &name, &val))
        tenant_free(val);
    map_str_free(t->by_name);
    xfree(t);
}

static void refill(const struct tenants *t, struct tenant *tenant, uint64_t now_ms)
{
    double burst = (double)t->conf->tenant_burst_bytes;

    tenant->tokens +=
        (double)(now_ms - tenant->refilled_ms) / 1000.0 * (double)t->conf->tenant_rate_bytes;
    if (tenant->tokens > burst)
        tenant->tokens = burst;
    tenant->refilled_ms = now_ms;
}

/* Forgets idle tenants; one pass when the table is full, so its cost is spread over many pushes. */
static void make_room(struct tenants *t, uint64_t now_ms)
{
    struct tenant **idle = XNEW_ARRAY(struct tenant *, map_str_len(t->by_name));
    size_t n = 0, pos = 0;
    struct str name;
    void *val;

    while (map_str_next(t->by_name, &pos, &name, &val)) {
        struct tenant *tenant = val;
        refill(t, tenant, now_ms);
        if (tenant->requests == 0 && tenant->tokens >= (double)t->conf->tenant_burst_bytes)
            idle[n++] = tenant;
    }
    for (size_t i = 0; i < n; i++) {
        (void)map_str_del(t->by_name, idle[i]->name);
        tenant_free(idle[i]);
    }
    xfree(idle);
}

static struct tenant *tenant_find(struct tenants *t, struct str name, uint64_t now_ms)
{
    struct tenant *tenant = map_str_get(t->by_name, name);

    if (tenant)
        return tenant;
    if (map_str_len(t->by_name) >= TENANTS_MAX)
        make_room(t, now_ms);
    if (map_str_len(t->by_name) >= TENANTS_MAX)
        return NULL;
    tenant = XNEW(struct tenant);
    tenant->name = str_n(xmemdup(name.ptr, name.len), name.len);
    tenant->secret = write_secret_tenant(&t->secret, name);
    tenant->tokens = (double)t->conf->tenant_burst_bytes;
    tenant->refilled_ms = now_ms;
    (void)map_str_put(t->by_name, tenant->name, tenant);
    return tenant;
}

int tenant_enter(struct tenants *t, struct str name, size_t bytes, uint64_t now_ms,
                 struct tenant **ret, struct err *e)
{
    struct tenant *tenant = tenant_find(t, name, now_ms);

    if (!tenant)
        return err_set(e, ERR_RATE, "%d tenants are busy at once; try again", TENANTS_MAX);
    if (t->many && tenant->requests >= t->conf->tenant_requests)
        return err_set(e, ERR_RATE,
                       "this tenant has %" PRIu64 " pushes in work, which is its limit; send less "
                       "at once",
                       tenant->requests);
    if (t->conf->tenant_rate_bytes) {
        refill(t, tenant, now_ms);
        /* A body larger than the burst passes with a full bucket, and is paid back later. */
        if (tenant->tokens < MIN((double)bytes, (double)t->conf->tenant_burst_bytes))
            return err_set(e, ERR_RATE,
                           "this tenant sends more than %" PRIu64 " bytes a second; slow down",
                           t->conf->tenant_rate_bytes);
        tenant->tokens -= (double)bytes;
    }
    tenant->requests++;
    *ret = tenant;
    return 0;
}

void tenant_leave(struct tenant *tenant)
{
    CHECK(tenant->requests > 0);
    tenant->requests--;
}
