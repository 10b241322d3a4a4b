/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_arrow.h: an Arrow stream writer for tests: a table as a model, types and values, to bytes.
 */
#ifndef TESTS_LIB_GEN_GEN_ARROW_H
#define TESTS_LIB_GEN_GEN_ARROW_H

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/prng.h"
#include "common/base/vec.h"

enum ga_kind {
    GA_INT,
    GA_BOOL,
    GA_FIXED,
    GA_UTF8,
    GA_BINARY,
    GA_VIEW,
    GA_LARGE,
    GA_TIME,
    GA_LIST,
    GA_LISTVIEW,
    GA_STRUCT,
    GA_RUNS,
    GA_DICT
};
#define GA_KINDS    (GA_DICT + 1)
#define GA_KIDS_MAX 16

struct ga_value {
    bool null;
    int64_t num;
    struct str bytes;
    struct ga_value *items; /* of a list; of a struct: one per child */
    size_t n;
};
struct ga_type {
    enum ga_kind kind;
    const char *name;
    unsigned width; /* GA_INT: 1, 2, 4, 8; GA_FIXED: bytes */
    bool is_signed, nullable;
    struct ga_type *kids[GA_KIDS_MAX]; /* GA_RUNS, GA_DICT, lists: kids[0] */
    size_t kids_len;
    /* GA_DICT */
    int64_t id;
    VEC(struct ga_value) entries; /* of the dictionary so far, borrowed contents */
    size_t sent;
};
enum ga_codec { GA_PLAIN, GA_LZ4, GA_ZSTD };
struct ga {
    struct arena *arena; /* borrowed; types and values are in it */
    struct buf *out;     /* borrowed */
    enum ga_codec codec;
    struct ga_type *columns[64];
    size_t columns_len;
    const char *meta_key, *meta_value; /* NULL: none */
    bool replace;                      /* dictionaries are sent whole each time, not as deltas */
    int64_t ids;
};

void ga_init(struct ga *g, struct arena *a, struct buf *out);
void ga_free(struct ga *g);
/* A type; kids up to a NULL. A name of NULL is "item". */
struct ga_type *ga_type(struct ga *g, enum ga_kind kind, const char *name, ...);
struct ga_type *ga_int(struct ga *g, const char *name, unsigned width, bool is_signed);
void ga_column(struct ga *g, struct ga_type *t);
/* Short forms of what Parca sends: runs of (a dictionary of) text. */
struct ga_type *ga_dict_of(struct ga *g, const char *name, struct ga_type *values);
struct ga_type *ga_runs_of(struct ga *g, const char *name, struct ga_type *values);

struct ga_value ga_null(void);
struct ga_value ga_num(int64_t v);
struct ga_value ga_text(const char *s);
struct ga_value ga_bytes(struct str s);
struct ga_value ga_items(struct ga *g, size_t n, const struct ga_value *items);
bool ga_equal(const struct ga_value *a, const struct ga_value *b);

/* The schema; then any number of batches: values[column][row]; then the end. */
void ga_schema(struct ga *g);
void ga_batch(struct ga *g, struct ga_value **values, size_t rows);
void ga_end(struct ga *g);

/* A random type with at most `depth` levels, and random values of it. */
struct ga_type *ga_random_type(struct ga *g, struct prng *r, const char *name, unsigned depth);
struct ga_value ga_random(struct ga *g, struct prng *r, const struct ga_type *t);

#endif
