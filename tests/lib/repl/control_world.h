/* SPDX-License-Identifier: Apache-2.0
 *
 * control_world.h: nodes of views, members, leads and controllers over a simulated coordination
 * service, for tests/prop/test_control.c. The replication between nodes is a model: the named node
 * leads, and learners catch up. Each record that appears must be a valid successor of the previous
 * one.
 */
#ifndef TESTS_LIB_REPL_CONTROL_WORLD_H
#define TESTS_LIB_REPL_CONTROL_WORLD_H

#include "common/base/prng.h"
#include "common/cluster/control/controller.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/lead.h"

enum { CONTROL_NODES = 9, CONTROL_SHARDS = 12, CONTROL_REPLICAS = 3 };
#define CONTROL_PREFIX "/e"

struct control_node {
    struct control_world *w;
    char name[16], zone[8], addr[32], cluster_id[CLUSTER_ID_LEN + 1];
    uint64_t id;
    struct coord *coord; /* NULL: down */
    struct view *view;
    struct member *member;
    struct lead *lead;
    struct controller *controller;
    bool cut, drained; /* drained: its record asks for it, and it knows that */
    struct fs files;   /* cluster.json in memory; survives a crash */
    struct buf saved;
    uint64_t last[CONTROL_SHARDS]; /* of its log; survives a crash */
};
struct control_world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct prng prng;
    struct control_node nodes[CONTROL_NODES];
    struct timer *tick;
    uint64_t commit[CONTROL_SHARDS];
    struct coord_backup *whole; /* of the site, while another one stands in its place */
    struct repl_record seen[CONTROL_SHARDS];
    int64_t seen_rev[CONTROL_SHARDS], rev;
    uint64_t records;
    bool away;
    uint64_t rate; /* of one service, on each node */
};

void control_open(struct control_world *w, uint64_t seed);
void control_close(struct control_world *w);
void control_node_up(struct control_node *n); /* also if it is */
void control_node_down(struct control_node *n);
/* It is up and not cut off. */
bool control_talks(struct control_world *w, const char *name);
void control_pass(struct control_world *w, uint64_t ms);
/* All faults end; within four minutes every shard has its replicas in zones of their own, a leader
 * that lives, and nothing is left to be moved. */
void control_heal(struct control_world *w);
/* Borrowed until the next change; *ret_rev 0: no such key. */
struct str control_value(struct control_world *w, struct coord_key key, int64_t *ret_rev);
/* The service is that backup, or (NULL) an empty one, until it is brought back. */
void control_put_in_place(struct control_world *w, const struct coord_backup *other);
void control_bring_back(struct control_world *w);

#endif
