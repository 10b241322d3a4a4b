/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and frames that are known, found one by one and many at once, against lists of what was
 * asked for. Names are as long as their memory, so that a sanitizer sees what is read past them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/size.h"
#include "distributor/formats/pprof/symbol_lookup.h"

enum { NAMES = 1500, LEN_MOST = 180, FRAMES = 1500 };

static const uint8_t session[SYMBOL_SESSION_BYTES] = "a session";

static struct symbol_session *new_known(size_t bytes_max)
{
    return symbol_session_new(session, 7, 4096, bytes_max);
}

static struct str copy_of(struct str s)
{
    char *p = xmalloc(MAX(s.len, (size_t)1));

    memcpy(p, s.ptr, s.len);
    return str_n(p, s.len);
}

/* Names that differ in one byte, at any place, or in length only. */
static size_t make_names(struct prng *r, struct str *names)
{
    char bytes[LEN_MOST];
    size_t n = 0;

    memset(bytes, 'a', sizeof(bytes));
    for (size_t len = 1; len <= LEN_MOST; len++)
        names[n++] = copy_of(str_n(bytes, len));
    while (n < NAMES) {
        size_t len = 1 + prng_below(r, LEN_MOST), at = prng_below(r, len), i = 0;
        bytes[at] = (char)('b' + prng_below(r, 20));
        struct str s = str_n(bytes, len);
        while (i < n && !str_eq(names[i], s))
            i++;
        if (i == n)
            names[n++] = copy_of(s);
        bytes[at] = 'a';
    }
    return n;
}

static void check_names(const struct symbol_session *k, const struct str *names, size_t kept)
{
    uint32_t at[SYMBOL_SESSION_BATCH];

    for (size_t i = 0; i < NAMES; i += SYMBOL_SESSION_BATCH) {
        size_t n = MIN((size_t)NAMES - i, (size_t)SYMBOL_SESSION_BATCH);
        symbol_lookup_texts(k, names + i, n, at);
        for (size_t j = 0; j < n; j++)
            assert_int_equal(at[j], i + j < kept ? i + j : SYMBOL_SESSION_NONE);
    }
}

static void test_texts(void **state)
{
    struct symbol_session *k = new_known(8 * MIB);
    static struct str names[NAMES];
    struct prng r;

    (void)state;
    prng_init(&r, 1);
    make_names(&r, names);
    check_names(k, names, 0);
    for (size_t i = 0; i < NAMES; i++) {
        struct str again = copy_of(names[i]);
        assert_int_equal(symbol_session_text(k, again), i);
        xfree((void *)(uintptr_t)again.ptr);
        k->text_next = (uint32_t)prng_below(&r, i + 1); /* no guess is right for long */
        size_t old = prng_below(&r, i + 1);
        assert_int_equal(symbol_session_text(k, names[old]), old);
        if (i % 97 == 0 || i + 1 == NAMES)
            check_names(k, names, i + 1);
    }
    assert_int_equal(k->texts.len, NAMES);
    for (size_t i = 0; i < NAMES; i++)
        xfree((void *)(uintptr_t)names[i].ptr);
    symbol_session_unref(k);
}

/* Frames that differ in one number. */
static struct frame frame_at(uint32_t i)
{
    struct frame f = { .func = 1, .file = 1, .module = 1, .line = 1, .addr = 1 };
    uint32_t *of[] = { &f.func, &f.file, &f.module, &f.line };

    if (i % 5 < ARRAY_LEN(of))
        *of[i % 5] += i / 5 + 1;
    else
        f.addr += i / 5 + 1 + (i % 2 ? UINT64_C(1) << 40 : 0);
    return f;
}

static void test_frames(void **state)
{
    struct symbol_session *k = new_known(8 * MIB);
    uint32_t id[FRAMES], at[SYMBOL_SESSION_BATCH];
    struct frame f[SYMBOL_SESSION_BATCH];

    (void)state;
    for (uint32_t i = 0; i < 1600; i++) /* frames are made of strings that are there */
        (void)symbol_session_string(k, str_n((const char *)&i, sizeof(i)));
    for (uint32_t i = 0; i < FRAMES; i++) {
        struct frame one = frame_at(i);
        symbol_lookup_frames(k, &one, 1, at);
        assert_int_equal(at[0], SYMBOL_SESSION_NONE);
        id[i] = symbol_session_frame(k, &one);
        assert_int_equal(id[i], k->frames.len - 1);
    }
    for (uint32_t i = 0; i < FRAMES; i += SYMBOL_SESSION_BATCH) {
        uint32_t n = MIN(FRAMES - i, (uint32_t)SYMBOL_SESSION_BATCH);
        for (uint32_t j = 0; j < n; j++)
            f[j] = frame_at(i + j);
        symbol_lookup_frames(k, f, n, at);
        assert_memory_equal(at, id + i, n * sizeof(*at));
    }
    symbol_session_unref(k);
}

static void test_steps(void **state)
{
    struct symbol_session *k = new_known(8 * MIB);
    uint32_t frames[9], step[9];

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(frames); i++)
        frames[i] = i % 3;
    assert_int_equal(symbol_session_find_step(k, frames, 1), frames[0]);
    for (size_t n = 2; n <= ARRAY_LEN(frames); n++) {
        assert_int_equal(symbol_session_find_step(k, frames, n), SYMBOL_SESSION_NONE);
        step[n - 1] = symbol_session_step(k, frames, n);
        assert_true(step[n - 1] >= SYMBOL_SESSION_MANY && step[n - 1] != SYMBOL_SESSION_NONE);
    }
    for (size_t n = 2; n <= ARRAY_LEN(frames); n++)
        assert_int_equal(symbol_session_find_step(k, frames, n), step[n - 1]);
    symbol_session_unref(k);
}

/* Constants that hashes are made of, here and in what they were taken from. */
static const uint64_t odds[] = {
    0,
    ~UINT64_C(0),
    UINT64_C(0xa0761d6478bd642f),
    UINT64_C(0xe7037ed1a0b428db),
    UINT64_C(0x8ebc6af09c88c6e3),
    UINT64_C(0xd6e8feb86659fd93),
    UINT64_C(0x589965cc75374cc3),
    UINT64_C(0x1d8e4e27c47d124f),
};

static int u32_cmp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

enum { FLOOD = 2000, WORDS = 13 };

/* How many hashes n names have of which one word is `hides` and another one counts, or (mirrors)
 * the two behind are the other way round, or both inverted, by what the two constants differ. */
static size_t flood(const struct symbol_session *k, size_t words, size_t still, size_t counts,
                    uint64_t hides, bool mirror)
{
    uint32_t tags[FLOOD];
    size_t n = 1;

    for (uint32_t i = 0; i < FLOOD; i++) {
        uint64_t w[WORDS] = { 0 };
        w[counts] = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15);
        if (mirror) {
            w[(counts + 2) % words] = ~w[counts];
            w[(counts + 3) % words] = w[(counts + 1) % words] ^ odds[2] ^ odds[3];
        } else {
            w[still] = hides;
        }
        tags[i] = symbol_session_text_tag(k, str_n((const char *)w, words * sizeof(*w)));
    }
    qsort(tags, FLOOD, sizeof(*tags), u32_cmp);
    for (size_t i = 1; i < FLOOD; i++)
        n += tags[i] != tags[i - 1];
    return n;
}

/* A sender that knows this source cannot make names that all fall on one slot. */
static void test_flood(void **state)
{
    struct symbol_session *k = symbol_session_new(session, UINT64_C(0x243f6a8885a308d3), 4096, MIB);

    (void)state;
    for (size_t words = 2; words <= WORDS; words++)
        for (size_t counts = 0; counts < words; counts++) {
            for (size_t still = 0; still < words; still++)
                for (size_t c = 0; still != counts && c < ARRAY_LEN(odds); c++)
                    assert_true(flood(k, words, still, counts, odds[c], false) > FLOOD - 10);
            if (words >= 4)
                assert_true(flood(k, words, 0, counts, 0, true) > FLOOD - 10);
        }
    symbol_session_unref(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_flood),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
