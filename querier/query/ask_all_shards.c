/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/query/ask_all_shards.h"

#include "common/base/mem.h"

static void *alloc_cb(void *a, size_t size)
{
    return arena_alloc(a, size);
}

static void free_cb(void *a, void *p)
{
    (void)a;
    (void)p;
}

int ask_all(struct query *q, enum rpc_method method, const struct ask_all_message *ask,
            struct err *e)
{
    for (size_t i = 0; i < q->targets.len; i++) {
        const struct plan_target *t = &q->targets.ptr[i];
        struct fanout_call c = { .ingester = t->ingester, .method = method };

        *ask->shards = (uint32_t *)(uintptr_t)t->shards;
        *ask->shards_len = t->shards_len;
        size_t size = protobuf_c_message_get_packed_size(ask->m);
        if (size > ask->bytes_max)
            return err_set(e, ERR_LIMIT, "the query has over %zu bytes", ask->bytes_max);
        buf_init(&c.payload, size + 1);
        buf_init(&c.reply, 0);
        char *p = buf_room(&c.payload, size + 1);
        CHECK(p);
        c.payload.len += protobuf_c_message_pack(ask->m, (uint8_t *)(void *)p);
        vec_push(&q->calls, c);
    }
    return 0;
}

const void *ask_all_shards_answer(struct query *q, const struct fanout_call *c,
                                  const ProtobufCMessageDescriptor *what, size_t cost,
                                  struct err *e)
{
    ProtobufCAllocator allocator = { alloc_cb, free_cb, query_data(q) };

    CHECK(!c->err.code);
    if (query_take(q, cost, e))
        return NULL;
    const void *m = protobuf_c_message_unpack(what, &allocator, c->reply.len,
                                              (const uint8_t *)(const void *)c->reply.ptr);
    if (!m)
        (void)err_set(e, ERR_CORRUPT, "ingester %zu: %zu bytes are no %s", c->ingester,
                      c->reply.len, what->short_name);
    return m;
}
