/* SPDX-License-Identifier: Apache-2.0
 *
 * What store.h promises, in small examples. The model test (tests/prop/test_store.c) has the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/model/slot.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/state/store_batch.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static uint32_t now; /* slot, start of a minute */

static int setup(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 30000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .seed = 42,
    };
    (void)state;
    store_bed_init(&bed, &o);
    now = store_bed_slot(&bed) / 12 * 12;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static struct store_stats stats(void)
{
    struct store_stats st;

    store_stats(bed.s, &st);
    return st;
}

static const char *all(void)
{
    return store_bed_merge(&bed, NULL, "{}", NULL, now - 100, now + 100);
}

static void test_push_and_merge(void **state)
{
    (void)state;
    assert_string_equal(all(), "");
    assert_int_equal(
        store_bed_push(&bed,
                       &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a;b=5 a;b;c=3 =2" }),
        1);
    assert_string_equal(all(), "=2 a;b;c=3 a;b=5");
    store_bed_push(&bed, &(struct bed_push){ .slot = now + 1, .wid = 2, .stacks = "a;b=1 d=7" });
    assert_string_equal(all(), "=2 a;b;c=3 a;b=6 d=7");
    /* Bounds snap outward to leaves of two slots. */
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now + 1, now + 2),
                        "=2 a;b;c=3 a;b=6 d=7");
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now + 2, now + 4), "");
    assert_string_equal(store_bed_merge(&bed, "other", "{}", NULL, now, now + 2), "");
    assert_string_equal(
        store_bed_merge(&bed, NULL, "{}", "memory:inuse_space:bytes::", now, now + 2), "");
}

static void test_nothing_before_commit(void **state)
{
    struct store_batch *b = store_batch_new(bed.s);
    struct store_result r;
    struct err e;

    (void)state;
    struct bed_push p = { .slot = now, .wid = 1, .stacks = "a=1" };
    assert_int_equal(store_bed_stage(&bed, b, &p, &r, &e), 0);
    assert_int_equal(r.stored, 1);
    assert_string_equal(all(), "");
    /* A retry joins the first one, which is still in flight. */
    struct store_batch *b2 = store_batch_new(bed.s);
    assert_int_equal(store_bed_stage(&bed, b2, &p, &r, &e), 0);
    assert_int_equal(r.stored, 0);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    assert_string_equal(all(), "a=1");
    assert_int_equal(store_commit(bed.s, b2, &e), 0);
    assert_string_equal(all(), "a=1");
}

static void test_duplicates(void **state)
{
    struct bed_push p = { .slot = now, .wid = 1, .stacks = "a=1" };

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    assert_int_equal(store_bed_push(&bed, &p), 0);
    p.tenant = "other"; /* write ids are per tenant */
    assert_int_equal(store_bed_push(&bed, &p), 1);
    p.tenant = NULL;
    clock_fake_advance(&bed.clock, 3 * 3600 * 1000);
    store_bed_seal(&bed);
    assert_int_equal(store_bed_push(&bed, &p), 0);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(store_bed_push(&bed, &p), 0);
    assert_string_equal(all(), "a=1");
    /* Behind the horizon it is a push like any other. */
    clock_fake_advance(&bed.clock, 3 * 3600 * 1000);
    store_bed_seal(&bed);
    assert_int_equal(store_bed_push(&bed, &p), 1);
    assert_string_equal(all(), "a=2");
}

/* One write id for two pushes, which only a client's own id can be. */
static int push_code(const struct bed_push *p)
{
    struct store_batch *b = store_batch_new(bed.s);
    struct store_result r;
    struct err e = { 0 };
    int rc = store_bed_stage(&bed, b, p, &r, &e);

    if (rc == ERR_CONFLICT)
        assert_non_null(strstr(e.text, "idempotency_key_reused:"));
    else if (!rc)
        assert_int_equal(r.stored + r.duplicates, 1);
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    return rc ? rc : r.stored ? 0 : -1; /* -1: a duplicate */
}

static void test_a_write_id_of_two_pushes(void **state)
{
    struct bed_push one = { .slot = now, .wid = 1, .stacks = "a=1", .print = 7 };
    struct bed_push two = { .slot = now, .wid = 1, .stacks = "b=2", .print = 8 };
    struct bed_push old = { .slot = now, .wid = 2, .stacks = "c=4" };
    struct store_result r;
    struct err e;

    (void)state;
    /* In flight, committed, sealed, after a kill. */
    struct store_batch *b = store_batch_new(bed.s);
    assert_int_equal(store_bed_stage(&bed, b, &one, &r, &e), 0);
    assert_int_equal(store_bed_stage(&bed, b, &one, &r, &e), 0);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(store_bed_stage(&bed, b, &two, &r, &e), ERR_CONFLICT);
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(push_code(&one), -1);
        assert_int_equal(push_code(&two), ERR_CONFLICT);
        if (i == 0) {
            clock_fake_advance(&bed.clock, 2 * 3600 * 1000);
            store_bed_seal(&bed);
        } else {
            store_bed_reopen(&bed, KV_MEM_KILL, 0);
        }
    }
    /* Of a program without fingerprints: the usual answers, both ways. */
    one.print = 0;
    assert_int_equal(push_code(&one), -1);
    assert_int_equal(push_code(&old), 0);
    old.print = 9;
    assert_int_equal(push_code(&old), -1);
    assert_string_equal(all(), "a=1 c=4");
}

/* A fingerprint is kept as long as its write id. */
static void test_fingerprints_expire(void **state)
{
    struct bed_push one = { .slot = now, .wid = 1, .stacks = "a=1", .print = 7 };
    struct bed_push two = { .slot = now, .wid = 1, .stacks = "b=2", .print = 8 };
    struct key from = { .len = 1, .b = { (char)KEY_WID_PRINT } }, to = from;

    (void)state;
    assert_int_equal(push_code(&one), 0);
    clock_fake_advance(&bed.clock, 6 * 3600 * 1000);
    store_bed_seal(&bed);
    key_end(&to);
    struct kv_iter *it = kv_iter_new(bed.o.kv, NULL, KV_META, key_str(&from), key_str(&to));
    assert_false(kv_iter_valid(it));
    kv_iter_free(it);
    assert_int_equal(push_code(&two), 0);
    assert_string_equal(all(), "a=1 b=2");
}

/* The clock on disk is up to a minute old, and a long stop makes engine time wait there: write ids
 * of the hour that had just begun must still be found. */
static void test_retry_after_a_long_stop(void **state)
{
    struct bed_push p = { .slot = now, .wid = 2, .stacks = "a=1" };
    struct store_clock c;

    (void)state;
    clock_fake_advance(&bed.clock, 3600000 - (BED_START_MS - SLOT_EPOCH_MS) % 3600000 - 20000);
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    clock_fake_advance(&bed.clock, 30000); /* the next hour; too soon to write the clock again */
    assert_int_equal(store_bed_push(&bed, &p), 1);
    clock_fake_jump(&bed.clock, 1800000);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_int_equal(store_bed_push(&bed, &p), 0);
    store_clock(bed.s, &c);
    assert_true(c.paused);
    assert_string_equal(all(), "a=2");
}

/* Behind the horizon, but not sealed yet: the same rows again are no new ones. */
static void test_known_while_raw(void **state)
{
    struct bed_push p = { .slot = now, .wid = 1, .stacks = "a=1" };

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    for (int i = 0; i < 100; i++) { /* no seal meanwhile; other pushes keep the clock going */
        clock_fake_advance(&bed.clock, 240000);
        store_bed_push(&bed, &(struct bed_push){ .slot = store_bed_slot(&bed),
                                                 .wid = 100 + (uint64_t)i,
                                                 .labels = "pod=b" });
    }
    assert_int_equal(store_bed_push(&bed, &p), 0);
    assert_int_equal(stats().raw_rows, 101);
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 2), "a=1");
    store_bed_seal(&bed);
    assert_int_equal(store_bed_push(&bed, &p), 1); /* sealed: a push like any other */
    assert_string_equal(store_bed_merge(&bed, NULL, "{}", NULL, now, now + 2), "a=2");
}

static void hours(int n)
{
    for (int i = 0; i < n; i++) {
        clock_fake_advance(&bed.clock, 3600000);
        (void)store_seal_wait_ms(bed.s);
        store_bed_seal(&bed);
    }
}

/* Years ahead, and no operator corrects it: write ids stay known and rows are sealed; a start in
 * between does not make it wait for longer. */
static void test_clock_years_ahead(void **state)
{
    struct bed_push p = { .slot = now, .wid = 1, .stacks = "a=1" };
    struct store_clock c;

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    clock_fake_advance(&bed.clock, 60000);
    clock_fake_jump(&bed.clock, INT64_C(10) * 365 * 86400000);
    hours(2);
    assert_int_equal(stats().raw_rows, 0);
    assert_int_equal(store_bed_push(&bed, &p), 0);
    hours(7 * 24 - 4);
    store_clock(bed.s, &c);
    assert_true(c.held && !c.paused);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    hours(1);
    store_clock(bed.s, &c);
    assert_true(c.held);
    assert_int_equal((c.engine_ms - BED_START_MS) / 86400000, 6);
    hours(6);
    store_clock(bed.s, &c);
    assert_false(c.held);
    assert_int_equal(c.engine_ms, atomic_load(&bed.clock.wall_ms));
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    hours(1);
    store_clock(bed.s, &c);
    assert_false(c.held);
}

static void test_failed_commit_ends_writing(void **state)
{
    struct store_batch *b = store_batch_new(bed.s), *b2 = store_batch_new(bed.s);
    struct store_result r;
    struct err e;
    bool more;
    struct bed_push p = { .slot = now, .wid = 2, .stacks = "x;y;z=1" };

    (void)state;
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    assert_int_equal(store_bed_stage(&bed, b2, &p, &r, &e), 0);
    bed.faults.fail_in = 1;
    bed.faults.fail_code = ERR_IO;
    assert_int_equal(store_commit(bed.s, b2, &e), ERR_IO);
    assert_true(store_read_only(bed.s));
    assert_true(store_read_only_why(bed.s)[0]);
    struct store_batch *b3 = store_batch_new(bed.s);
    assert_int_equal(store_bed_stage(&bed, b3, &p, &r, &e), ERR_UNAVAILABLE);
    assert_int_equal(store_commit(bed.s, b3, &e), ERR_UNAVAILABLE);
    assert_int_equal(store_seal(bed.s, 1, &more, &e), ERR_UNAVAILABLE);
    assert_string_equal(all(), "");
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    assert_false(store_read_only(bed.s));
    assert_int_equal(store_bed_push(&bed, &p), 1);
    assert_string_equal(all(), "x;y;z=1");
}

static void test_refused_request_leaves_nothing(void **state)
{
    static const struct {
        const char *name, *type, *labels;
        uint32_t slot;
    } rows[] = {
        { "type", "cpu", NULL, 0 },
        { "slot", NULL, NULL, KEY_SLOT_MAX },
        { "service label", NULL, "service_name=else", 0 },
    };
    struct store_batch *b = store_batch_new(bed.s);
    struct store_result r;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bed_push p = { .slot = rows[i].slot,
                              .type = rows[i].type,
                              .labels = rows[i].labels,
                              .wid = 1,
                              .stacks = "a=1" };
        if (store_bed_stage(&bed, b, &p, &r, &e) != ERR_INPUT)
            fail_msg("%s was taken", rows[i].name);
    }
    assert_int_equal(kv_batch_count(b->kb), 0);
    bed.faults.fail_gets_in = 3; /* the disk fails while numbers are looked up */
    struct bed_push p = { .slot = now, .wid = 1, .labels = "pod=a", .stacks = "a=1" };
    assert_int_equal(store_bed_stage(&bed, b, &p, &r, &e), ERR_IO);
    assert_int_equal(kv_batch_count(b->kb), 0);
    assert_int_equal(store_bed_stage(&bed, b, &p, &r, &e), 0);
    assert_int_equal(r.stored, 1);
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    assert_string_equal(all(), "a=1");
    assert_string_equal(store_bed_merge(&bed, NULL, "{pod=\"a\"}", NULL, now, now + 1), "a=1");
}

static void test_view_stays(void **state)
{
    struct store_query q = { .tenant = STR("t"),
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(now),
                             .end_ms = slot_to_ms(now + 2) };
    struct store_merge m = { 0 };
    struct stacks st;
    struct err e;

    (void)state;
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    struct store_view *v = store_view_get(bed.s);
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 2, .stacks = "a=2 new;one=4" });
    clock_fake_advance(&bed.clock, 120000);
    store_bed_seal(&bed);
    stacks_init(&st, MIB, 1);
    m.stacks = &st;
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    assert_int_equal(m.total, 1);
    assert_int_equal(m.rows, 1);
    assert_int_equal(m.series, 1);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    store_view_put(v);
    assert_string_equal(all(), "a=3 new;one=4");
}

static void test_limits_and_cancel(void **state)
{
    struct store_query q = { .tenant = STR("t"),
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(now),
                             .end_ms = slot_to_ms(now + 10) };
    struct store_merge m = { 0 };
    struct stacks st;
    struct err e;
    atomic_bool cancel = true;

    (void)state;
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    store_bed_push(&bed, &(struct bed_push){ .slot = now + 4, .wid = 2, .stacks = "a=2 b=1" });
    struct store_view *v = store_view_get(bed.s);
    stacks_init(&st, MIB, 1);
    m.stacks = &st;
    q.rows_max = 1;
    assert_int_equal(store_merge(v, &q, &m, &e), ERR_LIMIT);
    q.rows_max = 2;
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    store_merge_deinit(&m);
    q.cancel = &cancel;
    assert_int_equal(store_merge(v, &q, &m, &e), ERR_CANCELED);
    cancel = false;
    st.bytes_max = 1;
    stacks_reset(&st);
    assert_int_equal(store_merge(v, &q, &m, &e), ERR_LIMIT);
    q.profile_type = STR("cpu");
    assert_int_equal(store_merge(v, &q, &m, &e), ERR_INPUT);
    stacks_deinit(&st);
    store_view_put(v);
}

static void test_sums_that_do_not_fit(void **state)
{
    struct store_query q = { .tenant = STR("t"),
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(now),
                             .end_ms = slot_to_ms(now + 10) };
    struct store_merge m = { 0 };
    struct stacks st;
    struct err e;

    (void)state;
    for (uint64_t i = 1; i <= 3; i++)
        store_bed_push(&bed, &(struct bed_push){
                                 .slot = now, .wid = i, .stacks = "a=18446744073709551615 b=1" });
    assert_string_equal(all(), "a=18446744073709551615 b=3");
    clock_fake_advance(&bed.clock, 120000);
    store_bed_seal(&bed);
    assert_string_equal(all(), "a=18446744073709551615 b=3");
    assert_true(stats().saturated > 0);
    stacks_init(&st, MIB, 1);
    m.stacks = &st;
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    assert_true(m.saturated > 0);
    store_view_put(v);
    store_merge_deinit(&m);
    stacks_deinit(&st);
}

static void test_newer_format_is_refused(void **state)
{
    struct kv *kv = kv_mem_new(NULL);
    struct kv_batch *b = kv_batch_new();
    struct store_opts o = bed.o;
    struct store *s;
    struct key k;
    struct err e;

    (void)state;
    key_format(&k);
    kv_batch_put(b, KV_META, key_str(&k), STR("EMBR\0\11\0\10"));
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    o.kv = kv;
    assert_int_equal(store_open(&o, &s, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "newer version"));
    /* A newer program that says old readers may read is let in. */
    kv = kv_mem_new(NULL);
    kv_batch_clear(b);
    kv_batch_put(b, KV_META, key_str(&k), STR("EMBR\0\7\0\1"));
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    o.kv = kv;
    assert_int_equal(store_open(&o, &s, &e), 0);
    store_close(s);
    kv_batch_free(b);
}

/* The bed looks with each push whether it said beforehand how large it becomes (store_bed.h). */
static void test_long_labels_and_names(void **state)
{
    static char labels[48 * KIB], stacks[48 * KIB];
    char value[4000];
    size_t n = 0;

    (void)state;
    memset(value, 'v', sizeof(value));
    for (unsigned i = 0; i < 10; i++) {
        n += (size_t)snprintf(labels + n, sizeof(labels) - n, "%slabel%u=%.*s", i ? "," : "", i,
                              (int)sizeof(value), value);
        (void)snprintf(stacks + strlen(stacks), 5000, "%sm;f%u%.*s=1", i ? " " : "", i,
                       (int)sizeof(value), value);
    }
    for (unsigned i = 0; i < 3; i++) {
        labels[n - 1] = (char)('a' + i); /* one pair is new */
        assert_int_equal(store_bed_push(&bed, &(struct bed_push){ .labels = labels,
                                                                  .slot = now + i,
                                                                  .wid = i + 1,
                                                                  .stacks = stacks }),
                         1);
    }
}

/* Names as long as may be, one by one: what is written of each is not all of them. */
static void test_long_names_one_by_one(void **state)
{
    enum { NAMES = 40 };
    static char name[60000];
    size_t found = 0;

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        bed.s->kv->batch_max = 512 * KIB;
        for (unsigned i = 0; i < NAMES; i++) {
            memset(name, 'n', sizeof(name));
            (void)snprintf(name, sizeof(name), "m%u", round * NAMES + i);
            name[strlen(name)] = 'n';
            (void)snprintf(name + sizeof(name) - 3, 3, "=1");
            struct bed_push p = { .slot = now, .wid = round * NAMES + i + 1, .stacks = name };
            assert_int_equal(store_bed_push(&bed, &p), 1);
        }
        store_bed_reopen(&bed, KV_MEM_POWER, 0);
    }
    struct arena *a = arena_new(MIB);
    struct selector s = { 0 };
    struct stacks st;
    struct store_merge m = { .stacks = &st };
    struct err e;
    stacks_init(&st, 64 * MIB, 1);
    struct store_query q = { .tenant = STR("t"),
                             .selector = &s,
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(now),
                             .end_ms = slot_to_ms(now + 10) };
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_merge(v, &q, &m, &e), 0);
    struct stacks_view all_names = stacks_view(&st);
    for (size_t i = 0; i < all_names.strings; i++)
        found += all_names.string_len[i] > 50000;
    assert_int_equal(found, 2 * NAMES);
    store_merge_deinit(&m);
    store_view_put(v);
    stacks_deinit(&st);
    arena_free(a);
}

static void test_clock(void **state)
{
    struct store_clock c;
    struct err e;
    bool more;

    (void)state;
    store_bed_push(&bed, &(struct bed_push){ .slot = now, .wid = 1, .stacks = "a=1" });
    clock_fake_jump(&bed.clock, 3600 * 1000);
    assert_int_equal(store_seal(bed.s, 10, &more, &e), 0);
    store_clock(bed.s, &c);
    assert_true(c.paused);
    assert_int_equal(c.jump_ms, 3600 * 1000);
    assert_int_equal(stats().applied, 0);
    clock_fake_jump(&bed.clock, -3600 * 1000);
    assert_int_equal(store_seal(bed.s, 10, &more, &e), 0);
    store_clock(bed.s, &c);
    assert_false(c.paused);
    assert_int_equal(stats().applied, 0);
    /* Off for a day: believed after two minutes. */
    clock_fake_jump(&bed.clock, 86400 * 1000);
    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    store_bed_seal(&bed);
    assert_int_equal(stats().applied, 0);
    clock_fake_advance(&bed.clock, 121000);
    store_bed_seal(&bed);
    store_clock(bed.s, &c);
    assert_false(c.paused);
    assert_int_equal(stats().applied, 1);
    /* Back in time: engine time stays. */
    int64_t before = c.engine_ms;
    clock_fake_jump(&bed.clock, -7200 * 1000);
    store_bed_seal(&bed);
    store_clock(bed.s, &c);
    assert_false(c.paused);
    assert_int_equal(c.engine_ms, before);
}

/* Vectors go from a batch to the sums of their group when it is committed: all of it, from where
 * they stand in its bytes. */
static void test_sums_of_a_batch(void **state)
{
    struct store_opts o = {
        .dict_bytes_max = MIB, .wid_horizon_ms = 3600000, .hot_bytes_max = MIB, .hot_members_min = 1
    };
    static const char *const stacks[] = { "a=5 b=7", "a=2", "b=1 c=3" };
    struct store_result ret;
    struct err e;

    (void)teardown(state);
    store_bed_init(&bed, &o);
    now = store_bed_slot(&bed) / 12 * 12;
    struct bed_push p = { .slot = now - 4, .stacks = "a=1", .wid = 1 };
    assert_int_equal(store_bed_push(&bed, &p), 1); /* the leaf before: there is no sum yet */
    assert_int_equal(stats().hot_bytes, 0);
    struct store_batch *b = store_batch_new(bed.s);
    p.slot = now - 2;
    for (size_t i = 0; i < ARRAY_LEN(stacks); i++) {
        p.wid++;
        p.stacks = stacks[i];
        assert_int_equal(store_bed_stage(&bed, b, &p, &ret, &e), 0);
    }
    assert_int_equal(store_commit(bed.s, b, &e), 0);
    assert_true(stats().hot_bytes > 0); /* none of them was refused */
    assert_string_equal(all(), "a=8 b=8 c=3");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_push_and_merge),
        T(test_nothing_before_commit),
        T(test_duplicates),
        T(test_a_write_id_of_two_pushes),
        T(test_fingerprints_expire),
        T(test_retry_after_a_long_stop),
        T(test_known_while_raw),
        T(test_clock_years_ahead),
        T(test_failed_commit_ends_writing),
        T(test_refused_request_leaves_nothing),
        T(test_view_stays),
        T(test_limits_and_cancel),
        T(test_sums_that_do_not_fit),
        T(test_newer_format_is_refused),
        T(test_long_labels_and_names),
        T(test_long_names_one_by_one),
        T(test_clock),
        T(test_sums_of_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
