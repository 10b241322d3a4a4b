/* SPDX-License-Identifier: Apache-2.0
 *
 * What the log says of refused pushes: the first at once, then a line a minute, for each of the two
 * kinds. Which of several errors the answer has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "distributor/base/metrics.h"
#include "distributor/intake/intake.h"

static char text[8192];

/* All lines so far. */
static const char *lines(FILE *f)
{
    ssize_t n = pread(fileno(f), text, sizeof(text) - 1, 0);

    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

static size_t count(FILE *f)
{
    size_t n = 0;

    for (const char *c = lines(f); *c; c++)
        n += *c == '\n';
    return n;
}

/* Of several errors the answer has the error that is most worth another try, in any order. */
static void test_which_error_is_told(void **state)
{
    static const int order[] = { ERR_INPUT,   ERR_LIMIT, ERR_RATE,     ERR_INTERNAL,   ERR_IO,
                                 ERR_TIMEOUT, ERR_BUSY,  ERR_NO_SPACE, ERR_UNAVAILABLE };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        for (size_t k = 0; k < ARRAY_LEN(order); k++) {
            struct err one = { 0 }, two = { 0 }, got = { 0 };
            err_set(&one, order[i], "one");
            err_set(&two, order[k], "two");
            struct intake_row rows[] = {
                { .outcome = INTAKE_REJECTED, .err = &one },
                { .outcome = INTAKE_STORED },
                { .outcome = INTAKE_REJECTED, .err = &two },
            };
            struct intake_result r = { .rows = rows, .rows_len = ARRAY_LEN(rows) };
            assert_int_equal(intake_error(&r, NULL, NULL, &got), order[MAX(i, k)]);
            assert_non_null(strstr(got.text, "one"));
            assert_non_null(strstr(got.text, "two"));
        }
    }
}

static void test_a_line_a_minute(void **state)
{
    struct distributor_metrics dm = { 0 };
    struct metrics *m = metrics_new();
    struct clock_fake clock;
    FILE *f = tmpfile();
    struct err junk, busy;

    (void)state;
    assert_non_null(f);
    clock_fake_init(&clock, 1750000000000);
    log_set_output(fileno(f), &clock.clock);
    distributor_metrics_init(&dm, m, &clock.clock);
    (void)err_set(&junk, ERR_INPUT, "no line");
    (void)err_set(&busy, ERR_BUSY, "no room");
    for (int i = 0; i < 300; i++)
        distributor_refused(&dm, &junk, "10.0.0.1:5");
    assert_int_equal(count(f), 1);
    assert_non_null(strstr(text, "level=warn"));
    assert_non_null(strstr(text, "their senders have to mend\" refused=1 last_of=10.0.0.1:5 "
                                 "err=\"no line\""));
    distributor_refused(&dm, &busy, NULL);
    assert_int_equal(count(f), 2);
    assert_non_null(strstr(text, "should try again\" refused=1 last_of=? err=\"no room\""));
    clock_fake_advance(&clock, 59999);
    distributor_refused(&dm, &junk, "10.0.0.1:5");
    assert_int_equal(count(f), 2);
    clock_fake_advance(&clock, 1);
    distributor_refused(&dm, &junk, "10.0.0.2:5");
    assert_int_equal(count(f), 3);
    assert_non_null(strstr(text, "refused=301 last_of=10.0.0.2:5"));
    log_set_output(STDERR_FILENO, NULL);
    (void)fclose(f);
    metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_a_minute),
        cmocka_unit_test(test_which_error_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
