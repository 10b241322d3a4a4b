/* SPDX-License-Identifier: Apache-2.0
 *
 * A kv with parts against a map: random puts, deletions, range deletions, offloads of ranges (also
 * again, also of ranges with late rows), snapshots, restarts, a cache that holds next to nothing,
 * damaged cache files and objects that are gone.
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
#include "common/cold/offload.h"
#include "common/object/object_impl.h"
#include "common/store/kv/kv_impl.h"
#include "common/store/kv/kv_mem.h"

#define KEYS  400
#define CF    KV_COARSE
#define SHARD 7

static const struct object_ops *plain;
static bool ending;

struct model {
    int value[KEYS]; /* 0: none */
};
struct bed {
    char dir[64];
    struct cold_cache *cache;
    struct object_store *o;
    struct kv *kv;
    struct prng rng;
    struct model now;
    int next_value;
    uint64_t offloads, from_parts;
};

static uint64_t seed_of(void)
{
    const char *s = getenv("SEED");

    return s ? strtoull(s, NULL, 10) : (uint64_t)time(NULL) * 1000 + (uint64_t)(clock() % 1000);
}

/* The object store of a process that has to end. */
static int read_or_end(struct object_store *o, struct str name, uint64_t from, size_t len,
                       struct buf *out, struct err *e)
{
    return ending ? err_set(e, ERR_CANCELED, "canceled") : plain->read(o, name, from, len, out, e);
}

static int open_dir(void *cookie, struct object_store **ret, struct err *e)
{
    static struct object_ops ops;
    struct bed *b = cookie;
    char dir[96];

    (void)snprintf(dir, sizeof(dir), "%s/objects", b->dir);
    if (object_dir_open(dir, ret, e))
        return e->code;
    plain = (*ret)->ops;
    ops = *plain;
    ops.read = read_or_end;
    (*ret)->ops = &ops;
    return 0;
}

static void open_cache(struct bed *b)
{
    char dir[96];
    struct cold_cache_opts o = { .bytes_max = 2000, .open = open_dir, .cookie = b };
    struct err e = { 0 };

    (void)snprintf(dir, sizeof(dir), "%s/cache", b->dir);
    o.dir = dir;
    assert_int_equal(cold_cache_new(&o, &b->cache, &e), 0);
}

static void open_kv(struct bed *b, struct kv *inner)
{
    struct kv_cold_opts o = {
        .inner = inner, .cache = b->cache, .shard = SHARD, .index_bytes_max = 3000
    };
    struct err e = { 0 };

    assert_int_equal(kv_cold_open(&o, &b->kv, &e), 0);
}

static int setup(void **state)
{
    struct bed *b = XNEW(struct bed);
    struct err e = { 0 };

    (void)snprintf(b->dir, sizeof(b->dir), "/tmp/embertree-cold-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    assert_int_equal(open_dir(b, &b->o, &e), 0);
    open_cache(b);
    open_kv(b, kv_mem_new(NULL));
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bed *b = *state;
    char command[128];

    kv_close(b->kv);
    cold_cache_free(b->cache);
    object_close(b->o);
    (void)snprintf(command, sizeof(command), "rm -rf %s", b->dir);
    assert_int_equal(system(command), 0);
    xfree(b);
    return 0;
}

/* Keys of three levels and some buckets, so that units are found as in a real shard. */
static struct key key_of(size_t i)
{
    struct key k = { 0 };

    k.b[0] = (char)(i / 160);
    put_u32be(k.b + 1, (uint32_t)(i / 20));
    put_u32be(k.b + 5, (uint32_t)i);
    k.len = 9 + i % 3;
    return k;
}

static struct str value_of(int value, char room[200])
{
    int n = snprintf(room, 200, "%d:%0*d", value, value % 150, value);

    return str_n(room, (size_t)n);
}

static void check_all(struct bed *b, const struct kv_snap *snap, const struct model *m)
{
    struct err e = { 0 };
    struct kv_iter *it = kv_iter_new(b->kv, snap, CF, STR_NULL, STR_NULL);
    char room[200];
    struct buf out;

    buf_init(&out, KIB);
    for (size_t i = 0; i < KEYS; i++) {
        struct key k = key_of(i);
        int rc = kv_get(b->kv, snap, CF, key_str(&k), &out, &e);

        assert_int_equal(rc, m->value[i] ? 0 : ERR_NOT_FOUND);
        if (!m->value[i])
            continue;
        assert_true(str_eq(buf_str(&out), value_of(m->value[i], room)));
        assert_true(kv_iter_valid(it));
        assert_true(str_eq(kv_iter_key(it), key_str(&k)));
        assert_true(str_eq(kv_iter_value(it), value_of(m->value[i], room)));
        kv_iter_next(it);
    }
    assert_false(kv_iter_valid(it));
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
    buf_deinit(&out);
}

/* A few seeks inside random bounds. */
static void check_seeks(struct bed *b, const struct kv_snap *snap, const struct model *m)
{
    size_t low = prng_below(&b->rng, KEYS), high = low + prng_below(&b->rng, KEYS - low + 1);
    struct key from = key_of(low), to = key_of(high);
    struct kv_iter *it =
        kv_iter_new(b->kv, snap, CF, key_str(&from), high < KEYS ? key_str(&to) : STR_NULL);
    struct err e = { 0 };

    for (int n = 0; n < 8; n++) {
        size_t i = prng_below(&b->rng, KEYS);
        struct key k = key_of(i);
        char room[200];

        kv_iter_seek(it, key_str(&k));
        for (int steps = 0; steps < 5; steps++) {
            for (i = MAX(i, low); i < high && !m->value[i];)
                i++;
            assert_int_equal(kv_iter_valid(it), i < high);
            if (i >= high)
                break;
            k = key_of(i);
            assert_true(str_eq(kv_iter_key(it), key_str(&k)));
            assert_true(str_eq(kv_iter_value(it), value_of(m->value[i], room)));
            kv_iter_next(it);
            i++;
        }
    }
    assert_int_equal(kv_iter_status(it, &e), 0);
    kv_iter_free(it);
}

static void write_some(struct bed *b)
{
    struct kv_batch *batch = kv_batch_new();
    struct err e = { 0 };
    char room[200];

    for (uint64_t n = 1 + prng_below(&b->rng, 12); n; n--) {
        size_t i = prng_below(&b->rng, KEYS), far = i + prng_below(&b->rng, 60);
        size_t j = MIN(far, (size_t)KEYS);
        struct key k = key_of(i), to = key_of(j);

        switch (prng_below(&b->rng, 10)) {
        case 0:
            kv_batch_del_range(batch, CF, key_str(&k), key_str(&to));
            for (; i < j; i++)
                b->now.value[i] = 0;
            break;
        case 1:
        case 2:
        case 3:
            kv_batch_del(batch, CF, key_str(&k));
            b->now.value[i] = 0;
            break;
        default:
            b->now.value[i] = ++b->next_value;
            kv_batch_put(batch, CF, key_str(&k), value_of(b->now.value[i], room));
        }
    }
    assert_int_equal(kv_write(b->kv, batch, prng_chance(&b->rng, 0.3), &e), 0);
    kv_batch_free(batch);
}

/* A unit leaves; sometimes something is written to it meanwhile, and it must stay. */
static void offload(struct bed *b)
{
    size_t i = prng_below(&b->rng, KEYS);
    struct key k = key_of(i);
    struct cold_unit unit = { .cf = CF };
    struct cold_moved moved;
    struct kv_batch *batch;
    struct err e = { 0 };

    memcpy(unit.from.b, k.b, 5);
    unit.from.len = 5;
    unit.to = unit.from;
    key_end(&unit.to);
    kv_cold_watch(b->kv, CF, key_str(&unit.from), key_str(&unit.to));
    assert_int_equal(
        cold_offload(b->kv, &unit, &(struct cold_target){ b->o, 0 }, &batch, &moved, &e), 0);
    bool touched = prng_chance(&b->rng, 0.2);
    if (touched) {
        struct kv_batch *other = kv_batch_new();
        kv_batch_del(other, CF, key_str(&k));
        b->now.value[i] = 0;
        assert_int_equal(kv_write(b->kv, other, true, &e), 0);
        kv_batch_free(other);
    }
    bool same = kv_cold_unchanged(b->kv);
    assert_int_equal(same, !touched);
    if (same) {
        assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
        struct kv_iter *it =
            kv_iter_new(kv_cold_inner(b->kv), NULL, CF, key_str(&unit.from), key_str(&unit.to));
        assert_false(kv_iter_valid(it)); /* nothing of it is here */
        kv_iter_free(it);
        b->offloads++;
        b->from_parts += moved.rows;
    }
    kv_batch_free(batch);
}

static void restart(struct bed *b)
{
    struct kv *inner = kv_cold_inner(b->kv);
    /* kv_close would take the inner one along: its rows are what a restart finds. */
    struct kv *fresh = kv_mem_new(NULL);
    struct kv_batch *all = kv_batch_new();
    struct err e = { 0 };

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(inner, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it))
            kv_batch_put(all, (enum kv_cf)cf, kv_iter_key(it), kv_iter_value(it));
        kv_iter_free(it);
    }
    assert_int_equal(kv_write(fresh, all, true, &e), 0);
    kv_batch_free(all);
    kv_close(b->kv);
    cold_cache_free(b->cache);
    open_cache(b);
    open_kv(b, fresh);
}

static void test_against_a_map(void **state)
{
    struct bed *b = *state;
    uint64_t seed = seed_of();
    struct kv_snap *snap = NULL;
    struct model then = { { 0 } };

    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&b->rng, seed);
    for (int step = 0; step < 600; step++) {
        uint64_t what = prng_below(&b->rng, 100);

        if (what < 60)
            write_some(b);
        else if (what < 85)
            offload(b);
        else if (what < 88 && !snap) {
            snap = kv_snap_new(b->kv);
            then = b->now;
        } else if (what < 90 && snap) {
            check_all(b, snap, &then);
            kv_snap_free(b->kv, snap);
            snap = NULL;
        } else if (what < 92 && !snap)
            restart(b);
        else if (what < 97)
            check_seeks(b, snap && what < 95 ? snap : NULL, snap && what < 95 ? &then : &b->now);
        else
            check_all(b, NULL, &b->now);
    }
    check_all(b, NULL, &b->now);
    kv_snap_free(b->kv, snap);
    print_message("%" PRIu64 " offloads, %" PRIu64 " rows\n", b->offloads, b->from_parts);
    assert_true(b->offloads > 50 && b->from_parts > 200);
}

static void fill(struct bed *b)
{
    for (int i = 0; i < 100; i++)
        write_some(b);
}

static void move_all(struct bed *b)
{
    struct cold_unit unit = { .cf = KV_RAW };
    struct cold_moved moved;
    struct err e = { 0 };
    bool found = true;

    for (;;) {
        struct kv_batch *batch;
        assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
        if (!found)
            return;
        assert_int_equal(
            cold_offload(b->kv, &unit, &(struct cold_target){ b->o, 0 }, &batch, &moved, &e), 0);
        kv_cold_watch(b->kv, CF, STR("x"), STR("y"));
        assert_true(kv_cold_unchanged(b->kv));
        assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
        kv_batch_free(batch);
    }
}

/* A write that takes as long as a slow quorum: the offload begins while it is under way, and reads
 * the rows without it. */
static struct {
    struct bed *b;
    const struct kv_ops *ops;
    struct cold_unit unit;
    struct kv_batch *moved;
    bool done;
} slow;

static int slow_write(struct kv *inner, const struct kv_batch *batch, bool sync, struct err *e)
{
    if (!slow.done) {
        struct cold_moved moved;
        struct err why = { 0 };

        slow.done = true;
        kv_cold_watch(slow.b->kv, CF, key_str(&slow.unit.from), key_str(&slow.unit.to));
        assert_int_equal(cold_offload(slow.b->kv, &slow.unit, &(struct cold_target){ slow.b->o, 0 },
                                      &slow.moved, &moved, &why),
                         0);
        assert_true(moved.rows > 0);
    }
    return slow.ops->write(inner, batch, sync, e);
}

static void a_write_under_way(struct bed *b, uint64_t i, bool inside)
{
    struct kv *inner = kv_cold_inner(b->kv);
    struct key k = key_of(i), written = inside ? k : key_of(i + 320);
    struct kv_batch *batch = kv_batch_new();
    struct kv_ops with = *inner->ops;
    struct err e = { 0 };

    slow.b = b;
    slow.ops = inner->ops;
    slow.unit = (struct cold_unit){ .cf = CF };
    slow.done = false;
    memcpy(slow.unit.from.b, k.b, 5);
    slow.unit.from.len = 5;
    slow.unit.to = slow.unit.from;
    key_end(&slow.unit.to);
    kv_batch_put(batch, CF, key_str(&k), STR("before"));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    with.write = slow_write;
    inner->ops = &with;
    batch = kv_batch_new();
    kv_batch_put(batch, CF, key_str(&written), STR("acked"));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    inner->ops = slow.ops;
    assert_int_equal(kv_cold_unchanged(b->kv), !inside); /* else what was acked would be dropped */
    kv_batch_free(slow.moved);
}

/* Readers come while a batch that changes which rows are remote is on its way, before it is in the
 * database and after: they do not wait for it, and see one of the two states. */
static struct {
    struct bed *b;
    const struct kv_ops *ops;
    struct model before, after;
    size_t writes;
} during;

static void look(const struct model *m)
{
    struct kv_snap *snap = kv_snap_new(during.b->kv);

    check_all(during.b, snap, m);
    kv_snap_free(during.b->kv, snap);
}

static int write_while_read(struct kv *inner, const struct kv_batch *batch, bool sync,
                            struct err *e)
{
    int rc;

    during.writes++;
    look(&during.before);
    rc = during.ops->write(inner, batch, sync, e);
    look(&during.after);
    return rc;
}

static void test_reads_while_it_changes(void **state)
{
    struct bed *b = *state;
    struct kv *inner = kv_cold_inner(b->kv);
    struct kv_ops with = *inner->ops;
    struct kv_batch *batch = kv_batch_new();
    struct err e = { 0 };

    prng_init(&b->rng, 3);
    fill(b);
    during.b = b;
    during.ops = inner->ops;
    during.before = during.after = b->now;
    during.writes = 0;
    with.write = write_while_read;
    inner->ops = &with;
    move_all(b);
    assert_true(during.writes > 3);
    struct key from = key_of(0), to = key_of(KEYS / 2); /* a rest of most parts, all of some */
    kv_batch_del_range(batch, CF, key_str(&from), key_str(&to));
    for (size_t i = 0; i < KEYS; i++) {
        struct key k = key_of(i);
        if (str_cmp(key_str(&k), key_str(&from)) >= 0 && str_cmp(key_str(&k), key_str(&to)) < 0)
            during.after.value[i] = 0;
    }
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    inner->ops = during.ops;
    check_all(b, NULL, &during.after);
}

static void test_writes_under_way(void **state)
{
    struct bed *b = *state;

    a_write_under_way(b, 7, true); /* nothing was ever cold */
    a_write_under_way(b, 7, true);
    a_write_under_way(b, 7, false);
}

/* The write of a leader that is replaced fails, though it may be committed: a reader on that leader
 * still reads all rows, wherever they are. */
static int counts_and_fails(struct kv *inner, const struct kv_batch *batch, bool sync,
                            struct err *e)
{
    assert_int_equal(during.ops->write(inner, batch, sync, e), 0);
    return err_set(e, ERR_UNAVAILABLE, "leads no more");
}

static void test_failed_write_counts(void **state)
{
    struct bed *b = *state;
    struct kv *inner = kv_cold_inner(b->kv);
    struct kv_ops with = *inner->ops;
    struct cold_unit unit = { .cf = KV_RAW };
    struct cold_moved moved;
    struct kv_batch *batch;
    struct err e = { 0 };
    bool found = false;

    prng_init(&b->rng, 4);
    fill(b);
    struct kv_snap *old = kv_snap_new(b->kv);
    assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
    assert_true(found);
    kv_cold_watch(b->kv, CF, STR("x"), STR("y"));
    assert_int_equal(
        cold_offload(b->kv, &unit, &(struct cold_target){ b->o, 0 }, &batch, &moved, &e), 0);
    assert_true(moved.rows > 0);
    during.ops = inner->ops;
    with.write = counts_and_fails;
    inner->ops = &with;
    assert_int_equal(kv_write(b->kv, batch, true, &e), ERR_UNAVAILABLE);
    inner->ops = during.ops;
    kv_batch_free(batch);
    check_all(b, old, &b->now);
    struct kv_snap *snap = kv_snap_new(b->kv);
    check_all(b, snap, &b->now);
    kv_snap_free(b->kv, snap);
    kv_snap_free(b->kv, old);
}

static void test_units(void **state)
{
    struct bed *b = *state;
    struct cold_unit unit = { .cf = KV_RAW };
    struct err e = { 0 };
    bool found;

    prng_init(&b->rng, 1);
    fill(b);
    assert_int_equal(cold_unit_next(b->kv, 0, &unit, &found, &e), 0);
    assert_false(found);
    move_all(b);
    unit.cf = KV_RAW;
    assert_int_equal(cold_unit_next(b->kv, UINT32_MAX, &unit, &found, &e), 0);
    assert_false(found); /* nothing is here any more */
    check_all(b, NULL, &b->now);
    /* A bucket that ends after the slot stays. */
    struct kv_batch *batch = kv_batch_new();
    struct key k = key_of(399); /* level 2, bucket 19 */
    kv_batch_put(batch, CF, key_str(&k), STR("late"));
    assert_int_equal(kv_write(b->kv, batch, true, &e), 0);
    kv_batch_free(batch);
    assert_int_equal(cold_unit_next(b->kv, 20 * LEVELS[2].bucket - 1, &unit, &found, &e), 0);
    assert_false(found);
    assert_int_equal(cold_unit_next(b->kv, 20 * LEVELS[2].bucket, &unit, &found, &e), 0);
    assert_true(found && unit.cf == CF && unit.from.len == 5);
}

static size_t count_rows(struct bed *b, int *ret_status)
{
    struct kv_iter *it = kv_iter_new(b->kv, NULL, CF, STR_NULL, STR_NULL);
    struct err e = { 0 };
    size_t n = 0;

    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    *ret_status = kv_iter_status(it, &e);
    if (*ret_status)
        assert_non_null(strstr(e.text, "shard-00000007/coarse/"));
    kv_iter_free(it);
    return n;
}

static void shell(const struct bed *b, const char *command)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "cd %s && %s", b->dir, command);
    assert_int_equal(system(text), 0);
}

static void test_damage(void **state)
{
    struct bed *b = *state;
    struct err e = { 0 };
    struct buf out;
    int status;

    prng_init(&b->rng, 2);
    fill(b);
    move_all(b);
    size_t all = count_rows(b, &status);
    assert_int_equal(status, 0);
    /* Files of the cache that a crash tore are fetched again. */
    shell(b,
          "for f in cache/*; do printf X | dd of=$f bs=1 seek=20 conv=notrunc status=none; done");
    assert_int_equal(count_rows(b, &status), all);
    assert_int_equal(status, 0);
    /* A part that is damaged or gone is an error that names it, never fewer rows. */
    shell(b, "f=$(find objects -type f | head -1); printf XXXX | dd of=$f bs=1 seek=10 "
             "conv=notrunc status=none; rm -f cache/*");
    (void)count_rows(b, &status);
    assert_int_equal(status, ERR_CORRUPT);
    shell(b, "rm -rf objects/* cache/*");
    (void)count_rows(b, &status);
    assert_int_equal(status, ERR_CORRUPT);
    buf_init(&out, KIB);
    size_t i = 0;
    while (!b->now.value[i])
        i++;
    struct key k = key_of(i);
    status = kv_get(b->kv, NULL, CF, key_str(&k), &out, &e);
    assert_int_equal(status, ERR_CORRUPT);
    assert_non_null(strstr(e.text, "cold tier"));
    buf_deinit(&out);
}

/* A caller of a process that ends does not get ERR_CANCELED, as if it had canceled itself. */
static void test_ending(void **state)
{
    struct bed *b = *state;
    int status;

    prng_init(&b->rng, 2);
    fill(b);
    move_all(b);
    shell(b, "rm -f cache/*");
    ending = true;
    (void)count_rows(b, &status);
    ending = false;
    assert_int_equal(status, ERR_UNAVAILABLE);
}

static void test_without_a_cache(void **state)
{
    struct bed *b = *state;
    struct kv_cold_opts o = { .shard = SHARD };
    struct kv_batch *batch = kv_batch_new();
    struct part_info info = { .size = 100, .rows = 1, .first = STR("a"), .last = STR("b") };
    struct buf key, value;
    struct err e = { 0 };
    struct kv *kv;

    (void)b;
    buf_init(&key, KIB);
    buf_init(&value, KIB);
    o.inner = kv_mem_new(NULL);
    manifest_part_row(KV_FINE, &info, &key, &value);
    kv_batch_put(batch, KV_META, buf_str(&key), buf_str(&value));
    assert_int_equal(kv_write(o.inner, batch, true, &e), 0);
    assert_int_equal(kv_cold_open(&o, &kv, &e), ERR_CONFIG); /* says what to configure */
    assert_non_null(strstr(e.text, "cold.url"));
    o.inner = kv_mem_new(NULL);
    kv_batch_clear(batch);
    kv_batch_put(batch, KV_META, buf_str(&key), STR("rubbish"));
    assert_int_equal(kv_write(o.inner, batch, true, &e), 0);
    assert_int_equal(kv_cold_open(&o, &kv, &e), ERR_CORRUPT);
    kv_batch_free(batch);
    buf_deinit(&key);
    buf_deinit(&value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_against_a_map, setup, teardown),
        cmocka_unit_test_setup_teardown(test_units, setup, teardown),
        cmocka_unit_test_setup_teardown(test_writes_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads_while_it_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed_write_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ending, setup, teardown),
        cmocka_unit_test_setup_teardown(test_without_a_cache, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
