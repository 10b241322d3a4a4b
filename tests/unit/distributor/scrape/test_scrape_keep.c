/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of last profiles: what was written is read, by age; whatever is broken is refused whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "distributor/scrape/scrape_keep.h"

#define NOW INT64_C(1790000000000)

struct seen {
    size_t n;
    uint64_t ids;
    size_t bytes;
};

static void on_kept(void *cookie, const struct scrape_kept *k)
{
    struct seen *s = cookie;

    s->n++;
    s->ids = s->ids * 31 + k->id;
    s->bytes += k->bytes.len;
    for (size_t i = 0; i < k->bytes.len; i++)
        assert_int_equal((uint8_t)k->bytes.ptr[i], (uint8_t)(k->id + i));
}

static void one(uint64_t id, int64_t at_ms, size_t len, struct buf *out)
{
    char bytes[512];

    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(id + i);
    scrape_keep_one(&(struct scrape_kept){ id, at_ms, str_n(bytes, len) }, out);
}

static void write_file(struct buf *out)
{
    buf_init(out, 64 * KIB);
    scrape_keep_head(out);
    one(1, NOW - 1000, 100, out);
    one(UINT64_MAX, NOW, 512, out);
    one(3, NOW + 1, 10, out);              /* of the future: the clock was set back */
    one(4, NOW - SCRAPE_KEEP_MS, 10, out); /* too old */
    one(5, NOW - SCRAPE_KEEP_MS + 1, 1, out);
    one(6, NOW, 0, out);
    scrape_keep_end(out);
}

static void test_read(void **state)
{
    struct seen s = { 0 };
    struct buf b;
    struct err e;

    (void)state;
    write_file(&b);
    assert_int_equal(scrape_keep_each(buf_str(&b), NOW, on_kept, &s, &e), 0);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.bytes, 613);
    assert_true(s.ids == (1 * UINT64_C(31) + UINT64_MAX) * 31 + 5);
    buf_reset(&b);
    scrape_keep_head(&b);
    scrape_keep_end(&b);
    s = (struct seen){ 0 };
    assert_int_equal(scrape_keep_each(buf_str(&b), NOW, on_kept, &s, &e), 0);
    assert_int_equal(s.n, 0);
    buf_deinit(&b);
}

/* Each cut and each bit: refused, and nothing was handed over. */
static void test_broken(void **state)
{
    struct seen s = { 0 };
    struct buf b;
    struct err e;

    (void)state;
    write_file(&b);
    for (size_t len = 0; len < b.len; len++)
        assert_int_equal(scrape_keep_each(str_n(b.ptr, len), NOW, on_kept, &s, &e), ERR_INPUT);
    for (size_t i = 0; i < b.len * 8; i++) {
        b.ptr[i / 8] = (char)(b.ptr[i / 8] ^ 1 << i % 8);
        assert_int_equal(scrape_keep_each(buf_str(&b), NOW, on_kept, &s, &e), ERR_INPUT);
        b.ptr[i / 8] = (char)(b.ptr[i / 8] ^ 1 << i % 8);
    }
    /* A length that passes the end, under a right hash. */
    buf_reset(&b);
    scrape_keep_head(&b);
    one(1, NOW, 100, &b);
    b.len -= 50;
    scrape_keep_end(&b);
    assert_int_equal(scrape_keep_each(buf_str(&b), NOW, on_kept, &s, &e), ERR_INPUT);
    assert_int_equal(s.n, 0);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
