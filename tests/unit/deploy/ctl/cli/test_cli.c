/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: what is read, what is refused and how that is said; that the tables agree with
 * one another; ranges, selectors and short names of profile types.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "deploy/ctl/ask/what.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/ctl.h"

#define ARGS_MAX 16

struct parsed {
    struct cli c;
    const char *args[ARGS_MAX];
    struct err e;
    int rc;
};

/* "top shop --limit=3" as a shell would cut it (no quotes). */
static void parse(struct parsed *p, const char *line)
{
    static char text[512];
    static char name[] = "embertreectl";
    char *argv[ARGS_MAX] = { name }, *save = NULL;
    int argc = 1;

    *p = (struct parsed){ .c = { .table = &ctl_table, .program = "embertreectl" } };
    assert_true(strlen(line) < sizeof(text));
    memcpy(text, line, strlen(line) + 1);
    for (char *one = strtok_r(text, " ", &save); one; one = strtok_r(NULL, " ", &save))
        argv[argc++] = one;
    p->rc = cli_parse(&p->c, argc, argv, p->args, &p->e);
}

static void test_options(void **state)
{
    struct parsed p;

    (void)state;
    parse(&p, "--server=http://x top shop --limit 3 -t cpu --json --timeout 5m");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.c.command->name, "top");
    assert_int_equal(p.c.args_len, 1);
    assert_string_equal(p.c.args[0], "shop");
    assert_string_equal(p.c.o.server, "http://x");
    assert_string_equal(p.c.o.type, "cpu");
    assert_int_equal(p.c.o.limit, 3);
    assert_int_equal(p.c.o.timeout_ms, 300000);
    assert_true(p.c.o.json);

    parse(&p, "tree -n7 --min-percent 2.5% -- --odd");
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.c.o.limit, 7);
    assert_true(p.c.o.min_percent > 2.49 && p.c.o.min_percent < 2.51);
    assert_string_equal(p.c.args[0], "--odd");

    parse(&p, "upload --url http://y a b");
    assert_int_equal(p.rc, 0);
    assert_string_equal(p.c.o.server, "http://y");
    assert_int_equal(p.c.args_len, 2);

    parse(&p, "fsck --mark dir --top"); /* has its own options */
    assert_int_equal(p.rc, 0);
    assert_int_equal(p.c.args_len, 4);
    assert_string_equal(p.c.args[3], "--top");

    parse(&p, "top --help");
    assert_int_equal(p.rc, CLI_HELP);
    parse(&p, "--version");
    assert_int_equal(p.rc, CLI_VERSION);
    parse(&p, "");
    assert_int_equal(p.rc, 0);
    assert_null(p.c.command);
}

static void test_refused(void **state)
{
    static const struct {
        const char *line, *says;
    } rows[] = {
        { "tpo", "did you mean top?" },
        { "zzzzzz", "embertreectl --help lists them" },
        { "top --limt 3", "did you mean --limit?" },
        { "top --xyzzy", "embertreectl top --help lists them" },
        { "--limit 3 top", "--limit is no option here" },
        { "top --depth 3", "--depth is no option here" },
        { "top -z", "-z is no option here" },
        { "top --limit", "--limit wants a value: --limit N" },
        { "top --limit x", "want a number up to 1000000" },
        { "top --limit -1", "want a number" },
        { "top --limit 1000001", "up to 1000000" },
        { "top --json=1", "--json takes no value" },
        { "top --sort size", "want one of self total" },
        { "top --timeout 0", "more than nothing" },
        { "top --timeout 18446744073709551615", "want 10s" },
        { "top --timeout never", "want 10s" },
        { "tree --min-percent -1", "percentage" },
        { "tree --min-percent nan", "percentage" },
        { "diff --fail-over 1e999", "percentage" },
    };
    struct parsed p;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        parse(&p, rows[i].line);
        if (p.rc != ERR_CONFIG || !strstr(p.e.text, rows[i].says))
            fail_msg("%s: %d \"%s\", want \"%s\"", rows[i].line, p.rc, p.rc ? p.e.text : "",
                     rows[i].says);
    }
}

/* Every name in a command's list is an option, and every option is in a command's list. */
static void test_tables_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < ctl_table.options_len; i++) {
        size_t users = ctl_table.options[i].everywhere;
        for (size_t k = 0; ctl_table.commands[k]; k++)
            users += cli_command_takes(ctl_table.commands[k], &ctl_table.options[i]);
        if (!users)
            fail_msg("no command takes --%s", ctl_table.options[i].name);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(ctl_table.options[i].name, ctl_table.options[k].name);
            assert_true(!ctl_table.options[i].letter ||
                        ctl_table.options[i].letter != ctl_table.options[k].letter);
        }
    }
    for (size_t k = 0; ctl_table.commands[k]; k++) {
        struct str rest = str_c(ctl_table.commands[k]->options), name;
        bool more = true;
        assert_true((ctl_table.commands[k]->run != NULL) != (ctl_table.commands[k]->plain != NULL));
        while (rest.len && str_next(&rest, ' ', &more, &name)) {
            bool known = false;
            for (size_t i = 0; i < ctl_table.options_len; i++)
                known |= str_eqc(name, ctl_table.options[i].name);
            if (!known)
                fail_msg("%s: --%.*s is no option", ctl_table.commands[k]->name, STR_ARG(name));
        }
    }
}

static void test_short_types(void **state)
{
    static const struct str go[] = {
        { "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 43 },
        { "process_cpu:samples:count:cpu:nanoseconds", 41 },
        { "memory:alloc_space:bytes:space:bytes", 36 },
        { "memory:inuse_space:bytes:space:bytes", 36 },
        { "mutex:contentions:count:contentions:count", 41 },
        { "mutex:delay:nanoseconds:contentions:count", 41 },
        { "block:contentions:count:contentions:count", 41 },
    };
    static const struct {
        const char *wanted;
        ptrdiff_t want;
    } rows[] = {
        { "cpu", 0 },
        { "samples", 1 },
        { "process_cpu", 0 },
        { "alloc_space", 2 },
        { "inuse_space", 3 },
        { "memory:inuse_space", 3 },
        { "delay", 5 },
        { "memory", -2 },
        { "contentions", -2 },
        { "block:contentions", 6 },
        { "wall", -1 },
        { "", -1 },
        { "process_cpu:samples:count:cpu:nanoseconds", 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ptrdiff_t got = what_best_type(str_c(rows[i].wanted), go, ARRAY_LEN(go));
        if (got != rows[i].want)
            fail_msg("%s: %td, want %td", rows[i].wanted, got, rows[i].want);
    }
}

#define CPU "process_cpu:cpu:nanoseconds:cpu:nanoseconds"

static void test_what(void **state)
{
    static const struct {
        const char *service, *query, *type;
        const char *want;  /* selector; NULL: an error */
        const char *wants; /* the type to look for, or the text of the error */
    } rows[] = {
        { NULL, NULL, NULL, "{}", "cpu" },
        { "shop", NULL, "wall", "{service_name=\"shop\"}", "wall" },
        { "a\"b\\", NULL, NULL, "{service_name=\"a\\\"b\\\\\"}", "cpu" },
        { "shop", "pod=~\"a.*\"", NULL, "{service_name=\"shop\",pod=~\"a.*\"}", "cpu" },
        { NULL, "{a=\"{x\", b!=\"y\"}", NULL, "{a=\"{x\",b!=\"y\"}", "cpu" },
        { NULL, " a = \"{x\" ", NULL, "{a=\"{x\"}", "cpu" },
        { "s", CPU "{a=\"b\"}", NULL, "{service_name=\"s\",a=\"b\"}", NULL },
        { "s", CPU, NULL, "{service_name=\"s\"}", NULL },
        { "s", NULL, CPU, "{service_name=\"s\"}", NULL },
        { "s", CPU, "cpu", NULL, "another" },
        { "s", "name{a=\"b\"}", NULL, NULL, "name" },
        { "s", "a=", NULL, NULL, "column" },
        { "s", "{a=\"b\"", NULL, NULL, "column" },
    };
    struct cli c = { .now_ms = INT64_C(1750000000000) };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct what_in in = { rows[i].service, rows[i].query, rows[i].type, NULL, NULL };
        struct what w;
        struct err e;
        int rc = what_parse(&c, &in, &w, &e);
        if (!rows[i].want) {
            if (!rc || !strstr(e.text, rows[i].wants))
                fail_msg("row %zu: %d %s", i, rc, rc ? e.text : w.selector);
            continue;
        }
        if (rc)
            fail_msg("row %zu: %s", i, e.text);
        assert_string_equal(w.selector, rows[i].want);
        assert_int_equal(w.until_ms - w.from_ms, 3600000);
        if (rows[i].wants)
            assert_string_equal(w.wanted, rows[i].wants);
        else
            assert_string_equal(w.type, CPU);
    }
}

static void test_ranges(void **state)
{
    static const struct {
        const char *from, *until;
        int64_t want_from, want_until; /* seconds before now; 0, 0: an error */
    } rows[] = {
        { NULL, NULL, 3600, 0 },         { "now-7d", NULL, 7 * 86400, 0 },
        { NULL, "now-1h", 7200, 3600 },  { "now-2h", "now-1h", 7200, 3600 },
        { "1749999000", NULL, 1000, 0 }, { "1749999000000", "1749999500", 1000, 500 },
        { "now", NULL, 0, 0 },           { "now-1h", "now-2h", 0, 0 },
        { "yesterday", NULL, 0, 0 },     { "0", NULL, 0, 0 },
    };
    struct cli c = { .now_ms = INT64_C(1750000000000) };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t from = -1, until = -1;
        struct err e;
        int rc = what_range(&c, rows[i].from, rows[i].until, &from, &until, &e);
        bool bad = rows[i].want_from == 0;
        if ((rc != 0) != bad)
            fail_msg("row %zu: %d %s", i, rc, rc ? e.text : "");
        if (!bad) {
            assert_int_equal((c.now_ms - from) / 1000, rows[i].want_from);
            assert_int_equal((c.now_ms - until) / 1000, rows[i].want_until);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_tables_agree), cmocka_unit_test(test_short_types),
        cmocka_unit_test(test_what),         cmocka_unit_test(test_ranges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
