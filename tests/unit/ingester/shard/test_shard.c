/* SPDX-License-Identifier: Apache-2.0
 *
 * The shard's order of things, over a store that only takes notes (tests/lib/roles/shard_bed.h).
 * The engine itself runs in test_ingester.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "tests/lib/roles/shard_bed.h"

/* ---- tests ---------------------------------------------------------------------------------- */

static void test_simulated_writes_are_grouped(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, 1000, 0); /* ten writes a group */
    bed_send(&b, 95, UINT64_MAX);
    bed_step(&b);
    assert_int_equal(b.failed, 0);
    assert_int_equal(b.store->staged, 95);
    assert_int_equal(b.store->committed, 95);
    assert_int_equal(b.store->batches, 10);
    bed_close(&b, true);
}

/* Sends n writes, which go in one group; returns how long that took. */
static uint64_t bed_took_ms(struct bed *b, size_t n)
{
    uint64_t began = clock_mono_ms(&b->fake.clock);
    size_t batches = b->store->batches;

    bed_send(b, n, UINT64_MAX);
    bed_step(b);
    assert_int_equal(b->store->batches, batches + 1);
    return clock_mono_ms(&b->fake.clock) - began;
}

static void test_only_company_is_waited_for(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 2);
    assert_int_equal(bed_took_ms(&b, 1) + bed_took_ms(&b, 1), 0); /* alone, one after the other */
    assert_int_equal(bed_took_ms(&b, 3), 2);
    bed_send(&b, 1, UINT64_MAX);
    while (b.store->staged < 6)
        CHECK(loop_sim_step(b.loop));
    assert_int_equal(bed_took_ms(&b, 1), 2); /* joins the one before */
    assert_int_equal(bed_took_ms(&b, 1), 2); /* no more writes came */
    assert_int_equal(bed_took_ms(&b, 1), 0);
    bed_close(&b, true);
}

static void test_group_gathers_while_one_is_at_the_disk(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false, MIB, 0);
    lock(b.store);
    b.store->hold = true;
    unlock(b.store);
    bed_send(&b, 1, UINT64_MAX);
    lock(b.store);
    while (!b.store->committing)
        (void)pthread_cond_wait(&b.store->moved, &b.store->lock);
    unlock(b.store);
    bed_send(&b, 500, UINT64_MAX);
    lock(b.store);
    while (b.store->staged < 501)
        (void)pthread_cond_wait(&b.store->moved, &b.store->lock);
    b.store->hold = false;
    unlock(b.store);
    loop_run(b.loop);
    assert_int_equal(b.done, 501);
    assert_int_equal(b.failed, 0);
    lock(b.store);
    assert_int_equal(b.store->batches, 2); /* the first alone, then all that came meanwhile */
    unlock(b.store);
    bed_close(&b, false);
}

static void test_refused_write_leaves_the_others(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 0);
    b.store->fail_stage_every = 3;
    bed_send(&b, 30, UINT64_MAX);
    bed_step(&b);
    assert_int_equal(b.failed, 10);
    assert_int_equal(b.store->committed, 20);
    b.store->fail_stage_every = 1; /* a group in which nothing is left */
    bed_send(&b, 5, UINT64_MAX);
    bed_step(&b);
    assert_int_equal(b.failed, 15);
    bed_close(&b, true);
}

/* A group is no larger than what is written at once, whatever the options say; a request that alone
 * would be is refused, and nothing else. */
static void test_groups_fit(void **state)
{
    struct bed b;

    (void)state;
    batch_max = 1000;
    bed_open(&b, true, MIB, 0);
    bed_send(&b, 95, UINT64_MAX);
    bed_step(&b);
    assert_int_equal(b.failed, 0);
    assert_int_equal(b.store->batches, 10);
    for (size_t series = 10; series <= 11; series++) {
        struct test_write *t = XNEW(struct test_write);
        t->bed = &b;
        t->w.deadline_mono_ns = UINT64_MAX;
        t->w.done = on_done;
        t->w.write.len = series;
        bed_send(&b, 1, UINT64_MAX);
        shard_send(b.shard, &t->w);
        b.want++;
        bed_send(&b, 1, UINT64_MAX);
        bed_step(&b);
        assert_int_equal(b.failed, series == 11);
    }
    assert_int_equal(b.store->committed, 100);
    assert_int_equal(b.store->batches, 10 + 3 + 1);
    bed_close(&b, true);
    batch_max = GIB;
}

static void test_failed_commit_fails_the_whole_group(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false, MIB, 0);
    lock(b.store);
    b.store->fail_commit = true;
    unlock(b.store);
    bed_send(&b, 50, UINT64_MAX);
    loop_run(b.loop);
    assert_int_equal(b.done, 50);
    assert_int_equal(b.failed, 50);
    bed_close(&b, false);
}

static void test_late_write_is_not_begun(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 0);
    clock_fake_advance(&b.fake, 5000);
    bed_send(&b, 4, clock_mono_ns(&b.fake.clock) - 1);
    bed_send(&b, 3, clock_mono_ns(&b.fake.clock) + 1000000000);
    bed_step(&b);
    assert_int_equal(b.timed_out, 4);
    assert_int_equal(b.failed, 4);
    assert_int_equal(b.store->committed, 3);
    bed_close(&b, true);
}

/* Sealing that is always due and writes that never end: neither waits for the other. */
static void test_seal_and_groups_take_turns(void **state)
{
    struct bed b;
    size_t seals = 0, groups = 0;

    (void)state;
    bed_open(&b, true, 1000, 0);
    b.store->seals_due = 40;
    bed_send(&b, 400, UINT64_MAX);
    bed_step(&b);
    for (size_t i = 1; i < b.store->order_len; i++) {
        char before = b.store->order[i - 1], here = b.store->order[i];

        if (seals + 1 < 40 && groups + 1 < 40)
            assert_true(before != here);
        seals += here == 'S';
        groups += here == 'G';
    }
    assert_int_equal(b.store->batches, 40);
    assert_true(b.store->seals_done >= 39);
    bed_close(&b, true);
}

static void test_seal_goes_on_when_nothing_is_written(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 0);
    b.store->seals_due = 25;
    b.store->seal_fails = 2; /* each costs a second, not an endless loop */
    while (b.store->seals_done < 25)
        assert_true(loop_sim_step(b.loop));
    assert_true(clock_mono_ms(&b.fake.clock) >= 2000);
    while (shard_state(b.shard)->stats.applied < 25) /* and is published within a second */
        assert_true(loop_sim_step(b.loop));
    bed_close(&b, true);
}

/* Many writes from two threads, slow and quick commits, sealing in between: every write ends once,
 * and the store's own CHECKs hold. */
struct sender {
    struct bed *bed;
    struct test_write **writes;
    size_t n;
};

static void *send_all(void *cookie)
{
    struct sender *s = cookie;

    for (size_t i = 0; i < s->n; i++) {
        struct timespec nap = { 0, 200000 };

        shard_send(s->bed->shard, &s->writes[i]->w);
        if (i % 100 == 0)
            (void)nanosleep(&nap, NULL);
    }
    return NULL;
}

static void test_threads(void **state)
{
    enum { EACH = 3000 };
    struct sender senders[2];
    pthread_t threads[2];
    struct bed b;

    (void)state;
    bed_open(&b, false, 2000, 1);
    lock(b.store);
    b.store->seals_due = 200;
    unlock(b.store);
    b.want = 2 * EACH;
    for (size_t t = 0; t < 2; t++) {
        senders[t] = (struct sender){ &b, XNEW_ARRAY(struct test_write *, EACH), EACH };
        for (size_t i = 0; i < EACH; i++) {
            senders[t].writes[i] = XNEW(struct test_write);
            senders[t].writes[i]->bed = &b;
            senders[t].writes[i]->w.deadline_mono_ns = UINT64_MAX;
            senders[t].writes[i]->w.done = on_done;
        }
        assert_int_equal(pthread_create(&threads[t], NULL, send_all, &senders[t]), 0);
    }
    loop_run(b.loop);
    for (size_t t = 0; t < 2; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        xfree(senders[t].writes);
    }
    assert_int_equal(b.done, 2 * EACH);
    assert_int_equal(b.failed, 0);
    assert_int_equal(b.store->committed, 2 * EACH);
    bed_close(&b, false);
}

/* The cold tier hangs: the thread waits once, then seals what is fresh, takes writes, and does not
 * wait again soon. When it is back, all is sealed. */
static void test_far_rows_hold_up_nothing(void **state)
{
    struct timespec nap = { 0, 1000000 };
    size_t sealed = 0, entered;
    struct bed b;

    (void)state;
    bed_open(&b, false, 2000, 0);
    lock(b.store);
    b.store->far = true;
    b.store->seals_due = 1;
    unlock(b.store);
    for (size_t round = 0; round < 20; round++) {
        bed_send(&b, 5, UINT64_MAX);
        loop_run(b.loop);
    }
    assert_int_equal(b.failed, 0);
    lock(b.store);
    assert_int_equal(b.store->committed, 100);
    b.store->far = false;
    unlock(b.store);
    while (!sealed) {
        (void)nanosleep(&nap, NULL);
        lock(b.store);
        sealed = b.store->seals_done;
        unlock(b.store);
    }
    lock(b.store);
    entered = b.store->far_entered;
    assert_true(entered >= 1 && b.store->fresh >= entered);
    unlock(b.store);
    bed_close(&b, false);
}

struct test_task {
    struct shard_task task;
    bool settled, done;
};

static void run_task(struct shard_task *task, struct store *s)
{
    container_of(task, struct test_task, task)->settled = store_settled(s);
}

static void task_done(struct shard_task *task)
{
    container_of(task, struct test_task, task)->done = true;
}

/* Batches are on their way to other copies, for as long as it takes. Pushes and seals continue, and
 * the shard looks again after a pause instead of all the time. A read of begun rows waits. */
static void test_goes_on_while_batches_are_on_their_way(void **state)
{
    struct test_task t = { .task = { .run = run_task, .done = task_done } };
    struct bed b;
    size_t steps = 0;

    (void)state;
    bed_open(&b, true, MIB, 0);
    b.store->unsettled = true;
    b.store->seals_due = 5;
    bed_send(&b, 10, UINT64_MAX);
    bed_step(&b);
    assert_int_equal(b.failed, 0);
    uint64_t until = clock_mono_ms(&b.fake.clock) + 50;
    for (; clock_mono_ms(&b.fake.clock) < until; steps++)
        assert_true(loop_sim_step(b.loop));
    assert_int_equal(b.store->seals_done, 5);
    assert_true(steps < 500);
    assert_true(b.store->unsettled);
    shard_run(b.shard, &t.task);
    while (!t.done)
        assert_true(loop_sim_step(b.loop));
    assert_true(t.settled);
    bed_close(&b, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulated_writes_are_grouped),
        cmocka_unit_test(test_only_company_is_waited_for),
        cmocka_unit_test(test_group_gathers_while_one_is_at_the_disk),
        cmocka_unit_test(test_refused_write_leaves_the_others),
        cmocka_unit_test(test_groups_fit),
        cmocka_unit_test(test_failed_commit_fails_the_whole_group),
        cmocka_unit_test(test_late_write_is_not_begun),
        cmocka_unit_test(test_seal_and_groups_take_turns),
        cmocka_unit_test(test_seal_goes_on_when_nothing_is_written),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_far_rows_hold_up_nothing),
        cmocka_unit_test(test_goes_on_while_batches_are_on_their_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
