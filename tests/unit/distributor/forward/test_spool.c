/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/forward/spool.h"

static char *dir_new(void)
{
    char path[] = "/tmp/embertree-spool-XXXXXX";

    assert_non_null(mkdtemp(path));
    return xstrdup(path);
}

static void dir_free(char *dir)
{
    char command[256];

    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    xfree(dir);
}

static struct spool *open_spool(const char *dir, uint64_t bytes_max, uint64_t segment,
                                const struct spool_io *io)
{
    struct spool_opts o = { .dir = dir,
                            .fs = fs_real(),
                            .bytes_max = bytes_max,
                            .segment_bytes = segment,
                            .record_max = 64 * KIB,
                            .io = io };
    struct spool *s = NULL;
    struct err e;

    if (spool_open(&o, &s, &e))
        fail_msg("%s", e.text);
    return s;
}

/* Record number n: its length and bytes follow from it. */
static void record_of(uint32_t n, struct buf *to)
{
    struct prng p;

    buf_reset(to);
    prng_init(&p, n);
    uint32_t len = 1 + (uint32_t)(prng_u64(&p) % 200);
    buf_addf(to, "%u:", n);
    for (uint32_t i = 0; i < len; i++)
        buf_add_c(to, (char)prng_u64(&p));
}

static int append(struct spool *s, uint32_t n)
{
    struct buf b;
    struct err e;

    buf_init(&b, 64 * KIB);
    record_of(n, &b);
    int rc = spool_append(s, buf_str(&b), 1000 + n, &e);
    buf_deinit(&b);
    return rc;
}

/* The number of the record that comes next, which must be whole; -1: no record. */
static int64_t take(struct spool *s, uint64_t *ret_ticket)
{
    struct buf b, want;
    int64_t at, n = -1;
    struct err e;

    buf_init(&b, 64 * KIB);
    buf_init(&want, 64 * KIB);
    int rc = spool_take(s, &b, &at, ret_ticket, &e);
    assert_true(rc >= 0);
    if (rc) {
        n = at - 1000;
        record_of((uint32_t)n, &want);
        assert_int_equal(b.len, want.len);
        assert_memory_equal(b.ptr, want.ptr, b.len);
    }
    buf_deinit(&b);
    buf_deinit(&want);
    return n;
}

static void test_order_and_restart(void **state)
{
    char *dir = dir_new();
    struct spool *s = open_spool(dir, 64 * MIB, 1000, NULL);
    uint64_t t[8], ticket;

    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(append(s, i), 0);
    assert_int_equal(spool_stats(s).records, 40);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(take(s, &t[i]), i);
    assert_int_equal(spool_stats(s).oldest_ms, 1000);
    spool_finish(s, t[1]);
    spool_finish(s, t[0]);
    spool_finish(s, t[3]); /* 2 is not finished: 3 comes again */
    assert_int_equal(spool_stats(s).oldest_ms, 1002);
    assert_int_equal(spool_stats(s).records, 37);
    spool_close(s);
    s = open_spool(dir, 64 * MIB, 1000, NULL);
    assert_int_equal(spool_stats(s).records, 38);
    assert_int_equal(append(s, 40), 0);
    for (uint32_t i = 2; i <= 40; i++) {
        assert_int_equal(take(s, &ticket), i);
        spool_finish(s, ticket);
    }
    assert_int_equal(take(s, &ticket), -1);
    assert_int_equal(spool_stats(s).records, 0);
    assert_int_equal(spool_stats(s).damaged, 0);
    spool_close(s);
    s = open_spool(dir, 64 * MIB, 1000, NULL);
    assert_int_equal(take(s, &ticket), -1);
    assert_int_equal(append(s, 41), 0);
    assert_int_equal(take(s, &ticket), 41);
    spool_close(s);
    dir_free(dir);
}

static void copy_cut(const char *from, const char *to, size_t n)
{
    char *bytes = xmalloc(n + 1);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(in >= 0 && out >= 0);
    assert_int_equal(read(in, bytes, n), (ssize_t)n);
    assert_int_equal(write(out, bytes, n), (ssize_t)n);
    (void)close(in);
    (void)close(out);
    xfree(bytes);
}

/* Cut at every byte: whole records before the cut are there, nothing else is, and it continues. */
static void test_cut_at_every_byte(void **state)
{
    char *dir = dir_new(), from[256], to[512], cut_dir[256];
    struct spool *s = open_spool(dir, 64 * MIB, 0, NULL);
    uint64_t ends[6], ticket;
    struct stat st;

    (void)state;
    (void)snprintf(from, sizeof(from), "%s/0000000000000001.spool", dir);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(append(s, i), 0);
        assert_int_equal(stat(from, &st), 0);
        ends[i] = (uint64_t)st.st_size;
    }
    spool_close(s);
    (void)snprintf(cut_dir, sizeof(cut_dir), "%s/cut", dir);
    for (uint64_t n = 0; n <= ends[5]; n++) {
        uint32_t whole = 0;
        assert_true(mkdir(cut_dir, 0755) == 0 || errno == EEXIST);
        (void)snprintf(to, sizeof(to), "%s/0000000000000001.spool", cut_dir);
        copy_cut(from, to, n);
        s = open_spool(cut_dir, 64 * MIB, 0, NULL);
        assert_int_equal(append(s, 99), 0);
        for (; whole < 6 && ends[whole] <= n; whole++) {
            assert_int_equal(take(s, &ticket), whole);
            spool_finish(s, ticket);
        }
        assert_int_equal(take(s, &ticket), 99);
        spool_finish(s, ticket);
        assert_int_equal(take(s, &ticket), -1);
        spool_close(s);
        (void)unlink(to);
        (void)snprintf(to, sizeof(to), "%s/0000000000000002.spool", cut_dir);
        (void)unlink(to);
        (void)snprintf(to, sizeof(to), "%s/position", cut_dir);
        (void)unlink(to);
    }
    dir_free(dir);
}

/* A byte changed: that record, or what is behind a damaged length, is passed over; no wrong one. */
static void test_damage(void **state)
{
    char *dir = dir_new(), path[256];
    struct spool *s = open_spool(dir, 64 * MIB, 0, NULL);
    struct stat st;

    (void)state;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(append(s, i), 0);
    spool_close(s);
    (void)snprintf(path, sizeof(path), "%s/0000000000000001.spool", dir);
    assert_int_equal(stat(path, &st), 0);
    for (off_t at = 0; at < st.st_size; at++) {
        int fd = open(path, O_RDWR | O_CLOEXEC);
        char c, bad;
        assert_int_equal(pread(fd, &c, 1, at), 1);
        bad = (char)(c ^ 0x10);
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        s = open_spool(dir, 64 * MIB, 0, NULL);
        struct buf b;
        int64_t ms;
        uint64_t ticket;
        struct err e;
        int rc, damaged = 0;
        int64_t last = -1;
        buf_init(&b, 64 * KIB);
        while ((rc = spool_take(s, &b, &ms, &ticket, &e)) != 0) {
            struct buf want;
            damaged += rc < 0;
            if (rc < 0)
                continue;
            buf_init(&want, 64 * KIB);
            record_of((uint32_t)(ms - 1000), &want);
            assert_true(ms - 1000 > last);
            last = ms - 1000;
            assert_int_equal(b.len, want.len);
            assert_memory_equal(b.ptr, want.ptr, b.len);
            buf_deinit(&want);
        }
        assert_true(damaged + (int)spool_stats(s).damaged >= (at >= SPOOL_HEAD));
        buf_deinit(&b);
        spool_close(s);
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
        (void)close(fd);
        (void)snprintf(path, sizeof(path), "%s/position", dir);
        (void)unlink(path);
        (void)snprintf(path, sizeof(path), "%s/0000000000000001.spool", dir);
    }
    dir_free(dir);
}

struct fault {
    size_t left; /* bytes that still can be written */
    bool sync_fails;
};

static ssize_t fault_pwrite(void *cookie, int fd, const void *p, size_t n, off_t at)
{
    struct fault *f = cookie;
    size_t part = MIN(n, f->left);

    if (part == 0) {
        errno = ENOSPC;
        return -1;
    }
    f->left -= part;
    return pwrite(fd, p, part, at);
}

static int fault_fsync(void *cookie, int fd)
{
    const struct fault *f = cookie;

    (void)fd;
    errno = EIO;
    return f->sync_fails ? -1 : 0;
}

/* The disk is full after so many bytes, and then is not: all confirmed records are in the spool. */
static void test_full_at_every_byte(void **state)
{
    (void)state;
    for (size_t room = 0; room < 600; room++) {
        char *dir = dir_new();
        struct fault f = { .left = room };
        struct spool_io io = { fault_pwrite, fault_fsync, &f };
        struct spool *s = open_spool(dir, 64 * MIB, 0, &io);
        uint32_t in[20], n = 0;
        uint64_t ticket;
        for (uint32_t i = 0; i < 10; i++) {
            if (i == 7)
                f.left = SIZE_MAX;
            if (append(s, i) == 0)
                in[n++] = i;
        }
        assert_true(n >= 3);
        if (room % 2) {
            spool_close(s);
            s = open_spool(dir, 64 * MIB, 0, NULL);
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(take(s, &ticket), in[i]);
            spool_finish(s, ticket);
        }
        assert_int_equal(take(s, &ticket), -1);
        spool_close(s);
        dir_free(dir);
    }
}

static void test_sync_fails(void **state)
{
    char *dir = dir_new();
    struct fault f = { .left = SIZE_MAX };
    struct spool_io io = { fault_pwrite, fault_fsync, &f };
    struct spool *s = open_spool(dir, 64 * MIB, 0, &io);
    struct err e;

    (void)state;
    assert_int_equal(append(s, 1), 0);
    assert_int_equal(spool_sync(s, &e), 0);
    f.sync_fails = true;
    assert_int_equal(spool_sync(s, &e), ERR_IO);
    spool_close(s);
    dir_free(dir);
}

/* Over the maximum the oldest go, by segments; what is taken is not counted as dropped. */
static void test_maximum(void **state)
{
    char *dir = dir_new();
    struct spool *s = open_spool(dir, 4096, 1024, NULL);
    uint64_t ticket, taken, left = 0;
    int64_t n, last = -1;

    (void)state;
    assert_int_equal(append(s, 0), 0);
    assert_int_equal(take(s, &taken), 0);
    for (uint32_t i = 1; i < 100; i++) {
        assert_int_equal(append(s, i), 0);
        assert_true(spool_stats(s).bytes <= 4096);
    }
    uint64_t dropped = spool_stats(s).dropped;
    assert_int_equal(spool_stats(s).records + dropped, 100);
    spool_finish(s, taken);
    dropped = spool_stats(s).dropped;
    assert_int_equal(spool_stats(s).records + dropped, 99);
    while ((n = take(s, &ticket)) >= 0) {
        assert_true(n > last);
        last = n;
        left++;
        spool_finish(s, ticket);
    }
    assert_int_equal(last, 99);
    assert_int_equal(left + dropped, 99);
    spool_close(s);
    dir_free(dir);
}

static int no_space(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                    struct err *e)
{
    (void)fs;
    (void)path;
    (void)e;
    *ret_free = 1000;
    *ret_total = 1000000;
    return 0;
}

/* While files cannot be opened, since the process has too many of them, nothing is taken, and
 * nothing is passed over. */
static void test_no_files_left(void **state)
{
    char *dir = dir_new();
    struct spool *s = open_spool(dir, 64 * MIB, 1000, NULL);
    struct rlimit was, none;
    uint64_t ticket;

    (void)state;
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(append(s, i), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    int fd = open("/dev/null", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    none = (struct rlimit){ .rlim_cur = (rlim_t)fd, .rlim_max = was.rlim_max };
    for (uint32_t i = 0; i < 40; i++) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        int64_t n = take(s, &ticket); /* of a segment that is open already, or none */
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        if (n < 0)
            n = take(s, &ticket);
        assert_int_equal(n, i);
        spool_finish(s, ticket);
    }
    assert_int_equal(take(s, &ticket), -1);
    assert_int_equal(spool_stats(s).records, 0);
    assert_int_equal(spool_stats(s).damaged, 0);
    spool_close(s);
    dir_free(dir);
}

static void test_disk_reserve(void **state)
{
    char *dir = dir_new();
    struct fs fs = *fs_real();
    struct spool *s;
    struct err e;

    (void)state;
    fs.space = no_space;
    struct spool_opts o = {
        .dir = dir, .fs = &fs, .bytes_max = 64 * MIB, .reserve_bytes = 5000, .record_max = 1000
    };
    assert_int_equal(spool_open(&o, &s, &e), 0);
    assert_int_equal(spool_append(s, STR("x"), 1, &e), ERR_NO_SPACE);
    assert_int_equal(spool_stats(s).records, 0);
    spool_close(s);
    dir_free(dir);
}

/* Random steps against a list. */
static void test_random(void **state)
{
    struct prng p;
    uint64_t seed = (uint64_t)getpid();

    (void)state;
    print_message("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 20; round++) {
        char *dir = dir_new();
        struct spool *s = open_spool(dir, 64 * MIB, 700, NULL);
        uint32_t next = 0;
        uint64_t out[SPOOL_TAKEN_MAX], ids[SPOOL_TAKEN_MAX];
        size_t out_len = 0;
        uint64_t at = 0; /* the next to be taken */
        bool finished[4000] = { false };
        for (int step = 0; step < 400; step++) {
            uint64_t dice = prng_u64(&p) % 10;
            if (dice < 4) {
                assert_int_equal(append(s, next++), 0);
            } else if (dice < 7 && out_len < SPOOL_TAKEN_MAX) {
                uint64_t ticket;
                int64_t n = take(s, &ticket);
                assert_true(n == (at < next ? (int64_t)at : -1) || n == -1);
                if (n >= 0) {
                    ids[out_len] = at++;
                    out[out_len++] = ticket;
                }
            } else if (dice < 9 && out_len) {
                size_t i = (size_t)(prng_u64(&p) % out_len);
                spool_finish(s, out[i]);
                finished[ids[i]] = true;
                out[i] = out[--out_len];
                ids[i] = ids[out_len];
            } else if (dice == 9 && prng_u64(&p) % 4 == 0) {
                spool_close(s);
                s = open_spool(dir, 64 * MIB, 700, NULL);
                for (at = 0; at < next && finished[at]; at++)
                    continue;
                for (uint64_t i = at; i < next; i++)
                    finished[i] = false; /* they come again, and count from then on */
                out_len = 0;
            }
        }
        assert_int_equal(spool_stats(s).damaged, 0);
        spool_close(s);
        dir_free(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_restart),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_full_at_every_byte),
        cmocka_unit_test(test_sync_fails),
        cmocka_unit_test(test_maximum),
        cmocka_unit_test(test_no_files_left),
        cmocka_unit_test(test_disk_reserve),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
