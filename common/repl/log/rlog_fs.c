/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog_fs: the files of a log on the system's file system.
 *
 * fdatasync, not fsync: it writes the size, too, when that changed. Writes of a group of entries go
 * out with one pwritev.
 */
#include "common/repl/log/rlog_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/sys/fs.h"

enum { PARTS_MAX = 512 }; /* of one pwritev; the kernel takes 1,024 */

struct rlog_file {
    int fd;
    char *path; /* owned, for errors */
};

static int real_list(const struct rlog_fs *fs, const char *dir,
                     void (*each)(void *cookie, const char *name), void *cookie, struct err *e)
{
    DIR *d;
    int rc = fs_real()->mkdir_all(fs_real(), dir, e);

    (void)fs;
    if (rc)
        return rc;
    d = opendir(dir);
    if (!d)
        return err_errno(e, errno, "cannot read the folder %s", dir);
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(d);
        if (!entry)
            break;
        if (entry->d_name[0] != '.')
            each(cookie, entry->d_name);
    }
    if (errno)
        rc = err_errno(e, errno, "cannot read the folder %s", dir);
    (void)closedir(d);
    return rc;
}

static int real_open(const struct rlog_fs *fs, const char *path, bool create,
                     struct rlog_file **ret, uint64_t *ret_size, struct err *e)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0), 0600);
    struct stat st;

    (void)fs;
    if (fd < 0)
        return err_errno(e, errno, "cannot open %s", path);
    if (fstat(fd, &st)) {
        int saved = errno;
        (void)close(fd);
        return err_errno(e, saved, "cannot look at %s", path);
    }
    struct rlog_file *f = XNEW(struct rlog_file);
    f->fd = fd;
    f->path = xstrdup(path);
    *ret = f;
    *ret_size = (uint64_t)st.st_size;
    return 0;
}

static void real_close(const struct rlog_fs *fs, struct rlog_file *f)
{
    (void)fs;
    (void)close(f->fd);
    xfree(f->path);
    xfree(f);
}

static int write_some(struct rlog_file *f, uint64_t *at, struct iovec *v, size_t n, struct err *e)
{
    while (n) {
        ssize_t got = pwritev(f->fd, v, (int)n, (off_t)*at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, errno, "cannot write to %s", f->path);
        if (got == 0)
            return err_set(e, ERR_IO, "cannot write to %s: nothing is taken", f->path);
        *at += (uint64_t)got;
        for (; n && (size_t)got >= v->iov_len; v++, n--)
            got -= (ssize_t)v->iov_len;
        if (n) {
            v->iov_base = (char *)v->iov_base + got;
            v->iov_len -= (size_t)got;
        }
    }
    return 0;
}

static int real_write(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at,
                      const struct str *parts, size_t n, struct err *e)
{
    struct iovec v[PARTS_MAX];
    int rc = 0;

    (void)fs;
    for (size_t i = 0; i < n && !rc;) {
        size_t some = MIN(n - i, (size_t)PARTS_MAX), used = 0;
        for (size_t k = 0; k < some; k++)
            if (parts[i + k].len)
                v[used++] = (struct iovec){ (void *)(uintptr_t)parts[i + k].ptr, parts[i + k].len };
        rc = write_some(f, &at, v, used, e);
        i += some;
    }
    return rc;
}

static int real_read(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at, char *to, size_t n,
                     struct err *e)
{
    (void)fs;
    while (n) {
        ssize_t got = pread(f->fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(e, errno, "cannot read %s", f->path);
        if (got == 0)
            return err_set(e, ERR_CORRUPT, "%s ends before byte %" PRIu64, f->path, at + n);
        to += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

static int real_sync(const struct rlog_fs *fs, struct rlog_file *f, struct err *e)
{
    (void)fs;
    if (fdatasync(f->fd))
        return err_errno(e, errno, "cannot sync %s", f->path);
    return 0;
}

static int real_truncate(const struct rlog_fs *fs, struct rlog_file *f, uint64_t size,
                         struct err *e)
{
    (void)fs;
    if (ftruncate(f->fd, (off_t)size))
        return err_errno(e, errno, "cannot cut %s", f->path);
    return 0;
}

static int real_sync_dir(const struct rlog_fs *fs, const char *dir, struct err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed;

    (void)fs;
    if (fd < 0)
        return err_errno(e, errno, "cannot open the folder %s", dir);
    failed = fsync(fd) ? errno : 0;
    (void)close(fd);
    return failed ? err_errno(e, failed, "cannot sync the folder %s", dir) : 0;
}

static int real_unlink(const struct rlog_fs *fs, const char *path, struct err *e)
{
    (void)fs;
    if (unlink(path) && errno != ENOENT)
        return err_errno(e, errno, "cannot delete %s", path);
    return 0;
}

const struct rlog_fs *rlog_fs_real(void)
{
    static const struct rlog_fs real = {
        .list = real_list,
        .open = real_open,
        .close = real_close,
        .write = real_write,
        .read = real_read,
        .sync = real_sync,
        .truncate = real_truncate,
        .sync_dir = real_sync_dir,
        .unlink = real_unlink,
    };

    return &real;
}
