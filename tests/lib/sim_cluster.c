/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_cluster: each push has a stack of its own and a value, so that every single one can be looked
 * for in a read. At any read: what was acked before it began is there, once; what was never pushed
 * is not. When all is healed and quiet: the same, and the databases of all replicas are equal to
 * the last byte.
 *
 * A crash takes the node off the network first, then ends the role as a drain would (nobody sees
 * it), and cuts the power of its disks: what was not synced may be lost or torn.
 */
#include "tests/lib/sim_cluster.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/cluster/coord_sim.h"
#include "common/cluster/view.h"
#include "common/model/slot.h"
#include "common/repl/apply.h"
#include "common/role/options.h"
#include "common/role/route.h"
#include "common/store/kv_impl.h"
#include "common/store/kv_mem.h"
#include "proto/query.pb-c.h"
#include "tests/lib/ingester_bed.h"
#include "tests/lib/rlog_fake.h"

#define NODES    3
#define SHARDS   2
#define SERVICES 4
#define STEPS    220
#define PATIENCE 10000

/* ---- databases that outlive the role ---- */

struct keep { /* a kv whose close does nothing */
    struct kv kv;
    struct kv *inner;
};

static struct kv *inner(struct kv *k)
{
    return ((struct keep *)(void *)k)->inner;
}

static int keep_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    return kv_write(inner(k), b, sync, e);
}

static int keep_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                    struct buf *out, struct err *e)
{
    return kv_get(inner(k), snap, cf, key, out, e);
}

static struct kv_snap *keep_snap_new(struct kv *k)
{
    return kv_snap_new(inner(k));
}

static void keep_snap_free(struct kv *k, struct kv_snap *s)
{
    kv_snap_free(inner(k), s);
}

static struct kv_iter *keep_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                     struct str from, struct str to)
{
    return inner(k)->ops->iter_new(inner(k), snap, cf, from, to);
}

static void keep_stats(struct kv *k, struct kv_stats *ret)
{
    kv_stats(inner(k), ret);
}

static int keep_flush(struct kv *k, struct err *e)
{
    return kv_flush(inner(k), e);
}

static void keep_compact(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    kv_compact(inner(k), cf, from, to);
}

static void keep_close(struct kv *k)
{
    (void)k;
}

static const struct kv_ops keep_ops = {
    .write = keep_write,
    .get = keep_get,
    .snap_new = keep_snap_new,
    .snap_free = keep_snap_free,
    .iter_new = keep_iter_new,
    .stats = keep_stats,
    .flush = keep_flush,
    .compact = keep_compact,
    .close = keep_close,
};

/* ---- the world ---- */

struct world;
struct node {
    struct world *w;
    char name[16], addr[128];
    struct kv_source kv;
    struct keep disks[SHARDS];
    struct rlog_fake *log;
    struct coord *coord;
    struct view *view;
    struct conf *conf;
    struct role_ctx ctx;
    void *self; /* NULL: down */
    bool drained, cut;
};
struct push {
    char leaf[24], service[16];
    uint64_t value, wid;
    uint32_t slot, shard;
    bool acked, ended;
    uint64_t attempts;
};
struct flight { /* a push or read on its way */
    struct world *w;
    size_t push;
    uint32_t service;
    uint8_t *must; /* reads: by push, acked before it began */
    size_t must_len;
};
struct world {
    struct rpc_bed rpc;
    struct fs fs; /* with space */
    struct prng p;
    struct coord_site *site;
    struct node nodes[NODES];
    struct coord *coord; /* the client's */
    struct view *view;
    struct rpc_node *client;
    struct route *route;
    VEC(struct push *) pushes;
    size_t flying;
    enum sim_mutant mutant;
    struct sim_stats stats;
    const char *broken;
    char *text;
    size_t text_size;
    bool away;
};

static void broke(struct world *w, const char *what, const char *more)
{
    if (w->broken)
        return;
    w->broken = what;
    (void)snprintf(w->text, w->text_size, "%s", more);
}

static int open_kv(const struct kv_source *src, const struct kv_opts *o, struct kv **ret,
                   struct err *e)
{
    struct node *n = (struct node *)((char *)(uintptr_t)src - offsetof(struct node, kv));
    const char *dash = strrchr(o->dir, '-');
    struct keep *k = &n->disks[strtoul(dash + 1, NULL, 10)];

    (void)e;
    k->kv.ops = &keep_ops;
    if (!k->inner)
        k->inner = kv_mem_new(NULL);
    *ret = &k->kv;
    return 0;
}

static const struct role *const sim_roles[] = { &ingester_role, NULL };

static void load_conf(struct node *n)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t len = options_collect(sim_roles, tables);
    char listen[160], shards[40];
    char *argv[] = { (char *)(uintptr_t) "sim",
                     listen,
                     shards,
                     (char *)(uintptr_t) "--cluster.coordination=etcd",
                     (char *)(uintptr_t) "--cluster.etcd_prefix=/sim",
                     (char *)(uintptr_t) "--cluster.replicas=3",
                     (char *)(uintptr_t) "--cluster.lease_ttl=3s",
                     (char *)(uintptr_t) "--ingester.seal-delay=0ms",
                     (char *)(uintptr_t) "--ingester.build-delay=0ms" };
    struct err e;

    (void)snprintf(listen, sizeof(listen), "--ingester.listen=%s", n->addr);
    (void)snprintf(shards, sizeof(shards), "--cluster.shards=%d", SHARDS);
    if (conf_load(tables, len, ARRAY_LEN(argv), argv, &n->conf, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static void node_start(struct node *n)
{
    struct view_opts vo = { .loop = n->w->rpc.loop, .prefix = "/sim" };
    struct err e;

    n->coord = coord_sim_new(n->w->site);
    vo.coord = n->coord;
    n->view = view_new_coord(&vo);
    n->ctx = (struct role_ctx){
        .env = &n->w->rpc.env,
        .loop = n->w->rpc.loop,
        .pool = n->w->rpc.pool,
        .rpc = n->w->rpc.net,
        .metrics = n->w->rpc.metrics,
        .conf = n->conf,
        .common = conf_get(n->conf, &http_options),
        .cluster = conf_get(n->conf, &cluster_options),
        .view = n->view,
        .coord = n->coord,
        .node = n->name,
        .node_id = hash64(n->name, strlen(n->name), 1),
        .log_fs = rlog_fake_fs(n->log),
        .tenancy = conf_get(n->conf, &tenancy_options),
        .data = conf_get(n->conf, &data_options),
        .data_dir = "memory",
        .memory_limit = 512 * MIB,
        .simulated = true,
        .kv = &n->kv,
    };
    if (ingester_role.start(&n->ctx, &n->self, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static void on_drained(void *cookie)
{
    ((struct node *)cookie)->drained = true;
}

static void run_ms(struct world *w, uint64_t ms)
{
    w->stats.simulated_ms += ms;
    rpc_bed_sleep(&w->rpc, ms);
}

static void cut(struct node *n, bool whole)
{
    rpc_mem_cut(n->w->rpc.net, n->addr, "*");
    rpc_mem_cut(n->w->rpc.net, "*", n->addr);
    if (whole)
        coord_sim_cut(n->coord, true);
    n->cut = true;
}

static void heal(struct world *w)
{
    rpc_mem_heal(w->rpc.net);
    for (size_t i = 0; i < NODES; i++) {
        w->nodes[i].cut = false;
        if (w->nodes[i].self)
            coord_sim_cut(w->nodes[i].coord, false);
    }
}

static void node_stop(struct node *n, bool crash)
{
    struct world *w = n->w;

    if (crash)
        cut(n, true);
    n->drained = false;
    ingester_role.drain(n->self, on_drained, n);
    for (size_t i = 0; i < 600 && !n->drained; i++)
        run_ms(w, 50);
    if (!n->drained) {
        broke(w, "a node does not end", n->name);
        return;
    }
    ingester_role.free(n->self);
    n->self = NULL;
    view_free(n->view);
    coord_free(n->coord);
    if (!crash)
        return;
    rlog_fake_power_cut(n->log);
    for (size_t i = 0; i < SHARDS; i++)
        if (n->disks[i].inner)
            n->disks[i].inner =
                kv_mem_reopen(n->disks[i].inner, KV_MEM_POWER,
                              prng_below(&w->p, kv_mem_unsynced(n->disks[i].inner) + 1));
    rpc_mem_heal(w->rpc.net);
    n->cut = false;
}

static int plenty(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                  struct err *e)
{
    (void)fs, (void)path, (void)e;
    *ret_free = 50 * GIB;
    *ret_total = 100 * GIB;
    return 0;
}

static void world_open(struct world *w, uint64_t seed)
{
    struct view_opts vo = { .prefix = "/sim" };
    struct rpc_mem_faults faults = {
        .delay_min_ms = 0, .delay_max_ms = 5, .lost = 0.002, .repeated = 0.002
    };
    struct coord_faults cf = { .delay_min_ms = 1, .delay_max_ms = 10 };
    struct route_opts ro = { 0 };
    struct err e;

    prng_init(&w->p, seed);
    rpc_bed_init(&w->rpc, RPC_BED_MEM, seed);
    rpc_mem_faults(w->rpc.net, &faults);
    w->fs = *fs_real();
    w->fs.space = plenty;
    w->rpc.env.fs = &w->fs;
    w->site = coord_site_new(w->rpc.loop, seed);
    coord_site_faults(w->site, &cf);
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        n->w = w;
        n->kv.open = open_kv;
        n->log = rlog_fake_new(seed + i);
        (void)snprintf(n->name, sizeof(n->name), "n%zu", i);
        rpc_bed_addr(&w->rpc, n->addr);
        load_conf(n);
        node_start(n);
    }
    w->coord = coord_sim_new(w->site);
    vo.loop = w->rpc.loop;
    vo.coord = w->coord;
    w->view = view_new_coord(&vo);
    w->client = rpc_bed_node(&w->rpc, "");
    ro.node = w->client;
    ro.loop = w->rpc.loop;
    ro.view = w->view;
    CHECK(route_new(&ro, &w->route, &e) == 0);
}

static void world_close(struct world *w)
{
    for (size_t i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        if (n->self)
            node_stop(n, false);
        for (size_t k = 0; k < SHARDS && !n->self; k++)
            kv_close(n->disks[k].inner);
        if (!n->self)
            rlog_fake_free(n->log);
        conf_free(n->conf);
    }
    if (w->broken)
        return; /* what hangs keeps what it needs */
    route_free(w->route);
    rpc_node_free(w->client);
    view_free(w->view);
    coord_free(w->coord);
    coord_site_free(w->site);
    rpc_bed_deinit(&w->rpc);
    vec_for (i, &w->pushes)
        xfree(w->pushes.ptr[i]);
    vec_free(&w->pushes);
}

/* ---- pushes ---- */

static void push_send(struct world *w, size_t at);

static void on_pushed(void *cookie, struct str reply, const struct err *err)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    struct push *p = w->pushes.ptr[f->push];
    size_t at = f->push;

    (void)reply;
    xfree(f);
    w->flying--;
    if (!err) {
        p->acked = p->ended = true;
        w->stats.acked++;
    } else if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT && err->code != ERR_BUSY) {
        broke(w, "a push was refused", err->text);
    } else if (p->attempts < 4) {
        push_send(w, at); /* as a distributor does: nobody knows whether it was stored */
    } else {
        p->ended = true;
    }
}

static void push_send(struct world *w, size_t at)
{
    struct push *p = w->pushes.ptr[at];
    struct flight *f = XNEW(struct flight);
    struct write_gen g = { .service = p->service,
                           .pod = "pod",
                           .shard = p->shard,
                           .slot = p->slot,
                           .wid = p->wid,
                           .leaf = p->leaf,
                           .value = p->value };
    struct buf payload;

    if (p->attempts++ && w->mutant == SIM_NEW_IDS)
        g.wid = prng_below(&w->p, UINT64_MAX) | 1;
    *f = (struct flight){ .w = w, .push = at };
    buf_init(&payload, 64 * KIB);
    write_gen_pack(&g, &w->p, &payload, NULL);
    w->flying++;
    (void)route_ask(w->route, route_target(w->route, p->shard), RPC_WRITE, &payload,
                    w->mutant == SIM_NEW_IDS ? 300 : 4000, on_pushed, f);
}

static void push_new(struct world *w)
{
    struct push *p = XNEW(struct push);
    uint32_t service = (uint32_t)prng_below(&w->p, SERVICES);

    (void)snprintf(p->leaf, sizeof(p->leaf), "p%zu", w->pushes.len);
    (void)snprintf(p->service, sizeof(p->service), "s%" PRIu32, service);
    p->shard = service % SHARDS;
    p->value = 1 + prng_below(&w->p, 1000);
    p->wid = w->pushes.len + 1;
    p->slot = slot_of_ms(clock_wall_ms(w->rpc.env.clock)) - (uint32_t)prng_below(&w->p, 60);
    vec_push(&w->pushes, p);
    w->stats.pushes++;
    push_send(w, w->pushes.len - 1);
}

/* ---- reads ---- */

static void check_read(struct flight *f, const struct write_model *m)
{
    struct world *w = f->w;
    uint64_t sum = 0;
    char more[200];

    vec_for (i, &w->pushes) {
        const struct push *p = w->pushes.ptr[i];
        uint64_t have;
        if ((uint32_t)(p->service[1] - '0') != f->service)
            continue;
        have = write_model_get(m, str_c(p->leaf));
        sum += have;
        (void)snprintf(more, sizeof(more), "%s of %s: %" PRIu64 " instead of %" PRIu64, p->leaf,
                       p->service, have, p->value);
        if (have && have != p->value)
            broke(w, "a push counts twice or wrong", more);
        if (!have && i < f->must_len && f->must[i])
            broke(w, "an acked push is not there", more);
    }
    if (sum != m->total)
        broke(w, "something was never pushed", "");
}

static void flight_free(struct flight *f)
{
    xfree(f->must);
    xfree(f);
}

static void on_read(void *cookie, struct str reply, const struct err *err)
{
    struct flight *f = cookie;
    struct world *w = f->w;

    w->flying--;
    if (!err) {
        struct write_model m;
        write_model_init(&m);
        ingester_bed_take_merge(reply, &m);
        w->stats.reads++;
        check_read(f, &m);
        write_model_deinit(&m);
    } else if (err->code != ERR_UNAVAILABLE && err->code != ERR_TIMEOUT && err->code != ERR_BUSY) {
        broke(w, "a read failed", err->text);
    }
    flight_free(f);
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static void read_new(struct world *w, uint32_t service)
{
    struct flight *f = XNEW(struct flight);
    Embertree__MergeRequest m = EMBERTREE__MERGE_REQUEST__INIT;
    Embertree__Matcher matcher = EMBERTREE__MATCHER__INIT, *matchers = &matcher;
    int64_t now = clock_wall_ms(w->rpc.env.clock);
    uint32_t shard = service % SHARDS;
    char name[16];
    struct buf payload;
    char *p;

    *f = (struct flight){ .w = w, .service = service, .must_len = w->pushes.len };
    f->must = xcalloc(w->pushes.len + 1, 1);
    vec_for (i, &w->pushes)
        f->must[i] = w->pushes.ptr[i]->acked;
    (void)snprintf(name, sizeof(name), "s%" PRIu32, service);
    matcher.name = bytes("service_name");
    matcher.value = bytes(name);
    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.start_ms = now - 3600000;
    m.end_ms = now + 60000;
    m.matchers = &matchers;
    m.n_matchers = 1;
    m.shards = &shard;
    m.n_shards = 1;
    buf_init(&payload, 4 * KIB);
    p = buf_room(&payload, embertree__merge_request__get_packed_size(&m));
    CHECK(p);
    payload.len += embertree__merge_request__pack(&m, (uint8_t *)(void *)p);
    w->flying++;
    (void)route_ask(w->route, route_target(w->route, shard), RPC_MERGE, &payload, PATIENCE, on_read,
                    f);
}

/* ---- a run ---- */

static void fault(struct world *w)
{
    struct node *n = &w->nodes[prng_below(&w->p, NODES)];
    size_t down = 0;

    for (size_t i = 0; i < NODES; i++)
        down += !w->nodes[i].self || w->nodes[i].cut;
    switch (prng_below(&w->p, 6)) {
    case 0:
        if (!n->self) {
            node_start(n);
        } else if (down == 0 || (down == 1 && prng_below(&w->p, 4) == 0)) {
            w->stats.crashes++;
            node_stop(n, true);
        }
        break;
    case 1: /* unreachable for all, or for its peers alone: it still has its lease */
        if (n->self && down == 0) {
            w->stats.cuts++;
            cut(n, prng_below(&w->p, 2) == 0);
        }
        break;
    case 2:
        heal(w);
        break;
    case 3:
        if (!n->self)
            node_start(n);
        break;
    case 4:
        w->away = !w->away && prng_below(&w->p, 2) == 0;
        w->stats.away += w->away;
        coord_site_away(w->site, w->away);
        break;
    default:
        rpc_mem_slow(w->rpc.net, n->addr, (uint32_t)prng_below(&w->p, 3) * 100);
        break;
    }
}

/* Of all rows of all column families. */
static uint64_t hash_db(struct kv *k)
{
    uint64_t h = 0;

    for (size_t cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(k, NULL, (enum kv_cf)cf, STR(""), STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            struct str key = kv_iter_key(it), value = kv_iter_value(it);
            h = hash64(key.ptr, key.len, h + cf);
            h = hash64(value.ptr, value.len, h);
        }
        kv_iter_free(it);
    }
    return h;
}

static bool equal(const struct world *w)
{
    for (size_t s = 0; s < SHARDS; s++) {
        uint64_t first = 0;
        for (size_t i = 0; i < NODES; i++) {
            struct kv *k = w->nodes[i].disks[s].inner;
            uint64_t h = k ? hash_db(k) : 0;
            if (i == 0)
                first = h;
            else if (h != first)
                return false;
        }
    }
    return true;
}

static void say_where(const struct world *w, struct buf *ret)
{
    for (size_t s = 0; s < SHARDS; s++)
        for (size_t i = 0; i < NODES; i++) {
            struct kv *k = w->nodes[i].disks[s].inner;
            uint64_t index = 0, term = 0;
            struct err e;
            if (k && apply_read(k, &index, &term, &e))
                index = 0;
            (void)buf_addf(ret, "shard %zu %s: %" PRIu64 "/%" PRIx64 " %08" PRIx64 "; ", s,
                           w->nodes[i].name, index, term, (k ? hash_db(k) : 0) & 0xffffffff);
        }
    (void)buf_add_c(ret, 0);
}

static void settle(struct world *w)
{
    w->away = false;
    coord_site_away(w->site, false);
    heal(w);
    for (size_t i = 0; i < NODES; i++) {
        rpc_mem_slow(w->rpc.net, w->nodes[i].addr, 0);
        if (!w->nodes[i].self)
            node_start(&w->nodes[i]);
    }
    for (size_t i = 0; i < 600 && w->flying && !w->broken; i++)
        run_ms(w, 100);
    if (w->flying)
        broke(w, "a question never ends", "");
    run_ms(w, 5000);
    for (uint32_t s = 0; s < SERVICES && !w->broken; s++) {
        uint64_t before = w->stats.reads;
        for (size_t i = 0; i < 6 && w->stats.reads == before && !w->broken; i++) {
            read_new(w, s);
            for (size_t k = 0; k < 200 && w->flying; k++)
                run_ms(w, 100);
        }
        if (w->stats.reads == before)
            broke(w, "nothing can be read though all is well", "");
    }
    for (size_t i = 0; i < 300 && !w->broken; i++) {
        if (equal(w))
            return;
        run_ms(w, 100);
    }
    struct buf where;
    buf_init(&where, KIB);
    say_where(w, &where);
    broke(w, "the databases of the replicas differ", where.ptr);
    buf_deinit(&where);
}

const char *sim_run(uint64_t seed, enum sim_mutant mutant, struct sim_stats *ret, char *text,
                    size_t text_size)
{
    struct world *w = XNEW(struct world);
    const char *broken;

    w->mutant = mutant;
    w->text = text;
    w->text_size = text_size;
    text[0] = 0;
    world_open(w, seed);
    run_ms(w, 8000); /* the controller makes the map */
    for (size_t i = 0; i < STEPS && !w->broken; i++) {
        uint64_t what = prng_below(&w->p, 100);
        if (what < 55)
            push_new(w);
        else if (what < 75)
            read_new(w, (uint32_t)prng_below(&w->p, SERVICES));
        else if (what < 83)
            fault(w);
        run_ms(w, prng_below(&w->p, 10) == 0 ? prng_below(&w->p, 3000) : prng_below(&w->p, 60));
    }
    if (!w->broken)
        settle(w);
    *ret = w->stats;
    broken = w->broken;
    world_close(w);
    if (!broken)
        xfree(w);
    return broken;
}
