/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_world: a run. The cluster makes its map; then pushes, reads, deletes and faults in an order
 * of chance; then all faults end, and everything must come right: no request hangs, all services
 * can be written and read, and all replicas are equal to the byte.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "tests/lib/sim/sim_impl.h"

#define STEPS      260
#define STEPS_MORE 200 /* sim_between.c takes its time */
/* Nothing is lost on the way any more. A copy's answer that was costs 25 s, and 50 s when it was
 * the second in a row (common/repl/file_copy_receive.c); a node stuck in that waits so long, and
 * the moves of a shard come one after the other. */
#define QUIET_MS 120000
#define EQUAL_MS 60000
#define DAY_MS   INT64_C(86400000)

void broke(struct world *w, const char *what, const char *more, ...)
{
    va_list args;

    if (w->ret->broken)
        return;
    w->ret->broken = what;
    va_start(args, more);
    (void)vsnprintf(w->ret->text, sizeof(w->ret->text), more, args);
    va_end(args);
}

void trace(struct world *w, const char *what, ...)
{
    va_list args;

    if (!w->traced)
        return;
    (void)fprintf(stderr, "%" PRIu64 " ", world_ms(w));
    va_start(args, what);
    (void)vfprintf(stderr, what, args);
    va_end(args);
    (void)fputc('\n', stderr);
}

void run_ms(struct world *w, uint64_t ms)
{
    rpc_bed_sleep(&w->rpc, ms);
    nodes_reap(w);
    ring_step(w);
}

/* Only one node ever makes the map: without a fence for it nothing else would happen. Without
 * fences the service is slow: two writers of a record at a time are rare. */
struct coord_faults coordination_calm(const struct world *w)
{
    bool no_fence = w->begun && w->o.mutant == SIM_NO_FENCE;

    return (struct coord_faults){ .delay_min_ms = 1,
                                  .delay_max_ms = no_fence ? 700 : 10,
                                  .no_fence = no_fence };
}

void coordination_open(struct world *w, uint64_t seed)
{
    struct view_opts vo = { .loop = w->rpc.loop, .prefix = SIM_PREFIX };
    struct coord_faults cf = coordination_calm(w);

    w->site = coord_site_new(w->rpc.loop, seed);
    coord_site_faults(w->site, &cf);
    vo.coord = w->coord = coord_sim_new(w->site);
    w->view = view_new_coord(&vo);
}

void coordination_close(struct world *w)
{
    view_free(w->view);
    coord_free(w->coord);
    coord_site_free(w->site);
}

static void world_open(struct world *w)
{
    struct rpc_mem_faults faults = {
        .delay_min_ms = 0, .delay_max_ms = 5, .lost = 0.002, .repeated = 0.002
    };

    prng_init(&w->p, w->o.seed);
    map_str_fix_seed(w->o.seed + 1);
    rpc_bed_init(&w->rpc, RPC_BED_MEM, w->o.seed);
    /* Midnight is half a minute away: expiry is looked at then. */
    clock_fake_jump(&w->rpc.clock, DAY_MS - world_wall_ms(w) % DAY_MS - 30000);
    rpc_mem_faults(w->rpc.net, &faults);
    if (prng_chance(&w->p, 0.5)) {
        count(w)->cold_worlds++;
        w->bucket = sim_bucket_new(w->rpc.loop, w->o.seed * 59, w->o.mutant, count(w));
    }
    coordination_open(w, w->o.seed);
    w->files = prng_chance(&w->p, 0.6);
    w->zones = prng_chance(&w->p, 0.3) || w->o.mutant == SIM_ZONES_LIE;
    w->forgetful = prng_chance(&w->p, 0.15) || w->o.mutant == SIM_LATE_AGAIN;
    count(w)->forgetful += w->forgetful;
    w->aims.mood = (uint32_t)prng_below(&w->p, 3 * SIM_AIMS / 2);
    if (sim_mutant_of_places(w->o.mutant)) /* it takes one of these worlds to see it */
        w->aims.mood = SIM_AIM_PLACE;
    if (w->o.mutant &&
        w->o.mutant == sim_mutant_by_name("ack-before-sync")) /* the power goes behind an ack */
        w->aims.mood = 0;
    trace(w, "mood %" PRIu32, w->aims.mood);
    nodes_init(w);
    aims_open(w);
}

static bool nothing_flies(struct world *w)
{
    size_t most = w->o.mutant == SIM_LATE_AGAIN ? 2000 : 900;

    for (size_t i = 0; i < most && w->flying && !w->ret->broken; i++)
        run_ms(w, 100);
    if (w->flying && !w->ret->broken) {
        struct buf where;
        buf_init(&where, KIB);
        oracle_where(w, &where);
        broke(w, "a request never ends", "%zu do not; %s", w->flying, where.len ? where.ptr : "");
        buf_deinit(&where);
    }
    return !w->ret->broken;
}

static void end_nodes(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_UP)
            node_end(w->nodes[i]);
    for (size_t i = 0; i < 1200 && !nodes_quiet(w); i++)
        run_ms(w, 50);
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_ENDING)
            broke(w, "a node does not end", "%s", w->nodes[i]->name);
}

/* What hangs keeps what it needs. */
static void world_close(struct world *w)
{
    char files[SIM_FILES_DIR];

    if (w->ret->broken)
        return;
    end_nodes(w);
    if (w->ret->broken)
        return;
    nodes_deinit(w);
    sim_files_root((int)getpid(), files);
    (void)rmdir(files);
    aims_close(w);
    coordination_close(w);
    coord_backup_free(w->whole);
    coord_backup_free(w->old);
    sim_bucket_free(w->bucket);
    rpc_bed_deinit(&w->rpc);
    vec_for (i, &w->pushes)
        xfree(w->pushes.ptr[i]);
    vec_free(&w->pushes);
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool readable(struct world *w)
{
    for (uint32_t s = 0; s < SERVICES && !w->ret->broken; s++) {
        uint64_t before = count(w)->reads;

        for (size_t i = 0; i < 8 && count(w)->reads == before && !w->ret->broken; i++) {
            read_new(w, s);
            (void)nothing_flies(w);
        }
        if (!w->ret->broken)
            ask_new(w, s);
        if (count(w)->reads == before)
            broke(w, "nothing can be read though all is well", "%s of %s", services[s].name,
                  services[s].tenant);
    }
    return nothing_flies(w);
}

static bool writable(struct world *w)
{
    uint64_t acked = count(w)->acked;

    for (size_t i = 0; i < 12; i++)
        push_new(w);
    if (nothing_flies(w) && count(w)->acked < acked + 12)
        broke(w, "a push is not taken though all is well", "%" PRIu64 " of 12 are",
              count(w)->acked - acked);
    return !w->ret->broken;
}

/* A node that was cut off, and keeps no shards, may know state that no other node knows any more:
 * it trusts the service again once nodes have used it for a minute and a quarter (view_coord.c). */
static bool believed(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_UP && view_stranger(w->nodes[i]->view)[0])
            return false;
    return !view_stranger(w->view)[0];
}

static bool equal(struct world *w)
{
    struct buf where;

    for (size_t i = 0; i < EQUAL_MS / 100; i++) {
        if (oracle_equal(w)) {
            count(w)->rows_equal++;
            return true;
        }
        run_ms(w, 100);
    }
    buf_init(&where, KIB);
    oracle_where(w, &where);
    broke(w, "the databases of the replicas differ", "%s", where.len ? where.ptr : "");
    buf_deinit(&where);
    return false;
}

static void settle(struct world *w)
{
    w->settling = true;
    for (size_t i = 0; i < 200 && !nodes_quiet(w); i++)
        run_ms(w, 100);
    faults_end(w);
    if (!recover_settles(w) || !nothing_flies(w))
        return;
    for (size_t i = 0; i < QUIET_MS / 100 && !(ring_quiet(w) && believed(w)); i++)
        run_ms(w, 100);
    if (!ring_quiet(w) || !believed(w)) {
        struct buf where;
        buf_init(&where, KIB);
        oracle_where(w, &where);
        broke(w,
              !ring_quiet(w) ? "nodes never come and go as they should"
                             : "the coordination service is never believed",
              "%s", where.len ? where.ptr : "");
        buf_deinit(&where);
        return;
    }
    w->skewed = false;
    for (size_t i = 0; i < w->ingesters && prng_chance(&w->p, 0.7); i++)
        if (w->nodes[i]->state == NODE_UP) /* nothing that comes later heals it */
            refuse_batch(w, w->nodes[i]);
    run_ms(w, 3000);
    if (readable(w) && writable(w) && equal(w))
        (void)readable(w);
}

static void count_end(struct world *w)
{
    struct rpc_mem_stats s = rpc_mem_stats(w->rpc.net);
    int64_t rev;
    const struct map *m = view_map(w->view, &rev);

    for (size_t i = 0; m && i < m->services_len; i++)
        count(w)->spread += m->services[i].steps.len > 0;
    count(w)->frames = s.delivered;
    count(w)->frames_lost = s.lost;
    count(w)->frames_repeated = s.repeated;
    count(w)->simulated_s = world_ms(w) / 1000;
}

void sim_run(const struct sim_opts *o, struct sim_result *ret)
{
    struct world *w = XNEW(struct world);
    struct coord_faults faults;

    *ret = (struct sim_result){ 0 };
    w->o = *o;
    w->ret = ret;
    w->traced = getenv("SIM_TRACE") != NULL;
    world_open(w);
    run_ms(w, 8000); /* the controller makes the map */
    w->begun = true;
    faults = coordination_calm(w);
    coord_site_faults(w->site, &faults);
    for (size_t i = 0; i < STEPS + (w->between.on ? STEPS_MORE : 0) && !ret->broken; i++) {
        uint64_t what = prng_below(&w->p, 100);

        if (what < 50)
            push_new(w);
        else if (what < 68)
            read_new(w, (uint32_t)prng_below(&w->p, SERVICES));
        else if (what < 71)
            delete_new(w);
        else if (what < 75)
            ask_new(w, (uint32_t)prng_below(&w->p, SERVICES));
        else
            fault(w);
        run_ms(w, prng_below(&w->p, 10) == 0 ? prng_below(&w->p, 3000) : prng_below(&w->p, 60));
    }
    if (!ret->broken)
        settle(w);
    if (!ret->broken && w->bucket && (prng_below(&w->p, 7) == 0 || o->mutant == SIM_OLD_BACKUP) &&
        lost_and_restored(w) && readable(w) && equal(w) && writable(w))
        (void)readable(w);
    count_end(w);
    world_close(w);
    if (!ret->broken)
        xfree(w);
}
