/* SPDX-License-Identifier: Apache-2.0
 *
 * Purging where there is very much of something: by steps, each of a batch that a log takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/store/exemplar/exm.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/mask/tomb.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/tomb_bed.h"

static struct store_bed bed;
static struct err e;

static size_t count_rows(void)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_EXM, STR_NULL, STR_NULL);
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    return n;
}

/* A hundred spans, of two rows each. */
static void push(const char *labels, uint32_t slot, uint64_t wid)
{
    struct buf text;

    buf_init(&text, 64 * KIB);
    for (uint64_t i = 1; i <= 100; i++)
        buf_addf(&text, "%s1:%016" PRIx64 ":m;x=1", i > 1 ? "|" : "", wid << 32 | i);
    assert_true(buf_add(&text, "", 1));
    store_bed_push(&bed, &(struct bed_push){ .labels = labels,
                                             .stacks = "m;x=1000",
                                             .slot = slot,
                                             .wid = wid,
                                             .exemplars = text.ptr });
    buf_deinit(&text);
}

static void open_bed(void)
{
    const struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 30000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .exm = { .retention_ms = 86400000, .rows_per_minute = 1000, .bytes_per_minute = MIB },
    };

    store_bed_init(&bed, &o);
}

static bool step(void)
{
    bool more;

    bed.s->kv->batch_max = 8 * KIB; /* as a replicated log has one, only larger */
    if (store_purge(bed.s, 10, &more, &e))
        fail_msg("%s", e.text);
    bed.s->kv->batch_max = 0;
    return more;
}

/* However many exemplars six hours have of a service, a step takes as many as it may, and looks at
 * no more; the rest comes in the next steps. */
static void test_exemplars(void **state)
{
    (void)state;
    open_bed();
    uint32_t t = store_bed_slot(&bed) / EXM_BUCKET_SLOTS * EXM_BUCKET_SLOTS;
    push("pod=a", t - EXM_BUCKET_SLOTS, 1);
    push("pod=b", t, 2);
    push("pod=a", t + 12, 3);
    push("pod=b", t + 24, 4);
    push("pod=a", t + 36, 5);
    assert_int_equal(count_rows(), 1000);
    (void)tomb_bed_delete(&bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    bool more = true;
    for (size_t left = count_rows(); more; left = count_rows()) {
        more = step();
        assert_in_range(left - count_rows(), 0, 10);
    }
    assert_int_equal(count_rows(), 400);
    tomb_bed_check(&bed);
    store_bed_deinit(&bed);
}

/* Edges of a range in very many services, and then their tables. */
static void test_services(void **state)
{
    char name[16];

    (void)state;
    open_bed();
    uint32_t t = store_bed_slot(&bed) / 720 * 720 - 720;
    for (uint64_t i = 0; i < 80; i++) {
        (void)snprintf(name, sizeof(name), "s%" PRIu64, i);
        for (uint32_t k = 0; k < 3; k++)
            store_bed_push(&bed, &(struct bed_push){ .service = name,
                                                     .stacks = "m;x=1",
                                                     .slot = t + k * 60,
                                                     .wid = 3 * i + k });
    }
    clock_fake_advance(&bed.clock, INT64_C(600000));
    store_bed_seal(&bed);
    assert_string_equal(store_bed_merge(&bed, NULL, "{service_name=\"s7\"}", NULL, t, t + 720),
                        "m;x=3");
    (void)tomb_bed_delete(&bed, NULL, NULL, t + 60, t + 72, NULL);
    while (step())
        ;
    tomb_bed_check(&bed);
    assert_string_equal(store_bed_merge(&bed, NULL, "{service_name=\"s7\"}", NULL, t, t + 720),
                        "m;x=2");
    (void)tomb_bed_delete(&bed, NULL, "{service_name=~\"s.*\"}", 0, 0, NULL);
    while (step())
        ;
    tomb_bed_check(&bed);
    assert_string_equal(store_bed_merge(&bed, NULL, "{service_name=\"s7\"}", NULL, t, t + 720), "");
    store_bed_deinit(&bed);
}

/* The row of a group with other pods' stacks, too, may be larger than a batch: then roll-ups begin
 * again, and the delete comes to its end. */
static void test_large_row(void **state)
{
    struct tomb_stats st;
    struct buf text;

    (void)state;
    open_bed();
    uint32_t t = store_bed_slot(&bed) / 720 * 720 - 720;
    buf_init(&text, MIB);
    for (uint32_t i = 0; i < 4000; i++)
        buf_addf(&text, "%sm;f%04" PRIu32 "=%" PRIu32, i ? " " : "", i, i * 7919 % 60000 + 1);
    assert_true(buf_add(&text, "", 1));
    store_bed_push(
        &bed, &(struct bed_push){ .labels = "pod=a", .stacks = "m;f0001=7", .slot = t, .wid = 1 });
    store_bed_push(
        &bed, &(struct bed_push){ .labels = "pod=b", .stacks = text.ptr, .slot = t, .wid = 2 });
    buf_deinit(&text);
    clock_fake_advance(&bed.clock, INT64_C(600000));
    store_bed_seal(&bed);
    (void)tomb_bed_delete(&bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    while (step())
        ;
    store_delete_stats(bed.s, &st);
    assert_int_equal(st.rollups_restarted, 1);
    assert_int_equal(st.pending, 0);
    tomb_bed_check(&bed);
    assert_string_equal(store_bed_merge(&bed, NULL, "{pod=\"a\"}", NULL, t, t + 720), "");
    store_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_exemplars),
                                        cmocka_unit_test(test_services),
                                        cmocka_unit_test(test_large_row) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
