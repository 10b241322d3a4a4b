/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles on demand: captures beside each other, and pprof, read back by the decoder
 * that all pushes go through. Sampling is statistics: sums are compared with what was
 * sampled, not with the clock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/role/admin/debug.h"
#include "tests/lib/roles/dist_push.h"

/* ---- pprof ---------------------------------------------------------------------------------- */

static void decode_rows(struct str body, struct dist_push *d, struct buf *rows)
{
    const struct ingest_raw raw = { .name = STR("app"),
                                    .format = STR("pprof"),
                                    .from = STR("1789999000"),
                                    .until = STR("1789999010") };
    struct limits l = limits_default();
    struct err e = { 0 };

    if (dist_decode_raw(d, &raw, body, &l, &e))
        fail_msg("%s", e.text);
    dist_rows(&d->push, rows);
    (void)buf_add_c(rows, '\0');
}

static void test_cpu(void **state)
{
    const struct selfprof_push parts[] = {
        { "ingester", "shard-0", 1000, 3000, 8, STR("main;a;b 5\nmain;a 2\nmain;a;b 1\n") },
        { "shared", "loop", 1000, 3000, 4, STR("main;a;b 4\n") },
        { "shared", "idle", 1000, 3000, 0, STR("") },
    };
    struct dist_push d;
    struct buf out, rows;
    struct err e = { 0 };

    (void)state;
    buf_init(&out, MIB);
    if (debug_cpu_pprof(parts, ARRAY_LEN(parts), 100, &out, &e))
        fail_msg("%s", e.text);
    decode_rows(buf_str(&out), &d, &rows);
    assert_string_equal(rows.ptr, "cpu\t{role=ingester,thread=shard-0}\tmain;a\t20000000\n"
                                  "cpu\t{role=ingester,thread=shard-0}\tmain;a;b\t60000000\n"
                                  "cpu\t{role=shared,thread=loop}\tmain;a;b\t40000000\n"
                                  "samples\t{role=ingester,thread=shard-0}\tmain;a\t2\n"
                                  "samples\t{role=ingester,thread=shard-0}\tmain;a;b\t6\n"
                                  "samples\t{role=shared,thread=loop}\tmain;a;b\t4\n");
    buf_deinit(&rows);
    dist_push_free(&d);
    buf_reset(&out);
    assert_int_equal(debug_cpu_pprof(NULL, 0, 100, &out, &e), 0); /* nothing is a profile, too */
    assert_true(out.len > 0);
    buf_deinit(&out);
}

static void test_heap(void **state)
{
    struct dist_push d;
    struct buf dump, out, rows;
    struct err e = { 0 };
    uintptr_t at = (uintptr_t)&debug_heap_pprof + 8;

    (void)state;
    buf_init(&dump, 64 * KIB);
    buf_init(&out, MIB);
    buf_addf(&dump,
             "heap_v2/1024\n  t*: 3: 5000 [0: 0]\n  t0: 3: 5000 [0: 0]\n"
             "@ 0x%" PRIxPTR " 0x1\n  t*: 2: 4000 [0: 0]\n  t0: 2: 4000 [0: 0]\n"
             "@ 0x%" PRIxPTR " 0x1\n  t*: 1: 100000 [9: 9]\n"
             "@ 0x2\n  t*: 0: 0 [7: 70]\n\nMAPPED_LIBRARIES:\n@ 0x3\n  t*: 9: 9 [0: 0]\n",
             at, at);
    if (debug_heap_pprof(buf_str(&dump), 1000, &out, &e))
        fail_msg("%s", e.text);
    decode_rows(buf_str(&out), &d, &rows);
    const struct push_series *space = dist_series(&d.push, "inuse_space");
    const struct push_series *objects = dist_series(&d.push, "inuse_objects");
    assert_non_null(space);
    assert_non_null(objects);
    /* What was noted stands for more: 1 in 1024 bytes of objects of 2000; all of 100,000. */
    uint64_t want = (uint64_t)(4000 / (1 - exp(-2000.0 / 1024))) + 100000;
    assert_true(space->total >= want - 1 && space->total <= want + 1);
    assert_int_equal(objects->total, (uint64_t)(2 / (1 - exp(-2000.0 / 1024))) + 1);
    assert_non_null(strstr(rows.ptr, "debug_heap_pprof\t"));
    assert_non_null(strstr(rows.ptr, "[unknown];"));
    buf_deinit(&rows);
    dist_push_free(&d);
    static const char *const bad[] = { "", "heap_v3/1\n", "heap_v2/x\n",
                                       "heap_v2/1\n@ 0x1\n  t*: a: 1 [0: 0]\n" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(debug_heap_pprof(str_c(bad[i]), 1, &out, &e), ERR_INPUT);
    buf_deinit(&dump);
    buf_deinit(&out);
}

/* ---- captures ------------------------------------------------------------------------------- */

struct got {
    atomic_int done;
    uint64_t samples, lines;
    bool sound;
};

static void on_captured(void *cookie, const struct selfprof_push *parts, size_t n)
{
    struct got *g = cookie;
    struct buf out;
    struct err e;

    g->sound = true;
    for (size_t i = 0; i < n; i++) {
        struct str rest = parts[i].folded, line;
        bool more = true;
        uint64_t sum = 0, v;
        while (str_next(&rest, '\n', &more, &line)) {
            if (!line.len)
                continue;
            g->sound =
                g->sound && str_u64(str_sub(line, (size_t)str_rfind(line, ' ') + 1, line.len), &v);
            sum += v;
            g->lines++;
        }
        g->sound = g->sound && sum == parts[i].samples && parts[i].from_ms <= parts[i].until_ms;
        g->samples += sum;
    }
    buf_init(&out, 64 * MIB);
    g->sound = g->sound && debug_cpu_pprof(parts, n, 1000, &out, &e) == 0;
    buf_deinit(&out);
    atomic_fetch_add(&g->done, 1);
}

static void on_push(void *cookie, const struct selfprof_push *p)
{
    *(uint64_t *)cookie += p->samples;
}

static void burn(uint64_t ms)
{
    struct timespec t;
    uint64_t end = 0, now;

    do {
        CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
        now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
        end = end ? end : now + ms;
    } while (now < end);
}

static void test_captures(void **state)
{
    struct got got[SELFPROF_CAPTURES_MAX + 1] = { 0 };
    uint64_t pushed = 0;
    struct selfprof *p;
    struct err e = { 0 };
    const struct selfprof_opts o = { .env = env_real(),
                                     .hz = 1000,
                                     .service = "test",
                                     .per_thread = true,
                                     .on_push = on_push,
                                     .cookie = &pushed };

    (void)state;
    assert_int_equal(selfprof_start(&o, &p, &e), 0);
    assert_int_equal(selfprof_hz(p), 1000);
    /* The first is short, the others end with the profiler. */
    for (size_t i = 0; i < SELFPROF_CAPTURES_MAX; i++)
        assert_int_equal(selfprof_capture(p, i ? 600000 : 1, on_captured, &got[i], &e), 0);
    assert_int_equal(selfprof_capture(p, 1, on_captured, &got[SELFPROF_CAPTURES_MAX], &e),
                     ERR_BUSY);
    while (!atomic_load(&got[0].done))
        burn(20);
    burn(300);
    int rc;
    while ((rc = selfprof_capture(p, 1, on_captured, &got[SELFPROF_CAPTURES_MAX], &e)) == ERR_BUSY)
        (void)usleep(1000); /* its place is free soon after */
    assert_int_equal(rc, 0);
    selfprof_stop(p);
    for (size_t i = 0; i <= SELFPROF_CAPTURES_MAX; i++) {
        assert_int_equal(atomic_load(&got[i].done), 1);
        assert_true(got[i].sound);
    }
    assert_true(got[1].samples > 10 && got[1].lines > 0);
    assert_true(got[1].samples <= pushed); /* the windows have all of it, too */
    assert_true(got[0].samples <= got[1].samples);
    for (size_t i = 2; i < SELFPROF_CAPTURES_MAX; i++)
        assert_true(got[i].samples > 0 && got[i].samples <= got[1].samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_captures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
