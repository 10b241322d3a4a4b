/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows beside vectors: dictionary, timeline, write id, raw head, seal entry. Bytes as drawn,
 * there and back, and no damage goes unseen where a checksum stands.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/codec/raw.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/dict/dict_rows.h"
#include "common/store/seal/seal.h"
#include "common/store/state/wid.h"

static struct prng rnd;
static struct buf row;
static struct err e;

static int setup(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    buf_init(&row, MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&row);
    return 0;
}

/* The row is these bytes and the checksum of them. */
static void want_bytes(const char *hex)
{
    char text[512];
    size_t n = 0;

    assert_true(row.len > 4);
    for (size_t i = 0; i + 4 < row.len; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", (uint8_t)row.ptr[i]);
    assert_string_equal(text, hex);
    assert_int_equal(get_u32le(row.ptr + row.len - 4), crc32c(0, row.ptr, row.len - 4));
}

/* Every cut and every flipped bit of the row is refused. */
static void want_damage_seen(int (*read)(struct str row))
{
    assert_int_equal(read(buf_str(&row)), 0);
    for (size_t n = 0; n < row.len; n++)
        assert_int_equal(read(str_sub(buf_str(&row), 0, n)), ERR_CORRUPT);
    for (size_t i = 0; i < row.len * 8; i++) {
        row.ptr[i / 8] ^= (char)(1 << i % 8);
        assert_int_equal(read(buf_str(&row)), ERR_CORRUPT);
        row.ptr[i / 8] ^= (char)(1 << i % 8);
    }
}

/* With the checksum put right, damage may give other contents, but nothing out of range. */
static void try_damage(int (*read)(struct str row))
{
    for (int i = 0; i < 2000; i++) {
        size_t at = prng_below(&rnd, row.len - 4);
        char was = row.ptr[at];
        row.ptr[at] = (char)prng_u64(&rnd);
        put_u32le(row.ptr + row.len - 4, crc32c(0, row.ptr, row.len - 4));
        int rc = read(buf_str(&row));
        assert_true(rc == 0 || rc == ERR_CORRUPT);
        row.ptr[at] = was;
    }
    put_u32le(row.ptr + row.len - 4, crc32c(0, row.ptr, row.len - 4));
}

/* ---- dictionary ---- */

static struct str strings[DICT_ROW_MAX];
static struct frame frames[DICT_ROW_MAX];
static struct dict_node nodes[DICT_ROW_MAX];
static size_t count;

static int read_strings(struct str s)
{
    return dict_rows_read_strings(s, strings, &count, &e);
}

static int read_frames(struct str s)
{
    return dict_rows_read_frames(s, frames, &count, &e);
}

static int read_nodes(struct str s)
{
    int rc = dict_rows_read_nodes(s, 5, nodes, &count, &e);

    for (size_t i = 0; !rc && i < count; i++)
        assert_true(nodes[i].parent < 5 + i);
    return rc;
}

static void test_dictionary_as_drawn(void **state)
{
    const struct str s[] = { STR("main"), STR("a.c") };
    const struct frame f = { .func = 1, .file = 2, .line = 7 };
    const struct dict_node n[] = { { 0, 0 }, { 1, 0 } };

    (void)state;
    dict_rows_strings(s, 2, &row);
    want_bytes("010204036d61696e612e63");
    want_damage_seen(read_strings);
    dict_rows_frames(&f, 1, &row);
    want_bytes("01010204000700");
    want_damage_seen(read_frames);
    dict_rows_nodes(n, 2, 1, &row);
    want_bytes("010201010000");
}

static void test_dictionary_there_and_back(void **state)
{
    static char text[DICT_ROW_MAX][8];
    static struct str s[DICT_ROW_MAX];
    static struct frame f[DICT_ROW_MAX];
    static struct dict_node d[DICT_ROW_MAX];

    (void)state;
    for (int round = 0; round < 50; round++) {
        size_t n = round ? 1 + prng_below(&rnd, 20) : DICT_ROW_MAX;
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < 8; j++)
                text[i][j] = (char)prng_u64(&rnd);
            s[i] = str_n(text[i], prng_below(&rnd, 9));
            f[i] = (struct frame){ (uint32_t)prng_u64(&rnd), (uint32_t)prng_below(&rnd, 9),
                                   (uint32_t)prng_u64(&rnd), (uint32_t)prng_u64(&rnd),
                                   prng_chance(&rnd, 0.5) ? prng_u64(&rnd) : 0 };
            d[i] =
                (struct dict_node){ (uint32_t)prng_below(&rnd, 5 + i), (uint32_t)prng_u64(&rnd) };
        }
        dict_rows_strings(s, n, &row);
        assert_int_equal(read_strings(buf_str(&row)), 0);
        assert_int_equal(count, n);
        for (size_t i = 0; i < n; i++)
            assert_true(str_eq(s[i], strings[i]));
        try_damage(read_strings);
        dict_rows_frames(f, n, &row);
        assert_int_equal(read_frames(buf_str(&row)), 0);
        assert_int_equal(count, n);
        assert_memory_equal(f, frames, n * sizeof(*f));
        try_damage(read_frames);
        dict_rows_nodes(d, n, 5, &row);
        assert_int_equal(read_nodes(buf_str(&row)), 0);
        assert_int_equal(count, n);
        assert_memory_equal(d, nodes, n * sizeof(*d));
        try_damage(read_nodes);
        if (round == 1) {
            want_damage_seen(read_nodes);
        }
    }
}

/* ---- timelines ---- */

static struct tl line;

static int read_tl(struct str s)
{
    int rc = timeline_row_decode(s, 120, &line, &e);

    for (size_t i = 0; !rc && i < line.points.len; i++) {
        assert_true(line.points.ptr[i].point < 120 && line.points.ptr[i].writes > 0);
        assert_true(!i || line.points.ptr[i].point > line.points.ptr[i - 1].point);
    }
    return rc;
}

static void test_timeline(void **state)
{
    const struct tl_point p[] = { { 2, 30, 1 }, { 3, 50, 2 } };
    struct tl t = { 0 };
    uint64_t totals[120], writes[120];

    (void)state;
    tl_encode(p, 2, &row);
    want_bytes("01020a020003050102");
    want_damage_seen(read_tl);
    assert_int_equal(timeline_row_decode(buf_str(&row), 3, &line, &e), ERR_CORRUPT);
    for (int round = 0; round < 200; round++) {
        memset(totals, 0, sizeof(totals));
        memset(writes, 0, sizeof(writes));
        t.points.len = 0;
        for (uint64_t i = 1 + prng_below(&rnd, 200); i > 0; i--) {
            uint32_t at = (uint32_t)prng_below(&rnd, 120);
            uint64_t v = prng_chance(&rnd, 0.1) ? 0 : prng_below(&rnd, 1000) * 10;
            tl_add(&t, at, v, 1);
            totals[at] += v;
            writes[at]++;
        }
        tl_encode(t.points.ptr, t.points.len, &row);
        assert_int_equal(read_tl(buf_str(&row)), 0);
        size_t n = 0;
        for (uint32_t i = 0; i < 120; i++) {
            if (!writes[i])
                continue;
            assert_int_equal(line.points.ptr[n].point, i);
            assert_int_equal(line.points.ptr[n].total, totals[i]);
            assert_int_equal(line.points.ptr[n++].writes, writes[i]);
        }
        assert_int_equal(n, line.points.len);
        try_damage(read_tl);
    }
    t.points.len = 0;
    tl_add(&t, 1, UINT64_MAX, 1);
    tl_add(&t, 1, 5, 1); /* stays */
    tl_encode(t.points.ptr, t.points.len, &row);
    assert_int_equal(read_tl(buf_str(&row)), 0);
    assert_true(line.points.ptr[0].total == UINT64_MAX);
    vec_free(&t.points);
    vec_free(&line.points);
}

/* ---- small rows ---- */

static void test_write_id(void **state)
{
    struct wid_row w = { .t = 0x01020304, .rows = 300, .folded = 2, .entry = 9 }, r;
    char out[WID_ROW_MAX];
    size_t n = wid_row_put(&w, out);

    (void)state;
    assert_int_equal(n, 9);
    assert_memory_equal(out, "\2\1\2\3\4\xac\2\2\11", 9);
    assert_int_equal(wid_row_read(str_n(out, n), &r, &e), 0);
    assert_true(r.t == w.t && r.rows == w.rows && r.folded == w.folded && r.entry == w.entry);
    assert_int_equal(wid_row_read(str_n(out, n - 1), &r, &e), ERR_CORRUPT);
    out[0] = 1; /* what version 1 wrote means the same */
    assert_int_equal(wid_row_read(str_n(out, n), &r, &e), 0);
    out[0] = 3;
    assert_int_equal(wid_row_read(str_n(out, n), &r, &e), ERR_CORRUPT);
    w.folded = 301; /* more than there are */
    assert_int_equal(wid_row_read(str_n(out, wid_row_put(&w, out)), &r, &e), ERR_CORRUPT);
    w = (struct wid_row){ .rows = 1, .folded = 1 }; /* version 1: folded by no entry */
    n = wid_row_put(&w, out);
    assert_int_equal(wid_row_read(str_n(out, n), &r, &e), 0);
    out[0] = 1;
    assert_int_equal(wid_row_read(str_n(out, n), &r, &e), ERR_CORRUPT);
}

static void test_raw_head(void **state)
{
    struct raw_row r;

    (void)state;
    raw_row_begin(&row, 0x01020304, 300);
    buf_add_str(&row, STR("vector"));
    assert_true(str_eq(buf_str(&row), STR("\1\1\2\3\4\xac\2vector")));
    assert_int_equal(raw_row_read(buf_str(&row), &r, &e), 0);
    assert_int_equal(r.wid_bucket, 0x01020304);
    assert_int_equal(r.wid_rows, 300);
    assert_true(str_eq(r.vector, STR("vector")));
    assert_int_equal(raw_row_read(STR("\2\1\2\3\4\1"), &r, &e), ERR_CORRUPT);
    assert_int_equal(raw_row_read(STR("\1\1\2\3\4"), &r, &e), ERR_CORRUPT);
    assert_int_equal(raw_row_read(STR("\1\1\2\3\4\0"), &r, &e), ERR_CORRUPT);
}

static void test_seal_entry(void **state)
{
    struct seal_entry n = { 7, 1234567890123, 10, 12, 99, { 0x1111, 0x2222 }, 5, 6, false }, r;
    char out[SEAL_ROW_LEN];

    (void)state;
    for (int i = 0; i < 2; i++) {
        n.tomb = i;
        seal_row_put(&n, out);
        assert_int_equal(out[0], 1 + i);
        assert_int_equal(seal_row_read(7, str_n(out, sizeof(out)), &r, &e), 0);
        assert_memory_equal(&n, &r, offsetof(struct seal_entry, tomb));
        assert_int_equal(r.tomb, i);
    }
    assert_int_equal(seal_row_read(7, str_n(out, sizeof(out) - 1), &r, &e), ERR_CORRUPT);
    out[0] = 9;
    assert_int_equal(seal_row_read(7, str_n(out, sizeof(out)), &r, &e), ERR_CORRUPT);
}

static void test_raw_counts(void **state)
{
    struct raw_counts c = { 0 };
    uint32_t have[50] = { 0 };

    (void)state;
    assert_int_equal(raw_counts_low(&c), UINT32_MAX);
    for (int i = 0; i < 5000; i++) {
        uint32_t at = (uint32_t)prng_below(&rnd, 50), low = UINT32_MAX, after = UINT32_MAX;
        if (have[at] && prng_chance(&rnd, 0.55)) {
            uint32_t n = 1 + (uint32_t)prng_below(&rnd, have[at]);
            raw_counts_sub(&c, at, n);
            have[at] -= n;
        } else {
            raw_counts_add(&c, at, 2);
            have[at] += 2;
        }
        uint64_t rows = 0;
        uint32_t behind = (uint32_t)prng_below(&rnd, 50);
        for (uint32_t j = 50; j > 0; j--) {
            rows += have[j - 1];
            low = have[j - 1] ? j - 1 : low;
            after = have[j - 1] && j - 1 > behind ? j - 1 : after;
        }
        assert_int_equal(c.rows, rows);
        assert_int_equal(raw_counts_low(&c), low);
        assert_int_equal(raw_counts_after(&c, behind), after);
    }
    vec_free(&c.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dictionary_as_drawn),
        cmocka_unit_test(test_dictionary_there_and_back),
        cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_write_id),
        cmocka_unit_test(test_raw_head),
        cmocka_unit_test(test_seal_entry),
        cmocka_unit_test(test_raw_counts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
