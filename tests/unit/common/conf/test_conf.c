/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/prng.h"
#include "common/conf/conf_impl.h"

struct http_conf {
    const char *listen, *mode;
    uint64_t body_max, idle_ms, connections;
    bool open, verbose;
    struct conf_list peers;
};
static const struct conf_row http_rows[] = {
    CONF_STR(struct http_conf, listen, "listen", "127.0.0.1:4040", "Address to listen on."),
    CONF_ENUM(struct http_conf, mode, "mode", "fast", "fast|safe|both", "How to go."),
    CONF_BYTES(struct http_conf, body_max, "body_max", "32MiB", "1KiB", "1GiB", "Largest body."),
    CONF_DURATION(struct http_conf, idle_ms, "idle", "90s", "10ms", "1d", "Idle time."),
    CONF_U64(struct http_conf, connections, "connections", "1000", "1", NULL, "Connections."),
    CONF_BOOL(struct http_conf, open, "open", "true", "Whether to open."),
    CONF_BOOL(struct http_conf, verbose, "verbose", "false", "Whether to talk."),
    CONF_LIST(struct http_conf, peers, "peers", "", "Other nodes."),
};
static const struct conf_table http_table = { "http", "HTTP listener", http_rows,
                                              ARRAY_LEN(http_rows), sizeof(struct http_conf) };

struct data_conf {
    const char *dir;
};
static const struct conf_row data_rows[] = {
    CONF_STR(struct data_conf, dir, "dir", NULL, "Folder of the data."),
};
static const struct conf_table data_table = { "data", "Data", data_rows, ARRAY_LEN(data_rows),
                                              sizeof(struct data_conf) };
/* A second table of an existing section, and a table that two roles name. */
struct http_more_conf {
    uint64_t extra;
};
static const struct conf_row http_more_rows[] = {
    CONF_U64(struct http_more_conf, extra, "extra", "7", NULL, "9", "One more."),
};
static const struct conf_table http_more_table = { "http", "HTTP, more", http_more_rows,
                                                   ARRAY_LEN(http_more_rows),
                                                   sizeof(struct http_more_conf) };
static const struct conf_table *const tables[] = { &http_table, &data_table, &http_more_table,
                                                   &data_table };

/* Writes text to a fresh file and returns its name, valid until the next call. */
static char *file_of(const char *text, size_t n)
{
    static char name[64];
    int fd;

    (void)snprintf(name, sizeof(name), "/tmp/embertree-conf-XXXXXX");
    fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    assert_int_equal(close(fd), 0);
    return name;
}

/* Loads `yaml` (NULL: no file) and up to four flags. */
static int load(const char *yaml, const char *const *flags, struct conf **ret, struct err *e)
{
    char *argv[16] = { (char *)(uintptr_t) "test" };
    char *name = NULL;
    int argc = 1, result;

    if (yaml) {
        name = file_of(yaml, strlen(yaml));
        argv[argc++] = (char *)(uintptr_t) "--config";
        argv[argc++] = name;
    }
    for (; flags && *flags; flags++)
        argv[argc++] = (char *)(uintptr_t)*flags;
    result = conf_load(tables, ARRAY_LEN(tables), argc, argv, ret, e);
    if (name)
        (void)unlink(name);
    return result;
}

static void test_defaults(void **state)
{
    struct conf *c = NULL;
    struct err e = { 0 };
    const struct http_conf *h;
    uint64_t n = 0;

    (void)state;
    assert_int_equal(load(NULL, NULL, &c, &e), 0);
    h = conf_get(c, &http_table);
    assert_string_equal(h->listen, "127.0.0.1:4040");
    assert_string_equal(h->mode, "fast");
    assert_int_equal(h->body_max, 32 * MIB);
    assert_int_equal(h->idle_ms, 90000);
    assert_int_equal(h->connections, 1000);
    assert_true(h->open);
    assert_false(h->verbose);
    assert_int_equal(h->peers.len, 0);
    assert_string_equal(((const struct data_conf *)conf_get(c, &data_table))->dir, "");
    assert_int_equal(((const struct http_more_conf *)conf_get(c, &http_more_table))->extra, 7);
    assert_int_equal(conf_action(c), CONF_RUN);
    assert_true(conf_number(c, "http", "body_max", &n) && n == 32 * MIB);
    assert_true(conf_number(c, "http", "extra", &n) && n == 7); /* of another table */
    assert_false(conf_number(c, "http", "nothing", &n));
    assert_false(conf_number(c, "nothing", "body_max", &n));
    conf_free(c);
    conf_free(NULL);
}

static void test_flags_over_file_over_defaults(void **state)
{
    static const char *const flags[] = {
        "--http.listen=[::1]:1=2", "--http.verbose",
        "--no-http.open",          "--http.body-max=3MiB", /* dashes will do */
        "--http.connections",      "5",
        "--http.peers=a, b,c",     NULL
    };
    static const char yaml[] = "# comment\n"
                               "http:\n"
                               "  listen: 0.0.0.0:80\n"
                               "  mode: 'safe'\n"
                               "  body_max: 2 MiB\n"
                               "  extra: 8\n"
                               "  open: yes\n"
                               "  peers: [x, \"y z\"]\n"
                               "data:\n"
                               "  dir: \"\"\n";
    struct conf *c = NULL;
    struct err e = { 0 };
    const struct http_conf *h;

    (void)state;
    assert_int_equal(load(yaml, NULL, &c, &e), 0);
    h = conf_get(c, &http_table);
    assert_string_equal(h->listen, "0.0.0.0:80");
    assert_int_equal(h->peers.len, 2);
    assert_string_equal(h->peers.items[1], "y z");
    conf_free(c);
    assert_int_equal(load(yaml, flags, &c, &e), 0);
    h = conf_get(c, &http_table);
    assert_string_equal(h->listen, "[::1]:1=2");
    assert_string_equal(h->mode, "safe");
    assert_int_equal(h->body_max, 3 * MIB);
    assert_true(h->verbose);
    assert_false(h->open);
    assert_int_equal(h->connections, 5);
    assert_int_equal(h->peers.len, 3);
    assert_string_equal(h->peers.items[1], "b");
    assert_int_equal(((const struct http_more_conf *)conf_get(c, &http_more_table))->extra, 8);
    conf_free(c);
}

static void test_files_that_are_fine(void **state)
{
    static const char *const rows[] = {
        "",
        "# nothing\n",
        "---\n",
        "~\n",
        "{}",
        "http:\n",
        "http: {}\n",
        "http: ~\ndata:\n",
        "%YAML 1.1\n---\nhttp: {listen: a}\n...\n",
        "\xef\xbb\xbfhttp:\n  listen: a\n",
        "http:\n  peers:\n    - a\n    - b\n",
        "http:\n  peers: []\n",
        "http:\n  peers: a,b\n",
        "http:\n  listen: >-\n    folded\n    text\n",
        "\"http\":\n  'listen': a\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct conf *c = NULL;
        struct err e = { 0 };

        if (load(rows[i], NULL, &c, &e))
            fail_msg("row %zu: %s", i, e.text);
        conf_free(c);
    }
}

static void test_files_that_are_refused(void **state)
{
    static const struct {
        const char *yaml, *want;
    } rows[] = {
        { "htpt:\n", "line 1: unknown section \"htpt\"; did you mean \"http\"?" },
        { "zzzzzzzz:\n  a: b\n", "line 1: unknown section \"zzzzzzzz\"" },
        { "http.listen: a\n",
          "line 1: unknown section \"http.listen\"; write \"http:\", and in a line "
          "below it \"  listen:\"" },
        { "http:\n  lisen: a\n",
          "line 2: unknown key \"lisen\" in section \"http\"; did you mean \"listen\"?" },
        { "http:\n  bdoy_max: 1KiB\n", "did you mean \"body_max\"?" },
        { "http:\n  listen: a\n  mode: fast\n  listen: b\n",
          "line 4: \"http.listen\" was already on line 2" },
        { "http:\n  listen: a\ndata:\n  dir: b\nhttp:\n  mode: fast\n",
          "line 5: section \"http\" was already on line 1" },
        { "http:\n  mode: quick\n", "line 2: http.mode is \"quick\": want fast|safe|both" },
        { "http:\n  body_max: 12 potatoes\n", "want a size such as 64MiB" },
        { "http:\n  body_max: 1\n", "http.body_max is 1, least is 1KiB" },
        { "http:\n  idle: 2d\n", "http.idle is 2d, most is 1d" },
        { "http:\n  idle: 5 parsecs\n", "want a duration such as 10s" },
        { "http:\n  connections: -1\n", "want a whole number" },
        { "http:\n  connections: 99999999999999999999\n", "want a whole number" },
        { "http:\n  open: 1\n", "want true or false" },
        { "http:\n  listen:\n", "line 2: http.listen has no value" },
        { "http:\n  listen: null\n", "http.listen has no value" },
        { "http:\n  listen:\n    deep: er\n", "line 3: http.listen wants a value" },
        { "http:\n  listen: [a]\n", "http.listen wants one value, not a list" },
        { "http:\n  peers: [[a]]\n", "a list does not belong here" },
        { "http:\n  peers: [{a: b}]\n", "a mapping does not belong here" },
        { "http:\n  peers: [a, ~]\n", "an item has no value" },
        { "http:\n  peers: [a, \"\"]\n", "want items of text" },
        { "http: text\n", "a section holds" },
        { "http: [a]\n", "a list does not belong here" },
        { "- a\n", "a list does not belong here" },
        { "just text\n", "want sections" },
        { "? [a]\n: b\n", "a list does not belong here" },
        { "? {a: b}\n: b\n", "a mapping does not belong here" },
        { "http: &x\n  listen: a\n", "anchors" },
        { "http:\n  listen: &x a\n", "anchors" },
        { "http:\n  listen: *x\n", "line 2" },
        { "*x : a\n", "line 1" },
        { "http: !!map\n  listen: a\n", "tags are not accepted" },
        { "http:\n  listen: !!str a\n", "tags (!name) are not accepted" },
        { "http:\n  peers: !x [a]\n", "tags are not accepted" },
        { "http:\n  listen: a\n---\nhttp:\n  mode: fast\n", "second document" },
        { "http:\n\tlisten: a\n", "line 2" },
        { "http:\n  listen: \"a\n", "line" },
        { "http:\n  listen: \"a\\0b\"\n", "want text in UTF-8 without NUL" },
        { "http:\n  listen: \xff\xff\n", "line" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct conf *c = NULL;
        struct err e = { 0 };

        assert_int_equal(load(rows[i].yaml, NULL, &c, &e), ERR_CONFIG);
        assert_null(c);
        if (!strstr(e.text, rows[i].want) || strncmp(e.text, "/tmp/embertree-conf-", 20) != 0)
            fail_msg("%s\n  said: %s\n  want: %s", rows[i].yaml, e.text, rows[i].want);
    }
}

static void test_hostile_files_end_quickly(void **state)
{
    struct err e = { 0 };
    struct conf *c = conf_new(tables, ARRAY_LEN(tables));
    char *deep = xmalloc(CONF_FILE_MAX + 1);
    struct buf many;

    (void)state;
    memset(deep, '[', CONF_FILE_MAX + 1);
    assert_int_equal(conf_yaml_apply(c, "f", str_n(deep, CONF_FILE_MAX + 1), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "more than 1048576 bytes"));
    assert_int_equal(conf_yaml_apply(c, "f", str_n(deep, CONF_FILE_MAX), &e), ERR_CONFIG);
    memset(deep, '{', CONF_FILE_MAX);
    assert_int_equal(conf_yaml_apply(c, "f", str_n(deep, CONF_FILE_MAX), &e), ERR_CONFIG);
    xfree(deep);
    buf_init(&many, CONF_FILE_MAX);
    assert_true(buf_addf(&many, "http: {peers: ["));
    for (int i = 0; i <= CONF_LIST_MAX; i++)
        assert_true(buf_addf(&many, "a,"));
    assert_true(buf_addf(&many, "]}"));
    assert_int_equal(conf_yaml_apply(c, "f", buf_str(&many), &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "too many items"));
    buf_deinit(&many);
    conf_free(c);
}

static void test_flags_that_are_refused(void **state)
{
    static const struct {
        const char *flags[4];
        const char *want;
    } rows[] = {
        { { "--http.lisetn=a" }, "unknown flag --http.lisetn; did you mean \"--http.listen\"?" },
        { { "--listen=a" }, "unknown flag --listen; did you mean \"--http.listen\"?" },
        { { "--nothing.of.it=a" }, "unknown flag --nothing.of.it (" },
        { { "--confg=a" }, "did you mean \"--config\"?" },
        { { "--" }, "unexpected argument \"--\"" },
        { { "extra" }, "unexpected argument \"extra\"" },
        { { "-x" }, "unexpected argument" },
        { { "--http.verbose", "yes" }, "unexpected argument \"yes\"" },
        { { "--http.verbose=maybe" }, "flag --http.verbose: http.verbose is \"maybe\"" },
        { { "--http.listen" }, "--http.listen wants a value" },
        { { "--no-http.listen" }, "unknown flag --no-http.listen" },
        { { "--no-http.open=true" }, "--no-http.open takes no value" },
        { { "--help=x" }, "--help takes no value" },
        { { "--config" }, "--config wants" },
        { { "--config=" }, "--config wants" },
        { { "--config", "/nonexistent/x.yaml" }, "/nonexistent/x.yaml" },
        { { "--http.peers=a,,b" }, "want items of text" },
        { { "--http.listen=\xff" }, "want text in UTF-8" },
        { { "--http.\x1b[2J=1" }, "unknown flag --http.?[2J" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct conf *c = NULL;
        struct err e = { 0 };

        assert_int_equal(load(NULL, rows[i].flags, &c, &e), ERR_CONFIG);
        if (!strstr(e.text, rows[i].want))
            fail_msg("%s\n  said: %s\n  want: %s", rows[i].flags[0], e.text, rows[i].want);
    }
}

static void test_actions(void **state)
{
    static const struct {
        const char *flags[4];
        enum conf_action want;
    } rows[] = {
        { { "--help" }, CONF_HELP },
        { { "-h" }, CONF_HELP },
        { { "--version" }, CONF_VERSION },
        { { "--print-config" }, CONF_PRINT },
        { { "--print-config", "--help" }, CONF_HELP },
        { { "--help", "--nonsense=1" }, CONF_HELP }, /* help helps also when the rest is wrong */
        { { "--http.listen", "--help" }, CONF_RUN }, /* a value that looks like a flag */
        { { "--http.listen=--help" }, CONF_RUN },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct conf *c = NULL;
        struct err e = { 0 };

        if (load(NULL, rows[i].flags, &c, &e))
            fail_msg("row %zu: %s", i, e.text);
        assert_int_equal(conf_action(c), rows[i].want);
        conf_free(c);
    }
}

static void test_help_and_reference_name_everything(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, MIB);
    conf_help(tables, ARRAY_LEN(tables), "embertree", &b);
    assert_true(buf_add_c(&b, '\0'));
    assert_non_null(strstr(b.ptr, "Usage: embertree "));
    assert_non_null(strstr(b.ptr, "\nHTTP listener\n"));
    assert_non_null(strstr(b.ptr, "  --http.body_max <size>\n      Largest body. (default 32MiB, "
                                  "1KiB to 1GiB)\n"));
    assert_non_null(strstr(b.ptr, "  --[no-]http.open\n"));
    assert_non_null(strstr(b.ptr, "--http.mode <fast|safe|both>"));
    assert_non_null(strstr(b.ptr, "Connections. (default 1000, at least 1)"));
    assert_non_null(strstr(b.ptr, "One more. (default 7, at most 9)"));
    assert_null(strstr(strstr(b.ptr, "--data.dir") + 1, "--data.dir")); /* named twice, said once */
    buf_reset(&b);
    conf_reference(tables, ARRAY_LEN(tables), &b);
    assert_true(buf_add_c(&b, '\0'));
    assert_non_null(
        strstr(b.ptr, "| `http.mode` | fast\\|safe\\|both | `fast` |  |  | How to go. |"));
    assert_non_null(strstr(b.ptr, "| `data.dir` | text |  |  |  | Folder of the data. |"));
    buf_deinit(&b);
}

static void same(const struct conf *a, const struct conf *b)
{
    const struct http_conf *x = conf_get(a, &http_table), *y = conf_get(b, &http_table);

    assert_string_equal(x->listen, y->listen);
    assert_string_equal(x->mode, y->mode);
    assert_int_equal(x->body_max, y->body_max);
    assert_int_equal(x->idle_ms, y->idle_ms);
    assert_int_equal(x->connections, y->connections);
    assert_int_equal(x->open, y->open);
    assert_int_equal(x->verbose, y->verbose);
    assert_int_equal(x->peers.len, y->peers.len);
    for (size_t i = 0; i < x->peers.len; i++)
        assert_string_equal(x->peers.items[i], y->peers.items[i]);
}

/* Random text of 1 to 12 code points, among them those that YAML treats specially. */
static size_t random_text(struct prng *p, char *out)
{
    static const char *const parts[] = {
        "a",
        "\"",
        "\\",
        "\n",
        "\t",
        ":",
        "- ",
        "#",
        " ",
        "\r",
        "{",
        "\x01",
        "\x7f",
        "\xc3\xa9",
        "~",
        "\xe2\x80\xa8",
        "'",
        "\xef\xbb\xbf",
        "%",
        "&",
        "*",
        "!",
        "\xf0\x9f\x94\xa5",
        "\xc2\x85",
    };
    size_t n = 1 + prng_below(p, 12), len = 0;

    for (size_t i = 0; i < n; i++) {
        const char *part = parts[prng_below(p, ARRAY_LEN(parts))];

        memcpy(out + len, part, strlen(part));
        len += strlen(part);
    }
    out[len] = '\0';
    return len;
}

static void test_printed_configuration_loads_to_the_same(void **state)
{
    struct prng p;
    uint64_t seed = 42;

    (void)state;
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 500; round++) {
        struct conf *a = conf_new(tables, ARRAY_LEN(tables));
        struct conf *b = conf_new(tables, ARRAY_LEN(tables));
        struct http_conf *h = (void *)a->structs[0];
        char text[3][64];
        const char *peers[2] = { text[1], text[2] };
        struct err e = { 0 };
        struct buf out;

        for (int i = 0; i < 3; i++)
            (void)random_text(&p, text[i]);
        h->listen = text[0];
        h->mode = prng_chance(&p, 0.5) ? "safe" : "both";
        h->body_max = KIB + prng_below(&p, 3) * prng_below(&p, MIB);
        h->idle_ms = 10 + prng_below(&p, 2) * 990 + prng_below(&p, 3) * 60000;
        h->connections = 1 + prng_below(&p, 5);
        h->open = prng_chance(&p, 0.5);
        h->peers = (struct conf_list){ peers, prng_below(&p, 3) };
        buf_init(&out, MIB);
        conf_print(a, &out);
        if (conf_yaml_apply(b, "printed", buf_str(&out), &e))
            fail_msg("%s\n%.*s", e.text, STR_ARG(buf_str(&out)));
        same(a, b);
        buf_deinit(&out);
        conf_free(a);
        conf_free(b);
    }
}

struct said {
    size_t n;
    char text[8][ERR_TEXT_MAX];
};

static void on_wrong(void *cookie, const struct err *e)
{
    struct said *s = cookie;

    assert_true(s->n < ARRAY_LEN(s->text));
    (void)snprintf(s->text[s->n++], ERR_TEXT_MAX, "%s", e->text);
}

/* All that is wrong is said, in order, and what is right counts. */
static void test_all_that_is_wrong(void **state)
{
    static const char yaml[] = "nosuch: {listen: [a], deep: 1}\n"
                               "http: {mode: slow, nosuch: [1, 2], connections: 7, peers: [a, b],\n"
                               "       idle: , body_max: x}\n";
    static const char *const want[] = { "unknown section \"nosuch\"",
                                        "http.mode is \"slow\"",
                                        "unknown key \"nosuch\"",
                                        "http.idle has no value",
                                        "http.body_max is \"x\"",
                                        "unknown flag --what",
                                        "http.extra is 10" };
    char config[128], *name = file_of(yaml, sizeof(yaml) - 1);
    char *argv[] = { (char *)(uintptr_t) "test", config, (char *)(uintptr_t) "--what=1",
                     (char *)(uintptr_t) "--http.extra=10", (char *)(uintptr_t) "--data.dir=here" };
    struct said s = { 0 };
    struct conf_wrong wrong = { .fn = on_wrong, .cookie = &s };
    struct conf *c;

    (void)state;
    (void)snprintf(config, sizeof(config), "--config=%s", name);
    assert_int_equal(conf_load_all(tables, ARRAY_LEN(tables), 5, argv, &wrong, &c), 0);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(wrong.said, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        if (!strstr(s.text[i], want[i]))
            fail_msg("\"%s\" is not in \"%s\"", want[i], s.text[i]);
    const struct http_conf *http = conf_get(c, &http_table);
    assert_int_equal(http->connections, 7);
    assert_int_equal(http->peers.len, 2);
    assert_string_equal(http->mode, "fast");
    assert_string_equal(((const struct data_conf *)conf_get(c, &data_table))->dir, "here");
    conf_free(c);
}

static void test_nearest(void **state)
{
    static const char *const names[] = { "listen", "body_max", "idle", "a" };

    (void)state;
    assert_string_equal(conf_nearest(STR("lsiten"), names, 4), "listen");
    assert_string_equal(conf_nearest(STR("body-max"), names, 4), "body_max");
    assert_string_equal(conf_nearest(STR("idel"), names, 4), "idle");
    assert_null(conf_nearest(STR("xyz"), names, 4));
    assert_null(conf_nearest(STR("b"), names, 4));
    assert_null(conf_nearest(STR(""), names, 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_flags_over_file_over_defaults),
        cmocka_unit_test(test_files_that_are_fine),
        cmocka_unit_test(test_files_that_are_refused),
        cmocka_unit_test(test_hostile_files_end_quickly),
        cmocka_unit_test(test_flags_that_are_refused),
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_help_and_reference_name_everything),
        cmocka_unit_test(test_printed_configuration_loads_to_the_same),
        cmocka_unit_test(test_all_that_is_wrong),
        cmocka_unit_test(test_nearest),
    };

    return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
