/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that say when a gauge had data are broken in one place after the other; the check must say
 * what is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/size.h"
#include "common/store/check/check.h"
#include "common/store/state/presence.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define GAUGE "memory:inuse_space:bytes::"

static struct store_bed bed;
static struct err e;
static char text[ERR_TEXT_MAX];

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB, .wid_horizon_ms = 3600 * 1000 };

    (void)state;
    store_bed_init(&bed, &o);
    for (uint32_t i = 0; i < 30; i++) {
        struct bed_push p = { .labels = i % 2 ? "pod=a" : "pod=b",
                              .stacks = "a;b=5",
                              .type = i % 3 ? GAUGE : NULL,
                              .gauge = i % 3,
                              .slot = store_bed_slot(&bed),
                              .wid = i + 1 };
        assert_int_equal(store_bed_push(&bed, &p), 1);
        clock_fake_advance(&bed.clock, 10000);
    }
    clock_fake_advance(&bed.clock, 200000);
    store_bed_seal(&bed);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void on_found(void *cookie, enum check_kind kind, const char *what)
{
    (void)cookie;
    if (kind == CHECK_PRESENCE && !*text)
        memcpy(text, what, strlen(what) + 1);
}

/* Findings about presence; the first is in `text`. */
static uint64_t check(struct check_report *r)
{
    struct check_opts o = { .shown_max = 2, .found = on_found };

    store_bed_reopen(&bed, KV_MEM_KILL, 0);
    struct store_view *v = store_view_get(bed.s);
    *text = '\0';
    assert_int_equal(store_check_all(v, &o, r, &e), 0);
    store_view_put(v);
    assert_int_equal(check_findings(r), r->findings[CHECK_PRESENCE]);
    return r->findings[CHECK_PRESENCE];
}

/* The first row of a series or group. */
static void row(bool group, struct buf *key, struct buf *value)
{
    char lead = (char)(KEY_TL_PRESENCE | (group ? KEY_TL_GROUP : 0));
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_TL, str_n(&lead, 1), STR_NULL);

    assert_true(kv_iter_valid(it) && kv_iter_key(it).ptr[0] == lead);
    buf_init(key, KIB);
    buf_init(value, 2 * KIB);
    assert_true(buf_add_str(key, kv_iter_key(it)) && buf_add_str(value, kv_iter_value(it)));
    kv_iter_free(it);
}

static void put(struct str key, struct str value) /* STR_NULL: deletes */
{
    struct kv_batch *b = kv_batch_new();

    if (value.ptr)
        kv_batch_put(b, KV_TL, key, value);
    else
        kv_batch_del(b, KV_TL, key);
    assert_int_equal(kv_write(bed.s->kv, b, true, &e), 0);
    kv_batch_free(b);
}

/* Each row with one leaf more, one less, damaged, and gone. */
static void break_row(bool group, const char *more, const char *less)
{
    struct buf key, value, other;
    struct check_report r;
    struct presence p;
    uint32_t leaf = 0;

    assert_int_equal(check(&r), 0);
    assert_true(r.rows[CHECK_PRESENCE] >= 3);
    row(group, &key, &value);
    buf_init(&other, 2 * KIB);
    assert_int_equal(presence_decode(buf_str(&value), &p, &e), 0);
    while (!presence_has(&p, leaf))
        leaf++;
    presence_set(&p, leaf - 10);
    presence_encode(&p, &other);
    put(buf_str(&key), buf_str(&other));
    assert_true(check(&r) > 0);
    assert_non_null(strstr(text, more));
    p.bits[(leaf - 10) / 64] &= ~(UINT64_C(1) << (leaf - 10) % 64);
    p.bits[leaf / 64] &= ~(UINT64_C(1) << leaf % 64);
    presence_encode(&p, &other);
    put(buf_str(&key), buf_str(&other));
    assert_true(check(&r) > 0);
    assert_non_null(strstr(text, less));
    value.ptr[3] ^= 1;
    put(buf_str(&key), buf_str(&value));
    assert_true(check(&r) > 0);
    assert_non_null(strstr(text, "checksum"));
    value.ptr[3] ^= 1;
    put(buf_str(&key), STR_NULL);
    assert_true(check(&r) > 0);
    put(buf_str(&key), buf_str(&value));
    assert_int_equal(check(&r), 0);
    buf_deinit(&key);
    buf_deinit(&value);
    buf_deinit(&other);
}

static void test_series(void **state)
{
    (void)state;
    break_row(false, "no leaf where it had data", "not noted as data");
}

static void test_groups(void **state)
{
    (void)state;
    break_row(true, "but groups of dimension 1", "not the groups of dimension 1");
}

/* Rows of groups where no series has any. */
static void test_groups_alone(void **state)
{
    struct check_report r;
    struct buf key, value;

    (void)state;
    for (int i = 0; i < 2; i++) {
        row(false, &key, &value);
        put(buf_str(&key), STR_NULL);
        buf_deinit(&key);
        buf_deinit(&value);
    }
    assert_true(check(&r) > 0);
    assert_non_null(strstr(text, "no series had data there"));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { T(test_series), T(test_groups), T(test_groups_alone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
