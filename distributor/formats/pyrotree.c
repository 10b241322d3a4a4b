/* SPDX-License-Identifier: Apache-2.0
 *
 * pyrotree: trees in depth-first pre-order, as agents of Pyroscope up to 0.37 send them.
 *
 *   node := name_len name_bytes value children_len node*      numbers are unsigned LEB128
 *
 * trie: the key of a node is the concatenation of all names from the root, split at any byte; a
 *       node with a value > 0 is the stack "a;b;c", root first. 00 00 01 | 02 "a;" 00 02 |
 *       01 "b" 01 00 | 01 "c" 02 00 is a;b = 1 and a;c = 2. It may end where a node could begin,
 *       as the agents' own reader has it; not within one.
 * tree: a node is a frame, the value its self value; all of it must be there.
 *       00 00 01 | 01 "a" 00 02 | 01 "b" 01 00 | 01 "c" 02 00 is the same.
 *
 * What follows a complete tree is refused: it was no tree then. Nothing is kept by a number that
 * was read: a stack of children still to come, bounded by limits.text_frames, takes the place of
 * recursion, and each child it waits for needs three more bytes of the body. What a stack has in
 * common with the one before is neither read nor walked again, so that a tree costs what its nodes
 * do and not what its depth is; gather.h bounds the rest.
 *
 * Format: grafana/pyroscope at 3fe6a457a320 (proto/FORMATS.md, "Trie", "Tree").
 */
#include "distributor/formats/pyrotree.h"

#include "distributor/formats/gather.h"
#include "distributor/formats/kinds.h"

#define CHILDREN_MAX 16000 /* of one node of a tree, as the peers have it */
#define CHILD_BYTES  3     /* a child takes at least so many */
#define KEY_MAX      MIB   /* bytes of a trie's key */

struct level {
    uint64_t left; /* children still to come */
    size_t key;    /* trie: length of the key up to here */
};
struct reader {
    const char *what;
    struct gather g;
    struct str in;
    size_t at;
    uint64_t nodes;
    bool tree;
    VEC(struct level) levels; /* owned */
    VEC(struct str) names;    /* owned; tree: by level. trie: in key */
    VEC(size_t) starts;       /* owned; trie: of names, in key */
    struct buf key;           /* trie */
    size_t parsed;            /* trie: bytes of it that have not changed since `names` was made */
};
struct node {
    struct str name;
    uint64_t value, children;
};

static int bad(const struct reader *r, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: node %" PRIu64 " is cut off or no number at byte %zu",
                   r->what, r->nodes, r->at);
}

static bool read_number(struct reader *r, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 10 && r->at < r->in.len; i++) {
        uint8_t byte = (uint8_t)r->in.ptr[r->at++];
        if (i == 9 && byte > 1)
            return false;
        v |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static int read_node(struct reader *r, struct node *n, struct err *e)
{
    uint64_t len;

    if (!read_number(r, &len) || len > r->in.len - r->at)
        return bad(r, e);
    n->name = str_sub(r->in, r->at, r->at + (size_t)len);
    r->at += (size_t)len;
    if (!read_number(r, &n->value) || !read_number(r, &n->children))
        return bad(r, e);
    if (r->tree && n->children > CHILDREN_MAX)
        return err_set(e, ERR_LIMIT, "%s: node %" PRIu64 " has %" PRIu64 " children, at most %d",
                       r->what, r->nodes, n->children, CHILDREN_MAX);
    /* A trie may end early, but not by more than what can still be there. */
    if (n->children > (r->in.len - r->at) / CHILD_BYTES + (r->tree ? 0 : 1))
        return err_set(e, ERR_INPUT,
                       "%s: node %" PRIu64 " announces %" PRIu64 " children with %zu bytes left",
                       r->what, r->nodes, n->children, r->in.len - r->at);
    if (n->value > INT64_MAX)
        return err_set(e, ERR_INPUT, "%s: node %" PRIu64 " has a value beyond 2^63", r->what,
                       r->nodes);
    return 0;
}

/* ---- what a node means ----------------------------------------------------------------------- */

static int take_tree(struct reader *r, const struct node *n, struct err *e)
{
    const struct gather_stack s = { .names = r->names.ptr, .n = r->names.len };

    return n->value ? gather_add(&r->g, &s, n->value, "node", r->nodes, e) : 0;
}

/* Keeps the names that the key still has, each with the ';' behind it; where the others begin. */
static size_t common(struct reader *r)
{
    if (r->names.len && r->names.ptr[0].ptr != r->key.ptr) /* it moved while it grew */
        vec_for (i, &r->names)
            r->names.ptr[i].ptr = r->key.ptr + r->starts.ptr[i];
    while (r->names.len) {
        struct str last = r->names.ptr[r->names.len - 1];
        size_t end = r->starts.ptr[r->names.len - 1] + last.len;
        if (end < r->parsed)
            return end + 1;
        r->starts.len = --r->names.len;
        gather_cut(&r->g, r->names.len);
    }
    return 0;
}

static int take_trie(struct reader *r, const struct node *n, struct err *e)
{
    struct str key = buf_str(&r->key), frame;
    bool more = true;

    if (n->value == 0)
        return 0;
    key = str_sub(key, common(r), key.len);
    while (key.len && str_next(&key, ';', &more, &frame)) {
        if (gather_check_name(&r->g, frame, "node", r->nodes, e))
            return e->code;
        if (r->names.len > r->g.l->text_frames)
            continue;
        vec_push(&r->names, frame);
        vec_push(&r->starts, (size_t)(frame.ptr - r->key.ptr));
    }
    r->parsed = r->key.len;
    const struct gather_stack s = { .names = r->names.ptr, .n = r->names.len };
    return gather_add(&r->g, &s, n->value, "node", r->nodes, e);
}

static int enter(struct reader *r, const struct node *n, struct err *e)
{
    if (r->levels.len > r->g.l->text_frames)
        return err_set(e, ERR_LIMIT, "%s: deeper than %" PRIu64 " nodes", r->what,
                       r->g.l->text_frames);
    if (r->tree) {
        if (gather_check_name(&r->g, n->name, "node", r->nodes, e))
            return e->code;
        if (r->nodes > 1 || n->name.len) /* the root has no name and is no frame */
            vec_push(&r->names, n->name);
        return 0;
    }
    buf_add_str(&r->key, n->name);
    if (!buf_ok(&r->key))
        return err_set(e, ERR_LIMIT, "%s: a key of more than %d bytes", r->what, (int)KEY_MAX);
    return 0;
}

/* Up to the next node that has a child left. */
static void leave(struct reader *r)
{
    while (r->levels.len && r->levels.ptr[r->levels.len - 1].left == 0) {
        r->levels.len--;
        if (r->tree && r->names.len)
            gather_cut(&r->g, --r->names.len);
    }
    if (!r->levels.len)
        return;
    struct level *top = &r->levels.ptr[r->levels.len - 1];
    top->left--;
    r->key.len = top->key;
    r->parsed = MIN(r->parsed, r->key.len);
}

static int read_all(struct reader *r, struct err *e)
{
    struct node n;

    do {
        if (!r->tree && r->at == r->in.len && r->nodes)
            return 0;
        r->nodes++;
        if (read_node(r, &n, e) || enter(r, &n, e) ||
            (r->tree ? take_tree(r, &n, e) : take_trie(r, &n, e)))
            return e->code;
        const struct level level = { .left = n.children, .key = r->key.len };
        vec_push(&r->levels, level);
        leave(r);
    } while (r->levels.len);
    if (r->at < r->in.len)
        return err_set(e, ERR_INPUT, "%s: %zu bytes follow its end", r->what, r->in.len - r->at);
    return 0;
}

static int pyrotree_push(struct str body, bool tree, const struct kind *kind,
                         const struct limits *l, struct push *push, struct err *e)
{
    struct reader r = { .what = tree ? "tree" : "trie", .in = body, .tree = tree };
    const struct labels none = { 0 };

    if (body.len == 0)
        return err_set(e, ERR_INPUT, "the body is empty");
    gather_init(&r.g, push, l, kind->period);
    gather_cut(&r.g, 0);
    buf_init(&r.key, KEY_MAX);
    int rc = read_all(&r, e);
    push->samples += r.g.taken;
    if (!rc)
        rc = gather_series(&r.g, &kind->type, &none, e);
    vec_free(&r.levels);
    vec_free(&r.names);
    vec_free(&r.starts);
    buf_deinit(&r.key);
    gather_deinit(&r.g);
    return rc;
}

int trie_push(struct str body, const struct kind *kind, const struct limits *l, struct push *push,
              struct err *e)
{
    return pyrotree_push(body, false, kind, l, push, e);
}

int tree_push(struct str body, const struct kind *kind, const struct limits *l, struct push *push,
              struct err *e)
{
    return pyrotree_push(body, true, kind, l, push, e);
}
