/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/etcd_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdio.h>

#define GUARD_MS 60000

static void too_long(void *cookie)
{
    (void)cookie;
    fail_msg("nothing came for a minute");
}

static void stop(void *cookie)
{
    loop_stop(((struct etcd_fake *)cookie)->loop);
}

void etcd_fake_open(struct etcd_fake *f)
{
    struct err e;

    *f = (struct etcd_fake){ .loop = loop_new(clock_real()), .metrics = metrics_new() };
    budget_init(&f->in_flight, 64 * MIB);
    struct http_server_opts o = { .loop = f->loop,
                                  .in_flight = &f->in_flight,
                                  .metrics = f->metrics,
                                  .listen = "127.0.0.1:0",
                                  .connections_max = 100,
                                  .head_bytes_max = 64 * KIB,
                                  .head_ms = 10000,
                                  .body_ms = 10000,
                                  .idle_ms = 10000,
                                  .write_ms = 10000 };
    assert_int_equal(http_server_new(&o, &f->server, &e), 0);
    f->guard = loop_timer_new(f->loop, too_long, f);
    loop_timer_start(f->guard, GUARD_MS, 0);
}

void etcd_fake_on(struct etcd_fake *f, const char *path, void (*handler)(struct http_req *r),
                  void *cookie)
{
    http_route(f->server, HTTP_POST, path, MIB, handler, cookie);
}

void etcd_fake_connect(struct etcd_fake *f)
{
    char url[64];
    const char *urls[] = { url };
    struct coord_etcd_opts o = { .loop = f->loop, .urls = urls, .urls_len = 1 };
    struct err e;

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(f->server));
    assert_int_equal(coord_etcd_new(&o, &f->coord, &e), 0);
}

void etcd_fake_close(struct etcd_fake *f)
{
    coord_free(f->coord);
    http_server_drain(f->server, stop, f);
    loop_run(f->loop);
    loop_timer_free(f->guard);
    http_server_free(f->server);
    loop_free(f->loop);
    metrics_free(f->metrics);
}

void etcd_fake_say(struct http_req *r, int status, const char *json)
{
    struct buf text;

    buf_init(&text, 64 * KIB);
    buf_add_str(&text, str_c(json));
    http_reply(r, status, "application/json", &text);
}
