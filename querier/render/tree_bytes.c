/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/render/tree_bytes.h"

#include "common/base/size.h"
#include "common/base/wr.h"

static void put_node(struct buf *out, struct str name, uint64_t self, size_t children)
{
    wr_varint(out, name.len);
    buf_add_str(out, name);
    wr_varint(out, self);
    wr_varint(out, children);
}

/* A real function "other" beside the cut goes into it, as in a flame graph. */
static bool goes_into_cut(const struct layout *l, uint32_t parent, uint32_t child)
{
    return l->other[parent] && l->name[child] == CALLTREE_OTHER;
}

struct step {
    uint32_t node;
    uint32_t next;  /* index into layout.child */
    uint64_t other; /* what was cut below it, and what went into that */
};

static struct step begin(const struct layout *l, const struct calltree *t, uint32_t node,
                         struct buf *out)
{
    struct step s = { .node = node, .next = l->child_at[node], .other = l->other[node] };
    size_t children = l->child_at[node + 1] - l->child_at[node] + (s.other > 0);

    for (uint32_t i = l->child_at[node]; i < l->child_at[node + 1]; i++)
        if (goes_into_cut(l, node, l->child[i])) {
            s.other = u64_add_sat(s.other, l->total[l->child[i]]);
            children--;
        }
    put_node(out, node ? t->names.ptr[l->name[node]] : STR_NULL, l->self[node], children);
    return s;
}

void tree_bytes_write(const struct layout *l, const struct calltree *t, struct buf *out)
{
    VEC(struct step) stack = { 0 };

    if (l->total[0] == 0)
        return;
    vec_push(&stack, begin(l, t, 0, out));
    while (stack.len && buf_ok(out)) {
        struct step *top = &stack.ptr[stack.len - 1];
        if (top->next == l->child_at[top->node + 1]) {
            if (top->other)
                put_node(out, t->names.ptr[CALLTREE_OTHER], top->other, 0);
            stack.len--;
            continue;
        }
        uint32_t child = l->child[top->next++];
        if (goes_into_cut(l, top->node, child))
            continue;
        struct step down = begin(l, t, child, out);
        vec_push(&stack, down);
    }
    vec_free(&stack);
}
