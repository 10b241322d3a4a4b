/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/role/core/memory.h"
#include "common/sys/clock.h"

static _Atomic uint64_t resident;
static unsigned told, tells;

static uint64_t get_resident(void *cookie)
{
    (void)cookie;
    return atomic_load(&resident);
}

static void on_shrink(void *cookie, unsigned percent)
{
    (void)cookie;
    told = percent;
    tells++;
}

static uint64_t holds(void *cookie)
{
    return *(uint64_t *)cookie;
}

static struct memory *make(struct metrics *m)
{
    told = tells = 0;
    atomic_store(&resident, 0);
    return memory_new(
        &(struct memory_opts){ .limit = 100 * MIB, .metrics = m, .resident = get_resident });
}

static enum memory_state at(struct memory *m, uint64_t percent)
{
    atomic_store(&resident, percent * MIB + 1);
    memory_look(m);
    return memory_state(m);
}

static void test_shares_fit(void **state)
{
    static const uint64_t limits[] = { 512 * MIB, GIB, 64 * GIB };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        uint64_t sum = 0;

        for (int p = 0; p < MEMORY_PARTS_LEN; p++)
            sum += memory_share(limits[i], (enum memory_part)p);
        assert_true(sum <= limits[i] / 100 * 88);
    }
    assert_true(memory_share(64 * MIB, MEMORY_CACHE) >= 8 * MIB);
}

static void test_states(void **state)
{
    struct metrics *metrics = metrics_new();
    struct memory *m = make(metrics);

    (void)state;
    memory_on_shrink(m, on_shrink, NULL);
    assert_int_equal(at(m, 50), MEMORY_CALM);
    assert_int_equal(at(m, 74), MEMORY_CALM);
    assert_int_equal(tells, 0);
    assert_int_equal(at(m, 77), MEMORY_SHRUNK);
    assert_int_equal(told, 50);
    assert_int_equal(at(m, 70), MEMORY_SHRUNK);
    assert_int_equal(at(m, 85), MEMORY_SHRUNK);
    assert_false(memory_refuses(m));
    assert_int_equal(at(m, 86), MEMORY_REFUSING);
    assert_int_equal(told, 10);
    assert_true(memory_refuses(m));
    assert_int_equal(at(m, 79), MEMORY_REFUSING);
    assert_int_equal(at(m, 76), MEMORY_SHRUNK);
    assert_int_equal(tells, 3);
    assert_int_equal(at(m, 64), MEMORY_CALM);
    assert_int_equal(told, 100);
    assert_int_equal(at(m, 99), MEMORY_REFUSING); /* in one step */
    assert_int_equal(at(m, 1), MEMORY_CALM);
    assert_int_equal(tells, 6);
    assert_int_equal(memory_state(NULL), MEMORY_CALM);
    memory_free(m);
    metrics_free(metrics);
}

static void test_account(void **state)
{
    struct metrics *metrics = metrics_new();
    struct memory *m = make(metrics);
    uint64_t one = 3000, two = 4000;
    struct budget b;
    struct buf page;

    (void)state;
    buf_init(&page, MIB);
    budget_init(&b, 10000);
    assert_true(budget_reserve(&b, 500));
    memory_watch(m, MEMORY_DICTS, holds, &one);
    memory_watch(m, MEMORY_DICTS, holds, &two);
    memory_watch_budget(m, MEMORY_WRITES, &b);
    metrics_render(metrics, &page);
    assert_true(buf_add_c(&page, '\0'));
    assert_non_null(strstr(page.ptr, "embertree_memory_bytes{part=\"dictionaries\"} 7000\n"));
    buf_reset(&page);
    memory_forget(m, &two);
    memory_forget(m, &b);
    struct json j;
    json_init(&j, &page);
    memory_json(m, &j);
    assert_true(buf_add_c(&page, '\0'));
    char want[128];
    (void)snprintf(want, sizeof(want), "\"dictionaries\":{\"bytes\":3000,\"shareBytes\":%llu}",
                   (unsigned long long)memory_share(100 * MIB, MEMORY_DICTS));
    assert_non_null(strstr(page.ptr, want));
    assert_true(strstr(page.ptr, "\"writes\":{\"bytes\":0"));
    buf_deinit(&page);
    memory_free(m);
    metrics_free(metrics);
}

/* Looks until the state is `want`; many times the interval of the thread, and then it fails. */
static void comes_to(struct memory *m, bool want)
{
    for (int i = 0; i < 30000; i++) {
        if (memory_refuses(m) == want)
            return;
        usleep(1000);
    }
    fail_msg("after 30,000 looks it still %s work", want ? "takes" : "refuses");
}

/* With the thread: a state follows what is resident, and stopping it is clean. */
static void test_thread(void **state)
{
    struct metrics *metrics = metrics_new();
    struct memory *m = make(metrics);

    (void)state;
    memory_start(m);
    atomic_store(&resident, 95 * MIB);
    comes_to(m, true);
    atomic_store(&resident, 10 * MIB);
    comes_to(m, false);
    memory_stop(m);
    memory_stop(m);
    memory_free(m);
    metrics_free(metrics);
}

/* Without a fake one it asks the system. */
static void test_own_memory(void **state)
{
    struct metrics *metrics = metrics_new();
    struct memory_opts o = { .limit = 64 * MIB, .metrics = metrics };
    struct memory *m = memory_new(&o);
    char *p = xmalloc(80 * MIB);

    (void)state;
    memory_look(m);
    memset(p, 1, 80 * MIB);
    __asm__ volatile("" ::"r"(p) : "memory");
    memory_look(m);
    assert_true(memory_refuses(m));
    xfree(p);
    memory_free(m);
    metrics_free(metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_fit), cmocka_unit_test(test_states),
        cmocka_unit_test(test_account),    cmocka_unit_test(test_thread),
        cmocka_unit_test(test_own_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
