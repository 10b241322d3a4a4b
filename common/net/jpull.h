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
 *
 * Keys come in any order. A document whose parts need each other is checked once, as a whole, and
 * then read in several passes: the first one notes where the parts begin (jpull_value), a later one
 * reads each of them with a reader of its own (jpull_part). Parts of a checked document are stepped
 * over by their brackets alone.
 */
#ifndef COMMON_NET_JPULL_H
#define COMMON_NET_JPULL_H

#include "common/base/arena.h"
#include "common/base/err.h"

#define JPULL_DEPTH   64   /* of values that are skipped, unless depth_max says otherwise */
#define JPULL_DEEPEST 2000 /* the most that depth_max may be */
#define JPULL_MEMBERS 32   /* names that jpull_member looks for, at most */

struct jpull {
    const char *start, *p, *end;
    struct arena *arena;
    size_t depth_max;
    bool bad;
    bool checked; /* the text has passed jpull_check */
    struct err *e;
};
struct jpull_it {
    char close;
    bool more; /* an element was read */
};

/* An object whose members come in any order. */
struct jpull_obj {
    struct jpull_it it;
    uint32_t seen; /* names that were there, as bits */
};

/* Is the text one object or array of UTF-8, and nothing else? ERR_INPUT with the place; ERR_LIMIT
 * where it nests deeper. */
NODISCARD int jpull_check(struct str text, size_t depth_max, struct err *e);
/* For a text that has passed it. */
void jpull_init_checked(struct jpull *j, struct str text, struct arena *a, struct err *e);
/* A reader of its own for a value of j's text. */
void jpull_part(const struct jpull *j, struct str value, struct jpull *ret);
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
/* The same for signed numbers: a number over 2^63 - 1 is an error. */
bool jpull_signed(struct jpull *j, const char *what, int64_t *ret);
bool jpull_double(struct jpull *j, double *ret);
bool jpull_skip(struct jpull *j);
/* Steps over a value and gives its text; null gives STR_NULL. */
bool jpull_value(struct jpull *j, struct str *ret);
/* A number that is finite, or a string of one; null leaves *ret alone. */
bool jpull_real(struct jpull *j, const char *what, double *ret);
/* As jpull_open; a value that is neither of the two is skipped, and false. */
bool jpull_object(struct jpull *j, struct jpull_obj *obj);
bool jpull_array(struct jpull *j, struct jpull_it *it);
/* The next member of an object: which of the names it has, or n for any other; its value is next.
 * False: the end, or a fault, such as a name of these that comes twice. */
bool jpull_member(struct jpull *j, struct jpull_obj *obj, const char *const *names, size_t n,
                  size_t *ret);
/* Nothing but blanks is left. */
bool jpull_end(struct jpull *j);
/* lowerCamel, or the original name with underscores. */
bool jpull_key_is(struct str key, const char *camel);

#endif
