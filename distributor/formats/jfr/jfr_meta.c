/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_meta: the metadata event: which classes there are and what fields they have.
 *
 *   size | type 0 | start | duration | id | n | n strings | element
 *   element = name | n | n (key, value) | n | n elements        all of them indexes of strings
 *
 *   root ── metadata ── class ── field ── annotation     (region, setting, ... are stepped over)
 *
 * The tree is read with a stack of our own of JFR_ELEMENTS_MAX levels. Every element takes three
 * bytes at least, so all of it is bounded by the bytes of the event.
 *
 * Format: JDK 11 to 25 and async-profiler at b583d82c2aa9 (proto/FORMATS.md, "JFR metadata").
 */
#include <stdio.h>

#include "distributor/formats/jfr/jfr_impl.h"

enum element { ELEMENT_OTHER, ELEMENT_ROOT, ELEMENT_METADATA, ELEMENT_CLASS, ELEMENT_FIELD };

struct reader {
    struct jfr *j;
    struct jfr_chunk *c;
    struct rd r;
    struct err *e;
};

static int bad(struct reader *m, const char *what)
{
    return err_set(m->e, ERR_INPUT, "metadata: %s, at byte %td of the chunk", what,
                   m->r.p - m->c->base);
}

static int read_strings(struct reader *m)
{
    struct jfr_chunk *c = m->c;
    struct jfr_string s;
    uint64_t n;

    if (!jfr_varint(&m->r, &n) || n > rd_left(&m->r))
        return bad(m, "more strings than bytes");
    /* Latin-1 may double. The buffer may not move: strings point into it. */
    buf_reset(&c->text);
    if (!jfr_charge(m->j, (size_t)n * sizeof(struct str) + 2 * rd_left(&m->r), m->e))
        return m->e->code;
    c->text.max = 2 * rd_left(&m->r) + 1;
    if (!buf_room(&c->text, c->text.max))
        return bad(m, "strings");
    const char *base = c->text.ptr;
    c->strings.len = 0;
    vec_reserve(&c->strings, (size_t)n);
    for (uint64_t i = 0; i < n; i++) {
        size_t from = c->text.len;
        if (!jfr_string_read(&m->r, &s) || s.encoding == JFR_KEY)
            return bad(m, "a malformed string");
        jfr_string_append(&s, &c->text);
        vec_push(&c->strings, str_n(base + from, c->text.len - from));
    }
    CHECK(buf_ok(&c->text) && c->text.ptr == base);
    return 0;
}

static bool string_at(struct reader *m, struct str *ret)
{
    uint64_t i;

    if (!jfr_varint(&m->r, &i) || i >= m->c->strings.len)
        return false;
    *ret = m->c->strings.ptr[i];
    return true;
}

static enum jfr_kind kind_of_class(struct str name)
{
    static const struct {
        const char *name;
        enum jfr_kind kind;
    } rows[] = {
        { "boolean", JFR_BYTE },
        { "byte", JFR_BYTE },
        { "short", JFR_SHORT },
        { "char", JFR_CHAR },
        { "int", JFR_INT },
        { "long", JFR_LONG },
        { "float", JFR_FLOAT },
        { "double", JFR_DOUBLE },
        { "java.lang.String", JFR_STRING },
        { "jdk.types.Symbol", JFR_SYMBOL },
        { "jdk.types.StackTrace", JFR_TRACE },
        { "jdk.types.StackFrame", JFR_FRAME },
        { "jdk.types.Method", JFR_METHOD },
        { "java.lang.Class", JFR_CLASS },
        { "jdk.types.ThreadState", JFR_STATE },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (str_eqc(name, rows[i].name))
            return rows[i].kind;
    return JFR_OTHER;
}

/* The values of annotations are texts of all kinds; these four only stand on spans of time. */
static uint8_t unit_of(struct str value, uint8_t otherwise)
{
    static const char *const names[] = { [JFR_TICKS] = "TICKS",
                                         [JFR_NS] = "NANOSECONDS",
                                         [JFR_US] = "MICROSECONDS",
                                         [JFR_MS] = "MILLISECONDS",
                                         [JFR_S] = "SECONDS" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eqc(value, names[i]))
            return (uint8_t)i;
    return otherwise;
}

struct attributes {
    struct str name, id, class, pool, dimension, value;
};

static bool read_attributes(struct reader *m, struct attributes *ret)
{
    struct str key, value;
    uint64_t n;

    *ret = (struct attributes){ 0 };
    if (!jfr_varint(&m->r, &n) || n > rd_left(&m->r))
        return false;
    for (; n > 0; n--) {
        if (!string_at(m, &key) || !string_at(m, &value))
            return false;
        struct str *to = str_eqc(key, "name")           ? &ret->name
                         : str_eqc(key, "id")           ? &ret->id
                         : str_eqc(key, "class")        ? &ret->class
                         : str_eqc(key, "constantPool") ? &ret->pool
                         : str_eqc(key, "dimension")    ? &ret->dimension
                         : str_eqc(key, "value")        ? &ret->value
                                                        : NULL;
        if (to)
            *to = value;
    }
    return true;
}

static int add_class(struct reader *m, const struct attributes *a)
{
    struct jfr_chunk *c = m->c;
    struct jfr_class class = { .name = a->name,
                               .kind = kind_of_class(a->name),
                               .fields_from = (uint32_t)c->fields.len,
                               .prog = JFR_NONE,
                               .pool = JFR_NONE };

    if (!str_u64(a->id, &class.id))
        return bad(m, "a class without a number");
    if (c->classes.len == JFR_CLASSES_MAX)
        return err_set(m->e, ERR_LIMIT, "metadata: more than %d classes", JFR_CLASSES_MAX);
    if (!jfr_charge(m->j, 2 * sizeof(class), m->e))
        return m->e->code;
    if (map_u64_put(&c->class_ids, class.id ^ m->j->seed, (uint32_t)c->classes.len) !=
        MAP_U64_EMPTY)
        return bad(m, "two classes of one number");
    vec_push(&c->classes, class);
    return 0;
}

static int add_field(struct reader *m, const struct attributes *a)
{
    struct jfr_chunk *c = m->c;
    struct jfr_class *class = &c->classes.ptr[c->classes.len - 1];
    struct jfr_field f = { .name = a->name, .pool = str_eqc(a->pool, "true") };
    uint64_t dimension = 0;

    if (!str_u64(a->class, &f.class_id))
        return bad(m, "a field without a class");
    if (a->dimension.len && !str_u64(a->dimension, &dimension))
        return bad(m, "a dimension that is not a number");
    if (class->fields_len == JFR_FIELDS_MAX)
        return err_set(m->e, ERR_LIMIT, "metadata: %.*s has more than %d fields",
                       STR_ARG(str_sub(class->name, 0, 80)), JFR_FIELDS_MAX);
    if (!jfr_charge(m->j, sizeof(f), m->e))
        return m->e->code;
    f.dimension = (uint8_t)MIN(dimension, 255);
    vec_push(&c->fields, f);
    class->fields_len++;
    return 0;
}

/* One element up to its children. */
static int add_element(struct reader *m, enum element parent, enum element *ret)
{
    struct attributes a;
    struct str name;

    if (!string_at(m, &name) || !read_attributes(m, &a))
        return bad(m, "an element that is cut or names no string");
    *ret = ELEMENT_OTHER;
    if (parent == ELEMENT_ROOT && str_eqc(name, "metadata")) {
        *ret = ELEMENT_METADATA;
    } else if (parent == ELEMENT_METADATA && str_eqc(name, "class")) {
        *ret = ELEMENT_CLASS;
        return add_class(m, &a);
    } else if (parent == ELEMENT_CLASS && str_eqc(name, "field")) {
        *ret = ELEMENT_FIELD;
        return add_field(m, &a);
    } else if (parent == ELEMENT_FIELD && str_eqc(name, "annotation")) {
        struct jfr_field *f = &m->c->fields.ptr[m->c->fields.len - 1];
        f->unit = unit_of(a.value, f->unit);
    }
    return 0;
}

static int read_elements(struct reader *m)
{
    struct level {
        enum element is;
        uint64_t left; /* children */
    } levels[JFR_ELEMENTS_MAX];
    size_t depth = 0;
    struct attributes a;
    struct str name;

    if (!string_at(m, &name) || !read_attributes(m, &a) || !jfr_varint(&m->r, &levels[0].left))
        return bad(m, "no root element");
    levels[0].is = ELEMENT_ROOT;
    for (;;) {
        struct level *up = &levels[depth];
        if (up->left == 0) {
            if (depth-- == 0)
                return 0;
            continue;
        }
        up->left--;
        struct level in = { 0 };
        if (add_element(m, up->is, &in.is))
            return m->e->code;
        if (!jfr_varint(&m->r, &in.left) || in.left > rd_left(&m->r))
            return bad(m, "more elements than bytes");
        if (in.left == 0)
            continue;
        if (++depth == JFR_ELEMENTS_MAX)
            return bad(m, "elements in elements, too deep");
        levels[depth] = in;
    }
}

int jfr_meta_read(struct jfr *j, struct err *e)
{
    struct jfr_chunk *c = &j->chunk;
    struct reader m = { .j = j, .c = c, .e = e };
    uint64_t size, type, skipped;

    c->classes.len = c->fields.len = c->ops.len = c->progs.len = 0;
    map_u64_reset(&c->class_ids);
    vec_reserve(&c->ops, 1); /* a class without fields runs no steps, but from somewhere */
    m.r = (struct rd){ c->base + c->metadata, c->base + c->size };
    if (!jfr_varint(&m.r, &size) || size == 0 || size > c->size - c->metadata)
        return bad(&m, "an impossible size");
    m.r.end = c->base + c->metadata + size;
    if (!jfr_varint(&m.r, &type) || type != 0)
        return bad(&m, "no metadata event where the header says");
    if (!jfr_varint(&m.r, &skipped) || !jfr_varint(&m.r, &skipped) || !jfr_varint(&m.r, &skipped))
        return bad(&m, "cut");
    return read_strings(&m) || read_elements(&m) ? e->code : 0;
}

uint32_t jfr_class_find(const struct jfr *j, uint64_t id)
{
    return map_u64_get(&j->chunk.class_ids, id ^ j->seed);
}
static_assert(JFR_NONE == MAP_U64_EMPTY, "no such class");
