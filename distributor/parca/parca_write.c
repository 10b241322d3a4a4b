/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_write: the columns of both write schemas to rows.
 *
 *   batch ─ columns by name ─> rows {labels, type, stack, value, time} ─ parca_groups ─> pushes
 *
 *   v1   labels.<name> columns, stacktrace_id ─(second stream)─> locations
 *   v2   labels{<name>}, stacktrace: the locations themselves
 *
 * The rest of the columns have the same names in both and differ in their encoding only, which the
 * reader of cells does not care about: text may be a dictionary, runs, a view or plain. So columns
 * are found by their names, not by the version that the schema claims, and unknown ones are
 * ignored.
 *
 * Format: parca-agent v0.47.1 and v0.48.0 (proto/FORMATS.md, "Parca schema v1", "Parca schema v2").
 */
#include "distributor/parca/parca_write.h"

#include "common/base/hash.h"
#include "distributor/parca/arrow/arrow_ask.h"
#include "distributor/parca/parca_groups.h"

#define COLUMNS_MAX   1024
#define LABEL_CELLS   (UINT64_C(16) << 20) /* rows times label columns */
#define WORD_KEEP     256                  /* bytes of a part of a type; push_add refuses so many */
#define ID_MAX        64                   /* bytes of the id of a stack: 16 */
#define NS_PER_MS     INT64_C(1000000)
#define LABELS_PREFIX "labels."

/* Text columns that make a profile type, in the order of struct ptype. */
static const char *const type_columns[] = { "producer", "sample_type", "sample_unit", "period_type",
                                            "period_unit" };
#define TYPE_WORDS ARRAY_LEN(type_columns)

/* Where the stacks of v1 are: id -> row of the list column of the second stream. */
struct stack_index {
    struct arrow *arrow;
    uint32_t list;
    struct map_u64 rows; /* hash of the id -> row */
    uint64_t seed;
    VEC(struct str) ids; /* by row */
};
struct reading {
    struct arrow *a;
    const struct batch_sink *sink;
    struct arena *arena;
    struct stack_index *index; /* NULL: v2 */
    uint32_t *labels;          /* fields, by label column */
    struct str *label_names;
    uint32_t stack, value, period, duration, timestamp, types[TYPE_WORDS];
    struct parca_sets sets;
    VEC(struct parca_type) type_list;
    struct str *values; /* of the labels of one row */
    struct parca_row *rows;
    size_t rows_len;
    uint64_t samples;
};

/* ---- columns -----------------------------------------------------------------------------------
 */

static int need(const struct arrow_schema *s, const char *name, uint32_t *ret, struct err *e)
{
    *ret = arrow_column(s, str_c(name));
    return *ret != ARROW_NO_FIELD ? 0 : err_set(e, ERR_INPUT, "parca: there is no column %s", name);
}

static int find_labels(struct reading *r, struct err *e)
{
    const struct arrow_schema *s = &r->a->schema;
    uint32_t all = arrow_column(s, STR("labels")), from = 0, end = s->columns_end;
    size_t n = 0;

    if (all != ARROW_NO_FIELD) {
        if (s->fields.ptr[all].kind != ARROW_STRUCT)
            return err_set(e, ERR_INPUT, "parca: column labels is no struct");
        from = all + 1;
        end = s->fields.ptr[all].end;
    }
    r->labels = ARENA_ARRAY(r->arena, uint32_t, COLUMNS_MAX);
    r->label_names = ARENA_ARRAY(r->arena, struct str, COLUMNS_MAX);
    r->values = ARENA_ARRAY(r->arena, struct str, COLUMNS_MAX);
    if (!r->labels || !r->label_names || !r->values)
        return err_set(e, ERR_LIMIT, "parca: no memory for the labels");
    for (uint32_t f = from; f < end; f = s->fields.ptr[f].end) {
        struct str name = s->fields.ptr[f].name;
        if (all == ARROW_NO_FIELD && !str_starts(name, STR(LABELS_PREFIX)))
            continue;
        if (n == COLUMNS_MAX)
            return err_set(e, ERR_LIMIT, "parca: more than %d columns of labels", COLUMNS_MAX);
        r->labels[n] = f;
        r->label_names[n++] =
            all == ARROW_NO_FIELD ? str_sub(name, strlen(LABELS_PREFIX), name.len) : name;
    }
    r->sets.names = r->label_names;
    r->sets.columns = n;
    return 0;
}

static int find_columns(struct reading *r, struct err *e)
{
    const struct arrow_schema *s = &r->a->schema;

    if (find_labels(r, e) || need(s, r->index ? "stacktrace_id" : "stacktrace", &r->stack, e) ||
        need(s, "value", &r->value, e))
        return e->code;
    for (size_t i = 0; i < TYPE_WORDS; i++)
        if (need(s, type_columns[i], &r->types[i], e))
            return e->code;
    r->period = arrow_column(s, STR("period")); /* these may be missing */
    r->duration = arrow_column(s, STR("duration"));
    r->timestamp = arrow_column(s, STR("timestamp"));
    return 0;
}

/* ---- rows --------------------------------------------------------------------------------------
 */

static int64_t number(struct reading *r, uint32_t field, uint64_t row)
{
    int64_t v = 0;

    if (field != ARROW_NO_FIELD)
        (void)arrow_i64(r->a, arrow_cell(r->a, field, row), &v);
    return v;
}

/* As push_add makes a word of it: types that are equal then must be one type here. */
static bool word(struct reading *r, struct str s, const char *empty, struct str *ret)
{
    s = str_sub(s, 0, WORD_KEEP); /* one entry of a dictionary may be the type of every row */
    char *w = arena_alloc(r->arena, s.len + 1);

    if (!w)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        w[i] = plain ? c : '_';
    }
    *ret = s.len ? str_n(w, s.len) : str_c(empty);
    return true;
}

static bool same_words(const struct str *words, const struct ptype *t)
{
    const struct str have[TYPE_WORDS] = { t->name, t->sample_type, t->sample_unit, t->period_type,
                                          t->period_unit };

    for (size_t i = 0; i < TYPE_WORDS; i++)
        if (!str_eq(words[i], have[i]))
            return false;
    return true;
}

static int find_type(struct reading *r, uint64_t row, uint32_t *ret, struct err *e)
{
    struct arena_mark mark = arena_mark(r->arena);
    struct str words[TYPE_WORDS];

    for (size_t i = 0; i < TYPE_WORDS; i++) {
        struct str s = STR_NULL;
        (void)arrow_bytes(r->a, arrow_cell(r->a, r->types[i], row), &s);
        if (!word(r, s, i < 2 ? "unknown" : "", &words[i]))
            return err_set(e, ERR_LIMIT, "parca: no memory for the types");
    }
    for (size_t i = r->type_list.len; i-- > 0;)
        if (same_words(words, &r->type_list.ptr[i].ptype)) {
            arena_rewind(r->arena, mark);
            *ret = (uint32_t)i;
            return 0;
        }
    if (r->type_list.len == PARCA_TYPES_MAX)
        return err_set(e, ERR_LIMIT, "parca: more than %d types of profiles", PARCA_TYPES_MAX);
    *ret = (uint32_t)r->type_list.len;
    const struct parca_type t = { { words[0], words[1], words[2], words[3], words[4] },
                                  number(r, r->period, row) };
    vec_push(&r->type_list, t);
    return 0;
}

/* Where the stack of a row is. An id that did not come leaves row->known false. */
static void find_stack(struct reading *r, uint64_t row, struct parca_row *to)
{
    struct arrow_cell c = arrow_cell(r->a, r->stack, row);
    struct stack_index *x = r->index;
    struct str id;

    to->known = true;
    to->first = c;
    if (!x) {
        if (!arrow_list(r->a, c, &to->first, &to->frames))
            to->frames = 0;
        return;
    }
    to->known = false;
    if (!arrow_bytes(r->a, c, &id) || id.len > ID_MAX)
        return;
    for (uint64_t h = hash64(id.ptr, id.len, x->seed);; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_get(&x->rows, h);
        if (at == MAP_U64_EMPTY)
            return;
        if (!str_eq(x->ids.ptr[at], id))
            continue;
        to->first = arrow_cell(x->arrow, x->list, at);
        if (!arrow_list(x->arrow, to->first, &to->first, &to->frames))
            to->frames = 0;
        to->known = true;
        return;
    }
}

static int take_row(struct reading *r, uint64_t row, struct parca_row *to, struct err *e)
{
    for (size_t i = 0; i < r->sets.columns; i++)
        if (!arrow_bytes(r->a, arrow_cell(r->a, r->labels[i], row), &r->values[i]))
            r->values[i] = STR_NULL;
        else if (r->values[i].len > r->sink->limits->label_value_bytes)
            r->values[i] = STR(PARCA_OVERFLOW); /* not to be hashed for each row */
    if (parca_sets_find(&r->sets, r->values, &to->sent, e) || find_type(r, row, &to->type, e))
        return e->code;
    find_stack(r, row, to);
    to->value = number(r, r->value, row);
    to->time_ns = number(r, r->timestamp, row);
    to->duration_ns = number(r, r->duration, row);
    if (to->time_ns == 0)
        to->time_ns = r->sink->now_ms * NS_PER_MS;
    if (r->a->fault.code || (r->index && r->index->arrow->fault.code)) {
        *e = r->a->fault.code ? r->a->fault : r->index->arrow->fault;
        return e->code;
    }
    return 0;
}

static int take_rows(struct reading *r, struct err *e)
{
    uint64_t n = r->a->batch.rows;

    r->samples += n;
    if (r->samples > r->sink->limits->samples)
        return err_set(e, ERR_LIMIT, "parca: more than %" PRIu64 " samples",
                       r->sink->limits->samples);
    if (n * (r->sets.columns + 1) > LABEL_CELLS)
        return err_set(e, ERR_LIMIT, "parca: %" PRIu64 " samples with %zu columns of labels", n,
                       r->sets.columns);
    r->rows = arena_alloc(r->arena, (size_t)n * sizeof(*r->rows));
    if (!r->rows)
        return err_set(e, ERR_LIMIT, "parca: no memory for %" PRIu64 " samples", n);
    r->rows_len = (size_t)n;
    for (uint64_t i = 0; i < n; i++)
        if (take_row(r, i, &r->rows[i], e))
            return e->code;
    return 0;
}

/* One batch of samples, whose columns are known, to pushes. */
static int push_batch(struct reading *r, struct parca_frames *f, struct str identity, struct err *e)
{
    /* Text of labels and types points into this batch: nothing of it is kept for the next. */
    parca_sets_init(&r->sets);
    int rc = take_rows(r, e);
    const struct parca_rows rows = { .ptr = r->rows,
                                     .len = r->rows_len,
                                     .types = r->type_list.ptr,
                                     .types_len = r->type_list.len,
                                     .sets = &r->sets };
    if (!rc)
        rc = parca_groups(&rows, f, identity, r->sink, r->arena, e);
    parca_sets_deinit(&r->sets);
    r->sets.sent.len = r->sets.sets.len = 0;
    vec_free(&r->type_list);
    return rc;
}

static int push_all(struct reading *r, const struct parca_opts *o, struct str identity,
                    struct err *e)
{
    struct arrow *stacks = r->index ? r->index->arrow : r->a;
    struct parca_fields fields;
    struct parca_frames f = { 0 };
    bool more = true;
    int rc = 0;

    r->sets = (struct parca_sets){
        .arena = r->arena, .limits = r->sink->limits, .drop = o->drop_labels, .seed = o->seed
    };
    while (!rc && more) {
        rc = arrow_next(r->a, &more, e);
        if (rc || !more || r->a->batch.rows == 0)
            continue;
        if (!f.arrow) { /* an empty stream needs no columns */
            rc = find_columns(r, e) ||
                         parca_fields_find(&stacks->schema, r->index ? r->index->list : r->stack,
                                           &fields, e)
                     ? e->code
                     : 0;
            if (!rc)
                parca_frames_init(&f, stacks, &fields, r->sink->limits);
        }
        if (!rc)
            rc = push_batch(r, &f, identity, e);
    }
    if (f.arrow)
        parca_frames_deinit(&f);
    return rc;
}

int parca_arrow_push(struct str body, const struct parca_opts *o, const struct batch_sink *sink,
                     struct err *e)
{
    struct arena *arena = arena_new((size_t)sink->limits->decode_bytes);
    struct arrow a;
    struct reading r = { .a = &a, .sink = sink, .arena = arena };

    int rc = arrow_open(&a, body, sink->limits, arena, e);
    if (!rc)
        rc = push_all(&r, o, body, e);
    arrow_close(&a);
    arena_free(arena);
    return rc;
}

/* ---- v1 ----------------------------------------------------------------------------------------
 */

static int index_rows(struct stack_index *x, uint32_t id_field, struct err *e)
{
    struct str id;

    for (uint64_t row = 0; row < x->arrow->batch.rows; row++) {
        if (!arrow_bytes(x->arrow, arrow_cell(x->arrow, id_field, row), &id) || id.len > ID_MAX)
            id = STR_NULL;
        vec_push(&x->ids, id);
        uint64_t h = hash64(id.ptr, id.len, x->seed);
        for (;; h = hash_u64(h + 1)) {
            uint32_t at = map_u64_put(&x->rows, h, (uint32_t)row);
            if (at == MAP_U64_EMPTY || str_eq(x->ids.ptr[at], id))
                break; /* an id twice: the first one counts */
        }
    }
    if (x->arrow->fault.code)
        *e = x->arrow->fault;
    return x->arrow->fault.code;
}

/* The stacks of the second stream: one batch, since its cells stay in use. */
static int index_open(struct stack_index *x, const struct limits *l, struct err *e)
{
    bool more = true;
    uint32_t id_field;

    do
        if (arrow_next(x->arrow, &more, e))
            return e->code;
    while (more && x->arrow->batch.rows == 0);
    if (need(&x->arrow->schema, "stacktrace_id", &id_field, e) ||
        need(&x->arrow->schema, "locations", &x->list, e))
        return e->code;
    if (!more)
        x->arrow->batch.rows = 0;
    if (x->arrow->batch.rows > l->samples)
        return err_set(e, ERR_LIMIT, "parca: %" PRIu64 " stacks, at most %" PRIu64,
                       x->arrow->batch.rows, l->samples);
    return index_rows(x, id_field, e);
}

int parca_samples_push(struct str samples, struct str stacks, const struct parca_opts *o,
                       const struct batch_sink *sink, struct err *e)
{
    struct arena *arena = arena_new((size_t)sink->limits->decode_bytes);
    struct arrow a, second;
    struct stack_index index = { .arrow = &second, .seed = o->seed };
    struct reading r = { .a = &a, .sink = sink, .arena = arena, .index = &index };

    map_u64_init(&index.rows);
    memset(&second, 0, sizeof(second));
    int rc = arrow_open(&a, samples, sink->limits, arena, e);
    if (!rc)
        rc = arrow_open(&second, stacks, sink->limits, arena, e);
    if (!rc)
        rc = index_open(&index, sink->limits, e);
    if (!rc)
        rc = push_all(&r, o, samples, e);
    arrow_close(&a);
    arrow_close(&second);
    map_u64_deinit(&index.rows);
    vec_free(&index.ids);
    arena_free(arena);
    return rc;
}

static bool add_id(struct str id, uint64_t seed, struct map_u64 *seen, struct arrow_ask *ask)
{
    for (uint64_t h = hash64(id.ptr, id.len, seed);; h = hash_u64(h + 1)) {
        uint32_t at = map_u64_put(seen, h, (uint32_t)arrow_ask_len(ask));
        if (at == MAP_U64_EMPTY)
            return arrow_ask_add(ask, id);
        if (str_eq(arrow_ask_at(ask, at), id))
            return true;
    }
}

static int ask_rows(struct arrow *a, uint64_t seed, struct map_u64 *seen, struct arrow_ask *ask,
                    struct err *e)
{
    bool more = true;
    uint32_t field;
    struct str id;

    for (;;) {
        if (arrow_next(a, &more, e))
            return e->code;
        if (!more)
            return 0;
        if (a->batch.rows == 0)
            continue;
        if (need(&a->schema, "stacktrace_id", &field, e))
            return e->code;
        for (uint64_t row = 0; row < a->batch.rows; row++)
            if (row >= a->budget.limits->samples ||
                (arrow_bytes(a, arrow_cell(a, field, row), &id) && id.len <= ID_MAX &&
                 !add_id(id, seed, seen, ask)))
                return err_set(e, ERR_LIMIT, "parca: too many stacks in one record");
        if (a->fault.code) {
            *e = a->fault;
            return e->code;
        }
    }
}

int parca_samples_ask(struct str samples, const struct limits *l, uint64_t seed, struct buf *out,
                      size_t *ret_ids, struct err *e)
{
    struct arena *arena = arena_new((size_t)l->decode_bytes);
    struct arrow_ask ask;
    struct map_u64 seen;
    struct arrow a;

    arrow_ask_init(&ask);
    map_u64_init(&seen);
    int rc = arrow_open(&a, samples, l, arena, e);
    if (!rc)
        rc = ask_rows(&a, seed, &seen, &ask, e);
    if (!rc && !arrow_ask_write(&ask, STR("stacktrace_id"), out))
        rc = err_set(e, ERR_LIMIT, "parca: the ids of the stacks take more than %zu bytes",
                     out->max);
    *ret_ids = arrow_ask_len(&ask);
    arrow_close(&a);
    map_u64_deinit(&seen);
    arrow_ask_deinit(&ask);
    arena_free(arena);
    return rc;
}
