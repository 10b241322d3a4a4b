/* SPDX-License-Identifier: Apache-2.0
 *
 * folder: what lies in the data folder, beside what the settings say.
 *
 *   shard-<i>                 a database; log-<i> beside it: one of several copies
 *   written-as   shards 4     the number that places services; not with etcd, whose map has it
 *                node a       the name under which its copies gave their word; not with a list
 *   places.json               in which shards tenants and spread services are; not with etcd
 *
 * A service lies in hash mod shards: with another number everything would be looked for, and a push
 * that is sent again stored, where it is not. What a copy has promised and acked counts for its
 * node's name: under another name it would be counted twice, or removed as unknown.
 *
 * Folders that are older than this file do not have it. There a missing shard next to a present
 * shard shows that the number was raised. On a full disk the file is written by a later start: a
 * start without this check is better than a node that cannot be read.
 */
#include "ingester/base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/cluster/map/placement_history.h"
#include "common/cluster/node/written_as.h"
#include "common/cluster/view/view.h"
#include "common/obs/log.h"

struct folder {
    const struct ingester *in;
    struct written_as was;
    size_t databases, logs;
};

static bool list_says(const struct ingester *in)
{
    return !in->moves;
}

static bool file_says(const struct ingester *in)
{
    return in->moves && !in->ctx->coord;
}

/* ---- what lies there ------------------------------------------------------------------------- */

static bool is_there(const struct folder *f, const char *what, uint64_t shard)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof(path), "%s/%s-%" PRIu64, f->in->ctx->data_dir, what, shard) <
               PATH_MAX &&
           access(path, F_OK) == 0;
}

static bool owns(const struct ingester *in, uint64_t shard)
{
    return shard < in->ctx->cluster->shards && shard % in->ctx->cluster->ingesters.len == in->index;
}

/* By the file of a static map. */
static bool file_gives(const struct ingester *in, uint64_t shard)
{
    int64_t rev;
    const struct repl_record *r = shard < view_shards(in->ctx->view)
                                      ? view_record(in->ctx->view, (uint32_t)shard, &rev)
                                      : NULL;

    return r && name_set_has(&r->members, in->ctx->node);
}

/* A database that would be left out of answers, or overwritten by another one's copy. */
static int check_shard(const struct folder *f, const char *name, uint64_t shard, struct err *e)
{
    const struct ingester *in = f->in;
    const struct cluster_conf *c = in->ctx->cluster;
    bool log = is_there(f, "log", shard);

    if (in->moves && !log)
        return err_set(e, ERR_CONFIG,
                       "%s holds %s, which was written without copies: a cluster takes it only "
                       "as the first copy of a new one (embertree adopt), else its data would be "
                       "lost. Do that, start it with the settings it was written with, or give an "
                       "empty data.dir",
                       in->ctx->data_dir, name);
    if (!in->moves && log)
        return err_set(e, ERR_CONFIG,
                       "%s holds %s, one of several copies: it may lack what the others have. Give "
                       "the cluster.coordination it was written with",
                       in->ctx->data_dir, name);
    if (list_says(in) && !owns(in, shard))
        return err_set(e, ERR_CONFIG,
                       "%s holds %s, which is not a shard of ingester %zu of %zu with "
                       "cluster.shards %" PRIu64 "; its data would be missing from answers. "
                       "Restore the settings it was written with",
                       in->ctx->data_dir, name, in->index, c->ingesters.len, c->shards);
    if (file_says(in) && !file_gives(in, shard))
        return err_set(e, ERR_CONFIG,
                       "%s holds %s, which cluster.map_file does not give to node %s; its data "
                       "would be missing from answers. A static map moves nothing: restore the one "
                       "it was written with",
                       in->ctx->data_dir, name, in->ctx->node);
    return 0;
}

static int look(struct folder *f, struct err *e)
{
    DIR *d = opendir(f->in->ctx->data_dir);
    struct dirent *entry;
    int code = 0;

    if (!d)
        return err_errno(e, errno, "cannot list %s", f->in->ctx->data_dir);
    while (!code && (entry = readdir(d)) != NULL) {
        struct str name = str_c(entry->d_name);
        uint64_t shard;

        if (str_starts(name, STR("shard-")) && str_u64(str_sub(name, 6, name.len), &shard)) {
            f->databases++;
            code = check_shard(f, entry->d_name, shard, e);
        }
        if (str_starts(name, STR("log-")) && str_u64(str_sub(name, 4, name.len), &shard))
            f->logs++;
    }
    (void)closedir(d);
    return code;
}

/* ---- does it go together? -------------------------------------------------------------------- */

static int check_number(const struct folder *f, uint32_t shards, struct err *e)
{
    const struct ingester *in = f->in;
    const struct cluster_conf *c = in->ctx->cluster;

    if (!f->databases)
        return 0;
    if (f->was.shards && f->was.shards != shards)
        return err_set(e, ERR_CONFIG,
                       "%s was written in a cluster of %" PRIu32 " shards, and %s says %" PRIu32
                       ": services would be looked for where they are not. Restore the number it "
                       "was written with; another one needs an empty data.dir",
                       in->ctx->data_dir, f->was.shards,
                       list_says(in) ? "cluster.shards" : "cluster.map_file", shards);
    for (uint64_t i = in->index; list_says(in) && !f->was.shards && i < shards;
         i += c->ingesters.len)
        if (!is_there(f, "shard", i))
            return err_set(
                e, ERR_CONFIG,
                "%s holds databases, but not shard-%" PRIu64
                ", which ingester %zu of %zu should have with cluster.shards %" PRIu32
                ": it was written with fewer shards, or that database is lost. Restore the "
                "settings it was written with, or the database",
                in->ctx->data_dir, i, in->index, c->ingesters.len, shards);
    return 0;
}

/* Finds services that are stored in a shard where no query would ask for them. A folder that etcd
 * says nothing of was restored (deploy/ctl/local/restore.c), or is served by a map in a file, which
 * may have been changed. */
static int check_places(const struct folder *f, struct err *e)
{
    const struct ingester *in = f->in;
    const struct fs *fs = in->ctx->env->fs;
    const struct map *kept, *now = view_map_ref(in->ctx->view);
    struct err why;
    int code = placement_history_load(fs, in->ctx->data_dir, &kept, e);

    if (!code && kept && f->databases && placement_history_cover(now, kept, &why))
        code = err_set(e, ERR_CONFIG,
                       "%s holds databases, and its " PLACEMENT_HISTORY_FILE " says: %s. %s",
                       in->ctx->data_dir, why.text,
                       list_says(in) ? "Only a map says where all of it is: make the folder the "
                                       "first copy of a cluster with etcd (embertree adopt), or "
                                       "give an empty data.dir"
                                     : "Restore the cluster.map_file it was written with, or add "
                                       "that to it");
    if (!code && file_says(in) && !placement_history_plain(now))
        code = placement_history_keep(fs, in->ctx->data_dir, now, e);
    map_unref(kept);
    map_unref(now);
    return code;
}

static int check_name(const struct folder *f, struct err *e)
{
    const struct ingester *in = f->in;

    if (!f->was.node[0] || !(f->databases || f->logs) || strcmp(f->was.node, in->ctx->node) == 0)
        return 0;
    return err_set(e, ERR_CONFIG,
                   "%s is the data folder of node %s, and cluster.node (the host's name, if it is "
                   "empty) says %s: others count on what %s stored under its name. Start it with "
                   "--cluster.node=%s; for a node of another name give an empty data.dir",
                   in->ctx->data_dir, f->was.node, in->ctx->node, f->was.node, f->was.node);
}

static int note(const struct ingester *in, const struct written_as *was, const struct written_as *w,
                struct err *e)
{
    int code;

    if (w->shards == was->shards && strcmp(w->node, was->node) == 0)
        return 0;
    code = written_as_keep(in->ctx->env->fs, in->ctx->data_dir, w, e);
    if (code != ERR_NO_SPACE)
        return code;
    log_warn("what the data folder must be started with is not kept: the next start does",
             KV_ERR(e));
    return 0;
}

void folder_name(const struct ingester *in)
{
    struct written_as was, w;
    struct err e;
    int code = written_as_load(in->ctx->env->fs, in->ctx->data_dir, &was, &e);

    w = was;
    (void)snprintf(w.node, sizeof(w.node), "%s", in->ctx->node);
    if (code || note(in, &was, &w, &e))
        log_warn("the name of the node is not kept in its data folder: the next start does",
                 KV_ERR(&e));
}

int folder_check(const struct ingester *in, struct err *e)
{
    struct folder f = { .in = in };
    uint32_t shards = 0;
    int code;

    if (list_says(in))
        shards = (uint32_t)in->ctx->cluster->shards;
    else if (file_says(in))
        shards = view_shards(in->ctx->view);
    code = written_as_load(in->ctx->env->fs, in->ctx->data_dir, &f.was, e);
    if (!code)
        code = look(&f, e);
    if (!code && shards)
        code = check_number(&f, shards, e);
    if (!code && shards)
        code = check_places(&f, e);
    if (!code && in->moves)
        code = check_name(&f, e);
    struct written_as w = f.was;
    w.shards = shards ? shards : w.shards;
    /* Copies without a name may have been adopted for another one: etcd knows (folder_name). */
    if (in->moves && !(in->ctx->coord && f.logs))
        (void)snprintf(w.node, sizeof(w.node), "%s", in->ctx->node);
    return code ? code : note(in, &f.was, &w, e);
}
