/* SPDX-License-Identifier: Apache-2.0
 *
 * steps_world.h: nodes and distributors that place pushes while places change. Real views, members,
 * leads and controllers over a simulated service; replication is a model of terms that members
 * promise; distributors have views of their own, clocks that are up to an hour off, and send a push
 * again elsewhere when its answer is lost.
 */
#ifndef TESTS_LIB_REPL_STEPS_WORLD_H
#define TESTS_LIB_REPL_STEPS_WORLD_H

#include "common/base/prng.h"
#include "common/cluster/control/controller.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/map/map_pending.h"
#include "common/cluster/node/lead.h"

enum { NODES = 5, SHARDS = 6, REPLICAS = 3, DISTS = 4, PUSHES = 60, TICK_MS = 200 };
#define FUTURE_MS 20000
#define AFTER_MS  60000
#define HOUR_MS   3600000
#define AWAY_MS   10000

enum mutant { NO_MUTANT, UNCONFIRMED, CONFIRMS_ALWAYS, GIVES_UP_ALONE };

struct node {
    struct world *w;
    char name[16], zone[8], addr[32];
    uint64_t id;
    struct coord *coord;
    struct view *view;
    struct member *member;
    struct lead *lead;
    struct controller *controller;
    bool cut;                  /* nodes that are cut off reach each other */
    uint64_t promised[SHARDS]; /* term */
    int64_t newest_ms[SHARDS]; /* of what was stored or let through here */
    int64_t stored_ms[SHARDS]; /* of what this copy stores */
    uint64_t gave_up;          /* the version that announced a step; taken for never announced */
    int64_t gone_ms;           /* its time */
};
struct dist {
    struct coord *coord;
    struct view *view;
    bool cut;
    int64_t ahead_ms; /* its clock */
};
struct push {
    struct str service;
    uint64_t series;
    int64_t when_ms;
    uint32_t stored; /* bits: shards */
};
struct world {
    enum mutant mutant;
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct prng prng;
    struct node nodes[NODES];
    struct dist dists[DISTS];
    struct push pushes[PUSHES];
    struct timer *tick;
    uint64_t acked, refused, cut_acked, doubled, given_up;
    uint32_t steps;
};

/* Clocks are right where the seed is even. */
void sw_open(struct world *w, uint64_t seed, enum mutant mutant);
void sw_close(struct world *w);
void sw_pass(struct world *w, uint64_t ms);
int64_t sw_wall(const struct world *w);
void sw_node_up(struct node *n);
void sw_node_down(struct node *n);
/* Cuts off some nodes at random, or none. */
void sw_cut(struct world *w, bool some);
void sw_push(struct world *w, struct push *p); /* a new one */
/* Sends it through this distributor, and counts the result. */
void sw_attempt(struct world *w, struct push *p, const struct dist *d);
const struct map *sw_map(struct world *w); /* of the service, a reference; NULL: none */
void sw_put_map(struct world *w, const struct map *m);
/* When all is well again, what was wanted comes. */
void sw_settle(struct world *w);

#endif
