/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_recover: the coordination service is lost for good, and people fill the empty one (or the old
 * backup in its place) from what the ingesters keep: `embertreectl cluster recover --apply`, as
 * deploy/ctl/server/recover.c does it, while all other faults continue.
 *
 *   each ingester is asked, one after the other ──> joined ──> looked at ──> written
 *        ^                                            │           │            │
 *        └──── later: one does not answer that is to be waited for, or the service does not ───┘
 *
 * Nodes that are gone permanently, or have nothing on a new disk, are left out (--without); at
 * random also a node that is only down, if all others have all data: entries on most copies of each
 * shard are then on a copy of another node. All acked data must be there.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/rebuild/cluster_dump_merge.h"
#include "common/cluster/rebuild/etcd_rebuild.h"
#include "tests/lib/sim/sim_impl.h"

#define ASK_MS     400
#define AGAIN_MS   2500
#define PATIENCE   3 /* rounds, before a node that is down is left out */
#define SETTLED_MS 120000

struct sim_recovery {
    struct world *w;
    struct timer *timer;
    struct cluster_dump_join *join; /* NULL: a round begins with the next step */
    const struct cluster_dump *all; /* borrowed from join, as of its end */
    size_t at;                      /* of nodes[]: the next to ask */
    uint32_t empty;                 /* bits of nodes[]: they answered, and keep nothing */
    uint32_t rounds;
};

static void step_in(struct sim_recovery *y, uint64_t ms)
{
    loop_timer_start(y->timer, ms, 0);
}

static void again(struct sim_recovery *y, const char *why)
{
    trace(y->w, "what the nodes keep is not written: %s", why);
    cluster_dump_merge_free(y->join);
    y->join = NULL;
    y->rounds++;
    step_in(y, AGAIN_MS);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* As GET /api/v1/cluster/kept does it (common/role/admin/cluster_dump_routes.c). */
static void tell(struct node *n, struct buf *out)
{
    struct cluster_dump k;

    cluster_dump_init(&k, view_ready(n->view) ? view_map_ref(n->view) : NULL);
    (void)snprintf(k.cluster, sizeof(k.cluster), "%s", view_cluster_id(n->view));
    (void)snprintf(k.node, sizeof(k.node), "%s", n->name);
    (void)snprintf(k.stranger, sizeof(k.stranger), "%s", view_stranger(n->view));
    for (uint32_t i = 0; k.map && i < k.map->shards; i++) {
        const struct repl_record *r = view_record(n->view, i, NULL);

        k.shards[i].known = r != NULL;
        if (r)
            k.shards[i].record = *r;
    }
    n->role->kept(n->self, &k);
    cluster_dump_write(&k, out);
    cluster_dump_deinit(&k);
}

static void ask(struct sim_recovery *y, struct node *n)
{
    struct world *w = y->w;
    struct cluster_dump k;
    struct buf text;
    struct err e;

    if (n->state != NODE_UP || n->cut & (CUT_IN | CUT_OUT))
        return;
    buf_init(&text, CLUSTER_DUMP_BYTES_MAX);
    tell(n, &text);
    if (cluster_dump_parse(buf_str(&text), &k, &e) ||
        cluster_dump_merge_add(y->join, &k, n->name, &e))
        broke(w, "what the nodes keep cannot be joined", "%s: %s", n->name, e.text);
    if (!k.map)
        y->empty |= 1u << n->at;
    else if (w->o.mutant == SIM_ONE_ANSWER)
        y->at = w->ingesters;
    cluster_dump_deinit(&k);
    buf_deinit(&text);
}

/* ---- nodes to leave out ---------------------------------------------------------------------- */

static struct node *any_named(struct world *w, const char *name)
{
    for (size_t i = 0; i < SIM_INGESTERS; i++)
        if (strcmp(w->nodes[i]->name, name) == 0)
            return w->nodes[i];
    return NULL;
}

/* It will never tell anything. */
static bool is_lost(const struct sim_recovery *y, const struct node *n)
{
    return n->state == NODE_GONE || n->left || y->w->lost >> n->at & 1 || y->empty >> n->at & 1;
}

/* All those who are missing may be. */
static bool enough(struct sim_recovery *y)
{
    struct world *w = y->w;
    const char *name;
    size_t lost = 0, down = 0;

    for (size_t i = 0; (name = cluster_dump_merge_missing(y->join, i)) != NULL; i++) {
        const struct node *n = any_named(w, name);

        lost += !n || (is_lost(y, n) && n->state != NODE_GONE);
        down += n && !is_lost(y, n);
    }
    if (!down)
        return true;
    if (down > 1 || lost || w->lost || y->rounds < PATIENCE || !ring_solid(w))
        return false;
    count(w)->left_out++;
    return true;
}

/* ---- looking and writing --------------------------------------------------------------------- */

static void give(struct sim_recovery *y, bool look,
                 void (*done)(void *cookie, const struct etcd_rebuild_found *f,
                              const struct err *e))
{
    struct cluster_dump k;
    struct buf text;
    struct err e;

    buf_init(&text, CLUSTER_DUMP_BYTES_MAX);
    cluster_dump_write(y->all, &text);
    CHECK(cluster_dump_parse(buf_str(&text), &k, &e) == 0);
    buf_deinit(&text);
    cluster_recover(&(struct etcd_rebuild_opts){ .coord = y->w->coord,
                                                 .prefix = SIM_PREFIX,
                                                 .what = &k,
                                                 .look = look,
                                                 .done = done,
                                                 .cookie = y });
}

static void on_written(void *cookie, const struct etcd_rebuild_found *f, const struct err *e)
{
    struct sim_recovery *y = cookie;
    struct world *w = y->w;

    (void)f;
    if (e) {
        again(y, e->text);
        return;
    }
    trace(w, "the coordination service is filled again");
    count(w)->recovered++;
    cluster_dump_merge_free(y->join);
    loop_timer_free(y->timer);
    xfree(y);
    w->recovery = NULL;
    forget_over(w);
}

static bool lacks(const struct etcd_rebuild_found *f, uint32_t shards)
{
    bool any = f->id || f->notes || f->map == ETCD_REBUILD_ABSENT || f->map == ETCD_REBUILD_BEHIND;

    for (uint32_t i = 0; i < shards; i++)
        any |= f->shards[i] == ETCD_REBUILD_ABSENT || f->shards[i] == ETCD_REBUILD_BEHIND;
    return any;
}

static void on_looked(void *cookie, const struct etcd_rebuild_found *f, const struct err *e)
{
    struct sim_recovery *y = cookie;
    uint32_t shards = y->all->map->shards;
    struct err why;

    if (e) {
        again(y, e->text);
        return;
    }
    if (lacks(f, shards) && y->w->o.mutant != SIM_ONE_ANSWER)
        cluster_dump_merge_lost(y->join);
    for (uint32_t i = 0; i < shards; i++)
        if (f->shards[i] == ETCD_REBUILD_DIFFERS)
            CHECK(cluster_dump_merge_differs(y->join, i, 0, &why) == 0);
    if (f->map == ETCD_REBUILD_DIFFERS)
        CHECK(cluster_dump_merge_differs(y->join, CLUSTER_SHARDS_MAX, f->map_version, &why) == 0);
    give(y, false, on_written);
}

static void on_step(void *cookie)
{
    struct sim_recovery *y = cookie;
    struct world *w = y->w;
    struct err e;

    if (w->ret->broken)
        return;
    if (!y->join) {
        y->join = cluster_dump_merge_new();
        y->at = 0;
        y->empty = 0;
    }
    if (y->at < w->ingesters) {
        y->at++;
        ask(y, w->nodes[y->at - 1]);
        step_in(y, prng_below(&w->forgets, ASK_MS));
    } else if (cluster_dump_merge_end(y->join, &y->all, &e)) {
        again(y, e.text);
    } else if (w->o.mutant != SIM_ONE_ANSWER && !enough(y)) {
        again(y, "some do not answer");
    } else {
        give(y, true, on_looked);
    }
}

void recover_begin(struct world *w, uint64_t in_ms)
{
    struct sim_recovery *y = XNEW(struct sim_recovery);

    CHECK(!w->recovery);
    y->w = w;
    y->timer = loop_timer_new(w->rpc.loop, on_step, y);
    w->recovery = y;
    step_in(y, in_ms);
}

bool recover_settles(struct world *w)
{
    for (size_t i = 0; i < SETTLED_MS / 100 && w->recovery && !w->ret->broken; i++)
        run_ms(w, 100);
    if (w->recovery)
        broke(w, "the coordination service cannot be filled again", "%s", "");
    return !w->ret->broken;
}
