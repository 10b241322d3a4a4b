/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaves that stand for pushes without an id: in lists, in cells of a grid, by id; beside sealed
 * and unsealed rows, pushes with ids of their own, deletes, and times of which no leaf is kept.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/model/leafid.h"
#include "common/store/exemplar/exm.h"
#include "common/store/state/commit.h"
#include "common/store/state/floors.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define HOURS INT64_C(3600000)
#define PROF  (1u << EXID_PROFILE)

static const struct store_opts OPTS = {
    .dict_bytes_max = 64 * MIB,
    .seal_delay_ms = 60000,
    .wid_horizon_ms = 4 * 3600 * 1000,
    .exm = { .retention_ms = 24 * HOURS, .rows_per_minute = 1000, .bytes_per_minute = MIB },
};

struct asked {
    struct arena *a;
    struct selector s;
    struct store_exm_query q;
};

static void ask(struct asked *k, const char *selector, uint32_t from, uint32_t to)
{
    struct err e;

    k->a = arena_new(16 * MIB);
    k->q = (struct store_exm_query){ .q = { .tenant = STR("t"),
                                            .selector = &k->s,
                                            .profile_type = STR(BED_CPU),
                                            .start_ms = to ? slot_to_ms(from) : 0,
                                            .end_ms = to ? slot_to_ms(to) : 0 },
                                     .kinds = PROF,
                                     .leaves = true };
    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, k->a, &k->s, &e), 0);
    assert_int_equal(selector_compile(&k->s, &e), 0);
}

static void asked_deinit(struct asked *k)
{
    selector_deinit(&k->s);
    arena_free(k->a);
}

/* "<total>@<slots after zero>{pod}" by blanks; an id that is no leaf's stands before it. Of a grid
 * also "x<count>=<sum>". Ids, where wanted, into *ids. */
static const char *listed(struct store_bed *b, struct asked *k, size_t limit, uint32_t zero,
                          struct exid *ids)
{
    static char answer[4096];
    struct store_exm_list l;
    struct err e;
    size_t n = 0;
    uint64_t series;
    uint32_t slot;

    answer[0] = '\0';
    struct store_view *v = store_view_get(b->s);
    if (store_exemplars(v, &k->q, limit, k->a, &l, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    vec_for (i, &l.items) {
        const struct store_exm_item *x = &l.items.ptr[i];
        struct str pod = labels_get(&l.series.ptr[x->series], STR("pod"));
        char id[EXID_BYTES_MAX], cell[64] = "";
        size_t len = exid_text(x->id, id);
        bool leaf = leafid_read(x->id, &series, &slot);
        if (k->q.grid.points)
            (void)snprintf(cell, sizeof(cell), "x%" PRIu64 "=%" PRIu64, x->count, x->sum);
        if (leaf)
            assert_int_equal(slot, slot_leaf(slot_of_ms(x->start_ms)));
        n += (size_t)snprintf(answer + n, sizeof(answer) - n, "%s%.*s%s%" PRIu64 "%s@%u{%.*s}",
                              i ? " " : "", leaf ? 0 : (int)len, id, leaf ? "" : ":", x->total,
                              cell, slot_of_ms(x->start_ms) - zero, STR_ARG(pod));
        if (ids) {
            memcpy(ids[i].packed, x->id.ptr, x->id.len);
            ids[i].len = (uint8_t)x->id.len;
        }
    }
    if (l.truncated)
        (void)snprintf(answer + n, sizeof(answer) - n, " ...");
    store_exm_list_deinit(&l);
    return answer;
}

static const char *list(struct store_bed *b, const char *selector, uint32_t from, uint32_t to,
                        uint32_t zero, struct exid *ids)
{
    struct asked k;

    ask(&k, selector, from, to);
    const char *answer = listed(b, &k, 100, zero, ids);
    asked_deinit(&k);
    return answer;
}

/* The sum of what the ids name, or the text of the error. */
static const char *opened(struct store_bed *b, const struct exid *ids, size_t n)
{
    static char error[512];
    struct stacks st;
    struct store_merge m = { .stacks = &st };
    struct str texts[8];
    struct asked k;
    struct err e;

    ask(&k, "{}", 0, 0);
    k.q.leaves = false;
    k.q.kinds = PROF | 1u << EXID_SPAN;
    for (size_t i = 0; i < n; i++) /* ascending */
        texts[i] = exid_str(&ids[i]);
    if (n == 2 && str_cmp(texts[0], texts[1]) > 0) {
        texts[0] = exid_str(&ids[1]);
        texts[1] = exid_str(&ids[0]);
    }
    k.q.ids = texts;
    k.q.ids_len = n;
    stacks_init(&st, 64 * MIB, 3);
    struct store_view *v = store_view_get(b->s);
    int code = store_exemplar_merge(v, &k.q, &m, &e);
    store_view_put(v);
    const char *answer = error;
    if (code)
        (void)snprintf(error, sizeof(error), "%s", e.text);
    else
        answer = store_bed_text(&m);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    asked_deinit(&k);
    return answer;
}

static void push(struct store_bed *b, const char *labels, const char *stacks, uint32_t slot)
{
    static uint64_t wid = 1000;

    assert_int_equal(
        store_bed_push(
            b,
            &(struct bed_push){ .labels = labels, .stacks = stacks, .slot = slot, .wid = wid++ }),
        1);
}

/* The first slot of a leaf. */
static uint32_t some_time(const struct store_bed *b)
{
    return slot_leaf(store_bed_slot(b)) - 40;
}

static void test_list_and_open(void **state)
{
    struct exid ids[8];
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = some_time(&b);
    push(&b, "pod=a", "m;x=3", t);
    push(&b, "pod=a", "m;y=4", t + 1); /* the same leaf */
    push(&b, "pod=a", "m;x=5", t + 3);
    push(&b, "pod=b", "m;x=6", t);
    for (int how = 0; how < 4; how++) {
        assert_string_equal(list(&b, "{}", 0, 0, t, ids), "7@0{a} 6@0{b} 5@3{a}");
        assert_string_equal(opened(&b, &ids[0], 1), "m;x=3 m;y=4");
        assert_string_equal(opened(&b, &ids[1], 1), "m;x=6");
        assert_string_equal(opened(&b, &ids[1], 2), "m;x=11");
        assert_string_equal(list(&b, "{pod=\"a\"}", t + 2, t + 4, t, NULL), "5@3{a}");
        assert_string_equal(list(&b, "{pod=\"c\"}", 0, 0, t, NULL), "");
        if (how == 1) {
            clock_fake_advance(&b.clock, 600000);
            store_bed_seal(&b);
        } else {
            store_bed_reopen(&b, KV_MEM_POWER, 0);
        }
    }
    /* Late, beside what is sealed. */
    push(&b, "pod=a", "m;z=20", t);
    assert_string_equal(list(&b, "{}", 0, 0, t, ids), "27@0{a} 6@0{b} 5@3{a}");
    assert_string_equal(opened(&b, &ids[0], 1), "m;x=3 m;y=4 m;z=20");
    store_bed_deinit(&b);
}

/* A push with an id is in a leaf by that id alone, also where it is spread over more leaves. */
static void test_own(void **state)
{
    struct exid ids[8];
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = some_time(&b);
    store_bed_push(
        &b,
        &(struct bed_push){
            .labels = "pod=a", .stacks = "m;x=3", .slot = t, .wid = 1, .exemplars = "3:p:m;x=3" });
    push(&b, "pod=a", "m;x=5", t + 2);
    push(&b, "pod=b", "m;x=6", t);
    for (int sealed = 0; sealed < 2; sealed++) {
        assert_string_equal(list(&b, "{}", 0, 0, t, ids), "6@0{b} p:3@0{a} 5@2{a}");
        assert_string_equal(opened(&b, &ids[1], 1), "m;x=3");
        assert_string_equal(opened(&b, &ids[0], 2), "m;x=9");
        clock_fake_advance(&b.clock, 600000);
        store_bed_seal(&b);
    }
    /* When its id is no longer kept, it is a leaf like others. */
    clock_fake_advance(&b.clock, 40 * HOURS);
    store_bed_seal(&b);
    clock_fake_advance(&b.clock, 1000);
    store_bed_seal(&b);
    assert_string_equal(list(&b, "{pod=\"a\"}", t, t + 10, t, ids), "3@0{a} 5@2{a}");
    store_bed_deinit(&b);
}

static void test_spread(void **state)
{
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = some_time(&b);
    struct bed_push p = { .labels = "pod=a",
                          .stacks = "m;x=3",
                          .slot = t,
                          .wid = 1,
                          .times = 3,
                          .every = 2,
                          .duration_ms = 30000,
                          .exemplars = "3:p:m;x=9" };
    store_bed_push(&b, &p);
    push(&b, "pod=a", "m;x=5", t + 8);
    assert_string_equal(list(&b, "{}", 0, 0, t, NULL), "p:9@0{a} 5@8{a}");
    /* From inside of it on. */
    assert_string_equal(list(&b, "{}", t + 2, t + 10, t, NULL), "5@8{a}");
    store_bed_deinit(&b);
}

/* Points, groups, buckets, what is counted. */
static void test_cells(void **state)
{
    struct store_bed b;
    struct asked k;
    struct err e;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = some_time(&b);
    const struct str by[] = { STR("zone") };
    push(&b, "pod=a,zone=1", "m;x=3", t);
    push(&b, "pod=b,zone=1", "m;x=8", t);
    push(&b, "pod=c,zone=2", "m;x=5 m;y=2", t);
    push(&b, "pod=a,zone=1", "m;x=4 m;y=1", t + 2);
    push(&b, "pod=a,zone=1", "m;x=1", t + 4);
    push(&b, "pod=a,zone=1", "m;x=100", t + 20); /* in no point */
    ask(&k, "{}", 0, 0);
    k.q.grid = (struct store_exm_grid){ slot_to_ms(t), 2 * LEAF_MS, 2, false };
    assert_string_equal(listed(&b, &k, 100, t, NULL), "8x3=18@0{b} 5x2=6@2{a}");
    k.q.group_by = by;
    k.q.group_by_len = 1;
    assert_string_equal(listed(&b, &k, 100, t, NULL), "8x2=11@0{b} 7x1=7@0{c} 5x2=6@2{a}");
    assert_string_equal(listed(&b, &k, 1, t, NULL), "8x2=11@0{b} ...");
    k.q.buckets = 2;
    k.q.least = 1;
    k.q.most = 8;
    assert_string_equal(listed(&b, &k, 100, t, NULL),
                        "8x1=8@0{b} 7x1=7@0{c} 3x1=3@0{a} 5x1=5@2{a} 1x1=1@4{a}");
    struct store_view *v = store_view_get(b.s);
    struct store_exm_list l;
    assert_int_equal(store_exemplars(v, &k.q, 4, k.a, &l, &e), ERR_LIMIT);
    k.q.summary = true;
    assert_int_equal(store_exemplars(v, &k.q, 4, k.a, &l, &e), 0);
    assert_true(l.count == 5 && l.least == 1 && l.most == 8 && !l.items.len && !l.truncated);
    store_exm_list_deinit(&l);
    store_view_put(v);
    /* Below a call site the value is another one, and so is the largest. */
    const struct str site[] = { STR("m"), STR("y") };
    k.q.summary = false;
    k.q.buckets = 0;
    k.q.call_site = site;
    k.q.call_site_len = 2;
    assert_string_equal(listed(&b, &k, 100, t, NULL), "2x1=2@0{c} 1x1=1@2{a}");
    asked_deinit(&k);
    store_bed_deinit(&b);
}

/* Of times of which only coarser nodes are kept: lists begin behind them, ids say so. */
static void test_gone(void **state)
{
    struct exid ids[8];
    struct store_bed b;
    struct floors f = { 0 };
    struct member m;
    struct err e;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = store_bed_slot(&b) / 120 * 120 - 120;
    push(&b, "pod=a", "m;x=3", t);
    push(&b, "pod=a", "m;x=5", t + 120);
    clock_fake_advance(&b.clock, 2 * HOURS);
    store_bed_seal(&b);
    assert_string_equal(list(&b, "{}", 0, 0, t, ids), "3@0{a} 5@120{a}");
    struct kv_iter *it = kv_iter_new(b.s->kv, NULL, KV_FINE, STR_NULL, STR_NULL);
    uint32_t level, at;
    assert_true(kv_iter_valid(it) && key_member_read(kv_iter_key(it), &level, &m, &at));
    kv_iter_free(it);
    f.at[0] = t + 120;
    struct kv_batch *batch = kv_batch_new();
    floors_put(batch, &m, &f);
    assert_int_equal(store_write_batch(b.s, batch, true, &e), 0);
    kv_batch_free(batch);
    floors_forget(b.s, &m);
    assert_string_equal(list(&b, "{}", t, t + 200, t, NULL), "5@120{a}");
    assert_non_null(strstr(opened(&b, &ids[0], 1), "only sums over more than 10 s are kept"));
    assert_string_equal(opened(&b, &ids[1], 1), "m;x=5");
    struct asked k;
    struct store_exm_list l;
    ask(&k, "{}", t, t + 200);
    struct store_view *v = store_view_get(b.s);
    assert_int_equal(store_exemplars(v, &k.q, 10, k.a, &l, &e), 0);
    assert_true(l.leaves_from_ms == slot_to_ms(t + 120));
    store_view_put(v);
    store_exm_list_deinit(&l);
    asked_deinit(&k);
    store_bed_deinit(&b);
}

/* Two services with the same labels have different ids; and an id of a leaf without data. */
static void test_services(void **state)
{
    struct exid ids[8], none;
    struct store_bed b;
    uint64_t series;
    uint32_t slot;

    (void)state;
    store_bed_init(&b, &OPTS);
    uint32_t t = some_time(&b);
    push(&b, "pod=a", "m;x=3", t);
    store_bed_push(
        &b, &(struct bed_push){
                .service = "other", .labels = "pod=a", .stacks = "m;x=4", .slot = t, .wid = 1 });
    assert_string_equal(list(&b, "{}", 0, 0, t, ids), "4@0{a} 3@0{a}");
    assert_string_equal(opened(&b, &ids[0], 1), "m;x=4");
    assert_string_equal(opened(&b, &ids[1], 1), "m;x=3");
    assert_true(leafid_read(exid_str(&ids[0]), &series, &slot));
    leafid_make(series, slot + LEAF_SLOTS, &none);
    assert_string_equal(opened(&b, &none, 1), "");
    leafid_make(series + 1, slot, &none);
    assert_string_equal(opened(&b, &none, 1), "");
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_and_open), cmocka_unit_test(test_own),
        cmocka_unit_test(test_spread),        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_gone),          cmocka_unit_test(test_services),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
