/* SPDX-License-Identifier: Apache-2.0
 *
 * A node that finds its name taken: by another node, or by the process that had its address before
 * and another data folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/member.h"

#define PREFIX "/e"
enum { TTL_MS = 3000 };

struct node {
    struct coord *coord;
    struct view *view;
    struct member *member;
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
};

static void world_open(struct world *w)
{
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    w->site = coord_site_new(w->loop, 1);
    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
}

static void world_close(struct world *w)
{
    coord_site_free(w->site);
    loop_free(w->loop);
}

static void node_up(struct world *w, struct node *n, uint64_t id, const char *addr)
{
    struct view_opts vo = { .loop = w->loop, .prefix = PREFIX };
    struct member_opts mo = { .loop = w->loop,
                              .prefix = PREFIX,
                              .ttl_ms = TTL_MS,
                              .name = "i1",
                              .addr = addr,
                              .zone = "",
                              .id = id };

    mo.coord = vo.coord = n->coord = coord_sim_new(w->site);
    mo.view = n->view = view_new_coord(&vo);
    n->member = member_new(&mo);
}

/* As by kill -9: its lease ends only with its time. */
static void node_down(struct node *n)
{
    member_free(n->member);
    view_free(n->view);
    coord_free(n->coord);
}

static void pass(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&w->clock.clock) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end)
        (void)loop_sim_step(w->loop);
}

/* The documented way to get over a lost disk: killed, and started at once with an empty folder. */
static void test_lost_folder(void **state)
{
    struct world w;
    struct node n;

    (void)state;
    world_open(&w);
    node_up(&w, &n, 1, "tcp://10.0.0.1:4041");
    pass(&w, 1500);
    assert_true(member_in(n.member));
    node_down(&n);
    node_up(&w, &n, 2, "tcp://10.0.0.1:4041");
    for (int i = 0; i < 10; i++) {
        pass(&w, 100);
        assert_string_equal(member_rival(n.member), "");
    }
    assert_false(member_in(n.member));
    assert_non_null(strstr(member_why(n.member), "runs out by itself"));
    pass(&w, TTL_MS + 1000);
    assert_true(member_in(n.member));
    node_down(&n);
    world_close(&w);
}

static void test_another_node(void **state)
{
    struct node one, other;
    struct world w;

    (void)state;
    world_open(&w);
    node_up(&w, &one, 1, "tcp://10.0.0.1:4041");
    pass(&w, 1500);
    node_up(&w, &other, 2, "tcp://10.0.0.2:4041");
    pass(&w, 1000);
    assert_string_equal(
        member_rival(other.member),
        "another node called i1 lives at tcp://10.0.0.1:4041; give each its own cluster.node");
    assert_true(member_in(one.member));
    node_down(&other);
    node_down(&one);
    world_close(&w);
}

/* Both think that they have one address (127.0.0.1, on two machines): that does not run out. */
static void test_same_address_for_long(void **state)
{
    struct node one, other;
    struct world w;

    (void)state;
    world_open(&w);
    node_up(&w, &one, 1, "tcp://127.0.0.1:4041");
    pass(&w, 1500);
    node_up(&w, &other, 2, "tcp://127.0.0.1:4041");
    pass(&w, 2 * TTL_MS);
    assert_string_equal(member_rival(other.member), "");
    pass(&w, 3 * TTL_MS);
    assert_non_null(strstr(member_rival(other.member), "another node called i1"));
    assert_true(member_in(one.member));
    node_down(&other);
    node_down(&one);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_folder),
        cmocka_unit_test(test_another_node),
        cmocka_unit_test(test_same_address_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
