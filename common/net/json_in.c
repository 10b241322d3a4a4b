/* SPDX-License-Identifier: Apache-2.0
 *
 * json_in: a struct json_val is jansson's json_t under another name, so nothing is copied.
 *
 * jansson bounds neither the memory of a tree (a 32 MiB body of "[],[],..." becomes 2 GiB) nor,
 * below 2048 levels, its recursion. So one pass over the text goes first and adds up what the tree
 * would cost: it knows only quotes, brackets, commas and colons, and that is enough for an upper
 * bound.
 *
 * base/json.h declares a json_null() of its own: it must not be included beside jansson.h. Our
 * function is hidden in the executable, so the library keeps calling its own.
 */
#include "common/net/json_in.h"

#include <jansson.h>

#include "common/base/mem.h"

/* What jansson 2.14 allocates, malloc's own bytes included, rounded up. */
enum { COST_OBJECT = 288, COST_ARRAY = 144, COST_PAIR = 112, COST_VALUE = 64 };

struct json_doc {
    json_t *root; /* owned */
};

static json_t *mutable(const struct json_val *v)
{
    return (json_t *)(uintptr_t)v; /* jansson takes no const where it only reads */
}

static const struct json_val *val_of(const json_t *j)
{
    return (const struct json_val *)(const void *)j;
}

/* ---- limits */

/* Index behind the string that begins at `i` (its opening quote), or the end of the text. */
static size_t skip_string(struct str s, size_t i)
{
    for (i++; i < s.len; i++) {
        if (s.ptr[i] == '\\')
            i++;
        else if (s.ptr[i] == '"')
            return i + 1;
    }
    return s.len;
}

static int check_limits(struct str s, size_t depth_max, struct err *e)
{
    size_t cost = s.len, depth = 0;

    for (size_t i = 0; i < s.len;) {
        switch (s.ptr[i]) {
        case '"':
            i = skip_string(s, i);
            continue;
        case '{':
            cost += COST_OBJECT;
            depth++;
            break;
        case '[':
            cost += COST_ARRAY;
            depth++;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ',':
            cost += COST_VALUE;
            break;
        case ':':
            cost += COST_PAIR;
            break;
        default:
            break;
        }
        if (depth > depth_max)
            return err_set(e, ERR_LIMIT, "JSON: more than %zu levels of nesting", depth_max);
        if (cost > JSON_IN_TREE_MAX)
            return err_set(e, ERR_LIMIT, "JSON: the parsed text would take more than %zu MiB",
                           JSON_IN_TREE_MAX / MIB);
        i++;
    }
    return 0;
}

/* ---- documents */

int json_parse(struct str text, struct json_doc **ret, struct err *e)
{
    return json_parse_deep(text, JSON_IN_DEPTH_MAX, ret, e);
}

int json_parse_deep(struct str text, size_t depth_max, struct json_doc **ret, struct err *e)
{
    json_error_t error;

    CHECK(depth_max <= JSON_IN_DEEPEST); /* jansson recurses; its own limit is 2048 */
    if (check_limits(text, depth_max, e))
        return e->code;
    json_t *root = json_loadb(text.ptr ? text.ptr : "", text.len, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return err_set(e, ERR_INPUT, "JSON: line %d, column %d: %s", error.line, error.column,
                       error.text);
    *ret = XNEW(struct json_doc);
    (*ret)->root = root;
    return 0;
}

void json_doc_free(struct json_doc *d)
{
    if (!d)
        return;
    json_decref(d->root);
    xfree(d);
}

const struct json_val *json_root(const struct json_doc *d)
{
    return val_of(d->root);
}

bool json_is_obj(const struct json_val *v)
{
    return v && json_is_object(mutable(v));
}

bool json_is_arr(const struct json_val *v)
{
    return v && json_is_array(mutable(v));
}

static const struct json_val *get_one(const struct json_val *obj, const char *key)
{
    const json_t *j = key ? json_object_get(mutable(obj), key) : NULL;

    return j && !json_is_null(j) ? val_of(j) : NULL;
}

const struct json_val *json_get(const struct json_val *obj, const char *key, const char *alt)
{
    if (!json_is_obj(obj))
        return NULL;
    const struct json_val *v = get_one(obj, key);
    return v ? v : get_one(obj, alt);
}

size_t json_len(const struct json_val *arr)
{
    return json_is_arr(arr) ? json_array_size(mutable(arr)) : 0;
}

const struct json_val *json_at(const struct json_val *arr, size_t i)
{
    return json_is_arr(arr) ? val_of(json_array_get(mutable(arr), i)) : NULL;
}

bool json_each(const struct json_val *obj, void **pos, struct str *ret_key,
               const struct json_val **ret_val)
{
    if (!json_is_obj(obj))
        return false;
    json_t *j = mutable(obj);
    *pos = *pos ? json_object_iter_next(j, *pos) : json_object_iter(j);
    if (!*pos)
        return false;
    *ret_key = (struct str){ json_object_iter_key(*pos), json_object_iter_key_len(*pos) };
    *ret_val = val_of(json_object_iter_value(*pos));
    return true;
}

/* ---- values */

static bool unset(const struct json_val *v)
{
    return !v || json_is_null(mutable(v));
}

static const char *type_name(const struct json_val *v)
{
    switch (json_typeof(mutable(v))) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

static int wrong(const struct json_val *v, const char *what, const char *want, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: want %s, got %s", what, want, type_name(v));
}

static struct str string_of(const struct json_val *v)
{
    return (struct str){ json_string_value(mutable(v)), json_string_length(mutable(v)) };
}

int json_take_str(const struct json_val *v, const char *what, struct str *ret, struct err *e)
{
    if (unset(v))
        return 0;
    if (!json_is_string(mutable(v)))
        return wrong(v, what, "a string", e);
    *ret = string_of(v);
    return 0;
}

int json_take_double(const struct json_val *v, const char *what, double *ret, struct err *e)
{
    if (unset(v))
        return 0;
    if (json_is_number(mutable(v))) {
        *ret = json_number_value(mutable(v));
        return 0;
    }
    if (json_is_string(mutable(v)) && str_double(string_of(v), ret))
        return 0;
    return wrong(v, what, "a number", e);
}

int json_take_i64(const struct json_val *v, const char *what, int64_t *ret, struct err *e)
{
    double d = 0;

    if (unset(v))
        return 0;
    if (json_is_integer(mutable(v))) {
        *ret = json_integer_value(mutable(v));
        return 0;
    }
    if (json_is_string(mutable(v)) && str_i64(string_of(v), ret))
        return 0;
    /* 1e3 and "5.0" are integers; beyond 2^53 a double no longer says which. */
    if (json_take_double(v, what, &d, e))
        return wrong(v, what, "an integer", e);
    if (!(d >= -9007199254740992.0 && d <= 9007199254740992.0) || (double)(int64_t)d != d)
        return err_set(e, ERR_INPUT, "%s: want an integer of 64 bits", what);
    *ret = (int64_t)d;
    return 0;
}

int json_take_bool(const struct json_val *v, const char *what, bool *ret, struct err *e)
{
    if (unset(v))
        return 0;
    if (!json_is_boolean(mutable(v)))
        return wrong(v, what, "true or false", e);
    *ret = json_is_true(mutable(v));
    return 0;
}
