/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "common/sys/thread.h"

/* Log output goes through a pipe; whatever is in it comes back by one read(2). */
static int ends[2];
static struct clock_fake fake;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    clock_fake_init(&fake, 1795261508123);
    log_set_output(ends[1], &fake.clock);
    thread_name_self("tester");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    log_set_output(STDERR_FILENO, NULL);
    log_set_level(LOG_INFO);
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0);
    return 0;
}

static const char *read_text(void)
{
    static char text[65537];
    ssize_t n = read(ends[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    return text;
}

static size_t lines_now(void)
{
    size_t n = 0;

    for (const char *text = read_text(); *text; text++)
        n += *text == '\n';
    return n;
}

static void test_one_line_of_logfmt(void **state)
{
    struct err e = { .code = ERR_IO, .text = "disk said \"no\"" };

    (void)state;
    log_info("slot sealed", KV_U64("shard", 0), KV_I64("delta", -5), KV_BOOL("ok", true),
             KV_CSTR("name", "a-b/c"), KV_STR("odd", STR("a b")), KV_ERR(&e), KV_CSTR("none", ""));
    assert_string_equal(read_text(),
                        "ts=2026-11-21T11:45:08.123Z level=info thread=tester msg=\"slot sealed\" "
                        "shard=0 delta=-5 ok=true name=a-b/c odd=\"a b\" "
                        "err=\"disk said \\\"no\\\"\" none=\"\"\n");
}

static void test_levels(void **state)
{
    enum log_level l = LOG_ERROR;
    uint64_t before = log_count(LOG_DEBUG);

    (void)state;
    log_debug("hidden", KV_U64("n", 1));
    assert_string_equal(read_text(), "");
    assert_true(log_level_parse(STR("debug"), &l));
    assert_int_equal(l, LOG_DEBUG);
    assert_false(log_level_parse(STR("verbose"), &l));
    log_set_level(l);
    log_debug("seen", KV_U64("n", 1));
    assert_non_null(strstr(read_text(), "level=debug"));
    assert_int_equal(log_count(LOG_DEBUG), before + 1);
}

static void test_no_value_breaks_the_line(void **state)
{
    static const struct {
        const char *name;
        struct str in;
        const char *want;
    } rows[] = {
        { "newline", { "a\nb", 3 }, "v=\"a\\nb\"\n" },
        { "forged pair", { "x=1", 3 }, "v=\"x=1\"\n" },
        { "NUL", { "a\0b", 3 }, "v=\"a\\x00b\"\n" },
        { "terminal escape", { "\x1b[2J", 4 }, "v=\"\\x1b[2J\"\n" },
        { "not UTF-8", { "\xff\xfe", 2 }, "v=\"\\xff\\xfe\"\n" },
        { "UTF-8", { "\xc3\xa9", 2 }, "v=\xc3\xa9\n" },
        { "backslash", { "\\", 1 }, "v=\"\\\\\"\n" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *text;

        log_info("m", KV_STR("v", rows[i].in));
        text = read_text();
        if (!strstr(text, rows[i].want))
            fail_msg("%s: %s", rows[i].name, text);
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    }
}

static void test_long_lines_are_cut_and_say_so(void **state)
{
    static char big[10000];
    const char *text;

    (void)state;
    memset(big, 'x', sizeof(big));
    log_info("m", KV_STR("v", str_n(big, sizeof(big))), KV_U64("after", 1));
    text = read_text();
    assert_in_range(strlen(text), 4000, 4096);
    assert_string_equal(text + strlen(text) - 5, "x...\n");
    /* A multi-byte character is not cut in two, wherever it falls. */
    for (size_t i = 0; i + 1 < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa9", 2);
    for (int shift = 0; shift < 2; shift++) {
        log_info(shift ? "mm" : "m", KV_STR("v", str_n(big, sizeof(big))));
        text = read_text();
        assert_true(str_utf8_valid(str_c(text)));
    }
}

static void warn_at_one_site(uint64_t n)
{
    log_warn("disk is slow", KV_U64("n", n));
}

static void test_repeated_warnings_are_limited_and_counted(void **state)
{
    uint64_t before = log_suppressed();

    (void)state;
    for (uint64_t i = 0; i < 25; i++)
        warn_at_one_site(i);
    assert_int_equal(lines_now(), 10);
    assert_int_equal(log_suppressed() - before, 15);
    log_warn("another site", KV_U64("n", 1)); /* is not affected */
    assert_int_equal(lines_now(), 1);
    for (uint64_t i = 0; i < 25; i++)
        log_info("infos are not limited", KV_U64("n", i));
    assert_int_equal(lines_now(), 25);
    clock_fake_advance(&fake, 10000);
    warn_at_one_site(99);
    assert_non_null(strstr(read_text(), "n=99 suppressed=15\n"));
    warn_at_one_site(100);
    assert_null(strstr(read_text(), "suppressed"));
}

static void log_many(void *cookie)
{
    (void)cookie;
    for (uint64_t i = 0; i < 50; i++)
        log_error("from a thread", KV_U64("n", i));
}

static void test_threads_share_the_limit(void **state)
{
    struct thread t[4] = { 0 };
    uint64_t before = log_count(LOG_ERROR);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_start(&t[i], "logger", log_many, NULL);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_join(&t[i]);
    assert_int_equal(log_count(LOG_ERROR) - before, 200);
    assert_int_equal(lines_now(), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_line_of_logfmt, setup, teardown),
        cmocka_unit_test_setup_teardown(test_levels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_value_breaks_the_line, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_lines_are_cut_and_say_so, setup, teardown),
        cmocka_unit_test_setup_teardown(test_repeated_warnings_are_limited_and_counted, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_threads_share_the_limit, setup, teardown),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
