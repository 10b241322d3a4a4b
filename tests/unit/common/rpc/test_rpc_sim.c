/* SPDX-License-Identifier: Apache-2.0
 *
 * Clusters in the simulated network: whatever it does, each call ends once, each request is served
 * at most once, and each reply is the right one. SEED=n repeats one run, SEEDS=n does more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "tests/lib/net/rpc_bed.h"

enum { NODES = 5, CALLS = 600 };

struct sim;
struct sim_node {
    struct sim *sim;
    char addr[128];
    struct rpc_node *node; /* NULL: crashed */
    struct rpc_peer *peers[NODES];
};
struct sim_call {
    struct sim *sim;
    uint32_t number;
    int ends, code;
    int served;
    bool canceled;
};
struct sim {
    struct rpc_bed bed;
    struct prng prng;
    struct sim_node nodes[NODES];
    struct sim_call *calls;
    uint32_t calls_len;
    uint64_t trace; /* hash of everything that happened, with its time */
    uint64_t ok, failed;
};

static void trace(struct sim *s, uint32_t what, uint64_t number)
{
    uint64_t event[4] = { s->trace, what, number, clock_mono_ns(loop_clock(s->bed.loop)) };

    s->trace = hash64(event, sizeof(event), 0);
}

/* Body of call n: its number, then bytes that depend on it. */
static void body_of(uint32_t number, struct buf *out)
{
    struct prng p;

    prng_init(&p, number);
    buf_add(out, &number, sizeof(number));
    rpc_bed_bytes(out, number % 10 == 0 ? 300000 + prng_below(&p, 600000) : prng_below(&p, 3000),
                  number);
}

static void serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct sim *s = cookie;
    struct buf want, b;
    uint32_t number;

    assert_true(payload.len >= sizeof(number));
    memcpy(&number, payload.ptr, sizeof(number));
    assert_true(number < s->calls_len);
    buf_init(&want, SIZE_MAX);
    body_of(number, &want);
    assert_true(str_eq(payload, buf_str(&want)));
    s->calls[number].served++;
    trace(s, 1, number);
    buf_deinit(&want);
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, payload);
    rpc_reply(call, &b);
}

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct sim_call *c = cookie;
    struct buf want;

    c->ends++;
    c->code = err ? err->code : 0;
    trace(c->sim, 2 + (uint32_t)c->code, c->number);
    if (err) {
        c->sim->failed++;
        return;
    }
    c->sim->ok++;
    buf_init(&want, SIZE_MAX);
    body_of(c->number, &want);
    assert_true(str_eq(reply, buf_str(&want)));
    assert_int_equal(c->served, 1);
    buf_deinit(&want);
}

static void node_up(struct sim *s, int i)
{
    struct sim_node *n = &s->nodes[i];
    struct err e;

    n->sim = s;
    n->node = rpc_bed_node(&s->bed, n->addr);
    rpc_serve(n->node, RPC_WRITE, serve, s);
    for (int k = 0; k < NODES; k++)
        assert_int_equal(rpc_peer_get(n->node, s->nodes[k].addr, &n->peers[k], &e), 0);
}

static void random_call(struct sim *s)
{
    struct sim_node *from = &s->nodes[prng_below(&s->prng, NODES)];
    struct sim_call *c = &s->calls[s->calls_len];
    uint64_t id;
    struct buf b;

    if (!from->node || s->calls_len == CALLS)
        return;
    *c = (struct sim_call){ .sim = s, .number = s->calls_len++ };
    buf_init(&b, SIZE_MAX);
    body_of(c->number, &b);
    id = rpc_send(from->peers[prng_below(&s->prng, NODES)], RPC_WRITE, &b,
                  50 + prng_below(&s->prng, 3000), on_done, c);
    if (prng_chance(&s->prng, 0.02)) {
        rpc_cancel(from->node, id);
        c->canceled = true;
    }
}

static void random_fault(struct sim *s)
{
    int i = (int)prng_below(&s->prng, NODES), k = (int)prng_below(&s->prng, NODES);

    switch (prng_below(&s->prng, 8)) {
    case 0:
        rpc_mem_cut(s->bed.net, s->nodes[i].addr, s->nodes[k].addr);
        break;
    case 1:
        rpc_mem_cut(s->bed.net, "*", s->nodes[i].addr);
        break;
    case 2:
    case 3:
        rpc_mem_heal(s->bed.net);
        break;
    case 4:
        rpc_mem_slow(s->bed.net, s->nodes[i].addr, (uint32_t)prng_below(&s->prng, 2) * 200);
        break;
    case 5:
        rpc_node_free(s->nodes[i].node);
        s->nodes[i].node = NULL;
        break;
    default:
        for (i = 0; i < NODES; i++) {
            if (!s->nodes[i].node)
                node_up(s, i);
        }
    }
}

static bool never(void *cookie)
{
    (void)cookie;
    return false;
}

/* Returns the trace. */
static uint64_t sim_run(uint64_t seed, bool sealed, bool verbose)
{
    struct sim s = { 0 };
    struct rpc_mem_faults f = { 0 };
    struct rpc_mem_stats st;
    uint32_t canceled = 0;

    prng_init(&s.prng, seed);
    rpc_bed_init(&s.bed, RPC_BED_MEM | (sealed ? RPC_BED_SEALED : 0), seed);
    s.calls = XNEW_ARRAY(struct sim_call, CALLS);
    f.delay_max_ms = 1 + (uint32_t)prng_below(&s.prng, 60);
    f.lost = prng_unit(&s.prng) * 0.1;
    f.repeated = prng_unit(&s.prng) * 0.3;
    f.damaged = prng_unit(&s.prng) * 0.05;
    f.pipe_bytes_max = 300000 + prng_below(&s.prng, 2000000);
    rpc_mem_faults(s.bed.net, &f);
    for (int i = 0; i < NODES; i++)
        rpc_bed_addr(&s.bed, s.nodes[i].addr);
    for (int i = 0; i < NODES; i++)
        node_up(&s, i);
    for (int step = 0; step < 3000; step++) {
        random_call(&s);
        if (prng_chance(&s.prng, 0.01))
            random_fault(&s);
        (void)rpc_bed_run(&s.bed, never, NULL, prng_below(&s.prng, 10));
    }
    rpc_bed_sleep(&s.bed, 5000); /* past every deadline */
    for (uint32_t i = 0; i < s.calls_len; i++) {
        const struct sim_call *c = &s.calls[i];

        canceled += c->canceled;
        if (c->ends != (c->canceled ? 0 : 1) || c->served > 1)
            fail_msg("SEED=%ju: call %u ended %d times (%s), was served %d times", (uintmax_t)seed,
                     i, c->ends, err_name(c->code), c->served);
    }
    /* Without faults all nodes find each other again, and calls work. */
    rpc_mem_heal(s.bed.net);
    rpc_mem_faults(s.bed.net, &(struct rpc_mem_faults){ 0 });
    for (int i = 0; i < NODES; i++) {
        rpc_mem_slow(s.bed.net, s.nodes[i].addr, 0);
        if (!s.nodes[i].node)
            node_up(&s, i);
    }
    rpc_bed_sleep(&s.bed, 5000);
    for (int i = 0; i < NODES * NODES; i++) {
        if (!rpc_peer_up(s.nodes[i / NODES].peers[i % NODES]))
            fail_msg("SEED=%ju: node %d does not see node %d", (uintmax_t)seed, i / NODES,
                     i % NODES);
    }
    assert_int_equal(rpc_bed_metric(&s.bed, "embertree_rpc_queue_bytes"), 0);
    st = rpc_mem_stats(s.bed.net);
    assert_int_equal(s.ok + s.failed + canceled, s.calls_len);
    if (verbose)
        print_message("SEED=%ju: %u calls, %ju ok, %ju failed; frames %ju, lost %ju, cut %ju, "
                      "repeated %ju, damaged %ju\n",
                      (uintmax_t)seed, s.calls_len, (uintmax_t)s.ok, (uintmax_t)s.failed,
                      (uintmax_t)st.sent, (uintmax_t)st.lost, (uintmax_t)st.cut,
                      (uintmax_t)st.repeated, (uintmax_t)st.damaged);
    for (int i = 0; i < NODES; i++)
        rpc_node_free(s.nodes[i].node);
    rpc_bed_deinit(&s.bed);
    xfree(s.calls);
    return s.trace;
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t n;

    return text && str_u64(str_c(text), &n) ? n : otherwise;
}

static void every_call_ends_once(void **state)
{
    uint64_t first = number_of("SEED", 1), seeds = getenv("SEED") ? 1 : number_of("SEEDS", 15);

    (void)state;
    for (uint64_t i = 0; i < seeds; i++)
        (void)sim_run(first + i, false, true);
}

static void every_sealed_call_ends_once(void **state)
{
    uint64_t first = number_of("SEED", 1), seeds = getenv("SEED") ? 1 : number_of("SEEDS", 15);

    (void)state;
    for (uint64_t i = 0; i < seeds; i++)
        (void)sim_run(first + i, true, true);
}

static void the_same_seed_is_the_same_run(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        assert_true(sim_run(99, sealed, false) == sim_run(99, sealed, false));
        assert_true(sim_run(99, sealed, false) != sim_run(100, sealed, false));
    }
}

/* ---- one thing at a time --------------------------------------------------------------------- */

struct two {
    struct rpc_bed bed;
    char addr[2][128];
    struct rpc_node *node[2];
    struct rpc_peer *peer[2]; /* peer[0]: of node 0, is node 1 */
};

static void two_init(struct two *t, const uint8_t speaks[4])
{
    struct err e;

    *t = (struct two){ 0 };
    rpc_bed_init(&t->bed, RPC_BED_MEM, 5);
    for (int i = 0; i < 2; i++) {
        struct rpc_node_opts o;

        rpc_bed_addr(&t->bed, t->addr[i]);
        o = rpc_bed_opts(&t->bed, t->addr[i]);
        o.callers_max = 200;
        o.speaks_min = speaks ? speaks[2 * i] : 0;
        o.speaks_max = speaks ? speaks[2 * i + 1] : 0;
        assert_int_equal(rpc_node_new(&o, &t->node[i], &e), 0);
        rpc_bed_echo(t->node[i], RPC_WRITE);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(rpc_peer_get(t->node[i], t->addr[!i], &t->peer[i], &e), 0);
}

static void two_deinit(struct two *t)
{
    rpc_node_free(t->node[0]);
    rpc_node_free(t->node[1]);
    rpc_bed_deinit(&t->bed);
}

static int call_between(struct two *t, int from, struct rpc_bed_call *c)
{
    rpc_bed_call(c, t->peer[from], RPC_WRITE, STR("hello"), 5000);
    (void)rpc_bed_end(&t->bed, c);
    rpc_bed_call_deinit(c);
    return c->code;
}

/* One way is cut: the other way alone keeps no peer up. */
static void a_one_way_partition_is_down_for_both(void **state)
{
    struct rpc_bed_call c;
    struct two t;

    (void)state;
    two_init(&t, NULL);
    rpc_bed_sleep(&t.bed, 200);
    assert_true(rpc_peer_up(t.peer[0]) && rpc_peer_up(t.peer[1]));
    rpc_mem_cut(t.bed.net, t.addr[0], t.addr[1]);
    rpc_bed_sleep(&t.bed, 500);
    assert_false(rpc_peer_up(t.peer[0]) || rpc_peer_up(t.peer[1]));
    assert_int_equal(call_between(&t, 0, &c), ERR_UNAVAILABLE);
    assert_int_equal(call_between(&t, 1, &c), ERR_UNAVAILABLE);
    rpc_mem_heal(t.bed.net);
    rpc_bed_sleep(&t.bed, 200);
    assert_true(rpc_peer_up(t.peer[0]) && rpc_peer_up(t.peer[1]));
    assert_int_equal(call_between(&t, 0, &c), 0);
    two_deinit(&t);
}

/* Answers that take longer than dead_ms prove nothing about now. */
static void old_pongs_bring_nobody_back(void **state)
{
    struct two t;

    (void)state;
    two_init(&t, NULL);
    rpc_bed_sleep(&t.bed, 200);
    rpc_mem_slow(t.bed.net, t.addr[1], 200); /* a round trip: 400 ms, dead after 300 */
    rpc_bed_sleep(&t.bed, 2000);
    assert_false(rpc_peer_up(t.peer[0]));
    assert_true(rpc_bed_metric(&t.bed, "embertree_rpc_stale_replies_total") > 10);
    rpc_mem_slow(t.bed.net, t.addr[1], 100);
    rpc_bed_sleep(&t.bed, 1000);
    assert_true(rpc_peer_up(t.peer[0]));
    two_deinit(&t);
}

static void repeated_requests_are_served_once(void **state)
{
    struct rpc_bed_call c;
    struct two t;

    (void)state;
    two_init(&t, NULL);
    rpc_mem_faults(t.bed.net, &(struct rpc_mem_faults){ .delay_max_ms = 30, .repeated = 1 });
    for (int i = 0; i < 50; i++)
        assert_int_equal(call_between(&t, 0, &c), 0);
    rpc_bed_sleep(&t.bed, 100);
    assert_int_equal(
        rpc_bed_metric(&t.bed, "embertree_rpc_served_total{method=\"write\",result=\"ok\"}"), 50);
    assert_true(rpc_bed_metric(&t.bed, "embertree_rpc_dropped_total{reason=\"duplicate\"}") >= 100);
    two_deinit(&t);
}

/* A node restarts while an answer to its predecessor is under way; ids begin again. */
static void an_answer_finds_only_the_process_that_asked(void **state)
{
    struct rpc_bed_call one, two;
    struct two t;
    struct err e;

    (void)state;
    two_init(&t, NULL);
    rpc_bed_sleep(&t.bed, 200);
    rpc_mem_slow(t.bed.net, t.addr[0], 50);
    rpc_bed_call(&one, t.peer[0], RPC_WRITE, STR("one"), 5000);
    rpc_bed_sleep(&t.bed, 60); /* the request arrived, the reply did not */
    rpc_node_free(t.node[0]);
    assert_int_equal(one.code, ERR_UNAVAILABLE);
    t.node[0] = rpc_bed_node(&t.bed, t.addr[0]);
    assert_int_equal(rpc_peer_get(t.node[0], t.addr[1], &t.peer[0], &e), 0);
    rpc_bed_call(&two, t.peer[0], RPC_WRITE, STR("two"), 5000);
    assert_true(two.id == one.id); /* else this test shows nothing */
    assert_int_equal(rpc_bed_end(&t.bed, &two), 0);
    assert_true(str_eqc(buf_str(&two.reply), "two"));
    assert_true(rpc_bed_metric(&t.bed, "embertree_rpc_dropped_total{reason=\"epoch\"}") > 0);
    rpc_bed_call_deinit(&one);
    rpc_bed_call_deinit(&two);
    two_deinit(&t);
}

/* Callers that this node does not call: bounded, and forgotten when they are silent. */
static void callers_are_bounded_and_forgotten(void **state)
{
    enum { CALLERS = 230 };
    struct rpc_node *callers[CALLERS];
    struct rpc_bed_call c;
    struct rpc_peer *p;
    char addr[128];
    struct two t;
    struct err e;
    int up = 0;

    (void)state;
    two_init(&t, NULL);
    for (int i = 0; i < CALLERS; i++) {
        rpc_bed_addr(&t.bed, addr);
        callers[i] = rpc_bed_node(&t.bed, addr);
        assert_int_equal(rpc_peer_get(callers[i], t.addr[0], &p, &e), 0);
        rpc_bed_sleep(&t.bed, 5);
        up += rpc_peer_up(p);
    }
    assert_int_equal(up, 199); /* of 200, one is the peer that node 0 calls */
    rpc_bed_addr(&t.bed, addr);
    assert_int_equal(rpc_peer_get(t.node[0], addr, &p, &e),
                     0); /* a place is left for whom we call */
    for (int i = 0; i < CALLERS; i++)
        rpc_node_free(callers[i]);
    rpc_bed_sleep(&t.bed, 40000);
    callers[0] = rpc_bed_node(&t.bed, addr);
    assert_int_equal(rpc_peer_get(callers[0], t.addr[0], &p, &e), 0);
    rpc_bed_call(&c, p, RPC_WRITE, STR("hello"), 5000);
    assert_int_equal(rpc_bed_end(&t.bed, &c), 0);
    rpc_bed_call_deinit(&c);
    rpc_node_free(callers[0]);
    two_deinit(&t);
}

/* A node that stays while those it calls get new addresses for years. */
static void addresses_come_and_go(void **state)
{
    enum { ROUNDS = 5, NEW = 1000, MINUTES = 60000 };
    struct rpc_node_opts o;
    struct rpc_node *n, *back;
    struct rpc_peer *kept, *p;
    struct rpc_bed_call c;
    struct rpc_bed bed;
    char addr[128], there[128], first[128];
    struct err e;

    (void)state;
    rpc_bed_init(&bed, RPC_BED_MEM, 5);
    rpc_bed_addr(&bed, addr);
    o = rpc_bed_opts(&bed, addr);
    o.heartbeat_ms = 5000;
    o.dead_ms = 15000;
    assert_int_equal(rpc_node_new(&o, &n, &e), 0);
    rpc_bed_addr(&bed, addr);
    assert_int_equal(rpc_peer_get(n, addr, &kept, &e), 0);
    rpc_bed_addr(&bed, there);
    back = rpc_bed_node(&bed, there);
    rpc_bed_echo(back, RPC_WRITE);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < NEW; i++) {
            rpc_bed_addr(&bed, addr);
            if (rpc_peer_now(n, addr, &p, &e))
                fail_msg("round %d: %s", round, e.text);
            if (!round && !i)
                memcpy(first, addr, sizeof(first));
        }
        /* A peer that answers stays, also if it is not asked for. */
        assert_int_equal(rpc_peer_now(n, there, &p, &e), 0);
        rpc_bed_sleep(&bed, 15 * MINUTES);
        assert_int_equal(rpc_peer_now(n, there, &p, &e), 0);
        assert_true(rpc_peer_up(p));
    }
    assert_true(rpc_peer_down(kept));
    /* A forgotten peer that comes back is called as any other. */
    rpc_node_free(back);
    back = rpc_bed_node(&bed, first);
    rpc_bed_echo(back, RPC_WRITE);
    assert_int_equal(rpc_peer_now(n, first, &p, &e), 0);
    assert_false(rpc_peer_down(p));
    rpc_bed_call(&c, p, RPC_WRITE, STR("hello"), 5000);
    assert_int_equal(rpc_bed_end(&bed, &c), 0);
    rpc_bed_call_deinit(&c);
    rpc_node_free(back);
    rpc_node_free(n);
    rpc_bed_deinit(&bed);
}

static void neighbouring_versions_understand_each_other(void **state)
{
    static const struct {
        uint8_t speaks[4];
        bool works;
    } rows[] = {
        { { 1, 1, 1, 1 }, true },  { { 1, 2, 1, 1 }, true },  { { 1, 1, 1, 2 }, true },
        { { 1, 2, 2, 3 }, true },  { { 2, 3, 1, 2 }, true },  { { 2, 3, 2, 3 }, true },
        { { 1, 1, 2, 3 }, false }, { { 3, 4, 1, 2 }, false }, { { 1, 2, 3, 4 }, false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rpc_bed_call c;
        struct two t;

        two_init(&t, rows[i].speaks);
        rpc_bed_sleep(&t.bed, 200);
        for (int from = 0; from < 2; from++) {
            int code = call_between(&t, from, &c);

            if (code != (rows[i].works ? 0 : ERR_UNAVAILABLE))
                fail_msg("row %zu: %s", i, c.text);
            if (code && !strstr(c.text, "upgrade one version at a time"))
                fail_msg("row %zu: %s", i, c.text);
        }
        two_deinit(&t);
    }
}

/* A peer that turns silent after its version was refused is down like any other. */
static void a_refused_peer_may_come_back_upgraded(void **state)
{
    static const uint8_t apart[4] = { 1, 1, 2, 3 };
    struct rpc_bed_call c;
    struct two t;

    (void)state;
    two_init(&t, apart);
    rpc_bed_sleep(&t.bed, 200);
    assert_int_equal(call_between(&t, 0, &c), ERR_UNAVAILABLE);
    rpc_node_free(t.node[1]);
    rpc_bed_sleep(&t.bed, 1000);
    assert_int_equal(call_between(&t, 0, &c), ERR_UNAVAILABLE);
    assert_non_null(strstr(c.text, "no answer to pings"));
    t.node[1] = rpc_bed_node(&t.bed, t.addr[1]);
    rpc_bed_echo(t.node[1], RPC_WRITE);
    rpc_bed_sleep(&t.bed, 200);
    assert_int_equal(call_between(&t, 0, &c), 0);
    two_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_ends_once),
        cmocka_unit_test(every_sealed_call_ends_once),
        cmocka_unit_test(the_same_seed_is_the_same_run),
        cmocka_unit_test(a_one_way_partition_is_down_for_both),
        cmocka_unit_test(old_pongs_bring_nobody_back),
        cmocka_unit_test(repeated_requests_are_served_once),
        cmocka_unit_test(an_answer_finds_only_the_process_that_asked),
        cmocka_unit_test(callers_are_bounded_and_forgotten),
        cmocka_unit_test(addresses_come_and_go),
        cmocka_unit_test(neighbouring_versions_understand_each_other),
        cmocka_unit_test(a_refused_peer_may_come_back_upgraded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
