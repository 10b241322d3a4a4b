/* SPDX-License-Identifier: Apache-2.0
 *
 * A distributor asks ingesters whether they have what they acked: pushes and imports, some shards
 * in one question; of ingesters that know only one shard a question, that do not answer for a
 * while, that lost a write, or that made one up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/base/state.h"
#include "distributor/send/ack_log.h"
#include "proto/ledger.pb-c.h"
#include "tests/lib/roles/dist_bed.h"

#define AUDITED "embertree_ledger_acks_audited_total"
#define MISSED  "embertree_ledger_acks_unaudited_total"
#define LOST    "embertree_ledger_acks_lost_total"
#define DOUBLED "embertree_ledger_acks_doubled_total"
#define INGEST  "/ingest?name=app%zu.cpu&from=%zu&until=%zu"

static const char *const flags[] = { "--cluster.shards=24", "--distributor.ledger_epoch=2s",
                                     "--distributor.ack_timeout=5s",
                                     "--distributor.attempt_timeout=1s", NULL };

struct ask_bed {
    struct dist_bed b;
    size_t questions, shards_most;
    size_t deaf; /* so many questions get no answer */
    bool old;    /* knows one shard a question */
    bool forgets, invents, unknown;
    int64_t deleted_ms;
};
static struct ask_bed *bed; /* of the test that runs */

struct id {
    uint8_t wid[16];
};
typedef VEC(struct id) ids;

static bool has(const ids *all, const uint8_t *wid)
{
    vec_for (i, all)
        if (memcmp(all->ptr[i].wid, wid, 16) == 0)
            return true;
    return false;
}

/* What the shard has, each once, and the sums of what it has under these names. */
static void sum_up(const Embertree__LedgerRequest *q, const Embertree__LedgerAsk *ask, ids *stored,
                   Embertree__LedgerAcks *ret)
{
    struct dist_bed *b = &bed->b;
    struct acks sum = { 0 };
    bool first = true;

    for (size_t i = 0; i < b->writes.len; i++) {
        Embertree__WriteRequest *m = dist_bed_write(b, i);
        for (size_t k = 0; m->shard == ask->shard && k < m->n_series; k++) {
            struct id id;
            memcpy(id.wid, m->series[k]->write_id.data, 16);
            if (has(stored, id.wid))
                continue;
            vec_push(stored, id);
            if (m->distributor != q->distributor || m->epoch != ask->epoch)
                continue;
            if (!(bed->forgets && first))
                acks_add(&sum, id.wid);
            first = false;
        }
        embertree__write_request__free_unpacked(m, NULL);
    }
    if (bed->invents)
        acks_add(&sum, (const uint8_t *)"0123456789abcdef");
    embertree__ledger_acks__init(ret);
    ret->count = sum.count;
    ret->high = sum.high;
    ret->low = sum.low;
    ret->deleted_ms = bed->deleted_ms;
}

static void reply(struct rpc_call *call, const Embertree__LedgerRequest *q)
{
    Embertree__LedgerReply r = EMBERTREE__LEDGER_REPLY__INIT;
    Embertree__LedgerAcks acks[256], *all[256];
    protobuf_c_boolean known[256][8];
    struct buf out;

    assert_true(q->n_asks <= ARRAY_LEN(acks));
    for (size_t i = 0; i < q->n_asks; i++) {
        const Embertree__LedgerAsk *ask = q->asks[i];
        ids stored = { 0 };
        sum_up(q, ask, &stored, &acks[i]);
        all[i] = &acks[i];
        assert_true(ask->n_write_ids <= ARRAY_LEN(known[i]));
        for (size_t k = 0; k < ask->n_write_ids; k++)
            known[i][k] = has(&stored, ask->write_ids[k].data);
        acks[i].known = known[i];
        acks[i].n_known = bed->unknown ? 0 : ask->n_write_ids;
        vec_free(&stored);
    }
    r.acks = all;
    r.n_acks = q->n_asks;
    buf_init(&out, MIB);
    char *to = buf_room(&out, embertree__ledger_reply__get_packed_size(&r));
    out.len += embertree__ledger_reply__pack(&r, (uint8_t *)(void *)to);
    rpc_reply(call, &out);
}

static void on_ledger(void *cookie, struct rpc_call *call, struct str payload)
{
    Embertree__LedgerRequest *q = embertree__ledger_request__unpack(
        NULL, payload.len, (const uint8_t *)(const void *)payload.ptr);
    struct dist_bed_ingester *in = cookie;
    struct err e;

    assert_non_null(q);
    for (size_t i = 0; i < q->n_shards; i++) /* it is asked about what it has */
        assert_int_equal(q->shards[i] % in->bed->ingesters_len, in->number);
    bed->questions++;
    bed->shards_most = MAX(bed->shards_most, q->n_shards);
    if (bed->deaf) {
        bed->deaf--;
        (void)err_set(&e, ERR_UNAVAILABLE, "shard %u is not here", q->shards[0]);
        rpc_fail(call, &e);
    } else if (bed->old && q->n_shards != 1) {
        (void)err_set(&e, ERR_INPUT, "acks are those of one shard");
        rpc_fail(call, &e);
    } else {
        reply(call, q);
    }
    embertree__ledger_request__free_unpacked(q, NULL);
}

static void setup(struct ask_bed *x)
{
    *x = (struct ask_bed){ 0 };
    bed = x;
    dist_bed_init(&x->b, 2, flags);
    for (size_t i = 0; i < 2; i++)
        rpc_serve(x->b.ingesters[i].node, RPC_LEDGER, on_ledger, &x->b.ingesters[i]);
}

/* n services, in as many shards as that makes. */
static void push_some(struct ask_bed *x, size_t n)
{
    size_t now = (size_t)(clock_wall_ms(x->b.env.clock) / 1000);
    char target[128];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(target, sizeof(target), INGEST, i, now - 60, now - 50);
        assert_int_equal(dist_bed_push(&x->b, target, "", STR("a;b 3\n"), NULL), 200);
    }
}

static void pass(struct ask_bed *x, uint64_t s)
{
    for (; s; s--)
        net_pass(&x->b.world, 1000);
}

static void check(struct ask_bed *x, uint64_t audited, uint64_t missed, uint64_t lost,
                  uint64_t doubled)
{
    assert_int_equal(dist_bed_metric(&x->b, AUDITED), audited);
    assert_int_equal(dist_bed_metric(&x->b, MISSED), missed);
    assert_int_equal(dist_bed_metric(&x->b, LOST), lost);
    assert_int_equal(dist_bed_metric(&x->b, DOUBLED), doubled);
}

static void test_even(void **state)
{
    struct ask_bed x;

    (void)state;
    setup(&x);
    push_some(&x, 40);
    pass(&x, 5);
    check(&x, 0, 0, 0, 0); /* writes of these epochs may be under way */
    pass(&x, 12);
    check(&x, 40, 0, 0, 0);
    assert_true(x.shards_most > 1 && x.questions < 24);
    pass(&x, 60);
    check(&x, 40, 0, 0, 0);
    dist_bed_deinit(&x.b);
}

/* The messages that went to ingesters, as a body of an import: they name a distributor, which
 * must not be believed. */
static void test_import(void **state)
{
    struct ask_bed x;
    struct buf body;
    const char *got;

    (void)state;
    setup(&x);
    push_some(&x, 10);
    buf_init(&body, MIB);
    for (size_t i = 0; i < 10; i++) {
        struct str m = x.b.writes.ptr[i];
        uint8_t head[2] = { (uint8_t)(m.len & 0x7f) | 0x80, (uint8_t)(m.len >> 7) };
        assert_true(m.len >= 0x80 && m.len < 0x4000);
        (void)buf_add_str(&body, str_n(head, 2));
        (void)buf_add_str(&body, m);
    }
    pass(&x, 30);
    check(&x, 10, 0, 0, 0);
    assert_int_equal(dist_bed_push(&x.b, "/api/v1/import", "", buf_str(&body), &got), 200);
    assert_int_equal(x.b.writes.len, 20);
    Embertree__WriteRequest *was = dist_bed_write(&x.b, 0), *now = dist_bed_write(&x.b, 10);
    assert_int_equal(now->distributor, was->distributor);
    assert_true(now->epoch > was->epoch);
    embertree__write_request__free_unpacked(was, NULL);
    embertree__write_request__free_unpacked(now, NULL);
    pass(&x, 30);
    check(&x, 20, 0, 0, 0);
    x.forgets = true;
    assert_int_equal(dist_bed_push(&x.b, "/api/v1/import", "", buf_str(&body), &got), 200);
    pass(&x, 70);
    assert_true(dist_bed_metric(&x.b, LOST) > 0);
    buf_deinit(&body);
    dist_bed_deinit(&x.b);
}

/* An import that is not answered is tried again, under the same names, and is in doubt: the shard
 * must know it, wherever it is summed up. */
static void import_unanswered(bool unknown)
{
    struct ask_bed x;
    struct buf body;

    setup(&x);
    x.unknown = unknown;
    push_some(&x, 1);
    buf_init(&body, MIB);
    struct str m = x.b.writes.ptr[0];
    uint8_t head[2] = { (uint8_t)(m.len & 0x7f) | 0x80, (uint8_t)(m.len >> 7) };
    (void)buf_add_str(&body, str_n(head, 2));
    (void)buf_add_str(&body, m);
    x.b.fail_first = 2; /* the second try is a duplicate */
    x.b.duplicates = 1;
    assert_int_equal(dist_bed_push(&x.b, "/api/v1/import", "", buf_str(&body), NULL), 200);
    assert_int_equal(x.b.writes.len, 3);
    Embertree__WriteRequest *a = dist_bed_write(&x.b, 1), *b = dist_bed_write(&x.b, 2);
    assert_int_equal(a->epoch, b->epoch);
    embertree__write_request__free_unpacked(a, NULL);
    embertree__write_request__free_unpacked(b, NULL);
    pass(&x, 2);
    assert_true(dist_bed_metric(&x.b, "embertree_ledger_acks_bytes") > 0);
    pass(&x, 70);
    check(&x, unknown ? 0 : 2, 0, unknown, 0); /* one entry: all of it, or none */
    buf_deinit(&body);
    dist_bed_deinit(&x.b);
}

static void test_import_unanswered(void **state)
{
    (void)state;
    import_unanswered(false);
    import_unanswered(true);
}

static void test_old(void **state)
{
    struct ask_bed x;

    (void)state;
    setup(&x);
    x.old = true;
    push_some(&x, 40);
    pass(&x, 40);
    check(&x, 40, 0, 0, 0);
    assert_true(x.shards_most > 1);
    x.shards_most = 0;
    push_some(&x, 40);
    pass(&x, 40);
    check(&x, 80, 0, 0, 0);
    assert_int_equal(x.shards_most, 1); /* it is remembered for a while */
    dist_bed_deinit(&x.b);
}

static void test_deaf(void **state)
{
    struct ask_bed x;

    (void)state;
    setup(&x);
    x.deaf = 9;
    push_some(&x, 40);
    pass(&x, 50);
    check(&x, 40, 0, 0, 0);
    x.deaf = SIZE_MAX; /* as long as rows are kept, and then it is said */
    push_some(&x, 40);
    pass(&x, 3500);
    check(&x, 40, 40, 0, 0);
    dist_bed_deinit(&x.b);
}

static void test_differs(void **state)
{
    struct ask_bed x;
    struct distributor *d;

    (void)state;
    setup(&x);
    x.forgets = true;
    push_some(&x, 1);
    pass(&x, 20);
    check(&x, 0, 0, 0, 0); /* asked three times before it is said */
    pass(&x, 40);
    check(&x, 0, 0, 1, 0);
    x.forgets = false;
    x.invents = true;
    push_some(&x, 1);
    pass(&x, 60);
    check(&x, 0, 0, 1, 1);
    x.deleted_ms = clock_wall_ms(x.b.env.clock); /* then nothing can be said */
    push_some(&x, 1);
    pass(&x, 60);
    check(&x, 0, 1, 1, 1);
    d = x.b.self;
    ack_audit_add(d->book, &(struct ledger_write){ 0, 0, STR("t") }, &(struct acks){ 5, 0, 0 });
    check(&x, 0, 6, 1, 1);
    dist_bed_deinit(&x.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even), cmocka_unit_test(test_import),
        cmocka_unit_test(test_old),  cmocka_unit_test(test_import_unanswered),
        cmocka_unit_test(test_deaf), cmocka_unit_test(test_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
