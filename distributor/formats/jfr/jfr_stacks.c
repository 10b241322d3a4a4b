/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_stacks: stack traces to nodes, each once per chunk.
 *
 * A frame is (class.method, line): class names keep their '/', and a method of a class without a
 * name (native code in async-profiler) stands alone. A frame whose method is not in the pools says
 * nothing and is left out.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR metadata").
 */
#include "distributor/formats/jfr/jfr_impl.h"

static uint32_t intern(struct jfr *j, struct str name)
{
    uint32_t id = stacks_string(&j->push->stacks, name);

    j->paths.full |= id == STACKS_FULL;
    return id;
}

/* The name of a method as a string of the push. */
static int method_name(struct jfr *j, uint32_t class, struct jfr_entry *method, uint32_t *ret,
                       struct err *e)
{
    const struct jfr_prog *prog = &j->chunk.progs.ptr[j->chunk.classes.ptr[class].prog];
    uint64_t slots[JFR_SLOTS];

    *ret = method->memo;
    if (*ret != JFR_NONE)
        return 0;
    buf_reset(&j->name);
    if (jfr_pool_load(j, class, method, slots)) {
        if (prog->bind[JFR_SLOT_A].pool)
            jfr_text(j, &prog->bind[JFR_SLOT_A], slots[JFR_SLOT_A], &j->name);
        if (j->name.len)
            buf_add_c(&j->name, '.');
        jfr_text(j, &prog->bind[JFR_SLOT_B], slots[JFR_SLOT_B], &j->name);
    }
    if (!buf_ok(&j->name))
        return err_set(e, ERR_LIMIT, "the name of a method is longer than %" PRIu64 " bytes",
                       j->l->symbol_bytes);
    struct str name = j->name.len ? buf_str(&j->name) : STR(PATHS_NO_NAME);
    name = push_symbol(j->push, name, (size_t)j->l->symbol_keep_bytes, &j->tmp);
    method->memo = *ret = intern(j, name);
    return 0;
}

/* One frame of class `class` whose fields are in slots, to the end of j->path. */
static int add_frame(struct jfr *j, uint32_t class, const uint64_t slots[JFR_SLOTS], size_t *n,
                     struct err *e)
{
    const struct jfr_prog *prog = &j->chunk.progs.ptr[j->chunk.classes.ptr[class].prog];
    const struct jfr_bind *bind = &prog->bind[JFR_SLOT_A];
    struct frame f = { 0 };

    if (!bind->here || !bind->pool || bind->array)
        return 0;
    struct jfr_entry *method = jfr_pool_find(j, bind->class, slots[JFR_SLOT_A]);
    if (!method)
        return 0;
    if (*n == j->l->frames)
        return paths_too_deep(&j->paths, e);
    if (method_name(j, bind->class, method, &f.func, e))
        return e->code;
    int64_t line = (int64_t)slots[JFR_SLOT_B];
    f.line = prog->bind[JFR_SLOT_B].here && line > 0 && line < UINT32_MAX ? (uint32_t)line : 0;
    uint32_t frame = j->paths.full ? STACKS_FULL : stacks_frame(&j->push->stacks, &f);
    j->paths.full |= frame == STACKS_FULL;
    j->path[(*n)++] = frame;
    return 0;
}

/* The array of frames at `offset`; its bytes were checked when the pools were read. */
static int add_frames(struct jfr *j, const struct jfr_bind *bind, uint64_t offset, size_t *n,
                      struct err *e)
{
    struct jfr_chunk *c = &j->chunk;
    struct rd r = { c->base + offset, c->base + c->size };
    uint64_t slots[JFR_SLOTS] = { 0 }, count = 0, key;

    /* Frames may be in the trace only: then no program was compiled for their fields yet. */
    static const struct jfr_want wants[] = { { "method", JFR_SLOT_A },
                                             { "lineNumber", JFR_SLOT_B } };
    if (jfr_compile(j, bind->class, wants, ARRAY_LEN(wants), e))
        return e->code;
    const struct jfr_prog prog = c->progs.ptr[c->classes.ptr[bind->class].prog];
    if (!jfr_varint(&r, &count) || (!bind->pool && prog.len == 0))
        return 0; /* frames without fields take no bytes, so their count has no bound */
    for (; count > 0 && !j->paths.full; count--) {
        if (!bind->pool) {
            if (!jfr_run(c->ops.ptr + prog.from, prog.len, c->base, &r, slots))
                return 0;
        } else {
            if (!jfr_varint(&r, &key))
                return 0;
            const struct jfr_entry *entry = jfr_pool_find(j, bind->class, key);
            if (!entry || !jfr_pool_load(j, bind->class, entry, slots))
                continue;
        }
        if (add_frame(j, bind->class, slots, n, e))
            return e->code;
    }
    return 0;
}

int jfr_trace_node(struct jfr *j, uint32_t class, struct jfr_entry *entry, uint32_t *ret,
                   struct err *e)
{
    uint64_t slots[JFR_SLOTS];
    size_t n = 0;

    *ret = entry->memo;
    if (LIKELY(*ret != JFR_NONE))
        return 0;
    const struct jfr_bind bind =
        j->chunk.progs.ptr[j->chunk.classes.ptr[class].prog].bind[JFR_SLOT_A];
    if (jfr_pool_load(j, class, entry, slots) && bind.here && bind.array &&
        j->chunk.classes.ptr[bind.class].kind == JFR_FRAME &&
        add_frames(j, &bind, slots[JFR_SLOT_A], &n, e))
        return e->code;
    if (paths_node(&j->paths, j->path, n, ret, e))
        return e->code;
    entry->memo = *ret;
    return 0;
}
