/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries over several shards, and their messages, over stores with canned answers: what is defined
 * here is linked instead of the engine. The engine itself runs in test_ingester.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/check/space.h"
#include "common/store/query/estimate.h"
#include "common/store/retain/forecast.h"
#include "ingester/base/unpack.h"
#include "ingester/read/read_run.h"
#include "proto/query.pb-c.h"
#include "tests/lib/gen/write_gen.h"
#include "tests/lib/roles/read_unasked.h"

#define STORES 3
#define UNPACK(name, r)                                    \
    embertree__##name##_reply__unpack(NULL, (r).reply.len, \
                                      (const uint8_t *)(const void *)(r).reply.ptr)

/* ---- stores with canned answers ------------------------------------------------------------- */

struct store {
    const char *stacks[8]; /* folded; NULL-ended */
    uint64_t values[8];
    uint32_t leaves[4], leaves_len; /* in each point */
    struct labels group;
    uint32_t points[4];
    size_t points_len;
    const char *names[4];
    int fail;
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

static struct store *of(struct store_view *v)
{
    return (struct store *)(void *)v;
}

static uint32_t add_folded(struct stacks *s, const char *folded)
{
    struct str rest = str_c(folded), part;
    bool more = true;
    uint32_t node = 0;

    while (rest.len && str_next(&rest, ';', &more, &part)) {
        struct frame f = { .func = stacks_string(s, part), .line = (uint32_t)part.len };

        node = stacks_node(s, node, stacks_frame(s, &f));
    }
    return node;
}

int store_merge(struct store_view *v, const struct store_query *q, struct store_merge *ret,
                struct err *e)
{
    struct store *s = of(v);

    if (s->fail)
        return err_set(e, s->fail, "canned failure");
    ret->start_ms = q->start_ms;
    ret->end_ms = q->end_ms;
    for (size_t i = 0; s->stacks[i]; i++) { /* few: insertion keeps them ascending */
        uint32_t node = add_folded(ret->stacks, s->stacks[i]);
        size_t at = ret->nodes.len;

        vec_push(&ret->nodes, 0);
        vec_push(&ret->values, 0);
        for (; at > 0 && ret->nodes.ptr[at - 1] > node; at--) {
            ret->nodes.ptr[at] = ret->nodes.ptr[at - 1];
            ret->values.ptr[at] = ret->values.ptr[at - 1];
        }
        ret->nodes.ptr[at] = node;
        ret->values.ptr[at] = s->values[i];
        ret->total += s->values[i];
    }
    for (size_t i = 0; i < s->leaves_len; i++)
        vec_push(&ret->leaves, s->leaves[i]);
    ret->gauge = s->leaves_len > 0;
    ret->series = 1;
    ret->rows = 10;
    return 0;
}

void store_merge_deinit(struct store_merge *m)
{
    vec_free(&m->nodes);
    vec_free(&m->values);
    vec_free(&m->leaves);
}

/* The leaves of one more point: those of the store, each a hundred later than in the last one. */
static void put_leaves_of(const struct store *s, size_t i, const struct store_query *q,
                          struct leaf_items *items)
{
    struct leaf_writer w = { .to = items };

    for (size_t k = 0; k + 2 < items->len; k += 3)
        w.last += (items->ptr[k] + items->ptr[k + 1] - 1) * items->ptr[k + 2];
    for (size_t k = 0; k < s->leaves_len && q->leaf_items; k++)
        leaf_put(&w, s->leaves[k] + 100 * (uint32_t)i, 1);
    leaf_put_end(&w);
}

int store_timeline(struct store_view *v, const struct store_timeline_query *q, struct arena *a,
                   struct store_timeline *ret, struct err *e)
{
    struct store *s = of(v);
    struct store_points p = { .labels = s->group };

    (void)a;
    if (s->fail)
        return err_set(e, s->fail, "canned failure");
    for (size_t i = 0; i < s->points_len; i++) {
        assert_true(s->points[i] < q->points);
        vec_push(&p.point, s->points[i]);
        vec_push(&p.value, 10 * (s->points[i] + 1));
        vec_push(&p.writes, 1);
        if (s->leaves_len)
            vec_push(&p.leaves, s->leaves_len);
        put_leaves_of(s, i, &q->q, &p.items);
    }
    ret->gauge = s->leaves_len > 0;
    if (s->points_len)
        vec_push(&ret->series, p);
    return 0;
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

/* Each name at each of the points: self k + 1, total ten times that. */
int store_functions(struct store_view *v, const struct store_functions_query *q, struct arena *a,
                    struct store_functions *ret, struct err *e)
{
    struct store *s = of(v);

    (void)a;
    if (s->fail)
        return err_set(e, s->fail, "canned failure");
    ret->gauge = s->leaves_len > 0;
    for (uint32_t k = 0; k < q->points; k++) {
        vec_push(&ret->all, 100);
        if (ret->gauge)
            vec_push(&ret->leaves, s->leaves_len);
        put_leaves_of(s, k, &q->q, &ret->items);
    }
    for (size_t i = 0; i < ARRAY_LEN(s->names) && s->names[i]; i++) {
        struct store_function f = { .name = str_c(s->names[i]) };
        for (size_t k = 0; k < s->points_len; k++) {
            vec_push(&f.point, s->points[k]);
            vec_push(&f.self, s->points[k] + 1);
            vec_push(&f.total, 10 * (s->points[k] + 1));
        }
        vec_push(&ret->at, f);
    }
    ret->start_ms = q->origin_ms;
    ret->end_ms = q->origin_ms + q->step_ms * q->points;
    ret->rows = 3;
    return 0;
}

void store_functions_deinit(struct store_functions *f)
{
    vec_for (i, &f->at) {
        vec_free(&f->at.ptr[i].point);
        vec_free(&f->at.ptr[i].self);
        vec_free(&f->at.ptr[i].total);
    }
    vec_free(&f->at);
    vec_free(&f->all);
    vec_free(&f->leaves);
    vec_free(&f->items);
}

int store_labels(struct store_view *v, const struct store_labels_query *q, struct arena *a,
                 struct store_labels *ret, struct err *e)
{
    struct store *s = of(v);

    (void)a;
    if (s->fail)
        return err_set(e, s->fail, "canned failure");
    for (size_t i = 0; i < ARRAY_LEN(s->names) && s->names[i]; i++)
        vec_push(&ret->values, str_c(s->names[i]));
    if (q->kind == STORE_SETS)
        vec_push(&ret->sets, s->group);
    return 0;
}

void store_labels_deinit(struct store_labels *l)
{
    vec_free(&l->values);
    vec_free(&l->sets);
}

/* A MiB for each stack of a store. */
int store_estimate(struct store_view *v, const struct store_estimate_query *q,
                   struct store_estimate *ret, struct err *e)
{
    struct store *s = of(v);

    *ret = (struct store_estimate){ .services = 1, .series = q->detail };
    if (s->fail)
        return err_set(e, s->fail, "canned failure");
    for (size_t i = 0; i < ARRAY_LEN(s->stacks) && s->stacks[i]; i++, ret->rows++)
        ret->bytes += MIB;
    return 0;
}
void store_estimate_add(struct store_estimate *to, const struct store_estimate *from)
{
    to->services += from->services;
    to->series += from->series;
    to->rows += from->rows;
    to->bytes += from->bytes;
}

/* Exemplars: test_rpc_exemplars.c. */
int store_exemplar_merge(struct store_view *v, const struct store_exm_query *q,
                         struct store_merge *ret, struct err *e)
{
    (void)v, (void)q, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}

int store_exemplars(struct store_view *v, const struct store_exm_query *q, size_t limit,
                    struct arena *a, struct store_exm_list *ret, struct err *e)
{
    (void)v, (void)q, (void)limit, (void)a, (void)ret;
    return err_set(e, ERR_INTERNAL, "not asked here");
}

void store_exm_list_deinit(struct store_exm_list *l)
{
    (void)l;
}

/* ---- asking --------------------------------------------------------------------------------- */

struct asked {
    struct arena *a;
    struct buf reply;
    uint64_t rows;
    struct err e;
    int code;
};

static struct asked ask(enum rpc_method method, const ProtobufCMessage *m, struct store *stores,
                        size_t n)
{
    struct store *list[STORES];
    struct read_source src = {
        .stores = list, .len = n, .stacks_bytes_max = MIB, .reply_bytes_max = 4096
    };
    struct asked r = { .a = arena_new(MIB) };
    struct read_msg msg;
    uint8_t payload[1024];
    size_t len = protobuf_c_message_get_packed_size(m);

    assert_true(len <= sizeof(payload));
    (void)protobuf_c_message_pack(m, payload);
    for (size_t i = 0; i < n; i++)
        list[i] = &stores[i];
    buf_init(&r.reply, 1);
    r.code = read_msg_decode(method, str_n(payload, len), r.a, &msg, &r.e);
    if (!r.code)
        r.code = read_run(&msg, &src, r.a, &r.reply, &r.rows, &r.e);
    read_msg_deinit(&msg);
    return r;
}

static void asked_deinit(struct asked *r)
{
    buf_deinit(&r->reply);
    arena_free(r->a);
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){ strlen(s), (uint8_t *)(uintptr_t)s };
}

static Embertree__MergeRequest merge_request(void)
{
    Embertree__MergeRequest m = EMBERTREE__MERGE_REQUEST__INIT;

    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.start_ms = 1000;
    m.end_ms = 2000;
    return m;
}

static const struct store three[STORES] = {
    { .stacks = { "a;b;c", "a", "x;y" }, .values = { 1, 2, 4 } },
    { .stacks = { "x;y;z", "a;b;c", "a;b" }, .values = { 8, 16, 32 } },
    { .stacks = { "", "x" }, .values = { 64, 128 } },
};

static void check_merge(const Embertree__MergeRequest *m, const struct write_model *want,
                        uint64_t nodes_max)
{
    struct store stores[STORES];
    struct write_model got;
    struct stacks_view view;
    struct asked r;
    Embertree__MergeReply *reply;

    memcpy(stores, three, sizeof(stores));
    r = ask(RPC_MERGE, &m->base, stores, STORES);
    if (r.code)
        fail_msg("%s", r.e.text);
    reply = UNPACK(merge, r);
    assert_non_null(reply);
    assert_int_equal(unpack_stacks(reply->stacks, &view, &r.e), 0);
    for (size_t i = 1; i < reply->n_node; i++)
        assert_true(reply->node[i - 1] < reply->node[i]);
    write_model_init(&got);
    write_model_add_stacks(&got, &view, reply->node, reply->value, reply->n_node);
    assert_true(write_model_eq(want, &got));
    assert_int_equal(reply->total, want->total);
    assert_int_equal(reply->rows, 30);
    assert_int_equal(r.rows, 30);
    assert_int_equal(reply->series, 3);
    assert_true(view.nodes <= nodes_max);
    write_model_deinit(&got);
    embertree__merge_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);
}

static void test_shards_add_up(void **state)
{
    Embertree__MergeRequest m = merge_request();
    struct write_model want;

    (void)state;
    write_model_init(&want);
    for (size_t s = 0; s < STORES; s++)
        for (size_t i = 0; three[s].stacks[i]; i++)
            write_model_add(&want, str_c(three[s].stacks[i]), three[s].values[i]);
    check_merge(&m, &want, 6);
    write_model_deinit(&want);
}

static void test_call_site_keeps_what_starts_so(void **state)
{
    static const struct {
        const char *site[4];
        size_t len, nodes_max;
    } rows[] = {
        { { "a" }, 1, 3 },      { { "a", "b" }, 2, 3 },           { { "a", "b", "c" }, 3, 3 },
        { { "x" }, 1, 3 },      { { "x", "y", "z" }, 3, 3 },      { { "b" }, 1, 0 },
        { { "a", "y" }, 2, 0 }, { { "a", "b", "c", "d" }, 4, 0 },
    };

    (void)state;
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        Embertree__MergeRequest m = merge_request();
        ProtobufCBinaryData site[4];
        struct write_model want;
        struct buf prefix;

        buf_init(&prefix, KIB);
        for (size_t i = 0; i < rows[r].len; i++) {
            site[i] = bytes(rows[r].site[i]);
            (void)buf_addf(&prefix, "%s%s", i ? ";" : "", rows[r].site[i]);
        }
        m.call_site = site;
        m.n_call_site = rows[r].len;
        write_model_init(&want);
        for (size_t s = 0; s < STORES; s++) {
            for (size_t i = 0; three[s].stacks[i]; i++) {
                struct str stack = str_c(three[s].stacks[i]);

                if (str_starts(stack, buf_str(&prefix)) &&
                    (stack.len == prefix.len || stack.ptr[prefix.len] == ';'))
                    write_model_add(&want, stack, three[s].values[i]);
            }
        }
        check_merge(&m, &want, rows[r].nodes_max);
        write_model_deinit(&want);
        buf_deinit(&prefix);
    }
}

static void test_sums_saturate_and_say_so(void **state)
{
    struct store stores[2] = {
        { .stacks = { "a" }, .values = { UINT64_MAX - 1 }, .leaves = { 1, 3, 5 }, .leaves_len = 3 },
        { .stacks = { "a" }, .values = { 5 }, .leaves = { 2, 3 }, .leaves_len = 2 },
    };
    static const uint32_t leaves[] = { 1, 2, 3, 5 };
    Embertree__MergeRequest m = merge_request();
    struct asked r = ask(RPC_MERGE, &m.base, stores, 2);
    Embertree__MergeReply *reply;

    (void)state;
    assert_int_equal(r.code, 0);
    reply = UNPACK(merge, r);
    assert_non_null(reply);
    assert_int_equal(reply->n_value, 1);
    assert_true(reply->value[0] == UINT64_MAX);
    assert_true(reply->total == UINT64_MAX);
    assert_true(reply->saturated > 0);
    assert_true(reply->gauge);
    assert_int_equal(reply->n_leaf, ARRAY_LEN(leaves)); /* a leaf counts once */
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(reply->leaf[i], leaves[i]);
    embertree__merge_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);
}

static void test_too_large_and_failed(void **state)
{
    Embertree__MergeRequest m = merge_request();
    struct store stores[STORES];
    struct asked r;

    (void)state;
    memcpy(stores, three, sizeof(stores));
    m.bytes_max = 60;
    r = ask(RPC_MERGE, &m.base, stores, STORES);
    assert_int_equal(r.code, ERR_LIMIT);
    assert_non_null(strstr(r.e.text, "at most 60"));
    asked_deinit(&r);
    for (size_t i = 0; i < STORES; i++) {
        memcpy(stores, three, sizeof(stores));
        stores[i].fail = ERR_IO;
        m.bytes_max = 0;
        r = ask(RPC_MERGE, &m.base, stores, STORES);
        assert_int_equal(r.code, ERR_IO);
        asked_deinit(&r);
    }
}

/* Shards add up, and a query over its limit is refused before anything is read. */
static void test_estimates(void **state)
{
    Embertree__EstimateRequest m = EMBERTREE__ESTIMATE_REQUEST__INIT;
    Embertree__MergeRequest merge = merge_request();
    struct store stores[STORES];

    (void)state;
    memcpy(stores, three, sizeof(stores));
    m.tenant = bytes("t");
    m.end_ms = 1;
    for (int detail = 0; detail < 2; detail++) {
        m.detail = detail;
        struct asked r = ask(RPC_ESTIMATE, &m.base, stores, STORES);
        assert_int_equal(r.code, 0);
        Embertree__EstimateReply *reply = UNPACK(estimate, r);
        assert_int_equal(reply->bytes, 8 * MIB);
        assert_int_equal(reply->rows, 8);
        assert_int_equal(reply->shards, STORES);
        assert_int_equal(reply->series, detail ? STORES : 0);
        embertree__estimate_reply__free_unpacked(reply, NULL);
        asked_deinit(&r);
    }
    for (uint64_t max = 8; max >= 7; max--) {
        merge.cost_max = max * MIB;
        struct asked r = ask(RPC_MERGE, &merge.base, stores, STORES);
        assert_int_equal(r.code, max == 8 ? 0 : ERR_LIMIT);
        assert_true(max == 8 || strstr(r.e.text, "about 8 MiB"));
        asked_deinit(&r);
    }
    stores[1].fail = ERR_CORRUPT;
    struct asked r = ask(RPC_ESTIMATE, &m.base, stores, STORES);
    assert_int_equal(r.code, ERR_CORRUPT);
    asked_deinit(&r);
}

static void test_timelines_unite_by_labels(void **state)
{
    struct label a = { STR("pod"), STR("a") }, b = { STR("pod"), STR("b") };
    struct store stores[STORES] = {
        { .group = { &b, 1 }, .points = { 0, 2 }, .points_len = 2 },
        { .group = { &a, 1 }, .points = { 1 }, .points_len = 1 },
        { .group = { &b, 1 }, .points = { 1, 2 }, .points_len = 2 },
    };
    Embertree__TimelineRequest m = EMBERTREE__TIMELINE_REQUEST__INIT;
    Embertree__TimelineReply *reply;
    struct asked r;

    (void)state;
    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.step_ms = 5000;
    m.points = 3;
    r = ask(RPC_TIMELINE, &m.base, stores, STORES);
    assert_int_equal(r.code, 0);
    reply = UNPACK(timeline, r);
    assert_non_null(reply);
    assert_int_equal(reply->n_series, 2);
    assert_memory_equal(reply->series[0]->labels[0]->value.data, "a", 1);
    assert_int_equal(reply->series[0]->n_point, 1);
    assert_int_equal(reply->series[1]->n_point, 3);
    assert_int_equal(reply->series[1]->value[0], 10);
    assert_int_equal(reply->series[1]->value[1], 20);
    assert_int_equal(reply->series[1]->value[2], 60);
    assert_int_equal(reply->series[1]->writes[2], 2);
    embertree__timeline_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);
}

static void check_functions(bool leaf_items)
{
    struct store stores[STORES] = {
        { .names = { "f", "g" }, .points = { 0, 2 }, .points_len = 2 },
        { .names = { "a" },
          .points = { 1 },
          .points_len = 1,
          .leaves = { 1, 2, 3, 9 },
          .leaves_len = 4 },
        { .names = { "b", "g" },
          .points = { 1, 2 },
          .points_len = 2,
          .leaves = { 2, 5 },
          .leaves_len = 2 },
    };
    Embertree__FunctionsRequest m = EMBERTREE__FUNCTIONS_REQUEST__INIT;
    Embertree__FunctionsReply *reply;
    struct asked r;

    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.step_ms = 5000;
    m.points = 3;
    m.leaf_items = leaf_items;
    r = ask(RPC_FUNCTIONS, &m.base, stores, STORES);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.rows, 9);
    reply = UNPACK(functions, r);
    assert_non_null(reply);
    assert_int_equal(reply->n_functions, 4); /* a, b, f, g */
    assert_memory_equal(reply->functions[0]->name.data, "a", 1);
    assert_memory_equal(reply->functions[3]->name.data, "g", 1);
    assert_int_equal(reply->functions[3]->n_point, 3);
    assert_int_equal(reply->functions[3]->self[0], 1);
    assert_int_equal(reply->functions[3]->self[1], 2);
    assert_int_equal(reply->functions[3]->self[2], 6);
    assert_int_equal(reply->functions[3]->total[2], 60);
    assert_int_equal(reply->n_all, 3);
    assert_int_equal(reply->all[2], 300);
    assert_int_equal(reply->n_leaves, 3);
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(reply->leaves[k], 5); /* of both, each once */
    assert_true(reply->gauge);
    assert_int_equal(reply->n_leaf_items, leaf_items ? 27 : 0);
    embertree__functions_reply__free_unpacked(reply, NULL);
    asked_deinit(&r);
}

static void test_functions_unite_by_name(void **state)
{
    (void)state;
    check_functions(false);
    check_functions(true);
}

/* A leaf in which two shards have data counts once, and is named once if that is asked for. */
static void test_leaves_of_timelines_unite(void **state)
{
    struct store stores[STORES] = {
        { .points = { 0, 2 }, .points_len = 2, .leaves = { 1, 2, 3 }, .leaves_len = 3 },
        { .points = { 1 }, .points_len = 1, .leaves = { 4 }, .leaves_len = 1 },
        { .points = { 0, 1, 2 }, .points_len = 3, .leaves = { 2, 4, 6 }, .leaves_len = 3 },
    };
    Embertree__TimelineRequest m = EMBERTREE__TIMELINE_REQUEST__INIT;
    const uint32_t want[] = { 5, 4, 6 };
    struct err e = { 0 };

    m.tenant = bytes("t");
    m.profile_type = bytes(WRITE_GEN_CPU);
    m.step_ms = 5000;
    m.points = 3;
    for (size_t asked = 1; asked <= STORES; asked += 2) {
        for (int items = 0; items < 2; items++) {
            m.leaf_items = items;
            struct asked r = ask(RPC_TIMELINE, &m.base, stores, asked);
            assert_int_equal(r.code, 0);
            Embertree__TimelineReply *reply = UNPACK(timeline, r);
            assert_true(reply->gauge);
            assert_int_equal(reply->n_series, 1);
            const Embertree__TimelineSeries *s = reply->series[0];
            for (size_t k = 0; k < s->n_point; k++)
                assert_int_equal(s->leaves[k], asked == 1 ? 3 : want[k]);
            struct leaf_part p = { s->point, s->leaves, s->n_point, s->leaf_items,
                                   s->n_leaf_items };
            assert_int_equal(p.items_len > 0, items);
            assert_int_equal(items ? leaf_part_check(&p, &e) : 0, 0);
            embertree__timeline_reply__free_unpacked(reply, NULL);
            asked_deinit(&r);
        }
    }
    (void)state;
}

static void test_labels_unite(void **state)
{
    struct label x = { STR("l"), STR("x") }, y = { STR("l"), STR("y") };
    struct store stores[STORES] = {
        { .names = { "b", "d" }, .group = { &y, 1 } },
        { .names = { "a", "b" }, .group = { &x, 1 } },
        { .names = { "c" }, .group = { &y, 1 } },
    };
    Embertree__LabelsRequest m = EMBERTREE__LABELS_REQUEST__INIT;

    (void)state;
    m.tenant = bytes("t");
    m.kind = STORE_SETS;
    for (uint32_t limit = 0; limit < 4; limit += 3) {
        Embertree__LabelsReply *reply;
        struct asked r;

        m.limit = limit;
        r = ask(RPC_LABELS, &m.base, stores, STORES);
        assert_int_equal(r.code, 0);
        reply = UNPACK(labels, r);
        assert_non_null(reply);
        assert_int_equal(reply->n_values, limit ? 3 : 4);
        assert_int_equal(reply->truncated, limit != 0);
        for (size_t i = 0; i < reply->n_values; i++)
            assert_memory_equal(reply->values[i].data, &"abcd"[i], 1);
        assert_int_equal(reply->n_sets, 2);
        assert_memory_equal(reply->sets[0]->labels[0]->value.data, "x", 1);
        embertree__labels_reply__free_unpacked(reply, NULL);
        asked_deinit(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_add_up),
        cmocka_unit_test(test_call_site_keeps_what_starts_so),
        cmocka_unit_test(test_sums_saturate_and_say_so),
        cmocka_unit_test(test_too_large_and_failed),
        cmocka_unit_test(test_estimates),
        cmocka_unit_test(test_timelines_unite_by_labels),
        cmocka_unit_test(test_leaves_of_timelines_unite),
        cmocka_unit_test(test_functions_unite_by_name),
        cmocka_unit_test(test_labels_unite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
