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
#include "common/cluster/map.h"
#include "common/model/shard.h"

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

            assert_int_equal(map_shard(m, STR("t"), s, i * 77), want);
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
        struct map_service s = { .tenant = STR("t"), .name = STR("big"), .spread = n, .most = n };
        const struct map *m = make(
            &(struct map){ .shards = shards, .replicas = 1, .services = &s, .services_len = 1 });
        size_t len = map_places(m, STR("t"), STR("big"), places, MAP_SPREAD_MAX), moved = 0;

        assert_int_equal(len, n);
        assert_int_equal(places[0], shard_of(STR("t"), STR("big"), shards));
        for (size_t i = 0; i < before_len; i++)
            assert_int_equal(places[i], before[i]);
        uint32_t used[MAP_SPREAD_MAX] = { 0 };
        for (uint32_t i = 0; i < 2000; i++) {
            uint32_t now = map_shard(m, STR("t"), STR("big"), i);

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
        assert_int_equal(map_shard(m, STR("t"), STR("small"), 5),
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
    struct map_tenant t[2] = { { .name = STR("a"), .shards = 6 },
                               { .name = STR("b"), .shards = 6 } };
    struct map from = { .shards = 200, .replicas = 1, .tenants = t, .tenants_len = 2 };
    const struct map *m = make(&from);
    bool in[2][200] = { { 0 } };
    uint32_t sum[2] = { 0 }, both = 0;
    char buf[64];

    for (uint64_t i = 0; i < 2000; i++) {
        struct str s = name_of(buf, sizeof(buf), i);

        in[0][map_shard(m, STR("a"), s, i)] = true;
        in[1][map_shard(m, STR("b"), s, i)] = true;
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

static void test_resized_tenants_are_read_everywhere(void **state)
{
    (void)state;
    static const uint32_t sizes[] = { 0, 3, 10, 200, 0, 7 };
    struct map_tenant t = { .name = STR("a") };
    struct map_service s = { .tenant = STR("a"), .name = STR("big"), .spread = 3, .most = 5 };
    struct map from = { .shards = 200,
                        .replicas = 1,
                        .tenants = &t,
                        .tenants_len = 1,
                        .services = &s,
                        .services_len = 1 };
    bool written[101][200] = { { 0 } };
    char buf[64];

    for (size_t step = 0; step < ARRAY_LEN(sizes); step++) {
        if (step)
            t.before[t.before_len++] = t.shards;
        t.shards = sizes[step];
        const struct map *m = make(&from);
        for (uint64_t i = 0; i <= 100; i++) {
            struct str name = i < 100 ? name_of(buf, sizeof(buf), i) : STR("big");
            uint32_t places[64];

            for (uint64_t k = 0; k < 20; k++)
                written[i][map_shard(m, STR("a"), name, k)] = true;
            size_t n = map_places(m, STR("a"), name, places, ARRAY_LEN(places));
            assert_in_range(n, 1, ARRAY_LEN(places));
            for (uint32_t k = 0; k < 200; k++)
                assert_true(!written[i][k] || among(places, n, k));
            for (size_t k = 0; k < n; k++)
                assert_false(among(places, k, places[k]));
        }
        map_unref(m);
    }
}

static void test_text_comes_back(void **state)
{
    (void)state;
    struct map_node nodes[] = {
        { .name = "a", .addr = "tcp://10.0.0.1:4041", .zone = "z1" },
        { .name = "b-0.x", .addr = "tcp://[::1]:4041", .state = MAP_DRAINING },
        { .name = "C", .addr = "", .zone = "z\"3", .state = MAP_LEFT },
    };
    struct map_tenant tenants[] = {
        { .name = STR("t<\xc3\xa4>"), .shards = 2, .before = { 0, 4 }, .before_len = 2 }
    };
    struct map_service services[] = { { STR("t"), STR("s: \"#'\n\\"), 3, 5 } };
    struct name_set sets[4];
    struct map from = { .version = 9007199254740993,
                        .shards = 4,
                        .replicas = 2,
                        .nodes = nodes,
                        .nodes_len = 3,
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
        { "nodes: [{name: a}]\nreplicas_of: [[b]]", "no node of the map" },
        { "nodes: [{name: a}]\nreplicas_of: [[a, a]]", "twice" },
        { "nodes: [{name: a}]\nreplicas_of: [[]]", "0 replicas" },
        { "tenants: [{name: t, shards: 3}]", "has 3 shards, the cluster 1" },
        { "services: [{tenant: t, name: s, spread: 3, most: 2}]", "spread 3" },
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
        cmocka_unit_test(test_resized_tenants_are_read_everywhere),
        cmocka_unit_test(test_text_comes_back),
        cmocka_unit_test(test_bad_text),
        cmocka_unit_test(test_unknown_keys_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
