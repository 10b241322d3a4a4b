/* SPDX-License-Identifier: Apache-2.0
 *
 * Dictionaries: growth over many chunks in small and large steps, rows and reload, readers with old
 * and new snapshots, dropping under a tiny limit, readers on other threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/codec/vec.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/kv/kv_mem.h"

static const struct dict_id ID = { 1, 2, 3 };
static struct prng rnd;
static struct kv *kv;
static struct dict_cache *cache;
static struct dict_scratch scratch;
static struct err shard_err;

static int setup(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    kv = kv_mem_new(NULL);
    cache = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
    dict_scratch_init(&scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dict_scratch_deinit(&scratch);
    dict_cache_free(cache);
    kv_close(kv);
    return 0;
}

/* ---- requests: stack number n is a chain whose frames follow from n ---- */

static uint32_t chain(struct stacks *st, uint32_t n)
{
    uint32_t node = 0;
    char text[32];

    for (uint32_t depth = 0; depth <= n % 4; depth++) {
        int len = snprintf(text, sizeof(text), "f%u", n / (depth + 1));
        struct frame f = { .func = stacks_string(st, str_n(text, (size_t)len)),
                           .file = stacks_string(st, n % 3 ? STR("a.c") : STR("")),
                           .line = depth,
                           .addr = n % 7 ? 0 : n };
        node = stacks_node(st, node, stacks_frame(st, &f));
    }
    return node;
}

/* Interns stacks from..to in the open epoch; ids[i] = node of stack i. */
static void add(struct dict *d, uint32_t from, uint32_t to, uint32_t *ids, struct kv_batch *b)
{
    struct stacks st;
    VEC(uint32_t) at = { 0 };

    stacks_init(&st, 64 * MIB, prng_u64(&rnd));
    for (uint32_t i = from; i < to; i++)
        vec_push(&at, chain(&st, i));
    struct stacks_view v = stacks_view(&st);
    dict_scratch_begin(&scratch, &v);
    vec_for (i, &at)
        scratch.used.ptr[at.ptr[i]] = 1;
    dict_intern(d, &v, &scratch);
    vec_for (i, &at)
        ids[from + i] = scratch.node_map.ptr[at.ptr[i]];
    dict_emit(d, &scratch, b);
    vec_free(&at);
    stacks_deinit(&st);
}

static void write_batch(struct kv_batch *b)
{
    if (kv_write(kv, b, true, &shard_err))
        fail_msg("%s", shard_err.text);
    kv_batch_clear(b);
}

/* The path of a node is the chain of its stack. */
static void want_chain(const struct dict *d, uint32_t node, uint32_t n)
{
    char text[32];

    for (uint32_t depth = n % 4 + 1; depth > 0; depth--) {
        const struct dict_node *at = dict_node(d, node);
        const struct frame *f = dict_frame(d, at->frame);
        snprintf(text, sizeof(text), "f%u", n / depth);
        assert_true(str_eqc(dict_string(d, f->func), text));
        assert_true(str_eqc(dict_string(d, f->file), n % 3 ? "a.c" : ""));
        assert_int_equal(f->line, depth - 1);
        assert_int_equal(f->addr, n % 7 ? 0 : n);
        assert_true(at->parent < node);
        node = at->parent;
    }
    assert_int_equal(node, 0);
}

static size_t rows_of(enum key_dict kind)
{
    struct key from, to;
    size_t n = 0;

    key_dict(&from, ID.tenant, ID.scope, ID.epoch, kind, 0);
    key_dict(&to, ID.tenant, ID.scope, ID.epoch, kind, UINT32_MAX);
    struct kv_iter *it = kv_iter_new(kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it))
        n++;
    kv_iter_free(it);
    return n;
}

/* Through the cache, from a snapshot of now. */
static struct dict *read_now(void)
{
    struct kv_snap *s = kv_snap_new(kv);
    struct dict_counts n;
    struct dict *d;
    struct err e; /* readers on other threads come here, too */

    if (dict_cache_read(cache, s, ID, &d, &n, &e))
        fail_msg("%s", e.text);
    kv_snap_free(kv, s);
    return d;
}

static void test_growth(void **state)
{
    enum { N = 6000 };
    uint32_t *ids = XNEW_ARRAY(uint32_t, N);
    struct kv_batch *b = kv_batch_new();
    struct dict *d = dict_cache_create(cache, ID, 7);
    uint32_t at = 0;

    (void)state;
    dict_emit_epoch(d, false, b);
    while (at < N) {
        uint32_t n = (uint32_t)prng_below(&rnd, prng_chance(&rnd, 0.05) ? 1500 : 4);
        n = MIN(n, N - at);
        uint32_t again = (uint32_t)prng_below(&rnd, at + 1);
        uint32_t before = ids[again];
        if (again < at) {
            add(d, again, again + 1, ids, b);
            assert_int_equal(ids[again], before);
        }
        add(d, at, at + n, ids, b);
        at += n;
        if (prng_chance(&rnd, 0.3))
            write_batch(b);
        if (prng_chance(&rnd, 0.02)) { /* all committed: dropped and loaded again */
            write_batch(b);
            dict_unref(d);
            dict_cache_free(cache);
            cache = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
            assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), 0);
        }
    }
    write_batch(b);
    for (uint32_t i = 0; i < N; i++)
        want_chain(d, ids[i], i);
    struct dict_counts n = dict_counts(d);
    assert_true(rows_of(DICT_NODES) <= n.nodes / 1024 + 34);
    assert_true(rows_of(DICT_FRAMES) <= n.frames / 1024 + 34);
    assert_true(rows_of(DICT_STRINGS) <= n.strings / 1024 + 34);
    uint64_t some = dict_node_hash(d, ids[77]);
    dict_unref(d);
    dict_cache_free(cache);
    cache = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
    d = read_now();
    for (uint32_t i = 0; i < N; i++)
        want_chain(d, ids[i], i);
    dict_unref(d);
    assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), 0);
    assert_true(dict_node_hash(d, ids[77]) == some); /* content decides, not the run */
    dict_unref(d);
    kv_batch_free(b);
    xfree(ids);
}

static void test_readers_extend(void **state)
{
    uint32_t ids[400];
    struct kv_batch *b = kv_batch_new();
    struct dict *d = dict_cache_create(cache, ID, 7), *r, *r2;
    struct dict_counts n, n2;

    (void)state;
    dict_emit_epoch(d, false, b);
    add(d, 0, 100, ids, b);
    write_batch(b);
    struct kv_snap *old = kv_snap_new(kv);
    add(d, 100, 400, ids, b);
    write_batch(b);
    struct kv_snap *new = kv_snap_new(kv);
    dict_unref(d);
    dict_cache_free(cache); /* the writer is gone; readers load for themselves */
    cache = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
    assert_int_equal(dict_cache_read(cache, old, ID, &r, &n, &shard_err), 0);
    assert_int_equal(dict_counts(r).nodes, n.nodes);
    assert_int_equal(dict_cache_read(cache, new, ID, &r2, &n2, &shard_err), 0);
    assert_true(n2.nodes > n.nodes);
    assert_ptr_equal(r, r2); /* the same, longer */
    for (uint32_t i = 0; i < 400; i++)
        want_chain(r2, ids[i], i);
    dict_unref(r);
    /* The shard thread takes over what readers loaded. */
    assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), 0);
    assert_ptr_equal(d, r2);
    add(d, 50, 60, ids, b);
    assert_int_equal(kv_batch_count(b), 0); /* nothing was new */
    dict_unref(r2);
    dict_unref(d);
    kv_snap_free(kv, old);
    kv_snap_free(kv, new);
    kv_batch_free(b);
}

/* A shard is led elsewhere before its store here is closed: readers that come late get an error. */
static void test_continued_elsewhere(void **state)
{
    uint32_t ids[20];
    struct kv_batch *b = kv_batch_new();
    struct dict *here = dict_cache_create(cache, ID, 7), *there, *r;
    struct dict_cache *other;
    struct dict_counts n;

    (void)state;
    dict_emit_epoch(here, false, b);
    add(here, 0, 10, ids, b);
    write_batch(b);
    other = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
    assert_int_equal(dict_cache_write(other, ID, 7, &there, &shard_err), 0);
    add(there, 10, 20, ids, b);
    write_batch(b);
    struct kv_snap *s = kv_snap_new(kv);
    assert_int_equal(dict_cache_read(cache, s, ID, &r, &n, &shard_err), ERR_UNAVAILABLE);
    assert_int_equal(dict_cache_read(other, s, ID, &r, &n, &shard_err), 0);
    want_chain(r, ids[15], 15);
    dict_unref(r);
    kv_snap_free(kv, s);
    dict_unref(here);
    dict_unref(there);
    dict_cache_free(other);
    kv_batch_free(b);
}

static void test_in_flight_is_kept(void **state)
{
    uint32_t ids[20];
    struct kv_batch *b = kv_batch_new();

    (void)state;
    dict_cache_free(cache);
    cache = dict_cache_new(kv, 1, UINT64_MAX); /* room for nothing */
    struct dict *d = dict_cache_create(cache, ID, 7), *d2;
    dict_emit_epoch(d, false, b);
    add(d, 0, 10, ids, b);
    d->seq = 5;
    dict_unref(d);
    dict_cache_trim(cache, 4); /* batch 5 is not committed: forgetting would reuse its ids */
    assert_int_equal(dict_cache_write(cache, ID, 7, &d2, &shard_err), 0);
    assert_ptr_equal(d, d2);
    add(d2, 0, 10, ids, b);
    dict_unref(d2);
    write_batch(b);
    dict_cache_trim(cache, 5);
    assert_int_equal(dict_cache_bytes(cache), 0);
    assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), 0);
    for (uint32_t i = 0; i < 10; i++)
        want_chain(d, ids[i], i);
    dict_unref(d);
    dict_cache_trim(cache, 5);
    /* A reader's thread may drop what is not open for writing, but not what others hold. */
    d = read_now();
    d2 = read_now();
    want_chain(d, ids[3], 3);
    dict_unref(d);
    want_chain(d2, ids[4], 4);
    dict_unref(d2);
    kv_batch_free(b);
}

static void test_damage_is_an_error(void **state)
{
    uint32_t ids[100];
    struct kv_batch *b = kv_batch_new();
    struct dict *d = dict_cache_create(cache, ID, 7);
    struct dict_counts n;
    struct key k;

    (void)state;
    dict_emit_epoch(d, false, b);
    add(d, 0, 50, ids, b);
    add(d, 50, 100, ids, b);
    write_batch(b);
    dict_unref(d);
    dict_cache_free(cache);
    cache = dict_cache_new(kv, 1 * GIB, UINT64_MAX);
    key_dict(&k, ID.tenant, ID.scope, ID.epoch, DICT_FRAMES, 0);
    kv_batch_del(b, KV_META, key_str(&k)); /* a gap */
    write_batch(b);
    struct kv_snap *s = kv_snap_new(kv);
    assert_int_equal(dict_cache_read(cache, s, ID, &d, &n, &shard_err), ERR_CORRUPT);
    assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), ERR_CORRUPT);
    kv_snap_free(kv, s);
    kv_batch_put(b, KV_META, key_str(&k), STR("no row"));
    write_batch(b);
    assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), ERR_CORRUPT);
    struct dict_id none = { 9, 9, 9 };
    assert_int_equal(dict_cache_write(cache, none, 7, &d, &shard_err), ERR_CORRUPT);
    kv_batch_free(b);
}

/* ---- threads ---- */

struct shared {
    _Atomic bool stop;
    _Atomic uint32_t committed; /* stacks */
    uint32_t *ids;              /* written before `committed` passes them */
    _Atomic uint32_t reads;
};

static void reader(void *cookie)
{
    struct shared *x = cookie;
    struct prng p;

    prng_init(&p, 1);
    while (!atomic_load(&x->stop)) {
        uint32_t n = atomic_load(&x->committed);
        struct dict *d = read_now();
        for (int i = 0; n && i < 50; i++) {
            uint32_t at = (uint32_t)prng_below(&p, n);
            want_chain(d, x->ids[at], at);
        }
        dict_unref(d);
        atomic_fetch_add(&x->reads, 1);
    }
}

static void run_threads(uint64_t bytes_max)
{
    enum { N = 3000 };
    struct shared x = { .ids = XNEW_ARRAY(uint32_t, N) };
    struct kv_batch *b = kv_batch_new();
    struct thread t[2] = { 0 };
    uint64_t seq = 0;

    dict_cache_free(cache);
    cache = dict_cache_new(kv, bytes_max, UINT64_MAX);
    struct dict *d = dict_cache_create(cache, ID, 7);
    dict_emit_epoch(d, false, b);
    write_batch(b);
    dict_unref(d);
    thread_start(&t[0], "reader-0", reader, &x);
    thread_start(&t[1], "reader-1", reader, &x);
    for (uint32_t at = 0; at < N; at += 10) {
        dict_cache_trim(cache, seq);
        assert_int_equal(dict_cache_write(cache, ID, 7, &d, &shard_err), 0);
        add(d, at, at + 10, x.ids, b);
        d->seq = ++seq;
        dict_unref(d);
        write_batch(b);
        atomic_store(&x.committed, at + 10);
    }
    while (atomic_load(&x.reads) < 20)
        ;
    atomic_store(&x.stop, true);
    thread_join(&t[0]);
    thread_join(&t[1]);
    kv_batch_free(b);
    xfree(x.ids);
}

static void test_threads(void **state)
{
    (void)state;
    run_threads(1 * GIB);
}

static void test_threads_without_room(void **state)
{
    (void)state;
    run_threads(1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_growth),
        T(test_readers_extend),
        T(test_continued_elsewhere),
        T(test_in_flight_is_kept),
        T(test_damage_is_an_error),
        T(test_threads),
        T(test_threads_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
