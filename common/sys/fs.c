/* SPDX-License-Identifier: Apache-2.0
 *
 * fs: the real file operations.
 *
 * A file is replaced in four steps: write path.tmp, fsync it, rename it, fsync the folder. A crash
 * leaves the old file or the new one, and perhaps a .tmp, which the next write removes. The .tmp is
 * always created new and never through a link, so a prepared link cannot redirect the write.
 * New folders are synced in their parents, or a file synced in them could be lost with them.
 * Thread: any; no state.
 */
#include "common/sys/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { READ_CHUNK = 64 * 1024 };

static int real_read_file(const struct fs *fs, const char *path, struct buf *out, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int result = 0;

    (void)fs;
    if (fd < 0 && errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "there is no file %s", path);
    if (fd < 0)
        return err_errno(e, errno, "cannot open %s", path);
    for (;;) {
        /* At the maximum one more byte is asked for, to tell "just fits" from "too long". */
        size_t want = MIN((size_t)READ_CHUNK, out->max - out->len);
        char extra, *to = want ? buf_room(out, want) : &extra;
        ssize_t got;

        CHECK(to);
        got = read(fd, to, want ? want : 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = err_errno(e, errno, "cannot read %s", path);
        else if (got && !want)
            result = err_set(e, ERR_LIMIT, "%s has more than %zu bytes", path, out->max);
        if (got <= 0 || result)
            break;
        out->len += (size_t)got;
    }
    (void)close(fd);
    return result;
}

static int write_all(int fd, struct str data)
{
    while (data.len) {
        ssize_t n = write(fd, data.ptr, data.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        data = str_sub(data, (size_t)n, data.len);
    }
    return fsync(fd) ? errno : 0;
}

/* The rename is durable once the folder is. */
static int sync_parent(const char *path)
{
    char dir[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    int fd, result;

    if (slash) {
        size_t n = slash == path ? 1 : (size_t)(slash - path);

        if (n >= sizeof(dir))
            return ENAMETOOLONG;
        memcpy(dir, path, n);
        dir[n] = '\0';
    }
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    result = fsync(fd) ? errno : 0;
    (void)close(fd);
    return result;
}

static int real_write_file(const struct fs *fs, const char *path, struct str data, struct err *e)
{
    char tmp[PATH_MAX];
    int n = snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    int fd, failed;

    (void)fs;
    if (n < 0 || (size_t)n >= sizeof(tmp))
        return err_set(e, ERR_INPUT, "path of %zu bytes is too long", strlen(path));
    (void)unlink(tmp); /* of a write that was cut off; never written through, it may be a link */
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, errno, "cannot create %s", tmp);
    failed = write_all(fd, data);
    if (close(fd) && !failed)
        failed = errno;
    if (!failed && rename(tmp, path))
        failed = errno;
    if (failed) {
        (void)unlink(tmp);
        return err_errno(e, failed, "cannot write %s", path);
    }
    failed = sync_parent(path);
    return failed ? err_errno(e, failed, "cannot sync the folder of %s", path) : 0;
}

static int real_mkdir_all(const struct fs *fs, const char *path, struct err *e)
{
    char part[PATH_MAX];
    size_t len = strlen(path);
    struct stat st;
    int failed;

    (void)fs;
    if (len == 0 || len >= sizeof(part))
        return err_set(e, ERR_INPUT, "folder name of %zu bytes is empty or too long", len);
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        bool made = mkdir(part, 0700) == 0;
        if (!made && errno != EEXIST)
            return err_errno(e, errno, "cannot create the folder %s", part);
        /* A file that is fsynced is lost with its folder if the folder's own entry is not. So the
         * parent of the last folder is always synced: the process that made the folder may have
         * ended before it did so. A folder without permission to read cannot be synced. */
        failed = made || i == len ? sync_parent(part) : 0;
        if (failed && failed != EACCES)
            return err_errno(e, failed, "cannot sync the folder of %s", part);
        part[i] = i < len ? '/' : '\0';
    }
    if (stat(path, &st))
        return err_errno(e, errno, "cannot look at %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_IO, "%s exists and is not a folder", path);
    return 0;
}

static int real_space(const struct fs *fs, const char *path, uint64_t *ret_free,
                      uint64_t *ret_total, struct err *e)
{
    struct statvfs v;

    (void)fs;
    if (statvfs(path, &v))
        return err_errno(e, errno, "cannot ask for the free space below %s", path);
    *ret_free = (uint64_t)v.f_bavail * v.f_frsize;
    *ret_total = (uint64_t)v.f_blocks * v.f_frsize;
    return 0;
}

const struct fs *fs_real(void)
{
    static const struct fs real = { real_read_file, real_write_file, real_mkdir_all, real_space };

    return &real;
}
