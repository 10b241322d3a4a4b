/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's database to another replica as files: two nodes with RocksDB, over rpc, with real
 * threads. The copy breaks off in many ways and continues; nodes of the previous version get, and
 * send, rows; without room it waits. In the end the rows are the same.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/repl/copy.h"
#include "common/repl/copy_files.h"
#include "common/repl/copy_in.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_bootstrap.h"
#include "common/sys/fs.h"
#include "common/sys/thread.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/repl/copy_bed.h"
#include "tests/lib/store/kv_dir.h"

static void test_learn(void **state)
{
    (void)state;
    copy_bed_begin(0);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_writes(&copy_bed.m[0], 100000, 100);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_node_up(&copy_bed.m[2]);
    copy_bed_learn(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[2]); /* at once, of the same copy */
    copy_bed_writes(&copy_bed.m[0], 200000, 300);
    copy_bed_same_rows(&copy_bed.m[1]);
    copy_bed_same_rows(&copy_bed.m[2]);
    assert_int_equal(copy_bed_copies(), 2);
    assert_int_equal(copy_bed.m[1].opened, 2);
    copy_bed_writes(&copy_bed.m[0], 300000, 50); /* the log continues behind it */
    copy_bed_same_rows(&copy_bed.m[1]);
    copy_bed_node_down(&copy_bed.m[1]); /* and is what a restart finds */
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_writes(&copy_bed.m[0], 400000, 5);
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 2);
    copy_bed_end();
}

/* Both ends are stopped in the middle; files that have arrived are not fetched again. */
static void test_restarts(void **state)
{
    uint64_t total;

    (void)state;
    copy_bed_begin(6 * MIB);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[1]);
    for (int i = 0; i < 3; i++) {
        copy_bed.from = (uint64_t)(i + 1) * 2 * MIB;
        assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_some_taken, NULL, COPY_BED_LIMIT_MS));
        struct copy_member *m = &copy_bed.m[(i + 1) % 2];
        struct repl_copy_state st = repl_node_copy(copy_bed.m[1].node);
        assert_non_null(st.from);
        assert_true(st.bytes > 0 && st.bytes < st.total);
        copy_bed_node_down(m);
        copy_bed_node_up(m);
    }
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 1);
    total = (uint64_t)COPY_BED_ROWS * COPY_BED_VALUE;
    printf("%" PRIu64 " bytes were copy_bed_taken of some %" PRIu64 "\n", copy_bed_taken(), total);
    assert_true(copy_bed_taken() < total + total / 2);
    copy_bed_end();
}

/* Whatever fails at the receiver: the next try comes to an end. */
static void test_faults(void **state)
{
    static const int codes[] = { EIO, ENOSPC };

    (void)state;
    copy_bed_begin(0);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed.m[1].fail_at = 3;
    copy_bed.m[1].fail_code = ENOSPC;
    copy_bed_learn(&copy_bed.m[1]);
    copy_bed_same_rows(&copy_bed.m[1]);
    for (int i = 0; i < 4; i++) { /* its disk is lost, and it learns again */
        char rm[900];
        copy_bed_node_down(&copy_bed.m[1]);
        (void)snprintf(rm, sizeof(rm), "rm -rf '%s' '%s'", copy_bed.m[1].db, copy_bed.m[1].log);
        assert_int_equal(system(rm), 0);
        copy_bed.m[1].calls = 0;
        copy_bed.m[1].fail_at = 4 + i * 5;
        copy_bed.m[1].fail_code = codes[i % 2];
        copy_bed_node_up(&copy_bed.m[1]);
        copy_bed_writes(&copy_bed.m[0], 100000 + (uint64_t)i * 1000, 10);
        copy_bed_same_rows(&copy_bed.m[1]);
        assert_true(copy_bed.m[1].calls >= copy_bed.m[1].fail_at);
    }
    copy_bed_end();
}

static void unknown(void *cookie, struct rpc_call *call, struct str payload)
{
    struct err e;

    (void)cookie, (void)payload;
    (void)err_set(&e, ERR_UNIMPLEMENTED, "of the version before");
    rpc_fail(call, &e);
}

static bool rows_come(void *cookie)
{
    const struct copy_member *m = cookie;
    struct repl_copy_state st = repl_node_copy(m->node);

    return st.from && st.rows && st.bytes > 0 && st.total == 0;
}

/* A build without file copies is sent rows, and sends them; so is a node without a folder. */
static void test_old_versions(void **state)
{
    (void)state;
    copy_bed_begin(0);
    copy_bed_node_up(&copy_bed.m[0]);
    rpc_serve(copy_bed.m[1].rpc, RPC_REPL_COPY, unknown, NULL);
    copy_bed.m[2].no_files = true;
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_node_up(&copy_bed.m[2]);
    copy_bed_learn(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[2]);
    assert_true(rpc_bed_run(&copy_bed.bed, rows_come, &copy_bed.m[2], COPY_BED_LIMIT_MS));
    copy_bed_writes(&copy_bed.m[0], 100000, 20);
    copy_bed_same_rows(&copy_bed.m[1]);
    copy_bed_same_rows(&copy_bed.m[2]);
    assert_null(repl_node_copy(copy_bed.m[2].node).from);
    assert_int_equal(copy_bed_copies() + copy_bed_taken(), 0);
    assert_int_equal(copy_bed.m[1].opened + copy_bed.m[2].opened, 2);
    copy_bed_end();
    copy_bed_begin(0); /* the leader is the old one */
    copy_bed.m[0].no_files = true;
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[1]);
    copy_bed_writes(&copy_bed.m[0], 100000, 20);
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies() + copy_bed_taken(), 0);
    copy_bed_end();
}

static bool says_why(void *cookie)
{
    const struct copy_member *m = cookie;
    struct repl_copy_state st = repl_node_copy(m->node);

    return st.why && strstr(st.why, "free some");
}

static void test_room(void **state)
{
    (void)state;
    copy_bed_begin(0);
    copy_bed.m[1].room = 3 * MIB;
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[1]);
    assert_true(rpc_bed_run(&copy_bed.bed, says_why, &copy_bed.m[1], COPY_BED_LIMIT_MS));
    copy_bed_writes(&copy_bed.m[0], 100000, 20);
    assert_false(copy_bed_caught_up(&copy_bed.m[1]));
    assert_int_equal(copy_bed_taken(), 0);
    copy_bed.m[1].room = UINT64_MAX;
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 1);
    assert_null(repl_node_copy(copy_bed.m[1].node).why);
    /* The sending node has no room for a copy. */
    copy_bed.m[0].room = 0;
    copy_bed_node_up(&copy_bed.m[2]);
    copy_bed_learn(&copy_bed.m[2]);
    rpc_bed_sleep(&copy_bed.bed, 500);
    copy_bed.m[0].room = UINT64_MAX;
    copy_bed_same_rows(&copy_bed.m[2]);
    copy_bed_end();
}

static bool is_held(void *cookie)
{
    return __atomic_load_n(&((struct copy_member *)cookie)->held, __ATOMIC_ACQUIRE);
}

static int outs(const struct copy_member *m)
{
    DIR *d = opendir(m->base);
    int n = 0;

    assert_non_null(d);
    for (struct dirent *one; (one = readdir(d));)
        n += !strncmp(one->d_name, "out-", 4);
    (void)closedir(d);
    return n;
}

/* A copy is of no use any more while its links are made: it goes behind that, and not before. */
static void test_drop_making(void **state)
{
    (void)state;
    copy_bed_begin(0);
    copy_bed.m[0].hold = true;
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[1]);
    assert_true(rpc_bed_run(&copy_bed.bed, is_held, &copy_bed.m[0], COPY_BED_LIMIT_MS));
    repl_copy_drop(copy_bed.m[0].node);
    rpc_bed_sleep(&copy_bed.bed, 200);
    __atomic_store_n(&copy_bed.m[0].hold, false, __ATOMIC_RELEASE);
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 1);
    assert_int_equal(outs(&copy_bed.m[0]), 1);
    copy_bed_end();
}

/* Or while questions about it wait for their share of the rate: they get an answer, and the
 * receiver asks for another copy. */
static void test_drop_waiting(void **state)
{
    (void)state;
    copy_bed_begin(3 * MIB);
    copy_bed_node_up(&copy_bed.m[0]);
    copy_bed_node_up(&copy_bed.m[1]);
    copy_bed_learn(&copy_bed.m[1]);
    copy_bed.from = MIB;
    assert_true(rpc_bed_run(&copy_bed.bed, copy_bed_some_taken, NULL, COPY_BED_LIMIT_MS));
    repl_copy_drop(copy_bed.m[0].node);
    copy_bed_same_rows(&copy_bed.m[1]);
    assert_int_equal(copy_bed_copies(), 1);
    assert_int_equal(outs(&copy_bed.m[0]), 1);
    copy_bed_end();
}

/* Where a database was thrown away, copies of it are not given any more after a restart. */
static void test_drop_lost(void **state)
{
    char name[64], dir[500];
    struct kv *kv;
    struct err e;

    (void)state;
    copy_bed_begin(0);
    copy_out_name(1, 1, 1, name);
    (void)snprintf(dir, sizeof(dir), "%s/%s", copy_bed.m[0].base, name);
    assert_int_equal(fs_real()->mkdir_all(fs_real(), dir, &e), 0);
    copy_bed_node_up(&copy_bed.m[0]);
    assert_int_equal(outs(&copy_bed.m[0]), 1);
    copy_bed_node_down(&copy_bed.m[0]);
    kv = kv_dir_open(copy_bed.m[0].db);
    assert_int_equal(apply_empty(kv, &e), 0);
    kv_close(kv);
    copy_bed_node_up(&copy_bed.m[0]);
    assert_int_equal(outs(&copy_bed.m[0]), 0);
    copy_bed_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learn),        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_faults),       cmocka_unit_test(test_old_versions),
        cmocka_unit_test(test_room),         cmocka_unit_test(test_drop_making),
        cmocka_unit_test(test_drop_waiting), cmocka_unit_test(test_drop_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
