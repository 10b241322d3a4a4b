/* SPDX-License-Identifier: Apache-2.0
 *
 * firefox_table: tables of a profile to columns.
 *
 *   raw        {schema{column: index}, data[[...], ...]}    rows may be shorter than the schema
 *   processed  {column[...], column[...], length}
 *
 * A stack, a frame, a function, a string are each found by their row, so what refers to them must
 * be at hand: of each table only the columns that are wanted, four bytes a row. Strings stay where
 * they are; an offset says where each begins. What a file has many tables of, one for each thread,
 * is read when the thread is, into the same memory; a table that threads share is read once, since
 * it comes from the same text.
 *
 * The schema may stand behind its data, so a table is gone over twice: where its parts are, and
 * what is in them.
 *
 * Format: proto/FORMATS.md, "Firefox profiles".
 */
#include "distributor/formats/upload/firefox_table.h"

#include <math.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static int add_ref(struct firefox_table *t, size_t column, uint32_t v, struct gather *g,
                   struct err *e)
{
    if (t->columns[column].len == t->columns[column].cap &&
        gather_charge(g, (t->columns[column].cap + 16) * sizeof(v), e))
        return e->code;
    vec_push(&t->columns[column], v);
    return 0;
}

static int add_weight(struct firefox_table *t, double v, struct gather *g, struct err *e)
{
    if (t->weights.len == t->weights.cap && gather_charge(g, (t->weights.cap + 16) * sizeof(v), e))
        return e->code;
    vec_push(&t->weights, v);
    return 0;
}

static uint32_t read_ref(struct jpull *j)
{
    const char c = jpull_peek(j);
    int64_t v = -1;

    if (c == '{' || c == '[' || c == 't' || c == 'f') {
        (void)jpull_skip(j);
        return FIREFOX_BEYOND;
    }
    (void)jpull_signed(j, "reference", &v);
    return v < 0 ? FIREFOX_NONE : (uint32_t)MIN(v, (int64_t)FIREFOX_BEYOND);
}

static double read_weight(struct jpull *j)
{
    double v = (double)NAN;

    (void)jpull_real(j, "weight", &v);
    return v;
}

/* ---- layouts --------------------------------------------------------------------------------- */

#define WEIGHTS FIREFOX_COLUMNS /* as the number of a column */
#define ALL     (FIREFOX_COLUMNS + 1)

/* A table that is being read. */
struct reading {
    struct firefox_table *t;
    const struct jpull *file;
    struct gather *g;
    struct err *e;
    /* Members to look for: the columns in order, then those of the layouts. */
    const char *names[ALL + 2];
    size_t column[ALL]; /* of the first `columns` names */
    size_t columns;
    struct str parts[ALL + 2]; /* what they are */
};

static void begin(struct reading *r, const struct firefox_want *want)
{
    for (size_t i = 0; i < want->len; i++) {
        r->column[i] = i;
        r->names[i] = want->names[i];
    }
    r->columns = want->len;
    if (want->weights) {
        r->column[r->columns] = WEIGHTS;
        r->names[r->columns++] = want->weights;
    }
    r->names[r->columns] = "schema";
    r->names[r->columns + 1] = "data";
}

static int read_column(struct reading *r, size_t i)
{
    const size_t column = r->column[i];
    struct jpull_it it;
    struct jpull j;

    if (column != WEIGHTS)
        r->t->has[column] = r->parts[i].len > 0;
    if (!r->parts[i].len)
        return 0;
    jpull_part(r->file, r->parts[i], &j);
    if (!jpull_array(&j, &it))
        return 0;
    while (jpull_element(&j, &it))
        if (column == WEIGHTS ? add_weight(r->t, read_weight(&j), r->g, r->e)
                              : add_ref(r->t, column, read_ref(&j), r->g, r->e))
            return r->e->code;
    return j.bad ? r->e->code : 0;
}

/* The row that is next; index[i] is where in it the i-th name is, or below zero. */
static int read_row(struct reading *r, struct jpull *j, const int64_t *index)
{
    uint32_t refs[FIREFOX_COLUMNS] = { FIREFOX_NONE, FIREFOX_NONE, FIREFOX_NONE, FIREFOX_NONE };
    double weight = (double)NAN;
    struct jpull_it it;

    if (jpull_array(j, &it))
        for (int64_t at = 0; jpull_element(j, &it); at++) {
            size_t i = 0;
            while (i < r->columns && index[i] != at)
                i++;
            if (i == r->columns)
                (void)jpull_skip(j);
            else if (r->column[i] == WEIGHTS)
                weight = read_weight(j);
            else
                refs[r->column[i]] = read_ref(j);
        }
    if (j->bad)
        return r->e->code;
    r->t->rows++;
    for (size_t i = 0; i < r->columns; i++)
        if (index[i] >= 0 &&
            (r->column[i] == WEIGHTS ? add_weight(r->t, weight, r->g, r->e)
                                     : add_ref(r->t, r->column[i], refs[i], r->g, r->e)))
            return r->e->code;
    return 0;
}

static int read_rows(struct reading *r)
{
    int64_t index[ALL] = { -1, -1, -1, -1, -1 };
    const struct str data = r->parts[r->columns + 1];
    struct jpull_obj obj;
    struct jpull_it it;
    struct jpull j;
    size_t which;

    jpull_part(r->file, r->parts[r->columns], &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, r->names, r->columns, &which))
            (void)(which < r->columns ? jpull_signed(&j, "the index of a column", &index[which])
                                      : jpull_skip(&j));
    if (j.bad)
        return r->e->code;
    for (size_t i = 0; i < r->columns; i++)
        if (r->column[i] != WEIGHTS)
            r->t->has[r->column[i]] = index[i] >= 0 && data.len;
    if (!data.len)
        return 0;
    jpull_part(r->file, data, &j);
    if (!jpull_array(&j, &it))
        return 0;
    while (jpull_element(&j, &it))
        if (read_row(r, &j, index))
            return r->e->code;
    return j.bad ? r->e->code : 0;
}

static int read_table(struct reading *r, struct str text)
{
    struct jpull_obj obj;
    struct jpull j;
    size_t which;

    if (!text.len)
        return 0;
    jpull_part(r->file, text, &j);
    if (jpull_object(&j, &obj))
        while (jpull_member(&j, &obj, r->names, r->columns + 2, &which))
            (void)(which < r->columns + 2 ? jpull_value(&j, &r->parts[which]) : jpull_skip(&j));
    if (j.bad)
        return r->e->code;
    r->t->raw = r->parts[r->columns].len > 0;
    if (r->t->raw)
        return read_rows(r);
    for (size_t i = 0; i < r->columns; i++)
        if (read_column(r, i))
            return r->e->code;
    return 0;
}

int firefox_table_read(struct firefox_table *t, const struct jpull *file, struct str text,
                       const struct firefox_want *want, struct gather *g, struct err *e)
{
    struct reading r = { .t = t, .file = file, .g = g, .e = e };

    if (text.ptr && text.ptr == t->from)
        return 0;
    t->from = NULL; /* half of it is nothing */
    t->raw = false;
    t->rows = t->weights.len = 0;
    for (size_t i = 0; i < FIREFOX_COLUMNS; i++) {
        t->has[i] = false;
        t->columns[i].len = 0;
    }
    begin(&r, want);
    if (read_table(&r, text))
        return err_wrap(e, "Firefox profile");
    t->from = text.ptr;
    return 0;
}

void firefox_table_deinit(struct firefox_table *t)
{
    for (size_t i = 0; i < FIREFOX_COLUMNS; i++)
        vec_free(&t->columns[i]);
    vec_free(&t->weights);
}

size_t firefox_table_len(const struct firefox_table *t, size_t column)
{
    return !t->has[column] ? 0 : t->raw ? t->rows : t->columns[column].len;
}

uint32_t firefox_table_at(const struct firefox_table *t, size_t column, uint32_t row)
{
    return row < t->columns[column].len ? t->columns[column].ptr[row] : FIREFOX_NONE;
}

double firefox_table_weight(const struct firefox_table *t, size_t row)
{
    return row < t->weights.len && !isnan(t->weights.ptr[row]) ? t->weights.ptr[row] : 1;
}

/* ---- strings --------------------------------------------------------------------------------- */

int firefox_strings_read(struct firefox_strings *s, const struct jpull *file, struct str text,
                         struct gather *g, struct err *e)
{
    struct jpull_it it;
    struct jpull j;

    if (text.ptr && text.ptr == s->from)
        return 0;
    s->at.len = 0;
    s->from = text.ptr;
    if (!text.len)
        return 0;
    jpull_part(file, text, &j);
    if (!jpull_array(&j, &it))
        return 0;
    while (jpull_element(&j, &it)) {
        (void)jpull_peek(&j); /* over the blanks before it */
        const uint32_t at = (uint32_t)(j.p - j.start);
        if (s->at.len == s->at.cap && gather_charge(g, (s->at.cap + 16) * sizeof(at), e))
            return e->code;
        vec_push(&s->at, at);
        (void)jpull_skip(&j);
    }
    return 0;
}

int firefox_string(const struct firefox_strings *s, const struct jpull *file, uint32_t at,
                   struct str *ret, struct err *e)
{
    struct jpull j = *file;

    CHECK(at < s->at.len);
    j.p = j.start + s->at.ptr[at];
    *ret = STR_NULL;
    return jpull_string(&j, ret) ? 0 : err_wrap(e, "Firefox profile");
}
