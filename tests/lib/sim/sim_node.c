/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_node: nodes of the simulated cluster: one role each, with a clock, randomness, a view and,
 * where it takes requests, an HTTP server of its own.
 *
 *   OFF ──node_start──> UP ──node_end, node_crash──> ENDING ──nodes_reap──> OFF
 *
 * Roles end in their own time, while the world continues. A crashed role is cut off, its clients'
 * connections break and its disk is dead from that moment, so that no node sees what it still does.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/role/core/options.h"
#include "compactor/compactor.h"
#include "distributor/distributor.h"
#include "ingester/ingester.h"
#include "querier/querier.h"
#include "tests/lib/sim/sim_impl.h"

/* ---- clock and randomness -------------------------------------------------------------------- */

static int64_t skewed_wall(const struct clock *c)
{
    const struct sim_clock *s = container_of((uintptr_t)c, struct sim_clock, clock);

    return clock_wall_ms(s->base) + s->skew_ms;
}

static uint64_t same_mono(const struct clock *c)
{
    const struct sim_clock *s = container_of((uintptr_t)c, struct sim_clock, clock);

    return clock_mono_ns(s->base);
}

static void node_random(struct env *env, void *p, size_t n)
{
    struct prng *random = env->random_state;
    uint8_t *to = p;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)prng_u64(random);
}

/* ---- configuration --------------------------------------------------------------------------- */

#define ARG(s) ((char *)(uintptr_t)(s))

static void zone_arg(const struct node *n, char ret[40])
{
    bool lies = n->w->o.mutant == SIM_ZONES_LIE;

    if (n->w->zones)
        (void)snprintf(ret, 40, "--cluster.zone=z%zu",
                       lies ? n->at / SIM_ZONES : n->at % SIM_ZONES);
    else
        (void)snprintf(ret, 40, "--cluster.zone=");
}

static void load_conf(struct node *n)
{
    const struct role *const roles_of[] = { n->role, NULL };
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t len = options_collect(roles_of, tables), argc = 0;
    char listen[160], shards[40], zone[40];
    bool ingester = n->role == &ingester_role, dist = n->role == &distributor_role;
    char *argv[32];
    struct err e;

    (void)snprintf(listen, sizeof(listen), "--%s.listen=%s", n->role->name, n->addr);
    (void)snprintf(shards, sizeof(shards), "--cluster.shards=%d", SIM_SHARDS);
    zone_arg(n, zone);
    argv[argc++] = ARG("sim");
    argv[argc++] = listen;
    argv[argc++] = shards;
    argv[argc++] = ARG("--cluster.coordination=etcd");
    argv[argc++] = ARG("--cluster.etcd_prefix=" SIM_PREFIX);
    argv[argc++] = ARG("--cluster.replicas=3");
    argv[argc++] = ARG("--cluster.lease_ttl=3s");
    argv[argc++] = ARG("--cluster.replace_after=8s");
    argv[argc++] = ARG("--tenancy.multi=true");
    if (n->w->aims.mood == SIM_AIM_PLACE) { /* services grow when we say so, and soon */
        argv[argc++] = ARG("--cluster.spread_rate=1GiB");
        argv[argc++] = ARG("--cluster.place_after=2s");
    } else {
        argv[argc++] = ARG("--cluster.spread_rate=40B");
        argv[argc++] = ARG("--cluster.place_after=25s");
    }
    if (ingester) {
        argv[argc++] = ARG("--ingester.seal-delay=0ms");
        argv[argc++] = ARG("--ingester.build-delay=0ms");
        argv[argc++] = ARG("--ingester.build-pace=0ms");
        argv[argc++] = zone;
        argv[argc++] = ARG("--retention.10s=2h");
        argv[argc++] = ARG("--retention.1m=6h");
        argv[argc++] = ARG("--retention.10m=1d");
        argv[argc++] = ARG("--retention.interval=4s");
        argv[argc++] = ARG("--cold.after=1h");
        argv[argc++] = ARG("--cold.interval=1s");
        argv[argc++] = ARG("--cold.backup_interval=15s");
        if (n->w->forgetful)
            argv[argc++] = ARG("--ingester.write_id_horizon=" SIM_HORIZON);
        if (n->w->bucket)
            argv[argc++] = ARG("--cold.url=dir:/simulated");
    }
    if (dist) {
        argv[argc++] = ARG("--distributor.write_id_secret=one for all distributors");
        argv[argc++] = ARG("--distributor.ack_timeout=6s");
        argv[argc++] = ARG("--distributor.attempt_timeout=2s");
    }
    if (n->role == &querier_role)
        argv[argc++] = ARG("--querier.timeout=8s");
    if (n->role == &compactor_role)
        argv[argc++] = ARG("--compactor.build_timeout=5s");
    CHECK(argc <= ARRAY_LEN(argv));
    if (conf_load(tables, len, (int)argc, argv, &n->conf, &e)) {
        (void)fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

static void start_http(struct node *n)
{
    struct http_server_opts o = {
        .loop = n->w->rpc.loop,
        .pool = n->w->rpc.pool,
        .in_flight = &n->budget,
        .metrics = n->metrics,
        .connections_max = 1000,
        .head_bytes_max = 16384,
        .head_ms = 10000,
        .body_ms = 10000,
        .idle_ms = 60000,
        .write_ms = 10000,
    };
    struct http_server *server;
    struct err e;

    budget_init(&n->budget, 64 * MIB);
    CHECK(http_server_new(&o, &server, &e) == 0);
    sim_site_init(&n->site, n->w->rpc.loop, server);
}

static void fill_ctx(struct node *n)
{
    struct world *w = n->w;

    n->ctx = (struct role_ctx){
        .env = &n->env,
        .loop = w->rpc.loop,
        .pool = w->rpc.pool,
        .http = n->site.server,
        .rpc = w->rpc.net,
        .view = n->view,
        .coord = n->coord,
        .node = n->name,
        .node_id = hash64(n->name, strlen(n->name), 1),
        .metrics = n->metrics,
        .in_flight = &n->budget,
        .conf = n->conf,
        .common = conf_get(n->conf, &http_options),
        .cluster = conf_get(n->conf, &cluster_options),
        .tenancy = conf_get(n->conf, &tenancy_options),
        .data = conf_get(n->conf, &data_options),
        .data_dir = n->disk.dir[0] ? n->disk.dir : "memory",
        .memory_limit = 512 * MIB,
        .simulated = true,
        .log_bytes = w->files ? 24 * KIB : 128 * KIB,
    };
    if (n->has_disk) {
        n->ctx.log_fs = &n->disk.fs;
        n->ctx.kv = &n->disk.source;
        n->ctx.objects = &n->objects.source;
        n->disk.begins = copy_begins;
        n->disk.begins_cookie = n;
    }
    if (w->o.mutant >= SIM_REPLICA)
        n->ctx.mutants = 1u << (w->o.mutant - SIM_REPLICA);
}

void node_start(struct node *n)
{
    struct view_opts vo = { .loop = n->w->rpc.loop, .prefix = SIM_PREFIX };
    struct err e;

    CHECK(n->state == NODE_OFF);
    n->metrics = metrics_new();
    n->coord = coord_sim_new(n->w->site);
    vo.coord = n->coord;
    if (n->has_disk) {
        vo.fs = &n->disk.files;
        vo.file = SIM_KEPT;
        vo.keeps = true;
        vo.node = n->name;
    }
    n->view = view_new_coord(&vo);
    n->site = (struct sim_site){ 0 };
    sim_objects_init(&n->objects, n->w->bucket);
    if (n->role == &distributor_role || n->role == &querier_role)
        start_http(n);
    fill_ctx(n);
    if (n->role->start(&n->ctx, &n->self, &e)) {
        (void)fprintf(stderr, "%s: %s\n", n->name, e.text);
        abort();
    }
    n->state = NODE_UP;
    n->wake_ms = 0;
    trace(n->w, "%s starts", n->name);
}

static const struct role *role_at(size_t i)
{
    return i < FIRST_DIST      ? &ingester_role
           : i < FIRST_QUERIER ? &distributor_role
           : i < FIRST_COMPACT ? &querier_role
                               : &compactor_role;
}

static size_t number_at(size_t i)
{
    return i < FIRST_DIST      ? i
           : i < FIRST_QUERIER ? i - FIRST_DIST
           : i < FIRST_COMPACT ? i - FIRST_QUERIER
                               : i - FIRST_COMPACT;
}

/* All of a life but the disk. */
static struct node *node_new(struct world *w, size_t i, uint32_t life, const char addr[128])
{
    struct node *n = XNEW(struct node);

    n->w = w;
    n->at = i;
    n->life = life;
    n->role = role_at(i);
    (void)snprintf(n->name, sizeof(n->name), "%c%zu", n->role->name[0], number_at(i));
    memcpy(n->addr, addr, sizeof(n->addr));
    n->clock = (struct sim_clock){ { skewed_wall, same_mono }, &w->rpc.clock.clock, 0 };
    prng_init(&n->random, w->o.seed * 131 + i + UINT64_C(1000003) * life);
    n->has_disk = n->role == &ingester_role;
    n->env = (struct env){ .clock = &n->clock.clock,
                           .fs = n->has_disk ? &n->disk.files : fs_real(),
                           .random = node_random,
                           .random_state = &n->random };
    load_conf(n);
    return n;
}

static uint64_t disk_seed(const struct node *n)
{
    return n->w->o.seed * 257 + n->at + UINT64_C(1000003) * n->life;
}

void nodes_init(struct world *w)
{
    list_init(&w->dying);
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n;
        char addr[128];

        rpc_bed_addr(&w->rpc, addr);
        n = w->nodes[i] = node_new(w, i, 0, addr);
        if (n->has_disk) {
            sim_disk_init(&n->disk, disk_seed(n), w->o.mutant, w->files, count(w));
            n->disk.odd = i == 1;
        }
    }
    w->ingesters = w->zones                        ? 2 * SIM_ZONES
                   : w->aims.mood == SIM_AIM_PLACE ? SIM_FIRST + 2
                                                   : SIM_FIRST;
    for (size_t i = 0; i < w->ingesters; i++)
        node_start(w->nodes[i]);
    for (size_t i = FIRST_DIST; i < SIM_NODES; i++)
        node_start(w->nodes[i]);
}

static void wire(struct world *w);

/* ---- end ------------------------------------------------------------------------------------- */

static void on_role_ended(void *cookie)
{
    ((struct node *)cookie)->parts_left--;
}

static void on_http_ended(void *cookie)
{
    struct node *n = cookie;

    n->parts_left--;
    n->role->drain(n->self, on_role_ended, n);
}

static void end_begin(struct node *n)
{
    n->state = NODE_ENDING;
    n->parts_left = 1 + (n->site.server != NULL);
    if (n->site.server)
        http_server_drain(n->site.server, on_http_ended, n);
    else
        n->role->drain(n->self, on_role_ended, n);
}

void node_end(struct node *n)
{
    CHECK(n->state == NODE_UP);
    trace(n->w, "%s is to end", n->name);
    n->crashed = false;
    end_begin(n);
}

/* Continues under the same name with the bytes that the disk has by then; the previous process ends
 * in its own time, and reaches no node. */
static struct node *reborn(struct node *n, bool moves)
{
    struct world *w = n->w;
    char other[128];
    struct node *next;

    rpc_bed_addr(&w->rpc, other);
    next = node_new(w, n->at, n->life + 1, moves ? other : n->addr);
    if (!moves) {
        rpc_mem_rename(w->rpc.net, n->addr, other);
        memcpy(n->addr, other, sizeof(n->addr));
    }
    if (n->wipe) {
        sim_disk_init(&next->disk, disk_seed(next), w->o.mutant, w->files, count(w));
        next->disk.odd = n->disk.odd;
    } else if (n->has_disk) {
        sim_disk_fork(&n->disk, &next->disk, disk_seed(next), n->power);
    }
    n->wipe = false;
    next->clock.skew_ms = n->clock.skew_ms;
    next->draining = n->draining;
    next->left = n->left;
    list_add_tail(&w->dying, &n->link);
    w->nodes[n->at] = next;
    return next;
}

struct node *node_crash(struct node *n, bool power, enum crash_how how)
{
    CHECK(n->state == NODE_UP);
    trace(n->w, "%s crashes%s", n->name, power ? " without power" : "");
    node_cut(n, CUT_OUT | CUT_IN | CUT_COORD);
    n->crashed = true;
    n->power = power;
    n->objects.dead = true;
    if (n->w->held.at == n->at)
        n->w->held.until_ms = 0;
    if (n->has_disk)
        n->disk.dead = true;
    if (n->site.server)
        sim_site_cut(&n->site);
    end_begin(n);
    if (how == CRASH_SLOW)
        return n;
    n = reborn(n, how == CRASH_MOVES);
    wire(n->w);
    return n;
}

/* What its counters say, which go with it. */
static void count_metrics(struct node *n)
{
    struct sim_stats *s = count(n->w);
    const struct {
        const char *name;
        uint64_t *to;
    } rows[] = {
        { "embertree_ingester_seal_entries_total", &s->seals },
        { "embertree_ingester_build_rows_total", &s->builds },
        { "embertree_ingester_build_fenced_total", &s->fenced },
        { "embertree_ingester_shards_served_total", &s->served },
        { "embertree_ingester_duplicates_total", &s->duplicates },
        { "embertree_ingester_retention_floors_moved_total", &s->retention },
        { "embertree_cold_buckets_total", &s->cold_buckets },
        { "embertree_cold_backups_total", &s->cold_backups },
        { "embertree_cold_deleted_total", &s->cold_deleted },
    };
    struct str rest, line;
    struct buf text;
    bool more = true;

    if (!n->has_disk)
        return;
    buf_init(&text, 16 * MIB);
    metrics_render(n->metrics, &text);
    rest = buf_str(&text);
    while (str_next(&rest, '\n', &more, &line))
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            size_t len = strlen(rows[i].name);
            uint64_t v;
            if (str_starts(line, str_c(rows[i].name)) && line.len > len &&
                (line.ptr[len] == ' ' || line.ptr[len] == '{') &&
                str_u64(str_sub(line, (size_t)str_rfind(line, ' ') + 1, line.len), &v))
                *rows[i].to += v;
        }
    buf_deinit(&text);
}

static void node_ended(struct node *n)
{
    count_metrics(n);
    n->role->free(n->self);
    n->self = NULL;
    http_server_free(n->site.server);
    n->site.server = NULL;
    view_free(n->view);
    coord_free(n->coord);
    metrics_free(n->metrics);
    if (n->crashed && n->has_disk && n->power)
        sim_disk_power_cut(&n->disk);
    else if (n->crashed && n->has_disk)
        sim_disk_kill(&n->disk);
    if (n->wipe)
        sim_disk_wipe(&n->disk);
    n->wipe = false;
    n->state = NODE_OFF;
    trace(n->w, "%s has ended", n->name);
    n->crashed = false;
    n->cut = n->away = 0;
}

static void wire_one(struct world *w, const struct node *n)
{
    if (n->cut & CUT_OUT)
        rpc_mem_cut(w->rpc.net, n->addr, "*");
    if (n->cut & CUT_IN)
        rpc_mem_cut(w->rpc.net, "*", n->addr);
}

/* As the nodes say it. */
static void wire(struct world *w)
{
    rpc_mem_heal(w->rpc.net);
    list_for (it, &w->dying)
        wire_one(w, container_of(it, struct node, link));
    for (size_t i = 0; i < SIM_NODES; i++) {
        const struct node *n = w->nodes[i];

        wire_one(w, n);
        for (size_t k = 0; k < SIM_NODES && n->away; k++)
            if (n->away >> k & 1)
                rpc_mem_cut(w->rpc.net, n->addr, w->nodes[k]->addr);
    }
}

static bool has_ended(const struct node *n)
{
    return n->state == NODE_ENDING && n->parts_left == 0 &&
           (!n->site.server || sim_site_idle(&n->site));
}

static void node_free(struct node *n)
{
    if (n->has_disk)
        sim_disk_deinit(&n->disk);
    conf_free(n->conf);
    xfree(n);
}

void nodes_reap(struct world *w)
{
    bool any = false;

    list_for (it, &w->dying) {
        struct node *n = container_of(it, struct node, link);

        if (!has_ended(n))
            continue;
        node_ended(n);
        list_del(&n->link);
        node_free(n);
        any = true;
    }
    for (size_t i = 0; i < SIM_NODES; i++)
        if (has_ended(w->nodes[i])) {
            node_ended(w->nodes[i]);
            any = true;
        }
    if (any)
        wire(w);
}

void nodes_deinit(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];

        CHECK(n->state == NODE_OFF || n->state == NODE_GONE);
        node_free(n);
    }
}

/* ---- the network ----------------------------------------------------------------------------- */

void node_cut(struct node *n, unsigned how)
{
    n->cut |= how;
    trace(n->w, "%s is cut off: %u", n->name, how);
    if (how & CUT_COORD)
        coord_sim_cut(n->coord, true);
    wire(n->w);
}

void node_cut_to(struct node *n, const struct node *to)
{
    n->away |= 1u << to->at;
    trace(n->w, "%s does not reach %s", n->name, to->name);
    wire(n->w);
}

/* Those that crashed and have not ended yet stay cut off. */
void nodes_heal(struct world *w)
{
    w->held.until_ms = 0;
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];

        if (n->state == NODE_ENDING && n->crashed)
            continue;
        n->cut = n->away = 0;
        if (n->state == NODE_UP || n->state == NODE_ENDING)
            coord_sim_cut(n->coord, false);
    }
    wire(w);
}

bool nodes_quiet(const struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_ENDING)
            return false;
    return list_empty(&w->dying);
}

size_t nodes_down(const struct world *w)
{
    size_t down = 0;

    for (size_t i = 0; i < w->ingesters; i++)
        down +=
            w->nodes[i]->state != NODE_GONE && (w->nodes[i]->state != NODE_UP || w->nodes[i]->cut ||
                                                (w->nodes[i]->away & ((1u << SIM_INGESTERS) - 1)) ||
                                                w->nodes[i]->disk.full || w->nodes[i]->disk.hung);
    return down;
}
