/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_files: folders of copies, for both ends.
 *
 * The sender's files are hard links to the database's (kv_checkpoint), so they cost no bytes until
 * the database drops its own. The receiver's folder becomes the database by a rename; so a function
 * that changes a folder syncs it, and a test can make any system call fail (copy_fault).
 */
#include "common/repl/copy_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/vec.h"

enum { TAIL_BYTES = 8192 }; /* holds the properties of a table file, with its unique id */

int copy_fault(const struct copy_faults *f, const char *what, const char *path, struct err *e)
{
    int code = f ? f->fails(f->cookie, what, path) : 0;

    return code ? err_errno(e, code, "%s %s", what, path) : 0;
}

int copy_path(char ret[COPY_PATH_BYTES], const char *a, const char *b, struct err *e)
{
    if (snprintf(ret, COPY_PATH_BYTES, "%s/%s", a, b) >= COPY_PATH_BYTES)
        return err_set(e, ERR_CONFIG, "the path of %s is longer than a path may be", b);
    return 0;
}

int copy_sync_dir(const struct copy_faults *f, const char *dir, struct err *e)
{
    int fd, rc = copy_fault(f, "sync folder", dir, e);

    if (rc)
        return rc;
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd))
        rc = err_errno(e, errno, "cannot sync the folder %s", dir);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

int copy_remove(const struct copy_faults *f, const char *dir, struct err *e)
{
    DIR *d = opendir(dir);
    int rc = 0;

    if (!d)
        return errno == ENOENT ? 0 : err_errno(e, errno, "cannot read the folder %s", dir);
    for (struct dirent *one; !rc && (one = readdir(d));) {
        if (!strcmp(one->d_name, ".") || !strcmp(one->d_name, ".."))
            continue;
        rc = copy_fault(f, "delete", one->d_name, e);
        if (!rc && unlinkat(dirfd(d), one->d_name, 0) && errno != ENOENT)
            rc = err_errno(e, errno, "cannot delete %s in %s", one->d_name, dir);
    }
    (void)closedir(d);
    if (!rc)
        rc = copy_fault(f, "delete folder", dir, e);
    if (!rc && rmdir(dir) && errno != ENOENT)
        rc = err_errno(e, errno, "cannot delete the folder %s", dir);
    return rc;
}

/* ---- sums ---- */

static uint64_t some(uint64_t sum)
{
    return sum ? sum : 1;
}

uint64_t copy_piece_sum(struct str bytes, const char *name, uint64_t offset)
{
    return some(
        hash64(bytes.len ? bytes.ptr : "", bytes.len, hash64(name, strlen(name), offset + 1)));
}

uint64_t copy_file_sum(const uint64_t *pieces, uint64_t size)
{
    return some(hash64(pieces, copy_pieces(size) * sizeof(*pieces), size));
}

uint64_t copy_total(const uint64_t *files, size_t n)
{
    return some(hash64(files, n * sizeof(*files), n));
}

/* ---- reading ---- */

static int read_at(int fd, const char *path, uint64_t at, size_t len, struct buf *out,
                   struct err *e)
{
    char *p = buf_room(out, len);

    CHECK(p);
    while (len) {
        ssize_t got = pread(fd, p, len, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, errno, "cannot read %s", path);
        if (got == 0)
            return err_set(e, ERR_CORRUPT, "%s ends at byte %" PRIu64, path, at);
        p += got;
        out->len += (size_t)got;
        at += (uint64_t)got;
        len -= (size_t)got;
    }
    return 0;
}

int copy_read(const char *dir, const struct copy_file *f, uint64_t offset, size_t len,
              struct buf *out, struct err *e)
{
    char path[COPY_PATH_BYTES];
    int rc = copy_path(path, dir, f->name, e);

    if (rc)
        return rc;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, errno, "cannot open %s", path);
    rc = read_at(fd, path, offset, len, out, e);
    (void)close(fd);
    return rc;
}

int copy_look(const char *dir, struct copy_file *ret, struct err *e)
{
    char path[COPY_PATH_BYTES];
    struct stat st;
    struct buf tail;
    int rc = copy_path(path, dir, ret->name, e);

    if (rc)
        return rc;
    if (stat(path, &st) || !S_ISREG(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "there is no file %s", path);
    ret->size = (uint64_t)st.st_size;
    buf_init(&tail, TAIL_BYTES);
    uint64_t n = MIN(ret->size, (uint64_t)TAIL_BYTES);
    if (n)
        rc = copy_read(dir, ret, ret->size - n, (size_t)n, &tail, e);
    ret->tail = hash64(tail.len ? tail.ptr : "", tail.len, ret->size);
    buf_deinit(&tail);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct copy_file *)a)->name, ((const struct copy_file *)b)->name);
}

int copy_scan(const char *dir, struct copy_list *ret, struct err *e)
{
    VEC(struct copy_file) files = { 0 };
    DIR *d = opendir(dir);
    int rc = 0;

    ret->bytes = 0;
    if (!d)
        return err_errno(e, errno, "cannot read the folder %s", dir);
    for (struct dirent *one; !rc && (one = readdir(d));) {
        struct str name = str_c(one->d_name);
        struct copy_file f = { 0 };

        /* Options are the receiver's own. */
        if (!copy_name_ok(name) || str_starts(name, STR("OPTIONS")) || str_eqc(name, "LOG"))
            continue;
        memcpy(f.name, name.ptr, name.len);
        rc = copy_look(dir, &f, e);
        if (!rc && files.len == COPY_FILES_MAX)
            rc = err_set(e, ERR_LIMIT, "%s holds more than %d files", dir, COPY_FILES_MAX);
        if (!rc) {
            vec_push(&files, f);
            ret->bytes += f.size;
        }
    }
    (void)closedir(d);
    if (files.len)
        qsort(files.ptr, files.len, sizeof(*files.ptr), by_name);
    ret->files = files.ptr;
    ret->len = files.len;
    if (rc)
        copy_list_free(ret);
    return rc;
}

/* ---- names ---- */

void copy_out_name(uint64_t id, uint64_t index, uint64_t term, char ret[64])
{
    (void)snprintf(ret, 64, "out-%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64, id, index, term);
}

bool copy_out_parse(const char *name, uint64_t *ret_id, uint64_t *ret_index, uint64_t *ret_term)
{
    char again[64];

    if (sscanf(name, "out-%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64, ret_id, ret_index, ret_term) !=
        3)
        return false;
    copy_out_name(*ret_id, *ret_index, *ret_term, again);
    return *ret_id && *ret_index && !strcmp(name, again);
}
