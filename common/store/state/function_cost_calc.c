/* SPDX-License-Identifier: Apache-2.0
 *
 * function_cost_calc: from stacks to functions, in time linear in the nodes that a vector touches.
 *
 *   values by node ─> touched = nodes with a value and all above them
 *                     │ children before parents (ids descend):  below[parent] += below[node]
 *                     │ depth first from the root, with a count of each function on the path:
 *                     ▼   self[f] += value,  total[f] += below where f is not on the path yet
 *                  self, total by string id
 *
 * A parent's id is smaller than its children's, so order of ids is an order of the tree. Touched
 * nodes are kept as a bitmap: walking it costs a word per 64 nodes of the dictionary. Arrays are
 * sized by the dictionary, kept from one vector to the next and cleared by what was touched.
 *
 * Both values are linear in the vector: sums of rows may be added before or after.
 */
#include "common/store/state/function_cost_calc.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/codec/fp.h"

/* ---- dictionaries ---- */

struct epoch {
    uint32_t number;
    struct dict *d; /* referenced */
    struct dict_counts n;
    uint64_t *values;  /* by node; NULL: none. While computing: with all below */
    uint64_t *touched; /* bits by node */
};
struct column {
    VEC(uint32_t) ids;
    VEC(uint64_t) values;
    VEC(struct vec_part) parts; /* ids and values are set last: arrays move */
    uint64_t fp;
    struct buf row;
};
struct function_cost_calc {
    struct dict_cache *dicts; /* borrowed */
    const struct kv_snap *snap;
    uint32_t tenant, scope;
    VEC(struct epoch) epochs; /* by number */
    VEC(struct dict *) kept;  /* former dictionaries of epochs that grew: names given stay valid */
    uint64_t writes;          /* of what was added */
    bool saturated;
    /* All zero between uses. By node: */
    VEC(uint32_t) child, sibling;
    /* by string: */
    VEC(uint64_t) self, total;
    VEC(uint32_t) on_path;
    VEC(uint64_t) named; /* bits */
    struct column out[2];
};

struct function_cost_calc *fn_calc_new(struct dict_cache *dicts)
{
    struct function_cost_calc *c = XNEW(struct function_cost_calc);

    c->dicts = dicts;
    buf_init(&c->out[0].row, GIB);
    buf_init(&c->out[1].row, GIB);
    return c;
}

static void drop_values(struct epoch *p)
{
    xfree(p->values);
    xfree(p->touched);
    p->values = p->touched = NULL;
}

static void drop_epochs(struct function_cost_calc *c)
{
    vec_for (i, &c->epochs) {
        drop_values(&c->epochs.ptr[i]);
        dict_unref(c->epochs.ptr[i].d);
    }
    c->epochs.len = 0;
    vec_for (i, &c->kept)
        dict_unref(c->kept.ptr[i]);
    c->kept.len = 0;
}

void fn_calc_free(struct function_cost_calc *c)
{
    if (!c)
        return;
    drop_epochs(c);
    vec_free(&c->epochs);
    vec_free(&c->kept);
    vec_free(&c->child);
    vec_free(&c->sibling);
    vec_free(&c->self);
    vec_free(&c->total);
    vec_free(&c->on_path);
    vec_free(&c->named);
    for (int i = 0; i < 2; i++) {
        vec_free(&c->out[i].ids);
        vec_free(&c->out[i].values);
        vec_free(&c->out[i].parts);
        buf_deinit(&c->out[i].row);
    }
    xfree(c);
}

static void forget_sum(struct function_cost_calc *c)
{
    vec_for (i, &c->epochs)
        drop_values(&c->epochs.ptr[i]);
    c->writes = 0;
    c->saturated = false;
}

void fn_calc_begin(struct function_cost_calc *c, const struct kv_snap *snap, uint32_t tenant,
                   uint32_t scope)
{
    drop_epochs(c);
    forget_sum(c);
    c->snap = snap;
    c->tenant = tenant;
    c->scope = scope;
}

static int find_epoch(struct function_cost_calc *c, uint32_t number, struct epoch **ret,
                      struct err *e)
{
    struct dict_id id = { c->tenant, c->scope, number };
    struct epoch p = { .number = number };
    size_t at = c->epochs.len;

    while (at && c->epochs.ptr[at - 1].number > number)
        at--;
    if (!at || c->epochs.ptr[at - 1].number != number) {
        int rc = dict_cache_read(c->dicts, c->snap, id, &p.d, &p.n, e);
        if (rc)
            return rc;
        vec_push(&c->epochs, p);
        memmove(c->epochs.ptr + at + 1, c->epochs.ptr + at, (c->epochs.len - 1 - at) * sizeof(p));
        c->epochs.ptr[at++] = p;
    }
    *ret = &c->epochs.ptr[at - 1];
    return 0;
}

/* ---- adding vectors ---- */

static void add_value(struct function_cost_calc *c, struct epoch *p, uint32_t node, uint64_t value)
{
    uint64_t *v = &p->values[node];

    if (!u64_add(*v, value, v)) {
        *v = UINT64_MAX;
        c->saturated = true;
    }
    p->touched[node / 64] |= UINT64_C(1) << (node % 64);
}

static void want_values(struct epoch *p)
{
    if (p->values)
        return;
    p->values = xcalloc(p->n.nodes, sizeof(*p->values));
    p->touched = xcalloc(p->n.nodes / 64 + 1, sizeof(*p->touched));
}

static void add_section(struct function_cost_calc *c, struct epoch *p, const struct vec_section *s)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_iter it;
    size_t n;

    want_values(p);
    vec_iter_init(&it, s);
    while ((n = vec_iter_next(&it, ids, values)) > 0)
        for (size_t i = 0; i < n; i++)
            add_value(c, p, ids[i], values[i]);
}

int fn_calc_add(struct function_cost_calc *c, struct str vector, struct err *e)
{
    struct vec_section s;
    struct vec_reader r;
    struct epoch *p;

    if (vec_open(vector, &r, e))
        return e->code;
    while (vec_next(&r, &s)) {
        if (find_epoch(c, s.epoch, &p, e))
            return e->code;
        if (s.last >= p->n.nodes)
            return err_set(e, ERR_CORRUPT,
                           "vector names node %u of a dictionary of %u (service %u)", s.last,
                           p->n.nodes, c->scope);
        add_section(c, p, &s);
    }
    c->writes = u64_add_sat(c->writes, r.meta.writes);
    c->saturated |= r.meta.saturated;
    return 0;
}

/* To what is committed now. */
static int grow(struct function_cost_calc *c, struct epoch *p, struct err *e)
{
    struct dict_id id = { c->tenant, c->scope, p->number };
    struct dict_counts had = p->n;
    struct dict *d;
    int rc = dict_cache_read(c->dicts, NULL, id, &d, &p->n, e);

    if (rc)
        return rc;
    vec_push(&c->kept, p->d);
    p->d = d;
    if (!p->values)
        return 0;
    size_t words = had.nodes / 64 + 1, need = p->n.nodes / 64 + 1;
    p->values = xreallocarray(p->values, p->n.nodes, sizeof(*p->values));
    p->touched = xreallocarray(p->touched, need, sizeof(*p->touched));
    memset(p->values + had.nodes, 0, (p->n.nodes - had.nodes) * sizeof(*p->values));
    memset(p->touched + words, 0, (need - words) * sizeof(*p->touched));
    return 0;
}

int fn_calc_add_pairs(struct function_cost_calc *c, uint32_t number, const uint32_t *ids,
                      const uint64_t *values, size_t len, struct err *e)
{
    const struct kv_snap *snap = c->snap;
    struct epoch *p;

    c->snap = NULL; /* the epoch itself may be newer */
    int rc = find_epoch(c, number, &p, e);
    c->snap = snap;
    for (size_t i = 0; !rc && i < len; i++) {
        if (ids[i] >= p->n.nodes)
            rc = grow(c, p, e);
        if (!rc && ids[i] >= p->n.nodes)
            rc = err_set(e, ERR_CORRUPT, "unsealed rows name node %u of %u (service %u)", ids[i],
                         p->n.nodes, c->scope);
        want_values(p);
        if (!rc)
            add_value(c, p, ids[i], values[i]);
    }
    return rc;
}

/* ---- one epoch: stacks to functions ---- */

/* What a frame without a function counts for: its file, or its module. */
static uint32_t name_of(const struct dict *d, uint32_t node)
{
    const struct frame *f = dict_frame(d, dict_node(d, node)->frame);

    CHECK(node);
    return f->func ? f->func : f->file ? f->file : f->module;
}

#define GROW_ZERO(v, need)                                                  \
    do {                                                                    \
        size_t had_ = (v)->len, need_ = (need);                             \
        if (need_ > had_) {                                                 \
            vec_reserve((v), need_);                                        \
            memset((v)->ptr + had_, 0, (need_ - had_) * sizeof(*(v)->ptr)); \
            (v)->len = need_;                                               \
        }                                                                   \
    } while (0)

static void add_sat(struct function_cost_calc *c, uint64_t *to, uint64_t v)
{
    if (!u64_add(*to, v, to)) {
        *to = UINT64_MAX;
        c->saturated = true;
    }
}

/* Children into lists, their sums into parents; self values by name. Bits below the one at hand are
 * set on the way, so the word is read again for each. */
static void climb(struct function_cost_calc *c, struct epoch *p)
{
    for (size_t w = p->n.nodes / 64 + 1; w-- > 0;) {
        uint64_t left = UINT64_MAX;
        for (uint64_t word; (word = p->touched[w] & left);) {
            unsigned bit = 63 - (unsigned)__builtin_clzll(word);
            uint32_t node = (uint32_t)(w * 64 + bit);
            left = (UINT64_C(1) << bit) - 1;
            if (!node)
                return;
            uint32_t up = dict_node(p->d, node)->parent;
            add_sat(c, &p->values[up], p->values[node]);
            p->touched[up / 64] |= UINT64_C(1) << (up % 64);
            c->sibling.ptr[node] = c->child.ptr[up];
            c->child.ptr[up] = node;
        }
    }
}

static void self_values(struct function_cost_calc *c, const struct epoch *p)
{
    for (size_t w = 0; w <= p->n.nodes / 64; w++)
        for (uint64_t word = p->touched[w]; word; word &= word - 1) {
            uint32_t node = (uint32_t)(w * 64 + (unsigned)__builtin_ctzll(word));
            add_sat(c, &c->self.ptr[node ? name_of(p->d, node) : 0], p->values[node]);
        }
    if (p->touched[0] & 1) { /* the root itself: string 0 is "" */
        add_sat(c, &c->total.ptr[0], p->values[0]);
        c->named.ptr[0] |= 1;
    }
}

static void enter(struct function_cost_calc *c, const struct epoch *p, uint32_t node)
{
    uint32_t name = name_of(p->d, node);

    if (c->on_path.ptr[name]++ == 0)
        add_sat(c, &c->total.ptr[name], p->values[node]);
    c->named.ptr[name / 64] |= UINT64_C(1) << (name % 64);
}

/* Depth first over the touched nodes; leaves the lists of children empty. */
static void total_values(struct function_cost_calc *c, const struct epoch *p)
{
    uint32_t node = c->child.ptr[0];

    c->child.ptr[0] = 0;
    while (node) {
        enter(c, p, node);
        uint32_t down = c->child.ptr[node];
        c->child.ptr[node] = 0;
        if (down) {
            node = down;
            continue;
        }
        while (node) { /* leave until there is a sibling */
            uint32_t next = c->sibling.ptr[node];
            c->on_path.ptr[name_of(p->d, node)]--;
            node = next ? next : dict_node(p->d, node)->parent;
            if (next)
                break;
        }
    }
}

/* Leaves self, total and named filled; `clear_epoch` empties them. */
static void compute_epoch(struct function_cost_calc *c, struct epoch *p)
{
    GROW_ZERO(&c->child, p->n.nodes);
    GROW_ZERO(&c->sibling, p->n.nodes);
    GROW_ZERO(&c->self, p->n.strings);
    GROW_ZERO(&c->total, p->n.strings);
    GROW_ZERO(&c->on_path, p->n.strings);
    GROW_ZERO(&c->named, p->n.strings / 64 + 1);
    self_values(c, p);
    climb(c, p);
    total_values(c, p);
    drop_values(p);
}

struct cost {      /* of one function */
    uint32_t name; /* string of the epoch */
    uint64_t self, total;
};

/* Calls fn for each function of the current epoch, by ascending name, and empties what
 * compute_epoch filled. */
static int take_epoch(struct function_cost_calc *c, const struct epoch *p,
                      int (*fn)(struct function_cost_calc *c, const struct epoch *p,
                                const struct cost *f, void *cookie, struct err *e),
                      void *cookie, struct err *e)
{
    int rc = 0;

    for (size_t w = 0; w <= p->n.strings / 64; w++) {
        uint64_t word = c->named.ptr[w];
        c->named.ptr[w] = 0;
        for (; word; word &= word - 1) {
            uint32_t name = (uint32_t)(w * 64 + (unsigned)__builtin_ctzll(word));
            struct cost f = { name, c->self.ptr[name], c->total.ptr[name] };
            c->self.ptr[name] = c->total.ptr[name] = 0;
            rc = rc ? rc : fn(c, p, &f, cookie, e);
        }
    }
    return rc;
}

/* ---- rows of what was added ---- */

static void push_value(struct column *col, const struct epoch *p, uint32_t name, uint64_t v)
{
    struct str text = dict_string(p->d, name);

    if (!v)
        return;
    vec_push(&col->ids, name);
    vec_push(&col->values, v);
    col->parts.ptr[col->parts.len - 1].len++;
    col->fp = fp_add_value(col->fp, fp_of_hash(hash128(text.ptr, text.len, 0)), v);
}

static int to_columns(struct function_cost_calc *c, const struct epoch *p, const struct cost *f,
                      void *cookie, struct err *e)
{
    (void)cookie;
    (void)e;
    push_value(&c->out[0], p, f->name, f->self);
    push_value(&c->out[1], p, f->name, f->total);
    return 0;
}

static int encode_column(struct function_cost_calc *c, struct column *col, struct err *e)
{
    struct vec_meta meta = { .writes = c->writes, .fp = col->fp, .saturated = c->saturated };
    size_t at = 0, n = 0;

    vec_for (i, &col->parts) {
        struct vec_part part = col->parts.ptr[i];
        if (!part.len)
            continue;
        part.ids = col->ids.ptr + at;
        part.values = col->values.ptr + at;
        at += part.len;
        col->parts.ptr[n++] = part;
    }
    buf_reset(&col->row);
    return vec_encode(col->parts.ptr, n, &meta, &col->row)
               ? 0
               : err_set(e, ERR_LIMIT, "functions of a node have more than %zu bytes",
                         col->row.max);
}

int fn_calc_row(struct function_cost_calc *c, struct buf *out, struct err *e)
{
    int rc = 0;
    bool any = false;

    for (int i = 0; i < 2; i++) {
        c->out[i].ids.len = c->out[i].values.len = c->out[i].parts.len = 0;
        c->out[i].fp = 0;
    }
    vec_for (i, &c->epochs) {
        struct epoch *p = &c->epochs.ptr[i];
        if (!p->values)
            continue;
        any = true;
        vec_push(&c->out[0].parts, ((struct vec_part){ .epoch = p->number }));
        vec_push(&c->out[1].parts, ((struct vec_part){ .epoch = p->number }));
        compute_epoch(c, p);
        (void)take_epoch(c, p, to_columns, NULL, e);
    }
    buf_reset(out);
    if (any)
        rc = encode_column(c, &c->out[0], e);
    if (any && !rc)
        rc = encode_column(c, &c->out[1], e);
    if (any && !rc)
        rc = fn_put(buf_str(&c->out[0].row), buf_str(&c->out[1].row), out, e);
    forget_sum(c);
    return rc;
}

/* ---- by name, for readers ---- */

struct each {
    fn_calc_fn fn;
    void *cookie;
};

static int give(struct function_cost_calc *c, const struct epoch *p, const struct cost *f,
                void *cookie, struct err *e)
{
    const struct each *x = cookie;

    (void)c;
    return x->fn(x->cookie, dict_string(p->d, f->name), f->self, f->total, e);
}

int fn_calc_each(struct function_cost_calc *c, fn_calc_fn fn, void *cookie, struct err *e)
{
    struct each x = { fn, cookie };
    int rc = 0;

    vec_for (i, &c->epochs) {
        struct epoch *p = &c->epochs.ptr[i];
        if (rc || !p->values)
            continue;
        compute_epoch(c, p);
        rc = take_epoch(c, p, give, &x, e);
    }
    forget_sum(c);
    return rc;
}

static int each_value(struct function_cost_calc *c, struct str vector, bool total,
                      const struct each *x, struct err *e)
{
    uint32_t ids[VEC_CHUNK];
    uint64_t values[VEC_CHUNK];
    struct vec_section s;
    struct vec_reader r;
    struct vec_iter it;
    struct epoch *p;
    size_t n;

    if (vec_open(vector, &r, e))
        return e->code;
    while (vec_next(&r, &s)) {
        if (find_epoch(c, s.epoch, &p, e))
            return e->code;
        if (s.last >= p->n.strings)
            return err_set(e, ERR_CORRUPT,
                           "row of functions names string %u of a dictionary of %u (service %u)",
                           s.last, p->n.strings, c->scope);
        vec_iter_init(&it, &s);
        while ((n = vec_iter_next(&it, ids, values)) > 0)
            for (size_t i = 0; i < n; i++)
                if (x->fn(x->cookie, dict_string(p->d, ids[i]), total ? 0 : values[i],
                          total ? values[i] : 0, e))
                    return e->code;
    }
    return 0;
}

int fn_row_each(struct function_cost_calc *c, struct str row, fn_calc_fn fn, void *cookie,
                struct err *e)
{
    struct each x = { fn, cookie };
    struct function_cost_row got;
    int rc = fn_read(row, &got, e);

    if (!rc)
        rc = each_value(c, got.self, false, &x, e);
    return rc ? rc : each_value(c, got.total, true, &x, e);
}
