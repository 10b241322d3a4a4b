/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_json_dict: attributes and tables in JSON.
 *
 * Format: proto/FORMATS.md, "OTLP JSON".
 */
#include "common/base/base64.h"
#include "common/base/hex.h"
#include "distributor/otlp/otlp_json_impl.h"

bool otlp_json_refuse(struct otlp_json *s)
{
    s->j.bad = true;
    return false;
}

bool otlp_json_over(struct otlp_json *s, const char *what, uint64_t most)
{
    err_set(s->j.e, ERR_LIMIT, "otlp: more than %" PRIu64 " %s", most, what);
    return otlp_json_refuse(s);
}

bool otlp_json_index(struct otlp_json *s, const char *what, uint32_t *ret)
{
    uint64_t v = *ret == OTLP_NONE ? 0 : *ret;
    bool none = jpull_peek(&s->j) == 'n';

    if (!jpull_number(&s->j, what, &v))
        return false;
    if (none)
        return true;
    if (v > INT32_MAX) {
        err_set(s->j.e, ERR_INPUT, "otlp: %s %" PRId64 " is no index", what, (int64_t)v);
        return otlp_json_refuse(s);
    }
    *ret = (uint32_t)v;
    return true;
}

static struct otlp_range list_here(const struct otlp_json *s)
{
    return (struct otlp_range){ (uint32_t)s->o->indices.len, 0 };
}

bool otlp_json_list(struct otlp_json *s, const char *what, struct otlp_range *ret)
{
    struct jpull_it it;
    uint32_t index;

    *ret = list_here(s);
    if (!jpull_open(&s->j, '[', &it))
        return !s->j.bad;
    while (jpull_element(&s->j, &it)) {
        index = 0;
        if (!otlp_json_index(s, what, &index) || !ADD(s, indices, index))
            return false;
        ret->len++;
    }
    return !s->j.bad;
}

bool otlp_json_id(struct otlp_json *s, const char *what, size_t bytes, struct str *ret)
{
    struct str text = STR_NULL;
    struct buf out;
    bool hex, ok;

    if (!jpull_string(&s->j, &text))
        return false;
    if (text.len == 0)
        return true;
    buf_init(&out, 2 * bytes + 8);
    hex = text.len == 2 * bytes && hex_read(text.ptr, bytes, buf_room(&out, bytes));
    if (hex)
        out.len = bytes;
    ok = hex || (base64_decode(text, &out) && out.len == bytes);
    if (ok) {
        *ret = arena_strdup(s->o->arena, buf_str(&out));
        ok = ret->ptr != NULL;
    }
    buf_deinit(&out);
    return ok || jpull_fault(&s->j, what);
}

/* ---- attributes ----------------------------------------------------------------------------- */

/* One member of an AnyValue that is no list. */
static bool take_scalar(struct otlp_json *s, struct str key, struct otlp_attr *a)
{
    uint32_t index = 0;
    uint64_t v = 0;
    double d = 0;
    bool truth = false;

    if (IS("stringValue")) {
        a->kind = OTLP_STRING;
        a->text = STR("");
        return jpull_string(&s->j, &a->text);
    }
    if (IS("intValue")) {
        a->kind = OTLP_INT;
        bool ok = jpull_number(&s->j, "intValue", &v);
        a->number = (int64_t)v;
        return ok;
    }
    if (IS("boolValue")) {
        a->kind = OTLP_BOOL;
        bool ok = jpull_bool(&s->j, &truth);
        a->number = truth;
        return ok;
    }
    if (IS("doubleValue")) {
        a->kind = OTLP_DOUBLE;
        bool ok = jpull_double(&s->j, &d);
        memcpy(&a->number, &d, sizeof(d));
        return ok;
    }
    if (IS("stringValueStrindex")) {
        a->kind = OTLP_STRING_INDEX;
        bool ok = otlp_json_index(s, "stringValueStrindex", &index);
        a->number = index;
        return ok;
    }
    return jpull_skip(&s->j);
}

/* The element of {"values": [x]}, if there is one and it is a scalar; else it is no label. */
static bool take_array(struct otlp_json *s, struct otlp_attr *a)
{
    struct jpull_it object, list, value;
    struct otlp_attr one = *a;
    struct str key;
    size_t n = 0;

    if (!jpull_open(&s->j, '{', &object))
        return !s->j.bad;
    while (jpull_key(&s->j, &object, &key)) {
        if (!IS("values")) {
            jpull_skip(&s->j);
            continue;
        }
        if (!jpull_open(&s->j, '[', &list))
            continue;
        while (jpull_element(&s->j, &list)) {
            n++;
            if (jpull_open(&s->j, '{', &value))
                while (jpull_key(&s->j, &value, &key))
                    if (!take_scalar(s, key, &one))
                        return false;
        }
    }
    if (n == 1)
        *a = one;
    return !s->j.bad;
}

static bool take_value(struct otlp_json *s, struct otlp_attr *a)
{
    struct jpull_it it;
    struct str key;

    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key))
        if (!(IS("arrayValue") ? take_array(s, a) : take_scalar(s, key, a)))
            return false;
    return !s->j.bad;
}

bool otlp_json_attr(struct otlp_json *s, struct otlp_attr *a)
{
    struct jpull_it it;
    struct str key;

    *a = (struct otlp_attr){ 0 };
    if (!jpull_open(&s->j, '{', &it))
        return !s->j.bad;
    while (jpull_key(&s->j, &it, &key)) {
        if (IS("key")) {
            jpull_string(&s->j, &a->key);
        } else if (IS("keyStrindex")) {
            otlp_json_index(s, "keyStrindex", &a->key_index);
        } else if (IS("value")) {
            take_value(s, a);
        } else {
            jpull_skip(&s->j);
        }
    }
    if (a->key.len == 0)
        a->key = STR_NULL;
    return !s->j.bad;
}

/* ---- tables: each reads one element, an object whose opening was read ------------------------ */

static bool add_mapping(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_mapping m = { 0 };
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("memoryStart"))
            jpull_number(&s->j, "memoryStart", &m.start);
        else if (IS("memoryLimit"))
            jpull_number(&s->j, "memoryLimit", &m.limit);
        else if (IS("fileOffset"))
            jpull_number(&s->j, "fileOffset", &m.offset);
        else if (IS("filenameStrindex"))
            otlp_json_index(s, "filenameStrindex", &m.file);
        else if (IS("attributeIndices"))
            otlp_json_list(s, "attributeIndices", &m.attrs);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad && ADD(s, mappings, m);
}

static bool add_lines(struct otlp_json *s, struct otlp_location *at)
{
    struct jpull_it list, it;
    struct str key;

    at->lines = (struct otlp_range){ (uint32_t)s->o->lines.len, 0 };
    if (!jpull_open(&s->j, '[', &list))
        return !s->j.bad;
    while (jpull_element(&s->j, &list)) {
        struct otlp_line line = { 0 };
        uint64_t number = 0;
        if (jpull_open(&s->j, '{', &it))
            while (jpull_key(&s->j, &it, &key)) {
                if (IS("functionIndex"))
                    otlp_json_index(s, "functionIndex", &line.function);
                else if (IS("line"))
                    jpull_number(&s->j, "line", &number);
                else
                    jpull_skip(&s->j);
            }
        line.line = number < UINT32_MAX ? (uint32_t)number : 0;
        if (++at->lines.len > s->o->limits->lines_per_location)
            return otlp_json_over(s, "lines in a location", s->o->limits->lines_per_location);
        if (s->j.bad || !ADD(s, lines, line))
            return false;
    }
    return !s->j.bad;
}

static bool add_location(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_location at = { .mapping = OTLP_NONE };
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("mappingIndex"))
            otlp_json_index(s, "mappingIndex", &at.mapping);
        else if (IS("address"))
            jpull_number(&s->j, "address", &at.address);
        else if (IS("lines") || IS("line"))
            add_lines(s, &at);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad && ADD(s, locations, at);
}

static bool add_function(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_function f = { 0 };
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("nameStrindex"))
            otlp_json_index(s, "nameStrindex", &f.name);
        else if (IS("systemNameStrindex"))
            otlp_json_index(s, "systemNameStrindex", &f.system_name);
        else if (IS("filenameStrindex"))
            otlp_json_index(s, "filenameStrindex", &f.file);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad && ADD(s, functions, f);
}

static bool add_link(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_link link = { 0 };
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("traceId"))
            otlp_json_id(s, "a traceId is 16 bytes in hex or base64", 16, &link.trace);
        else if (IS("spanId"))
            otlp_json_id(s, "a spanId is 8 bytes in hex or base64", 8, &link.span);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad && ADD(s, links, link);
}

static bool add_attr(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_attr a = { 0 };
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("keyStrindex"))
            otlp_json_index(s, "keyStrindex", &a.key_index);
        else if (IS("key"))
            jpull_string(&s->j, &a.key);
        else if (IS("value"))
            take_value(s, &a);
        else
            jpull_skip(&s->j);
    }
    if (a.key.len == 0)
        a.key = STR_NULL;
    return !s->j.bad && ADD(s, attrs, a);
}

static bool add_stack(struct otlp_json *s, struct jpull_it *it)
{
    struct otlp_range list = list_here(s);
    struct str key;

    while (jpull_key(&s->j, it, &key)) {
        if (IS("locationIndices"))
            otlp_json_list(s, "locationIndices", &list);
        else
            jpull_skip(&s->j);
    }
    return !s->j.bad && ADD(s, stacks, list);
}

static bool add_string(struct otlp_json *s)
{
    struct str text = STR("");

    if (!jpull_string(&s->j, &text))
        return false;
    if (text.len > s->o->limits->symbol_bytes)
        return otlp_json_over(s, "bytes in a string", s->o->limits->symbol_bytes);
    return ADD(s, strings, text);
}

bool otlp_json_table(struct str key, otlp_json_add *ret)
{
    static const struct {
        const char *name;
        otlp_json_add add;
    } tables[] = { { "mappingTable", add_mapping },
                   { "locationTable", add_location },
                   { "functionTable", add_function },
                   { "linkTable", add_link },
                   { "attributeTable", add_attr },
                   { "stackTable", add_stack },
                   { "stringTable", NULL } };

    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if (jpull_key_is(key, tables[i].name)) {
            *ret = tables[i].add;
            return true;
        }
    return false;
}

bool otlp_json_read_table(struct otlp_json *s, otlp_json_add add)
{
    struct jpull_it list, it;

    if (!jpull_open(&s->j, '[', &list))
        return !s->j.bad;
    while (jpull_element(&s->j, &list)) {
        it = (struct jpull_it){ .close = 0 };
        if (!add ? !add_string(s) : !jpull_open(&s->j, '{', &it) || !add(s, &it))
            return s->j.bad ? false : jpull_fault(&s->j, "null in a table");
    }
    return !s->j.bad;
}
