/* SPDX-License-Identifier: Apache-2.0
 *
 * Services that bring more names than they may: a dictionary leaves some out, and no value.
 * Random pushes with a small cap a day, over seals, days, restarts and epochs, beside a list.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/check/check.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define SERVICES 2
#define ROUNDS   12

struct pushed {
    char stack[64];
    uint64_t value;
    uint32_t slot;
};
struct run {
    struct store_bed b;
    struct prng p;
    VEC(struct pushed) all[SERVICES];
    uint64_t wid, overflow;
    uint32_t cap;
};

static const char *service(int i)
{
    return i ? "b" : "a";
}

/* Up to six frames of few names, so that beginnings are shared. */
static void random_stack(struct run *r, char *out, size_t size)
{
    size_t depth = 1 + prng_below(&r->p, 6), n = 0;

    for (size_t i = 0; i < depth; i++)
        n += (size_t)snprintf(out + n, size - n, "%sf%d", i ? ";" : "",
                              (int)prng_below(&r->p, i < 2 ? 3 : 12));
}

static void push(struct run *r)
{
    int svc = (int)prng_below(&r->p, SERVICES);
    char text[1024];
    size_t n = 0;
    uint32_t slot = store_bed_slot(&r->b);

    for (size_t k = 1 + prng_below(&r->p, 8); k > 0; k--) {
        struct pushed one = { .value = 1 + prng_below(&r->p, 1000), .slot = slot };
        bool again = false;
        random_stack(r, one.stack, sizeof(one.stack));
        vec_for (i, &r->all[svc]) /* a stack stands in a push once */
            again |=
                r->all[svc].ptr[i].slot == slot && !strcmp(r->all[svc].ptr[i].stack, one.stack);
        if (again)
            continue;
        vec_push(&r->all[svc], one);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s=%" PRIu64, n ? " " : "", one.stack,
                              one.value);
    }
    struct store_stats before, after;
    store_stats(r->b.s, &before);
    if (n)
        store_bed_push(
            &r->b, &(struct bed_push){
                       .service = service(svc), .stacks = text, .slot = slot, .wid = r->wid++ });
    store_stats(r->b.s, &after);
    r->overflow += after.overflow - before.overflow;
    clock_fake_advance(&r->b.clock, 10000);
}

/* "a;b=5" -> a;b and 5. */
static bool next_line(struct str *rest, bool *more, struct str *ret_path, uint64_t *ret_value)
{
    struct str part;

    if (!rest->len || !str_next(rest, ' ', more, &part))
        return false;
    ptrdiff_t eq = str_rfind(part, '=');
    *ret_path = str_sub(part, 0, (size_t)eq);
    assert_true(str_u64(str_sub(part, (size_t)eq + 1, part.len), ret_value));
    return true;
}

static bool below(struct str path, struct str prefix)
{
    return prefix.len == 0 || str_eq(path, prefix) ||
           (str_starts(path, prefix) && path.ptr[prefix.len] == ';');
}

static uint64_t model_below(const struct run *r, int svc, uint32_t from, uint32_t to,
                            struct str prefix)
{
    uint64_t sum = 0;

    vec_for (i, &r->all[svc]) {
        const struct pushed *x = &r->all[svc].ptr[i];
        if (x->slot >= from && x->slot < to && below(str_c(x->stack), prefix))
            sum += x->value;
    }
    return sum;
}

static uint64_t answer_below(const char *answer, struct str prefix)
{
    struct str rest = str_c(answer), path;
    bool more = true;
    uint64_t value, sum = 0;

    while (next_line(&rest, &more, &path, &value))
        if (below(path, prefix))
            sum += value;
    return sum;
}

/* The whole is exact; below any frames no more is reported than is stored; [overflow] is a leaf. */
static void check_range(struct run *r, int svc, uint32_t from, uint32_t to)
{
    static char answer[1 << 16];
    char selector[64];
    struct str rest, path;
    bool more = true;
    uint64_t value;

    (void)snprintf(selector, sizeof(selector), "{service_name=\"%s\"}", service(svc));
    (void)snprintf(answer, sizeof(answer), "%s",
                   store_bed_merge(&r->b, NULL, selector, NULL, from, to));
    assert_int_equal(answer_below(answer, STR("")), model_below(r, svc, from, to, STR("")));
    rest = str_c(answer);
    while (next_line(&rest, &more, &path, &value)) {
        const char *at = memmem(path.ptr, path.len, DICT_OVERFLOW, strlen(DICT_OVERFLOW));
        if (at) {
            assert_true(at + strlen(DICT_OVERFLOW) == path.ptr + path.len);
            assert_true(r->cap);
            path.len -= MIN(path.len, strlen(DICT_OVERFLOW) + 1);
        }
        assert_true(answer_below(answer, path) <= model_below(r, svc, from, to, path));
        if (!r->cap)
            assert_int_equal(answer_below(answer, path), model_below(r, svc, from, to, path));
    }
}

static void check_all(struct run *r)
{
    uint32_t end = store_bed_slot(&r->b) + 2;
    struct check_report report;
    struct err e;

    for (int svc = 0; svc < SERVICES; svc++) {
        uint32_t first = r->all[svc].len ? r->all[svc].ptr[0].slot : end - 2;
        first -= first % 2;
        check_range(r, svc, first, end);
        for (int i = 0; i < 3; i++) {
            uint32_t from = first + 2 * (uint32_t)prng_below(&r->p, (end - first) / 2);
            check_range(r, svc, from, from + 2 * (1 + (uint32_t)prng_below(&r->p, 400)));
        }
    }
    struct store_view *v = store_view_get(r->b.s);
    int rc = store_check(v, &report, &e);
    store_view_put(v);
    if (rc)
        fail_msg("%s", e.text);
}

static uint64_t run_one(uint64_t seed)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000 };
    struct run r = { .wid = 1 };
    struct store_stats stats;

    prng_init(&r.p, seed);
    r.cap = prng_below(&r.p, 4) ? 1 + (uint32_t)prng_below(&r.p, 60) : 0;
    o.dict_cap.service_nodes = r.cap;
    o.dict_cap.tenant_nodes = prng_below(&r.p, 2) ? r.cap : 0;
    o.hash_bits = prng_below(&r.p, 2) ? 8 : 0;
    o.epoch_nodes_max = prng_below(&r.p, 2) ? 100 : 0;
    store_bed_init(&r.b, &o);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t n = prng_below(&r.p, 12); n > 0; n--)
            push(&r);
        if (prng_below(&r.p, 3) == 0)
            clock_fake_advance(&r.b.clock, 200000);
        if (prng_below(&r.p, 4) == 0) {
            for (int i = 0; i < 24 * 30; i++) { /* the engine follows in small steps */
                clock_fake_advance(&r.b.clock, 120000);
                (void)store_seal_wait_ms(r.b.s);
                store_now(r.b.s);
            }
        }
        store_bed_seal(&r.b);
        if (prng_below(&r.p, 4) == 0)
            store_bed_reopen(&r.b, KV_MEM_KILL, 0);
        check_all(&r);
    }
    store_stats(r.b.s, &stats);
    assert_true(r.cap || r.overflow == 0);
    for (int i = 0; i < SERVICES; i++)
        vec_free(&r.all[i]);
    store_bed_deinit(&r.b);
    return r.overflow;
}

static void test_totals_are_kept(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL), moved = 0;

    (void)state;
    for (int i = 0; i < (text ? 1 : 15); i++) {
        print_message("SEED=%" PRIu64 "\n", seed + (uint64_t)i);
        moved += run_one(seed + (uint64_t)i);
    }
    assert_true(text || moved > 0);
}

/* What exactly becomes of a stack, and that tomorrow it is learnt. */
static void test_by_hand(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000,
                            .dict_cap = { .service_nodes = 3 } };
    struct bed_push p = { .wid = 1 };
    struct store_stats stats;
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &o);
    p.slot = store_bed_slot(&b);
    p.stacks = "a;b;c=1 a;b;d;e=2 a;x;y=4 z=8 a;b=16";
    store_bed_push(&b, &p);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2),
                        "[overflow]=8 a;[overflow]=4 a;b;[overflow]=2 a;b;c=1 a;b=16");
    store_stats(b.s, &stats);
    assert_int_equal(stats.overflow, 3);
    p.wid = 2;
    p.stacks = "a;b;c=1 a;b;new=1"; /* known ones stay known */
    store_bed_push(&b, &p);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2),
                        "[overflow]=8 a;[overflow]=4 a;b;[overflow]=3 a;b;c=2 a;b=16");
    for (int i = 0; i < 24 * 30; i++) {
        clock_fake_advance(&b.clock, 120000);
        store_now(b.s);
    }
    p.wid = 3;
    p.slot = store_bed_slot(&b);
    p.stacks = "a;b;d;e=2";
    store_bed_push(&b, &p);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2), "a;b;d;e=2");
    store_bed_deinit(&b);
}

/* Long names take more of the cap than short ones; a longer one in an epoch's names ends it. */
static void test_long_names(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000,
                            .dict_cap = { .service_nodes = 10 } };
    struct store_bed b;
    char name[801], stacks[900];
    struct bed_push p = { .stacks = stacks, .wid = 1 };

    (void)state;
    memset(name, 'n', 800);
    name[800] = '\0';
    store_bed_init(&b, &o);
    p.slot = store_bed_slot(&b);
    (void)snprintf(stacks, sizeof(stacks), "a;%s=1 a;b=2 a;c=4", name); /* 13 of 10 */
    store_bed_push(&b, &p);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2),
                        "a;[overflow]=1 a;b=2 a;c=4");
    name[500] = '\0'; /* 8, but only 7 are left */
    (void)snprintf(stacks, sizeof(stacks), "a;%s=8", name);
    p.wid = 2;
    store_bed_push(&b, &p);
    assert_string_equal(store_bed_merge(&b, NULL, "{}", NULL, p.slot, p.slot + 2),
                        "a;[overflow]=9 a;b=2 a;c=4");
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_totals_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
