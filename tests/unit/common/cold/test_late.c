/* SPDX-License-Identifier: Apache-2.0
 *
 * Deletions that come late: a leader sweeps, is stopped before its deletions are done, and another
 * one leads, moves the same rows and backs them up, before they happen. Nothing that counts may be
 * missing then: every row can be read, the newest backup can be restored. At random, with the same
 * rows coming back again and again; and mutants: one whose leaders take no generation of their own,
 * and one whose leaders treat all existing parts as theirs, which must both be caught.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cold/backup.h"
#include "common/cold/offload.h"
#include "common/object/object_impl.h"
#include "common/store/kv/kv_mem.h"

#define SHARD   3
#define BUCKETS 3
#define ROWS    6
#define VALUE   (200 * KIB)
#define KEEP    2

/* Deletions and heads stop on their way when `holds`. */
struct late {
    bool head; /* else a deletion */
    char name[OBJECT_NAME_MAX + 1];
    struct str text; /* owned */
};
struct slow {
    struct object_store store;
    struct object_store *o; /* owned */
    bool holds;
    VEC(struct late) late;
};
struct bed {
    char dir[64];
    struct cold_cache *cache;
    struct slow slow;
    struct kv *kv, *model;
    struct backup_sweep *sweep;
    struct cold_generation generation; /* of the leader */
    uint64_t head;
    struct prng p;
    bool no_generation; /* mutant */
};

static struct slow *slow_of(struct object_store *o)
{
    return container_of(o, struct slow, store);
}

static int slow_put(struct object_store *o, struct str name, struct str data, struct err *e)
{
    struct slow *s = slow_of(o);
    struct late l = { .head = true };

    if (!s->holds || !str_contains(name, STR("/head-")))
        return object_put(s->o, name, data, e);
    memcpy(l.name, name.ptr, name.len);
    l.text = str_n(xmemdup(data.ptr, data.len), data.len);
    vec_push(&s->late, l);
    return 0;
}

static int slow_read(struct object_store *o, struct str name, uint64_t from, size_t len,
                     struct buf *out, struct err *e)
{
    return object_read(slow_of(o)->o, name, from, len, out, e);
}

static int slow_size(struct object_store *o, struct str name, uint64_t *ret, struct err *e)
{
    return object_size(slow_of(o)->o, name, ret, e);
}

static int slow_list(struct object_store *o, struct str prefix, struct str after,
                     bool (*fn)(void *cookie, struct str name, uint64_t size), void *cookie,
                     struct err *e)
{
    return object_list(slow_of(o)->o, prefix, after, fn, cookie, e);
}

static int slow_delete(struct object_store *o, struct str name, struct err *e)
{
    struct slow *s = slow_of(o);
    struct late l = { .head = false };

    if (!s->holds)
        return object_delete(s->o, name, e);
    memcpy(l.name, name.ptr, name.len);
    vec_push(&s->late, l);
    return 0;
}

static void slow_close(struct object_store *o)
{
    struct slow *s = slow_of(o);

    vec_for (i, &s->late)
        xfree((void *)(uintptr_t)s->late.ptr[i].text.ptr);
    vec_free(&s->late);
    object_close(s->o);
}

/* What was stopped happens now. */
static void come(struct slow *s)
{
    struct err e = { 0 };

    s->holds = false;
    vec_for (i, &s->late) {
        struct late *l = &s->late.ptr[i];
        /* Without generations another one may have given a head that number. */
        int rc = l->head ? object_put(s->o, str_c(l->name), l->text, &e)
                         : object_delete(s->o, str_c(l->name), &e);
        assert_true(rc == 0 || (l->head && rc == ERR_CONFLICT));
        xfree((void *)(uintptr_t)l->text.ptr);
    }
    s->late.len = 0;
}

static int open_dir(void *cookie, struct object_store **ret, struct err *e)
{
    struct bed *b = cookie;
    char dir[96];

    (void)snprintf(dir, sizeof(dir), "%s/objects", b->dir);
    return object_dir_open(dir, ret, e);
}

static void shell(const struct bed *b, const char *command)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "cd %s && %s", b->dir, command);
    assert_int_equal(system(text), 0);
}

static void bed_open(struct bed *b, uint64_t seed)
{
    static const struct object_ops ops = { slow_put,  slow_read,   slow_size,
                                           slow_list, slow_delete, slow_close };
    struct cold_cache_opts co = { .bytes_max = 4 * KIB, .open = open_dir, .cookie = b };
    struct kv_cold_opts ko = { .shard = SHARD };
    struct err e = { 0 };
    char dir[96];

    *b = (struct bed){ .slow = { .store = { .ops = &ops } } };
    prng_init(&b->p, seed);
    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-late-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(dir, sizeof(dir), "%s/cache", b->dir);
    co.dir = dir;
    assert_int_equal(open_dir(b, &b->slow.o, &e), 0);
    assert_int_equal(cold_cache_new(&co, &b->cache, &e), 0);
    ko.cache = b->cache;
    ko.inner = kv_mem_new(NULL);
    assert_int_equal(kv_cold_open(&ko, &b->kv, &e), 0);
    b->model = kv_mem_new(NULL);
    b->sweep = backup_sweep_new();
}

static void bed_close(struct bed *b)
{
    kv_close(b->kv);
    kv_close(b->model);
    cold_cache_free(b->cache);
    object_close(&b->slow.store);
    backup_sweep_free(b->sweep);
    shell(b, "rm -rf objects cache");
    shell(b, "rmdir $PWD");
}

static void write_both(struct bed *b, const struct kv_batch *batch)
{
    struct err e = { 0 };

    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    assert_int_equal(kv_write(b->model, batch, true, &e), 0);
}

/* The same rows every time, so that the same objects come again. */
static void fill(struct bed *b, uint32_t bucket)
{
    struct kv_batch *batch = kv_batch_new();
    char *value = xmalloc(VALUE);
    struct prng p;

    prng_init(&p, bucket);
    for (uint32_t i = 0; i < ROWS; i++) {
        char key[9] = { 2 };
        put_u32be(key + 1, bucket);
        put_u32be(key + 5, i);
        for (size_t k = 0; k + 8 <= VALUE; k += 8)
            put_u64be(value + k, prng_u64(&p));
        kv_batch_put(batch, KV_COARSE, str_n(key, 9), str_n(value, VALUE));
    }
    write_both(b, batch);
    kv_batch_free(batch);
    xfree(value);
}

static void drop(struct bed *b, uint32_t bucket)
{
    struct kv_batch *batch = kv_batch_new();
    char from[5] = { 2 }, to[5] = { 2 };

    put_u32be(from + 1, bucket);
    put_u32be(to + 1, bucket + 1);
    kv_batch_del_range(batch, KV_COARSE, str_n(from, 5), str_n(to, 5));
    write_both(b, batch);
    kv_batch_free(batch);
}

/* Another process leads, or this one restarted: it takes a generation, as ingester/tier/tier.c
 * does. */
static void lead(struct bed *b)
{
    struct kv_batch *batch = kv_batch_new();
    struct err e = { 0 };

    assert_int_equal(cold_generation_read(b->kv, &b->generation, &e), 0);
    if (!b->no_generation || !b->generation.now)
        cold_generation_next(&b->generation, 0);
    cold_generation_put(&b->generation, batch);
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    backup_sweep_free(b->sweep);
    b->sweep = backup_sweep_new();
}

static void offload(struct bed *b)
{
    struct cold_unit unit = { .cf = KV_RAW };
    struct kv_batch *batch;
    struct cold_moved moved;
    struct err e = { 0 };
    bool found;

    assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
    if (!found)
        return;
    kv_cold_watch(b->kv, unit.cf, key_str(&unit.from), key_str(&unit.to));
    assert_int_equal(cold_offload(b->kv, &unit,
                                  &(struct cold_target){ &b->slow.store, b->generation.now },
                                  &batch, &moved, &e),
                     0);
    assert_true(kv_cold_unchanged(b->kv));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
}

static void backup(struct bed *b)
{
    struct backup_head before = { 0 };
    struct backup_opts o = { .kv = b->kv,
                             .o = &b->slow.store,
                             .shards = 4,
                             .wall_ms = 1700000000000,
                             .generation = &b->generation,
                             .before = &before };
    struct backup_done done;
    struct err e = { 0 };
    uint64_t last = 0;
    int rc = backup_newest(&b->slow.store, SHARD, &last, &before, &e);

    assert_true(rc == 0 || rc == ERR_NOT_FOUND);
    assert_int_equal(cold_generation_head(&b->generation, last, &o.number, &e), 0);
    assert_int_equal(backup_write(&o, &done, &e), 0);
    backup_head_deinit(&before);
}

static int prove(void *cookie, struct manifest **ret, struct err *e)
{
    struct bed *b = cookie;

    (void)e;
    *ret = kv_cold_manifest(b->kv, NULL);
    return 0;
}

static void sweep(struct bed *b)
{
    struct backup_sweep_opts o = {
        .o = &b->slow.store, .shard = SHARD, .keep = KEEP, .prove = prove, .cookie = b
    };
    struct err e = { 0 };
    uint64_t n;
    int rc;

    o.generation = b->generation.now;
    rc = backup_sweep(b->sweep, &o, &n, &e);
    assert_true(rc == 0 || rc == ERR_CONFLICT); /* no head of this generation yet */
}

static bool readable(struct bed *b)
{
    struct kv_iter *x = kv_iter_new(b->kv, NULL, KV_COARSE, STR_NULL, STR_NULL);
    struct kv_iter *y = kv_iter_new(b->model, NULL, KV_COARSE, STR_NULL, STR_NULL);
    bool same = true;
    struct err e = { 0 };

    while (same && kv_iter_valid(x) && kv_iter_valid(y)) {
        same = str_eq(kv_iter_key(x), kv_iter_key(y)) && str_eq(kv_iter_value(x), kv_iter_value(y));
        kv_iter_next(x);
        kv_iter_next(y);
    }
    same = same && !kv_iter_valid(x) && !kv_iter_valid(y) && kv_iter_status(x, &e) == 0;
    kv_iter_free(x);
    kv_iter_free(y);
    return same;
}

/* The newest backup: of some moment, and whole. */
static bool restorable(struct bed *b)
{
    struct backup_head head;
    struct err e = { 0 };
    uint64_t number;
    bool whole = true;

    if (backup_newest(b->slow.o, SHARD, &number, &head, &e))
        return e.code == ERR_NOT_FOUND;
    vec_for (i, &head.parts) {
        char name[OBJECT_NAME_MAX + 1];
        uint64_t size;
        manifest_part_name(SHARD, head.parts.ptr[i].cf, head.parts.ptr[i].hash, name);
        whole = whole && object_size(b->slow.o, str_c(name), &size, &e) == 0 &&
                size == head.parts.ptr[i].size;
    }
    backup_head_deinit(&head);
    return whole;
}

static void step(struct bed *b)
{
    uint32_t bucket = (uint32_t)prng_below(&b->p, BUCKETS);

    switch (prng_below(&b->p, 8)) {
    case 0:
    case 1:
        fill(b, bucket);
        break;
    case 2:
        drop(b, bucket);
        break;
    case 3:
    case 4:
        offload(b);
        break;
    case 5:
        backup(b);
        break;
    default:
        if (prng_chance(&b->p, 0.7))
            backup(b);
        sweep(b);
    }
}

/* True: all was well to the end. */
static bool run(uint64_t seed, bool no_generation)
{
    struct bed b;
    bool well = true;

    bed_open(&b, seed);
    b.no_generation = no_generation;
    lead(&b);
    for (size_t i = 0; well && i < 60; i++) {
        /* Stopped in a backup or a sweep: another one leads, a while later it wakes. */
        bool stops = prng_chance(&b.p, 0.15) && !b.slow.late.len;

        b.slow.holds = stops;
        if (stops && prng_chance(&b.p, 0.3))
            backup(&b);
        else if (stops)
            sweep(&b);
        else
            step(&b);
        b.slow.holds = false;
        if (stops)
            lead(&b);
        else if (b.slow.late.len && prng_chance(&b.p, 0.15))
            come(&b.slow);
        well = readable(&b) && restorable(&b);
    }
    bed_close(&b);
    return well;
}

static void test_at_random(void **state)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < 15; i++)
        if (!run(seed + i, false))
            fail_msg("lost something: SEED=%" PRIu64, seed + i);
}

static void test_mutant_without_generations(void **state)
{
    size_t caught = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 40 && !caught; seed++)
        caught += !run(seed, true);
    assert_true(caught > 0);
}

/* The sequence of the original bug: the rows that were swept come back, move again, and the sleeper
 * wakes. */
static bool story(bool no_generation)
{
    struct bed b;
    bool well;

    bed_open(&b, 1);
    b.no_generation = no_generation;
    lead(&b);
    fill(&b, 1);
    offload(&b);
    drop(&b, 1);
    for (size_t i = 0; i < KEEP; i++)
        backup(&b);
    sweep(&b);           /* the part is unnamed for the first time */
    b.slow.holds = true; /* for the second time, and then the process stops */
    sweep(&b);
    b.slow.holds = false;
    assert_true(b.slow.late.len > 0);
    lead(&b);
    fill(&b, 1);
    offload(&b);
    assert_true(readable(&b));
    come(&b.slow);
    well = readable(&b);
    bed_close(&b);
    return well;
}

static void test_the_sleeper(void **state)
{
    (void)state;
    assert_true(story(false));
    assert_false(story(true));
}

static void test_generations(void **state)
{
    struct kv *kv = kv_mem_new(NULL);
    struct kv_batch *batch = kv_batch_new();
    struct cold_generation g, again;
    struct err e = { 0 };
    uint64_t number;

    (void)state;
    assert_int_equal(cold_generation_read(kv, &g, &e), 0);
    assert_int_equal(g.now, 0);
    cold_generation_next(&g, 0);
    assert_int_equal(g.now, GENERATION_FIRST);
    assert_int_equal(g.earlier_len, 0);
    for (uint32_t i = 1; i < 40; i++) {
        cold_generation_next(&g, 0);
        assert_int_equal(g.now, GENERATION_FIRST + i);
        assert_int_equal(g.earlier[0], g.now - 1);
        assert_int_equal(g.earlier_len, MIN(i, GENERATION_EARLIER));
    }
    cold_generation_next(&g, 5000);
    assert_int_equal(g.now, 5001);
    cold_generation_put(&g, batch);
    assert_int_equal(kv_write(kv, batch, true, &e), 0);
    assert_int_equal(cold_generation_read(kv, &again, &e), 0);
    assert_memory_equal(&g, &again, sizeof(g));
    /* Heads are in order of generations, those by milliseconds of earlier versions before all. */
    assert_int_equal(cold_generation_head(&g, 1800000000000, &number, &e), 0);
    assert_int_equal(number, (uint64_t)5001 << 32);
    assert_int_equal(cold_generation_head(&g, number, &number, &e), 0);
    assert_int_equal(number, ((uint64_t)5001 << 32) + 1);
    assert_int_equal(cold_generation_head(&g, (uint64_t)5002 << 32, &number, &e), ERR_CONFLICT);
    kv_batch_clear(batch);
    kv_batch_put(batch, KV_META, STR("\x7a"), STR("\x01"));
    assert_int_equal(kv_write(kv, batch, true, &e), 0);
    assert_int_equal(cold_generation_read(kv, &again, &e), ERR_CORRUPT);
    kv_batch_free(batch);
    kv_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_the_sleeper),
        cmocka_unit_test(test_at_random),
        cmocka_unit_test(test_mutant_without_generations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
