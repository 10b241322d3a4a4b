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
 * series. A name that is an address stands behind the name of its library.
 */
#include "distributor/formats/upload/firefox.h"

#include <math.h>

#include "common/net/json_in.h"
#include "distributor/formats/gather.h"

#define PROCESS_DEPTH_MAX 8
#define NONE              UINT32_MAX

struct thread {
    struct str name;
    const struct json_val *json, *shared, *strings;
    double interval_ms;
    bool taken;
};
/* A stack of the table, once somebody asked for it. */
struct link {
    uint32_t frame; /* of ours; NONE: not looked at so far */
    uint32_t prefix, node;
};
/* The tables may be shared by any number of threads: what one of them looked at is forgotten for
 * the next, not all that is there. */
struct reader {
    struct gather g;
    VEC(struct thread) threads;            /* owned */
    VEC(uint32_t) frames;                  /* owned; by row of frameTable, NONE until needed */
    VEC(struct link) links;                /* owned; by row of stackTable */
    VEC(uint32_t) frames_used, links_used; /* rows that this thread looked at */
    VEC(uint32_t) stack;                   /* owned; scratch */
    size_t frames_len, links_len;          /* rows of this thread's tables */
};
/* A column of a table of either layout. */
struct column {
    const struct json_val *rows; /* raw: rows; processed: the column */
    int64_t index;               /* raw; -1: processed */
};

static int bad(struct err *e, const char *what)
{
    return err_set(e, ERR_INPUT, "Firefox profile: %s", what);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Newer files keep some tables for all threads together. */
static const struct json_val *table_of(const struct thread *t, const char *table)
{
    const struct json_val *own = json_get(t->json, table, NULL);

    return own ? own : json_get(t->shared, table, NULL);
}

static struct column column_of(const struct thread *thread, const char *table, const char *name)
{
    const struct json_val *t = table_of(thread, table);
    const struct json_val *schema = json_get(t, "schema", NULL);
    struct column c = { .index = -1 };
    struct err ignored;

    if (!schema) {
        c.rows = json_get(t, name, NULL);
    } else if (json_take_i64(json_get(schema, name, NULL), name, &c.index, &ignored) == 0 &&
               c.index >= 0) {
        c.rows = json_get(t, "data", NULL);
    }
    return c;
}

static const struct json_val *cell(const struct column *c, size_t row)
{
    const struct json_val *v = json_at(c->rows, row);

    return c->index >= 0 ? json_at(v, (size_t)c->index) : v;
}

/* A reference below `limit`, or NONE for null. */
static int take_ref(const struct json_val *v, uint64_t limit, uint32_t *ret, struct err *e)
{
    int64_t i = -1;

    *ret = NONE;
    if (json_take_i64(v, "reference", &i, e))
        return err_wrap(e, "Firefox profile");
    if (i < 0)
        return 0;
    if ((uint64_t)i >= limit)
        return bad(e, "a reference beyond the end of its table");
    *ret = (uint32_t)i;
    return 0;
}

static int take_text(const struct thread *t, const struct json_val *v, struct str *ret,
                     struct err *e)
{
    uint32_t at;

    *ret = STR_NULL;
    if (take_ref(v, json_len(t->strings), &at, e))
        return e->code;
    return at == NONE ? 0 : json_take_str(json_at(t->strings, at), "string", ret, e);
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

static int raw_frame(struct reader *r, const struct thread *t, size_t at, uint32_t *ret,
                     struct err *e)
{
    const struct column location = column_of(t, "frameTable", "location");
    struct str text, name, file = STR_NULL;
    uint32_t line = 0;

    if (take_text(t, cell(&location, at), &text, e))
        return e->code;
    split_location(text, &name, &file, &line);
    if (gather_check_name(&r->g, name, "frame", at, e))
        return e->code;
    *ret = gather_frame(&r->g, name, file, line);
    return 0;
}

/* Of an address without symbol, "0x1f": the library before it. */
static struct str with_library(struct reader *r, const struct thread *t, uint32_t func,
                               struct str name, struct err *e)
{
    const struct column resource = column_of(t, "funcTable", "resource");
    const struct column lib = column_of(t, "resourceTable", "name");
    struct str text = STR_NULL;
    uint32_t at;

    if (!str_starts(name, STR("0x")) ||
        take_ref(cell(&resource, func), json_len(lib.rows), &at, e) || at == NONE ||
        take_text(t, cell(&lib, at), &text, e) || !text.len)
        return name;
    char *to = arena_alloc(r->g.push->arena, text.len + name.len + 1);
    if (!to)
        return name;
    memcpy(to, text.ptr, text.len);
    to[text.len] = '!';
    memcpy(to + text.len + 1, name.ptr, name.len);
    return str_n(to, text.len + 1 + name.len);
}

static int processed_frame(struct reader *r, const struct thread *t, size_t at, uint32_t *ret,
                           struct err *e)
{
    const struct column func = column_of(t, "frameTable", "func");
    const struct column line = column_of(t, "frameTable", "line");
    const struct column names = column_of(t, "funcTable", "name");
    const struct column files = column_of(t, "funcTable", "fileName");
    struct str name = STR_NULL, file = STR_NULL;
    uint32_t f, no = 0;

    if (take_ref(cell(&func, at), json_len(names.rows), &f, e) ||
        take_ref(cell(&line, at), INT32_MAX, &no, e))
        return e->code;
    if (f != NONE &&
        (take_text(t, cell(&names, f), &name, e) || take_text(t, cell(&files, f), &file, e)))
        return e->code;
    if (gather_check_name(&r->g, name, "frame", at, e) ||
        gather_check_name(&r->g, file, "file of frame", at, e))
        return e->code;
    if (f != NONE)
        name = with_library(r, t, f, name, e);
    *ret = gather_frame(&r->g, name, file, no == NONE ? 0 : no);
    return 0;
}

static int frame_of(struct reader *r, const struct thread *t, uint32_t at, uint32_t *ret,
                    struct err *e)
{
    const bool raw = json_get(table_of(t, "frameTable"), "schema", NULL);

    if (r->frames.ptr[at] == NONE) {
        vec_push(&r->frames_used, at);
        if (raw ? raw_frame(r, t, at, &r->frames.ptr[at], e)
                : processed_frame(r, t, at, &r->frames.ptr[at], e))
            return e->code;
    }
    *ret = r->frames.ptr[at];
    return *ret == STACKS_FULL ? push_full(r->g.push, e) : 0;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* Newer files say how far back the prefix is, with 0 for none. */
static int prefix_of(const struct thread *t, uint32_t at, uint32_t *ret, struct err *e)
{
    const struct column prefix = column_of(t, "stackTable", "prefix");
    const struct column offset = column_of(t, "stackTable", "prefixOffset");
    uint32_t back;

    if (prefix.rows)
        return take_ref(cell(&prefix, at), at, ret, e); /* below `at`: no cycles */
    if (take_ref(cell(&offset, at), (uint64_t)at + 1, &back, e))
        return e->code;
    *ret = back == NONE || back == 0 ? NONE : at - back;
    return 0;
}

/* Reads row `at` of the stack table. */
static int find_link(struct reader *r, const struct thread *t, uint32_t at, struct err *e)
{
    struct link *l = &r->links.ptr[at];
    uint32_t frame = NONE;

    if (l->frame != NONE)
        return 0;
    const struct column frames = column_of(t, "stackTable", "frame");
    if (take_ref(cell(&frames, at), r->frames_len, &frame, e))
        return e->code;
    if (frame == NONE)
        return bad(e, "a stack without a frame");
    vec_push(&r->links_used, at);
    return frame_of(r, t, frame, &l->frame, e) || prefix_of(t, at, &l->prefix, e) ? e->code : 0;
}

static int node_of(struct reader *r, const struct thread *t, uint32_t at, uint32_t *ret,
                   struct err *e)
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
        if (find_link(r, t, i, e))
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

enum weight { WEIGHT_SAMPLES, WEIGHT_MS, WEIGHT_BYTES };

static enum weight weight_of(const struct thread *t)
{
    struct str type = STR_NULL;
    struct err ignored;

    if (json_take_str(json_get(json_get(t->json, "samples", NULL), "weightType", NULL), "type",
                      &type, &ignored))
        return WEIGHT_SAMPLES;
    return str_eqc(type, "tracing-ms") ? WEIGHT_MS
           : str_eqc(type, "bytes")    ? WEIGHT_BYTES
                                       : WEIGHT_SAMPLES;
}

/* Nothing is known of the tables of this thread. */
static void forget(struct reader *r, const struct thread *t)
{
    const struct column table = column_of(t, "stackTable", "frame");
    const struct column func = column_of(t, "frameTable", "func");
    const struct json_val *frames = table_of(t, "frameTable");
    const struct link unknown = { NONE, NONE, NONE };

    vec_for (i, &r->frames_used)
        r->frames.ptr[r->frames_used.ptr[i]] = NONE;
    vec_for (i, &r->links_used)
        r->links.ptr[r->links_used.ptr[i]] = unknown;
    r->frames_used.len = r->links_used.len = 0;
    r->frames_len = json_len(func.rows ? func.rows : json_get(frames, "data", NULL));
    r->links_len = json_len(table.rows);
    while (r->frames.len < r->frames_len)
        vec_push(&r->frames, NONE);
    while (r->links.len < r->links_len)
        vec_push(&r->links, unknown);
}

/* The samples of a thread, each worth its weight times `scale`. */
static int put_thread(struct reader *r, const struct thread *t, double scale, struct err *e)
{
    const struct column stacks = column_of(t, "samples", "stack");
    const struct column weights = column_of(t, "samples", "weight");
    const size_t n = json_len(stacks.rows);
    uint32_t at = NONE, node = NONE;

    if (n > r->g.l->samples)
        return err_set(e, ERR_LIMIT, "Firefox profile: more than %" PRIu64 " samples",
                       r->g.l->samples);
    forget(r, t);
    for (size_t i = 0; i < n; i++) {
        double weight = 1;
        if (take_ref(cell(&stacks, i), r->links_len, &at, e))
            return e->code;
        if (at == NONE)
            continue; /* the thread was not there, or nothing ran */
        if (json_take_double(cell(&weights, i), "weight", &weight, e))
            return err_wrap(e, "Firefox profile");
        weight *= scale;
        if (!(weight < 9.0e18))
            return bad(e, "a weight beyond 2^63");
        if (weight < 0) { /* freed memory */
            r->g.push->drops[DROP_NEGATIVE]++;
            continue;
        }
        if (node_of(r, t, at, &node, e))
            return e->code;
        gather_put(&r->g, node, (uint64_t)llround(weight));
    }
    return 0;
}

/* All threads of that name and kind of weight, as one series. */
static int add_series(struct reader *r, size_t first, enum weight weight, bool time, struct err *e)
{
    const struct thread *t = &r->threads.ptr[first];
    struct label pair = { .name = STR("thread_name"), .value = t->name };
    const struct labels extra = { .ptr = &pair, .len = pair.value.len ? 1 : 0 };
    const struct ptype type = {
        .name = weight == WEIGHT_BYTES ? STR("memory") : STR("wall"),
        .sample_type = weight == WEIGHT_BYTES ? STR("alloc_space")
                       : time                 ? STR("wall")
                                              : STR("samples"),
        .sample_unit = weight == WEIGHT_BYTES ? STR("bytes")
                       : time                 ? STR("nanoseconds")
                                              : STR("count"),
        .period_type = weight == WEIGHT_BYTES ? STR("space") : STR("wall"),
        .period_unit = weight == WEIGHT_BYTES ? STR("bytes") : STR("nanoseconds"),
    };

    if (r->g.push->series_len >= r->g.l->series)
        return err_set(e, ERR_LIMIT, "Firefox profile: more than %" PRIu64 " series, two a thread",
                       r->g.l->series);
    for (size_t i = first; i < r->threads.len; i++) {
        struct thread *next = &r->threads.ptr[i];
        if (next->taken || !str_eq(next->name, t->name) || weight_of(next) != weight)
            continue;
        double scale = weight == WEIGHT_MS                ? 1e6
                       : weight == WEIGHT_SAMPLES && time ? next->interval_ms * 1e6
                                                          : 1;
        if (put_thread(r, next, scale, e))
            return e->code;
    }
    return gather_series(&r->g, &type, &extra, e);
}

static int take_threads(struct reader *r, struct err *e)
{
    for (size_t i = 0; i < r->threads.len; i++) {
        if (r->threads.ptr[i].taken)
            continue;
        const enum weight weight = weight_of(&r->threads.ptr[i]);
        if (add_series(r, i, weight, true, e) ||
            (weight == WEIGHT_SAMPLES && add_series(r, i, weight, false, e)))
            return e->code;
        for (size_t k = r->threads.len; k-- > i;)
            if (str_eq(r->threads.ptr[k].name, r->threads.ptr[i].name) &&
                weight_of(&r->threads.ptr[k]) == weight)
                r->threads.ptr[k].taken = true;
    }
    return 0;
}

/* ---- profiles -------------------------------------------------------------------------------- */

static int add_thread(struct reader *r, const struct json_val *profile, const struct json_val *v,
                      double interval, struct err *e)
{
    struct thread t = { .json = v,
                        .shared = json_get(profile, "shared", NULL),
                        .interval_ms = interval };

    if (!json_is_obj(v) || json_take_str(json_get(v, "name", NULL), "name", &t.name, e))
        return bad(e, "a thread that is no object, or has an odd name");
    t.strings = json_get(v, "stringArray", "stringTable");
    if (!t.strings)
        t.strings = json_get(t.shared, "stringArray", NULL);
    t.name = str_tail(t.name, (size_t)r->g.l->label_value_bytes);
    const struct column stacks = column_of(&t, "samples", "stack");
    if (!json_len(stacks.rows))
        return 0;
    r->g.push->samples += json_len(stacks.rows);
    if (r->threads.len >= r->g.l->series)
        return err_set(e, ERR_LIMIT, "Firefox profile: more than %" PRIu64 " threads",
                       r->g.l->series);
    vec_push(&r->threads, t);
    return 0;
}

/* Processes are profiles within a profile; nesting ends where JSON's does, and earlier. */
static int read_profile(struct reader *r, const struct json_val *root, struct err *e)
{
    const struct json_val *todo[PROCESS_DEPTH_MAX + 1] = { root };
    size_t at[PROCESS_DEPTH_MAX + 1] = { 0 }, depth = 1;

    while (depth) {
        const struct json_val *p = todo[depth - 1];
        const struct json_val *processes = json_get(p, "processes", NULL);
        if (at[depth - 1] == 0) {
            const struct json_val *list = json_get(p, "threads", NULL);
            double interval = 1;
            if (json_take_double(json_get(json_get(p, "meta", NULL), "interval", NULL), "interval",
                                 &interval, e) ||
                !(interval > 0 && interval < 1e9))
                return bad(e, "meta.interval is no time");
            for (size_t i = 0; i < json_len(list); i++)
                if (add_thread(r, p, json_at(list, i), interval, e))
                    return e->code;
        }
        if (at[depth - 1] >= json_len(processes)) {
            depth--;
            continue;
        }
        if (depth > PROCESS_DEPTH_MAX)
            return err_set(e, ERR_LIMIT, "Firefox profile: processes nested deeper than %d",
                           PROCESS_DEPTH_MAX);
        todo[depth] = json_at(processes, at[depth - 1]++);
        at[depth++] = 0;
    }
    return r->threads.len ? take_threads(r, e) : bad(e, "no thread has samples");
}

int firefox_push(const struct json_val *root, const struct limits *l, struct push *push,
                 struct err *e)
{
    const struct json_val *inner = json_get(root, "profile", NULL);
    struct reader r = { 0 };

    gather_init(&r.g, push, l, 1);
    int rc = read_profile(&r, json_is_obj(inner) ? inner : root, e);
    vec_free(&r.threads);
    vec_free(&r.frames);
    vec_free(&r.links);
    vec_free(&r.frames_used);
    vec_free(&r.links_used);
    vec_free(&r.stack);
    gather_deinit(&r.g);
    return rc;
}
