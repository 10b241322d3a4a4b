/* SPDX-License-Identifier: Apache-2.0
 *
 * placed: the newest map, for threads that decode writes. Where it has no steps, as is mostly so, a
 * check is one load of a flag.
 */
#include "ingester/placed.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/sys/thread.h"

struct placed {
    struct view *view;
    _Atomic bool any;
    struct mutex lock;
    const struct map *map; /* a reference; NULL: none with steps */
};

static bool has_steps(const struct map *m)
{
    return m->tenant_steps.len || m->tenants_len || m->services_len;
}

static void on_view(void *cookie)
{
    struct placed *p = cookie;
    const struct map *m = view_ready(p->view) ? view_map_ref(p->view) : NULL, *old;

    if (m && !has_steps(m)) {
        map_unref(m);
        m = NULL;
    }
    mutex_lock(&p->lock);
    old = p->map;
    p->map = m;
    mutex_unlock(&p->lock);
    map_unref(old);
    atomic_store(&p->any, m != NULL);
}

struct placed *placed_new(struct view *v)
{
    struct placed *p = XNEW(struct placed);

    p->view = v;
    mutex_init(&p->lock);
    view_watch(v, on_view, p);
    on_view(p);
    return p;
}

void placed_free(struct placed *p)
{
    if (!p)
        return;
    view_unwatch(p->view, on_view, p);
    map_unref(p->map);
    mutex_deinit(&p->lock);
    xfree(p);
}

/* The latest time in it: a step that is later than that changes nothing about the write. */
static int64_t latest_ms(const struct store_write *w)
{
    uint32_t last = 0;

    for (size_t i = 0; i < w->len; i++)
        for (size_t k = 0; k < w->series[i].len; k++)
            last = MAX(last, w->series[i].vectors[k].slot);
    return slot_to_ms(last);
}

int placed_check(struct placed *p, const struct store_write *w, uint64_t map_version, struct err *e)
{
    const struct map *m;
    int code = 0;

    if (LIKELY(!atomic_load_explicit(&p->any, memory_order_relaxed)))
        return 0;
    mutex_lock(&p->lock);
    m = p->map ? map_ref(p->map) : NULL;
    mutex_unlock(&p->lock);
    if (m && map_outdates(m, w->tenant, w->service, map_version, latest_ms(w)))
        code = err_set(e, ERR_UNAVAILABLE,
                       "it was placed by map %" PRIu64 " of the cluster, and map %" PRIu64
                       " has another place for it: the distributor has not heard of that yet",
                       map_version, m->version);
    map_unref(m);
    return code;
}
