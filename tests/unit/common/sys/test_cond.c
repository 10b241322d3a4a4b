/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/sys/thread.h"

struct meeting {
    struct mutex lock;
    struct cond moved;
    int waiting, passed;
    bool open;
};

static void wait_open(void *cookie)
{
    struct meeting *m = cookie;

    mutex_lock(&m->lock);
    m->waiting++;
    cond_wake_all(&m->moved);
    while (!m->open)
        cond_wait(&m->moved, &m->lock);
    m->passed++;
    mutex_unlock(&m->lock);
}

static void test_conditions_wake_all_that_wait(void **state)
{
    struct meeting m = { .open = false };
    struct thread t[3] = { 0 };

    (void)state;
    mutex_init(&m.lock);
    cond_init(&m.moved);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_start(&t[i], "waits", wait_open, &m);
    mutex_lock(&m.lock);
    while (m.waiting < 3)
        assert_true(cond_wait_until(&m.moved, &m.lock, UINT64_MAX));
    assert_int_equal(m.passed, 0);
    m.open = true;
    cond_wake_all(&m.moved);
    mutex_unlock(&m.lock);
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        thread_join(&t[i]);
    assert_int_equal(m.passed, 3);
    assert_int_equal(thread_locks, 0);
    cond_deinit(&m.moved);
    mutex_deinit(&m.lock);
}

static void test_conditions_have_a_time_limit(void **state)
{
    struct meeting m = { .open = false };
    uint64_t until = clock_mono_ms(clock_real()) + 30;

    (void)state;
    mutex_init(&m.lock);
    cond_init(&m.moved);
    mutex_lock(&m.lock);
    while (cond_wait_until(&m.moved, &m.lock, until)) /* without reason: again */
        ;
    mutex_unlock(&m.lock);
    assert_true(clock_mono_ms(clock_real()) >= until);
    cond_deinit(&m.moved);
    mutex_deinit(&m.lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions_wake_all_that_wait),
        cmocka_unit_test(test_conditions_have_a_time_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
