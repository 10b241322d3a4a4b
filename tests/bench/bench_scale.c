/* SPDX-License-Identifier: Apache-2.0
 *
 * How far it scales (P9): clusters of 3 to 1,000 ingesters with the real map, the real placement
 * and the real choice of shards, and a population of services whose sizes have a heavy tail. What
 * a push costs the leader of its shard and each follower is taken from bench_cluster.py
 * (LEADER_US, FOLLOWER_US). A cluster takes what its busiest node can: `linear` is the mean load
 * by the highest. The load per node is the same in all rows.
 *
 *   whole      no service is spread, leaders by number
 *   spread     services are spread, leaders by number
 *   by load    and leaders by what nodes report of their shards: what is so, give or take NOISE
 *   turned     leaders that this changed, of all
 *   join, leave   replicas that move when one comes, when it goes again, by its share
 *   place, again, lead   ms of CPU: all members and leaders from nothing, the same when one came,
 *                leaders from reports
 *
 * Then 3 ingesters become 6, one by one, and 3 again.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/cluster/map/map.h"
#include "common/cluster/place/place.h"

enum { ZONES = 3, REPLICAS = 3, PODS_LEAST = 10, PODS_MOST = 50000, PUSH_EVERY_S = 10 };

static struct {
    double leader_us, follower_us; /* CPU of a push */
    double rate;                   /* pushes per second and ingester */
    double shard_most;             /* of one service to a shard, per second; above it is spread */
    double noise;                  /* of what is reported */
} o;

#define PUSH_BYTES 4096

struct service {
    uint32_t pods;
    uint32_t spread; /* shards */
};

struct cluster {
    uint32_t nodes, shards;
    struct map_node *node;
    struct place_node *place;
    struct name_set *wanted; /* by shard */
    struct repl_record *now;
    struct place_shard *seen;
    const struct map *map;
    VEC(struct service) services;
    double pushes; /* per second, all */
    double *load;  /* of shards: pushes per second */
};

static double env_number(const char *name, double otherwise)
{
    const char *v = getenv(name);

    return v ? strtod(v, NULL) : otherwise;
}

static double cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Pareto, exponent 1.1: many services of ten pods, few of tens of thousands. */
static uint32_t draw_pods(struct prng *p)
{
    double u = ((double)(prng_u64(p) >> 11) + 1) / 9007199254740993.0;

    return (uint32_t)fmin(PODS_MOST, PODS_LEAST * pow(u, -1 / 1.1));
}

static void draw_services(struct cluster *c, bool spread)
{
    struct prng p;
    double total = 0;

    prng_init(&p, 7);
    while (total < o.rate * c->nodes) {
        struct service s = { draw_pods(&p), 1 };
        double rate = s.pods / (double)PUSH_EVERY_S;

        if (spread && o.shard_most > 0)
            s.spread = (uint32_t)fmin(MAP_SPREAD_MAX, ceil(rate / o.shard_most));
        s.spread = MIN(s.spread, c->shards);
        vec_push(&c->services, s);
        total += rate;
    }
    c->pushes = total;
}

static struct str service_name(size_t i, char text[32])
{
    int n = snprintf(text, 32, "service-%zu", i);

    return str_n(text, (size_t)n);
}

static void make_map(struct cluster *c)
{
    VEC(struct map_service) spread = { 0 };
    VEC(char *) names = { 0 };
    struct map m = { .version = 1, .shards = c->shards, .replicas = REPLICAS };
    struct err e;

    vec_for (i, &c->services) {
        struct map_service s = { .tenant = STR("anonymous") };

        if (c->services.ptr[i].spread < 2)
            continue;
        vec_push(&names, XNEW_ARRAY(char, 32));
        s.name = service_name(i, names.ptr[names.len - 1]);
        s.steps.len = 1;
        s.steps.at[0].n = c->services.ptr[i].spread;
        vec_push(&spread, s);
        if (spread.len == MAP_SERVICES_MAX)
            break;
    }
    m.nodes = c->node;
    m.nodes_len = c->nodes;
    m.services = spread.ptr;
    m.services_len = spread.len;
    if (map_new(&m, &c->map, &e))
        CHECK(!"a map");
    vec_for (i, &names)
        xfree(names.ptr[i]);
    vec_free(&names);
    vec_free(&spread);
}

/* Where each push of each pod goes. */
static void load_shards(struct cluster *c)
{
    vec_for (i, &c->services) {
        const struct service *s = &c->services.ptr[i];
        char text[32];
        struct str name = service_name(i, text);

        if (s->spread < 2) {
            c->load[map_shard(c->map, STR("anonymous"), name, 0, MAP_WHEN_FIRST)] += s->pods;
            continue;
        }
        for (uint32_t pod = 0; pod < s->pods; pod++)
            c->load[map_shard(c->map, STR("anonymous"), name, hash_u64(i << 32 | pod),
                              MAP_WHEN_FIRST)] += 1;
    }
    for (uint32_t s = 0; s < c->shards; s++)
        c->load[s] /= PUSH_EVERY_S;
}

static uint32_t node_of(const char *name)
{
    return (uint32_t)strtoul(name + 1, NULL, 10);
}

static void cluster_new(struct cluster *c, uint32_t nodes, bool spread)
{
    *c = (struct cluster){ .nodes = nodes, .shards = MIN(4096u, MAX(16u, 8 * nodes)) };
    c->node = XNEW_ARRAY(struct map_node, nodes + 3);
    c->place = XNEW_ARRAY(struct place_node, nodes + 3);
    for (uint32_t i = 0; i < nodes + 3; i++) {
        (void)snprintf(c->node[i].name, sizeof(c->node[i].name), "n%04u", i);
        (void)snprintf(c->node[i].addr, sizeof(c->node[i].addr), "tcp://10.0.%u.%u:4041", i / 250,
                       i % 250);
        (void)snprintf(c->node[i].zone, sizeof(c->node[i].zone), "zone%u", i % ZONES);
        c->place[i] = (struct place_node){ c->node[i].name, c->node[i].zone, false };
    }
    c->wanted = XNEW_ARRAY(struct name_set, c->shards);
    c->now = XNEW_ARRAY(struct repl_record, c->shards);
    c->seen = XNEW_ARRAY(struct place_shard, c->shards);
    c->load = XNEW_ARRAY(double, c->shards);
    draw_services(c, spread);
    make_map(c);
    load_shards(c);
}

static void cluster_free(struct cluster *c)
{
    map_unref(c->map);
    vec_free(&c->services);
    xfree(c->node);
    xfree(c->place);
    xfree(c->wanted);
    xfree(c->now);
    xfree(c->seen);
    xfree(c->load);
}

static struct place_in place_of(const struct cluster *c, uint32_t first, uint32_t nodes)
{
    return (struct place_in){ c->place + first, nodes, c->seen, c->shards, REPLICAS };
}

/* Everything is where it is wanted. */
static void arrive(struct cluster *c)
{
    for (uint32_t s = 0; s < c->shards; s++) {
        c->now[s] = (struct repl_record){ .term = 1, .members = c->wanted[s] };
        memcpy(c->now[s].leader, c->wanted[s].names[0], sizeof(c->now[s].leader));
        c->seen[s].now = &c->now[s];
        c->seen[s].able = (1u << c->wanted[s].len) - 1;
    }
}

static void report(struct cluster *c)
{
    struct prng p;

    prng_init(&p, 11);
    for (uint32_t s = 0; s < c->shards; s++)
        c->seen[s].rate =
            (uint64_t)(c->load[s] * PUSH_BYTES * (1 + o.noise * (2 * prng_unit(&p) - 1)));
}

/* Cores that each node needs, into `cores`; `dead`: a node whose shards the next replica leads. */
static void node_cores(const struct cluster *c, uint32_t dead, double *cores)
{
    for (uint32_t i = 0; i < c->nodes; i++)
        cores[i] = 0;
    for (uint32_t s = 0; s < c->shards; s++) {
        bool led = false;

        for (size_t r = 0; r < c->wanted[s].len; r++) {
            uint32_t n = node_of(c->wanted[s].names[r]);

            if (n == dead)
                continue;
            cores[n] += c->load[s] * (led ? o.follower_us : o.leader_us) / 1e6;
            led = true;
        }
    }
}

static double highest(const double *v, uint32_t n, double *ret_mean)
{
    double most = 0, sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, v[i]);
        sum += v[i];
    }
    *ret_mean = sum / n;
    return most;
}

/* Goes to where the `nodes` from `first` on should have it; replicas that moved. */
static size_t go(struct cluster *c, uint32_t first, uint32_t nodes)
{
    struct place_in in = place_of(c, first, nodes);
    size_t moved = 0;

    placement_target(&in, c->wanted);
    for (uint32_t s = 0; s < c->shards; s++)
        for (size_t r = 0; r < c->wanted[s].len; r++)
            moved += !name_set_has(&c->now[s].members, c->wanted[s].names[r]);
    arrive(c);
    return moved;
}

/* The worst of what some other node has to do after a node died, by what the busiest did before. */
static double after_a_death(const struct cluster *c, double before)
{
    double *cores = XNEW_ARRAY(double, c->nodes), worst = 0, mean;

    for (uint32_t i = 0; i < MIN(c->nodes, 20u); i++) {
        node_cores(c, i * (c->nodes / MIN(c->nodes, 20u)), cores);
        worst = fmax(worst, highest(cores, c->nodes, &mean));
    }
    xfree(cores);
    return worst / before;
}

static double even(const struct cluster *c, double *ret_most, double *ret_mean)
{
    double *cores = XNEW_ARRAY(double, c->nodes);

    node_cores(c, UINT32_MAX, cores);
    *ret_most = highest(cores, c->nodes, ret_mean);
    xfree(cores);
    return *ret_mean / *ret_most;
}

static void row(uint32_t nodes)
{
    double share[3], most = 0, mean = 0, began, placed = 0, led;
    uint32_t turned;
    struct cluster c;
    struct buf text;

    for (int spread = 0; spread < 2; spread++) {
        if (spread)
            cluster_free(&c);
        cluster_new(&c, nodes, spread);
        struct place_in in = place_of(&c, 0, nodes);
        began = cpu_ms();
        placement_target(&in, c.wanted);
        placed = cpu_ms() - began;
        share[spread] = even(&c, &most, &mean);
    }
    arrive(&c);
    report(&c);
    struct place_in in = place_of(&c, 0, nodes);
    began = cpu_ms();
    turned = place_leaders(&in, c.wanted, UINT32_MAX);
    led = cpu_ms() - began;
    arrive(&c);
    share[2] = even(&c, &most, &mean);
    double dies = after_a_death(&c, most);
    double part = (double)c.shards * REPLICAS / (nodes + 1);
    began = cpu_ms();
    double joins = (double)go(&c, 0, nodes + 1) / part;
    double again = cpu_ms() - began;
    double leaves = (double)go(&c, 0, nodes) / part;
    buf_init(&text, MAP_BYTES_MAX);
    map_write(c.map, &text);
    printf("%9u %7u %9zu %8.2f M %8zu %7.2f %7.2f %7.2f %7.2f %6.2f %7.2f x %5.2f x %5.2f x %6.1f "
           "%6.1f %6.1f %6.2f MB\n",
           nodes, c.shards, c.services.len, c.pushes / 1e6, c.map->services_len, share[0], share[1],
           share[2], (double)turned / c.shards, mean, dies, joins, leaves, placed, again, led,
           (double)text.len / 1e6);
    buf_deinit(&text);
    cluster_free(&c);
}

/* From 3 to 6 one by one, and back; another three stay than began. */
static void grow_and_shrink(void)
{
    struct cluster c;

    cluster_new(&c, 3, true);
    c.nodes = 6;
    report(&c);
    (void)go(&c, 0, 3);
    for (uint32_t n = 4; n <= 6; n++) {
        double share = (double)c.shards * REPLICAS / n;

        printf("%u join: %.2f of a share moves\n", n, (double)go(&c, 0, n) / share);
    }
    for (uint32_t n = 5; n >= 3; n--) {
        double share = (double)c.shards * REPLICAS / (n + 1);

        printf("%u stay: %.2f of a share moves\n", n, (double)go(&c, 6 - n, n) / share);
    }
    cluster_free(&c);
}

int main(void)
{
    static const uint32_t sizes[] = { 3, 6, 12, 30, 100, 300, 1000 };

    o.leader_us = env_number("LEADER_US", 150);
    o.follower_us = env_number("FOLLOWER_US", 66);
    o.rate = env_number("RATE", 10000);
    o.shard_most = env_number("SPREAD", 300);
    o.noise = env_number("NOISE", 0.1);
    printf("%.0f pushes/s an ingester, three copies; a push costs its leader %.0f us and each "
           "follower %.0f; services over %.0f pushes/s a shard are spread\n",
           o.rate, o.leader_us, o.follower_us, o.shard_most);
    printf("%9s %7s %9s %10s %8s %7s %7s %7s %7s %6s %9s %7s %7s %6s %6s %6s %9s\n", "ingesters",
           "shards", "services", "pushes/s", "spread", "whole", "spread", "by load", "turned",
           "cores", "one dies", "join", "leave", "place", "again", "lead", "map");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        row(sizes[i]);
    grow_and_shrink();
    return 0;
}
