/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas at work, over rpc: writes through kv_repl, fail-over, nodes that come back after a power
 * cut, snapshots, a database that was the only copy, the real store above. In the end the databases
 * are the same, row by row, and hold what was acked. Simulated, and once with real threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_bootstrap.h"
#include "common/repl/repl_node.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/kv/kv_mem.h"
#include "common/sys/fiber.h"
#include "common/sys/thread.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/repl/rlog_fake.h"
#include "tests/lib/store/store_bed.h"

enum { NODES = 3, LIMIT_MS = 60000 };

struct member {
    char name[4], addr[128];
    struct rpc_node *rpc;
    struct repl_hub *hub;
    struct repl_node *node; /* NULL: stopped */
    struct rlog_fake *disk;
    struct kv *db;
    const struct kv_ops *mem_ops;
    struct kv_ops kept_ops; /* those without the close: the database outlives the node */
    bool gone;
};
static struct {
    struct rpc_bed bed;
    struct member m[NODES];
    struct repl_record rec;
    bool posted, threads;
    uint64_t log_bytes_max, digest_every_ms;
    int differed, kept;
    /* the writer */
    struct member *to;
    uint64_t from, upto, acked;
    bool done;
    struct err err;
} t;

static uint64_t log_bytes; /* of hubs, in memory */

static void keep_db(struct kv *k)
{
    (void)k;
}

static void adopt_db(struct member *m, struct kv *db)
{
    m->db = db;
    m->mem_ops = db->ops;
    m->kept_ops = *db->ops;
    m->kept_ops.close = keep_db;
    db->ops = &m->kept_ops;
}

static void cut_power(struct member *m, uint64_t keep)
{
    m->db->ops = m->mem_ops;
    adopt_db(m, kv_mem_reopen(m->db, KV_MEM_POWER, keep));
    rlog_fake_power_cut(m->disk);
}

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    for (int i = 0; i < NODES; i++)
        if (!strcmp(t.m[i].name, name))
            return t.m[i].addr;
    return NULL;
}

static void tell(void *cookie)
{
    (void)cookie;
    t.posted = false;
    for (int i = 0; i < NODES; i++)
        if (t.m[i].node)
            repl_node_record(t.m[i].node, &t.rec);
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void tell_soon(void)
{
    if (!t.posted)
        loop_post(t.bed.loop, tell, NULL);
    t.posted = true;
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

static void on_prefer(void *cookie, const char *name)
{
    struct repl_record next;

    (void)cookie;
    record_next_leader(&t.rec, name, &next);
    t.rec = next;
    tell_soon();
}

static void on_failed(void *cookie, const struct err *why)
{
    (void)cookie;
    fail_msg("%s", why->text);
}

static void on_differs(void *cookie, const char *name, bool repaired);

static void node_up(struct member *m)
{
    struct repl_node_opts o = { .hub = m->hub,
                                .shard = 7,
                                .self = m->name,
                                .dir = "log",
                                .fs = rlog_fake_fs(m->disk),
                                .db = m->db,
                                .simulated = !t.threads,
                                .log_bytes_max = t.log_bytes_max,
                                .segment_bytes = 4096,
                                .role = on_role,
                                .establish = on_establish,
                                .prefer = on_prefer,
                                .failed = on_failed,
                                .differs = on_differs,
                                .digest_every_ms = t.digest_every_ms,
                                .keep_dir = "kept" };
    struct err e;

    if (repl_node_new(&o, &m->node, &e))
        fail_msg("%s", e.text);
    repl_node_record(m->node, &t.rec);
}

static void on_gone(void *cookie)
{
    struct member *m = cookie;

    m->gone = true;
}

static bool is_gone(void *cookie)
{
    return ((struct member *)cookie)->gone;
}

static void node_down(struct member *m)
{
    m->gone = false;
    repl_node_stop(m->node, on_gone, m);
    m->node = NULL;
    assert_true(rpc_bed_run(&t.bed, is_gone, m, LIMIT_MS));
}

static void begin(bool threads)
{
    memset(&t, 0, sizeof(t));
    t.threads = threads;
    rpc_bed_init(&t.bed, threads ? RPC_BED_INPROC : RPC_BED_MEM, 1);
    if (!threads)
        rpc_mem_faults(t.bed.net, &(struct rpc_mem_faults){ .delay_min_ms = 1, .delay_max_ms = 4 });
    t.rec.term = 1;
    for (int i = 0; i < NODES; i++) {
        struct member *m = &t.m[i];
        (void)snprintf(m->name, sizeof(m->name), "n%d", i);
        (void)name_set_add(&t.rec.members, m->name);
        rpc_bed_addr(&t.bed, m->addr);
        m->rpc = rpc_bed_node(&t.bed, m->addr);
        m->disk = rlog_fake_new((uint64_t)i);
        adopt_db(m, kv_mem_new(NULL));
        struct repl_hub_opts o = {
            .rpc = m->rpc, .loop = t.bed.loop, .metrics = t.bed.metrics, .addr = addr_of
        };
        o.log_bytes = log_bytes;
        m->hub = repl_hub_new(&o);
    }
    (void)snprintf(t.rec.leader, sizeof(t.rec.leader), "n0");
}

static void end(void)
{
    for (int i = 0; i < NODES; i++) {
        struct member *m = &t.m[i];
        if (m->node)
            node_down(m);
        repl_hub_free(m->hub);
    }
    for (int i = 0; i < NODES; i++) {
        struct member *m = &t.m[i];
        rpc_node_free(m->rpc);
        rlog_fake_free(m->disk);
        m->db->ops = m->mem_ops;
        kv_close(m->db);
    }
    rpc_bed_deinit(&t.bed);
}

/* ---- writing ---- */

static int write_row(struct kv *k, uint64_t i, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    char key[8], value[100];
    int rc;

    put_u64be(key, i);
    for (size_t c = 0; c < sizeof(value); c++)
        value[c] = (char)hash_u64(i * 1000 + c);
    kv_batch_put(b, (enum kv_cf)(i % KV_CFS), str_n(key, 8),
                 str_n(value, hash_u64(i) % sizeof(value)));
    if (i % 10 == 9) {
        char old[8];
        put_u64be(old, i - 5);
        kv_batch_del(b, (enum kv_cf)((i - 5) % KV_CFS), str_n(old, 8));
    }
    rc = kv_write(k, b, true, e);
    kv_batch_free(b);
    if (!rc && i % 50 == 0)
        rc = kv_drop_range(k, KV_EXM, str_n(key, 7), STR("\xff"), e);
    return rc;
}

static void writer(void *cookie)
{
    struct kv *k = kv_repl_new(t.to->node);

    (void)cookie;
    for (uint64_t i = t.from; i < t.upto; i++) {
        if (write_row(k, i, &t.err))
            break;
        t.acked = i;
    }
    kv_close(k);
    __atomic_store_n(&t.done, true, __ATOMIC_RELEASE);
}

static bool is_done(void *cookie)
{
    (void)cookie;
    return t.done;
}

static bool leads(void *cookie)
{
    return repl_node_state(((struct member *)cookie)->node).role == REPLICA_LEADING;
}

static void start_writes(struct member *m, uint64_t from, uint64_t upto)
{
    assert_true(rpc_bed_run(&t.bed, leads, m, LIMIT_MS));
    t.to = m;
    t.from = from;
    t.upto = upto;
    t.done = false;
    err_clear(&t.err);
    if (!t.threads)
        fiber_run(writer, NULL);
}

static void end_writes(void)
{
    assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
}

static void writes(struct member *m, uint64_t from, uint64_t upto)
{
    start_writes(m, from, upto);
    end_writes();
    if (t.err.code)
        fail_msg("%s", t.err.text);
    assert_int_equal(t.acked, upto - 1);
}

/* ---- looking ---- */

static bool quiet(void *cookie)
{
    uint64_t at = 0;

    (void)cookie;
    for (int i = 0; i < NODES; i++) {
        if (!t.m[i].node)
            continue;
        struct replica_state s = repl_node_state(t.m[i].node);
        if (s.applied != s.last_index || !s.applied || (at && s.applied != at))
            return false;
        at = s.applied;
    }
    return true;
}

static size_t rows_of(struct kv *k)
{
    size_t n = 0;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(k, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it))
            n++;
        kv_iter_free(it);
    }
    return n;
}

static uint64_t same_rows(void)
{
    uint64_t rows = 0;

    assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
    for (int i = 1; i < NODES; i++)
        for (int cf = 0; cf < KV_CFS; cf++) {
            struct kv_iter *a = kv_iter_new(t.m[0].db, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
            struct kv_iter *b = kv_iter_new(t.m[i].db, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
            for (; kv_iter_valid(a) && kv_iter_valid(b); kv_iter_next(a), kv_iter_next(b)) {
                assert_true(str_eq(kv_iter_key(a), kv_iter_key(b)));
                assert_true(str_eq(kv_iter_value(a), kv_iter_value(b)));
                rows += i == 1;
            }
            assert_true(!kv_iter_valid(a) && !kv_iter_valid(b));
            kv_iter_free(a);
            kv_iter_free(b);
        }
    return rows;
}

static void has_row(uint64_t i, bool want)
{
    struct buf out;
    char key[8];
    struct err e;

    put_u64be(key, i);
    buf_init(&out, KIB);
    int rc = kv_get(t.m[2].db, NULL, (enum kv_cf)(i % KV_CFS), str_n(key, 8), &out, &e);
    assert_int_equal(rc, want ? 0 : ERR_NOT_FOUND);
    buf_deinit(&out);
}

/* ---- tests ---- */

static void next_leader(const char *name)
{
    struct repl_record next;

    record_next_leader(&t.rec, name, &next);
    t.rec = next;
    tell(NULL);
}

static void test_failover(void **state)
{
    log_bytes = *state ? *(const uint64_t *)*state : 0;
    begin(false);
    for (int i = 0; i < NODES; i++)
        node_up(&t.m[i]);
    writes(&t.m[0], 1, 300);
    assert_true(same_rows() > 150);
    /* What is not in memory any more is read from the log. */
    for (int i = 0; log_bytes && i < NODES; i++)
        assert_true(repl_hub_log_used(t.m[i].hub) <= log_bytes);
    /* The leader loses power in the middle of writing. */
    start_writes(&t.m[0], 300, 100000);
    rpc_bed_sleep(&t.bed, 500);
    if (t.done)
        fail_msg("at %" PRIu64 ": %s", t.acked, t.err.text);
    node_down(&t.m[0]);
    end_writes();
    assert_int_equal(t.err.code, ERR_UNAVAILABLE);
    uint64_t acked = t.acked;
    cut_power(&t.m[0], 3);
    next_leader("n1");
    writes(&t.m[1], 200000, 200200);
    node_up(&t.m[0]);
    assert_true(same_rows() > 300);
    for (uint64_t i = 301; i <= acked; i++)
        if (i % 10 != 4 && i % KV_CFS != KV_EXM)
            has_row(i, true);
    has_row(304, acked < 309);
    /* Led by another: an old handle never writes again. */
    struct kv *k = kv_repl_new(t.m[1].node);
    size_t before = rows_of(k);
    next_leader("n2");
    assert_true(rpc_bed_run(&t.bed, leads, &t.m[2], LIMIT_MS));
    /* Rows of the next leader are not visible to old readers. */
    writes(&t.m[2], 290000, 290050);
    same_rows();
    assert_true(rows_of(t.m[1].db) > before);
    assert_int_equal(rows_of(k), before);
    struct kv_snap *snap = kv_snap_new(k);
    struct kv_iter *it = kv_iter_new(k, snap, KV_RAW, STR_NULL, STR_NULL);
    assert_int_equal(kv_iter_status(it, &t.err), 0);
    kv_iter_free(it);
    kv_snap_free(k, snap);
    next_leader("n1");
    assert_true(rpc_bed_run(&t.bed, leads, &t.m[1], LIMIT_MS));
    kv_close(k);
    writes(&t.m[1], 300000, 300010);
    same_rows();
    end();
    log_bytes = 0;
}

/* The log's beginning is gone when a member starts empty: it gets rows while writes continue. */
static void test_snapshot(void **state)
{
    (void)state;
    begin(false);
    t.log_bytes_max = 20000;
    node_up(&t.m[0]);
    node_up(&t.m[1]);
    for (uint64_t i = 0; i < 10; i++) {
        writes(&t.m[0], 1 + i * 300, 301 + i * 300);
        rpc_bed_sleep(&t.bed, 5000);
    }
    assert_true(repl_node_state(t.m[0].node).base_index > 100);
    node_up(&t.m[2]);
    writes(&t.m[0], 5000, 5200);
    assert_true(same_rows() > 1500);
    assert_true(repl_node_state(t.m[2].node).base_index > 100);
    /* Half a database: lost in the middle, and asked for again. */
    node_down(&t.m[2]);
    t.m[2].db->ops = t.m[2].mem_ops;
    kv_close(t.m[2].db);
    adopt_db(&t.m[2], kv_mem_new(NULL));
    node_up(&t.m[2]);
    writes(&t.m[0], 6000, 6100);
    assert_true(same_rows() > 1500);
    end();
}

static bool established(void *cookie)
{
    (void)cookie;
    return t.rec.established;
}

static void add_member(const char *name)
{
    struct repl_record next;
    struct err e;

    assert_true(rpc_bed_run(&t.bed, established, NULL, LIMIT_MS));
    assert_int_equal(record_next_add(&t.rec, name, &next, &e), 0);
    t.rec = next;
    tell(NULL);
}

/* What was the only copy gets others: its rows have no log. It is alone in the first record, since
 * nothing says yet that a majority knows of them. */
static void test_adopt(void **state)
{
    struct err e;

    begin(false);
    t.rec = (struct repl_record){ .term = 1, .leader = "n1" };
    (void)name_set_add(&t.rec.members, "n1");
    for (uint64_t i = 1; i < 400; i++)
        assert_int_equal(write_row(t.m[1].db, i, &e), 0);
    if (*state) { /* by the way people take it; twice, since they do */
        assert_int_equal(repl_adopt(rlog_fake_fs(t.m[1].disk), "log", t.m[1].db, &e), 0);
        cut_power(&t.m[1], 0);
        assert_int_equal(repl_adopt(rlog_fake_fs(t.m[1].disk), "log", t.m[1].db, &e), 0);
    }
    for (int i = 0; i < NODES; i++)
        node_up(&t.m[i]);
    writes(&t.m[1], 1000, 1100);
    assert_int_equal(repl_adopt(rlog_fake_fs(t.m[0].disk), "other", t.m[1].db, &e), ERR_CONFLICT);
    add_member("n0");
    add_member("n2");
    writes(&t.m[1], 2000, 2100);
    assert_true(same_rows() > 400);
    end();
}

/* A disk returns wrong data: a row of a follower changes. It is found, and all rows come again. */
static void on_differs(void *cookie, const char *name, bool repaired)
{
    (void)cookie;
    assert_string_equal(name, "n2");
    assert_true(repaired);
    t.differed++;
}

static int keep_files(struct kv *k, const char *dir, struct err *e)
{
    struct kv_iter *it = kv_iter_new(k, NULL, KV_FINE, STR("rot"), STR_NULL);
    t.kept += !strcmp(dir, "kept") && kv_iter_valid(it); /* before it is emptied */
    kv_iter_free(it);
    return err_set(e, ERR_NO_SPACE, "none");
}

static void test_digest(void **state)
{
    struct kv_batch *b = kv_batch_new();
    struct err e;

    (void)state;
    begin(false);
    t.digest_every_ms = 5000;
    t.m[2].kept_ops.checkpoint = keep_files;
    for (int i = 0; i < NODES; i++)
        node_up(&t.m[i]);
    writes(&t.m[0], 1, 300);
    rpc_bed_sleep(&t.bed, 20000);
    assert_int_equal(t.differed, 0);
    assert_true(rpc_bed_metric(&t.bed, "embertree_repl_digests_total") >= 6);
    kv_batch_put(b, KV_FINE, STR("rot"), STR("x"));
    assert_int_equal(kv_write(t.m[2].db, b, false, &e), 0);
    kv_batch_free(b);
    writes(&t.m[0], 400, 500);
    rpc_bed_sleep(&t.bed, 30000);
    assert_int_equal(t.differed + t.kept, 2);
    assert_true(same_rows() > 200);
    end();
}

/* ---- the real store ---- */

enum { PUSHES = 90 };
static struct {
    struct store_bed bed;
    struct member *at;
    bool acked[PUSHES], tried[PUSHES];
    uint64_t sum; /* of the answer, in the end */
    bool done, last;
    int cut; /* rounds that ended in the middle */
} st;

static int push(int i, struct err *e)
{
    char stacks[32], labels[16];
    struct bed_push p = { .slot = store_bed_slot(&st.bed) - 2,
                          .wid = (uint64_t)i + 1,
                          .labels = labels,
                          .stacks = stacks };
    struct store_batch *batch = store_batch_new(st.bed.s);
    struct store_result r;

    (void)snprintf(labels, sizeof(labels), "pod=p%d", i % 3);
    (void)snprintf(stacks, sizeof(stacks), "a;f%d=%d", i % 7, i + 1);
    int rc = store_bed_stage(&st.bed, batch, &p, &r, e);
    int code = store_commit(st.bed.s, batch, e);
    if (rc || code)
        return rc ? rc : code;
    st.tried[i] = true;
    assert_int_equal(r.stored + r.duplicates, 1);
    if (st.acked[i])
        assert_int_equal(r.stored, 0);
    st.acked[i] = true;
    return 0;
}

/* Leads for a while: what was tried before once more, under the same ids, and some more. */
static void store_leads(void *cookie)
{
    int upto = *(int *)cookie;
    struct err e;
    int rc = 0;

    st.bed.o.kv = kv_repl_new(st.at->node);
    if (store_open(&st.bed.o, &st.bed.s, &e)) {
        st.cut++;
        st.done = true;
        return;
    }
    for (int i = 0; i < upto && !rc; i++) {
        st.tried[i] = true;
        rc = push(i, &e);
        if (!rc && i % 13 == 12) {
            bool more = true;
            clock_fake_advance(&st.bed.clock, 30000);
            while (more && !rc)
                rc = store_seal(st.bed.s, 1000, &more, &e);
        }
    }
    st.cut += rc != 0;
    if (st.last) {
        uint32_t now = store_bed_slot(&st.bed);
        const char *text = store_bed_merge(&st.bed, NULL, "{}", NULL, now - 1000, now + 10);
        for (const char *p = text; (p = strchr(p, '=')); p++)
            st.sum += strtoull(p + 1, NULL, 10);
    }
    store_close(st.bed.s);
    st.done = true;
}

static bool store_done(void *cookie)
{
    (void)cookie;
    return st.done;
}

static void test_store(void **state)
{
    uint64_t want = 0, acked = 0;

    (void)state;
    begin(false);
    memset(&st, 0, sizeof(st));
    clock_fake_init(&st.bed.clock, BED_START_MS);
    st.bed.o = (struct store_opts){ .clock = &st.bed.clock.clock,
                                    .dict_bytes_max = 64 * MIB,
                                    .seal_delay_ms = 30000,
                                    .wid_horizon_ms = 4 * 3600 * 1000,
                                    .seed = 42 };
    for (int i = 0; i < NODES; i++)
        node_up(&t.m[i]);
    for (int round = 0; round < 9; round++) {
        int upto = (round + 1) * PUSHES / 9;
        st.at = &t.m[round % NODES];
        st.last = round == 8;
        st.done = false;
        if (round > 0)
            next_leader(st.at->name);
        assert_true(rpc_bed_run(&t.bed, leads, st.at, LIMIT_MS));
        fiber_run(store_leads, &upto);
        if (st.last) {
            assert_true(rpc_bed_run(&t.bed, store_done, NULL, LIMIT_MS));
            break;
        }
        rpc_bed_sleep(&t.bed, 10 + (uint64_t)round * 13);
        node_down(st.at); /* in the middle */
        assert_true(rpc_bed_run(&t.bed, store_done, NULL, LIMIT_MS));
        cut_power(st.at, (uint64_t)round % 4);
        node_up(st.at);
    }
    for (int i = 0; i < PUSHES; i++) {
        want += (uint64_t)i + 1;
        acked += st.acked[i];
    }
    assert_int_equal(acked, PUSHES);
    assert_int_equal(st.sum, want); /* each once */
    printf("%d rounds ended in the middle\n", st.cut);
    assert_true(st.cut > 3);
    assert_true(same_rows() > 100);
    end();
}

static void test_threads(void **state)
{
    struct thread thread = { 0 };

    (void)state;
    begin(true);
    for (int i = 0; i < NODES; i++)
        node_up(&t.m[i]);
    start_writes(&t.m[0], 1, 300);
    thread_start(&thread, "writer", writer, NULL);
    rpc_bed_sleep(&t.bed, 1); /* the loop runs while it writes */
    for (int i = 0; i < 600 && !__atomic_load_n(&t.done, __ATOMIC_ACQUIRE); i++)
        rpc_bed_sleep(&t.bed, 50);
    thread_join(&thread);
    assert_int_equal(t.err.code, 0);
    assert_int_equal(t.acked, 299);
    assert_true(same_rows() > 150);
    end();
}

int main(void)
{
    uint64_t small_logs = 2000;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failover), cmocka_unit_test_prestate(test_failover, &small_logs),
        cmocka_unit_test(test_digest),   cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_adopt),    cmocka_unit_test_prestate(test_adopt, &t),
        cmocka_unit_test(test_store),    cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
