/* SPDX-License-Identifier: Apache-2.0
 *
 * What the in-memory store can do beyond kv.h: power cuts, failing writes, collecting versions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/lib/store/kv_fixture.h"

static struct err e;

static void test_mem_power_cut(void **state)
{
    (void)state;
    for (uint64_t keep = 0; keep <= 4; keep++) {
        kv_batch_clear(kvt.b);
        kv_batch_del_range(kvt.b, KV_RAW, STR_NULL, STR("\xff"));
        kvt_put(KV_RAW, "a", "synced");
        kvt_put(KV_RAW, "b", "synced");
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
        kv_batch_clear(kvt.b);
        assert_int_equal(kv_mem_unsynced(kvt.k), 0);
        kvt_put(KV_RAW, "a", "1");
        kvt_put(KV_RAW, "c", "1");
        kvt_commit();
        kv_batch_del_range(kvt.b, KV_RAW, STR("a"), STR("z"));
        kvt_commit();
        kvt_put(KV_RAW, "b", "3");
        kvt_commit();
        assert_int_equal(kv_mem_unsynced(kvt.k), 3);
        kvt_want_range(NULL, KV_RAW, NULL, NULL, "b=3");
        kvt.k = kv_mem_reopen(kvt.k, KV_MEM_POWER, keep);
        static const char *const after[] = { "a=synced b=synced", "a=1 b=synced c=1", "", "b=3",
                                             "b=3" };
        kvt_want_range(NULL, KV_RAW, NULL, NULL, after[keep]);
        kvt.k = kv_mem_reopen(kvt.k, KV_MEM_POWER, 0); /* what was recovered is durable */
        kvt_want_range(NULL, KV_RAW, NULL, NULL, after[keep]);
    }
}

static void test_mem_kill_loses_nothing(void **state)
{
    (void)state;
    kvt_put(KV_RAW, "a", "1");
    kvt_commit();
    kvt.k = kv_mem_reopen(kvt.k, KV_MEM_KILL, 0);
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "a=1");
}

static void test_mem_failing_writes(void **state)
{
    static const struct {
        int code;
        bool doubt;
        enum kv_mem_crash how;
        uint64_t keep;
        const char *after;
    } rows[] = {
        { ERR_IO, false, KV_MEM_KILL, 0, "a=1 b=2" },
        { ERR_NO_SPACE, false, KV_MEM_POWER, 9, "a=1 b=2" },
        { ERR_IO, false, KV_MEM_POWER, 0, "a=1" },
        { ERR_IO, true, KV_MEM_KILL, 0, "a=1 b=2 c=3" },
        { ERR_IO, true, KV_MEM_POWER, 2, "a=1 b=2 c=3" },
        { ERR_IO, true, KV_MEM_POWER, 1, "a=1 b=2" },
        { ERR_IO, true, KV_MEM_POWER, 0, "a=1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        kv_batch_clear(kvt.b);
        kv_batch_del_range(kvt.b, KV_RAW, STR_NULL, STR("\xff"));
        kvt_put(KV_RAW, "a", "1");
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
        kv_batch_clear(kvt.b);
        kvt.faults.fail_in = 2;
        kvt.faults.fail_code = rows[i].code;
        kvt.faults.fail_in_doubt = rows[i].doubt;
        kvt_put(KV_RAW, "b", "2");
        kvt_commit();
        kvt_put(KV_RAW, "c", "3");
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), rows[i].code);
        kvt_want_range(NULL, KV_RAW, NULL, NULL, "a=1 b=2"); /* never visible before a restart */
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), rows[i].code);
        assert_int_equal(kv_flush(kvt.k, &e), rows[i].code);
        assert_int_equal(kv_mem_unsynced(kvt.k), rows[i].doubt ? 2 : 1);
        kvt.k = kv_mem_reopen(kvt.k, rows[i].how, rows[i].keep);
        kvt_want_range(NULL, KV_RAW, NULL, NULL, rows[i].after);
    }
    kvt.faults.fail_gets_in = 2;
    assert_int_equal(kv_get(kvt.k, NULL, KV_RAW, STR("a"), &kvt.out, &e), 0);
    assert_int_equal(kv_get(kvt.k, NULL, KV_RAW, STR("a"), &kvt.out, &e), ERR_IO);
    assert_int_equal(kv_get(kvt.k, NULL, KV_RAW, STR("a"), &kvt.out, &e), 0);
}

/* Memory of dead versions comes back. */
static void test_mem_collects(void **state)
{
    struct kv_stats s;

    (void)state;
    for (int round = 0; round < 500; round++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", round);
        kvt_put(KV_RAW, "same", "value");
        kvt_put(KV_RAW, key, "once");
        assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
        kv_batch_clear(kvt.b);
        kv_batch_del(kvt.b, KV_RAW, str_c(key));
    }
    assert_int_equal(kv_write(kvt.k, kvt.b, true, &e), 0);
    assert_int_equal(kv_flush(kvt.k, &e), 0);
    kv_stats(kvt.k, &s);
    assert_int_equal(s.keys_estimate[KV_RAW], 1);
    assert_true(s.memtable_bytes < 500);
    kvt_want_range(NULL, KV_RAW, NULL, NULL, "same=value");
    assert_int_equal(kvt.faults.writes, 501);
    assert_int_equal(kvt.faults.syncs, 501);
}

#define MEM(f) cmocka_unit_test_setup_teardown(f, kvt_setup_mem, kvt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEM(test_mem_power_cut),
        MEM(test_mem_kill_loses_nothing),
        MEM(test_mem_failing_writes),
        MEM(test_mem_collects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
