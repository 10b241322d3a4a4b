/* SPDX-License-Identifier: Apache-2.0
 *
 * firefox: both layouts of the Firefox Profiler (its docs-developer/gecko-profile-format.md and
 * processed-profile-format.md).
 *
 *   {meta{interval ms}, threads[], processes[profiles again], shared?}, or that under "profile"
 *   raw:       a table is {schema{column: index}, data[rows, maybe shorter]}; stackTable{prefix,
 *              frame}, frameTable{location}, stringTable[]; location is "name (file:line:column)"
 *   processed: a table is {column[], length}; frameTable{func, line}, funcTable{name, fileName,
 *              resource}, resourceTable{name}, stringArray[] of the thread or shared
 *
 * A stack is (prefix, frame) with its prefix before it, so there are no cycles. Samples are counts
 * (weight, if the thread has weights) and time, count times the interval, since the profiler
 * samples by the wall clock; tracing-ms and bytes are what they say. Threads of one name are one
 * series of each kind of value. A name that is an address stands behind the name of its library.
 *
 * Format: proto/FORMATS.md, "Firefox profiles".
 */
#include "distributor/formats/upload/firefox.h"

#include <math.h>

#include "distributor/formats/gather.h"
#include "distributor/formats/upload/firefox_table.h"

#define PROCESS_DEPTH_MAX 8
#define NONE              FIREFOX_NONE

enum weight { WEIGHT_SAMPLES, WEIGHT_MS, WEIGHT_BYTES };
enum table { TABLE_SAMPLES, TABLE_STACKS, TABLE_FRAMES, TABLE_FUNCS, TABLE_RESOURCES, TABLES };
enum column {
    SAMPLE_STACK = 0,
    STACK_FRAME = 0,
    STACK_PREFIX,
    STACK_OFFSET, /* newer files: how far back the prefix is */
    FRAME_FUNC = 0,
    FRAME_LINE,
    FRAME_LOCATION, /* raw; instead of the two */
    FUNC_NAME = 0,
    FUNC_FILE,
    FUNC_RESOURCE,
    RESOURCE_NAME = 0,
};
static const struct firefox_want wants[TABLES] = {
    [TABLE_SAMPLES] = { { "stack" }, 1, "weight" },
    [TABLE_STACKS] = { { "frame", "prefix", "prefixOffset" }, 3, NULL },
    [TABLE_FRAMES] = { { "func", "line", "location" }, 3, NULL },
    [TABLE_FUNCS] = { { "name", "fileName", "resource" }, 3, NULL },
    [TABLE_RESOURCES] = { { "name" }, 1, NULL },
};
/* Members of a thread, and of what its threads share. */
static const char *const thread_names[] = { "samples",     "stackTable",    "frameTable",
                                            "funcTable",   "resourceTable", "stringArray",
                                            "stringTable", "name" };
enum { STRING_ARRAY = TABLES, STRING_TABLE, THREAD_NAME };

struct thread {
    struct str name;
    struct str tables[TABLES], strings; /* where they are */
    double interval_ms;
    enum weight weight;
    bool taken;
};
/* A stack of the table, once it was asked for. */
struct link {
    uint32_t frame; /* number of our frame; NONE: not read so far */
    uint32_t prefix, node;
};
/* The tables may be shared by any number of threads: what one of them looked at is forgotten for
 * the next, not all that is there. */
struct reader {
    struct gather g;
    struct jpull j; /* at the beginning of the file */
    struct firefox_table tables[TABLES];
    struct firefox_strings strings;
    VEC(struct thread) threads;            /* owned */
    VEC(uint32_t) frames;                  /* owned; by row of frameTable, NONE until needed */
    VEC(struct link) links;                /* owned; by row of stackTable */
    VEC(uint32_t) frames_used, links_used; /* rows that this thread looked at */
    VEC(uint32_t) stack;                   /* owned; scratch */
    size_t frames_len, links_len;          /* rows of this thread's tables */
    size_t now;                            /* the thread whose tables are read; SIZE_MAX: none */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "Firefox profile: %s", what);
}

static int read_failed(struct err *e)
{
    return err_wrap(e, "Firefox profile");
}

/* ---- tables ---------------------------------------------------------------------------------- */

static uint32_t at_of(const struct reader *r, enum table table, size_t column, uint32_t row)
{
    return firefox_table_at(&r->tables[table], column, row);
}

static size_t len_of(const struct reader *r, enum table table, size_t column)
{
    return firefox_table_len(&r->tables[table], column);
}

/* A reference must be below `limit`, or NONE. */
static int check_ref(uint32_t ref, uint64_t limit, struct err *e)
{
    return ref != NONE && ref >= limit ? bad(e, "a reference beyond the end of its table") : 0;
}

static int take_text(struct reader *r, uint32_t at, struct str *ret, struct err *e)
{
    *ret = STR_NULL;
    if (check_ref(at, r->strings.at.len, e))
        return e->code;
    return at == NONE ? 0 : firefox_string(&r->strings, &r->j, at, ret, e);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* "name (file:line:column)", "name (file:line)" */
static void split_location(struct str text, struct str *name, struct str *file, uint32_t *line)
{
    const char *open = text.len ? memmem(text.ptr, text.len, " (", 2) : NULL;
    uint64_t n, unused;

    *name = text;
    if (!open || text.ptr[text.len - 1] != ')')
        return;
    struct str in = str_sub(text, (size_t)(open - text.ptr) + 2, text.len - 1);
    ptrdiff_t colon = str_rfind(in, ':');
    if (colon <= 0 || !str_u64(str_sub(in, (size_t)colon + 1, in.len), &n))
        return;
    struct str front = str_sub(in, 0, (size_t)colon);
    colon = str_rfind(front, ':');
    if (colon > 0 && str_u64(str_sub(front, (size_t)colon + 1, front.len), &unused)) {
        n = unused; /* what stood behind it was the column */
        front = str_sub(front, 0, (size_t)colon);
    }
    *name = str_sub(text, 0, (size_t)(open - text.ptr));
    *file = front;
    *line = n < INT32_MAX ? (uint32_t)n : 0;
}

static int raw_frame(struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    struct str text, name, file = STR_NULL;
    uint32_t line = 0;

    if (take_text(r, at_of(r, TABLE_FRAMES, FRAME_LOCATION, at), &text, e))
        return e->code;
    split_location(text, &name, &file, &line);
    if (gather_check_name(&r->g, name, "frame", at, e))
        return e->code;
    *ret = gather_frame(&r->g, name, file, line);
    return 0;
}

/* Of an address without symbol, "0x1f": the library before it. */
static struct str with_library(struct reader *r, uint32_t func, struct str name, struct err *e)
{
    struct str text = STR_NULL;
    uint32_t at;

    if (!str_starts(name, STR("0x")))
        return name;
    at = at_of(r, TABLE_FUNCS, FUNC_RESOURCE, func);
    if (at >= len_of(r, TABLE_RESOURCES, RESOURCE_NAME) ||
        take_text(r, at_of(r, TABLE_RESOURCES, RESOURCE_NAME, at), &text, e) || !text.len)
        return name;
    char *to = arena_alloc(r->g.push->arena, text.len + name.len + 1);
    if (!to)
        return name;
    memcpy(to, text.ptr, text.len);
    to[text.len] = '!';
    memcpy(to + text.len + 1, name.ptr, name.len);
    return str_n(to, text.len + 1 + name.len);
}

static int processed_frame(struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    const uint32_t f = at_of(r, TABLE_FRAMES, FRAME_FUNC, at);
    const uint32_t line = at_of(r, TABLE_FRAMES, FRAME_LINE, at);
    struct str name = STR_NULL, file = STR_NULL;

    if (check_ref(f, len_of(r, TABLE_FUNCS, FUNC_NAME), e) || check_ref(line, INT32_MAX, e))
        return e->code;
    if (f != NONE && (take_text(r, at_of(r, TABLE_FUNCS, FUNC_NAME, f), &name, e) ||
                      take_text(r, at_of(r, TABLE_FUNCS, FUNC_FILE, f), &file, e)))
        return e->code;
    if (gather_check_name(&r->g, name, "frame", at, e) ||
        gather_check_name(&r->g, file, "file of frame", at, e))
        return e->code;
    if (f != NONE)
        name = with_library(r, f, name, e);
    *ret = gather_frame(&r->g, name, file, line == NONE ? 0 : line);
    return 0;
}

static int frame_of(struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    if (r->frames.ptr[at] == NONE) {
        vec_push(&r->frames_used, at);
        if (r->tables[TABLE_FRAMES].raw ? raw_frame(r, at, &r->frames.ptr[at], e)
                                        : processed_frame(r, at, &r->frames.ptr[at], e))
            return e->code;
    }
    *ret = r->frames.ptr[at];
    return *ret == STACKS_FULL ? push_full(r->g.push, e) : 0;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Newer files say how far back the prefix is, with 0 for none. */
static int prefix_of(const struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    if (r->tables[TABLE_STACKS].has[STACK_PREFIX]) {
        *ret = at_of(r, TABLE_STACKS, STACK_PREFIX, at);
        return check_ref(*ret, at, e); /* below `at`: no cycles */
    }
    const uint32_t back = at_of(r, TABLE_STACKS, STACK_OFFSET, at);
    if (check_ref(back, (uint64_t)at + 1, e))
        return e->code;
    *ret = back == NONE || back == 0 ? NONE : at - back;
    return 0;
}

/* Reads row `at` of the stack table. */
static int find_link(struct reader *r, uint32_t at, struct err *e)
{
    struct link *l = &r->links.ptr[at];

    if (l->frame != NONE)
        return 0;
    const uint32_t frame = at_of(r, TABLE_STACKS, STACK_FRAME, at);
    if (check_ref(frame, r->frames_len, e))
        return e->code;
    if (frame == NONE)
        return bad(e, "a stack without a frame");
    vec_push(&r->links_used, at);
    return frame_of(r, frame, &l->frame, e) || prefix_of(r, at, &l->prefix, e) ? e->code : 0;
}

static int node_of(struct reader *r, uint32_t at, uint32_t *ret, struct err *e)
{
    if (r->links.ptr[at].node != NONE) {
        *ret = r->links.ptr[at].node;
        return 0;
    }
    r->stack.len = 0;
    for (uint32_t i = at; i != NONE; i = r->links.ptr[i].prefix) {
        if (r->stack.len > r->g.l->text_frames)
            return err_set(e, ERR_LIMIT, "Firefox profile: a stack of more than %" PRIu64 " frames",
                           r->g.l->text_frames);
        if (find_link(r, i, e))
            return e->code;
        vec_push(&r->stack, r->links.ptr[i].frame);
    }
    for (size_t i = 0, k = r->stack.len; i + 1 < k; i++, k--) {
        uint32_t swap = r->stack.ptr[i];
        r->stack.ptr[i] = r->stack.ptr[k - 1];
        r->stack.ptr[k - 1] = swap;
    }
    const struct gather_stack s = { .ids = r->stack.ptr, .n = r->stack.len };
    if (gather_node(&r->g, &s, "stack", at, &r->links.ptr[at].node, e))
        return e->code;
    *ret = r->links.ptr[at].node;
    return 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Nothing is known of the tables of this thread. */
static int forget(struct reader *r, struct err *e)
{
    const struct link unknown = { NONE, NONE, NONE };

    vec_for (i, &r->frames_used)
        r->frames.ptr[r->frames_used.ptr[i]] = NONE;
    vec_for (i, &r->links_used)
        r->links.ptr[r->links_used.ptr[i]] = unknown;
    r->frames_used.len = r->links_used.len = 0;
    r->frames_len = r->tables[TABLE_FRAMES].raw ? r->tables[TABLE_FRAMES].rows
                                                : len_of(r, TABLE_FRAMES, FRAME_FUNC);
    r->links_len = len_of(r, TABLE_STACKS, STACK_FRAME);
    const size_t frames = r->frames_len - MIN(r->frames_len, r->frames.len);
    const size_t links = r->links_len - MIN(r->links_len, r->links.len);
    if (gather_charge(&r->g, frames * 3 * sizeof(uint32_t), e) ||
        gather_charge(&r->g, links * (2 * sizeof(unknown) + sizeof(uint32_t)), e))
        return e->code;
    while (r->frames.len < r->frames_len)
        vec_push(&r->frames, NONE);
    while (r->links.len < r->links_len)
        vec_push(&r->links, unknown);
    return 0;
}

/* Reads the tables of a thread, unless they are there. */
static int open_thread(struct reader *r, size_t at, struct err *e)
{
    const struct thread *t = &r->threads.ptr[at];

    if (r->now == at)
        return 0;
    r->now = SIZE_MAX;
    for (int i = 0; i < TABLES; i++)
        if (firefox_table_read(&r->tables[i], &r->j, t->tables[i], &wants[i], &r->g, e))
            return e->code;
    if (firefox_strings_read(&r->strings, &r->j, t->strings, &r->g, e) || forget(r, e))
        return e->code;
    r->now = at;
    return 0;
}

/* The samples of a thread, each worth its weight times `scale`. */
static int put_thread(struct reader *r, size_t thread, double scale, struct err *e)
{
    uint32_t node = NONE;

    if (open_thread(r, thread, e))
        return e->code;
    const size_t n = len_of(r, TABLE_SAMPLES, SAMPLE_STACK);
    if (n > r->g.l->samples)
        return err_set(e, ERR_LIMIT,
                       "Firefox profile: more than %" PRIu64
                       " samples: record for a shorter time, or raise distributor.samples",
                       r->g.l->samples);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = at_of(r, TABLE_SAMPLES, SAMPLE_STACK, i);
        if (check_ref(at, r->links_len, e))
            return e->code;
        if (at == NONE)
            continue; /* the thread was not there, or nothing ran */
        const double weight = firefox_table_weight(&r->tables[TABLE_SAMPLES], i) * scale;
        if (!(weight < 9.0e18))
            return bad(e, "a weight beyond 2^63");
        if (weight < 0) { /* freed memory */
            r->g.push->drops[DROP_NEGATIVE]++;
            continue;
        }
        if (node_of(r, at, &node, e))
            return e->code;
        gather_put(&r->g, node, (uint64_t)llround(weight));
    }
    return 0;
}

/* What the threads of one name come to. */
enum value { VALUE_TIME, VALUE_COUNT, VALUE_BYTES };

static const struct ptype types[] = {
    [VALUE_TIME] = { { "wall", 4 },
                     { "wall", 4 },
                     { "nanoseconds", 11 },
                     { "wall", 4 },
                     { "nanoseconds", 11 } },
    [VALUE_COUNT] = { { "wall", 4 },
                      { "samples", 7 },
                      { "count", 5 },
                      { "wall", 4 },
                      { "nanoseconds", 11 } },
    [VALUE_BYTES] = { { "memory", 6 },
                      { "alloc_space", 11 },
                      { "bytes", 5 },
                      { "space", 5 },
                      { "bytes", 5 } },
};

/* Times of samples and times that the file says are one series: what is not bytes. */
static bool same_series(const struct thread *a, const struct thread *b)
{
    return str_eq(a->name, b->name) && (a->weight == WEIGHT_BYTES) == (b->weight == WEIGHT_BYTES);
}

/* All threads of that name, as one series. */
static int add_series(struct reader *r, size_t first, enum value value, struct err *e)
{
    const struct thread *t = &r->threads.ptr[first];
    struct label pair = { .name = STR("thread_name"), .value = t->name };
    const struct labels extra = { .ptr = &pair, .len = pair.value.len ? 1 : 0 };

    if (r->g.push->series_len >= r->g.l->series)
        return err_set(e, ERR_LIMIT, "Firefox profile: more than %" PRIu64 " series, two a thread",
                       r->g.l->series);
    for (size_t i = first; i < r->threads.len; i++) {
        const struct thread *next = &r->threads.ptr[i];
        if (next->taken || !same_series(next, t) ||
            (value == VALUE_COUNT && next->weight != WEIGHT_SAMPLES))
            continue;
        double scale = value != VALUE_TIME         ? 1
                       : next->weight == WEIGHT_MS ? 1e6
                                                   : next->interval_ms * 1e6;
        if (put_thread(r, i, scale, e))
            return e->code;
    }
    return gather_series(&r->g, &types[value], &extra, e);
}

static int take_threads(struct reader *r, struct err *e)
{
    for (size_t i = 0; i < r->threads.len; i++) {
        const struct thread *t = &r->threads.ptr[i];
        if (t->taken)
            continue;
        if (t->weight == WEIGHT_BYTES
                ? add_series(r, i, VALUE_BYTES, e)
                : add_series(r, i, VALUE_TIME, e) || add_series(r, i, VALUE_COUNT, e))
            return e->code;
        for (size_t k = r->threads.len; k-- > i;)
            r->threads.ptr[k].taken |= same_series(&r->threads.ptr[k], t);
    }
    return 0;
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* The members of a thread, or of what all threads share. */
static int read_parts(struct reader *r, struct str text, struct str parts[THREAD_NAME],
                      struct str *ret_name, struct err *e)
{
    struct jpull_obj obj;
    struct jpull j;
    size_t which;

    if (!text.len)
        return 0;
    jpull_part(&r->j, text, &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, thread_names, ARRAY_LEN(thread_names), &which))
            (void)(which < THREAD_NAME                ? jpull_value(&j, &parts[which])
                   : which == THREAD_NAME && ret_name ? jpull_string(&j, ret_name)
                                                      : jpull_skip(&j));
    return j.bad ? read_failed(e) : 0;
}

static int weight_of(struct reader *r, struct str samples, enum weight *ret, struct err *e)
{
    static const char *const names[] = { "weightType" };
    struct str type = STR_NULL;
    struct jpull_obj obj;
    struct jpull j;
    size_t which;

    jpull_part(&r->j, samples, &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0 && jpull_peek(&j) == '"' ? jpull_string(&j, &type) : jpull_skip(&j));
    *ret = str_eqc(type, "tracing-ms") ? WEIGHT_MS
           : str_eqc(type, "bytes")    ? WEIGHT_BYTES
                                       : WEIGHT_SAMPLES;
    return j.bad ? read_failed(e) : 0;
}

static int add_thread(struct reader *r, struct str text, const struct str shared[THREAD_NAME],
                      double interval, struct err *e)
{
    struct str parts[THREAD_NAME] = { STR_NULL };
    struct thread t = { .interval_ms = interval };

    if (!text.len || text.ptr[0] != '{')
        return bad(e, "a thread that is not an object");
    if (read_parts(r, text, parts, &t.name, e))
        return e->code;
    for (int i = 0; i < TABLES; i++) /* newer files keep some tables for all threads together */
        t.tables[i] = parts[i].len ? parts[i] : shared[i];
    t.strings = parts[STRING_ARRAY].len ? parts[STRING_ARRAY] : parts[STRING_TABLE];
    t.strings = t.strings.len ? t.strings : shared[STRING_ARRAY];
    t.name = str_tail(t.name, (size_t)r->g.l->label_value_bytes);
    if (firefox_table_read(&r->tables[TABLE_SAMPLES], &r->j, t.tables[TABLE_SAMPLES],
                           &wants[TABLE_SAMPLES], &r->g, e))
        return e->code;
    const size_t n = len_of(r, TABLE_SAMPLES, SAMPLE_STACK);
    if (!n)
        return 0;
    r->g.push->samples += n;
    if (r->threads.len >= r->g.l->series)
        return err_set(e, ERR_LIMIT, "Firefox profile: more than %" PRIu64 " threads",
                       r->g.l->series);
    if (weight_of(r, t.tables[TABLE_SAMPLES], &t.weight, e))
        return e->code;
    vec_push(&r->threads, t);
    return 0;
}

static int interval_of(struct reader *r, struct str meta, double *ret, struct err *e)
{
    static const char *const names[] = { "interval" };
    struct jpull_obj obj;
    struct jpull j;
    size_t which;

    *ret = 1;
    if (!meta.len)
        return 0;
    jpull_part(&r->j, meta, &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0 ? jpull_real(&j, "interval", ret) : jpull_skip(&j));
    return j.bad || !(*ret > 0 && *ret < 1e9) ? bad(e, "meta.interval is not a time") : 0;
}

/* A profile whose processes are being read. */
struct level {
    struct jpull j;
    struct jpull_it it;
    bool any;
};

static int open_profile(struct reader *r, struct str text, struct level *ret, struct err *e)
{
    static const char *const names[] = { "meta", "shared", "threads", "processes" };
    struct str parts[4] = { STR_NULL }, shared[THREAD_NAME] = { STR_NULL }, one;
    struct jpull_obj obj;
    struct jpull_it it;
    double interval;
    struct jpull j;
    size_t which;

    jpull_part(&r->j, text, &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which < 4 ? jpull_value(&j, &parts[which]) : jpull_skip(&j));
    if (j.bad)
        return read_failed(e);
    if (interval_of(r, parts[0], &interval, e) || read_parts(r, parts[1], shared, NULL, e))
        return e->code;
    jpull_part(&r->j, parts[2], &j);
    if (parts[2].len && jpull_array(&j, &it))
        while (jpull_element(&j, &it))
            if (!jpull_value(&j, &one) || add_thread(r, one, shared, interval, e))
                return j.bad ? read_failed(e) : e->code;
    jpull_part(&r->j, parts[3], &ret->j);
    ret->any = parts[3].len && jpull_array(&ret->j, &ret->it);
    return 0;
}

/* Processes are profiles within a profile; nesting ends where JSON's does, and earlier. */
static int read_profile(struct reader *r, struct str root, struct err *e)
{
    struct level levels[PROCESS_DEPTH_MAX + 1];
    size_t depth = 1;
    struct str one;

    if (open_profile(r, root, &levels[0], e))
        return e->code;
    while (depth) {
        struct level *top = &levels[depth - 1];
        if (!top->any || !jpull_element(&top->j, &top->it)) {
            depth--;
            continue;
        }
        if (depth > PROCESS_DEPTH_MAX)
            return err_set(e, ERR_LIMIT, "Firefox profile: processes nested deeper than %d",
                           PROCESS_DEPTH_MAX);
        if (!jpull_value(&top->j, &one))
            return read_failed(e);
        if (!one.len)
            continue;
        if (open_profile(r, one, &levels[depth], e))
            return e->code;
        depth++;
    }
    return r->threads.len ? take_threads(r, e) : bad(e, "no thread has samples");
}

/* The profile itself, or what the file has under this name. */
static int find_profile(struct reader *r, struct str text, struct str *ret, struct err *e)
{
    static const char *const names[] = { "profile" };
    struct str inner = STR_NULL;
    struct jpull j = r->j;
    struct jpull_obj obj;
    size_t which;

    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, names, ARRAY_LEN(names), &which))
            (void)(which == 0 ? jpull_value(&j, &inner) : jpull_skip(&j));
    *ret = inner.len && inner.ptr[0] == '{' ? inner : text;
    return j.bad ? read_failed(e) : 0;
}

int firefox_push(struct str text, const struct limits *l, struct push *push, struct err *e)
{
    struct reader r = { .now = SIZE_MAX };
    struct str root;

    gather_init(&r.g, push, l, 1);
    jpull_init_checked(&r.j, text, push->arena, e);
    int rc = find_profile(&r, text, &root, e);
    if (!rc)
        rc = read_profile(&r, root, e);
    for (int i = 0; i < TABLES; i++)
        firefox_table_deinit(&r.tables[i]);
    vec_free(&r.strings.at);
    vec_free(&r.threads);
    vec_free(&r.frames);
    vec_free(&r.links);
    vec_free(&r.frames_used);
    vec_free(&r.links_used);
    vec_free(&r.stack);
    gather_deinit(&r.g);
    return rc;
}
