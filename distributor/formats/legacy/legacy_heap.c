/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_heap: heap pages of tcmalloc and Go, heap dumps of jemalloc.
 *
 *   heap profile: N: BYTES [ N: BYTES ] @ KIND[/RATE]        in use [ allocated ]
 *      n:  bytes [ n:  bytes ] @ 0xpc 0xpc ...               all of them return addresses
 *
 *   heap_v2/RATE                                             jemalloc
 *     t*: n: bytes [n: bytes]                                all threads together
 *   @ 0xpc 0xpc ...                                          a stack, then its rows:
 *     t*: ...   t3: ...                                      a row per thread
 *
 * KIND says how sampling went: heap_v2 and heapz_v2 every RATE bytes, heap (Go) every RATE / 2;
 * heapprofile and growthz counted everything. There are allocated values only where the header has
 * some that differ from those in use. Rows of single threads count where a stack has no t* row.
 *
 * Format: google/pprof at b9395ee17fa0; jemalloc, bin/jeprof.in (proto/FORMATS.md, "Legacy pprof").
 */
#include "distributor/formats/legacy/legacy_impl.h"

#include "common/base/size.h"

struct row {
    int64_t used[2], all[2]; /* count, bytes */
};
struct heap {
    bool has_all;
    int64_t rate; /* 1: nothing to scale */
};

/* "n: bytes [n: bytes]" */
static bool scan_row(struct str *s, struct row *r)
{
    return scan_i64(s, &r->used[0]) && scan_text(s, ":") && scan_i64(s, &r->used[1]) &&
           scan_text(s, "[") && scan_i64(s, &r->all[0]) && scan_text(s, ":") &&
           scan_i64(s, &r->all[1]) && scan_text(s, "]");
}

static void add_types(struct legacy *g, struct heap *h, const struct row *total)
{
    h->has_all = (total->all[0] != total->used[0] && total->all[0] != 0) ||
                 (total->all[1] != total->used[1] && total->all[1] != 0);
    if (h->has_all) {
        legacy_type(g, STR("alloc_objects"), STR("count"));
        legacy_type(g, STR("alloc_space"), STR("bytes"));
        legacy_type(g, STR("inuse_objects"), STR("count"));
        legacy_type(g, STR("inuse_space"), STR("bytes"));
    } else {
        legacy_type(g, STR("objects"), STR("count"));
        legacy_type(g, STR("space"), STR("bytes"));
    }
    g->period_type = (struct legacy_type){ STR("space"), STR("bytes") };
    g->period = h->rate;
}

/* Bytes of no object are nonsense. */
static bool makes_sense(const struct heap *h, const struct row *r)
{
    return !(r->used[0] == 0 && r->used[1]) && !(h->has_all && r->all[0] == 0 && r->all[1]);
}

static int add_row(struct legacy *g, const struct heap *h, struct row r, size_t from)
{
    int64_t values[LEGACY_TYPES_MAX];
    size_t n = 0;

    if (!makes_sense(h, &r)) {
        g->pcs.len = from;
        g->left_out++;
        return 0;
    }
    legacy_unsample(&r.used[0], &r.used[1], h->rate);
    legacy_unsample(&r.all[0], &r.all[1], h->rate);
    if (h->has_all) {
        values[n++] = r.all[0];
        values[n++] = r.all[1];
    }
    values[n++] = r.used[0];
    values[n] = r.used[1];
    return legacy_sample(g, from, values);
}

/* ---- tcmalloc, Go ---------------------------------------------------------------------------- */

static int scan_kind(struct legacy *g, struct str s, struct heap *h)
{
    static const struct {
        const char *kind;
        int64_t per; /* the rate is a per-th of what is written; 0: nothing is sampled */
    } rows[] = {
        { "heapz_v2", 1 }, { "heap_v2", 1 }, { "heapprofile", 0 },    { "heap", 2 },
        { "growthz", 0 },  { "growth", 0 },  { "fragmentationz", 0 },
    };
    uint64_t rate = 0;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!scan_text(&s, rows[i].kind))
            continue;
        if (scan_text(&s, "/") && (!scan_u64(&s, &rate) || rate > INT64_MAX))
            return err_set(g->e, ERR_INPUT, "pprof, heap: the sampling rate is not a number");
        h->rate = rows[i].per ? (int64_t)rate / rows[i].per : 1;
        return 0;
    }
    return err_set(g->e, ERR_INPUT, "pprof, heap: \"%.*s\" is no kind of heap profile",
                   STR_ARG(str_sub(str_trim(s), 0, 64)));
}

static int heap_line(struct legacy *g, const struct heap *h, struct str line)
{
    size_t from = g->pcs.len;
    struct row r;

    if (!scan_row(&line, &r) || !scan_text(&line, "@")) {
        g->left_out++;
        return 0;
    }
    return scan_pcs(g, line, 1, false, from) ? g->e->code : add_row(g, h, r, from);
}

int legacy_heap(struct legacy *g)
{
    struct heap h = { .rate = 1 };
    struct row total;
    struct str line;

    while (legacy_line(g, &line) && !scan_text(&line, "heap profile:"))
        ;
    if (!scan_row(&line, &total) || !scan_text(&line, "@"))
        return err_set(g->e, ERR_INPUT, "pprof, heap: the first line has no totals");
    if (scan_kind(g, line, &h))
        return g->e->code;
    add_types(g, &h, &total);
    while (legacy_line(g, &line) && !legacy_map_begins(line)) {
        if (legacy_blank(line))
            continue;
        if (line.ptr[0] == '#' ? scan_go_name(g, line) : heap_line(g, &h, line))
            return g->e->code;
    }
    return legacy_maps(g);
}

/* ---- jemalloc -------------------------------------------------------------------------------- */

/* "t*: ..." or "t12: ..." */
static bool scan_thread(struct str *s, bool *ret_all)
{
    uint64_t number;

    if (!scan_text(s, "t"))
        return false;
    *ret_all = scan_text(s, "*");
    return (*ret_all || scan_u64(s, &number)) && scan_text(s, ":");
}

/* The rows of one stack; those of single threads are added up, in case there is no other. */
static int jemalloc_rows(struct legacy *g, const struct heap *h, size_t from)
{
    struct row all = { 0 }, threads = { 0 }, r;
    bool is_all, has_all = false, some = false;
    struct str line;

    while (legacy_peek(g, &line) && scan_thread(&line, &is_all) && scan_row(&line, &r)) {
        struct row *to = is_all ? &all : &threads;
        for (int i = 0; i < 2; i++) {
            if (!i64_add(to->used[i], r.used[i], &to->used[i]))
                to->used[i] = INT64_MAX;
            if (!i64_add(to->all[i], r.all[i], &to->all[i]))
                to->all[i] = INT64_MAX;
        }
        has_all = has_all || is_all;
        some = true;
        (void)legacy_line(g, &line);
    }
    if (!some) {
        g->pcs.len = from;
        g->left_out++;
        return 0;
    }
    return add_row(g, h, has_all ? all : threads, from);
}

int legacy_jemalloc(struct legacy *g)
{
    struct heap h = { .rate = 1 };
    struct row total = { 0 };
    uint64_t rate;
    struct str line;
    bool all;

    while (legacy_line(g, &line) && !scan_text(&line, "heap_v2/"))
        ;
    if (!scan_u64(&line, &rate) || rate > INT64_MAX)
        return err_set(g->e, ERR_INPUT, "pprof, jemalloc: the sampling rate is not a number");
    h.rate = (int64_t)rate;
    while (legacy_peek(g, &line) && (legacy_blank(line) || scan_thread(&line, &all))) {
        struct row r;
        if (all && scan_row(&line, &r))
            total = r;
        (void)legacy_line(g, &line);
    }
    add_types(g, &h, &total);
    while (legacy_line(g, &line) && !legacy_map_begins(line)) {
        size_t from = g->pcs.len;
        if (legacy_blank(line))
            continue;
        if (!scan_text(&line, "@")) {
            g->left_out++;
            continue;
        }
        if (scan_pcs(g, line, 1, false, from) || jemalloc_rows(g, &h, from))
            return g->e->code;
    }
    return legacy_maps(g);
}
