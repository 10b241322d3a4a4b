/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/model/stacks.h"

static uint32_t frame_named(struct stacks *s, const char *func)
{
    struct frame f = { .func = stacks_string(s, str_c(func)) };
    return stacks_frame(s, &f);
}

static void test_strings(void **state)
{
    struct stacks s;

    (void)state;
    stacks_init(&s, MIB, 1);
    assert_int_equal(stacks_string(&s, STR("")), 0);
    assert_int_equal(stacks_string(&s, STR_NULL), 0);
    assert_int_equal(stacks_string(&s, STR("main")), 1);
    assert_int_equal(stacks_string(&s, STR("foo")), 2);
    assert_int_equal(stacks_string(&s, STR("main")), 1);
    assert_int_equal(stacks_string(&s, str_n("a\0b", 3)), 3);
    assert_int_equal(stacks_string(&s, str_n("a\0c", 3)), 4);
    assert_true(str_eqc(stacks_string_at(&s, 2), "foo"));
    assert_int_equal(stacks_string_at(&s, 3).len, 3);
    assert_int_equal(stacks_string_at(&s, 0).len, 0);
    stacks_deinit(&s);
}

static void test_frames_differ_in_each_field(void **state)
{
    struct stacks s;
    struct frame f = { 1, 2, 3, 4, 5 };

    (void)state;
    stacks_init(&s, MIB, 1);
    stacks_string(&s, STR("a"));
    stacks_string(&s, STR("b"));
    stacks_string(&s, STR("c"));
    assert_int_equal(stacks_frame(&s, &f), 0);
    f.func = 2;
    assert_int_equal(stacks_frame(&s, &f), 1);
    f.file = 1;
    assert_int_equal(stacks_frame(&s, &f), 2);
    f.module = 0;
    assert_int_equal(stacks_frame(&s, &f), 3);
    f.line = UINT32_MAX;
    assert_int_equal(stacks_frame(&s, &f), 4);
    f.addr = UINT64_MAX;
    assert_int_equal(stacks_frame(&s, &f), 5);
    assert_int_equal(stacks_frame(&s, &f), 5);
    f.func = STACKS_FULL;
    assert_int_equal(stacks_frame(&s, &f), STACKS_FULL);
    assert_int_equal(s.frame_func.len, 6);
    stacks_deinit(&s);
}

static void test_nodes(void **state)
{
    struct stacks s;
    struct err e;

    (void)state;
    stacks_init(&s, MIB, 1);
    uint32_t a = frame_named(&s, "a"), b = frame_named(&s, "b");
    assert_int_equal(stacks_node(&s, 0, a), 1);
    assert_int_equal(stacks_node(&s, 0, b), 2);
    assert_int_equal(stacks_node(&s, 1, b), 3);
    assert_int_equal(stacks_node(&s, 1, a), 4); /* recursion is a node of its own */
    assert_int_equal(stacks_node(&s, 0, a), 1);
    assert_int_equal(stacks_node(&s, 1, b), 3);
    assert_int_equal(stacks_node(&s, STACKS_FULL, b), STACKS_FULL);
    assert_int_equal(stacks_node(&s, 1, STACKS_FULL), STACKS_FULL);
    struct stacks_view v = stacks_view(&s);
    assert_int_equal(v.nodes, 4);
    assert_int_equal(v.node_parent[2], 1);
    assert_int_equal(stacks_view_check(&v, &e), 0);
    stacks_reset(&s);
    v = stacks_view(&s);
    assert_true(v.nodes == 0 && v.frames == 0 && v.strings == 1 && v.string_data.len == 0);
    assert_int_equal(stacks_bytes(&s), 0);
    assert_int_equal(stacks_view_check(&v, &e), 0);
    assert_int_equal(stacks_string(&s, STR("b")), 1);
    stacks_deinit(&s);
}

/* Two contents under one 64-bit hash: forge the table so that "b" meets "a" in its place. */
static void test_closed_still_has_all(void **state)
{
    struct stacks s;

    (void)state;
    stacks_init(&s, MIB, 1);
    struct frame f = { .func = stacks_string(&s, STR("main")), .line = 7 };
    uint32_t node = stacks_node(&s, 0, stacks_frame(&s, &f));
    size_t bytes = stacks_bytes(&s);
    stacks_close(&s);
    struct stacks_view v = stacks_view(&s);
    struct err e;
    assert_int_equal(stacks_view_check(&v, &e), 0);
    assert_int_equal(v.nodes, node);
    assert_int_equal(v.frame_line[v.node_frame[0]], 7);
    assert_true(str_eqc(stacks_string_at(&s, v.frame_func[0]), "main"));
    assert_int_equal(stacks_bytes(&s), bytes);
    stacks_deinit(&s);
}

static void test_hash_clash_is_resolved(void **state)
{
    struct stacks s;
    struct frame one = { .line = 1 }, two = { .line = 2 };
    uint64_t words[3] = { 2, 0, 0 };

    (void)state;
    stacks_init(&s, MIB, 9);
    assert_int_equal(stacks_string(&s, STR("a")), 1);
    assert_int_equal(map_u64_put(&s.string_ids, hash64("b", 1, 9), 1), MAP_U64_EMPTY);
    assert_int_equal(stacks_string(&s, STR("b")), 2);
    assert_int_equal(stacks_string(&s, STR("b")), 2);
    assert_int_equal(stacks_string(&s, STR("a")), 1);
    assert_int_equal(stacks_frame(&s, &one), 0);
    assert_int_equal(map_u64_put(&s.frame_ids, hash64(words, sizeof(words), 9), 0), MAP_U64_EMPTY);
    assert_int_equal(stacks_frame(&s, &two), 1);
    assert_int_equal(stacks_frame(&s, &two), 1);
    assert_int_equal(stacks_frame(&s, &one), 0);
    stacks_deinit(&s);
}

static void test_budget(void **state)
{
    struct stacks s;
    struct err e;

    (void)state;
    stacks_init(&s, 1000, 1);
    uint32_t a = frame_named(&s, "a"), node = 0, last = 0;
    for (int i = 0; i < 100 && node != STACKS_FULL; i++) {
        last = node;
        node = stacks_node(&s, node, a);
    }
    assert_int_equal(node, STACKS_FULL);
    assert_true(last > 0 && stacks_bytes(&s) <= 1000);
    assert_int_equal(stacks_node(&s, last - 1, a), last); /* the known is still found */
    assert_int_equal(stacks_string(&s, STR("a")), 1);
    assert_int_equal(stacks_string(&s, STR("another")), STACKS_FULL);
    assert_int_equal(frame_named(&s, "another"), STACKS_FULL);
    struct stacks_view v = stacks_view(&s);
    assert_int_equal(stacks_view_check(&v, &e), 0);
    assert_int_equal(v.nodes, last);
    stacks_deinit(&s);
}

static void test_view_check_refuses(void **state)
{
    uint32_t len[3] = { 0, 1, 2 }, parent[3] = { 0, 1, 0 }, frame[3] = { 0, 0, 1 };
    uint32_t func[2] = { 1, 2 }, file[2] = { 0, 0 }, module[2] = { 0, 2 }, line[2] = { 0, 0 };
    uint64_t addr[2] = { 0, 0 };
    struct stacks_view good = { STR("abc"), len,  3, func,   file,  line,
                                module,     addr, 2, parent, frame, 3 };
    struct stacks_view v = good;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(stacks_view_check(&good, &e), 0);
    v.string_data.len = 2;
    assert_int_equal(stacks_view_check(&v, &e), ERR_INPUT);
    v = good;
    v.strings = 2;
    v.string_data.len = 1; /* lengths fit, frame 1 names string 2 */
    assert_int_equal(stacks_view_check(&v, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "frame 1"));
    v = good;
    v.frames = 1;
    assert_int_equal(stacks_view_check(&v, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "node 3"));
    for (int i = 0; i < 3; i++) {
        uint32_t was = parent[i];
        parent[i] = (uint32_t)i + 1; /* its own parent */
        assert_int_equal(stacks_view_check(&good, &e), ERR_INPUT);
        parent[i] = was;
    }
    len[0] = 1;
    len[1] = 0;
    assert_int_equal(stacks_view_check(&good, &e), ERR_INPUT);
    len[0] = 0;
    len[1] = 1;
    assert_int_equal(stacks_view_check(&good, &e), 0);
    v = (struct stacks_view){ 0 };
    assert_int_equal(stacks_view_check(&v, &e), 0);
    v = good;
    v.nodes = (size_t)UINT32_MAX; /* refused before a single one is read */
    assert_int_equal(stacks_view_check(&v, &e), ERR_INPUT);
}

/* The path of a node as text, leaf first. */
static void path_of(const struct stacks_view *v, uint32_t node, struct buf *out)
{
    uint32_t off[256];

    off[0] = 0;
    for (size_t i = 1; i < v->strings; i++)
        off[i] = off[i - 1] + v->string_len[i - 1];
    for (; node; node = v->node_parent[node - 1]) {
        uint32_t f = v->node_frame[node - 1],
                 id[3] = { v->frame_func[f], v->frame_file[f], v->frame_module[f] };
        for (int i = 0; i < 3; i++)
            buf_addf(out, "%.*s,", (int)v->string_len[id[i]], v->string_data.ptr + off[id[i]]);
        buf_addf(out, "%u,%llu;", v->frame_line[f], (unsigned long long)v->frame_addr[f]);
    }
}

static void random_stacks(struct prng *p, struct stacks *s)
{
    size_t stacks = prng_below(p, 30);

    for (size_t i = 0; i < stacks; i++) {
        uint32_t node = 0;
        for (size_t depth = prng_below(p, 10); depth > 0; depth--) {
            char text[2] = { (char)('a' + prng_below(p, 6)), 0 };
            struct frame f = { stacks_string(s, str_c(text)),
                               stacks_string(s, str_n("file", prng_below(p, 3))), 0,
                               (uint32_t)prng_below(p, 2), prng_below(p, 2) };
            node = stacks_node(s, node, stacks_frame(s, &f));
        }
        assert_int_not_equal(node, STACKS_FULL);
    }
}

/* Merging keeps every path, maps each node to the one with the same path, adds nothing twice. */
static void test_merge(void **state)
{
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 5);
    for (int round = 0; round < 300; round++) {
        struct stacks a, b;
        uint32_t map[512], again[512];
        struct buf was, now;

        stacks_init(&a, MIB, 1);
        stacks_init(&b, MIB, 2);
        buf_init(&was, MIB);
        buf_init(&now, MIB);
        random_stacks(&p, &a);
        random_stacks(&p, &b);
        struct stacks_view v = stacks_view(&b);
        assert_int_equal(stacks_merge(&a, &v, map, &e), 0);
        struct stacks_view all = stacks_view(&a);
        assert_int_equal(stacks_view_check(&all, &e), 0);
        assert_int_equal(map[0], 0);
        for (uint32_t i = 1; i <= v.nodes; i++) {
            buf_reset(&was);
            buf_reset(&now);
            path_of(&v, i, &was);
            path_of(&all, map[i], &now);
            assert_true(str_eq(buf_str(&was), buf_str(&now)));
            for (uint32_t k = 1; k < i; k++)
                assert_int_not_equal(map[k], map[i]);
        }
        assert_int_equal(stacks_merge(&a, &v, again, &e), 0);
        assert_memory_equal(map, again, (v.nodes + 1) * sizeof(*map));
        assert_int_equal(stacks_view(&a).nodes, all.nodes);
        buf_deinit(&was);
        buf_deinit(&now);
        stacks_deinit(&a);
        stacks_deinit(&b);
    }
}

static void test_merge_over_budget(void **state)
{
    struct stacks a, b;
    uint32_t map[512];
    struct err e = { 0 };
    struct prng p;

    (void)state;
    prng_init(&p, 6);
    stacks_init(&b, MIB, 2);
    while (stacks_view(&b).nodes < 20)
        random_stacks(&p, &b);
    struct stacks_view v = stacks_view(&b);
    size_t need = stacks_bytes(&b);
    for (size_t budget = 0; budget <= need; budget += budget + 64 < need ? 64 : 1) {
        stacks_init(&a, budget, 1);
        int rc = stacks_merge(&a, &v, map, &e);
        assert_int_equal(rc, budget < need ? ERR_LIMIT : 0);
        struct stacks_view part = stacks_view(&a);
        assert_int_equal(stacks_view_check(&part, &e), 0);
        assert_true(stacks_bytes(&a) <= budget);
        stacks_deinit(&a);
    }
    stacks_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_frames_differ_in_each_field),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_hash_clash_is_resolved),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_view_check_refuses),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merge_over_budget),
        cmocka_unit_test(test_closed_still_has_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
