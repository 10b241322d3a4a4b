/* SPDX-License-Identifier: Apache-2.0
 *
 * view_file.h: the last map and records in a file, for a start without the coordination service.
 */
#ifndef COMMON_CLUSTER_VIEW_VIEW_FILE_H
#define COMMON_CLUSTER_VIEW_VIEW_FILE_H

#include "common/cluster/view/view_impl.h"
#include "common/sys/pool.h"

struct view_file_opts {
    struct loop *loop;
    struct pool *pool; /* writes there; NULL: on the loop */
    const struct fs *fs;
    const char *path;
    struct view *view; /* borrowed */
    /* A file could not be written: on the loop. */
    void (*failed)(void *cookie, const struct err *e);
    void *cookie;
};
struct view_file;

struct view_file *view_file_new(const struct view_file_opts *o);
/* A write that has begun ends, also after the view is freed; NULL is fine. */
void view_file_free(struct view_file *f);
/* Into the view, revisions 0. ERR_NOT_FOUND: no file exists yet. Another error: it cannot be read,
 * and the view may have a part of it. */
NODISCARD int view_file_load(struct view_file *f, struct err *e);
/* The version of the map in the file; 0: none. */
uint64_t view_file_kept(const struct view_file *f);
/* The map or a record is another one: saved within a second or so. `soon`: a record names this node
 * the leader, by which it leads again after a restart: saved at once. */
void view_file_changed(struct view_file *f, bool soon);

#endif
