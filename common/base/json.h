/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: a streaming JSON writer (RFC 8259) onto a buf. Commas are put by the writer. Strings are
 * escaped; bytes that are not UTF-8 come out as U+FFFD; '<' and U+2028/9 are escaped so that the
 * text may stand inside HTML. Nesting is limited to JSON_DEPTH_MAX (a CHECK: it is our code).
 */
#ifndef COMMON_BASE_JSON_H
#define COMMON_BASE_JSON_H

#include "common/base/buf.h"

#define JSON_DEPTH_MAX 32

struct json {
    struct buf *out; /* borrowed */
    uint32_t depth;
    bool comma[JSON_DEPTH_MAX]; /* a value already stands at this depth */
    bool after_key;
};

void json_init(struct json *j, struct buf *out);
void json_obj(struct json *j);
void json_obj_end(struct json *j);
void json_arr(struct json *j);
void json_arr_end(struct json *j);
void json_key(struct json *j, const char *key);
void json_key_str(struct json *j, struct str key);
void json_str(struct json *j, struct str s);
void json_cstr(struct json *j, const char *s);
void json_u64(struct json *j, uint64_t v);
void json_i64(struct json *j, int64_t v);
void json_i64_str(struct json *j, int64_t v); /* "123": proto3 JSON for 64-bit integers */
void json_double(struct json *j, double v);   /* shortest form; NaN and infinities become null */
void json_bool(struct json *j, bool v);
void json_null(struct json *j);
/* A key and its value. */
void json_put_str(struct json *j, const char *key, struct str v);
void json_put_cstr(struct json *j, const char *key, const char *v);
void json_put_u64(struct json *j, const char *key, uint64_t v);
void json_put_i64(struct json *j, const char *key, int64_t v);
void json_put_i64_str(struct json *j, const char *key, int64_t v);
void json_put_double(struct json *j, const char *key, double v);
void json_put_bool(struct json *j, const char *key, bool v);
/* Escapes only, without quotes. */
void json_escape(struct buf *out, struct str s);

#endif
