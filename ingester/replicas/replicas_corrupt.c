/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_corrupt: a database that lacks rows or cannot be read. RocksDB refuses it, or the checks
 * of its write-ahead logs do (common/store/kv/rocks_wal.cc, kv_chain.h). It must not be served:
 * what it lacks would be missing from answers without a word.
 *
 *   1. The folder is renamed, and an empty database is opened in its place.
 *   2. The log of the replica is whole, so the replica votes and stores entries as before: a lost
 *      database is fetched from the leader (common/repl/README.md, "A copy"), or applied again from
 *      the log where that goes back to the first entry. Until then it does not lead.
 *   3. The reason is shown by /readyz, /ring and `embertreectl cluster status` until the shard is
 *      here again.
 *
 * Only where another node has the shard. Else the folder stays where it is, the shard is not opened
 * here, and the error says what an operator can do.
 *
 * Nothing is deleted that may be the only copy: the first folder that was renamed stays until an
 * operator removes it. Of later ones the newest stays.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/obs/log.h"
#include "common/repl/apply.h"
#include "ingester/base/state.h"
#include "ingester/replicas/replicas_impl.h"
#include "ingester/replicas/shard_open.h"

#define FIRST "damaged-shard"
#define LATER "damaged-again"

bool corrupt_others_have(const struct replica_of *r)
{
    int64_t rev;
    const struct repl_record *rec = view_record(r->rs->view, r->shard, &rev);
    size_t self = rec && name_set_has(&rec->members, r->rs->self);

    return rec && r->rs->o.coord && rec->members.len > self;
}

static int check_and_open(struct replica_of *r, const char *dir)
{
    int code = r->rs->in->ctx->kv ? 0 : apply_check_files(dir, &r->err);

    if (code)
        return err_wrap(&r->err, "%s", dir);
    return shard_open_kv(r->rs->in, r->shard, r->shares, &r->kv, &r->err);
}

static int sync_folder(const char *dir, struct err *e)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

    if (fd < 0 || fsync(fd))
        rc = err_errno(e, errno, "cannot sync %s", dir);
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

/* *ret_name: the new name of the folder, without the number of the shard. */
static int rename_database(const struct replica_of *r, const char *dir, const char **ret_name,
                           struct err *e)
{
    const struct role_ctx *ctx = r->rs->in->ctx;
    char to[PATH_MAX];

    *ret_name = FIRST;
    if (ctx->kv) {
        if (ctx->kv->remove)
            ctx->kv->remove(ctx->kv, dir);
        return 0;
    }
    if (!replica_path(r, FIRST, to))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    if (access(to, F_OK) == 0) {
        *ret_name = LATER;
        if (!replica_path(r, LATER, to))
            return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
        replica_remove_folder(to);
    }
    if (rename(dir, to))
        return err_errno(e, errno, "cannot rename %s to %s", dir, to);
    return sync_folder(ctx->data_dir, e);
}

int corrupt_open(struct replica_of *r, const char *dir)
{
    int code = check_and_open(r, dir);
    const char *name;
    struct err why = r->err, e;

    if (code != ERR_CORRUPT)
        return code;
    if (!r->others_have)
        return err_set(&r->err, ERR_CORRUPT,
                       "no other node has this shard: restore it (embertree restore), or look at "
                       "it with embertree fsck: %.300s",
                       why.text);
    if (rename_database(r, dir, &name, &e))
        return err_set(&r->err, e.code, "%.200s; it is damaged: %.200s", e.text, why.text);
    (void)err_set(&r->damage, ERR_CORRUPT,
                  "its database is damaged and was renamed to %s-%" PRIu32
                  "; the shard is being fetched from other members (restore it if none has it): "
                  "%.250s",
                  name, r->shard, why.text);
    r->damage_new = true;
    err_clear(&r->err);
    return check_and_open(r, dir);
}

void corrupt_opened(struct replica_of *r)
{
    if (!r->damage_new)
        return;
    r->damage_new = false;
    log_error("the database of a shard is damaged, and is fetched again from other members. Look "
              "at this node's disk and memory; the renamed folder may be removed when all copies "
              "are there",
              KV_U64("shard", r->shard), KV_CSTR("node", r->rs->self), KV_ERR(&r->damage));
}

void corrupt_look(struct replica_of *r)
{
    struct replica_state st;
    bool behind;

    if (!r->damage.code || !r->node)
        return;
    st = replica_now(r);
    behind = st.no_database || st.silent || !st.leader_commit || st.applied < st.leader_commit;
    if (behind && r->at != AT_SERVING)
        return;
    log_info("a shard whose database was damaged is here again", KV_U64("shard", r->shard));
    err_clear(&r->damage);
}
