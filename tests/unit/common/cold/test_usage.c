/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose bytes parts are: shares add up to the objects, follow rows that move again or are deleted,
 * and need no object store. Parts without a row of owners, or with another part's, have no owner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cold/offload.h"
#include "common/cold/usage.h"
#include "common/store/kv/kv_mem.h"

#define CF      KV_FINE
#define TENANTS 3
#define SCOPES  4

struct bed {
    char dir[64];
    struct cold_cache *cache;
    struct object_store *o;
    struct kv *kv;
};
struct seen {
    uint64_t all, known, parts, of[TENANTS + 1][SCOPES + 1];
};
static struct err e;

static int open_dir(void *cookie, struct object_store **ret, struct err *err)
{
    struct bed *b = cookie;
    char dir[96];

    (void)snprintf(dir, sizeof(dir), "%s/objects", b->dir);
    return object_dir_open(dir, ret, err);
}

static int setup(void **state)
{
    struct bed *b = XNEW(struct bed);
    char dir[96];
    struct cold_cache_opts o = { .dir = dir, .bytes_max = MIB, .open = open_dir, .cookie = b };

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-owners-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(dir, sizeof(dir), "%s/cache", b->dir);
    assert_int_equal(open_dir(b, &b->o, &e), 0);
    assert_int_equal(cold_cache_new(&o, &b->cache, &e), 0);
    struct kv_cold_opts ko = { .inner = kv_mem_new(NULL), .cache = b->cache, .shard = 7 };
    assert_int_equal(kv_cold_open(&ko, &b->kv, &e), 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    char command[256];

    kv_close(b->kv);
    cold_cache_free(b->cache);
    object_close(b->o);
    (void)snprintf(command, sizeof(command), "rm -rf %s", b->dir);
    assert_int_equal(system(command), 0);
    xfree(b);
    return 0;
}

static struct key key_of(uint32_t bucket, uint32_t tenant, uint32_t scope, uint32_t i)
{
    struct key k = { .len = 17 };

    put_u32be(k.b + 1, bucket);
    put_u32be(k.b + 5, tenant);
    put_u32be(k.b + 9, scope);
    put_u32be(k.b + 13, i);
    return k;
}

/* Tenant t, scope s have t * s rows of bytes that do not compress, in each bucket. */
static void fill(struct bed *b, uint32_t bucket)
{
    struct kv_batch *batch = kv_batch_new();
    struct prng rng;
    char value[500];

    prng_init(&rng, bucket);
    for (uint32_t t = 1; t <= TENANTS; t++)
        for (uint32_t s = 1; s <= SCOPES; s++)
            for (uint32_t i = 0; i < t * s; i++) {
                struct key k = key_of(bucket, t, s, i);
                for (size_t n = 0; n < sizeof(value); n++)
                    value[n] = (char)prng_u64(&rng);
                kv_batch_put(batch, CF, key_str(&k), str_n(value, sizeof(value)));
            }
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
}

static uint64_t move(struct bed *b)
{
    struct cold_unit unit = { .cf = KV_RAW };
    struct cold_moved moved;
    struct kv_batch *batch;
    uint64_t bytes = 0;
    bool found;

    for (;;) {
        assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
        if (!found)
            return bytes;
        kv_cold_watch(b->kv, unit.cf, key_str(&unit.from), key_str(&unit.to));
        assert_int_equal(
            cold_offload(b->kv, &unit, &(struct cold_target){ b->o, 0 }, &batch, &moved, &e), 0);
        assert_true(kv_cold_unchanged(b->kv));
        assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
        kv_batch_free(batch);
        bytes += moved.bytes;
    }
}

static int on_far(void *cookie, const struct kv_far *f, struct err *err)
{
    struct seen *s = cookie;
    uint64_t sum = 0;

    (void)err;
    assert_int_equal(f->cf, CF);
    for (size_t i = 0; i < f->owners_len; i++) {
        const struct kv_far_owner *o = &f->owners[i];
        assert_true(o->tenant <= TENANTS && o->scope <= SCOPES);
        s->of[o->tenant][o->scope] += o->bytes;
        sum += o->bytes;
    }
    assert_true(sum <= f->bytes);
    s->all += f->bytes;
    s->known += sum;
    s->parts++;
    return 0;
}

static struct seen look(struct bed *b, const struct kv_snap *snap)
{
    struct seen s = { 0 };

    assert_int_equal(kv_far(b->kv, snap, on_far, &s, &e), 0);
    return s;
}

static size_t rows_of_owners(struct bed *b)
{
    char from = (char)KEY_COLD_OWNERS, to = (char)(KEY_COLD_OWNERS + 1);
    struct kv_iter *it = kv_iter_new(b->kv, NULL, KV_META, str_n(&from, 1), str_n(&to, 1));
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

static void test_shares(void **state)
{
    struct bed *b = *state;
    struct seen s = look(b, NULL);

    assert_true(!s.parts && !s.all);
    fill(b, 3);
    fill(b, 9);
    uint64_t bytes = move(b);
    s = look(b, NULL);
    assert_int_equal(s.parts, 2);
    assert_int_equal(s.all, bytes);
    assert_int_equal(s.known, bytes); /* every byte has an owner */
    assert_int_equal(rows_of_owners(b), 2);
    uint64_t row = s.of[1][1];
    assert_true(row > 900);
    for (uint32_t t = 1; t <= TENANTS; t++)
        for (uint32_t k = 1; k <= SCOPES; k++)
            assert_in_range(s.of[t][k], row * t * k - 2 * t * k - 4, row * t * k + 2 * t * k + 4);
}

/* Rows that come late, rows that go, and a snapshot that does not see it. */
static void test_changes(void **state)
{
    struct bed *b = *state;
    struct kv_batch *batch = kv_batch_new();
    struct key k = key_of(3, 2, 2, 77), from = key_of(9, 0, 0, 0), to = key_of(10, 0, 0, 0);

    fill(b, 3);
    fill(b, 9);
    (void)move(b);
    struct seen before = look(b, NULL);
    struct kv_snap *snap = kv_snap_new(b->kv);
    kv_batch_put(batch, CF, key_str(&k), STR("late"));
    kv_batch_del_range(batch, CF, key_str(&from), key_str(&to));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    struct seen s = look(b, NULL);
    assert_true(s.parts == 1 && s.known == s.all && s.all < before.all);
    assert_int_equal(rows_of_owners(b), 1); /* went with its part */
    uint64_t bytes = move(b);
    s = look(b, NULL);
    assert_true(s.parts == 1 && s.all == bytes && s.known == bytes);
    assert_int_equal(rows_of_owners(b), 1);
    s = look(b, snap);
    assert_memory_equal(&s, &before, sizeof(s));
    kv_snap_free(b->kv, snap);
}

/* Nothing is asked of the object store. */
static void test_without_it(void **state)
{
    struct bed *b = *state;
    char command[256];

    fill(b, 3);
    uint64_t bytes = move(b);
    (void)snprintf(command, sizeof(command), "rm -rf %s/objects %s/cache/*", b->dir, b->dir);
    assert_int_equal(system(command), 0);
    struct seen s = look(b, NULL);
    assert_true(s.all == bytes && s.known == bytes);
}

static void put_owners(struct bed *b, struct str value)
{
    struct kv_batch *batch = kv_batch_new();
    struct key first = key_of(3, 1, 1, 0);
    struct buf key;

    buf_init(&key, KIB);
    cold_usage_key(CF, key_str(&first), &key);
    if (value.ptr)
        kv_batch_put(batch, KV_META, buf_str(&key), value);
    else
        kv_batch_del(batch, KV_META, buf_str(&key));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    buf_deinit(&key);
}

static void test_unknown(void **state)
{
    struct bed *b = *state;
    struct seen s;
    struct buf key, value;

    fill(b, 3);
    uint64_t bytes = move(b);
    put_owners(b, STR_NULL); /* as the version before leaves it */
    s = look(b, NULL);
    assert_true(s.all == bytes && s.known == 0);
    /* Another part's: that program moved the bucket again. */
    struct part_info other = { .hash = { 1, 2 }, .size = bytes };
    struct cold_usage o = { 0 };
    struct key first = key_of(3, 1, 1, 0);
    other.first = key_str(&first);
    buf_init(&key, KIB);
    buf_init(&value, COLD_USAGE_ROW_MAX);
    cold_usage_add(&o, key_str(&first), STR("v"));
    cold_usage_row(&o, CF, &other, &key, &value);
    put_owners(b, buf_str(&value));
    s = look(b, NULL);
    assert_true(s.all == bytes && s.known == 0);
    put_owners(b, STR("\x02 of a version to come"));
    s = look(b, NULL);
    assert_true(s.all == bytes && s.known == 0);
    put_owners(b, STR("\x01 cut"));
    assert_int_equal(kv_far(b->kv, NULL, on_far, &s, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "shard-00000007/fine/"));
    /* The next move of the bucket takes it away, whatever it says. */
    fill(b, 3);
    bytes = move(b);
    s = look(b, NULL);
    assert_true(s.all == bytes && s.known == bytes);
    cold_usage_deinit(&o);
    buf_deinit(&value);
    buf_deinit(&key);
}

/* Over the limit of owners, and a row that gives out too much. */
static void test_limits(void **state)
{
    struct cold_usage o = { 0 }, back = { 0 };
    struct part_info info = { .hash = { 5, 6 }, .size = 1000003, .first = STR("first") };
    struct buf key, value;
    uint64_t sum = 0;

    (void)state;
    buf_init(&key, KIB);
    buf_init(&value, COLD_USAGE_ROW_MAX);
    for (uint32_t i = 0; i < 2 * COLD_USAGE_MAX; i++) {
        struct key k = key_of(1, UINT32_MAX, i, 0);
        cold_usage_add(&o, key_str(&k), STR("value"));
    }
    cold_usage_row(&o, CF, &info, &key, &value);
    assert_int_equal(cold_usage_read(buf_str(&value), info.hash, info.size, &back, &e), 0);
    assert_int_equal(back.of.len, COLD_USAGE_MAX);
    vec_for (i, &back.of)
        sum += back.of.ptr[i].bytes;
    assert_int_equal(sum, info.size / 2);
    assert_int_equal(cold_usage_read(buf_str(&value), info.hash, sum - 1, &back, &e), ERR_CORRUPT);
    value.len--;
    assert_int_equal(cold_usage_read(buf_str(&value), info.hash, info.size, &back, &e),
                     ERR_CORRUPT);
    assert_int_equal(cold_usage_read(STR(""), info.hash, info.size, &back, &e), ERR_CORRUPT);
    cold_usage_deinit(&back);
    cold_usage_deinit(&o);
    buf_deinit(&value);
    buf_deinit(&key);
}

#define BED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = { BED(test_shares), BED(test_changes), BED(test_without_it),
                                        BED(test_unknown), cmocka_unit_test(test_limits) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
