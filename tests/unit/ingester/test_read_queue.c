/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of reads: tenants take turns, one tenant's queue is bounded, a canceled query gives its
 * place back; by the order in which answers come.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ingester/read/rpc_read.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

#define ASKED_MAX 64

struct asked {
    struct order *order;
    char tenant;
    uint64_t id;
    int code;
    char text[ERR_TEXT_MAX];
};
struct order {
    struct asked at[ASKED_MAX];
    size_t len, ended;
    char text[ASKED_MAX + 1]; /* tenants in the order of answers; refused ones are left out */
    size_t text_len;
};

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct asked *a = cookie;

    (void)reply;
    a->order->ended++;
    a->code = err ? err->code : 0;
    if (err)
        snprintf(a->text, sizeof(a->text), "%s", err->text);
    else
        a->order->text[a->order->text_len++] = a->tenant;
}

static void ask(struct ingester_bed *b, struct order *o, char tenant)
{
    Embertree__MergeRequest m = EMBERTREE__MERGE_REQUEST__INIT;
    struct asked *a = &o->at[o->len++];
    struct buf payload;

    assert_true(o->len <= ASKED_MAX);
    *a = (struct asked){ .order = o, .tenant = tenant };
    m.tenant = (ProtobufCBinaryData){ 1, (uint8_t *)&a->tenant };
    m.profile_type =
        (ProtobufCBinaryData){ strlen(WRITE_GEN_CPU), (uint8_t *)(uintptr_t)WRITE_GEN_CPU };
    m.end_ms = 1;
    buf_init(&payload, KIB);
    char *p = buf_room(&payload, embertree__merge_request__get_packed_size(&m));
    assert_non_null(p);
    payload.len += embertree__merge_request__pack(&m, (uint8_t *)p);
    a->id = rpc_send(b->peer, RPC_MERGE, &payload, 20000, on_done, a);
}

static bool all_ended(void *cookie)
{
    const struct order *o = cookie;

    return o->ended == o->len;
}

static void open_bed(struct ingester_bed *b, const char *const *flags)
{
    struct err e;

    ingester_bed_init(b, false, 1, flags);
    if (ingester_bed_start(b, &e))
        fail_msg("%s", e.text);
}

/* 512 MiB of memory are room for two heavy queries, one of each tenant. What is sent in one turn of
 * the loop has all come before the first one ends there. */
static void test_tenants_take_turns(void **state)
{
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    struct order o = { 0 };
    struct ingester_bed b;

    (void)state;
    open_bed(&b, flags);
    for (int i = 0; i < 30; i++)
        ask(&b, &o, 'h');
    for (int i = 0; i < 3; i++)
        ask(&b, &o, 'q');
    assert_true(rpc_bed_run(&b.rpc, all_ended, &o, 20000));
    assert_int_equal(o.text_len, 33);
    for (size_t i = 0; i < o.len; i++)
        assert_int_equal(o.at[i].code, 0);
    if (strrchr(o.text, 'q') > o.text + 9)
        fail_msg("answered in the order %s", o.text);
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_ingester_reads_pending"), 0);
    ingester_bed_deinit(&b);
}

static void test_a_tenants_queue_is_bounded(void **state)
{
    static const char *const flags[] = { "--tenancy.multi=true", "--ingester.reads_tenant_max=5",
                                         "--ingester.reads_max=40", NULL };
    struct order o = { 0 };
    struct ingester_bed b;
    size_t refused = 0;

    (void)state;
    open_bed(&b, flags);
    for (int i = 0; i < 20; i++)
        ask(&b, &o, 'h');
    for (int i = 0; i < 4; i++)
        ask(&b, &o, 'q');
    assert_true(rpc_bed_run(&b.rpc, all_ended, &o, 20000));
    for (size_t i = 0; i < o.len; i++) {
        refused += o.at[i].code == ERR_RATE;
        assert_true(o.at[i].code == 0 || o.at[i].tenant == 'h');
        if (o.at[i].code)
            assert_non_null(strstr(o.at[i].text, "ingester.reads_tenant_max"));
    }
    assert_true(refused > 0 && refused + o.text_len == 24);
    ingester_bed_deinit(&b);
}

/* The caller goes: those that wait are dropped at their turn, and nothing stays behind. */
static void test_canceled_queries_are_dropped(void **state)
{
    struct order o = { 0 };
    struct ingester_bed b;

    (void)state;
    open_bed(&b, NULL);
    for (int i = 0; i < 20; i++)
        ask(&b, &o, 'h');
    for (size_t i = 0; i < 20; i++)
        rpc_cancel(b.client, o.at[i].id);
    rpc_bed_sleep(&b.rpc, 100);
    assert_int_equal(o.ended, 0); /* canceled calls get no answer */
    o = (struct order){ 0 };
    ask(&b, &o, 'q');
    assert_true(rpc_bed_run(&b.rpc, all_ended, &o, 20000));
    assert_int_equal(o.at[0].code, 0);
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_ingester_reads_pending"), 0);
    ingester_bed_deinit(&b);
}

static void test_tenant_of_a_request(void **state)
{
    static const struct {
        struct str payload;
        const char *tenant;
    } cases[] = {
        { { "\x0a\x03"
            "abcrest",
            9 },
          "abc" },
        { { "\x0a\x00", 2 }, "" },
        { { "", 0 }, "" },
        { { "\x0a", 1 }, "" },
        { { "\x0a\x05"
            "abc",
            5 },
          "" },
        { { "\x12\x03"
            "abc",
            5 },
          "" },
        { { "\x0a\xff\xff\xff\xff\x0f"
            "a",
            7 },
          "" },
    };
    static char big[200] = "\x0a\x81\x01";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_true(str_eqc(read_tenant(cases[i].payload), cases[i].tenant));
    assert_int_equal(read_tenant(str_n(big, 3 + 129)).len, 129);
    assert_int_equal(read_tenant(str_n(big, 3 + 128)).len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants_take_turns),
        cmocka_unit_test(test_a_tenants_queue_is_bounded),
        cmocka_unit_test(test_canceled_queries_are_dropped),
        cmocka_unit_test(test_tenant_of_a_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
