/* SPDX-License-Identifier: Apache-2.0
 *
 * Tenants in the queue of a shard, by the order of service alone; and any number of tasks.
 */
#include "tests/lib/roles/shard_bed.h"

/* n writes of a tenant, each of so many series. */
static void bed_send_of(struct bed *b, const char *tenant, size_t n, size_t series)
{
    for (size_t i = 0; i < n; i++) {
        struct test_write *t = XNEW(struct test_write);

        t->bed = b;
        t->w.deadline_mono_ns = UINT64_MAX;
        t->w.done = on_done;
        t->w.tenant = (uint64_t)tenant[0];
        t->w.write.tenant = str_c(tenant);
        t->w.write.len = series;
        shard_send(b->shard, &t->w);
    }
    b->want += n;
}

/* Before each write of the quiet tenant the other one was served no more bytes than it itself was,
 * and one write. */
static void test_tenants_take_turns_by_bytes(void **state)
{
    enum { HEAVY = 500, LIGHT = 100 };
    size_t heavy = 0, light = 0;
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 0);
    bed_send_of(&b, "flood", 60, HEAVY / 100);
    bed_send_of(&b, "quiet", 50, LIGHT / 100);
    bed_step(&b);
    assert_int_equal(b.failed, 0);
    assert_int_equal(b.store->turns_len, 110);
    for (size_t i = 0; i < b.store->turns_len; i++) {
        bool quiet = b.store->turns[i] == 'q';
        assert_true(!quiet || heavy <= light + HEAVY);
        heavy += quiet ? 0 : HEAVY;
        light += quiet ? LIGHT : 0;
    }
    assert_int_equal(light, 50 * LIGHT);
    assert_int_equal(heavy, 60 * HEAVY);
    bed_close(&b, true);
}

/* In the middle of the flood, from the thread that stages it. */
static void quiet_comes(struct store *s)
{
    if (s->turns_len == 20)
        bed_send_of(s->cookie, "quiet", 1, 1);
}

/* A write that comes while a flood is being staged waits for two of its writes, of half a MiB
 * each; and its group leaves then, with no more of the flood behind it than as much again. */
static void test_a_quiet_tenant_passes_a_flood(void **state)
{
    struct bed b;
    size_t at;

    (void)state;
    bed_open(&b, true, GIB, 0);
    b.store->on_stage = quiet_comes;
    b.store->cookie = &b;
    bed_send_of(&b, "flood", 100, MIB / 200);
    for (at = 0; b.store->batches == 0; at++)
        assert_true(loop_sim_step(b.loop));
    assert_true(b.store->turns_len <= 26);
    bed_step(&b);
    for (at = 0; b.store->turns[at] != 'q'; at++)
        assert_true(at < 110);
    assert_true(at <= 22);
    assert_int_equal(b.done, 101);
    assert_int_equal(b.failed, 0);
    bed_close(&b, true);
}

static void quiet_comes_between_parts(struct store *s)
{
    if (s->turns_len == 4)
        bed_send_of(s->cookie, "quiet", 1, 1);
}

/* A heavy write gives way between its parts; it is stored once, behind all of them. */
static void test_a_heavy_write_is_staged_in_parts(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, true, GIB, 0);
    b.store->on_stage = quiet_comes_between_parts;
    b.store->cookie = &b;
    bed_send_of(&b, "heavy", 1, 10000);
    while (b.store->batches == 0)
        assert_true(loop_sim_step(b.loop));
    assert_string_equal(b.store->turns, "1234q"); /* it left before the next part began */
    bed_step(&b);
    assert_string_equal(b.store->turns, "1234q567890h");
    assert_int_equal(b.store->staged, 2);
    assert_int_equal(b.failed, 0);
    bed_send_of(&b, "heavy", 1, 10000);
    bed_send_of(&b, "heavy", 2, 1); /* of one tenant: in the order in which they came */
    bed_step(&b);
    assert_string_equal(b.store->turns + 12, "1234567890hhh");
    bed_close(&b, true);
}

static void on_task(struct shard_task *t, struct store *s)
{
    (void)t;
    (void)s;
}

struct test_task {
    struct shard_task task;
    size_t *done;
};

static void on_task_over(struct shard_task *t)
{
    struct test_task *x = container_of(t, struct test_task, task);

    ++*x->done;
    xfree(x);
}

/* However many come at once: retention sends one for each change of its rules. */
static void test_any_number_of_tasks(void **state)
{
    enum { TASKS = 1000 };
    size_t done = 0;
    struct bed b;

    (void)state;
    bed_open(&b, true, MIB, 0);
    for (size_t i = 0; i < TASKS; i++) {
        struct test_task *x = XNEW(struct test_task);

        x->done = &done;
        x->task = (struct shard_task){ .run = on_task, .done = on_task_over, .quiet = i % 2 == 0 };
        shard_run(b.shard, &x->task);
    }
    while (done < TASKS)
        assert_true(loop_sim_step(b.loop));
    bed_close(&b, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants_take_turns_by_bytes),
        cmocka_unit_test(test_a_quiet_tenant_passes_a_flood),
        cmocka_unit_test(test_a_heavy_write_is_staged_in_parts),
        cmocka_unit_test(test_any_number_of_tasks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
