/* SPDX-License-Identifier: Apache-2.0
 *
 * Purging where there are very many exemplars: by steps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/store/exm.h"
#include "common/store/kv_impl.h"
#include "common/store/store_impl.h"
#include "common/store/tomb.h"
#include "tests/lib/tomb_bed.h"

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

/* However many exemplars six hours have of a service, a step takes as many as it may, and looks at
 * no more; what is left comes in the next ones. */
static void test_by_steps(void **state)
{
    const struct store_opts o = {
        .dict_bytes_max = 64 * MIB,
        .seal_delay_ms = 60000,
        .wid_horizon_ms = 4 * 3600 * 1000,
        .exm = { .retention_ms = 86400000, .rows_per_minute = 1000, .bytes_per_minute = MIB },
    };
    bool more = true;

    (void)state;
    store_bed_init(&bed, &o);
    uint32_t t = store_bed_slot(&bed) / EXM_BUCKET_SLOTS * EXM_BUCKET_SLOTS;
    push("pod=a", t - EXM_BUCKET_SLOTS, 1);
    push("pod=b", t, 2);
    push("pod=a", t + 12, 3);
    push("pod=b", t + 24, 4);
    push("pod=a", t + 36, 5);
    assert_int_equal(count_rows(), 1000);
    (void)tomb_bed_delete(&bed, NULL, "{pod=\"a\"}", 0, 0, NULL);
    bed.s->kv->batch_max = 8 * KIB; /* as a replicated log has one, only larger */
    for (size_t left = count_rows(); more; left = count_rows()) {
        if (store_purge(bed.s, 10, &more, &e))
            fail_msg("%s", e.text);
        assert_in_range(left - count_rows(), 0, 10);
    }
    bed.s->kv->batch_max = 0;
    assert_int_equal(count_rows(), 400);
    tomb_bed_check(&bed);
    store_bed_deinit(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_by_steps) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
