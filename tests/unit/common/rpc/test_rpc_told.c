/* SPDX-License-Identifier: Apache-2.0
 *
 * What answers to pings tell of who answers: its clock, and bits of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/lib/net/rpc_bed.h"

/* A server and a client that only calls, on one bed. */
struct pair {
    struct rpc_bed bed;
    char addr[128];
    struct rpc_node *server, *client;
};

static bool is_up(void *cookie)
{
    struct pair *p = cookie;
    struct rpc_peer *peer;
    struct err e;

    return rpc_peer_get(p->client, p->addr, &peer, &e) == 0 && rpc_peer_up(peer);
}

static void pair_init(struct pair *p, unsigned kind, const struct rpc_mem_faults *faults)
{
    *p = (struct pair){ 0 };
    rpc_bed_init(&p->bed, kind, 7);
    rpc_bed_addr(&p->bed, p->addr);
    p->server = rpc_bed_node(&p->bed, p->addr);
    p->client = rpc_bed_node(&p->bed, "");
    if (faults)
        rpc_mem_faults(p->bed.net, faults);
    assert_true(rpc_net_meet(p->bed.net, p->addr)); /* the server is that itself */
    assert_true(rpc_bed_run(&p->bed, is_up, p, 60000));
}

static void pair_deinit(struct pair *p)
{
    rpc_node_free(p->client);
    rpc_node_free(p->server);
    rpc_bed_deinit(&p->bed);
}

struct told {
    size_t n;
    struct rpc_told last;
};

static void on_told(void *cookie, const struct rpc_told *t)
{
    struct told *told = cookie;

    told->n++;
    told->last = *t;
}

/* Reported once each time, and by a live peer. */
static bool says_refused(void *cookie)
{
    struct told t = { 0 };

    rpc_net_told(((struct pair *)cookie)->bed.net, on_told, &t);
    return t.n == 1 && t.last.says == (RPC_SAYS_REFUSED | 64);
}

static bool is_down(void *cookie)
{
    return !is_up(cookie);
}

static void pongs_tell_clock_and_state(void **state)
{
    struct told t = { 0 };
    struct pair p;

    pair_init(&p, (unsigned)(uintptr_t)*state, NULL);
    rpc_net_told(p.bed.net, on_told, &t);
    if (p.bed.kind == RPC_BED_INPROC) { /* it is this process */
        assert_int_equal(t.n, 0);
        pair_deinit(&p);
        return;
    }
    assert_int_equal(t.n, 1);
    assert_string_equal(t.last.addr, p.addr);
    assert_int_equal(t.last.says, 0);
    assert_in_range(t.last.ahead_ms + (int64_t)t.last.unsure_ms, 0, 2 * t.last.unsure_ms);
    rpc_net_say(p.bed.net, RPC_SAYS_REFUSED | 64);
    assert_true(rpc_bed_run(&p.bed, says_refused, &p, 60000));
    rpc_node_free(p.server); /* a dead peer is not reported */
    assert_true(rpc_bed_run(&p.bed, is_down, &p, 60000));
    rpc_net_told(p.bed.net, on_told, &t);
    assert_int_equal(t.n, 1);
    rpc_node_free(p.client);
    rpc_bed_deinit(&p.bed);
}

/* Ours goes ahead while a pong is on its way: by that pong, the other one is behind. */
static void a_clock_that_is_off_is_seen(void **state)
{
    const struct rpc_mem_faults slow = { .delay_min_ms = 6, .delay_max_ms = 6 };
    struct told t = { 0 };
    struct pair p;

    (void)state;
    pair_init(&p, RPC_BED_MEM, &slow);
    for (int i = 0; i < 200 && t.last.ahead_ms > -7000; i++) {
        clock_fake_jump(&p.bed.clock, 7100);
        rpc_bed_sleep(&p.bed, 3);
        rpc_net_told(p.bed.net, on_told, &t);
    }
    assert_in_range(-t.last.ahead_ms, 7000, 4 * 7100);
    assert_in_range(t.last.unsure_ms, 6, 8);
    pair_deinit(&p);
}

struct meets {
    struct rpc_net *net;
    const char *addr;
};

static bool is_met(void *cookie)
{
    struct meets *m = cookie;
    struct told t = { 0 };

    rpc_net_told(m->net, on_told, &t);
    return t.n == 1 && str_eq(str_c(t.last.addr), str_c(m->addr));
}

/* A process that no node calls is reported; a process that cannot be called is not. */
static void one_is_met(void **state)
{
    struct told t = { 0 };
    struct rpc_bed b;
    char addr[128];

    rpc_bed_init(&b, (unsigned)(uintptr_t)*state, 7);
    rpc_bed_addr(&b, addr);
    assert_false(rpc_net_meet(b.net, addr)); /* no node */
    struct rpc_node *client = rpc_bed_node(&b, "");
    struct rpc_net *far = rpc_net_new(&b.env, NULL);
    struct rpc_node_opts o = rpc_bed_opts(&b, addr);
    struct rpc_node *server;
    struct err e;

    o.net = far;
    assert_int_equal(rpc_node_new(&o, &server, &e), 0);
    assert_true(rpc_net_meet(b.net, addr));
    assert_true(rpc_net_meet(b.net, addr)); /* as before */
    assert_false(rpc_net_meet(b.net, "nonsense"));
    struct meets m = { b.net, addr };
    assert_true(rpc_bed_run(&b, is_met, &m, 60000));
    rpc_net_told(far, on_told, &t); /* it makes no calls */
    assert_int_equal(t.n, 0);
    rpc_node_free(client);
    rpc_node_free(server);
    rpc_net_free(far);
    rpc_bed_deinit(&b);
}

#define OVER(kind, what, fn)                                                              \
    {                                                                                     \
        .name = what " " #fn, .test_func = fn, .initial_state = (void *)(uintptr_t)(kind) \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER(RPC_BED_TCP, "tcp", pongs_tell_clock_and_state),
        OVER(RPC_BED_IPC, "ipc", pongs_tell_clock_and_state),
        OVER(RPC_BED_INPROC, "inproc", pongs_tell_clock_and_state),
        OVER(RPC_BED_MEM, "mem", pongs_tell_clock_and_state),
        OVER(RPC_BED_TCP | RPC_BED_SEALED, "sealed tcp", pongs_tell_clock_and_state),
        OVER(RPC_BED_MEM | RPC_BED_SEALED, "sealed mem", pongs_tell_clock_and_state),
        OVER(RPC_BED_TCP, "tcp", one_is_met),
        OVER(RPC_BED_IPC, "ipc", one_is_met),
        cmocka_unit_test(a_clock_that_is_off_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
