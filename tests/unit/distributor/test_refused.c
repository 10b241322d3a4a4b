/* SPDX-License-Identifier: Apache-2.0
 *
 * What the log says of refused pushes: the first at once, then a line a minute, for each of the two
 * kinds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "distributor/metrics.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
