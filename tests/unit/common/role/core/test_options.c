/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/role/core/options.h"

static void test_loopback(void **state)
{
    static const struct {
        const char *addr;
        bool loopback;
    } rows[] = {
        { "127.0.0.1:4040", true },
        { "127.8.9.10:1", true },
        { "localhost:4040", true },
        { "LocalHost:0", true },
        { "[::1]:4040", true },
        { "tcp://127.0.0.1:7000", true },
        { "tcp://[::1]:7000", true },
        { "inproc://ingester", true },
        { "ipc:///run/embertree", true },
        { "0.0.0.0:4040", false },
        { "[::]:4040", false },
        { ":4040", false },
        { "10.0.0.1:4040", false },
        { "tcp://0.0.0.0:7000", false },
        { "127.evil.example:80", false },
        { "127.0.0.1.evil.example:80", false },
        { "localhost.evil.example:80", false },
        { "128.0.0.1:1", false },
        { "127.1:80", false },
        { "", false },
        { "[::1", false },
        { "tcp://", false },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (addr_is_loopback(str_c(rows[i].addr)) != rows[i].loopback)
            fail_msg("%s", rows[i].addr);
    }
}

static void test_memory(void **state)
{
    (void)state;
    /* configured wins; then 80 % of a cgroup that is smaller than the machine; then half */
    assert_int_equal(options_memory_from(GIB, 2 * GIB, 8 * GIB), GIB);
    assert_int_equal(options_memory_from(0, 10 * GIB, 80 * GIB), 8 * GIB);
    assert_int_equal(options_memory_from(0, 0, 8 * GIB), 4 * GIB);
    assert_int_equal(options_memory_from(0, 90 * GIB, 8 * GIB), 4 * GIB);
    assert_int_equal(options_memory_from(0, 0, 0), 64 * MIB);
    assert_int_equal(options_memory_from(1, 0, 8 * GIB), 64 * MIB);
    assert_true(options_memory_limit(0) >= 64 * MIB);
    assert_int_equal(options_memory_limit(123 * MIB), 123 * MIB);
}

static void test_check(void **state)
{
    static const char *const inproc[] = { "inproc://ingester" };
    static const char *const two[] = { "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001" };
    static const char *const twice[] = { "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000" };
    static const struct {
        const char *listen;
        bool open, all_in_one;
        struct conf_list ingesters;
        uint64_t shards, dead_ms;
        const char *want; /* part of the error; NULL: fine */
        const char *client_ca;
    } rows[] = {
        { "127.0.0.1:4040", false, true, { inproc, 1 }, 1, 3000, NULL, NULL },
        { "127.0.0.1:4040", false, false, { two, 2 }, 2, 3000, NULL, NULL },
        { "0.0.0.0:4040", true, true, { inproc, 1 }, 1, 3000, NULL, NULL },
        { "0.0.0.0:4040", false, true, { inproc, 1 }, 1, 3000, "--http.insecure-open", NULL },
        { "0.0.0.0:4040", false, true, { inproc, 1 }, 1, 3000, NULL, "ca.pem" },
        { "127.0.0.1:4040", false, false, { inproc, 1 }, 1, 3000, "tcp://host:port", NULL },
        { "127.0.0.1:4040", false, false, { two, 2 }, 1, 3000, "at least one shard", NULL },
        { "127.0.0.1:4040", false, false, { twice, 2 }, 2, 3000, "twice", NULL },
        { "127.0.0.1:4040", false, true, { NULL, 0 }, 1, 3000, "at least one ingester", NULL },
        { "127.0.0.1:4040", false, true, { inproc, 1 }, 1, 999, "two heartbeats", NULL },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct common_conf http = { .listen = rows[i].listen,
                                    .insecure_open = rows[i].open,
                                    .tls_client_ca = rows[i].client_ca ? rows[i].client_ca : "" };
        struct cluster_conf cluster = { .coordination = "none",
                                        .ingesters = rows[i].ingesters,
                                        .shards = rows[i].shards,
                                        .heartbeat_ms = 500,
                                        .dead_ms = rows[i].dead_ms };
        struct err e = { 0 };
        int code = options_check(&http, &cluster, rows[i].all_in_one, &e);

        assert_int_equal(code, rows[i].want ? ERR_CONFIG : 0);
        if (rows[i].want && !strstr(e.text, rows[i].want))
            fail_msg("row %zu: %s", i, e.text);
    }
}

/* Every default of the common tables is inside its own bounds, and gives a process that starts. */
static void test_defaults_load(void **state)
{
    static const struct role *const none[] = { NULL };
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(none, tables);
    char *argv[] = { (char *)(uintptr_t) "embertree", NULL };
    struct conf *c = NULL;
    struct err e = { 0 };
    const struct common_conf *http;

    (void)state;
    assert_int_equal(conf_load(tables, n, 1, argv, &c, &e), 0);
    http = conf_get(c, &http_options);
    assert_string_equal(http->listen, "127.0.0.1:4040");
    assert_int_equal(http->body_bytes_max, 32 * MIB);
    assert_int_equal(options_check(http, conf_get(c, &cluster_options), true, &e), 0);
    conf_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_defaults_load),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
