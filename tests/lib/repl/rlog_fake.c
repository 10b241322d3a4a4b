/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/repl/rlog_fake.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/vec.h"

enum { SECTOR = 512 };

struct rlog_file {
    char *path; /* owned */
    VEC(char) now, durable;
    VEC(bool) clean;     /* by sector: an fsync of it failed, and none writes it again */
    bool linked;         /* the name is there */
    bool durable_linked; /* and after a power cut */
    int opens;
};
struct rlog_fake {
    struct rlog_fs fs;
    struct rlog_fake_faults faults;
    struct prng prng;
    VEC(struct rlog_file *) files; /* by name */
};

static struct rlog_fake *fake_of(const struct rlog_fs *fs)
{
    return fs->cookie;
}

static int by_path(const void *a, const void *b)
{
    struct rlog_file *const *x = a, *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

static void set_len(struct rlog_file *f, size_t n)
{
    vec_reserve(&f->now, n);
    if (n > f->now.len)
        memset(f->now.ptr + f->now.len, 0, n - f->now.len);
    f->now.len = n;
}

static bool fails(uint64_t *in)
{
    return *in && --*in == 0;
}

static int failure(struct rlog_fake *k, const char *what, struct err *e)
{
    return err_set(e, k->faults.code ? k->faults.code : ERR_IO, "injected: %s failed", what);
}

static int fake_list(const struct rlog_fs *fs, const char *dir,
                     void (*each)(void *cookie, const char *name), void *cookie, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);
    size_t n = strlen(dir);

    (void)e;
    vec_for (i, &k->files)
        if (k->files.ptr[i]->linked && !strncmp(k->files.ptr[i]->path, dir, n) &&
            k->files.ptr[i]->path[n] == '/')
            each(cookie, k->files.ptr[i]->path + n + 1);
    return 0;
}

static int fake_open(const struct rlog_fs *fs, const char *path, bool create,
                     struct rlog_file **ret, uint64_t *ret_size, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);
    struct rlog_file *f = NULL;

    vec_for (i, &k->files)
        if (!strcmp(k->files.ptr[i]->path, path))
            f = k->files.ptr[i];
    if ((!f || !f->linked) && !create)
        return err_set(e, ERR_IO, "no file %s", path);
    if (!f) {
        f = XNEW(struct rlog_file);
        f->path = xstrdup(path);
        vec_push(&k->files, f);
        qsort(k->files.ptr, k->files.len, sizeof(*k->files.ptr), by_path);
    }
    if (create) {
        f->linked = true;
        f->now.len = 0;
    }
    f->opens++;
    *ret = f;
    *ret_size = f->now.len;
    return 0;
}

static void fake_close(const struct rlog_fs *fs, struct rlog_file *f)
{
    (void)fs;
    CHECK(f->opens-- > 0);
}

static int fake_write(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at,
                      const struct str *parts, size_t n, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);
    bool half = fails(&k->faults.fail_write_in);

    k->faults.writes++;
    for (size_t i = 0; i < (half ? n / 2 : n); i++) {
        if (at + parts[i].len > f->now.len)
            set_len(f, (size_t)at + parts[i].len);
        if (parts[i].len)
            memcpy(f->now.ptr + at, parts[i].ptr, parts[i].len);
        for (uint64_t n2 = at / SECTOR; n2 < f->clean.len && n2 * SECTOR < at + parts[i].len; n2++)
            f->clean.ptr[n2] = false;
        at += parts[i].len;
    }
    return half ? failure(k, "a write", e) : 0;
}

static int fake_read(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at, char *to, size_t n,
                     struct err *e)
{
    (void)fs;
    if (at + n > f->now.len)
        return err_set(e, ERR_CORRUPT, "%s ends before byte %" PRIu64, f->path, at + n);
    if (n)
        memcpy(to, f->now.ptr + at, n);
    return 0;
}

/* Pages for which an earlier fsync failed are not written again: the medium keeps its old bytes. */
static void make_durable(struct rlog_file *f)
{
    size_t was = MIN(f->durable.len, f->now.len);

    vec_reserve(&f->durable, f->now.len + 1);
    if (f->now.len > was)
        memset(f->durable.ptr + was, 0, f->now.len - was);
    f->durable.len = f->now.len;
    for (size_t at = 0; at < f->now.len; at += SECTOR)
        if (at / SECTOR >= f->clean.len || !f->clean.ptr[at / SECTOR])
            memcpy(f->durable.ptr + at, f->now.ptr + at, MIN((size_t)SECTOR, f->now.len - at));
}

/* An fsync failed: what was not on the medium stays in memory, as if it were there. */
static void make_clean(struct rlog_file *f)
{
    size_t was = MIN(f->durable.len, f->now.len);

    for (size_t at = 0; at < f->now.len; at += SECTOR) {
        size_t n = MIN((size_t)SECTOR, f->now.len - at);
        bool same = at + n <= was && !memcmp(f->durable.ptr + at, f->now.ptr + at, n);
        if (at / SECTOR == f->clean.len)
            vec_push(&f->clean, false);
        f->clean.ptr[at / SECTOR] |= !same;
    }
}

static int fake_sync(const struct rlog_fs *fs, struct rlog_file *f, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);

    k->faults.syncs++;
    if (fails(&k->faults.fail_sync_in)) {
        if (prng_chance(&k->prng, 0.5))
            make_durable(f);
        else
            make_clean(f);
        return failure(k, "a sync", e);
    }
    make_durable(f);
    return 0;
}

static int fake_truncate(const struct rlog_fs *fs, struct rlog_file *f, uint64_t size,
                         struct err *e)
{
    (void)fs;
    (void)e;
    set_len(f, (size_t)size);
    return 0;
}

static int fake_sync_dir(const struct rlog_fs *fs, const char *dir, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);
    size_t n = strlen(dir);

    (void)e;
    vec_for (i, &k->files)
        if (!strncmp(k->files.ptr[i]->path, dir, n))
            k->files.ptr[i]->durable_linked = k->files.ptr[i]->linked;
    return 0;
}

static int fake_unlink(const struct rlog_fs *fs, const char *path, struct err *e)
{
    struct rlog_fake *k = fake_of(fs);

    (void)e;
    vec_for (i, &k->files)
        if (!strcmp(k->files.ptr[i]->path, path))
            k->files.ptr[i]->linked = false;
    return 0;
}

struct rlog_fake *rlog_fake_new(uint64_t seed)
{
    struct rlog_fake *k = XNEW(struct rlog_fake);

    prng_init(&k->prng, seed);
    k->fs = (struct rlog_fs){ fake_list,   fake_open, fake_close,    fake_write,
                              fake_read,   fake_sync, fake_truncate, fake_sync_dir,
                              fake_unlink, k,         NULL,          NULL };
    return k;
}

void rlog_fake_free(struct rlog_fake *k)
{
    if (!k)
        return;
    vec_for (i, &k->files) {
        vec_free(&k->files.ptr[i]->now);
        vec_free(&k->files.ptr[i]->durable);
        vec_free(&k->files.ptr[i]->clean);
        xfree(k->files.ptr[i]->path);
        xfree(k->files.ptr[i]);
    }
    vec_free(&k->files);
    xfree(k);
}

const struct rlog_fs *rlog_fake_fs(struct rlog_fake *k)
{
    return &k->fs;
}

struct rlog_fake_faults *rlog_fake_faults(struct rlog_fake *k)
{
    return &k->faults;
}

/* Each sector is the old or the new one; the size lies between. */
static void cut_file(struct rlog_fake *k, struct rlog_file *f)
{
    size_t old = f->durable.len, new = f->now.len, lo = MIN(old, new), hi = MAX(old, new);
    size_t len = lo + (size_t)prng_below(&k->prng, hi - lo + 1);
    double keep = prng_chance(&k->prng, 0.3) ? 1.0 : prng_unit(&k->prng);

    if (prng_chance(&k->prng, 0.3))
        len = new; /* the size made it and some of the contents did not */
    vec_reserve(&f->durable, hi + 1);
    memset(f->durable.ptr + old, 0, hi - old);
    for (size_t at = 0; at < len; at += SECTOR) {
        size_t to = MIN(MIN(at + SECTOR, len), new);
        if (to > at && prng_chance(&k->prng, keep))
            memcpy(f->durable.ptr + at, f->now.ptr + at, to - at);
    }
    f->durable.len = len;
    f->clean.len = 0;
    set_len(f, 0);
    set_len(f, len);
    if (len)
        memcpy(f->now.ptr, f->durable.ptr, len);
}

void rlog_fake_power_cut(struct rlog_fake *k)
{
    k->faults.fail_sync_in = k->faults.fail_write_in = 0;
    vec_for (i, &k->files) {
        struct rlog_file *f = k->files.ptr[i];
        CHECK(f->opens == 0);
        cut_file(k, f);
        if (f->linked != f->durable_linked && prng_chance(&k->prng, 0.5))
            f->durable_linked = f->linked;
        f->linked = f->durable_linked;
    }
}

struct rlog_fake *rlog_fake_fork(const struct rlog_fake *k, uint64_t seed)
{
    struct rlog_fake *to = rlog_fake_new(seed);

    vec_for (i, &k->files) {
        const struct rlog_file *f = k->files.ptr[i];
        struct rlog_file *copy = XNEW(struct rlog_file);

        copy->path = xstrdup(f->path);
        copy->linked = f->linked;
        copy->durable_linked = f->durable_linked;
        set_len(copy, f->now.len);
        if (f->now.len)
            memcpy(copy->now.ptr, f->now.ptr, f->now.len);
        vec_reserve(&copy->durable, f->durable.len + 1);
        if (f->durable.len)
            memcpy(copy->durable.ptr, f->durable.ptr, f->durable.len);
        copy->durable.len = f->durable.len;
        vec_for (n, &f->clean)
            vec_push(&copy->clean, f->clean.ptr[n]);
        vec_push(&to->files, copy);
    }
    return to;
}

void rlog_fake_settle(struct rlog_fake *k)
{
    k->faults.fail_sync_in = k->faults.fail_write_in = 0;
    vec_for (i, &k->files) {
        k->files.ptr[i]->clean.len = 0;
        make_durable(k->files.ptr[i]);
        k->files.ptr[i]->durable_linked = k->files.ptr[i]->linked;
    }
}

uint64_t rlog_fake_bytes(const struct rlog_fake *k)
{
    uint64_t n = 0;

    vec_for (i, &k->files)
        n += k->files.ptr[i]->linked ? k->files.ptr[i]->now.len : 0;
    return n;
}

size_t rlog_fake_files(const struct rlog_fake *k)
{
    size_t n = 0;

    vec_for (i, &k->files)
        n += k->files.ptr[i]->linked;
    return n;
}

void rlog_fake_rot(struct rlog_fake *k, uint64_t at)
{
    vec_for (i, &k->files) {
        struct rlog_file *f = k->files.ptr[i];
        if (!f->linked)
            continue;
        if (at < f->now.len) {
            f->now.ptr[at] = (char)(f->now.ptr[at] ^ 1);
            f->clean.len = 0;
            make_durable(f);
            return;
        }
        at -= f->now.len;
    }
}

static bool is_in(const struct rlog_file *f, const char *dir)
{
    size_t n = strlen(dir);

    return f->linked && !strncmp(f->path, dir, n) && f->path[n] == '/';
}

/* Bytes of it that are old: those of the last file may be of the last group. */
static size_t old_bytes(const struct rlog_fake *k, size_t at, const char *dir)
{
    const struct rlog_file *f = k->files.ptr[at];

    for (size_t i = at + 1; i < k->files.len; i++)
        if (is_in(k->files.ptr[i], dir))
            return f->now.len;
    return f->now.len >= 8 * (size_t)SECTOR ? f->now.len / 4 : 0;
}

static bool zeroes(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static void end_log(struct rlog_fake *k, size_t file, size_t len, const char *dir)
{
    set_len(k->files.ptr[file], len);
    for (size_t i = file + 1; i < k->files.len; i++)
        if (is_in(k->files.ptr[i], dir))
            k->files.ptr[i]->linked = k->files.ptr[i]->durable_linked = false;
}

static void spoil(struct rlog_file *f, size_t byte, struct prng *p)
{
    size_t sector = byte / SECTOR * SECTOR, len = MIN((size_t)SECTOR, f->now.len - sector);

    if (prng_chance(p, 0.5) && !zeroes(f->now.ptr + sector, len))
        memset(f->now.ptr + sector, 0, len);
    else
        f->now.ptr[byte] = (char)(f->now.ptr[byte] ^ 1 << prng_below(p, 8));
}

const char *rlog_fake_rot_old(struct rlog_fake *k, const char *dir, struct prng *p, bool torn)
{
    size_t first = prng_below(p, k->files.len + 1);

    for (size_t i = 0; i < k->files.len; i++) {
        size_t at = (first + i) % k->files.len;
        struct rlog_file *f = k->files.ptr[at];
        size_t old = is_in(f, dir) ? old_bytes(k, at, dir) : 0, byte;

        if (!old)
            continue;
        byte = (size_t)prng_below(p, old);
        if (torn)
            end_log(k, at, byte, dir);
        else
            spoil(f, byte, p);
        f->clean.len = 0;
        make_durable(f);
        return f->path;
    }
    return NULL;
}
