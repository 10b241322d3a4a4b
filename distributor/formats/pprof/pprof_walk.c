/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_walk: each sample's stack to a node.
 *
 *   sample ── location ids, leaf first      A location is turned into frames once, at first use
 *                 │ find                    (outermost inlined function first); a sample is then a
 *             location ── frames            walk from the root through a trie.
 *
 * This is where the time of a push goes: some 30 steps per sample, each a load and a comparison
 * most of the time (trie.h). Half of the samples of a Go heap, and nearly all of a JVM, have the
 * stack of a sample before (another object size, thread or label): equal bytes of ids are the same
 * stack, and are not even decoded. A sample is read here for the first and only time, so nothing of
 * it is kept but its node, its values and its string labels.
 *
 * Frames. With symbols: (function, file, line, file name of the mapping), no address, so that two
 * builds of one program share them. Without: (build id, or else the mapping's name; offset in the
 * file), or the raw address where there is no mapping; `file` then holds the mapping's base name,
 * for people. A location with neither line nor address says nothing and is left out of the stack.
 */
#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "distributor/formats/native.h"
#include "distributor/formats/normalize.h"
#include "distributor/formats/paths.h"
#include "distributor/formats/pprof/pprof_seen.h"
#include "distributor/formats/pprof/pprof_stacks.h"

#define FRAMES_MAX   UINT32_MAX
#define STACKS_FIRST 512   /* a JVM has thousands of samples of a hundred stacks */
#define RESERVE_MAX  65536 /* entries a table is made for before they are seen */

struct loc_frames {
    uint32_t from; /* in walk.frames, outermost first; or the frame itself if len is 1 */
    uint32_t len;  /* PPROF_NONE until first use */
};
struct fn_names {
    uint32_t name, file; /* strings of push->stacks; name = PPROF_NONE until first use */
};
struct map_names {
    uint32_t module, file; /* of locations without lines; module = PPROF_NONE until first use */
};

struct walk {
    const struct pprof *p;
    const struct limits *l;
    struct push *push;
    bool file_in_name;          /* "file name" for pyspy, rbspy, scripting */
    bool absolute_file_in_name; /* not for pyspy */
    uint32_t *strings;          /* string index -> string of push->stacks */
    uint32_t *files;            /* the same, of file names */
    uint32_t *modules;          /* mapping -> its name as a string of push->stacks */
    struct map_names *unnamed;  /* mapping -> what stands for the lines of its locations */
    struct map_u64 longs;       /* long names of functions: (file, name) and a seed -> string */
    struct fn_names *functions;
    struct loc_frames *locations;
    VEC(uint32_t) frames; /* of all locations of several frames used so far */
    uint32_t *path;       /* frames of one stack, leaf first: limits.frames of them */
    size_t path_len;
    size_t frames_most; /* of a location: never more than it has lines, or one */
    struct paths paths;
    struct pprof_sample sample;
    struct pprof_seen seen;     /* node PPROF_NONE: has an unknown location */
    struct normalize_look look; /* at all strings */
    struct buf tmp, joined;
    struct pprof_keep keep;
};

/* Tables grow by rehashing, columns by copying: says at once about how much will be in them. */
static void reserve(struct walk *w)
{
    const struct pprof *p = w->p;
    size_t names = 0;
    struct stacks_room room = { .strings = MIN(p->functions.len * 3 / 2, RESERVE_MAX),
                                .frames = MIN(p->lines.len + p->locations.len / 4, RESERVE_MAX) };

    vec_for (i, &p->strings)
        names += p->strings.ptr[i].len;
    w->frames_most = 1;
    for (size_t i = 0, lines = 0; i < p->locations.len; lines = p->locations.ptr[i++].lines_end)
        w->frames_most = MAX(w->frames_most, p->locations.ptr[i].lines_end - lines);
    room.string_bytes = MIN(names, 64 * RESERVE_MAX);
    room.nodes = MIN(p->locations.len * 2, RESERVE_MAX);
    stacks_reserve(&w->push->stacks, &room);
    paths_reserve(&w->paths, room.nodes);
    vec_reserve(&w->frames, 16 + room.frames / 4);
}

/* All strings, with what stands between them. */
static struct str strings_text(const struct pprof *p)
{
    if (p->strings.len == 0)
        return STR("");
    const struct str *last = &p->strings.ptr[p->strings.len - 1];
    return str_n(p->strings.ptr[0].ptr, (size_t)(last->ptr + last->len - p->strings.ptr[0].ptr));
}

static bool walk_init(struct walk *w)
{
    struct arena *a = w->push->arena;
    const struct pprof *p = w->p;

    w->strings = arena_alloc(a, p->strings.len * sizeof(*w->strings));
    w->files = arena_alloc(a, p->strings.len * sizeof(*w->files));
    w->modules = arena_alloc(a, p->mappings.len * sizeof(*w->modules));
    w->unnamed = arena_alloc(a, p->mappings.len * sizeof(*w->unnamed));
    w->functions = arena_alloc(a, p->functions.len * sizeof(*w->functions));
    w->locations = arena_alloc(a, p->locations.len * sizeof(*w->locations));
    w->path = arena_alloc(a, (size_t)w->l->frames * sizeof(*w->path));
    if (!normalize_look(&w->look, strings_text(p), a))
        return false;
    if (!w->strings || !w->files || !w->modules || !w->unnamed || !w->functions || !w->locations ||
        !w->path)
        return false;
    memset(w->strings, 0xff, p->strings.len * sizeof(*w->strings));
    memset(w->files, 0xff, p->strings.len * sizeof(*w->files));
    memset(w->modules, 0xff, p->mappings.len * sizeof(*w->modules));
    memset(w->unnamed, 0xff, p->mappings.len * sizeof(*w->unnamed));
    memset(w->functions, 0xff, p->functions.len * sizeof(*w->functions));
    memset(w->locations, 0xff, p->locations.len * sizeof(*w->locations));
    buf_init(&w->tmp, 2 * (size_t)w->l->symbol_bytes + 64);
    buf_init(&w->joined, 2 * (size_t)w->l->symbol_bytes + 64);
    pprof_seen_init(&w->seen, p->body, MIN(p->samples.len, STACKS_FIRST), p->bytes_max - p->bytes,
                    w->push->stacks.seed);
    reserve(w);
    return true;
}

static void walk_deinit(struct walk *w)
{
    map_u64_deinit(&w->longs);
    vec_free(&w->frames);
    paths_deinit(&w->paths);
    pprof_seen_deinit(&w->seen);
    pprof_sample_deinit(&w->sample);
    buf_deinit(&w->tmp);
    buf_deinit(&w->joined);
}

static uint32_t intern(struct walk *w, struct str s)
{
    uint32_t id = stacks_string(&w->push->stacks, s);

    w->paths.full |= id == STACKS_FULL;
    return id;
}

/* push_symbol and push_path, which most names need not go through. */
static struct str symbol(struct walk *w, struct str name)
{
    if (LIKELY(name.len <= w->l->symbol_keep_bytes && normalize_leaves(&w->look, name)))
        return name;
    return push_symbol(w->push, name, (size_t)w->l->symbol_keep_bytes, &w->tmp);
}

static struct str path(struct walk *w, struct str name)
{
    if (LIKELY(name.len <= w->l->symbol_keep_bytes && normalize_leaves_path(&w->look, name)))
        return name;
    return push_path(w->push, name, (size_t)w->l->symbol_keep_bytes, &w->tmp);
}

/* The name of a source file. */
static uint32_t file_id(struct walk *w, uint32_t index)
{
    if (index == 0 || index >= w->p->strings.len)
        return 0;
    if (w->files[index] == PPROF_NONE)
        w->files[index] = intern(w, path(w, w->p->strings.ptr[index]));
    return w->files[index];
}

/* A string that is stored as it is: build ids. */
static uint32_t string_id(struct walk *w, uint32_t index)
{
    if (index == 0 || index >= w->p->strings.len)
        return 0;
    if (w->strings[index] == PPROF_NONE)
        w->strings[index] =
            intern(w, str_tail(w->p->strings.ptr[index], (size_t)w->l->symbol_keep_bytes));
    return w->strings[index];
}

/* With its file before it, where the agent wants that. */
static uint32_t join_name(struct walk *w, struct str name, struct str file)
{
    if (file.len) {
        buf_reset(&w->joined);
        buf_add_str(&w->joined, file);
        buf_add_c(&w->joined, ' ');
        if (buf_add_str(&w->joined, name))
            name = buf_str(&w->joined);
    }
    return intern(w, symbol(w, name));
}

/* Any number of functions may have one name: a long one is looked at once. */
static uint32_t function_name(struct walk *w, const struct pprof_function *fn)
{
    uint32_t index = pprof_str(w->p, fn->name).len ? fn->name : fn->system_name;
    struct str name = pprof_str(w->p, index), file = pprof_str(w->p, fn->file);

    if (name.len == 0)
        name = STR(PATHS_NO_NAME);
    if (!w->file_in_name || !file.len || (!w->absolute_file_in_name && file.ptr[0] == '/'))
        file = STR("");
    if (LIKELY(name.len + file.len <= PPROF_LONG_NAME))
        return join_name(w, name, file);
    uint64_t key = ((uint64_t)(file.len ? fn->file : 0) << 32 | index) ^ w->push->stacks.seed;
    uint32_t id = map_u64_get(&w->longs, key);
    if (id == MAP_U64_EMPTY) {
        id = join_name(w, name, file);
        if (!w->paths.full)
            (void)map_u64_put(&w->longs, key, id);
    }
    return id;
}

static struct fn_names function_names(struct walk *w, uint32_t i)
{
    const struct pprof_function *fn = &w->p->functions.ptr[i];

    if (w->functions[i].name == PPROF_NONE)
        w->functions[i] = (struct fn_names){ function_name(w, fn), file_id(w, fn->file) };
    return w->functions[i];
}

static uint32_t module_id(struct walk *w, uint32_t mapping)
{
    if (mapping == PPROF_NONE)
        return 0;
    if (w->modules[mapping] == PPROF_NONE)
        w->modules[mapping] = intern(w, path(w, pprof_str(w->p, w->p->mappings.ptr[mapping].file)));
    return w->modules[mapping];
}

/* A build id and the name of the file, for people; without one only the mapping's name. */
static struct map_names unnamed_of(struct walk *w, uint32_t mapping)
{
    const struct pprof_mapping *m = &w->p->mappings.ptr[mapping];
    struct map_names *n = &w->unnamed[mapping];

    if (n->module != PPROF_NONE)
        return *n;
    if (native_build_id(pprof_str(w->p, m->build_id))) {
        n->module = string_id(w, m->build_id);
        n->file = intern(w, str_tail(native_base_name(pprof_str(w->p, m->file)),
                                     (size_t)w->l->symbol_keep_bytes));
    } else {
        *n = (struct map_names){ module_id(w, mapping), 0 };
    }
    return *n;
}

static struct frame address_frame(struct walk *w, uint64_t address, uint32_t mapping)
{
    struct frame f = { .addr = address };

    if (mapping == PPROF_NONE)
        return f;
    const struct pprof_mapping *m = &w->p->mappings.ptr[mapping];
    struct map_names names = unnamed_of(w, mapping);
    f.addr = native_offset(address, m->start, m->limit, m->offset);
    f.module = names.module;
    f.file = names.file;
    return f;
}

static void frame_push(struct walk *w, const struct frame *f)
{
    uint32_t id = stacks_frame(&w->push->stacks, f);

    w->paths.full |= id == STACKS_FULL || w->frames.len == FRAMES_MAX;
    if (!w->paths.full)
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
                           .line = line->line,
                           .addr = p->functions.ptr[fn].start_line };
        frame_push(w, &f);
    }
    if (w->frames.len == out.from && at->address) {
        struct frame f = address_frame(w, at->address, mapping);
        frame_push(w, &f);
    }
    out.len = (uint32_t)w->frames.len - out.from;
    if (out.len == 1)
        out.from = w->frames.ptr[--w->frames.len];
    w->locations[i] = out;
    return out;
}

enum found { FOUND, FOUND_UNKNOWN, FOUND_TOO_DEEP };

/* The frames of one location to the end of w->path. */
static inline enum found add_location(struct walk *w, uint64_t id)
{
    uint32_t at = pprof_find(&w->p->location_ids, id);

    if (UNLIKELY(at == PPROF_NONE))
        return FOUND_UNKNOWN;
    struct loc_frames lf = w->locations[at];
    if (UNLIKELY(lf.len == PPROF_NONE))
        lf = location_frames(w, at);
    if (UNLIKELY(lf.len > w->l->frames - w->path_len))
        return FOUND_TOO_DEEP;
    if (LIKELY(lf.len == 1)) {
        w->path[w->path_len++] = lf.from;
        return FOUND;
    }
    for (uint32_t k = lf.len; k > 0; k--)
        w->path[w->path_len++] = w->frames.ptr[lf.from + k - 1];
    return FOUND;
}

/* The usual case of find_path: packed ids 1 .. n of one or two bytes, of locations seen before. All
 * in registers; stops at the first id that is anything else. */
static void take_plain(struct walk *w, struct rd *r, const uint8_t *body_end)
{
    const struct loc_frames *locations = w->locations;
    size_t n = w->path_len, most = (size_t)w->l->frames, known = w->p->location_ids.len;
    const uint8_t *p = r->p, *end = r->end;
    uint32_t *path = w->path;

    if (body_end - end < 2 || !w->p->location_ids.sequential || w->sample.tagged)
        return;
    while (p < end) {
        uint32_t two = (uint32_t)p[0] | (uint32_t)p[1] << 8, more = two >> 7 & 1;
        uint32_t at = ((two & 0x7f) | (two >> 1 & 0x3f80 & (0u - more))) - 1;
        if ((two & 0x8080) == 0x8080 || at >= known || p + 1 + more > end)
            break;
        struct loc_frames lf = locations[at];
        if (lf.len > most - n) /* PPROF_NONE is more than anything */
            break;
        if (LIKELY(lf.len == 1)) {
            path[n++] = lf.from;
        } else {
            const uint32_t *frames = w->frames.ptr + lf.from;
            for (uint32_t k = lf.len; k > 0; k--)
                path[n++] = frames[k - 1];
        }
        p += 1 + more;
    }
    r->p = p;
    w->path_len = n;
}

/* The locations in r, a part of the ids of the sample read last, to w->path. ERR_INPUT if they are
 * malformed. */
static int find_ids(struct walk *w, struct rd r, enum found *ret, struct err *e)
{
    const uint8_t *body = (const uint8_t *)w->p->body.ptr;
    const struct wire wire = { body, body + w->p->body.len, "sample", 0, e };
    enum found found = FOUND;
    uint64_t id;

    w->path_len = 0;
    while (r.p < r.end && found == FOUND) {
        take_plain(w, &r, wire.end);
        if (r.p == r.end)
            break;
        r.p += w->sample.tagged;
        if (!wire_varint(&wire, &r, &id)) {
            wire_malformed(&wire, &r);
            return e->code;
        }
        found = add_location(w, id);
    }
    *ret = found;
    return 0;
}

/* All locations of that sample. */
static int find_path(struct walk *w, enum found *ret, struct err *e)
{
    int rc = find_ids(w, rd_of(w->sample.ids), ret, e);

    for (size_t i = 0; !w->sample.ids.len && i < w->sample.locations.len && !rc && *ret == FOUND;
         i++)
        *ret = add_location(w, w->sample.locations.ptr[i]);
    return rc;
}

/* Numbers are sizes and thread ids, the same few keys all the time. */
static bool is_span(struct pprof_keep *k, uint32_t key)
{
    if (key != k->number_key) {
        k->number_key = key;
        k->number_is_span = exid_label(pprof_str(k->p, key)) == EXID_SPAN;
    }
    return k->number_is_span;
}

bool pprof_labelled(struct pprof_keep *k, const struct pprof_sample *s)
{
    vec_for (i, &s->labels) {
        const struct pprof_label *label = &s->labels.ptr[i];
        if (label->str || (label->num && is_span(k, label->key)))
            return true;
    }
    return false;
}

void pprof_keep_sample(struct pprof_keep *k, const struct pprof_sample *s, uint32_t node,
                       const int64_t *values, struct pprof_walked *out)
{
    size_t types = k->p->types_len;
    uint64_t *to = out->values + out->len * types;

    out->nodes[out->len] = node;
    for (size_t t = 0; t < types; t++)
        to[t] = (uint64_t)values[t];
    vec_for (i, &s->labels) {
        const struct pprof_label *label = &s->labels.ptr[i];
        struct pprof_pair pair = { label->key, label->str };
        if (label->str) {
            vec_push(&out->pairs, pair);
        } else if (label->num && is_span(k, label->key)) {
            struct pprof_number n = { (uint32_t)out->len, label->key, (uint64_t)label->num };
            vec_push(&out->numbers, n);
        }
    }
    out->pairs_end[out->len++] = (uint32_t)out->pairs.len;
}

/* The node of the sample's stack, PPROF_NONE if a location of it is not there. */
static int find_node(struct walk *w, uint32_t *ret, struct err *e)
{
    enum found found = FOUND;

    *ret = PPROF_NONE;
    if (find_path(w, &found, e))
        return e->code;
    if (w->paths.full)
        return push_full(w->push, e);
    if (found == FOUND_UNKNOWN)
        return 0;
    if (found == FOUND_TOO_DEEP) {
        (void)paths_too_deep(&w->paths, e);
        return err_wrap(e, "pprof");
    }
    return paths_node(&w->paths, w->path, w->path_len, ret, e) ? err_wrap(e, "pprof") : 0;
}

/* ---- the usual stack: from its root, right off the bytes ------------------------------------- */

/* Where a stack leaves the known part: below `node` follow the frames of `here` but for the first
 * `done` of them, then the locations whose ids end at `ids`. */
struct leave {
    uint32_t node, done;
    struct loc_frames here;
    const uint8_t *ids; /* NULL: all of the stack is known */
};

/* Reads the id that ends at *p, of one or two bytes: a byte below 0x80 stands before each, the end
 * of the one before, its own tag, or the length of all. False for anything longer. */
static inline bool id_before(const uint8_t **p, size_t tag, uint32_t *ret)
{
    uint32_t low = (*p)[-1], before = (*p)[-2], two = before >> 7;

    if (UNLIKELY(two && (*p)[-3] >> 7))
        return false;
    *ret = two ? low << 7 | (before & 0x7f) : low;
    *p -= 1 + two + tag;
    return true;
}

/* True: *ret is as far as the stack of the sample is known.
 * False: something is unusual about it, and nothing has happened. */
static bool walk_known(struct walk *w, struct leave *ret)
{
    const uint8_t *begin = (const uint8_t *)w->sample.ids.ptr, *p = begin + w->sample.ids.len;
    struct trie *trie = &w->paths.trie;
    uint32_t node = 0, child, id, known = (uint32_t)w->p->location_ids.len;

    if (!w->p->location_ids.sequential || !paths_open(&w->paths))
        return false;
    while (p > begin) {
        if (!id_before(&p, w->sample.tagged, &id) || id - 1 >= known)
            return false;
        struct loc_frames lf = w->locations[id - 1];
        if (UNLIKELY(lf.len == PPROF_NONE)) {
            lf = location_frames(w, id - 1);
            if (w->paths.full)
                return false;
        }
        if (LIKELY(lf.len == 1)) {
            child = trie_step(trie, node, lf.from);
            if (UNLIKELY(!child)) {
                *ret = (struct leave){ node, 0, lf, p };
                return true;
            }
            node = child;
            continue;
        }
        for (uint32_t i = 0; i < lf.len; i++, node = child) {
            child = trie_step(trie, node, w->frames.ptr[lf.from + i]);
            if (!child) {
                *ret = (struct leave){ node, i, lf, p };
                return true;
            }
        }
    }
    *ret = (struct leave){ .node = node };
    return node != 0;
}

/* What is new of the stack. */
static int walk_new(struct walk *w, const struct leave *from, uint32_t *ret, struct err *e)
{
    const uint8_t *begin = (const uint8_t *)w->sample.ids.ptr;
    enum found found = FOUND;

    if (find_ids(w, (struct rd){ begin, from->ids }, &found, e))
        return e->code;
    if (w->paths.full)
        return push_full(w->push, e);
    if (found == FOUND_UNKNOWN)
        return 0;
    const uint32_t *frames =
        from->here.len == 1 ? &from->here.from : w->frames.ptr + from->here.from;
    for (uint32_t i = from->here.len; i > from->done; i--)
        w->path[w->path_len++] = frames[i - 1];
    return paths_append(&w->paths, from->node, w->path, w->path_len, ret, e);
}

/* As find_node. A stack that could have to be cut goes the long way. */
static int find_stack(struct walk *w, uint32_t *ret, struct err *e)
{
    struct leave leave;

    if (w->sample.ids.len * w->frames_most > w->l->frames_keep || !walk_known(w, &leave))
        return find_node(w, ret, e);
    *ret = leave.ids ? PPROF_NONE : leave.node;
    return leave.ids ? walk_new(w, &leave, ret, e) : 0;
}

/* As find_node, by the bytes of the ids where they are in one piece. */
static int find_seen(struct walk *w, uint32_t *ret, struct err *e)
{
    struct str ids = w->sample.ids;
    struct pprof_seen_key key;

    if (!ids.len || ids.len >= PPROF_SEEN_TAGGED)
        return find_node(w, ret, e);
    pprof_seen_key(&w->seen, ids, w->sample.tagged, &key);
    struct pprof_stack *seen = pprof_seen_find(&w->seen, &key);
    if (LIKELY(seen)) {
        *ret = seen->node;
        return 0;
    }
    int rc = find_stack(w, ret, e);
    pprof_seen_add(&w->seen, &key, *ret);
    return rc;
}

static int walk_sample(struct walk *w, size_t i, const int64_t *values, struct pprof_walked *out,
                       struct err *e)
{
    uint32_t node;

    if (pprof_sample_read(w->p, i, w->l, &w->sample, e))
        return e->code;
    if (!values)
        values = w->sample.values;
    if (!pprof_values_count(w->push, values, w->sample.values_len, w->p->types_len))
        return 0;
    if (find_seen(w, &node, e))
        return e->code;
    if (node == PPROF_NONE)
        w->push->drops[DROP_UNKNOWN_LOCATION]++;
    else
        pprof_keep_sample(&w->keep, &w->sample, node, values, out);
    return 0;
}

bool pprof_walked_init(const struct push *push, size_t n, size_t types, struct pprof_walked *out)
{
    size_t values;

    *out = (struct pprof_walked){ 0 };
    if (!size_mul(n, types, &values) || values > arena_limit(push->arena) / sizeof(uint64_t))
        return false;
    out->nodes = arena_alloc(push->arena, n * sizeof(*out->nodes));
    out->pairs_end = arena_alloc(push->arena, n * sizeof(*out->pairs_end));
    out->values = arena_alloc(push->arena, values * sizeof(*out->values));
    return out->nodes && out->pairs_end && out->values;
}

void pprof_walked_deinit(struct pprof_walked *w)
{
    vec_free(&w->pairs);
    vec_free(&w->numbers);
}

int pprof_walk(const struct decode_job *job, const struct pprof *p, const int64_t *values,
               struct pprof_walked *ret, struct err *e)
{
    const struct ingest *in = job->in;
    struct push *push = job->push;
    bool pyspy = str_eqc(in->spy, "pyspy");
    struct walk w = { .p = p, .l = job->l, .push = push, .keep = { .p = p } };
    int rc = 0;

    w.file_in_name = pyspy || str_eqc(in->spy, "rbspy") || str_eqc(in->spy, "scripting");
    w.absolute_file_in_name = !pyspy;
    paths_init(&w.paths, push, job->l);
    if (!pprof_walked_init(push, p->samples.len, p->types_len, ret) || !walk_init(&w))
        rc = push_full(push, e);
    for (size_t i = 0; i < p->samples.len && !rc; i++) {
        pool_slice();
        rc = walk_sample(&w, i, values ? values + i * p->types_len : NULL, ret, e);
    }
    walk_deinit(&w);
    return rc;
}
