/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/rpc/rpc_addr.h"
#include "common/rpc/rpc_table.h"

enum { MAX_CALLS = 50 };

/* Random adds, ends and expiries beside a plain array. */
static void beside_a_plain_array(void **state)
{
    struct rpc_out calls[MAX_CALLS], *live[MAX_CALLS] = { 0 }, extra;
    struct rpc_table *t = rpc_table_new(MAX_CALLS);
    uint64_t seed = 3, last = 0;
    size_t n = 0;
    struct prng p;

    (void)state;
    prng_init(&p, seed);
    for (int step = 0; step < 100000; step++) {
        size_t i = prng_below(&p, MAX_CALLS);
        uint64_t least = UINT64_MAX;

        if (live[i] && prng_chance(&p, 0.6)) {
            uint64_t id = live[i]->id;

            assert_ptr_equal(rpc_table_get(t, id), live[i]);
            rpc_table_del(t, live[i]);
            assert_null(rpc_table_get(t, id));
            live[i] = NULL;
            n--;
        } else if (!live[i]) {
            calls[i] = (struct rpc_out){ .deadline_ns = prng_below(&p, 1000) };
            assert_true(rpc_table_add(t, &calls[i]));
            assert_true(calls[i].id > last); /* grows, so is never used again */
            last = calls[i].id | (RPC_PENDING_MAX - 1);
            live[i] = &calls[i];
            n++;
        }
        if (n == MAX_CALLS) {
            assert_false(rpc_table_add(t, &extra));
            assert_true(extra.id > last && !rpc_table_get(t, extra.id));
            last = extra.id;
        }
        for (i = 0; i < MAX_CALLS; i++)
            least = live[i] ? MIN(least, live[i]->deadline_ns) : least;
        assert_int_equal(rpc_table_len(t), n);
        assert_int_equal(rpc_table_first(t) != NULL, n > 0);
        if (n && rpc_table_first(t)->deadline_ns != least)
            fail_msg("seed %ju, step %d", (uintmax_t)seed, step);
    }
    for (size_t i = 0; i < MAX_CALLS; i++) {
        if (live[i])
            rpc_table_del(t, live[i]);
    }
    assert_null(rpc_table_get(t, 0));
    assert_null(rpc_table_get(t, UINT64_MAX));
    rpc_table_free(t);
}

static void addresses(void **state)
{
    static const struct {
        const char *addr;
        int scheme; /* -1: refused */
    } rows[] = {
        { "tcp://10.0.0.7:9095", RPC_SCHEME_TCP },
        { "tcp://ingester-0.embertree.svc:9095", RPC_SCHEME_TCP },
        { "tcp://[::1]:9095", RPC_SCHEME_TCP },
        { "tcp://*:9095", RPC_SCHEME_TCP },
        { "ipc:///run/embertree/a", RPC_SCHEME_IPC },
        { "inproc://ingester", RPC_SCHEME_INPROC },
        { "mem://n0", RPC_SCHEME_MEM },
        { "", -1 },
        { "10.0.0.7:9095", -1 },
        { "http://10.0.0.7:9095", -1 },
        { "tcp://10.0.0.7", -1 },
        { "tcp://:9095", -1 },
        { "tcp://10.0.0.7:0", -1 },
        { "tcp://10.0.0.7:65536", -1 },
        { "tcp://10.0.0.7:9095x", -1 },
        { "tcp://::1:9095", -1 },
        { "inproc://", -1 },
        { "inproc://a b", -1 },
        { "inproc://\xc3\xa4", -1 },
        { "ipc:///12345678901234567890123456789012345678901234567890123456789012345678901234567890"
          "123456789012345678901234567",
          -1 },
        { "inproc://1234567890123456789012345678901234567890123456789012345678901234567890123456789"
          "0123456789012345678901234567890123456789",
          -1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum rpc_scheme got;
        struct err e;
        int code = rpc_addr_parse(str_c(rows[i].addr), &got, &e);

        if (code ? rows[i].scheme >= 0 || code != ERR_CONFIG : (int)got != rows[i].scheme)
            fail_msg("%s: %s", rows[i].addr, code ? e.text : "accepted");
    }
    assert_true(rpc_addr_wildcard(STR("tcp://*:1")) && rpc_addr_wildcard(STR("tcp://0.0.0.0:1")));
    assert_true(rpc_addr_wildcard(STR("tcp://[::]:1")));
    assert_false(rpc_addr_wildcard(STR("tcp://127.0.0.1:1")) || rpc_addr_wildcard(STR("ipc://*")));
}

static void addresses_for_callers(void **state)
{
    char got[RPC_ADDR_MAX + 1];
    enum rpc_scheme scheme;
    struct err e;

    (void)state;
    assert_int_equal(rpc_addr_anonymous(STR("tcp://127.0.0.1:9095"), 1, got, &e), 0);
    assert_true(str_starts(str_c(got), STR("tcp://127.0.0.1:")));
    assert_int_equal(rpc_addr_parse(str_c(got), &scheme, &e), 0);
    assert_int_equal(rpc_addr_anonymous(STR("tcp://localhost:9095"), 1, got, &e), 0);
    assert_true(str_starts(str_c(got), STR("tcp://127.0.0.1:")));
    assert_int_equal(rpc_addr_anonymous(STR("tcp://ingester-0:9095"), 1, got, &e), ERR_CONFIG);
    assert_true(str_contains(str_c(e.text), STR("listen address of its own")));
    assert_int_equal(rpc_addr_anonymous(STR("ipc:///run/x/sock"), 0xab, got, &e), 0);
    assert_string_equal(got, "ipc:///run/x/caller-00000000000000ab");
    assert_int_equal(rpc_addr_anonymous(STR("inproc://ingester"), 0xab, got, &e), 0);
    assert_string_equal(got, "inproc://caller-00000000000000ab");
    assert_int_equal(rpc_addr_anonymous(STR("ipc:///12345678901234567890123456789012345678901234"
                                            "567890123456789012345678901234567890123456789/s"),
                                        1, got, &e),
                     ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_a_plain_array),
        cmocka_unit_test(addresses),
        cmocka_unit_test(addresses_for_callers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
