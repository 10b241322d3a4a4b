/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose bytes: the rows add up to the files, and each owner has what it wrote.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/prng.h"
#include "common/store/check/space.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static char *dir;
static struct err e;

static int setup(void **state)
{
    (void)state;
    bed = (struct store_bed){ .o = { .dict_bytes_max = 64 * MIB,
                                     .seal_delay_ms = 60000,
                                     .wid_horizon_ms = 4 * 3600 * 1000 } };
    clock_fake_init(&bed.clock, BED_START_MS);
    bed.o.clock = &bed.clock.clock;
    dir = kv_dir_new();
    bed.o.kv = kv_dir_open(dir);
    assert_int_equal(store_open(&bed.o, &bed.s, &e), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    kv_dir_remove(dir);
    return 0;
}

/* Pushes of new stacks: `rounds` minutes of them. */
static void fill(const char *tenant, const char *service, int rounds, uint64_t *wid)
{
    char stacks[8192], labels[64];
    struct prng p;

    prng_init(&p, *wid + 77);
    for (int i = 0; i < rounds; i++) {
        size_t n = 0;
        for (int k = 0; k < 100; k++)
            n += (size_t)snprintf(stacks + n, sizeof(stacks) - n, "%sa%llx;b%llx=%d", k ? " " : "",
                                  (unsigned long long)prng_u64(&p),
                                  (unsigned long long)prng_u64(&p), k + 1);
        (void)snprintf(labels, sizeof(labels), "pod=p%d", i % 7);
        struct bed_push push = { .tenant = tenant,
                                 .service = service,
                                 .labels = labels,
                                 .stacks = stacks,
                                 .slot = store_bed_slot(&bed),
                                 .wid = ++*wid };
        assert_int_equal(store_bed_push(&bed, &push), 1);
        clock_fake_advance(&bed.clock, 20000);
    }
    store_bed_seal(&bed);
}

static uint64_t bytes_of(const struct space *s, const char *tenant, const char *service,
                         enum space_kind kind)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->len; i++)
        if (str_eq(s->rows[i].tenant, str_c(tenant)) &&
            str_eq(s->rows[i].service, str_c(service)) &&
            (kind == SPACE_KINDS_LEN || s->rows[i].kind == kind))
            n += s->rows[i].bytes;
    return n;
}

static void report_by(bool tenants, struct arena *a, struct space *ret)
{
    struct space_opts o = { .owners_max = 1000, .tenants = tenants };
    struct store_view *v = store_view_get(bed.s);
    struct kv_disk disk;
    uint64_t sum = 0;

    assert_int_equal(store_space(v, &o, a, ret, &e), 0);
    assert_int_equal(kv_disk(bed.s->kv, &disk, &e), 0);
    store_view_put(v);
    for (size_t i = 0; i < ret->len; i++) {
        sum += ret->rows[i].bytes;
        assert_true(ret->rows[i].bytes > 0);
    }
    assert_int_equal(sum, ret->tables_bytes);
    assert_int_equal(ret->tables_bytes + ret->obsolete_bytes, disk.tables_bytes);
    assert_int_equal(ret->log_bytes, disk.log_bytes);
    assert_int_equal(ret->other_bytes, disk.other_bytes);
}

static void report(struct arena *a, struct space *ret)
{
    report_by(false, a, ret);
}

static uint64_t bytes_of_tenant(const struct space *s, const char *tenant)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->len; i++)
        n += str_eq(s->rows[i].tenant, str_c(tenant)) ? s->rows[i].bytes : 0;
    return n;
}

/* By tenant alone there is a row for each, of what its services have. */
static void test_by_tenant(void **state)
{
    struct arena *a = arena_new(MIB);
    uint64_t wid = 0;
    struct space s, t;

    (void)state;
    fill("t1", "one", 40, &wid);
    fill("t1", "two", 200, &wid);
    fill("t2", "one", 80, &wid);
    assert_int_equal(kv_flush(bed.s->kv, &e), 0);
    report(a, &s);
    report_by(true, a, &t);
    assert_in_range(t.len, 2, 3); /* and what is no tenant's, if that is a block at all */
    assert_true(bytes_of_tenant(&t, "t1") && bytes_of_tenant(&t, "t2"));
    for (size_t i = 0; i < t.len; i++) {
        uint64_t want;
        assert_int_equal(t.rows[i].service.len, 0);
        assert_int_equal(t.rows[i].level, SPACE_NO_LEVEL);
        char name[8] = { 0 };
        memcpy(name, t.rows[i].tenant.ptr ? t.rows[i].tenant.ptr : "", t.rows[i].tenant.len);
        want = bytes_of_tenant(&s, name);
        if (name[0])
            assert_in_range(t.rows[i].bytes, want - want / 10, want + want / 10);
    }
    arena_free(a);
}

static void test_adds_up(void **state)
{
    struct arena *a = arena_new(MIB);
    uint64_t wid = 0;
    struct space s;

    (void)state;
    report(a, &s); /* empty */
    fill("t1", "one", 40, &wid);
    fill("t1", "two", 400, &wid);
    fill("t2", "one", 80, &wid);
    report(a, &s); /* in memtables */
    assert_int_equal(kv_flush(bed.s->kv, &e), 0);
    report(a, &s);
    assert_true(s.tables_bytes > 500000);
    uint64_t small = bytes_of(&s, "t1", "one", SPACE_KINDS_LEN);
    uint64_t large = bytes_of(&s, "t1", "two", SPACE_KINDS_LEN);
    uint64_t other = bytes_of(&s, "t2", "one", SPACE_KINDS_LEN);
    assert_true(small > 0 && large > 4 * small && other > small && other < large);
    assert_true(bytes_of(&s, "t1", "two", SPACE_DICTIONARY) > large / 2); /* stacks all new */
    assert_true(bytes_of(&s, "t1", "two", SPACE_MEMBERS) > 0);
    /* What has no owner is little: nothing was deleted but raw rows that were sealed. */
    assert_true(bytes_of(&s, "", "", SPACE_KINDS_LEN) < s.tables_bytes / 3);
    arena_free(a);
}

static void test_limits(void **state)
{
    atomic_bool cancel = true;
    struct space_opts few = { .owners_max = 2 }, gone = { .owners_max = 1000, .cancel = &cancel };
    struct arena *a = arena_new(MIB);
    struct store_view *v;
    uint64_t wid = 0;
    struct space s;

    (void)state;
    fill("t1", "one", 5, &wid);
    v = store_view_get(bed.s);
    assert_int_equal(store_space(v, &few, a, &s, &e), ERR_LIMIT);
    assert_int_equal(store_space(v, &gone, a, &s, &e), ERR_CANCELED);
    store_view_put(v);
    arena_free(a);
}

#define BED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { BED(test_adds_up), BED(test_by_tenant), BED(test_limits) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
