/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/model/ptype.h"

static void test_parse(void **state)
{
    static const struct {
        const char *id, *name, *type, *unit, *ptype, *punit; /* name NULL = refused */
    } rows[] = {
        { "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "process_cpu", "cpu", "nanoseconds", "cpu",
          "nanoseconds" },
        { "a:b:c:d:e:delta", "a", "b", "c", "d", "e" },
        { "memory:inuse_space:bytes::", "memory", "inuse_space", "bytes", "", "" },
        { "a:b:::", "a", "b", "", "", "" },
        { "a:b:c:d", NULL, NULL, NULL, NULL, NULL },
        { "", NULL, NULL, NULL, NULL, NULL },
        { "a:b:c:d:e:f", NULL, NULL, NULL, NULL, NULL },
        { "a:b:c:d:e:", NULL, NULL, NULL, NULL, NULL },
        { "a:b:c:d:e:delta:", NULL, NULL, NULL, NULL, NULL },
        { "a:b:c:d:e:f:g", NULL, NULL, NULL, NULL, NULL },
        { ":b:c:d:e", NULL, NULL, NULL, NULL, NULL },
        { "a::c:d:e", NULL, NULL, NULL, NULL, NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err e = { 0 };
        struct ptype t = { 0 };
        int rc = ptype_parse(str_c(rows[i].id), &t, &e);
        if (!rows[i].name) {
            assert_int_equal(rc, ERR_INPUT);
            assert_non_null(strstr(e.text, "profile type"));
            assert_null(t.name.ptr); /* untouched */
            continue;
        }
        assert_int_equal(rc, 0);
        assert_true(str_eqc(t.name, rows[i].name));
        assert_true(str_eqc(t.sample_type, rows[i].type));
        assert_true(str_eqc(t.sample_unit, rows[i].unit));
        assert_true(str_eqc(t.period_type, rows[i].ptype));
        assert_true(str_eqc(t.period_unit, rows[i].punit));
    }
}

static void test_format(void **state)
{
    struct ptype t;
    struct err e;
    struct buf b;

    (void)state;
    buf_init(&b, KIB);
    assert_int_equal(ptype_parse(STR("block:delay:nanoseconds:contentions:count:delta"), &t, &e),
                     0);
    ptype_format(&t, &b);
    assert_true(str_eqc(buf_str(&b), "block:delay:nanoseconds:contentions:count"));
    buf_deinit(&b);
}

static void test_gauge(void **state)
{
    static const struct {
        const char *id;
        bool gauge;
    } rows[] = {
        { "memory:inuse_space:bytes:space:bytes", true },
        { "memory:inuse_objects:count:space:bytes", true },
        { "memory:inuse_anything:x:space:bytes", true },
        { "memory:alloc_space:bytes:space:bytes", false },
        { "memory:alloc_objects:count:space:bytes", false },
        { "memory:live:count:objects:count", true },
        { "goroutines:goroutine:count:goroutine:count", true },
        { "goroutine:goroutines:count:goroutine:count", true },
        { "threadcreate:threadcreate:count:threadcreate:count", true },
        { "memory:space:bytes:space:bytes", true },
        { "process_cpu:cpu:nanoseconds:cpu:nanoseconds", false },
        { "process_cpu:samples:count:cpu:nanoseconds", false },
        { "mutex:delay:nanoseconds:contentions:count", false },
        /* The name and the period do not decide. */
        { "inuse_space:cpu:nanoseconds:inuse_space:bytes", false },
        { "wall:liveness:count:wall:nanoseconds", false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ptype t;
        struct err e;
        assert_int_equal(ptype_parse(str_c(rows[i].id), &t, &e), 0);
        if (ptype_is_gauge(&t) != rows[i].gauge)
            fail_msg("%s: want gauge %d", rows[i].id, rows[i].gauge);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_gauge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
