/* SPDX-License-Identifier: Apache-2.0
 *
 * debuginfo_upload.c: one upload's file on the pool: write, finish (check), keep (move and list).
 *
 * One job of an upload runs at a time (`busy`), so its file needs no lock. The loop changes the
 * index only in the `done` of a job. The free space of the disk is checked every ROOM_STEP bytes,
 * since other writers use the same disk. If the upload ends early its temporary file is removed.
 */
#include "distributor/parca/debuginfo/debuginfo_upload.h"

#define ROOM_STEP (16 * MIB) /* bytes between two looks at the free space */

uint64_t debuginfo_upload_turn(const struct distributor *d, struct str tenant)
{
    return pool_tenant_writes(d->ctx->pool, tenant);
}

bool debuginfo_upload_submit(struct distributor *d, uint64_t turn, pool_fn work, pool_fn done,
                             void *cookie)
{
    const struct role_ctx *ctx = d->ctx;

    return ctx->tenancy->multi ? pool_submit_for(ctx->pool, turn, ctx->loop, work, done, cookie)
                               : pool_submit(ctx->pool, ctx->loop, work, done, cookie);
}

void debuginfo_upload_open(struct debuginfo_upload *u, struct distributor *d,
                           struct debuginfo *index, struct debuginfo_entry *entry)
{
    *u = (struct debuginfo_upload){ .d = d,
                                    .index = index,
                                    .entry = entry,
                                    .turn = debuginfo_upload_turn(d, str_c(entry->m.tenant)) };
    d->working++;
}

void debuginfo_upload_close(struct debuginfo_upload *u)
{
    CHECK(!u->busy);
    if (u->entry) {
        debuginfo_temp_drop(&u->entry->temp);
        debuginfo_forget(u->index, u->entry);
        u->entry = NULL;
    }
    vec_free(&u->goners);
    distributor_left(u->d);
}

/* The disk keeps its reserve, whatever the quotas say. */
static int check_room(struct debuginfo_upload *u, struct err *e)
{
    const struct debuginfo_opts *o = debuginfo_opts(u->index);
    uint64_t have, total, size = u->entry->temp.size + u->bytes.len;

    if (size > o->file_bytes)
        return err_set(e, ERR_TOO_LARGE,
                       "debug info of more than %" PRIu64 " bytes (distributor.debuginfo_file_"
                       "bytes)",
                       o->file_bytes);
    if (size < u->checked)
        return 0;
    if (o->env->fs->space(o->env->fs, o->dir, &have, &total, e))
        return e->code;
    if (have < o->reserve + ROOM_STEP)
        return err_set(e, ERR_NO_SPACE,
                       "the disk has %" PRIu64 " MiB left, %" PRIu64
                       " MiB are kept free (data.disk_reserve)",
                       have / MIB, o->reserve / MIB);
    u->checked = size + ROOM_STEP;
    return 0;
}

static int write_bytes(struct debuginfo_upload *u, struct err *e)
{
    struct debuginfo_temp *t = &u->entry->temp;
    const struct debuginfo_opts *o = debuginfo_opts(u->index);
    uint64_t random;

    if (check_room(u, e))
        return e->code;
    if (t->fd < 0) {
        o->env->random(o->env, &random, sizeof(random));
        if (debuginfo_temp_open(o->dir, random, t, e))
            return e->code;
    }
    return debuginfo_temp_write(t, u->bytes, e);
}

static void write_work(void *cookie)
{
    struct debuginfo_upload *u = cookie;

    if (write_bytes(u, &u->err) == 0)
        err_clear(&u->err);
}

static void end_work(void *cookie)
{
    struct debuginfo_upload *u = cookie;
    struct debuginfo_entry *x = u->entry;

    if (x->temp.fd < 0)
        (void)err_set(&u->err, ERR_INPUT, "an upload without any bytes");
    else if (debuginfo_temp_finish(&x->temp, &x->m, &u->err) == 0)
        err_clear(&u->err);
}

static void keep_work(void *cookie)
{
    struct debuginfo_upload *u = cookie;
    const struct debuginfo_opts *o = debuginfo_opts(u->index);

    for (size_t i = 0; i < u->goners.len; i++)
        debuginfo_remove(o->dir, &u->goners.ptr[i]);
    if (debuginfo_temp_keep(&u->entry->temp, o->dir, &u->entry->m, o->env->fs, &u->err) == 0)
        err_clear(&u->err);
}

static void tell(struct debuginfo_upload *u)
{
    u->busy = false;
    u->then(u->cookie, u->err.code ? &u->err : NULL);
}

static void write_done(void *cookie)
{
    tell(cookie);
}

static void end_done(void *cookie)
{
    struct debuginfo_upload *u = cookie;

    if (!u->err.code) {
        u->entry->m.size = u->entry->temp.size;
        u->entry->state = DEBUGINFO_RECEIVED;
        u->entry = NULL; /* waits for its commit, or gets stale */
    }
    tell(u);
}

static void keep_done(void *cookie)
{
    struct debuginfo_upload *u = cookie;

    if (!u->err.code) {
        debuginfo_keep(u->index, u->entry);
        u->entry = NULL;
    }
    tell(u);
}

static void run(struct debuginfo_upload *u, pool_fn work, pool_fn done)
{
    CHECK(!u->busy);
    u->busy = true;
    err_clear(&u->err);
    if (debuginfo_upload_submit(u->d, u->turn, work, done, u))
        return;
    (void)err_set(&u->err, ERR_BUSY, "too much waits for a thread; try again");
    loop_post(u->d->ctx->loop, done, u);
}

void debuginfo_upload_write(struct debuginfo_upload *u, struct str bytes)
{
    u->bytes = bytes;
    run(u, write_work, write_done);
}

void debuginfo_upload_end(struct debuginfo_upload *u)
{
    run(u, end_work, end_done);
}

void debuginfo_upload_keep(struct debuginfo_upload *u)
{
    u->entry->m.finished_ms = clock_wall_ms(u->d->ctx->env->clock);
    if (debuginfo_make_room(u->index, u->entry, &u->goners, &u->err)) {
        u->busy = true;
        loop_post(u->d->ctx->loop, write_done, u);
        return;
    }
    run(u, keep_work, keep_done);
}
