/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_http.h: HTTP requests to a server in the simulation, each on a connection of its own, which
 * is memory. A request ends once: with a reply, or without one.
 */
#ifndef TESTS_LIB_SIM_SIM_HTTP_H
#define TESTS_LIB_SIM_SIM_HTTP_H

#include "common/base/list.h"
#include "common/net/http.h"

struct sim_reply {
    int status;      /* 0: none came: it is unknown what was done */
    struct str head; /* with its first line */
    struct str body;
};
typedef void (*sim_http_fn)(void *cookie, const struct sim_reply *r);

struct sim_site { /* a server and its connections */
    struct http_server *server;
    struct loop *loop;
    struct list conns;
};
void sim_site_init(struct sim_site *s, struct loop *loop, struct http_server *server);
/* The whole request. done is called later, after at most patience_ms. */
void sim_http(struct sim_site *s, struct str request, uint64_t patience_ms, sim_http_fn done,
              void *cookie);
/* All connections break. */
void sim_site_cut(struct sim_site *s);
bool sim_site_idle(const struct sim_site *s);
/* Value of a header; STR_NULL: missing. */
struct str sim_reply_header(const struct sim_reply *r, const char *name);

#endif
