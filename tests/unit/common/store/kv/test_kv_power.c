/* SPDX-License-Identifier: Apache-2.0
 *
 * RocksDB over a file system that loses what was not synced (tests/lib/store/rocks_lossy.h).
 * Numbered batches go over all column families, most of them unsynced, as a replica applies them;
 * between them the process is killed, closed and restarted, the power is cut, and tables are
 * flushed. The batches that survive a power cut must be a prefix of all, whole, with every synced
 * batch and all that the last process found when it opened the database; after a kill, all of them.
 *
 * The same with syncs left out one at a time: each must be noticed, or the test sees nothing.
 *
 * A log that was synced and is gone, empty or shorter must be noticed when the database is opened.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/kv/kv.h"
#include "common/store/kv/kv_impl.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/rocks_lossy.h"

#define BEHIND       50 /* batch n - BEHIND is deleted by batch n */
#define VALUE_BYTES  150000
#define SIDE_BY_SIDE 8

struct bed {
    char *root, *scratch;
    char dir[4096];
    struct rocks_lossy *fs;
    struct kv *kv; /* NULL: not open */
    struct prng prng;
    uint64_t last;   /* batch that was tried last */
    uint64_t acked;  /* written last, without an error */
    uint64_t stable; /* synced, or found when it was opened last */
    uint64_t copies;
    bool sync_fails; /* one of this process failed, or will */
    char wrong[256]; /* "": nothing was */
};

/* ---- batches ---- */

static bool in_family(uint64_t n, int cf)
{
    return hash_u64(n * 31 + (uint64_t)cf) % 3 == 0 || cf == (int)(n % KV_CFS);
}

static struct str key_of(uint64_t n, char key[8])
{
    put_u64be(key, n);
    return str_n(key, 8);
}

/* Some values are large: memtables of 2 MiB are full after a few of them. */
static struct str value_of(uint64_t n, int cf, char room[VALUE_BYTES])
{
    uint64_t h = hash_u64(n * 17 + (uint64_t)cf);
    size_t len = h % 11 == 0 ? VALUE_BYTES / 2 + h % (VALUE_BYTES / 2) : 8 + h % 100;

    for (size_t i = 0; i < len; i += 8)
        put_u64be(room + MIN(i, len - 8), hash_u64(h + i));
    put_u64be(room, n);
    return str_n(room, len);
}

static void fill(struct kv_batch *b, uint64_t n)
{
    static char room[VALUE_BYTES];
    char key[8], from[8];

    kv_batch_clear(b);
    for (int cf = 0; cf < KV_CFS; cf++)
        if (in_family(n, cf))
            kv_batch_put(b, (enum kv_cf)cf, key_of(n, key), value_of(n, cf, room));
    for (int cf = 0; n > BEHIND && cf < KV_CFS; cf++) {
        if (n % 7 == 0)
            kv_batch_del_range(b, (enum kv_cf)cf, key_of(0, from), key_of(n - BEHIND + 1, key));
        else if (in_family(n - BEHIND, cf))
            kv_batch_del(b, (enum kv_cf)cf, key_of(n - BEHIND, key));
    }
}

/* ---- the oracle ---- */

static void wrong(struct bed *b, const char *what, uint64_t n, int cf)
{
    if (!b->wrong[0])
        (void)snprintf(b->wrong, sizeof(b->wrong), "%.200s: batch %" PRIu64 ", family %d", what, n,
                       cf);
}

/* The newest batch of which anything is there. */
static uint64_t newest(struct bed *b)
{
    uint64_t most = 0;
    struct err e;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(b->kv, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it))
            most = MAX(most, get_u64be(kv_iter_key(it).ptr));
        if (kv_iter_status(it, &e))
            wrong(b, e.text, 0, cf);
        kv_iter_free(it);
    }
    return most;
}

/* The database holds batches 1 to `upto`, and nothing else. */
static void check_prefix(struct bed *b, uint64_t upto)
{
    static char room[VALUE_BYTES];
    struct err e;

    for (int cf = 0; cf < KV_CFS; cf++) {
        struct kv_iter *it = kv_iter_new(b->kv, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        for (uint64_t n = upto > BEHIND ? upto - BEHIND + 1 : 1; n <= upto; n++) {
            if (!in_family(n, cf))
                continue;
            if (!kv_iter_valid(it) || get_u64be(kv_iter_key(it).ptr) > n) {
                wrong(b, "a batch is missing", n, cf);
                break;
            }
            if (get_u64be(kv_iter_key(it).ptr) < n) {
                wrong(b, "a deleted batch is there", get_u64be(kv_iter_key(it).ptr), cf);
                break;
            }
            if (!str_eq(kv_iter_value(it), value_of(n, cf, room)))
                wrong(b, "another value", n, cf);
            kv_iter_next(it);
        }
        if (kv_iter_status(it, &e))
            wrong(b, e.text, 0, cf);
        kv_iter_free(it);
    }
}

/* ---- operations ---- */

static bool may_fail(const struct bed *b)
{
    return b->sync_fails || (b->fs && rocks_lossy_killed(b->fs));
}

/* False: the power went meanwhile. */
static bool open_db(struct bed *b)
{
    struct kv_opts o = { .dir = b->dir, .block_cache_bytes = 8 * MIB, .memtable_bytes = 4 * MIB };
    struct err e = { 0 };

    if (!kv_rocks_open(&o, &b->kv, &e))
        return true;
    b->kv = NULL;
    if (!rocks_lossy_killed(b->fs)) {
        (void)snprintf(b->wrong, sizeof(b->wrong), "open: %.200s", e.text);
        return false;
    }
    return false;
}

/* Without the file system that loses things. */
static bool open_real(struct bed *b, struct err *e)
{
    struct kv_opts o = { .dir = b->dir, .block_cache_bytes = 8 * MIB, .memtable_bytes = 4 * MIB };
    struct err own = { 0 };

    b->kv = NULL;
    return !kv_rocks_open(&o, &b->kv, e ? e : &own);
}

static void close_db(struct bed *b)
{
    kv_close(b->kv);
    b->kv = NULL;
}

static void restart(struct bed *b, bool lost)
{
    uint64_t from = lost ? b->stable : b->acked;

    do {
        rocks_lossy_start(b->fs);
        if (prng_below(&b->prng, 8) == 0)
            rocks_lossy_kill_after(b->fs, 1 + prng_below(&b->prng, 40));
    } while (!open_db(b) && !b->wrong[0]);
    b->sync_fails = false;
    if (b->wrong[0])
        return;
    rocks_lossy_kill_after(b->fs, 0);
    uint64_t got = newest(b);
    if (got < from)
        wrong(b, "acked and lost", from, 0);
    if (got > b->last)
        wrong(b, "never written", got, 0);
    if (!b->wrong[0])
        check_prefix(b, got);
    b->last = b->acked = b->stable = got;
}

static void write_batches(struct bed *b, uint64_t n, bool sync)
{
    struct kv_batch *batch = kv_batch_new();
    struct err e;

    for (uint64_t i = 0; i < n; i++) {
        b->last++;
        fill(batch, b->last);
        bool now = sync && i + 1 == n;
        if (kv_write(b->kv, batch, now, &e)) {
            if (!may_fail(b))
                wrong(b, e.text, b->last, 0);
            break;
        }
        b->acked = b->last;
        if (now)
            b->stable = b->last;
    }
    kv_batch_free(batch);
}

static void sync_only(struct bed *b)
{
    struct kv_batch *nothing = kv_batch_new();
    struct err e;

    if (!kv_write(b->kv, nothing, true, &e))
        b->stable = b->acked;
    kv_batch_free(nothing);
}

static void copy(struct bed *b)
{
    char path[4096];
    struct err e;

    (void)snprintf(path, sizeof(path), "%s/copy-%" PRIu64, b->root, b->copies++);
    bool made = !kv_checkpoint(b->kv, path, &e); /* must not harm the database */
    if (!made && !may_fail(b))
        wrong(b, e.text, b->last, 0);
}

static void step(struct bed *b)
{
    uint64_t what = prng_below(&b->prng, 100);
    char from[8], to[8];
    struct err e;
    bool ok = true;

    if (what < 50) {
        write_batches(b, 1 + prng_below(&b->prng, 30), false);
    } else if (what < 58) {
        write_batches(b, 1 + prng_below(&b->prng, 5), true);
    } else if (what < 62) {
        sync_only(b);
    } else if (what < 66) {
        ok = !kv_flush(b->kv, &e);
    } else if (what < 72) {
        ok = !b->kv->ops->flush_soon(b->kv, (enum kv_cf)prng_below(&b->prng, KV_CFS), &e);
    } else if (what < 75 && b->last > BEHIND) {
        sync_only(b); /* as apply.c does before files go */
        ok = !b->kv->ops->drop_files(b->kv, (enum kv_cf)prng_below(&b->prng, KV_CFS),
                                     key_of(0, from), key_of(b->acked - MIN(b->acked, BEHIND), to),
                                     &e);
    } else if (what < 77) {
        copy(b);
    } else if (what < 80) {
        b->sync_fails = true;
        rocks_lossy_fail_sync(b->fs);
        write_batches(b, 1 + prng_below(&b->prng, 5), true);
    } else {
        bool cut = what >= 90;
        if (what % 3 == 0) /* orderly */
            close_db(b);
        rocks_lossy_kill(b->fs);
        close_db(b);
        if (cut)
            rocks_lossy_cut(b->fs, (enum rocks_lossy_keep)prng_below(&b->prng, LOSSY_KEEPS));
        restart(b, cut);
    }
    if (!ok && !may_fail(b))
        wrong(b, e.text, b->last, 0);
}

/* ---- beds ---- */

static void bed_init(struct bed *b, uint64_t seed)
{
    struct err e = { 0 };

    *b = (struct bed){ .root = kv_dir_new() };
    prng_init(&b->prng, seed);
    (void)snprintf(b->dir, sizeof(b->dir), "%s/db", b->root);
    b->scratch = kv_dir_new();
    b->fs = rocks_lossy_new(b->scratch, seed);
    struct kv_opts o = { .dir = b->dir, .block_cache_bytes = 8 * MIB, .memtable_bytes = 4 * MIB };
    if (kv_rocks_open(&o, &b->kv, &e))
        fail_msg("%s", e.text);
}

static void bed_deinit(struct bed *b)
{
    kv_close(b->kv);
    if (b->fs)
        rocks_lossy_free(b->fs);
    kv_dir_remove(b->scratch);
    kv_dir_remove(b->root);
}

static void run_seed(struct bed *b, uint64_t seed, unsigned deaf, int steps)
{
    bed_init(b, seed);
    rocks_lossy_deaf(b->fs, deaf);
    for (int i = 0; i < steps && !b->wrong[0]; i++) {
        if (prng_below(&b->prng, 6) == 0)
            rocks_lossy_kill_after(b->fs, 1 + prng_below(&b->prng, 60));
        step(b);
        if (may_fail(b) && !b->wrong[0]) {
            bool cut = prng_below(&b->prng, 3) == 0;
            rocks_lossy_kill(b->fs);
            close_db(b);
            if (cut)
                rocks_lossy_cut(b->fs, (enum rocks_lossy_keep)prng_below(&b->prng, LOSSY_KEEPS));
            restart(b, cut);
        }
        if (!b->wrong[0])
            rocks_lossy_kill_after(b->fs, 0);
    }
    bed_deinit(b);
}

/* ---- tests ---- */

/* A replica that was killed, restarted, went on, synced, and lost its power. */
static void restart_then_cut(struct bed *b, bool orderly, unsigned deaf)
{
    bed_init(b, 1);
    rocks_lossy_deaf(b->fs, deaf);
    write_batches(b, 20, false);
    if (orderly)
        close_db(b);
    rocks_lossy_kill(b->fs);
    close_db(b);
    rocks_lossy_start(b->fs);
    assert_true(open_db(b));
    b->stable = b->acked;
    write_batches(b, 5, true);
    rocks_lossy_kill(b->fs);
    close_db(b);
    rocks_lossy_cut(b->fs, LOSSY_NOTHING);
    restart(b, true);
    bed_deinit(b);
}

static void test_restart_then_cut(void **state)
{
    struct bed b;

    (void)state;
    for (int orderly = 0; orderly < 2; orderly++) {
        restart_then_cut(&b, orderly, 0);
        assert_string_equal(b.wrong, "");
        /* An orderly close syncs, too. */
        restart_then_cut(&b, orderly, LOSSY_DEAF_RECOVERED | (orderly ? LOSSY_DEAF_CLOSED : 0));
        assert_string_not_equal(b.wrong, "");
    }
}

/* An fsync fails, no note of that can be written, and the process ends. The next one finds all in
 * the page cache, continues, and loses its power. */
static void test_failed_sync(void **state)
{
    struct bed b;

    (void)state;
    for (unsigned deaf = 0; deaf <= LOSSY_DEAF_REWRITE; deaf += LOSSY_DEAF_REWRITE) {
        bed_init(&b, 1);
        rocks_lossy_deaf(b.fs, deaf);
        write_batches(&b, 20, false);
        b.sync_fails = true;
        rocks_lossy_fail_sync(b.fs);
        sync_only(&b);
        rocks_lossy_kill(b.fs);
        close_db(&b);
        restart(&b, false);
        assert_string_equal(b.wrong, "");
        write_batches(&b, 5, true);
        rocks_lossy_kill(b.fs);
        close_db(&b);
        rocks_lossy_cut(b.fs, LOSSY_NOTHING);
        restart(&b, true);
        bed_deinit(&b);
        if (deaf)
            assert_string_not_equal(b.wrong, "");
        else
            assert_string_equal(b.wrong, "");
    }
}

/* ---- logs that were synced and are not there ---- */

/* The oldest log of the folder that is not empty. */
static void first_log(const struct bed *b, char path[4400])
{
    DIR *d = opendir(b->dir);
    struct dirent *one;
    char best[256] = "~";

    assert_non_null(d);
    while ((one = readdir(d)) != NULL) {
        struct str name = str_c(one->d_name);
        if (!str_ends(name, STR(".log")) || strcmp(one->d_name, best) >= 0)
            continue;
        struct stat st;
        assert_int_equal(fstatat(dirfd(d), one->d_name, &st, 0), 0);
        if (st.st_size)
            memcpy(best, one->d_name, name.len + 1);
    }
    (void)closedir(d);
    assert_string_not_equal(best, "~");
    (void)snprintf(path, 4400, "%s/%s", b->dir, best);
}

/* A database with two logs, the older of which is what this process found. */
static void two_logs(struct bed *b)
{
    bed_init(b, 1);
    close_db(b);
    rocks_lossy_free(b->fs); /* the system's own files from here on */
    b->fs = NULL;
    assert_true(open_real(b, NULL));
    write_batches(b, 20, false);
    close_db(b);
    assert_true(open_real(b, NULL));
    write_batches(b, 5, true);
    close_db(b);
}

enum loss { GONE, EMPTY, SHORTER, LOSSES };

static void lose(const char *path, enum loss how)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    if (how == GONE)
        assert_int_equal(unlink(path), 0);
    else
        assert_int_equal(truncate(path, how == EMPTY ? 0 : st.st_size / 2), 0);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    size_t n;

    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(bytes, 1, sizeof(bytes), in)) > 0)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    (void)fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* It is distinguished from a power cut, nothing is changed, and with the log back all is well. */
static void test_lost_log(void **state)
{
    char path[4400], saved[4400];
    struct bed b;
    struct err e;

    (void)state;
    for (enum loss how = GONE; how < LOSSES; how++) {
        two_logs(&b);
        first_log(&b, path);
        (void)snprintf(saved, sizeof(saved), "%s/saved", b.root);
        copy_file(path, saved);
        lose(path, how);
        for (int i = 0; i < 2; i++) {
            assert_false(open_real(&b, &e));
            assert_int_equal(e.code, ERR_CORRUPT);
            assert_non_null(strstr(e.text, "rows are missing"));
            assert_non_null(strstr(e.text, strrchr(path, '/') + 1));
        }
        copy_file(saved, path);
        assert_true(open_real(&b, NULL));
        check_prefix(&b, 25);
        assert_string_equal(b.wrong, "");
        bed_deinit(&b);
    }
}

/* A list of logs that a version wrote which another one followed, that knows of no list, says
 * nothing of the logs that are there. */
static void test_old_list(void **state)
{
    char path[4400], list[4400], saved[4400];
    struct bed b;

    (void)state;
    two_logs(&b);
    (void)snprintf(list, sizeof(list), "%s/synced-wals", b.dir);
    (void)snprintf(saved, sizeof(saved), "%s/saved", b.root);
    first_log(&b, path);
    copy_file(list, saved);
    assert_true(open_real(&b, NULL));
    struct err e;
    assert_int_equal(kv_flush(b.kv, &e), 0);
    close_db(&b); /* the logs of the list are gone */
    assert_int_not_equal(access(path, F_OK), 0);
    copy_file(saved, list);
    assert_true(open_real(&b, NULL));
    check_prefix(&b, 25);
    assert_string_equal(b.wrong, "");
    close_db(&b);
    assert_int_equal(unlink(list), 0);
    assert_true(open_real(&b, NULL));
    assert_int_equal(access(list, F_OK), 0);
    bed_deinit(&b);
}

static void manifest_of(const struct bed *b, char path[4400])
{
    char current[4400], name[64];
    FILE *f;

    (void)snprintf(current, sizeof(current), "%s/CURRENT", b->dir);
    f = fopen(current, "rb");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%63s", name), 1);
    (void)fclose(f);
    (void)snprintf(path, 4400, "%s/%s", b->dir, name);
}

/* A record of the manifest whose length came through and whose bytes did not. */
static void tear(const char *path, off_t at)
{
    static const char record[200] = { 'x', 'x', 'x', 'x', 100, 0, 1, 'r', 'e', 's', 't' };
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, record, sizeof(record), at < 0 ? st.st_size : at), sizeof(record));
    (void)close(fd);
}

/* RocksDB refuses a database for it. What was not synced yet is removed; nothing is, where bytes
 * that were synced have changed, or where it is not known what was synced. */
static void test_torn_manifest(void **state)
{
    char path[4400], list[4400];
    struct bed b;
    struct err e;

    (void)state;
    two_logs(&b);
    (void)snprintf(list, sizeof(list), "%s/synced-wals", b.dir);
    for (int i = 0; i < 2; i++) {
        manifest_of(&b, path);
        tear(path, -1);
        assert_true(open_real(&b, NULL));
        check_prefix(&b, 25);
        assert_string_equal(b.wrong, "");
        assert_int_equal(kv_flush(b.kv, &e), 0); /* more records */
        close_db(&b);
    }
    manifest_of(&b, path);
    tear(path, 0);
    assert_false(open_real(&b, &e));
    assert_int_equal(e.code, ERR_CORRUPT);
    bed_deinit(&b);

    two_logs(&b);
    (void)snprintf(list, sizeof(list), "%s/synced-wals", b.dir);
    manifest_of(&b, path);
    tear(path, -1);
    assert_int_equal(unlink(list), 0);
    assert_false(open_real(&b, &e));
    assert_int_equal(e.code, ERR_CORRUPT);
    bed_deinit(&b);
}

static uint64_t env_u64(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t n = 0;

    return text && str_u64(str_c(text), &n) ? n : otherwise;
}

/* Seeds side by side, each in a process of its own: after a failed write RocksDB's background
 * threads sleep for a second. Returns the first seed that went wrong, 0: none. */
static uint64_t run_seeds(uint64_t first, uint64_t n, unsigned deaf, int steps)
{
    uint64_t bad = 0;
    pid_t pids[SIDE_BY_SIDE];
    int status;

    for (uint64_t seed = first; seed < first + n && !bad; seed += SIDE_BY_SIDE) {
        uint64_t some = MIN(first + n - seed, (uint64_t)SIDE_BY_SIDE);
        for (uint64_t i = 0; i < some; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i])
                continue;
            struct bed b;
            (void)alarm(600); /* of 8 at once on a busy machine each takes its time */
            run_seed(&b, seed + i, deaf, steps);
            if (b.wrong[0] && !deaf)
                (void)fprintf(stderr, "SEED=%" PRIu64 ": %s\n", seed + i, b.wrong);
            _exit(b.wrong[0] ? 3 : 0);
        }
        for (uint64_t i = 0; i < some; i++) {
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            /* RocksDB has assertions of its own; behind syncs that are left out one of them may end
             * the process, which proves nothing of what the seed is about. */
            if (deaf && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
                continue;
            if ((!WIFEXITED(status) || WEXITSTATUS(status)) && !bad)
                bad = seed + i;
            assert_true(WIFEXITED(status) &&
                        (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
        }
    }
    return bad;
}

static void test_random(void **state)
{
    (void)state;
    assert_int_equal(
        run_seeds(env_u64("SEED", 1), env_u64("SEEDS", 16), 0, (int)env_u64("STEPS", 40)), 0);
}

/* What would go wrong without one of the syncs. */
static void test_mutants(void **state)
{
    (void)state;
    for (unsigned deaf = LOSSY_DEAF_RECOVERED; deaf <= LOSSY_DEAF_REWRITE; deaf <<= 1)
        if (!run_seeds(1, 64, deaf, 40))
            fail_msg("nothing noticed without the syncs 0x%x", deaf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),           cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_restart_then_cut), cmocka_unit_test(test_failed_sync),
        cmocka_unit_test(test_lost_log),         cmocka_unit_test(test_old_list),
        cmocka_unit_test(test_torn_manifest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
