/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks by the bytes of their ids, against a list that is looked through from the front. Bodies
 * are as long as what is in them, so that a sanitizer sees what is read past their end.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "distributor/formats/pprof/pprof.h"
#include "distributor/formats/pprof/pprof_seen.h"

enum { STACKS = 4000, LEN_MOST = 70 };

static struct str random_ids(struct prng *r, struct str body, bool *tagged)
{
    size_t len = 1 + prng_below(r, LEN_MOST), from = prng_below(r, body.len - len + 1);

    if (prng_below(r, 4) == 0) /* right at the end */
        from = body.len - len;
    *tagged = prng_below(r, 2);
    return str_sub(body, from, from + len);
}

static size_t look(const struct pprof_seen *s, struct str ids, bool tagged)
{
    uint32_t len = (uint32_t)ids.len | (tagged ? PPROF_SEEN_TAGGED : 0);

    vec_for (i, &s->stacks)
        if (s->stacks.ptr[i].len == len && memcmp(s->stacks.ptr[i].ids, ids.ptr, ids.len) == 0)
            return i;
    return s->stacks.len;
}

static void test_against_list(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    struct pprof_seen s;
    struct prng r;
    size_t found = 0;

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&r, seed);
    char *bytes = xmalloc(300);
    struct str body = { bytes, 300 };
    for (size_t i = 0; i < body.len; i++)
        bytes[i] = (char)prng_below(&r, 3);
    pprof_seen_init(&s, body, 10, SIZE_MAX, seed);
    for (uint32_t i = 0; i < STACKS; i++) {
        bool tagged;
        struct str ids = random_ids(&r, body, &tagged);
        size_t at = look(&s, ids, tagged);
        struct pprof_seen_key key;
        pprof_seen_key(&s, ids, tagged, &key);
        struct pprof_stack *got = pprof_seen_find(&s, &key);
        if (at < s.stacks.len) {
            assert_ptr_equal(got, &s.stacks.ptr[at]);
            assert_int_equal(got->node, at);
            found++;
            continue;
        }
        assert_null(got);
        pprof_seen_add(&s, &key, (uint32_t)at);
    }
    assert_true(found > 100 && s.stacks.len > 1000);
    pprof_seen_deinit(&s);
    xfree(bytes);
}

/* It stays below what it may take, and finds what it took. */
static void test_full(void **state)
{
    enum { MANY = 20000, BYTES = 256 * 1024 };
    static uint32_t body[MANY];
    struct str all = str_n((const char *)body, sizeof(body));
    struct pprof_seen_key key;
    struct pprof_seen s;

    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        body[i] = i;
    for (size_t bytes = 0; bytes <= BYTES; bytes = bytes * 4 + 64) {
        size_t kept = 0;
        pprof_seen_init(&s, all, 512, bytes, 7);
        for (uint32_t i = 0; i < MANY; i++) {
            pprof_seen_key(&s, str_sub(all, i * sizeof(*body), (i + 1) * sizeof(*body)), false,
                           &key);
            pprof_seen_add(&s, &key, i);
        }
        assert_true(pprof_seen_bytes(&s) <= MAX(bytes, (size_t)512));
        for (uint32_t i = 0; i < MANY; i++) {
            pprof_seen_key(&s, str_sub(all, i * sizeof(*body), (i + 1) * sizeof(*body)), false,
                           &key);
            const struct pprof_stack *at = pprof_seen_find(&s, &key);
            kept += at != NULL;
            assert_true(!at || at->node == i);
        }
        assert_int_equal(kept, s.stacks.len);
        assert_true(kept * 256 + 4 * KIB >= bytes && kept < MANY);
        pprof_seen_deinit(&s);
    }
}

static int u64_cmp(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

enum { FLOOD = 2000, WORDS = 8 };

/* How many hashes there are of ids of which one word is `hides` and another one counts. */
static size_t flood(size_t words, size_t still, size_t counts, uint64_t hides)
{
    static uint64_t body[FLOOD][WORDS];
    uint64_t hashes[FLOOD];
    struct pprof_seen s;
    size_t n = 1;

    memset(body, 0, sizeof(body));
    pprof_seen_init(&s, str_n((const char *)body, sizeof(body)), 10, SIZE_MAX,
                    UINT64_C(0x243f6a8885a308d3));
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct pprof_seen_key key;
        body[i][counts] = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        body[i][still] = hides;
        pprof_seen_key(&s, str_n((const char *)body[i], words * sizeof(uint64_t)), false, &key);
        hashes[i] = key.hash;
    }
    qsort(hashes, FLOOD, sizeof(*hashes), u64_cmp);
    for (size_t i = 1; i < FLOOD; i++)
        n += hashes[i] != hashes[i - 1];
    pprof_seen_deinit(&s);
    return n;
}

/* A sender that knows this source cannot make stacks that all fall on one slot. */
static void test_flood(void **state)
{
    static const uint64_t hides[] = { 0, ~UINT64_C(0), UINT64_C(0xa0761d6478bd642f),
                                      UINT64_C(0xe7037ed1a0b428db), UINT64_C(0x9e3779b97f4a7c15) };

    (void)state;
    for (size_t words = 2; words <= WORDS; words++)
        for (size_t counts = 0; counts < words; counts++)
            for (size_t still = 0; still < words; still++)
                for (size_t c = 0; still != counts && c < ARRAY_LEN(hides); c++)
                    assert_int_equal(flood(words, still, counts, hides[c]), FLOOD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_list),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_flood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
