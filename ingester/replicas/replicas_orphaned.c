/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_left: what lies here of shards that became others' while this node was away, or was
 * killed while a copy came in. Nothing is opened of it, so nothing else would ever remove it.
 *
 * What is removed is gone, so it must be known to be superfluous: the log here promised nothing in
 * the term in which the record leaves this node out, or later. A node that was away while it was
 * taken out cannot have. A log that promised nothing at all was adopted
 * (common/cluster/rebuild/adopt.h) and never served: the only copy, under another node's name.
 * Data that is not known to be superfluous stays, and is reported, for it may be the last copy: the
 * log of another cluster, or of this one before its etcd was lost and an empty one put in its
 * place; a database without a log, which an operator restored here.
 *
 * The records are those that the coordination service itself has told: those in the file of the
 * last time may be older than what this node has.
 *
 * Thread: the loop's; left_work is aside.
 */
#include <dirent.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/repl/log/rlog.h"
#include "common/repl/protocol/replica.h"
#include "ingester/base/blocking_job.h"
#include "ingester/replicas/replicas_impl.h"

static bool is_there(const struct replica_of *r, const char *what)
{
    char dir[PATH_MAX];

    return replica_path(r, what, dir) && access(dir, F_OK) == 0;
}

/* Was all of it before `left_term`? */
static bool is_past(const struct replica_of *r)
{
    char dir[PATH_MAX];
    struct rlog_opts o = { .fs = rlog_fs_real(), .dir = dir };
    struct rlog_state st;
    struct rlog *log;
    struct err e;

    if (!replica_path(r, "log", dir) || rlog_open(&o, &log, &e))
        return false;
    st = rlog_state(log);
    uint64_t term = replica_record_of(MAX(st.promised, st.last_term));
    bool past = rlog_begun(log) && term > 0 && term < r->left_term;
    rlog_close(log);
    return past;
}

static void left_work(void *cookie)
{
    struct replica_of *r = cookie;

    if (is_there(r, "log"))
        r->left_kept = !is_past(r);
    else
        r->left_kept = is_there(r, "shard");
    if (!r->left_kept)
        replica_remove_files(r);
}

static void on_left(void *cookie)
{
    struct replica_of *r = cookie;

    if (r->left_kept)
        log_warn("the copy of a shard that other nodes have is kept: nothing shows that it is "
                 "older than theirs. If this folder is of another cluster, or of this one before "
                 "its etcd was lost, see deploy/docs/TROUBLE.md; else remove it",
                 KV_U64("shard", r->shard));
    else
        log_info("the data of a shard that moved to other nodes is removed",
                 KV_U64("shard", r->shard));
    r->at = AT_NOTHING;
    replica_step(r);
}

static void look_at(struct replicas *rs, struct str name)
{
    static const char *const what[] = { "log-", "shard-", "copy-" };
    const struct repl_record *rec;
    uint64_t shard = UINT64_MAX;
    struct replica_of *r;
    int64_t rev;

    for (size_t i = 0; i < ARRAY_LEN(what); i++)
        if (str_starts(name, str_c(what[i])) &&
            !str_u64(str_sub(name, strlen(what[i]), name.len), &shard))
            return;
    if (shard >= view_shards(rs->view) || replica_find(rs, (uint32_t)shard))
        return;
    rec = view_record(rs->view, (uint32_t)shard, &rev);
    if (!rec || replica_concerns(rs, rec))
        return;
    replica_add(rs, (uint32_t)shard);
    r = replica_find(rs, (uint32_t)shard);
    if (!r)
        return;
    r->left_term = rec->term;
    r->at = AT_REMOVING;
    blocking_job_run(rs->in->ctx->loop, rs->in->ctx->simulated, left_work, on_left, r);
}

void replicas_sweep(struct replicas *rs)
{
    const struct role_ctx *ctx = rs->in->ctx;
    struct dirent *entry;
    DIR *d;

    if (rs->swept || rs->stopping || ctx->kv || !rs->o.coord || !view_ready(rs->view) ||
        !view_trusts(rs->view))
        return;
    rs->swept = true;
    d = opendir(ctx->data_dir);
    while (d && (entry = readdir(d)) != NULL)
        look_at(rs, str_c(entry->d_name));
    if (d)
        (void)closedir(d);
}
