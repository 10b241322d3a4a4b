/* SPDX-License-Identifier: Apache-2.0
 *
 * Bars as JSON: the same text whole and in pieces of any size, in both styles, as the most obvious
 * writer gives it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <time.h>

#include "common/base/prng.h"
#include "common/base/size.h"
#include "common/render/bars.h"

#define NAMES  40
#define LEVELS 6
#define BARS   3000

struct sample {
    struct str names[NAMES];
    uint64_t values[BARS * 7];
    size_t level_end[LEVELS];
    struct bars b;
};

static void sample_init(struct sample *s, struct prng *rng, size_t names, size_t levels,
                        size_t width)
{
    static const char *const texts[] = {
        "main", "a\"b\\", "<x>", "\xff\xfe", "", "net/http.(*c).f"
    };
    size_t bars = 0;

    for (size_t i = 0; i < names; i++)
        s->names[i] = str_c(texts[i % ARRAY_LEN(texts)]);
    for (size_t d = 0; d < levels; d++) {
        bars += d == 3 ? 0 : prng_below(rng, BARS / LEVELS); /* an empty level, too */
        s->level_end[d] = bars;
    }
    for (size_t i = 0; i < bars * width; i++)
        s->values[i] = prng_below(rng, 50) ? prng_below(rng, 100000) : UINT64_MAX - i;
    s->b = (struct bars){ s->names, names, s->values, s->level_end, levels, width };
}

/* The obvious one. */
static void write_all(const struct bars *b, bool message, struct buf *out)
{
    size_t at = 0;

    buf_add_str(out, STR("{"));
    if (b->names_len || !message) {
        buf_add_str(out, STR("\"names\":["));
        for (size_t i = 0; i < b->names_len; i++) {
            buf_add_str(out, i ? STR(",\"") : STR("\""));
            json_escape(out, b->names[i]);
            buf_add_str(out, STR("\""));
        }
        buf_add_str(out, STR("]"));
    }
    if (b->levels || !message) {
        buf_add_str(out, b->names_len || !message ? STR(",\"levels\":[") : STR("\"levels\":["));
        for (size_t d = 0; d < b->levels; d++) {
            size_t end = b->level_end[d] * b->width;
            bool any = at < end;
            buf_add_str(out, d ? STR(",") : STR(""));
            buf_add_str(out, !message ? STR("[") : any ? STR("{\"values\":[") : STR("{"));
            for (size_t first = at; at < end; at++) {
                buf_add_str(out, at > first ? STR(",") : STR(""));
                if (message)
                    buf_addf(out, "\"%" PRId64 "\"",
                             (int64_t)MIN(b->values[at], (uint64_t)INT64_MAX));
                else
                    buf_addf(out, "%" PRIu64, b->values[at]);
            }
            buf_add_str(out, !message ? STR("]") : any ? STR("]}") : STR("}"));
        }
        buf_add_str(out, STR("]"));
    }
    buf_add_str(out, STR("}"));
}

/* In pieces of about `want`, each in a buffer of its own. */
static void write_pieces(const struct bars *b, bool message, size_t want, struct buf *all)
{
    struct bars_json w = { .b = *b, .message = message };
    struct buf piece;
    struct json j;
    bool more = true;

    buf_init(&piece, 4 * MIB);
    json_init(&j, &piece);
    json_obj(&j);
    while (more) {
        size_t had = piece.len;
        more = bars_json_next(&w, want, &j);
        if (!more)
            json_obj_end(&j);
        else
            assert_true(piece.len - had >= want);
        if (want < 10000) /* a name, or the values between two looks */
            assert_true(piece.len - had < want + 256 * 24 + 100);
        buf_add_str(all, buf_str(&piece));
        buf_deinit(&piece);
        buf_init(&piece, 4 * MIB);
    }
    assert_false(bars_json_next(&w, want, &j));
    assert_int_equal(piece.len, 0);
    buf_deinit(&piece);
}

static void check(const struct bars *b)
{
    static const size_t wants[] = { 1, 17, 1000, 9999, SIZE_MAX };

    for (int message = 0; message < 2; message++) {
        struct buf want;
        buf_init(&want, 4 * MIB);
        write_all(b, message, &want);
        for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
            struct buf got;
            buf_init(&got, 4 * MIB);
            write_pieces(b, message, wants[i], &got);
            assert_true(str_eq(buf_str(&got), buf_str(&want)));
            buf_deinit(&got);
        }
        buf_deinit(&want);
    }
}

static void test_pieces(void **state)
{
    static struct sample s;
    uint64_t seed = (uint64_t)time(NULL);
    struct prng rng;

    (void)state;
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&rng, seed);
    for (int i = 0; i < 30; i++) {
        sample_init(&s, &rng, prng_below(&rng, NAMES), prng_below(&rng, LEVELS + 1), i % 2 ? 4 : 7);
        check(&s.b);
    }
    sample_init(&s, &rng, 0, 0, 4);
    check(&s.b);
}

/* A buffer that is full ends it. */
static void test_a_full_buffer_ends(void **state)
{
    static struct sample s;
    struct bars_json w = { 0 };
    struct buf small;
    struct json j;
    struct prng rng;

    (void)state;
    prng_init(&rng, 1);
    sample_init(&s, &rng, NAMES, LEVELS, 7);
    w.b = s.b;
    buf_init(&small, 3000);
    json_init(&j, &small);
    json_obj(&j);
    assert_true(bars_json_next(&w, SIZE_MAX, &j));
    assert_false(buf_ok(&small));
    assert_true(small.len <= 3000);
    buf_deinit(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_a_full_buffer_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
