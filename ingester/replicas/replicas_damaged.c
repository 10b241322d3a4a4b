/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_damaged: a log with changed bytes. It cannot be opened, and its promises are not known.
 * So it is moved aside, and the replica begins without a log, as after the loss of a disk
 * (replicas_cluster.c): (1) it is silent; (2) the other members remove it, if they are a majority
 * that has all entries; (3) it copies the shard from them.
 *
 * Its files are moved one by one, the oldest first. If that stops halfway, the remaining files are
 * a log that begins later, or is still damaged; they are never a log that lacks its end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "common/repl/log/rlog.h"
#include "ingester/replicas/replicas_impl.h"

#define LEAST 3 /* members: the others are a majority */

/* Can the shard do without what this log promised? */
static bool others_do(const struct replica_of *r)
{
    int64_t rev;
    const struct repl_record *rec = view_record(r->rs->view, r->shard, &rev);

    return rec && r->rs->o.coord && rec->members.len >= LEAST;
}

/* It was the log that could not be opened, and nothing else. */
static bool is_damaged(const struct replica_of *r, const char *dir)
{
    const struct rlog_fs *fs = r->rs->in->ctx->log_fs;
    struct rlog_opts o = { .fs = fs ? fs : rlog_fs_real(), .dir = dir };
    struct rlog *log;
    struct err e;
    int code = rlog_open(&o, &log, &e);

    if (!code)
        rlog_close(log);
    return code == ERR_CORRUPT;
}

static int open_folder(const char *dir, int *ret, struct err *e)
{
    *ret = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret < 0 ? err_errno(e, errno, "cannot open %s", dir) : 0;
}

/* Of each file of a folder, in order of name. */
static int each_file(const char *dir, int (*fn)(int from, int to, const char *name), int to,
                     struct err *e)
{
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, alphasort), from = -1, code;

    code = n < 0 ? err_errno(e, errno, "cannot list %s", dir) : open_folder(dir, &from, e);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;

        if (!code && name[0] != '.' && (fn(from, to, name) || fsync(from)))
            code = err_errno(e, errno, "cannot move or remove %s of %s", name, dir);
        free(names[i]);
    }
    free(names);
    if (from >= 0)
        (void)close(from);
    return code;
}

static int remove_one(int from, int to, const char *name)
{
    (void)to;
    return unlinkat(from, name, 0);
}

static int move_one(int from, int to, const char *name)
{
    return renameat(from, name, to, name) || fsync(to);
}

/* Names of a log's files are numbers of 16 digits: in order of name they are in order of age. Files
 * that were moved aside earlier are useless: the replica has copied the shard since. */
static int put_aside(const struct replica_of *r, const char *dir, struct err *e)
{
    const struct role_ctx *ctx = r->rs->in->ctx;
    char aside[PATH_MAX];
    int to, code;

    if (ctx->kv) {
        ctx->kv->remove(ctx->kv, dir);
        return 0;
    }
    if (!replica_path(r, "damaged-log", aside))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    code = fs_real()->mkdir_all(fs_real(), aside, e);
    if (!code)
        code = each_file(aside, remove_one, -1, e);
    if (!code)
        code = open_folder(aside, &to, e);
    if (code)
        return code;
    code = each_file(dir, move_one, to, e);
    (void)close(to);
    return code;
}

void damaged_look(const struct replica_of *r)
{
    char dir[PATH_MAX];
    struct err e;

    if (r->err.code != ERR_CORRUPT || !others_do(r) || !replica_path(r, "log", dir) ||
        !is_damaged(r, dir))
        return;
    if (put_aside(r, dir, &e))
        log_error("the log of a shard is damaged, and cannot be put aside",
                  KV_U64("shard", r->shard), KV_ERR(&e));
    else
        log_error("the log of a shard is damaged: it is moved to damaged-log-<shard> in the data "
                  "folder, and the shard is fetched from the other members. Check this node's "
                  "disk and memory; the folder may be deleted when all copies are complete",
                  KV_U64("shard", r->shard), KV_CSTR("node", r->rs->self));
}
