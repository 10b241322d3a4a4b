/* SPDX-License-Identifier: Apache-2.0
 *
 * A node that was drained: what its folder remembers of it, and that it registers as what the map
 * of the moment says it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/member.h"
#include "tests/lib/store/kv_dir.h"

#define NODE(name, state) \
    "{\"name\":\"" name "\",\"addr\":\"tcp://" name ":1\",\"state\":\"" state "\"}"
#define MAP(version, nodes) \
    "{\"version\":" version ",\"shards\":1,\"replicas\":1,\"nodes\":[" nodes "]}"
#define WITH(version, state) MAP(version, NODE("a", "active") "," NODE("b", state))
#define WITHOUT(version)     MAP(version, NODE("a", "active"))

struct bed {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct coord *coord, *own; /* the view's, the member's */
    struct view *view;
    struct member *member;
    char *dir, file[512];
};

static void pass(struct bed *b, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&b->clock.clock) + ms, due;

    while (loop_sim_next(b->loop, &due) && due / 1000000 <= end)
        (void)loop_sim_step(b->loop);
    if (clock_mono_ms(&b->clock.clock) < end)
        clock_fake_advance(&b->clock, (int64_t)(end - clock_mono_ms(&b->clock.clock)));
}

static void open_view(struct bed *b)
{
    b->coord = coord_sim_new(b->site);
    b->view = view_new_coord(&(struct view_opts){ .loop = b->loop,
                                                  .coord = b->coord,
                                                  .prefix = "/e",
                                                  .fs = fs_real(),
                                                  .file = b->file,
                                                  .keeps = true,
                                                  .node = "b" });
}

static void close_view(struct bed *b)
{
    view_free(b->view);
    coord_free(b->coord);
}

static void put_map(struct bed *b, const char *text)
{
    coord_site_put(b->site, STR("/e/ring/map"), str_c(text));
}

static void open_bed(struct bed *b, const char *map)
{
    *b = (struct bed){ .dir = kv_dir_new() };
    clock_fake_init(&b->clock, 1700000000000);
    b->loop = loop_sim_new(&b->clock);
    b->site = coord_site_new(b->loop, 1);
    (void)snprintf(b->file, sizeof(b->file), "%s/cluster.json", b->dir);
    put_map(b, map);
    open_view(b);
    pass(b, 3000);
}

static void close_bed(struct bed *b)
{
    close_view(b);
    coord_site_free(b->site);
    loop_free(b->loop);
    kv_dir_remove(b->dir);
}

static void again(struct bed *b)
{
    close_view(b);
    open_view(b);
}

/* Each state of the map in turn, and each time a process that begins with the file alone. */
static void test_folder_remembers(void **state)
{
    static const struct {
        const char *map;
        bool drained;
    } steps[] = {
        { WITHOUT("1"), false }, /* it was never there */
        { WITH("2", "active"), false }, { WITH("3", "draining"), true },
        { WITH("4", "left"), true },    { WITHOUT("5"), true },
        { WITHOUT("6"), true },         { WITH("7", "left"), true },
        { WITH("8", "active"), false }, { WITHOUT("9"), true }, /* only drained nodes leave a map */
    };
    struct bed b;

    (void)state;
    open_bed(&b, steps[0].map);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        put_map(&b, steps[i].map);
        pass(&b, 5000);
        assert_int_equal(view_drained(b.view), steps[i].drained);
        again(&b);
        assert_int_equal(view_drained(b.view), steps[i].drained);
        pass(&b, 5000);
        assert_int_equal(view_drained(b.view), steps[i].drained);
    }
    close_view(&b); /* while it was down */
    put_map(&b, WITH("10", "active"));
    open_view(&b);
    assert_true(view_drained(b.view));
    pass(&b, 3000);
    assert_false(view_drained(b.view));
    close_bed(&b);
}

static void join(struct bed *b)
{
    b->own = coord_sim_new(b->site);
    b->member = member_new(&(struct member_opts){ .loop = b->loop,
                                                  .coord = b->own,
                                                  .view = b->view,
                                                  .prefix = "/e",
                                                  .name = "b",
                                                  .addr = "tcp://b:1",
                                                  .zone = "",
                                                  .id = 7,
                                                  .ttl_ms = 3000 });
}

static void leave(struct bed *b)
{
    member_free(b->member);
    coord_free(b->own);
    close_bed(b);
}

/* What stands in the service of it; false: nothing. */
static bool lives(struct bed *b, struct live *ret)
{
    const struct coord_kv *kv = coord_site_get(b->site, STR("/e/ring/live/b"));
    struct err e;

    if (kv)
        assert_int_equal(live_parse(kv->value, ret, &e), 0);
    return kv != NULL;
}

/* The map forgot the node while its view was away: it does not register as a new node. */
static void test_registers_by_the_map(void **state)
{
    struct live l;
    struct bed b;

    (void)state;
    open_bed(&b, WITH("1", "active"));
    coord_sim_cut(b.coord, true);
    pass(&b, 100);
    put_map(&b, WITHOUT("2"));
    assert_false(view_drained(b.view));
    join(&b);
    pass(&b, 1500);
    assert_false(lives(&b, &l));
    coord_sim_cut(b.coord, false);
    pass(&b, 5000);
    assert_true(lives(&b, &l));
    assert_true(l.drained);
    assert_true(member_in(b.member));
    leave(&b);
}

/* A map that cannot be read here delays the node only for a short time. */
static void test_registers_by_no_map(void **state)
{
    struct live l;
    struct bed b;

    (void)state;
    open_bed(&b, WITH("1", "active"));
    put_map(&b, "what is this");
    pass(&b, 1000);
    join(&b);
    pass(&b, 6000);
    assert_true(lives(&b, &l));
    assert_false(l.drained);
    leave(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_remembers),
        cmocka_unit_test(test_registers_by_the_map),
        cmocka_unit_test(test_registers_by_no_map),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
