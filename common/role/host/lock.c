/* SPDX-License-Identifier: Apache-2.0
 *
 * lock: see lock.h. RocksDB locks its own folders too, but its error neither names the holder nor
 * covers what lies beside the databases.
 */
#include "common/role/host/lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/str.h"
#include "common/obs/log.h"
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

/* ---- only ours ------------------------------------------------------------------------------- */

static int refuse_link(const char *dir, const char *name, struct err *e)
{
    return err_set(
        e, ERR_CONFIG,
        "data folder %s: %s is a symbolic link, and what is written through it would lie "
        "elsewhere. Move here what it points to, or mount it at this place",
        dir, name);
}

static int refuse_links(int at, const char *dir, struct err *e)
{
    DIR *d = fdopendir(at);
    const struct dirent *entry;
    int code = 0;

    if (!d) {
        (void)close(at);
        return err_errno(e, errno, "cannot list %s", dir);
    }
    while (!code && (entry = readdir(d)) != NULL) {
        struct stat st;

        if (fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            code = refuse_link(dir, entry->d_name, e);
    }
    (void)closedir(d);
    return code;
}

/* A folder of another owner (a volume of root's for our group) is that owner's to change. */
static int make_private(const char *dir, struct err *e)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (at < 0 || fstat(at, &st)) {
        int failed = errno;

        if (at >= 0)
            (void)close(at);
        return err_errno(e, failed, "cannot look at %s", dir);
    }
    if (st.st_uid == geteuid() && (st.st_mode & 077) && fchmod(at, st.st_mode & 07700) == 0)
        log_info("the data folder could be read by others, and is private now",
                 KV_CSTR("data", dir), KV_U64("mode_before", st.st_mode & 07777));
    return refuse_links(at, dir, e);
}

int lock_was_taken(const char *dir, struct err *e)
{
    char path[PATH_MAX];
    struct stat st;

    if ((size_t)snprintf(path, sizeof(path), "%s/LOCK", dir) >= sizeof(path))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    if (lstat(path, &st) == 0)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "no server has used the data folder %s yet, and data.create is false: is its "
                   "volume not mounted, or is data.dir another one? Nothing was made there. For a "
                   "new server start once with --data.create",
                   dir);
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
    (void)umask(077);
    if (make_private(dir, e))
        return e->code;
    fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ELOOP)
        return refuse_link(dir, "LOCK", e);
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
