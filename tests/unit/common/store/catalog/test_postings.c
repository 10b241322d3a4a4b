/* SPDX-License-Identifier: Apache-2.0
 *
 * Postings: every ordinal that was added is there, at any time, while batches lag behind, over
 * borders of chunks; and rows stay few.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/store/catalog/postings.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv_mem.h"

#define PAIRS 5

static struct kv *kv;
static struct err e;

static int setup(void **state)
{
    (void)state;
    kv = kv_mem_new(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kv_close(kv);
    return 0;
}

static size_t rows_of(uint32_t pair)
{
    struct key from, to;
    size_t n = 0;

    key_post_pair(&from, 1, pair);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

static void want(uint32_t pair, const roaring_bitmap_t *set)
{
    roaring_bitmap_t *got = roaring_bitmap_create();

    if (postings_read(kv, NULL, 1, pair, got, &e))
        fail_msg("%s", e.text);
    assert_true(roaring_bitmap_equals(got, set));
    roaring_bitmap_free(got);
}

static void test_adding(void **state)
{
    struct prng p;
    uint64_t seed = (uint64_t)time(NULL);
    roaring_bitmap_t *committed[PAIRS];
    VEC(struct kv_batch *) flying = { 0 };
    VEC(uint32_t) added = { 0 }; /* pair, ordinal, pair, ordinal ... of each batch, 0xffffffff */

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < PAIRS; i++)
        committed[i] = roaring_bitmap_create();
    uint32_t ordinal = 60000; /* passes the border of a chunk */
    for (int batch = 0; batch < 1500; batch++) {
        struct kv_batch *b = kv_batch_new();
        for (uint64_t n = prng_below(&p, 20); n > 0; n--, ordinal++) {
            uint32_t pair = (uint32_t)prng_below(&p, PAIRS);
            postings_add(kv, 1, pair, ordinal, b);
            postings_add(kv, 2, pair, ordinal, b); /* another tenant's do not mix in */
            vec_push(&added, pair);
            vec_push(&added, ordinal);
        }
        vec_push(&added, UINT32_MAX);
        vec_push(&flying, b);
        while (flying.len > prng_below(&p, 6)) { /* up to five batches in flight */
            assert_int_equal(kv_write(kv, flying.ptr[0], true, &e), 0);
            kv_batch_free(flying.ptr[0]);
            flying.len--;
            memmove(flying.ptr, flying.ptr + 1, flying.len * sizeof(*flying.ptr));
            size_t at = 0;
            for (; added.ptr[at] != UINT32_MAX; at += 2)
                roaring_bitmap_add(committed[added.ptr[at]], added.ptr[at + 1]);
            at++;
            added.len -= at;
            memmove(added.ptr, added.ptr + at, added.len * sizeof(*added.ptr));
        }
        uint32_t pair = (uint32_t)prng_below(&p, PAIRS);
        want(pair, committed[pair]);
    }
    assert_true(ordinal > 65536 + 1000);
    for (uint32_t i = 0; i < PAIRS; i++) {
        want(i, committed[i]);
        assert_true(rows_of(i) < 600); /* of about 3,000 ordinals */
        roaring_bitmap_free(committed[i]);
    }
    vec_for (i, &flying)
        kv_batch_free(flying.ptr[i]);
    vec_free(&flying);
    vec_free(&added);
}

static void test_damage(void **state)
{
    struct kv_batch *b = kv_batch_new();
    roaring_bitmap_t *got = roaring_bitmap_create();
    struct key k;

    (void)state;
    key_post(&k, 1, 1, 0);
    kv_batch_put(b, KV_META, key_str(&k), STR("not a bitmap"));
    assert_int_equal(kv_write(kv, b, true, &e), 0);
    assert_int_equal(postings_read(kv, NULL, 1, 1, got, &e), ERR_CORRUPT);
    roaring_bitmap_free(got);
    kv_batch_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_adding, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
