/* SPDX-License-Identifier: Apache-2.0
 *
 * Two guards and an attacker that can see every byte, keep it, change it, send it anywhere. A frame
 * that was opened once is never opened again, and no other guard opens it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_guard.h"
#include "tests/lib/net/rpc_bed.h"

struct side {
    struct env_sim env;
    char addr[32];
    uint64_t epoch;
    struct rpc_guard *guard;
    struct rpc_guard_link *link; /* to the other */
    uint64_t seq;
};

struct two {
    struct rpc_keys *keys;
    struct side a, b;
};

static void side_up(struct side *s, const char *addr, const char *other, uint64_t epoch,
                    const struct rpc_keys *keys, uint64_t frames_max)
{
    env_sim_init(&s->env, clock_real(), fs_real(), epoch);
    (void)snprintf(s->addr, sizeof(s->addr), "%s", addr);
    s->epoch = epoch;
    s->guard = rpc_guard_new(&(struct rpc_guard_opts){
        .env = &s->env.env,
        .keys = keys,
        .addr = addr,
        .epoch = epoch,
        .frames_max = frames_max,
    });
    s->link = rpc_guard_link_new(s->guard, other);
}

static void side_down(struct side *s)
{
    rpc_guard_link_free(s->link);
    rpc_guard_free(s->guard);
}

/* A sealed frame, kept by the attacker too. */
struct sealed_frame {
    size_t len;
    char *bytes;
};

static struct sealed_frame seal_as(struct side *s, enum rpc_kind kind, enum rpc_lane lane,
                                   uint64_t to_epoch, size_t size, bool greeting)
{
    char *body = xcalloc(1, size + 1);
    struct rpc_frame f = {
        .version = 1,
        .speaks_min = 1,
        .speaks_max = 1,
        .kind = (uint8_t)kind,
        .lane = (uint8_t)lane,
        .method = kind == RPC_REQUEST ? 2 : 0,
        .epoch = s->epoch,
        .to_epoch = to_epoch,
        .seq = ++s->seq,
        .id = 9,
        .total = (uint32_t)size,
        .raw = (uint32_t)size,
        .addr = str_c(s->addr),
        .body = { body, size },
    };
    uint8_t head[RPC_FRAME_HEAD_MAX];
    size_t n = rpc_frame_head_bare(&f, head);
    struct str out;

    memset(body, 'x', size);
    out = greeting ? rpc_guard_seal_greeting(s->link, to_epoch, str_n(head, n), f.body)
                   : rpc_guard_seal(s->link, lane, str_n(head, n), f.body);
    xfree(body);
    return (struct sealed_frame){ out.len, xmemdup(out.ptr, out.len) };
}

static struct sealed_frame seal(struct side *s, enum rpc_kind kind, enum rpc_lane lane,
                                uint64_t to_epoch, size_t size)
{
    return seal_as(s, kind, lane, to_epoch, size, kind == RPC_PING || kind == RPC_PONG);
}

static enum rpc_drop open_at(struct side *s, struct str bytes, struct rpc_frame *f,
                             struct rpc_seal *ret)
{
    struct str in;
    enum rpc_drop why = rpc_guard_open(s->guard, bytes, &in, ret);
    struct err e;

    if (why != RPC_DROP_NONE)
        return why;
    assert_int_equal(rpc_frame_parse_bare(in, 1, 1, f, &why, &e), 0);
    return rpc_guard_check(s->guard, ret, f);
}

static enum rpc_drop opens(struct side *s, const struct sealed_frame *k)
{
    struct rpc_seal seal;
    struct rpc_frame f;

    return open_at(s, str_n(k->bytes, k->len), &f, &seal);
}

static void kept_free(struct sealed_frame *k)
{
    xfree(k->bytes);
}

/* from asks, to answers: from is bound. */
static void bind(struct side *from, struct side *to)
{
    struct sealed_frame ping = seal(from, RPC_PING, RPC_LANE_CONTROL, 0, 8), pong;
    struct rpc_seal s;
    struct rpc_frame f;

    assert_int_equal(opens(to, &ping), RPC_DROP_NONE);
    pong = seal(to, RPC_PONG, RPC_LANE_CONTROL, from->epoch, 8);
    assert_int_equal(open_at(from, str_n(pong.bytes, pong.len), &f, &s), RPC_DROP_NONE);
    assert_true(f.kind == RPC_PONG && f.epoch == to->epoch);
    rpc_guard_bind(from->link, f.epoch, s.ticket);
    kept_free(&ping);
    kept_free(&pong);
}

static struct sealed_frame request(struct side *s, enum rpc_lane lane)
{
    return seal(s, RPC_REQUEST, lane, 0, 100);
}

static void two_init(struct two *t, uint64_t frames_max)
{
    *t = (struct two){ .keys = rpc_bed_keys("ab") };
    side_up(&t->a, "mem://a", "mem://b", 0xa1, t->keys, frames_max);
    side_up(&t->b, "mem://b", "mem://a", 0xb1, t->keys, frames_max);
    bind(&t->a, &t->b);
    bind(&t->b, &t->a);
}

static void two_deinit(struct two *t)
{
    side_down(&t->a);
    side_down(&t->b);
    rpc_keys_free(t->keys);
}

static void each_opens_once_and_only_there(void **state)
{
    struct two t;

    (void)state;
    two_init(&t, 0);
    for (int i = 0; i < 100; i++) {
        struct sealed_frame k =
            seal(&t.a, RPC_REQUEST, (enum rpc_lane)(i % 2), 0, (size_t)i * 2600);

        assert_int_equal(opens(&t.a, &k), RPC_DROP_TICKET); /* thrown back */
        assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
        assert_int_equal(opens(&t.b, &k), RPC_DROP_REPLAYED);
        assert_int_equal(opens(&t.a, &k), RPC_DROP_TICKET);
        kept_free(&k);
    }
    two_deinit(&t);
}

static void any_order_within_the_window(void **state)
{
    enum { N = 3000 };
    struct sealed_frame *k = XNEW_ARRAY(struct sealed_frame, N);
    struct prng p;
    struct two t;

    (void)state;
    two_init(&t, 0);
    prng_init(&p, 3);
    for (int i = 0; i < N; i++)
        k[i] = request(&t.a, (enum rpc_lane)prng_below(&p, 2));
    for (int i = N - 1; i > 0; i--) {
        uint64_t at = prng_below(&p, (uint64_t)i + 1);
        struct sealed_frame other = k[at];

        k[at] = k[i];
        k[i] = other;
    }
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < N; i++)
            assert_int_equal(opens(&t.b, &k[i]), again ? RPC_DROP_REPLAYED : RPC_DROP_NONE);
    }
    for (int i = 0; i < N; i++)
        kept_free(&k[i]);
    xfree(k);
    two_deinit(&t);
}

/* One lane may be ahead of the other by any number; within one, older than the window is void. */
static void lanes_have_windows_of_their_own(void **state)
{
    struct sealed_frame bulk, first, k;
    struct two t;

    (void)state;
    two_init(&t, 0);
    bulk = request(&t.a, RPC_LANE_BULK);
    first = request(&t.a, RPC_LANE_CONTROL);
    for (int i = 0; i < 2 * RPC_GUARD_WINDOW; i++) {
        k = request(&t.a, RPC_LANE_CONTROL);
        assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
        kept_free(&k);
    }
    assert_int_equal(opens(&t.b, &first), RPC_DROP_REPLAYED);
    assert_int_equal(opens(&t.b, &bulk), RPC_DROP_NONE);
    kept_free(&bulk);
    kept_free(&first);
    two_deinit(&t);
}

/* Each bit of a bound frame and of a ping; each cut; and none of it does harm to what follows. */
static void no_bit_may_flip(void **state)
{
    struct two t;

    (void)state;
    two_init(&t, 0);
    for (int greeting = 0; greeting < 2; greeting++) {
        struct sealed_frame k = greeting ? seal(&t.a, RPC_PING, RPC_LANE_CONTROL, 0, 8)
                                         : request(&t.a, RPC_LANE_CONTROL);

        for (size_t bit = 0; bit < k.len * 8; bit++) {
            k.bytes[bit / 8] = (char)(k.bytes[bit / 8] ^ 1 << bit % 8);
            assert_int_not_equal(opens(&t.b, &k), RPC_DROP_NONE);
            k.bytes[bit / 8] = (char)(k.bytes[bit / 8] ^ 1 << bit % 8);
        }
        for (size_t n = k.len; n-- > 0;) {
            struct sealed_frame cut = { n, k.bytes };

            assert_int_not_equal(opens(&t.b, &cut), RPC_DROP_NONE);
        }
        assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
        kept_free(&k);
    }
    two_deinit(&t);
}

/* The receiver restarts: what was sealed for its predecessor is void, with or without a binding. */
static void nothing_survives_the_receiver(void **state)
{
    struct sealed_frame before, held, after;
    struct two t;

    (void)state;
    two_init(&t, 0);
    before = request(&t.a, RPC_LANE_CONTROL);
    held = request(&t.a, RPC_LANE_BULK);
    assert_int_equal(opens(&t.b, &before), RPC_DROP_NONE);
    side_down(&t.b);
    side_up(&t.b, "mem://b", "mem://a", 0xb2, t.keys, 0);
    assert_int_equal(opens(&t.b, &before), RPC_DROP_TICKET);
    assert_int_equal(opens(&t.b, &held), RPC_DROP_TICKET);
    after = request(&t.a, RPC_LANE_CONTROL); /* it does not know yet */
    assert_int_equal(opens(&t.b, &after), RPC_DROP_TICKET);
    kept_free(&after);
    bind(&t.a, &t.b);
    after = request(&t.a, RPC_LANE_CONTROL);
    assert_int_equal(opens(&t.b, &after), RPC_DROP_NONE);
    assert_int_equal(opens(&t.b, &before), RPC_DROP_TICKET);
    assert_int_equal(opens(&t.b, &held), RPC_DROP_TICKET);
    kept_free(&before);
    kept_free(&held);
    kept_free(&after);
    two_deinit(&t);
}

/* The same, when the receiver only forgot the sender. */
static void nothing_survives_a_forgotten_window(void **state)
{
    struct sealed_frame k;
    struct two t;

    (void)state;
    two_init(&t, 0);
    k = request(&t.a, RPC_LANE_CONTROL);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
    rpc_guard_link_free(t.b.link);
    t.b.link = rpc_guard_link_new(t.b.guard, "mem://a");
    assert_int_equal(opens(&t.b, &k), RPC_DROP_TICKET);
    bind(&t.a, &t.b);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_TICKET);
    kept_free(&k);
    two_deinit(&t);
}

/* The sender restarts: once its successor proved itself, frames of the dead one are refused, those
 * of a run whose beginning was not seen as well; and our own run towards the dead one ends. */
static void an_older_incarnation_is_refused(void **state)
{
    struct sealed_frame same, old, unseen, k;
    struct side dead;
    struct two t;

    (void)state;
    two_init(&t, 10);
    k = request(&t.a, RPC_LANE_CONTROL);
    same = request(&t.a, RPC_LANE_BULK); /* of the run that b is going to know */
    old = request(&t.a, RPC_LANE_CONTROL);
    for (int i = 0; i < 10; i++) { /* the next run */
        kept_free(&old);
        old = request(&t.a, RPC_LANE_CONTROL);
    }
    unseen = request(&t.a, RPC_LANE_BULK);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
    kept_free(&k);
    dead = t.a;
    side_up(&t.a, "mem://a", "mem://b", 0xa2, t.keys, 0);
    bind(&t.a, &t.b);
    assert_true(rpc_guard_bound(t.b.link) == 0xa1);
    k = request(&t.a, RPC_LANE_CONTROL);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
    assert_true(rpc_guard_bound(t.b.link) == 0);
    assert_int_equal(opens(&t.b, &same), RPC_DROP_TICKET);
    assert_int_equal(opens(&t.b, &old), RPC_DROP_TICKET);
    assert_int_equal(opens(&t.b, &unseen), RPC_DROP_TICKET);
    kept_free(&k);
    k = request(&dead, RPC_LANE_CONTROL);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_TICKET);
    kept_free(&k);
    kept_free(&same);
    kept_free(&old);
    kept_free(&unseen);
    side_down(&dead);
    two_deinit(&t);
}

/* Replayed pings of dead processes get pongs that bind no node, and cost live processes nothing. */
static void replayed_pings_do_nothing(void **state)
{
    enum { N = 20 };
    struct sealed_frame pings[N], pong, k;
    struct side dead;
    struct two t;

    (void)state;
    two_init(&t, 0);
    for (uint64_t i = 0; i < N; i++) {
        side_up(&dead, "mem://a", "mem://b", 0xd0 + i, t.keys, 0);
        pings[i] = seal(&dead, RPC_PING, RPC_LANE_CONTROL, 0, 8);
        side_down(&dead);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(opens(&t.b, &pings[i]), RPC_DROP_NONE);
        pong = seal(&t.b, RPC_PONG, RPC_LANE_CONTROL, 0xd0 + (uint64_t)i, 8);
        assert_int_equal(opens(&t.a, &pong), RPC_DROP_EPOCH); /* for another process */
        kept_free(&pong);
        k = request(&t.a, RPC_LANE_CONTROL);
        assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
        kept_free(&k);
        kept_free(&pings[i]);
    }
    two_deinit(&t);
}

static void keys_must_be_shared(void **state)
{
    struct rpc_keys *others = rpc_bed_keys("c");
    struct side stranger;
    struct sealed_frame k;
    struct two t;

    (void)state;
    two_init(&t, 0);
    side_up(&stranger, "mem://a", "mem://b", 0xa1, others, 0);
    k = seal(&stranger, RPC_PING, RPC_LANE_CONTROL, 0, 8);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_KEY);
    /* It claims to have the key. */
    memcpy(k.bytes + 8, rpc_keys_first(t.keys)->mark, RPC_KEY_MARK);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_FORGED);
    kept_free(&k);
    /* It knows the ticket it saw on the wire. */
    k = request(&t.a, RPC_LANE_CONTROL);
    rpc_guard_bind(stranger.link, 0xb1, get_u64le(k.bytes + 40));
    kept_free(&k);
    k = request(&stranger, RPC_LANE_CONTROL);
    memcpy(k.bytes + 8, rpc_keys_first(t.keys)->mark, RPC_KEY_MARK);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_FORGED);
    kept_free(&k);
    side_down(&stranger);
    rpc_keys_free(others);
    two_deinit(&t);
}

/* A frame for b does not open at c, which has the same key, and not from another address. */
static void frames_are_for_one_node_from_one_node(void **state)
{
    struct side c;
    struct sealed_frame k;
    struct two t;

    (void)state;
    two_init(&t, 0);
    side_up(&c, "mem://c", "mem://a", 0xc1, t.keys, 0);
    k = request(&t.a, RPC_LANE_CONTROL);
    assert_int_equal(opens(&c, &k), RPC_DROP_TICKET);
    kept_free(&k);
    /* c takes the ticket that b gave to a. */
    k = request(&t.a, RPC_LANE_CONTROL);
    rpc_guard_link_free(c.link);
    c.link = rpc_guard_link_new(c.guard, "mem://b");
    rpc_guard_bind(c.link, 0xb1, get_u64le(k.bytes + 40));
    kept_free(&k);
    k = request(&c, RPC_LANE_CONTROL);
    assert_int_equal(opens(&t.b, &k), RPC_DROP_TICKET);
    kept_free(&k);
    side_down(&c);
    two_deinit(&t);
}

/* Greetings are for no particular node, so no frame that acts may come as a greeting, and the other
 * way round; the envelope decides the class of a frame. */
static void frames_keep_to_their_class(void **state)
{
    struct two t;

    (void)state;
    two_init(&t, 0);
    for (int kind = RPC_PING; kind <= RPC_FINACK; kind++) {
        for (int greeting = 0; greeting < 2; greeting++) {
            struct sealed_frame k = seal_as(&t.a, (enum rpc_kind)kind, RPC_LANE_CONTROL,
                                            kind == RPC_PONG ? 0xb1 : 0, 8, greeting);
            struct rpc_frame f = { .kind = (uint8_t)kind, .epoch = 0xa1, .addr = STR("mem://a") };
            struct rpc_seal s;
            struct str in;

            f.to_epoch = kind == RPC_PONG ? 0xb1 : 0;
            assert_int_equal(rpc_guard_open(t.b.guard, str_n(k.bytes, k.len), &in, &s),
                             RPC_DROP_NONE);
            assert_int_equal(rpc_guard_check(t.b.guard, &s, &f),
                             greeting == (kind == RPC_PING || kind == RPC_PONG) ? RPC_DROP_NONE
                                                                                : RPC_DROP_FORGED);
            f.lane = 1;
            assert_int_equal(rpc_guard_check(t.b.guard, &s, &f), RPC_DROP_FORGED);
            f.lane = 0;
            f.epoch++;
            assert_int_equal(rpc_guard_check(t.b.guard, &s, &f), RPC_DROP_FORGED);
            kept_free(&k);
        }
    }
    two_deinit(&t);
}

/* A run has so many frames; the sessions of old ones go, and their tickets with them. */
static void runs_end_and_begin_anew(void **state)
{
    enum { MAX = 50 };
    struct sealed_frame first = { 0 };
    struct two t;
    char salt[RPC_SEAL_SALT] = { 0 };
    int runs = 0;

    (void)state;
    two_init(&t, MAX);
    for (int i = 0; i < 10 * MAX; i++) {
        struct sealed_frame k;

        if (i % 20 == 0)
            bind(&t.a, &t.b); /* heartbeats */
        k = request(&t.a, RPC_LANE_CONTROL);
        assert_in_range(get_u64le(k.bytes + 48), 1, MAX);
        runs += memcmp(salt, k.bytes + 16, sizeof(salt)) != 0;
        memcpy(salt, k.bytes + 16, sizeof(salt));
        assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
        if (i == 0)
            first = k;
        else
            kept_free(&k);
    }
    assert_in_range(runs, 10, 20);
    /* Its session is gone since long, and so is its ticket. */
    assert_int_equal(opens(&t.b, &first), RPC_DROP_TICKET);
    kept_free(&first);
    two_deinit(&t);
}

static void keys_change_while_frames_flow(void **state)
{
    static const char *const steps[] = { "ab", "abc", "cab", "ca", "c" };
    struct rpc_keys *ahead = rpc_bed_keys("ab");
    struct sealed_frame old;
    struct two t;

    (void)state;
    two_init(&t, 0);
    side_down(&t.a);
    side_up(&t.a, "mem://a", "mem://b", 0xa2, ahead, 0);
    bind(&t.a, &t.b);
    bind(&t.b, &t.a);
    old = request(&t.a, RPC_LANE_CONTROL);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        for (int back = 0; back < 2; back++) {
            struct sealed_frame k;

            /* a is a step ahead of b: their files do not change at the same moment. */
            if (back == 0)
                rpc_keys_replace(ahead, rpc_bed_keys(steps[i]));
            else
                rpc_keys_replace(t.keys, rpc_bed_keys(steps[i]));
            k = request(&t.a, RPC_LANE_CONTROL);
            assert_int_equal(opens(&t.b, &k), RPC_DROP_NONE);
            assert_memory_equal(k.bytes + 8, rpc_keys_first(ahead)->mark, RPC_KEY_MARK);
            kept_free(&k);
            k = request(&t.b, RPC_LANE_BULK);
            assert_int_equal(opens(&t.a, &k), RPC_DROP_NONE);
            kept_free(&k);
        }
    }
    assert_int_equal(opens(&t.b, &old), RPC_DROP_KEY); /* removed is removed */
    kept_free(&old);
    two_deinit(&t);
    rpc_keys_free(ahead);
}

/* No nonce under one key twice: every (salt, lane, counter) that ever leaves is another. */
static void no_nonce_comes_twice(void **state)
{
    enum { N = 4000 };
    struct map_str *seen = map_str_new();
    char(*keys)[RPC_SEAL_SALT + 9] = xcalloc(N, sizeof(*keys));
    struct prng p;
    struct two t;

    (void)state;
    two_init(&t, 30);
    prng_init(&p, 8);
    for (int i = 0; i < N; i++) {
        struct sealed_frame k;

        switch (prng_below(&p, 12)) {
        case 0:
            side_down(&t.a); /* the same epoch again: even then */
            side_up(&t.a, "mem://a", "mem://b", 0xa1, t.keys, 30);
            prng_init(&t.a.env.prng, (uint64_t)i + 100);
            bind(&t.a, &t.b);
            break;
        case 1:
            bind(&t.a, &t.b);
            break;
        case 2:
            rpc_guard_unbind(t.a.link);
            bind(&t.a, &t.b);
            break;
        case 3:
            rpc_keys_replace(t.keys, rpc_bed_keys(i % 2 ? "ab" : "ba"));
            break;
        }
        k = prng_below(&p, 5) ? request(&t.a, (enum rpc_lane)prng_below(&p, 2))
                              : seal(&t.a, RPC_PING, RPC_LANE_CONTROL, 0, 8);
        memcpy(keys[i], k.bytes + 16, RPC_SEAL_SALT);
        memcpy(keys[i] + RPC_SEAL_SALT, k.bytes + 48, 8);
        keys[i][RPC_SEAL_SALT + 8] = k.bytes[6];
        assert_null(map_str_put(seen, str_n(keys[i], sizeof(keys[i])), keys[i]));
        kept_free(&k);
    }
    map_str_free(seen);
    xfree(keys);
    two_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_opens_once_and_only_there),
        cmocka_unit_test(any_order_within_the_window),
        cmocka_unit_test(lanes_have_windows_of_their_own),
        cmocka_unit_test(no_bit_may_flip),
        cmocka_unit_test(nothing_survives_the_receiver),
        cmocka_unit_test(nothing_survives_a_forgotten_window),
        cmocka_unit_test(an_older_incarnation_is_refused),
        cmocka_unit_test(replayed_pings_do_nothing),
        cmocka_unit_test(keys_must_be_shared),
        cmocka_unit_test(frames_are_for_one_node_from_one_node),
        cmocka_unit_test(frames_keep_to_their_class),
        cmocka_unit_test(runs_end_and_begin_anew),
        cmocka_unit_test(keys_change_while_frames_flow),
        cmocka_unit_test(no_nonce_comes_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
