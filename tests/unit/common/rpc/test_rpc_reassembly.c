/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/rpc/rpc_reassembly.h"
#include "tests/lib/net/rpc_bed.h"

#define CHUNK  ((uint32_t)RPC_FRAME_CHUNK)
#define SECOND UINT64_C(1000000000)
enum { MESSAGE_MAX = 4 << 20, BYTES_MAX = 8 << 20 };

static struct rpc_frame frame(uint64_t epoch, uint64_t seq)
{
    return (struct rpc_frame){
        .version = 1,
        .speaks_min = 1,
        .speaks_max = 1,
        .kind = RPC_REQUEST,
        .method = 1,
        .epoch = epoch,
        .seq = seq,
        .id = seq * 10,
        .addr = STR("mem://a"),
    };
}

/* Takes a message of one frame; what became of it. */
static enum rpc_drop take_small(struct rpc_reassembly *t, uint64_t epoch, uint64_t seq,
                                uint64_t now)
{
    struct rpc_frame f = frame(epoch, seq);
    struct rpc_msg *m;
    enum rpc_drop why = rpc_reassembly_add(t, &f, now, &m);

    assert_int_equal(why == RPC_DROP_NONE, m != NULL);
    rpc_msg_free(m);
    return why;
}

static struct rpc_frame chunk_of(uint64_t seq, struct str body, uint32_t index)
{
    struct rpc_frame f = frame(5, seq);

    f.total = f.raw = (uint32_t)body.len;
    f.offset = index * CHUNK;
    f.body = str_sub(body, f.offset, f.offset + CHUNK);
    return f;
}

static void each_number_counts_once(void **state)
{
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);

    (void)state;
    for (uint64_t seq = 1; seq < 40000; seq++) {
        assert_int_equal(take_small(t, 5, seq, 0), RPC_DROP_NONE);
        assert_int_equal(take_small(t, 5, seq, 0), RPC_DROP_DUPLICATE);
    }
    /* Another epoch is another sender. */
    assert_int_equal(take_small(t, 6, 1, 0), RPC_DROP_NONE);
    assert_int_equal(rpc_reassembly_len(t), 2);
    rpc_reassembly_free(t);
}

/* Beside a slow obvious model: all numbers ever taken. */
static void overtaking_within_the_window(void **state)
{
    enum { NUMBERS = 60000 };
    static bool taken[NUMBERS + 1];
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);
    uint64_t top = 0, seed = 42;
    struct prng p;

    (void)state;
    prng_init(&p, seed);
    for (int i = 0; i < 100000; i++) {
        uint64_t about = (uint64_t)i * NUMBERS / 100000 + prng_below(&p, 30000);
        uint64_t seq = 1 + MIN(about, (uint64_t)NUMBERS - 1);
        bool known = taken[seq] || (top > seq && top - seq >= RPC_WINDOW);
        enum rpc_drop why = take_small(t, 5, seq, 0);

        if ((why == RPC_DROP_DUPLICATE) != known)
            fail_msg("seed %ju, step %d, number %ju", (uintmax_t)seed, i, (uintmax_t)seq);
        taken[seq] = true;
        top = MAX(top, seq);
    }
    assert_int_equal(take_small(t, 5, UINT64_MAX, 0), RPC_DROP_NONE);
    assert_int_equal(take_small(t, 5, UINT64_MAX, 0), RPC_DROP_DUPLICATE);
    assert_int_equal(take_small(t, 5, 1, 0), RPC_DROP_DUPLICATE);
    rpc_reassembly_free(t);
}

/* Chunks of several messages, shuffled, each sent up to three times. */
static void chunks_in_any_order_repeated(void **state)
{
    enum { MESSAGES = 6, CHUNKS = 5, SENDS = MESSAGES * CHUNKS * 3 };
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);
    struct buf bodies[MESSAGES];
    uint32_t order[SENDS];
    int whole[MESSAGES] = { 0 };
    uint64_t seed = 11;
    struct prng p;

    (void)state;
    prng_init(&p, seed);
    for (int i = 0; i < MESSAGES; i++) {
        buf_init(&bodies[i], MESSAGE_MAX);
        rpc_bed_bytes(&bodies[i], (CHUNKS - 1) * CHUNK + 1 + prng_below(&p, CHUNK), (uint64_t)i);
    }
    for (uint32_t i = 0; i < SENDS; i++)
        order[i] = i % (MESSAGES * CHUNKS);
    for (uint32_t i = SENDS - 1; i > 0; i--) {
        uint32_t k = (uint32_t)prng_below(&p, i + 1), v = order[i];

        order[i] = order[k];
        order[k] = v;
    }
    for (uint32_t i = 0; i < SENDS; i++) {
        uint32_t which = order[i] / CHUNKS;
        struct rpc_frame f = chunk_of(1 + which, buf_str(&bodies[which]), order[i] % CHUNKS);
        struct rpc_msg *m;

        (void)rpc_reassembly_add(t, &f, 0, &m);
        if (!m)
            continue;
        assert_true(str_eq(buf_str(&m->body), buf_str(&bodies[which])));
        assert_int_equal(m->id, 10 * (1 + which));
        whole[which]++;
        rpc_msg_free(m);
    }
    assert_int_equal(rpc_reassembly_bytes(t), 0);
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(whole[i], 1);
        buf_deinit(&bodies[i]);
    }
    rpc_reassembly_free(t);
}

static void incomplete_messages_expire(void **state)
{
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);
    struct rpc_frame f;
    struct rpc_msg *m;
    struct buf body;

    (void)state;
    buf_init(&body, MESSAGE_MAX);
    rpc_bed_bytes(&body, 3 * CHUNK, 1);
    f = chunk_of(1, buf_str(&body), 0);
    f.left_ms = 2000;
    assert_int_equal(rpc_reassembly_add(t, &f, SECOND, &m), RPC_DROP_NONE);
    assert_null(m);
    assert_int_equal(rpc_reassembly_bytes(t), 3 * CHUNK);
    assert_int_equal(rpc_reassembly_tick(t, 2 * SECOND), 0);
    assert_int_equal(rpc_reassembly_tick(t, 3 * SECOND), 1);
    assert_int_equal(rpc_reassembly_bytes(t), 0);
    /* Without a deadline: a minute. */
    f.left_ms = 0;
    f.seq = 2;
    assert_int_equal(rpc_reassembly_add(t, &f, 3 * SECOND, &m), RPC_DROP_NONE);
    assert_int_equal(rpc_reassembly_tick(t, 62 * SECOND), 0);
    assert_int_equal(rpc_reassembly_tick(t, 63 * SECOND), 1);
    /* Nothing heard for a minute and nothing waited for: the sender is forgotten as well. */
    assert_int_equal(rpc_reassembly_len(t), 0);
    buf_deinit(&body);
    rpc_reassembly_free(t);
}

static void memory_is_bounded(void **state)
{
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);
    struct rpc_frame f;
    struct rpc_msg *m;
    struct buf body;
    int taken = 0;

    (void)state;
    buf_init(&body, MESSAGE_MAX + 1);
    rpc_bed_bytes(&body, MESSAGE_MAX, 1);
    for (uint64_t seq = 1; seq <= 10; seq++) {
        f = chunk_of(seq, buf_str(&body), 1);
        taken += rpc_reassembly_add(t, &f, 0, &m) == RPC_DROP_NONE;
    }
    assert_int_equal(taken, BYTES_MAX / MESSAGE_MAX);
    assert_int_equal(rpc_reassembly_bytes(t), BYTES_MAX);
    /* What the head promises decides, whole or in parts, compressed or not. */
    f = frame(5, 100);
    f.total = f.raw = MESSAGE_MAX + 1;
    f.body = str_sub(buf_str(&body), 0, CHUNK);
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_OVERSIZE);
    f = frame(5, 101);
    f.flags = RPC_FLAG_ZSTD;
    f.total = 10;
    f.raw = UINT32_MAX;
    f.body = str_sub(buf_str(&body), 0, 10);
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_OVERSIZE);
    buf_deinit(&body);
    rpc_reassembly_free(t);
}

static void chunks_that_disagree_are_refused(void **state)
{
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);
    struct rpc_frame f;
    struct rpc_msg *m;
    struct buf body;

    (void)state;
    buf_init(&body, MESSAGE_MAX);
    rpc_bed_bytes(&body, 3 * CHUNK, 1);
    f = chunk_of(1, buf_str(&body), 0);
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_NONE);
    f = chunk_of(1, str_sub(buf_str(&body), 0, 2 * CHUNK), 1);
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_HEADER);
    f = chunk_of(1, buf_str(&body), 1);
    f.id++;
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_HEADER);
    f = chunk_of(1, buf_str(&body), 0);
    assert_int_equal(rpc_reassembly_add(t, &f, 0, &m), RPC_DROP_DUPLICATE);
    buf_deinit(&body);
    rpc_reassembly_free(t);
}

static void senders_are_bounded(void **state)
{
    struct rpc_reassembly *t = rpc_reassembly_new(MESSAGE_MAX, BYTES_MAX);

    (void)state;
    for (uint64_t epoch = 1; epoch <= RPC_REASSEMBLY_MAX; epoch++)
        assert_int_equal(take_small(t, epoch, 1, epoch), RPC_DROP_NONE);
    assert_int_equal(take_small(t, 5000, 1, SECOND), RPC_DROP_SOURCES);
    /* Old ones still work, and the sender silent for longest is forgotten once it was silent long
     * enough. */
    assert_int_equal(take_small(t, 1, 2, SECOND), RPC_DROP_NONE);
    assert_int_equal(take_small(t, 5000, 1, 20 * SECOND), RPC_DROP_NONE);
    assert_int_equal(rpc_reassembly_len(t), RPC_REASSEMBLY_MAX);
    assert_int_equal(take_small(t, 1, 2, 20 * SECOND), RPC_DROP_DUPLICATE);
    rpc_reassembly_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_counts_once),
        cmocka_unit_test(overtaking_within_the_window),
        cmocka_unit_test(chunks_in_any_order_repeated),
        cmocka_unit_test(incomplete_messages_expire),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(chunks_that_disagree_are_refused),
        cmocka_unit_test(senders_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
