/* SPDX-License-Identifier: Apache-2.0
 *
 * build_msg: messages of proto/build.proto, packed and checked.
 *
 * A reply is unpacked into the caller's arena, and its rows point into it: rows of a job are large
 * and are not copied again. The message comes from another process, so level, type, column family
 * and the order of rows are checked here, and build_merge may rely on them. If protobuf-c fails,
 * the size of the arena tells whether memory ended (ERR_LIMIT) or the bytes are wrong
 * (ERR_CORRUPT). Thread: any.
 */
#include "compactor/build_msg.h"

#include "proto/build.pb-c.h"

#define SMALL_BYTES (16 * KIB)

static void *alloc_cb(void *a, size_t size)
{
    return arena_alloc(a, size);
}

static void free_cb(void *a, void *p)
{
    (void)a;
    (void)p;
}

static const uint8_t *bytes_of(struct str s)
{
    return (const uint8_t *)(const void *)s.ptr;
}

void build_next_pack(const struct build_next *n, struct buf *out)
{
    Embertree__BuildNextRequest r = EMBERTREE__BUILD_NEXT_REQUEST__INIT;
    char *p;

    r.shard = n->shard;
    r.version = BUILD_MSG_VERSION;
    r.bytes_max = n->bytes_max;
    r.compactor = n->compactor;
    r.fence = n->fence;
    p = buf_room(out, embertree__build_next_request__get_packed_size(&r));
    CHECK(p);
    out->len += embertree__build_next_request__pack(&r, (uint8_t *)(void *)p);
}

static int not_one(const char *what, struct str reply, const struct arena *a, struct err *e)
{
    if (arena_used(a) + reply.len > arena_limit(a))
        return err_set(e, ERR_LIMIT, "%s of %zu bytes needs over %zu bytes to decode", what,
                       reply.len, arena_limit(a));
    return err_set(e, ERR_CORRUPT, "%zu bytes are no %s", reply.len, what);
}

static bool before(const struct build_row *a, const struct build_row *b)
{
    if (a->cf != b->cf)
        return a->cf < b->cf;
    return a->id != b->id ? a->id < b->id : a->t <= b->t;
}

static int take_rows(const Embertree__BuildNextReply *r, struct build_given *ret, struct err *e)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        const Embertree__BuildRow *in = r->rows[i];
        struct build_row row = { .cf = (enum kv_cf)in->cf,
                                 .id = in->id,
                                 .t = in->t,
                                 .bytes = str_n(in->value.data, in->value.len) };

        if (in->cf >= KV_CFS)
            return err_set(e, ERR_CORRUPT, "row %zu is of column family %" PRIu32, i, in->cf);
        if (i > 0 && !before(&ret->job.rows.ptr[i - 1], &row))
            return err_set(e, ERR_CORRUPT, "row %zu is out of order", i);
        ret->bytes += row.bytes.len;
        vec_push(&ret->job.rows, row);
    }
    return 0;
}

int build_given_unpack(struct str reply, struct arena *a, struct build_given *ret, struct err *e)
{
    ProtobufCAllocator allocator = { alloc_cb, free_cb, a };
    const Embertree__BuildNextReply *r =
        embertree__build_next_reply__unpack(&allocator, reply.len, bytes_of(reply));

    *ret = (struct build_given){ 0 };
    if (!r)
        return not_one("BuildNextReply", reply, a, e);
    *ret = (struct build_given){
        .id = r->job,
        .part = r->part,
        .due = r->due,
        .oldest_ms = r->oldest_ms,
        .wait_ms = r->wait_ms,
        .timeout_ms = r->timeout_ms,
    };
    if (!r->job)
        return 0;
    if (r->level == 0 || r->level >= KEY_LEVELS || r->ptype > UINT16_MAX)
        return err_set(e, ERR_CORRUPT, "a job for level %" PRIu32 ", profile type %" PRIu32,
                       r->level, r->ptype);
    ret->job.node = (struct build_node){
        .m = { .tenant = r->tenant, .scope = r->scope, .ptype = (uint16_t)r->ptype },
        .level = r->level,
        .t = r->t,
    };
    ret->job.last = r->last;
    return take_rows(r, ret, e);
}

void build_given_deinit(struct build_given *g)
{
    build_job_deinit(&g->job);
}

int build_apply_pack(const struct build_sent *s, const struct build_result *res, struct arena *a,
                     struct buf *out, uint64_t *ret_bytes, struct err *e)
{
    Embertree__BuildApplyRequest r = EMBERTREE__BUILD_APPLY_REQUEST__INIT;
    Embertree__BuildRow *rows = ARENA_ARRAY(a, Embertree__BuildRow, res->rows.len + 1);
    size_t size;
    char *p;

    r.shard = s->shard;
    r.version = BUILD_MSG_VERSION;
    r.job = s->job;
    r.fence = s->fence;
    r.rows = ARENA_ARRAY(a, Embertree__BuildRow *, res->rows.len + 1);
    if (!rows || !r.rows)
        return err_set(e, ERR_LIMIT, "%zu rows need over %zu bytes", res->rows.len, arena_limit(a));
    *ret_bytes = 0;
    vec_for (i, &res->rows) {
        const struct build_row *from = &res->rows.ptr[i];

        embertree__build_row__init(&rows[i]);
        rows[i].cf = (uint32_t)from->cf;
        rows[i].id = from->id;
        rows[i].t = from->t;
        rows[i].value.data = (uint8_t *)(uintptr_t)from->bytes.ptr;
        rows[i].value.len = from->bytes.len;
        *ret_bytes += from->bytes.len;
        r.rows[r.n_rows++] = &rows[i];
    }
    size = embertree__build_apply_request__get_packed_size(&r);
    p = buf_room(out, size);
    if (!p)
        return err_set(e, ERR_LIMIT, "%zu sums take %zu bytes, %zu may be sent", res->rows.len,
                       size, out->max);
    out->len += embertree__build_apply_request__pack(&r, (uint8_t *)(void *)p);
    return 0;
}

int build_applied_unpack(struct str reply, struct build_applied *ret, struct err *e)
{
    struct arena *a = arena_new(SMALL_BYTES);
    ProtobufCAllocator allocator = { alloc_cb, free_cb, a };
    const Embertree__BuildApplyReply *r =
        embertree__build_apply_reply__unpack(&allocator, reply.len, bytes_of(reply));

    if (r)
        *ret = (struct build_applied){ r->rows, r->bytes, r->node_done };
    else
        (void)not_one("BuildApplyReply", reply, a, e);
    arena_free(a);
    return r ? 0 : e->code;
}
