/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a leader comes to an end: with members that are down, that lost their logs and are
 * silent, that do not reach each other, in a term that changed the members. In all cases where one
 * of the previous members reaches a majority of those that answer, the shard has an established
 * leader after some turns. Replicas are a model here: the same as
 * ingester/replicas/replicas_majority.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "common/base/prng.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/node/lead.h"

enum { NODES = 4, TICK_MS = 200, STUCK_MS = 10000, TURNS = 60, WORLDS = 300 };
#define PREFIX "/e"

struct node {
    char name[2], addr[16];
    struct coord *coord; /* NULL: down */
    struct view *view;
    struct member *member;
    struct lead *lead;
    bool silent;
    uint64_t stuck_ms, stuck_term;
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct timer *tick;
    struct node nodes[NODES];
    bool cut[NODES][NODES]; /* from one to the other */
};

static uint64_t seed_of_run(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261122;

    if (given)
        (void)str_u64(str_c(given), &seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static struct name_set set_of(const char *letters)
{
    struct name_set s = { .len = 0 };
    char name[2] = { 0 };

    for (; *letters; letters++) {
        name[0] = *letters;
        assert_true(name_set_add(&s, name));
    }
    return s;
}

/* ---- the model ------------------------------------------------------------------------------- */

static bool speaks(const struct node *n)
{
    return n->coord && !n->silent;
}

static bool majority_answers(const struct world *w, int i, const struct name_set *s)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < s->len; k++) {
        int at = s->names[k][0] - 'a';

        n += speaks(&w->nodes[at]) && !w->cut[i][at] && !w->cut[at][i];
    }
    return n > s->len / 2;
}

static bool could_lead(const struct world *w, int i, const struct repl_record *r)
{
    return speaks(&w->nodes[i]) && name_set_has(&r->members, w->nodes[i].name) &&
           majority_answers(w, i, &r->members) &&
           (!r->prev_members.len || majority_answers(w, i, &r->prev_members));
}

static bool able(void *cookie, uint32_t shard)
{
    (void)shard;
    return !((const struct node *)cookie)->silent;
}

static void node_tick(struct world *w, int i)
{
    struct node *n = &w->nodes[i];
    uint64_t now = clock_mono_ms(&w->clock.clock);
    const struct repl_record *r = view_record(n->view, 0, NULL);

    if (!r)
        return;
    if (!name_set_has(&r->members, n->name) && !name_set_has(&r->prev_members, n->name))
        n->silent = false; /* no member counts on its log */
    if (strcmp(r->leader, n->name) != 0 || r->term != n->stuck_term) {
        n->stuck_ms = now;
        n->stuck_term = r->term;
    }
    if (strcmp(r->leader, n->name) != 0 || r->established)
        return;
    if (n->silent)
        (void)lead_pass(n->lead, 0, "test");
    else if (could_lead(w, i, r))
        lead_established(n->lead, 0, r->term);
    else if (now - n->stuck_ms >= STUCK_MS && !lead_undo_member_change(n->lead, 0))
        (void)lead_pass(n->lead, 0, "test");
}

static void on_tick(void *cookie)
{
    struct world *w = cookie;

    for (int i = 0; i < NODES; i++)
        if (w->nodes[i].coord)
            node_tick(w, i);
}

/* ---- the world ------------------------------------------------------------------------------- */

static void put_map(struct world *w)
{
    struct map_node nodes[NODES] = { 0 };
    struct map from = { .version = 1, .shards = 1, .replicas = 3, .nodes = nodes };
    struct coord_key key = key_map(STR(PREFIX));
    const struct map *m;
    struct buf b;
    struct err e;

    from.nodes_len = NODES;
    for (int i = 0; i < NODES; i++) {
        memcpy(nodes[i].name, w->nodes[i].name, sizeof(w->nodes[i].name));
        memcpy(nodes[i].addr, w->nodes[i].addr, sizeof(w->nodes[i].addr));
    }
    if (map_new(&from, &m, &e))
        fail_msg("%s", e.text);
    buf_init(&b, MIB);
    map_write(m, &b);
    coord_site_put(w->site, key_str(&key), buf_str(&b));
    buf_deinit(&b);
    map_unref(m);
}

static void put_record(struct world *w, const struct repl_record *r)
{
    struct coord_key key = key_shard(STR(PREFIX), 0);
    struct buf b;

    buf_init(&b, RECORD_BYTES_MAX);
    record_write(r, &b);
    coord_site_put(w->site, key_str(&key), buf_str(&b));
    buf_deinit(&b);
}

static void record_now(const struct world *w, struct repl_record *ret)
{
    struct coord_key key = key_shard(STR(PREFIX), 0);
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));
    struct err e;

    assert_non_null(kv);
    assert_int_equal(record_parse(kv->value, ret, &e), 0);
}

static void world_open(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    w->site = coord_site_new(w->loop, seed);
    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    for (int i = 0; i < NODES; i++) {
        w->nodes[i].name[0] = (char)('a' + i);
        (void)snprintf(w->nodes[i].addr, sizeof(w->nodes[i].addr), "mem://%d", i);
    }
    put_map(w);
}

static void node_up(struct world *w, int i, uint64_t seed)
{
    struct node *n = &w->nodes[i];
    struct view_opts vo = { .loop = w->loop, .prefix = PREFIX };
    struct member_opts mo = { .loop = w->loop, .prefix = PREFIX, .ttl_ms = 3000 };
    struct lead_opts lo = { .loop = w->loop, .prefix = PREFIX, .able = able, .cookie = n };

    lo.coord = mo.coord = vo.coord = n->coord = coord_sim_new(w->site);
    lo.view = n->view = view_new_coord(&vo);
    mo.view = n->view;
    mo.name = n->name;
    mo.addr = n->addr;
    mo.zone = "";
    mo.id = seed + (uint64_t)i + 1;
    lo.member = n->member = member_new(&mo);
    lo.seed = seed * NODES + (uint64_t)i;
    n->lead = lead_new(&lo);
}

static void world_close(struct world *w)
{
    loop_timer_free(w->tick);
    for (int i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];

        if (!n->coord)
            continue;
        lead_free(n->lead);
        member_free(n->member);
        view_free(n->view);
        coord_free(n->coord);
    }
    coord_site_free(w->site);
    loop_free(w->loop);
}

static void pass(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&w->clock.clock) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end)
        (void)loop_sim_step(w->loop);
}

/* The nodes register, and only then the record is there; until it is established, or in vain. */
static bool run(struct world *w, const struct repl_record *first, struct repl_record *ret)
{
    pass(w, 1000);
    put_record(w, first);
    w->tick = loop_timer_new(w->loop, on_tick, w);
    loop_timer_start(w->tick, TICK_MS, TICK_MS);
    for (int i = 0; i < TURNS; i++) {
        record_now(w, ret);
        if (ret->established)
            return true;
        pass(w, STUCK_MS + 1000);
    }
    return false;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* a is lost for good when d has become the fourth, and d loses its log before it counted. */
static void test_change_without_majority(void **state)
{
    (void)state;
    struct repl_record r = { .term = 3, .members = set_of("acbd"), .prev_members = set_of("acb") };
    struct world w;

    r.leader[0] = 'b';
    world_open(&w, seed_of_run());
    for (int i = 1; i < NODES; i++)
        node_up(&w, i, 1);
    w.nodes[3].silent = true;
    assert_true(run(&w, &r, &r));
    assert_true(name_set_eq(&r.members, &(struct name_set){ { "a", "b", "c" }, 3 }));
    assert_true(name_set_has(&r.learners, "d"));
    assert_int_equal(r.term, 4);
    assert_string_equal(r.leader, "b");
    pass(&w, 1000);
    assert_false(w.nodes[3].silent);
    world_close(&w);
}

/* A member that cannot lead passes on, and no member's turn is left out. */
static void test_all_get_turns(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct repl_record r = { .term = seed, .members = set_of("abcd") };
        struct world w;

        r.prev_members = r.members;
        r.leader[0] = 'a';
        world_open(&w, seed);
        for (int i = 0; i < NODES; i++)
            node_up(&w, i, seed);
        for (int i = 0; i < NODES; i++) /* all reach d, and d all; no others reach each other */
            for (int k = 0; k < NODES; k++)
                w.cut[i][k] = i != k && i != 3 && k != 3;
        assert_true(run(&w, &r, &r));
        assert_string_equal(r.leader, "d");
        assert_true(name_set_eq(&r.members, &(struct name_set){ { "a", "b", "c", "d" }, 4 }));
        world_close(&w);
    }
}

static bool chance_world(struct world *w, struct prng *p, uint64_t seed, struct repl_record *r)
{
    static const char *const before[] = { "abc", "abcd" }, *const after[] = { "abcd", "abc",
                                                                              "abd" };
    struct repl_record back = *r;
    bool may = false;

    r->term = 1 + prng_below(p, 100);
    r->prev_members = set_of(before[prng_below(p, 2)]);
    r->members = r->prev_members.len == 3 ? set_of(after[0]) : set_of(after[1 + prng_below(p, 2)]);
    memcpy(r->leader, r->members.names[prng_below(p, r->members.len)], sizeof(r->leader));
    for (int i = 0; i < NODES; i++) {
        if (!prng_chance(p, 0.3))
            node_up(w, i, seed);
        w->nodes[i].silent = prng_chance(p, 0.25);
        for (int k = 0; k < NODES; k++)
            w->cut[i][k] = i != k && prng_chance(p, 0.15);
    }
    back.members = back.prev_members = r->prev_members;
    for (int i = 0; i < NODES; i++)
        may |= could_lead(w, i, &back);
    return may;
}

static void test_some_leader_at_last(void **state)
{
    (void)state;
    uint64_t seed = seed_of_run(), found = 0, changed = 0;
    struct prng p;

    prng_init(&p, seed);
    for (int i = 0; i < WORLDS; i++) {
        struct repl_record r = { 0 }, end;
        struct world w;

        world_open(&w, seed + (uint64_t)i);
        if (chance_world(&w, &p, seed + (uint64_t)i, &r)) {
            found++;
            if (!run(&w, &r, &end))
                fail_msg("world %d: no node leads; term %llu, leader %s", i,
                         (unsigned long long)end.term, end.leader);
            changed += !name_set_eq(&end.members, &r.members);
            assert_true(name_set_eq(&end.members, &r.members) ||
                        name_set_eq(&end.members, &r.prev_members));
        }
        world_close(&w);
    }
    print_message("%llu worlds, %llu changes taken back\n", (unsigned long long)found,
                  (unsigned long long)changed);
    assert_true(found > WORLDS / 4);
    assert_true(changed > 0 && changed < found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change_without_majority),
        cmocka_unit_test(test_all_get_turns),
        cmocka_unit_test(test_some_leader_at_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
