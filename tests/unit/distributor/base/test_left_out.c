/* SPDX-License-Identifier: Apache-2.0
 *
 * Left-out parts of pushes, reported where no reply has them: as JSON, and at intervals in the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/obs/log.h"
#include "distributor/base/left_out.h"

static void test_json(void **state)
{
    uint64_t drops[PUSH_DROPS] = { 0 };
    struct json j;
    struct buf text;

    (void)state;
    buf_init(&text, KIB);
    json_init(&j, &text);
    left_out_json(drops, &j);
    assert_true(str_eq(buf_str(&text), STR("{}")));
    buf_reset(&text);
    drops[DROP_LINE] = 3;
    drops[CHANGE_TRUNCATED] = 1;
    json_init(&j, &text);
    left_out_json(drops, &j);
    assert_true(str_eq(buf_str(&text), STR("{\"line_without_count\":3,\"stack_truncated\":1}")));
    buf_deinit(&text);
}

static uint64_t lines(void)
{
    return log_count(LOG_WARN);
}

static void test_log(void **state)
{
    const struct left_out_of a = { "scrape", STR("t"), STR("a") };
    const struct left_out_of b = { "parca", STR("t"), STR("b") };
    uint64_t drops[PUSH_DROPS] = { 0 };
    static struct left_out_said said;
    uint64_t before = lines();

    (void)state;
    left_out_log(&said, &a, drops, 1000);
    assert_int_equal(lines(), before); /* nothing was */
    drops[DROP_LINE] = 3;
    left_out_log(&said, &a, drops, 1000);
    assert_int_equal(lines(), before + 1);
    left_out_log(&said, &a, drops, 1000 + LEFT_OUT_EVERY_MS - 1);
    assert_int_equal(lines(), before + 1);
    left_out_log(&said, &b, drops, 1000); /* another service */
    assert_int_equal(lines(), before + 2);
    left_out_log(&said, &a, drops, 1000 + LEFT_OUT_EVERY_MS);
    assert_int_equal(lines(), before + 3);
}

/* A client chooses the names of services: it cannot fill the disk by inventing many. */
static void test_log_of_many(void **state)
{
    static struct left_out_said said;
    uint64_t drops[PUSH_DROPS] = { [DROP_LINE] = 1 }, before = lines();
    char name[16];

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        (void)snprintf(name, sizeof(name), "s%u", i);
        left_out_log(&said, &(struct left_out_of){ "parca", STR("t"), str_c(name) }, drops, 1000);
    }
    assert_int_equal(lines(), before + LEFT_OUT_LINES_MAX);
    left_out_log(&said, &(struct left_out_of){ "parca", STR("t"), STR("later") }, drops,
                 1000 + LEFT_OUT_EVERY_MS);
    assert_int_equal(lines(), before + LEFT_OUT_LINES_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
