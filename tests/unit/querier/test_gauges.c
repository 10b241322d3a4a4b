/* SPDX-License-Identifier: Apache-2.0
 *
 * Means of gauges whose series live on several ingesters: sums are divided by the leaves in which
 * any of them has data, each once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "proto/query.pb-c.h"
#include "querier/merge/fn_table.h"
#include "querier/merge/timeline.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s) (QBED_NOW + (s)*1000)
#define HEAP "memory:inuse_space:bytes::"

/* Three leaves, of which the ingesters have two each: 1000 in all. */
static const struct qbed_push pushes[] = {
    { 0, "one", "pod=p", HEAP, T(-60), "main;alloc", 100, true, NULL },
    { 0, "one", "pod=p", HEAP, T(-50), "main;alloc", 200, true, NULL },
    { 1, "two", "pod=p", HEAP, T(-50), "main;alloc", 300, true, NULL },
    { 1, "two", "pod=p", HEAP, T(-40), "main;alloc", 400, true, NULL },
};

static const struct qbed_exemplar exemplars[] = {
    { 0, "span_id=00000000000000aa", "main;alloc=100" },
    { 1, "span_id=00000000000000aa", "main;alloc=200" },
    { 2, "span_id=00000000000000aa", "main;alloc=300" },
    { 3, "span_id=00000000000000aa", "main;alloc=400" },
};

static void test_answers(void **state)
{
    static const struct {
        const char *target, *method, *json, *want;
    } rows[] = {
        { "/pyroscope/render?query=" HEAP "%7B%7D&from=now-100s&until=now&groupBy=pod", NULL, NULL,
          "\"numTicks\":333," },
        { "/api/v1/functions?query=" HEAP "%7B%7D&from=now-100s&until=now&step=100", NULL, NULL,
          "\"all\":333,\"allAt\":[333],\"functions\":[{\"name\":\"alloc\",\"self\":333," },
        { "/api/v1/functions?query=" HEAP
          "%7B%7D&from=now-100s&until=now&step=100&groupBy=pod&name=main",
          NULL, NULL, "\"groups\":[{\"labels\":{\"pod\":\"p\"},\"all\":333,\"allAt\":[333]" },
        { "/api/v1/functions/grew?query=" HEAP "%7B%7D&from=now-100s&until=now", NULL, NULL,
          "\"shown\":[0,333]" },
        { NULL, "SelectSeries",
          "{\"start\":1749999900000,\"end\":1750000000000,\"profileTypeID\":\"" HEAP
          "\",\"labelSelector\":\"{}\",\"step\":100,\"groupBy\":[\"pod\"]}",
          "333.33" },
        { NULL, "SelectSeries",
          "{\"start\":1749999900000,\"end\":1750000000000,\"profileTypeID\":\"" HEAP
          "\",\"labelSelector\":\"{}\",\"step\":100,"
          "\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"}]}}",
          "333.33" },
        { NULL, "SelectSeries", /* by id: four exemplars in three leaves */
          "{\"start\":1749999900000,\"end\":1750000000000,\"profileTypeID\":\"" HEAP
          "\",\"labelSelector\":\"{span_id=\\\"00000000000000aa\\\"}\",\"step\":100,"
          "\"groupBy\":[\"pod\"]}",
          "333.33" },
    };
    struct qbed b;

    (void)state;
    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    b.exemplars = exemplars;
    b.exemplars_len = ARRAY_LEN(exemplars);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *reply = rows[i].target ? qbed_get(&b, rows[i].target)
                                           : qbed_connect(&b, rows[i].method, rows[i].json);
        if (!strstr(reply, rows[i].want))
            fail_msg("row %zu: %s", i, reply);
    }
    qbed_deinit(&b);
}

/* ---- replies that say which leaves, or how many alone ---- */

struct says { /* a reply: one group, one or two points */
    uint32_t point[2], leaves[2];
    size_t len;
    uint32_t items[6];
    size_t items_len;
};

static struct buf pack_timeline(const struct says *s)
{
    Embertree__TimelineReply r = EMBERTREE__TIMELINE_REPLY__INIT;
    Embertree__TimelineSeries one = EMBERTREE__TIMELINE_SERIES__INIT, *list = &one;
    uint64_t value[] = { 60, 60 }, writes[] = { 1, 1 };
    struct says copy = *s;
    struct buf out;

    one.point = copy.point;
    one.value = value;
    one.writes = writes;
    one.leaves = copy.leaves;
    one.n_point = one.n_value = one.n_writes = one.n_leaves = s->len;
    one.leaf_items = copy.items;
    one.n_leaf_items = s->items_len;
    r.series = &list;
    r.n_series = 1;
    r.gauge = true;
    buf_init(&out, KIB);
    char *room = buf_room(&out, embertree__timeline_reply__get_packed_size(&r));
    assert_non_null(room);
    out.len = embertree__timeline_reply__pack(&r, (uint8_t *)room);
    return out;
}

static struct buf pack_functions(const struct says *s)
{
    Embertree__FunctionsReply r = EMBERTREE__FUNCTIONS_REPLY__INIT;
    uint64_t all[] = { 60, 60 };
    struct says copy = *s;
    struct buf out;

    r.all = all;
    r.leaves = copy.leaves;
    r.n_all = r.n_leaves = s->len;
    r.leaf_items = copy.items;
    r.n_leaf_items = s->items_len;
    r.gauge = true;
    buf_init(&out, KIB);
    char *room = buf_room(&out, embertree__functions_reply__get_packed_size(&r));
    assert_non_null(room);
    out.len = embertree__functions_reply__pack(&r, (uint8_t *)room);
    return out;
}

static void test_replies_of_several(void **state)
{
    static const struct {
        struct says says[3];
        size_t len;
        uint32_t want[2];
    } rows[] = {
        { { { { 0, 1 }, { 2, 1 }, 2, { 5, 2, 1, 9, 1, 1 }, 6 },
            { { 0, 1 }, { 2, 1 }, 2, { 6, 2, 1, 9, 1, 1 }, 6 } },
          2,
          { 3, 2 } },
        /* one of a version before: its count, if it is larger */
        { { { { 0, 1 }, { 2, 1 }, 2, { 5, 2, 1, 9, 1, 1 }, 6 },
            { { 0, 1 }, { 1, 4 }, 2, { 0 }, 0 } },
          2,
          { 2, 4 } },
        { { { { 0, 1 }, { 2, 1 }, 2, { 0 }, 0 }, { { 0, 1 }, { 1, 4 }, 2, { 0 }, 0 } },
          2,
          { 2, 4 } },
        { { { { 0, 1 }, { 1, 1 }, 2, { 5, 1, 1, 9, 1, 1 }, 6 },
            { { 0, 1 }, { 2, 1 }, 2, { 0 }, 0 },
            { { 0, 1 }, { 2, 1 }, 2, { 6, 2, 1, 9, 1, 1 }, 6 } },
          3,
          { 3, 2 } },
    };
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct timeline t;
        struct buf replies[6];
        struct leaf_part parts[3];
        uint32_t leaves[2] = { 0 };
        size_t known = 0;

        timeline_init(&t, a);
        for (size_t k = 0; k < rows[i].len; k++) {
            struct wire_timelines w;
            struct wire_function_list f;
            replies[k] = pack_timeline(&rows[i].says[k]);
            replies[3 + k] = pack_functions(&rows[i].says[k]);
            assert_int_equal(wire_get_timelines(buf_str(&replies[k]), 2, a, &w, &e), 0);
            assert_int_equal(timeline_add(&t, &w, &e), 0);
            assert_int_equal(wire_get_functions(buf_str(&replies[3 + k]), 2, a, &f, &e), 0);
            for (size_t p = 0; p < 2; p++)
                leaves[p] = MAX(leaves[p], f.leaves[p]);
            if (f.items.items_len)
                parts[known++] = f.items;
        }
        timeline_finish(&t, false);
        fn_leaves(parts, known, leaves, 2);
        assert_int_equal(t.groups.len, 1);
        for (size_t p = 0; p < 2; p++) {
            assert_int_equal(t.groups.ptr[0].points.ptr[p].leaves, rows[i].want[p]);
            assert_int_equal(leaves[p], rows[i].want[p]);
        }
        timeline_deinit(&t);
        for (size_t k = 0; k < rows[i].len; k++) {
            buf_deinit(&replies[k]);
            buf_deinit(&replies[3 + k]);
        }
        arena_free(a);
    }
}

static void test_bad_leaves_are_refused(void **state)
{
    static const struct says rows[] = {
        { { 0, 1 }, { 2, 1 }, 2, { 5, 2, 1, 9, 1 }, 5 },
        { { 0, 1 }, { 2, 1 }, 2, { 5, 2, 1 }, 3 },
        { { 0, 1 }, { 2, 1 }, 2, { 5, 1, 1, 0, 2, 1 }, 6 },
        { { 0, 1 }, { 2, 1 }, 2, { UINT32_MAX, 2, 1, 9, 1, 1 }, 6 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct buf in = pack_timeline(&rows[i]), other = pack_functions(&rows[i]);
        struct wire_timelines w;
        struct wire_function_list f;
        struct err e = { 0 };

        assert_int_equal(wire_get_timelines(buf_str(&in), 2, a, &w, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "leaves of points"));
        assert_int_equal(wire_get_functions(buf_str(&other), 2, a, &f, &e), ERR_CORRUPT);
        buf_deinit(&in);
        buf_deinit(&other);
        arena_free(a);
    }
}

/* Where one ingester alone is asked, it need not say which. */
static void test_asked_for_where_several_answer(void **state)
{
    const struct wire_timeline tl = { .grid = { QBED_NOW, 10000, 1 } };
    const struct wire_functions wf = { .grid = { QBED_NOW, 10000, 1 } };
    const struct plan_target t = { 0 };

    (void)state;
    for (int several = 0; several < 2; several++) {
        struct wire_query wq = { .tenant = STR("t"),
                                 .profile_type = STR(HEAP),
                                 .leaf_items = several };
        struct arena *a = arena_new(MIB);
        struct wire_to to = { .target = &t };
        struct buf out;
        struct err e;

        assert_int_equal(
            scoped_matchers_make(&(struct scoped_ask){ .tenant = wq.tenant }, a, &to.of, &e), 0);
        buf_init(&out, KIB);
        assert_int_equal(wire_put_timeline(&wq, &tl, &to, a, &out, &e), 0);
        Embertree__TimelineRequest *r =
            embertree__timeline_request__unpack(NULL, out.len, (const uint8_t *)out.ptr);
        assert_int_equal(r->leaf_items, several);
        embertree__timeline_request__free_unpacked(r, NULL);
        out.len = 0;
        assert_int_equal(wire_put_functions(&wq, &wf, &to, a, &out, &e), 0);
        Embertree__FunctionsRequest *f =
            embertree__functions_request__unpack(NULL, out.len, (const uint8_t *)out.ptr);
        assert_int_equal(f->leaf_items, several);
        embertree__functions_request__free_unpacked(f, NULL);
        buf_deinit(&out);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_replies_of_several),
        cmocka_unit_test(test_bad_leaves_are_refused),
        cmocka_unit_test(test_asked_for_where_several_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
