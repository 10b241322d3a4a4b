/* SPDX-License-Identifier: Apache-2.0
 *
 * RPC_LEDGER_ACCEPT on a simulated ingester of several shards: what a querier asks for, one call
 * for each shard and all at once, is done, and once; an ingester whose auditor was not there yet
 * says so. What accepting does to rows is test_ledger_accept.c's, the whole path test_ledger.py's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/store/ledger/ledger.h"
#include "common/store/state/store_impl.h"
#include "ingester/admin/accept_msg.h"
#include "ingester/background/auditor.h"
#include "ingester/base/state.h"
#include "ingester/shard/shards.h"
#include "proto/ledger.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

#define SHARDS 3

static struct ingester_bed bed;
static struct err e;

static int setup(void **state)
{
    static const char *const flags[] = { "--cluster.shards=3",       "--ingester.seal-delay=10s",
                                         "--scrub.audit-delay=1m",   "--scrub.audit-interval=1m",
                                         "--scrub.audit-rate=10000", NULL };
    uint64_t wid = 0;

    (void)state;
    ingester_bed_init(&bed, true, (uint64_t)time(NULL), flags);
    struct prng rnd = bed.rpc.prng;
    if (ingester_bed_start(&bed, &e))
        fail_msg("start: %s", e.text);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct write_gen g = {
            .service = "svc", .shard = shard, .wid = ++wid, .slot = ingester_bed_slot(&bed)
        };
        assert_int_equal(ingester_bed_write(&bed, &g, &rnd, NULL), 0);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ingester_bed_deinit(&bed);
    return 0;
}

/* Takes a raw or sealed row out of each shard, behind the store's back. */
static void lose(void)
{
    static const enum kv_cf families[] = { KV_RAW, KV_FINE };
    const struct ingester *in = bed.self;

    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct shard *held = shards_get(in->shards, shard, &e);
        struct store *s = shard_store(held);
        bool lost = false;

        for (size_t i = 0; i < ARRAY_LEN(families) && !lost; i++) {
            struct kv_iter *it = kv_iter_new(s->kv, NULL, families[i], STR_NULL, STR_NULL);
            struct kv_batch *b = kv_batch_new();

            lost = kv_iter_valid(it);
            if (lost)
                kv_batch_del(b, families[i], kv_iter_key(it));
            kv_iter_free(it);
            assert_int_equal(kv_write(s->kv, b, true, &e), 0);
            kv_batch_free(b);
        }
        assert_true(lost);
        shards_put(in->shards, held);
    }
}

static uint64_t difference(uint32_t shard)
{
    const struct ingester *in = bed.self;
    struct audited *x = XNEW(struct audited);

    auditor_tenant(in->auditor, shard, STR("t"), x);
    uint64_t n = x->difference;
    xfree(x);
    return n;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static void ask(struct rpc_bed_call *c, const char *tenant, const char *who, const char *reason,
                const uint32_t *shards, size_t n)
{
    Embertree__LedgerAcceptRequest m = EMBERTREE__LEDGER_ACCEPT_REQUEST__INIT;
    struct buf out;

    m.tenant = bytes(tenant);
    m.who = bytes(who);
    m.reason = bytes(reason);
    m.shards = (uint32_t *)(uintptr_t)shards;
    m.n_shards = n;
    buf_init(&out, 64 * KIB);
    char *to = buf_room(&out, 16 * KIB);
    out.len += embertree__ledger_accept_request__pack(&m, (uint8_t *)(void *)to);
    rpc_bed_call(c, bed.peer, RPC_LEDGER_ACCEPT, buf_str(&out), 10000);
    buf_deinit(&out);
}

/* Its reply, looked at and gone. */
static Embertree__LedgerAcceptReply end(struct rpc_bed_call *c)
{
    if (rpc_bed_end(&bed.rpc, c))
        fail_msg("%s", c->text);
    Embertree__LedgerAcceptReply *r = embertree__ledger_accept_reply__unpack(
        NULL, c->reply.len, (const uint8_t *)(const void *)c->reply.ptr);
    assert_non_null(r);
    Embertree__LedgerAcceptReply copy = *r;
    embertree__ledger_accept_reply__free_unpacked(r, NULL);
    rpc_bed_call_deinit(c);
    return copy;
}

static void test_each_shard_at_once(void **state)
{
    static const uint32_t numbers[SHARDS] = { 0, 1, 2 };
    struct rpc_bed_call calls[2 * SHARDS];

    (void)state;
    lose();
    rpc_bed_sleep(&bed.rpc, 600000);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_true(difference(i) > 0);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        ask(&calls[i], "t", "ann", "shelf 3 burnt", &numbers[i % SHARDS], 1);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        Embertree__LedgerAcceptReply r = end(&calls[i]);
        /* The second time the same is no difference any more. */
        assert_int_equal(r.services, i < SHARDS ? 1 : 0);
        assert_true((r.places > 0) == (i < SHARDS) && (r.lost > 0) == (i < SHARDS));
        assert_int_equal(r.unseen, 0);
    }
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_equal(difference(i), 0);
    rpc_bed_sleep(&bed.rpc, 600000);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_equal(difference(i), 0);
}

static void test_before_the_auditor(void **state)
{
    struct rpc_bed_call c;
    Embertree__LedgerAcceptReply r;

    (void)state;
    lose();
    ask(&c, "t", "ann", "burnt", NULL, 0);
    r = end(&c);
    assert_int_equal(r.unseen, SHARDS);
    assert_int_equal(r.places, 0);
    ask(&c, "absent", "ann", "burnt", NULL, 0);
    r = end(&c);
    assert_int_equal(r.unseen, 0);
    rpc_bed_sleep(&bed.rpc, 600000);
    ask(&c, "t", "ann", "burnt", NULL, 0);
    r = end(&c);
    assert_int_equal(r.unseen, 0);
    assert_int_equal(r.services, SHARDS);
}

static void test_stops_while_they_wait(void **state)
{
    struct rpc_bed_call calls[4];

    (void)state;
    lose();
    rpc_bed_sleep(&bed.rpc, 600000);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        ask(&calls[i], "t", "ann", "burnt", NULL, 0);
    ingester_bed_stop(&bed);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        int code = rpc_bed_end(&bed.rpc, &calls[i]);
        assert_true(code == 0 || code == ERR_UNAVAILABLE || code == ERR_BUSY);
        rpc_bed_call_deinit(&calls[i]);
    }
    if (ingester_bed_start(&bed, &e))
        fail_msg("start: %s", e.text);
}

static void refused(const char *tenant, const char *who, const char *reason, size_t shards,
                    const char *says)
{
    uint32_t *numbers = XNEW_ARRAY(uint32_t, shards + 1);
    struct rpc_bed_call c;

    for (size_t i = 0; i < shards; i++)
        numbers[i] = (uint32_t)i + 1;
    ask(&c, tenant, who, reason, numbers, shards);
    xfree(numbers);
    assert_int_equal(rpc_bed_end(&bed.rpc, &c), ERR_INPUT);
    if (!strstr(c.text, says))
        fail_msg("want \"%s\" in \"%s\"", says, c.text);
    rpc_bed_call_deinit(&c);
}

static void test_refused(void **state)
{
    char text[LEDGER_REASON_MAX + 2];
    struct rpc_bed_call c;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    refused("", "ann", "burnt", 0, "no tenant");
    refused("t", "", "burnt", 0, "who accepts it? 1 to 100 bytes, not 0");
    refused("t", text, "burnt", 0, "who accepts it? 1 to 100 bytes, not 501");
    refused("t", "ann", "", 0, "why is it accepted?");
    refused("t", "ann", text, 0, "1 to 500 bytes, not 501");
    refused("t", "ann", "burnt", SHARDS_MAX + 1, "129 shards named");
    refused("t", "ann", "burnt", SHARDS, "shard 3");
    assert_int_equal(ingester_bed_call(&bed, RPC_LEDGER_ACCEPT, STR("\x0a\xff"), &c), ERR_INPUT);
    assert_non_null(strstr(c.text, "LedgerAcceptRequest"));
    rpc_bed_call_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_shard_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_before_the_auditor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stops_while_they_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
