/* SPDX-License-Identifier: Apache-2.0
 *
 * json: a writer without a tree: each call appends its bytes to a buf at once.
 *
 * The only state is whether a value was already written at each depth (then a comma is due) and
 * whether a key was just written. Errors are those of the buf: the caller checks buf_ok at the end.
 * Strings are copied in runs; only the bytes that need an escape end a run. Doubles get the fewest
 * digits, 15 to 17, that read back as the same number.  Thread: one at a time.
 */
#include "common/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void json_init(struct json *j, struct buf *out)
{
    *j = (struct json){ .out = out };
}

/* A comma before every value but the first of its container; none between key and value. */
static void json_before(struct json *j)
{
    if (j->after_key) {
        j->after_key = false;
        return;
    }
    if (j->comma[j->depth])
        buf_add_c(j->out, ',');
    j->comma[j->depth] = true;
}

static void json_open(struct json *j, char c)
{
    json_before(j);
    buf_add_c(j->out, c);
    CHECK(j->depth + 1 < JSON_DEPTH_MAX);
    j->comma[++j->depth] = false;
}

static void json_close(struct json *j, char c)
{
    CHECK(j->depth > 0 && !j->after_key);
    j->depth--;
    buf_add_c(j->out, c);
}

void json_obj(struct json *j)
{
    json_open(j, '{');
}

void json_obj_end(struct json *j)
{
    json_close(j, '}');
}

void json_arr(struct json *j)
{
    json_open(j, '[');
}

void json_arr_end(struct json *j)
{
    json_close(j, ']');
}

void json_key_str(struct json *j, struct str key)
{
    CHECK(!j->after_key);
    json_before(j);
    buf_add_c(j->out, '"');
    json_escape(j->out, key);
    buf_add(j->out, "\":", 2);
    j->after_key = true;
}

void json_key(struct json *j, const char *key)
{
    json_key_str(j, str_c(key));
}

void json_str(struct json *j, struct str s)
{
    json_before(j);
    buf_add_c(j->out, '"');
    json_escape(j->out, s);
    buf_add_c(j->out, '"');
}

void json_cstr(struct json *j, const char *s)
{
    json_str(j, str_c(s));
}

void json_u64(struct json *j, uint64_t v)
{
    json_before(j);
    buf_add_u64(j->out, v);
}

void json_i64(struct json *j, int64_t v)
{
    json_before(j);
    buf_add_i64(j->out, v);
}

void json_i64_str(struct json *j, int64_t v)
{
    json_before(j);
    buf_add_c(j->out, '"');
    buf_add_i64(j->out, v);
    buf_add_c(j->out, '"');
}

void json_double(struct json *j, double v)
{
    char tmp[40];

    if (!isfinite(v)) {
        json_null(j);
        return;
    }
    json_before(j);
    for (int digits = 15; digits <= 17; digits++) { /* the shortest that reads back the same */
        snprintf(tmp, sizeof(tmp), "%.*g", digits, v);
        if (strtod(tmp, NULL) == v)
            break;
    }
    buf_add(j->out, tmp, strlen(tmp));
}

void json_bool(struct json *j, bool v)
{
    json_before(j);
    buf_add_str(j->out, v ? STR("true") : STR("false"));
}

void json_null(struct json *j)
{
    json_before(j);
    buf_add_str(j->out, STR("null"));
}

void json_put_str(struct json *j, const char *key, struct str v)
{
    json_key(j, key);
    json_str(j, v);
}

void json_put_cstr(struct json *j, const char *key, const char *v)
{
    json_key(j, key);
    json_cstr(j, v);
}

void json_put_u64(struct json *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

void json_put_i64(struct json *j, const char *key, int64_t v)
{
    json_key(j, key);
    json_i64(j, v);
}

void json_put_i64_str(struct json *j, const char *key, int64_t v)
{
    json_key(j, key);
    json_i64_str(j, v);
}

void json_put_double(struct json *j, const char *key, double v)
{
    json_key(j, key);
    json_double(j, v);
}

void json_put_bool(struct json *j, const char *key, bool v)
{
    json_key(j, key);
    json_bool(j, v);
}

/* Length of the valid UTF-8 sequence at p, or 0. */
static size_t utf8_len(const char *p, size_t left)
{
    unsigned char c = (unsigned char)*p;
    size_t n = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

    return n && n <= left && str_utf8_valid(str_n(p, n)) ? n : 0;
}

static void json_escape_one(struct buf *out, unsigned char c)
{
    switch (c) {
    case '"':
        buf_add(out, "\\\"", 2);
        break;
    case '\\':
        buf_add(out, "\\\\", 2);
        break;
    case '\n':
        buf_add(out, "\\n", 2);
        break;
    case '\t':
        buf_add(out, "\\t", 2);
        break;
    case '\r':
        buf_add(out, "\\r", 2);
        break;
    default:
        buf_addf(out, "\\u%04x", c);
    }
}

void json_escape(struct buf *out, struct str s)
{
    size_t from = 0, i = 0;

    while (i < s.len) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (LIKELY(c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<')) {
            i++;
            continue;
        }
        size_t n = c >= 0x80 ? utf8_len(s.ptr + i, s.len - i) : 0;
        bool separator = n == 3 && memcmp(s.ptr + i, "\xe2\x80", 2) == 0 &&
                         ((unsigned char)s.ptr[i + 2] | 1) == 0xa9;
        if (n && !separator) {
            i += n;
            continue;
        }
        buf_add(out, s.ptr + from, i - from);
        if (separator)
            buf_addf(out, "\\u202%d", s.ptr[i + 2] & 1 ? 9 : 8);
        else if (c >= 0x80)
            buf_add(out, "\xef\xbf\xbd", 3); /* U+FFFD */
        else
            json_escape_one(out, c);
        i += n ? n : 1;
        from = i;
    }
    buf_add(out, s.ptr + from, i - from);
}
