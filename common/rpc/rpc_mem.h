/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_mem.h: the simulated network behind mem:// addresses. The same frames as on sockets travel
 * through it, and a seed decides which are late, lost, repeated, damaged. On a simulated loop a run
 * is a function of the seed. Faults may be changed at any time and hold for frames sent from then
 * on. Thread: the loop's.
 */
#ifndef COMMON_RPC_RPC_MEM_H
#define COMMON_RPC_RPC_MEM_H

#include "common/rpc/rpc.h"

struct rpc_mem_faults {
    uint32_t delay_min_ms, delay_max_ms; /* different ones reorder */
    double lost, repeated, damaged;      /* chance of each frame; damaged = one bit flips */
    size_t pipe_bytes_max;               /* under way per pipe, then EAGAIN; 0: 1 MiB */
    double late;                         /* chance of each frame to take up to late_max_ms more */
    uint32_t late_max_ms;
};

/* Before the first mem:// node, and to start over; without it the seed is 1 and nothing fails. */
void rpc_mem_seed(struct rpc_net *n, uint64_t seed);
void rpc_mem_faults(struct rpc_net *n, const struct rpc_mem_faults *f);
/* One way: frames from -> to are lost from now on, those under way as well. "*" is every address.
 */
void rpc_mem_cut(struct rpc_net *n, const char *from, const char *to);
void rpc_mem_heal(struct rpc_net *n); /* undoes every cut */
/* Everything to or from addr takes that much longer; 0 ends it. */
void rpc_mem_slow(struct rpc_net *n, const char *addr, uint32_t more_ms);
/* The node that listens on addr listens on `to` from now on, and sends from there: another node may
 * take its place on addr though it has not ended. Frames under way to addr are for that other
 * node. */
void rpc_mem_rename(struct rpc_net *n, const char *addr, const char *to);
/* Hands bytes to the node that listens on addr, as if they came from a socket. False: no node
 * does. */
bool rpc_mem_inject(struct rpc_net *n, const char *addr, struct str bytes);
/* Asks `late_ms` about every frame that is sent: it arrives after exactly so long; 0: as it comes.
 * NULL ends it. */
void rpc_mem_late(struct rpc_net *n,
                  uint64_t (*late_ms)(void *cookie, const char *from, const char *to,
                                      struct str bytes),
                  void *cookie);
/* Shows every frame that is sent to `on_frame`; NULL ends it. */
void rpc_mem_tap(struct rpc_net *n, void (*on_frame)(void *cookie, struct str bytes), void *cookie);

struct rpc_mem_stats {
    uint64_t sent, delivered, lost, cut, repeated, damaged, nobody;
};
struct rpc_mem_stats rpc_mem_stats(const struct rpc_net *n);

#endif
