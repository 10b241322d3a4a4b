/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/golden/ctl has the output for fixed answers of a server; UPDATE=1 writes it again. Also
 * answers that no server should give.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/sys/fs.h"
#include "deploy/ctl/ask/costs.h"
#include "deploy/ctl/ask/graph.h"
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/commands.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/server/rebalance.h"
#include "deploy/ctl/server/versus.h"

static const struct cli cli = { .program = "embertreectl", .o = { .server = "http://x" } };
static struct term wide, narrow;

static int setup(void **state)
{
    (void)state;
    term_detect(&wide, "never", 100);
    wide.tty = wide.utf8 = true;
    narrow = wide;
    narrow.width = 48;
    narrow.utf8 = false;
    narrow.color = true;
    return 0;
}

static void golden(const char *name, struct buf *got)
{
    const struct fs *fs = fs_real();
    char path[128];
    struct buf want;
    struct err e;

    (void)snprintf(path, sizeof(path), "tests/golden/ctl/%s", name);
    if (getenv("UPDATE")) {
        assert_int_equal(fs->mkdir_all(fs, "tests/golden/ctl", &e), 0);
        assert_int_equal(fs->write_file(fs, path, buf_str(got), &e), 0);
    }
    buf_init(&want, 4 * MIB);
    if (fs->read_file(fs, path, &want, &e))
        fail_msg("%s", e.text);
    if (!str_eq(buf_str(got), buf_str(&want)))
        fail_msg("%s: got\n%.*s\nwant\n%.*s", path, STR_ARG(buf_str(got)), STR_ARG(buf_str(&want)));
    buf_deinit(&want);
    buf_reset(got);
}

/* total 100 = a(60: self 10, b 30 (c 30 (d 20, e 9, "other" 1)), f 20) + evil 40 */
static const char tree[] =
    "{\"flamebearer\":{\"names\":[\"total\",\"a\",\"evil\\u001b[2J\\nname\",\"b\",\"f\","
    "\"c\",\"d\","
    "\"e\",\"other\"],\"levels\":[[0,100,0,0],[0,60,10,1,0,40,40,2],[10,30,0,3,0,20,20,4],"
    "[10,30,0,5],[10,20,20,6,0,9,9,7,0,1,1,8]]},\"metadata\":{}}";

static void read_graph(const char *json, struct graph *g)
{
    struct err e;

    if (graph_read(&cli, str_c(json), "flamebearer", g, &e))
        fail_msg("%s", e.text);
}

static void test_tree(void **state)
{
    struct graph_show all = { STR("nanoseconds"), 0, UINT64_MAX, 1000 }, some = all;
    struct graph g;
    struct json j;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    read_graph(tree, &g);
    graph_text(&g, &wide, &all, &b);
    golden("tree.txt", &b);
    some.min_percent = 15;
    some.unit = STR("bytes");
    graph_text(&g, &narrow, &some, &b);
    golden("tree_narrow.txt", &b);
    some = all;
    some.depth = 2;
    graph_text(&g, &wide, &some, &b);
    golden("tree_depth.txt", &b);
    some = all;
    some.lines = 3;
    graph_text(&g, &wide, &some, &b);
    golden("tree_lines.txt", &b);
    json_init(&j, &b);
    graph_json(&g, &all, &j);
    golden("tree.json", &b);
    graph_deinit(&g);
    buf_deinit(&b);
}

/* A branch at each of 1,000 levels: indents end, the stack of C is not used. */
static void test_deep_tree(void **state)
{
    struct graph_show all = { STR("count"), 0, UINT64_MAX, 100000 };
    struct buf json, b;
    struct graph g;

    (void)state;
    buf_init(&json, MIB);
    buf_init(&b, 4 * MIB);
    (void)buf_addf(&json,
                   "{\"flamebearer\":{\"names\":[\"total\",\"a\",\"b\"],\"levels\":[[0,2000,0,0]");
    for (int i = 1; i < 1000; i++)
        (void)buf_addf(&json, ",[0,%d,0,1,0,1,1,2]", 2000 - i);
    (void)buf_addf(&json, "]}}%c", '\0');
    read_graph(json.ptr, &g);
    assert_int_equal(g.at.len, 1 + 2 * 999);
    graph_text(&g, &narrow, &all, &b);
    assert_true(buf_ok(&b));
    size_t lines = 0;
    for (size_t i = 0; i < b.len; i++)
        lines += b.ptr[i] == '\n';
    assert_int_equal(lines, 1 + 2 * 999);
    graph_deinit(&g);
    buf_deinit(&json);
    buf_deinit(&b);
}

static void test_no_trees(void **state)
{
    static const char *const rows[] = {
        "",
        "[]",
        "{}",
        "{\"flamebearer\":3}",
        "{\"flamebearer\":{\"levels\":3}}",
        "{\"flamebearer\":{\"names\":[1],\"levels\":[]}}",
#define L(levels) "{\"flamebearer\":{\"names\":[\"t\",\"a\"],\"levels\":" levels "}}"
        L("[[0,1,0]]"),   /* three numbers */
        L("[[0,1,0,2]]"), /* no such name */
        L("[[0,1,0,-1]]"),
        L("[[0,-1,0,0]]"),
        L("[[0,1,2,0]]"),                             /* self above total */
        L("[[0,1,0,0,0,1,0,0]]"),                     /* two roots */
        L("[[0,1,0,0],[0,2,0,1]]"),                   /* wider than its parent */
        L("[[0,4,0,0],[0,2,0,1,0,2,0,1],[1,2,0,1]]"), /* over the edge of its parent */
        L("[[0,4,0,0],[],[0,1,0,1]]"),
        L("[[0,9223372036854775807,0,0],[9223372036854775807,1,0,1]]"),
        L("[[0,9223372036854775808,0,0]]"),
        L("[[0,\"x\",0,0]]"),
        L("[3]"),
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct graph g;
        struct err e;
        if (strcmp(rows[i], L("[3]")) == 0) { /* an empty last level is no harm */
            assert_int_equal(graph_read(&cli, str_c(rows[i]), "flamebearer", &g, &e), 0);
            assert_int_equal(g.at.len, 0);
            graph_deinit(&g);
        } else if (!graph_read(&cli, str_c(rows[i]), "flamebearer", &g, &e)) {
            fail_msg("%s was taken", rows[i]);
        }
    }
    struct graph g;
    read_graph(L("[]"), &g);
    graph_deinit(&g);
    read_graph(L("[[0,0,0,0]]"), &g);
    assert_int_equal(g.at.len, 1);
    graph_deinit(&g);
}

static const char functions[] =
    "{\"profileType\":\"p:cpu:nanoseconds::\",\"unit\":\"nanoseconds\",\"gauge\":false,\"all\":100,"
    "\"functions\":[{\"name\":\"main\",\"self\":60,\"total\":100},{\"name\":\"\\u202eevil\\u0007\","
    "\"self\":40,\"total\":\"40\"},"
    "{\"name\":\"a long name that a narrow terminal has no room for\","
    "\"self\":0,\"total\":1}]}";

static void test_top(void **state)
{
    struct costs f;
    struct err e;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    assert_int_equal(costs_read(&cli, str_c(functions), &f, &e), 0);
    top_table(&wide, &f, STR("nanoseconds"), &b);
    golden("top.txt", &b);
    top_table(&narrow, &f, STR("nanoseconds"), &b);
    golden("top_narrow.txt", &b);
    costs_deinit(&f);
    static const char *const bad[] = { "x", "[]", "{\"functions\":[{\"name\":3}]}",
                                       "{\"functions\":[{\"self\":\"a\"}]}", "{\"all\":\"b\"}" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(costs_read(&cli, str_c(bad[i]), &f, &e), ERR_IO);
        assert_non_null(strstr(e.text, "another program"));
    }
    buf_deinit(&b);
}

#define SIDE(total, factor)                                                             \
    "{\"profileType\":\"t\",\"unit\":\"nanoseconds\",\"gauge\":false,\"startMs\":1000," \
    "\"endMs\":61000,\"total\":" total ",\"factor\":" factor "}"
#define ROW(name, l, r, sl, sr)                                                               \
    "{\"name\":\"" name "\",\"self\":{\"left\":" l ",\"right\":" r ",\"shown\":[" sl "," sr   \
    "],\"delta\":0,\"change\":null},\"total\":{\"left\":" l ",\"right\":" r ",\"shown\":[" sl \
    "," sr "]}}"

/* clang-format off */
static const char second[] =
    "{\"mode\":\"second\",\"left\":" SIDE("6000000", "0.5")
    ",\"right\":" SIDE("7000000", "0.5")
    ",\"functions\":9,\"matching\":9,\"offset\":0,\"rows\":["
    ROW("slower", "1000000", "3000000", "500000", "1500000") ","
    ROW("faster", "5000000", "3400000", "2500000", "1700000") ","
    ROW("new\\u001b[31m", "0", "600000", "0", "300000") ","
    ROW("same", "5", "5", "2.5", "2.5") "]}";
static const char relative[] =
    "{\"mode\":\"relative\",\"left\":" SIDE("50", "2") ",\"right\":" SIDE("100", "1")
    ",\"functions\":1,\"matching\":1,\"offset\":0,\"rows\":["
    ROW("gone", "25", "0", "50", "0") "]}";
/* clang-format on */

static void test_diff(void **state)
{
    struct versus d;
    struct err e;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    if (versus_read(&cli, str_c(second), false, &d, &e))
        fail_msg("%s", e.text);
    assert_int_equal(d.functions, 5); /* that were not sent */
    assert_true(str_eqc(versus_worst(&d)->name, "slower"));
    assert_true(versus_worst(&d)->growth > 33.3 && versus_worst(&d)->growth < 33.4);
    versus_text(&wide, &d, STR("nanoseconds"), 25, &b);
    golden("diff.txt", &b);
    versus_text(&narrow, &d, STR("nanoseconds"), 1, &b);
    golden("diff_narrow.txt", &b);
    versus_deinit(&d);
    assert_int_equal(versus_read(&cli, str_c(relative), true, &d, &e), 0);
    assert_null(versus_worst(&d));
    versus_text(&wide, &d, STR("nanoseconds"), 25, &b);
    golden("diff_relative.txt", &b);
    versus_deinit(&d);
    static const char *const bad[] = { "", "{}", "{\"rows\":[]}", "{\"rows\":3}",
                                       "{\"left\":{},\"right\":{},\"rows\":[{}]}" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(versus_read(&cli, str_c(bad[i]), false, &d, &e), ERR_IO);
    buf_deinit(&b);
}

static const char space[] =
    "{\"bytes\":3000000,\"files\":{\"tables\":3000000,\"obsolete\":0,\"log\":1000000,\"other\":5,"
    "\"total\":4000005},\"ingesters\":[{\"shards\":1,\"freeBytes\":1073741824,"
    "\"reserveBytes\":1048576,"
    "\"forecast\":{\"growthPerDay\":5,\"freedPerDay\":0,\"daysLeft\":41}},{\"freeBytes\":1}],"
    "\"rows\":[{\"tenant\":\"a\",\"service\":\"\",\"kind\":\"names\",\"bytes\":500000},"
    "{\"tenant\":\"a\",\"service\":\"shop\",\"kind\":\"fine\",\"level\":\"10s\",\"bytes\":1500000},"
    "{\"tenant\":\"a\",\"service\":\"shop\",\"kind\":\"coarse\",\"level\":\"1h\","
    "\"bytes\":1000000}]}";

/* A service whose rows are all remote, and a service with some remote rows. */
static const char space_far[] =
    "{\"bytes\":3000000,\"farBytes\":9100000,\"files\":{\"tables\":3000000,\"obsolete\":0,"
    "\"log\":1000000,\"other\":5,\"total\":4000005},\"ingesters\":[{\"node\":\"zone-a-0\","
    "\"shards\":4,\"freeBytes\":1073741824,\"reserveBytes\":1048576}],"
    "\"rows\":[{\"tenant\":\"\",\"service\":\"\",\"kind\":\"vectors\",\"level\":\"10s\","
    "\"bytes\":0,\"farBytes\":100000},"
    "{\"tenant\":\"a\",\"service\":\"old\",\"kind\":\"vectors\",\"level\":\"10s\",\"bytes\":0,"
    "\"farBytes\":4000000},"
    "{\"tenant\":\"a\",\"service\":\"shop\",\"kind\":\"vectors\",\"level\":\"10s\","
    "\"bytes\":2000000,\"farBytes\":3000000},"
    "{\"tenant\":\"a\",\"service\":\"shop\",\"kind\":\"vectors\",\"level\":\"1h\","
    "\"bytes\":1000000,\"farBytes\":2000000}]}";

static void test_space(void **state)
{
    struct json_doc *doc;
    struct err e;
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    assert_int_equal(json_parse(str_c(space), &doc, &e), 0);
    space_text(&wide, json_root(doc), &b);
    golden("space.txt", &b);
    json_doc_free(doc);
    assert_int_equal(json_parse(str_c(space_far), &doc, &e), 0);
    space_text(&wide, json_root(doc), &b);
    golden("space_far.txt", &b);
    json_doc_free(doc);
    buf_deinit(&b);
}

#define MOVE(shard, is, to, lead)                                  \
    "{\"shard\":" shard ",\"members\":[" is "],\"membersTo\":[" to \
    "],\"leader\":\"a\",\"leaderTo\":\"" lead "\",\"bytes\":3145728,\"why\":\"so it is\"}"
#define MOVE_COPY MOVE("0", "\"a\",\"b\"", "\"b\",\"c\"", "b")
#define MOVE_LEAD MOVE("7", "\"a\",\"b\"", "\"b\",\"a\"", "b")

static void put_plan(const char *shards, struct buf *out)
{
    char text[1024];
    struct json_doc *doc;
    struct err e;

    (void)snprintf(text, sizeof(text),
                   "{\"bytesToCopy\":3145728,\"nodes\":[{\"name\":\"a\",\"copies\":2,\"leads\":2,"
                   "\"copiesTo\":1,\"leadsTo\":0}],\"shards\":[%s]}",
                   shards);
    assert_int_equal(json_parse(str_c(text), &doc, &e), 0);
    rebalance_text(json_root(doc), out);
    json_doc_free(doc);
}

static void test_rebalance(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    put_plan("", &b);
    put_plan(MOVE_COPY, &b);
    put_plan(MOVE_LEAD, &b);
    put_plan(MOVE_COPY "," MOVE_LEAD, &b);
    golden("rebalance.txt", &b);
    buf_deinit(&b);
}

static void test_docs(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 4 * MIB);
    cli_help(&ctl_table, "embertreectl", &b);
    golden("help.txt", &b);
    cli_help_command(&ctl_table, "embertreectl", cli_command_find(&ctl_table, STR("diff")), NULL,
                     &b);
    golden("help_diff.txt", &b);
    cli_help_command(&ctl_table, "embertreectl", cli_command_find(&ctl_table, STR("cluster")),
                     "undrain", &b);
    assert_true(str_contains(buf_str(&b), STR("drain has the shards")));
    assert_false(str_contains(buf_str(&b), STR("rebalance says")));
    assert_false(str_contains(buf_str(&b), STR("status --json")));
    buf_reset(&b);
    cli_help_command(&ctl_table, "embertreectl", cli_command_find(&ctl_table, STR("cluster")),
                     "status", &b);
    assert_true(str_contains(buf_str(&b), STR("status exits with 1")));
    assert_true(str_contains(buf_str(&b), STR("status --json")));
    assert_false(str_contains(buf_str(&b), STR("spread has")));
    buf_reset(&b);
    cli_help_command(&ctl_table, "embertreectl", cli_command_find(&ctl_table, STR("cluster")),
                     "nonsense", &b);
    assert_true(str_contains(buf_str(&b), STR("spread has")));
    buf_reset(&b);
    cli_help_command(&ctl_table, "embertree import", cli_command_find(&ctl_table, STR("import")),
                     NULL, &b);
    assert_true(str_starts(buf_str(&b), STR("usage: embertree import --name")));
    buf_reset(&b);
    /* Each command and option has its place in what is made of the tables. */
    static const char *const shells[] = { "bash", "zsh", "fish", NULL };
    for (size_t s = 0; s < ARRAY_LEN(shells); s++) {
        if (shells[s])
            assert_true(cli_completion(&ctl_table, str_c(shells[s]), &b));
        else
            cli_man(&ctl_table, &b);
        for (size_t i = 0; ctl_table.commands[i]; i++)
            if (shells[s] ||
                !strchr(ctl_table.commands[i]->name, '-')) /* roff writes it otherwise */
                assert_true(str_contains(buf_str(&b), str_c(ctl_table.commands[i]->name)));
        for (size_t i = 0; i < ctl_table.options_len; i++)
            if (shells[s] || !strchr(ctl_table.options[i].name, '-'))
                assert_true(str_contains(buf_str(&b), str_c(ctl_table.options[i].name)));
        buf_reset(&b);
    }
    assert_false(cli_completion(&ctl_table, STR("tcsh"), &b));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),      cmocka_unit_test(test_deep_tree),
        cmocka_unit_test(test_no_trees),  cmocka_unit_test(test_top),
        cmocka_unit_test(test_diff),      cmocka_unit_test(test_space),
        cmocka_unit_test(test_rebalance), cmocka_unit_test(test_docs),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
