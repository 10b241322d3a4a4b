/* SPDX-License-Identifier: Apache-2.0
 *
 * Volumes of a space report: each node's once, its shards' forecast as one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "querier/merge/volumes.h"

#define DAY_MS UINT64_C(86400000)

static struct err e;

/* A shard that keeps all permanently: `per_day` bytes a day, of one level. */
struct reply {
    Embertree__SpaceReply m;
    Embertree__SpaceForecast f;
    Embertree__SpaceForecastLevel level, *levels[1];
};

static void make(struct reply *r, uint64_t node, uint64_t free_bytes, uint64_t per_day)
{
    embertree__space_reply__init(&r->m);
    embertree__space_forecast__init(&r->f);
    embertree__space_forecast_level__init(&r->level);
    r->level.bytes = 10 * per_day;
    r->level.span_ms = 10 * DAY_MS;
    r->levels[0] = &r->level;
    r->f.bytes = 10 * per_day;
    r->f.n_levels = 1;
    r->f.levels = r->levels;
    r->m.shards = 1;
    r->m.free_bytes = free_bytes;
    r->m.reserve_bytes = MIB;
    r->m.node_id = node;
    if (node)
        r->m.node = (ProtobufCBinaryData){ 2, (uint8_t *)(uintptr_t) "n1" };
    r->m.forecast = per_day > 0;
    r->m.days_left = 77; /* as that shard alone would do */
    r->m.growth_per_day = (int64_t)per_day;
    r->m.forecast_in = per_day > 0 ? &r->f : NULL;
}

static void test_each_once(void **state)
{
    struct volumes v = { 0 };
    struct reply r[5];

    (void)state;
    make(&r[0], 11, 41 * MIB, MIB);
    make(&r[1], 12, 500 * MIB, 0);
    make(&r[2], 11, 41 * MIB, MIB);
    make(&r[3], 0, 7 * MIB, MIB);
    make(&r[4], 0, 7 * MIB, MIB); /* the version before tells no node */
    for (int i = 0; i < 5; i++)
        assert_int_equal(volumes_add(&v, &r[i].m, &e), 0);
    assert_int_equal(v.at.len, 4);
    const struct volume *one = &v.at.ptr[0];
    assert_true(one->shards == 2 && one->free_bytes == 41 * MIB && one->reserve_bytes == MIB);
    assert_true(one->forecast_known);
    assert_int_equal(one->forecast.growth_per_day, 2 * MIB);
    assert_int_equal(one->forecast.days_left, 19); /* not 77: 40 MiB at 2 MiB a day */
    assert_false(v.at.ptr[1].forecast_known);
    assert_int_equal(v.at.ptr[2].forecast.days_left, 77); /* a single reply's stands */
    volumes_deinit(&v);
}

static void test_one_does_not_know(void **state)
{
    struct volumes v = { 0 };
    struct reply r[2];

    (void)state;
    make(&r[0], 11, 41 * MIB, MIB);
    make(&r[1], 11, 40 * MIB, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(volumes_add(&v, &r[i].m, &e), 0);
    assert_int_equal(v.at.len, 1);
    assert_false(v.at.ptr[0].forecast_known);
    assert_int_equal(v.at.ptr[0].free_bytes, 40 * MIB);
    volumes_deinit(&v);
}

static void test_prints(void **state)
{
    struct volumes v = { 0 };
    struct reply r[2];
    struct json j;
    struct buf b;

    (void)state;
    make(&r[0], 11, 41 * MIB, MIB);
    make(&r[1], 0, 7 * MIB, 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(volumes_add(&v, &r[i].m, &e), 0);
    buf_init(&b, KIB);
    json_init(&j, &b);
    volumes_json(&v, &j);
    assert_true(str_eqc(buf_str(&b), "[{\"node\":\"n1\",\"shards\":1,\"freeBytes\":42991616,"
                                     "\"reserveBytes\":1048576,\"forecast\":{\"growthPerDay\":"
                                     "1048576,\"freedPerDay\":0,\"daysLeft\":77}},{\"shards\":1,"
                                     "\"freeBytes\":7340032,\"reserveBytes\":1048576}]"));
    buf_reset(&b);
    volumes_text(&v, &b);
    assert_true(str_eqc(buf_str(&b),
                        "volume of n1: 41 MiB free, 1 MiB kept free, 1 MiB more a day, "
                        "77 days left\nvolume 1: 7 MiB free, 1 MiB kept free\n"));
    buf_deinit(&b);
    volumes_deinit(&v);
}

static void test_bad(void **state)
{
    Embertree__SpaceForecastDay day[2], *days[FORECAST_DAYS + 1] = { &day[0], &day[1] };
    Embertree__SpaceForecastLevel *levels[KEY_LEVELS + 1];
    struct volumes v = { 0 };
    struct reply r;

    (void)state;
    for (int i = 0; i < 2; i++) {
        embertree__space_forecast_day__init(&day[i]);
        day[i].day = 9; /* twice */
    }
    make(&r, 11, MIB, MIB);
    r.f.n_days = 2;
    r.f.days = days;
    assert_int_equal(volumes_add(&v, &r.m, &e), ERR_CORRUPT);
    day[1].day = 65536;
    assert_int_equal(volumes_add(&v, &r.m, &e), ERR_CORRUPT);
    day[1].day = 65535;
    assert_int_equal(volumes_add(&v, &r.m, &e), 0);
    r.f.n_days = FORECAST_DAYS + 1;
    assert_int_equal(volumes_add(&v, &r.m, &e), ERR_CORRUPT);
    r.f.n_days = 0;
    for (size_t i = 0; i < KEY_LEVELS + 1; i++)
        levels[i] = &r.level;
    r.f.levels = levels;
    r.f.n_levels = KEY_LEVELS + 1;
    assert_int_equal(volumes_add(&v, &r.m, &e), ERR_CORRUPT);
    assert_int_equal(v.at.len, 1);
    volumes_deinit(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_each_once),
                                        cmocka_unit_test(test_one_does_not_know),
                                        cmocka_unit_test(test_prints), cmocka_unit_test(test_bad) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
