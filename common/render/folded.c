/* SPDX-License-Identifier: Apache-2.0
 *
 * folded: a walk over a layout that writes one line per node with a value of its own.
 *
 * The walk is a loop with a stack of its own, since trees may be deep and code does not recurse on
 * input. The text of the path grows by a name on the way down and is cut on the way up. Between two
 * steps the walk can stop, so a large reply is sent in pieces (folded_next).
 * Thread: one at a time.
 */
#include "common/render/folded.h"

#include "common/base/mem.h"

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

struct folded {
    const struct layout *l;
    const struct calltree *t;
    VEC(struct step) stack;
    struct buf path; /* of the node at hand, root first */
    bool began;
};

struct folded *folded_new(const struct layout *l, const struct calltree *t)
{
    struct folded *f = XNEW(struct folded);

    f->l = l;
    f->t = t;
    buf_init(&f->path, 64 * MIB);
    return f;
}

void folded_free(struct folded *f)
{
    if (!f)
        return;
    vec_free(&f->stack);
    buf_deinit(&f->path);
    xfree(f);
}

/* One child down, or one up. */
static void walk(struct folded *f, struct buf *out)
{
    const struct layout *l = f->l;
    struct step *top = &f->stack.ptr[f->stack.len - 1];

    if (top->next == l->child_at[top->node + 1]) {
        f->path.len = top->prefix_len;
        f->stack.len--;
        return;
    }
    uint32_t child = l->child[top->next++];
    struct step down = { .node = child, .next = l->child_at[child], .prefix_len = f->path.len };
    if (f->path.len)
        buf_add_c(&f->path, ';');
    put_name(&f->path, f->t->names.ptr[l->name[child]]);
    put_node(l, child, buf_str(&f->path), out);
    vec_push(&f->stack, down);
}

bool folded_next(struct folded *f, size_t want, struct buf *out)
{
    size_t until = out->len + MIN(want, SIZE_MAX - out->len);

    if (!f->began) {
        f->began = true;
        put_node(f->l, 0, STR_NULL, out);
        vec_push(&f->stack, ((struct step){ .node = 0, .next = f->l->child_at[0] }));
    }
    while (f->stack.len && out->len < until && buf_ok(out) && buf_ok(&f->path))
        walk(f, out);
    out->failed |= !buf_ok(&f->path);
    return f->stack.len > 0 && buf_ok(out);
}

void folded_write(const struct layout *l, const struct calltree *t, struct buf *out)
{
    struct folded *f = folded_new(l, t);

    (void)folded_next(f, SIZE_MAX, out);
    folded_free(f);
}
