/* SPDX-License-Identifier: Apache-2.0
 *
 * lock: see lock.h. RocksDB locks its own folders too, but its error neither names the holder nor
 * covers what lies beside the databases.
 */
#include "common/role/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/str.h"
#include "common/sys/fs.h"

static int lock_held(int fd, const char *dir, struct err *e)
{
    char text[128];
    ssize_t n = pread(fd, text, sizeof(text), 0);
    struct str holder = str_trim(str_n(text, n > 0 ? (size_t)n : 0));

    return err_set(e, ERR_CONFIG,
                   "data folder %s is in use by %.*s; stop that process, or give this one a folder "
                   "of its own with --data.dir",
                   dir, STR_ARG(holder.len ? holder : STR("another process")));
}

static int lock_write_holder(int fd, const char *program)
{
    char text[128];
    int n = snprintf(text, sizeof(text), "%.64s (pid %ld)\n", program, (long)getpid());

    /* In place, so that it needs no room; and a full disk is no reason not to start. */
    if (pwrite(fd, text, (size_t)n, 0) == n && ftruncate(fd, n) == 0)
        return 0;
    return errno == ENOSPC || errno == EDQUOT ? 0 : errno;
}

int lock_take(const char *dir, const char *program, int *ret_fd, struct err *e)
{
    char path[PATH_MAX];
    const struct fs *fs = fs_real();
    int n = snprintf(path, sizeof(path), "%s/LOCK", dir);
    int fd, code;

    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    code = fs->mkdir_all(fs, dir, e);
    if (code)
        return err_wrap(e, "data.dir");
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_errno(e, errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        code = errno == EWOULDBLOCK ? lock_held(fd, dir, e)
                                    : err_errno(e, errno, "cannot lock %s", path);
        (void)close(fd);
        return code;
    }
    code = lock_write_holder(fd, program);
    if (code) {
        (void)close(fd);
        return err_errno(e, code, "cannot write %s", path);
    }
    *ret_fd = fd;
    return 0;
}

void lock_drop(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}
