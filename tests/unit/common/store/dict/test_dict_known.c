/* SPDX-License-Identifier: Apache-2.0
 *
 * Symbol sessions of a dictionary: symbols sent in any order, twice, or not at all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/dict/dict_known.h"
#include "common/store/kv/kv_mem.h"

static const struct dict_id ID = { 1, 2, 3 };
static struct prng rnd;
static struct kv *kv;
static struct dict_cache *cache;
static struct dict *dict;
static struct dict_scratch scratch;

static int setup(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    kv = kv_mem_new(NULL);
    cache = dict_cache_new(kv, GIB, UINT64_MAX);
    dict = dict_cache_create(cache, ID, 5);
    dict_scratch_init(&scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dict_scratch_deinit(&scratch);
    dict_unref(dict);
    dict_cache_free(cache);
    kv_close(kv);
    return 0;
}

static struct dict_counts counts(const struct stacks *s)
{
    return (struct dict_counts){ (uint32_t)s->string_len.len, (uint32_t)s->frame_func.len,
                                 (uint32_t)s->node_parent.len + 1 };
}

/* The session of s from `from` on, as a sender that told so much. */
static struct dict_told told(const struct stacks *s, struct dict_counts from, const uint32_t *node,
                             size_t n)
{
    struct stacks_view v = stacks_view(s);
    struct dict_told t = { .session = "one", .from = from, .node = node, .nodes = n };
    size_t off = from.strings < v.strings ? s->string_off.ptr[from.strings] : v.string_data.len;

    t.more = (struct stacks_view){ .string_data = str_sub(v.string_data, off, v.string_data.len),
                                   .string_len = v.string_len + from.strings,
                                   .strings = v.strings - from.strings,
                                   .frame_func = v.frame_func + from.frames,
                                   .frame_file = v.frame_file + from.frames,
                                   .frame_line = v.frame_line + from.frames,
                                   .frame_module = v.frame_module + from.frames,
                                   .frame_addr = v.frame_addr + from.frames,
                                   .frames = v.frames - from.frames,
                                   .node_parent = v.node_parent + from.nodes - 1,
                                   .node_frame = v.node_frame + from.nodes - 1,
                                   .nodes = v.nodes + 1 - from.nodes };
    return t;
}

static void grow(struct stacks *s)
{
    uint32_t node = 0;
    char name[32];

    for (uint64_t depth = prng_below(&rnd, 8); depth + 1 > 0; depth--) {
        int n = snprintf(name, sizeof(name), "f%u", (unsigned)prng_below(&rnd, 60));
        struct frame f = { .func = stacks_string(s, str_n(name, (size_t)n)),
                           .file = stacks_string(s, STR("a.c")),
                           .line = (uint32_t)prng_below(&rnd, 3) };
        node = stacks_node(s, node, stacks_frame(s, &f));
        if (depth == 0)
            break;
    }
}

static bool same_frame(const struct stacks *s, uint32_t a, uint32_t b)
{
    const struct frame *f = dict_frame(dict, b);

    return f->line == s->frame_line.ptr[a] && f->addr == s->frame_addr.ptr[a] &&
           str_eq(dict_string(dict, f->func), stacks_string_at(s, s->frame_func.ptr[a])) &&
           str_eq(dict_string(dict, f->file), stacks_string_at(s, s->frame_file.ptr[a])) &&
           str_eq(dict_string(dict, f->module), stacks_string_at(s, s->frame_module.ptr[a]));
}

static void check_same(const struct stacks *s, uint32_t a, uint32_t b)
{
    while (a && b) {
        assert_true(same_frame(s, s->node_frame.ptr[a - 1], dict_node(dict, b)->frame));
        a = s->node_parent.ptr[a - 1];
        b = dict_node(dict, b)->parent;
    }
    assert_int_equal(a, 0);
    assert_int_equal(b, 0);
}

static void use(const struct stacks *s, const struct dict_told *t)
{
    struct dict_session *known = dict_session_find(dict, t);
    struct err e = { 0 };

    assert_int_equal(dict_told_check(t, &e), 0);
    assert_true(dict_session_has(known, t));
    dict_session_use(dict, known, t, &scratch);
    assert_int_equal(scratch.node_map.ptr[0], 0);
    for (size_t i = 0; i < t->nodes; i++)
        check_same(s, t->node[i], scratch.node_map.ptr[i + 1]);
}

/* Requests that are on their way at once tell the same twice, and a late one less than is known. */
static void test_told(void **state)
{
    (void)state;
    const struct dict_counts none = { 1, 0, 1 };
    struct dict_counts at[400];
    struct stacks s;
    uint32_t node[20];

    stacks_init(&s, 64 * MIB, 9);
    at[0] = none;
    for (size_t round = 1; round < 400; round++) {
        for (uint64_t i = prng_below(&rnd, 4); i > 0; i--)
            grow(&s);
        at[round] = counts(&s);
        size_t from = round - 1 - (size_t)prng_below(&rnd, MIN(round, 5));
        size_t n = (size_t)prng_below(&rnd, ARRAY_LEN(node) + 1);
        for (size_t i = 0; i < n; i++)
            node[i] = (uint32_t)prng_below(&rnd, s.node_parent.len + 1);
        struct dict_told t = told(&s, at[from], node, n);
        if (dict_session_has(dict_session_find(dict, &t), &t))
            use(&s, &t);
        struct dict_told late = told(&s, at[round], node, 0);
        late.more = (struct stacks_view){ 0 };
        late.from = at[from];
        if (dict_session_has(dict_session_find(dict, &late), &late))
            use(&s, &late);
    }
    struct dict_told all = told(&s, none, NULL, 0);
    use(&s, &all);
    assert_int_equal(dict_session_cost(dict_session_find(dict, &all), &all),
                     s.string_data.len / DICT_NAME_BYTES);
    assert_int_equal(dict_counts(dict).nodes, s.node_parent.len + 1);
    stacks_deinit(&s);
}

static void test_not_told(void **state)
{
    (void)state;
    const struct dict_counts none = { 1, 0, 1 };
    struct stacks s;
    struct err e;
    uint32_t node[2] = { 1, 0 };

    stacks_init(&s, MIB, 9);
    grow(&s);
    struct dict_told t = told(&s, counts(&s), node, 1);
    memcpy(t.session, "another", 8);
    assert_false(dict_session_has(dict_session_find(dict, &t), &t));
    assert_false(dict_session_has(NULL, &t));
    t = told(&s, none, node, 1);
    memcpy(t.session, "another", 8);
    use(&s, &t);
    dict_sessions_free(dict);
    struct dict_told again = told(&s, counts(&s), node, 1);
    memcpy(again.session, "another", 8);
    assert_null(dict_session_find(dict, &again));

    /* Shapes that no sender has. */
    node[0] = (uint32_t)s.node_parent.len + 1;
    t = told(&s, none, node, 1);
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    node[0] = 1;
    t.more.string_data.len--;
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    t = told(&s, (struct dict_counts){ 0, 0, 1 }, node, 0);
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    t = told(&s, none, node, 1);
    t.more.frames = 0;
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    t = told(&s, none, node, 1);
    t.more.strings = 0;
    t.more.string_data.len = 0;
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    t.from.nodes = UINT32_MAX;
    assert_int_equal(dict_told_check(&t, &e), ERR_INPUT);
    stacks_deinit(&s);
}

/* More senders than are remembered: the last ones stay. */
static void test_many(void **state)
{
    (void)state;
    const struct dict_counts none = { 1, 0, 1 };
    struct stacks s;

    stacks_init(&s, MIB, 9);
    grow(&s);
    size_t before = atomic_load(&dict->bytes);
    for (uint8_t i = 0; i < 3 * DICT_SESSIONS_MAX; i++) {
        struct dict_told t = told(&s, none, NULL, 0);
        t.session[15] = i;
        use(&s, &t);
        assert_in_range(dict->sessions_len, 1, DICT_SESSIONS_MAX);
    }
    for (unsigned i = 0; i < 3 * DICT_SESSIONS_MAX; i++) {
        struct dict_told t = told(&s, counts(&s), NULL, 0);
        t.session[15] = (uint8_t)i;
        assert_int_equal(dict_session_find(dict, &t) != NULL, i >= 2 * DICT_SESSIONS_MAX);
    }
    dict_sessions_free(dict);
    assert_in_range(atomic_load(&dict->bytes), 1, before + 64 * KIB);
    stacks_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
