/* SPDX-License-Identifier: Apache-2.0
 *
 * json_pull.h: JSON read value by value, without a tree: for documents whose tree would be many
 * times their size. The caller asks for what it expects next:
 *
 *   struct json_it it;
 *   if (json_open(j, '{', &it))                 false for null, too
 *       while (json_key(j, &it, &key))
 *           if (json_key_is(key, "stackIndex")) json_number(j, "stackIndex", &v);
 *           else json_skip(j);
 *   return !j->bad;
 *
 * The first fault sets *e and `bad`; from then on every call does nothing and says false. Strings
 * are slices of the text, or of the arena if they have escapes; they need not be UTF-8.
 */
#ifndef DISTRIBUTOR_OTLP_JSON_PULL_H
#define DISTRIBUTOR_OTLP_JSON_PULL_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define JSON_PULL_DEPTH 64 /* of values that are skipped */

struct json_pull {
    const char *start, *p, *end;
    struct arena *arena;
    bool bad;
    struct err *e;
};
struct json_it {
    char close;
    bool more; /* an element was read */
};

void json_pull_init(struct json_pull *j, struct str text, struct arena *a, struct err *e);
/* ERR_INPUT with the place; false. */
bool json_fault(struct json_pull *j, const char *what);
/* `open` is '{' or '['. False: null, which is read, or a fault. */
bool json_open(struct json_pull *j, char open, struct json_it *it);
/* The next key of an object, its value is next; the next element of an array is next. False: the
 * end, or a fault. */
bool json_key(struct json_pull *j, struct json_it *it, struct str *ret);
bool json_element(struct json_pull *j, struct json_it *it);
/* What the next value is: '{', '[', '"', '0' (a number), 't', 'f', 'n'; 0: the text is over. */
char json_peek(struct json_pull *j);
/* null leaves *ret alone. */
bool json_string(struct json_pull *j, struct str *ret);
bool json_bool(struct json_pull *j, bool *ret);
/* A whole number, or a string of one; negative ones in two's complement. */
bool json_number(struct json_pull *j, const char *what, uint64_t *ret);
bool json_double(struct json_pull *j, double *ret);
bool json_skip(struct json_pull *j);
/* Nothing but blanks is left. */
bool json_end(struct json_pull *j);
/* lowerCamel, or the original name with underscores. */
bool json_key_is(struct str key, const char *camel);

#endif
