/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_find.c: looks up the tables of a pprof in the symbol session, SYMBOL_SESSION_BATCH entries
 * at once.
 *
 * Order: strings of files, then names of functions, then frames, then locations (steps), each by
 * what the one before found. An entry that is not known stays SYMBOL_SESSION_NONE and is made by
 * the first stack that has it. Nothing is added to the session here.
 */
#include "distributor/formats/pprof/pprof_find.h"

/* Any number of functions, and of mappings, may have one string: so long ones are not looked for by
 * function, and none is twice as a file. */
#define ABSENT (SYMBOL_SESSION_NONE - 1) /* a file that is looked for, or is not known */

static void find_files(struct pprof_find *x, const uint32_t *strings, size_t n)
{
    const struct symbol_session_text *texts = x->k->texts.ptr;
    struct str s[SYMBOL_SESSION_BATCH] = { 0 };
    uint32_t at[SYMBOL_SESSION_BATCH];

    for (size_t i = 0; i < n; i++)
        s[i] = x->p->strings.ptr[strings[i]];
    symbol_lookup_texts(x->k, s, n, at);
    for (size_t i = 0; i < n; i++) {
        uint32_t path = at[i] == SYMBOL_SESSION_NONE ? SYMBOL_SESSION_NONE : texts[at[i]].path;
        x->files[strings[i]] = path == SYMBOL_SESSION_NONE ? ABSENT : path;
    }
}

/* What is absent need not be so for long: it is a question again. */
static void forget_absent(struct pprof_find *x)
{
    vec_for (i, &x->p->strings)
        x->files[i] = x->files[i] == ABSENT ? SYMBOL_SESSION_NONE : x->files[i];
}

static void find_names(struct pprof_find *x, const struct pprof_function *fn,
                       struct pprof_fn_names *ret, size_t n)
{
    const struct symbol_session_text *texts = x->k->texts.ptr;
    uint32_t at[SYMBOL_SESSION_BATCH], files[SYMBOL_SESSION_BATCH];
    struct str s[SYMBOL_SESSION_BATCH] = { 0 };
    size_t files_len = 0;

    for (size_t i = 0; i < n; i++) {
        s[i] = pprof_str(x->p, fn[i].name);
        if (UNLIKELY(s[i].len > PPROF_LONG_NAME))
            s[i] = STR(""); /* left to the stack that has it */
        if (pprof_str(x->p, fn[i].file).len && x->files[fn[i].file] == SYMBOL_SESSION_NONE) {
            x->files[fn[i].file] = ABSENT;
            files[files_len++] = fn[i].file;
        }
    }
    symbol_lookup_texts(x->k, s, n, at);
    find_files(x, files, files_len);
    for (size_t i = 0; i < n; i++) {
        uint32_t file = pprof_str(x->p, fn[i].file).len ? x->files[fn[i].file] : 0;
        bool known = at[i] != SYMBOL_SESSION_NONE && file != ABSENT;
        ret[i] = (struct pprof_fn_names){ known ? texts[at[i]].symbol : SYMBOL_SESSION_NONE, file };
    }
}

static uint32_t find_module(struct pprof_find *x, uint64_t id)
{
    uint32_t mapping = pprof_find(&x->p->mapping_ids, id);

    if (mapping == PPROF_NONE)
        return 0;
    uint32_t file = x->p->mappings.ptr[mapping].file;
    if (!pprof_str(x->p, file).len)
        return 0;
    if (x->files[file] == SYMBOL_SESSION_NONE)
        find_files(x, &file, 1);
    if (x->files[file] == ABSENT)
        return SYMBOL_SESSION_NONE;
    return x->modules[mapping] = x->files[file];
}

/* Of names that are not known there is no such frame either. */
static inline struct frame frame_of(const struct pprof_find *x, const struct pprof_line *line,
                                    uint32_t module)
{
    uint32_t fn = pprof_find(&x->p->function_ids, line->function_id);

    if (UNLIKELY(fn == PPROF_NONE))
        return (struct frame){ .func = SYMBOL_SESSION_NONE };
    return (struct frame){ .func = x->functions[fn].name,
                           .file = x->functions[fn].file,
                           .module = module,
                           .line = line->line,
                           .addr = x->p->functions.ptr[fn].start_line };
}

static void find_frames(struct pprof_find *x, uint32_t *ret)
{
    const struct pprof *p = x->p;
    const struct pprof_location *last = NULL;
    struct frame frames[SYMBOL_SESSION_BATCH];
    uint32_t module = 0, line = 0;
    size_t n = 0;

    vec_for (i, &p->locations) {
        const struct pprof_location *at = &p->locations.ptr[i];
        if (UNLIKELY(!last || at->mapping_id != last->mapping_id))
            module = find_module(x, at->mapping_id);
        last = at;
        while (line < at->lines_end) {
            frames[n++] = frame_of(x, &p->lines.ptr[line++], module);
            if (n == SYMBOL_SESSION_BATCH) {
                symbol_lookup_frames(x->k, frames, n, ret + line - n);
                n = 0;
            }
        }
    }
    symbol_lookup_frames(x->k, frames, n, ret + line - n);
}

/* The step of n frames. SYMBOL_SESSION_NONE: not known, or n is 0: such a location is an address.
 */
static inline uint32_t find_step(const struct symbol_session *k, const uint32_t *frames, size_t n)
{
    if (LIKELY(n == 1 && frames[0] < SYMBOL_SESSION_MANY))
        return frames[0];
    for (size_t i = 0; i < n; i++)
        if (frames[i] == SYMBOL_SESSION_NONE)
            return SYMBOL_SESSION_NONE;
    return n ? symbol_session_find_step(k, frames, n) : SYMBOL_SESSION_NONE;
}

bool pprof_find_known(struct pprof_find *x, struct arena *a)
{
    const struct pprof *p = x->p;
    uint32_t *frames = arena_alloc(a, p->lines.len * sizeof(*frames)), line = 0;

    if (!frames)
        return false;
    for (size_t i = 0; i < p->functions.len; i += SYMBOL_SESSION_BATCH)
        find_names(x, p->functions.ptr + i, x->functions + i,
                   MIN(p->functions.len - i, (size_t)SYMBOL_SESSION_BATCH));
    find_frames(x, frames);
    vec_for (i, &p->locations) {
        uint32_t end = p->locations.ptr[i].lines_end;
        x->steps[i] = find_step(x->k, frames + line, end - line);
        line = end;
    }
    forget_absent(x);
    return true;
}
