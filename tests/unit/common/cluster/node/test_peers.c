/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes and one coordination service, simulated: each knows how many live, and a number that is
 * too small for a moment is not believed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/node/peers.h"

#define MOST   3
#define TTL_MS 3000

struct one {
    struct coord *coord;
    struct peers *peers;
    uint64_t said; /* by `changed`; 0: not yet */
    uint64_t least;
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct one at[MOST];
};

static void on_changed(void *cookie, uint64_t n)
{
    struct one *o = cookie;

    o->said = n;
    if (n < o->least)
        o->least = n;
}

static void start(struct world *w, size_t i)
{
    struct one *o = &w->at[i];
    struct peers_opts opts = { .loop = w->loop,
                               .prefix = "/t",
                               .kind = "distributor",
                               .id = 7 + i,
                               .ttl_ms = TTL_MS,
                               .changed = on_changed,
                               .cookie = o };

    *o = (struct one){ .coord = coord_sim_new(w->site), .least = UINT64_MAX };
    opts.coord = o->coord;
    o->peers = peers_new(&opts);
    assert_int_equal(peers_count(o->peers), 1);
}

static void end(struct world *w, size_t i)
{
    peers_free(w->at[i].peers);
    coord_free(w->at[i].coord);
    w->at[i] = (struct one){ 0 };
}

static void run(struct world *w, uint64_t ms)
{
    uint64_t until = clock_mono_ms(loop_clock(w->loop)) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < until)
        (void)loop_sim_step(w->loop);
    if (until > clock_mono_ms(loop_clock(w->loop)))
        clock_fake_advance(&w->clock, until - clock_mono_ms(loop_clock(w->loop)));
}

static void all_count(struct world *w, uint64_t n)
{
    for (size_t i = 0; i < MOST; i++) {
        if (!w->at[i].peers)
            continue;
        assert_int_equal(peers_count(w->at[i].peers), n);
        assert_true(w->at[i].said == n || (n == 1 && !w->at[i].said));
    }
}

static void open_three(struct world *w)
{
    *w = (struct world){ 0 };
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    w->site = coord_site_new(w->loop, 7);
    for (size_t i = 0; i < MOST; i++)
        start(w, i);
    run(w, 2000);
    all_count(w, 3);
    for (size_t i = 0; i < MOST; i++)
        w->at[i].least = UINT64_MAX;
}

static void close_all(struct world *w)
{
    for (size_t i = 0; i < MOST; i++)
        if (w->at[i].peers)
            end(w, i);
    coord_site_free(w->site);
    loop_free(w->loop);
}

static void test_they_come_and_go(void **state)
{
    struct world w;

    (void)state;
    open_three(&w);
    end(&w, 0); /* killed: its lease must run out */
    run(&w, TTL_MS + PEERS_LINGER_MS / 2);
    all_count(&w, 3);
    run(&w, PEERS_LINGER_MS + 1000);
    all_count(&w, 2);
    start(&w, 0);
    run(&w, 1000);
    all_count(&w, 3);
    peers_leave(w.at[1].peers); /* in order: without waiting for its lease */
    run(&w, 500);
    end(&w, 1);
    run(&w, PEERS_LINGER_MS + 1000);
    all_count(&w, 2);
    close_all(&w);
}

/* A process that is replaced within seconds never raises the shares of the others. */
static void test_a_restart(void **state)
{
    struct world w;

    (void)state;
    open_three(&w);
    end(&w, 0);
    run(&w, TTL_MS + 2000);
    start(&w, 0);
    run(&w, 2 * PEERS_LINGER_MS);
    all_count(&w, 3);
    assert_true(w.at[1].least >= 3 && w.at[2].least >= 3);
    close_all(&w);
}

static void test_the_service_is_away(void **state)
{
    struct world w;

    (void)state;
    open_three(&w);
    coord_site_away(w.site, true);
    run(&w, 10 * PEERS_LINGER_MS);
    all_count(&w, 3);
    coord_site_away(w.site, false);
    run(&w, 2 * PEERS_LINGER_MS);
    all_count(&w, 3);
    coord_site_restore(w.site, NULL); /* an empty one in its place */
    run(&w, 2 * PEERS_LINGER_MS);
    all_count(&w, 3);
    for (size_t i = 0; i < MOST; i++)
        assert_true(w.at[i].least >= 3);
    close_all(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_come_and_go),
        cmocka_unit_test(test_a_restart),
        cmocka_unit_test(test_the_service_is_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
