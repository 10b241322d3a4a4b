/* SPDX-License-Identifier: Apache-2.0
 *
 * RPC_EXEMPLARS over several shards, whose answers stand below in place of the engine's. The engine
 * itself runs in test_exm.c, the whole path in tests/cluster/out/test_exemplars.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/slot.h"
#include "common/store/check/space.h"
#include "common/store/query/estimate.h"
#include "common/store/retain/forecast.h"
#include "ingester/base/unpack.h"
#include "ingester/read/rpc_exemplars.h"
#include "proto/exemplar.pb-c.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/read_unasked.h"

#define STORES 2
#define BASE   INT64_C(1750000000000)

/* ---- stores with canned answers ---- */

struct store {
    struct {
        int64_t after_ms;
        uint64_t total;
        const char *id;
    } items[8];
    size_t len;
    struct labels labels;
    uint64_t value;
    bool truncated, gauge;
    const struct store_exm_query *want; /* compared with what arrives */
};

struct store_view *store_view_get(struct store *s)
{
    return (struct store_view *)(void *)s;
}
struct store_view *store_view_get_live(struct store *s)
{
    return store_view_get(s);
}
void store_view_put(struct store_view *v)
{
    (void)v;
}

static void check_query(const struct store *s, const struct store_exm_query *q)
{
    if (!s->want)
        return;
    assert_int_equal(q->kinds, s->want->kinds);
    assert_int_equal(q->ids_len, s->want->ids_len);
    for (size_t i = 0; i < q->ids_len; i++)
        assert_true(str_eq(q->ids[i], s->want->ids[i]));
    assert_int_equal(q->call_site_len, s->want->call_site_len);
    for (size_t i = 0; i < q->call_site_len; i++)
        assert_true(str_eq(q->call_site[i], s->want->call_site[i]));
    assert_true(q->q.start_ms == s->want->q.start_ms && q->q.end_ms == s->want->q.end_ms);
    assert_true(str_eqc(q->q.tenant, "t"));
}

int store_exemplar_merge(struct store_view *v, const struct store_exm_query *q,
                         struct store_merge *ret, struct err *e)
{
    const struct store *s = (const struct store *)(const void *)v;
    struct frame f = { .func = stacks_string(ret->stacks, STR("f")) };

    (void)e;
    check_query(s, q);
    vec_push(&ret->nodes, stacks_node(ret->stacks, 0, stacks_frame(ret->stacks, &f)));
    vec_push(&ret->values, s->value);
    ret->total = s->value;
    ret->rows = 1;
    return 0;
}

void store_merge_deinit(struct store_merge *m)
{
    vec_free(&m->nodes);
    vec_free(&m->values);
    vec_free(&m->leaves);
}

int store_exemplars(struct store_view *v, const struct store_exm_query *q, size_t limit,
                    struct arena *a, struct store_exm_list *ret, struct err *e)
{
    const struct store *s = (const struct store *)(const void *)v;

    (void)limit, (void)e;
    check_query(s, q);
    *ret = (struct store_exm_list){ .truncated = s->truncated, .gauge = s->gauge };
    vec_push(&ret->series, s->labels);
    for (size_t i = 0; i < s->len; i++) {
        struct exid id;
        struct store_exm_item item = { .kind = EXID_SPAN,
                                       .start_ms = BASE + s->items[i].after_ms,
                                       .duration_ms = 10000,
                                       .total = s->items[i].total };
        assert_true(exid_parse(str_c(s->items[i].id), &id));
        item.id = arena_strdup(a, exid_str(&id));
        vec_push(&ret->items, item);
    }
    return 0;
}

void store_exm_list_deinit(struct store_exm_list *l)
{
    vec_free(&l->items);
    vec_free(&l->series);
}

void store_timeline_deinit(struct store_timeline *t)
{
    vec_for (i, &t->series) {
        vec_free(&t->series.ptr[i].point);
        vec_free(&t->series.ptr[i].value);
        vec_free(&t->series.ptr[i].writes);
        vec_free(&t->series.ptr[i].leaves);
        vec_free(&t->series.ptr[i].items);
    }
    vec_free(&t->series);
}

/* What read_run.c needs besides. */
int store_merge(struct store_view *v, const struct store_query *q, struct store_merge *ret,
                struct err *e)
{
    (void)v, (void)q, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
int store_timeline(struct store_view *v, const struct store_timeline_query *q, struct arena *a,
                   struct store_timeline *ret, struct err *e)
{
    (void)v, (void)q, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
int store_labels(struct store_view *v, const struct store_labels_query *q, struct arena *a,
                 struct store_labels *ret, struct err *e)
{
    (void)v, (void)q, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
int store_estimate(struct store_view *v, const struct store_estimate_query *q,
                   struct store_estimate *ret, struct err *e)
{
    (void)v, (void)q, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
void store_estimate_add(struct store_estimate *to, const struct store_estimate *from)
{
    (void)to, (void)from;
}
void store_labels_deinit(struct store_labels *l)
{
    (void)l;
}
int store_functions(struct store_view *v, const struct store_functions_query *q, struct arena *a,
                    struct store_functions *ret, struct err *e)
{
    (void)v, (void)q, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}
void store_functions_deinit(struct store_functions *f)
{
    (void)f;
}

/* ---- asking ---- */

struct asked {
    struct arena *a;
    struct buf reply;
    struct err e;
    int code;
};

static struct asked ask(const Embertree__ExemplarRequest *m, struct store *stores, size_t n)
{
    struct store *list[STORES];
    struct read_source src = { .stores = list,
                               .len = n,
                               .stacks_bytes_max = MIB,
                               .reply_bytes_max = 4096,
                               .exemplars_max = 6 };
    struct asked r = { .a = arena_new(MIB) };
    struct read_msg msg;
    uint8_t payload[1024];
    uint64_t rows;

    assert_true(embertree__exemplar_request__get_packed_size(m) <= sizeof(payload));
    size_t len = embertree__exemplar_request__pack(m, payload);
    for (size_t i = 0; i < n; i++)
        list[i] = &stores[i];
    buf_init(&r.reply, 1);
    r.code = read_msg_decode(RPC_EXEMPLARS, str_n(payload, len), r.a, &msg, &r.e);
    if (!r.code)
        r.code = read_run(&msg, &src, r.a, &r.reply, &rows, &r.e);
    read_msg_deinit(&msg);
    return r;
}

static void asked_deinit(struct asked *r)
{
    buf_deinit(&r->reply);
    arena_free(r->a);
}

static ProtobufCBinaryData bytes(struct str s)
{
    return (ProtobufCBinaryData){ s.len, (uint8_t *)(uintptr_t)s.ptr };
}

static Embertree__ExemplarRequest request(enum read_exm what)
{
    Embertree__ExemplarRequest m = EMBERTREE__EXEMPLAR_REQUEST__INIT;

    m.tenant = bytes(STR("t"));
    m.profile_type = bytes(STR("process_cpu:cpu:nanoseconds:cpu:nanoseconds"));
    m.what = (uint32_t)what;
    m.kinds = 1u << EXID_SPAN;
    return m;
}

/* ---- tests ---- */

static void test_sum(void **state)
{
    ProtobufCBinaryData ids[] = { bytes(STR("\x01x")), bytes(STR("\x01y")) };
    struct str want_ids[] = { STR("\x01x"), STR("\x01y") };
    struct store_exm_query want = { .kinds = 1u << EXID_SPAN,
                                    .ids = want_ids,
                                    .ids_len = 2,
                                    .q = { .start_ms = 1000, .end_ms = 2000 } };
    struct store stores[STORES] = { { .value = 3, .want = &want }, { .value = 4, .want = &want } };
    Embertree__ExemplarRequest m = request(READ_EXM_MERGE);

    (void)state;
    m.start_ms = 1000;
    m.end_ms = 2000;
    m.ids = ids;
    m.n_ids = 2;
    struct asked r = ask(&m, stores, STORES);
    assert_int_equal(r.code, 0);
    Embertree__MergeReply *reply = embertree__merge_reply__unpack(
        NULL, r.reply.len, (const uint8_t *)(const void *)r.reply.ptr);
    assert_non_null(reply);
    assert_int_equal(reply->n_value, 1);
    assert_int_equal(reply->value[0], 7);
    assert_int_equal(reply->total, 7);
    assert_int_equal(reply->rows, 2);
    embertree__merge_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);
}

static void test_list(void **state)
{
    struct label a = { STR("pod"), STR("a") }, b = { STR("pod"), STR("b") };
    struct store stores[STORES] = {
        { .items = { { 0, 5, "a0" }, { 20000, 1, "a1" } }, .len = 2, .labels = { &a, 1 } },
        { .items = { { 10000, 9, "b0" } }, .len = 1, .labels = { &b, 1 } },
    };
    Embertree__ExemplarRequest m = request(READ_EXM_LIST);

    (void)state;
    for (uint32_t limit = 0; limit <= 2; limit += 2) {
        m.limit = limit;
        struct asked r = ask(&m, stores, STORES);
        assert_int_equal(r.code, 0);
        Embertree__ExemplarReply *reply = embertree__exemplar_reply__unpack(
            NULL, r.reply.len, (const uint8_t *)(const void *)r.reply.ptr);
        assert_non_null(reply);
        assert_int_equal(reply->n_exemplars, limit ? 2 : 3);
        assert_int_equal(reply->truncated, limit != 0);
        assert_int_equal(reply->n_series, 2);
        assert_memory_equal(reply->exemplars[0]->id.data,
                            "\x02"
                            "a0",
                            3);
        assert_memory_equal(reply->exemplars[1]->id.data,
                            "\x02"
                            "b0",
                            3);
        assert_int_equal(reply->exemplars[1]->series, 1);
        assert_int_equal(reply->exemplars[1]->total, 9);
        assert_int_equal(reply->exemplars[1]->start_ms, BASE + 10000);
        assert_memory_equal(reply->series[1]->labels[0]->value.data, "b", 1);
        embertree__exemplar_reply__free_unpacked(reply, NULL);
        asked_deinit(&r);
    }
}

/* Point k sums (origin + (k - 1) step, origin + k step]. */
static void test_timeline(void **state)
{
    struct store stores[STORES] = {
        { .items = { { -20000, 100, "z" }, { -15000, 1, "a" }, { 0, 2, "b" }, { 5000, 4, "c" } },
          .len = 4 },
        { .items = { { 20000, 8, "d" }, { 25000, 200, "e" } }, .len = 2 },
    };
    Embertree__ExemplarRequest m = request(READ_EXM_TIMELINE);

    (void)state;
    m.origin_ms = BASE;
    m.step_ms = 20000;
    m.points = 2;
    struct asked r = ask(&m, stores, STORES);
    assert_int_equal(r.code, 0);
    Embertree__TimelineReply *reply = embertree__timeline_reply__unpack(
        NULL, r.reply.len, (const uint8_t *)(const void *)r.reply.ptr);
    assert_non_null(reply);
    assert_int_equal(reply->n_series, 1);
    assert_int_equal(reply->series[0]->n_point, 2);
    assert_int_equal(reply->series[0]->point[1], 1);
    assert_int_equal(reply->series[0]->value[0], 3);
    assert_int_equal(reply->series[0]->value[1], 12);
    assert_int_equal(reply->series[0]->writes[1], 2);
    assert_int_equal(reply->series[0]->n_leaves, 0);
    embertree__timeline_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);

    stores[0].gauge = true;
    m.leaf_items = true;
    r = ask(&m, stores, STORES);
    assert_int_equal(r.code, 0);
    reply = embertree__timeline_reply__unpack(NULL, r.reply.len,
                                              (const uint8_t *)(const void *)r.reply.ptr);
    assert_non_null(reply);
    const Embertree__TimelineSeries *s = reply->series[0];
    struct leaf_part p = { s->point, s->leaves, s->n_leaves, s->leaf_items, s->n_leaf_items };
    struct err e = { 0 };
    assert_int_equal(p.len, 2);
    assert_int_equal(s->leaves[0] + s->leaves[1], 4); /* each push in one of its own */
    assert_int_equal(leaf_part_check(&p, &e), 0);
    embertree__timeline_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);

    stores[0].truncated = true; /* a part of a sum is no sum */
    r = ask(&m, stores, STORES);
    assert_int_equal(r.code, ERR_LIMIT);
    assert_non_null(strstr(r.e.text, "exemplars"));
    asked_deinit(&r);
}

/* Below a call site: that is the engine's work, for lists and timelines. */
static void test_site(void **state)
{
    ProtobufCBinaryData site[] = { bytes(STR("main")), bytes(STR("f")) };
    struct str want_site[] = { STR("main"), STR("f") };
    struct store_exm_query want = { .kinds = 1u << EXID_SPAN,
                                    .call_site = want_site,
                                    .call_site_len = 2,
                                    .q = { .start_ms = BASE - 10000, .end_ms = BASE + 10000 } };
    struct store s = { .items = { { 0, 5, "a0" } }, .len = 1, .want = &want };

    (void)state;
    for (int what = READ_EXM_LIST; what <= READ_EXM_TIMELINE; what++) {
        Embertree__ExemplarRequest m = request((enum read_exm)what);
        m.call_site = site;
        m.n_call_site = 2;
        m.start_ms = BASE - 10000;
        m.end_ms = BASE + 10000;
        m.origin_ms = BASE;
        m.step_ms = 10000;
        m.points = 1;
        struct asked r = ask(&m, &s, 1);
        assert_int_equal(r.code, 0);
        asked_deinit(&r);
    }
}

static void refused(const Embertree__ExemplarRequest *m, const char *want)
{
    struct store s = { 0 };
    struct asked r = ask(m, &s, 1);

    if (r.code != ERR_INPUT || !strstr(r.e.text, want))
        fail_msg("wanted %s: %d %s", want, r.code, r.e.text);
    asked_deinit(&r);
}

static void test_refused(void **state)
{
    Embertree__ExemplarRequest m = request(READ_EXM_TIMELINE);

    (void)state;
    m.what = 3;
    refused(&m, "unknown kind of answer");
    m.what = READ_EXM_TIMELINE;
    refused(&m, "0 points");
    m.points = 5;
    refused(&m, "absurd");
    m = request(READ_EXM_MERGE);
    m.start_ms = 5;
    refused(&m, "after end");
    m = request(READ_EXM_MERGE);
    m.tenant.len = 0;
    refused(&m, "no tenant");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),      cmocka_unit_test(test_list),
        cmocka_unit_test(test_timeline), cmocka_unit_test(test_site),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
