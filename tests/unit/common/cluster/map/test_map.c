/* SPDX-License-Identifier: Apache-2.0
 *
 * The map: where profiles go, that what is spread stays readable, and its text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/prng.h"
#include "common/cluster/map/map.h"
#include "common/cluster/map/map_edit.h"
#include "common/model/shard.h"
#include "common/model/slot.h"

static const struct map *make(const struct map *from)
{
    const struct map *m;
    struct err e;

    if (map_new(from, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

static struct str name_of(char *buf, size_t size, uint64_t i)
{
    int n = snprintf(buf, size, "service-%llu", (unsigned long long)i);

    return str_n(buf, (size_t)n);
}

static void test_plain_map_is_shard_of(void **state)
{
    (void)state;
    char buf[64];

    for (uint32_t shards = 1; shards <= 64; shards += 7) {
        const struct map *m = make(&(struct map){ .shards = shards, .replicas = 1 });

        for (uint64_t i = 0; i < 200; i++) {
            struct str s = name_of(buf, sizeof(buf), i);
            uint32_t want = shard_of(STR("t"), s, shards), got[4];

            assert_int_equal(map_shard(m, STR("t"), s, i * 77, (int64_t)i), want);
            assert_false(map_is_placed(m, STR("t"), s));
            assert_int_equal(map_places(m, STR("t"), s, got, 4), 1);
            assert_int_equal(got[0], want);
        }
        map_unref(m);
    }
}

static bool among(const uint32_t *all, size_t n, uint32_t one)
{
    for (size_t i = 0; i < n; i++)
        if (all[i] == one)
            return true;
    return false;
}

/* Growing the spread step by step: each write goes to a place that later maps still read, the first
 * place stays shard_of, and one more shard moves about 1 / n of the series. */
static void test_spread_grows(void **state)
{
    (void)state;
    uint32_t before[MAP_SPREAD_MAX], places[MAP_SPREAD_MAX];
    size_t before_len = 0;
    uint32_t at[2000], shards = 40;

    for (uint32_t n = 1; n <= 16; n++) {
        struct map_service s = { .tenant = STR("t"),
                                 .name = STR("big"),
                                 .steps = { .at = { { .n = n } }, .len = 1 } };
        const struct map *m = make(
            &(struct map){ .shards = shards, .replicas = 1, .services = &s, .services_len = 1 });
        size_t len = map_places(m, STR("t"), STR("big"), places, MAP_SPREAD_MAX), moved = 0;

        assert_int_equal(len, n);
        assert_int_equal(places[0], shard_of(STR("t"), STR("big"), shards));
        for (size_t i = 0; i < before_len; i++)
            assert_int_equal(places[i], before[i]);
        uint32_t used[MAP_SPREAD_MAX] = { 0 };
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t now = map_shard(m, STR("t"), STR("big"), i, 0);

            assert_true(among(places, len, now));
            for (size_t k = 0; k < len; k++)
                used[k] += places[k] == now;
            moved += n > 1 && at[i] != now;
            at[i] = now;
        }
        for (size_t k = 0; k < len; k++)
            assert_true(used[k] > 2000 / n / 2 && used[k] < 2000 / n * 2);
        if (n > 1)
            assert_true(moved < 2000 / n * 3 / 2);
        /* Another service is not touched. */
        assert_int_equal(map_shard(m, STR("t"), STR("small"), 5, 0),
                         shard_of(STR("t"), STR("small"), shards));
        memcpy(before, places, sizeof(places));
        before_len = len;
        map_unref(m);
    }
}

/* A tenant's subset: no service is outside of it, two tenants share few shards, and places hold
 * every shard that any size before may have written to. */
static void test_tenants_have_subsets(void **state)
{
    (void)state;
    struct map_tenant t[2] = { { .name = STR("a"), .steps = { .at = { { .n = 6 } }, .len = 1 } },
                               { .name = STR("b"), .steps = { .at = { { .n = 6 } }, .len = 1 } } };
    struct map from = { .shards = 200, .replicas = 1, .tenants = t, .tenants_len = 2 };
    const struct map *m = make(&from);
    bool in[2][200] = { { 0 } };
    uint32_t sum[2] = { 0 }, both = 0;
    char buf[64];

    for (uint64_t i = 0; i < 2000; i++) {
        struct str s = name_of(buf, sizeof(buf), i);

        in[0][map_shard(m, STR("a"), s, i, 0)] = true;
        in[1][map_shard(m, STR("b"), s, i, 0)] = true;
    }
    for (int i = 0; i < 200; i++) {
        sum[0] += in[0][i];
        sum[1] += in[1][i];
        both += in[0][i] && in[1][i];
    }
    assert_int_equal(sum[0], 6);
    assert_int_equal(sum[1], 6);
    assert_true(both <= 2);
    map_unref(m);
}

/* Sizes and spreads that came and went: what was written at any of those times is among the places
 * of the newest map, and where something was written does not change with later maps. */
static void test_what_was_written_stays_readable(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 3, 10, 200, 0, 7 }, spreads[] = { 1, 3, 2, 5, 1, 4 };
    const struct map *m = make(&(struct map){ .shards = 200, .replicas = 1 }), *next;
    uint32_t at[ARRAY_LEN(sizes)][101][20], places[MAP_PLACES_MAX];
    int64_t t0 = 1700000000000;
    char buf[64];
    struct err e;

    for (uint32_t step = 0; step < ARRAY_LEN(sizes); step++) {
        if (step) {
            int64_t from = t0 + step * 1000000;

            assert_int_equal(map_edit_tenant(m, STR("a"), sizes[step], from, &next, &e), 0);
            map_unref(m);
            assert_int_equal(map_edit_spread(next, &(struct map_whose){ STR("a"), STR("big") },
                                             spreads[step], from, &m, &e),
                             0);
            map_unref(next);
        }
        for (uint32_t i = 0; i <= 100; i++) {
            struct str name = i < 100 ? name_of(buf, sizeof(buf), i) : STR("big");
            size_t n = map_places(m, STR("a"), name, places, ARRAY_LEN(places));

            assert_in_range(n, 1, ARRAY_LEN(places));
            for (size_t k = 0; k < n; k++)
                assert_false(among(places, k, places[k]));
            for (uint32_t k = 0; k < 20; k++)
                at[step][i][k] = map_shard(m, STR("a"), name, k, t0 + (step + 1) * 1000000 - 1);
            for (uint32_t was = 0; was <= step; was++)
                for (uint32_t k = 0; k < 20; k++) {
                    int64_t when = was ? t0 + (was + 1) * 1000000 - 1 : MAP_WHEN_FIRST;

                    assert_true(among(places, n, at[was][i][k]));
                    assert_int_equal(map_shard(m, STR("a"), name, k, when), at[was][i][k]);
                }
        }
    }
    assert_int_equal(map_tenant_places(m, STR("a"), places, ARRAY_LEN(places)), 0);
    map_unref(m);
}

/* A size for all tenants: each has its own few; a named tenant begins with the size for all. */
static void test_all_tenants_have_subsets(void **state)
{
    (void)state;
    struct map from = { .shards = 64,
                        .replicas = 1,
                        .tenant_steps = { .at = { { .n = 5 } }, .len = 1 } };
    const struct map *m = make(&from), *next;
    uint32_t a[64], b[64], places[MAP_PLACES_MAX];
    char buf[64];
    struct err e;

    assert_int_equal(map_tenant_places(m, STR("a"), a, 64), 5);
    assert_int_equal(map_tenant_places(m, STR("b"), b, 64), 5);
    assert_memory_not_equal(a, b, 5 * sizeof(*a));
    for (uint64_t i = 0; i < 200; i++) {
        struct str s = name_of(buf, sizeof(buf), i);

        assert_true(among(a, 5, map_shard(m, STR("a"), s, i, 0)));
        assert_int_equal(map_places(m, STR("a"), s, places, ARRAY_LEN(places)), 1);
    }
    assert_int_equal(map_edit_tenant(m, STR("a"), 9, 1700000000000, &next, &e), 0);
    assert_int_equal(map_tenant_places(next, STR("a"), b, 64), 9);
    assert_memory_equal(a, b, 5 * sizeof(*a)); /* the order does not depend on the size */
    for (uint64_t i = 0; i < 200; i++) {
        struct str s = name_of(buf, sizeof(buf), i);

        assert_int_equal(map_shard(m, STR("a"), s, i, 0), map_shard(next, STR("a"), s, i, 0));
    }
    map_unref(m);
    assert_int_equal(map_edit_tenants(next, 2, 1700000000000, &m, &e), 0);
    assert_int_equal(map_tenant_places(m, STR("a"), b, 64), 9);
    assert_int_equal(map_tenant_places(m, STR("b"), b, 64), 5);
    assert_int_equal(map_step_at(map_tenant_steps(m, STR("b")), INT64_MAX, 0), 2);
    map_unref(m);
    map_unref(next);
}

static void test_steps(void **state)
{
    (void)state;
    const struct map *m = make(&(struct map){ .version = 6, .shards = 8, .replicas = 1 }), *next;
    int64_t t = 1700000000000; /* the beginning of a leaf */
    struct err e;

    assert_int_equal(
        map_edit_spread(m, &(struct map_whose){ STR("t"), STR("s") }, 4, t - 1, &next, &e), 0);
    map_unref(m);
    const struct map_steps *s = &map_service(next, STR("t"), STR("s"))->steps;
    assert_int_equal(s->len, 2);
    assert_int_equal(s->at[1].from_ms, t);
    assert_int_equal(s->at[1].version, 7);
    assert_int_equal(map_step_at(s, MAP_WHEN_FIRST, 9), 1);
    assert_int_equal(map_step_at(s, t - 1, 9), 1);
    assert_int_equal(map_step_at(s, t, 9), 4);
    assert_true(map_outdates(next, STR("t"), STR("s"), 6, t));
    assert_false(map_outdates(next, STR("t"), STR("s"), 6, t - 1));
    assert_false(map_outdates(next, STR("t"), STR("s"), 7, t));
    assert_false(map_outdates(next, STR("t"), STR("other"), 6, t));
    assert_int_equal(map_edit_spread(next, &(struct map_whose){ STR("t"), STR("s") }, 4, t, &m, &e),
                     ERR_CONFLICT);
    /* The step before has not come yet: the next one comes behind it. */
    assert_int_equal(
        map_edit_spread(next, &(struct map_whose){ STR("t"), STR("s") }, 2, t - 50000, &m, &e), 0);
    s = &map_service(m, STR("t"), STR("s"))->steps;
    assert_int_equal(s->at[2].from_ms, t + LEAF_MS);
    for (uint32_t i = s->len; i < MAP_STEPS_MAX; i++) {
        map_unref(next);
        next = m;
        assert_int_equal(
            map_edit_spread(next, &(struct map_whose){ STR("t"), STR("s") }, 3 + i % 2, t, &m, &e),
            0);
    }
    map_unref(next);
    assert_int_equal(map_edit_spread(m, &(struct map_whose){ STR("t"), STR("s") }, 7, t, &next, &e),
                     ERR_LIMIT);
    map_unref(m);
}

static void test_text_comes_back(void **state)
{
    (void)state;
    struct map_node nodes[] = {
        { .name = "a", .addr = "tcp://10.0.0.1:4041", .zone = "z1" },
        { .name = "b-0.x", .addr = "tcp://[::1]:4041", .state = MAP_DRAINING },
        { .name = "C", .addr = "", .zone = "z\"3", .state = MAP_LEFT },
    };
    struct map_tenant tenants[] = { { .name = STR("t<\xc3\xa4>"),
                                      .steps = { .at = { { .n = 0 }, { 17, 3, 2 } }, .len = 2 } } };
    struct map_service services[] = {
        { STR("t"), STR("s: \"#'\n\\"), { .at = { { .n = 3 } }, .len = 1 } }
    };
    struct name_set sets[4];
    struct map from = { .version = 9007199254740993,
                        .shards = 4,
                        .replicas = 2,
                        .moves = 9,
                        .nodes = nodes,
                        .nodes_len = 3,
                        .tenant_steps = { .at = { { .n = 4 }, { 99, 0, 3 } }, .len = 2 },
                        .tenants = tenants,
                        .tenants_len = 1,
                        .services = services,
                        .services_len = 1,
                        .replicas_of = sets };
    const struct map *m, *again;
    struct buf one, two;
    struct err e;

    memset(sets, 0, sizeof(sets));
    for (int i = 0; i < 4; i++) {
        assert_true(name_set_add(&sets[i], nodes[i % 3].name));
        assert_true(name_set_add(&sets[i], nodes[(i + 1) % 3].name));
    }
    m = make(&from);
    buf_init(&one, MIB);
    buf_init(&two, MIB);
    map_write(m, &one);
    if (map_parse("map", buf_str(&one), true, &again, &e))
        fail_msg("%s\n%.*s", e.text, STR_ARG(buf_str(&one)));
    map_write(again, &two);
    assert_true(str_eq(buf_str(&one), buf_str(&two)));
    assert_true(again->version == 9007199254740993);
    assert_int_equal(again->moves, 9);
    assert_string_equal(map_node(again, "C")->zone, "z\"3");
    assert_int_equal(map_node(again, "b-0.x")->state, MAP_DRAINING);
    assert_null(map_node(again, "c"));
    assert_true(str_eq(again->services[0].name, services[0].name));
    map_unref(map_ref(m));
    map_unref(m);
    map_unref(again);
    buf_deinit(&one);
    buf_deinit(&two);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "{\"shards\": 0}", "shards is 0" },
        { "{\"shards\": 5000}", "4096" },
        { "{\"replicas\": 8}", "replicas" },
        { "shards: 2\nreplicas: 0", "replicas is 0" },
        { "[]", "line 1" },
        { "nodes: [{name: a}, {name: a}]", "two nodes" },
        { "nodes: [{name: -a}]", "no name of a node" },
        { "nodes: [{name: a, state: gone}]", "active" },
        { "nodes: [{name: a, adr: x}]", "adr" },
        { "shards: 2\nnodes: [{name: a}]\nreplicas_of: [[a]]", "1 shards of 2" },
        { "nodes: [{name: a}]\nreplicas_of: [[b]]", "not a node of the map" },
        { "nodes: [{name: a}]\nreplicas_of: [[a, a]]", "twice" },
        { "nodes: [{name: a}]\nreplicas_of: [[]]", "0 replicas" },
        { "tenants: [{name: t, shards: 3}]", "has 3 shards, the cluster 1" },
        { "tenant_shards: 3", "has 3 shards, the cluster 1" },
        { "tenant_shards: 1\ntenant_steps: []", "exclude" },
        { "services: [{tenant: t, name: s, spread: 0}]", "over 0 shards" },
        { "services: [{tenant: t, name: s, spread: 2, steps: [{n: 2}]}]", "exclude" },
        { "services: [{tenant: t, name: s, steps: [{n: 2}, {n: 3}]}]", "a step from 0 behind" },
        { "services: [{tenant: t, name: s, steps: [{n: 2, at: 3}]}]", "at" },
        { "services: [{tenant: t, name: s, spread: 65}]", "64" },
        { "nodes: 7", "line 1" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct map *m;
        struct err e;

        if (!map_parse("the-map", str_c(rows[i].text), true, &m, &e))
            fail_msg("taken: %s", rows[i].text);
        if (!strstr(e.text, rows[i].says) || !strstr(e.text, "the-map"))
            fail_msg("%s: %s", rows[i].text, e.text);
    }
}

/* A newer writer's document: keys that this version does not know are no error. */
static void test_unknown_keys_are_skipped(void **state)
{
    (void)state;
    const struct map *m;
    struct err e;
    const char *text = "{\"shards\":2,\"colour\":{\"a\":[1]},\"nodes\":[{\"name\":\"a\",\"x\":1}]}";

    assert_int_equal(map_parse("map", str_c(text), false, &m, &e), 0);
    assert_int_equal(m->nodes_len, 1);
    map_unref(m);
    assert_int_not_equal(map_parse("map", str_c(text), true, &m, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_map_is_shard_of),
        cmocka_unit_test(test_spread_grows),
        cmocka_unit_test(test_tenants_have_subsets),
        cmocka_unit_test(test_what_was_written_stays_readable),
        cmocka_unit_test(test_all_tenants_have_subsets),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_text_comes_back),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_unknown_keys_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
