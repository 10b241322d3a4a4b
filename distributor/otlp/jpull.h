/* SPDX-License-Identifier: Apache-2.0
 *
 * jpull.h: JSON read value by value, without a tree: for documents whose tree would be many
 * times their size. The caller asks for what it expects next:
 *
 *   struct jpull_it it;
 *   if (jpull_open(j, '{', &it))                 false for null, too
 *       while (jpull_key(j, &it, &key))
 *           if (jpull_key_is(key, "stackIndex")) jpull_number(j, "stackIndex", &v);
 *           else jpull_skip(j);
 *   return !j->bad;
 *
 * The first fault sets *e and `bad`; from then on every call does nothing and says false. Strings
 * are slices of the text, or of the arena if they have escapes; they need not be UTF-8.
 */
#ifndef DISTRIBUTOR_OTLP_JPULL_H
#define DISTRIBUTOR_OTLP_JPULL_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define JPULL_DEPTH 64 /* of values that are skipped */

struct jpull {
    const char *start, *p, *end;
    struct arena *arena;
    bool bad;
    struct err *e;
};
struct jpull_it {
    char close;
    bool more; /* an element was read */
};

void jpull_init(struct jpull *j, struct str text, struct arena *a, struct err *e);
/* ERR_INPUT with the place; false. */
bool jpull_fault(struct jpull *j, const char *what);
/* `open` is '{' or '['. False: null, which is read, or a fault. */
bool jpull_open(struct jpull *j, char open, struct jpull_it *it);
/* The next key of an object, its value is next; the next element of an array is next. False: the
 * end, or a fault. */
bool jpull_key(struct jpull *j, struct jpull_it *it, struct str *ret);
bool jpull_element(struct jpull *j, struct jpull_it *it);
/* What the next value is: '{', '[', '"', '0' (a number), 't', 'f', 'n'; 0: the text is over. */
char jpull_peek(struct jpull *j);
/* null leaves *ret alone. */
bool jpull_string(struct jpull *j, struct str *ret);
bool jpull_bool(struct jpull *j, bool *ret);
/* A whole number, or a string of one; negative ones in two's complement. */
bool jpull_number(struct jpull *j, const char *what, uint64_t *ret);
/* The same for what is signed: beyond 2^63 - 1 is none. */
bool jpull_signed(struct jpull *j, const char *what, int64_t *ret);
bool jpull_double(struct jpull *j, double *ret);
bool jpull_skip(struct jpull *j);
/* Nothing but blanks is left. */
bool jpull_end(struct jpull *j);
/* lowerCamel, or the original name with underscores. */
bool jpull_key_is(struct str key, const char *camel);

#endif
