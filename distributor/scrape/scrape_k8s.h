/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_k8s.h: targets out of a Kubernetes API server: all objects once, then what changes.
 * Thread: the loop's.
 */
#ifndef DISTRIBUTOR_SCRAPE_SCRAPE_K8S_H
#define DISTRIBUTOR_SCRAPE_SCRAPE_K8S_H

#include "common/net/client/http_multi.h"
#include "common/sys/env.h"
#include "distributor/scrape/scrape_conf.h"

struct scrape_k8s;
struct scrape_k8s_opts {
    const struct scrape_k8s_conf *conf; /* borrowed */
    const char *job;
    struct http_multi *client;
    struct loop *loop;
    struct env *env;
    void (*changed)(void *cookie); /* there are other groups now */
    void *cookie;
};
struct scrape_k8s_state {    /* of its namespaces together */
    size_t objects, watches; /* watches: open ones */
    uint64_t lists, events, errors;
    const char *error; /* of what failed last; "" */
};

/* Can there be one? Not of the cluster we run in, where we run in none. */
NODISCARD int scrape_k8s_check(const struct scrape_k8s_conf *c, const char *job, struct err *e);
NODISCARD int scrape_k8s_new(const struct scrape_k8s_opts *o, struct scrape_k8s **ret,
                             struct err *e);
/* Was it made from the same? */
bool scrape_k8s_same(const struct scrape_k8s *k, const struct scrape_k8s_conf *c, const char *job);
void scrape_k8s_stop(struct scrape_k8s *k);
void scrape_k8s_free(struct scrape_k8s *k); /* NULL is fine */
/* Adds the groups of all objects to *out: text is borrowed until the next change. */
bool scrape_k8s_groups(const struct scrape_k8s *k, struct arena *a, struct scrape_groups *out);
void scrape_k8s_state(const struct scrape_k8s *k, struct scrape_k8s_state *ret);
const char *scrape_k8s_job(const struct scrape_k8s *k);

#endif
