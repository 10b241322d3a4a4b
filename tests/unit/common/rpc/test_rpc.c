/* SPDX-License-Identifier: Apache-2.0
 *
 * The same tests over tcp, ipc, inproc and the simulated network: no role may know the difference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "tests/lib/net/rpc_bed.h"

/* A server and a client that only calls, on one bed. */
struct pair {
    struct rpc_bed bed;
    char addr[128];
    struct rpc_node *server, *client;
    struct rpc_peer *peer;
    struct rpc_call *held; /* by serve_hold */
    bool drained;
};

static void pair_init(struct pair *p, unsigned kind)
{
    struct err e;

    *p = (struct pair){ 0 };
    rpc_bed_init(&p->bed, kind, 7);
    rpc_bed_addr(&p->bed, p->addr);
    p->server = rpc_bed_node(&p->bed, p->addr);
    rpc_bed_echo(p->server, RPC_WRITE);
    p->client = rpc_bed_node(&p->bed, "");
    if (rpc_peer_get(p->client, p->addr, &p->peer, &e))
        fail_msg("%s", e.text);
}

static void pair_deinit(struct pair *p)
{
    rpc_node_free(p->client);
    rpc_node_free(p->server);
    rpc_bed_deinit(&p->bed);
}

static unsigned kind_of(void **state)
{
    return (unsigned)(uintptr_t)*state;
}

static bool peer_is_up(void *cookie)
{
    return rpc_peer_up(cookie);
}

static bool peer_is_down(void *cookie)
{
    return !rpc_peer_up(cookie);
}

static void serve_hold(void *cookie, struct rpc_call *call, struct str payload)
{
    struct pair *p = cookie;

    (void)payload;
    assert_null(p->held);
    p->held = call;
}

static bool is_held(void *cookie)
{
    return ((struct pair *)cookie)->held != NULL;
}

static bool is_canceled(void *cookie)
{
    return *rpc_call_canceled(((struct pair *)cookie)->held);
}

static void reply_held(struct pair *p, const char *text)
{
    struct buf b;

    buf_init(&b, 64);
    buf_add_str(&b, str_c(text));
    rpc_reply(p->held, &b);
    p->held = NULL;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void echo_of_every_size(void **state)
{
    static const size_t sizes[] = { 0,
                                    1,
                                    1023,
                                    1024,
                                    1025,
                                    32 * 1024,
                                    32 * 1024 + 1,
                                    256 * 1024 - 1,
                                    256 * 1024,
                                    256 * 1024 + 1,
                                    1 << 20,
                                    3 * 1024 * 1024 + 7,
                                    4 << 20 };
    struct pair p;

    pair_init(&p, kind_of(state));
    for (size_t i = 0; i < 2 * ARRAY_LEN(sizes); i++) {
        struct rpc_bed_call c;
        struct buf b;

        buf_init(&b, SIZE_MAX);
        if (i % 2)
            rpc_bed_bytes(&b, sizes[i / 2], i);
        else
            for (size_t k = 0; k < sizes[i / 2]; k++)
                buf_add_c(&b, (char)(k / 100)); /* compresses */
        rpc_bed_call(&c, p.peer, RPC_WRITE, buf_str(&b), 10000);
        if (rpc_bed_end(&p.bed, &c))
            fail_msg("%zu bytes: %s", sizes[i / 2], c.text);
        assert_true(str_eq(buf_str(&c.reply), buf_str(&b)));
        rpc_bed_call_deinit(&c);
        buf_deinit(&b);
    }
    assert_true(rpc_peer_up(p.peer));
    pair_deinit(&p);
}

static void many_under_way_all_end_once(void **state)
{
    enum { CALLS = 120 };
    struct pair p;
    struct rpc_bed_call *calls = XNEW_ARRAY(struct rpc_bed_call, CALLS);

    pair_init(&p, kind_of(state));
    for (int i = 0; i < CALLS; i++) {
        struct buf b;

        buf_init(&b, SIZE_MAX);
        rpc_bed_bytes(&b, (size_t)(i % 7) * 20000, (uint64_t)i);
        rpc_bed_call(&calls[i], p.peer, RPC_WRITE, buf_str(&b), 15000);
        buf_deinit(&b);
    }
    for (int i = 0; i < CALLS; i++) {
        struct buf b;

        if (rpc_bed_end(&p.bed, &calls[i]))
            fail_msg("call %d: %s", i, calls[i].text);
        buf_init(&b, SIZE_MAX);
        rpc_bed_bytes(&b, (size_t)(i % 7) * 20000, (uint64_t)i);
        assert_true(str_eq(buf_str(&calls[i].reply), buf_str(&b)));
        buf_deinit(&b);
    }
    rpc_bed_sleep(&p.bed, 50);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(calls[i].ends, 1);
        rpc_bed_call_deinit(&calls[i]);
    }
    xfree(calls);
    pair_deinit(&p);
}

static void serve_fail(void *cookie, struct rpc_call *call, struct str payload)
{
    struct err e;

    (void)cookie;
    err_set_again(&e, ERR_NOT_FOUND, 42, "no service named %.*s", STR_ARG(payload));
    rpc_fail(call, &e);
}

static void errors_carry_code_and_text(void **state)
{
    struct rpc_bed_call c;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_fail, NULL);
    rpc_bed_call(&c, p.peer, RPC_MERGE, STR("cart"), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_NOT_FOUND);
    assert_string_equal(c.text, "no service named cart");
    assert_int_equal(c.again_s, 42);
    rpc_bed_call_deinit(&c);
    rpc_bed_call(&c, p.peer, RPC_LABELS, STR(""), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_UNIMPLEMENTED);
    assert_non_null(strstr(c.text, "labels"));
    assert_int_equal(c.again_s, 0);
    rpc_bed_call_deinit(&c);
    assert_int_equal(
        rpc_bed_metric(&p.bed, "embertree_rpc_calls_total{method=\"merge\",result=\"not_found\"}"),
        1);
    pair_deinit(&p);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void serve_large(void *cookie, struct rpc_call *call, struct str payload)
{
    struct buf b;

    (void)payload;
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, *(size_t *)cookie, 1);
    rpc_reply(call, &b);
}

static void oversize_is_refused_by_the_sender(void **state)
{
    size_t large = 4 * MIB + 1;
    struct rpc_bed_call c;
    struct buf b;
    struct pair p;

    pair_init(&p, kind_of(state));
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, large, 1);
    rpc_bed_call(&c, p.peer, RPC_WRITE, buf_str(&b), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_LIMIT);
    assert_non_null(strstr(c.text, "4194305"));
    rpc_bed_call_deinit(&c);
    buf_deinit(&b);
    rpc_serve(p.server, RPC_MERGE, serve_large, &large);
    rpc_bed_call(&c, p.peer, RPC_MERGE, STR(""), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_LIMIT);
    assert_non_null(strstr(c.text, "reply of 4194305 bytes"));
    rpc_bed_call_deinit(&c);
    /* The connection is as good as before. */
    rpc_bed_call(&c, p.peer, RPC_WRITE, STR("x"), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), 0);
    rpc_bed_call_deinit(&c);
    pair_deinit(&p);
}

static void receiver_with_a_smaller_limit_says_so(void **state)
{
    struct rpc_node_opts o;
    struct rpc_node *small;
    struct rpc_peer *peer;
    struct rpc_bed_call c;
    size_t large = 300000;
    char addr[128];
    struct pair p;
    struct buf b;
    struct err e;

    pair_init(&p, kind_of(state));
    rpc_bed_addr(&p.bed, addr);
    o = rpc_bed_opts(&p.bed, addr);
    o.message_max = 100000;
    assert_int_equal(rpc_node_new(&o, &small, &e), 0);
    rpc_bed_echo(small, RPC_WRITE);
    assert_int_equal(rpc_peer_get(p.client, addr, &peer, &e), 0);
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, large, 1);
    rpc_bed_call(&c, peer, RPC_WRITE, buf_str(&b), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_LIMIT);
    assert_non_null(strstr(c.text, "at most 100000"));
    rpc_bed_call_deinit(&c);
    buf_deinit(&b);
    /* And the other way: a reply that the caller does not take ends its call. */
    rpc_serve(p.server, RPC_MERGE, serve_large, &large);
    assert_int_equal(rpc_peer_get(small, p.addr, &peer, &e), 0);
    rpc_bed_call(&c, peer, RPC_MERGE, STR(""), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_LIMIT);
    assert_non_null(strstr(c.text, "at most 100000"));
    rpc_bed_call_deinit(&c);
    rpc_node_free(small);
    pair_deinit(&p);
}

static void pending_is_bounded(void **state)
{
    enum { MAX = 256 };
    struct rpc_bed_call *calls = XNEW_ARRAY(struct rpc_bed_call, MAX + 5);
    struct pair p;

    pair_init(&p, kind_of(state));
    for (int i = 0; i < MAX + 5; i++)
        rpc_bed_call(&calls[i], p.peer, RPC_WRITE, STR("x"), 5000);
    for (int i = 0; i < MAX + 5; i++) {
        assert_int_equal(rpc_bed_end(&p.bed, &calls[i]), i < MAX ? 0 : ERR_BUSY);
        rpc_bed_call_deinit(&calls[i]);
    }
    xfree(calls);
    pair_deinit(&p);
}

static void queue_to_an_absent_peer_is_bounded(void **state)
{
    enum { CALLS = 40 }; /* of 256 KiB, queue 8 MiB */
    struct rpc_bed_call calls[CALLS];
    int busy = 0;
    struct rpc_peer *peer;
    char addr[128];
    struct pair p;
    struct buf b;
    struct err e;

    pair_init(&p, kind_of(state));
    rpc_bed_addr(&p.bed, addr);
    assert_int_equal(rpc_peer_get(p.client, addr, &peer, &e), 0);
    if (p.bed.kind == RPC_BED_MEM) /* a simulated pipe takes frames without a receiver, too */
        rpc_mem_faults(p.bed.net,
                       &(struct rpc_mem_faults){ .delay_min_ms = 1000, .delay_max_ms = 1000 });
    buf_init(&b, SIZE_MAX);
    rpc_bed_bytes(&b, 256 * KIB, 1);
    for (int i = 0; i < CALLS; i++)
        rpc_bed_call(&calls[i], peer, RPC_WRITE, buf_str(&b), 10000);
    for (int i = 0; i < CALLS; i++) {
        int code = rpc_bed_end(&p.bed, &calls[i]);

        busy += code == ERR_BUSY;
        assert_true(code == ERR_BUSY || code == ERR_UNAVAILABLE);
        rpc_bed_call_deinit(&calls[i]);
    }
    assert_in_range(busy, 4, 12);
    buf_deinit(&b);
    /* Down by now: the next one fails at once. */
    assert_false(rpc_peer_up(peer));
    rpc_bed_call(&calls[0], peer, RPC_WRITE, STR("x"), 10000);
    assert_int_equal(rpc_bed_end(&p.bed, &calls[0]), ERR_UNAVAILABLE);
    assert_non_null(strstr(calls[0].text, "never answered"));
    rpc_bed_call_deinit(&calls[0]);
    pair_deinit(&p);
    (void)e;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void deadline_ends_the_call_and_the_late_reply_is_stale(void **state)
{
    struct rpc_bed_call c;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    rpc_bed_call(&c, p.peer, RPC_MERGE, STR("x"), 100);
    assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
    assert_in_range(rpc_call_left_ms(p.held), 0, 101);
    assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_TIMEOUT);
    assert_non_null(strstr(c.text, "no reply within 100 ms"));
    assert_true(rpc_bed_run(&p.bed, is_canceled, &p, 60000));
    reply_held(&p, "late"); /* canceled: not even sent */
    rpc_bed_sleep(&p.bed, 50);
    assert_int_equal(c.ends, 1);
    rpc_bed_call_deinit(&c);
    pair_deinit(&p);
}

/* The caller has its answer, once, while the work continues with the call and its payload. */
static void fails_early(void **state)
{
    struct rpc_bed_call c;
    struct pair p;
    struct err e;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    for (int late = 0; late < 2; late++) {
        rpc_bed_call(&c, p.peer, RPC_MERGE, STR("x"), 60000);
        assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
        (void)err_set(&e, ERR_BUSY, "the disk hangs");
        rpc_fail_early(p.held, &e);
        assert_int_equal(rpc_bed_end(&p.bed, &c), ERR_BUSY);
        assert_string_equal(c.text, "the disk hangs");
        assert_true(*rpc_call_canceled(p.held));
        rpc_bed_sleep(&p.bed, 100);
        if (late) {
            rpc_fail(p.held, &e);
            p.held = NULL;
        } else {
            reply_held(&p, "late");
        }
        rpc_bed_sleep(&p.bed, 50);
        assert_int_equal(c.ends, 1);
        rpc_bed_call_deinit(&c);
    }
    pair_deinit(&p);
}

static void cancel_reaches_the_peer(void **state)
{
    struct rpc_bed_call c;
    struct buf large;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    rpc_bed_call(&c, p.peer, RPC_MERGE, STR("x"), 60000);
    assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
    assert_false(*rpc_call_canceled(p.held));
    rpc_cancel(p.client, c.id);
    rpc_cancel(p.client, c.id); /* nothing to cancel any more */
    assert_true(rpc_bed_run(&p.bed, is_canceled, &p, 60000));
    reply_held(&p, "late");
    rpc_bed_sleep(&p.bed, 50);
    assert_int_equal(c.ends, 0);
    rpc_bed_call_deinit(&c);
    /* A call that failed inside rpc_send, before `done` was called. */
    buf_init(&large, SIZE_MAX);
    rpc_bed_bytes(&large, 5 * MIB, 1);
    rpc_bed_call(&c, p.peer, RPC_WRITE, buf_str(&large), 1000);
    buf_deinit(&large);
    rpc_cancel(p.client, c.id);
    rpc_bed_sleep(&p.bed, 50);
    assert_int_equal(c.ends, 0);
    rpc_bed_call_deinit(&c);
    pair_deinit(&p);
}

struct twins {
    struct rpc_node *node;
    uint64_t id[2];
    int ends;
};

static void cancel_the_other(void *cookie, struct str reply, const struct err *err)
{
    struct twins *t = cookie;

    (void)reply;
    assert_non_null(err);
    t->ends++;
    rpc_cancel(t->node, t->id[0]);
    rpc_cancel(t->node, t->id[1]);
}

/* Two that failed inside rpc_send end in one round: the first to end may cancel the second. */
static void a_failed_call_cancels_another(void **state)
{
    struct twins t = { 0 };
    struct pair p;

    pair_init(&p, kind_of(state));
    t.node = p.client;
    for (size_t i = 0; i < 2; i++) {
        struct buf large;

        buf_init(&large, SIZE_MAX);
        rpc_bed_bytes(&large, 5 * MIB, 1);
        t.id[i] = rpc_send(p.peer, RPC_WRITE, &large, 1000, cancel_the_other, &t);
    }
    rpc_bed_sleep(&p.bed, 50);
    assert_int_equal(t.ends, 1);
    pair_deinit(&p);
}

/* ---- life of nodes --------------------------------------------------------------------------- */

static void a_call_waits_for_a_peer_that_starts(void **state)
{
    struct rpc_node *late;
    struct rpc_peer *peer;
    struct rpc_bed_call c;
    char addr[128];
    struct pair p;
    struct err e;

    pair_init(&p, kind_of(state));
    if (p.bed.kind == RPC_BED_MEM) {
        /* The simulated network keeps nothing for a node that is not there. */
        pair_deinit(&p);
        return;
    }
    rpc_bed_addr(&p.bed, addr);
    assert_int_equal(rpc_peer_get(p.client, addr, &peer, &e), 0);
    rpc_bed_call(&c, peer, RPC_WRITE, STR("early"), 10000);
    rpc_bed_sleep(&p.bed, 60);
    assert_int_equal(c.ends, 0);
    late = rpc_bed_node(&p.bed, addr);
    rpc_bed_echo(late, RPC_WRITE);
    assert_int_equal(rpc_bed_end(&p.bed, &c), 0);
    rpc_bed_call_deinit(&c);
    rpc_node_free(late);
    pair_deinit(&p);
}

static void a_peer_dies_and_comes_back(void **state)
{
    struct rpc_bed_call held, c;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    assert_true(rpc_bed_run(&p.bed, peer_is_up, p.peer, 60000));
    rpc_bed_call(&held, p.peer, RPC_MERGE, STR("x"), 60000);
    assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
    rpc_node_free(p.server);
    assert_int_equal(rpc_bed_end(&p.bed, &held), ERR_UNAVAILABLE);
    assert_non_null(strstr(held.text, "no answer to pings"));
    assert_true(rpc_bed_run(&p.bed, peer_is_down, p.peer, 60000));
    reply_held(&p, "into the void");
    p.server = rpc_bed_node(&p.bed, p.addr);
    rpc_bed_echo(p.server, RPC_WRITE);
    assert_true(rpc_bed_run(&p.bed, peer_is_up, p.peer, 15000));
    rpc_bed_call(&c, p.peer, RPC_WRITE, STR("again"), 5000);
    assert_int_equal(rpc_bed_end(&p.bed, &c), 0);
    rpc_bed_sleep(&p.bed, 50);
    assert_int_equal(held.ends, 1);
    rpc_bed_call_deinit(&held);
    rpc_bed_call_deinit(&c);
    pair_deinit(&p);
}

/* Faster than dead_ms: the new epoch tells. */
static void a_restart_fails_what_the_former_process_had(void **state)
{
    struct rpc_bed_call held;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    assert_true(rpc_bed_run(&p.bed, peer_is_up, p.peer, 60000));
    rpc_bed_call(&held, p.peer, RPC_MERGE, STR("x"), 60000);
    assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
    rpc_node_free(p.server);
    p.server = rpc_bed_node(&p.bed, p.addr);
    reply_held(&p, "into the void");
    assert_int_equal(rpc_bed_end(&p.bed, &held), ERR_UNAVAILABLE);
    rpc_bed_call_deinit(&held);
    pair_deinit(&p);
}

static void freeing_a_node_ends_its_calls(void **state)
{
    struct rpc_bed_call c[3];
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    for (int i = 0; i < 3; i++)
        rpc_bed_call(&c[i], p.peer, i ? RPC_WRITE : RPC_MERGE, STR("x"), 60000);
    rpc_node_free(p.client);
    p.client = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c[i].ends, 1);
        assert_int_equal(c[i].code, ERR_UNAVAILABLE);
        rpc_bed_call_deinit(&c[i]);
    }
    rpc_bed_sleep(&p.bed, 30);
    if (p.held)
        reply_held(&p, "x");
    pair_deinit(&p);
}

static void on_drained(void *cookie)
{
    ((struct pair *)cookie)->drained = true;
}

static bool is_drained(void *cookie)
{
    return ((struct pair *)cookie)->drained;
}

static void drain_answers_what_runs_and_refuses_the_rest(void **state)
{
    struct rpc_bed_call held, refused;
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_serve(p.server, RPC_MERGE, serve_hold, &p);
    rpc_bed_call(&held, p.peer, RPC_MERGE, STR("x"), 60000);
    assert_true(rpc_bed_run(&p.bed, is_held, &p, 60000));
    rpc_node_drain(p.server, on_drained, &p);
    rpc_bed_call(&refused, p.peer, RPC_WRITE, STR("x"), 60000);
    assert_int_equal(rpc_bed_end(&p.bed, &refused), ERR_UNAVAILABLE);
    assert_non_null(strstr(refused.text, "shutting down"));
    assert_false(p.drained);
    reply_held(&p, "done");
    assert_true(rpc_bed_run(&p.bed, is_drained, &p, 60000));
    rpc_node_free(p.server);
    p.server = NULL;
    assert_int_equal(rpc_bed_end(&p.bed, &held), 0);
    assert_true(str_eqc(buf_str(&held.reply), "done"));
    rpc_bed_call_deinit(&held);
    rpc_bed_call_deinit(&refused);
    pair_deinit(&p);
}

static void drain_of_a_node_without_peers(void **state)
{
    struct rpc_node *n;
    char addr[128];
    struct pair p;

    pair_init(&p, kind_of(state));
    rpc_bed_addr(&p.bed, addr);
    n = rpc_bed_node(&p.bed, addr);
    rpc_node_drain(n, on_drained, &p);
    assert_true(rpc_bed_run(&p.bed, is_drained, &p, 60000));
    rpc_node_free(n);
    pair_deinit(&p);
}

static void two_nodes_call_each_other_and_themselves(void **state)
{
    struct rpc_peer *back, *self;
    struct rpc_bed_call c[3];
    struct pair p;
    struct err e;

    pair_init(&p, kind_of(state));
    rpc_bed_echo(p.client, RPC_WRITE);
    assert_int_equal(rpc_peer_get(p.server, rpc_node_addr(p.client), &back, &e), 0);
    assert_int_equal(rpc_peer_get(p.server, p.addr, &self, &e), 0);
    rpc_bed_call(&c[0], p.peer, RPC_WRITE, STR("there"), 5000);
    rpc_bed_call(&c[1], back, RPC_WRITE, STR("back"), 5000);
    rpc_bed_call(&c[2], self, RPC_WRITE, STR("self"), 5000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rpc_bed_end(&p.bed, &c[i]), 0);
        rpc_bed_call_deinit(&c[i]);
    }
    assert_string_equal(rpc_peer_addr(back), rpc_node_addr(p.client));
    pair_deinit(&p);
}

static void an_address_is_taken_once(void **state)
{
    struct rpc_node_opts o;
    struct rpc_node *n;
    struct pair p;
    struct err e;

    pair_init(&p, kind_of(state));
    o = rpc_bed_opts(&p.bed, p.addr);
    assert_int_not_equal(rpc_node_new(&o, &n, &e), 0);
    assert_non_null(strstr(e.text, p.addr));
    pair_deinit(&p);
}

#define OVER(kind, name, fn)                                     \
    {                                                            \
        name ": " #fn, fn, NULL, NULL, (void *)(uintptr_t)(kind) \
    }
#define OVER_ALL(fn)                                                      \
    OVER(RPC_BED_TCP, "tcp", fn), OVER(RPC_BED_IPC, "ipc", fn),           \
        OVER(RPC_BED_INPROC, "inproc", fn), OVER(RPC_BED_MEM, "mem", fn), \
        OVER(RPC_BED_TCP | RPC_BED_SEALED, "sealed tcp", fn),             \
        OVER(RPC_BED_IPC | RPC_BED_SEALED, "sealed ipc", fn),             \
        OVER(RPC_BED_MEM | RPC_BED_SEALED, "sealed mem", fn)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(echo_of_every_size),
        OVER_ALL(many_under_way_all_end_once),
        OVER_ALL(errors_carry_code_and_text),
        OVER_ALL(oversize_is_refused_by_the_sender),
        OVER_ALL(receiver_with_a_smaller_limit_says_so),
        OVER_ALL(pending_is_bounded),
        OVER_ALL(queue_to_an_absent_peer_is_bounded),
        OVER_ALL(deadline_ends_the_call_and_the_late_reply_is_stale),
        OVER_ALL(cancel_reaches_the_peer),
        OVER_ALL(fails_early),
        OVER_ALL(a_failed_call_cancels_another),
        OVER_ALL(a_call_waits_for_a_peer_that_starts),
        OVER_ALL(a_peer_dies_and_comes_back),
        OVER_ALL(a_restart_fails_what_the_former_process_had),
        OVER_ALL(freeing_a_node_ends_its_calls),
        OVER_ALL(drain_answers_what_runs_and_refuses_the_rest),
        OVER_ALL(drain_of_a_node_without_peers),
        OVER_ALL(two_nodes_call_each_other_and_themselves),
        OVER_ALL(an_address_is_taken_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
