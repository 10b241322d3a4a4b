/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog_fs.h: the few file operations the replication log needs, behind a struct: rlog_fs_real() is
 * the system's, tests/lib/repl/rlog_fake.h one in memory that loses power, tears writes and fails.
 * Thread: one at a time per folder.
 */
#ifndef COMMON_REPL_LOG_RLOG_FS_H
#define COMMON_REPL_LOG_RLOG_FS_H

#include "common/base/err.h"
#include "common/base/str.h"

struct rlog_file;
struct rlog_fs {
    /* Calls each(cookie, name) for every file of the folder, in any order; the folder is created
     * (with its parents) if it is missing. */
    int (*list)(const struct rlog_fs *fs, const char *dir,
                void (*each)(void *cookie, const char *name), void *cookie, struct err *e);
    /* Opens; create: a new, empty one (an old one of that name is emptied). */
    int (*open)(const struct rlog_fs *fs, const char *path, bool create, struct rlog_file **ret,
                uint64_t *ret_size, struct err *e);
    void (*close)(const struct rlog_fs *fs, struct rlog_file *f);
    /* All of the parts, one behind the other, from offset `at`. */
    int (*write)(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at,
                 const struct str *parts, size_t n, struct err *e);
    /* Exactly n bytes; fewer there: ERR_CORRUPT. */
    int (*read)(const struct rlog_fs *fs, struct rlog_file *f, uint64_t at, char *to, size_t n,
                struct err *e);
    /* Contents and size are on the medium when it returns 0. */
    int (*sync)(const struct rlog_fs *fs, struct rlog_file *f, struct err *e);
    int (*truncate)(const struct rlog_fs *fs, struct rlog_file *f, uint64_t size, struct err *e);
    int (*sync_dir)(const struct rlog_fs *fs, const char *dir, struct err *e);
    int (*unlink)(const struct rlog_fs *fs, const char *path, struct err *e);
    void *cookie;
    /* Simulations only: how long the next group of writes and its fsync take; NULL: no time. */
    uint32_t (*lag_ms)(const struct rlog_fs *fs);
    /* Simulation only, may be NULL: true while an fsync that has begun, or a write of the database,
     * does not return. */
    bool (*hangs)(const struct rlog_fs *fs);
};
const struct rlog_fs *rlog_fs_real(void);

#endif
