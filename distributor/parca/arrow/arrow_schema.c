/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_schema: the fields of a flatbuffer, without recursion.
 *
 *   columns ── expand ──> tree, tree, ...      each field with a dictionary adds its values to the
 *   queue of dictionaries ── expand ──> tree   queue, until the queue is empty
 *
 * A flatbuffer may refer to one table from many places, so a small message can describe an
 * exponential tree: what counts are the fields put out. A dictionary id may be used by one field
 * only (no writer that we know shares them), which also rules out dictionaries inside themselves.
 *
 * Format: Apache Arrow columnar format 1.5, format/Schema.fbs (proto/FORMATS.md, "Arrow streams").
 */
#include "distributor/parca/arrow/arrow_schema.h"

/* Type of Schema.fbs. */
enum wire_type {
    WIRE_NULL = 1,
    WIRE_INT,
    WIRE_FLOAT,
    WIRE_BINARY,
    WIRE_UTF8,
    WIRE_BOOL,
    WIRE_DECIMAL,
    WIRE_DATE,
    WIRE_TIME,
    WIRE_TIMESTAMP,
    WIRE_INTERVAL,
    WIRE_LIST,
    WIRE_STRUCT,
    WIRE_UNION,
    WIRE_FIXED_BINARY,
    WIRE_FIXED_LIST,
    WIRE_MAP,
    WIRE_DURATION,
    WIRE_LARGE_BINARY,
    WIRE_LARGE_UTF8,
    WIRE_LARGE_LIST,
    WIRE_RUN_END,
    WIRE_BINARY_VIEW,
    WIRE_UTF8_VIEW,
    WIRE_LIST_VIEW,
    WIRE_LARGE_LIST_VIEW,
};

static const struct row {
    enum arrow_kind kind;
    bool wide;
    int children; /* -1: any number */
} rows[] = {
    [WIRE_NULL] = { ARROW_NULL, false, 0 },
    [WIRE_INT] = { ARROW_INT, false, 0 },
    [WIRE_FLOAT] = { ARROW_FIXED, false, 0 },
    [WIRE_BINARY] = { ARROW_BYTES, false, 0 },
    [WIRE_UTF8] = { ARROW_BYTES, false, 0 },
    [WIRE_BOOL] = { ARROW_BOOL, false, 0 },
    [WIRE_DECIMAL] = { ARROW_FIXED, false, 0 },
    [WIRE_DATE] = { ARROW_INT, false, 0 },
    [WIRE_TIME] = { ARROW_INT, false, 0 },
    [WIRE_TIMESTAMP] = { ARROW_INT, false, 0 },
    [WIRE_INTERVAL] = { ARROW_FIXED, false, 0 },
    [WIRE_LIST] = { ARROW_LIST, false, 1 },
    [WIRE_STRUCT] = { ARROW_STRUCT, false, -1 },
    [WIRE_FIXED_BINARY] = { ARROW_FIXED, false, 0 },
    [WIRE_FIXED_LIST] = { ARROW_FIXEDLIST, false, 1 },
    [WIRE_MAP] = { ARROW_LIST, false, 1 },
    [WIRE_DURATION] = { ARROW_INT, false, 0 },
    [WIRE_LARGE_BINARY] = { ARROW_BYTES, true, 0 },
    [WIRE_LARGE_UTF8] = { ARROW_BYTES, true, 0 },
    [WIRE_LARGE_LIST] = { ARROW_LIST, true, 1 },
    [WIRE_RUN_END] = { ARROW_RUNS, false, 2 },
    [WIRE_BINARY_VIEW] = { ARROW_VIEW, false, 0 },
    [WIRE_UTF8_VIEW] = { ARROW_VIEW, false, 0 },
    [WIRE_LIST_VIEW] = { ARROW_LISTVIEW, false, 1 },
    [WIRE_LARGE_LIST_VIEW] = { ARROW_LISTVIEW, true, 1 },
};

const char *arrow_kind_name(enum arrow_kind k)
{
    static const char *const names[] = {
        [ARROW_NULL] = "null",     [ARROW_BOOL] = "bool",
        [ARROW_INT] = "int",       [ARROW_FIXED] = "fixed-size binary",
        [ARROW_BYTES] = "binary",  [ARROW_VIEW] = "binary view",
        [ARROW_LIST] = "list",     [ARROW_LISTVIEW] = "list view",
        [ARROW_STRUCT] = "struct", [ARROW_FIXEDLIST] = "fixed-size list",
        [ARROW_RUNS] = "run ends", [ARROW_DICT] = "dictionary",
    };
    return names[k];
}

/* A field whose children are being read. */
struct level {
    struct fb_vector kids;
    size_t next;
    uint32_t field;
};
struct reader {
    struct arrow_schema *s;
    VEC(struct fb_table) queue; /* by dictionary: the field whose values it has */
    struct level levels[ARROW_DEPTH_MAX];
    size_t depth;
};

static int bad_field(const struct arrow_field *f, const char *what, int64_t n, struct err *e)
{
    return err_set(e, ERR_INPUT, "arrow schema: field \"%.*s\": %s %" PRId64,
                   STR_ARG(str_sub(f->name, 0, 64)), what, n);
}

static int int_width(const struct fb_table *t, struct arrow_field *f, struct err *e)
{
    int32_t bits = 0;
    uint8_t is_signed = 0;

    if (fb_i32(t, 0, &bits, e) || fb_u8(t, 1, &is_signed, e))
        return e->code;
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
        return bad_field(f, "an integer of so many bits:", bits, e);
    f->width = (uint32_t)bits / 8;
    f->is_signed = is_signed != 0;
    return 0;
}

/* Bytes of the types whose table says it by a unit. */
static int unit_width(const struct fb_table *t, uint8_t type, struct arrow_field *f, struct err *e)
{
    static const uint32_t floats[] = { 2, 4, 8 }, dates[] = { 4, 8 }, intervals[] = { 4, 8, 16 };
    const uint32_t *widths = type == WIRE_FLOAT ? floats : type == WIRE_DATE ? dates : intervals;
    int16_t unit = type == WIRE_DATE, most = type == WIRE_DATE ? 2 : 3;

    if (fb_i16(t, 0, &unit, e))
        return e->code;
    if (unit < 0 || unit >= most)
        return bad_field(f, "unknown precision or unit", unit, e);
    f->width = widths[unit];
    f->is_signed = true;
    return 0;
}

static int bytes_width(const struct fb_table *t, uint8_t type, struct arrow_field *f, struct err *e)
{
    unsigned slot = type == WIRE_DECIMAL ? 2 : type == WIRE_TIME ? 1 : 0;
    int32_t n = type == WIRE_DECIMAL ? 128 : type == WIRE_TIME ? 32 : 0;

    if (fb_i32(t, slot, &n, e))
        return e->code;
    if (type == WIRE_DECIMAL || type == WIRE_TIME)
        n = n % 8 ? -1 : n / 8;
    if (n < 0 || n > 65536 || (type == WIRE_TIME && n != 4 && n != 8))
        return bad_field(f, "an element of so many bytes:", n, e);
    f->width = (uint32_t)n;
    f->is_signed = true;
    return 0;
}

static int field_type(const struct fb_table *t, struct arrow_field *f, int *ret_children,
                      struct err *e)
{
    struct fb_table type = { 0 };
    bool has;
    uint8_t code = 0;

    if (fb_u8(t, 2, &code, e) || fb_child(t, 3, &has, &type, e))
        return e->code;
    if (code == 0 || code >= ARRAY_LEN(rows) || code == WIRE_UNION)
        return bad_field(f, "cannot read type", code, e);
    f->kind = rows[code].kind;
    f->wide = rows[code].wide;
    *ret_children = rows[code].children;
    switch (code) { /* an absent table has only defaults, as an empty one would */
    case WIRE_INT:
        return int_width(&type, f, e);
    case WIRE_FLOAT:
    case WIRE_DATE:
    case WIRE_INTERVAL:
        return unit_width(&type, code, f, e);
    case WIRE_DECIMAL:
    case WIRE_TIME:
    case WIRE_FIXED_BINARY:
    case WIRE_FIXED_LIST:
        return bytes_width(&type, code, f, e);
    case WIRE_TIMESTAMP:
    case WIRE_DURATION:
        f->width = 8;
        f->is_signed = true;
        return 0;
    default:
        return 0;
    }
}

/* f becomes a column of indexes; its values are read later. */
static int field_dict(struct reader *r, const struct fb_table *field, const struct fb_table *dict,
                      struct arrow_field *f, struct err *e)
{
    struct arrow_dict_type d = { 0 };
    struct fb_table type = { 0 };
    bool has;

    if (fb_i64(dict, 0, &d.id, e) || fb_child(dict, 1, &has, &type, e))
        return e->code;
    f->kind = ARROW_DICT;
    f->width = 4;
    f->is_signed = true;
    if (has && int_width(&type, f, e))
        return e->code;
    if (arrow_dict_of(r->s, d.id) != ARROW_NO_FIELD)
        return bad_field(f, "two fields have the dictionary", d.id, e);
    f->dict = (uint32_t)r->s->dicts.len;
    vec_push(&r->s->dicts, d);
    vec_push(&r->queue, *field);
    return 0;
}

/* Adds one field; its children become the top level, to be read next. */
static int add_field(struct reader *r, const struct fb_table *t, bool as_values, struct err *e)
{
    struct arrow_field f = { 0 };
    struct fb_table dict = { 0 };
    struct fb_vector kids = { 0 };
    bool has_dict;
    int want = 0;

    if (r->s->fields.len == ARROW_FIELDS_MAX)
        return err_set(e, ERR_LIMIT, "arrow schema: more than %d fields", ARROW_FIELDS_MAX);
    if (fb_string(t, 0, &f.name, e) || fb_child(t, 4, &has_dict, &dict, e))
        return e->code;
    if (has_dict && !as_values) {
        if (field_dict(r, t, &dict, &f, e))
            return e->code;
    } else if (field_type(t, &f, &want, e) || fb_vector(t, 5, 4, &kids, e)) {
        return e->code;
    }
    if (want >= 0 && kids.len != (size_t)want)
        return bad_field(&f, "wrong number of children:", (int64_t)kids.len, e);
    f.children = (uint32_t)MIN(kids.len, UINT32_MAX);
    f.end = (uint32_t)r->s->fields.len + 1;
    if (r->depth == ARROW_DEPTH_MAX)
        return err_set(e, ERR_LIMIT, "arrow schema: more than %d levels", ARROW_DEPTH_MAX);
    r->levels[r->depth++] = (struct level){ kids, 0, (uint32_t)r->s->fields.len };
    vec_push(&r->s->fields, f);
    return 0;
}

/* One tree, from its root. */
static int expand(struct reader *r, const struct fb_table *root, bool as_values, struct err *e)
{
    struct fb_table kid;

    r->depth = 0;
    if (add_field(r, root, as_values, e))
        return e->code;
    while (r->depth) {
        struct level *top = &r->levels[r->depth - 1];
        if (top->next == top->kids.len) {
            r->s->fields.ptr[top->field].end = (uint32_t)r->s->fields.len;
            r->depth--;
        } else if (fb_element(&top->kids, top->next++, &kid, e) || add_field(r, &kid, false, e)) {
            return e->code;
        }
    }
    return 0;
}

/* Run ends count rows: of two, four or eight bytes, never null. */
static int check_runs(const struct arrow_schema *s, struct err *e)
{
    vec_for (i, &s->fields) {
        const struct arrow_field *f = &s->fields.ptr[i];
        if (f->kind != ARROW_RUNS)
            continue;
        const struct arrow_field *ends = f + 1;
        if (ends->kind != ARROW_INT || !ends->is_signed || ends->width < 2)
            return bad_field(f, "run ends that are no signed integers, kind", ends->kind, e);
    }
    return 0;
}

static int read_all(struct reader *r, const struct fb_vector *fields, struct err *e)
{
    struct fb_table t;

    for (size_t i = 0; i < fields->len; i++)
        if (fb_element(fields, i, &t, e) || expand(r, &t, false, e))
            return e->code;
    r->s->columns_end = (uint32_t)r->s->fields.len;
    for (size_t i = 0; i < r->queue.len; i++) { /* grows on the way */
        t = r->queue.ptr[i];
        r->s->dicts.ptr[i].root = (uint32_t)r->s->fields.len;
        if (expand(r, &t, true, e))
            return e->code;
    }
    return check_runs(r->s, e);
}

int arrow_schema_read(const struct fb_table *schema, struct arrow_schema *s, struct err *e)
{
    struct reader *r = XNEW(struct reader);
    struct fb_vector fields;
    int16_t endian = 0;
    int rc = 0;

    *s = (struct arrow_schema){ 0 };
    r->s = s;
    if (fb_i16(schema, 0, &endian, e) || fb_vector(schema, 1, 4, &fields, e) ||
        fb_vector(schema, 2, 4, &s->metadata, e))
        rc = e->code;
    else if (endian != 0)
        rc = err_set(e, ERR_INPUT, "arrow schema: big-endian data is not supported");
    else
        rc = read_all(r, &fields, e);
    vec_free(&r->queue);
    xfree(r);
    return rc;
}

void arrow_schema_deinit(struct arrow_schema *s)
{
    vec_free(&s->fields);
    vec_free(&s->dicts);
}

/* By name among the siblings from field i up to `end`. */
static uint32_t sibling(const struct arrow_schema *s, uint32_t i, uint32_t end, struct str name)
{
    for (; i < end; i = s->fields.ptr[i].end)
        if (str_eq(s->fields.ptr[i].name, name))
            return i;
    return ARROW_NO_FIELD;
}

uint32_t arrow_column(const struct arrow_schema *s, struct str name)
{
    return sibling(s, 0, s->columns_end, name);
}

uint32_t arrow_child(const struct arrow_schema *s, uint32_t parent, struct str name)
{
    return sibling(s, parent + 1, s->fields.ptr[parent].end, name);
}

int arrow_metadata(const struct arrow_schema *s, struct str key, struct str *ret, struct err *e)
{
    struct fb_table t;
    struct str k;

    *ret = STR_NULL;
    for (size_t i = 0; i < s->metadata.len; i++) {
        if (fb_element(&s->metadata, i, &t, e) || fb_string(&t, 0, &k, e))
            return e->code;
        if (str_eq(k, key))
            return fb_string(&t, 1, ret, e);
    }
    return 0;
}

uint32_t arrow_dict_of(const struct arrow_schema *s, int64_t id)
{
    vec_for (i, &s->dicts)
        if (s->dicts.ptr[i].id == id)
            return (uint32_t)i;
    return ARROW_NO_FIELD;
}
