/* SPDX-License-Identifier: Apache-2.0
 *
 * dist_bed.h: one distributor behind a real HTTP server over memory streams, and ingesters that do
 * what the test says, all on one simulated loop with a fake clock.
 */
#ifndef TESTS_LIB_ROLES_DIST_BED_H
#define TESTS_LIB_ROLES_DIST_BED_H

#include "common/base/vec.h"
#include "distributor/distributor.h"
#include "proto/ingest.pb-c.h"
#include "tests/lib/net/net_mem.h"
#include "tests/lib/roles/fake_identity.h"

#define DIST_BED_INGESTERS_MAX 4

enum dist_bed_answer {
    DIST_BED_ACK,
    DIST_BED_FAIL,   /* with .fail */
    DIST_BED_SILENT, /* takes it in, and never answers */
};
struct dist_bed;
struct dist_bed_ingester {
    struct dist_bed *bed;
    size_t number;
    char addr[48];
    struct rpc_node *node;
};
struct dist_bed {
    struct net_world world;
    struct env env;
    struct prng prng;
    struct rpc_net *net;
    struct conf *conf;
    struct role_ctx ctx;
    void *self; /* the role; NULL after dist_bed_stop */
    struct net_mem *client;
    struct fake_doorman door;
    struct dist_bed_ingester ingesters[DIST_BED_INGESTERS_MAX];
    size_t ingesters_len;
    enum dist_bed_answer answer; /* to every write */
    int fail;                    /* ERR_ code of DIST_BED_FAIL */
    uint32_t again_s;            /* of it */
    uint32_t fail_first;         /* so many requests are not answered, whatever `answer` says */
    uint32_t duplicates;         /* told in the ack */
    VEC(struct str) writes;      /* WriteRequests as they came in; owned */
    VEC(size_t) writes_to;       /* number of the ingester */
    struct rpc_call *silent[64];
    size_t silent_len;
    bool drained;
};

/* Flags as on the command line, NULL-ended; n ingesters, all answering. */
void dist_bed_init(struct dist_bed *b, size_t ingesters, const char *const *flags);
void dist_bed_deinit(struct dist_bed *b);
/* Drains and frees the role; CHECKs that it came to an end in a minute. */
void dist_bed_stop(struct dist_bed *b);
void dist_bed_kill_ingester(struct dist_bed *b, size_t i);
void dist_bed_start_ingester(struct dist_bed *b, size_t i);

/* POST to target ("/ingest?..."), extra header lines (each ended by \r\n) or "". Does not wait. */
void dist_bed_send(struct dist_bed *b, const char *target, const char *headers, struct str body);
/* What arrived at the client since, runs at most ms until there is something. "" if nothing. */
const char *dist_bed_reply(struct dist_bed *b, uint64_t ms);
/* Both; returns the status, and the answer in *ret if not NULL. */
int dist_bed_push(struct dist_bed *b, const char *target, const char *headers, struct str body,
                  const char **ret);
/* The i-th write that came in, unpacked: free with embertree__write_request__free_unpacked. */
Embertree__WriteRequest *dist_bed_write(const struct dist_bed *b, size_t i);
/* Value of a line of /metrics. */
uint64_t dist_bed_metric(struct dist_bed *b, const char *line);

#endif
