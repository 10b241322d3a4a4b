/* SPDX-License-Identifier: Apache-2.0
 *
 * Nodes with cluster keys in the simulated network: nodes with the key are served, nodes without it
 * can do nothing, and keys come, change and go while calls flow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/rpc/rpc_net.h"
#include "common/rpc/rpc_seal.h"
#include "tests/lib/net/rpc_bed.h"

struct one {
    char addr[128];
    struct rpc_node *node; /* NULL: down */
    struct rpc_peer *peer; /* the other */
    uint64_t served;
};

struct two {
    struct rpc_bed bed;
    struct rpc_keys *keys, *others;
    struct one n[2];
};

static void serve_count(void *cookie, struct rpc_call *call, struct str payload)
{
    struct one *n = cookie;
    struct buf b;

    n->served++;
    buf_init(&b, SIZE_MAX);
    buf_add_str(&b, payload);
    rpc_reply(call, &b);
}

/* keys NULL: a build or a configuration without. */
static void up(struct two *t, int i, const struct rpc_keys *keys, bool optional)
{
    struct err e;

    rpc_bed_give_keys(&t->bed, keys, optional);
    t->n[i].node = rpc_bed_node(&t->bed, t->n[i].addr);
    rpc_serve(t->n[i].node, RPC_WRITE, serve_count, &t->n[i]);
    assert_int_equal(rpc_peer_get(t->n[i].node, t->n[!i].addr, &t->n[i].peer, &e), 0);
}

static void down(struct two *t, int i)
{
    rpc_node_free(t->n[i].node);
    t->n[i].node = NULL;
}

static void two_init(struct two *t)
{
    *t = (struct two){ .keys = rpc_bed_keys("ab"), .others = rpc_bed_keys("z") };
    rpc_bed_init(&t->bed, RPC_BED_MEM, 5);
    for (int i = 0; i < 2; i++)
        rpc_bed_addr(&t->bed, t->n[i].addr);
}

static void two_deinit(struct two *t)
{
    for (int i = 0; i < 2; i++)
        down(t, i);
    rpc_bed_deinit(&t->bed);
    rpc_keys_free(t->keys);
    rpc_keys_free(t->others);
}

static uint64_t dropped(struct two *t, const char *reason)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "embertree_rpc_dropped_total{reason=\"%s\"}", reason);
    return rpc_bed_metric(&t->bed, name);
}

static int call_of(struct two *t, int from, size_t size, uint64_t deadline_ms, char *text)
{
    struct rpc_bed_call c;
    struct buf body;
    int code;

    buf_init(&body, SIZE_MAX);
    rpc_bed_bytes(&body, size, size);
    rpc_bed_call(&c, t->n[from].peer, RPC_WRITE, buf_str(&body), deadline_ms);
    code = rpc_bed_end(&t->bed, &c);
    if (code == 0)
        assert_true(str_eq(buf_str(&c.reply), buf_str(&body)));
    if (text)
        memcpy(text, c.text, ERR_TEXT_MAX);
    rpc_bed_call_deinit(&c);
    buf_deinit(&body);
    return code;
}

static int calls(struct two *t, int from)
{
    return call_of(t, from, 700000, 5000, NULL) + call_of(t, from, 10, 5000, NULL);
}

/* Both directions are refused, and the caller's error says what may be wrong. */
static void keys_differ(struct two *t, const struct rpc_keys *a, const struct rpc_keys *b,
                        const char *want, const char *text_wanted)
{
    char text[ERR_TEXT_MAX];
    uint64_t before = dropped(t, want);

    up(t, 0, a, false);
    up(t, 1, b, false);
    t->bed.net->keys = a; /* for the text */
    rpc_bed_sleep(&t->bed, 600);
    assert_false(rpc_peer_up(t->n[0].peer) || rpc_peer_up(t->n[1].peer));
    for (int i = 0; i < 2; i++)
        assert_int_equal(call_of(t, i, 100, 500, text), ERR_UNAVAILABLE);
    if (!strstr(text, text_wanted))
        fail_msg("%s", text);
    assert_int_equal(t->n[0].served + t->n[1].served, 0);
    assert_true(dropped(t, want) > before + 10);
    down(t, 0);
    down(t, 1);
}

/* An address that was another cluster's a moment ago, whose nodes have the same names. */
static void another_cluster_is_not_heard(void **state)
{
    struct two t;

    for (int sealed = 0; sealed < 2; sealed++) {
        (void)state;
        two_init(&t);
        up(&t, 0, sealed ? t.keys : NULL, false);
        up(&t, 1, sealed ? t.keys : NULL, false);
        rpc_net_cluster(t.bed.net, 7);
        assert_int_equal(calls(&t, 0), 0);
        assert_int_equal(dropped(&t, "cluster"), 0);
        uint64_t served = t.n[1].served;
        struct rpc_bed_call c;
        rpc_bed_call(&c, t.n[0].peer, RPC_WRITE, STR("x"), 500);
        rpc_net_cluster(t.bed.net, 8); /* while it is on its way: the receiver is in another one */
        assert_int_not_equal(rpc_bed_end(&t.bed, &c), 0);
        rpc_bed_call_deinit(&c);
        assert_int_equal(t.n[1].served, served);
        assert_true(dropped(&t, "cluster") > 0);
        rpc_bed_call(&c, t.n[0].peer, RPC_WRITE, STR("x"), 500);
        rpc_net_cluster(t.bed.net, 0); /* without a number a node accepts all */
        assert_int_equal(rpc_bed_end(&t.bed, &c), 0);
        rpc_bed_call_deinit(&c);
        two_deinit(&t);
    }
}

static int other_settings(uint64_t mine, uint64_t theirs, struct err *e)
{
    return err_set(e, ERR_CONFIG, "a setting is %d there and %d here", (int)theirs, (int)mine);
}

/* Settings replace a cluster's id: a node with other settings gets an error at once. */
static void other_settings_are_told(void **state)
{
    for (int sealed = 0; sealed < 2; sealed++) {
        struct two t;
        struct rpc_bed_call c;
        uint64_t served;

        (void)state;
        two_init(&t);
        up(&t, 0, sealed ? t.keys : NULL, false);
        up(&t, 1, sealed ? t.keys : NULL, false);
        rpc_net_judge(t.bed.net, other_settings);
        rpc_net_cluster(t.bed.net, 7);
        assert_int_equal(calls(&t, 0), 0);
        served = t.n[1].served;
        rpc_bed_call(&c, t.n[0].peer, RPC_WRITE, STR("x"), 5000);
        rpc_net_cluster(t.bed.net, 8);
        assert_int_equal(rpc_bed_end(&t.bed, &c), ERR_UNAVAILABLE);
        assert_non_null(strstr(c.text, "a setting is 7 there and 8 here"));
        rpc_bed_call_deinit(&c);
        assert_int_equal(t.n[1].served, served);
        assert_true(dropped(&t, "cluster") > 0);
        assert_int_equal(calls(&t, 0), 0); /* both have it */
        two_deinit(&t);
    }
}

static void without_the_key_nothing_is_served(void **state)
{
    struct two t;

    (void)state;
    two_init(&t);
    keys_differ(&t, t.keys, t.others, "key", "has it the cluster key id-a (");
    keys_differ(&t, t.keys, NULL, "unsealed", "has it the cluster key id-a (");
    keys_differ(&t, NULL, t.keys, "unsealed", "never answered");
    /* No unauthenticated bytes reached a parser. */
    assert_int_equal(dropped(&t, "header") + dropped(&t, "checksum") + dropped(&t, "magic"), 0);
    two_deinit(&t);
}

/* An attacker on the wire: keeps everything and sends it again, to both, changed or not, much
 * later, after restarts. */
struct tap {
    struct two *t;
    VEC(struct str) kept;
};

static void keep(void *cookie, struct str bytes)
{
    struct tap *tap = cookie;

    if (tap->kept.len < 20000)
        vec_push(&tap->kept, str_n(xmemdup(bytes.ptr, bytes.len), bytes.len));
}

static void replay_all(struct tap *tap, uint64_t seed, bool damage)
{
    struct two *t = tap->t;
    struct prng p;

    prng_init(&p, seed);
    vec_for (i, &tap->kept) {
        struct str k = tap->kept.ptr[prng_below(&p, tap->kept.len)];
        char *bytes = xmemdup(k.ptr, k.len);

        (void)i;
        if (damage)
            bytes[prng_below(&p, k.len)] ^= (char)(1 + prng_below(&p, 255));
        for (int n = 0; n < 2; n++)
            (void)rpc_mem_inject(t->bed.net, t->n[n].addr, str_n(bytes, k.len));
        xfree(bytes);
    }
}

static void what_is_sent_again_is_never_served_again(void **state)
{
    struct two t;
    struct tap tap = { .t = &t };
    uint64_t served = 0;

    (void)state;
    two_init(&t);
    rpc_mem_tap(t.bed.net, keep, &tap);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 2; i++) {
            if (!t.n[i].node)
                up(&t, i, t.keys, false);
        }
        rpc_bed_sleep(&t.bed, 100); /* the restart is known: it fails no call any more */
        for (int i = 0; i < 4; i++)
            assert_int_equal(calls(&t, i % 2), 0);
        served += 8;
        replay_all(&tap, (uint64_t)round, false);
        replay_all(&tap, (uint64_t)round + 50, true);
        rpc_bed_sleep(&t.bed, 100);
        assert_int_equal(t.n[0].served + t.n[1].served, served);
        /* And the nodes find each other still. */
        assert_true(rpc_peer_up(t.n[0].peer) && rpc_peer_up(t.n[1].peer));
        assert_int_equal(calls(&t, 0) + calls(&t, 1), 0);
        served += 4;
        down(&t, round % 2);
        if (round == 3) /* long enough for everything to be forgotten */
            rpc_bed_sleep(&t.bed, 100000);
    }
    assert_true(tap.kept.len > 500);
    assert_true(dropped(&t, "replayed") > 100 && dropped(&t, "ticket") > 100 &&
                dropped(&t, "forged") > 100);
    assert_true(dropped(&t, "route") > 0); /* reflected pings make no node a peer of itself */
    rpc_mem_tap(t.bed.net, NULL, NULL);
    vec_for (i, &tap.kept)
        xfree((void *)(uintptr_t)tap.kept.ptr[i].ptr);
    vec_free(&tap.kept);
    two_deinit(&t);
}

/* Steps of a rotation with calls under way all the time: every one is answered. */
static void keys_rotate_and_no_call_fails(void **state)
{
    static const char *const steps[] = { "ab", "abc", "cab", "ca", "c", "cd", "dc", "d" };
    enum { CALLS = 20 };
    struct rpc_bed_call c[CALLS];
    struct rpc_keys *mine[2];
    struct two t;

    (void)state;
    two_init(&t);
    rpc_mem_faults(t.bed.net, &(struct rpc_mem_faults){ .delay_min_ms = 1, .delay_max_ms = 9 });
    for (int i = 0; i < 2; i++) {
        mine[i] = rpc_bed_keys(steps[0]);
        up(&t, i, mine[i], false);
    }
    for (size_t s = 1; s < ARRAY_LEN(steps); s++) {
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < CALLS; k++)
                rpc_bed_call(&c[k], t.n[k % 2].peer, RPC_WRITE, STR("hello"), 2000);
            rpc_bed_sleep(&t.bed, 5); /* some are on their way */
            rpc_keys_replace(mine[i], rpc_bed_keys(steps[s]));
            for (int k = 0; k < CALLS; k++) {
                assert_int_equal(rpc_bed_end(&t.bed, &c[k]), 0);
                rpc_bed_call_deinit(&c[k]);
            }
            /* Between steps no earlier frame is under way. */
            rpc_bed_sleep(&t.bed, 20);
        }
    }
    assert_int_equal(dropped(&t, "key") + dropped(&t, "forged") + dropped(&t, "ticket"), 0);
    two_deinit(&t);
    for (int i = 0; i < 2; i++)
        rpc_keys_free(mine[i]);
}

/* From no key to a key, node by node, twice: no node is cut off at any time. */
static void a_running_cluster_gets_its_first_key(void **state)
{
    struct two t;

    (void)state;
    two_init(&t);
    for (int i = 0; i < 2; i++)
        up(&t, i, NULL, false);
    assert_int_equal(calls(&t, 0) + calls(&t, 1), 0);
    for (int strict = 0; strict < 2; strict++) {
        for (int i = 0; i < 2; i++) {
            down(&t, i);
            rpc_bed_sleep(&t.bed, 100);
            up(&t, i, t.keys, !strict);
            assert_int_equal(calls(&t, i), 0);
            rpc_bed_sleep(&t.bed, 100);
            assert_int_equal(calls(&t, !i), 0);
        }
    }
    /* Both want sealed frames now, and neither sends others. */
    rpc_bed_sleep(&t.bed, 1000);
    uint64_t unsealed = dropped(&t, "unsealed");

    assert_int_equal(calls(&t, 0) + calls(&t, 1), 0);
    rpc_bed_sleep(&t.bed, 2000);
    assert_int_equal(dropped(&t, "unsealed"), unsealed);
    /* And back: off again, by the same way. */
    for (int strict = 1; strict >= 0; strict--) {
        for (int i = 0; i < 2; i++) {
            down(&t, i);
            rpc_bed_sleep(&t.bed, 500);
            up(&t, i, strict ? t.keys : NULL, strict);
            rpc_bed_sleep(&t.bed, 1500);
            assert_int_equal(calls(&t, i), 0);
            assert_int_equal(calls(&t, !i), 0);
        }
    }
    two_deinit(&t);
}

/* Optional keys seal what can be sealed. */
static void optional_nodes_seal_for_each_other(void **state)
{
    struct two t;
    struct tap tap = { .t = &t };
    size_t plain = 0, sealed = 0;

    (void)state;
    two_init(&t);
    for (int i = 0; i < 2; i++)
        up(&t, i, t.keys, true);
    rpc_bed_sleep(&t.bed, 300);
    rpc_mem_tap(t.bed.net, keep, &tap);
    assert_int_equal(calls(&t, 0) + calls(&t, 1), 0);
    rpc_mem_tap(t.bed.net, NULL, NULL);
    vec_for (i, &tap.kept) {
        plain += !rpc_seal_is(tap.kept.ptr[i]);
        sealed += rpc_seal_is(tap.kept.ptr[i]);
        xfree((void *)(uintptr_t)tap.kept.ptr[i].ptr);
    }
    vec_free(&tap.kept);
    assert_int_equal(plain, 0);
    assert_true(sealed > 10);
    two_deinit(&t);
}

/* A node that calls right after its peer restarted: the call waits for a pong, not for a heartbeat,
 * and answers to a process that just began find it. */
static void restarts_cost_a_round_trip(void **state)
{
    struct two t;

    (void)state;
    two_init(&t);
    for (int i = 0; i < 2; i++)
        up(&t, i, t.keys, false);
    assert_int_equal(calls(&t, 0) + calls(&t, 1), 0);
    for (int round = 0; round < 10; round++) {
        down(&t, 0);
        up(&t, 0, t.keys, false);
        assert_int_equal(call_of(&t, 0, 100, 19, NULL), 0); /* a heartbeat is 20 ms */
        rpc_bed_sleep(&t.bed, 100);
    }
    two_deinit(&t);
}

/* What was on its way to a process that ended is counted as that, not as forged. */
static void restarts_look_like_restarts(void **state)
{
    struct rpc_mem_faults slow = { .delay_min_ms = 1, .delay_max_ms = 40 };
    struct two t;

    (void)state;
    two_init(&t);
    for (int i = 0; i < 2; i++)
        up(&t, i, t.keys, false);
    rpc_mem_faults(t.bed.net, &slow);
    for (int round = 0; round < 40; round++) {
        (void)call_of(&t, round % 2, 100, 300, NULL);
        down(&t, round % 2);
        up(&t, round % 2, t.keys, false);
        rpc_bed_sleep(&t.bed, 100);
    }
    assert_true(dropped(&t, "epoch") > 0); /* pongs for the process before */
    assert_int_equal(dropped(&t, "forged"), 0);
    assert_int_equal(dropped(&t, "key"), 0);
    assert_int_equal(dropped(&t, "unsealed"), 0);
    two_deinit(&t);
}

/* A run ends every few frames, in a bad network: sessions come and go, calls are answered. */
static void runs_may_be_short(void **state)
{
    struct rpc_mem_faults f = { .delay_max_ms = 5, .repeated = 0.2, .damaged = 0.01 };
    struct two t;
    int failed = 0;

    (void)state;
    two_init(&t);
    t.bed.net->keys_frames_max = 60;
    rpc_mem_faults(t.bed.net, &f);
    for (int i = 0; i < 2; i++)
        up(&t, i, t.keys, false);
    for (int i = 0; i < 400; i++)
        failed += call_of(&t, i % 2, (size_t)i * 10, 1000, NULL) != 0;
    assert_in_range(failed, 0, 40); /* damaged frames are lost ones */
    assert_true(t.n[0].served + t.n[1].served <= 400);
    two_deinit(&t);
}

/* Called by another name than its own, a node is not trusted to be it. */
static void a_node_answers_under_its_own_address(void **state)
{
    char text[ERR_TEXT_MAX], other[128];
    struct rpc_node_opts o;
    struct two t;
    struct err e;

    (void)state;
    two_init(&t);
    up(&t, 0, t.keys, false);
    rpc_bed_addr(&t.bed, other);
    o = rpc_bed_opts(&t.bed, t.n[1].addr);
    o.advertise = other;
    assert_int_equal(rpc_node_new(&o, &t.n[1].node, &e), 0);
    rpc_bed_sleep(&t.bed, 500);
    assert_false(rpc_peer_up(t.n[0].peer));
    assert_int_equal(call_of(&t, 0, 10, 500, text), ERR_UNAVAILABLE);
    if (!strstr(text, other) || !strstr(text, "advertises"))
        fail_msg("%s", text);
    two_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_cluster_is_not_heard),
        cmocka_unit_test(other_settings_are_told),
        cmocka_unit_test(without_the_key_nothing_is_served),
        cmocka_unit_test(what_is_sent_again_is_never_served_again),
        cmocka_unit_test(keys_rotate_and_no_call_fails),
        cmocka_unit_test(a_running_cluster_gets_its_first_key),
        cmocka_unit_test(optional_nodes_seal_for_each_other),
        cmocka_unit_test(restarts_cost_a_round_trip),
        cmocka_unit_test(restarts_look_like_restarts),
        cmocka_unit_test(runs_may_be_short),
        cmocka_unit_test(a_node_answers_under_its_own_address),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
