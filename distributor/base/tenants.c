/* SPDX-License-Identifier: Apache-2.0
 *
 * A token bucket per tenant for bytes, a counter for pushes in work. A tenant with a full bucket
 * and nothing in work has no state worth keeping: such tenants are forgotten when the table is
 * full. If all TENANTS_MAX are busy at this moment, a push of a new tenant is refused and has to be
 * retried.
 */
#include "distributor/base/tenants.h"

#include <stdio.h>

#include "common/base/map.h"
#include "common/base/mem.h"

#define PART_TEXT_MAX 96

struct tenants {
    struct map_str *by_name; /* of struct tenant, owned */
    const struct distributor_conf *conf;
    struct write_secret secret; /* of the cluster */
    bool knows_secret;
    bool many; /* false: one tenant, so limits between tenants do not hold */
    void (*rates)(void *cookie, struct str tenant, struct tenant_rates *ret);
    void *rates_cookie;
    uint64_t parts; /* this distributor allows one in so many of a limit */
};

struct tenants *tenants_new(const struct distributor_conf *conf, const struct write_secret *secret,
                            bool many)
{
    struct tenants *t = XNEW(struct tenants);

    t->by_name = map_str_new();
    t->conf = conf;
    t->parts = MAX(conf->limits_of, 1);
    t->many = many;
    if (secret)
        tenants_secret(t, secret);
    return t;
}

void tenants_secret(struct tenants *t, const struct write_secret *secret)
{
    CHECK(!t->knows_secret);
    t->secret = *secret;
    t->knows_secret = true;
}

void tenants_rates(struct tenants *t,
                   void (*fn)(void *cookie, struct str tenant, struct tenant_rates *ret),
                   void *cookie)
{
    t->rates = fn;
    t->rates_cookie = cookie;
}

void tenants_part(struct tenants *t, uint64_t n)
{
    CHECK(n >= 1);
    t->parts = n;
}

static void tenant_free(struct tenant *tenant)
{
    char *name;

    CHECK(tenant->requests == 0 && share_held(&tenant->held) == 0);
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

static void refill(struct tenant *tenant, uint64_t now_ms)
{
    double burst = (double)tenant->rates.burst_bytes;

    tenant->tokens +=
        (double)(now_ms - tenant->refilled_ms) / 1000.0 * (double)tenant->rates.rate_bytes;
    if (tenant->tokens > burst)
        tenant->tokens = burst;
    tenant->refilled_ms = now_ms;
    if (now_ms - tenant->period_ms >= tenant->rates.ingest_ms) {
        tenant->period_ms = now_ms;
        tenant->period_bytes = 0;
    }
}

/* The part of this distributor of a limit. 0 stays 0: no limit. */
static uint64_t divided(uint64_t limit, uint64_t of)
{
    return limit && of > 1 ? MAX(limit / of, 1) : limit;
}

/* A tenant that had no limit until now starts with a full bucket. */
static void set_rates(const struct tenants *t, struct tenant *tenant)
{
    struct tenant_rates r = { .rate_bytes = t->conf->tenant_rate_bytes,
                              .burst_bytes = t->conf->tenant_burst_bytes };

    if (t->rates)
        t->rates(t->rates_cookie, tenant->name, &r);
    r.rate_bytes = divided(r.rate_bytes, t->parts);
    r.ingest_bytes = divided(r.ingest_bytes, t->parts);
    if (!tenant->rates.rate_bytes || r.burst_bytes > tenant->rates.burst_bytes)
        tenant->tokens = (double)r.burst_bytes;
    tenant->rates = r;
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
        refill(tenant, now_ms);
        bool full =
            !tenant->rates.rate_bytes || tenant->tokens >= (double)tenant->rates.burst_bytes;
        if (tenant->requests == 0 && full && (!tenant->rates.ingest_bytes || !tenant->period_bytes))
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
    tenant->refilled_ms = tenant->period_ms = now_ms;
    list_init(&tenant->undecoded);
    tenant->share = t->many ? &tenant->held : NULL;
    (void)map_str_put(t->by_name, tenant->name, tenant);
    return tenant;
}

/* Behind a limit in an error: which part of the tenant's it is. */
static const char *part_text(const struct tenants *t, char text[PART_TEXT_MAX])
{
    text[0] = 0;
    if (t->parts > 1)
        (void)snprintf(text, PART_TEXT_MAX,
                       " to this distributor, its part of the limit, which %" PRIu64 " share",
                       t->parts);
    return text;
}

static int over_stored(const struct tenant_rates *r, struct err *e)
{
    return err_set_again(e, ERR_RATE, TENANTS_STORED_AGAIN_S,
                         "stored_bytes_limit: this tenant has %" PRIu64
                         " bytes stored, more than its limit of %" PRIu64
                         "; wait until retention or a delete has removed some, or raise its "
                         "max_stored_bytes_per_tenant in distributor.overrides_file",
                         r->stored, r->stored_max);
}

int tenant_enter(struct tenants *t, struct str name, size_t bytes, uint64_t now_ms,
                 struct tenant **ret, struct err *e)
{
    struct tenant *tenant;
    char part[PART_TEXT_MAX];

    if (!t->knows_secret)
        return err_set(
            e, ERR_UNAVAILABLE,
            "the distributors have not agreed on the secret of write ids yet; try again");
    tenant = tenant_find(t, name, now_ms);
    if (!tenant)
        return err_set(e, ERR_RATE, "%d tenants are busy at once; try again", TENANTS_MAX);
    if (t->many && tenant->requests >= t->conf->tenant_requests)
        return err_set(e, ERR_RATE,
                       "this tenant has %" PRIu64 " pushes in work, which is its limit "
                       "(distributor.tenant_requests); send less at once",
                       tenant->requests);
    set_rates(t, tenant);
    refill(tenant, now_ms);
    const struct tenant_rates *r = &tenant->rates;
    if (r->stored_max && r->stored > r->stored_max)
        return over_stored(r, e);
    if (r->ingest_bytes && tenant->period_bytes + bytes > r->ingest_bytes) {
        uint64_t again_s = (r->ingest_ms - (now_ms - tenant->period_ms)) / 1000 + 1;
        return err_set_again(e, ERR_RATE, (uint32_t)MIN(again_s, UINT32_MAX),
                             "ingest_limit_reached: this tenant may send %" PRIu64
                             " bytes in %" PRIu64 " s%s, and again in %" PRIu64
                             " s (ingest_limits of the tenant in "
                             "distributor.overrides_file)",
                             r->ingest_bytes, r->ingest_ms / 1000, part_text(t, part), again_s);
    }
    /* A body larger than the burst passes with a full bucket, and is paid back later. */
    if (r->rate_bytes && tenant->tokens < MIN((double)bytes, (double)r->burst_bytes))
        return err_set(e, ERR_RATE,
                       "rate_limited: this tenant sends more than %" PRIu64
                       " bytes a second%s; slow down, or raise its ingestion_rate_mb in "
                       "distributor.overrides_file",
                       r->rate_bytes, part_text(t, part));
    tenant->tokens -= r->rate_bytes ? (double)bytes : 0;
    tenant->period_bytes += r->ingest_bytes ? bytes : 0;
    tenant->requests++;
    *ret = tenant;
    return 0;
}

void tenant_refund(struct tenant *tenant, size_t bytes)
{
    tenant->period_bytes -= MIN(tenant->period_bytes, bytes);
}

void tenant_enter_again(struct tenant *tenant)
{
    CHECK(tenant->requests > 0);
    tenant->requests++;
}

void tenant_leave(struct tenant *tenant)
{
    CHECK(tenant->requests > 0);
    tenant->requests--;
}
