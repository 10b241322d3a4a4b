/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/parca_bed.h"

static const struct {
    const char *words[6];
    int64_t period;
} types[] = {
    { { "parca_agent", "samples", "count", "cpu", "nanoseconds", "delta" }, 52631578 },
    { { "parca_agent", "wallclock", "nanoseconds", "samples", "count", "delta" }, 1 },
    { { "memory", "inuse_space", "bytes", "space", "bytes", NULL }, 524288 },
};
static const char *const label_names[PARCA_GEN_LABELS] = { "node", "comm", "pod", "job" };

const char *parca_gen_label(size_t i)
{
    return label_names[i];
}

static const char *name(struct arena *a, const char *before, uint64_t i, const char *after)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "%s%lu%s", before, (unsigned long)i, after);
    return arena_strdup(a, str_c(text)).ptr;
}

static void gen_loc(struct parca_loc *l, struct arena *a, struct prng *r, size_t i)
{
    *l = (struct parca_loc){ .address = 0x1000 + 16 * i };
    if (prng_chance(r, 0.5)) {
        l->file = name(a, "/usr/lib/lib", prng_below(r, 5), ".so");
        l->build_id = name(a, "c0ffee0123456789c0ffee0123456789c0ffee0", prng_below(r, 5), "");
        return;
    }
    for (size_t n = 1 + prng_below(r, 3); l->lines_len < n; l->lines_len++) {
        struct parca_line *line = &l->lines[l->lines_len];
        line->name = name(a, "a_function_of_some_length_", 3 * i + l->lines_len, "");
        line->file = prng_chance(r, 0.8) ? name(a, "src/file_", prng_below(r, 50), ".c") : "";
        line->line = (int64_t)prng_below(r, 1000);
    }
}

void parca_gen(struct parca_model *m, struct arena *a, uint64_t seed, size_t samples,
               int64_t now_ns)
{
    struct prng r;

    prng_init(&r, seed);
    *m = (struct parca_model){ .arena = a,
                               .locs_len = 5 + samples / 5,
                               .stacks_len = 2 + samples / 4,
                               .samples_len = samples };
    m->locs = ARENA_ARRAY(a, struct parca_loc, m->locs_len);
    m->stacks = ARENA_ARRAY(a, struct parca_stack, m->stacks_len);
    m->samples = ARENA_ARRAY(a, struct parca_sample, samples + 1);
    CHECK(m->locs && m->stacks && m->samples);
    for (size_t i = 0; i < m->locs_len; i++)
        gen_loc(&m->locs[i], a, &r, i);
    for (size_t i = 0; i < m->stacks_len; i++)
        for (size_t n = prng_below(&r, 13); m->stacks[i].len < n; m->stacks[i].len++)
            m->stacks[i].locs[m->stacks[i].len] = prng_below(&r, m->locs_len);
    for (size_t i = 0; i < samples; i++) {
        struct parca_sample *s = &m->samples[i];
        s->labels[0] = "n1";
        s->labels[1] = prng_chance(&r, 0.9) ? name(a, "prog", prng_below(&r, 4), "") : NULL;
        s->labels[2] = prng_chance(&r, 0.5) ? name(a, "pod-", prng_below(&r, 3), "") : NULL;
        s->labels[3] = prng_chance(&r, 0.2) ? "batch" : NULL;
        s->stack = prng_below(&r, m->stacks_len);
        s->type = (unsigned)prng_below(&r, ARRAY_LEN(types));
        s->value = 1 + (int64_t)prng_below(&r, 100000);
        s->time_ns = now_ns - (int64_t)prng_below(&r, 5000000000);
    }
}

/* ---- what should come out ----------------------------------------------------------------------
 */

static void stack_text(const struct parca_model *m, const struct parca_stack *s, struct buf *out)
{
    bool first = true;

    for (size_t i = s->len; i-- > 0;) {
        const struct parca_loc *l = &m->locs[s->locs[i]];
        for (size_t k = l->lines_len; k-- > 0; first = false)
            buf_addf(out, "%s%s", first ? "" : ";", l->lines[k].name);
        if (l->lines_len == 0) {
            buf_addf(out, "%s%s!0x%" PRIx64, first ? "" : ";", strrchr(l->file, '/') + 1,
                     l->address);
            first = false;
        }
    }
    if (first)
        buf_add_str(out, STR("[unknown]"));
}

static void sample_text(const struct parca_model *m, const struct parca_sample *s, struct buf *out)
{
    const char *service = s->labels[3] ? s->labels[3] : s->labels[1];
    static const size_t sorted[] = { 1, 3, 0, 2 }; /* comm, job, node, pod */
    bool comma = false;

    buf_addf(out, "%s\t%s\t{", service ? service : "unknown_service", types[s->type].words[1]);
    for (size_t i = 0; i < PARCA_GEN_LABELS; i++)
        if (s->labels[sorted[i]]) {
            buf_addf(out, "%s%s=%s", comma ? "," : "", label_names[sorted[i]],
                     s->labels[sorted[i]]);
            comma = true;
        }
    buf_add_str(out, STR("}\t"));
    stack_text(m, &m->stacks[s->stack], out);
}

void parca_gen_rows(const struct parca_model *m, struct buf *out)
{
    for (size_t i = 0; i < m->samples_len; i++) {
        sample_text(m, &m->samples[i], out);
        buf_addf(out, "\t%" PRId64 "\n", m->samples[i].value);
    }
    gen_sort_lines(out);
}

/* ---- the streams -------------------------------------------------------------------------------
 */

static struct ga_type *text_runs(struct ga *g, const char *column, bool dict)
{
    struct ga_type *t = ga_type(g, dict ? GA_BINARY : GA_UTF8, "values", NULL);

    return ga_runs_of(g, column, dict ? ga_dict_of(g, "values", t) : t);
}

static struct ga_type *text_dict(struct ga *g, const char *column)
{
    return ga_dict_of(g, column, ga_type(g, GA_UTF8, "item", NULL));
}

static struct ga_value v2_loc(struct ga *g, const struct parca_loc *l)
{
    struct ga_value lines[3], parts[5];

    for (size_t i = 0; i < l->lines_len; i++) {
        const struct ga_value fn[] = { ga_text(l->lines[i].name), ga_text(l->lines[i].file),
                                       ga_num(0) };
        const struct ga_value line[] = { ga_num(l->lines[i].line), ga_num(0), ga_items(g, 3, fn) };
        lines[i] = ga_items(g, 3, line);
    }
    parts[0] = ga_num((int64_t)l->address);
    parts[1] = ga_text("native");
    parts[2] = ga_text(l->file);
    parts[3] = ga_text(l->build_id);
    parts[4] = l->lines_len ? ga_items(g, l->lines_len, lines) : ga_null();
    return ga_items(g, 5, parts);
}

static void type_columns(struct ga *g, bool dict)
{
    static const char *const names[] = { "producer",    "sample_type", "sample_unit",
                                         "period_type", "period_unit", "temporality" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        ga_column(g, text_runs(g, names[i], dict));
    ga_column(g, ga_runs_of(g, "period", ga_int(g, "values", 8, true)));
    ga_column(g, ga_runs_of(g, "duration", ga_int(g, "values", 8, dict)));
    ga_column(g, dict ? ga_runs_of(g, "timestamp", ga_int(g, "values", 8, true))
                      : ga_type(g, GA_TIME, "timestamp", NULL));
}

static void v2_columns(struct ga *g)
{
    struct ga_type *labels = ga_type(g, GA_STRUCT, "labels", NULL);
    struct ga_type *fn = ga_type(g, GA_STRUCT, "function", ga_type(g, GA_VIEW, "system_name", NULL),
                                 text_dict(g, "filename"), ga_int(g, "start_line", 8, false), NULL);
    struct ga_type *line =
        ga_type(g, GA_STRUCT, "item", ga_int(g, "line", 8, false), ga_int(g, "column", 8, false),
                ga_dict_of(g, "function", fn), NULL);
    struct ga_type *loc =
        ga_type(g, GA_STRUCT, "item", ga_int(g, "address", 8, false), text_dict(g, "frame_type"),
                text_dict(g, "mapping_file"), text_dict(g, "mapping_build_id"),
                ga_type(g, GA_LISTVIEW, "lines", line, NULL), NULL);
    struct ga_type *id = ga_type(g, GA_FIXED, "stacktrace_id", NULL);

    for (size_t i = 0; i < PARCA_GEN_LABELS; i++)
        labels->kids[labels->kids_len++] = ga_runs_of(g, label_names[i], text_dict(g, "values"));
    id->width = 16;
    ga_column(g, labels);
    ga_column(g, ga_type(g, GA_LISTVIEW, "stacktrace", ga_dict_of(g, "item", loc), NULL));
    ga_column(g, id);
    ga_column(g, ga_int(g, "value", 8, true));
    type_columns(g, false);
}

static struct ga_value stack_id(struct ga *g, size_t i)
{
    char id[17];

    (void)snprintf(id, sizeof(id), "%016zx", i);
    return ga_bytes(arena_strdup(g->arena, str_n(id, 16)));
}

/* The columns that both versions have, from values[at] on. */
static void shared_values(const struct parca_sample *s, struct ga_value **values, size_t at,
                          size_t row)
{
    values[at++][row] = ga_num(s->value);
    for (size_t i = 0; i < 6; i++)
        values[at++][row] = ga_text(types[s->type].words[i]);
    values[at++][row] = ga_num(types[s->type].period);
    values[at++][row] = ga_num(types[s->type].words[5] ? 5000000000 : 0);
    values[at][row] = ga_num(s->time_ns);
}

static void open_stream(struct ga *g, const struct parca_model *m, enum ga_codec codec,
                        const char *version, struct buf *out)
{
    ga_init(g, m->arena, out);
    g->codec = codec;
    g->meta_key = "parca_write_schema_version";
    g->meta_value = version;
}

static void alloc_values(const struct parca_model *m, struct ga_value **values, size_t columns,
                         size_t rows)
{
    for (size_t i = 0; i < columns; i++) {
        values[i] = ARENA_ARRAY(m->arena, struct ga_value, rows + 1);
        CHECK(values[i]);
    }
}

void parca_gen_v2(const struct parca_model *m, enum ga_codec codec, size_t batches, struct buf *out)
{
    struct ga_value *values[13], *locs = ARENA_ARRAY(m->arena, struct ga_value, m->locs_len);
    size_t done = 0;
    struct ga g;

    open_stream(&g, m, codec, "v2", out);
    v2_columns(&g);
    ga_schema(&g);
    for (size_t i = 0; i < m->locs_len; i++)
        locs[i] = v2_loc(&g, &m->locs[i]);
    for (size_t b = 0; b < batches; b++) {
        size_t rows = b + 1 == batches ? m->samples_len - done : m->samples_len / batches;
        alloc_values(m, values, ARRAY_LEN(values), rows);
        for (size_t i = 0; i < rows; i++) {
            const struct parca_sample *s = &m->samples[done + i];
            struct ga_value parts[12];
            for (size_t k = 0; k < PARCA_GEN_LABELS; k++)
                parts[k] = ga_text(s->labels[k]);
            values[0][i] = ga_items(&g, PARCA_GEN_LABELS, parts);
            for (size_t k = 0; k < m->stacks[s->stack].len; k++)
                parts[k] = locs[m->stacks[s->stack].locs[k]];
            values[1][i] = ga_items(&g, m->stacks[s->stack].len, parts);
            values[2][i] = stack_id(&g, s->stack);
            shared_values(s, values, 3, i);
        }
        ga_batch(&g, values, rows);
        done += rows;
    }
    ga_end(&g);
    ga_free(&g);
}

void parca_gen_v1_samples(const struct parca_model *m, enum ga_codec codec, struct buf *out)
{
    struct ga_value *values[PARCA_GEN_LABELS + 11];
    char column[64];
    struct ga g;

    open_stream(&g, m, codec, "v1", out);
    for (size_t i = 0; i < PARCA_GEN_LABELS; i++) {
        (void)snprintf(column, sizeof(column), "labels.%s", label_names[i]);
        ga_column(&g, text_runs(&g, arena_strdup(m->arena, str_c(column)).ptr, true));
    }
    ga_column(&g, text_runs(&g, "stacktrace_id", true));
    ga_column(&g, ga_int(&g, "value", 8, true));
    type_columns(&g, true);
    ga_schema(&g);
    alloc_values(m, values, ARRAY_LEN(values), m->samples_len);
    for (size_t i = 0; i < m->samples_len; i++) {
        const struct parca_sample *s = &m->samples[i];
        for (size_t k = 0; k < PARCA_GEN_LABELS; k++)
            values[k][i] = ga_text(s->labels[k]);
        values[PARCA_GEN_LABELS][i] = stack_id(&g, s->stack);
        shared_values(s, values, PARCA_GEN_LABELS + 1, i);
    }
    ga_batch(&g, values, m->samples_len);
    ga_end(&g);
    ga_free(&g);
}

static struct ga_value v1_loc(struct ga *g, const struct parca_loc *l)
{
    struct ga_value lines[3], parts[8];

    for (size_t i = 0; i < l->lines_len; i++) {
        const struct ga_value line[] = { ga_num(l->lines[i].line),  ga_num(0),
                                         ga_text(l->lines[i].name), ga_text(""),
                                         ga_text(l->lines[i].file), ga_num(0) };
        lines[i] = ga_items(g, ARRAY_LEN(line), line);
    }
    parts[0] = ga_num((int64_t)l->address);
    parts[1] = ga_text("native");
    parts[2] = parts[3] = parts[4] = ga_num(0);
    parts[5] = ga_text(l->file);
    parts[6] = ga_text(l->build_id);
    parts[7] = l->lines_len ? ga_items(g, l->lines_len, lines) : ga_null();
    return ga_items(g, ARRAY_LEN(parts), parts);
}

static struct ga_type *zero_runs(struct ga *g, const char *column)
{
    return ga_runs_of(g, column, ga_int(g, "values", 8, false));
}

void parca_gen_v1_stacks(const struct parca_model *m, enum ga_codec codec, struct buf *out)
{
    struct ga_value *values[3], locs[12];
    struct ga g;

    open_stream(&g, m, codec, "v1", out);
    struct ga_type *line = ga_type(
        &g, GA_STRUCT, "item", ga_int(&g, "line", 8, true), ga_int(&g, "column", 8, false),
        ga_dict_of(&g, "function_name", ga_type(&g, GA_BINARY, "item", NULL)),
        ga_dict_of(&g, "function_system_name", ga_type(&g, GA_BINARY, "item", NULL)),
        text_runs(&g, "function_filename", true), ga_int(&g, "function_start_line", 8, true), NULL);
    struct ga_type *loc = ga_type(
        &g, GA_STRUCT, "item", ga_int(&g, "address", 8, false), text_runs(&g, "frame_type", true),
        zero_runs(&g, "mapping_start"), zero_runs(&g, "mapping_limit"),
        zero_runs(&g, "mapping_offset"), text_runs(&g, "mapping_file", true),
        text_runs(&g, "mapping_build_id", true), ga_type(&g, GA_LIST, "lines", line, NULL), NULL);
    ga_column(&g, ga_type(&g, GA_BINARY, "stacktrace_id", NULL));
    ga_column(&g, ga_type(&g, GA_BOOL, "is_complete", NULL));
    ga_column(&g, ga_type(&g, GA_LIST, "locations", loc, NULL));
    ga_schema(&g);
    alloc_values(m, values, 3, m->stacks_len);
    for (size_t i = 0; i < m->stacks_len; i++) {
        const struct parca_stack *s = &m->stacks[i];
        for (size_t k = 0; k < s->len; k++)
            locs[k] = v1_loc(&g, &m->locs[s->locs[k]]);
        values[0][i] = stack_id(&g, i);
        values[1][i] = ga_num(1);
        values[2][i] = ga_items(&g, s->len, locs);
    }
    ga_batch(&g, values, m->stacks_len);
    ga_end(&g);
    ga_free(&g);
}
