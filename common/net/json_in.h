/* SPDX-License-Identifier: Apache-2.0
 *
 * json_in.h: JSON from outside (RFC 8259), parsed by jansson with duplicate keys, NUL characters,
 * bad UTF-8 and trailing bytes refused. Nesting and the memory of the tree are limited.
 *
 * Accessors follow proto3 JSON: two spellings of a key (lowerCamel and original), 64-bit integers
 * as number or string, null = unset. Slices and values live as long as the doc. Thread: any, one at
 * a time.
 */
#ifndef COMMON_NET_JSON_IN_H
#define COMMON_NET_JSON_IN_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define JSON_IN_DEPTH_MAX 128
#define JSON_IN_TREE_MAX  (128 * MIB) /* estimated bytes of the parsed tree, text included */

struct json_doc;
struct json_val; /* borrowed from the doc */

/* The text must be one object or array. ERR_INPUT says line and column; ERR_LIMIT. */
NODISCARD int json_parse(struct str text, struct json_doc **ret, struct err *e);
/* The same with a limit of nesting of its own, up to JSON_IN_DEEPEST: files whose trees nest. */
#define JSON_IN_DEEPEST 2000
NODISCARD int json_parse_deep(struct str text, size_t depth_max, struct json_doc **ret,
                              struct err *e);
void json_doc_free(struct json_doc *d); /* NULL is fine */
const struct json_val *json_root(const struct json_doc *d);
bool json_is_obj(const struct json_val *v); /* NULL is not */
bool json_is_arr(const struct json_val *v);
/* NULL if absent or null, or `obj` is no object. `alt` may be NULL. */
const struct json_val *json_get(const struct json_val *obj, const char *key, const char *alt);
size_t json_len(const struct json_val *arr); /* 0 if `arr` is no array */
/* NULL past the end; an element that is null is there, and every json_take_ leaves *ret alone. */
const struct json_val *json_at(const struct json_val *arr, size_t i);
/* Key/value pairs of an object, in order; false at the end. Start with *pos = NULL. */
bool json_each(const struct json_val *obj, void **pos, struct str *ret_key,
               const struct json_val **ret_val);
/* v NULL or null leaves *ret untouched and is no error; a wrong type is ERR_INPUT naming `what`. */
NODISCARD int json_take_str(const struct json_val *v, const char *what, struct str *ret,
                            struct err *e);
/* Numbers may be strings; an integer may be written 1e3 or 5.0. */
NODISCARD int json_take_i64(const struct json_val *v, const char *what, int64_t *ret,
                            struct err *e);
NODISCARD int json_take_double(const struct json_val *v, const char *what, double *ret,
                               struct err *e);
NODISCARD int json_take_bool(const struct json_val *v, const char *what, bool *ret, struct err *e);

#endif
