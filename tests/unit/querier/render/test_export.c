/* SPDX-License-Identifier: Apache-2.0
 *
 * Exported stacks, frame by frame, against the slowest way to add up replies; and their pprof, read
 * back by the decoder that reads what people push.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/pprof/pprof.h"
#include "querier/render/export.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/roles/querier_gen.h"

#define BUILD_ID "3f2a9c0de1b4a7783f2a9c0de1b4a778"

static const uint64_t seed = 20261122;

/* "frame\nframe" -> value, in a list that is sorted and added up at the end. */
struct row {
    char *text; /* owned */
    uint64_t value;
};
struct rows {
    VEC(struct row) v;
};

static void put_frame(const struct stacks *s, uint32_t f, bool line, struct buf *out)
{
    buf_addf(out, "%.*s|%.*s|%.*s|%u|%" PRIx64, STR_ARG(stacks_string_at(s, s->frame_func.ptr[f])),
             STR_ARG(stacks_string_at(s, s->frame_file.ptr[f])),
             STR_ARG(stacks_string_at(s, s->frame_module.ptr[f])), line ? s->frame_line.ptr[f] : 0,
             s->frame_addr.ptr[f]);
}

/* Leaf first; at most `keep` frames unless that is 0. */
static void add_row(struct rows *r, const struct stacks *s, uint32_t node, uint64_t value,
                    const struct export_how *how)
{
    struct buf text;
    size_t depth = 0;

    if (value == 0)
        return;
    buf_init(&text, MIB);
    for (uint32_t at = node; at; at = s->node_parent.ptr[at - 1], depth++) {
        if (how->keep_locations && depth == how->keep_locations)
            break;
        put_frame(s, s->node_frame.ptr[at - 1], depth > 0 || !how->aggregate_callees, &text);
        buf_add_c(&text, '\n');
    }
    buf_add_c(&text, '\0');
    vec_push(&r->v, ((struct row){ text.ptr, value }));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->text, ((const struct row *)b)->text);
}

static void sum_up(struct rows *r)
{
    size_t n = 0;

    if (r->v.len)
        qsort(r->v.ptr, r->v.len, sizeof(struct row), by_text);
    vec_for (i, &r->v) {
        if (n && strcmp(r->v.ptr[n - 1].text, r->v.ptr[i].text) == 0) {
            r->v.ptr[n - 1].value += r->v.ptr[i].value;
            xfree(r->v.ptr[i].text);
        } else {
            r->v.ptr[n++] = r->v.ptr[i];
        }
    }
    r->v.len = n;
}

static void assert_rows_equal(const struct rows *a, const struct rows *b)
{
    assert_int_equal(a->v.len, b->v.len);
    for (size_t i = 0; i < a->v.len; i++) {
        assert_string_equal(a->v.ptr[i].text, b->v.ptr[i].text);
        assert_int_equal(a->v.ptr[i].value, b->v.ptr[i].value);
    }
}

static void rows_free(struct rows *r)
{
    vec_for (i, &r->v)
        xfree(r->v.ptr[i].text);
    vec_free(&r->v);
}

/* What the generator does not make: first lines of functions, build ids. */
static void enrich(struct gen_part *g)
{
    struct stacks *s = &g->stacks;
    uint32_t id = stacks_string(s, STR(BUILD_ID)), file = stacks_string(s, STR("libx.so"));

    for (size_t i = 0; i < s->frame_func.len; i++) {
        if (s->frame_func.ptr[i]) {
            s->frame_addr.ptr[i] = s->frame_func.ptr[i] % 3 ? 1 + s->frame_func.ptr[i] : 0;
        } else if (s->frame_addr.ptr[i] % 3 == 0) {
            s->frame_module.ptr[i] = id;
            s->frame_file.ptr[i] = file;
        }
    }
    g->part.stacks = stacks_view(s);
}

static void rows_of_set(const struct export_set *x, struct rows *ret)
{
    static const struct export_how all = { 0 };

    *ret = (struct rows){ 0 };
    vec_for (i, &x->self)
        add_row(ret, &x->stacks, (uint32_t)i, x->self.ptr[i], &all);
    sum_up(ret);
}

static void head(struct export_head *h)
{
    struct err e;

    *h = (struct export_head){ .time_ns = INT64_C(1750000000) * 1000000000,
                               .duration_ns = INT64_C(60000000000) };
    assert_int_equal(ptype_parse(STR("process_cpu:cpu:nanoseconds:cpu:nanoseconds"), &h->type, &e),
                     0);
}

/* Decoded by the distributor, every frame is what it was. */
static void check_decoded(const struct export_set *x, const struct rows *want)
{
    static const struct export_how all = { 0 };
    struct limits l = limits_default();
    struct export_head h;
    struct dist_push d;
    struct rows got = { 0 };
    struct buf out;
    struct err e;

    head(&h);
    buf_init(&out, 64 * MIB);
    assert_int_equal(export_pprof_write(x, &h, &out, &e), 0);
    if (dist_decode(&d, "app", "pprof", NULL, buf_str(&out), &l, &e))
        fail_msg("%s", e.text);
    const struct push_series *s = dist_series(&d.push, "cpu");
    for (size_t i = 0; s && i < s->len; i++)
        add_row(&got, &d.push.stacks, s->nodes[i], s->values[i], &all);
    vec_for (i, &got.v) /* what a sample without a stack becomes in a push */
        if (strcmp(got.v.ptr[i].text, "[unknown]|||0|0\n") == 0)
            got.v.ptr[i].text[0] = '\0';
    sum_up(&got);
    assert_rows_equal(&got, want);
    rows_free(&got);
    dist_push_free(&d);
    buf_deinit(&out);
}

/* Whatever is asked for at a time, the bytes are the same. */
static void check_pieces(const struct export_set *x, struct prng *p)
{
    struct export_head h;
    struct buf whole, pieces;
    bool more = true;
    struct err e;

    head(&h);
    buf_init(&whole, 64 * MIB);
    buf_init(&pieces, 64 * MIB);
    assert_int_equal(export_pprof_write(x, &h, &whole, &e), 0);
    struct export_pprof *w = export_pprof_new(x, &h, 64 * MIB);
    while (more) {
        size_t want = 1 + prng_below(p, 600), before = pieces.len;
        assert_int_equal(export_pprof_next(w, want, &pieces, &more, &e), 0);
        assert_true(!more || pieces.len > before);
    }
    assert_true(str_eq(buf_str(&whole), buf_str(&pieces)));
    export_pprof_free(w);
    buf_deinit(&whole);
    buf_deinit(&pieces);
}

static void one_round(struct prng *p, const struct export_how *how, size_t parts)
{
    struct gen_opts o = { .nodes_max = 1 + prng_below(p, 150),
                          .functions = 2 + prng_below(p, 25),
                          .frames_per_function = 1 + prng_below(p, 4),
                          .value_chance = prng_unit(p),
                          .value_max = 1000,
                          .chain = prng_chance(p, 0.1),
                          .unsymbolized = prng_chance(p, 0.6) };
    struct rows want = { 0 }, got;
    struct export_set x;
    uint64_t total = 0;
    struct err e;

    export_init(&x, how, 64 * MIB, prng_u64(p));
    for (size_t i = 0; i < parts; i++) {
        struct gen_part g;
        gen_part_make(&g, p, &o);
        enrich(&g);
        assert_int_equal(export_add(&x, &g.part, NULL, &e), 0);
        vec_for (k, &g.nodes) {
            add_row(&want, &g.stacks, g.nodes.ptr[k], g.values.ptr[k], how);
            total += g.values.ptr[k];
        }
        gen_part_free(&g);
    }
    sum_up(&want);
    rows_of_set(&x, &got);
    assert_rows_equal(&got, &want);
    assert_int_equal(export_total(&x), total);
    check_decoded(&x, &want);
    check_pieces(&x, p);
    rows_free(&want);
    rows_free(&got);
    export_deinit(&x);
}

static void test_random_replies_come_back(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 120; round++) {
        struct export_how how = { .aggregate_callees = round % 4 > 1 };
        if (round % 2)
            how.keep_locations = 1 + prng_below(&p, 6);
        one_round(&p, &how, 1 + prng_below(&p, 4));
    }
}

/* ---- cutting ----------------------------------------------------------------------------------*/

static uint32_t node_of(struct stacks *s, uint32_t parent, const char *name)
{
    struct frame f = { .func = stacks_string(s, str_c(name)) };

    return stacks_node(s, parent, stacks_frame(s, &f));
}

static void names_of(const struct export_set *x, struct buf *out)
{
    const struct stacks *s = &x->stacks;

    for (size_t i = 0; i < x->self.len; i++) {
        if (!x->self.ptr[i])
            continue;
        for (uint32_t at = (uint32_t)i; at; at = s->node_parent.ptr[at - 1]) {
            uint32_t f = s->node_frame.ptr[at - 1];
            buf_addf(out, "%.*s<", STR_ARG(stacks_string_at(s, s->frame_func.ptr[f])));
        }
        buf_addf(out, "%" PRIu64 " ", x->self.ptr[i]);
    }
    buf_add_c(out, '\0');
}

static void test_cut(void **state)
{
    (void)state;
    static const struct {
        size_t max_nodes;
        const char *want;
    } cases[] = {
        { 0, "b<a<30 c<b<a<5 d<a<4 other<a<3 e<2 " },
        { 2, "b<a<30 other<a<7 other<b<a<5 other<2 " },
        { 1, "other<a<42 other<2 " },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct export_set x;
        struct buf text;
        struct err e;
        export_init(&x, NULL, MIB, 3);
        uint32_t a = node_of(&x.stacks, 0, "a"), b = node_of(&x.stacks, a, "b");
        uint32_t nodes[] = { b, node_of(&x.stacks, b, "c"), node_of(&x.stacks, a, "d"),
                             node_of(&x.stacks, a, "other"), node_of(&x.stacks, 0, "e") };
        uint64_t values[] = { 30, 5, 4, 3, 2 };
        struct calltree_part part = { stacks_view(&x.stacks), nodes, values, ARRAY_LEN(nodes) };
        struct export_set y;
        export_init(&y, NULL, MIB, 5);
        assert_int_equal(export_add(&y, &part, NULL, &e), 0);
        assert_int_equal(export_cut(&y, cases[i].max_nodes, &e), 0);
        assert_int_equal(export_total(&y), 44);
        buf_init(&text, MIB);
        names_of(&y, &text);
        assert_string_equal(text.ptr, cases[i].want);
        buf_deinit(&text);
        export_deinit(&x);
        export_deinit(&y);
    }
}

static void test_means_and_limits(void **state)
{
    (void)state;
    struct export_set x, y;
    atomic_bool cancel = false;
    struct err e;

    export_init(&x, NULL, MIB, 3);
    uint32_t nodes[] = { node_of(&x.stacks, 0, "a"), node_of(&x.stacks, 0, "b"), 0 };
    uint64_t values[] = { 4, 3, 1 };
    struct calltree_part part = { stacks_view(&x.stacks), nodes, values, 3 };
    export_init(&y, NULL, MIB, 5);
    assert_int_equal(export_add(&y, &part, &cancel, &e), 0);
    export_divide(&y, 3);
    assert_int_equal(export_total(&y), 3); /* round(8 / 3): once, not by value */
    values[0] = (uint64_t)INT64_MAX;
    assert_int_equal(export_add(&y, &part, &cancel, &e), 0);
    assert_true(y.saturated);
    assert_int_equal(export_total(&y), INT64_MAX);
    nodes[0] = 7;
    assert_int_equal(export_add(&y, &part, NULL, &e), ERR_CORRUPT);
    export_deinit(&y);
    nodes[0] = 1;
    for (uint64_t keep = 0; keep < 2; keep++) { /* no room: an error, nothing worse */
        export_init(&y, &(struct export_how){ keep, false }, 100, 5);
        assert_int_equal(export_add(&y, &part, NULL, &e), ERR_LIMIT);
        export_deinit(&y);
    }
    export_deinit(&x);
}

/* What `go tool pprof` shows: it demangles the name of a function whose system name is the same, or
 * strips <...> and (...) from it. */
static void test_names_are_final_unless_mangled(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool mangled;
    } cases[] = {
        { "<module>", false },
        { "main.<lambda>", false },
        { "std::vec<int>::push(int)", false },
        { "<T as Iterator>::next", false },
        { "_Z<not one>", false },
        { "runtime.mallocgc", false },
        { "_ZNSt6vectorIiSaIiEE9push_backERKi", true },
        { "_RNvC6_123foo3bar", true },
    };
    struct export_set x;
    struct export_head h;
    struct buf out;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct limits l = limits_default();
        struct pprof p;
        struct stacks s;
        export_init(&x, NULL, MIB, 3);
        stacks_init(&s, MIB, 1);
        uint32_t node = node_of(&s, 0, cases[i].name);
        uint64_t value = 7;
        struct calltree_part part = { stacks_view(&s), &node, &value, 1 };
        assert_int_equal(export_add(&x, &part, NULL, &e), 0);
        head(&h);
        buf_init(&out, MIB);
        assert_int_equal(export_pprof_write(&x, &h, &out, &e), 0);
        assert_int_equal(pprof_parse(&p, buf_str(&out), &l, &e), 0);
        assert_int_equal(p.functions.len, 1);
        const struct pprof_function *f = &p.functions.ptr[0];
        assert_true(str_eqc(pprof_str(&p, f->name), cases[i].name));
        assert_int_equal(f->system_name, cases[i].mangled ? f->name : 0);
        pprof_deinit(&p);
        buf_deinit(&out);
        stacks_deinit(&s);
        export_deinit(&x);
    }
}

static void test_head(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int64_t period;
    } cases[] = {
        { "process_cpu:cpu:nanoseconds:cpu:nanoseconds", 1000000000 },
        { "memory:inuse_space:bytes:space:bytes", 524288 },
        { "mutex:delay:nanoseconds:contentions:count", 1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ptype t;
        struct err e;
        assert_int_equal(ptype_parse(str_c(cases[i].type), &t, &e), 0);
        assert_int_equal(export_period(&t), cases[i].period);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_replies_come_back),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_means_and_limits),
        cmocka_unit_test(test_names_are_final_unless_mangled),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
