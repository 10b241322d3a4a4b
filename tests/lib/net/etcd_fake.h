/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd_fake.h: an etcd that answers what a test says: an HTTP server on loopback whose handlers are
 * the test's, and a client of it. Failures fail the test, and so does a minute in which nothing
 * ends the loop.
 *
 *   struct bed { struct etcd_fake f; ... } b;
 *   etcd_fake_open(&b.f);
 *   etcd_fake_on(&b.f, "/v3/kv/range", on_range, &b);
 *   etcd_fake_connect(&b.f);             b.f.coord from here on
 *   loop_run(b.f.loop);                  until a handler calls loop_stop
 *   etcd_fake_close(&b.f);
 */
#ifndef TESTS_LIB_NET_ETCD_FAKE_H
#define TESTS_LIB_NET_ETCD_FAKE_H

#include "common/cluster/coord/coord_etcd.h"
#include "common/net/http.h"
#include "common/obs/metrics.h"

struct etcd_fake {
    struct loop *loop; /* owned, as all of these */
    struct timer *guard;
    struct metrics *metrics;
    struct budget in_flight;
    struct http_server *server;
    struct coord *coord;
};

void etcd_fake_open(struct etcd_fake *f);
void etcd_fake_on(struct etcd_fake *f, const char *path, void (*handler)(struct http_req *r),
                  void *cookie);
void etcd_fake_connect(struct etcd_fake *f);
void etcd_fake_close(struct etcd_fake *f);
/* One whole answer of JSON. */
void etcd_fake_say(struct http_req *r, int status, const char *json);

#endif
