/* SPDX-License-Identifier: Apache-2.0
 *
 * Call tree, layout, flame graph and folded text against a slow model, on random replies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/render/flame.h"
#include "common/render/folded.h"
#include "querier/output/flame_msg.h"
#include "tests/lib/roles/querier_gen.h"

static const uint64_t seed = 20261121;

/* A bar with its absolute place. */
struct bar {
    uint64_t x, total, self;
    struct str name;
    char *path; /* owned; names from the root, joined by '\n' */
    size_t parent;
};
struct counted_bars {
    VEC(struct bar) v;
    VEC(size_t) level_end;
};

static char *path_join(const char *up, struct str name)
{
    struct buf b;

    buf_init(&b, MIB);
    if (*up)
        buf_addf(&b, "%s\n", up);
    buf_add_str(&b, name);
    buf_add_c(&b, '\0');
    return b.ptr; /* the buffer's memory moves to the caller */
}

/* Decodes the bars the way a client does, and checks what every client relies on: children begin
 * at x + self, follow each other without gaps in order of name with "other" last, stay inside their
 * parent, and add up to the parent's total minus self. */
static void bars_check(const struct flame *f, struct counted_bars *ret)
{
    *ret = (struct counted_bars){ 0 };
    assert_true(str_eqc(f->names.ptr[0], "total"));
    for (size_t i = 0; i < f->names.len; i++)
        for (size_t k = 0; k < i; k++)
            assert_false(str_eq(f->names.ptr[i], f->names.ptr[k]));
    size_t level_begin = 0;
    for (size_t d = 0, i = 0; d < f->level_end.len; d++) {
        uint64_t edge = 0;
        size_t up = level_begin, level = ret->v.len;
        for (; i < f->level_end.ptr[d]; i++) {
            const uint64_t *q = &f->bars.ptr[i * 4];
            struct bar b = { .x = edge + q[0], .total = q[1], .self = q[2] };
            assert_true(q[3] < f->names.len);
            b.name = f->names.ptr[q[3]];
            edge = b.x + b.total;
            assert_true(b.self <= b.total);
            if (d == 0) {
                b.path = xstrdup("");
                assert_int_equal(b.x, 0);
            } else {
                while (up < level && b.x >= ret->v.ptr[up].x + ret->v.ptr[up].total)
                    up++;
                assert_true(up < level);
                b.parent = up;
                b.path = path_join(ret->v.ptr[up].path, b.name);
            }
            vec_push(&ret->v, b);
        }
        level_begin = level;
        vec_push(&ret->level_end, ret->v.len);
    }
    uint64_t *filled = XNEW_ARRAY(uint64_t, ret->v.len + 1);
    const struct bar **last = XNEW_ARRAY(const struct bar *, ret->v.len + 1);
    for (size_t i = 1; i < ret->v.len; i++) {
        const struct bar *b = &ret->v.ptr[i], *p = &ret->v.ptr[b->parent];
        assert_int_equal(b->x, p->x + p->self + filled[b->parent]);
        filled[b->parent] += b->total;
        const struct bar *before = last[b->parent];
        if (before && !str_eqc(b->name, "other"))
            assert_true(str_cmp(before->name, b->name) < 0);
        last[b->parent] = b;
    }
    for (size_t i = 0; i < ret->v.len; i++)
        assert_int_equal(ret->v.ptr[i].total, ret->v.ptr[i].self + filled[i]);
    xfree(filled);
    xfree(last);
}

static void bars_free(struct counted_bars *b)
{
    vec_for (i, &b->v)
        xfree(b->v.ptr[i].path);
    vec_free(&b->v);
    vec_free(&b->level_end);
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Least total that is kept, by sorting everything. */
static uint64_t model_cut(const struct gen_model *m, size_t max_nodes)
{
    uint64_t *totals = XNEW_ARRAY(uint64_t, m->paths.len + 1);
    size_t n = 0;

    vec_for (i, &m->paths)
        if (m->paths.ptr[i].depth)
            totals[n++] = m->paths.ptr[i].total;
    qsort(totals, n, sizeof(*totals), descending);
    uint64_t cut = max_nodes && n > max_nodes ? totals[max_nodes - 1] : 1;
    xfree(totals);
    return cut;
}

static bool is_child(const struct gen_path *up, const struct gen_path *p)
{
    size_t n = strlen(up->text);
    return p->depth == up->depth + 1 && strncmp(p->text, up->text, n) == 0 &&
           (n == 0 || p->text[n] == '\n');
}

/* Every bar is a kept path with its values, or the sum of what was cut below its parent; every kept
 * path has its bar, except those that went into such a sum with a function named "other". */
static void compare(const struct gen_model *m, const struct counted_bars *b, size_t max_nodes)
{
    uint64_t cut = model_cut(m, max_nodes);
    size_t expected = 0;

    for (size_t i = 0; i < m->paths.len; i++) {
        const struct gen_path *up = &m->paths.ptr[i];
        if (up->depth && up->total < cut)
            continue;
        const struct bar *bar = NULL;
        for (size_t k = 0; k < b->v.len && !bar; k++)
            if (strcmp(b->v.ptr[k].path, up->text) == 0)
                bar = &b->v.ptr[k];
        if (!bar || strstr(up->text, "other")) /* may be folded: checked through its parent */
            continue;
        expected++;
        assert_int_equal(bar->total, up->total);
        assert_int_equal(bar->self, up->self);
        uint64_t lost = 0, real = 0;
        for (size_t k = 0; k < m->paths.len; k++) {
            const struct gen_path *p = &m->paths.ptr[k];
            if (!is_child(up, p))
                continue;
            if (p->total < cut)
                lost += p->total;
            else if (strcmp(p->text + strlen(p->text) - MIN(strlen(p->text), 5), "other") == 0)
                real += p->total;
        }
        char *other_path = path_join(up->text, STR("other"));
        const struct bar *other = NULL;
        for (size_t k = 0; k < b->v.len; k++)
            if (strcmp(b->v.ptr[k].path, other_path) == 0) {
                assert_null(other);
                other = &b->v.ptr[k];
            }
        if (lost + real) {
            assert_non_null(other);
            assert_int_equal(other->total, lost + real);
            if (lost)
                assert_int_equal(other->self, lost + real);
        } else {
            assert_null(other);
        }
        xfree(other_path);
    }
    /* Nothing that was kept is missing: each bar's children add up to its total (bars_check), so
     * a missing child would have shown up as a gap there. */
    assert_true(expected > 0);
}

/* Folded text says the same: sum of lines = total, and each line's path has that self value. */
static void compare_folded(const struct layout *l, const struct calltree *t,
                           const struct gen_model *m)
{
    struct buf out;
    uint64_t sum = 0, stacks = 0;
    struct str rest, line;
    bool more = true;

    buf_init(&out, 64 * MIB);
    folded_write(l, t, &out);
    assert_true(buf_ok(&out));
    rest = buf_str(&out);
    while (str_next(&rest, '\n', &more, &line)) {
        uint64_t value = 0;
        if (!line.len)
            continue;
        ptrdiff_t blank = str_rfind(line, ' ');
        assert_true(blank > 0 && str_u64(str_sub(line, (size_t)blank + 1, line.len), &value));
        sum += value;
        stacks++;
        char *path = xmemdup(line.ptr, (size_t)blank + 1);
        path[blank] = '\0';
        for (char *c = path; *c; c++)
            if (*c == ';')
                *c = '\n';
        const struct gen_path *p =
            gen_model_find(m, str_c(strcmp(path, "(empty stack)") ? path : ""));
        assert_non_null(p);
        assert_int_equal(p->self, value);
        xfree(path);
    }
    uint64_t with_self = 0;
    vec_for (i, &m->paths)
        with_self += m->paths.ptr[i].self > 0;
    assert_int_equal(stacks, with_self);
    assert_int_equal(sum, calltree_total(t));
    buf_deinit(&out);
}

static void one_round(struct prng *p, const struct gen_opts *o, size_t parts)
{
    struct gen_part gen[4];
    struct gen_model m = { 0 };
    struct calltree t;
    struct layout l;
    struct err e;

    calltree_init(&t, prng_u64(p));
    for (size_t i = 0; i < parts; i++) {
        gen_part_make(&gen[i], p, o);
        gen_model_add(&m, &gen[i]);
        assert_int_equal(calltree_add(&t, &gen[i].part, NULL, &e), 0);
    }
    gen_model_totals(&m);
    size_t limits[] = { 0, 1, 3, 10, 1 + prng_below(p, m.paths.len), m.paths.len };
    for (size_t k = 0; k < ARRAY_LEN(limits); k++) {
        struct flame f;
        struct counted_bars b;
        layout_init(&l, &t, limits[k]);
        flame_init(&f, &l, &t);
        assert_int_equal(f.total, calltree_total(&t));
        bars_check(&f, &b);
        compare(&m, &b, limits[k]);
        if (!limits[k])
            compare_folded(&l, &t, &m);
        bars_free(&b);
        flame_deinit(&f);
        layout_deinit(&l);
    }
    calltree_deinit(&t);
    gen_model_free(&m);
    for (size_t i = 0; i < parts; i++)
        gen_part_free(&gen[i]);
}

static void test_random_trees_equal_the_model(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 150; round++) {
        struct gen_opts o = { .nodes_max = 1 + prng_below(&p, 120),
                              .functions = 2 + prng_below(&p, 20),
                              .frames_per_function = 1 + prng_below(&p, 3),
                              .value_chance = prng_unit(&p),
                              .value_max = prng_chance(&p, 0.5) ? 3 : 1000000,
                              .chain = prng_chance(&p, 0.1),
                              .unsymbolized = prng_chance(&p, 0.5) };
        one_round(&p, &o, 1 + prng_below(&p, 4));
    }
}

/* ---- small fixed cases ------------------------------------------------------------------------*/

/* "a;b;c 5" lines into a part. */
static void part_of(struct gen_part *g, const char *folded)
{
    struct str rest = str_c(folded), line;
    bool more = true;

    *g = (struct gen_part){ 0 };
    stacks_init(&g->stacks, GIB, 1);
    while (str_next(&rest, '\n', &more, &line)) {
        if (!line.len)
            continue;
        ptrdiff_t blank = str_rfind(line, ' ');
        uint64_t value;
        struct str path = str_sub(line, 0, (size_t)blank), name;
        uint32_t node = 0;
        bool parts = path.len > 0;
        assert_true(str_u64(str_sub(line, (size_t)blank + 1, line.len), &value));
        while (parts && str_next(&path, ';', &parts, &name)) {
            struct frame f = { .func = stacks_string(&g->stacks, name) };
            node = stacks_node(&g->stacks, node, stacks_frame(&g->stacks, &f));
        }
        vec_push(&g->nodes, node);
        vec_push(&g->values, value);
    }
    g->part = (struct calltree_part){ .stacks = stacks_view(&g->stacks),
                                      .nodes = g->nodes.ptr,
                                      .values = g->values.ptr,
                                      .len = g->nodes.len };
}

static void render(const char *folded, size_t max_nodes, bool connect, char *out, size_t size)
{
    struct gen_part g;
    struct calltree t;
    struct layout l;
    struct flame f;
    struct json j;
    struct buf b;
    struct err e;

    part_of(&g, folded);
    calltree_init(&t, 7);
    assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
    layout_init(&l, &t, max_nodes);
    flame_init(&f, &l, &t);
    buf_init(&b, MIB);
    json_init(&j, &b);
    if (connect) {
        struct msg_out o;
        msg_out_init(&o, true, &b);
        flame_msg(&o, 1, "f", &f);
        msg_out_end(&o);
    } else {
        flame_json(&f, &j);
    }
    assert_true(buf_ok(&b) && b.len < size);
    struct str text = connect ? str_sub(buf_str(&b), strlen("{\"f\":"), b.len - 1) : buf_str(&b);
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    buf_deinit(&b);
    flame_deinit(&f);
    layout_deinit(&l);
    calltree_deinit(&t);
    gen_part_free(&g);
}

static void test_json_of_small_trees(void **state)
{
    (void)state;
    static const struct {
        const char *folded;
        size_t max_nodes;
        const char *json;
    } rows[] = {
        { "a;b 3\na 2\nc 5\n", 0,
          "{\"names\":[\"total\",\"a\",\"c\",\"b\"],\"levels\":[[0,10,0,0],[0,5,2,1,0,5,5,2],"
          "[2,3,3,3]],\"numTicks\":10,\"maxSelf\":5}" },
        { "", 0, "{\"names\":[],\"levels\":[],\"numTicks\":0,\"maxSelf\":0}" },
        { "a 0\n", 0, "{\"names\":[],\"levels\":[],\"numTicks\":0,\"maxSelf\":0}" },
        /* ties are kept: the third largest total is 2, and four nodes have at least that */
        { "a 5\nb 3\nc 2\nd 2\ne 1\n", 3,
          "{\"names\":[\"total\",\"a\",\"b\",\"c\",\"d\",\"other\"],\"levels\":[[0,13,0,0],"
          "[0,5,5,1,0,3,3,2,0,2,2,3,0,2,2,4,0,1,1,5]],\"numTicks\":13,\"maxSelf\":5}" },
        /* what is cut is summed under its own parent */
        { "a;x 1\na;y 1\na 8\nb;z 1\nb 4\n", 2,
          "{\"names\":[\"total\",\"a\",\"b\",\"other\"],\"levels\":[[0,15,0,0],[0,10,8,1,0,5,4,2],"
          "[8,2,2,3,4,1,1,3]],\"numTicks\":15,\"maxSelf\":8}" },
        /* a function named other goes into the bar of the cut, with its subtree */
        { "other;x 6\na 4\nb 1\n", 3,
          "{\"names\":[\"total\",\"a\",\"other\"],\"levels\":[[0,11,0,0],[0,4,4,1,0,7,7,2]],"
          "\"numTicks\":11,\"maxSelf\":7}" },
        /* and stays what it is where nothing was cut */
        { "other;x 6\na 4\n", 3,
          "{\"names\":[\"total\",\"a\",\"other\",\"x\"],\"levels\":[[0,10,0,0],[0,4,4,1,0,6,0,2],"
          "[4,6,6,3]],\"numTicks\":10,\"maxSelf\":6}" },
        /* stacks without a frame are the root's own */
        { " 4\na 1\n", 0,
          "{\"names\":[\"total\",\"a\"],\"levels\":[[0,5,4,0],[4,1,1,1]],\"numTicks\":5,"
          "\"maxSelf\":4}" },
        { "total;total 1\n", 0,
          "{\"names\":[\"total\"],\"levels\":[[0,1,0,0],[0,1,0,0],[0,1,1,0]],\"numTicks\":1,"
          "\"maxSelf\":1}" },
    };
    char out[2048];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        render(rows[i].folded, rows[i].max_nodes, false, out, sizeof(out));
        assert_string_equal(out, rows[i].json);
    }
}

static void test_connect_json(void **state)
{
    (void)state;
    char out[2048];

    render("a;b 3\na 2\nc 5\n", 0, true, out, sizeof(out));
    assert_string_equal(out,
                        "{\"names\":[\"total\",\"a\",\"c\",\"b\"],\"levels\":[{\"values\":[\"0\","
                        "\"10\",\"0\",\"0\"]},{\"values\":[\"0\",\"5\",\"2\",\"1\",\"0\",\"5\","
                        "\"5\",\"2\"]},{\"values\":[\"2\",\"3\",\"3\",\"3\"]}],\"total\":\"10\","
                        "\"maxSelf\":\"5\"}");
    render("", 0, true, out, sizeof(out));
    assert_string_equal(
        out, "{\"names\":[\"total\"],\"levels\":[{\"values\":[\"0\",\"0\",\"0\",\"0\"]}]}");
}

static void test_folded_text(void **state)
{
    (void)state;
    struct gen_part g;
    struct calltree t;
    struct layout l;
    struct buf out;
    struct err e;

    part_of(&g, "b;x 1\nb;a 2\na 9\nb 4\n 3\n");
    calltree_init(&t, 7);
    assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
    layout_init(&l, &t, 3);
    buf_init(&out, MIB);
    folded_write(&l, &t, &out);
    buf_add_c(&out, '\0');
    assert_string_equal(out.ptr, "(empty stack) 3\na 9\nb 4\nb;other 1\nb;a 2\n");
    buf_deinit(&out);
    buf_init(&out, 10); /* a full buffer ends the walk */
    folded_write(&l, &t, &out);
    assert_false(buf_ok(&out));
    buf_deinit(&out);
    layout_deinit(&l);
    calltree_deinit(&t);
    gen_part_free(&g);
}

static void test_frame_names(void **state)
{
    (void)state;
    static const struct {
        const char *func, *file, *module;
        uint64_t addr;
        const char *name;
    } rows[] = {
        { "main", "main.c", "/bin/x", 0, "main" },
        { "", "", "/usr/lib/libc.so.6", 0x1234, "libc.so.6!0x1234" },
        { "", "", "C:\\x\\y.dll", 0xa, "y.dll!0xa" },
        { "", "app", "5f3c0de", 1, "app!0x1" },
        { "", "", "5f3c0de", 0xffffffffffffffff, "5f3c0de!0xffffffffffffffff" },
        { "", "", "[vdso]", 1, "[vdso]!0x1" },
        { "", "", "/odd/", 1, "/odd/!0x1" },
        { "", "", "", 0x7f, "unknown!0x7f" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct stacks s;
        struct calltree t;
        struct err e;
        uint64_t one = 1;
        uint32_t node;
        stacks_init(&s, MIB, 1);
        struct frame f = { .func = stacks_string(&s, str_c(rows[i].func)),
                           .file = stacks_string(&s, str_c(rows[i].file)),
                           .module = stacks_string(&s, str_c(rows[i].module)),
                           .addr = rows[i].addr };
        node = stacks_node(&s, 0, stacks_frame(&s, &f));
        calltree_init(&t, 3);
        struct calltree_part p = { stacks_view(&s), &node, &one, 1 };
        assert_int_equal(calltree_add(&t, &p, NULL, &e), 0);
        assert_true(str_eqc(t.names.ptr[t.name.ptr[1]], rows[i].name));
        calltree_deinit(&t);
        stacks_deinit(&s);
    }
}

static void test_bad_parts_and_cancel(void **state)
{
    (void)state;
    struct gen_part g;
    struct calltree t;
    struct err e;
    struct prng p;
    atomic_bool cancel = true;

    part_of(&g, "a 1\n");
    g.nodes.ptr[0] = 2;
    calltree_init(&t, 1);
    assert_int_equal(calltree_add(&t, &g.part, NULL, &e), ERR_CORRUPT);
    gen_part_free(&g);
    prng_init(&p, seed);
    struct gen_opts o = { .nodes_max = 60000,
                          .functions = 60000,
                          .frames_per_function = 1,
                          .value_chance = 1,
                          .value_max = 5 };
    gen_part_make(&g, &p, &o);
    while (g.stacks.node_parent.len < 20000) {
        gen_part_free(&g);
        gen_part_make(&g, &p, &o);
    }
    assert_int_equal(calltree_add(&t, &g.part, &cancel, &e), ERR_CANCELED);
    gen_part_free(&g);
    calltree_deinit(&t);
}

static void test_sums_stay_at_the_largest_signed_number(void **state)
{
    (void)state;
    struct gen_part g;
    struct calltree t;
    struct layout l;
    struct err e;

    part_of(&g, "a 9000000000000000000\nb 9000000000000000000\n");
    calltree_init(&t, 1);
    assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
    assert_false(t.saturated);
    assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
    assert_true(t.saturated);
    layout_init(&l, &t, 0);
    assert_int_equal(l.total[0], INT64_MAX);
    assert_int_equal(l.total[1], INT64_MAX);
    layout_deinit(&l);
    calltree_deinit(&t);
    gen_part_free(&g);
}

/* A gauge: no value is off by one or more, and the sum is the rounded mean of the sum. */
static void test_divide_keeps_the_sum(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed);
    for (int round = 0; round < 200; round++) {
        struct gen_opts o = { .nodes_max = 50,
                              .functions = 9,
                              .frames_per_function = 1,
                              .value_chance = 0.7,
                              .value_max = 1000 };
        uint64_t n = 1 + prng_below(&p, 40), before[200];
        struct gen_part g;
        struct calltree t;
        struct err e;
        gen_part_make(&g, &p, &o);
        calltree_init(&t, 1);
        assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
        uint64_t sum = calltree_total(&t);
        assert_true(t.self.len <= ARRAY_LEN(before));
        memcpy(before, t.self.ptr, t.self.len * sizeof(uint64_t));
        calltree_divide(&t, n);
        assert_int_equal(calltree_total(&t), (sum + n / 2) / n);
        for (size_t i = 0; i < t.self.len; i++) {
            assert_true(t.self.ptr[i] >= before[i] / n);
            assert_true(t.self.ptr[i] <= before[i] / n + 1);
        }
        calltree_deinit(&t);
        gen_part_free(&g);
    }
}

/* A million frames deep: no recursion anywhere. */
static void test_deep_chain(void **state)
{
    (void)state;
    struct stacks s;
    struct calltree t;
    struct layout l;
    struct flame f;
    struct err e;
    uint32_t node = 0;
    uint64_t one = 1;

    stacks_init(&s, GIB, 1);
    for (int i = 0; i < 1000000; i++) {
        struct frame fr = { .func = stacks_string(&s, i % 2 ? STR("a") : STR("b")) };
        node = stacks_node(&s, node, stacks_frame(&s, &fr));
    }
    calltree_init(&t, 3);
    struct calltree_part p = { stacks_view(&s), &node, &one, 1 };
    assert_int_equal(calltree_add(&t, &p, NULL, &e), 0);
    layout_init(&l, &t, 8192); /* all totals tie: all are kept */
    assert_int_equal(l.len, 1000001);
    flame_init(&f, &l, &t);
    assert_int_equal(f.level_end.len, 1000001);
    flame_deinit(&f);
    layout_deinit(&l);
    calltree_deinit(&t);
    stacks_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_trees_equal_the_model),
        cmocka_unit_test(test_json_of_small_trees),
        cmocka_unit_test(test_connect_json),
        cmocka_unit_test(test_folded_text),
        cmocka_unit_test(test_frame_names),
        cmocka_unit_test(test_bad_parts_and_cancel),
        cmocka_unit_test(test_sums_stay_at_the_largest_signed_number),
        cmocka_unit_test(test_divide_keeps_the_sum),
        cmocka_unit_test(test_deep_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
