/* SPDX-License-Identifier: Apache-2.0
 *
 * actives.c: two hash sets of series; after half an hour the older one is dropped.
 *
 * A series that is only in `before` is copied to `now` when it is pushed again, and counted in
 * `moved`, so that it does not count twice. The sets have hashes, not labels: two series with one
 * hash count as one, which errs on the side of the tenant. Lock: `lock` guards all fields.
 */
#include "distributor/rules/actives.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "distributor/rules/apply.h"

#define SEED UINT64_C(0x616374697665)

struct actives *actives_new(uint64_t now_ms)
{
    struct actives *a = XNEW(struct actives);

    mutex_init(&a->lock);
    map_u64_init(&a->now);
    map_u64_init(&a->before);
    a->turned_ms = now_ms;
    return a;
}

void actives_free(struct actives *a)
{
    if (!a)
        return;
    map_u64_deinit(&a->now);
    map_u64_deinit(&a->before);
    mutex_deinit(&a->lock);
    xfree(a);
}

static void turn(struct actives *a, uint64_t now_ms)
{
    bool long_ago = now_ms - a->turned_ms >= 2 * ACTIVES_MS;
    struct map_u64 old = a->before;

    if (now_ms - a->turned_ms < ACTIVES_MS)
        return;
    a->before = a->now;
    a->now = old;
    map_u64_deinit(&a->now); /* its size was that of an hour ago */
    map_u64_init(&a->now);
    if (long_ago)
        map_u64_reset(&a->before);
    a->moved = 0;
    a->turned_ms = now_ms;
}

static bool admit(struct actives *a, uint64_t series, uint64_t max)
{
    if (map_u64_get(&a->now, series) != MAP_U64_EMPTY)
        return true;
    if (map_u64_get(&a->before, series) != MAP_U64_EMPTY)
        a->moved++;
    else if (a->now.len + a->before.len - a->moved >= max)
        return false;
    (void)map_u64_put(&a->now, series, 1);
    return true;
}

int actives_admit(struct actives *a, const struct push *p, uint64_t max, uint64_t now_ms,
                  struct err *e)
{
    bool ok = true;

    mutex_lock(&a->lock);
    turn(a, now_ms);
    for (size_t i = 0; ok && i < p->series_len; i++)
        ok = admit(a, labels_hash(&p->series[i].labels, SEED), max);
    mutex_unlock(&a->lock);
    if (ok)
        return 0;
    return err_set_again(e, ERR_RATE, ACTIVES_AGAIN_S,
                         "series_limit: this tenant has %" PRIu64
                         " active series, which is its limit: use fewer label values, wait until "
                         "others were not written for an hour, or raise its max_series_per_tenant "
                         "in distributor.overrides_file",
                         max);
}

int actives_admit_services(struct actives *a, const struct push *p, uint64_t max, uint64_t now_ms,
                           struct err *e)
{
    struct str before = STR_NULL;
    bool ok = true;

    mutex_lock(&a->lock);
    turn(a, now_ms);
    for (size_t i = 0; ok && i < p->series_len; i++) {
        struct str name = rules_service(&p->series[i]);
        if (i == 0 || !str_eq(name, before))
            ok = admit(a, hash64(name.ptr, name.len, SEED), max);
        before = name;
    }
    mutex_unlock(&a->lock);
    if (ok)
        return 0;
    return err_set_again(e, ERR_RATE, ACTIVES_AGAIN_S,
                         "services_limit: this tenant has %" PRIu64
                         " active services, which is its limit: use fewer names of services, wait "
                         "until others were not written for an hour, or raise its "
                         "max_services_per_tenant in distributor.overrides_file",
                         max);
}
