/* SPDX-License-Identifier: Apache-2.0
 *
 * RPC_DELETE on a simulated ingester of several shards: what is deleted is gone from the next
 * answer on, the same id does it once, and the list says how far it is. The engine itself runs in
 * test_tomb.c, the whole path in tests/cluster/store/test_delete.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/model/selector.h"
#include "common/model/slot.h"
#include "common/store/delete/tenant_doc.h"
#include "common/store/mask/tomb.h"
#include "proto/delete.pb-c.h"
#include "proto/doc.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

#define SHARDS 3

static struct ingester_bed bed;
static struct prng rnd;
static uint64_t wid;

static int setup(void **state)
{
    static const char *const flags[] = { "--cluster.shards=3", "--ingester.seal-delay=10s", NULL };
    struct err e;

    (void)state;
    ingester_bed_init(&bed, true, (uint64_t)time(NULL), flags);
    rnd = bed.rpc.prng;
    if (ingester_bed_start(&bed, &e))
        fail_msg("start: %s", e.text);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ingester_bed_deinit(&bed);
    return 0;
}

static void push(const char *service, uint32_t shard)
{
    struct write_gen g = {
        .service = service,
        .shard = shard,
        .wid = ++wid,
        .slot = ingester_bed_slot(&bed),
    };
    assert_int_equal(ingester_bed_write(&bed, &g, &rnd, NULL), 0);
}

static size_t stacks(const char *service)
{
    struct write_model got;

    write_model_init(&got);
    int64_t now = slot_to_ms(ingester_bed_slot(&bed));
    assert_int_equal(ingester_bed_merge(&bed, service, now - 3600000, now + 3600000, &got), 0);
    size_t n = map_str_len(got.sums);
    write_model_deinit(&got);
    return n;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

/* The reply; free it. NULL: *ret_code. */
static Embertree__DeleteReply *call(uint32_t op, const char *id, const char *service, int *ret_code)
{
    Embertree__DeleteRequest m = EMBERTREE__DELETE_REQUEST__INIT;
    Embertree__Matcher matcher = EMBERTREE__MATCHER__INIT, *matchers = &matcher;
    Embertree__DeleteReply *r = NULL;
    struct rpc_bed_call c;
    char payload[1024];

    matcher.name = bytes("service_name");
    matcher.value = bytes(service ? service : "");
    m.op = op;
    m.tenant = bytes("t");
    m.id = bytes(id);
    m.what = bytes(service ? service : "");
    m.matchers = &matchers;
    m.n_matchers = service ? 1 : 0;
    size_t len = embertree__delete_request__pack(&m, (uint8_t *)(void *)payload);
    assert_true(len <= sizeof(payload));
    *ret_code = ingester_bed_call(&bed, RPC_DELETE, str_n(payload, len), &c);
    if (!*ret_code)
        r = embertree__delete_reply__unpack(NULL, c.reply.len,
                                            (const uint8_t *)(const void *)c.reply.ptr);
    rpc_bed_call_deinit(&c);
    return r;
}

static void on_listed(void *cookie, struct str reply, const struct err *err)
{
    size_t *codes = cookie;

    (void)reply;
    codes[err ? err->code : 0]++;
    codes[ERR_CODES]++;
}

static bool all_came(void *cookie)
{
    const size_t *codes = cookie;

    return codes[ERR_CODES] == 100;
}

/* A querier asks for each shard by itself, and a node may lead a hundred. */
static void test_many_at_once(void **state)
{
    size_t codes[ERR_CODES + 1] = { 0 };

    (void)state;
    for (int i = 0; i < 100; i++) {
        Embertree__DeleteRequest m = EMBERTREE__DELETE_REQUEST__INIT;
        struct buf payload;

        m.op = i % 2 ? 2 : 0; /* the list, or all of a tenant */
        m.tenant = bytes("absent");
        m.id = bytes("many");
        buf_init(&payload, KIB);
        char *p = buf_room(&payload, embertree__delete_request__get_packed_size(&m));
        assert_non_null(p);
        payload.len += embertree__delete_request__pack(&m, (uint8_t *)(void *)p);
        (void)rpc_send(bed.peer, RPC_DELETE, &payload, 20000, on_listed, codes);
    }
    assert_true(rpc_bed_run(&bed.rpc, all_came, codes, 20000));
    assert_int_equal(codes[0], 100);
}

static void test_delete(void **state)
{
    Embertree__DeleteReply *r;
    uint64_t series = 0, again = 0;
    int code;

    (void)state;
    push("one", 0);
    push("two", 1);
    rpc_bed_sleep(&bed.rpc, 100000);
    push("one", 0);
    assert_true(stacks("one") > 0 && stacks("two") > 0);
    r = call(1, "dry", "one", &code);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_shards; i++)
        series += r->shards[i]->series;
    assert_true(series > 0);
    embertree__delete_reply__free_unpacked(r, NULL);
    assert_true(stacks("one") > 0);
    r = call(0, "a", "one", &code);
    assert_non_null(r);
    assert_int_equal(r->n_shards, SHARDS);
    for (size_t i = 0; i < r->n_shards; i++)
        again += r->shards[i]->series;
    assert_int_equal(again, series);
    embertree__delete_reply__free_unpacked(r, NULL);
    assert_int_equal(stacks("one"), 0);
    assert_true(stacks("two") > 0);
    push("one", 0);
    r = call(0, "a", "one", &code);
    assert_non_null(r);
    assert_true(r->shards[0]->repeated && r->shards[1]->repeated && r->shards[2]->repeated);
    embertree__delete_reply__free_unpacked(r, NULL);
    assert_true(stacks("one") > 0);
    assert_null(call(0, "a", "two", &code));
    assert_int_equal(code, ERR_INPUT);
}

static void test_list(void **state)
{
    Embertree__DeleteReply *r;
    int code;

    (void)state;
    push("one", 0);
    rpc_bed_sleep(&bed.rpc, 100000);
    embertree__delete_reply__free_unpacked(call(0, "a", "one", &code), NULL);
    embertree__delete_reply__free_unpacked(call(0, "b", NULL, &code), NULL);
    r = call(2, "list", NULL, &code);
    assert_non_null(r);
    for (size_t i = 0; i < r->n_tombs; i++) /* what is done says nothing */
        assert_int_equal(r->tombs[i]->phase.len == 0, r->tombs[i]->state == TOMB_DONE);
    embertree__delete_reply__free_unpacked(r, NULL);
    rpc_bed_sleep(&bed.rpc, 130000); /* write ids of a tenant stand for a minute (tomb_late_push.c)
    */
    r = call(2, "list", NULL, &code);
    assert_non_null(r);
    assert_int_equal(r->n_tombs, 2 * SHARDS);
    for (size_t i = 0; i < r->n_tombs; i++)
        assert_true(r->tombs[i]->state == TOMB_DONE && !r->tombs[i]->phase.len);
    embertree__delete_reply__free_unpacked(r, NULL);
    assert_int_equal(stacks(NULL), 0);
}

/* The answer to an operation on a document of the tenant. */
static int document_or_gone(uint32_t op, const char *id, bool gone_ok)
{
    Embertree__DocRequest m = EMBERTREE__DOC_REQUEST__INIT;
    struct rpc_bed_call c;
    char payload[256];

    m.op = op;
    m.tenant = bytes("t");
    m.kind = DOC_SETTING;
    m.id = bytes(id);
    m.meta = bytes("m");
    m.seen = DOC_ANY_REVISION;
    m.docs_max = 10;
    m.bytes_max = 1000;
    m.gone_ok = gone_ok;
    size_t len = embertree__doc_request__pack(&m, (uint8_t *)(void *)payload);
    assert_true(len <= sizeof(payload));
    int code = ingester_bed_call(&bed, RPC_DOC, str_n(payload, len), &c);
    rpc_bed_call_deinit(&c);
    return code;
}

static int document(uint32_t op, const char *id)
{
    return document_or_gone(op, id, false);
}

static void test_a_document_that_is_gone(void **state)
{
    (void)state;
    assert_int_equal(document(2, "one"), 0);
    assert_int_equal(document_or_gone(3, "one", true), 0);
    assert_int_equal(document(0, "one"), ERR_NOT_FOUND);
    assert_int_equal(document(3, "one"), ERR_NOT_FOUND);
    assert_int_equal(document_or_gone(3, "one", true), 0);
    assert_int_equal(document_or_gone(0, "one", true), ERR_NOT_FOUND); /* of deletes alone */
}

/* A client that deletes all of a tenant and gets no answer asks again. Documents that the tenant
 * stored meanwhile are newer and stay. */
static void test_documents(void **state)
{
    int code;

    (void)state;
    push("one", 0);
    assert_int_equal(document(2, "before"), 0);
    assert_int_equal(document(0, "before"), 0);
    embertree__delete_reply__free_unpacked(call(0, "a", "one", &code), NULL);
    assert_int_equal(document(0, "before"), 0);
    embertree__delete_reply__free_unpacked(call(0, "b", NULL, &code), NULL);
    assert_int_equal(document(0, "before"), ERR_NOT_FOUND);
    assert_int_equal(document(2, "behind"), 0);
    embertree__delete_reply__free_unpacked(call(0, "b", NULL, &code), NULL);
    assert_int_equal(code, 0);
    assert_int_equal(document(0, "behind"), 0);
    embertree__delete_reply__free_unpacked(call(0, "c", NULL, &code), NULL);
    assert_int_equal(document(0, "behind"), ERR_NOT_FOUND);
}

static void test_bad_requests(void **state)
{
    struct rpc_bed_call c;
    int code;

    (void)state;
    assert_null(call(3, "a", "one", &code));
    assert_int_equal(code, ERR_UNIMPLEMENTED);
    assert_null(call(0, "", "one", &code));
    assert_int_equal(code, ERR_INPUT);
    assert_int_equal(ingester_bed_call(&bed, RPC_DELETE, STR("\xff\xff nonsense"), &c), ERR_INPUT);
    rpc_bed_call_deinit(&c);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { T(test_delete),       T(test_list),
                                        T(test_documents),    T(test_a_document_that_is_gone),
                                        T(test_bad_requests), T(test_many_at_once) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
