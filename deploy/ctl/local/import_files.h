/* SPDX-License-Identifier: Apache-2.0
 *
 * import_files.h: which files `embertree import` sends, and what time each is of.
 */
#ifndef DEPLOY_CTL_LOCAL_IMPORT_FILES_H
#define DEPLOY_CTL_LOCAL_IMPORT_FILES_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/map.h"
#include "common/base/vec.h"

struct import_file {
    char *path; /* owned */
    int64_t mtime_ms;
    uint64_t bytes;
};
struct import_files {
    VEC(struct import_file) at; /* in byte order of paths */
};
/* A file, or all regular files below a folder (hidden ones are left out). */
NODISCARD int import_files_add(struct import_files *f, const char *path, struct err *e);
void import_files_sort(struct import_files *f);
void import_files_deinit(struct import_files *f);

/* A time in the last part of a path: an epoch in s, ms, us or ns (10, 13, 16, 19 digits), or
 * 2026-11-21T10:20:30, 20261121-102030 and the like, in UTC. */
bool import_name_time(const char *path, int64_t *ret_ms);

/* What was imported before, kept in a file: one line per file. */
struct import_state {
    const char *path;
    struct map_str *done; /* keys owned */
    bool torn;            /* the file's last line is not whole */
};
NODISCARD int import_state_open(struct import_state *s, const char *path, struct err *e);
bool import_state_has(const struct import_state *s, const struct import_file *f);
/* Appends files [from, to) and fsyncs. */
NODISCARD int import_state_add(struct import_state *s, const struct import_files *f, size_t from,
                               size_t to, struct err *e);
void import_state_close(struct import_state *s);

#endif
