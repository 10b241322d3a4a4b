/* SPDX-License-Identifier: Apache-2.0
 *
 * restore: `embertree restore [options of the server] [SHARD ...]`: shards as of their newest
 * backup, from the cold tier into an empty data folder. The server's own configuration names
 * both.
 *
 * What it makes is a database without copies: one process serves it, or `embertree adopt` makes it
 * the first copy of a cluster (deploy/docs/BACKUP.md, "When every disk is lost").
 *
 * Where the services were is restored, too (common/cluster/map/placement_history.h), into
 * <data>/places.json: of all shards there are backups of, whichever are restored here, since a
 * service may have had a place that only another shard's newest backup knows.
 *
 * A shard is restored next to its place and renamed into it when it is complete. After a restore
 * that was interrupted a shard is therefore missing or complete; the next restore continues with
 * the missing ones. The rename is on disk before the shard is reported as restored.
 */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/cluster/map/placement_history.h"
#include "common/cluster/node/written_as.h"
#include "common/cold/backup.h"
#include "common/cold/backup_places.h"
#include "common/cold/conf.h"
#include "common/cold/shard_owner.h"
#include "common/repl/apply.h"
#include "common/role/core/options.h"
#include "common/role/host/lock.h"
#include "deploy/ctl/ctl.h"

#define CACHE_BYTES    (64 * MIB)
#define MEMTABLE_BYTES (64 * MIB)

struct restore {
    const struct cold_conf *cold;
    const char *dir;
    uint64_t shards; /* cluster.shards */
    struct object_store *o;
    VEC(uint32_t) wanted; /* by arguments; none: all */
    struct backup_shards there;
    uint64_t done_bytes, all_bytes;
};

static void on_part(void *cookie, uint64_t bytes)
{
    struct restore *r = cookie;

    r->done_bytes += bytes;
    (void)fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " MiB ", r->done_bytes >> 20,
                  r->all_bytes >> 20);
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static int fill(struct restore *r, const struct backup_head *h, const char *dir, struct err *e)
{
    struct kv_opts o = { .dir = dir,
                         .block_cache_bytes = CACHE_BYTES,
                         .memtable_bytes = MEMTABLE_BYTES };
    struct kv *kv;
    int rc = kv_rocks_open(&o, &kv, e);

    if (rc)
        return rc;
    r->done_bytes = r->all_bytes = 0;
    vec_for (i, &h->parts)
        if (!h->parts.ptr[i].away)
            r->all_bytes += h->parts.ptr[i].size;
    rc = backup_restore(r->o, h, kv, on_part, r, e);
    if (!rc) /* where it was a copy: the log it was of is not here, and is not needed */
        rc = apply_forget(kv, e);
    if (!rc) /* the one it was of may still run, and hold the objects */
        rc = cold_shard_owner_forget(kv, e);
    (void)fprintf(stderr, "\r");
    kv_close(kv);
    return rc;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* Follows no symbolic link, and deletes what a folder has before the folder. */
static int remove_tree(const char *path, struct err *e)
{
    if (exists(path) && nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        return err_errno(e, errno, "cannot remove %s, which an earlier restore left", path);
    return 0;
}

/* Makes the entry of a shard's folder durable, which an earlier restore may have left undone. */
static int sync_place(const char *dir, struct err *e)
{
    const struct fs *fs = env_real()->fs;

    return fs->mkdir_all(fs, dir, e);
}

static int restore_shard(struct restore *r, uint32_t shard, struct err *e)
{
    char dir[PATH_MAX], side[PATH_MAX];
    struct backup_head h;
    uint64_t number;
    int rc;

    if ((size_t)snprintf(dir, sizeof(dir), "%s/shard-%" PRIu32, r->dir, shard) >= sizeof(dir) ||
        (size_t)snprintf(side, sizeof(side), "%s/restoring-%" PRIu32, r->dir, shard) >=
            sizeof(side))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    if (exists(dir)) {
        (void)printf("shard %" PRIu32 ": %s is there and stays as it is\n", shard, dir);
        return sync_place(dir, e);
    }
    rc = backup_newest(r->o, shard, &number, &h, e);
    if (rc)
        return rc;
    rc = remove_tree(side, e);
    if (!rc)
        rc = fill(r, &h, side, e);
    if (!rc && rename(side, dir))
        rc = err_errno(e, errno, "cannot rename %s", side);
    if (!rc)
        rc = sync_place(dir, e);
    if (!rc) {
        time_t at = (time_t)(h.wall_ms / 1000);
        char when[40];
        struct tm tm;
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&at, &tm));
        (void)printf("shard %" PRIu32 " of %" PRIu32 ": as of %s, %" PRIu64 " MiB\n", shard,
                     h.shards, when, r->all_bytes >> 20);
    }
    backup_head_deinit(&h);
    return rc;
}

/* ---- places --------------------------------------------------------------------------------- */

static void warn_lost_places(const char *what, uint32_t shards, uint32_t one)
{
    (void)fprintf(
        stderr,
        "embertree restore: %s of %" PRIu32 " shards (%" PRIu32
        " is one). If a service was spread over several shards, or a tenant had a number of its "
        "own, that this does not know, queries miss the data in its other shards: compare "
        "embertreectl cluster status with what there was, once the cluster is up, and say again "
        "what is missing (embertreectl cluster spread, cluster tenant)\n",
        what, shards, one);
}

/* Warns the operator if a newest backup lacks its placement history, or may have an old one. */
static void look_for_gaps(const struct restore *r, const struct backup_places_all *all)
{
    uint32_t without = 0, unsure = 0, one_without = 0, one_unsure = 0;

    vec_for (i, &r->there.at) {
        const struct backup_places *found = NULL;

        vec_for (k, &all->at) {
            const struct backup_places *p = &all->at.ptr[k];

            if (p->shard == r->there.at.ptr[i] && p->number == r->there.newest.ptr[i] &&
                (!found || p->sure))
                found = p;
        }
        if (!found)
            one_without = without++ ? one_without : r->there.at.ptr[i];
        else if (!found->sure)
            one_unsure = unsure++ ? one_unsure : r->there.at.ptr[i];
    }
    if (without)
        warn_lost_places("there are no places of services (a version before they were kept made "
                         "them, or they are damaged) with the newest backups",
                         without, one_without);
    if (unsure)
        warn_lost_places("the coordination service could not be asked about places of services "
                         "during the newest backups",
                         unsure, one_unsure);
}

static int join(const struct map **all, const struct map *more, struct err *e)
{
    const struct map *both;
    int rc = 0;

    if (*all) {
        rc = placement_history_join(*all, more, &both, e);
        map_unref(*all);
        map_unref(more);
        more = rc ? NULL : both;
    }
    *all = more;
    return rc;
}

static int read_one(struct restore *r, const struct backup_places *p, const struct map **ret,
                    struct err *e)
{
    struct buf text;
    int rc;

    buf_init(&text, BACKUP_PLACES_MAX);
    rc = backup_places_get(r->o, p, &text, e);
    if (!rc && map_parse("places", buf_str(&text), false, ret, e))
        rc = err_set(e, ERR_CORRUPT, "%.400s", e->text);
    buf_deinit(&text);
    return rc;
}

/* Reads each text once. A damaged text counts as missing. */
static int read_places(struct restore *r, struct backup_places_all *all, const struct map **ret,
                       struct err *e)
{
    uint64_t last = 0;
    bool any = false;
    int rc = 0;

    *ret = NULL;
    for (size_t i = 0; !rc && i < all->at.len; i++) {
        struct backup_places *p = &all->at.ptr[i];
        const struct map *m;

        if (any && p->hash == last)
            continue;
        rc = read_one(r, p, &m, e);
        if (rc == ERR_CORRUPT) {
            (void)fprintf(stderr, "embertree restore: %s\n", e->text);
            p->number = UINT64_MAX; /* of no head */
            rc = 0;
            continue;
        }
        any = true;
        last = p->hash;
        if (!rc)
            rc = join(ret, m, e);
    }
    return rc;
}

static int restore_places(struct restore *r, struct err *e)
{
    struct backup_places_all all;
    const struct map *places = NULL;
    int rc = backup_places_list(r->o, &all, e);

    if (!rc)
        rc = read_places(r, &all, &places, e);
    if (!rc)
        look_for_gaps(r, &all);
    if (!rc && places && !placement_history_plain(places)) {
        rc = placement_history_keep(env_real()->fs, r->dir, places, e);
        if (!rc)
            (void)printf("places: of %zu tenants and %zu services, in %s/" PLACEMENT_HISTORY_FILE
                         " for embertree adopt\n",
                         places->tenants_len, places->services_len, r->dir);
    }
    map_unref(places);
    backup_places_deinit(&all);
    return rc ? err_wrap(e, "places of services") : 0;
}

/* ---- the number of shards -------------------------------------------------------------------- */

/* By the newest backup of one of them: a service is found by its hash over that number. */
static int restore_number(struct restore *r, struct err *e)
{
    struct backup_head h;
    struct written_as w;
    uint64_t number;
    int rc = written_as_load(env_real()->fs, r->dir, &w, e);

    if (!rc)
        rc = backup_newest(r->o, r->there.at.ptr[0], &number, &h, e);
    if (rc)
        return rc;
    w.shards = h.shards;
    backup_head_deinit(&h);
    if (w.shards != r->shards)
        (void)printf("these are backups of %" PRIu32 " shards, and cluster.shards says %" PRIu64
                     ": give --cluster.shards=%" PRIu32
                     " to `embertree adopt` and to the server, and set it in the configurations\n",
                     w.shards, r->shards, w.shards);
    if (r->there.at.len < w.shards)
        (void)fprintf(stderr,
                      "embertree restore: there are backups of %zu of %" PRIu32
                      " shards: what was in the others is not there\n",
                      r->there.at.len, w.shards);
    return written_as_keep(env_real()->fs, r->dir, &w, e);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int restore_all(struct restore *r, struct err *e)
{
    int fd = -1, rc;

    if (!r->cold->url[0])
        return err_set(e, ERR_CONFIG,
                       "say where the backups are: --cold.url=dir:/path or s3://...");
    rc = cold_conf_open(r->cold, env_real(), NULL, &r->o, e);
    if (!rc)
        rc = lock_take(r->dir, "embertree restore", &fd, e);
    if (!rc)
        rc = backup_shards(r->o, &r->there, e);
    if (!rc && !r->there.at.len)
        rc = err_set(e, ERR_NOT_FOUND, "there is no backup in %s", object_where(r->o));
    if (!rc) /* these two first: a folder with shards has them */
        rc = restore_number(r, e);
    if (!rc)
        rc = restore_places(r, e);
    vec_for (i, &r->there.at)
        if (!rc && !r->wanted.len)
            rc = restore_shard(r, r->there.at.ptr[i], e);
    vec_for (i, &r->wanted)
        if (!rc)
            rc = restore_shard(r, r->wanted.ptr[i], e);
    backup_shards_deinit(&r->there);
    lock_drop(fd);
    object_close(r->o);
    return rc;
}

static int usage(void)
{
    (void)fprintf(stderr,
                  "usage: embertree restore --config=FILE | --data.dir=DIR --cold.url=URL ... "
                  "[SHARD ...]\n"
                  "  Puts shards as of their newest backup into the data folder, all of them if "
                  "none is\n"
                  "  named. Shards that are there already are left alone. Options are those of the "
                  "server.\n"
                  "  The server reads from the cold tier then; it writes there only with "
                  "--cold.take-over,\n"
                  "  to be given when the server that the backups are of is gone for good.\n"
                  "exit code: 0 restored, 1 not, 2 called in a wrong way\n");
    return 2;
}

static int restore(int argc, char **argv)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    struct restore r = { 0 };
    struct err e = { 0 };
    struct conf *conf;
    int kept = 1, rc;

    for (int i = 1; i < argc; i++) {
        uint64_t n;

        if (argv[i][0] == '-')
            argv[kept++] = argv[i];
        else if (str_u64(str_c(argv[i]), &n) && n <= UINT32_MAX)
            vec_push(&r.wanted, (uint32_t)n);
        else
            return usage();
    }
    if (conf_load(tables, options_collect(roles, tables), kept, argv, &conf, &e)) {
        (void)fprintf(stderr, "embertree restore: %s\n", e.text);
        return 2;
    }
    if (conf_action(conf) != CONF_RUN) {
        conf_free(conf);
        return usage();
    }
    r.cold = conf_get(conf, &cold_options);
    r.shards = ((const struct cluster_conf *)conf_get(conf, &cluster_options))->shards;
    r.dir = ((const struct data_conf *)conf_get(conf, &data_options))->dir;
    rc = restore_all(&r, &e);
    if (rc)
        (void)fprintf(stderr, "embertree restore: %s\n", e.text);
    vec_free(&r.wanted);
    conf_free(conf);
    return rc ? 1 : 0;
}

const struct command restore_command = {
    .name = "restore",
    .args = "[SHARD ...]",
    .help = "Shards as of their newest backup in the cold tier, into an empty data folder.",
    .run = restore,
};
