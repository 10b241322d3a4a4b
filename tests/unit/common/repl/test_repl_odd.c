/* SPDX-License-Identifier: Apache-2.0
 *
 * One replica at work and rare events: a write of its database that fails though later ones would
 * not, a log that is idle, a disk that hangs, a part of a snapshot that comes a second time at the
 * worst moment, messages that no replica here answers. Simulated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/repl/apply.h"
#include "common/repl/kv_repl.h"
#include "common/repl/repl_node.h"
#include "common/repl/snapshot_msg.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/kv/kv_mem.h"
#include "common/sys/fiber.h"
#include "tests/lib/net/rpc_bed.h"
#include "tests/lib/repl/rlog_fake.h"

enum { LIMIT_MS = 60000, SHARD = 7 };

static struct {
    struct rpc_bed bed;
    char addr[128], others[128];
    struct rpc_node *rpc, *other; /* other: sends messages by hand */
    struct repl_hub *hub;
    struct repl_node *node; /* NULL: stopped */
    struct rlog_fake *disk;
    struct rlog_fs fs;
    struct repl_record rec;
    struct kv *db;
    const struct kv_ops *mem_ops;
    struct kv_ops ops; /* those without the close, and with writes that break */
    int breaks;        /* that write fails, once; 0: none */
    int failed;
    bool gone, done, hung, admits;
    uint64_t writes;
    struct err err;
    /* The coordination service is not trusted; the known record instead, and peers' reports. */
    bool strange;
    struct repl_known known, told;
} t;

static void keep_db(struct kv *k)
{
    (void)k;
}

static int write_or_break(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    if (t.breaks && --t.breaks == 0)
        return err_set(e, ERR_IO, "this write fails");
    return t.mem_ops->write(k, b, sync, e);
}

static void adopt_db(struct kv *db)
{
    t.db = db;
    t.mem_ops = db->ops;
    t.ops = *db->ops;
    t.ops.close = keep_db;
    t.ops.write = write_or_break;
    db->ops = &t.ops;
}

static const char *addr_of(void *cookie, const char *name)
{
    (void)cookie;
    return strcmp(name, "n0") == 0 ? t.others : t.addr;
}

static bool known(void *cookie, uint32_t shard, struct repl_known *ret)
{
    (void)cookie;
    assert_int_equal(shard, SHARD);
    *ret = t.known;
    return t.strange;
}

static void told(void *cookie, uint32_t shard, const struct repl_known *k)
{
    (void)cookie;
    assert_int_equal(shard, SHARD);
    t.told = *k;
}

static void on_role(void *cookie)
{
    (void)cookie;
}

static void establish(void *cookie)
{
    struct repl_record next;

    (void)cookie;
    if (t.rec.established || !t.node)
        return;
    record_established(&t.rec, &next);
    t.rec = next;
    repl_node_record(t.node, &t.rec);
}

static void on_establish(void *cookie, uint64_t term)
{
    (void)cookie;
    if (t.rec.term == term)
        loop_post(t.bed.loop, establish, NULL);
}

static void on_failed(void *cookie, const struct err *why)
{
    (void)cookie;
    (void)why;
    t.failed++;
}

static void node_up(void)
{
    struct repl_node_opts o = { .hub = t.hub,
                                .shard = SHARD,
                                .self = "n1",
                                .dir = "log",
                                .fs = &t.fs,
                                .db = t.db,
                                .simulated = true,
                                .admits = t.admits,
                                .role = on_role,
                                .establish = on_establish,
                                .failed = on_failed };
    struct err e;

    if (repl_node_new(&o, &t.node, &e))
        fail_msg("%s", e.text);
    repl_node_record(t.node, &t.rec);
}

static void on_gone(void *cookie)
{
    (void)cookie;
    t.gone = true;
}

static bool is_true(void *cookie)
{
    return *(const bool *)cookie;
}

static void node_down(void)
{
    struct repl_node *n = t.node;

    t.gone = false;
    t.node = NULL;
    repl_node_stop(n, on_gone, NULL);
    assert_true(rpc_bed_run(&t.bed, is_true, &t.gone, LIMIT_MS));
}

static struct rpc_node *rpc_up(char addr[128])
{
    struct rpc_node_opts o;
    struct rpc_node *n;
    struct err e;

    rpc_bed_addr(&t.bed, addr);
    o = rpc_bed_opts(&t.bed, addr);
    o.pending_max = 4096; /* as in a process */
    assert_int_equal(rpc_node_new(&o, &n, &e), 0);
    return n;
}

/* A replica n1, which leads alone, or follows n0, whose messages come by hand. */
static int setup(void **state)
{
    const char *leader = *state;

    memset(&t, 0, sizeof(t));
    rpc_bed_init(&t.bed, RPC_BED_MEM, 1);
    t.rpc = rpc_up(t.addr);
    t.other = rpc_up(t.others);
    t.disk = rlog_fake_new(1);
    t.fs = *rlog_fake_fs(t.disk);
    adopt_db(kv_mem_new(NULL));
    t.rec.term = 1;
    (void)snprintf(t.rec.leader, sizeof(t.rec.leader), "%s", leader);
    (void)name_set_add(&t.rec.members, leader);
    (void)name_set_add(&t.rec.members, "n1");
    struct repl_hub_opts o = {
        .rpc = t.rpc,
        .loop = t.bed.loop,
        .metrics = t.bed.metrics,
        .addr = addr_of,
        .known = known,
        .told = told,
    };
    t.hub = repl_hub_new(&o);
    node_up();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (t.node)
        node_down();
    repl_hub_free(t.hub);
    rpc_node_free(t.rpc);
    rpc_node_free(t.other);
    rlog_fake_free(t.disk);
    t.db->ops = t.mem_ops;
    kv_close(t.db);
    rpc_bed_deinit(&t.bed);
    return 0;
}

static size_t rows_of(enum kv_cf cf)
{
    struct kv_iter *it = kv_iter_new(t.db, NULL, cf, STR_NULL, STR_NULL);
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

static uint64_t noted(void)
{
    uint64_t index, term;
    struct err e;

    assert_int_equal(apply_read(t.db, &index, &term, &e), 0);
    return index;
}

/* ---- a write that fails, once --------------------------------------------------------------- */

static void writer(void *cookie)
{
    struct kv *k = kv_repl_new(t.node);
    struct kv_batch *b = kv_batch_new();
    char key[8];

    (void)cookie;
    for (uint64_t i = 0; i < t.writes && !t.err.code; i++) {
        put_u64be(key, i);
        kv_batch_clear(b);
        kv_batch_put(b, KV_FINE, str_n(key, 8), STR("row"));
        if (kv_write(k, b, true, &t.err) == 0)
            err_clear(&t.err);
    }
    kv_batch_free(b);
    kv_close(k);
    t.done = true;
}

static bool leads(void *cookie)
{
    (void)cookie;
    return repl_node_state(t.node).role == REPLICA_LEADING;
}

static bool has_failed(void *cookie)
{
    (void)cookie;
    return t.failed > 0;
}

/* Those behind it were handed over already. None of them may be there: its note would say that all
 * before are. */
static void a_write_that_fails(void **state)
{
    (void)state;
    t.writes = 900;
    assert_true(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    fiber_run(writer, NULL);
    assert_true(rpc_bed_run(&t.bed, is_true, &t.done, LIMIT_MS));
    assert_int_equal(t.err.code, 0);
    node_down();
    t.db->ops = t.mem_ops;
    adopt_db(kv_mem_reopen(t.db, KV_MEM_POWER, 1)); /* the log has them all, the database few */
    assert_true(noted() < 100);
    t.breaks = 20;
    node_up();
    assert_true(rpc_bed_run(&t.bed, has_failed, NULL, LIMIT_MS));
    rpc_bed_sleep(&t.bed, 1000);
    assert_int_equal(t.failed, 1);
    assert_true(noted() < 100);
    node_down();
    node_up(); /* as its owner does */
    assert_true(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    assert_true(noted() > 900);
    assert_int_equal(rows_of(KV_FINE), 900);
}

static void write_rows(uint64_t n)
{
    t.writes = n;
    t.done = false;
    fiber_run(writer, NULL);
    assert_true(rpc_bed_run(&t.bed, is_true, &t.done, LIMIT_MS));
    assert_int_equal(t.err.code, 0);
}

/* A log is lost, and the database has the first entry alone, as after a power cut. The node says
 * nothing, however often it starts: what the lost log promised is not known. */
static void a_log_that_is_lost(void **state)
{
    uint64_t term;
    struct err e;

    (void)state;
    assert_true(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    write_rows(20);
    node_down();
    t.db->ops = t.mem_ops;
    adopt_db(kv_mem_reopen(t.db, KV_MEM_POWER, 1));
    uint64_t index;
    assert_int_equal(apply_read(t.db, &index, &term, &e), 0);
    assert_int_equal(index, 1);
    rlog_fake_free(t.disk);
    t.disk = rlog_fake_new(2);
    t.fs = *rlog_fake_fs(t.disk);
    t.admits = true;
    for (int i = 0; i < 3; i++) {
        node_up();
        rpc_bed_sleep(&t.bed, 2000);
        assert_true(repl_node_state(t.node).silent);
        assert_true(repl_node_state(t.node).no_database);
        node_down();
    }
    node_up();
}

/* ---- a log that is idle, a disk that hangs --------------------------------------------------- */

/* The last group of writes is sealed once nothing has come for a second, and then not again. */
static void an_idle_log(void **state)
{
    uint64_t bytes, writes;

    (void)state;
    assert_true(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    for (int i = 0; i < 3; i++) {
        write_rows(1);
        bytes = rlog_fake_bytes(t.disk);
        rpc_bed_sleep(&t.bed, 500);
        assert_int_equal(rlog_fake_bytes(t.disk), bytes);
        rpc_bed_sleep(&t.bed, 1000);
        assert_int_equal(rlog_fake_bytes(t.disk), bytes + ENTRY_HEAD);
        writes = rlog_fake_faults(t.disk)->writes;
        rpc_bed_sleep(&t.bed, 60000);
        assert_int_equal(rlog_fake_faults(t.disk)->writes, writes);
    }
    /* Closed in order it is sealed at once: each byte that changes is found. */
    write_rows(1);
    node_down();
    bytes = rlog_fake_bytes(t.disk);
    rlog_fake_rot(t.disk, bytes - 2 * ENTRY_HEAD);
    struct rlog_opts o = { .fs = &t.fs, .dir = "log" };
    struct rlog *log;
    struct err e;
    assert_int_equal(rlog_open(&o, &log, &e), ERR_CORRUPT);
}

static bool hang_now(const struct rlog_fs *fs)
{
    (void)fs;
    return t.hung;
}

static void a_disk_that_hangs(void **state)
{
    struct repl_stall s;

    (void)state;
    t.fs.hangs = hang_now;
    assert_true(rpc_bed_run(&t.bed, leads, NULL, LIMIT_MS));
    write_rows(1);
    rpc_bed_sleep(&t.bed, 5000);
    s = repl_node_stall(t.node);
    assert_int_equal(s.log_ms | s.apply_ms, 0); /* nothing waits */
    t.hung = true;
    t.done = false;
    fiber_run(writer, NULL);
    rpc_bed_sleep(&t.bed, 7000);
    s = repl_node_stall(t.node);
    assert_in_range(s.log_ms, 6900, 7100);
    assert_false(t.done);
    t.hung = false;
    assert_true(rpc_bed_run(&t.bed, is_true, &t.done, LIMIT_MS));
    rpc_bed_sleep(&t.bed, 3000);
    s = repl_node_stall(t.node);
    assert_int_equal(s.log_ms | s.apply_ms, 0);
    assert_int_equal(t.err.code, 0);
}

/* ---- messages by hand ----------------------------------------------------------------------- */

static void send_by_hand(enum rpc_method method, struct buf *payload, struct rpc_bed_call *c)
{
    struct rpc_peer *to;
    struct err e;

    assert_int_equal(rpc_peer_get(t.other, t.addr, &to, &e), 0);
    rpc_bed_call(c, to, method, buf_str(payload), 5000);
    buf_deinit(payload);
}

static void send_rows(uint64_t part, bool last, uint64_t from, uint64_t upto,
                      struct rpc_bed_call *c)
{
    struct snapshot_part p = { .shard = SHARD,
                               .term = replica_term_of(1, 0),
                               .index = 10,
                               .index_term = replica_term_of(1, 0),
                               .id = 77,
                               .part = part,
                               .last = last };
    struct kv_batch *b = kv_batch_new();
    struct buf payload;
    char key[8];

    for (uint64_t i = from; i < upto; i++) {
        put_u64be(key, i);
        kv_batch_put(b, KV_FINE, str_n(key, 8), STR("row"));
    }
    p.rows = buf_str(&b->ops);
    buf_init(&payload, MIB);
    snapshot_part_write(&p, &payload);
    kv_batch_free(b);
    send_by_hand(RPC_REPL_SNAPSHOT, &payload, c);
}

static uint32_t slow_ms(const struct rlog_fs *fs)
{
    (void)fs;
    return 200;
}

/* The first part once more (it was sent twice, by two connections), while the last is written. */
static void the_first_part_late(void **state)
{
    struct rpc_bed_call calls[3];

    (void)state;
    t.fs.lag_ms = slow_ms;
    send_rows(0, false, 0, 50, &calls[0]);
    rpc_bed_sleep(&t.bed, 1000);
    assert_true(calls[0].ends == 1 && !calls[0].code);
    send_rows(1, true, 50, 80, &calls[1]);
    rpc_bed_sleep(&t.bed, 50);
    assert_int_equal(calls[1].ends, 0);
    send_rows(0, false, 0, 50, &calls[2]);
    rpc_bed_sleep(&t.bed, 3000);
    assert_true(calls[1].ends == 1 && !calls[1].code && calls[2].ends == 1);
    assert_int_equal(repl_node_state(t.node).applied, 10);
    assert_int_equal(noted(), 10);
    assert_int_equal(rows_of(KV_FINE), 80);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        rpc_bed_call_deinit(&calls[i]);
}

static void send_msg(const struct repl_msg *m, struct rpc_bed_call *c)
{
    struct buf payload;

    buf_init(&payload, KIB);
    repl_msg_write(m, &payload);
    send_by_hand(m->kind == REPL_PREPARE ? RPC_REPL_PREPARE : RPC_REPL_APPEND, &payload, c);
}

static void send_prepare(uint32_t shard, const char *from, struct rpc_bed_call *c)
{
    struct repl_msg m = { .kind = REPL_PREPARE, .shard = shard, .term = replica_term_of(1, 0) };

    (void)snprintf(m.from, sizeof(m.from), "%s", from);
    send_msg(&m, c);
}

/* The answer to one who says that it leads in the record of this term. */
static struct repl_msg ask_as(const char *from, enum repl_msg_kind kind, uint64_t record,
                              uint64_t it_knows)
{
    struct repl_msg m = { .kind = kind,
                          .shard = SHARD,
                          .term = replica_term_of(record, 0),
                          .known_term = it_knows,
                          .known_map = it_knows };
    struct rpc_bed_call c;
    struct repl_msg reply;
    struct err e;

    (void)snprintf(m.from, sizeof(m.from), "%s", from);
    send_msg(&m, &c);
    rpc_bed_sleep(&t.bed, 500);
    assert_true(c.ends == 1 && !c.code);
    assert_int_equal(repl_msg_read(buf_str(&c.reply), &reply, &e), 0);
    rpc_bed_call_deinit(&c);
    assert_string_equal(reply.from, "n1");
    assert_int_equal(reply.kind, kind + 1);
    assert_int_equal(reply.known_term, t.strange ? t.known.term : 0);
    assert_int_equal(reply.known_map, t.strange ? t.known.map : 0);
    assert_int_equal(t.told.term, it_knows);
    t.told.term = 0;
    repl_msg_free(&reply);
    return reply;
}

static struct repl_msg ask(enum repl_msg_kind kind, uint64_t record, uint64_t it_knows)
{
    return ask_as("n0", kind, record, it_knows);
}

/* A record is known, and a node that is not its leader claims the term. */
static void another_leader_of_a_term(void **state)
{
    (void)state;
    assert_false(ask_as("n2", REPL_PREPARE, 1, 0).ok);
    assert_false(ask_as("n2", REPL_APPEND, 1, 0).ok);
    assert_int_equal(repl_node_state(t.node).term, 0);
    assert_true(ask(REPL_PREPARE, 1, 0).ok);
    assert_false(ask_as("n2", REPL_PREPARE, 1, 1).ok);
    assert_true(ask_as("n2", REPL_PREPARE, 2, 0).ok); /* its record will come */
}

/* While the coordination service holds less than is known here, no leader of a term later than the
 * known record's is followed, unless it knows that record and does not trust the service either. */
static void who_was_led_astray(void **state)
{
    static const enum repl_msg_kind kinds[] = { REPL_PREPARE, REPL_APPEND };

    (void)state;
    t.known = (struct repl_known){ 4, 7 };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        t.strange = true;
        struct repl_msg no = ask(kinds[i], 5 + i, 0);
        assert_true(!no.ok && replica_record_of(no.term) < 5 + i);
        assert_true(replica_record_of(repl_node_state(t.node).term) < 5 + i);
        struct repl_msg one = ask(REPL_PREPARE, 4 + i, 0); /* the record's own, and one promised */
        assert_true(one.ok);
        struct repl_msg yes = ask(kinds[i], 5 + i, 5 + i);
        assert_true(yes.ok && replica_record_of(yes.term) == 5 + i);
        t.strange = false;
        struct repl_msg any = ask(REPL_PREPARE, 5 + i, 0);
        assert_true(any.ok);
    }
    struct repl_msg any = ask(REPL_PREPARE, 90, 0);
    assert_true(any.ok);
}

/* What no replica here takes ends at once; what none answers does not fill the node up. */
static void nobody_answers(void **state)
{
    enum { MANY = 3000, MOST = 2048 };
    struct rpc_bed_call one, *many = XNEW_ARRAY(struct rpc_bed_call, MANY);
    size_t busy = 0, waiting = 0;

    (void)state;
    send_prepare(SHARD + 1, "n0", &one);
    rpc_bed_sleep(&t.bed, 500);
    assert_true(one.ends == 1 && one.code == ERR_UNAVAILABLE);
    rpc_bed_call_deinit(&one);
    for (size_t i = 0; i < MANY; i++)
        send_prepare(SHARD, "n1", &many[i]); /* of itself: passed over */
    rpc_bed_sleep(&t.bed, 1000);
    for (size_t i = 0; i < MANY; i++) {
        busy += many[i].ends == 1 && many[i].code == ERR_BUSY;
        waiting += many[i].ends == 0;
    }
    assert_int_equal(waiting, MOST);
    assert_int_equal(busy, MANY - MOST);
    rpc_bed_sleep(&t.bed, 6000); /* their deadlines */
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(many[i].ends, 1);
        rpc_bed_call_deinit(&many[i]);
    }
    xfree(many);
}

/* While another thread closes the database, no reader uses it. */
static void stopped_keeps_quiet(void **state)
{
    struct repl_node *n = t.node;
    struct kv_stats st;

    (void)state;
    assert_true(repl_node_stats(n, &st));
    t.gone = false;
    t.node = NULL;
    repl_node_stop(n, on_gone, NULL);
    assert_false(t.gone);
    assert_false(repl_node_stats(n, &st));
    assert_true(rpc_bed_run(&t.bed, is_true, &t.gone, LIMIT_MS));
}

int main(void)
{
    char alone[] = "n1", follows[] = "n0";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate_setup_teardown(a_write_that_fails, setup, teardown, alone),
        cmocka_unit_test_prestate_setup_teardown(a_log_that_is_lost, setup, teardown, alone),
        cmocka_unit_test_prestate_setup_teardown(an_idle_log, setup, teardown, alone),
        cmocka_unit_test_prestate_setup_teardown(a_disk_that_hangs, setup, teardown, alone),
        cmocka_unit_test_prestate_setup_teardown(the_first_part_late, setup, teardown, follows),
        cmocka_unit_test_prestate_setup_teardown(another_leader_of_a_term, setup, teardown,
                                                 follows),
        cmocka_unit_test_prestate_setup_teardown(who_was_led_astray, setup, teardown, follows),
        cmocka_unit_test_prestate_setup_teardown(nobody_answers, setup, teardown, follows),
        cmocka_unit_test_prestate_setup_teardown(stopped_keeps_quiet, setup, teardown, alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
