/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/base/unpack.h"

static void *arena_alloc_cb(void *a, size_t size)
{
    return arena_alloc(a, size);
}

static void arena_free_cb(void *a, void *p)
{
    (void)a;
    (void)p;
}

ProtobufCAllocator unpack_allocator(struct arena *a)
{
    return (ProtobufCAllocator){ arena_alloc_cb, arena_free_cb, a };
}

int unpack_failed(const char *what, struct str payload, const struct arena *a, struct err *e)
{
    if (arena_used(a) + payload.len > arena_limit(a))
        return err_set(e, ERR_LIMIT, "%s of %zu bytes needs over %zu bytes to decode", what,
                       payload.len, arena_limit(a));
    return err_set(e, ERR_INPUT, "%zu bytes are no %s", payload.len, what);
}

struct str unpack_str(ProtobufCBinaryData b)
{
    return str_n(b.data, b.len);
}

int unpack_columns(const Embertree__Stacks *in, struct stacks_view *ret, struct err *e)
{
    if (in->n_frame_file != in->n_frame_func || in->n_frame_line != in->n_frame_func ||
        in->n_frame_module != in->n_frame_func || in->n_frame_addr != in->n_frame_func)
        return err_set(e, ERR_INPUT, "columns of frames differ: %zu %zu %zu %zu %zu",
                       in->n_frame_func, in->n_frame_file, in->n_frame_line, in->n_frame_module,
                       in->n_frame_addr);
    if (in->n_node_parent != in->n_node_frame)
        return err_set(e, ERR_INPUT, "columns of nodes differ: %zu %zu", in->n_node_parent,
                       in->n_node_frame);
    *ret = (struct stacks_view){
        .string_data = unpack_str(in->string_data),
        .string_len = in->string_len,
        .strings = in->n_string_len,
        .frame_func = in->frame_func,
        .frame_file = in->frame_file,
        .frame_line = in->frame_line,
        .frame_module = in->frame_module,
        .frame_addr = in->frame_addr,
        .frames = in->n_frame_func,
        .node_parent = in->node_parent,
        .node_frame = in->node_frame,
        .nodes = in->n_node_parent,
    };
    return 0;
}

int unpack_stacks(const Embertree__Stacks *in, struct stacks_view *ret, struct err *e)
{
    static const uint32_t no_string = 0;

    if (!in) {
        *ret = (struct stacks_view){ .string_len = &no_string, .strings = 1 };
        return 0;
    }
    return unpack_columns(in, ret, e) ? e->code : stacks_view_check(ret, e);
}

void *pack_ptr(const void *p)
{
    return (void *)(uintptr_t)p;
}

ProtobufCBinaryData pack_str(struct str s)
{
    return (ProtobufCBinaryData){ s.len, pack_ptr(s.ptr) };
}

void pack_stacks(const struct stacks_view *v, Embertree__Stacks *ret)
{
    embertree__stacks__init(ret);
    ret->string_data = pack_str(v->string_data);
    ret->string_len = pack_ptr(v->string_len);
    ret->n_string_len = v->strings;
    ret->frame_func = pack_ptr(v->frame_func);
    ret->frame_file = pack_ptr(v->frame_file);
    ret->frame_line = pack_ptr(v->frame_line);
    ret->frame_module = pack_ptr(v->frame_module);
    ret->frame_addr = pack_ptr(v->frame_addr);
    ret->n_frame_func = ret->n_frame_file = ret->n_frame_line = v->frames;
    ret->n_frame_module = ret->n_frame_addr = v->frames;
    ret->node_parent = pack_ptr(v->node_parent);
    ret->node_frame = pack_ptr(v->node_frame);
    ret->n_node_parent = ret->n_node_frame = v->nodes;
}
