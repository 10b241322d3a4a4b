/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_known: samples to nodes by the symbol session of their service (symbol_session.h).
 *
 *   location ids of a sample ── seen in this body? ──> node
 *        └─> steps, by location (once each) ──> steps of the stack ──> symbol_session_node
 *
 * The walk for profiles that are like those before: it stores nothing twice and says no to whatever
 * is unusual (broken samples, names that are cut, stacks that are too deep or too many), which the
 * ordinary walk (pprof_walk.c) then judges from the start. Frames are made by the same rules as
 * there.
 *
 * Nodes get numbers 1, 2, ... within the push in order of first sight, so that what follows works
 * on tables of the size of the push, not of all that is known.
 */
#include "common/base/map.h"
#include "common/base/wr.h"
#include "common/sys/pool.h"
#include "distributor/formats/native.h"
#include "distributor/formats/paths.h"
#include "distributor/formats/pprof/pprof_find.h"
#include "distributor/formats/pprof/pprof_plain.h"
#include "distributor/formats/pprof/pprof_seen.h"
#include "distributor/formats/pprof/pprof_stacks.h"
#include "distributor/formats/pprof/symbol_session.h"

#define STACKS_FIRST 512
#define ROOM         24 /* bytes behind ids: they are read by words */
/* Locations that are no steps */
#define STEP_NEW   SYMBOL_SESSION_NONE /* not asked yet */
#define STEP_EMPTY (UINT32_MAX - 1)    /* it has no frame */
static_assert(SYMBOL_SESSION_STEPS <= STEP_EMPTY, "no step has one of these numbers");

struct map_names {
    uint32_t module, file; /* of locations without lines; module = PPROF_NONE until first use */
};
struct lookup {
    const struct pprof *p;
    const struct limits *l;
    struct push *push;
    struct symbol_session *k;
    uint32_t *files;   /* by string index: string of k */
    uint32_t *modules; /* by mapping */
    struct map_names *unnamed;
    struct map_u64 longs; /* long names of functions: index and a seed -> string of k */
    struct pprof_fn_names *functions;
    uint32_t *steps;      /* by location + 1; the first is 0 */
    VEC(uint32_t) frames; /* of one location */
    uint64_t *path;       /* of one stack (symbol_session.h): l->frames_keep steps at most */
    size_t path_len;
    uint32_t *rows;  /* by number: position + 1 of its samples without labels, added up; 0: none */
    uint32_t *nodes; /* push->known_nodes */
    size_t nodes_len;
    struct pprof_seen seen; /* node: number in the push; PPROF_NONE: has an unknown location */
    struct pprof_sample sample;
    struct pprof_keep keep;
    struct pprof_plain plain;
    bool odd; /* not for this walk */
};

/* Agents whose frames are made of a file and a name are left to the ordinary walk. */
static bool joined_names(const struct ingest *in)
{
    return str_eqc(in->spy, "pyspy") || str_eqc(in->spy, "rbspy") || str_eqc(in->spy, "scripting");
}

static bool lookup_init(struct lookup *x)
{
    struct arena *a = x->push->arena;
    const struct pprof *p = x->p;

    x->files = arena_alloc(a, p->strings.len * sizeof(*x->files));
    x->modules = arena_alloc(a, p->mappings.len * sizeof(*x->modules));
    x->unnamed = arena_alloc(a, p->mappings.len * sizeof(*x->unnamed));
    x->functions = arena_alloc(a, p->functions.len * sizeof(*x->functions));
    x->steps = arena_alloc(a, (p->locations.len + 1) * sizeof(*x->steps));
    x->path = arena_alloc(a, symbol_session_path_len((size_t)x->l->frames_keep) * sizeof(*x->path));
    x->nodes = arena_alloc(a, (p->samples.len + 1) * sizeof(*x->nodes));
    x->rows = arena_alloc(a, (p->samples.len + 2) * sizeof(*x->rows));
    pprof_seen_init(&x->seen, p->body, MIN(p->samples.len, STACKS_FIRST), p->bytes_max - p->bytes,
                    x->k->stacks.seed);
    if (!x->files || !x->modules || !x->unnamed || !x->functions || !x->steps || !x->path ||
        !x->nodes || !x->rows)
        return false;
    x->plain = (struct pprof_plain){
        .p = p, .l = x->l, .keep = &x->keep, .seen = &x->seen, .rows = x->rows, .push = x->push
    };
    memset(x->files, 0xff, p->strings.len * sizeof(*x->files));
    memset(x->modules, 0xff, p->mappings.len * sizeof(*x->modules));
    memset(x->unnamed, 0xff, p->mappings.len * sizeof(*x->unnamed));
    x->steps[0] = 0;
    struct pprof_find find = { p, x->k, x->l, x->files, x->modules, x->functions, x->steps + 1 };
    return pprof_find_known(&find, a);
}

/* ---- names ---- */

/* The stored form of a name, which is made once. Names that would be cut are odd: that is counted.
 * */
static uint32_t name_id(struct lookup *x, struct str s, bool path)
{
    struct symbol_session *k = x->k;

    if (s.len == 0)
        return 0;
    uint32_t at = s.len > x->l->symbol_keep_bytes ? SYMBOL_SESSION_NONE : symbol_session_text(k, s);
    if (at == SYMBOL_SESSION_NONE) {
        x->odd = true;
        return 0;
    }
    struct symbol_session_text *t = &k->texts.ptr[at];
    uint32_t *id = path ? &t->path : &t->symbol;
    if (UNLIKELY(*id == SYMBOL_SESSION_NONE)) {
        struct buf tmp;
        size_t keep = (size_t)x->l->symbol_keep_bytes;
        buf_init(&tmp, 2 * keep + 64);
        *id = symbol_session_string(k, path ? push_path(x->push, s, keep, &tmp)
                                            : push_symbol(x->push, s, keep, &tmp));
        buf_deinit(&tmp);
    }
    return *id;
}

static uint32_t file_id(struct lookup *x, uint32_t index)
{
    if (index == 0 || index >= x->p->strings.len)
        return 0;
    if (x->files[index] == PPROF_NONE)
        x->files[index] = name_id(x, x->p->strings.ptr[index], true);
    return x->files[index];
}

static uint32_t module_id(struct lookup *x, uint32_t mapping)
{
    if (mapping == PPROF_NONE)
        return 0;
    if (x->modules[mapping] == PPROF_NONE)
        x->modules[mapping] = name_id(x, pprof_str(x->p, x->p->mappings.ptr[mapping].file), true);
    return x->modules[mapping];
}

/* Any number of functions may have one name: a long one is looked for once. */
static uint32_t function_name(struct lookup *x, const struct pprof_function *fn)
{
    uint32_t index = pprof_str(x->p, fn->name).len ? fn->name : fn->system_name;
    struct str name = pprof_str(x->p, index);

    if (LIKELY(name.len <= PPROF_LONG_NAME))
        return name_id(x, name.len ? name : STR(PATHS_NO_NAME), false);
    uint64_t key = index ^ x->k->stacks.seed;
    uint32_t id = map_u64_get(&x->longs, key);
    if (id == MAP_U64_EMPTY) {
        id = name_id(x, name, false);
        if (!x->odd && !x->k->full)
            (void)map_u64_put(&x->longs, key, id);
    }
    return id;
}

static struct pprof_fn_names function_names(struct lookup *x, uint32_t i)
{
    const struct pprof_function *fn = &x->p->functions.ptr[i];

    if (x->functions[i].name == PPROF_NONE) {
        x->functions[i].name = function_name(x, fn);
        x->functions[i].file = file_id(x, fn->file);
    }
    return x->functions[i];
}

static struct str kept(struct lookup *x, struct str s)
{
    x->odd |= s.len > x->l->symbol_keep_bytes;
    return s;
}

static struct map_names unnamed_of(struct lookup *x, uint32_t mapping)
{
    const struct pprof_mapping *m = &x->p->mappings.ptr[mapping];
    struct map_names *n = &x->unnamed[mapping];

    if (n->module != PPROF_NONE)
        return *n;
    struct str build_id = pprof_str(x->p, m->build_id);
    if (native_build_id(build_id)) {
        n->module = symbol_session_string(x->k, kept(x, build_id));
        n->file = symbol_session_string(x->k, kept(x, native_base_name(pprof_str(x->p, m->file))));
    } else {
        *n = (struct map_names){ module_id(x, mapping), 0 };
    }
    return *n;
}

static struct frame address_frame(struct lookup *x, uint64_t address, uint32_t mapping)
{
    struct frame f = { .addr = address };

    if (mapping == PPROF_NONE)
        return f;
    const struct pprof_mapping *m = &x->p->mappings.ptr[mapping];
    struct map_names names = unnamed_of(x, mapping);
    f.addr = native_offset(address, m->start, m->limit, m->offset);
    f.module = names.module;
    f.file = names.file;
    return f;
}

/* ---- locations ---- */

/* Asked for the first time. STEP_NEW: it is odd, or nothing more is kept. */
static uint32_t location_step(struct lookup *x, uint32_t i)
{
    const struct pprof *p = x->p;
    const struct pprof_location *at = &p->locations.ptr[i];
    uint32_t from = i ? p->locations.ptr[i - 1].lines_end : 0;
    uint32_t mapping = pprof_find(&p->mapping_ids, at->mapping_id);

    x->frames.len = 0;
    for (uint32_t n = from; n < at->lines_end; n++) { /* the last line is the physical function */
        const struct pprof_line *line = &p->lines.ptr[n];
        uint32_t fn = pprof_find(&p->function_ids, line->function_id);
        if (fn == PPROF_NONE)
            continue;
        struct pprof_fn_names names = function_names(x, fn);
        struct frame f = { .func = names.name,
                           .file = names.file,
                           .module = module_id(x, mapping),
                           .line = line->line,
                           .addr = p->functions.ptr[fn].start_line };
        if (UNLIKELY(x->odd || x->k->full))
            return STEP_NEW;
        vec_push(&x->frames, symbol_session_frame(x->k, &f));
    }
    if (!x->frames.len && at->address) {
        struct frame f = address_frame(x, at->address, mapping);
        if (UNLIKELY(x->odd || x->k->full))
            return STEP_NEW;
        vec_push(&x->frames, symbol_session_frame(x->k, &f));
    }
    if (UNLIKELY(x->k->full))
        return STEP_NEW;
    uint32_t step =
        x->frames.len ? symbol_session_step(x->k, x->frames.ptr, x->frames.len) : STEP_EMPTY;
    return x->steps[i + 1] = step == SYMBOL_SESSION_NONE ? STEP_NEW : step;
}

static inline void path_add(struct lookup *x, uint32_t step)
{
    uint64_t *to = &x->path[x->path_len / 2];

    *to = x->path_len % 2 ? *to | (uint64_t)step << 32 : step;
    x->path_len++;
}

/* Its step to the end of x->path. False: there is no such location, or it is odd. */
static bool add_location(struct lookup *x, uint64_t id)
{
    uint32_t at = pprof_find(&x->p->location_ids, id);

    if (UNLIKELY(at == PPROF_NONE))
        return false;
    uint32_t step = x->steps[at + 1];
    if (step == STEP_NEW && (step = location_step(x, at)) == STEP_NEW)
        return false;
    if (step == STEP_EMPTY)
        return true;
    if (UNLIKELY(x->path_len >= x->l->frames_keep)) {
        x->odd = true;
        return false;
    }
    path_add(x, step);
    return true;
}

/* ---- stacks ---- */

/* The number of a node within the push. */
static uint32_t number_of(struct lookup *x, uint32_t node)
{
    struct symbol_session *k = x->k;

    if (UNLIKELY(node >= k->dense.len)) {
        size_t had = k->dense.len, want = k->stacks.node_parent.len + 1;
        vec_reserve(&k->dense, want);
        memset(k->dense.ptr + had, 0, (want - had) * sizeof(uint32_t));
        k->dense.len = want;
    }
    if (!k->dense.ptr[node]) {
        x->nodes[x->nodes_len++] = node;
        x->rows[x->nodes_len] = 0;
        k->dense.ptr[node] = (uint32_t)x->nodes_len;
    }
    return k->dense.ptr[node];
}

/* Ids taken off a word, one by one: what waits for the one before is a shift, not a read. */
struct id_word {
    uint64_t bytes;
    size_t used;   /* of them */
    size_t tagged; /* bytes behind an id that belong to the next one: its tag */
    size_t known;  /* ids are up to this */
};

/* An id of one or two bytes, and the step of its location, which stands in the body where its id
 * says. STEP_NEW, STEP_EMPTY: look again, one by one. Which of both lengths an id has cannot be
 * guessed, and is not asked. */
static inline uint32_t take_step(struct lookup *x, struct id_word *w)
{
    uint64_t two = w->bytes >> 7 & 1;
    uint64_t id = (w->bytes & 0x7f) | (w->bytes >> 1 & 0x3f80 & (0u - two));

    if (UNLIKELY((w->bytes & 0x8080) == 0x8080 || id - 1 >= w->known))
        return STEP_NEW;
    size_t len = 1 + two + w->tagged;
    w->bytes >>= 8 * len;
    w->used += len;
    uint32_t step = x->steps[id];
    return UNLIKELY(step == STEP_NEW) ? location_step(x, (uint32_t)id - 1) : step;
}

/* Up to four steps of the locations whose ids are the `left` bytes at p. Returns how many; 0: look
 * again, one by one. */
static inline size_t take_steps(struct lookup *x, const uint8_t *p, size_t left, struct id_word *w,
                                uint64_t *path)
{
    uint32_t a, b = 0, c = 0, d = 0;
    size_t n = 1;

    w->bytes = get_u64le(p);
    w->used = 0;
    a = take_step(x, w);
    if (LIKELY(w->used < left)) {
        b = take_step(x, w);
        n++;
    }
    if (w->tagged) /* a third need not be in the word */
        w->bytes = get_u64le(p + w->used);
    if (LIKELY(w->used < left)) {
        c = take_step(x, w);
        n++;
    }
    if (LIKELY(w->used < left)) {
        d = take_step(x, w);
        n++;
    }
    path[0] = a | (uint64_t)b << 32;
    path[1] = c | (uint64_t)d << 32;
    bool odd = a >= STEP_EMPTY || b >= STEP_EMPTY || c >= STEP_EMPTY || d >= STEP_EMPTY;
    return UNLIKELY(odd) ? 0 : n;
}

/* The steps of all locations of the sample to x->path, if they stand there as in nearly all bodies:
 * ids are 1 .. n, of one or two bytes. False: look again, one by one. */
static bool take_path(struct lookup *x, const uint8_t *body_end, uint64_t *ret_hash)
{
    const uint8_t *p = (const uint8_t *)x->sample.ids.ptr, *end = p + x->sample.ids.len;
    struct id_word w = { .tagged = x->sample.tagged, .known = x->p->location_ids.len };
    size_t n = 0, most = x->l->frames_keep;
    uint64_t *path = x->path, h = symbol_session_hash(x->k);

    if (!x->p->location_ids.sequential || p == end || body_end - end < ROOM)
        return false;
    for (p += w.tagged; p < end; p += w.used, path += 2) {
        if (UNLIKELY(n >= most))
            return false;
        size_t got = take_steps(x, p, (size_t)(end - p), &w, path);
        if (UNLIKELY(!got))
            return false;
        n += got;
        h = symbol_session_hash_more(h, path[0], path[1]);
    }
    x->path_len = n;
    *ret_hash = h;
    return p == end + w.tagged && n <= most;
}

/* The same for ids of all forms. False: a location is not there, or something is odd. */
static bool take_path_slowly(struct lookup *x, uint64_t *ret_hash, struct err *e)
{
    const uint8_t *body = (const uint8_t *)x->p->body.ptr;
    const struct wire wire = { body, body + x->p->body.len, "sample", 0, e };
    struct rd r = rd_of(x->sample.ids);
    uint64_t id;

    x->path_len = 0;
    while (r.p < r.end) {
        r.p += x->sample.tagged;
        if (!wire_varint(&wire, &r, &id)) {
            x->odd = true;
            return false;
        }
        if (!add_location(x, id) || x->odd)
            return false;
    }
    for (size_t i = 0; !x->sample.ids.len && i < x->sample.locations.len; i++)
        if (!add_location(x, x->sample.locations.ptr[i]) || x->odd)
            return false;
    if (x->path_len == 0) {
        struct frame f = { .func = symbol_session_string(x->k, STR(PATHS_NO_STACK)) };
        uint32_t frame = x->k->full ? 0 : symbol_session_frame(x->k, &f);
        path_add(x, x->k->full ? 0 : symbol_session_step(x->k, &frame, 1));
    }
    size_t n = x->path_len;
    while (x->path_len % SYMBOL_SESSION_PATH_STEPS)
        path_add(x, 0);
    x->path_len = n;
    *ret_hash = symbol_session_hash(x->k);
    for (size_t i = 0; i < symbol_session_path_len(n); i += 2)
        *ret_hash = symbol_session_hash_more(*ret_hash, x->path[i], x->path[i + 1]);
    return true;
}

/* The number of the sample's stack; PPROF_NONE if a location of it is not there. */
static uint32_t find_stack(struct lookup *x, struct err *e)
{
    const uint8_t *end = (const uint8_t *)x->p->body.ptr + x->p->body.len;
    uint64_t hash;

    if (!take_path(x, end, &hash) && !take_path_slowly(x, &hash, e))
        return PPROF_NONE;
    if (x->k->full)
        return PPROF_NONE;
    uint32_t node = symbol_session_node(x->k, x->path, x->path_len, hash, x->l->frames_keep);
    if (UNLIKELY(node == SYMBOL_SESSION_NONE)) {
        x->odd = true; /* too deep, or nothing more is kept */
        return PPROF_NONE;
    }
    return number_of(x, node);
}

/* As find_stack, by the bytes of the ids where they are in one piece. */
static uint32_t find_seen(struct lookup *x, struct err *e)
{
    struct str ids = x->sample.ids;
    struct pprof_seen_key key;

    if (!ids.len || ids.len >= PPROF_SEEN_TAGGED)
        return find_stack(x, e);
    pprof_seen_key(&x->seen, ids, x->sample.tagged, &key);
    struct pprof_stack *seen = pprof_seen_find(&x->seen, &key);
    if (seen)
        return seen->node;
    uint32_t at = find_stack(x, e);
    pprof_seen_add(&x->seen, &key, at);
    return at;
}

/* Samples of one stack and no labels that count are one from here on. */
static inline void take_sample(struct lookup *x, uint32_t at, const int64_t *values,
                               struct pprof_walked *out)
{
    size_t types = x->p->types_len;

    bool labelled = x->sample.labels.len && pprof_labelled(&x->keep, &x->sample);

    if (labelled || !x->rows[at]) {
        if (!labelled)
            x->rows[at] = (uint32_t)out->len + 1;
        pprof_keep_sample(&x->keep, &x->sample, at, values, out);
        return;
    }
    uint64_t *to = out->values + (x->rows[at] - 1) * types;
    for (size_t t = 0; t < types; t++)
        to[t] = push_sum(x->push, to[t], (uint64_t)values[t]);
}

static inline void take_at(struct lookup *x, uint32_t at, const int64_t *values,
                           struct pprof_walked *out)
{
    if (UNLIKELY(x->odd || x->k->full))
        return;
    if (at == PPROF_NONE)
        x->push->drops[DROP_UNKNOWN_LOCATION]++;
    else
        take_sample(x, at, values, out);
}

/* The plain sample at which the plain ones ended, since its stack is new to the body or to out. */
static void take_plain(struct lookup *x, struct pprof_walked *out, struct err *e)
{
    const struct pprof_seen_key *key = &x->plain.key;
    uint32_t at = x->plain.at ? x->plain.at->node : PPROF_NONE;

    x->sample.labels.len = 0;
    if (!x->plain.at) {
        x->sample.ids = key->ids;
        x->sample.tagged = false;
        at = find_stack(x, e);
        pprof_seen_add(&x->seen, key, at);
    }
    take_at(x, at, x->plain.sample, out);
}

static bool walk_samples(struct lookup *x, const int64_t *values, struct pprof_walked *out)
{
    size_t types = x->p->types_len, len = x->p->samples.len;
    struct err ignored;

    x->plain.values = out->values;
    for (size_t i = 0, turn = 0; i < len; i++, turn++) {
        if ((turn & 63) == 0) /* a turn of this loop may take a stack of thousands of frames */
            pool_slice();
        if (!values && (i = pprof_plain_take(&x->plain, i)) == len)
            break;
        if (x->plain.plain) {
            take_plain(x, out, &ignored);
        } else if (pprof_sample_read(x->p, i, x->l, &x->sample, &ignored)) {
            return false;
        } else {
            const int64_t *v = values ? values + i * types : x->sample.values;
            if (pprof_values_count(x->push, v, x->sample.values_len, types))
                take_at(x, find_seen(x, &ignored), v, out);
        }
        if (UNLIKELY(x->odd || x->k->full || x->nodes_len > x->l->stacks))
            return false;
    }
    return true;
}

static void forget_numbers(struct lookup *x)
{
    for (size_t i = 0; i < x->nodes_len; i++)
        x->k->dense.ptr[x->nodes[i]] = 0;
}

static bool walk_taken(struct lookup *x, const int64_t *values, struct pprof_walked *ret)
{
    struct symbol_session_counts before = symbol_session_now(x->k);
    struct push *push = x->push;

    x->k->full = false;
    x->k->text_next = x->k->frame_next = 0;
    if (!pprof_walked_init(push, x->p->samples.len, x->p->types_len, ret) || !lookup_init(x) ||
        !walk_samples(x, values, ret))
        return false;
    ret->added = !ret->pairs.len && !ret->numbers.len; /* see take_sample, number_of */
    push->known_nodes = x->nodes;
    push->known_len = x->nodes_len;
    push->known_upto = symbol_session_now(x->k);
    push->known_grew = push->known_upto.nodes > before.nodes ||
                       push->known_upto.frames > before.frames ||
                       push->known_upto.strings > before.strings;
    return true;
}

bool pprof_walk_known(const struct decode_job *job, const struct pprof *p, const int64_t *values,
                      struct pprof_walked *ret)
{
    const struct limits *l = job->l;
    struct push *push = job->push;
    struct lookup x = { .p = p, .l = l, .push = push, .keep = { .p = p } };
    uint64_t drops[PUSH_DROPS];

    *ret = (struct pprof_walked){ 0 };
    if (!push->memory.take || push->known || joined_names(job->in))
        return false;
    x.k = push->memory.take(push->memory.cookie, push);
    if (!x.k)
        return false;
    push->known = x.k;
    push->known_taken = true;
    memcpy(drops, push->drops, sizeof(drops));
    struct arena_mark mark = arena_mark(push->arena);
    bool ok = x.k->symbol_keep == l->symbol_keep_bytes && walk_taken(&x, values, ret);
    forget_numbers(&x);
    vec_free(&x.frames);
    map_u64_deinit(&x.longs);
    pprof_seen_deinit(&x.seen);
    pprof_sample_deinit(&x.sample);
    if (ok)
        return true;
    if (x.k->full || x.k->symbol_keep != l->symbol_keep_bytes) /* a new one begins */
        atomic_store_explicit(&x.k->dead, true, memory_order_relaxed);
    pprof_walked_deinit(ret);
    arena_rewind(push->arena, mark);
    memcpy(push->drops, drops, sizeof(drops));
    push_known_put(push);
    symbol_session_unref(push->known);
    push->known = NULL;
    return false;
}
