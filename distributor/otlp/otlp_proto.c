/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_proto: a protobuf body to columns, by the field numbers of its layout.
 *
 * Bounded by itself: nesting is that of the schema, each level a function, and values of attributes
 * are walked with a stack of OTLP_VALUE_DEPTH cursors. Unknown fields are skipped. A message that
 * is given twice is merged where it holds lists (dictionary, resource), as protobuf wants it.
 *
 * Layouts: opentelemetry-proto, tags v1.4.0 to v1.11.0 (proto/FORMATS.md, "OTLP layouts").
 */
#include "distributor/otlp/otlp_layout.h"
#include "distributor/otlp/otlp_model.h"
#include "distributor/otlp/otlp_wire.h"

/* Numbers of the fields of Profile and Sample that moved; 0: this revision has no such field. */
struct numbers {
    uint32_t list, time, duration, period_type, period, id, attrs;
    uint32_t s_stack, s_len, s_values, s_attrs, s_link, s_times;
};
static const struct numbers numbers_of[OTLP_LAYOUTS] = {
    /*            list time dur ptype per id attrs | stack len values attrs link times */
    [OTLP_15] = { 5, 11, 12, 13, 14, 17, 22, 1, 2, 3, 4, 5, 6 },
    [OTLP_17] = { 3, 4, 5, 6, 7, 10, 14, 1, 2, 3, 4, 5, 6 },
    [OTLP_18] = { 0, 3, 4, 5, 6, 8, 12, 1, 0, 2, 3, 4, 5 },
    [OTLP_19] = { 0, 3, 4, 5, 6, 7, 11, 1, 0, 2, 3, 4, 5 },
    [OTLP_110] = { 0, 3, 4, 5, 6, 7, 11, 1, 0, 4, 2, 3, 5 },
};

struct reader {
    struct otlp_wire w;
    struct otlp *o;
    const struct numbers *n;
};

static bool refuse(struct reader *s)
{
    s->w.bad = true;
    return false;
}

#define ADD(s, pool, value) (OTLP_PUSH((s)->o, pool, value, (s)->w.e) || refuse(s))

static bool index_of(struct reader *s, const char *what, uint64_t v, uint32_t *ret)
{
    if (otlp_index(v, ret))
        return true;
    err_set(s->w.e, ERR_INPUT, "otlp: %s index %" PRId32 " is below zero", what, (int32_t)*ret);
    return refuse(s);
}

/* A field that is one index. */
static bool take_index(struct reader *s, const struct rd *r, const char *what,
                       const struct pb_field *f, uint32_t *ret)
{
    return otlp_is(&s->w, r, what, f, 0) && index_of(s, what, f->u64, ret);
}

/* Adds to a list in indices, which nothing else is added to meanwhile. */
static bool take_list(struct reader *s, const struct rd *r, const char *what,
                      const struct pb_field *f, struct otlp_range *list)
{
    struct otlp_ints it;
    uint32_t index;
    uint64_t v;

    if (!otlp_ints_of(&s->w, r, what, f, 0, &it))
        return false;
    while (otlp_ints_next(&s->w, &it, what, &v)) {
        if (!index_of(s, what, v, &index) || !ADD(s, indices, index))
            return false;
        list->len++;
    }
    return !s->w.bad;
}

static struct otlp_range list_here(const struct reader *s)
{
    return (struct otlp_range){ (uint32_t)s->o->indices.len, 0 };
}

/* ---- attributes ----------------------------------------------------------------------------- */

/* One field of an AnyValue that is no array and no map. */
static bool take_scalar(struct reader *s, const struct rd *r, const struct pb_field *f,
                        struct otlp_attr *ret)
{
    static const struct {
        uint8_t wire;
        enum otlp_kind kind;
    } kinds[] = { [1] = { 2, OTLP_STRING }, [2] = { 0, OTLP_BOOL },        [3] = { 0, OTLP_INT },
                  [4] = { 1, OTLP_DOUBLE }, [5] = { 2, OTLP_EMPTY },       [6] = { 2, OTLP_EMPTY },
                  [7] = { 2, OTLP_EMPTY },  [8] = { 0, OTLP_STRING_INDEX } };
    uint32_t index = 0;

    if (f->number >= ARRAY_LEN(kinds))
        return true;
    if (!otlp_is(&s->w, r, "attribute value", f, kinds[f->number].wire))
        return false;
    ret->kind = kinds[f->number].kind;
    ret->text = ret->kind == OTLP_STRING ? f->bytes : STR_NULL;
    ret->number = (int64_t)f->u64;
    if (ret->kind != OTLP_STRING_INDEX)
        return true;
    if (!index_of(s, "attribute value", f->u64, &index))
        return false;
    ret->number = index;
    return true;
}

/* A value of a value: an array of one element is that element; a map's or a longer array's are
 * looked at for their depth only. */
static bool take_value(struct reader *s, struct str bytes, struct otlp_attr *ret)
{
    struct {
        struct rd r;
        uint32_t kind; /* 0: AnyValue, 5: ArrayValue, 6: KeyValueList, 1: KeyValue */
    } stack[2 * OTLP_VALUE_DEPTH + 2];
    size_t depth = 1;
    uint32_t scalars = 0, lists = 0;
    struct otlp_attr one = *ret;
    struct pb_field f;

    stack[0].r = rd_of(bytes);
    stack[0].kind = 0;
    while (depth > 0) {
        struct rd *r = &stack[depth - 1].r;
        uint32_t kind = stack[depth - 1].kind, below = OTLP_NONE;
        if (!otlp_next(&s->w, r, "attribute value", &f)) {
            if (s->w.bad)
                return false;
            depth--;
            continue;
        }
        if (kind == 0 && f.number != 5 && f.number != 6) {
            scalars++;
            if (!take_scalar(s, r, &f, &one))
                return false;
        } else if (kind == 0) {
            lists += f.number == 6;
            below = f.number;
        } else if (kind == 5 && f.number == 1) {
            below = 0;
        } else if (kind == 6 && f.number == 1) {
            below = 1;
        } else if (kind == 1 && f.number == 2) {
            below = 0;
        }
        if (below == OTLP_NONE)
            continue;
        if (!otlp_is(&s->w, r, "attribute value", &f, 2))
            return false;
        if (depth == ARRAY_LEN(stack)) {
            err_set(s->w.e, ERR_LIMIT, "otlp: an attribute value is nested over %d levels deep",
                    OTLP_VALUE_DEPTH);
            return refuse(s);
        }
        stack[depth].r = rd_of(f.bytes);
        stack[depth++].kind = below;
    }
    if (scalars == 1 && lists == 0)
        *ret = one;
    return true;
}

/* KeyValue of a resource or scope, or an entry of the attribute table. */
static bool take_attr(struct reader *s, struct str bytes, bool table, struct otlp_attr *ret)
{
    bool number_first = table && s->o->layout >= OTLP_18;
    struct rd r = rd_of(bytes);
    struct pb_field f;

    *ret = (struct otlp_attr){ 0 };
    while (otlp_next(&s->w, &r, "attribute", &f)) {
        if ((f.number == 1 && number_first) || (f.number == 3 && !table)) {
            if (!take_index(s, &r, "attribute key", &f, &ret->key_index))
                return false;
        } else if (f.number == 1) {
            if (!otlp_is(&s->w, &r, "attribute", &f, 2))
                return false;
            ret->key = f.bytes.len ? f.bytes : STR_NULL;
        } else if (f.number == 2) {
            if (!otlp_is(&s->w, &r, "attribute", &f, 2) || !take_value(s, f.bytes, ret))
                return false;
        }
    }
    return !s->w.bad;
}

/* ---- tables --------------------------------------------------------------------------------- */

static bool add_mapping(struct reader *s, struct str bytes)
{
    struct otlp_mapping m = { .attrs = list_here(s) };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "mapping", &f)) {
        if (f.number > 5)
            continue;
        if (f.number == 5) {
            if (!take_list(s, &r, "attribute", &f, &m.attrs))
                return false;
        } else if (!otlp_is(&s->w, &r, "mapping", &f, 0)) {
            return false;
        } else if (f.number == 4) {
            if (!index_of(s, "mapping file", f.u64, &m.file))
                return false;
        } else {
            *(f.number == 1 ? &m.start : f.number == 2 ? &m.limit : &m.offset) = f.u64;
        }
    }
    return !s->w.bad && ADD(s, mappings, m);
}

static bool add_line(struct reader *s, struct str bytes)
{
    struct otlp_line line = { 0 };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "line", &f)) {
        if (f.number == 1 && !take_index(s, &r, "function", &f, &line.function))
            return false;
        if (f.number == 2) {
            if (!otlp_is(&s->w, &r, "line", &f, 0))
                return false;
            line.line = f.u64 < UINT32_MAX ? (uint32_t)f.u64 : 0;
        }
    }
    return !s->w.bad && ADD(s, lines, line);
}

static bool add_location(struct reader *s, struct str bytes)
{
    struct otlp_location at = { .lines = { (uint32_t)s->o->lines.len, 0 } };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    if (s->o->layout == OTLP_17)
        at.mapping = OTLP_NONE; /* tells absent from 0 */
    while (otlp_next(&s->w, &r, "location", &f)) {
        if (f.number == 1) {
            if (!take_index(s, &r, "mapping", &f, &at.mapping))
                return false;
        } else if (f.number == 2) {
            if (!otlp_is(&s->w, &r, "location", &f, 0))
                return false;
            at.address = f.u64;
        } else if (f.number == 3) {
            if (!otlp_is(&s->w, &r, "location", &f, 2) || !add_line(s, f.bytes))
                return false;
            if (++at.lines.len > s->o->limits->lines_per_location) {
                err_set(s->w.e, ERR_LIMIT, "otlp: a location has more than %" PRIu64 " lines",
                        s->o->limits->lines_per_location);
                return refuse(s);
            }
        }
    }
    return !s->w.bad && ADD(s, locations, at);
}

static bool add_function(struct reader *s, struct str bytes)
{
    struct otlp_function fn = { 0 };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "function", &f)) {
        if (f.number > 3)
            continue;
        uint32_t *to = f.number == 1 ? &fn.name : f.number == 2 ? &fn.system_name : &fn.file;
        if (!take_index(s, &r, "function", &f, to))
            return false;
    }
    return !s->w.bad && ADD(s, functions, fn);
}

static bool add_link(struct reader *s, struct str bytes)
{
    struct otlp_link link = { 0 };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "link", &f)) {
        if (f.number != 1 && f.number != 2)
            continue;
        if (!otlp_is(&s->w, &r, "link", &f, 2))
            return false;
        *(f.number == 1 ? &link.trace : &link.span) = f.bytes;
    }
    return !s->w.bad && ADD(s, links, link);
}

static bool add_string(struct reader *s, struct str bytes)
{
    if (bytes.len > s->o->limits->symbol_bytes) {
        err_set(s->w.e, ERR_LIMIT, "otlp: string %zu has %zu bytes, at most %" PRIu64,
                s->o->strings.len, bytes.len, s->o->limits->symbol_bytes);
        return refuse(s);
    }
    return ADD(s, strings, bytes);
}

static bool add_stack(struct reader *s, struct str bytes)
{
    struct otlp_range list = list_here(s);
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "stack", &f))
        if (f.number == 1 && !take_list(s, &r, "location", &f, &list))
            return false;
    return !s->w.bad && ADD(s, stacks, list);
}

enum table { T_NONE, T_MAPPING, T_LOCATION, T_FUNCTION, T_LINK, T_STRING, T_ATTR, T_STACK };

static bool add_entry(struct reader *s, enum table t, struct str bytes)
{
    struct otlp_attr attr;

    switch (t) {
    case T_MAPPING:
        return add_mapping(s, bytes);
    case T_LOCATION:
        return add_location(s, bytes);
    case T_FUNCTION:
        return add_function(s, bytes);
    case T_LINK:
        return add_link(s, bytes);
    case T_STRING:
        return add_string(s, bytes);
    case T_ATTR:
        return take_attr(s, bytes, true, &attr) && ADD(s, attrs, attr);
    case T_STACK:
        return add_stack(s, bytes);
    case T_NONE:
        break;
    }
    return true;
}

static bool read_dictionary(struct reader *s, struct str bytes)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "dictionary", &f)) {
        bool units = s->o->layout == OTLP_17 && f.number == T_STACK;
        if (f.number > T_STACK || units)
            continue;
        if (!otlp_is(&s->w, &r, "dictionary", &f, 2) ||
            !add_entry(s, (enum table)f.number, f.bytes))
            return false;
    }
    return !s->w.bad;
}

/* ---- profiles ------------------------------------------------------------------------------- */

static bool take_type(struct reader *s, struct str bytes, struct otlp_type *t)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;

    while (otlp_next(&s->w, &r, "sample type", &f))
        if ((f.number == 1 || f.number == 2) &&
            !take_index(s, &r, "sample type", &f, f.number == 1 ? &t->type : &t->unit))
            return false;
    return !s->w.bad;
}

static bool take_values(struct reader *s, const struct rd *r, const struct pb_field *f,
                        struct otlp_range *values)
{
    struct otlp_ints it;
    uint64_t v;

    if (!otlp_ints_of(&s->w, r, "values", f, 0, &it))
        return false;
    while (otlp_ints_next(&s->w, &it, "values", &v)) {
        if (!ADD(s, values, (int64_t)v))
            return false;
        values->len++;
    }
    return !s->w.bad;
}

static bool take_times(struct reader *s, const struct rd *r, const struct pb_field *f,
                       struct otlp_profile *p, uint32_t *n)
{
    struct otlp_ints it;
    uint64_t v;

    if (!otlp_ints_of(&s->w, r, "timestamps", f, s->o->layout >= OTLP_18 ? 1 : 0, &it))
        return false;
    while (otlp_ints_next(&s->w, &it, "timestamps", &v)) {
        p->first_ns = p->has_times ? MIN(p->first_ns, v) : v;
        p->last_ns = p->has_times ? MAX(p->last_ns, v) : v;
        p->has_times = true;
        ++*n;
    }
    return !s->w.bad;
}

static bool add_sample(struct reader *s, struct str bytes, struct otlp_profile *p)
{
    struct otlp_sample out = { .attrs = list_here(s), .values = { (uint32_t)s->o->values.len, 0 } };
    const struct numbers *n = s->n;
    struct rd r = rd_of(bytes);
    struct pb_field f;
    bool ok = true;

    if (s->o->layout <= OTLP_17)
        out.link = OTLP_NONE; /* tells absent from 0 */
    while (ok && otlp_next(&s->w, &r, "sample", &f)) {
        if (f.number == n->s_stack)
            ok = take_index(s, &r, "stack", &f, &out.stack);
        else if (f.number == n->s_len)
            ok = take_index(s, &r, "stack", &f, &out.stack_len);
        else if (f.number == n->s_values)
            ok = take_values(s, &r, &f, &out.values);
        else if (f.number == n->s_attrs)
            ok = take_list(s, &r, "attribute", &f, &out.attrs);
        else if (f.number == n->s_link)
            ok = take_index(s, &r, "link", &f, &out.link);
        else if (f.number == n->s_times)
            ok = take_times(s, &r, &f, p, &out.timestamps);
    }
    if (!ok || s->w.bad)
        return false;
    if (out.attrs.len > s->o->limits->labels_per_sample) {
        err_set(s->w.e, ERR_LIMIT, "otlp: a sample has more than %" PRIu64 " attributes",
                s->o->limits->labels_per_sample);
        return refuse(s);
    }
    if (s->o->samples.len >= s->o->limits->samples) {
        err_set(s->w.e, ERR_LIMIT, "otlp: more than %" PRIu64 " samples", s->o->limits->samples);
        return refuse(s);
    }
    p->samples.len++;
    return ADD(s, samples, out);
}

/* The numbers of a profile, and what is no list. */
static bool take_field(struct reader *s, const struct rd *r, const struct pb_field *f,
                       struct otlp_profile *p)
{
    const struct numbers *n = s->n;
    bool fixed = s->o->layout >= OTLP_18;

    if (f->number == n->period_type) {
        p->has_period_type = true;
        return otlp_is(&s->w, r, "profile", f, 2) && take_type(s, f->bytes, &p->period_type);
    }
    if (f->number == n->id) {
        if (!otlp_is(&s->w, r, "profile", f, 2))
            return false;
        p->id = f->bytes;
    } else if (f->number == n->time) {
        if (!otlp_is(&s->w, r, "profile", f, fixed ? 1 : 0))
            return false;
        p->time_ns = f->u64;
    } else if (f->number == n->duration) {
        if (!otlp_is(&s->w, r, "profile", f, 0))
            return false;
        p->duration_ns = f->u64 <= INT64_MAX || !fixed ? (int64_t)f->u64 : INT64_MAX;
    } else if (f->number == n->period) {
        if (!otlp_is(&s->w, r, "profile", f, 0))
            return false;
        p->period = (int64_t)f->u64;
    }
    return true;
}

static bool add_sample_type(struct reader *s, struct str bytes, struct otlp_profile *p)
{
    struct otlp_type t = { 0 };
    bool again = s->o->layout >= OTLP_18 && p->types.len > 0; /* one message in two pieces */

    if (again)
        return take_type(s, bytes, &s->o->types.ptr[p->types.from]);
    if (p->types.len == OTLP_TYPES_MAX) {
        err_set(s->w.e, ERR_LIMIT, "otlp: more than %d sample types", OTLP_TYPES_MAX);
        return refuse(s);
    }
    p->types.len++;
    return take_type(s, bytes, &t) && ADD(s, types, t);
}

/* Table of field `number` of a profile in layout 1.5. */
static enum table table_15(uint32_t number)
{
    static const uint8_t tables[] = { [3] = T_MAPPING, [4] = T_LOCATION, [6] = T_FUNCTION,
                                      [7] = T_ATTR,    [9] = T_LINK,     [10] = T_STRING };

    return number < ARRAY_LEN(tables) ? (enum table)tables[number] : T_NONE;
}

/* Lists of a profile are read one by one, or their parts would not lie together in the pool. */
static bool read_lists(struct reader *s, struct str bytes, struct otlp_profile *p)
{
    uint32_t numbers[] = { s->n->list, s->n->attrs };
    struct otlp_range *lists[] = { &p->list, &p->attrs };
    struct pb_field f;

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct rd r = rd_of(bytes);
        *lists[i] = list_here(s);
        while (numbers[i] && otlp_next(&s->w, &r, "profile", &f))
            if (f.number == numbers[i] &&
                !take_list(s, &r, i ? "attribute" : "location", &f, lists[i]))
                return false;
    }
    return !s->w.bad;
}

static bool add_profile(struct reader *s, struct str bytes)
{
    struct otlp_profile p = { .scope = (uint32_t)s->o->scopes.len - 1,
                              .types = { (uint32_t)s->o->types.len, 0 },
                              .samples = { (uint32_t)s->o->samples.len, 0 },
                              .text = bytes };
    bool v15 = s->o->layout == OTLP_15;
    struct otlp_dict dict = otlp_dict_begin(s->o);
    struct rd r = rd_of(bytes);
    struct pb_field f;
    bool ok = true;

    while (ok && otlp_next(&s->w, &r, "profile", &f)) {
        enum table t = v15 ? table_15(f.number) : T_NONE;
        if (f.number == 1)
            ok = otlp_is(&s->w, &r, "profile", &f, 2) && add_sample_type(s, f.bytes, &p);
        else if (f.number == 2)
            ok = otlp_is(&s->w, &r, "profile", &f, 2) && add_sample(s, f.bytes, &p);
        else if (t != T_NONE)
            ok = otlp_is(&s->w, &r, "profile", &f, 2) && add_entry(s, t, f.bytes);
        else
            ok = take_field(s, &r, &f, &p);
    }
    if (!ok || s->w.bad || !read_lists(s, bytes, &p))
        return false;
    if (v15) {
        otlp_dict_end(s->o, &dict);
        p.dict = (uint32_t)s->o->dicts.len;
        if (!ADD(s, dicts, dict))
            return false;
    }
    return ADD(s, profiles, p);
}

/* ---- resources and scopes ------------------------------------------------------------------- */

/* Attributes of a resource (field 1) or scope (field 3) to the end of labels. */
static bool add_labels(struct reader *s, struct str bytes, uint32_t number)
{
    struct rd r = rd_of(bytes);
    struct otlp_attr attr;
    struct pb_field f;

    while (otlp_next(&s->w, &r, "resource", &f)) {
        if (f.number != number)
            continue;
        if (!otlp_is(&s->w, &r, "resource", &f, 2) || !take_attr(s, f.bytes, false, &attr) ||
            !ADD(s, labels, attr))
            return false;
    }
    return !s->w.bad;
}

/* The messages in field 1 of `bytes`, all parts of them. */
static bool read_labels(struct reader *s, struct str bytes, uint32_t number, struct otlp_range *ret)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;

    ret->from = (uint32_t)s->o->labels.len;
    while (otlp_next(&s->w, &r, "resource", &f))
        if (f.number == 1 &&
            (!otlp_is(&s->w, &r, "resource", &f, 2) || !add_labels(s, f.bytes, number)))
            return false;
    ret->len = (uint32_t)s->o->labels.len - ret->from;
    return !s->w.bad;
}

static bool read_scope(struct reader *s, struct str bytes, struct otlp_range resource)
{
    struct otlp_scope scope = { .resource = resource };
    struct rd r = rd_of(bytes);
    struct pb_field f;

    if (!read_labels(s, bytes, 3, &scope.scope) || !ADD(s, scopes, scope))
        return false;
    while (otlp_next(&s->w, &r, "scope profiles", &f))
        if (f.number == 2 &&
            (!otlp_is(&s->w, &r, "scope profiles", &f, 2) || !add_profile(s, f.bytes)))
            return false;
    return !s->w.bad;
}

static bool read_resource(struct reader *s, struct str bytes)
{
    struct otlp_range resource;
    struct rd r = rd_of(bytes);
    struct pb_field f;

    if (!read_labels(s, bytes, 1, &resource))
        return false;
    while (otlp_next(&s->w, &r, "resource profiles", &f))
        if (f.number == 2 &&
            (!otlp_is(&s->w, &r, "resource profiles", &f, 2) || !read_scope(s, f.bytes, resource)))
            return false;
    return !s->w.bad;
}

static bool read_request(struct reader *s, struct str body)
{
    struct otlp_dict dict = otlp_dict_begin(s->o);
    struct rd r = rd_of(body);
    struct pb_field f;
    bool ok = true;

    while (ok && otlp_next(&s->w, &r, "request", &f)) {
        if (f.number != 1 && f.number != 2)
            continue;
        ok = otlp_is(&s->w, &r, "request", &f, 2) &&
             (f.number == 1 ? read_resource(s, f.bytes) : read_dictionary(s, f.bytes));
    }
    if (!ok || s->w.bad)
        return false;
    if (s->o->layout == OTLP_15)
        return true;
    otlp_dict_end(s->o, &dict);
    return ADD(s, dicts, dict);
}

int otlp_parse_proto(struct otlp *o, struct str body, enum otlp_layout layout,
                     const struct limits *l, struct arena *a, struct err *e)
{
    struct reader s = { .w = { .body = rd_of(body).p, .e = e }, .o = o };

    otlp_init(o, l, a);
    if (body.len == 0)
        return err_set(e, ERR_INPUT, "otlp: the body is empty");
    if (body.len >= OTLP_NONE)
        return err_set(e, ERR_LIMIT, "otlp: a body of %zu bytes is over 4 GiB", body.len);
    if (layout == OTLP_AUTO && otlp_layout_find(body, &layout, e))
        return e->code;
    o->layout = layout;
    s.n = &numbers_of[layout];
    if (!read_request(&s, body))
        return e->code;
    return otlp_resolve(o, e);
}
