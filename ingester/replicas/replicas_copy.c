/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_copy: databases on their way to and from other nodes as files (common/repl/copy.h):
 * where they lie, how much room they may take; how far they are, and logs that catch up.
 */
#include <limits.h>
#include <stdio.h>

#include "common/base/hash.h"
#include "common/obs/log.h"
#include "common/repl/copy_in.h"
#include "ingester/replicas/replicas_impl.h"

#define SAY_MS 10000
#define FAR    1024 /* entries */

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

void replicas_copy_present(void *cookie)
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

/* ---- how far it is -------------------------------------------------------------------------- */

static void say_copy(struct replica_of *r, const struct repl_copy_state *st)
{
    uint64_t per_s = 0, left = RATE_ESTIMATE_NEVER;
    bool timed = rate_estimate_of(&r->copy_speed, &per_s);

    if (timed && st->total)
        left = rate_estimate_left_s(per_s, st->total - MIN(st->bytes, st->total));
    if (st->rows)
        log_info("a copy of the shard comes in, as rows", KV_U64("shard", r->shard),
                 KV_CSTR("from", st->from), KV_U64("bytes", st->bytes),
                 KV_U64("bytes_per_s", per_s));
    else if (left == RATE_ESTIMATE_NEVER)
        log_info("a copy of the shard comes in", KV_U64("shard", r->shard),
                 KV_CSTR("from", st->from), KV_U64("bytes", st->bytes), KV_U64("of", st->total),
                 KV_U64("bytes_per_s", per_s));
    else
        log_info("a copy of the shard comes in", KV_U64("shard", r->shard),
                 KV_CSTR("from", st->from), KV_U64("bytes", st->bytes), KV_U64("of", st->total),
                 KV_U64("bytes_per_s", per_s), KV_U64("left_s", left));
}

/* A log that is far behind its leader's. */
static void say_log(const struct replica_of *r, const struct replica_state *st)
{
    uint64_t per_s = 0;

    (void)rate_estimate_of(&r->log_speed, &per_s);
    log_info("a copy of the shard catches up", KV_U64("shard", r->shard),
             KV_U64("entries", st->last_index), KV_U64("of", st->leader_commit),
             KV_U64("entries_per_s", per_s));
}

/* Logs the progress of a copy every SAY_MS, first after SAY_MS: most copies are complete before
 * that. */
static void look_at(struct replica_of *r, const struct repl_copy_state *copy, uint64_t now)
{
    struct replica_state st = replica_now(r);
    bool far = r->at == AT_FOLLOWING && st.leader_commit > st.last_index + FAR;

    if (copy->from)
        rate_estimate_note(&r->copy_speed, now, copy->bytes);
    else
        r->copy_speed.len = 0;
    rate_estimate_note(&r->log_speed, now, st.last_index);
    if (!copy->from && !far) {
        r->copy_said_ms = now;
        return;
    }
    if (now < r->copy_said_ms + SAY_MS)
        return;
    r->copy_said_ms = now;
    if (copy->from)
        say_copy(r, copy);
    else
        say_log(r, &st);
}

void replicas_copy_scan(struct replicas *rs)
{
    uint64_t now = replicas_now_ms(rs);

    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];
        struct repl_copy_state st;

        if (!r->node || r->at == AT_STOPPING)
            continue;
        st = repl_node_copy(r->node);
        look_at(r, &st, now);
        uint64_t why = st.why ? hash64(st.why, strlen(st.why), 1) : 0;
        if (why && why != r->copy_why)
            log_warn("a copy of the shard does not come in", KV_U64("shard", r->shard),
                     KV_CSTR("why", st.why));
        r->copy_why = why;
    }
}

void copy_report(const struct replica_of *r, struct progress_shard *ret)
{
    struct repl_copy_state st = repl_node_copy(r->node);
    struct progress_coming *c = &ret->coming;

    ret->timed = rate_estimate_of(&r->log_speed, &ret->per_s);
    ret->why = st.why ? str_c(st.why) : STR_NULL;
    if (!st.from)
        return;
    *c = (struct progress_coming){
        .files = !st.rows, .rows = st.rows, .bytes = st.bytes, .total = st.total
    };
    c->timed = rate_estimate_of(&r->copy_speed, &c->per_s);
}

void copy_json(const struct replica_of *r, struct json *j)
{
    struct repl_copy_state st;
    uint64_t per_s;

    if (!r->node || r->at == AT_STOPPING)
        return;
    st = repl_node_copy(r->node);
    if (!st.from && !st.why)
        return;
    json_key(j, "copy");
    json_obj(j);
    json_put_cstr(j, "from", st.from ? st.from : "");
    json_put_u64(j, "bytes", st.bytes);
    json_put_u64(j, "of", st.total);
    json_put_bool(j, "rows", st.rows);
    if (st.from && rate_estimate_of(&r->copy_speed, &per_s))
        json_put_u64(j, "bytesPerSecond", per_s);
    json_put_cstr(j, "why", st.why ? st.why : "");
    json_obj_end(j);
}
