/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between the signal handler and the push: the ring and the counting of stacks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/prng.h"
#include "common/obs/fold.h"
#include "common/obs/sample_ring.h"
#include "common/sys/thread.h"

/* ---- ring ------------------------------------------------------------------------------------ */

static void test_ring_keeps_order_and_drops_when_full(void **state)
{
    struct sample_ring *r = sample_ring_new(8);
    uint64_t a[3] = { 1, 2, 3 }, b[4] = { 4, 5, 6, 7 }, big[9] = { 0 }, got[8];

    (void)state;
    assert_int_equal(sample_ring_take(r, got, 8), 0);
    for (int round = 0; round < 10; round++) { /* goes round the ring at every offset */
        assert_true(sample_ring_put(r, a, 3));
        assert_false(sample_ring_put(r, b, 4)); /* 4 words left, 5 needed */
        assert_true(sample_ring_put(r, b, 3));
        assert_false(sample_ring_put(r, b, 1));
        assert_int_equal(sample_ring_take(r, got, 8), 3);
        assert_memory_equal(got, a, sizeof(a));
        assert_int_equal(sample_ring_take(r, got, 8), 3);
        assert_memory_equal(got, b, 3 * sizeof(*b));
        assert_int_equal(sample_ring_take(r, got, 8), 0);
        assert_true(sample_ring_put(r, b, 4));
        assert_int_equal(sample_ring_take(r, got, 8), 4);
    }
    assert_false(sample_ring_put(r, big, 9));
    assert_false(sample_ring_put(r, big, 0));
    assert_int_equal(sample_ring_dropped(r), 22);
    sample_ring_free(r);
    sample_ring_free(NULL);
}

enum { WRITERS = 4, RECORDS = 20000 };
struct writer {
    struct sample_ring *ring;
    struct thread thread;
    uint64_t id, put, dropped;
    _Atomic uint32_t *running;
};

/* Each word of a record can be checked by itself: writer, number, position. */
static uint64_t word_of(uint64_t id, uint64_t record, uint64_t i)
{
    return id << 56 | record << 16 | i;
}

static void write_records(void *cookie)
{
    struct writer *w = cookie;

    for (uint64_t n = 1; n <= RECORDS; n++) {
        uint64_t words[32];
        size_t len = 1 + (n * 7 + w->id) % 32;

        for (size_t i = 0; i < len; i++)
            words[i] = word_of(w->id, n, i);
        if (sample_ring_put(w->ring, words, len))
            w->put++;
        else
            w->dropped++;
        if (n % 64 == 0)
            (void)usleep(1);
    }
    atomic_fetch_sub(w->running, 1);
}

static void test_ring_between_threads(void **state)
{
    struct sample_ring *r = sample_ring_new(1024);
    _Atomic uint32_t running = WRITERS;
    struct writer w[WRITERS] = { 0 };
    uint64_t last[WRITERS] = { 0 }, taken[WRITERS] = { 0 }, words[64], put = 0, dropped = 0;
    bool end = false;
    size_t n;

    (void)state;
    for (uint64_t i = 0; i < WRITERS; i++) {
        w[i] = (struct writer){ .ring = r, .id = i, .running = &running };
        thread_start(&w[i].thread, "writer", write_records, &w[i]);
    }
    while (!end) {
        end = atomic_load(&running) == 0;
        while ((n = sample_ring_take(r, words, ARRAY_LEN(words))) > 0) {
            uint64_t id = words[0] >> 56, record = words[0] >> 16 & 0xffffffffff;

            assert_true(id < WRITERS && record > last[id]);
            assert_int_equal(n, 1 + (record * 7 + id) % 32);
            for (size_t i = 0; i < n; i++)
                assert_true(words[i] == word_of(id, record, i));
            last[id] = record;
            taken[id]++;
        }
    }
    for (size_t i = 0; i < WRITERS; i++) {
        thread_join(&w[i].thread);
        assert_int_equal(taken[i], w[i].put);
        put += w[i].put;
        dropped += w[i].dropped;
    }
    printf("%" PRIu64 " put, %" PRIu64 " dropped\n", put, dropped);
    assert_int_equal(sample_ring_dropped(r), dropped);
    assert_int_equal(put + dropped, WRITERS * RECORDS);
    sample_ring_free(r);
}

/* ---- fold ------------------------------------------------------------------------------------ */

static const char *text_of(const struct fold *f, uint32_t series, struct buf *b)
{
    buf_reset(b);
    fold_text(f, series, b);
    assert_true(buf_add_c(b, '\0'));
    return b->ptr;
}

static void test_folded_text(void **state)
{
    struct fold *f = fold_new(1000, 1000);
    uint32_t main_ = fold_name(f, STR("main")), work = fold_name(f, STR("work"));
    uint32_t deep[] = { work, work, main_ }, flat[] = { main_ };
    uint32_t a = fold_series_of(f, STR("ingester"), STR("shard-0"));
    uint32_t b = fold_series_of(f, STR("x y{}"), STR("a,b=c\xff;0123456789012345678901234567890"));
    struct buf out;

    (void)state;
    buf_init(&out, MIB);
    assert_int_equal(fold_name(f, STR("main")), main_);
    assert_int_equal(fold_series_of(f, STR("ingester"), STR("shard-0")), a);
    fold_add(f, a, deep, 3, 2);
    fold_add(f, a, flat, 1, 1);
    fold_add(f, b, deep, 3, 5);
    fold_add(f, a, deep, 3, 40);
    assert_string_equal(text_of(f, a, &out), "main;work;work 42\nmain 1\n");
    assert_string_equal(text_of(f, b, &out), "main;work;work 5\n");
    assert_int_equal(fold_series_at(f, a)->count, 43);
    assert_string_equal(fold_series_at(f, b)->role, "x_y__");
    assert_string_equal(fold_series_at(f, b)->thread, "a_b_c__012345678901234567890123");
    fold_reset(f);
    assert_string_equal(text_of(f, a, &out), "");
    assert_int_equal(fold_series_at(f, a)->count, 0);
    fold_add(f, a, flat, 1, 7);
    assert_string_equal(text_of(f, a, &out), "main 7\n");
    buf_deinit(&out);
    fold_free(f);
    fold_free(NULL);
}

static void test_totals_hold_over_every_limit(void **state)
{
    struct fold *f = fold_new(200, 50);
    uint64_t seed = 5, total = 0, shown = 0, series_total = 0;
    struct prng p;
    struct buf out;

    (void)state;
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    buf_init(&out, MIB);
    for (int i = 0; i < 20000; i++) {
        uint32_t names[4];
        char thread[32], name[32];
        size_t n = 1 + prng_below(&p, 4);
        uint64_t count = 1 + prng_below(&p, 3);

        for (size_t k = 0; k < n; k++) {
            int len = snprintf(name, sizeof(name), "f%u", (unsigned)prng_below(&p, 200));

            names[k] = fold_name(f, str_n(name, (size_t)len));
        }
        (void)snprintf(thread, sizeof(thread), "t%u", (unsigned)prng_below(&p, 100));
        fold_add(f, fold_series_of(f, STR("r"), str_c(thread)), names, n, count);
        total += count;
    }
    assert_int_equal(fold_series_len(f), FOLD_SERIES_MAX);
    assert_string_equal(fold_series_at(f, FOLD_SERIES_MAX - 1)->thread, "other");
    for (uint32_t i = 0; i < FOLD_SERIES_MAX; i++) {
        struct str rest, line;
        bool more = true;
        size_t lines = 0;

        series_total += fold_series_at(f, i)->count;
        (void)text_of(f, i, &out);
        rest = str_c(out.ptr);
        while (str_next(&rest, '\n', &more, &line)) {
            uint64_t v = 0;

            if (line.len == 0)
                continue;
            assert_true(str_u64(str_sub(line, (size_t)str_rfind(line, ' ') + 1, line.len), &v));
            shown += v;
            lines++;
        }
        assert_true(lines <= 200);
    }
    assert_int_equal(series_total, total);
    assert_int_equal(shown, total);
    assert_non_null(strstr(text_of(f, 0, &out), "[overflow]"));
    buf_deinit(&out);
    fold_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_keeps_order_and_drops_when_full),
        cmocka_unit_test(test_ring_between_threads),
        cmocka_unit_test(test_folded_text),
        cmocka_unit_test(test_totals_hold_over_every_limit),
    };

    return cmocka_run_group_tests_name("fold", tests, NULL, NULL);
}
