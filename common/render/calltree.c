/* SPDX-License-Identifier: Apache-2.0
 *
 * calltree.c: merge by display name, cut, put in order.
 *
 * Every reply is added straight into one tree of names: a node of a reply maps to the tree node of
 * (its parent's tree node, its frame's name). That merges the ingesters, and the frames that differ
 * only by line or address, in one pass without a common dictionary in between; only outputs that
 * show lines need one (stacks_merge).
 *
 * Ids are handed out in order of first sight, so parents stand before children in every array, and
 * totals, needed-marks and cuts are single passes, forward or backward, without recursion: a chain
 * a million frames deep costs what a bush of a million costs.
 *
 * Order of children comes from two counting sorts (by rank of the name, then by parent), so only
 * distinct names are ever compared as text, and only those that survive the cut.
 */
#include "common/render/calltree.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define NAMES_MADE_MAX (64 * MIB)
#define CANCEL_EVERY   8192

/* ---- names ------------------------------------------------------------------------------------*/

uint32_t calltree_name(struct calltree *t, struct str s)
{
    uint64_t key = hash64(s.ptr, s.len, t->seed);
    uint32_t id;

    while ((id = map_u64_get(&t->name_ids, key)) != MAP_U64_EMPTY) {
        if (str_eq(t->names.ptr[id], s))
            return id;
        key = hash_u64(key + 1);
    }
    id = (uint32_t)t->names.len;
    vec_push(&t->names, s);
    (void)map_u64_put(&t->name_ids, key, id);
    return id;
}

uint32_t calltree_name_find(const struct calltree *t, struct str s)
{
    uint64_t key = hash64(s.ptr, s.len, t->seed);
    uint32_t id;

    while ((id = map_u64_get(&t->name_ids, key)) != MAP_U64_EMPTY && !str_eq(t->names.ptr[id], s))
        key = hash_u64(key + 1);
    return id;
}

static struct str basename_of(struct str path)
{
    ptrdiff_t slash = MAX(str_rfind(path, '/'), str_rfind(path, '\\'));
    struct str base = str_sub(path, (size_t)(slash + 1), path.len);
    return base.len ? base : path;
}

void frame_name(const struct stacks_view *v, const struct str *strings, uint32_t frame,
                struct buf *out)
{
    struct str func = strings[v->frame_func[frame]];
    /* Beside a build id stands the name of the mapping's file, which people can read. */
    struct str image = strings[v->frame_file[frame]];

    if (func.len) {
        buf_add_str(out, func);
        return;
    }
    if (!image.len)
        image = strings[v->frame_module[frame]];
    buf_addf(out, "%.*s!0x%" PRIx64, STR_ARG(image.len ? basename_of(image) : STR("unknown")),
             v->frame_addr[frame]);
}

/* Slices of all strings of a view. */
static struct str *view_strings(const struct stacks_view *v)
{
    struct str *strings = XNEW_ARRAY(struct str, v->strings + 1);
    size_t at = 0;

    for (size_t i = 0; i < v->strings; i++) {
        strings[i] = (struct str){ v->string_data.ptr + at, v->string_len[i] };
        at += v->string_len[i];
    }
    return strings;
}

/* Name of each frame that is needed; frames of one function share it. */
struct names {
    struct calltree *tree;
    const struct stacks_view *view;
    struct str *strings; /* owned */
    uint32_t *of_frame;  /* owned; MAP_U64_EMPTY = not looked up yet */
    uint32_t *of_string; /* owned; the same by function */
    struct buf scratch;
};

static void names_init(struct names *n, struct calltree *t, const struct stacks_view *v)
{
    *n = (struct names){ .tree = t, .view = v, .strings = view_strings(v) };
    n->of_frame = xreallocarray(NULL, v->frames + 1, sizeof(*n->of_frame));
    memset(n->of_frame, 0xff, (v->frames + 1) * sizeof(*n->of_frame));
    n->of_string = xreallocarray(NULL, v->strings + 1, sizeof(*n->of_string));
    memset(n->of_string, 0xff, (v->strings + 1) * sizeof(*n->of_string));
    buf_init(&n->scratch, 64 * MIB);
}

static void names_deinit(struct names *n)
{
    xfree(n->strings);
    xfree(n->of_frame);
    xfree(n->of_string);
    buf_deinit(&n->scratch);
}

/* MAP_U64_EMPTY once names made here take too much. */
static uint32_t names_get(struct names *n, uint32_t frame)
{
    uint32_t func = n->view->frame_func[frame];
    struct calltree *t = n->tree;

    if (n->of_frame[frame] != MAP_U64_EMPTY)
        return n->of_frame[frame];
    if (func && n->strings[func].len) {
        if (n->of_string[func] == MAP_U64_EMPTY)
            n->of_string[func] = calltree_name(t, n->strings[func]);
        return n->of_frame[frame] = n->of_string[func];
    }
    buf_reset(&n->scratch);
    frame_name(n->view, n->strings, frame, &n->scratch);
    uint32_t known = (uint32_t)t->names.len;
    uint32_t id = calltree_name(t, buf_str(&n->scratch));
    if (id == known) { /* new: the scratch bytes must not stay the key */
        t->names.ptr[id] = arena_strdup(t->made, buf_str(&n->scratch));
        if (!t->names.ptr[id].ptr) {
            t->names.ptr[id] = STR_NULL;
            return MAP_U64_EMPTY;
        }
    }
    return n->of_frame[frame] = id;
}

/* ---- the tree ---------------------------------------------------------------------------------*/

size_t calltree_cost(const struct stacks_view *v)
{
    /* Per node: columns with growth 32, edge slots 32, map of ids 4, needed 1, layout 72. Per
     * string: slice, cache, name, slot, sort 80. Per frame: cache 4, perhaps a made name. */
    return v->nodes * 144 + v->strings * 96 + v->frames * 64 + 64 * KIB;
}

void calltree_init(struct calltree *t, uint64_t seed)
{
    *t = (struct calltree){ .seed = seed, .made = arena_new(NAMES_MADE_MAX) };
    map_u64_init(&t->name_ids);
    map_u64_init(&t->edges);
    CHECK(calltree_name(t, STR("total")) == CALLTREE_TOTAL);
    CHECK(calltree_name(t, STR("other")) == CALLTREE_OTHER);
    vec_push(&t->parent, 0);
    vec_push(&t->name, CALLTREE_TOTAL);
    vec_push(&t->self, 0);
}

void calltree_deinit(struct calltree *t)
{
    vec_free(&t->names);
    map_u64_deinit(&t->name_ids);
    vec_free(&t->parent);
    vec_free(&t->name);
    vec_free(&t->self);
    map_u64_deinit(&t->edges);
    arena_freep(&t->made);
}

static uint64_t edge_key(const struct calltree *t, uint32_t parent, uint32_t name)
{
    return ((uint64_t)parent << 32 | name) ^ t->seed;
}

uint32_t calltree_child(struct calltree *t, uint32_t parent, uint32_t name)
{
    uint32_t next = (uint32_t)t->parent.len;
    uint32_t known = map_u64_put(&t->edges, edge_key(t, parent, name), next);

    if (known != MAP_U64_EMPTY)
        return known;
    vec_push(&t->parent, parent);
    vec_push(&t->name, name);
    vec_push(&t->self, 0);
    return next;
}

uint32_t calltree_child_find(const struct calltree *t, uint32_t parent, uint32_t name)
{
    return map_u64_get(&t->edges, edge_key(t, parent, name));
}

/* needed[i]: node i or one below it has a value. ERR_CORRUPT on a node out of range. */
static int mark_needed(const struct calltree_part *p, uint8_t *needed, struct err *e)
{
    for (size_t i = 0; i < p->len; i++) {
        if (p->nodes[i] > p->stacks.nodes)
            return err_set(e, ERR_CORRUPT, "reply: value %zu stands at node %u of %zu", i,
                           p->nodes[i], p->stacks.nodes);
        needed[p->nodes[i]] |= p->values[i] > 0;
    }
    for (size_t i = p->stacks.nodes; i > 0; i--)
        needed[p->stacks.node_parent[i - 1]] |= needed[i];
    return 0;
}

/* Adds v to *sum, staying at INT64_MAX: JSON and protobuf consumers read signed numbers. */
static bool add_bounded(uint64_t *sum, uint64_t v)
{
    uint64_t r = u64_add_sat(*sum, v);

    *sum = MIN(r, (uint64_t)INT64_MAX);
    return r > INT64_MAX;
}

void calltree_put(struct calltree *t, uint32_t node, uint64_t v)
{
    t->saturated |= add_bounded(&t->self.ptr[node], v);
}

static int map_nodes(struct calltree *t, const struct calltree_part *p, uint32_t *map,
                     const atomic_bool *cancel, struct err *e)
{
    const struct stacks_view *v = &p->stacks;
    CLEANUP(xfreep) uint8_t *needed = xcalloc(v->nodes + 1, 1);
    struct names names;
    int code = 0;

    if (mark_needed(p, needed, e))
        return e->code;
    names_init(&names, t, v);
    map[0] = 0;
    for (size_t i = 1; i <= v->nodes && !code; i++) {
        if (!needed[i])
            continue;
        pool_slice_step(i);
        uint32_t name = names_get(&names, v->node_frame[i - 1]);
        if (name == MAP_U64_EMPTY)
            code = err_set(e, ERR_LIMIT, "names of frames without symbols take over %zu MiB",
                           (size_t)NAMES_MADE_MAX / MIB);
        else if (cancel && i % CANCEL_EVERY == 0 &&
                 atomic_load_explicit(cancel, memory_order_relaxed))
            code = err_set(e, ERR_CANCELED, "the client went away");
        else
            map[i] = calltree_child(t, map[v->node_parent[i - 1]], name);
    }
    names_deinit(&names);
    return code;
}

NODISCARD int calltree_add(struct calltree *t, const struct calltree_part *p,
                           const atomic_bool *cancel, struct err *e)
{
    CLEANUP(xfreep) uint32_t *map = XNEW_ARRAY(uint32_t, p->stacks.nodes + 1);

    if (map_nodes(t, p, map, cancel, e))
        return e->code;
    for (size_t i = 0; i < p->len; i++)
        calltree_put(t, map[p->nodes[i]], p->values[i]);
    return 0;
}

void calltree_divide_values(uint64_t *values, size_t len, uint64_t n)
{
    uint64_t rest = n / 2; /* carried along: the sum is rounded once, not each value */

    CHECK(n > 0);
    for (size_t i = 0; i < len; i++) {
        uint64_t v = values[i];
        rest += v % n;
        values[i] = v / n + rest / n;
        rest %= n;
    }
}

void calltree_divide(struct calltree *t, uint64_t n)
{
    calltree_divide_values(t->self.ptr, t->self.len, n);
}

uint64_t calltree_total(const struct calltree *t)
{
    uint64_t sum = 0;

    vec_for (i, &t->self)
        (void)add_bounded(&sum, t->self.ptr[i]);
    return sum;
}

void calltree_graft(struct calltree *t, const struct calltree *from, uint32_t *ret_map)
{
    CLEANUP(xfreep) uint32_t *names = XNEW_ARRAY(uint32_t, from->names.len);

    vec_for (i, &from->names)
        names[i] = calltree_name(t, from->names.ptr[i]);
    ret_map[0] = 0;
    for (size_t i = 1; i < from->parent.len; i++)
        ret_map[i] = calltree_child(t, ret_map[from->parent.ptr[i]], names[from->name.ptr[i]]);
}

/* ---- layout -----------------------------------------------------------------------------------*/

/* The k-th largest of v (1-based); reorders v. Quickselect with random pivots, so that no input can
 * be made slow on purpose. */
static uint64_t kth_largest(uint64_t *v, size_t n, size_t k, uint64_t seed)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, want = (ptrdiff_t)k - 1;

    while (low < high) {
        seed = hash_u64(seed + 1);
        uint64_t pivot = v[low + (ptrdiff_t)(seed % (uint64_t)(high - low + 1))];
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i <= j) {
                uint64_t swap = v[i];
                v[i++] = v[j];
                v[j--] = swap;
            }
        }
        if (want <= j)
            high = j;
        else if (want >= i)
            low = i;
        else
            break;
    }
    return v[want];
}

uint64_t calltree_cut(const uint64_t *total, size_t nodes, size_t max_nodes, uint64_t seed)
{
    CLEANUP(xfreep) uint64_t *copy = NULL;
    size_t n = 0;

    if (max_nodes == 0 || nodes - 1 <= max_nodes)
        return 1;
    copy = XNEW_ARRAY(uint64_t, nodes);
    for (size_t i = 1; i < nodes; i++)
        if (total[i])
            copy[n++] = total[i];
    return n <= max_nodes ? 1 : kth_largest(copy, n, max_nodes, seed);
}

uint64_t *calltree_totals(const struct calltree *t)
{
    uint64_t *total = xmemdup(t->self.ptr, t->self.len * sizeof(uint64_t));

    for (size_t i = t->self.len - 1; i > 0; i--)
        (void)add_bounded(&total[t->parent.ptr[i]], total[i]);
    return total;
}

static int by_text(const void *a, const void *b, void *names)
{
    const struct str *n = names;
    pool_slice();
    return str_cmp(n[*(const uint32_t *)a], n[*(const uint32_t *)b]);
}

/* rank[name] for the names in use, by text. */
static uint32_t *rank_names(const struct layout *l, const struct calltree *t, size_t *ret_used)
{
    uint32_t *rank = xcalloc(t->names.len, sizeof(*rank));
    CLEANUP(xfreep) uint32_t *used = XNEW_ARRAY(uint32_t, t->names.len);
    size_t n = 0;

    for (size_t i = 0; i < l->len; i++)
        if (!rank[l->name[i]]) {
            rank[l->name[i]] = 1;
            used[n++] = l->name[i];
        }
    qsort_r(used, n, sizeof(*used), by_text, t->names.ptr);
    for (size_t i = 0; i < n; i++)
        rank[used[i]] = (uint32_t)i;
    *ret_used = n;
    return rank;
}

/* Stable counting sort of `in` by key[in[i]] < keys. *ret_at, if wanted, gets where each begins. */
static void counting_sort(const uint32_t *in, uint32_t *out, size_t n, const uint32_t *key,
                          size_t keys, uint32_t **ret_at)
{
    uint32_t *at = XNEW_ARRAY(uint32_t, keys + 2);

    for (size_t i = 0; i < n; i++)
        at[key[in[i]] + 2]++;
    for (size_t i = 2; i < keys + 2; i++)
        at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++)
        out[at[key[in[i]] + 1]++] = in[i];
    if (ret_at)
        *ret_at = at; /* at[k] = begin of key k, at[keys] = n */
    else
        xfree(at);
}

static void layout_children(struct layout *l, const struct calltree *t, const uint32_t *parent)
{
    size_t names = 0, n = l->len - 1;
    CLEANUP(xfreep) uint32_t *rank = rank_names(l, t, &names);
    CLEANUP(xfreep) uint32_t *key = XNEW_ARRAY(uint32_t, l->len);
    CLEANUP(xfreep) uint32_t *by_name = XNEW_ARRAY(uint32_t, l->len);

    l->child = XNEW_ARRAY(uint32_t, l->len);
    for (size_t i = 0; i < n; i++)
        l->child[i] = (uint32_t)(i + 1);
    for (size_t i = 0; i < l->len; i++)
        key[i] = rank[l->name[i]];
    counting_sort(l->child, by_name, n, key, names, NULL);
    counting_sort(by_name, l->child, n, parent, l->len, &l->child_at);
}

void layout_init(struct layout *l, const struct calltree *t, size_t max_nodes)
{
    size_t nodes = t->parent.len, k = 0;
    CLEANUP(xfreep) uint64_t *total = calltree_totals(t);
    CLEANUP(xfreep) uint32_t *place = XNEW_ARRAY(uint32_t, nodes); /* kept number of a node */
    uint64_t cut = calltree_cut(total, nodes, max_nodes, t->seed);

    for (size_t i = 0; i < nodes; i++)
        k += i == 0 || total[i] >= cut;
    *l = (struct layout){ .len = k,
                          .name = XNEW_ARRAY(uint32_t, k),
                          .node = XNEW_ARRAY(uint32_t, k),
                          .self = XNEW_ARRAY(uint64_t, k),
                          .total = XNEW_ARRAY(uint64_t, k),
                          .other = XNEW_ARRAY(uint64_t, k) };
    CLEANUP(xfreep) uint32_t *parent = XNEW_ARRAY(uint32_t, k);
    k = 0;
    for (size_t i = 0; i < nodes; i++) {
        pool_slice_step(i);
        uint32_t up = place[t->parent.ptr[i]]; /* a cut parent has only cut children */
        if (i > 0 && total[i] < cut) {
            if (total[t->parent.ptr[i]] >= cut)
                (void)add_bounded(&l->other[up], total[i]);
            continue;
        }
        place[i] = (uint32_t)k;
        parent[k] = up;
        l->name[k] = t->name.ptr[i];
        l->node[k] = (uint32_t)i;
        l->self[k] = t->self.ptr[i];
        l->total[k++] = total[i];
    }
    layout_children(l, t, parent);
}

void layout_deinit(struct layout *l)
{
    xfree(l->name);
    xfree(l->node);
    xfree(l->child_at);
    xfree(l->child);
    xfree(l->self);
    xfree(l->total);
    xfree(l->other);
    *l = (struct layout){ 0 };
}
