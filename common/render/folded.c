/* SPDX-License-Identifier: Apache-2.0 */
#include "common/render/folded.h"

static void put_name(struct buf *out, struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        buf_add_c(out, c == ';' ? ':' : c == '\n' || c == '\r' ? ' ' : c);
    }
}

static void put_line(struct buf *out, struct str prefix, struct str leaf, uint64_t value)
{
    buf_add_str(out, prefix);
    if (leaf.len) {
        if (prefix.len)
            buf_add_c(out, ';');
        buf_add_str(out, leaf);
    }
    buf_add_c(out, ' ');
    buf_add_u64(out, value);
    buf_add_c(out, '\n');
}

struct step {
    uint32_t node;
    uint32_t next;     /* index into layout.child of the child to visit next */
    size_t prefix_len; /* of the path text up to and without this node */
};

/* Writes the lines of one node, whose path is `path`. */
static void put_node(const struct layout *l, uint32_t node, struct str path, struct buf *out)
{
    if (l->self[node])
        put_line(out, path.len ? path : STR("(empty stack)"), STR_NULL, l->self[node]);
    if (l->other[node])
        put_line(out, path, STR("other"), l->other[node]);
}

void folded_write(const struct layout *l, const struct calltree *t, struct buf *out)
{
    VEC(struct step) stack = { 0 };
    struct buf path;

    buf_init(&path, 64 * MIB);
    put_node(l, 0, STR_NULL, out);
    vec_push(&stack, ((struct step){ .node = 0, .next = l->child_at[0] }));
    while (stack.len && buf_ok(out) && buf_ok(&path)) {
        struct step *top = &stack.ptr[stack.len - 1];
        if (top->next == l->child_at[top->node + 1]) {
            path.len = top->prefix_len;
            stack.len--;
            continue;
        }
        uint32_t child = l->child[top->next++];
        struct step down = { .node = child, .next = l->child_at[child], .prefix_len = path.len };
        if (path.len)
            buf_add_c(&path, ';');
        put_name(&path, t->names.ptr[l->name[child]]);
        put_node(l, child, buf_str(&path), out);
        vec_push(&stack, down);
    }
    out->failed |= !buf_ok(&path);
    vec_free(&stack);
    buf_deinit(&path);
}
