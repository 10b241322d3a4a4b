/* SPDX-License-Identifier: Apache-2.0
 *
 * placed: the newest map, for threads that decode writes. Where it has no steps, as is mostly so, a
 * check is one load of a flag.
 *
 * It also keeps the latest time of admitted writes, by shard, which confirms announcements. A write
 * first publishes its time, then reads the map. A confirmation first publishes the map, then reads
 * the times. So of a write and a confirmation that run at once, at least one sees the other: the
 * write is refused, or its time is part of the confirmation. (All of these are sequentially
 * consistent; most writes only load, since their time is not the latest.)
 *
 * An announced step that was aborted (step_abort.c) is left out of the map that checks use.
 * Before that, its time becomes the latest time of all shards: a confirmation of the aborted step
 * that is still on its way then confirms a later time, and so another step.
 *
 * Reads are checked, too. A querier that is cut off uses its old map, and does not know the shards
 * that a service got since; its answers would lack their rows, and no error would say so. It still
 * asks the old shards. The leader of each has confirmed the announcement before any write may use a
 * new shard, or began to lead later. So it refuses queries by an older map.
 *
 * Backups say by which map their rows were placed. Maps of writes that this process admitted are
 * counted here. Writes that another leader admitted, or this one before a restart, are older than
 * the moment at which this term was established. This process received that record, and all maps
 * that the coordination service had by then, from one watch, in order (view_coord.c). The view's
 * file keeps a record with the map, but not what was received later, so the service must have
 * answered since the start.
 */
#include "ingester/shard/placement_guard.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/cluster/map/map_pending.h"
#include "common/model/slot.h"
#include "common/obs/log.h"
#include "common/sys/thread.h"

#define GRACE_MS 300

struct placement_guard {
    struct view *view;
    _Atomic bool any;
    struct mutex lock;
    const struct map *map; /* a reference; NULL: none with steps */
    const struct map *now; /* a reference; NULL: none yet */
    const struct clock *clock;
    uint32_t mutants;
    uint64_t version, told;  /* of the view's map at its last change; that was confirmed. Loop */
    uint64_t since_ms;       /* monotonic: `since` is known so long; loop */
    _Atomic uint64_t since;  /* map_places_since of the view's map */
    _Atomic uint64_t floor;  /* the same: reads by an earlier map are refused */
    uint64_t gave_up;        /* the version that announced the aborted step; 0: none. Loop */
    _Atomic int64_t gone_ms; /* its time; 0: none */
    _Atomic int64_t newest_ms[CLUSTER_SHARDS_MAX];
    _Atomic uint64_t highest[CLUSTER_SHARDS_MAX]; /* version of a map that a write was placed by */
    _Atomic bool settled[CLUSTER_SHARDS_MAX];     /* its term is established, as heard */
};

/* Whatever is in the map from now on holds for reads. Any thread. */
static void settle(struct placement_guard *p)
{
    uint64_t since = atomic_load(&p->since), was = atomic_load(&p->floor);

    while (was < since && !atomic_compare_exchange_weak(&p->floor, &was, since))
        ;
}

/* Takes the reference. */
static const struct map *without_given_up(const struct placement_guard *p, const struct map *m)
{
    const struct map *rest;
    struct map_whose w;
    struct err e;

    if (!m || !p->gave_up || !map_pending_announced(m, &w) ||
        map_whose_steps(m, &w)->next.version != p->gave_up || map_pending_ignore(m, &w, &rest, &e))
        return m;
    map_unref(m);
    return rest;
}

static void look_at_terms(struct placement_guard *p)
{
    bool heard = view_knows_liveness(p->view);

    for (uint32_t i = 0; i < view_shards(p->view); i++) {
        const struct repl_record *r = heard ? view_record(p->view, i, NULL) : NULL;

        atomic_store_explicit(&p->settled[i], r && r->established, memory_order_relaxed);
    }
}

static void on_view(void *cookie)
{
    struct placement_guard *p = cookie;
    const struct map *m = view_ready(p->view) ? view_map_ref(p->view) : NULL, *old, *before;

    p->version = m ? m->version : 0;
    if (m && map_places_since(m) > atomic_load(&p->since)) {
        p->since_ms = clock_mono_ms(p->clock);
        atomic_store(&p->since, map_places_since(m));
    }
    mutex_lock(&p->lock);
    before = p->now;
    p->now = m ? map_ref(m) : NULL;
    look_at_terms(p); /* a thread that sees the terms sees this map */
    mutex_unlock(&p->lock);
    map_unref(before);
    m = without_given_up(p, m);
    if (m && !map_has_steps(m)) {
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

void placement_guard_give_up(struct placement_guard *p, uint64_t version)
{
    const struct map *m = view_ready(p->view) ? view_map_ref(p->view) : NULL;
    struct map_whose w;

    if (m && map_pending_announced(m, &w) && map_whose_steps(m, &w)->next.version == version) {
        atomic_store(&p->gone_ms,
                     MAX(atomic_load(&p->gone_ms), map_whose_steps(m, &w)->next.from_ms));
        p->gave_up = version;
        log_warn("etcd is away, and a change of places was announced that is not valid yet: its "
                 "controller aborted it, so writes continue in the old places",
                 KV_U64("map", version));
        on_view(p);
    }
    map_unref(m);
}

uint64_t placement_guard_gave_up(const struct placement_guard *p)
{
    return p->gave_up;
}

/* Queriers receive a map at about the same time as this process, so a query by the previous map is
 * not an error yet. Reads by it are refused GRACE_MS later, and the map is confirmed only then. */
uint64_t placement_guard_version(struct placement_guard *p)
{
    uint64_t since = atomic_load(&p->since);

    if (atomic_load(&p->floor) < since && clock_mono_ms(p->clock) - p->since_ms < GRACE_MS)
        return p->told;
    settle(p);
    p->told = p->version;
    return p->told;
}

void placement_guard_note_time(struct placement_guard *p, uint32_t shard, int64_t newest_ms)
{
    int64_t was;

    CHECK(shard < CLUSTER_SHARDS_MAX);
    was = atomic_load(&p->newest_ms[shard]);
    while (was < newest_ms && !atomic_compare_exchange_weak(&p->newest_ms[shard], &was, newest_ms))
        ;
}

void placement_guard_begins(struct placement_guard *p, uint32_t shard, int64_t newest_ms)
{
    settle(p); /* a leader before us may have confirmed it */
    placement_guard_note_time(p, shard, newest_ms);
}

const struct map *placement_guard_map(struct placement_guard *p, uint32_t shard, bool *ret_all)
{
    uint64_t highest = shard < CLUSTER_SHARDS_MAX ? atomic_load(&p->highest[shard]) : UINT64_MAX;
    const struct map *m;

    mutex_lock(&p->lock);
    m = p->now ? map_ref(p->now) : NULL;
    *ret_all = m && m->version >= highest && atomic_load(&p->settled[shard]);
    mutex_unlock(&p->lock);
    return m;
}

int64_t placement_guard_newest_ms(const struct placement_guard *p, uint32_t shard)
{
    CHECK(shard < CLUSTER_SHARDS_MAX);
    int64_t newest = MAX(atomic_load(&p->newest_ms[shard]), INT64_C(1));

    return MAX(newest, atomic_load(&p->gone_ms));
}

struct placement_guard *placement_guard_new(struct view *v, const struct clock *clock,
                                            uint32_t mutants)
{
    struct placement_guard *p = XNEW(struct placement_guard);

    p->view = v;
    p->clock = clock;
    p->mutants = mutants;
    mutex_init(&p->lock);
    view_watch(v, on_view, p);
    on_view(p);
    settle(p); /* the map of the file may have been confirmed before the restart */
    return p;
}

void placement_guard_free(struct placement_guard *p)
{
    if (!p)
        return;
    view_unwatch(p->view, on_view, p);
    map_unref(p->map);
    map_unref(p->now);
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

static int refuse(const struct map *m, uint64_t map_version, struct err *e)
{
    if (map_version == m->version)
        return err_set(e, ERR_UNAVAILABLE,
                       "map %" PRIu64
                       " of the cluster announces another shard for this service, and "
                       "this ingester does not know yet whether that is valid; try again",
                       m->version);
    return err_set(e, ERR_UNAVAILABLE,
                   "the distributor used cluster map %" PRIu64 ", and map %" PRIu64
                   " moved this service to another shard; the distributor will try again with "
                   "the newer map",
                   map_version, m->version);
}

static void raise_highest(struct placement_guard *p, uint32_t shard, uint64_t version)
{
    uint64_t was = atomic_load(&p->highest[shard]);

    while (was < version && !atomic_compare_exchange_weak(&p->highest[shard], &was, version))
        ;
}

int placement_guard_check(struct placement_guard *p, uint32_t shard, const struct store_write *w,
                          uint64_t map_version, struct err *e)
{
    int64_t latest = latest_ms(w);
    const struct map *m;
    int code = 0;

    if (shard < CLUSTER_SHARDS_MAX) {
        placement_guard_note_time(p, shard, latest);
        raise_highest(p, shard, map_version);
    }
    if (LIKELY(!atomic_load(&p->any)) || (p->mutants & PLACEMENT_GUARD_TAKES_ALL))
        return 0;
    mutex_lock(&p->lock);
    m = p->map ? map_ref(p->map) : NULL;
    mutex_unlock(&p->lock);
    if (m && map_outdates(m, w->tenant, w->service, map_version, latest))
        code = refuse(m, map_version, e);
    map_unref(m);
    return code;
}

int placement_guard_read(const struct placement_guard *p, uint64_t map_version, struct err *e)
{
    uint64_t since = atomic_load(&p->floor);

    if (!map_version || map_version >= since || (p->mutants & PLACEMENT_GUARD_ANSWERS_ALL))
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "the querier used cluster map %" PRIu64 ", and map %" PRIu64
                   " may name more shards to ask; the querier will try again with the newer map",
                   map_version, since);
}
