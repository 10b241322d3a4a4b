/* SPDX-License-Identifier: Apache-2.0
 *
 * The whole role through rpc: against a model in simulated time, and with threads and RocksDB.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "proto/ingest.pb-c.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

#define FIRST_MS INT64_C(1577836800000)
#define LAST_MS  INT64_C(4102444800000)

static uint64_t seed_of_day(void)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);

    print_message("SEED=%" PRIu64 "\n", seed);
    return seed;
}

static void start(struct ingester_bed *b)
{
    struct err e;

    if (ingester_bed_start(b, &e))
        fail_msg("%s", e.text);
}

/* Services "s0".."s4", each in the shard of its number mod shards. */
static void write_some(struct ingester_bed *b, struct prng *p, uint32_t shards, uint64_t *wid,
                       size_t n, struct write_model *models)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t s = (uint32_t)prng_below(p, 5);
        char service[16], pod[16];
        struct write_gen g = {
            .service = service,
            .pod = pod,
            .shard = s % shards,
            .slot = ingester_bed_slot(b) - (uint32_t)prng_below(p, 20),
            .wid = ++*wid,
            .stacks = 1 + (uint32_t)prng_below(p, 20),
        };
        struct prng same;

        (void)snprintf(service, sizeof(service), "s%u", (unsigned)s);
        (void)snprintf(pod, sizeof(pod), "p%u", (unsigned)prng_below(p, 3));
        same = *p;
        assert_int_equal(ingester_bed_write(b, &g, p, &models[s]), 0);
        if (prng_chance(p, 0.2)) /* a retry: the same bytes again */
            assert_int_equal(ingester_bed_write(b, &g, &same, NULL), 0);
    }
}

static void check_all(struct ingester_bed *b, const struct write_model *models)
{
    for (uint32_t s = 0; s < 5; s++) {
        struct write_model got;
        char service[16];

        (void)snprintf(service, sizeof(service), "s%u", (unsigned)s);
        write_model_init(&got);
        assert_int_equal(ingester_bed_merge(b, service, FIRST_MS, LAST_MS, &got), 0);
        if (!write_model_eq(&models[s], &got))
            fail_msg("service %s", service);
        write_model_deinit(&got);
    }
}

static Embertree__StatusReply *status(struct ingester_bed *b)
{
    Embertree__StatusReply *r;
    struct rpc_bed_call c;

    assert_int_equal(ingester_bed_call(b, RPC_STATUS, STR(""), &c), 0);
    r = embertree__status_reply__unpack(NULL, c.reply.len,
                                        (const uint8_t *)(const void *)c.reply.ptr);
    assert_non_null(r);
    rpc_bed_call_deinit(&c);
    return r;
}

static void test_against_a_model(void **state)
{
    static const char *const flags[] = { "--cluster.shards=3", "--ingester.seal-delay=10s", NULL };
    struct write_model models[5];
    struct ingester_bed b;
    struct prng p;
    uint64_t wid = 0;
    Embertree__StatusReply *st;

    (void)state;
    ingester_bed_init(&b, true, seed_of_day(), flags);
    p = b.rpc.prng;
    for (size_t i = 0; i < 5; i++)
        write_model_init(&models[i]);
    start(&b);
    for (size_t round = 0; round < 12; round++) {
        write_some(&b, &p, 3, &wid, 15, models);
        check_all(&b, models);
        rpc_bed_sleep(&b.rpc, 5000 + prng_below(&p, 40000));
        check_all(&b, models);
    }
    rpc_bed_sleep(&b.rpc, 200000); /* all is sealed */
    check_all(&b, models);
    st = status(&b);
    assert_true(st->ready);
    assert_false(st->read_only);
    assert_int_equal(st->shards, 3);
    assert_int_equal(st->raw_rows, 0);
    assert_true(st->applied > 0);
    assert_int_equal(st->seal_lag_ms, 0);
    embertree__status_reply__free_unpacked(st, NULL);
    for (size_t i = 0; i < 5; i++)
        write_model_deinit(&models[i]);
    ingester_bed_deinit(&b);
}

static void test_threads_and_rocksdb_and_a_restart(void **state)
{
    static const char *const flags[] = { "--cluster.shards=2", "--ingester.seal-delay=0ms", NULL };
    struct write_model models[5];
    struct ingester_bed b;
    struct prng p;
    uint64_t wid = 0;

    (void)state;
    ingester_bed_init(&b, false, seed_of_day(), flags);
    p = b.rpc.prng;
    for (size_t i = 0; i < 5; i++)
        write_model_init(&models[i]);
    for (size_t round = 0; round < 3; round++) {
        start(&b);
        check_all(&b, models);
        write_some(&b, &p, 2, &wid, 30, models);
        check_all(&b, models);
        ingester_bed_stop(&b);
    }
    for (size_t i = 0; i < 5; i++)
        write_model_deinit(&models[i]);
    ingester_bed_deinit(&b);
}

static int write_once(struct ingester_bed *b, uint64_t wid)
{
    struct write_gen g = { .slot = ingester_bed_slot(b), .wid = wid };
    struct prng p;

    prng_init(&p, wid);
    return ingester_bed_write(b, &g, &p, NULL);
}

static void test_full_disk_refuses_and_comes_back(void **state)
{
    struct ingester_bed b;
    const char *why = "";
    Embertree__StatusReply *st;

    (void)state;
    ingester_bed_init(&b, true, 1, NULL);
    start(&b);
    assert_int_equal(write_once(&b, 1), 0);
    assert_true(ingester_role.ready(b.self, &why));
    b.disk_free = 10 * MIB;
    rpc_bed_sleep(&b.rpc, 2500);
    assert_int_equal(write_once(&b, 2), ERR_NO_SPACE);
    assert_false(ingester_role.ready(b.self, &why));
    assert_non_null(strstr(why, "disk reserve reached"));
    st = status(&b);
    assert_false(st->ready);
    assert_true(st->read_only);
    embertree__status_reply__free_unpacked(st, NULL);
    b.disk_free = 50 * GIB;
    rpc_bed_sleep(&b.rpc, 2500);
    assert_int_equal(write_once(&b, 3), 0);
    assert_true(ingester_role.ready(b.self, &why));
    ingester_bed_deinit(&b);
}

static void test_memory_over_its_mark_refuses(void **state)
{
    struct ingester_bed b;

    (void)state;
    ingester_bed_init(&b, true, 1, NULL);
    start(&b);
    b.resident = b.ctx.memory_limit / 100 * 87;
    memory_look(b.memory);
    assert_int_equal(write_once(&b, 1), ERR_BUSY);
    b.resident = b.ctx.memory_limit / 100 * 79; /* not yet: it would flutter */
    memory_look(b.memory);
    assert_int_equal(write_once(&b, 1), ERR_BUSY);
    b.resident = b.ctx.memory_limit / 100 * 77;
    memory_look(b.memory);
    assert_int_equal(write_once(&b, 1), 0);
    ingester_bed_deinit(&b);
}

static void test_bad_messages(void **state)
{
    static const enum rpc_method methods[] = { RPC_WRITE, RPC_MERGE, RPC_TIMELINE, RPC_LABELS };
    struct write_gen other = { .shard = 1 };
    struct ingester_bed b;
    struct prng p;

    (void)state;
    ingester_bed_init(&b, true, 1, NULL);
    start(&b);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        struct rpc_bed_call c;

        assert_int_equal(ingester_bed_call(&b, methods[i], STR("\xff\xff nonsense"), &c),
                         ERR_INPUT);
        rpc_bed_call_deinit(&c);
    }
    prng_init(&p, 1);
    other.slot = ingester_bed_slot(&b);
    assert_int_equal(ingester_bed_write(&b, &other, &p, NULL), ERR_INPUT); /* not our shard */
    assert_int_equal(write_once(&b, 1), 0);
    ingester_bed_deinit(&b);
}

struct burst {
    struct rpc_bed_call calls[40];
};

static bool burst_over(void *cookie)
{
    const struct burst *u = cookie;

    for (size_t i = 0; i < ARRAY_LEN(u->calls); i++) {
        if (!u->calls[i].ends)
            return false;
    }
    return true;
}

static void burst_send(struct ingester_bed *b, struct burst *u, uint64_t wid)
{
    struct prng p;

    prng_init(&p, 1);
    for (size_t i = 0; i < ARRAY_LEN(u->calls); i++) {
        struct write_gen g = { .slot = ingester_bed_slot(b), .wid = wid + i };
        struct buf payload;

        buf_init(&payload, MIB);
        write_gen_pack(&g, &p, &payload, NULL);
        rpc_bed_call(&u->calls[i], b->peer, RPC_WRITE, buf_str(&payload), 10000);
        buf_deinit(&payload);
    }
}

static void test_more_than_may_wait_is_refused(void **state)
{
    static const char *const flags[] = { "--ingester.writes-max=3", NULL };
    size_t stored = 0, busy = 0;
    struct ingester_bed b;
    struct burst u;

    (void)state;
    ingester_bed_init(&b, true, 1, flags);
    start(&b);
    burst_send(&b, &u, 1);
    assert_true(rpc_bed_run(&b.rpc, burst_over, &u, 20000));
    for (size_t i = 0; i < ARRAY_LEN(u.calls); i++) {
        stored += u.calls[i].code == 0;
        busy += u.calls[i].code == ERR_BUSY;
        rpc_bed_call_deinit(&u.calls[i]);
    }
    assert_true(stored >= 3 && busy > 0);
    assert_int_equal(stored + busy, ARRAY_LEN(u.calls));
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_ingester_writes_total"), stored);
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_ingester_writes_pending"), 0);
    assert_int_equal(rpc_bed_metric(&b.rpc, "embertree_ingester_writes_pending_bytes"), 0);
    ingester_bed_deinit(&b);
}

static void test_drain_answers_what_it_took(void **state)
{
    struct write_model got;
    struct ingester_bed b;
    struct burst u;

    (void)state;
    ingester_bed_init(&b, false, 1, NULL);
    start(&b);
    burst_send(&b, &u, 1);
    ingester_bed_stop(&b);
    assert_true(rpc_bed_run(&b.rpc, burst_over, &u, 20000));
    for (size_t i = 0; i < ARRAY_LEN(u.calls); i++) {
        assert_true(u.calls[i].code == 0 || u.calls[i].code == ERR_UNAVAILABLE);
        assert_int_equal(u.calls[i].ends, 1);
        rpc_bed_call_deinit(&u.calls[i]);
    }
    write_model_init(&got);
    start(&b);
    assert_int_equal(ingester_bed_merge(&b, "svc", FIRST_MS, LAST_MS, &got), 0);
    write_model_deinit(&got);
    ingester_bed_deinit(&b);
}

static void expect_refusal(const char *const *flags, const char *folder, const char *want)
{
    struct ingester_bed b;
    struct err e = { 0 };
    char path[256];

    ingester_bed_init(&b, false, 1, flags);
    if (folder) {
        (void)snprintf(path, sizeof(path), "%s/%s", b.dir, folder);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    assert_int_equal(ingester_bed_start(&b, &e), ERR_CONFIG);
    if (!strstr(e.text, want))
        fail_msg("%s", e.text);
    ingester_bed_deinit(&b);
}

static void test_configurations_that_are_refused(void **state)
{
    static const char *const other[] = { "--cluster.ingesters=inproc://b,inproc://c",
                                         "--cluster.shards=2", NULL };
    static const char *const nine[] = { "--cluster.shards=9", NULL };
    static const char *const open[] = { "--cluster.ingesters=tcp://0.0.0.0:9",
                                        "--ingester.listen=tcp://0.0.0.0:9", NULL };
    static const char *const http[] = { "--cluster.ingesters=tcp://0.0.0.0:9",
                                        "--ingester.listen=tcp://0.0.0.0:9", "--http.insecure-open",
                                        NULL };

    (void)state;
    expect_refusal(other, NULL, "is not in cluster.ingesters");
    expect_refusal(nine, NULL, "at most 8 shards");
    expect_refusal(open, NULL, "--cluster.insecure-open");
    expect_refusal(http, NULL, "--cluster.key-file"); /* that option is for the other port */
    expect_refusal(NULL, "shard-1", "holds shard-1");
}

static void test_labels_and_timeline(void **state)
{
    Embertree__LabelsRequest lr = EMBERTREE__LABELS_REQUEST__INIT;
    Embertree__TimelineRequest tr = EMBERTREE__TIMELINE_REQUEST__INIT;
    uint8_t t[] = "t", pod[] = "pod", type[] = WRITE_GEN_CPU;
    ProtobufCBinaryData group = { 3, pod };
    struct write_model models[5];
    struct ingester_bed b;
    struct rpc_bed_call c;
    uint8_t payload[512];
    uint64_t wid = 0, sum = 0, want = 0;
    Embertree__LabelsReply *labels;
    Embertree__TimelineReply *line;
    struct prng p;

    (void)state;
    ingester_bed_init(&b, true, seed_of_day(), NULL);
    p = b.rpc.prng;
    for (size_t i = 0; i < 5; i++)
        write_model_init(&models[i]);
    start(&b);
    write_some(&b, &p, 1, &wid, 40, models);

    lr.tenant = (ProtobufCBinaryData){ 1, t };
    lr.kind = 1;
    lr.name = group;
    assert_int_equal(
        ingester_bed_call(&b, RPC_LABELS,
                          str_n(payload, embertree__labels_request__pack(&lr, payload)), &c),
        0);
    labels = embertree__labels_reply__unpack(NULL, c.reply.len,
                                             (const uint8_t *)(const void *)c.reply.ptr);
    assert_non_null(labels);
    assert_true(labels->n_values >= 1 && labels->n_values <= 3);
    assert_memory_equal(labels->values[0].data, "p", 1);
    embertree__labels_reply__free_unpacked(labels, NULL);
    rpc_bed_call_deinit(&c);

    tr.tenant = lr.tenant;
    tr.profile_type = (ProtobufCBinaryData){ sizeof(type) - 1, type };
    tr.step_ms = 60000;
    tr.points = 10;
    tr.origin_ms = clock_wall_ms(b.rpc.env.clock) - 8 * 60000;
    tr.group_by = &group;
    tr.n_group_by = 1;
    assert_int_equal(
        ingester_bed_call(&b, RPC_TIMELINE,
                          str_n(payload, embertree__timeline_request__pack(&tr, payload)), &c),
        0);
    line = embertree__timeline_reply__unpack(NULL, c.reply.len,
                                             (const uint8_t *)(const void *)c.reply.ptr);
    assert_non_null(line);
    for (size_t s = 0; s < line->n_series; s++)
        for (size_t i = 0; i < line->series[s]->n_value; i++)
            sum += line->series[s]->value[i];
    for (size_t i = 0; i < 5; i++) {
        want += models[i].total;
        write_model_deinit(&models[i]);
    }
    assert_int_equal(sum, want);
    embertree__timeline_reply__free_unpacked(line, NULL);
    rpc_bed_call_deinit(&c);
    ingester_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_model),
        cmocka_unit_test(test_threads_and_rocksdb_and_a_restart),
        cmocka_unit_test(test_full_disk_refuses_and_comes_back),
        cmocka_unit_test(test_memory_over_its_mark_refuses),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_more_than_may_wait_is_refused),
        cmocka_unit_test(test_drain_answers_what_it_took),
        cmocka_unit_test(test_configurations_that_are_refused),
        cmocka_unit_test(test_labels_and_timeline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
