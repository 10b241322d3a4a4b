/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_node: nodes of the simulated cluster: one role each, with a clock, randomness, a view and,
 * where it takes requests, an HTTP server of its own.
 *
 *   OFF ──node_start──> UP ──node_end, node_crash──> ENDING ──nodes_reap──> OFF
 *
 * Roles end in their own time, while the world goes on. One that crashed is cut off, its clients'
 * connections break and its disk is dead from that moment, so that nobody sees what it still does.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/role/options.h"
#include "compactor/compactor.h"
#include "distributor/distributor.h"
#include "ingester/ingester.h"
#include "querier/querier.h"
#include "tests/lib/sim_impl.h"

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

static void load_conf(struct node *n)
{
    const struct role *const roles_of[] = { n->role, NULL };
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t len = options_collect(roles_of, tables), argc = 0;
    char listen[160], shards[40];
    bool ingester = n->role == &ingester_role, dist = n->role == &distributor_role;
    char *argv[24];
    struct err e;

    (void)snprintf(listen, sizeof(listen), "--%s.listen=%s", n->role->name, n->addr);
    (void)snprintf(shards, sizeof(shards), "--cluster.shards=%d", SIM_SHARDS);
    argv[argc++] = ARG("sim");
    argv[argc++] = listen;
    argv[argc++] = shards;
    argv[argc++] = ARG("--cluster.coordination=etcd");
    argv[argc++] = ARG("--cluster.etcd_prefix=" SIM_PREFIX);
    argv[argc++] = ARG("--cluster.replicas=3");
    argv[argc++] = ARG("--cluster.lease_ttl=3s");
    argv[argc++] = ARG("--cluster.replace_after=8s");
    argv[argc++] = ARG("--tenancy.multi=true");
    argv[argc++] = ARG("--cluster.spread_rate=40B");
    argv[argc++] = ARG("--cluster.place_after=25s");
    if (ingester) {
        argv[argc++] = ARG("--ingester.seal-delay=0ms");
        argv[argc++] = ARG("--ingester.build-delay=0ms");
        argv[argc++] = ARG("--ingester.build-pace=0ms");
        argv[argc++] = ARG("--retention.10s=2h");
        argv[argc++] = ARG("--retention.1m=6h");
        argv[argc++] = ARG("--retention.10m=1d");
        argv[argc++] = ARG("--retention.interval=4s");
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
        .data_dir = "memory",
        .memory_limit = 512 * MIB,
        .simulated = true,
        .log_bytes = 128 * KIB,
    };
    if (n->has_disk) {
        n->ctx.log_fs = &n->disk.fs;
        n->ctx.kv = &n->disk.source;
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
    n->view = view_new_coord(&vo);
    n->site = (struct sim_site){ 0 };
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

static void node_init(struct world *w, size_t i, const struct role *role, size_t number)
{
    struct node *n = &w->nodes[i];

    n->w = w;
    n->role = role;
    (void)snprintf(n->name, sizeof(n->name), "%c%zu", role->name[0], number);
    rpc_bed_addr(&w->rpc, n->addr);
    n->clock = (struct sim_clock){ { skewed_wall, same_mono }, &w->rpc.clock.clock, 0 };
    prng_init(&n->random, w->o.seed * 131 + i);
    n->has_disk = role == &ingester_role;
    if (n->has_disk) {
        sim_disk_init(&n->disk, w->o.seed * 257 + i, w->o.mutant, count(w));
        n->disk.odd = i == 1;
    }
    n->env = (struct env){ .clock = &n->clock.clock,
                           .fs = n->has_disk ? &n->disk.files : fs_real(),
                           .random = node_random,
                           .random_state = &n->random };
    load_conf(n);
}

void nodes_init(struct world *w)
{
    for (size_t i = 0; i < SIM_INGESTERS; i++)
        node_init(w, i, &ingester_role, i);
    for (size_t i = 0; i < SIM_DISTS; i++)
        node_init(w, FIRST_DIST + i, &distributor_role, i);
    for (size_t i = 0; i < SIM_QUERIERS; i++)
        node_init(w, FIRST_QUERIER + i, &querier_role, i);
    for (size_t i = 0; i < SIM_COMPACTS; i++)
        node_init(w, FIRST_COMPACT + i, &compactor_role, i);
    for (size_t i = 0; i < SIM_FIRST; i++)
        node_start(&w->nodes[i]);
    w->ingesters = SIM_FIRST;
    for (size_t i = FIRST_DIST; i < SIM_NODES; i++)
        node_start(&w->nodes[i]);
}

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

void node_crash(struct node *n, bool power)
{
    CHECK(n->state == NODE_UP);
    trace(n->w, "%s crashes%s", n->name, power ? " without power" : "");
    node_cut(n, CUT_OUT | CUT_IN | CUT_COORD);
    n->crashed = true;
    n->power = power;
    if (n->has_disk)
        n->disk.dead = true;
    if (n->site.server)
        sim_site_cut(&n->site);
    end_begin(n);
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
        { "embertree_ingester_shards_served_total", &s->served },
        { "embertree_ingester_duplicates_total", &s->duplicates },
        { "embertree_ingester_retention_floors_moved_total", &s->retention },
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
    n->state = NODE_OFF;
    trace(n->w, "%s has ended", n->name);
    n->crashed = false;
    n->cut = 0;
}

/* As the nodes say it. */
static void wire(struct world *w)
{
    rpc_mem_heal(w->rpc.net);
    for (size_t i = 0; i < SIM_NODES; i++) {
        const struct node *n = &w->nodes[i];

        if (n->cut & CUT_OUT)
            rpc_mem_cut(w->rpc.net, n->addr, "*");
        if (n->cut & CUT_IN)
            rpc_mem_cut(w->rpc.net, "*", n->addr);
    }
}

void nodes_reap(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = &w->nodes[i];

        if (n->state == NODE_ENDING && n->parts_left == 0 &&
            (!n->site.server || sim_site_idle(&n->site))) {
            node_ended(n);
            wire(w);
        }
    }
}

void nodes_deinit(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = &w->nodes[i];

        CHECK(n->state == NODE_OFF || n->state == NODE_GONE);
        if (n->has_disk)
            sim_disk_deinit(&n->disk);
        conf_free(n->conf);
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

/* Those that crashed and have not ended yet stay cut off. */
void nodes_heal(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = &w->nodes[i];

        if (n->state == NODE_ENDING && n->crashed)
            continue;
        n->cut = 0;
        if (n->state == NODE_UP || n->state == NODE_ENDING)
            coord_sim_cut(n->coord, false);
    }
    wire(w);
}

bool nodes_quiet(const struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i].state == NODE_ENDING)
            return false;
    return true;
}

size_t nodes_down(const struct world *w)
{
    size_t down = 0;

    for (size_t i = 0; i < w->ingesters; i++)
        down += w->nodes[i].state != NODE_GONE &&
                (w->nodes[i].state != NODE_UP || w->nodes[i].cut || w->nodes[i].disk.full);
    return down;
}
