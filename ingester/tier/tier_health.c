/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_health: the last error of the object store, for /ring, metrics and the log.
 *
 * The cold thread looks before each round and notes the result here; other threads read it under
 * `lock`. A line is logged only when the state changes: an outage is one error and one repair,
 * however many rounds fail. Invariant: until the first look `looked` is false, and no error is
 * shown.
 */
#include "ingester/tier/tier_health.h"

#include "common/obs/log.h"

void tier_health_init(struct tier_health *h)
{
    *h = (struct tier_health){ .looked = false };
    mutex_init(&h->lock);
}

void tier_health_deinit(struct tier_health *h)
{
    mutex_deinit(&h->lock);
}

static bool first_only(void *cookie, struct str name, uint64_t size)
{
    (void)cookie;
    (void)name;
    (void)size;
    return false;
}

/* True: it is news. */
static bool note(struct tier_health *h, const struct err *why, int64_t now_ms)
{
    mutex_lock(&h->lock);
    bool news = !h->looked || h->failing != (why != NULL);
    h->looked = true;
    h->failing = why != NULL;
    if (why)
        h->why = *why;
    if (news)
        h->since_ms = now_ms;
    mutex_unlock(&h->lock);
    return news;
}

int tier_health_look(struct tier_health *h, struct object_store *o, const struct clock *clock,
                     struct err *e)
{
    bool before = h->looked; /* only this thread writes it */
    int rc = e->code;

    if (o) {
        object_deadline(o, clock_mono_ms(clock) + TIER_HEALTH_MS);
        rc = object_list(o, STR("health/"), STR_NULL, first_only, NULL, e);
        object_deadline(o, 0);
    }
    if (rc == ERR_CANCELED)
        return rc;
    if (!note(h, rc ? e : NULL, clock_wall_ms(clock)))
        return rc;
    if (rc)
        log_error("the object store of the cold tier cannot be used: old data stay here, backups "
                  "wait, and queries that need rows from it end with an error",
                  KV_ERR(e));
    else if (before)
        log_info("the object store of the cold tier can be used again",
                 KV_CSTR("store", object_where(o)));
    return rc;
}

void tier_health_refused(struct tier_health *h, const struct object_store *o, const struct err *why)
{
    mutex_lock(&h->lock);
    bool news = (h->refused.code != 0) != (why->code != 0);
    h->refused = *why;
    mutex_unlock(&h->lock);
    if (news && why->code)
        log_error("the objects at cold.url are not those of this ingester's shards: old data stay "
                  "here, nothing is backed up, and queries of what was moved end with an error",
                  KV_ERR(why));
    else if (news)
        log_info("the objects at cold.url are those of this ingester's shards again",
                 KV_CSTR("store", object_where(o)));
}

bool tier_health_trouble(struct tier_health *h, struct err *ret)
{
    mutex_lock(&h->lock);
    const struct err *why = h->refused.code ? &h->refused : h->failing ? &h->why : NULL;
    if (why)
        *ret = *why;
    mutex_unlock(&h->lock);
    return why != NULL;
}

void tier_health_json(struct tier_health *h, struct json *j)
{
    json_obj(j);
    mutex_lock(&h->lock);
    json_put_bool(j, "looked", h->looked);
    json_put_bool(j, "failing", h->failing);
    if (h->looked)
        json_put_i64(j, "sinceMs", h->since_ms);
    if (h->failing)
        json_put_cstr(j, "why", h->why.text);
    if (h->refused.code)
        json_put_cstr(j, "refused", h->refused.text);
    mutex_unlock(&h->lock);
    json_obj_end(j);
}
