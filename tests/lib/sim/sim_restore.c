/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_restore: the end of some worlds with a cold tier. All is well, and everything is in backups;
 * clients continue for a moment; then every disk is lost, and all that the coordination service
 * knew. An operator restores the newest backups to two folders and makes those the first copies of
 * a new cluster (deploy/docs/BACKUP.md, "When every disk is lost"); the other nodes come with empty
 * disks. Where services that were spread are is kept with the backups.
 *
 * Data acked before that moment must be there once; data acked during it may be there or not.
 */
#include <stdio.h>

#include "common/base/hash.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/placement_history.h"
#include "common/cluster/rebuild/adopt.h"
#include "common/cold/backup.h"
#include "common/cold/backup_places.h"
#include "common/repl/apply.h"
#include "common/repl/repl_bootstrap.h"
#include "tests/lib/sim/sim_impl.h"

#define IN_BACKUPS_MS 40000 /* cold.backup_interval is 15 s */
#define ADOPTED_MS    30000
#define FOLDERS       2

/* ---- it is lost ------------------------------------------------------------------------------ */

static void go_on_for_a_moment(struct world *w)
{
    size_t before = w->pushes.len;

    for (size_t i = 0; i < 12; i++) {
        push_new(w);
        run_ms(w, prng_below(&w->p, 400));
    }
    for (size_t i = 0; i < 900 && w->flying; i++)
        run_ms(w, 100);
    for (size_t i = before; i < w->pushes.len; i++)
        if (w->pushes.ptr[i]->state == PUSH_ACKED)
            w->pushes.ptr[i]->state = PUSH_MAYBE;
}

static bool lose_everything(struct world *w)
{
    count(w)->restores++;
    trace(w, "every disk is lost");
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];

        if (n->state != NODE_UP)
            continue;
        n->wipe = n->has_disk;
        (void)node_crash(n, true, CRASH_SLOW);
    }
    for (size_t i = 0; i < 1200 && !nodes_quiet(w); i++)
        run_ms(w, 50);
    if (!nodes_quiet(w)) {
        broke(w, "a node does not end", "%s", "after all lost their disks");
        return false;
    }
    aims_close(w);
    coordination_close(w);
    coordination_open(w, w->o.seed + 1);
    aims_open(w);
    return true;
}

/* ---- it is restored -------------------------------------------------------------------------- */

static void on_part(void *cookie, uint64_t bytes)
{
    (void)cookie, (void)bytes;
}

static int restore_shard(struct world *w, struct object_store *o, struct sim_disk *d,
                         uint32_t shard, struct err *e)
{
    const char *data = d->dir[0] ? d->dir : "memory";
    char dir[SIM_FILES_DIR + 80], log[SIM_FILES_DIR + 80];
    struct backup_head h;
    struct kv *kv;
    uint64_t number;
    int code = backup_newest(o, shard, &number, &h, e);

    if (code)
        return code;
    trace(w, "shard %" PRIu32 " is restored as of %" PRId64 " ms ago", shard,
          world_wall_ms(w) - h.wall_ms);
    (void)snprintf(dir, sizeof(dir), "%s/shard-%" PRIu32, data, shard);
    (void)snprintf(log, sizeof(log), "%s/log-%" PRIu32, data, shard);
    code = d->source.open(&d->source, &(struct kv_opts){ .dir = dir }, &kv, e);
    if (!code)
        code = backup_restore(o, &h, kv, on_part, NULL, e);
    if (!code)
        code = apply_forget(kv, e);
    if (!code)
        code = repl_adopt(&d->fs, log, kv, e);
    backup_head_deinit(&h);
    return code;
}

/* As deploy/ctl/local/restore.c does. */
static int restore_places(struct world *w, struct object_store *o, const struct map **ret,
                          struct err *e)
{
    struct backup_places_all all;
    int code = backup_places_list(o, &all, e);

    *ret = NULL;
    for (size_t i = 0; !code && i < all.at.len; i++) {
        const struct map *one = NULL, *both = NULL;
        struct buf text;

        buf_init(&text, BACKUP_PLACES_MAX);
        code = backup_places_get(o, &all.at.ptr[i], &text, e);
        if (!code)
            code = map_parse("places", buf_str(&text), false, &one, e);
        if (!code && *ret)
            code = placement_history_join(*ret, one, &both, e);
        buf_deinit(&text);
        if (both) {
            map_unref(*ret);
            map_unref(one);
            one = both;
        }
        *ret = one ? one : *ret;
    }
    backup_places_deinit(&all);
    trace(w, "places are restored as of map %" PRIu64, *ret ? (*ret)->version : 0);
    return code;
}

static bool restore(struct world *w, struct node *const nodes[FOLDERS], const struct map **places)
{
    struct object_store *o;
    struct sim_objects s;
    struct err e;
    int code;

    sim_objects_init(&s, w->bucket);
    CHECK(s.source.open(&s.source, &o, &e) == 0);
    if (restore_places(w, o, places, &e))
        broke(w, "places of services cannot be restored", "%s", e.text);
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        code = restore_shard(w, o, &nodes[i % FOLDERS]->disk, i, &e);
        if (code) {
            broke(w, "a backup cannot be restored", "shard %" PRIu32 ": %s", i, e.text);
            break;
        }
    }
    object_close(o);
    return !w->ret->broken;
}

static void on_adopted(void *cookie, const struct err *e)
{
    struct world *w = cookie;

    w->flying--;
    if (e)
        broke(w, "what was restored cannot be adopted", "%s", e->text);
}

static bool adopt(struct world *w, struct node *const nodes[FOLDERS], const struct map *places)
{
    const char *names[FOLDERS];

    for (size_t i = 0; i < FOLDERS; i++)
        names[i] = nodes[i]->name;
    for (size_t i = 0; i < FOLDERS; i++) {
        uint8_t chance[CLUSTER_ID_BYTES];
        char id[CLUSTER_ID_LEN + 1];
        struct adopt_opts o = { .coord = w->coord,
                                .prefix = SIM_PREFIX,
                                .self = names[i],
                                .id = hash64(names[i], strlen(names[i]), 1),
                                .folder = names[i],
                                .cluster_id = id,
                                .plan = { SIM_SHARDS, 3, names, FOLDERS },
                                .places = places };

        for (size_t k = 0; k < sizeof(chance); k++)
            chance[k] = (uint8_t)prng_u64(&w->p);
        cluster_id_make(chance, id);
        w->flying++;
        cluster_adopt(&o, on_adopted, w);
    }
    for (size_t i = 0; i < ADOPTED_MS / 100 && w->flying && !w->ret->broken; i++)
        run_ms(w, 100);
    if (w->flying)
        broke(w, "what was restored cannot be adopted", "in %d ms", ADOPTED_MS);
    return !w->ret->broken;
}

/* The services are spread without a new request. */
static bool spread_as_before(struct world *w, const bool spread[SERVICES])
{
    for (uint32_t s = 0; s < SERVICES; s++)
        if (spread[s] && !place_is_two(w, s)) {
            broke(w, "a spread service is not where it was", "service %" PRIu32, s);
            return false;
        }
    return true;
}

bool lost_and_restored(struct world *w)
{
    const struct map *places = NULL;
    bool spread[SERVICES], good;
    struct node *nodes[FOLDERS];
    size_t n = 0;

    for (uint32_t s = 0; s < SERVICES; s++) /* what comes later may come behind the last backup */
        spread[s] = place_is_two(w, s);
    sim_bucket_faults(w->bucket)->away = w->o.mutant == SIM_OLD_BACKUP;
    run_ms(w, IN_BACKUPS_MS);
    go_on_for_a_moment(w);
    sim_bucket_faults(w->bucket)->away = false;
    if (w->ret->broken || !lose_everything(w))
        return false;
    for (size_t i = 0; i < w->ingesters && n < FOLDERS; i++)
        if (w->nodes[i]->state == NODE_OFF)
            nodes[n++] = w->nodes[i];
    CHECK(n == FOLDERS);
    good = restore(w, nodes, &places) && adopt(w, nodes, places);
    map_unref(places);
    if (!good)
        return false;
    for (size_t i = 0; i < SIM_NODES; i++) {
        w->nodes[i]->draining = 0;
        if (w->nodes[i]->state == NODE_OFF && (i >= FIRST_DIST || i < w->ingesters))
            node_start(w->nodes[i]);
    }
    for (size_t i = 0; i < 2700 && !ring_whole(w); i++)
        run_ms(w, 100);
    if (!ring_whole(w))
        broke(w, "what was restored gets no copies", "%s", "");
    return !w->ret->broken && spread_as_before(w, spread);
}
