/* SPDX-License-Identifier: Apache-2.0
 *
 * debug_pprof: folded text of the self-profiler, and jemalloc's heap profiles, as pprof.
 *
 * jemalloc notes about one allocation in 512 KiB of them; an entry of `count` objects and `bytes`
 * stands for more: of objects of one size s, those that were noted are 1 - exp(-s / rate), so both
 * are divided by that, as its own tools do.
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/compress/compress.h"
#include "common/base/hex.h"
#include "common/model/pprof_out.h"
#include "common/obs/symbolize.h"
#include "common/role/admin/debug.h"

#define STACKS_BYTES (64 * MIB)
#define PPROF_BYTES  (64 * MIB)
#define PARTS_MAX    256
#define FRAMES_MAX   1024
#define NS_PER_S     1000000000
#define GZIP_LEVEL   1
#define TYPES        2

struct row {
    uint32_t node;
    uint64_t values[TYPES];
};
struct rows {
    VEC(struct row) all;
    uint32_t *nodes; /* owned */
    uint64_t *values[TYPES];
    struct pprof_out_values by_type[TYPES];
};

static void rows_free(struct rows *r)
{
    vec_free(&r->all);
    xfree(r->nodes);
    for (size_t t = 0; t < TYPES; t++)
        xfree(r->values[t]);
}

static int by_node(const void *a, const void *b)
{
    uint32_t x = ((const struct row *)a)->node, y = ((const struct row *)b)->node;

    return (x > y) - (x < y);
}

/* Sorted, one per node, as columns. */
static void rows_end(struct rows *r)
{
    size_t n = 0;

    if (r->all.len)
        qsort(r->all.ptr, r->all.len, sizeof(*r->all.ptr), by_node);
    r->nodes = XNEW_ARRAY(uint32_t, r->all.len + 1);
    for (size_t t = 0; t < TYPES; t++)
        r->values[t] = XNEW_ARRAY(uint64_t, r->all.len + 1);
    vec_for (i, &r->all) {
        const struct row *x = &r->all.ptr[i];
        bool same = n && r->nodes[n - 1] == x->node;
        n += !same;
        r->nodes[n - 1] = x->node;
        for (size_t t = 0; t < TYPES; t++)
            r->values[t][n - 1] =
                MIN((same ? r->values[t][n - 1] : 0) + x->values[t], (uint64_t)INT64_MAX);
    }
    for (size_t t = 0; t < TYPES; t++)
        r->by_type[t] = (struct pprof_out_values){ r->nodes, r->values[t], n };
}

static uint32_t below(struct stacks *s, uint32_t parent, struct str name)
{
    const struct frame frame = { .func = stacks_string(s, name) };
    uint32_t id = frame.func == STACKS_FULL ? STACKS_FULL : stacks_frame(s, &frame);

    return id == STACKS_FULL ? STACKS_FULL : stacks_node(s, parent, id);
}

static int write_out(struct pprof_out *out, struct stacks *s, struct buf *to, struct err *e)
{
    struct stacks_view view = stacks_view(s);
    struct buf plain;

    buf_init(&plain, PPROF_BYTES);
    out->stacks = &view;
    int rc = pprof_out_write(out, &plain, e);
    if (!rc)
        rc = gzip(buf_str(&plain), GZIP_LEVEL, to, e);
    buf_deinit(&plain);
    return rc;
}

static int full(struct err *e)
{
    return err_set(e, ERR_LIMIT, "the profile takes more than %zu bytes", (size_t)STACKS_BYTES);
}

/* ---- CPU ------------------------------------------------------------------------------------ */

/* "root;...;leaf 12" */
static int take_line(struct stacks *s, struct rows *rows, struct str line, uint64_t hz,
                     struct err *e)
{
    ptrdiff_t blank = str_rfind(line, ' ');
    struct str path = str_sub(line, 0, blank < 0 ? 0 : (size_t)blank), name;
    uint32_t node = 0;
    uint64_t count;
    bool more = true;

    CHECK(blank > 0 && str_u64(str_sub(line, (size_t)blank + 1, line.len), &count));
    while (node != STACKS_FULL && str_next(&path, ';', &more, &name))
        node = below(s, node, name);
    if (node == STACKS_FULL)
        return full(e);
    vec_push(&rows->all, ((struct row){ node, { count, count * (NS_PER_S / hz) } }));
    return 0;
}

static int take_parts(const struct selfprof_push *parts, size_t n, uint64_t hz, struct stacks *s,
                      struct rows *rows, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        struct str rest = parts[i].folded, line;
        bool more = true;
        while (str_next(&rest, '\n', &more, &line))
            if (line.len && take_line(s, &rows[i], line, hz, e))
                return e->code;
        rows_end(&rows[i]);
    }
    return 0;
}

int debug_cpu_pprof(const struct selfprof_push *parts, size_t n, uint64_t hz, struct buf *out,
                    struct err *e)
{
    const struct pprof_out_type types[TYPES] = { { STR("samples"), STR("count") },
                                                 { STR("cpu"), STR("nanoseconds") } };
    struct rows *rows = XNEW_ARRAY(struct rows, n + 1);
    struct label *labels = XNEW_ARRAY(struct label, 2 * n + 1);
    struct pprof_out_part *all = XNEW_ARRAY(struct pprof_out_part, n + 1);
    struct stacks s;

    CHECK(n <= PARTS_MAX && hz > 0);
    stacks_init(&s, STACKS_BYTES, 1);
    int rc = take_parts(parts, n, hz, &s, rows, e);
    struct pprof_out o = { .types = types,
                           .types_len = TYPES,
                           .parts = all,
                           .parts_len = n,
                           .period_type = types[1],
                           .period = (int64_t)(NS_PER_S / hz) };
    for (size_t i = 0; i < n; i++) {
        labels[2 * i] = (struct label){ STR("role"), str_c(parts[i].role) };
        labels[2 * i + 1] = (struct label){ STR("thread"), str_c(parts[i].thread) };
        all[i] = (struct pprof_out_part){ &labels[2 * i], 2, rows[i].by_type };
        o.time_ns = parts[i].from_ms * 1000000;
        o.duration_ns = (parts[i].until_ms - parts[i].from_ms) * 1000000;
    }
    if (!rc)
        rc = write_out(&o, &s, out, e);
    for (size_t i = 0; i < n; i++)
        rows_free(&rows[i]);
    stacks_deinit(&s);
    xfree(rows);
    xfree(labels);
    xfree(all);
    return rc;
}

/* ---- heap ----------------------------------------------------------------------------------- */

struct heap {
    struct unwind_map *map;
    struct symbolizer *symbols;
    struct stacks stacks;
    struct rows rows;
    double rate;
    uint64_t pcs[FRAMES_MAX]; /* innermost first */
    size_t pcs_len;
};

/* "@ 0x55... 0x7f..." */
static void take_stack(struct heap *h, struct str line)
{
    struct str part;
    uint64_t pc;
    bool more = true;

    h->pcs_len = 0;
    while (h->pcs_len < FRAMES_MAX && str_next(&line, ' ', &more, &part))
        if (str_starts(part, STR("0x")) && hex_u64(str_sub(part, 2, part.len), &pc) && pc)
            h->pcs[h->pcs_len++] = pc - 1; /* a return address: inside the call */
}

/* "  t*: objects: bytes [...]" of the stack before it. */
static int take_counts(struct heap *h, struct str line, struct err *e)
{
    struct str part, rest = line;
    uint64_t n[2] = { 0, 0 };
    size_t found = 0;
    uint32_t node = 0;
    bool more = true;

    while (found < 3 && str_next(&rest, ':', &more, &part)) {
        part = str_trim(part);
        ptrdiff_t blank = str_find(part, ' ');
        struct str number = blank < 0 ? part : str_sub(part, 0, (size_t)blank);
        if (found && !str_u64(number, &n[found - 1]))
            return err_set(e, ERR_INPUT, "a heap profile with the line \"%.*s\"",
                           (int)MIN(line.len, 80), line.ptr);
        found++;
    }
    if (!n[0] || !h->pcs_len)
        return 0;
    for (size_t i = h->pcs_len; i > 0 && node != STACKS_FULL; i--) {
        struct buf name;
        buf_init(&name, 2 * SYMBOL_MAX);
        symbolizer_name(h->symbols, h->map, h->pcs[i - 1], &name);
        node = below(&h->stacks, node, buf_str(&name));
        buf_deinit(&name);
    }
    if (node == STACKS_FULL)
        return full(e);
    double scale = h->rate > 1 ? 1 / -expm1(-((double)n[1] / (double)n[0]) / h->rate) : 1;
    struct row row = { node, { 0, 0 } };
    for (size_t t = 0; t < TYPES; t++)
        row.values[t] = (uint64_t)MIN((double)n[t] * scale, 9e18);
    vec_push(&h->rows.all, row);
    return 0;
}

static int take_dump(struct heap *h, struct str dump, struct err *e)
{
    struct str line;
    uint64_t rate;
    bool more = true;

    if (!str_next(&dump, '\n', &more, &line) || !str_starts(line, STR("heap_v2/")) ||
        !str_u64(str_sub(line, 8, line.len), &rate))
        return err_set(e, ERR_INPUT, "no heap profile of jemalloc: it does not begin with heap_v2");
    h->rate = (double)rate;
    while (str_next(&dump, '\n', &more, &line)) {
        if (str_starts(line, STR("MAPPED_LIBRARIES")))
            break;
        if (str_starts(line, STR("@")))
            take_stack(h, line);
        else if (str_starts(str_trim(line), STR("t*:")) && take_counts(h, line, e))
            return e->code;
    }
    rows_end(&h->rows);
    return 0;
}

int debug_heap_pprof(struct str dump, int64_t now_ms, struct buf *out, struct err *e)
{
    const struct pprof_out_type types[TYPES] = { { STR("inuse_objects"), STR("count") },
                                                 { STR("inuse_space"), STR("bytes") } };
    struct heap *h = XNEW(struct heap);

    h->map = unwind_map_new(NULL);
    h->symbols = symbolizer_new();
    symbolizer_load(h->symbols, h->map);
    stacks_init(&h->stacks, STACKS_BYTES, 1);
    int rc = take_dump(h, dump, e);
    if (!rc) {
        const struct pprof_out_part part = { NULL, 0, h->rows.by_type };
        struct pprof_out o = { .types = types,
                               .types_len = TYPES,
                               .parts = &part,
                               .parts_len = 1,
                               .period_type = { STR("space"), STR("bytes") },
                               .default_type = STR("inuse_space"),
                               .period = (int64_t)MIN(h->rate, 9e18),
                               .time_ns = now_ms * 1000000 };
        rc = write_out(&o, &h->stacks, out, e);
    }
    rows_free(&h->rows);
    stacks_deinit(&h->stacks);
    symbolizer_free(h->symbols);
    unwind_map_free(h->map, NULL);
    xfree(h);
    return rc;
}
