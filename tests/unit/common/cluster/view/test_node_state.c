/* SPDX-License-Identifier: Apache-2.0
 *
 * Emptying nodes through the simulated coordination service, with another writer of the same map, a
 * service that is away, and maps for which it makes no sense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/map_edit.h"
#include "common/cluster/view/node_state.h"

#define PREFIX "/e"

enum { GUARD_MS = 60000 };

struct bed {
    struct loop *loop;
    struct timer *guard;
    struct coord_site *site;
    struct coord *coord;
    bool ended;
    int code;
    char text[ERR_TEXT_MAX];
};

static struct map *four(void)
{
    static struct map_node nodes[4];
    static struct map m = { .version = 1, .shards = 4, .replicas = 3, .nodes = nodes };

    for (int i = 0; i < 4; i++) {
        nodes[i] = (struct map_node){ .state = MAP_ACTIVE };
        (void)snprintf(nodes[i].name, sizeof(nodes[i].name), "n%d", i);
        (void)snprintf(nodes[i].addr, sizeof(nodes[i].addr), "tcp://127.0.0.1:%d", 1000 + i);
    }
    m.nodes_len = 4;
    return &m;
}

static void put(struct bed *b, const struct map *m)
{
    struct coord_key key = key_map(STR(PREFIX));
    struct buf text;

    buf_init(&text, MIB);
    map_write(m, &text);
    coord_site_put(b->site, key_str(&key), buf_str(&text));
    buf_deinit(&text);
}

static const struct map *get(struct bed *b)
{
    struct coord_key key = key_map(STR(PREFIX));
    const struct coord_kv *kv = coord_site_get(b->site, key_str(&key));
    const struct map *m;
    struct err e;

    assert_non_null(kv);
    if (map_parse("map", kv->value, true, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

static void on_guard(void *cookie)
{
    (void)cookie;
    fail_msg("no answer");
}

static void begin(struct bed *b)
{
    *b = (struct bed){ .loop = loop_new(clock_real()) };
    b->site = coord_site_new(b->loop, 1);
    coord_site_faults(b->site, &(struct coord_faults){ 1, 3, 0, 0, false });
    b->coord = coord_sim_new(b->site);
    b->guard = loop_timer_new(b->loop, on_guard, b);
}

static void end(struct bed *b)
{
    loop_timer_free(b->guard);
    coord_free(b->coord);
    coord_site_free(b->site);
    loop_free(b->loop);
}

static void on_done(void *cookie, const struct err *e)
{
    struct bed *b = cookie;

    assert_false(b->ended);
    b->ended = true;
    b->code = e ? e->code : 0;
    (void)snprintf(b->text, sizeof(b->text), "%s", e ? e->text : "");
    loop_stop(b->loop);
}

static int set(struct bed *b, const char *name, enum map_state state)
{
    b->ended = false;
    node_state_set(b->coord, PREFIX, name, state, on_done, b);
    assert_false(b->ended);
    loop_timer_start(b->guard, GUARD_MS, 0);
    loop_run(b->loop);
    loop_timer_stop(b->guard);
    assert_true(b->ended);
    return b->code;
}

static void expect(struct bed *b, const char *name, enum map_state state, uint64_t version)
{
    const struct map *m = get(b);

    assert_int_equal(map_node(m, name)->state, state);
    assert_int_equal(m->version, version);
    assert_int_equal(m->nodes_len, 4);
    map_unref(m);
}

static void test_there_and_back(void **state)
{
    struct bed b;

    (void)state;
    begin(&b);
    assert_int_equal(set(&b, "n1", MAP_DRAINING), ERR_UNAVAILABLE); /* no map */
    put(&b, four());
    assert_int_equal(set(&b, "n1", MAP_DRAINING), 0);
    expect(&b, "n1", MAP_DRAINING, 2);
    assert_int_equal(set(&b, "n1", MAP_DRAINING), 0); /* no new version of it */
    expect(&b, "n1", MAP_DRAINING, 2);
    assert_int_equal(set(&b, "n2", MAP_DRAINING), ERR_CONFLICT); /* two would keep three copies */
    assert_non_null(strstr(b.text, "3 copies"));
    expect(&b, "n2", MAP_ACTIVE, 2);
    assert_int_equal(set(&b, "n", MAP_DRAINING), ERR_NOT_FOUND);
    assert_int_equal(set(&b, "n1", MAP_ACTIVE), 0);
    expect(&b, "n1", MAP_ACTIVE, 3);
    assert_int_equal(set(&b, "n2", MAP_DRAINING), 0);
    expect(&b, "n2", MAP_DRAINING, 4);
    end(&b);
}

static void test_left(void **state)
{
    struct map *m = four();
    struct bed b;

    (void)state;
    begin(&b);
    ((struct map_node *)(uintptr_t)m->nodes)[3].state = MAP_LEFT;
    put(&b, m);
    assert_int_equal(set(&b, "n3", MAP_DRAINING), 0); /* it is empty already */
    expect(&b, "n3", MAP_LEFT, 1);
    assert_int_equal(set(&b, "n3", MAP_ACTIVE), 0);
    expect(&b, "n3", MAP_ACTIVE, 2);
    end(&b);
}

/* A coordination service in which another client swaps the map just before we do. */
struct rival {
    struct coord coord;
    struct bed *bed;
    struct coord *to;
    unsigned times; /* yet to come */
};

static void rival_list(struct coord *c, struct str prefix, coord_fn fn, void *cookie)
{
    const struct rival *r = (const struct rival *)c;

    coord_list(r->to, prefix, fn, cookie);
}

static void rival_txn(struct coord *c, const struct coord_txn *t, coord_fn fn, void *cookie)
{
    struct rival *r = (struct rival *)c;
    const struct map *m, *next;
    struct map_node n;
    struct err e;

    if (r->times > 0) {
        r->times--;
        m = get(r->bed);
        n = m->nodes[0];
        (void)snprintf(n.addr, sizeof(n.addr), "tcp://127.0.0.1:%u", 2000 + r->times);
        assert_int_equal(map_edit_node(m, &n, &next, &e), 0);
        put(r->bed, next);
        map_unref(next);
        map_unref(m);
    }
    coord_txn(r->to, t, fn, cookie);
}

/* No change of the rival is lost, and ours is made or reports that it was not. */
static void test_rival(void **state)
{
    static const struct coord_ops ops = { .list = rival_list, .txn = rival_txn };
    struct rival rival = { .coord = { &ops }, .times = 7 };
    const struct map *m;
    struct bed b;

    (void)state;
    begin(&b);
    put(&b, four());
    rival.bed = &b;
    rival.to = b.coord;
    b.coord = &rival.coord;
    assert_int_equal(set(&b, "n3", MAP_DRAINING), 0);
    assert_int_equal(rival.times, 0);
    expect(&b, "n3", MAP_DRAINING, 9); /* seven changes of the rival and one here */
    m = get(&b);
    assert_string_equal(map_node(m, "n0")->addr, "tcp://127.0.0.1:2000");
    map_unref(m);
    rival.times = 1000;
    assert_int_equal(set(&b, "n3", MAP_ACTIVE), ERR_BUSY);
    expect(&b, "n3", MAP_DRAINING, 17);
    b.coord = rival.to;
    assert_int_equal(set(&b, "n3", MAP_ACTIVE), 0);
    expect(&b, "n3", MAP_ACTIVE, 18);
    end(&b);
}

static void test_away(void **state)
{
    struct bed b;

    (void)state;
    begin(&b);
    put(&b, four());
    coord_site_faults(b.site, &(struct coord_faults){ 1, 3, 1.0, 0, false });
    assert_int_equal(set(&b, "n3", MAP_DRAINING), ERR_TIMEOUT);
    coord_site_faults(b.site, &(struct coord_faults){ 1, 3, 0, 0, false });
    expect(&b, "n3", MAP_ACTIVE, 1);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_rival),
        cmocka_unit_test(test_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
