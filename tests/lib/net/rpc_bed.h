/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_bed.h: rpc nodes for tests, over any transport: on a real loop (tcp, ipc, inproc) or on a
 * simulated one (mem).
 */
#ifndef TESTS_LIB_NET_RPC_BED_H
#define TESTS_LIB_NET_RPC_BED_H

#include "common/base/prng.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_mem.h"
#include "common/sys/pool.h"

enum rpc_bed_kind { RPC_BED_TCP, RPC_BED_IPC, RPC_BED_INPROC, RPC_BED_MEM };
#define RPC_BED_SEALED 8u /* beside one of them: with a cluster key */

struct rpc_bed {
    enum rpc_bed_kind kind;
    struct env env; /* the real one, or seeded random and fake time */
    struct clock_fake clock;
    struct prng prng;
    struct metrics *metrics;
    struct loop *loop;
    struct rpc_net *net;
    struct rpc_keys *keys; /* NULL: frames are not sealed */
    struct pool *pool;
    char dir[64];  /* of ipc sockets; empty otherwise */
    uint32_t next; /* number of the next address */
    uint16_t port; /* first of tcp addresses, once there is one */
};

void rpc_bed_init(struct rpc_bed *b, unsigned kind, uint64_t seed);
void rpc_bed_deinit(struct rpc_bed *b);
/* Keys for the nodes made from now on; earlier nodes keep theirs only if they are the same object.
 * NULL: none. Borrowed. */
void rpc_bed_give_keys(struct rpc_bed *b, const struct rpc_keys *keys, bool optional);
/* Keys with these secrets, such as "ab": each letter's key is 32 times that letter. */
struct rpc_keys *rpc_bed_keys(const char *letters);
/* An address that no node listens on. */
void rpc_bed_addr(struct rpc_bed *b, char ret[128]);
/* Options with short times: heartbeat 20 ms, dead after 300 ms; message_max 4 MiB. */
struct rpc_node_opts rpc_bed_opts(struct rpc_bed *b, const char *listen);
struct rpc_node *rpc_bed_node(struct rpc_bed *b, const char *listen);
/* Runs the loop until until(cookie), false after limit_ms (of the bed's clock). */
bool rpc_bed_run(struct rpc_bed *b, bool (*until)(void *cookie), void *cookie, uint64_t limit_ms);
void rpc_bed_sleep(struct rpc_bed *b, uint64_t ms); /* runs the loop that long */
/* Value of a line of /metrics, such as embertree_rpc_queue_bytes; 0 if missing. */
uint64_t rpc_bed_metric(struct rpc_bed *b, const char *name);

/* What became of a call. */
struct rpc_bed_call {
    uint64_t id;
    int ends; /* calls of done */
    int code; /* 0, or ERR_ */
    struct buf reply;
    char text[ERR_TEXT_MAX];
    uint32_t again_s;
};
void rpc_bed_call(struct rpc_bed_call *c, struct rpc_peer *p, enum rpc_method m, struct str payload,
                  uint64_t deadline_ms);
void rpc_bed_call_deinit(struct rpc_bed_call *c);
/* Runs until c ended, or CHECKs after a minute. Returns its code. */
int rpc_bed_end(struct rpc_bed *b, struct rpc_bed_call *c);
/* Serves method m by echoing the request. */
void rpc_bed_echo(struct rpc_node *n, enum rpc_method m);
/* n bytes that do not compress, from seed. */
void rpc_bed_bytes(struct buf *out, size_t n, uint64_t seed);

#endif
