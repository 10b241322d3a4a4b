/* SPDX-License-Identifier: Apache-2.0
 *
 * Places kept apart from a map: of several, all are read, and no profile gets another place than by
 * the newest; what a new cluster begins with; beside a database.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/prng.h"
#include "common/cluster/map/placement_history.h"
#include "common/model/slot.h"

enum { SHARDS = 24, NAMES = 4, ROUNDS = 3000 };

#define T0  INT64_C(1700000000000)
#define DAY INT64_C(86400000)

static const char *const names[NAMES] = { "a", "b", "c", "d" };

static const struct map *parse(const char *text)
{
    const struct map *m;
    struct err e;

    if (map_parse("m", str_c(text), false, &m, &e))
        fail_msg("%s", e.text);
    return m;
}

/* ---- at random ------------------------------------------------------------------------------- */

static struct map_steps random_steps(struct prng *p, uint32_t least, uint32_t most, uint32_t max)
{
    struct map_steps s = { .len = (uint32_t)prng_below(p, max + 1) };
    int64_t at = T0 + (int64_t)prng_below(p, 10) * DAY;

    for (uint32_t i = 0; i < s.len; i++) {
        s.at[i] = (struct map_step){ .from_ms = i ? at : 0,
                                     .version = i,
                                     .n = least + (uint32_t)prng_below(p, most - least + 1) };
        at += (int64_t)(1 + prng_below(p, 3)) * DAY;
    }
    if (prng_chance(p, 0.3) && s.len < MAP_STEPS_MAX)
        s.next = (struct map_pending){ .version = 9,
                                       .from_ms = prng_chance(p, 0.5) ? at : 0,
                                       .n = least + (uint32_t)prng_below(p, most - least + 1) };
    return s;
}

static const struct map *random_map(struct prng *p, uint64_t version, uint32_t steps)
{
    struct map m = { .version = version, .shards = SHARDS, .replicas = 3 };
    struct map_tenant tenants[NAMES];
    struct map_service services[NAMES * NAMES];
    const struct map *ret;
    struct err e;

    if (prng_chance(p, 0.5))
        m.tenant_steps = random_steps(p, 0, SHARDS, steps);
    for (size_t i = 0; i < NAMES; i++)
        if (prng_chance(p, 0.5))
            tenants[m.tenants_len++] =
                (struct map_tenant){ str_c(names[i]), random_steps(p, 0, SHARDS, steps) };
    for (size_t i = 0; i < NAMES * NAMES; i++)
        if (prng_chance(p, 0.4))
            services[m.services_len++] =
                (struct map_service){ str_c(names[i % NAMES]), str_c(names[i / NAMES]),
                                      random_steps(p, 1, 9, steps) };
    m.tenants = tenants;
    m.services = services;
    if (map_new(&m, &ret, &e))
        fail_msg("%s", e.text);
    return ret;
}

static void reads_all(const struct map *m, const struct map *of, struct str tenant,
                      struct str service)
{
    uint32_t mine[MAP_PLACES_MAX], want[MAP_PLACES_MAX];
    size_t n = map_places(m, tenant, service, mine, MAP_PLACES_MAX);
    size_t wants = map_places(of, tenant, service, want, MAP_PLACES_MAX);

    for (size_t i = 0; i < wants; i++) {
        size_t k = 0;

        while (k < n && mine[k] != want[i])
            k++;
        if (k == n)
            fail_msg("%.*s/%.*s: shard %u is not read", STR_ARG(tenant), STR_ARG(service), want[i]);
    }
}

/* Those of a whole tenant. */
static void reads_tenant(const struct map *m, const struct map *of, struct str tenant)
{
    uint32_t mine[SHARDS], want[SHARDS];
    size_t n = map_tenant_places(m, tenant, mine, SHARDS);
    size_t wants = map_tenant_places(of, tenant, want, SHARDS);

    assert_true(n == 0 || (wants > 0 && wants <= n));
}

static void same_places(const struct map *m, const struct map *as, struct str tenant,
                        struct str service, struct prng *p)
{
    for (int k = 0; k < 8; k++) {
        int64_t when = k ? T0 + (int64_t)prng_below(p, 60) * DAY / 2 : MAP_WHEN_FIRST;
        uint64_t series = prng_u64(p);

        assert_int_equal(map_shard(m, tenant, service, series, when),
                         map_shard(as, tenant, service, series, when));
    }
}

static void each_service(const struct map *m, const struct map *a, const struct map *b,
                         struct prng *p)
{
    for (size_t t = 0; t <= NAMES; t++) {
        struct str tenant = t < NAMES ? str_c(names[t]) : STR("absent");

        reads_tenant(m, a, tenant);
        if (b)
            reads_tenant(m, b, tenant);
        for (size_t s = 0; s <= NAMES; s++) {
            struct str service = s < NAMES ? str_c(names[s]) : STR("other");

            reads_all(m, a, tenant, service);
            if (b)
                reads_all(m, b, tenant, service);
            same_places(m, a, tenant, service, p);
        }
    }
}

static void test_join(void **state)
{
    const struct map *a, *b, *both, *again;
    uint32_t same = 0;
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 1);
    for (int round = 0; round < ROUNDS; round++) {
        a = random_map(&p, 20, 3);
        b = random_map(&p, 10 + prng_below(&p, 10), 3);
        if (placement_history_join(round % 2 ? a : b, round % 2 ? b : a, &both, &e))
            fail_msg("%s", e.text);
        assert_int_equal(both->version, 20);
        each_service(both, a, b, &p);
        assert_int_equal(placement_history_cover(both, a, &e), 0);
        assert_int_equal(placement_history_cover(both, b, &e), 0);
        same += placement_history_cover(a, b, &e) == 0;
        assert_int_equal(placement_history_join(b, both, &again, &e), 0);
        assert_ptr_equal(both, again);
        map_unref(again);
        map_unref(both);
        map_unref(a);
        map_unref(b);
    }
    assert_true(same < ROUNDS / 2);
}

static void test_begin(void **state)
{
    const struct map *a, *m;
    struct map_whose_seen {
        bool wanted, announced;
    } seen = { false, false };
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 2);
    for (int round = 0; round < ROUNDS; round++) {
        a = random_map(&p, 20, 3);
        assert_int_equal(placement_history_begin(a, 2, &m, &e), 0);
        assert_int_equal(m->version, 21);
        assert_int_equal(m->replicas, 2);
        assert_int_equal(m->shards, SHARDS);
        each_service(m, a, NULL, &p);
        assert_int_equal(placement_history_cover(m, a, &e), 0);
        for (size_t i = 0; i < m->services_len; i++) {
            seen.wanted |= m->services[i].steps.next.version == 21;
            seen.announced |= m->services[i].steps.next.from_ms != 0;
        }
        map_unref(m);
        map_unref(a);
    }
    assert_true(seen.wanted && !seen.announced);
}

/* Lists of steps are short: that is said, and nothing is dropped. */
static void test_full(void **state)
{
    const struct map *a, *b, *both;
    uint32_t refused = 0;
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 3);
    for (int round = 0; round < 300; round++) {
        a = random_map(&p, 20, MAP_STEPS_MAX);
        b = random_map(&p, 10, MAP_STEPS_MAX);
        int code = placement_history_join(a, b, &both, &e);

        refused += code == ERR_LIMIT;
        assert_true(code == 0 || code == ERR_LIMIT);
        if (!code)
            each_service(both, a, b, &p);
        map_unref(code ? NULL : both);
        map_unref(a);
        map_unref(b);
    }
    assert_in_range(refused, 10, 299);
}

/* ---- by hand --------------------------------------------------------------------------------- */

static void lacks(const char *m_text, const char *of_text, const char *says)
{
    const struct map *m = parse(m_text), *of = parse(of_text);
    struct err e;

    assert_int_equal(placement_history_cover(m, of, &e), ERR_CONFIG);
    if (!strstr(e.text, says))
        fail_msg("%s", e.text);
    assert_int_equal(placement_history_cover(of, of, &e), 0);
    map_unref(m);
    map_unref(of);
}

static void test_cover(void **state)
{
    (void)state;
    lacks("shards: 8", "shards: 8\nservices: [{tenant: t, name: s, spread: 3}]",
          "service s of tenant t was spread over 3 shards");
    lacks("shards: 8\nservices: [{tenant: t, name: s, spread: 2}]",
          "shards: 8\nservices: [{tenant: t, name: s, spread: 3}]", "over 3 shards");
    lacks("shards: 8", "shards: 8\ntenants: [{name: t, shards: 2}]", "tenant t was in 2 shards");
    lacks("shards: 8\ntenants: [{name: t, shards: 2}]", "shards: 8", "tenant t was in all shards");
    lacks("shards: 8", "shards: 8\ntenant_shards: 4", "tenant * was in 4 shards");
    lacks("shards: 8", "shards: 9", "among 9 shards, not 8");
}

static void test_other_number(void **state)
{
    const struct map *a = parse("shards: 8"), *b = parse("shards: 9"), *both;
    struct err e;

    (void)state;
    assert_int_equal(placement_history_join(a, b, &both, &e), ERR_CONFLICT);
    map_unref(a);
    map_unref(b);
}

static void test_folder(void **state)
{
    char dir[] = "/tmp/embertree-places-XXXXXX", command[80];
    const struct map *one = parse("version: 4\nshards: 8\nmoves: 3\nnodes: [{name: a}]\n"
                                  "services: [{tenant: t, name: s, spread: 3}]");
    const struct map *two = parse("version: 5\nshards: 8\ntenants: [{name: t, shards: 2}]");
    const struct map *kept;
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(placement_history_load(fs_real(), dir, &kept, &e), 0);
    assert_null(kept);
    assert_int_equal(placement_history_keep(fs_real(), dir, one, &e), 0);
    assert_int_equal(placement_history_keep(fs_real(), dir, two, &e), 0);
    assert_int_equal(placement_history_load(fs_real(), dir, &kept, &e), 0);
    assert_int_equal(kept->nodes_len + kept->moves, 0);
    assert_int_equal(kept->version, 5);
    assert_int_equal(
        placement_history_cover(kept, one, &e) + placement_history_cover(kept, two, &e), 0);
    assert_false(placement_history_plain(kept));
    map_unref(kept);
    (void)snprintf(command, sizeof(command), "echo '{' > %s/" PLACEMENT_HISTORY_FILE, dir);
    assert_int_equal(system(command), 0);
    assert_int_not_equal(placement_history_load(fs_real(), dir, &kept, &e), 0);
    assert_non_null(strstr(e.text, PLACEMENT_HISTORY_FILE));
    assert_int_not_equal(placement_history_keep(fs_real(), dir, two, &e), 0);
    (void)snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    map_unref(one);
    map_unref(two);
}

static void test_plain(void **state)
{
    static const struct {
        const char *text;
        bool plain;
    } cases[] = {
        { "shards: 8", true },
        { "shards: 8\nservices: [{tenant: t, name: s, spread: 1}]", true },
        { "shards: 8\ntenants: [{name: t, shards: 0}]", true },
        { "shards: 8\nservices: [{tenant: t, name: s, spread: 2}]", false },
        { "shards: 8\ntenants: [{name: t, shards: 2}]", false },
        { "shards: 8\ntenant_shards: 3", false },
        { "shards: 8\ntenant_next: {n: 3, version: 2}", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct map *m = parse(cases[i].text);

        assert_int_equal(placement_history_plain(m), cases[i].plain);
        map_unref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),         cmocka_unit_test(test_begin),
        cmocka_unit_test(test_full),         cmocka_unit_test(test_cover),
        cmocka_unit_test(test_other_number), cmocka_unit_test(test_folder),
        cmocka_unit_test(test_plain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
