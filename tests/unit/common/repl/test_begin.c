/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelined batches (kv_repl.h): reads see batches in flight, a lost leader leaves a prefix, writes
 * end where no majority answers, and no handle is opened while older batches may still come. Also a
 * member whose folder is an old copy. Three replicas, simulated, and once with threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_node.h"
#include "common/repl/repl_pipe.h"
#include "common/rpc/rpc_mem.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/kv/kv_mem.h"
#include "common/sys/fiber.h"
#include "common/sys/thread.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/repl/rlog_fake.h"

enum { NODES = 3, LIMIT_MS = 60000, ROWS = 300 };

static struct {
    struct rpc_bed bed;
    char names[NODES][4], addrs[NODES][128];
    struct rpc_node *rpc[NODES];
    struct repl_hub *hubs[NODES];
    struct repl_node *nodes[NODES];
    struct rlog_fake *disks[NODES];
    struct kv *dbs[NODES];
    struct kv_ops ops; /* without the close: databases outlive their nodes */
    const struct kv_ops *own;
    struct repl_record rec;
    bool threads;
    int gone;
    /* the writer */
    struct kv *k;
    uint64_t begun, acked; /* rows */
    bool done;
    _Atomic int ends; /* of threads */
    struct err err;
} t;

static void keep(struct kv *k)
{
    (void)k;
}

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return t.addrs[name[1] - '0'];
}

static void tell(void *cookie)
{
    (void)cookie;
    for (int i = 0; i < NODES; i++)
        if (t.nodes[i])
            repl_node_record(t.nodes[i], &t.rec);
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void on_establish(void *cookie, uint64_t term)
{
    struct repl_record next;

    (void)cookie;
    if (t.rec.established || term != t.rec.term)
        return;
    record_established(&t.rec, &next);
    t.rec = next;
    loop_post(t.bed.loop, tell, NULL);
}

static void on_prefer(void *cookie, const char *name)
{
    struct repl_record next;

    (void)cookie;
    record_next_leader(&t.rec, name, &next);
    t.rec = next;
    loop_post(t.bed.loop, tell, NULL);
}

static void node_up(int i)
{
    struct err e;
    struct repl_node_opts o = { .hub = t.hubs[i],
                                .shard = 7,
                                .self = t.names[i],
                                .dir = "log",
                                .fs = rlog_fake_fs(t.disks[i]),
                                .db = t.dbs[i],
                                .simulated = !t.threads,
                                .role = on_role,
                                .establish = on_establish,
                                .prefer = on_prefer };

    if (repl_node_new(&o, &t.nodes[i], &e))
        fail_msg("%s", e.text);
    repl_node_record(t.nodes[i], &t.rec);
}

static void on_gone(void *cookie)
{
    ++*(int *)cookie;
}

static bool is_gone(void *cookie)
{
    return t.gone == *(int *)cookie;
}

static void node_down(int i)
{
    int want = t.gone + 1;

    repl_node_stop(t.nodes[i], on_gone, &t.gone);
    t.nodes[i] = NULL;
    assert_true(rpc_bed_run(&t.bed, is_gone, &want, LIMIT_MS));
}

static bool leads(void *cookie)
{
    return repl_node_state(t.nodes[*(int *)cookie]).role == REPLICA_LEADING;
}

static void name_leader(int i)
{
    struct repl_record next;

    record_next_leader(&t.rec, t.names[i], &next);
    t.rec = next;
    tell(NULL);
}

static void lead(int i)
{
    name_leader(i);
    assert_true(rpc_bed_run(&t.bed, leads, &i, LIMIT_MS));
}

static void begin(bool threads, uint64_t seed)
{
    int first = 0;

    memset(&t, 0, sizeof(t));
    t.threads = threads;
    rpc_bed_init(&t.bed, threads ? RPC_BED_INPROC : RPC_BED_MEM, seed);
    if (!threads)
        rpc_mem_faults(t.bed.net, &(struct rpc_mem_faults){ .delay_min_ms = 1, .delay_max_ms = 4 });
    t.rec = (struct repl_record){ .term = 1, .leader = "n0" };
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(t.names[i], sizeof(t.names[i]), "n%d", i);
        (void)name_set_add(&t.rec.members, t.names[i]);
        rpc_bed_addr(&t.bed, t.addrs[i]);
        t.rpc[i] = rpc_bed_node(&t.bed, t.addrs[i]);
        t.hubs[i] = repl_hub_new(&(struct repl_hub_opts){
            .rpc = t.rpc[i], .loop = t.bed.loop, .metrics = t.bed.metrics, .addr = addr_of });
        t.disks[i] = rlog_fake_new((uint64_t)i);
        t.dbs[i] = kv_mem_new(NULL);
        t.own = t.dbs[i]->ops;
        t.ops = *t.own;
        t.ops.close = keep;
        t.dbs[i]->ops = &t.ops;
    }
    for (int i = 0; i < NODES; i++)
        node_up(i);
    assert_true(rpc_bed_run(&t.bed, leads, &first, LIMIT_MS));
}

static void end(void)
{
    for (int i = 0; i < NODES; i++)
        if (t.nodes[i])
            node_down(i);
    for (int i = 0; i < NODES; i++) {
        repl_hub_free(t.hubs[i]);
        rpc_node_free(t.rpc[i]);
        rlog_fake_free(t.disks[i]);
        t.dbs[i]->ops = t.own;
        kv_close(t.dbs[i]);
    }
    rpc_bed_deinit(&t.bed);
}

/* ---- rows ---- */

static struct str row_key(char key[8], uint64_t i)
{
    put_u64be(key, i);
    return str_n(key, 8);
}

/* Row i, and i in the row that all of them write. */
static void fill(struct kv_batch *b, uint64_t i)
{
    char key[8], value[8];

    kv_batch_clear(b);
    kv_batch_put(b, KV_FINE, row_key(key, i), STR("row"));
    put_u64be(value, i);
    kv_batch_put(b, KV_META, STR("last"), str_n(value, 8));
}

static bool has(struct kv *k, const struct kv_snap *snap, uint64_t i)
{
    struct buf out;
    struct err e;
    char key[8];
    int code;

    buf_init(&out, 100);
    code = kv_get(k, snap, KV_FINE, row_key(key, i), &out, &e);
    buf_deinit(&out);
    assert_true(code == 0 || code == ERR_NOT_FOUND);
    return !code;
}

static uint64_t last_of(struct kv *k)
{
    struct buf out;
    struct err e;
    uint64_t last = 0;

    buf_init(&out, 100);
    int code = kv_get(k, NULL, KV_META, STR("last"), &out, &e);
    if (!code)
        last = get_u64be(out.ptr);
    buf_deinit(&out);
    assert_true(code == 0 || code == ERR_NOT_FOUND);
    return last;
}

static size_t count(struct kv *k, uint64_t from, uint64_t to)
{
    char a[8], b[8];
    struct err e;
    size_t n = 0;
    struct kv_iter *it = kv_iter_new(k, NULL, KV_FINE, row_key(a, from), row_key(b, to));

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    return n;
}

static bool is_done(void *cookie)
{
    return cookie == NULL && t.done;
}

/* All replicas have the rows 1..n and no other; returns n. */
static uint64_t prefix(void)
{
    uint64_t n = 0;

    for (int i = 0; i < NODES; i++) {
        if (!t.nodes[i])
            continue;
        n = last_of(t.dbs[i]);
        assert_int_equal(count(t.dbs[i], 0, UINT64_MAX), n);
        for (uint64_t row = 1; row <= n; row++)
            assert_true(has(t.dbs[i], NULL, row));
    }
    return n;
}

static bool quiet(void *cookie)
{
    uint64_t at = 0;

    (void)cookie;
    for (int i = 0; i < NODES; i++) {
        struct replica_state s = { .applied = at, .last_index = at };
        if (t.nodes[i])
            s = repl_node_state(t.nodes[i]);
        if (s.applied != s.last_index || (at && s.applied != at))
            return false;
        at = s.applied;
    }
    return true;
}

/* ---- repl_pipe ---- */

static void put_row(struct kv_batch *b, const char *key)
{
    kv_batch_put(b, KV_FINE, str_c(key), STR("x"));
}

static uint64_t begin_batch(struct repl_pipe *p, const struct kv_batch *b)
{
    struct repl_entry *x = entry_new(REPL_BATCH, buf_str(&b->ops));
    uint64_t number = pipe_begin(p, x);

    entry_unref(x);
    return number;
}

static uint64_t one(struct repl_pipe *p, enum kv_cf cf, const char *key)
{
    return pipe_touches(p, cf, str_c(key), STR_NULL, true);
}

static uint64_t range(struct repl_pipe *p, enum kv_cf cf, const char *from, const char *to)
{
    return pipe_touches(p, cf, str_c(from), str_c(to), false);
}

static void test_rows_on_their_way(void **state)
{
    struct repl_pipe *p = pipe_new(NULL, false);
    struct kv_batch *b = kv_batch_new();
    struct err e, why = { 0 };

    (void)state;
    assert_int_equal(one(p, KV_FINE, "b"), 0);
    put_row(b, "d");
    put_row(b, "b");
    kv_batch_del(b, KV_RAW, STR("r"));
    assert_int_equal(begin_batch(p, b), 1);
    kv_batch_clear(b);
    put_row(b, "b");
    kv_batch_del_range(b, KV_TL, STR("f"), STR("k"));
    assert_int_equal(begin_batch(p, b), 2);

    assert_int_equal(one(p, KV_FINE, "a"), 0);
    assert_int_equal(one(p, KV_FINE, "b"), 2);
    assert_int_equal(one(p, KV_FINE, "bb"), 0);
    assert_int_equal(one(p, KV_FINE, "d"), 1);
    assert_int_equal(one(p, KV_RAW, "b"), 0);
    assert_int_equal(one(p, KV_RAW, "r"), 1);
    assert_int_equal(range(p, KV_FINE, "c", "d"), 0);
    assert_int_equal(range(p, KV_FINE, "c", "da"), 1);
    assert_int_equal(range(p, KV_FINE, "a", ""), 2);
    assert_int_equal(range(p, KV_FINE, "e", ""), 0);
    assert_int_equal(one(p, KV_TL, "e"), 0);
    assert_int_equal(one(p, KV_TL, "f"), 2);
    assert_int_equal(one(p, KV_TL, "k"), 0);
    assert_int_equal(range(p, KV_TL, "a", "f"), 0);
    assert_int_equal(range(p, KV_TL, "a", "g"), 2);
    assert_int_equal(range(p, KV_TL, "k", ""), 0);
    assert_int_equal(range(p, KV_TL, "j", ""), 2);

    assert_int_equal(pipe_wait(p, 1, 0, &e), ERR_TIMEOUT);
    assert_int_equal(pipe_wait(p, 1, 5, &e), ERR_TIMEOUT);
    pipe_ended(p);
    assert_int_equal(pipe_done(p), 1);
    assert_int_equal(pipe_wait(p, 1, UINT64_MAX, &e), 0);
    assert_int_equal(one(p, KV_FINE, "d"), 0);
    assert_int_equal(one(p, KV_FINE, "b"), 2);
    (void)err_set(&why, ERR_UNAVAILABLE, "lost");
    pipe_break(p, &why);
    assert_int_equal(pipe_wait(p, 1, UINT64_MAX, &e), 0);
    assert_int_equal(pipe_wait(p, 2, UINT64_MAX, &e), ERR_UNAVAILABLE);
    assert_int_equal(pipe_wait_room(p, &e), ERR_UNAVAILABLE);
    pipe_ended(p); /* no writer counts on it any more */
    assert_int_equal(pipe_done(p), 1);
    kv_batch_free(b);
    pipe_unref(p);
}

/* ---- a writer sees its own rows ---- */

static void sees(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t number = 0, done, most = 0;

    (void)cookie;
    t.k = kv_repl_new(t.nodes[0]);
    assert_true(kv_begins(t.k));
    for (uint64_t i = 1; i <= ROWS; i++) {
        fill(b, i);
        assert_int_equal(kv_begin(t.k, b, &number, &t.err), 0);
        assert_int_equal(number, i);
        done = kv_begun_done(t.k);
        most = MAX(most, number - done);
        if (i % 7 == 0)
            assert_int_equal(last_of(t.k), i);
        if (i % 11 == 0)
            assert_int_equal(count(t.k, 1, i + 1), i);
        if (i % 13 == 0)
            assert_true(!has(t.k, NULL, i + 1) && has(t.k, NULL, i));
        if (i % 17 == 0) { /* in order with what is waited for */
            kv_batch_clear(b);
            kv_batch_put(b, KV_RAW, STR("r"), STR("x"));
            assert_int_equal(kv_write(t.k, b, true, &t.err), 0);
            assert_int_equal(kv_begun_done(t.k), i);
            struct kv_snap *snap = kv_snap_new(t.k);
            assert_true(has(t.k, snap, i));
            kv_snap_free(t.k, snap);
        }
    }
    assert_true(most > 3 && most <= PIPE_BATCHES);
    kv_batch_clear(b);
    char from[8], to[8];
    kv_batch_del_range(b, KV_FINE, row_key(from, 5), row_key(to, ROWS - 5));
    assert_int_equal(kv_begin(t.k, b, &number, &t.err), 0);
    assert_int_equal(count(t.k, 10, 20), 0);
    assert_true(has(t.k, NULL, 4));
    kv_batch_free(b);
    kv_close(t.k);
    t.done = true;
}

static void test_sees_what_it_wrote(void **state)
{
    (void)state;
    begin(false, 3);
    fiber_run(sees, NULL);
    assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
    end();
}

/* ---- a lost leader leaves a prefix ---- */

static void flows(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t number;
    int code = 0;

    (void)cookie;
    for (uint64_t i = 1; !code; i++) {
        fill(b, i);
        if (i % 20 == 0) {
            code = kv_write(t.k, b, true, &t.err);
            t.acked = code ? t.acked : i;
        } else {
            code = kv_begin(t.k, b, &number, &t.err);
        }
        t.begun = i;
    }
    /* From here on always. */
    assert_int_equal(t.err.code, ERR_UNAVAILABLE);
    assert_int_equal(kv_begin(t.k, b, &number, &t.err), ERR_UNAVAILABLE);
    assert_int_equal(kv_write(t.k, b, true, &t.err), ERR_UNAVAILABLE);
    kv_batch_free(b);
    kv_close(t.k);
    t.done = true;
}

static void test_prefix(void **state)
{
    int cut = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++) {
        begin(false, seed);
        t.k = kv_repl_new(t.nodes[0]);
        fiber_run(flows, NULL);
        rpc_bed_sleep(&t.bed, 3 + seed * 7);
        if (seed % 3 == 0) { /* another one leads meanwhile */
            lead(1);
        } else {
            if (seed % 3 == 1) { /* what it sends comes to one, or to none */
                rpc_mem_cut(t.bed.net, t.addrs[0], t.addrs[1]);
                if (seed % 2)
                    rpc_mem_cut(t.bed.net, t.addrs[0], t.addrs[2]);
                rpc_bed_sleep(&t.bed, seed);
            }
            node_down(0);
            rpc_mem_heal(t.bed.net);
            lead(2);
        }
        assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
        assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
        uint64_t left = prefix();
        assert_true(left >= t.acked && left <= t.begun);
        cut += left < t.begun - 1;
        end();
    }
    assert_true(cut > 5);
}

/* ---- no majority ---- */

static void waits(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t number;

    (void)cookie;
    for (uint64_t i = 1; i <= 5; i++) {
        fill(b, i);
        assert_int_equal(kv_begin(t.k, b, &number, &t.err), 0);
    }
    fill(b, 6);
    if (kv_write(t.k, b, true, &t.err))
        assert_int_equal(kv_begun_wait(t.k, 5, UINT64_MAX, &t.err), ERR_UNAVAILABLE);
    kv_batch_free(b);
    t.done = true;
}

static bool is_drained(void *cookie)
{
    return !cookie && repl_node_drained(t.nodes[0]);
}

static void goes_on(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    struct kv *k = kv_repl_new(cookie);
    uint64_t from = last_of(k), number;

    for (uint64_t i = from + 1; i < from + 10; i++) {
        fill(b, i);
        assert_int_equal(kv_begin(k, b, &number, &t.err), 0);
    }
    fill(b, from + 10);
    assert_int_equal(kv_write(k, b, true, &t.err), 0);
    kv_batch_free(b);
    kv_close(k);
    t.done = true;
}

static void write_ten(int leader)
{
    t.done = false;
    fiber_run(goes_on, t.nodes[leader]);
    assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
}

static void test_no_majority(void **state)
{
    int first = 0;

    (void)state;
    begin(false, 5);
    assert_true(is_drained(NULL));
    t.k = kv_repl_new(t.nodes[0]);
    for (int i = 1; i < NODES; i++) {
        rpc_mem_cut(t.bed.net, t.addrs[0], t.addrs[i]);
        rpc_mem_cut(t.bed.net, t.addrs[i], t.addrs[0]);
    }
    fiber_run(waits, NULL);
    rpc_bed_sleep(&t.bed, 20000);
    assert_false(t.done); /* a short outage ends nothing */
    assert_true(rpc_bed_run(&t.bed, is_done, NULL, LIMIT_MS));
    assert_int_equal(t.err.code, ERR_UNAVAILABLE);
    assert_true(leads(&first)); /* no node could end its lead */
    assert_false(is_drained(NULL));
    /* Batches that failed are stored when the other nodes are back: no store may be opened before,
     * and a user of the old handle reads the rows as of its failure. */
    rpc_mem_heal(t.bed.net);
    assert_true(rpc_bed_run(&t.bed, is_drained, NULL, LIMIT_MS));
    assert_int_equal(last_of(t.dbs[0]), 6);
    assert_false(has(t.k, NULL, 6));
    kv_close(t.k);
    rpc_bed_sleep(&t.bed, 10);
    write_ten(0);
    assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
    assert_int_equal(prefix(), 16);
    end();
}

/* ---- a folder restored from an old copy ---- */

static struct kv *fork_db(int i)
{
    t.dbs[i]->ops = t.own;
    struct kv *copy = kv_mem_fork(t.dbs[i], KV_MEM_KILL, 0);
    t.dbs[i]->ops = copy->ops = &t.ops;
    return copy;
}

/* A folder is restored from an old copy while another member is dead: entries that these two had
 * acked are in no log that answers. The third member lacks them, and knows that they are committed.
 * So no node leads until the dead member is back. */
static void test_old_folder(void **state)
{
    (void)state;
    begin(false, 7);
    write_ten(0);
    assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
    rlog_fake_settle(t.disks[1]);
    struct rlog_fake *old_disk = rlog_fake_fork(t.disks[1], 9);
    struct kv *old_db = fork_db(1);
    node_down(2); /* comes back, and its leader does not hear which entries it lacks */
    write_ten(0);
    rpc_mem_cut(t.bed.net, t.addrs[2], t.addrs[0]);
    node_up(2);
    rpc_bed_sleep(&t.bed, 2000);
    uint64_t commit = repl_node_state(t.nodes[0]).commit;
    assert_true(repl_node_state(t.nodes[2]).last_index < commit);
    node_down(0);
    node_down(1);
    rpc_mem_heal(t.bed.net);
    t.dbs[1]->ops = t.own;
    kv_close(t.dbs[1]);
    t.dbs[1] = old_db;
    rlog_fake_free(t.disks[1]);
    t.disks[1] = old_disk;
    node_up(1);
    for (int i = 1; i < NODES; i++) {
        name_leader(i);
        rpc_bed_sleep(&t.bed, 5000);
        assert_int_equal(repl_node_state(t.nodes[i]).role, REPLICA_PREPARING);
        assert_int_equal(repl_node_state(t.nodes[i]).lacks, commit);
    }
    node_up(0);
    lead(1);
    write_ten(1);
    assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
    assert_int_equal(prefix(), 30);
    end();
}

/* ---- threads: one begins, one waits, as a shard's do ---- */

static void begins(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    uint64_t number = 0;
    struct err e;

    (void)cookie;
    for (uint64_t i = 1; i <= ROWS; i++) {
        fill(b, i);
        CHECK(kv_begin(t.k, b, &number, &e) == 0);
        if (i % 50 == 0)
            CHECK(last_of(t.k) == i);
    }
    CHECK(kv_begun_wait(t.k, number, UINT64_MAX, &e) == 0);
    CHECK(has(t.dbs[0], NULL, ROWS));
    kv_batch_free(b);
    atomic_fetch_add(&t.ends, 1);
}

static void commits(void *cookie)
{
    struct kv_batch *b = kv_batch_new();
    struct err e;
    char key[8];

    (void)cookie;
    for (uint64_t i = 1; i <= 50; i++) {
        kv_batch_clear(b);
        kv_batch_put(b, KV_RAW, row_key(key, i), STR("x"));
        CHECK(kv_write(t.k, b, true, &e) == 0);
    }
    kv_batch_free(b);
    atomic_fetch_add(&t.ends, 1);
}

static bool both_ended(void *cookie)
{
    (void)cookie;
    return atomic_load(&t.ends) == 2;
}

static void test_threads(void **state)
{
    struct thread one = { 0 }, two = { 0 };

    (void)state;
    begin(true, 1);
    t.k = kv_repl_new(t.nodes[0]);
    thread_start(&one, "begins", begins, NULL);
    thread_start(&two, "commits", commits, NULL);
    assert_true(rpc_bed_run(&t.bed, both_ended, NULL, LIMIT_MS));
    thread_join(&one);
    thread_join(&two);
    kv_close(t.k);
    assert_true(rpc_bed_run(&t.bed, quiet, NULL, LIMIT_MS));
    assert_int_equal(prefix(), ROWS);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_on_their_way),
        cmocka_unit_test(test_sees_what_it_wrote),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_no_majority),
        cmocka_unit_test(test_old_folder),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
