/* SPDX-License-Identifier: Apache-2.0
 *
 * Random operations on both implementations of kv.h beside an obvious model: a table of what
 * stands under each of a few keys. Snapshots and open iterators are copies of that table. Restarts
 * of both; for the in-memory store also power cuts and failing writes. SEED=n repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/store/kv/kv_mem.h"
#include "tests/lib/store/kv_dir.h"

/* All keys of up to 3 bytes of { 00, 'a', ff }, in order. */
#define KEYS     40
#define OPEN_MAX 4
#define LOG_MAX  2000

struct state {
    uint32_t value[KV_CFS][KEYS]; /* number of a value, 0 = no such key */
};
static char key_bytes[KEYS][3];
static struct str keys[KEYS];

/* One store under test, with what is open on it. */
struct subject {
    struct kv *k;
    struct kv_snap *snap[OPEN_MAX];
    struct kv_iter *iter[OPEN_MAX];
};
static struct {
    struct subject rocks, mem;
    bool with_rocks;
    char *dir;
    struct kv_mem_faults faults;
    struct state now;
    struct state snap[OPEN_MAX];
    bool snap_open[OPEN_MAX];
    struct {
        struct state at;
        enum kv_cf cf;
        int from; /* key index */
        int to;   /* key index, KEYS = no end */
        int pos;  /* key index the iterator stands on, KEYS = at the end */
    } iter[OPEN_MAX];
    bool iter_open[OPEN_MAX];
    struct state log[LOG_MAX]; /* after each batch since the last sync; [0] is the synced one */
    size_t log_len;
    uint32_t next_value;
} t;
static struct prng prng;
static uint64_t seed;
static struct err e;

static int by_bytes(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static void make_keys(void)
{
    static const char letters[] = { 0, 'a', (char)0xff };
    int n = 0;

    for (int len = 0, combos = 1; len <= 3; len++, combos *= 3)
        for (int c = 0; c < combos; c++, n++) {
            for (int i = 0, rest = c; i < len; i++, rest /= 3)
                key_bytes[n][i] = letters[rest % 3];
            keys[n] = str_n(key_bytes[n], (size_t)len);
        }
    CHECK(n == KEYS);
    qsort(keys, KEYS, sizeof(*keys), by_bytes);
}

/* Contents of value number v: mostly short, some large enough to fill memtables. */
static struct str value_of(uint32_t v, char *room)
{
    size_t len = hash_u64(v) % 50 == 0 ? 100000 : hash_u64(v) % 30;

    for (size_t i = 0; i < len; i++)
        room[i] = (char)hash_u64((uint64_t)v << 20 | i / 8);
    return str_n(room, len);
}

static bool value_is(struct str got, uint32_t v)
{
    static char room[100000];

    return str_eq(got, value_of(v, room));
}

/* ---- one operation each; `s` runs over the subjects ---- */

static struct subject *subjects(void)
{
    return t.with_rocks ? &t.rocks : &t.mem;
}

static struct subject *following(struct subject *s)
{
    return s == &t.rocks ? &t.mem : NULL;
}

static void random_batch(struct kv_batch *b, struct state *after)
{
    static char room[100000];

    for (uint64_t n = 1 + prng_below(&prng, 8); n; n--) {
        enum kv_cf cf = (enum kv_cf)prng_below(&prng, KV_CFS);
        size_t key = prng_below(&prng, KEYS), to = prng_below(&prng, KEYS);
        uint64_t kind = prng_below(&prng, 10);
        if (kind < 6) {
            uint32_t v = ++t.next_value;
            kv_batch_put(b, cf, keys[key], value_of(v, room));
            after->value[cf][key] = v;
        } else if (kind < 9) {
            kv_batch_del(b, cf, keys[key]);
            after->value[cf][key] = 0;
        } else if (keys[to].len) {
            kv_batch_del_range(b, cf, keys[key], keys[to]);
            for (size_t k = key; k < to; k++)
                after->value[cf][k] = 0;
        }
    }
}

static void do_write(void)
{
    struct kv_batch *b = kv_batch_new(), *part = kv_batch_new();
    struct state after = t.now;
    bool sync = prng_chance(&prng, 0.3) || t.log_len == LOG_MAX - 1;

    random_batch(b, &after);
    if (prng_chance(&prng, 0.3)) { /* group commit */
        random_batch(part, &after);
        kv_batch_append(b, part);
    }
    for (struct subject *s = subjects(); s; s = following(s))
        if (kv_write(s->k, b, sync, &e))
            fail_msg("write: %s", e.text);
    t.now = after;
    if (sync)
        t.log_len = 0;
    t.log[t.log_len++] = after;
    kv_batch_free(b);
    kv_batch_free(part);
}

static void check_get(void)
{
    enum kv_cf cf = (enum kv_cf)prng_below(&prng, KV_CFS);
    size_t key = prng_below(&prng, KEYS), at = prng_below(&prng, OPEN_MAX);
    uint32_t v = t.snap_open[at] ? t.snap[at].value[cf][key] : t.now.value[cf][key];

    for (struct subject *s = subjects(); s; s = following(s)) {
        struct buf out;
        buf_init(&out, MIB);
        int rc = kv_get(s->k, s->snap[at], cf, keys[key], &out, &e);
        assert_int_equal(rc, v ? 0 : ERR_NOT_FOUND);
        assert_true(rc || value_is(buf_str(&out), v));
        buf_deinit(&out);
    }
}

/* The first key of st >= from and below to, or KEYS. */
static int first_key(const struct state *st, enum kv_cf cf, int from, int to)
{
    while (from < to && !st->value[cf][from])
        from++;
    return from < to ? from : KEYS;
}

static void check_position(struct kv_iter *it, const struct state *st, enum kv_cf cf, int pos)
{
    assert_int_equal(kv_iter_valid(it), pos < KEYS);
    if (pos == KEYS)
        return;
    assert_true(str_eq(kv_iter_key(it), keys[pos]));
    assert_true(value_is(kv_iter_value(it), st->value[cf][pos]));
}

static void check_scan(void)
{
    size_t at = prng_below(&prng, OPEN_MAX);
    const struct state *st = t.snap_open[at] ? &t.snap[at] : &t.now;
    int from = (int)prng_below(&prng, KEYS), to = (int)prng_below(&prng, KEYS + 1);

    if (to < KEYS && !keys[to].len)
        to = KEYS; /* an empty bound means no bound */
    for (int cf = 0; cf < KV_CFS; cf++)
        for (struct subject *s = subjects(); s; s = following(s)) {
            struct kv_iter *it = kv_iter_new(s->k, s->snap[at], (enum kv_cf)cf, keys[from],
                                             to < KEYS ? keys[to] : STR_NULL);
            int pos = first_key(st, (enum kv_cf)cf, from, to);
            for (; pos < KEYS; pos = first_key(st, (enum kv_cf)cf, pos + 1, to)) {
                check_position(it, st, (enum kv_cf)cf, pos);
                kv_iter_next(it);
            }
            assert_false(kv_iter_valid(it));
            assert_int_equal(kv_iter_status(it, &e), 0);
            kv_iter_free(it);
        }
}

static void toggle_snap(void)
{
    size_t at = prng_below(&prng, OPEN_MAX);

    for (struct subject *s = subjects(); s; s = following(s)) {
        if (t.snap_open[at])
            kv_snap_free(s->k, s->snap[at]);
        s->snap[at] = t.snap_open[at] ? NULL : kv_snap_new(s->k);
    }
    t.snap_open[at] = !t.snap_open[at];
    t.snap[at] = t.now;
}

static void close_iter(size_t at)
{
    for (struct subject *s = subjects(); s; s = following(s)) {
        assert_true(!s->iter[at] || kv_iter_status(s->iter[at], &e) == 0);
        kv_iter_free(s->iter[at]);
        s->iter[at] = NULL;
    }
    t.iter_open[at] = false;
}

static void open_iter(size_t at)
{
    int from = (int)prng_below(&prng, KEYS), to = (int)prng_below(&prng, KEYS + 1);

    if (to < KEYS && !keys[to].len)
        to = KEYS;
    t.iter[at].at = t.now;
    t.iter[at].cf = (enum kv_cf)prng_below(&prng, KV_CFS);
    t.iter[at].from = from;
    t.iter[at].to = to;
    t.iter[at].pos = first_key(&t.now, t.iter[at].cf, from, to);
    for (struct subject *s = subjects(); s; s = following(s))
        s->iter[at] =
            kv_iter_new(s->k, NULL, t.iter[at].cf, keys[from], to < KEYS ? keys[to] : STR_NULL);
    t.iter_open[at] = true;
}

/* Moves an open iterator: it still sees the moment it was made at. */
static void use_iter(void)
{
    size_t at = prng_below(&prng, OPEN_MAX);

    if (!t.iter_open[at]) {
        open_iter(at);
    } else if (t.iter[at].pos == KEYS) {
        close_iter(at);
        return;
    } else {
        bool seek = prng_chance(&prng, 0.3);
        int to = (int)prng_below(&prng, KEYS);
        for (struct subject *s = subjects(); s; s = following(s))
            if (seek)
                kv_iter_seek(s->iter[at], keys[to]);
            else
                kv_iter_next(s->iter[at]);
        int from = seek ? MAX(to, t.iter[at].from) : t.iter[at].pos + 1;
        t.iter[at].pos = first_key(&t.iter[at].at, t.iter[at].cf, from, t.iter[at].to);
    }
    for (struct subject *s = subjects(); s; s = following(s))
        check_position(s->iter[at], &t.iter[at].at, t.iter[at].cf, t.iter[at].pos);
}

static void close_all(void)
{
    for (size_t at = 0; at < OPEN_MAX; at++) {
        close_iter(at);
        for (struct subject *s = subjects(); s; s = following(s)) {
            kv_snap_free(s->k, s->snap[at]);
            s->snap[at] = NULL;
        }
        t.snap_open[at] = false;
    }
}

static void restart(void)
{
    close_all();
    if (t.with_rocks) {
        kv_close(t.rocks.k);
        t.rocks.k = kv_dir_open(t.dir);
    }
    t.mem.k = kv_mem_reopen(t.mem.k, KV_MEM_KILL, 0);
    t.log[0] = t.now; /* the in-memory store writes out what it recovered */
    t.log_len = 1;
}

static void flush(void)
{
    for (struct subject *s = subjects(); s; s = following(s))
        assert_int_equal(kv_flush(s->k, &e), 0);
    t.log[0] = t.now;
    t.log_len = 1;
}

static void check_all(void)
{
    for (int cf = 0; cf < KV_CFS; cf++)
        for (int key = 0; key < KEYS; key++)
            for (struct subject *s = subjects(); s; s = following(s)) {
                struct buf out;
                uint32_t v = t.now.value[cf][key];
                buf_init(&out, MIB);
                int rc = kv_get(s->k, NULL, (enum kv_cf)cf, keys[key], &out, &e);
                assert_int_equal(rc, v ? 0 : ERR_NOT_FOUND);
                assert_true(rc || value_is(buf_str(&out), v));
                buf_deinit(&out);
            }
}

/* The machine dies: some prefix of what was not synced survives. Before that a write may fail; if
 * it reached the log, it is the last of that prefix. */
static void power_cut(void)
{
    uint64_t keep = prng_below(&prng, t.log_len + 2);
    bool doubt = false;

    close_all();
    assert_int_equal(kv_mem_unsynced(t.mem.k), t.log_len - 1);
    if (prng_chance(&prng, 0.5) && t.log_len < LOG_MAX) {
        struct kv_batch *b = kv_batch_new();
        struct state after = t.now;
        t.faults.fail_in = 1;
        t.faults.fail_code = prng_chance(&prng, 0.5) ? ERR_IO : ERR_NO_SPACE;
        t.faults.fail_in_doubt = doubt = prng_chance(&prng, 0.5);
        random_batch(b, &after);
        assert_int_equal(kv_write(t.mem.k, b, true, &e), t.faults.fail_code);
        check_all(); /* not visible */
        if (doubt)
            t.log[t.log_len++] = after;
        kv_batch_free(b);
    }
    t.mem.k = kv_mem_reopen(t.mem.k, KV_MEM_POWER, keep);
    t.now = t.log[MIN(keep, t.log_len - 1)];
    t.log[0] = t.now;
    t.log_len = 1;
    check_all();
}

/* ---- runs ---- */

static void run(bool with_rocks, int steps)
{
    memset(&t, 0, sizeof(t));
    t.log_len = 1; /* nothing is there and nothing can be lost */
    t.with_rocks = with_rocks;
    t.mem.k = kv_mem_new(&t.faults);
    if (with_rocks) {
        t.dir = kv_dir_new();
        t.rocks.k = kv_dir_open(t.dir);
    }
    for (int i = 0; i < steps; i++) {
        uint64_t kind = prng_below(&prng, 1000);
        if (kind < 500)
            do_write();
        else if (kind < 700)
            check_get();
        else if (kind < 900)
            use_iter();
        else if (kind < 940)
            check_scan();
        else if (kind < 985)
            toggle_snap();
        else if (kind < 989)
            flush();
        else if (kind < 993)
            check_all();
        else if (kind < 996 || with_rocks)
            restart();
        else
            power_cut();
    }
    check_all();
    close_all();
    kv_close(t.mem.k);
    if (with_rocks)
        kv_close(t.rocks.k);
    kv_dir_remove(t.dir);
}

static void test_rocks_mem_and_model(void **state)
{
    (void)state;
    run(true, 8000);
}

static void test_mem_with_crashes(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        run(false, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rocks_mem_and_model),
        cmocka_unit_test(test_mem_with_crashes),
    };
    const char *given = getenv("SEED");

    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&prng, seed);
    make_keys();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
