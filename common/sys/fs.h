/* SPDX-License-Identifier: Apache-2.0
 *
 * fs.h: the few file operations we do ourselves (RocksDB does its own), behind a struct so that
 * tests can make them fail. Thread: any.
 */
#ifndef COMMON_SYS_FS_H
#define COMMON_SYS_FS_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct fs {
    /* Appends; more than out->max bytes is ERR_LIMIT; no such file is ERR_NOT_FOUND. */
    int (*read_file)(const struct fs *fs, const char *path, struct buf *out, struct err *e);
    /* Writes path.tmp, fsyncs, renames, fsyncs the folder: all or nothing. Mode 0600. */
    int (*write_file)(const struct fs *fs, const char *path, struct str data, struct err *e);
    /* Those that are missing, durably, with mode 0700. */
    int (*mkdir_all)(const struct fs *fs, const char *path, struct err *e);
    /* Bytes an unprivileged process may still write below path. */
    int (*space)(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                 struct err *e);
};
const struct fs *fs_real(void);

#endif
