/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's database to another replica as files: two nodes with RocksDB, over rpc, with real
 * threads. It breaks off in many ways and goes on; nodes of the version before get, and send, rows;
 * without room it waits. In the end the rows are the same.
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
#include "common/repl/repl_adopt.h"
#include "common/sys/fs.h"
#include "common/sys/thread.h"
#include "tests/lib/kv_dir.h"
#include "tests/lib/rpc_bed.h"

enum { NODES = 3, LIMIT_MS = 240000, SHARD = 7, ROWS = 1500, VALUE = 8192 };

struct member {
    int number;
    char name[4], addr[128], db[400], log[400], base[400];
    struct rpc_node *rpc;
    struct repl_hub *hub;
    struct repl_node *node; /* NULL: stopped */
    bool gone, reopen, no_files;
    bool hold, held; /* the making of a copy */
    int opened, calls, fail_at, fail_code;
    uint64_t room;
};
static struct {
    struct rpc_bed bed;
    char *dir;
    struct member m[NODES];
    struct repl_record rec;
    bool posted, done;
    uint64_t from, upto, rate;
    struct err err;
} t;

static void node_up(struct member *m);

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return t.m[name[1] - '0'].addr;
}

static void tell(void *cookie)
{
    (void)cookie;
    t.posted = false;
    for (int i = 0; i < NODES; i++)
        if (t.m[i].node)
            repl_node_record(t.m[i].node, &t.rec);
}

static void tell_soon(void)
{
    if (!t.posted)
        loop_post(t.bed.loop, tell, NULL);
    t.posted = true;
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    struct repl_record next;

    (void)cookie;
    if (t.rec.term != term || t.rec.established)
        return;
    record_established(&t.rec, &next);
    t.rec = next;
    tell_soon();
}

static void on_failed(void *cookie, const struct err *why)
{
    (void)cookie;
    fail_msg("%s", why->text);
}

static void on_reopened(void *cookie)
{
    node_up(cookie);
}

static void stop_it(void *cookie)
{
    struct member *m = cookie;

    if (!m->node)
        return;
    repl_node_stop(m->node, on_reopened, m);
    m->node = NULL;
}

static void on_copied(void *cookie)
{
    loop_post(t.bed.loop, stop_it, cookie);
}

static uint64_t on_room(void *cookie)
{
    return ((const struct member *)cookie)->room;
}

static int on_call(void *cookie, const char *what, const char *path)
{
    struct member *m = cookie;

    (void)path;
    if (!strcmp(what, "link"))
        while (__atomic_load_n(&m->hold, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&m->held, true, __ATOMIC_RELEASE);
            (void)usleep(1000);
        }
    return __atomic_add_fetch(&m->calls, 1, __ATOMIC_RELAXED) ==
                   __atomic_load_n(&m->fail_at, __ATOMIC_RELAXED)
               ? m->fail_code
               : 0;
}

static struct copy_faults faults[NODES];

static void node_up(struct member *m)
{
    bool installed;
    struct err e;

    if (copy_install(m->db, m->base, NULL, &installed, &e))
        fail_msg("%s", e.text);
    faults[m->number] = (struct copy_faults){ .fails = on_call, .cookie = m };
    struct repl_node_opts o = { .hub = m->hub,
                                .shard = SHARD,
                                .self = m->name,
                                .dir = m->log,
                                .db = kv_dir_open(m->db),
                                .role = on_role,
                                .establish = on_establish,
                                .failed = on_failed,
                                .log_bytes_max = 200000,
                                .segment_bytes = 50000,
                                .copy_dir = m->no_files ? NULL : m->base,
                                .copied = on_copied,
                                .room = on_room,
                                .copy_faults = &faults[m->number],
                                .cookie = m };
    if (repl_node_new(&o, &m->node, &e))
        fail_msg("%s", e.text);
    m->opened++;
    repl_node_record(m->node, &t.rec);
}

static void on_gone(void *cookie)
{
    ((struct member *)cookie)->gone = true;
}

static bool is_gone(void *cookie)
{
    return ((struct member *)cookie)->gone;
}

static bool is_up(void *cookie)
{
    return ((struct member *)cookie)->node != NULL;
}

static void node_down(struct member *m)
{
    assert_true(rpc_bed_run(&t.bed, is_up, m, LIMIT_MS));
    m->gone = false;
    repl_node_stop(m->node, on_gone, m);
    m->node = NULL;
    assert_true(rpc_bed_run(&t.bed, is_gone, m, LIMIT_MS));
}

static void hub_up(struct member *m)
{
    struct repl_hub_opts o = { .rpc = m->rpc,
                               .loop = t.bed.loop,
                               .metrics = t.bed.metrics,
                               .addr = addr_of,
                               .snapshot_rate = t.rate };

    m->hub = repl_hub_new(&o);
}

static void fill(struct kv *kv)
{
    struct err e;

    for (uint64_t i = 0; i < ROWS; i++) {
        struct kv_batch *b = kv_batch_new();
        static char value[VALUE];
        char key[8];
        put_u64be(key, i);
        for (size_t k = 0; k < VALUE; k += 8)
            put_u64le(value + k, hash_u64(i * 10000 + k));
        kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8), str_n(value, VALUE));
        assert_int_equal(kv_write(kv, b, false, &e), 0);
        kv_batch_free(b);
    }
}

static void begin(uint64_t rate)
{
    struct kv *kv;
    struct err e;

    memset(&t, 0, sizeof(t));
    t.rate = rate;
    t.dir = kv_dir_new();
    rpc_bed_init(&t.bed, RPC_BED_INPROC, 1);
    t.rec = (struct repl_record){ .term = 1, .leader = "n0" };
    (void)name_set_add(&t.rec.members, "n0");
    for (int i = 0; i < NODES; i++) {
        struct member *m = &t.m[i];
        m->number = i;
        m->room = UINT64_MAX;
        (void)snprintf(m->name, sizeof(m->name), "n%d", i);
        (void)snprintf(m->db, sizeof(m->db), "%s/shard-%d", t.dir, i);
        (void)snprintf(m->log, sizeof(m->log), "%s/log-%d", t.dir, i);
        (void)snprintf(m->base, sizeof(m->base), "%s/copy-%d", t.dir, i);
        rpc_bed_addr(&t.bed, m->addr);
        m->rpc = rpc_bed_node(&t.bed, m->addr);
        hub_up(m);
    }
    kv = kv_dir_open(t.m[0].db);
    fill(kv);
    assert_int_equal(repl_adopt(rlog_fs_real(), t.m[0].log, kv, &e), 0);
    kv_close(kv);
}

static void end(void)
{
    for (int i = 0; i < NODES; i++) {
        if (t.m[i].opened)
            node_down(&t.m[i]);
        repl_hub_free(t.m[i].hub);
    }
    for (int i = 0; i < NODES; i++)
        rpc_node_free(t.m[i].rpc);
    rpc_bed_deinit(&t.bed);
    kv_dir_remove(t.dir);
}

static bool leads(void *cookie)
{
    const struct member *m = cookie;

    return m->node && repl_node_state(m->node).role == REPLICA_LEADING;
}

static void writer(void *cookie)
{
    struct kv *k = cookie;

    for (uint64_t i = t.from; i < t.upto && !t.err.code; i++) {
        struct kv_batch *b = kv_batch_new();
        char key[8];
        put_u64be(key, i);
        kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8), STR("later"));
        if (kv_write(k, b, true, &t.err) == 0)
            err_clear(&t.err);
        kv_batch_free(b);
    }
    __atomic_store_n(&t.done, true, __ATOMIC_RELEASE);
}

static bool is_done(void *cookie)
{
    (void)cookie;
    return __atomic_load_n(&t.done, __ATOMIC_ACQUIRE);
}

static void writes(struct member *m, uint64_t from, uint64_t n)
{
    struct thread thread = { 0 };

    assert_true(rpc_bed_run(&t.bed, leads, m, LIMIT_MS));
    struct kv *k = kv_repl_new(m->node);
    t.from = from;
    t.upto = from + n;
    t.done = false;
    thread_start(&thread, "writer", writer, k);
    assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
    thread_join(&thread);
    kv_close(k);
    if (t.err.code)
        fail_msg("%s", t.err.text);
}

static bool caught_up(void *cookie)
{
    const struct member *m = cookie;
    struct replica_state st, led;

    if (!m->node || !t.m[0].node)
        return false;
    st = repl_node_state(m->node);
    led = repl_node_state(t.m[0].node);
    return !st.no_database && st.applied > 1 && st.applied == led.last_index &&
           led.applied == led.last_index;
}

static void same_rows(struct member *m)
{
    uint64_t rows = 0;

    assert_true(rpc_bed_run(&t.bed, caught_up, m, LIMIT_MS));
    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *a =
            kv_iter_new(repl_node_db(t.m[0].node), NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        struct kv_iter *b =
            kv_iter_new(repl_node_db(m->node), NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(a) && kv_iter_valid(b); kv_iter_next(a), kv_iter_next(b), rows++) {
            assert_true(str_eq(kv_iter_key(a), kv_iter_key(b)));
            assert_true(str_eq(kv_iter_value(a), kv_iter_value(b)));
        }
        assert_true(!kv_iter_valid(a) && !kv_iter_valid(b));
        kv_iter_free(a);
        kv_iter_free(b);
    }
    assert_true(rows > ROWS);
}

static uint64_t taken(void)
{
    return rpc_bed_metric(&t.bed, "embertree_repl_copy_taken_bytes_total");
}

static uint64_t copies(void)
{
    return rpc_bed_metric(&t.bed, "embertree_repl_copies_total");
}

static void learn(struct member *m)
{
    assert_true(rpc_bed_run(&t.bed, leads, &t.m[0], LIMIT_MS));
    (void)name_set_add(&t.rec.learners, m->name);
    tell_soon();
}

static bool is_same(void *cookie)
{
    return caught_up(cookie);
}

/* ---- tests ---- */

static void test_learn(void **state)
{
    (void)state;
    begin(0);
    node_up(&t.m[0]);
    writes(&t.m[0], 100000, 100);
    node_up(&t.m[1]);
    node_up(&t.m[2]);
    learn(&t.m[1]);
    learn(&t.m[2]); /* at once, of the same copy */
    writes(&t.m[0], 200000, 300);
    same_rows(&t.m[1]);
    same_rows(&t.m[2]);
    assert_int_equal(copies(), 2);
    assert_int_equal(t.m[1].opened, 2);
    writes(&t.m[0], 300000, 50); /* the log goes on behind it */
    same_rows(&t.m[1]);
    node_down(&t.m[1]); /* and is what a restart finds */
    node_up(&t.m[1]);
    writes(&t.m[0], 400000, 5);
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 2);
    end();
}

static bool some_taken(void *cookie)
{
    (void)cookie;
    return taken() >= t.from;
}

/* Both ends are stopped in the middle; what is there is not fetched again. */
static void test_restarts(void **state)
{
    uint64_t total;

    (void)state;
    begin(6 * MIB);
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    for (int i = 0; i < 3; i++) {
        t.from = (uint64_t)(i + 1) * 2 * MIB;
        assert_true(rpc_bed_run(&t.bed, some_taken, NULL, LIMIT_MS));
        struct member *m = &t.m[(i + 1) % 2];
        struct repl_copy_state st = repl_node_copy(t.m[1].node);
        assert_non_null(st.from);
        assert_true(st.bytes > 0 && st.bytes < st.total);
        node_down(m);
        node_up(m);
    }
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 1);
    total = (uint64_t)ROWS * VALUE;
    printf("%" PRIu64 " bytes were taken of some %" PRIu64 "\n", taken(), total);
    assert_true(taken() < total + total / 2);
    end();
}

/* Whatever fails at the receiver: the next try comes to an end. */
static void test_faults(void **state)
{
    static const int codes[] = { EIO, ENOSPC };

    (void)state;
    begin(0);
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    t.m[1].fail_at = 3;
    t.m[1].fail_code = ENOSPC;
    learn(&t.m[1]);
    same_rows(&t.m[1]);
    for (int i = 0; i < 4; i++) { /* its disk is lost, and it learns again */
        char rm[900];
        node_down(&t.m[1]);
        (void)snprintf(rm, sizeof(rm), "rm -rf '%s' '%s'", t.m[1].db, t.m[1].log);
        assert_int_equal(system(rm), 0);
        t.m[1].calls = 0;
        t.m[1].fail_at = 4 + i * 5;
        t.m[1].fail_code = codes[i % 2];
        node_up(&t.m[1]);
        writes(&t.m[0], 100000 + (uint64_t)i * 1000, 10);
        same_rows(&t.m[1]);
        assert_true(t.m[1].calls >= t.m[1].fail_at);
    }
    end();
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
    const struct member *m = cookie;
    struct repl_copy_state st = repl_node_copy(m->node);

    return st.from && st.rows && st.bytes > 0 && st.total == 0;
}

/* Who knows no copies is sent rows, and sends them; so does who has no folder for them. */
static void test_old_versions(void **state)
{
    (void)state;
    begin(0);
    node_up(&t.m[0]);
    rpc_serve(t.m[1].rpc, RPC_REPL_COPY, unknown, NULL);
    t.m[2].no_files = true;
    node_up(&t.m[1]);
    node_up(&t.m[2]);
    learn(&t.m[1]);
    learn(&t.m[2]);
    assert_true(rpc_bed_run(&t.bed, rows_come, &t.m[2], LIMIT_MS));
    writes(&t.m[0], 100000, 20);
    same_rows(&t.m[1]);
    same_rows(&t.m[2]);
    assert_null(repl_node_copy(t.m[2].node).from);
    assert_int_equal(copies() + taken(), 0);
    assert_int_equal(t.m[1].opened + t.m[2].opened, 2);
    end();
    begin(0); /* the leader is the old one */
    t.m[0].no_files = true;
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    writes(&t.m[0], 100000, 20);
    same_rows(&t.m[1]);
    assert_int_equal(copies() + taken(), 0);
    end();
}

static bool says_why(void *cookie)
{
    const struct member *m = cookie;
    struct repl_copy_state st = repl_node_copy(m->node);

    return st.why && strstr(st.why, "free some");
}

static void test_room(void **state)
{
    (void)state;
    begin(0);
    t.m[1].room = 3 * MIB;
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    assert_true(rpc_bed_run(&t.bed, says_why, &t.m[1], LIMIT_MS));
    writes(&t.m[0], 100000, 20);
    assert_false(is_same(&t.m[1]));
    assert_int_equal(taken(), 0);
    t.m[1].room = UINT64_MAX;
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 1);
    assert_null(repl_node_copy(t.m[1].node).why);
    /* The one that gives has no room for a copy. */
    t.m[0].room = 0;
    node_up(&t.m[2]);
    learn(&t.m[2]);
    rpc_bed_sleep(&t.bed, 500);
    t.m[0].room = UINT64_MAX;
    same_rows(&t.m[2]);
    end();
}

/* The source loses its lead in the middle, to one that has no copy of its own: it gives on. */
static void test_new_leader(void **state)
{
    struct repl_record next;

    (void)state;
    begin(0);
    node_up(&t.m[0]);
    node_up(&t.m[2]);
    learn(&t.m[2]);
    same_rows(&t.m[2]);
    assert_int_equal(copies(), 1);
    assert_true(t.rec.established);
    t.rec.learners.len = 0;
    struct err e;
    assert_int_equal(record_next_add(&t.rec, "n2", &next, &e), 0);
    t.rec = next;
    tell_soon();
    writes(&t.m[0], 100000, 10);
    for (int i = 0; i < NODES; i++)
        if (i != 1)
            node_down(&t.m[i]);
    for (int i = 0; i < NODES; i++) {
        repl_hub_free(t.m[i].hub);
        t.rate = 3 * MIB;
        hub_up(&t.m[i]);
    }
    node_up(&t.m[0]);
    node_up(&t.m[2]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    t.from = taken() + 2 * MIB;
    assert_true(rpc_bed_run(&t.bed, some_taken, NULL, LIMIT_MS));
    struct repl_copy_state st = repl_node_copy(t.m[1].node);
    assert_string_equal(st.from, "n0");
    record_next_leader(&t.rec, "n2", &next);
    t.rec = next;
    tell_soon();
    assert_true(rpc_bed_run(&t.bed, leads, &t.m[2], LIMIT_MS));
    t.from = taken() + 2 * MIB;
    assert_true(rpc_bed_run(&t.bed, some_taken, NULL, LIMIT_MS));
    st = repl_node_copy(t.m[1].node);
    assert_string_equal(st.from, "n0");
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 2);
    end();
}

static bool is_held(void *cookie)
{
    return __atomic_load_n(&((struct member *)cookie)->held, __ATOMIC_ACQUIRE);
}

static int outs(const struct member *m)
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
    begin(0);
    t.m[0].hold = true;
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    assert_true(rpc_bed_run(&t.bed, is_held, &t.m[0], LIMIT_MS));
    repl_copy_drop(t.m[0].node);
    rpc_bed_sleep(&t.bed, 200);
    __atomic_store_n(&t.m[0].hold, false, __ATOMIC_RELEASE);
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 1);
    assert_int_equal(outs(&t.m[0]), 1);
    end();
}

/* Or while questions about it wait for their share of the rate: they are told, and it is asked for
 * another one. */
static void test_drop_waiting(void **state)
{
    (void)state;
    begin(3 * MIB);
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    learn(&t.m[1]);
    t.from = MIB;
    assert_true(rpc_bed_run(&t.bed, some_taken, NULL, LIMIT_MS));
    repl_copy_drop(t.m[0].node);
    same_rows(&t.m[1]);
    assert_int_equal(copies(), 1);
    assert_int_equal(outs(&t.m[0]), 1);
    end();
}

/* Where a database was thrown away, copies of it are not given any more after a restart. */
static void test_drop_lost(void **state)
{
    char name[64], dir[500];
    struct kv *kv;
    struct err e;

    (void)state;
    begin(0);
    copy_out_name(1, 1, 1, name);
    (void)snprintf(dir, sizeof(dir), "%s/%s", t.m[0].base, name);
    assert_int_equal(fs_real()->mkdir_all(fs_real(), dir, &e), 0);
    node_up(&t.m[0]);
    assert_int_equal(outs(&t.m[0]), 1);
    node_down(&t.m[0]);
    kv = kv_dir_open(t.m[0].db);
    assert_int_equal(apply_empty(kv, &e), 0);
    kv_close(kv);
    node_up(&t.m[0]);
    assert_int_equal(outs(&t.m[0]), 0);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learn),       cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_faults),      cmocka_unit_test(test_old_versions),
        cmocka_unit_test(test_room),        cmocka_unit_test(test_new_leader),
        cmocka_unit_test(test_drop_making), cmocka_unit_test(test_drop_waiting),
        cmocka_unit_test(test_drop_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
