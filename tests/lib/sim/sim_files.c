/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_files: a file is rows of one column family, key and value each with its length, then a mark,
 * maybe zeros, and a sum of the rows as its end. That end makes files of one name different ones,
 * as in tables of RocksDB; it is not compared when rows are read, so only copies can notice damage.
 */
#include "tests/lib/sim/sim_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/repl/copy_files.h"
#include "common/store/kv/kv_mem.h"
#include "common/sys/fs.h"

#define END_MARK    UINT32_MAX
#define LARGE_BYTES (2 * MIB + 300 * KIB)
#define FILE_MOST   (64 * MIB)
#define BATCH_ROWS  256

static void path_of(char ret[COPY_PATH_BYTES], const char *dir, const char *name)
{
    struct err e;

    CHECK(copy_path(ret, dir, name, &e) == 0);
}

void sim_files_root(int pid, char ret[SIM_FILES_DIR])
{
    const char *tmp = getenv("TMPDIR"), *memory = "/dev/shm"; /* nothing here is to last */

    if (!tmp || !tmp[0] || strlen(tmp) > SIM_FILES_DIR / 2)
        tmp = access(memory, W_OK) == 0 ? memory : "/tmp";
    (void)snprintf(ret, SIM_FILES_DIR, "%s/embertree-sim-%d", tmp, pid);
}

void sim_files_make(const char *dir)
{
    struct err e;

    CHECK(fs_real()->mkdir_all(fs_real(), dir, &e) == 0);
}

/* ---- folders --------------------------------------------------------------------------------- */

static void each(const char *dir, void (*fn)(void *cookie, const char *path, bool folder),
                 void *cookie)
{
    DIR *d = opendir(dir);
    char path[COPY_PATH_BYTES];
    struct stat st;

    if (!d)
        return;
    for (struct dirent *one; (one = readdir(d));) {
        if (one->d_name[0] == '.')
            continue;
        path_of(path, dir, one->d_name);
        if (stat(path, &st) == 0)
            fn(cookie, path, S_ISDIR(st.st_mode));
    }
    (void)closedir(d);
}

static void remove_one(void *cookie, const char *path, bool folder)
{
    (void)cookie;
    if (folder)
        sim_files_remove(path);
    else
        (void)unlink(path);
}

void sim_files_remove(const char *dir)
{
    each(dir, remove_one, NULL);
    (void)rmdir(dir);
}

static void write_bytes(const char *path, struct str bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    CHECK(fd >= 0 && write(fd, bytes.ptr, bytes.len) == (ssize_t)bytes.len);
    (void)close(fd);
}

static void copy_one(void *cookie, const char *path, bool folder)
{
    char to[COPY_PATH_BYTES];
    struct buf bytes;
    struct err e;

    path_of(to, cookie, strrchr(path, '/') + 1);
    if (folder) {
        sim_files_copy(path, to);
        return;
    }
    buf_init(&bytes, FILE_MOST);
    CHECK(fs_real()->read_file(fs_real(), path, &bytes, &e) == 0);
    write_bytes(to, buf_str(&bytes));
    buf_deinit(&bytes);
}

void sim_files_copy(const char *from, const char *to)
{
    char name[COPY_PATH_BYTES];

    (void)snprintf(name, sizeof(name), "%s", to);
    (void)mkdir(to, 0755);
    each(from, copy_one, name);
}

/* ---- databases ------------------------------------------------------------------------------- */

static void put_cf(struct kv *k, enum kv_cf cf, struct buf *out)
{
    struct kv_iter *it = kv_iter_new(k, NULL, cf, STR(""), STR_NULL);

    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it), value = kv_iter_value(it);

        wr_u32le(out, (uint32_t)key.len);
        (void)buf_add_str(out, key);
        wr_u32le(out, (uint32_t)value.len);
        (void)buf_add_str(out, value);
    }
    kv_iter_free(it);
}

static void write_cf(struct kv *k, enum kv_cf cf, const char *dir, bool large)
{
    char name[64], path[COPY_PATH_BYTES];
    struct buf b;
    uint64_t sum;

    buf_init(&b, FILE_MOST);
    put_cf(k, cf, &b);
    sum = hash64(b.len ? b.ptr : "", b.len, cf + 1);
    wr_u32le(&b, END_MARK);
    if (large && b.len < LARGE_BYTES) {
        size_t n = LARGE_BYTES - b.len;
        char *zeros = buf_room(&b, n);

        CHECK(zeros);
        memset(zeros, 0, n);
        b.len += n;
    }
    wr_u64le(&b, sum);
    CHECK(buf_ok(&b));
    (void)snprintf(name, sizeof(name), "%d-%016" PRIx64 ".sst", (int)cf, sum);
    path_of(path, dir, name);
    write_bytes(path, buf_str(&b));
    buf_deinit(&b);
}

int sim_files_write(struct kv *k, const char *dir, bool large, struct err *e)
{
    char tmp[COPY_PATH_BYTES], empty[COPY_PATH_BYTES];

    (void)snprintf(tmp, sizeof(tmp), "%s.tmp", dir);
    sim_files_remove(tmp);
    if (mkdir(tmp, 0755))
        return err_set(e, ERR_IO, "cannot make %s", tmp);
    for (int cf = 0; cf < KV_CFS; cf++)
        write_cf(k, (enum kv_cf)cf, tmp, large && cf == KV_META);
    path_of(empty, tmp, "000001.log"); /* one of no bytes is always among RocksDB's */
    write_bytes(empty, STR(""));
    if (rename(tmp, dir))
        return err_set(e, ERR_IO, "cannot make %s", dir);
    return 0;
}

struct reading {
    struct kv *kv;
    enum kv_cf without;
    bool any;
    int code;
    struct err *e;
};

static bool is_table(const char *path)
{
    return str_ends(str_c(path), STR(".sst"));
}

static void look_one(void *cookie, const char *path, bool folder)
{
    *(bool *)cookie |= !folder && is_table(path);
}

bool sim_files_any(const char *dir)
{
    bool any = false;

    each(dir, look_one, &any);
    return any;
}

static int put_rows(struct kv *kv, enum kv_cf cf, struct str bytes, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct rd r = rd_of(bytes);
    struct str key, value;
    uint32_t len = 0;
    size_t rows = 0;
    int code = 0;

    while (!code && rd_u32le(&r, &len) && len != END_MARK) {
        if (!rd_bytes(&r, len, &key) || !rd_u32le(&r, &len) || !rd_bytes(&r, len, &value) ||
            !key.len || key.len > KV_KEY_BYTES_MAX)
            break;
        kv_batch_put(b, cf, key, value);
        if (++rows % BATCH_ROWS == 0) {
            code = kv_write(kv, b, false, e);
            kv_batch_free(b);
            b = kv_batch_new();
        }
    }
    if (!code && len != END_MARK)
        code = err_set(e, ERR_CORRUPT, "a file of rows is no file of rows");
    if (!code)
        code = kv_write(kv, b, false, e);
    kv_batch_free(b);
    return code;
}

static void read_one(void *cookie, const char *path, bool folder)
{
    struct reading *r = cookie;
    long cf = strtol(strrchr(path, '/') + 1, NULL, 10);
    struct buf bytes;

    if (folder || r->code || !is_table(path) || cf < 0 || cf >= KV_CFS || cf == (long)r->without)
        return;
    buf_init(&bytes, FILE_MOST);
    r->any = true;
    r->code = fs_real()->read_file(fs_real(), path, &bytes, r->e);
    if (!r->code)
        r->code = put_rows(r->kv, (enum kv_cf)cf, buf_str(&bytes), r->e);
    buf_deinit(&bytes);
}

int sim_files_read(const char *dir, enum kv_cf without, struct kv **ret, struct err *e)
{
    struct reading r = { .kv = kv_mem_new(NULL), .without = without, .e = e };

    each(dir, read_one, &r);
    if (!r.code && !r.any)
        r.code = err_set(e, ERR_NOT_FOUND, "no database in %s", dir);
    if (!r.code)
        r.code = kv_flush(r.kv, e);
    if (r.code)
        kv_close(r.kv);
    else
        *ret = r.kv;
    return r.code;
}

/* ---- a power cut ----------------------------------------------------------------------------- */

struct tearing {
    struct prng *p;
    bool (*synced)(void *cookie, const char *path);
    void *cookie;
    bool in; /* this folder is on its way in */
};

static void tear_one(void *cookie, const char *path, bool folder)
{
    const struct tearing *t = cookie;
    struct tearing below = *t;
    struct stat st;

    below.in = str_ends(str_c(path), STR("/in"));
    if (folder)
        each(path, tear_one, &below);
    else if (t->in && is_table(path) && !t->synced(t->cookie, path) && stat(path, &st) == 0)
        CHECK(truncate(path, (off_t)prng_below(t->p, (uint64_t)st.st_size + 1)) == 0);
}

void sim_files_tear(const char *dir, struct prng *p, bool (*synced)(void *cookie, const char *path),
                    void *cookie)
{
    each(dir, tear_one, &(struct tearing){ .p = p, .synced = synced, .cookie = cookie });
}
