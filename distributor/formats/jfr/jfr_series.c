/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_series: rows to series.
 *
 *   tags ── labels of their context ──> group            rows, by (family, group, node)
 *     └──── span, trace ──> ids                                 └─> a vector per sample type
 *                                                         rows, by (family, group, id, node)
 *                                                               └─> exemplars of those series
 *
 * Grouping and ids are those of pprof (pprof_groups.c, pprof_spans.c): a tag is given to them as if
 * it were a sample, since what is in its context are string labels. There are as many tags as
 * contexts and spans, not as events.
 *
 * Samples of CPU and wall clock have become time when their row was counted (jfr_events.c).
 *
 * Names of types: grafana/pyroscope at 3fe6a457a320 (proto/FORMATS.md, "JFR profile types").
 */
#include <stdlib.h>

#include "distributor/formats/jfr/jfr_impl.h"
#include "distributor/formats/pprof/pprof_groups.h"
#include "distributor/formats/pprof/pprof_spans.h"

#define TYPES_MAX 2

static const struct family {
    const char *name, *period_type, *period_unit;
    struct {
        const char *type, *unit;
    } types[TYPES_MAX]; /* of the count, of the amount */
    bool by_rate;       /* samples, whose amount is their time */
    bool amount_only;   /* the first type is that of the amount */
} families[JFR_FAMILIES] = {
    [JFR_CPU] = { "process_cpu", "cpu", "nanoseconds", { { "cpu", "nanoseconds" } }, true, false },
    [JFR_WALL] = { "wall", "wall", "nanoseconds", { { "wall", "nanoseconds" } }, true, false },
    [JFR_NATIVE] = { "native", "", "", { { "samples", "count" } }, false, false },
    [JFR_CPU_TIME] = { "process_cpu",
                       "cpu",
                       "nanoseconds",
                       { { "cpu_time", "nanoseconds" } },
                       false,
                       true },
    [JFR_ALLOC_IN_TLAB] = { "memory",
                            "space",
                            "bytes",
                            { { "alloc_in_new_tlab_objects", "count" },
                              { "alloc_in_new_tlab_bytes", "bytes" } },
                            false,
                            false },
    [JFR_ALLOC_OUTSIDE_TLAB] = { "memory",
                                 "space",
                                 "bytes",
                                 { { "alloc_outside_tlab_objects", "count" },
                                   { "alloc_outside_tlab_bytes", "bytes" } },
                                 false,
                                 false },
    [JFR_ALLOC_SAMPLE] = { "memory",
                           "space",
                           "bytes",
                           { { "alloc_sample_objects", "count" },
                             { "alloc_sample_bytes", "bytes" } },
                           false,
                           false },
    [JFR_MUTEX] = { "mutex",
                    "mutex",
                    "count",
                    { { "contentions", "count" }, { "delay", "nanoseconds" } },
                    false,
                    false },
    [JFR_BLOCK] = { "block",
                    "block",
                    "count",
                    { { "contentions", "count" }, { "delay", "nanoseconds" } },
                    false,
                    false },
    [JFR_LIVE] = { "memory", "objects", "count", { { "live", "count" } }, false, false },
    [JFR_MALLOC] = { "memory",
                     "",
                     "",
                     { { "malloc_objects", "count" }, { "malloc_bytes", "bytes" } },
                     false,
                     false },
    [JFR_NATIVE_LOCK] = { "mutex",
                          "mutex",
                          "count",
                          { { "native_contentions", "count" }, { "native_delay", "nanoseconds" } },
                          false,
                          false },
};

struct sorted {
    uint32_t series; /* family and group */
    uint32_t id, node, row;
};
struct series { /* of push->series, by type; JFR_NONE: has no values */
    uint32_t key;
    uint32_t of_type[TYPES_MAX];
};
struct maker {
    struct jfr *j;
    struct pprof strings; /* only its strings are there: what groups and spans look at */
    struct pprof_walked tags;
    struct pprof_groups groups;
    struct pprof_spans spans;
    struct sorted *sorted;
    struct series *series; /* ascending by key */
    size_t series_len;
    struct err *e;
};

static int types_of(enum jfr_family f)
{
    return families[f].types[1].type ? 2 : 1;
}

/* ---- tags as samples ----- */

static uint32_t add_string(struct maker *m, struct str s)
{
    vec_push(&m->j->labels.strings, s);
    return (uint32_t)m->j->labels.strings.len - 1;
}

static uint32_t snapshot_string(const struct maker *m, uint64_t id)
{
    uint32_t at = map_u64_get(&m->j->labels.string_ids, id ^ m->j->seed);

    return at == MAP_U64_EMPTY ? 0 : at;
}

static void add_pair(struct maker *m, uint32_t key, uint32_t value)
{
    struct pprof_pair pair = { key, value };

    if (key && value)
        vec_push(&m->tags.pairs, pair);
}

/* 32 hex digits, or 0 without room. */
static uint32_t trace_text(struct maker *m, const struct jfr_tag *tag)
{
    struct buf hex;

    buf_init(&hex, 32);
    buf_addf(&hex, "%016" PRIx64 "%016" PRIx64, tag->trace_hi, tag->trace_lo);
    struct str kept = arena_strdup(m->j->push->arena, buf_str(&hex));
    buf_deinit(&hex);
    return kept.ptr ? add_string(m, kept) : 0;
}

static bool add_context(struct maker *m, uint64_t id)
{
    const struct jfr_labels *l = &m->j->labels;
    uint32_t at = id ? map_u64_get(&l->context_ids, id ^ m->j->seed) : MAP_U64_EMPTY;

    if (at == MAP_U64_EMPTY)
        return true;
    struct jfr_context c = l->contexts.ptr[at];
    if (!jfr_charge(m->j, c.len * sizeof(struct pprof_pair) * 2, m->e))
        return false;
    for (uint32_t i = 0; i < c.len; i++) {
        struct jfr_pair pair = l->pairs.ptr[c.from + i];
        add_pair(m, snapshot_string(m, pair.key), snapshot_string(m, pair.value));
    }
    return true;
}

static int tags_to_samples(struct maker *m)
{
    struct jfr *j = m->j;
    struct str empty = STR("");

    if (j->labels.strings.len == 0)
        vec_push(&j->labels.strings, empty);
    uint32_t span_name = add_string(m, STR("span_name")), span = add_string(m, STR("profile_id")),
             trace = add_string(m, STR("trace_id"));
    m->tags.len = j->tags.len;
    m->tags.pairs_end = ARENA_ARRAY(j->push->arena, uint32_t, j->tags.len);
    if (!m->tags.pairs_end)
        return push_full(j->push, m->e);
    vec_for (i, &j->tags) {
        const struct jfr_tag *tag = &j->tags.ptr[i];
        struct pprof_number number = { (uint32_t)i, span, tag->span };
        if (!add_context(m, tag->context))
            return m->e->code;
        if (tag->span_name)
            add_pair(m, span_name, snapshot_string(m, tag->span_name));
        if (tag->trace_hi | tag->trace_lo)
            add_pair(m, trace, trace_text(m, tag));
        if (tag->span)
            vec_push(&m->tags.numbers, number);
        m->tags.pairs_end[i] = (uint32_t)m->tags.pairs.len;
    }
    m->strings.strings.ptr = j->labels.strings.ptr;
    m->strings.strings.len = j->labels.strings.len;
    return 0;
}

/* ---- vectors ----- */

static int sorted_cmp(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;

    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* The value of a row under the type-th type of its family. */
static uint64_t value_of(const struct jfr_row *row, int type)
{
    const struct family *f = &families[row->family];

    return type == 1 || f->amount_only || f->by_rate ? row->amount : row->count;
}

/* The vector of m->sorted[from, to), all of one series and id. False: the arena is full. */
static bool vector(struct maker *m, size_t from, size_t to, int type, struct push_series *ret)
{
    struct arena *a = m->j->push->arena;
    uint32_t *nodes = arena_alloc(a, (to - from) * sizeof(*nodes));
    uint64_t *values = arena_alloc(a, (to - from) * sizeof(*values));
    size_t n = 0;

    if (!nodes || !values)
        return false;
    for (size_t i = from; i < to; i++) {
        uint64_t v = value_of(&m->j->rows.ptr[m->sorted[i].row], type);
        if (v == 0)
            continue;
        if (n > 0 && nodes[n - 1] == m->sorted[i].node) {
            values[n - 1] = push_sum(m->j->push, values[n - 1], v);
        } else {
            nodes[n] = m->sorted[i].node;
            values[n++] = v;
        }
    }
    *ret = (struct push_series){ .unit = 1, .nodes = nodes, .values = values, .len = n };
    return true;
}

static int add_series(struct maker *m, size_t from, size_t to)
{
    enum jfr_family family = (enum jfr_family)(m->j->rows.ptr[m->sorted[from].row].family);
    const struct family *f = &families[family];
    const struct labels *labels = &m->groups.sets[m->sorted[from].series >> 4];
    struct series *out = &m->series[m->series_len++];
    struct push_series s;

    out->key = m->sorted[from].series;
    for (int t = 0; t < types_of(family); t++) {
        const struct ptype type = { str_c(f->name), str_c(f->types[t].type),
                                    str_c(f->types[t].unit), str_c(f->period_type),
                                    str_c(f->period_unit) };
        out->of_type[t] = JFR_NONE;
        if (!vector(m, from, to, t, &s))
            return push_full(m->j->push, m->e);
        if (s.len == 0)
            continue;
        if (f->by_rate)
            s.unit = MAX(m->j->units[family], 1);
        if (push_add(m->j->push, &type, labels, &s, m->e))
            return m->e->code;
        out->of_type[t] = (uint32_t)m->j->push->series_len - 1;
    }
    return 0;
}

static int add_exemplar(struct maker *m, enum exid_kind kind, size_t from, size_t to,
                        const struct series *of)
{
    enum jfr_family family = (enum jfr_family)(m->j->rows.ptr[m->sorted[from].row].family);
    struct push *push = m->j->push;
    struct push_series s;

    for (int t = 0; t < types_of(family); t++) {
        if (of->of_type[t] == JFR_NONE)
            continue;
        if (push->exemplars >= m->j->l->exemplars) {
            push->drops[CHANGE_EXEMPLAR]++;
            continue;
        }
        if (!vector(m, from, to, t, &s))
            return push_full(push, m->e);
        struct push_exemplar x = { .kind = kind,
                                   .id = m->spans.ids[m->sorted[from].id],
                                   .nodes = s.nodes,
                                   .values = s.values,
                                   .len = s.len };
        if (s.len && !push_exemplar(push, of->of_type[t], &x))
            return push_full(push, m->e);
    }
    return 0;
}

/* Rows in order of their series; with `ids` only those that have one, in order of these too. */
static size_t sort_rows(struct maker *m, const uint32_t *ids)
{
    size_t n = 0;

    vec_for (i, &m->j->rows) {
        const struct jfr_row *row = &m->j->rows.ptr[i];
        uint32_t group = m->groups.of_sample ? m->groups.of_sample[row->tag] : 0;
        if (ids && ids[row->tag] == PPROF_NONE)
            continue;
        m->sorted[n++] = (struct sorted){ group << 4 | row->family, ids ? ids[row->tag] : 0,
                                          row->node, (uint32_t)i };
    }
    if (n > 1)
        qsort(m->sorted, n, sizeof(*m->sorted), sorted_cmp);
    return n;
}

/* Where the rows of one series and id that start at `from` end. */
static size_t run_end(const struct maker *m, size_t from, size_t n)
{
    size_t to = from + 1;

    while (to < n && m->sorted[to].series == m->sorted[from].series &&
           m->sorted[to].id == m->sorted[from].id)
        to++;
    return to;
}

static int make_all(struct maker *m)
{
    size_t n = sort_rows(m, NULL);

    for (size_t from = 0, to; from < n; from = to) {
        to = run_end(m, from, n);
        if (add_series(m, from, to))
            return m->e->code;
    }
    for (int kind = EXID_SPAN; kind <= EXID_TRACE; kind++) {
        const struct series *of = m->series;
        n = m->spans.of_sample[kind] ? sort_rows(m, m->spans.of_sample[kind]) : 0;
        for (size_t from = 0, to; from < n; from = to) {
            to = run_end(m, from, n);
            while (of->key != m->sorted[from].series)
                of++;
            if (add_exemplar(m, (enum exid_kind)kind, from, to, of))
                return m->e->code;
        }
    }
    return 0;
}

static size_t types_present(const struct jfr *j)
{
    bool here[JFR_FAMILIES] = { false };
    size_t n = 0;

    vec_for (i, &j->rows)
        here[j->rows.ptr[i].family] = true;
    for (int f = 0; f < JFR_FAMILIES; f++)
        n += here[f] ? (size_t)types_of((enum jfr_family)f) : 0;
    return n;
}

int jfr_series(struct jfr *j, struct err *e)
{
    struct maker m = { .j = j, .e = e };
    size_t types = types_present(j);
    int rc;

    if (types == 0)
        return 0;
    j->push->drops[CHANGE_RATE] += j->in->rate_unread;
    rc = tags_to_samples(&m);
    if (!rc)
        rc = pprof_spans(&m.strings, &m.tags, j->push, &m.spans, e);
    if (!rc)
        rc = pprof_groups(&(struct pprof_groups_args){ &m.strings, &m.tags, j->l,
                                                       .groups_max = (size_t)j->l->series / types },
                          j->push, &m.groups, e);
    if (!rc && (!jfr_charge(j, j->rows.len * (sizeof(*m.sorted) + sizeof(*m.series)), e)))
        rc = e->code;
    if (!rc) {
        m.sorted = xcalloc(j->rows.len, sizeof(*m.sorted));
        m.series = xcalloc(j->rows.len, sizeof(*m.series));
        rc = make_all(&m);
    }
    xfree(m.sorted);
    xfree(m.series);
    pprof_walked_deinit(&m.tags);
    return rc;
}
