/* SPDX-License-Identifier: Apache-2.0
 *
 * A database is broken in one place after the other; the check must say what, and how often.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/store/check/check.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static struct err e;

struct seen {
    enum check_kind kind;
    size_t calls;
    char text[ERR_TEXT_MAX];
};

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000 };
    struct bed_push p = { .labels = "pod=a", .stacks = "a;b=5 a;b;c=3" };

    (void)state;
    store_bed_init(&bed, &o);
    for (uint32_t i = 0; i < 30; i++) {
        p.slot = store_bed_slot(&bed);
        p.wid = i + 1;
        p.labels = i % 2 ? "pod=a" : "pod=b";
        assert_int_equal(store_bed_push(&bed, &p), 1);
        clock_fake_advance(&bed.clock, 10000);
    }
    store_bed_seal(&bed);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void on_found(void *cookie, enum check_kind kind, const char *text)
{
    struct seen *s = cookie;

    if (!s->calls++) {
        s->kind = kind;
        memcpy(s->text, text, strlen(text) + 1);
    }
}

/* Reads the database itself: views of the store were published before it was broken. */
static uint64_t check(struct seen *seen, struct check_report *r)
{
    struct check_opts o = { .shown_max = 2, .found = on_found, .cookie = seen };

    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    struct store_view *v = store_view_get(bed.s);
    *seen = (struct seen){ 0 };
    assert_int_equal(store_check_all(v, &o, r, &e), 0);
    int strict = store_check(v, &(struct check_report){ 0 }, &e);
    assert_int_equal(strict, check_findings(r) ? ERR_CORRUPT : 0);
    store_view_put(v);
    return check_findings(r);
}

/* The n-th row of a family that begins with `prefix`. */
static void row(enum kv_cf cf, struct str prefix, size_t n, struct buf *key, struct buf *value)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, prefix, STR_NULL);

    for (; n; n--)
        kv_iter_next(it);
    assert_true(kv_iter_valid(it) && str_starts(kv_iter_key(it), prefix));
    buf_init(key, KIB);
    buf_init(value, MIB);
    assert_true(buf_add_str(key, kv_iter_key(it)) && buf_add_str(value, kv_iter_value(it)));
    kv_iter_free(it);
}

/* Puts (value NULL: deletes) a row, checks, and restores the previous value. */
static void broken(enum kv_cf cf, struct str key, const struct str *value, const struct str *was,
                   enum check_kind want, const char *text)
{
    struct kv_batch *b = kv_batch_new();
    struct check_report r;
    struct seen seen;

    if (value)
        kv_batch_put(b, cf, key, *value);
    else
        kv_batch_del(b, cf, key);
    assert_int_equal(kv_write(bed.s->kv, b, true, &e), 0);
    assert_true(check(&seen, &r) > 0);
    if (!r.findings[want] || !strstr(seen.text, text))
        fail_msg("want %s \"%s\", got %s \"%s\"", check_kind_names[want], text,
                 check_kind_names[seen.kind], seen.text);
    kv_batch_clear(b);
    if (was)
        kv_batch_put(b, cf, key, *was);
    else
        kv_batch_del(b, cf, key);
    assert_int_equal(kv_write(bed.s->kv, b, true, &e), 0);
    kv_batch_free(b);
    assert_int_equal(check(&seen, &r), 0);
}

static void test_sound(void **state)
{
    struct check_report r;
    struct seen seen;

    (void)state;
    assert_int_equal(check(&seen, &r), 0);
    assert_int_equal(seen.calls, 0);
    assert_int_equal(r.series, 2);
    assert_true(r.rows[CHECK_FINE] > 0 && r.rows[CHECK_TL] > 0 && r.rows[CHECK_RAW] > 0);
}

static void test_leaf_gone(void **state)
{
    struct buf key, value;

    (void)state;
    row(KV_FINE, STR_NULL, 3, &key, &value);
    struct str was = buf_str(&value);
    broken(KV_FINE, buf_str(&key), NULL, &was, CHECK_TL,
           "vector has 0 in 0 writes, timeline 8 in 1");
    buf_deinit(&key);
    buf_deinit(&value);
}

static void test_leaf_damaged(void **state)
{
    struct buf key, value;
    char bytes[256];

    (void)state;
    row(KV_FINE, STR_NULL, 1, &key, &value);
    assert_true(value.len <= sizeof(bytes));
    memcpy(bytes, value.ptr, value.len);
    bytes[value.len / 2] ^= 1;
    struct str was = buf_str(&value), bad = str_n(bytes, value.len);
    broken(KV_FINE, buf_str(&key), &bad, &was, CHECK_FINE, "leaf at slot");
    bad.len = 3;
    broken(KV_FINE, buf_str(&key), &bad, &was, CHECK_FINE, "leaf at slot");
    buf_deinit(&key);
    buf_deinit(&value);
}

static void test_points_without_vectors(void **state)
{
    struct buf key, value;

    (void)state;
    row(KV_TL, STR_NULL, 0, &key, &value);
    struct str was = buf_str(&value);
    broken(KV_TL, buf_str(&key), NULL, &was, CHECK_TL, "timeline 0 in 0");
    buf_deinit(&key);
    buf_deinit(&value);
}

static void test_meta(void **state)
{
    static const struct {
        unsigned char table;
        enum check_kind kind;
        const char *text;
    } rows[] = {
        { KEY_SCOPE, CHECK_NAMES, "service row is missing" },
        { KEY_PAIR, CHECK_SERIES, "label pair is missing" },
        { KEY_SERIES, CHECK_SERIES, "id of a series is missing" },
        { KEY_POST, CHECK_SERIES, "posting of series" },
        { KEY_SEAL, CHECK_LOG, "seal entry is missing" },
    };
    struct buf key, value;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        row(KV_META, str_n((const char *)&rows[i].table, 1), 0, &key, &value);
        struct str was = buf_str(&value);
        broken(KV_META, buf_str(&key), NULL, &was, rows[i].kind, rows[i].text);
        buf_deinit(&key);
        buf_deinit(&value);
    }
}

static void test_strange_keys(void **state)
{
    (void)state;
    broken(KV_FINE, STR("x"), &STR("y"), NULL, CHECK_FINE, "too short");
    broken(KV_WID, STR("x"), &STR("y"), NULL, CHECK_WIDS, "too short");
}

static void test_write_id_gone(void **state)
{
    struct buf key, value;

    (void)state;
    row(KV_WID, STR_NULL, 29, &key, &value);
    struct str was = buf_str(&value);
    broken(KV_WID, buf_str(&key), NULL, &was, CHECK_WIDS, "write id of a raw row is missing");
    buf_deinit(&key);
    buf_deinit(&value);
}

/* All of a kind are counted, few are shown. */
static void test_counts(void **state)
{
    struct kv_batch *b = kv_batch_new();
    struct check_report r;
    struct seen seen;

    (void)state;
    for (char k = 'a'; k < 'h'; k++)
        kv_batch_put(b, KV_FINE, str_n(&k, 1), STR(""));
    assert_int_equal(kv_write(bed.s->kv, b, true, &e), 0);
    kv_batch_free(b);
    assert_int_equal(check(&seen, &r), 7);
    assert_int_equal(seen.calls, 2);
}

static void test_cancel(void **state)
{
    atomic_bool cancel = true;
    struct check_opts o = { .cancel = &cancel };
    struct store_view *v = store_view_get(bed.s);
    struct check_report r;

    (void)state;
    assert_int_equal(store_check_all(v, &o, &r, &e), ERR_CANCELED);
    store_view_put(v);
}

#define BED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED(test_sound),         BED(test_leaf_gone),    BED(test_leaf_damaged),
        BED(test_meta),          BED(test_strange_keys), BED(test_points_without_vectors),
        BED(test_write_id_gone), BED(test_counts),       BED(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
