/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard into a folder and back: the same rows, those that were away too; what has not changed is
 * not uploaded again; what nothing names goes, and nothing else; damaged heads are passed over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cold/backup.h"
#include "common/cold/backup_places.h"
#include "common/cold/offload.h"
#include "common/store/kv/kv_mem.h"

struct bed {
    char dir[64];
    struct cold_cache *cache;
    struct object_store *o;
    struct kv *kv;
    struct prng rng;
};

static int open_dir(void *cookie, struct object_store **ret, struct err *e)
{
    struct bed *b = cookie;
    char dir[96];

    (void)snprintf(dir, sizeof(dir), "%s/objects", b->dir);
    return object_dir_open(dir, ret, e);
}

static struct kv *open_kv(struct bed *b, struct kv *inner)
{
    struct kv_cold_opts o = { .inner = inner, .cache = b->cache, .shard = 3 };
    struct err e = { 0 };
    struct kv *kv;

    assert_int_equal(kv_cold_open(&o, &kv, &e), 0);
    return kv;
}

static int setup(void **state)
{
    struct bed *b = XNEW(struct bed);
    struct cold_cache_opts o = { .bytes_max = MIB, .open = open_dir, .cookie = b };
    struct err e = { 0 };
    char dir[96];

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-backup-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(dir, sizeof(dir), "%s/cache", b->dir);
    o.dir = dir;
    assert_int_equal(open_dir(b, &b->o, &e), 0);
    assert_int_equal(cold_cache_new(&o, &b->cache, &e), 0);
    b->kv = open_kv(b, kv_mem_new(NULL));
    prng_init(&b->rng, 5);
    *state = b;
    return 0;
}

static void shell(const struct bed *b, const char *command)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "cd %s && %s", b->dir, command);
    assert_int_equal(system(text), 0);
}

static int teardown(void **state)
{
    struct bed *b = *state;

    kv_close(b->kv);
    cold_cache_free(b->cache);
    object_close(b->o);
    shell(b, "rm -rf objects cache");
    shell(b, "rmdir $PWD");
    xfree(b);
    return 0;
}

/* Rows of all families; those of coarse in buckets, large enough to be cut at their ends. */
static void fill(struct bed *b, uint32_t first_bucket, uint32_t buckets)
{
    struct kv_batch *batch = kv_batch_new();
    char *value = xmalloc(200 * KIB);
    struct err e = { 0 };

    for (uint32_t bucket = first_bucket; bucket < first_bucket + buckets; bucket++) {
        for (uint32_t i = 0; i < 12; i++) {
            char key[9] = { 2 };
            put_u32be(key + 1, bucket);
            put_u32be(key + 5, i);
            for (size_t k = 0; k + 8 <= 200 * KIB; k += 8)
                put_u64be(value + k, prng_u64(&b->rng));
            kv_batch_put(batch, KV_COARSE, str_n(key, 9), str_n(value, 200 * KIB));
            kv_batch_put(batch, KV_META, str_n(key, 9), str_n(value, 20));
            kv_batch_put(batch, KV_RAW, str_n(key, 9), STR(""));
        }
    }
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    xfree(value);
}

static void same_rows(struct kv *x, struct kv *y)
{
    struct err e = { 0 };

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *a = kv_iter_new(x, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        struct kv_iter *c = kv_iter_new(y, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(a) && kv_iter_valid(c); kv_iter_next(a), kv_iter_next(c)) {
            assert_true(str_eq(kv_iter_key(a), kv_iter_key(c)));
            assert_true(str_eq(kv_iter_value(a), kv_iter_value(c)));
        }
        assert_false(kv_iter_valid(a) || kv_iter_valid(c));
        assert_int_equal(kv_iter_status(a, &e) | kv_iter_status(c, &e), 0);
        kv_iter_free(a);
        kv_iter_free(c);
    }
}

static struct backup_done backup(struct bed *b, uint64_t number)
{
    struct cold_generation generation = { .now = 1024 };
    struct backup_head before = { 0 };
    struct backup_opts o = { .kv = b->kv,
                             .o = b->o,
                             .shards = 4,
                             .wall_ms = 1700000000000,
                             .number = number,
                             .generation = &generation,
                             .before = &before };
    struct backup_done done;
    struct err e = { 0 };
    uint64_t last;

    int rc = backup_newest(b->o, 3, &last, &before, &e);
    assert_true(rc == 0 || rc == ERR_NOT_FOUND);
    assert_int_equal(backup_write(&o, &done, &e), 0);
    backup_head_deinit(&before);
    return done;
}

static void restored_is_the_same(struct bed *b, uint64_t number)
{
    struct kv *inner = kv_mem_new(NULL), *kv;
    struct backup_head head;
    struct err e = { 0 };
    uint64_t found = 0;

    assert_int_equal(backup_newest(b->o, 3, &found, &head, &e), 0);
    assert_int_equal(found, number);
    assert_int_equal(head.shards, 4);
    assert_int_equal(backup_restore(b->o, &head, inner, NULL, NULL, &e), 0);
    backup_head_deinit(&head);
    kv = open_kv(b, inner);
    same_rows(b->kv, kv);
    kv_close(kv);
}

static void offload_first(struct bed *b)
{
    struct cold_unit unit = { .cf = KV_RAW };
    struct kv_batch *batch;
    struct cold_moved moved;
    struct err e = { 0 };
    bool found;

    assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
    assert_true(found);
    kv_cold_watch(b->kv, unit.cf, key_str(&unit.from), key_str(&unit.to));
    assert_int_equal(
        cold_offload(b->kv, &unit, &(struct cold_target){ b->o, 1024 }, &batch, &moved, &e), 0);
    assert_true(kv_cold_unchanged(b->kv));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
}

static void test_there_and_back(void **state)
{
    struct bed *b = *state;
    struct backup_shards shards;
    struct backup_done done;
    struct err e = { 0 };

    fill(b, 1, 4);
    done = backup(b, 1);
    assert_int_equal(done.uploaded, done.parts);
    restored_is_the_same(b, 1);
    offload_first(b);
    fill(b, 9, 1);
    done = backup(b, 2);
    assert_true(done.uploaded < done.parts); /* buckets that did not change are there already */
    restored_is_the_same(b, 2);
    assert_int_equal(backup_shards(b->o, &shards, &e), 0);
    assert_int_equal(shards.at.len, 1);
    assert_int_equal(shards.at.ptr[0], 3);
    assert_int_equal(shards.newest.len, 1);
    assert_int_equal(shards.newest.ptr[0], 2);
    backup_shards_deinit(&shards);
}

static int prove(void *cookie, struct manifest **ret, struct err *e)
{
    struct bed *b = cookie;

    (void)e;
    *ret = kv_cold_manifest(b->kv, NULL);
    return 0;
}

static int no_proof(void *cookie, struct manifest **ret, struct err *e)
{
    (void)cookie;
    (void)ret;
    return err_set(e, ERR_UNAVAILABLE, "another one leads");
}

static uint64_t sweep(struct bed *b, struct backup_sweep *s, size_t keep)
{
    struct backup_sweep_opts o = {
        .o = b->o, .shard = 3, .keep = keep, .prove = no_proof, .cookie = b
    };
    struct err e = { 0 };
    uint64_t n = 0;

    assert_int_equal(backup_sweep(s, &o, &n, &e), ERR_UNAVAILABLE); /* and nothing goes */
    assert_int_equal(n, 0);
    o.prove = prove;
    assert_int_equal(backup_sweep(s, &o, &n, &e), 0);
    return n;
}

static void test_sweep(void **state)
{
    struct bed *b = *state;
    struct backup_sweep *s = backup_sweep_new();
    struct kv_batch *batch = kv_batch_new();
    struct err e = { 0 };
    char from = 2, to = 3;

    fill(b, 1, 3);
    (void)backup(b, 1);
    offload_first(b);
    (void)backup(b, 2);
    assert_int_equal(sweep(b, s, 2), 0);
    assert_int_equal(sweep(b, s, 2), 0); /* both heads and all they name stay */
    kv_batch_del_range(batch, KV_COARSE, str_n(&from, 1), str_n(&to, 1));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    (void)backup(b, 3);
    assert_int_equal(sweep(b, s, 2), 1); /* head 1; its parts are named by head 2 */
    (void)backup(b, 4);
    assert_int_equal(sweep(b, s, 2), 1); /* head 2; parts are unnamed for the first time */
    restored_is_the_same(b, 4);
    assert_true(sweep(b, s, 2) >= 3);
    assert_int_equal(sweep(b, s, 2), 0);
    restored_is_the_same(b, 4);
    backup_sweep_free(s);
}

/* ---- places --------------------------------------------------------------------------------- */

struct placing {
    struct bed *b;
    const char *text; /* NULL: cannot be asked */
    bool sure;
};

static size_t heads(struct bed *b)
{
    struct backup_shards shards;
    struct err e = { 0 };
    size_t n;

    assert_int_equal(backup_shards(b->o, &shards, &e), 0);
    n = shards.at.len ? shards.newest.ptr[0] : 0;
    backup_shards_deinit(&shards);
    return n;
}

static int say_places(void *cookie, struct buf *text, bool *ret_sure, struct err *e)
{
    const struct placing *p = cookie;
    struct placing *own = cookie;

    if (!p->text)
        return err_set(e, ERR_UNAVAILABLE, "unknown");
    (void)buf_add_str(text, str_c(p->text));
    *ret_sure = p->sure;
    fill(own->b, 90, 1); /* not of the backup any more */
    return 0;
}

static int backup_with(struct bed *b, uint64_t number, const char *text, bool sure)
{
    struct placing p = { b, text, sure };
    struct cold_generation generation = { .now = 1024 };
    struct backup_opts o = { .kv = b->kv,
                             .o = b->o,
                             .shards = 4,
                             .number = number,
                             .generation = &generation,
                             .places = say_places,
                             .cookie = &p };
    struct backup_done done;
    struct err e = { 0 };

    return backup_write(&o, &done, &e);
}

static struct backup_places_all places_of(struct bed *b)
{
    struct backup_places_all all;
    struct err e = { 0 };

    assert_int_equal(backup_places_list(b->o, &all, &e), 0);
    return all;
}

static void test_places(void **state)
{
    struct bed *b = *state;
    struct backup_sweep *s = backup_sweep_new();
    struct backup_places_all all;
    struct err e = { 0 };
    struct buf text;

    fill(b, 1, 1);
    /* No head without them. */
    assert_int_equal(backup_with(b, 1, NULL, true), ERR_UNAVAILABLE);
    assert_int_equal(heads(b), 0);
    assert_int_equal(backup_with(b, 1, "one", true), 0);
    assert_int_equal(backup_with(b, 2, "two", false), 0);
    assert_int_equal(backup_with(b, 3, "two", true), 0);
    assert_int_equal(heads(b), 3);
    shell(b, "touch objects/places/00000003-0000000000000001 objects/places/x");
    shell(b, "cp objects/places/00000003-0000000000000001-* objects/places/"
             "00000002-0000000000000001-0123456789abcdef");
    all = places_of(b);
    assert_int_equal(all.at.len, 4);
    for (size_t i = 0; i < 4; i++) { /* shard 2, then by number */
        const struct backup_places *p = &all.at.ptr[i];

        assert_int_equal(p->shard, i ? 3 : 2);
        assert_int_equal(p->number, i ? i : 1);
        assert_int_equal(p->sure, i != 2);
        buf_init(&text, 100);
        (void)buf_add_str(&text, STR("="));
        assert_int_equal(backup_places_get(b->o, p, &text, &e), i ? 0 : ERR_CORRUPT);
        if (i)
            assert_true(str_eqc(buf_str(&text), i == 1 ? "=one" : "=two"));
        buf_deinit(&text);
    }
    backup_places_deinit(&all);
    /* They are deleted with their heads; those of a head on its way stay. */
    shell(b, "cp objects/places/00000003-0000000000000003-* objects/places/"
             "00000003-0000000000000004-0123456789abcdef");
    assert_int_equal(sweep(b, s, 2), 2);
    all = places_of(b);
    assert_int_equal(all.at.len, 4);
    for (size_t i = 1; i < all.at.len; i++)
        assert_int_equal(all.at.ptr[i].number, i + 1);
    backup_places_deinit(&all);
    shell(b, "rm objects/places/*");
    backup_sweep_free(s);
}

static void test_damage(void **state)
{
    struct bed *b = *state;
    struct backup_head head;
    struct kv *inner = kv_mem_new(NULL);
    struct err e = { 0 };
    uint64_t number;

    assert_int_equal(backup_newest(b->o, 3, &number, &head, &e), ERR_NOT_FOUND);
    fill(b, 1, 2);
    (void)backup(b, 1);
    (void)backup(b, 2);
    shell(b, "f=objects/shard-00000003/head-0000000000000002; sed -i 's/time 17/time 18/' $f");
    restored_is_the_same(b, 1); /* the one before is whole */
    shell(b, "truncate -s -1 $(find objects -path '*coarse*' -type f | head -1)");
    assert_int_equal(backup_newest(b->o, 3, &number, &head, &e), 0);
    assert_int_equal(backup_restore(b->o, &head, inner, NULL, NULL, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "shard-00000003/coarse/"));
    backup_head_deinit(&head);
    kv_close(inner);
}

static void test_heads(void **state)
{
    static const char *const bad[] = { "",
                                       "embertree head 2\n",
                                       "embertree head 1\nshard 4 of 4\ntime 1\n",
                                       "embertree head 1\nshard 1 of 4\ntime x\n",
                                       "embertree head 1\nshard 1 of 4\ntime 1\nhere x y 1 1\n",
                                       "embertree head 1\nshard 1 of 4\ntime 1\n",
                                       ("embertree head 1\nshard 1 of 4\ntime 1\n"
                                        "end 0000000000000000\n") };
    struct backup_head h;
    struct err e = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(backup_head_read(str_c(bad[i]), &h, &e), ERR_CORRUPT);
}

static void test_due(void **state)
{
    (void)state;
    assert_true(backup_due(0, 1700000000000, 3600000)); /* no backup so far */
    assert_false(backup_due(1700000000000, 1700000000000, 3600000));
    assert_false(backup_due(1700000000000, 1700003599999, 3600000));
    assert_true(backup_due(1700000000000, 1700003600000, 3600000));
    /* A leader whose clock was ahead wrote it: others do not wait until it is that late. */
    assert_true(backup_due(1700000000001, 1700000000000, 3600000));
    assert_true(backup_due(1800000000000, 1700000000000, 3600000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sweep, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_due),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
