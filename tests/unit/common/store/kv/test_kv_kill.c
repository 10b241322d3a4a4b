/* SPDX-License-Identifier: Apache-2.0
 *
 * kill -9 at random moments: a child (this program, run again with a folder as argument) writes
 * numbered batches over all column families and reports each synced one through a pipe; the parent
 * kills it, reopens the database and checks: every reported batch is there, whole; the stored
 * batches are a prefix of the written ones; no batch is there in part. The next child continues
 * behind it.
 *
 * Batch n puts n under its number into a few families (which ones and how long the values are is a
 * function of n), deletes the rows of batch n - 40, and some batches delete a range or flush.
 */
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/store/kv/kv.h"
#include "tests/lib/store/kv_dir.h"

#define ROUNDS 30
#define BEHIND 40 /* batch n - BEHIND is deleted by batch n */

static bool in_family(uint64_t n, int cf)
{
    return hash_u64(n * 31 + (uint64_t)cf) % 3 == 0 || cf == (int)(n % KV_CFS);
}

static struct str key_of(uint64_t n, char key[8])
{
    put_u64be(key, n);
    return str_n(key, 8);
}

static struct str value_of(uint64_t n, int cf, char room[20000])
{
    uint64_t h = hash_u64(n * 17 + (uint64_t)cf);
    size_t len = h % 20 == 0 ? 8 + h % 19000 : 8 + h % 200;

    for (size_t i = 0; i < len; i++)
        room[i] = (char)(h >> i % 8 * 8);
    put_u64be(room, n);
    return str_n(room, len);
}

static void fill_batch(struct kv_batch *b, uint64_t n)
{
    static char room[20000];
    char key[8], from[8];

    for (int cf = 0; cf < KV_CFS; cf++)
        if (in_family(n, cf))
            kv_batch_put(b, (enum kv_cf)cf, key_of(n, key), value_of(n, cf, room));
    for (int cf = 0; n > BEHIND && cf < KV_CFS; cf++) {
        if (n % 7 == 0) /* all up to there; mostly gone already */
            kv_batch_del_range(b, (enum kv_cf)cf, key_of(0, from), key_of(n - BEHIND + 1, key));
        else if (in_family(n - BEHIND, cf))
            kv_batch_del(b, (enum kv_cf)cf, key_of(n - BEHIND, key));
    }
}

/* ---- the child ---- */

static int child(const char *dir, uint64_t n)
{
    struct kv *k = kv_dir_open(dir);
    struct kv_batch *b = kv_batch_new();
    struct err e;

    for (;; n++) {
        bool sync = hash_u64(n) % 4 != 0;
        kv_batch_clear(b);
        fill_batch(b, n);
        if (kv_write(k, b, sync, &e) || (n % 300 == 0 && kv_flush(k, &e))) {
            fprintf(stderr, "child: %s\n", e.text);
            return 1;
        }
        if (sync && write(STDOUT_FILENO, &n, sizeof(n)) != (ssize_t)sizeof(n))
            return 1;
    }
}

/* ---- the parent ---- */

static pid_t spawn(const char *dir, uint64_t n, int *ret_pipe)
{
    char number[32], *argv[] = { (char[]){ "child" }, (char *)(uintptr_t)dir, number, NULL };
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int fd[2];

    snprintf(number, sizeof(number), "%" PRIu64, n);
    CHECK(pipe(fd) == 0);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&fa, fd[0]);
    posix_spawn_file_actions_addclose(&fa, fd[1]);
    CHECK(posix_spawn(&pid, "/proc/self/exe", &fa, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&fa);
    close(fd[1]);
    *ret_pipe = fd[0];
    return pid;
}

/* Lets it live until `acks` reports and a moment more; returns the last reported batch. */
static uint64_t live_and_die(const char *dir, uint64_t first, struct prng *p)
{
    uint64_t acks = prng_below(p, 200), acked = first - 1, n;
    struct timespec moment = { 0, (long)prng_below(p, 2000000) };
    int fd, status;
    pid_t pid = spawn(dir, first, &fd);

    for (; acks && read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n); acks--) {
        CHECK(n > acked);
        acked = n;
    }
    nanosleep(&moment, NULL);
    kill(pid, SIGKILL);
    while (read(fd, &n, sizeof(n)) == (ssize_t)sizeof(n)) /* reported before it died */
        acked = n;
    close(fd);
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFSIGNALED(status))
        fail_msg("the child ended by itself with status %d", status);
    return acked;
}

/* Batch n is there whole (1), not at all (0) or in part (-1). */
static int look(struct kv *k, uint64_t n, struct buf *out)
{
    static char room[20000];
    int there = 0, families = 0;
    char key[8];
    struct err e;

    for (int cf = 0; cf < KV_CFS; cf++) {
        int rc = kv_get(k, NULL, (enum kv_cf)cf, key_of(n, key), out, &e);
        CHECK(rc == 0 || rc == ERR_NOT_FOUND);
        families += in_family(n, cf);
        if (rc == 0 && in_family(n, cf) && str_eq(buf_str(out), value_of(n, cf, room)))
            there++;
        else if (rc == 0)
            return -1;
    }
    return there == families ? 1 : there ? -1 : 0;
}

/* Returns the last batch that is there. */
static uint64_t check(struct kv *k, uint64_t acked)
{
    uint64_t last = acked;
    struct buf out;

    buf_init(&out, MIB);
    while (look(k, last + 1, &out) == 1)
        last++;
    for (uint64_t n = last > 2 * BEHIND ? last - 2 * BEHIND : 1; n <= last + 50; n++) {
        int want = n > last || n + BEHIND <= last ? 0 : 1, got = look(k, n, &out);
        if (got != want)
            fail_msg("batch %" PRIu64 " of %" PRIu64 " (acked %" PRIu64 "): %d, not %d", n, last,
                     acked, got, want);
    }
    for (int cf = 0; cf < KV_CFS; cf++) { /* and nothing else */
        struct kv_iter *it = kv_iter_new(k, NULL, (enum kv_cf)cf, STR_NULL, STR_NULL);
        struct err e;
        for (; kv_iter_valid(it); kv_iter_next(it)) {
            uint64_t n = get_u64be(kv_iter_key(it).ptr);
            assert_true(n <= last && n + BEHIND > last);
        }
        assert_int_equal(kv_iter_status(it, &e), 0);
        kv_iter_free(it);
    }
    buf_deinit(&out);
    return last;
}

static void test_kill(void **state)
{
    char *dir = kv_dir_new();
    uint64_t seed = (uint64_t)time(NULL), first = 1, unacked = 0;
    const char *given = getenv("SEED");
    struct prng p;

    (void)state;
    seed = given ? strtoull(given, NULL, 10) : seed;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t acked = live_and_die(dir, first, &p);
        struct kv *k = kv_dir_open(dir);
        uint64_t last = check(k, acked);
        unacked += last - acked;
        first = last + 1;
        kv_close(k);
    }
    print_message("%" PRIu64 " batches, %" PRIu64 " of them found though not reported\n", first - 1,
                  unacked);
    assert_true(first > 1000);
    kv_dir_remove(dir);
}

/* ---- a torn log ---- */

/* The only log file of a young database. */
static void log_path(const char *dir, char *path, size_t size)
{
    char pattern[4200];
    glob_t g;

    snprintf(pattern, sizeof(pattern), "%s/*.log", dir);
    CHECK(glob(pattern, 0, NULL, &g) == 0 && g.gl_pathc == 1);
    CHECK((size_t)snprintf(path, size, "%s", g.gl_pathv[0]) < size);
    globfree(&g);
}

static off_t log_size(const char *dir)
{
    char path[4200];
    struct stat st;

    log_path(dir, path, sizeof(path));
    CHECK(stat(path, &st) == 0);
    return st.st_size;
}

/* Cuts the log to `size` and, as a disk may, leaves something else behind it. */
static void tear_log(const char *dir, off_t size, struct prng *p)
{
    char path[4200], garbage[300];
    size_t n = prng_chance(p, 0.5) ? prng_below(p, sizeof(garbage)) : 0;
    bool zeros = prng_chance(p, 0.5);

    for (size_t i = 0; i < n; i++)
        garbage[i] = zeros ? 0 : (char)prng_u64(p);
    log_path(dir, path, sizeof(path));
    CHECK(truncate(path, size) == 0);
    int fd = open(path, O_WRONLY | O_APPEND);
    CHECK(fd >= 0 && write(fd, garbage, n) == (ssize_t)n);
    close(fd);
}

/* What a power cut leaves of the log: all up to the last sync, anything after it. */
static void test_torn_log(void **state)
{
    enum { SYNCED = 30, WRITTEN = 60, CUTS = 40 };
    char *dir = kv_dir_new(), command[9000];
    struct kv *k = kv_dir_open(dir);
    struct kv_batch *b = kv_batch_new();
    uint64_t lost = 0, seed = (uint64_t)time(NULL);
    const char *given = getenv("SEED");
    off_t synced = 0;
    struct prng p;
    struct err e;

    (void)state;
    seed = given ? strtoull(given, NULL, 10) : seed;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (uint64_t n = 1; n <= WRITTEN; n++) {
        kv_batch_clear(b);
        fill_batch(b, n);
        assert_int_equal(kv_write(k, b, n == SYNCED, &e), 0);
        synced = n == SYNCED ? log_size(dir) : synced;
    }
    kv_batch_free(b);
    /* As a process leaves it that is killed: closing would sync. */
    char *killed = kv_dir_new();
    snprintf(command, sizeof(command), "cp -r %s/. %s", dir, killed);
    CHECK(system(command) == 0);
    kv_close(k);
    off_t all = log_size(killed);
    for (int i = 0; i <= CUTS; i++) {
        off_t cut = synced + (off_t)prng_below(&p, (uint64_t)(all - synced) + 1);
        char *copy = kv_dir_new();
        cut = i == 0 ? synced : i == 1 ? all : cut;
        snprintf(command, sizeof(command), "cp -r %s/. %s", killed, copy);
        CHECK(system(command) == 0);
        tear_log(copy, cut, &p);
        k = kv_dir_open(copy);
        uint64_t last = check(k, SYNCED);
        assert_true(i == 0 ? last == SYNCED : last <= WRITTEN);
        assert_true(i != 1 || last == WRITTEN);
        lost += WRITTEN - last;
        kv_close(k);
        kv_dir_remove(copy);
    }
    assert_true(lost > CUTS);
    kv_dir_remove(killed);
    kv_dir_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kill),
                                        cmocka_unit_test(test_torn_log) };

    if (argc == 3)
        return child(argv[1], strtoull(argv[2], NULL, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
