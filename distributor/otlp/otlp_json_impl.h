/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_json_impl.h: what the two files of the JSON reader share.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_JSON_IMPL_H
#define DISTRIBUTOR_OTLP_OTLP_JSON_IMPL_H

#include "common/net/jpull.h"
#include "distributor/otlp/otlp_model.h"

struct otlp_json {
    struct jpull j;
    struct otlp *o;
    struct otlp_dict dict; /* of the request */
    bool dictionary, is_15, is_17, is_18;
};

#define ADD(s, pool, value) (OTLP_PUSH((s)->o, pool, value, (s)->j.e) || otlp_json_refuse(s))
#define IS(name)            jpull_key_is(key, name)

/* All return false after setting the error. */
bool otlp_json_refuse(struct otlp_json *s);
bool otlp_json_over(struct otlp_json *s, const char *what, uint64_t most);
bool otlp_json_index(struct otlp_json *s, const char *what, uint32_t *ret);
bool otlp_json_list(struct otlp_json *s, const char *what, struct otlp_range *ret);
/* An id of `bytes` bytes, in hex or base64. */
bool otlp_json_id(struct otlp_json *s, const char *what, size_t bytes, struct str *ret);
bool otlp_json_attr(struct otlp_json *s, struct otlp_attr *a); /* {"key": ..., "value": ...} */

/* Finds the reader for an element of the table of this name, NULL for strings. False: not a table.
 * */
typedef bool (*otlp_json_add)(struct otlp_json *s, struct jpull_it *it);
bool otlp_json_table(struct str key, otlp_json_add *ret);
bool otlp_json_read_table(struct otlp_json *s, otlp_json_add add);

#endif
