/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/base/tenants.h"

static const struct write_secret secret = { 1, 2 };

static void test_requests(void **state)
{
    (void)state;
    struct distributor_conf conf = { .tenant_requests = 2, .tenant_burst_bytes = 100 };
    struct tenant *a, *b, *c;
    struct err e;

    for (int many = 0; many < 2; many++) { /* with one tenant there is no bound */
        struct tenants *t = tenants_new(&conf, &secret, many);
        assert_int_equal(tenant_enter(t, STR("x"), 1, 0, &a, &e), 0);
        assert_int_equal(tenant_enter(t, STR("x"), 1, 0, &b, &e), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(tenant_enter(t, STR("x"), 1, 0, &c, &e), many ? ERR_RATE : 0);
        if (!many)
            tenant_leave(c);
        assert_int_equal(tenant_enter(t, STR("y"), 1, 0, &c, &e), 0); /* other tenants are let in */
        assert_memory_not_equal(&a->secret, &c->secret, sizeof(secret));
        tenant_leave(a);
        tenant_leave(c);
        assert_int_equal(tenant_enter(t, STR("x"), 1, 0, &c, &e), 0); /* room again */
        tenant_leave(b);
        tenant_leave(c);
        tenants_free(t);
    }
}

static void test_rate(void **state)
{
    (void)state;
    struct distributor_conf conf = { .tenant_requests = 100,
                                     .tenant_rate_bytes = 1000,
                                     .tenant_burst_bytes = 5000 };
    struct tenants *t = tenants_new(&conf, &secret, false);
    struct tenant *a;
    struct err e;
    uint64_t passed = 0, now = 1000000;

    assert_int_equal(tenant_enter(t, STR("x"), 5000, now, &a, &e), 0); /* a full bucket */
    tenant_leave(a);
    assert_int_equal(tenant_enter(t, STR("x"), 1, now, &a, &e), ERR_RATE);
    assert_int_equal(tenant_enter(t, STR("x"), 1000, now += 1000, &a, &e), 0);
    tenant_leave(a);
    /* Over a long time the rate is the rate, whatever the sizes. */
    for (uint64_t began = now; now < began + 100000; now += 37)
        if (tenant_enter(t, STR("x"), 333, now, &a, &e) == 0) {
            tenant_leave(a);
            passed += 333;
        }
    assert_in_range(passed, 99000, 101000);
    /* A body larger than the bucket passes when it is full. */
    assert_int_equal(tenant_enter(t, STR("x"), 20000, now += 60000, &a, &e), 0);
    tenant_leave(a);
    tenants_free(t);
}

/* Names come from a header: the table has a bound, and keeps all tenants that are in use. */
static void test_many_names(void **state)
{
    (void)state;
    struct distributor_conf conf = { .tenant_requests = 1, .tenant_burst_bytes = 100 };
    struct tenants *t = tenants_new(&conf, &secret, true);
    struct tenant *busy, *a;
    char name[32];
    struct err e;

    assert_int_equal(tenant_enter(t, STR("busy"), 1, 0, &busy, &e), 0);
    for (int i = 0; i < 5 * TENANTS_MAX; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        assert_int_equal(tenant_enter(t, str_c(name), 1, (uint64_t)i, &a, &e), 0);
        tenant_leave(a);
    }
    assert_int_equal(tenant_enter(t, STR("busy"), 1, 0, &a, &e), ERR_RATE); /* still known */
    assert_true(str_eqc(busy->name, "busy"));
    tenant_leave(busy);
    tenants_free(t);
}

static void rates_of(void *cookie, struct str tenant, struct tenant_rates *ret)
{
    const struct tenant_rates *own = cookie;

    if (str_eqc(tenant, "own"))
        *ret = *own;
}

/* Rates of one tenant, which change while it sends; bytes per period. */
static void test_own_rates(void **state)
{
    (void)state;
    struct distributor_conf conf = { .tenant_requests = 100, .tenant_burst_bytes = 100 };
    struct tenant_rates own = { .rate_bytes = 10, .burst_bytes = 20 };
    struct tenants *t = tenants_new(&conf, &secret, true);
    struct tenant *x;
    struct err e;
    static const struct {
        const char *name;
        uint64_t ms;
        size_t bytes;
        uint64_t rate, ingest; /* the present rates */
        const char *says;      /* NULL: taken */
    } rows[] = {
        { "other", 0, 1000, 10, 0, NULL },
        { "own", 0, 20, 10, 0, NULL },
        { "own", 0, 1, 10, 0, "rate_limited: " },
        { "own", 1000, 10, 10, 0, NULL },
        { "own", 1000, 1, 10, 0, "rate_limited: " },
        { "own", 1000, 1, 0, 0, NULL }, /* no rate any more */
        { "own", 1000, 30, 0, 50, NULL },
        { "own", 2000, 21, 0, 50, "ingest_limit_reached: " },
        { "own", 2000, 20, 0, 50, NULL },
        { "own", 9000, 1, 0, 50, "ingest_limit_reached: " },
        { "own", 70000, 50, 0, 50, NULL },
        { "own", 70000, 1, 0, 50, "ingest_limit_reached: " },
        { "other", 70000, 1000, 0, 50, NULL },
    };

    tenants_rates(t, rates_of, &own);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        own.rate_bytes = rows[i].rate;
        own.ingest_bytes = rows[i].ingest;
        own.ingest_ms = rows[i].ingest ? 60000 : 0;
        int rc = tenant_enter(t, str_c(rows[i].name), rows[i].bytes, rows[i].ms, &x, &e);
        if (rc != (rows[i].says ? ERR_RATE : 0))
            fail_msg("row %zu: %d", i, rc);
        if (rc)
            assert_non_null(strstr(e.text, rows[i].says));
        else
            tenant_leave(x);
    }
    tenants_free(t);
}

/* Of the rate and of ingest_limits, each of n distributors allows one part; the number may change
 * while a tenant sends. */
static void test_parts(void **state)
{
    (void)state;
    struct distributor_conf conf = { .tenant_requests = 100,
                                     .tenant_rate_bytes = 1000,
                                     .tenant_burst_bytes = 1000 };
    struct tenants *t = tenants_new(&conf, &secret, false);
    struct tenant *a;
    struct err e;
    uint64_t now = 1000000;

    for (uint64_t n = 4; n >= 1; n /= 2) {
        uint64_t passed = 0, began = now;
        tenants_part(t, n);
        for (; now < began + 100000; now += 10)
            if (tenant_enter(t, STR("x"), 10, now, &a, &e) == 0) {
                tenant_leave(a);
                passed += 10;
            }
        assert_in_range(passed, 100000 / n - 1100, 100000 / n + 1100);
    }
    tenants_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_rates),  cmocka_unit_test(test_requests),
        cmocka_unit_test(test_rate),       cmocka_unit_test(test_parts),
        cmocka_unit_test(test_many_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
