/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to come of a map's places: wanted, announced, a step; and what each of that changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/cluster/map/map_pending.h"
#include "common/model/slot.h"

#define T0 INT64_C(1700000000000) /* the beginning of a leaf */

static const struct map_whose SERVICE = { { "t", 1 }, { "s", 1 } },
                              TENANT = { { "t", 1 }, { NULL, 0 } },
                              ALL = { { NULL, 0 }, { NULL, 0 } };

static const struct map *make(void)
{
    const struct map *m;
    struct err e;

    assert_int_equal(map_new(&(struct map){ .version = 6, .shards = 8, .replicas = 1 }, &m, &e), 0);
    return m;
}

static void replace(const struct map **m, const struct map *next)
{
    map_unref(*m);
    *m = next;
}

static void want(const struct map **m, const struct map_whose *w, uint32_t n)
{
    const struct map *next;
    struct err e;

    assert_int_equal(map_pending_request(*m, w, n, &next, &e), 0);
    assert_int_equal(next->version, (*m)->version + 1);
    replace(m, next);
}

static void announce(const struct map **m, const struct map_whose *w, int64_t from_ms)
{
    const struct map *next;
    struct err e;

    assert_int_equal(map_pending_announce(*m, w, from_ms, STR("a 1"), &next, &e), 0);
    replace(m, next);
}

static void commit(const struct map **m, const struct map_whose *w)
{
    const struct map *next;
    struct err e;

    assert_int_equal(map_pending_commit(*m, w, &next, &e), 0);
    replace(m, next);
}

/* A map that says the same after it was written and read. */
static void through_text(const struct map **m)
{
    const struct map *back;
    struct buf one, two;
    struct err e;

    buf_init(&one, MIB);
    buf_init(&two, MIB);
    map_write(*m, &one);
    if (map_parse("map", buf_str(&one), false, &back, &e))
        fail_msg("%s", e.text);
    map_write(back, &two);
    assert_true(str_eq(buf_str(&one), buf_str(&two)));
    replace(m, back);
    buf_deinit(&one);
    buf_deinit(&two);
}

static bool outdates(const struct map *m, uint64_t version, int64_t when_ms)
{
    return map_outdates(m, STR("t"), STR("s"), version, when_ms);
}

static uint32_t places(const struct map *m)
{
    uint32_t some[MAP_PLACES_MAX];

    return (uint32_t)map_places(m, STR("t"), STR("s"), some, MAP_PLACES_MAX);
}

/* All places that a series may have at a time are among those that are read. */
static void reads_all(const struct map *m, int64_t when_ms, const struct map *of)
{
    uint32_t some[MAP_PLACES_MAX];
    size_t len = map_places(m, STR("t"), STR("s"), some, MAP_PLACES_MAX);

    for (uint64_t i = 0; i < 100; i++) {
        uint32_t at = map_shard(of, STR("t"), STR("s"), i, when_ms);
        bool found = false;
        for (size_t k = 0; k < len; k++)
            found = found || some[k] == at;
        assert_true(found);
    }
}

static void test_of(const struct map_whose *w, uint32_t n)
{
    const struct map *m = make(), *next, *told;
    struct map_whose who;
    uint32_t before[100];
    uint64_t v;
    struct err e;

    for (uint64_t i = 0; i < 100; i++)
        before[i] = map_shard(m, STR("t"), STR("s"), i, T0);
    assert_int_equal(map_pending_commit(m, w, &next, &e), ERR_NOT_FOUND);
    assert_int_equal(map_pending_announce(m, w, T0, STR_NULL, &next, &e), ERR_NOT_FOUND);
    assert_int_equal(map_pending_retreat(m, w, &next, &e), ERR_NOT_FOUND);
    assert_int_equal(map_pending_request(m, w, map_whose_none(w), &next, &e), ERR_CONFLICT);
    assert_false(map_has_steps(m));

    want(&m, w, n); /* has no effect */
    through_text(&m);
    assert_true(map_has_steps(m));
    assert_int_equal(map_pending_request(m, w, n, &next, &e), ERR_CONFLICT);
    assert_int_equal(map_pending_commit(m, w, &next, &e), ERR_NOT_FOUND);
    assert_false(outdates(m, 0, INT64_MAX));
    assert_int_equal(places(m), 1);
    assert_int_equal(map_places_since(m), 0);
    assert_false(map_pending_announced(m, &who));
    assert_int_equal(map_pending_ignore(m, w, &next, &e), ERR_NOT_FOUND);

    announce(&m, w, T0 - 1); /* places stay; what may be at other ones is refused */
    through_text(&m);
    v = m->version;
    assert_int_equal(map_places_since(m), v);
    told = map_ref(m);
    assert_int_equal(map_whose_steps(m, w)->next.version, v);
    assert_int_equal(map_whose_steps(m, w)->next.from_ms, T0);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(map_shard(m, STR("t"), STR("s"), i, T0), before[i]);
    assert_true(outdates(m, v, T0) && outdates(m, v - 1, T0));
    assert_false(outdates(m, v, T0 - 1) || outdates(m, v + 1, T0));
    assert_true(str_eqc(map_whose_steps(m, w)->next.by, "a 1"));
    assert_true(map_pending_announced(m, &who));
    assert_true(str_eq(who.tenant, w->tenant) && str_eq(who.service, w->service));
    assert_int_equal(map_pending_ignore(m, w, &next, &e), 0);
    assert_true(next->version == v && !map_pending_announced(next, &who));
    assert_false(outdates(next, 0, INT64_MAX));
    map_unref(next);

    commit(&m, w);
    through_text(&m);
    assert_int_equal(map_whose_steps(m, w)->next.version, 0);
    assert_int_equal(map_whose_last(m, w), n);
    assert_int_equal(map_places_since(m), v + 1);
    reads_all(told, T0, m); /* a reader that knows only the announcement reads the valid places */
    reads_all(told, T0 - 1, m);
    assert_int_equal(places(told), places(m));
    map_unref(told);
    assert_int_equal(map_whose_steps(m, w)->at[1].version, v + 1);
    assert_int_equal(map_whose_steps(m, w)->at[1].from_ms, T0);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(map_shard(m, STR("t"), STR("s"), i, T0 - 1), before[i]);
    assert_true(outdates(m, v, T0));
    assert_false(outdates(m, v, T0 - 1) || outdates(m, v + 1, T0));
    map_unref(m);
}

static void test_becomes_a_step(void **state)
{
    (void)state;
    test_of(&SERVICE, 4);
    test_of(&TENANT, 3);
    test_of(&ALL, 2);
}

static void test_taken_back(void **state)
{
    (void)state;
    const struct map *m = make(), *next;
    struct err e;

    want(&m, &SERVICE, 4);
    announce(&m, &SERVICE, T0);
    announce(&m, &SERVICE, T0 + 3 * LEAF_MS); /* another time, another announcement */
    assert_int_equal(map_whose_steps(m, &SERVICE)->next.version, m->version);
    assert_false(outdates(m, 0, T0));
    assert_int_equal(map_pending_retreat(m, &SERVICE, &next, &e), 0);
    replace(&m, next);
    assert_false(outdates(m, 0, INT64_MAX));
    announce(&m, &SERVICE, T0);
    want(&m, &SERVICE, 5); /* another number begins from the start */
    assert_int_equal(map_whose_steps(m, &SERVICE)->next.from_ms, 0);
    want(&m, &SERVICE, 1); /* the present number: nothing is wanted */
    assert_int_equal(map_whose_steps(m, &SERVICE)->next.version, 0);
    through_text(&m);
    assert_int_equal(places(m), 1);
    map_unref(m);
}

/* Behind the last step, whatever time is asked for; and each as often as there is room. */
static void test_one_behind_the_other(void **state)
{
    (void)state;
    const struct map *m = make(), *next;
    struct err e;

    for (uint32_t i = 1; i < MAP_STEPS_MAX; i++) {
        want(&m, &SERVICE, 2 + i % 2);
        announce(&m, &SERVICE, T0);
        commit(&m, &SERVICE);
        assert_int_equal(map_whose_steps(m, &SERVICE)->at[i].from_ms,
                         T0 + (int64_t)(i - 1) * LEAF_MS);
    }
    assert_int_equal(map_pending_request(m, &SERVICE, 5, &next, &e), ERR_LIMIT);
    map_unref(m);
}

/* A tenant that gets a name keeps the size that all had, and gets nothing of a pending change for
 * all. */
static void test_named_among_all(void **state)
{
    (void)state;
    const struct map_whose other = { STR("u"), { NULL, 0 } };
    const struct map *m = make();
    struct map_whose w;
    size_t pos = 0;

    want(&m, &ALL, 4);
    announce(&m, &ALL, T0);
    commit(&m, &ALL);
    want(&m, &ALL, 3);
    announce(&m, &ALL, T0 + 10 * LEAF_MS);
    want(&m, &TENANT, 5);
    assert_int_equal(map_whose_last(m, &TENANT), 4);
    assert_int_equal(map_whose_steps(m, &TENANT)->next.from_ms, 0);
    assert_true(map_pending_each(m, &pos, &w) && w.tenant.len == 0);
    assert_true(map_pending_each(m, &pos, &w) && str_eqc(w.tenant, "t"));
    assert_false(map_pending_each(m, &pos, &w));
    commit(&m, &ALL);
    assert_int_equal(map_whose_last(m, &TENANT), 4);
    assert_int_equal(map_whose_last(m, &other), 3);
    map_unref(m);
}

static void test_bad_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "services: [{tenant: t, name: s, next: {n: 0, version: 3}}]", "is to be spread over 0" },
        { "services: [{tenant: t, name: s, next: {n: 2}}]", "version" },
        { "services: [{tenant: t, name: s, next: 3}]", "next" },
        { "tenant_next: {n: 1, version: 1, from: 9, by: "
          "0123456789012345678901234567890123456789012345678901234567890123456789012345678901}",
          "the name of the controller that announced the step has 82 bytes" },
        { "tenant_next: {n: 3, version: 1}", "has 3 shards, the cluster 1" },
        { "tenants: [{name: t, steps: [{from: 0, n: 1}, {from: 9, n: 0}], "
          "next: {n: 1, version: 2, from: 9}}]",
          "announced behind" },
    };
    const struct map *m;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_not_equal(map_parse("f", str_c(rows[i].text), false, &m, &e), 0);
        if (i != 2 && !strstr(e.text, rows[i].says))
            fail_msg("%s", e.text);
    }
    /* A file that a person writes has steps, no wishes. */
    assert_int_not_equal(map_parse("f", STR("tenant_next: {n: 1, version: 1}"), true, &m, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_becomes_a_step),
        cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_one_behind_the_other),
        cmocka_unit_test(test_named_among_all),
        cmocka_unit_test(test_bad_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
