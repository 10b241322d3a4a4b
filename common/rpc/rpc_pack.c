/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_pack: the loop only moves bytes; a body of megabytes would hold it for milliseconds.
 *
 * A job owns its message. Only `work` runs on a worker and touches nothing but the job's message
 * and its own fields; owner and tag belong to the loop. A job whose owner is gone frees itself.
 */
#include "common/rpc/rpc_pack.h"

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/base/size.h"

enum { ZSTD_LEVEL = 1 };

struct job {
    struct list link;      /* in pack.jobs while pack is set */
    struct rpc_pack *pack; /* NULL: its owner was freed */
    void *tag;
    struct rpc_msg *msg; /* owned */
    bool inward, ok;
    bool gone;     /* its tag is */
    bool unwanted; /* done says not ok */
};

struct rpc_pack {
    struct loop *loop; /* borrowed */
    struct pool *pool; /* borrowed */
    rpc_pack_fn done;
    void *cookie;
    struct list jobs;
    size_t running;
};

struct rpc_pack *rpc_pack_new(struct loop *loop, struct pool *pool, rpc_pack_fn done, void *cookie)
{
    struct rpc_pack *p = XNEW(struct rpc_pack);

    *p = (struct rpc_pack){ .loop = loop, .pool = pool, .done = done, .cookie = cookie };
    list_init(&p->jobs);
    return p;
}

void rpc_pack_free(struct rpc_pack *p)
{
    if (!p)
        return;
    list_for (it, &p->jobs) {
        list_del(it);
        container_of(it, struct job, link)->pack = NULL;
    }
    xfree(p);
}

size_t rpc_pack_running(const struct rpc_pack *p)
{
    return p->running;
}

static void compress(struct rpc_msg *m)
{
    struct buf out;
    struct err e;

    buf_init(&out, m->body.len - m->body.len / 8);
    if (zstd_compress(buf_str(&m->body), ZSTD_LEVEL, &out, &e) == 0 && out.len) {
        m->flags |= RPC_FLAG_ZSTD;
        m->raw = u32_from(m->body.len);
        buf_move(&m->body, &out);
    }
    buf_deinit(&out);
}

static bool decompress(struct rpc_msg *m)
{
    struct buf out;
    struct err e;
    bool ok;

    buf_init(&out, m->raw);
    ok = zstd_decompress(buf_str(&m->body), m->raw, &out, &e) == 0 && out.len == m->raw;
    if (ok)
        buf_move(&m->body, &out);
    buf_deinit(&out);
    m->flags &= (uint8_t)~RPC_FLAG_ZSTD;
    return ok;
}

static void job_work(void *cookie)
{
    struct job *j = cookie;

    if (j->inward)
        j->ok = decompress(j->msg);
    else
        compress(j->msg);
}

static void job_done(void *cookie)
{
    struct job *j = cookie;
    struct rpc_pack *p = j->pack;
    struct rpc_msg *m = j->msg;
    void *tag = j->tag;
    bool ok = j->ok && !j->unwanted, wanted = p && !j->gone;

    list_del(&j->link);
    xfree(j);
    if (p)
        p->running--;
    if (wanted)
        p->done(p->cookie, tag, m, ok);
    else
        rpc_msg_free(m);
}

static void pack_run(struct rpc_pack *p, struct rpc_msg *m, void *tag, bool inward)
{
    struct job *j = XNEW(struct job);
    size_t size = inward ? m->raw : m->body.len;

    *j = (struct job){ .pack = p, .tag = tag, .msg = m, .inward = inward, .ok = true };
    list_add_tail(&p->jobs, &j->link);
    p->running++;
    if (size > RPC_PACK_INLINE && p->pool && pool_submit(p->pool, p->loop, job_work, job_done, j))
        return;
    job_work(j);
    job_done(j);
}

void rpc_pack_out(struct rpc_pack *p, struct rpc_msg *m, void *tag)
{
    m->raw = u32_from(m->body.len);
    if (m->body.len > RPC_PACK_LEAST)
        pack_run(p, m, tag, false);
    else
        p->done(p->cookie, tag, m, true);
}

void rpc_pack_in(struct rpc_pack *p, struct rpc_msg *m)
{
    if (m->flags & RPC_FLAG_ZSTD)
        pack_run(p, m, NULL, true);
    else
        p->done(p->cookie, NULL, m, true);
}

void rpc_pack_forget(struct rpc_pack *p, void *tag)
{
    list_for (it, &p->jobs) {
        struct job *j = container_of(it, struct job, link);

        if (j->tag == tag)
            j->gone = true;
    }
}

void rpc_pack_forget_id(struct rpc_pack *p, void *tag, uint64_t id)
{
    list_for (it, &p->jobs) {
        struct job *j = container_of(it, struct job, link);

        if (j->tag == tag && j->msg->id == id && j->msg->kind == RPC_REQUEST)
            j->unwanted = true;
    }
}
