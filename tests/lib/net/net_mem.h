/* SPDX-License-Identifier: Apache-2.0
 *
 * net_mem.h: an HTTP server without sockets: a simulated loop with a fake clock, and streams that
 * are memory, driven byte by byte by the test. Thread: one.
 */
#ifndef TESTS_LIB_NET_NET_MEM_H
#define TESTS_LIB_NET_NET_MEM_H

#include "common/net/http.h"
#include "common/net/stream.h"

#define NET_READ_MAX (64 * KIB) /* what the server gets in one piece, as from a socket */

struct net_world {
    struct clock_fake clock;
    struct loop *loop;
    struct pool *pool; /* no threads: jobs are posted calls */
    struct budget budget;
    struct metrics *metrics;
    struct http_server *server;
    bool drained;
    int tls_changed, tls_failed; /* calls of on_tls_files */
};
/* Limits: 4 connections, 4 KiB of head, deadlines of 10 s (head, body, write) and 60 s (idle). */
void net_world_init(struct net_world *w);
/* The same with TLS: files of net_tls.h in dir; ca may be NULL. */
void net_world_init_tls(struct net_world *w, const char *cert, const char *key, const char *ca,
                        bool tls_only);
void net_world_deinit(struct net_world *w); /* drains, frees, checks that the budget is whole */
/* Runs what is posted and due, without moving the clock. */
void net_settle(struct net_world *w);
/* Moves the clock on, running every timer at its time. */
void net_pass(struct net_world *w, uint64_t ms);

struct net_mem {
    struct stream stream; /* first */
    struct net_world *world;
    struct buf in;                      /* sent by the client, not read by the server yet */
    struct buf out;                     /* arrived at the client */
    size_t room;                        /* bytes the client takes; SIZE_MAX: all */
    struct str late[STREAM_SLICES_MAX]; /* borrowed from the server until it hears on_written */
    size_t late_len, late_bytes;
    bool reading, shut, closed, ended, breaks; /* breaks: the next write fails */
};
struct net_mem *net_connect(struct net_world *w);
void net_mem_free(struct net_mem *m);               /* the server must have closed it */
void net_send(struct net_mem *m, struct str bytes); /* in one piece */
void net_send_c(struct net_mem *m, const char *text);
void net_send_slowly(struct net_mem *m, const char *text); /* byte by byte */
void net_end(struct net_mem *m, bool broken);
/* The client takes n more bytes (room grows). */
void net_take(struct net_mem *m, size_t n);
/* What arrived so far, and forgets it. NUL-terminated; valid until the next call. */
const char *net_got(struct net_mem *m);

#endif
