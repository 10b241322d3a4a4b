/* SPDX-License-Identifier: Apache-2.0
 *
 * The log beside a list of entries: random appends, replacements, resets, drops; kills, power cuts
 * that tear, disks that fail. What comes back is the state after some operation not older than the
 * last sync. And rot: found wherever it is, but in the last group while that is not sealed. SEED=n
 * repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/repl/log/rlog.h"
#include "tests/lib/repl/rlog_fake.h"
#include "tests/lib/store/kv_dir.h"

enum { INDEX_MAX = 4000, STATES_MAX = 400 };

struct model {
    uint64_t base, last, promised, base_term;
    uint64_t term[INDEX_MAX]; /* by index */
    uint64_t tag[INDEX_MAX];
};
static struct {
    struct prng prng;
    struct rlog_fake *fake;
    struct rlog *l;
    struct model now;
    struct model *states; /* [0]: at the last sync; then after each operation */
    size_t states_len;
    uint64_t next_tag, dropped;
} t;
static struct err e;

static const struct rlog_opts *opts(void)
{
    static struct rlog_opts o;

    o = (struct rlog_opts){ rlog_fake_fs(t.fake), "log", 4096 };
    return &o;
}

static struct repl_entry *entry(uint64_t index, uint64_t term, uint64_t prev_term, uint64_t tag)
{
    char bytes[3000];
    size_t len = 8 + hash_u64(tag) % (tag % 17 == 0 ? 2900 : 60);
    struct buf b;

    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)hash_u64(tag + (i >> 3 << 40));
    put_u64le(bytes, tag);
    buf_init(&b, MIB);
    wr_u8(&b, 0 << 4 | 6); /* a put of an empty key */
    wr_varint(&b, 0);
    wr_varint(&b, len);
    buf_add(&b, bytes, len);
    struct repl_entry *x = entry_new(REPL_BATCH, buf_str(&b));
    buf_deinit(&b);
    x->index = index;
    x->term = term;
    x->prev_term = prev_term;
    return x;
}

static void note(void)
{
    assert_true(t.states_len < STATES_MAX);
    t.states[t.states_len++] = t.now;
}

static void synced(void)
{
    t.states[0] = t.now;
    t.states_len = 1;
}

static bool same(const struct model *m)
{
    struct rlog_state s = rlog_state(t.l);
    uint64_t low = MAX(s.base_index, m->base);

    if (s.last_index != m->last || s.promised != m->promised || s.base_index < m->base ||
        s.base_index > MAX(m->base, t.dropped))
        return false;
    if (m->last > m->base && s.last_term != m->term[m->last])
        return false;
    for (uint64_t i = low + 1; i <= m->last; i++) {
        struct repl_entry *x;
        size_t n;
        if (rlog_term(t.l, i) != m->term[i])
            return false;
        if (rlog_read(t.l, &(struct rlog_range){ .from = i, .max = 1 }, &x, &n, &e))
            fail_msg("read %" PRIu64 ": %s", i, e.text);
        struct repl_entry *want = entry(i, m->term[i], x->prev_term, m->tag[i]);
        bool eq = x->len == want->len && !memcmp(x->data, want->data, x->len);
        entry_unref(want);
        entry_unref(x);
        if (!eq)
            return false;
    }
    return true;
}

static void do_append(void)
{
    uint64_t from = t.now.last + 1, n = 1 + prng_below(&t.prng, 6), term = t.now.term[t.now.last];
    struct repl_entry *list[8];

    if (t.now.last == t.now.base)
        term = t.now.base_term;
    if (prng_chance(&t.prng, 0.2) && t.now.last > MAX(t.now.base, t.dropped)) {
        uint64_t low = MAX(t.now.base, t.dropped);
        from = low + 1 + prng_below(&t.prng, t.now.last - low);
        term = t.now.term[t.now.last] + 1;
    } else if (prng_chance(&t.prng, 0.2)) {
        term++;
    }
    if (from + n >= INDEX_MAX)
        return;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = from + i;
        uint64_t prev = at - 1 == t.now.base ? t.now.base_term : t.now.term[at - 1];
        t.now.tag[at] = t.next_tag++;
        t.now.term[at] = MAX(term, 1);
        list[i] = entry(at, t.now.term[at], prev, t.now.tag[at]);
        t.now.last = at; /* a crash may leave some of them */
        note();
    }
    int rc = rlog_append(t.l, list, n, &e);
    for (uint64_t i = 0; i < n; i++)
        entry_unref(list[i]);
    if (rc)
        assert_int_not_equal(rlog_sync(t.l, &e), 0); /* sticky */
}

static void reopen(void)
{
    uint64_t how = prng_below(&t.prng, 3);
    size_t i;

    rlog_close(t.l);
    if (how == 0)
        rlog_fake_settle(t.fake);
    else if (how == 1)
        rlog_fake_power_cut(t.fake);
    *rlog_fake_faults(t.fake) = (struct rlog_fake_faults){ 0 };
    if (rlog_open(opts(), &t.l, &e))
        fail_msg("%s", e.text);
    for (i = t.states_len; i-- > 0;)
        if (same(&t.states[i]))
            break;
    if (i == SIZE_MAX)
        fail_msg("what came back is no state since the last sync");
    t.now = t.states[i];
    synced();
    /* What was reported is durable. */
    rlog_close(t.l);
    rlog_fake_power_cut(t.fake);
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    assert_true(same(&t.now));
}

static void one_step(void)
{
    uint64_t what = prng_below(&t.prng, 100);
    bool failed = false;

    if (what < 60) {
        do_append();
    } else if (what < 70) {
        failed = rlog_sync(t.l, &e) != 0;
        if (!failed)
            synced();
    } else if (what < 78) {
        t.now.promised += prng_below(&t.prng, 3);
        failed = rlog_hard(t.l, t.now.promised, 0, &e) != 0;
        note();
    } else if (what < 79) {
        failed = rlog_seal(t.l, &e) != 0;
        if (!failed && prng_chance(&t.prng, 0.5) && !(failed = rlog_sync(t.l, &e) != 0))
            synced();
    } else if (what < 80) {
        failed = rlog_roll(t.l, &e) != 0;
    } else if (what < 84 && t.states_len == 1 && t.now.last > t.now.base) {
        uint64_t upto = t.now.base + prng_below(&t.prng, t.now.last - t.now.base + 1);
        if (!rlog_drop(t.l, upto, &e))
            t.dropped = MAX(t.dropped, upto);
    } else if (what < 86 && t.now.last + 50 < INDEX_MAX) {
        uint64_t to = t.now.last + 1 + prng_below(&t.prng, 20);
        t.now.base_term = t.now.term[t.now.last] + 1;
        t.now.base = t.now.last = to;
        t.now.term[to] = t.now.base_term;
        failed = rlog_reset(t.l, to, t.now.base_term, &e) != 0;
        note();
    } else if (what < 92 && prng_chance(&t.prng, 0.3)) {
        rlog_fake_faults(t.fake)->fail_write_in = prng_below(&t.prng, 5);
        rlog_fake_faults(t.fake)->fail_sync_in = prng_below(&t.prng, 3);
    } else if (what >= 96) {
        reopen();
    }
    if (failed || t.states_len > STATES_MAX - 10)
        reopen();
}

static void run(uint64_t seed)
{
    prng_init(&t.prng, seed);
    t.fake = rlog_fake_new(seed);
    t.now = (struct model){ 0 };
    t.dropped = 0;
    t.next_tag = 1;
    synced();
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    for (int i = 0; i < 300; i++)
        one_step();
    reopen();
    rlog_close(t.l);
    rlog_fake_free(t.fake);
}

static void test_random(void **state)
{
    const char *env = getenv("SEED"), *many = getenv("SEEDS");
    uint64_t seed = env ? strtoull(env, NULL, 10) : (uint64_t)time(NULL);
    uint64_t n = many ? strtoull(many, NULL, 10) : 60;

    (void)state;
    t.states = XNEW_ARRAY(struct model, STATES_MAX);
    if (env) {
        run(seed);
    } else {
        for (uint64_t i = 0; i < n; i++) {
            uint64_t s = i % 2 ? seed + i : i;
            printf("SEED=%" PRIu64 "\n", s);
            run(s);
        }
    }
    xfree(t.states);
}

/* Every byte of every file but the last group's: found when it is opened, or never read. */
static void test_rot(void **state)
{
    uint64_t group = 0, found = 0, total;

    (void)state;
    for (uint64_t at = 0;; at += 7) {
        t.fake = rlog_fake_new(1);
        assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
        for (uint64_t i = 1; i <= 60; i++) {
            struct repl_entry *x = entry(i, 1, i > 1, i);
            if (i == 60)
                group = rlog_fake_bytes(t.fake);
            assert_int_equal(rlog_append(t.l, &x, 1, &e) || rlog_sync(t.l, &e), 0);
            entry_unref(x);
        }
        rlog_close(t.l);
        total = rlog_fake_bytes(t.fake);
        if (at >= total)
            break;
        rlog_fake_rot(t.fake, at);
        int rc = rlog_open(opts(), &t.l, &e);
        if (rc) {
            assert_int_equal(rc, ERR_CORRUPT);
            assert_non_null(strstr(e.text, ".rlog is damaged at byte"));
            found++;
        } else {
            /* The last group is cut as torn; a group says for the one before that it was synced. */
            assert_true(rlog_state(t.l).last_index == 60 || at >= group);
            rlog_close(t.l);
        }
        rlog_fake_free(t.fake);
    }
    assert_true(rlog_fake_files(t.fake) > 2 && found > total / 7 / 2);
    rlog_fake_free(t.fake);
}

/* Flips a bit of each byte in turn: `fill` writes, and what it returns as last index is there
 * afterwards, or the log refuses to open. */
static void rot_each(uint64_t (*fill)(void), uint64_t spared)
{
    uint64_t found = 0, at = 0;

    for (;; at++) {
        t.fake = rlog_fake_new(1);
        assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
        uint64_t last = fill(), promised = rlog_state(t.l).promised;
        rlog_close(t.l);
        if (at >= rlog_fake_bytes(t.fake))
            break;
        rlog_fake_rot(t.fake, at);
        if (rlog_open(opts(), &t.l, &e)) {
            assert_non_null(strstr(e.text, ".rlog is damaged at byte"));
            found++;
        } else {
            assert_int_equal(rlog_state(t.l).last_index, last);
            assert_int_equal(rlog_state(t.l).promised, promised);
            rlog_close(t.l);
        }
        rlog_fake_free(t.fake);
    }
    assert_true(found + spared <= at && found + spared + 3 * 7 >= at); /* 3 entries' padding */
    rlog_fake_free(t.fake);
}

static void append_upto(uint64_t last)
{
    for (uint64_t i = rlog_state(t.l).last_index + 1; i <= last; i++) {
        struct repl_entry *x = entry(i, 1, i > 1, i);
        assert_int_equal(rlog_append(t.l, &x, 1, &e), 0);
        entry_unref(x);
    }
}

static uint64_t one_sealed_group(void)
{
    append_upto(3);
    assert_int_equal(rlog_hard(t.l, 9, 2, &e) || rlog_sync(t.l, &e), 0);
    assert_false(rlog_state(t.l).sealed);
    assert_int_equal(rlog_seal(t.l, &e) || rlog_sync(t.l, &e), 0);
    return 3;
}

/* What is behind the seal is sealed in its turn; a promise alone is a group, too. */
static uint64_t sealed_again(void)
{
    (void)one_sealed_group();
    assert_int_equal(rlog_hard(t.l, 11, 2, &e) || rlog_sync(t.l, &e), 0);
    assert_int_equal(rlog_seal(t.l, &e) || rlog_sync(t.l, &e), 0);
    return 3;
}

/* Only the head of the new file knows of the promise. */
static uint64_t sealed_new_file(void)
{
    (void)one_sealed_group();
    assert_int_equal(rlog_roll(t.l, &e) || rlog_drop(t.l, 3, &e), 0);
    assert_false(rlog_state(t.l).sealed);
    assert_int_equal(rlog_seal(t.l, &e) || rlog_sync(t.l, &e), 0);
    return 3;
}

static void test_sealed(void **state)
{
    uint64_t bytes;

    (void)state;
    rot_each(one_sealed_group, 48); /* but in the record that seals, which says nothing new */
    rot_each(sealed_again, 48);
    rot_each(sealed_new_file, 48);
    /* Once: an idle log is not written to again and again, and an empty one not at all. */
    t.fake = rlog_fake_new(1);
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    bytes = rlog_fake_bytes(t.fake);
    assert_true(rlog_state(t.l).sealed);
    assert_int_equal(rlog_seal(t.l, &e) || rlog_sync(t.l, &e), 0);
    assert_int_equal(rlog_fake_bytes(t.fake), bytes);
    (void)one_sealed_group();
    bytes = rlog_fake_bytes(t.fake);
    for (int i = 0; i < 3; i++) {
        assert_true(rlog_state(t.l).sealed);
        assert_int_equal(rlog_seal(t.l, &e) || rlog_sync(t.l, &e), 0);
        assert_int_equal(rlog_fake_bytes(t.fake), bytes);
        rlog_close(t.l);
        assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    }
    append_upto(4);
    assert_int_equal(rlog_seal(t.l, &e), 0); /* a group is open: nothing */
    assert_int_equal(rlog_sync(t.l, &e), 0);
    assert_false(rlog_state(t.l).sealed);
    rlog_close(t.l);
    rlog_fake_free(t.fake);
}

/* What stands in a file of its own can be dropped, however short it is. */
static void test_roll(void **state)
{
    (void)state;
    t.fake = rlog_fake_new(1);
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    for (uint64_t i = 1; i <= 6; i++) {
        struct repl_entry *x = entry(i, 1, i > 1, i);
        assert_int_equal(rlog_append(t.l, &x, 1, &e) || rlog_sync(t.l, &e), 0);
        entry_unref(x);
        if (i == 3) {
            assert_int_equal(rlog_drop(t.l, 3, &e), 0);
            assert_int_equal(rlog_state(t.l).base_index, 0);
            assert_int_equal(rlog_roll(t.l, &e), 0);
            assert_int_equal(rlog_roll(t.l, &e), 0); /* nothing is in it yet */
        }
    }
    assert_int_equal(rlog_fake_files(t.fake), 2);
    assert_int_equal(rlog_drop(t.l, 3, &e), 0);
    assert_int_equal(rlog_fake_files(t.fake), 1);
    assert_int_equal(rlog_roll(t.l, &e) || rlog_drop(t.l, 6, &e), 0);
    rlog_close(t.l);
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    assert_int_equal(rlog_state(t.l).base_index, 6);
    assert_int_equal(rlog_state(t.l).last_index, 6);
    assert_int_equal(rlog_state(t.l).last_term, 1);
    rlog_close(t.l);
    rlog_fake_free(t.fake);
}

static void test_no_space(void **state)
{
    struct repl_entry *x = entry(1, 1, 0, 1);

    (void)state;
    t.fake = rlog_fake_new(1);
    assert_int_equal(rlog_open(opts(), &t.l, &e), 0);
    *rlog_fake_faults(t.fake) =
        (struct rlog_fake_faults){ .fail_sync_in = 1, .code = ERR_NO_SPACE };
    assert_int_equal(rlog_append(t.l, &x, 1, &e), 0);
    assert_int_equal(rlog_sync(t.l, &e), ERR_NO_SPACE);
    assert_int_equal(rlog_append(t.l, &x, 1, &e), ERR_NO_SPACE);
    entry_unref(x);
    rlog_close(t.l);
    rlog_fake_free(t.fake);
}

/* The same on a real disk: several files, reopened, read by range, dropped. */
static void test_real(void **state)
{
    char *dir = kv_dir_new(), path[300];
    struct repl_entry *list[64];
    struct rlog_opts o = { rlog_fs_real(), path, 8192 };
    size_t n;

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/a/log", dir);
    assert_int_equal(rlog_open(&o, &t.l, &e), 0);
    for (uint64_t i = 1; i <= 200; i++) {
        struct repl_entry *x = entry(i, 1 + i / 50, i > 1 ? 1 + (i - 1) / 50 : 0, i);
        assert_int_equal(rlog_append(t.l, &x, 1, &e), 0);
        entry_unref(x);
        if (i % 20 == 0)
            assert_int_equal(rlog_sync(t.l, &e), 0);
    }
    assert_int_equal(rlog_hard(t.l, 77, 150, &e) || rlog_sync(t.l, &e), 0);
    assert_int_equal(rlog_drop(t.l, 120, &e), 0);
    struct rlog_state before = rlog_state(t.l);
    assert_true(before.base_index > 0 && before.base_index <= 120);
    rlog_close(t.l);
    assert_int_equal(rlog_open(&o, &t.l, &e), 0);
    struct rlog_state s = rlog_state(t.l);
    assert_int_equal(s.promised, 77);
    assert_int_equal(s.commit, 150);
    assert_int_equal(s.last_index, 200);
    assert_int_equal(s.base_index, before.base_index);
    assert_int_equal(s.base_term, before.base_term);
    assert_int_equal(rlog_read(t.l,
                               &(struct rlog_range){ .from = 150, .max = 64, .bytes_max = MIB },
                               list, &n, &e),
                     0);
    assert_int_equal(n, 51);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(list[i]->index, 150 + i);
        entry_unref(list[i]);
    }
    assert_int_equal(rlog_read(t.l,
                               &(struct rlog_range){ .from = 150, .max = 64, .bytes_max = 100 },
                               list, &n, &e),
                     0);
    assert_true(n < 4);
    for (size_t i = 0; i < n; i++)
        entry_unref(list[i]);
    assert_int_equal(
        rlog_read(t.l, &(struct rlog_range){ .from = s.base_index, .max = 64, .bytes_max = MIB },
                  list, &n, &e),
        ERR_NOT_FOUND);
    assert_int_equal(rlog_read(t.l,
                               &(struct rlog_range){ .from = 201, .max = 64, .bytes_max = MIB },
                               list, &n, &e),
                     ERR_NOT_FOUND);
    rlog_close(t.l);
    kv_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),   cmocka_unit_test(test_rot),
        cmocka_unit_test(test_sealed),   cmocka_unit_test(test_roll),
        cmocka_unit_test(test_no_space), cmocka_unit_test(test_real),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
