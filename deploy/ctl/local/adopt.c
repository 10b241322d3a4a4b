/* SPDX-License-Identifier: Apache-2.0
 *
 * adopt: `embertree adopt [options of the ingester] [NODE ...]`: a data folder whose shards had no
 * copies becomes the first member of a new cluster. deploy/docs/INSTALL.md, "From one server to
 * three".
 *
 *   lock the folder; does it hold just the shards it should?     nothing was changed up to here
 *   cluster_adopt: etcd says that these shards are this node's   refused: nothing changed here
 *   a log beside each database, which begins behind what it has
 *
 * Only then an ingester of that name starts on it: without the logs it refuses the folder, as it
 * does with any database that is no copy. All of it may be repeated.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/placement_history.h"
#include "common/cluster/node/written_as.h"
#include "common/cluster/rebuild/adopt.h"
#include "common/repl/log/rlog.h"
#include "common/repl/protocol/replica.h"
#include "common/repl/repl_bootstrap.h"
#include "common/role/cluster/cluster_source.h"
#include "common/role/core/options.h"
#include "common/role/host/lock.h"
#include "deploy/ctl/ctl.h"

#define CACHE_BYTES    (16 * MIB)
#define MEMTABLE_BYTES (16 * MIB)
#define LIMIT_MS       60000

struct job {
    const struct cluster_conf *cluster;
    const char *dir;
    char real[PATH_MAX];      /* dir, from the root */
    VEC(const char *) nodes;  /* none named: this one alone */
    size_t index;             /* ours among them */
    const struct map *places; /* a reference; NULL: the folder has none */
    struct written_as was;
    struct loop *loop;
    struct cluster_source at;
    struct err err;
    bool done;
};

/* ---- the folder ------------------------------------------------------------------------------ */

static bool ours(const struct job *j, uint64_t shard)
{
    return shard < j->cluster->shards && shard % j->nodes.len == j->index;
}

static bool holds_shards(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *entry;
    bool found = false;

    while (d && !found && (entry = readdir(d)) != NULL)
        found = str_starts(str_c(entry->d_name), STR("shard-"));
    if (d)
        (void)closedir(d);
    return found;
}

/* Before anything is written there: a folder without shards is a slip, often the one above that of
 * the server (a package's configuration keeps data in a folder of its state folder). */
static int check_any(const struct job *j, struct err *e)
{
    DIR *d = holds_shards(j->dir) ? NULL : opendir(j->dir);
    const struct dirent *entry;
    char below[PATH_MAX];

    if (!d)
        return 0;
    (void)err_set(
        e, ERR_CONFIG,
        "%s holds no shards; give the data.dir of the server that wrote them. Nothing was "
        "changed",
        j->dir);
    while ((entry = readdir(d)) != NULL)
        if (entry->d_name[0] != '.' &&
            (size_t)snprintf(below, sizeof(below), "%s/%s", j->dir, entry->d_name) <
                sizeof(below) &&
            holds_shards(below))
            (void)err_set(
                e, ERR_CONFIG,
                "%s holds no shards, but %s does: give --data.dir=%s. Nothing was changed", j->dir,
                below, below);
    (void)closedir(d);
    return e->code;
}

static int check_strangers(const struct job *j, struct err *e)
{
    DIR *d = opendir(j->dir);
    struct dirent *entry;
    int code = 0;

    if (!d)
        return err_errno(e, errno, "cannot list %s", j->dir);
    while (!code && (entry = readdir(d)) != NULL) {
        struct str name = str_c(entry->d_name);
        uint64_t shard;

        if (str_starts(name, STR("shard-")) && str_u64(str_sub(name, 6, name.len), &shard) &&
            !ours(j, shard))
            code = err_set(e, ERR_CONFIG,
                           "%s holds %s, which is not a shard of node %zu of %zu with "
                           "cluster.shards %" PRIu64
                           "; give the number of shards it was written with, and the nodes in the "
                           "order of cluster.ingesters",
                           j->dir, entry->d_name, j->index, j->nodes.len, j->cluster->shards);
    }
    (void)closedir(d);
    return code;
}

static int check_folder(const struct job *j, struct err *e)
{
    int code = check_strangers(j, e);

    for (uint64_t i = j->index; !code && i < j->cluster->shards; i += j->nodes.len) {
        char dir[PATH_MAX];
        struct stat st;

        if ((size_t)snprintf(dir, sizeof(dir), "%s/shard-%" PRIu64, j->dir, i) >= sizeof(dir))
            code = err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
        else if (lstat(dir, &st) != 0 && j->was.shards)
            code = err_set(e, ERR_CONFIG,
                           "%s is not there; with cluster.shards %" PRIu64
                           " this folder should have it. It was written with cluster.shards "
                           "%" PRIu32 ": give that number, here and to the cluster's roles",
                           dir, j->cluster->shards, j->was.shards);
        else if (lstat(dir, &st) != 0)
            code = err_set(e, ERR_CONFIG,
                           "%s is not there; with cluster.shards %" PRIu64
                           " this folder should have it. Give the number of shards it was written "
                           "with",
                           dir, j->cluster->shards);
    }
    return code;
}

/* Of a folder that was restored. */
static int check_places(struct job *j, struct err *e)
{
    int code = placement_history_load(env_real()->fs, j->dir, &j->places, e);

    if (!code && j->places && j->places->shards != j->cluster->shards)
        code = err_set(e, ERR_CONFIG,
                       "%s/" PLACEMENT_HISTORY_FILE " is of a cluster of %" PRIu32
                       " shards, and cluster.shards is %" PRIu64
                       ": services would be looked for where they are not. Give the number there "
                       "was",
                       j->dir, j->places->shards, j->cluster->shards);
    return code;
}

/* True if a log in the folder has promises to a cluster; a log that was only adopted has none. */
static bool served(const struct job *j)
{
    bool found = false;

    for (uint64_t i = j->index; !found && i < j->cluster->shards; i += j->nodes.len) {
        char dir[PATH_MAX];
        struct rlog_opts o = { .fs = rlog_fs_real(), .dir = dir };
        struct rlog_state st;
        struct rlog *log;
        struct err e;

        if ((size_t)snprintf(dir, sizeof(dir), "%s/log-%" PRIu64, j->dir, i) >= sizeof(dir) ||
            access(dir, F_OK) != 0 || rlog_open(&o, &log, &e))
            continue;
        st = rlog_state(log);
        found = rlog_begun(log) && replica_record_of(MAX(st.promised, st.last_term)) > 0;
        rlog_close(log);
    }
    return found;
}

/* From now on it is that node's alone, whatever etcd can say when its ingester starts. */
static int note_name(struct job *j, struct err *e)
{
    struct written_as w = j->was;

    (void)snprintf(w.node, sizeof(w.node), "%s", j->at.node);
    return strcmp(w.node, j->was.node) ? written_as_keep(env_real()->fs, j->dir, &w, e) : 0;
}

static int begin_log(const struct job *j, uint64_t shard, struct err *e)
{
    char dir[PATH_MAX], log[PATH_MAX];
    struct kv_opts o = { .dir = dir,
                         .block_cache_bytes = CACHE_BYTES,
                         .memtable_bytes = MEMTABLE_BYTES };
    struct kv *kv;

    if ((size_t)snprintf(dir, sizeof(dir), "%s/shard-%" PRIu64, j->dir, shard) >= sizeof(dir) ||
        (size_t)snprintf(log, sizeof(log), "%s/log-%" PRIu64, j->dir, shard) >= sizeof(log))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    int code = kv_rocks_open(&o, &kv, e);
    if (code)
        return code;
    code = repl_adopt(rlog_fs_real(), log, kv, e);
    kv_close(kv);
    return code ? err_wrap(e, "shard %" PRIu64, shard) : 0;
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void on_end(void *cookie)
{
    struct job *j = cookie;

    if (!j->done)
        (void)err_set(&j->err, ERR_TIMEOUT, "etcd was not reached in %d s; try again",
                      LIMIT_MS / 1000);
    loop_stop(j->loop);
}

static void on_adopted(void *cookie, const struct err *e)
{
    struct job *j = cookie;

    j->done = true;
    if (e)
        j->err = *e;
    loop_stop(j->loop);
}

static int ask(struct job *j, struct err *e)
{
    struct timer *limit = loop_timer_new(j->loop, on_end, j);
    struct env *env = env_real();
    char cluster_id[CLUSTER_ID_LEN + 1];
    uint8_t chance[CLUSTER_ID_BYTES];
    struct adopt_opts o = {
        .coord = j->at.coord,
        .prefix = j->cluster->etcd_prefix,
        .self = j->at.node,
        .id = j->at.node_id,
        .folder = j->real,
        .served = served(j),
        .cluster_id = cluster_id,
        .plan = { (uint32_t)j->cluster->shards, (uint32_t)j->cluster->replicas, j->nodes.ptr,
                  j->nodes.len },
        .places = j->places,
    };

    env->random(env, chance, sizeof(chance));
    cluster_id_make(chance, cluster_id);
    loop_timer_start(limit, LIMIT_MS, 0);
    cluster_adopt(&o, on_adopted, j);
    loop_run(j->loop);
    loop_timer_free(limit);
    *e = j->err;
    return e->code;
}

/* Which of the nodes are we? */
static int find_self(struct job *j, struct err *e)
{
    if (!j->nodes.len)
        vec_push(&j->nodes, j->at.node);
    if (j->nodes.len > ADOPT_NODES_MAX)
        return err_set(e, ERR_CONFIG, "%zu nodes named, at most %d", j->nodes.len, ADOPT_NODES_MAX);
    j->index = j->nodes.len;
    vec_for (i, &j->nodes) {
        if (!node_name_ok(str_c(j->nodes.ptr[i])))
            return err_set(e, ERR_CONFIG, "\"%s\" is no name of a node", j->nodes.ptr[i]);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(j->nodes.ptr[i], j->nodes.ptr[k]))
                return err_set(e, ERR_CONFIG, "%s is named twice", j->nodes.ptr[i]);
        if (!strcmp(j->nodes.ptr[i], j->at.node))
            j->index = i;
    }
    if (j->index == j->nodes.len)
        return err_set(e, ERR_CONFIG,
                       "this node is called %s (cluster.node), which is not among the named nodes",
                       j->at.node);
    return 0;
}

static int adopt_folder(struct job *j, struct err *e)
{
    struct metrics *metrics = metrics_new();
    int code;

    j->loop = loop_new(clock_real());
    code = cluster_source_init(&j->at,
                               &(struct cluster_source_opts){ .conf = j->cluster,
                                                              .env = env_real(),
                                                              .loop = j->loop,
                                                              .metrics = metrics,
                                                              .data_dir = j->dir },
                               e);
    if (!code)
        code = find_self(j, e);
    if (!code)
        code = written_as_load(env_real()->fs, j->dir, &j->was, e);
    if (!code)
        code = check_folder(j, e);
    if (!code)
        code = check_places(j, e);
    if (!code)
        code = ask(j, e);
    if (!code) /* of a cluster that this folder was in before: it would not believe this one */
        code = cluster_source_forget(j->dir, e);
    if (!code)
        code = note_name(j, e);
    for (uint64_t i = j->index; !code && i < j->cluster->shards; i += j->nodes.len)
        code = begin_log(j, i, e);
    if (!code)
        (void)printf("%s is node %s of the cluster below %s now. In the configuration of its "
                     "ingester set:\n"
                     "  data.dir: %s\n  cluster.shards: %" PRIu64 "\n"
                     "and start it, then the others\n",
                     j->dir, j->at.node, j->cluster->etcd_prefix, j->real, j->cluster->shards);
    map_unref(j->places);
    cluster_source_deinit(&j->at);
    metrics_free(metrics);
    loop_free(j->loop);
    return code;
}

static int adopt_all(struct job *j, struct err *e)
{
    struct stat st;
    int fd = -1, code;

    if (strcmp(j->cluster->coordination, "etcd") != 0)
        return err_set(e, ERR_CONFIG,
                       "say which cluster: --cluster.coordination=etcd --cluster.etcd=URL, and the "
                       "rest as the ingester gets it");
    if (stat(j->dir, &st) != 0)
        return err_errno(e, errno, "no data folder %s", j->dir);
    if (!realpath(j->dir, j->real))
        return err_errno(e, errno, "cannot follow %s", j->dir);
    if (check_any(j, e))
        return e->code;
    code = lock_take(j->dir, "embertree adopt", &fd, e);
    if (!code)
        code = adopt_folder(j, e);
    lock_drop(fd);
    return code;
}

static int usage(void)
{
    (void)fprintf(
        stderr, "usage: embertree adopt --config=FILE | --data.dir=DIR --cluster.etcd=URL ... "
                "[NODE ...]\n"
                "  A data folder that was written without copies becomes the first node of a new "
                "cluster\n"
                "  with coordination etcd. Options are those of the ingester that is to start on "
                "it. Where\n"
                "  a list of ingesters wrote several folders, name their nodes in the list's "
                "order, and\n"
                "  run it for each of the folders with the same names, before any of them "
                "starts.\n"
                "exit code: 0 done, also if it was done before; 1 not; 2 called in a wrong way\n");
    return 2;
}

static int adopt(int argc, char **argv)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    struct job j = { .done = false };
    struct err e = { 0 };
    struct conf *conf;
    int kept = 1, code;

    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            argv[kept++] = argv[i];
        else
            vec_push(&j.nodes, argv[i]);
    }
    if (conf_load(tables, options_collect(roles, tables), kept, argv, &conf, &e)) {
        (void)fprintf(stderr, "embertree adopt: %s\n", e.text);
        vec_free(&j.nodes);
        return 2;
    }
    if (conf_action(conf) != CONF_RUN) {
        conf_free(conf);
        vec_free(&j.nodes);
        return usage();
    }
    j.cluster = conf_get(conf, &cluster_options);
    j.dir = ((const struct data_conf *)conf_get(conf, &data_options))->dir;
    code = adopt_all(&j, &e);
    if (code)
        (void)fprintf(stderr, "embertree adopt: %s\n", e.text);
    conf_free(conf);
    vec_free(&j.nodes);
    return code ? 1 : 0;
}

const struct command adopt_command = {
    .name = "adopt",
    .args = "[NODE ...]",
    .help = "A data folder without copies becomes the first node of a cluster with copies.",
    .run = adopt,
};
