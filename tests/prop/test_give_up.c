/* SPDX-License-Identifier: Apache-2.0
 *
 * A step is announced and not valid yet, and the service goes away: leaders ask the controller that
 * announced it to abort it, and continue as if it had not been announced. A step that it may have
 * committed it does not abort; the world in which leaders do not ask counts twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>

#include "common/model/slot.h"
#include "tests/lib/repl/steps_world.h"

/* Its places change from one to all; false: not yet. */
static bool is_announced(struct world *w, struct map_pending *ret)
{
    const struct map *m = sw_map(w);
    struct map_whose who;
    bool is = m && map_pending_announced(m, &who);

    if (is)
        *ret = map_whose_steps(m, &who)->next;
    if (is)
        ret->by = STR_NULL; /* borrowed */
    map_unref(m);
    return is;
}

static int64_t valid_from(struct world *w)
{
    const struct map *m = sw_map(w);
    const struct map_service *s = map_service(m, STR("t"), STR("big"));
    int64_t from = s && s->steps.len > 1 ? s->steps.at[s->steps.len - 1].from_ms : 0;

    map_unref(m);
    return from;
}

static void open_spread(struct world *w, uint64_t seed, enum mutant mutant)
{
    struct map_whose who = { STR("t"), STR("big") };
    const struct map *m, *next;
    struct err e;

    sw_open(w, 2 * seed, mutant); /* clocks are right */
    m = sw_map(w);
    assert_int_equal(map_pending_request(m, &who, SHARDS, &next, &e), 0);
    sw_put_map(w, next);
    map_unref(next);
    map_unref(m);
}

static void step_until(struct world *w, bool valid)
{
    struct map_pending next;

    for (int i = 0; i < 200000 && (valid ? !valid_from(w) : !is_announced(w, &next)); i++)
        assert_true(loop_sim_step(w->loop));
    assert_true(valid ? valid_from(w) != 0 : is_announced(w, &next));
}

/* Pushes with times behind the step's, by all distributors. */
static uint64_t push_after(struct world *w, int64_t from_ms)
{
    uint64_t before = w->acked;

    for (size_t i = 0; i < PUSHES; i++) {
        w->pushes[i].service = STR("big");
        w->pushes[i].when_ms = from_ms + (int64_t)i * 100;
        for (int d = 0; d < DISTS; d++)
            sw_attempt(w, &w->pushes[i], &w->dists[d]);
    }
    return w->acked - before;
}

/* The service goes away before any node has confirmed the announcement, for longer than until its
 * time: pushes after that are taken. The next controller does not commit that announcement. */
static void test_given_up(void **state)
{
    (void)state;

    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct map_pending next;
        struct world w;

        open_spread(&w, seed, NO_MUTANT);
        step_until(&w, false);
        assert_true(is_announced(&w, &next));
        sw_pass(&w, 20); /* all know it, and none has confirmed it */
        coord_site_away(w.site, true);
        sw_pass(&w, 2 * AFTER_MS);
        assert_int_equal(w.given_up, NODES);
        assert_int_equal(push_after(&w, next.from_ms), PUSHES * DISTS);
        for (int i = 0; i < NODES && seed % 2; i++) { /* restarts forget the aborts */
            w.nodes[i].gave_up = 0;
            sw_node_down(&w.nodes[i]);
            sw_node_up(&w.nodes[i]);
        }
        coord_site_away(w.site, false);
        sw_settle(&w);
        assert_true(valid_from(&w) > next.from_ms);
        assert_true(push_after(&w, next.from_ms) > 0);
        assert_int_equal(w.doubled, 0);
        sw_close(&w);
    }
}

/* It became valid, and the leaders of the old places are cut off before they learn of it: they may
 * not abort it, nor may the controller for them. */
static uint64_t cut_off_behind(uint64_t seed, enum mutant mutant)
{
    uint64_t taken, doubled;
    struct world w;

    open_spread(&w, seed, mutant);
    step_until(&w, true);
    for (int i = 0; i < NODES; i++)
        coord_sim_cut(w.nodes[i].coord, true);
    coord_sim_cut(w.dists[0].coord, true);
    sw_pass(&w, 2 * AFTER_MS);
    taken = push_after(&w, valid_from(&w));
    for (int i = 0; i < NODES; i++)
        coord_sim_cut(w.nodes[i].coord, false);
    sw_pass(&w, 20000);
    taken += push_after(&w, valid_from(&w));
    doubled = w.doubled;
    print_message("seed %" PRIu64 ": %" PRIu64 " taken, %" PRIu64 " aborted, %" PRIu64 " doubled\n",
                  seed, taken, w.given_up, doubled);
    assert_true(taken > 0);
    sw_close(&w);
    return doubled;
}

static void test_decided_is_not_given_up(void **state)
{
    uint64_t doubled = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        assert_int_equal(cut_off_behind(seed, NO_MUTANT), 0);
    for (uint64_t seed = 1; seed <= 12 && !doubled; seed++)
        doubled = cut_off_behind(seed, GIVES_UP_ALONE);
    assert_true(doubled > 0);
}

/* A new controller does not commit a step of another controller, which may have aborted it. It
 * announces the step again. */
static void test_anothers(void **state)
{
    const struct map_whose who = { STR("t"), STR("big") };
    const struct map *m, *next;
    struct map_pending first;
    struct world w;
    struct err e;

    (void)state;
    for (int anybody = 0; anybody < 2; anybody++) {
        open_spread(&w, 1, NO_MUTANT);
        step_until(&w, false);
        assert_true(is_announced(&w, &first));
        int64_t from_ms = first.from_ms - 3 * LEAF_MS;
        m = sw_map(&w);
        assert_int_equal(
            map_pending_announce(m, &who, from_ms, anybody ? STR_NULL : STR("node-0 1"), &next, &e),
            0);
        sw_put_map(&w, next);
        map_unref(next);
        map_unref(m);
        sw_settle(&w);
        assert_true(anybody ? valid_from(&w) == from_ms : valid_from(&w) >= first.from_ms);
        sw_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_anothers),
        cmocka_unit_test(test_decided_is_not_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
