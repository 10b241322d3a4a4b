/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_walk: samples to nodes.
 *
 * All profiles of a request share one dictionary, and each becomes a push with stacks of its own.
 * A table per push over the whole dictionary would let a small body with many small profiles cost
 * (profiles x entries), so there is one table per request whose entries say which push they are of:
 * the next push finds all of them out of date without touching any. A stack is walked once per push
 * however many samples have it, and all walking of a request together is bounded (WORK_MAX): stacks
 * of thousands of frames cost two bytes per profile that refers to them. Any number of functions
 * may have one name, and it may be long: each is looked at once per push, and counted as work.
 *
 * Frames are those of pprof (pprof_walk.c): with symbols (function, file, line, file name of the
 * mapping), without (build id, or else the mapping's name; offset in the file).
 */
#include "distributor/otlp/otlp_walk.h"

#include "common/base/hash.h"
#include "common/base/hex.h"
#include "common/base/secret.h"
#include "common/base/size.h"
#include "common/sys/pool.h"
#include "distributor/formats/native.h"
#include "distributor/otlp/otlp_model.h"

#define WORK_MAX    (UINT64_C(1) << 28) /* frames: about a second */
#define NAME_SHARE  16                  /* so many bytes of a name are the work of a frame */
#define KEYS_MAX    64                  /* keys of sample labels that are looked for */
#define HEX_MAX     64                  /* bytes of an id */
#define PAIRS_SHARE 32 /* labels of samples take at most a quarter of the memory, 8 bytes each */

/* Entries are of the push of their epoch. */
struct seen_location {
    uint32_t epoch, from, len; /* in frames, innermost first */
};
struct seen_stack {
    uint32_t epoch, node;
};
struct seen_names {
    uint32_t epoch, name, file; /* strings of the push */
};
struct seen_string {
    uint32_t epoch, id; /* string of the push */
};
struct seen_pair {
    uint32_t epoch, key, str; /* strings of the labels; key 0: no label */
};
struct otlp_memo {
    struct seen_location *locations;
    struct seen_stack *stacks;
    struct seen_names *functions;
    struct seen_names *modules; /* mappings: name only */
    struct seen_names *natives; /* mappings: build id or name, base name */
    struct str *builds;         /* ids of mappings, the same for all pushes; NULL: not looked for */
    struct seen_string *symbols, *files; /* strings as names of functions, and of files */
    struct seen_pair *attrs;
    struct seen_pair *links; /* key: trace id, str: span id; 0: none */
};

static bool table(struct otlp *o, size_t n, size_t size, void *ret, struct err *e)
{
    size_t cap = 0;
    void *p = NULL;

    if (!otlp_grow(o, &p, &cap, n, size, e))
        return false;
    memset(p, 0, cap * size);
    memcpy(ret, &p, sizeof(p));
    return true;
}

int otlp_walk_init(struct otlp_walk *w, struct otlp *o, const struct limits *l,
                   struct otlp_texts *texts, struct err *e)
{
    struct otlp_memo *m = XNEW(struct otlp_memo);

    *w = (struct otlp_walk){ .o = o, .l = l, .texts = texts, .memo = m };
    buf_init(&w->tmp, 2 * (size_t)l->symbol_bytes + 64);
    if (!table(o, o->locations.len, sizeof(*m->locations), &m->locations, e) ||
        !table(o, o->stacks.len, sizeof(*m->stacks), &m->stacks, e) ||
        !table(o, o->functions.len, sizeof(*m->functions), &m->functions, e) ||
        !table(o, o->mappings.len, sizeof(*m->modules), &m->modules, e) ||
        !table(o, o->mappings.len, sizeof(*m->natives), &m->natives, e) ||
        !table(o, o->mappings.len, sizeof(*m->builds), &m->builds, e) ||
        !table(o, o->strings.len, sizeof(*m->symbols), &m->symbols, e) ||
        !table(o, o->strings.len, sizeof(*m->files), &m->files, e) ||
        !table(o, o->attrs.len, sizeof(*m->attrs), &m->attrs, e) ||
        !table(o, o->links.len, sizeof(*m->links), &m->links, e) ||
        !table(o, (size_t)l->frames, sizeof(*w->path), &w->path, e))
        return e->code;
    return 0;
}

void otlp_walk_deinit(struct otlp_walk *w)
{
    xfree(w->memo->locations);
    xfree(w->memo->stacks);
    xfree(w->memo->functions);
    xfree(w->memo->modules);
    xfree(w->memo->natives);
    xfree(w->memo->builds);
    xfree(w->memo->symbols);
    xfree(w->memo->files);
    xfree(w->memo->attrs);
    xfree(w->memo->links);
    xfree(w->memo);
    xfree(w->path);
    vec_free(&w->frames);
    vec_free(&w->keys);
    vec_free(&w->labels.strings);
    buf_deinit(&w->tmp);
}

/* ---- frames --------------------------------------------------------------------------------- */

static uint32_t intern(struct otlp_walk *w, struct str s)
{
    uint32_t id = stacks_string(&w->push->stacks, s);

    w->paths.full |= id == STACKS_FULL;
    return id;
}

static struct str string_at(const struct otlp_walk *w, uint32_t at)
{
    return at == OTLP_NONE ? STR("") : w->o->strings.ptr[at];
}

/* Two of push.c: names of functions, names of files. */
typedef struct str tidy_fn(struct push *p, struct str s, size_t keep, struct buf *tmp);

/* The string of the push for string `at` of the request, made fit by `tidy` at its first use. */
static uint32_t name_id(struct otlp_walk *w, struct seen_string *memo, uint32_t at, tidy_fn *tidy)
{
    struct str s = string_at(w, at);

    if (s.len == 0)
        return 0;
    if (memo[at].epoch != w->epoch) {
        w->work += s.len / NAME_SHARE;
        s = tidy(w->push, s, (size_t)w->l->symbol_keep_bytes, &w->tmp);
        memo[at] = (struct seen_string){ w->epoch, intern(w, s) };
    }
    return memo[at].id;
}

static struct seen_names function_names(struct otlp_walk *w, uint32_t at)
{
    const struct otlp_function *fn = &w->o->functions.ptr[at];
    struct seen_names *seen = &w->memo->functions[at];

    if (seen->epoch == w->epoch)
        return *seen;
    uint32_t name = string_at(w, fn->name).len ? fn->name : fn->system_name;
    seen->name = string_at(w, name).len ? name_id(w, w->memo->symbols, name, push_symbol)
                                        : intern(w, STR(PATHS_NO_NAME));
    seen->file = name_id(w, w->memo->files, fn->file, push_path);
    seen->epoch = w->epoch;
    return *seen;
}

static uint32_t module_name(struct otlp_walk *w, uint32_t mapping)
{
    if (mapping == OTLP_NONE)
        return 0;
    struct seen_names *seen = &w->memo->modules[mapping];
    if (seen->epoch != w->epoch) {
        seen->name = name_id(w, w->memo->files, w->o->mappings.ptr[mapping].file, push_path);
        seen->epoch = w->epoch;
    }
    return seen->name;
}

/* What the linker wrote before what the Go tool wrote, before a hash of the file. */
static struct str find_build_id(struct otlp_walk *w, const struct otlp_mapping *m)
{
    static const char *const keys[] = { "process.executable.build_id.gnu",
                                        "process.executable.build_id.go",
                                        "process.executable.build_id.htlhash",
                                        "process.executable.build_id.profiling" };
    struct str best = STR("");
    size_t rank = ARRAY_LEN(keys);

    for (uint32_t i = m->attrs.from; i < m->attrs.from + m->attrs.len; i++) {
        uint32_t attr = w->o->indices.ptr[i];
        const struct otlp_text *text = attr == OTLP_NONE ? NULL : otlp_text(w->texts, attr);
        for (size_t k = 0; text && k < rank; k++)
            if (str_eqc(text->key, keys[k]) && native_build_id(text->value)) {
                best = text->value;
                rank = k;
            }
    }
    return best;
}

static struct str build_id(struct otlp_walk *w, uint32_t mapping)
{
    struct str *id = &w->memo->builds[mapping];

    if (!id->ptr)
        *id = find_build_id(w, &w->o->mappings.ptr[mapping]);
    return *id;
}

static struct seen_names native_names(struct otlp_walk *w, uint32_t mapping)
{
    const struct otlp_mapping *m = &w->o->mappings.ptr[mapping];
    struct seen_names *seen = &w->memo->natives[mapping];
    size_t keep = (size_t)w->l->symbol_keep_bytes;

    if (seen->epoch == w->epoch)
        return *seen;
    struct str id = build_id(w, mapping);
    if (id.len) {
        w->work += id.len / NAME_SHARE;
        seen->name = intern(w, str_tail(id, keep));
        seen->file = intern(w, str_tail(native_base_name(string_at(w, m->file)), keep));
    } else {
        seen->name = module_name(w, mapping);
        seen->file = 0;
    }
    seen->epoch = w->epoch;
    return *seen;
}

static struct frame native_frame(struct otlp_walk *w, const struct otlp_location *at)
{
    struct frame f = { .addr = at->address };

    if (at->mapping == OTLP_NONE)
        return f;
    const struct otlp_mapping *m = &w->o->mappings.ptr[at->mapping];
    struct seen_names names = native_names(w, at->mapping);
    f.addr = native_offset(at->address, m->start, m->limit, m->offset);
    f.module = names.name;
    f.file = names.file;
    return f;
}

static void add_frame(struct otlp_walk *w, const struct frame *f)
{
    uint32_t id = w->paths.full ? STACKS_FULL : stacks_frame(&w->push->stacks, f);

    w->paths.full |= id == STACKS_FULL;
    if (!w->paths.full)
        vec_push(&w->frames, id);
}

static struct seen_location location_frames(struct otlp_walk *w, uint32_t at)
{
    const struct otlp_location *loc = &w->o->locations.ptr[at];
    struct seen_location *seen = &w->memo->locations[at];

    if (seen->epoch == w->epoch)
        return *seen;
    seen->epoch = w->epoch;
    seen->from = (uint32_t)w->frames.len;
    for (uint32_t i = loc->lines.from; i < loc->lines.from + loc->lines.len; i++) {
        const struct otlp_line *line = &w->o->lines.ptr[i];
        if (line->function == OTLP_NONE)
            continue;
        struct seen_names names = function_names(w, line->function);
        struct frame f = { .func = names.name,
                           .file = names.file,
                           .module = module_name(w, loc->mapping),
                           .line = line->line };
        add_frame(w, &f);
    }
    if (w->frames.len == seen->from && loc->address) {
        struct frame f = native_frame(w, loc);
        add_frame(w, &f);
    }
    seen->len = (uint32_t)w->frames.len - seen->from;
    return *seen;
}

static int walk_stack(struct otlp_walk *w, struct otlp_range list, uint32_t *ret, struct err *e)
{
    w->path_len = 0;
    for (uint32_t i = list.from; i < list.from + list.len; i++) {
        uint32_t at = w->o->indices.ptr[i];
        if (at == OTLP_NONE)
            continue;
        struct seen_location seen = location_frames(w, at);
        if (seen.len > w->l->frames - w->path_len)
            return paths_too_deep(&w->paths, e);
        if (seen.len)
            memcpy(w->path + w->path_len, w->frames.ptr + seen.from, seen.len * sizeof(*w->path));
        w->path_len += seen.len;
    }
    w->work += list.len + w->path_len;
    w->over |= w->work > WORK_MAX;
    if (w->over)
        return err_set(e, ERR_LIMIT,
                       "otlp: the stacks of all profiles together have over %" PRIu64
                       " frames, or %d times as many bytes of names: send them in several requests",
                       WORK_MAX, NAME_SHARE);
    return paths_node(&w->paths, w->path, w->path_len, ret, e);
}

static int find_node(struct otlp_walk *w, uint32_t stack, uint32_t *ret, struct err *e)
{
    if (stack == OTLP_NONE)
        return paths_node(&w->paths, NULL, 0, ret, e);
    struct seen_stack *seen = &w->memo->stacks[stack];
    if (seen->epoch != w->epoch) {
        if (walk_stack(w, w->o->stacks.ptr[stack], &seen->node, e))
            return e->code;
        seen->epoch = w->epoch;
    }
    *ret = seen->node;
    return 0;
}

/* ---- labels --------------------------------------------------------------------------------- */

static uint32_t label_string(struct otlp_walk *w, struct str s)
{
    vec_push(&w->labels.strings, s);
    return (uint32_t)w->labels.strings.len - 1;
}

/* Told apart by a hash, since keys may be long and alike; those that are too long for a label by
 * where they are in the body. */
static uint32_t label_key(struct otlp_walk *w, struct str key)
{
    bool fits = key.len <= w->l->label_name_bytes;
    struct otlp_key k = { .hash = fits ? hash64(key.ptr, key.len, secret_word())
                                       : hash_u64((uint64_t)(uintptr_t)key.ptr) };

    for (size_t i = 0; i < w->keys.len; i++) {
        struct str have = w->labels.strings.ptr[w->keys.ptr[i].string];
        if (w->keys.ptr[i].hash == k.hash &&
            (fits ? str_eq(have, key) : have.ptr == key.ptr && have.len == key.len))
            return w->keys.ptr[i].string;
    }
    k.string = label_string(w, key);
    if (w->keys.len < KEYS_MAX)
        vec_push(&w->keys, k);
    return k.string;
}

/* Numbers that say where a thread happened to run name no series. */
static bool passing(struct str key)
{
    return str_eqc(key, "thread.id") || str_eqc(key, "cpu.logical_number") ||
           str_eqc(key, OTLP_SERVICE);
}

/* False: no room. */
static bool add_pair(struct otlp_walk *w, uint32_t attr, struct pprof_walked *out)
{
    if (attr == OTLP_NONE)
        return true;
    struct seen_pair *seen = &w->memo->attrs[attr];
    if (seen->epoch != w->epoch) {
        const struct otlp_text *text = otlp_text(w->texts, attr);
        if (!text)
            return false;
        *seen = (struct seen_pair){ .epoch = w->epoch };
        if (text->key.len && text->value.len && !passing(text->key)) {
            seen->key = label_key(w, text->key);
            seen->str = label_string(w, text->value);
        }
    }
    struct pprof_pair pair = { seen->key, seen->str };
    if (pair.key)
        vec_push(&out->pairs, pair);
    return true;
}

/* The string of an id of 8 or 16 bytes in hex; 0 for others, and for zeros. */
static bool id_string(struct otlp_walk *w, struct str id, uint32_t *ret)
{
    char hex[HEX_MAX];
    bool any = false;

    *ret = 0;
    if (id.len != 8 && id.len != 16) {
        w->push->drops[CHANGE_EXEMPLAR] += id.len > 0;
        return true;
    }
    for (size_t i = 0; i < id.len; i++)
        any |= id.ptr[i] != 0;
    if (!any)
        return true;
    hex_put(id.ptr, id.len, hex);
    struct str kept = arena_strdup(w->o->arena, str_n(hex, 2 * id.len));
    if (!kept.ptr)
        return false;
    *ret = label_string(w, kept);
    return true;
}

static bool add_link(struct otlp_walk *w, uint32_t link, struct pprof_walked *out)
{
    if (link == OTLP_NONE)
        return true;
    struct seen_pair *seen = &w->memo->links[link];
    if (seen->epoch != w->epoch) {
        const struct otlp_link *at = &w->o->links.ptr[link];
        seen->epoch = w->epoch;
        if (!id_string(w, at->trace, &seen->key) || !id_string(w, at->span, &seen->str))
            return false;
    }
    struct pprof_pair span = { seen->str ? label_key(w, STR("span_id")) : 0, seen->str };
    struct pprof_pair trace = { seen->key ? label_key(w, STR("trace_id")) : 0, seen->key };
    if (span.key)
        vec_push(&out->pairs, span);
    if (trace.key)
        vec_push(&out->pairs, trace);
    return true;
}

static bool add_labels(struct otlp_walk *w, const struct otlp_sample *s, struct pprof_walked *out)
{
    if (out->pairs.len > w->o->bytes_max / PAIRS_SHARE || !add_link(w, s->link, out))
        return false;
    for (uint32_t i = s->attrs.from; i < s->attrs.from + s->attrs.len; i++)
        if (!add_pair(w, w->o->indices.ptr[i], out))
            return false;
    return true;
}

/* ---- samples -------------------------------------------------------------------------------- */

/* The values of a sample, one per type; false if it is left out. */
static bool values_of(struct otlp_walk *w, const struct otlp_sample *s, uint32_t types,
                      uint64_t scale, uint64_t *ret)
{
    const int64_t *v = s->values.len ? w->o->values.ptr + s->values.from : NULL;
    uint64_t any = 0, sum = s->values.len ? 0 : s->timestamps, scaled;

    if ((types > 1 && s->values.len != types) || (s->values.len == 0 && s->timestamps == 0)) {
        w->push->drops[DROP_VALUE_COUNT]++;
        return false;
    }
    for (uint32_t i = 0; i < s->values.len; i++) {
        if (v[i] < 0) {
            w->push->drops[DROP_NEGATIVE]++;
            return false;
        }
        sum = types > 1 ? sum : push_sum(w->push, sum, (uint64_t)v[i]);
        any |= (uint64_t)v[i];
    }
    if (types > 1) {
        for (uint32_t i = 0; i < types; i++)
            ret[i] = (uint64_t)v[i];
        return any > 0;
    }
    if (!u64_mul(sum, scale, &scaled) || scaled > INT64_MAX) {
        w->push->drops[CHANGE_SATURATED]++;
        scaled = INT64_MAX;
    }
    ret[0] = scaled;
    return scaled > 0;
}

static int walk_sample(struct otlp_walk *w, const struct otlp_sample *s, uint32_t types,
                       uint64_t scale, struct pprof_walked *out, struct err *e)
{
    if (!values_of(w, s, types, scale, out->values + out->len * types))
        return 0;
    if (find_node(w, s->stack, &out->nodes[out->len], e))
        return e->code;
    if (!add_labels(w, s, out))
        return push_full(w->push, e);
    out->pairs_end[out->len++] = (uint32_t)out->pairs.len;
    return 0;
}

int otlp_walk(struct otlp_walk *w, const struct otlp_samples *samples, uint64_t scale,
              struct push *push, struct pprof_walked *ret, struct err *e)
{
    const struct otlp_profile *p = samples->p;
    const size_t n = samples->n;
    int rc = 0;

    w->epoch++;
    w->push = push;
    w->frames.len = w->keys.len = w->labels.strings.len = 0;
    vec_push(&w->labels.strings, STR(""));
    w->labels.types_len = p->types.len;
    w->labels.period = p->period;
    if (!pprof_walked_init(push, n, p->types.len, ret))
        return push_full(push, e);
    paths_init(&w->paths, push, w->l);
    for (size_t i = 0; i < n && !rc; i++) {
        pool_slice();
        rc = walk_sample(w, &w->o->samples.ptr[samples->at[i]], p->types.len, scale, ret, e);
    }
    paths_deinit(&w->paths);
    push->samples += n;
    return rc;
}
