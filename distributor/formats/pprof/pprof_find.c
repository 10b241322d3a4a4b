/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_find.c: looks up the tables of a pprof in the symbol session, KNOWN_BATCH entries at once.
 *
 * Order: strings of files, then names of functions, then frames, then locations (steps), each by
 * what the one before found. An entry that is not known stays KNOWN_NONE and is made by the first
 * stack that has it. Nothing is added to the session here.
 */
#include "distributor/formats/pprof/pprof_find.h"

/* Any number of functions, and of mappings, may have one string: so long ones are not looked for by
 * function, and none is twice as a file. */
#define ABSENT (KNOWN_NONE - 1) /* a file that is looked for, or is not known */

static void find_files(struct pprof_find *x, const uint32_t *strings, size_t n)
{
    const struct known_text *texts = x->k->texts.ptr;
    struct str s[KNOWN_BATCH] = { 0 };
    uint32_t at[KNOWN_BATCH];

    for (size_t i = 0; i < n; i++)
        s[i] = x->p->strings.ptr[strings[i]];
    known_find_texts(x->k, s, n, at);
    for (size_t i = 0; i < n; i++) {
        uint32_t path = at[i] == KNOWN_NONE ? KNOWN_NONE : texts[at[i]].path;
        x->files[strings[i]] = path == KNOWN_NONE ? ABSENT : path;
    }
}

/* What is absent need not be so for long: it is a question again. */
static void forget_absent(struct pprof_find *x)
{
    vec_for (i, &x->p->strings)
        x->files[i] = x->files[i] == ABSENT ? KNOWN_NONE : x->files[i];
}

static void find_names(struct pprof_find *x, const struct pprof_function *fn,
                       struct pprof_fn_names *ret, size_t n)
{
    const struct known_text *texts = x->k->texts.ptr;
    uint32_t at[KNOWN_BATCH], files[KNOWN_BATCH];
    struct str s[KNOWN_BATCH] = { 0 };
    size_t files_len = 0;

    for (size_t i = 0; i < n; i++) {
        s[i] = pprof_str(x->p, fn[i].name);
        if (UNLIKELY(s[i].len > PPROF_LONG_NAME))
            s[i] = STR(""); /* left to the stack that has it */
        if (pprof_str(x->p, fn[i].file).len && x->files[fn[i].file] == KNOWN_NONE) {
            x->files[fn[i].file] = ABSENT;
            files[files_len++] = fn[i].file;
        }
    }
    known_find_texts(x->k, s, n, at);
    find_files(x, files, files_len);
    for (size_t i = 0; i < n; i++) {
        uint32_t file = pprof_str(x->p, fn[i].file).len ? x->files[fn[i].file] : 0;
        bool known = at[i] != KNOWN_NONE && file != ABSENT;
        ret[i] = (struct pprof_fn_names){ known ? texts[at[i]].symbol : KNOWN_NONE, file };
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
    if (x->files[file] == KNOWN_NONE)
        find_files(x, &file, 1);
    if (x->files[file] == ABSENT)
        return KNOWN_NONE;
    return x->modules[mapping] = x->files[file];
}

/* Of names that are not known there is no such frame either. */
static inline struct frame frame_of(const struct pprof_find *x, const struct pprof_line *line,
                                    uint32_t module)
{
    uint32_t fn = pprof_find(&x->p->function_ids, line->function_id);

    if (UNLIKELY(fn == PPROF_NONE))
        return (struct frame){ .func = KNOWN_NONE };
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
    struct frame frames[KNOWN_BATCH];
    uint32_t module = 0, line = 0;
    size_t n = 0;

    vec_for (i, &p->locations) {
        const struct pprof_location *at = &p->locations.ptr[i];
        if (UNLIKELY(!last || at->mapping_id != last->mapping_id))
            module = find_module(x, at->mapping_id);
        last = at;
        while (line < at->lines_end) {
            frames[n++] = frame_of(x, &p->lines.ptr[line++], module);
            if (n == KNOWN_BATCH) {
                known_find_frames(x->k, frames, n, ret + line - n);
                n = 0;
            }
        }
    }
    known_find_frames(x->k, frames, n, ret + line - n);
}

/* The step of n frames. KNOWN_NONE: not known, or n is 0: such a location is an address. */
static inline uint32_t find_step(const struct known *k, const uint32_t *frames, size_t n)
{
    if (LIKELY(n == 1 && frames[0] < KNOWN_MANY))
        return frames[0];
    for (size_t i = 0; i < n; i++)
        if (frames[i] == KNOWN_NONE)
            return KNOWN_NONE;
    return n ? known_find_step(k, frames, n) : KNOWN_NONE;
}

bool pprof_find_known(struct pprof_find *x, struct arena *a)
{
    const struct pprof *p = x->p;
    uint32_t *frames = arena_alloc(a, p->lines.len * sizeof(*frames)), line = 0;

    if (!frames)
        return false;
    for (size_t i = 0; i < p->functions.len; i += KNOWN_BATCH)
        find_names(x, p->functions.ptr + i, x->functions + i,
                   MIN(p->functions.len - i, (size_t)KNOWN_BATCH));
    find_frames(x, frames);
    vec_for (i, &p->locations) {
        uint32_t end = p->locations.ptr[i].lines_end;
        x->steps[i] = find_step(x->k, frames + line, end - line);
        line = end;
    }
    forget_absent(x);
    return true;
}
