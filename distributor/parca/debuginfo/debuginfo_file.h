/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_file.h: files of debug info on disk. Everything here blocks: pool threads, and the
 * start of the process.
 *
 *   <data>/debuginfo/<hash of the tenant>/<key>.<type>         the file as it came
 *                                         <key>.<type>.meta    what it is; without: nothing
 *   <data>/debuginfo/tmp-<16 hex>                              being uploaded; removed at start
 *
 * key = the build id where that is hex, else 'x' and the hex of its bytes: never a path.
 */
#ifndef DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_FILE_H
#define DISTRIBUTOR_PARCA_DEBUGINFO_DEBUGINFO_FILE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/sys/fs.h"

#define DEBUGINFO_ID_MAX   100 /* bytes of a build id as text; of Go some 83 */
#define DEBUGINFO_TEXT_MAX 256 /* of other texts kept: hash, name */
#define DEBUGINFO_PATH_MAX 4096

enum debuginfo_type { /* as in Parca's service */
                      DEBUGINFO_DEBUG,
                      DEBUGINFO_EXECUTABLE,
                      DEBUGINFO_SOURCES,
                      DEBUGINFO_SOURCEMAP,
                      DEBUGINFO_TYPES,
};
const char *debuginfo_type_name(enum debuginfo_type t);

/* What is in a .meta. Fixed sizes: it is read back from disk. */
struct debuginfo_meta {
    char tenant[160], build_id[DEBUGINFO_ID_MAX + 1];
    char hash[DEBUGINFO_TEXT_MAX], name[DEBUGINFO_TEXT_MAX];
    enum debuginfo_type type;
    uint64_t size;
    int64_t started_ms, finished_ms;
};
/* ERR_INPUT for an id that cannot be one. Text with control bytes is no id. */
NODISCARD int debuginfo_id_check(struct str build_id, struct err *e);
/* Path of the data of m below dir. */
void debuginfo_path(const char *dir, const struct debuginfo_meta *m, struct buf *out);
void debuginfo_meta_write(const struct debuginfo_meta *m, struct buf *out);
NODISCARD int debuginfo_meta_read(struct str text, struct debuginfo_meta *ret, struct err *e);

/* A file being written. */
struct debuginfo_temp {
    char path[DEBUGINFO_PATH_MAX]; /* "" : none */
    int fd;                        /* -1: closed */
    uint64_t size;
};
NODISCARD int debuginfo_temp_open(const char *dir, uint64_t random, struct debuginfo_temp *t,
                                  struct err *e);
NODISCARD int debuginfo_temp_write(struct debuginfo_temp *t, struct str bytes, struct err *e);
/* Is it what m says? fsyncs and closes it. */
NODISCARD int debuginfo_temp_finish(struct debuginfo_temp *t, const struct debuginfo_meta *m,
                                    struct err *e);
/* Moves it to its place, then writes .meta, which makes it count. */
NODISCARD int debuginfo_temp_keep(struct debuginfo_temp *t, const char *dir,
                                  const struct debuginfo_meta *m, const struct fs *fs,
                                  struct err *e);
void debuginfo_temp_drop(struct debuginfo_temp *t); /* closes and removes, if there is one */
/* Removes meta first: the rest of an interrupted removal is removed at the next start. */
void debuginfo_remove(const char *dir, const struct debuginfo_meta *m);
/* Calls add for each file that is whole, and removes what is not. */
NODISCARD int debuginfo_scan(const char *dir, const struct fs *fs,
                             void (*add)(void *cookie, const struct debuginfo_meta *m),
                             void *cookie, struct err *e);

#endif
