/* SPDX-License-Identifier: Apache-2.0
 *
 * spare: made once there is room, kept until a process starts on a full volume. It is not used
 * while a process runs: then the disk reserve refuses writes before the volume is full. The file is
 * for the case that other programs, or a compaction, took the reserve as well, and the process
 * ended.
 *
 * Its blocks are allocated, not written. Where a file system cannot do that, or compresses, it may
 * hold less than its size, and the start is as without it.
 */
#include "ingester/base/reserve_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "common/sys/fs.h"

#define RESERVE_FILE_MOST (32 * MIB)
#define START_NEED        (8 * MIB) /* less is free: a start may fail */

uint64_t reserve_file_bytes(uint64_t reserve)
{
    return MIN(reserve / 4, RESERVE_FILE_MOST);
}

static bool path_of(const char *dir, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/spare", dir) < PATH_MAX;
}

bool reserve_file_keep(const char *dir, uint64_t reserve, uint64_t free_bytes)
{
    uint64_t bytes = reserve_file_bytes(reserve);
    char path[PATH_MAX];
    struct stat st;

    if (!path_of(dir, path) || !bytes)
        return true;
    if (stat(path, &st) == 0 && (uint64_t)st.st_size >= bytes)
        return true;
    if (free_bytes < reserve + reserve / 4 + bytes)
        return false;
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    /* Not the one of the C library: where the system cannot, that writes. */
    int failed = fd < 0 ? errno : fallocate(fd, 0, 0, (off_t)bytes) ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    if (failed) {
        (void)unlink(path);
        log_info("no spare is kept for a start on a full volume", KV_CSTR("file", path),
                 KV_I64("errno", failed));
    }
    return true;
}

void reserve_file_release(const char *dir)
{
    const struct fs *fs = fs_real();
    uint64_t left, total;
    char path[PATH_MAX];
    struct err e;

    if (!path_of(dir, path) || fs->space(fs, dir, &left, &total, &e) || left >= START_NEED)
        return;
    if (unlink(path)) {
        if (errno != ENOENT)
            log_warn("cannot delete the reserve file", KV_CSTR("file", path),
                     KV_I64("errno", errno));
        return;
    }
    log_warn("the volume is full: the reserve file was deleted, so that this node can start and be "
             "read. Make room",
             KV_CSTR("dir", dir), KV_U64("free_bytes", left));
}
