/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder and a real ingester, through rpc: simulated time and a network with faults, and with
 * threads and RocksDB. Whatever is lost, restarted or refused on the way: answers are those of the
 * model, and in the end every node that is due has been built.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "compactor/build_msg.h"
#include "compactor/builder.h"
#include "proto/build.pb-c.h"
#include "tests/lib/roles/ingester_bed.h"

#define FIRST_MS INT64_C(1577836800000)
#define LAST_MS  INT64_C(4102444800000)
#define HOUR     720 /* slots */

struct bed {
    struct ingester_bed in;
    struct prng p;
    struct write_model model;
    uint64_t wid;
    struct rpc_node *node;
    struct builder *builder;
    struct route *route;
    bool drained;
};

static const char *const flags[] = { "--cluster.shards=2",          "--ingester.seal-delay=0ms",
                                     "--ingester.build-delay=0ms",  "--ingester.build-pace=0ms",
                                     "--ingester.build-timeout=2s", NULL };

static uint64_t seed_of_day(void)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);

    print_message("SEED=%" PRIu64 "\n", seed);
    return seed;
}

static void builder_open(struct bed *b, uint64_t id, uint64_t memory)
{
    struct builder_opts o = {
        .loop = b->in.rpc.loop,
        .pool = b->in.rpc.pool,
        .clock = b->in.rpc.env.clock,
        .metrics = b->in.rpc.metrics,
        .id = id,
        .interval_ms = 500,
        .timeout_ms = 3000,
        .lag_warn_ms = 3600000000,
        .share = 50,
        .jobs_max = 2,
        .memory_bytes = memory,
        .message_max = 4 * MIB,
    };
    struct route_opts ro = { .loop = b->in.rpc.loop, .view = b->in.ctx.view };
    struct err e;

    b->node = rpc_bed_node(&b->in.rpc, "");
    ro.node = b->node;
    assert_int_equal(route_new(&ro, &b->route, &e), 0);
    o.route = b->route;
    b->builder = builder_new(&o);
}

static void on_drained(void *cookie)
{
    ((struct bed *)cookie)->drained = true;
}

static bool drained(void *cookie)
{
    return ((struct bed *)cookie)->drained;
}

static void builder_close(struct bed *b)
{
    b->drained = false;
    builder_drain(b->builder, on_drained, b);
    assert_true(rpc_bed_run(&b->in.rpc, drained, b, 20000));
    builder_free(b->builder);
    route_free(b->route);
    rpc_node_free(b->node);
    b->builder = NULL;
}

static void ingester_open(struct bed *b)
{
    struct err e;

    if (ingester_bed_start(&b->in, &e))
        fail_msg("%s", e.text);
}

static void bed_open(struct bed *b, bool simulated, uint64_t seed)
{
    *b = (struct bed){ 0 };
    ingester_bed_init(&b->in, simulated, seed, flags);
    prng_init(&b->p, seed);
    write_model_init(&b->model);
    ingester_open(b);
}

static void bed_close(struct bed *b)
{
    if (b->builder)
        builder_close(b);
    write_model_deinit(&b->model);
    ingester_bed_deinit(&b->in);
}

static void push(struct bed *b, uint32_t slot, uint32_t pod, const char *service)
{
    char name[16];
    struct write_gen g = {
        .service = service,
        .pod = name,
        .shard = service[0] % 2u,
        .slot = slot,
        .wid = ++b->wid,
        .stacks = 1 + (uint32_t)prng_below(&b->p, 20),
    };
    struct prng same;
    int code = ERR_TIMEOUT;

    (void)snprintf(name, sizeof(name), "p%u", (unsigned)pod);
    for (size_t tries = 0; code && tries < 20; tries++) { /* with the same write id */
        same = b->p;
        code = ingester_bed_write(&b->in, &g, &same, code ? &b->model : NULL);
    }
    assert_int_equal(code, 0);
    b->p = same;
}

/* Pushes over the last hours, with old ones, so that nodes are due at once. */
static void push_some(struct bed *b, size_t n, uint32_t hours)
{
    static const char *const services[] = { "api", "batch" };
    uint32_t now = ingester_bed_slot(&b->in);

    for (size_t i = 0; i < n; i++)
        push(b, now - (uint32_t)prng_below(&b->p, (uint64_t)hours * HOUR),
             (uint32_t)prng_below(&b->p, 6), services[prng_below(&b->p, 2)]);
}

static void check(struct bed *b)
{
    struct write_model got;

    write_model_init(&got);
    assert_int_equal(ingester_bed_merge(&b->in, NULL, FIRST_MS, LAST_MS, &got), 0);
    if (!write_model_eq(&b->model, &got))
        fail_msg("the answer is not what was pushed");
    write_model_deinit(&got);
}

static uint64_t built(struct bed *b, const char *level)
{
    char name[96];

    (void)snprintf(name, sizeof(name), "embertree_compactor_nodes_built_total{level=\"%s\"}",
                   level);
    return rpc_bed_metric(&b->in.rpc, name);
}

static void run_until_built(struct bed *b)
{
    size_t quiet = 0;

    /* Quiet for several seconds: the due nodes of level 2 are counted once a second. */
    for (size_t i = 0; i < 600; i++) {
        rpc_bed_sleep(&b->in.rpc, b->in.dir ? 100 : 3000);
        quiet = rpc_bed_metric(&b->in.rpc, "embertree_compactor_build_nodes_due") ? 0 : quiet + 1;
        if (quiet > (b->in.dir ? 30 : 20))
            return;
    }
    fail_msg("some nodes are still due after 600 looks");
}

static void test_builds_all_levels(void **state)
{
    struct buf out;
    struct json j;
    struct bed b;

    (void)state;
    bed_open(&b, true, seed_of_day());
    push_some(&b, 120, 80 * 24); /* enough for a node of 64 d, if it falls so */
    builder_open(&b, 1, 16 * MIB);
    run_until_built(&b);
    check(&b);
    assert_true(built(&b, "1h") > 50);
    assert_true(built(&b, "6h") > 50);
    assert_true(built(&b, "1d") > 20);
    assert_true(built(&b, "8d") > 5);
    assert_int_equal(rpc_bed_metric(&b.in.rpc, "embertree_compactor_build_nodes_due"), 0);
    buf_init(&out, 64 * KIB);
    json_init(&j, &out);
    json_obj(&j);
    builder_ring(b.builder, &j);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&out), STR("\"failures\":0")));
    buf_deinit(&out);

    /* Late data make nodes stale, and they are built again. */
    uint64_t before = built(&b, "1h");
    push_some(&b, 20, 80 * 24);
    check(&b);
    run_until_built(&b);
    check(&b);
    assert_true(built(&b, "1h") > before);
    bed_close(&b);
}

/* Each node in many parts: jobs of the least size, many pods with much to say. */
static void test_parts(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, seed_of_day());
    uint32_t hour = ingester_bed_slot(&b.in) / HOUR * HOUR - 3 * HOUR;
    for (size_t i = 0; i < 400; i++)
        push(&b, hour + (uint32_t)prng_below(&b.p, HOUR), (uint32_t)prng_below(&b.p, 300), "api");
    builder_open(&b, 1, 1);
    run_until_built(&b);
    check(&b);
    assert_true(rpc_bed_metric(&b.in.rpc, "embertree_compactor_build_jobs_total") >
                built(&b, "1h") + built(&b, "6h") + built(&b, "1d"));
    bed_close(&b);
}

/* Frames are lost and repeated, both sides are restarted at random moments. */
static void test_faults_and_restarts(void **state)
{
    struct rpc_mem_faults faults = {
        .delay_max_ms = 200, .lost = 0.05, .repeated = 0.05, .damaged = 0.01
    };
    uint64_t id = 1;
    struct bed b;

    (void)state;
    bed_open(&b, true, seed_of_day());
    builder_open(&b, id, 4 * MIB);
    for (size_t round = 0; round < 15; round++) {
        push_some(&b, 15, 40);
        rpc_mem_faults(b.in.rpc.net, &faults);
        rpc_bed_sleep(&b.in.rpc, prng_below(&b.p, 10000));
        if (prng_chance(&b.p, 0.4)) {
            builder_close(&b);
            rpc_bed_sleep(&b.in.rpc, prng_below(&b.p, 2000));
            builder_open(&b, ++id, 4 * MIB);
        }
        rpc_bed_sleep(&b.in.rpc, prng_below(&b.p, 5000));
        rpc_mem_faults(b.in.rpc.net, &(struct rpc_mem_faults){ 0 });
        check(&b);
    }
    run_until_built(&b);
    check(&b);
    assert_true(built(&b, "1h") > 10);
    bed_close(&b);
}

static void test_threads_and_rocksdb(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false, seed_of_day());
    builder_open(&b, 1, 4 * MIB);
    for (size_t round = 0; round < 3; round++) {
        push_some(&b, 30, 30);
        check(&b);
        rpc_bed_sleep(&b.in.rpc, prng_below(&b.p, 200));
        ingester_bed_stop(&b.in); /* with builds under way */
        ingester_open(&b);
        check(&b);
    }
    run_until_built(&b);
    check(&b);
    assert_true(built(&b, "1h") > 5);
    bed_close(&b);
}

/* ---- what is not as it should be ------------------------------------------------------------ */

/* A job of shard 0 or 1, asked for as compactor `who`; *ret points into the arena. */
static int ask_fenced(struct bed *b, uint32_t shard, uint64_t who, uint64_t fence, struct arena *a,
                      struct build_given *ret)
{
    struct build_next n = { .shard = shard, .bytes_max = MIB, .compactor = who, .fence = fence };
    struct rpc_bed_call c;
    struct buf request;
    struct err e;
    int code;

    *ret = (struct build_given){ 0 };
    buf_init(&request, KIB);
    build_next_pack(&n, &request);
    code = ingester_bed_call(&b->in, RPC_BUILD_NEXT, buf_str(&request), &c);
    if (!code)
        assert_int_equal(build_given_unpack(buf_str(&c.reply), a, ret, &e), 0);
    rpc_bed_call_deinit(&c);
    buf_deinit(&request);
    return code;
}

static int ask(struct bed *b, uint32_t shard, uint64_t who, struct arena *a,
               struct build_given *ret)
{
    return ask_fenced(b, shard, who, 0, a, ret);
}

static int answer_fenced(struct bed *b, const struct build_sent *sent, const struct build_result *r,
                         char text[ERR_TEXT_MAX])
{
    struct arena *a = arena_new(16 * MIB);
    struct rpc_bed_call c;
    struct buf request;
    uint64_t bytes;
    struct err e;
    int code;

    buf_init(&request, 4 * MIB);
    assert_int_equal(build_apply_pack(sent, r, a, &request, &bytes, &e), 0);
    code = ingester_bed_call(&b->in, RPC_BUILD_APPLY, buf_str(&request), &c);
    (void)snprintf(text, ERR_TEXT_MAX, "%s", c.text);
    rpc_bed_call_deinit(&c);
    buf_deinit(&request);
    arena_free(a);
    return code;
}

static int answer(struct bed *b, uint32_t shard, uint64_t job, const struct build_result *r,
                  char text[ERR_TEXT_MAX])
{
    return answer_fenced(b, &(struct build_sent){ shard, job, 0 }, r, text);
}

/* A compactor slept through the end of its lease. The compactor that claimed the shard since has
 * the job, and everything that the sleeper still sends or asks is refused, with or without a
 * fence. */
static void test_a_newer_claim_takes_over(void **state)
{
    struct arena *a = arena_new(64 * MIB);
    struct build_given old, given;
    struct build_result r = { 0 };
    char text[ERR_TEXT_MAX];
    struct bed b;
    struct err e;

    (void)state;
    bed_open(&b, true, 5);
    for (uint32_t i = 0; i < 40; i++)
        push(&b, ingester_bed_slot(&b.in) / HOUR * HOUR - 3 * HOUR + i * 10, i % 3, "batch");
    rpc_bed_sleep(&b.in.rpc, 120000); /* level 2 is built */
    assert_int_equal(ask_fenced(&b, 0, 1, 100, a, &old), 0);
    assert_true(old.id != 0);
    assert_int_equal(build_merge(&old.job, a, &r, &e), 0);

    /* At once, not when the time is up. */
    assert_int_equal(ask_fenced(&b, 0, 2, 101, a, &given), 0);
    assert_true(given.id != 0 && given.id != old.id);
    assert_int_equal(given.job.rows.len, old.job.rows.len);
    assert_int_equal(answer_fenced(&b, &(struct build_sent){ 0, old.id, 100 }, &r, text),
                     ERR_CONFLICT);
    assert_non_null(strstr(text, "another compactor has claimed"));
    /* Not with the newer one's number either, nor with the newer fence and the old number. */
    assert_int_equal(answer_fenced(&b, &(struct build_sent){ 0, given.id, 100 }, &r, text),
                     ERR_CONFLICT);
    assert_int_equal(answer_fenced(&b, &(struct build_sent){ 0, given.id, 0 }, &r, text),
                     ERR_CONFLICT);
    assert_int_equal(answer_fenced(&b, &(struct build_sent){ 0, old.id, 101 }, &r, text),
                     ERR_NOT_FOUND);
    build_given_deinit(&old);
    assert_int_equal(ask_fenced(&b, 0, 1, 100, a, &old), ERR_CONFLICT);
    assert_int_equal(ask_fenced(&b, 0, 3, 0, a, &old), ERR_CONFLICT);
    assert_int_equal(rpc_bed_metric(&b.in.rpc, "embertree_ingester_build_fenced_total"), 5);
    assert_int_equal(answer_fenced(&b, &(struct build_sent){ 0, given.id, 101 }, &r, text), 0);
    assert_int_equal(rpc_bed_metric(&b.in.rpc, "embertree_ingester_build_rows_total"), r.rows.len);
    check(&b);
    build_given_deinit(&given);

    /* A version that knows no fences continues when no compactor with a fence has asked for long; a
     * compactor with an older claim does not. */
    rpc_bed_sleep(&b.in.rpc, 3000);
    assert_int_equal(ask_fenced(&b, 0, 1, 100, a, &old), ERR_CONFLICT);
    assert_int_equal(ask_fenced(&b, 0, 3, 0, a, &given), 0);
    build_given_deinit(&given);
    build_result_deinit(&r);
    arena_free(a);
    bed_close(&b);
}

static void test_wrong_sums_are_refused(void **state)
{
    struct arena *a = arena_new(64 * MIB);
    struct build_given g, again;
    struct build_result r = { 0 };
    char text[ERR_TEXT_MAX];
    struct bed b;
    struct err e;

    (void)state;
    bed_open(&b, true, 5);
    for (uint32_t i = 0; i < 40; i++)
        push(&b, ingester_bed_slot(&b.in) / HOUR * HOUR - 3 * HOUR + i * 10, i % 3, "batch");
    rpc_bed_sleep(&b.in.rpc, 120000); /* level 2 is built */
    assert_int_equal(ask(&b, 0, 1, a, &g), 0);
    assert_true(g.id != 0);
    assert_int_equal(g.job.node.level, 3);
    assert_int_equal(build_merge(&g.job, a, &r, &e), 0);
    assert_true(r.rows.len > 0);

    /* Another compactor has to wait, the same one gets the job again under another number. */
    assert_int_equal(ask(&b, 0, 2, a, &again), 0);
    assert_int_equal(again.id, 0);
    assert_true(again.wait_ms > 0 && again.wait_ms <= 2000);
    assert_int_equal(ask(&b, 0, 1, a, &again), 0);
    assert_true(again.id != 0 && again.id != g.id);
    assert_int_equal(again.job.rows.len, g.job.rows.len);
    assert_int_equal(answer(&b, 0, g.id, &r, text), ERR_NOT_FOUND);
    assert_non_null(strstr(text, "is given again"));
    assert_int_equal(answer(&b, 9, again.id, &r, text), ERR_INPUT);
    build_given_deinit(&again);

    /* A value more, and nothing is written. */
    assert_int_equal(ask(&b, 0, 1, a, &again), 0);
    struct build_result wrong = { 0 };
    vec_for (i, &r.rows)
        vec_push(&wrong.rows, r.rows.ptr[i]);
    wrong.rows.ptr[0].bytes = again.job.rows.ptr[0].bytes; /* a child for the sum of children */
    assert_int_equal(answer(&b, 0, again.id, &wrong, text), ERR_CORRUPT);
    check(&b);
    build_given_deinit(&again);
    /* The node is left alone for a minute, then given again, and taken. */
    assert_int_equal(ask(&b, 0, 1, a, &again), 0);
    assert_int_equal(again.id, 0);
    rpc_bed_sleep(&b.in.rpc, 61000);
    assert_int_equal(ask(&b, 0, 1, a, &again), 0);
    assert_true(again.id != 0);
    assert_int_equal(answer(&b, 0, again.id, &r, text), 0);
    build_given_deinit(&again);
    check(&b);
    build_given_deinit(&g);
    vec_free(&wrong.rows);
    build_result_deinit(&r);
    arena_free(a);
    bed_close(&b);
}

/* Two tenants with old data: the lowest level first, tenants in turn, each with its oldest node. */
static void test_order(void **state)
{
    uint32_t last_t[8] = { 0 }, last_tenant = 0, last_level = 3, turns = 0;
    struct bed b;

    (void)state;
    bed_open(&b, true, 7);
    uint32_t hour = ingester_bed_slot(&b.in) / HOUR * HOUR;
    for (uint32_t i = 1; i <= 8; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            struct write_gen g = { .tenant = k ? "u" : "t", .service = "batch", .shard = 0 };

            g.slot = hour - 2 * DAY_SLOTS - i * HOUR;
            g.wid = ++b.wid;
            assert_int_equal(ingester_bed_write(&b.in, &g, &b.p, NULL), 0);
        }
    }
    rpc_bed_sleep(&b.in.rpc, 120000);
    for (size_t i = 0; i < 16; i++) {
        struct arena *a = arena_new(64 * MIB);
        struct build_result r = { 0 };
        char text[ERR_TEXT_MAX];
        struct build_given g;
        struct err e;

        assert_int_equal(ask(&b, 0, 1, a, &g), 0);
        assert_true(g.id != 0);
        const struct build_node *n = &g.job.node;
        assert_true(n->level == last_level && n->level == 3 && n->m.tenant < 8);
        assert_true(n->t > last_t[n->m.tenant]);
        last_t[n->m.tenant] = n->t;
        turns += n->m.tenant != last_tenant;
        last_tenant = n->m.tenant;
        assert_int_equal(build_merge(&g.job, a, &r, &e), 0);
        assert_int_equal(answer(&b, 0, g.id, &r, text), 0);
        build_result_deinit(&r);
        build_given_deinit(&g);
        arena_free(a);
    }
    assert_int_equal(turns, 16); /* strictly in turn */
    bed_close(&b);
}

static void test_an_older_compactor_and_nonsense(void **state)
{
    Embertree__BuildNextRequest r = EMBERTREE__BUILD_NEXT_REQUEST__INIT;
    struct rpc_bed_call c;
    uint8_t bytes[64];
    struct bed b;

    (void)state;
    bed_open(&b, true, 6);
    r.version = 9;
    size_t n = embertree__build_next_request__pack(&r, bytes);
    assert_int_equal(ingester_bed_call(&b.in, RPC_BUILD_NEXT, str_n(bytes, n), &c),
                     ERR_UNIMPLEMENTED);
    rpc_bed_call_deinit(&c);
    assert_int_equal(ingester_bed_call(&b.in, RPC_BUILD_NEXT, STR("\xff\xff"), &c), ERR_INPUT);
    rpc_bed_call_deinit(&c);
    assert_int_equal(ingester_bed_call(&b.in, RPC_BUILD_APPLY, STR("\xff\xff"), &c), ERR_INPUT);
    rpc_bed_call_deinit(&c);
    r.version = 1;
    r.shard = 7;
    n = embertree__build_next_request__pack(&r, bytes);
    assert_int_equal(ingester_bed_call(&b.in, RPC_BUILD_NEXT, str_n(bytes, n), &c), ERR_INPUT);
    rpc_bed_call_deinit(&c);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds_all_levels),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_faults_and_restarts),
        cmocka_unit_test(test_threads_and_rocksdb),
        cmocka_unit_test(test_a_newer_claim_takes_over),
        cmocka_unit_test(test_wrong_sums_are_refused),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_an_older_compactor_and_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
