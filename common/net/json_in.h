/* SPDX-License-Identifier: Apache-2.0
 *
 * json_in.h: JSON from outside, parsed by jansson with duplicates refused and depth, size limited.
 *
 * Accessors follow proto3 JSON: two spellings of a key (lowerCamel and original), 64-bit integers
 * as number or string, null = unset.
 */
#ifndef COMMON_NET_JSON_IN_H
#define COMMON_NET_JSON_IN_H

#include "common/base/arena.h"
#include "common/base/err.h"

struct json_doc;
struct json_val; /* borrowed from the doc */

NODISCARD int json_parse(struct str text, struct json_doc **ret, struct err *e);
void json_doc_free(struct json_doc *d);
const struct json_val *json_root(const struct json_doc *d);
bool json_is_obj(const struct json_val *v);
bool json_is_arr(const struct json_val *v);
/* NULL if absent or null. `alt` may be NULL. */
const struct json_val *json_get(const struct json_val *obj, const char *key, const char *alt);
size_t json_len(const struct json_val *arr);
const struct json_val *json_at(const struct json_val *arr, size_t i);
/* Key/value pairs of an object, in order; false at the end. Start with *pos = NULL. */
bool json_each(const struct json_val *obj, void **pos, struct str *ret_key,
               const struct json_val **ret_val);
/* v NULL leaves *ret untouched and is no error; a wrong type is ERR_INPUT naming `what`. */
NODISCARD int json_take_str(const struct json_val *v, const char *what, struct str *ret,
                            struct err *e);
NODISCARD int json_take_i64(const struct json_val *v, const char *what, int64_t *ret,
                            struct err *e);
NODISCARD int json_take_double(const struct json_val *v, const char *what, double *ret,
                               struct err *e);
NODISCARD int json_take_bool(const struct json_val *v, const char *what, bool *ret, struct err *e);

#endif
