/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_copy: databases on their way to and from other nodes as files (common/repl/copy.h):
 * where they lie, how much room they may take, what there is to tell.
 */
#include <limits.h>
#include <stdio.h>

#include "common/base/hash.h"
#include "common/obs/log.h"
#include "common/repl/copy_in.h"
#include "ingester/replicas_impl.h"

bool copy_dir(const struct replica_of *r, char dir[PATH_MAX])
{
    const struct role_ctx *ctx = r->rs->in->ctx;

    return (!ctx->kv || ctx->kv->copies) &&
           snprintf(dir, PATH_MAX, "%s/copy-%" PRIu32, ctx->data_dir, r->shard) < PATH_MAX;
}

const struct copy_faults *copy_faults(const struct replica_of *r)
{
    return r->rs->in->ctx->kv ? r->rs->in->ctx->kv->copies : NULL;
}

uint64_t copy_room_left(void *cookie)
{
    const struct replica_of *r = cookie;
    uint64_t left, reserve;

    /* Somewhat above the mark from which on others are asked to lead (look_at_room). */
    disk_room(r->rs->in->disk, &left, &reserve);
    return left - MIN(left, reserve + reserve / 2);
}

void copy_is_here(void *cookie)
{
    struct replica_of *r = cookie;

    log_info("a copy of the shard came in; it is put in place", KV_U64("shard", r->shard),
             KV_CSTR("from", repl_node_copy(r->node).from));
    r->failed = true; /* closed, and opened again */
    replicas_step_soon(r->rs);
}

int copy_put_in_place(const struct replica_of *r, const char *db, struct err *e)
{
    char dir[PATH_MAX];
    bool installed;

    if (!copy_dir(r, dir))
        return 0;
    return copy_install(db, dir, copy_faults(r), &installed, e);
}

void copy_remove_folder(const struct replica_of *r)
{
    char dir[PATH_MAX];
    struct err e;

    if (copy_dir(r, dir) && copy_forget(dir, &e))
        log_warn("files of a copy could not be deleted", KV_U64("shard", r->shard), KV_ERR(&e));
}

void copies_look(struct replicas *rs)
{
    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];
        struct repl_copy_state st;

        if (!r->node || r->at == AT_STOPPING)
            continue;
        st = repl_node_copy(r->node);
        uint64_t why = st.why ? hash64(st.why, strlen(st.why), 1) : 0;
        if (why && why != r->copy_why)
            log_warn("a copy of the shard does not come in", KV_U64("shard", r->shard),
                     KV_CSTR("why", st.why));
        r->copy_why = why;
    }
}

void copy_json(const struct replica_of *r, struct json *j)
{
    struct repl_copy_state st;

    if (!r->node || r->at == AT_STOPPING)
        return;
    st = repl_node_copy(r->node);
    if (!st.from && !st.why)
        return;
    json_key(j, "copy");
    json_obj(j);
    json_key(j, "from");
    json_cstr(j, st.from ? st.from : "");
    json_key(j, "bytes");
    json_u64(j, st.bytes);
    json_key(j, "of");
    json_u64(j, st.total);
    json_key(j, "why");
    json_cstr(j, st.why ? st.why : "");
    json_obj_end(j);
}
