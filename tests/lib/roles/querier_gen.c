/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/roles/querier_gen.h"

#include <stdio.h>

#include "common/base/mem.h"

static uint32_t make_frame(struct gen_part *g, struct prng *p, const struct gen_opts *o)
{
    struct frame f = { 0 };
    char text[64];
    uint64_t function = prng_below(p, o->functions);

    if (o->unsymbolized && function % 5 == 0) {
        f.addr = 0x1000 + function;
        if (function % 2) {
            int n = snprintf(text, sizeof(text), "/usr/lib/libm%d.so", (int)prng_below(p, 2));
            f.module = stacks_string(&g->stacks, str_n(text, (size_t)n));
        }
    } else if (o->unsymbolized && function % 7 == 0) {
        f.func = stacks_string(&g->stacks, STR("other"));
    } else {
        int n = snprintf(text, sizeof(text), "fn%llu", (unsigned long long)function);
        f.func = stacks_string(&g->stacks, str_n(text, (size_t)n));
        f.file = stacks_string(&g->stacks, STR("a.c"));
        f.line = (uint32_t)prng_below(p, o->frames_per_function);
    }
    return stacks_frame(&g->stacks, &f);
}

void gen_part_make(struct gen_part *g, struct prng *p, const struct gen_opts *o)
{
    size_t nodes = 1 + prng_below(p, o->nodes_max);

    *g = (struct gen_part){ 0 };
    stacks_init(&g->stacks, GIB, prng_u64(p));
    for (size_t i = 0; i < nodes; i++) {
        size_t have = g->stacks.node_parent.len;
        uint64_t up = o->chain ? have : prng_below(p, have + 1);
        (void)stacks_node(&g->stacks, (uint32_t)up, make_frame(g, p, o));
    }
    for (uint32_t i = 0; i <= g->stacks.node_parent.len; i++)
        if (prng_chance(p, o->value_chance)) {
            vec_push(&g->nodes, i);
            vec_push(&g->values, prng_below(p, o->value_max + 1));
        }
    g->part = (struct calltree_part){ .stacks = stacks_view(&g->stacks),
                                      .nodes = g->nodes.ptr,
                                      .values = g->values.ptr,
                                      .len = g->nodes.len };
}

void gen_part_free(struct gen_part *g)
{
    stacks_deinit(&g->stacks);
    vec_free(&g->nodes);
    vec_free(&g->values);
}

struct gen_path *gen_model_find(const struct gen_model *m, struct str text)
{
    vec_for (i, &m->paths)
        if (str_eq(str_c(m->paths.ptr[i].text), text))
            return &m->paths.ptr[i];
    return NULL;
}

static void frame_text(const struct gen_part *g, uint32_t frame, struct buf *out)
{
    struct str func = stacks_string_at(&g->stacks, g->stacks.frame_func.ptr[frame]);
    struct str module = stacks_string_at(&g->stacks, g->stacks.frame_module.ptr[frame]);

    if (func.len) {
        buf_add_str(out, func);
        return;
    }
    ptrdiff_t slash = str_rfind(module, '/');
    buf_addf(out, "%.*s!0x%llx",
             STR_ARG(module.len ? str_sub(module, (size_t)(slash + 1), 999) : STR("unknown")),
             (unsigned long long)g->stacks.frame_addr.ptr[frame]);
}

/* Text of the path to `node`, and its depth. */
static uint32_t path_text(const struct gen_part *g, uint32_t node, struct buf *out)
{
    uint32_t chain[4096], depth = 0;

    for (; node; node = g->stacks.node_parent.ptr[node - 1])
        chain[depth++] = node;
    for (uint32_t i = depth; i-- > 0;) {
        if (i + 1 < depth)
            buf_add_c(out, '\n');
        frame_text(g, g->stacks.node_frame.ptr[chain[i] - 1], out);
    }
    return depth;
}

void gen_model_add(struct gen_model *m, const struct gen_part *g)
{
    struct buf b;

    buf_init(&b, MIB);
    for (size_t i = 0; i < g->nodes.len; i++) {
        bool first = true;
        if (!g->values.ptr[i])
            continue;
        /* The node with its value, then its ancestors without. */
        for (uint32_t node = g->nodes.ptr[i];; node = g->stacks.node_parent.ptr[node - 1]) {
            buf_reset(&b);
            uint32_t depth = path_text(g, node, &b);
            struct gen_path *known = gen_model_find(m, buf_str(&b));
            if (!known) {
                buf_add_c(&b, '\0');
                vec_push(&m->paths, ((struct gen_path){ .text = xstrdup(b.ptr), .depth = depth }));
                known = &m->paths.ptr[m->paths.len - 1];
            }
            if (first)
                known->self += g->values.ptr[i];
            first = false;
            if (node == 0)
                break;
        }
    }
    if (!m->paths.len)
        vec_push(&m->paths, ((struct gen_path){ .text = xstrdup("") }));
    buf_deinit(&b);
}

void gen_model_totals(struct gen_model *m)
{
    vec_for (i, &m->paths) {
        struct gen_path *up = &m->paths.ptr[i];
        struct str prefix = str_c(up->text);
        up->total = 0;
        vec_for (k, &m->paths) {
            struct str text = str_c(m->paths.ptr[k].text);
            if (!prefix.len || (str_starts(text, prefix) &&
                                (text.len == prefix.len || text.ptr[prefix.len] == '\n')))
                up->total += m->paths.ptr[k].self;
        }
    }
}

void gen_model_free(struct gen_model *m)
{
    vec_for (i, &m->paths)
        xfree(m->paths.ptr[i].text);
    vec_free(&m->paths);
}
