/* SPDX-License-Identifier: Apache-2.0
 *
 * ingester_bed.h: one ingester and a client that calls it: simulated (fake time, databases in
 * memory, mem:// network), or with threads, RocksDB and inproc://.
 */
#ifndef TESTS_LIB_ROLES_INGESTER_BED_H
#define TESTS_LIB_ROLES_INGESTER_BED_H

#include "common/role/core/memory.h"
#include "ingester/ingester.h"
#include "tests/lib/gen/write_gen.h"
#include "tests/lib/net/rpc_bed.h"

struct ingester_bed {
    struct rpc_bed rpc;
    struct fs fs; /* its space() answers the two figures below */
    uint64_t disk_free, disk_total;
    struct kv_source kv;
    struct memory *memory;
    uint64_t resident; /* the value given to the account */
    struct conf *conf;
    struct role_ctx ctx;
    void *self; /* the role; NULL while stopped */
    char addr[128];
    char *dir; /* RocksDB only */
    struct rpc_node *client;
    struct rpc_peer *peer;
    bool drained;
};

/* Up to 8 more flags, NULL-ended. */
void ingester_bed_init(struct ingester_bed *b, bool simulated, uint64_t seed,
                       const char *const *flags);
/* Starts the role; the error code of its start. */
int ingester_bed_start(struct ingester_bed *b, struct err *e);
/* Drains and frees the role. */
void ingester_bed_stop(struct ingester_bed *b);
void ingester_bed_deinit(struct ingester_bed *b);

/* One call, waited for. */
int ingester_bed_call(struct ingester_bed *b, enum rpc_method m, struct str payload,
                      struct rpc_bed_call *c);
/* One write; the model gets its values when it was acked as stored. Returns the code. */
int ingester_bed_write(struct ingester_bed *b, const struct write_gen *g, struct prng *p,
                       struct write_model *m);
/* Merges everything of service "svc" (NULL: every service) from start to end. */
int ingester_bed_merge(struct ingester_bed *b, const char *service, int64_t start_ms,
                       int64_t end_ms, struct write_model *ret);
/* Adds the stacks of a MergeReply. */
void ingester_bed_take_merge(struct str payload, struct write_model *ret);
/* Now, as a slot. */
uint32_t ingester_bed_slot(const struct ingester_bed *b);

#endif
