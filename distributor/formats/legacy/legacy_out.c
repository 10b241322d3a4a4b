/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_out: samples of addresses to a pprof message.
 *
 * An address is one location, whatever stacks it stands in; its mapping is found by halving. Every
 * number in here was counted from elements that are there, none is taken from the body's word.
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/size.h"
#include "common/base/wr.h"
#include "distributor/formats/legacy/legacy_impl.h"

/* ---- filling --------------------------------------------------------------------------------- */

void legacy_deinit(struct legacy *g)
{
    vec_free(&g->pcs);
    vec_free(&g->samples);
    vec_free(&g->maps);
    vec_free(&g->names);
    vec_free(&g->lines);
    map_u64_deinit(&g->name_of);
}

void legacy_type(struct legacy *g, struct str type, struct str unit)
{
    CHECK(g->types_len < LEGACY_TYPES_MAX);
    g->types[g->types_len++] = (struct legacy_type){ type, unit };
}

/* Vectors double: what they hold at most is twice what is in them. */
static int check_bytes(const struct legacy *g)
{
    uint64_t held = g->pcs.len * sizeof(*g->pcs.ptr) + g->samples.len * sizeof(*g->samples.ptr) +
                    g->maps.len * sizeof(*g->maps.ptr) + g->lines.len * sizeof(*g->lines.ptr) +
                    g->names.len * (sizeof(*g->names.ptr) + 24);

    if (2 * held > g->l->decode_bytes)
        return err_set(g->e, ERR_LIMIT,
                       "pprof: decoding takes more than %" PRIu64
                       " bytes of memory (distributor.decode_bytes)",
                       g->l->decode_bytes);
    return 0;
}

int legacy_pc(struct legacy *g, uint64_t pc)
{
    size_t n = g->samples.len, before;

    /* Refused by pprof_walk.c as well, but at the price of a location for each of them. */
    before = n ? g->samples.ptr[n - 1].from + g->samples.ptr[n - 1].len : 0;
    if (g->pcs.len - before >= g->l->frames)
        return err_set(g->e, ERR_LIMIT, "pprof: sample %zu has more than %" PRIu64 " frames", n + 1,
                       g->l->frames);
    vec_push(&g->pcs, pc);
    return check_bytes(g);
}

int legacy_sample(struct legacy *g, size_t from, const int64_t *values)
{
    struct legacy_sample s = { .from = from, .len = g->pcs.len - from };

    if (g->samples.len >= g->l->samples)
        return err_set(g->e, ERR_LIMIT, "pprof: more than %" PRIu64 " samples", g->l->samples);
    for (size_t i = 0; i < g->types_len; i++)
        s.values[i] = values[i];
    vec_push(&g->samples, s);
    return check_bytes(g);
}

/* The names of one address stand together; where it is named again, they are the same. */
int legacy_name(struct legacy *g, uint64_t pc, const struct legacy_line *line)
{
    uint32_t at = map_u64_get(&g->name_of, pc);

    if (line->func.len > g->l->symbol_bytes)
        return err_set(g->e, ERR_LIMIT, "pprof: a name of %zu bytes, at most %" PRIu64,
                       line->func.len, g->l->symbol_bytes);
    if (at == MAP_U64_EMPTY) {
        if (g->names.len >= UINT32_MAX - 1)
            return err_set(g->e, ERR_LIMIT, "pprof: too many names");
        (void)map_u64_put(&g->name_of, pc, (uint32_t)g->names.len);
        at = (uint32_t)g->names.len;
        vec_push(&g->names,
                 ((struct legacy_name){ .pc = pc, .from = g->lines.len, .block = g->samples.len }));
    }
    struct legacy_name *n = &g->names.ptr[at];
    if (n->block != g->samples.len || n->from + n->len != g->lines.len ||
        n->len >= g->l->lines_per_location)
        return 0;
    n->len++;
    vec_push(&g->lines, *line);
    return check_bytes(g);
}

/* ---- values ---------------------------------------------------------------------------------- */

int64_t legacy_i64(double v)
{
    if (!(v > -9.2e18))
        return INT64_MIN;
    return v < 9.2e18 ? (int64_t)v : INT64_MAX;
}

int64_t legacy_mul(int64_t a, int64_t b)
{
    int64_t r;

    if (i64_mul(a, b, &r))
        return r;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

void legacy_unsample(int64_t *count, int64_t *size, int64_t rate)
{
    if (*count == 0 || *size == 0) {
        *count = *size = 0;
        return;
    }
    if (rate <= 1)
        return;
    double average = (double)*size / (double)*count;
    double scale = 1 / (1 - exp(-average / (double)rate));
    *count = legacy_i64((double)*count * scale);
    *size = legacy_i64((double)*size * scale);
}

/* ---- the message ----------------------------------------------------------------------------- */

struct writer {
    struct legacy *g;
    struct buf *out;
    struct buf part, ids; /* of one message */
    uint64_t strings, functions;
    struct map_u64 locations; /* pc -> its number - 1 */
};

static void put_number(struct buf *b, uint32_t field, uint64_t v)
{
    wr_varint(b, field << 3);
    wr_varint(b, v);
}

static void put_bytes(struct buf *b, uint32_t field, struct str s)
{
    wr_varint(b, field << 3 | 2);
    wr_varint(b, s.len);
    buf_add_str(b, s);
}

/* Moves w->part into the profile. */
static void put_part(struct writer *w, uint32_t field)
{
    put_bytes(w->out, field, buf_str(&w->part));
    buf_reset(&w->part);
}

static uint64_t put_string(struct writer *w, struct str s)
{
    if (s.len == 0)
        return 0;
    put_bytes(w->out, 6, s);
    return w->strings++;
}

static void put_type(struct writer *w, uint32_t field, const struct legacy_type *t)
{
    put_number(&w->part, 1, put_string(w, t->type));
    put_number(&w->part, 2, put_string(w, t->unit));
    put_part(w, field);
}

static int map_cmp(const void *a, const void *b)
{
    const struct legacy_map *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->limit < y->limit ? -1 : x->limit > y->limit;
}

/* Rows of one file that follow each other are one mapping. */
static bool adjacent(const struct legacy_map *a, const struct legacy_map *b)
{
    return str_eq(a->file, b->file) && a->limit == b->start &&
           (a->offset == 0 || b->offset == 0 || a->offset + (a->limit - a->start) == b->offset);
}

static void put_maps(struct writer *w)
{
    struct legacy *g = w->g;
    size_t n = 0;

    if (g->maps.len)
        qsort(g->maps.ptr, g->maps.len, sizeof(*g->maps.ptr), map_cmp);
    for (size_t i = 0; i < g->maps.len; i++) {
        if (n && adjacent(&g->maps.ptr[n - 1], &g->maps.ptr[i]))
            g->maps.ptr[n - 1].limit = g->maps.ptr[i].limit;
        else
            g->maps.ptr[n++] = g->maps.ptr[i];
    }
    g->maps.len = n;
    for (size_t i = 0; i < n; i++) {
        const struct legacy_map *m = &g->maps.ptr[i];
        put_number(&w->part, 1, i + 1);
        put_number(&w->part, 2, m->start);
        put_number(&w->part, 3, m->limit);
        put_number(&w->part, 4, m->offset);
        put_number(&w->part, 5, put_string(w, m->file));
        put_part(w, 3);
    }
}

/* The number of the mapping; 0: not found. */
static uint64_t map_of(const struct legacy *g, uint64_t pc)
{
    size_t from = 0, to = g->maps.len;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (g->maps.ptr[mid].start <= pc)
            from = mid + 1;
        else
            to = mid;
    }
    return from && pc < g->maps.ptr[from - 1].limit ? from : 0;
}

static void put_location(struct writer *w, uint64_t id, uint64_t pc)
{
    struct legacy *g = w->g;
    uint32_t at = map_u64_get(&g->name_of, pc);
    const struct legacy_name *n = at == MAP_U64_EMPTY ? NULL : &g->names.ptr[at];
    uint64_t first = w->functions, map = g->ids ? 0 : map_of(g, pc);

    for (size_t i = 0; n && i < n->len; i++) {
        const struct legacy_line *line = &g->lines.ptr[n->from + i];
        put_number(&w->part, 1, w->functions++);
        put_number(&w->part, 2, put_string(w, line->func));
        put_number(&w->part, 4, put_string(w, line->file));
        put_part(w, 5);
    }
    put_number(&w->part, 1, id);
    put_number(&w->part, 3, pc);
    if (map)
        put_number(&w->part, 2, map);
    for (size_t i = 0; n && i < n->len; i++) {
        uint64_t line = g->lines.ptr[n->from + i].line;
        wr_varint(&w->part, 4 << 3 | 2);
        wr_varint(&w->part, 1 + varint_len(first + i) + 1 + varint_len(line));
        put_number(&w->part, 1, first + i);
        put_number(&w->part, 2, line);
    }
    put_part(w, 4);
}

static void put_sample(struct writer *w, const struct legacy_sample *s)
{
    for (size_t i = 0; i < s->len && !w->out->failed; i++) {
        uint64_t pc = w->g->pcs.ptr[s->from + i];
        uint32_t next = (uint32_t)w->locations.len, at = map_u64_put(&w->locations, pc, next);
        if (at == MAP_U64_EMPTY) {
            at = next;
            put_location(w, (uint64_t)at + 1, pc);
        }
        wr_varint(&w->ids, (uint64_t)at + 1);
    }
    put_bytes(&w->part, 1, buf_str(&w->ids));
    buf_reset(&w->ids);
    for (size_t i = 0; i < w->g->types_len; i++)
        put_number(&w->part, 2, (uint64_t)s->values[i]);
    put_part(w, 2);
}

int legacy_write(struct legacy *g, struct buf *out)
{
    struct writer w = { .g = g, .out = out, .strings = 1, .functions = 1 };

    buf_init(&w.part, out->max);
    buf_init(&w.ids, out->max);
    map_u64_init(&w.locations);
    put_bytes(out, 6, STR(""));
    for (size_t i = 0; i < g->types_len; i++)
        put_type(&w, 1, &g->types[i]);
    put_maps(&w);
    for (size_t i = 0; i < g->samples.len && !out->failed; i++)
        put_sample(&w, &g->samples.ptr[i]);
    if (g->period_type.type.len)
        put_type(&w, 11, &g->period_type);
    if (g->period > 0)
        put_number(out, 12, (uint64_t)g->period);
    if (g->duration_ns > 0)
        put_number(out, 10, (uint64_t)g->duration_ns);
    bool ok = buf_ok(out) && buf_ok(&w.part) && buf_ok(&w.ids);
    map_u64_deinit(&w.locations);
    buf_deinit(&w.part);
    buf_deinit(&w.ids);
    return ok ? 0
              : err_set(g->e, ERR_LIMIT, "pprof: as a message it has more than %zu bytes",
                        out->max);
}
