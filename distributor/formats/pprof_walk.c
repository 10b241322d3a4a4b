/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_walk: each sample's stack to a node.
 *
 *   sample ── location ids, leaf first      A location is turned into frames once, at first use
 *                 │ find                    (outermost inlined function first); a sample is then a
 *             location ── frames            walk from the root: one edge per location.
 *
 * This is where the time of a push goes: some 30 edges per sample. Two things make an edge cheap.
 * Each node remembers the location last taken from it and where that led (`trail`): most nodes of
 * a profile have one child, or one that most samples take, so most steps are one load and one
 * comparison, without hashing. And a location of several inlined frames is one step as well.
 *
 * Frames. With symbols: (function, file, line, file name of the mapping), no address, so that two
 * builds of one program share them. Without: (build id, or else the mapping's name; offset in the
 * file), or the raw address where there is no mapping; `file` then holds the mapping's base name,
 * for people. A location with neither line nor address says nothing and is left out of the stack.
 *
 * Too deep stacks keep both ends: the root side says what it belongs to, the leaf says where the
 * time went; between them stands one mark.
 */
#include "common/base/mem.h"
#include "distributor/formats/pprof_stacks.h"

#define MARK       "[truncated]"
#define NO_STACK   "[unknown]"
#define NO_NAME    "<no name>"
#define FRAMES_MAX UINT32_MAX
#define DEEP_MAX \
    (32u << 20) /* frames of all too deep stacks of a push: they are walked one by one */

struct loc_frames {
    uint32_t from, len; /* in walk.frames; from = PPROF_NONE until first use */
};
struct fn_names {
    uint32_t name, file; /* strings of push->stacks; name = PPROF_NONE until first use */
};
struct trail {
    uint32_t location, node;
};

struct walk {
    const struct pprof *p;
    const struct limits *l;
    struct push *push;
    bool file_in_name;          /* "file name" for pyspy, rbspy, scripting */
    bool absolute_file_in_name; /* not for pyspy */
    uint32_t *strings;          /* string index -> string of push->stacks */
    uint32_t *modules;          /* mapping -> its name as a string of push->stacks */
    struct fn_names *functions;
    struct loc_frames *locations;
    VEC(uint32_t) frames;    /* of all locations used so far */
    VEC(struct trail) trail; /* by node */
    VEC(uint32_t) deep;      /* frames of one stack that is too deep */
    struct buf tmp, joined;
    uint64_t deep_frames;
    bool full;
};

static bool walk_init(struct walk *w)
{
    struct arena *a = w->push->arena;
    const struct pprof *p = w->p;

    w->strings = arena_alloc(a, p->strings.len * sizeof(*w->strings));
    w->modules = arena_alloc(a, p->mappings.len * sizeof(*w->modules));
    w->functions = arena_alloc(a, p->functions.len * sizeof(*w->functions));
    w->locations = arena_alloc(a, p->locations.len * sizeof(*w->locations));
    if (!w->strings || !w->modules || !w->functions || !w->locations)
        return false;
    memset(w->strings, 0xff, p->strings.len * sizeof(*w->strings));
    memset(w->modules, 0xff, p->mappings.len * sizeof(*w->modules));
    memset(w->functions, 0xff, p->functions.len * sizeof(*w->functions));
    memset(w->locations, 0xff, p->locations.len * sizeof(*w->locations));
    buf_init(&w->tmp, 2 * (size_t)w->l->symbol_bytes + 64);
    buf_init(&w->joined, 2 * (size_t)w->l->symbol_bytes + 64);
    return true;
}

static void walk_deinit(struct walk *w)
{
    vec_free(&w->frames);
    vec_free(&w->trail);
    vec_free(&w->deep);
    buf_deinit(&w->tmp);
    buf_deinit(&w->joined);
}

static uint32_t intern(struct walk *w, struct str s)
{
    uint32_t id = stacks_string(&w->push->stacks, s);

    w->full |= id == STACKS_FULL;
    return id;
}

/* A string that is stored as it is: file names, build ids. */
static uint32_t string_id(struct walk *w, uint32_t index)
{
    if (index == 0 || index >= w->p->strings.len)
        return 0;
    if (w->strings[index] == PPROF_NONE)
        w->strings[index] =
            intern(w, str_tail(w->p->strings.ptr[index], (size_t)w->l->symbol_keep_bytes));
    return w->strings[index];
}

static struct fn_names function_names(struct walk *w, uint32_t i)
{
    const struct pprof_function *fn = &w->p->functions.ptr[i];
    struct str name = pprof_str(w->p, fn->name);
    struct str file = pprof_str(w->p, fn->file);

    if (w->functions[i].name != PPROF_NONE)
        return w->functions[i];
    if (name.len == 0)
        name = pprof_str(w->p, fn->system_name);
    if (name.len == 0)
        name = STR(NO_NAME);
    if (w->file_in_name && file.len && (w->absolute_file_in_name || file.ptr[0] != '/')) {
        buf_reset(&w->joined);
        buf_add_str(&w->joined, file);
        buf_add_c(&w->joined, ' ');
        if (buf_add_str(&w->joined, name))
            name = buf_str(&w->joined);
    }
    name = push_symbol(w->push, name, (size_t)w->l->symbol_keep_bytes, &w->tmp);
    w->functions[i].name = intern(w, name);
    w->functions[i].file = string_id(w, fn->file);
    return w->functions[i];
}

static uint32_t module_id(struct walk *w, uint32_t mapping)
{
    if (mapping == PPROF_NONE)
        return 0;
    if (w->modules[mapping] == PPROF_NONE)
        w->modules[mapping] =
            intern(w, push_symbol(w->push, pprof_str(w->p, w->p->mappings.ptr[mapping].file),
                                  (size_t)w->l->symbol_keep_bytes, &w->tmp));
    return w->modules[mapping];
}

static struct str base_name(struct str path)
{
    struct str deleted = STR(" (deleted)");

    if (str_ends(path, deleted))
        path.len -= deleted.len;
    ptrdiff_t slash = str_rfind(path, '/');
    return slash < 0 ? path : str_sub(path, (size_t)slash + 1, path.len);
}

/* Some agents write "unknown" where they have none. */
static bool build_id_real(struct str id)
{
    return id.len > 0 && !str_eqc(id, "unknown") && !str_eqc(id, "UNKNOWN");
}

static struct frame address_frame(struct walk *w, uint64_t address, uint32_t mapping)
{
    struct frame f = { .addr = address };

    if (mapping == PPROF_NONE)
        return f;
    const struct pprof_mapping *m = &w->p->mappings.ptr[mapping];
    struct str build_id = pprof_str(w->p, m->build_id);
    if (m->start < m->limit && address >= m->start && address < m->limit)
        f.addr = address - m->start + m->offset;
    if (build_id_real(build_id)) {
        f.module = string_id(w, m->build_id);
        f.file = intern(
            w, str_tail(base_name(pprof_str(w->p, m->file)), (size_t)w->l->symbol_keep_bytes));
    } else {
        f.module = module_id(w, mapping);
    }
    return f;
}

static void frame_push(struct walk *w, const struct frame *f)
{
    uint32_t id = stacks_frame(&w->push->stacks, f);

    w->full |= id == STACKS_FULL || w->frames.len == FRAMES_MAX;
    if (!w->full)
        vec_push(&w->frames, id);
}

static struct loc_frames location_frames(struct walk *w, uint32_t i)
{
    const struct pprof *p = w->p;
    const struct pprof_location *at = &p->locations.ptr[i];
    uint32_t from = i ? p->locations.ptr[i - 1].lines_end : 0;
    uint32_t mapping = pprof_find(&p->mapping_ids, at->mapping_id);
    struct loc_frames out = { (uint32_t)w->frames.len, 0 };

    for (uint32_t k = at->lines_end; k > from; k--) { /* the last line is the physical function */
        const struct pprof_line *line = &p->lines.ptr[k - 1];
        uint32_t fn = pprof_find(&p->function_ids, line->function_id);
        if (fn == PPROF_NONE)
            continue;
        struct fn_names names = function_names(w, fn);
        struct frame f = { .func = names.name,
                           .file = names.file,
                           .module = module_id(w, mapping),
                           .line = line->line };
        frame_push(w, &f);
    }
    if (w->frames.len == out.from && at->address) {
        struct frame f = address_frame(w, at->address, mapping);
        frame_push(w, &f);
    }
    out.len = (uint32_t)w->frames.len - out.from;
    w->locations[i] = out;
    return out;
}

static uint32_t special_node(struct walk *w, uint32_t parent, const char *name)
{
    struct frame f = { .func = intern(w, str_c(name)) };
    uint32_t node = stacks_node(&w->push->stacks, parent, stacks_frame(&w->push->stacks, &f));

    w->full |= node == STACKS_FULL;
    return node;
}

static uint32_t step(struct walk *w, uint32_t parent, uint32_t frame)
{
    uint32_t node = stacks_node(&w->push->stacks, parent, frame);

    w->full |= node == STACKS_FULL;
    return node;
}

/* All frames of a stack, root first, to w->deep. */
static void flatten(struct walk *w, const uint64_t *ids, size_t n)
{
    w->deep.len = 0;
    for (size_t i = n; i > 0; i--) {
        uint32_t at = pprof_find(&w->p->location_ids, ids[i - 1]);
        struct loc_frames lf = w->locations[at];
        for (uint32_t k = 0; k < lf.len; k++)
            vec_push(&w->deep, w->frames.ptr[lf.from + k]);
    }
}

static uint32_t walk_deep(struct walk *w, const uint64_t *ids, size_t n)
{
    size_t keep = (size_t)w->l->frames_keep, root = keep / 2, leaf = keep - root - 1;
    uint32_t node = 0;

    flatten(w, ids, n);
    for (size_t i = 0; i < root && !w->full; i++)
        node = step(w, node, w->deep.ptr[i]);
    if (!w->full)
        node = special_node(w, node, MARK);
    for (size_t i = w->deep.len - leaf; i < w->deep.len && !w->full; i++)
        node = step(w, node, w->deep.ptr[i]);
    w->push->drops[CHANGE_TRUNCATED]++;
    return node;
}

/* The slow half of a step: several frames, or a child not taken last time. */
static uint32_t step_location(struct walk *w, uint32_t parent, uint32_t location)
{
    struct loc_frames lf = w->locations[location];
    struct trail none = { PPROF_NONE, PPROF_NONE };
    uint32_t node = parent;

    for (uint32_t k = 0; k < lf.len && !w->full; k++)
        node = step(w, node, w->frames.ptr[lf.from + k]);
    if (w->full)
        return PPROF_NONE;
    while (w->trail.len <= node || w->trail.len <= parent)
        vec_push(&w->trail, none);
    w->trail.ptr[parent] = (struct trail){ location, node };
    return node;
}

/* Frames of the stack; *ret_known is false if a location is not there. */
static uint64_t depth_of(struct walk *w, const uint64_t *ids, size_t n, bool *ret_known)
{
    uint64_t depth = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t at = pprof_find(&w->p->location_ids, ids[i]);
        if (UNLIKELY(at == PPROF_NONE)) {
            *ret_known = false;
            return 0;
        }
        struct loc_frames lf = w->locations[at];
        if (UNLIKELY(lf.from == PPROF_NONE))
            lf = location_frames(w, at);
        depth += lf.len;
    }
    *ret_known = true;
    return depth;
}

static uint32_t walk_sample(struct walk *w, const uint64_t *ids, size_t n, uint64_t depth)
{
    uint32_t node = 0;

    if (depth == 0)
        return special_node(w, 0, NO_STACK);
    if (depth > w->l->frames_keep)
        return walk_deep(w, ids, n);
    for (size_t i = n; i > 0; i--) {
        uint32_t at = pprof_find(&w->p->location_ids, ids[i - 1]);
        if (LIKELY(node < w->trail.len && w->trail.ptr[node].location == at))
            node = w->trail.ptr[node].node;
        else
            node = step_location(w, node, at);
        if (UNLIKELY(w->full))
            return PPROF_NONE;
    }
    return node;
}

/* A sample counts if it has one value per type, none below zero, and one above. */
static bool values_count(struct push *push, const int64_t *v, size_t n, size_t types)
{
    int64_t any = 0;

    if (n != types) {
        push->drops[DROP_VALUE_COUNT]++;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        any |= v[i];
    push->drops[DROP_NEGATIVE] += any < 0;
    return any > 0;
}

static int walk_samples(struct walk *w, uint32_t *ret_nodes, struct err *e)
{
    const struct pprof *p = w->p;
    struct pprof_sample before = { 0 };
    bool known;

    for (size_t i = 0; i < p->samples.len; i++) {
        struct pprof_sample s = p->samples.ptr[i];
        const uint64_t *ids = p->sample_locations.ptr + before.locations_end;
        size_t n = s.locations_end - before.locations_end;
        bool counts = values_count(w->push, pprof_values(p, i), s.values_end - before.values_end,
                                   p->types_len);
        before = s;
        ret_nodes[i] = PPROF_NONE;
        if (!counts)
            continue;
        uint64_t depth = depth_of(w, ids, n, &known);
        if (!known) {
            w->push->drops[DROP_UNKNOWN_LOCATION]++;
            continue;
        }
        w->deep_frames += depth > w->l->frames_keep ? depth : 0;
        if (w->deep_frames > DEEP_MAX)
            return err_set(e, ERR_LIMIT,
                           "pprof: stacks deeper than %" PRIu64 " have %u frames together",
                           w->l->frames_keep, DEEP_MAX);
        if (depth > w->l->frames)
            return err_set(e, ERR_LIMIT,
                           "pprof: sample %zu has a stack of %" PRIu64 " frames, at most %" PRIu64,
                           i, depth, w->l->frames);
        ret_nodes[i] = walk_sample(w, ids, n, depth);
        if (w->full)
            return push_full(w->push, e);
    }
    return 0;
}

int pprof_walk(const struct pprof *p, const struct ingest *in, const struct limits *l,
               struct push *push, uint32_t *ret_nodes, struct err *e)
{
    bool pyspy = str_eqc(in->spy, "pyspy");
    struct walk w = { .p = p, .l = l, .push = push };

    w.file_in_name = pyspy || str_eqc(in->spy, "rbspy") || str_eqc(in->spy, "scripting");
    w.absolute_file_in_name = !pyspy;
    int rc = walk_init(&w) ? walk_samples(&w, ret_nodes, e) : push_full(push, e);
    walk_deinit(&w);
    return rc;
}
