/* SPDX-License-Identifier: Apache-2.0
 *
 * legacy_impl.h: what the readers of this folder fill, and what they read text with.
 */
#ifndef DISTRIBUTOR_FORMATS_LEGACY_LEGACY_IMPL_H
#define DISTRIBUTOR_FORMATS_LEGACY_LEGACY_IMPL_H

#include "common/base/map.h"
#include "common/base/vec.h"
#include "distributor/formats/legacy/legacy.h"

#define LEGACY_TYPES_MAX 4

enum legacy_kind {
    LEGACY_NONE,
    LEGACY_CPU,
    LEGACY_HEAP,
    LEGACY_JEMALLOC,
    LEGACY_COUNT,
    LEGACY_CONTENTION,
    LEGACY_THREAD,
    LEGACY_JAVA,
};
struct legacy_type {
    struct str type, unit;
};
struct legacy_sample {
    size_t from, len; /* of pcs, leaf first */
    int64_t values[LEGACY_TYPES_MAX];
};
struct legacy_map {
    uint64_t start, limit, offset;
    struct str file;
};
struct legacy_line {
    struct str func, file;
    uint32_t line;
};
/* Names of an address; they are one after the other in `lines`, innermost first. */
struct legacy_name {
    uint64_t pc;
    size_t from, len;
    size_t block; /* the sample behind which they stood */
};
/* Strings are slices of the body or static. */
struct legacy {
    const struct limits *l;
    struct str rest; /* of the body */
    struct legacy_type types[LEGACY_TYPES_MAX];
    size_t types_len;
    struct legacy_type period_type;
    int64_t period, duration_ns;
    VEC(uint64_t) pcs; /* owned, as all below */
    VEC(struct legacy_sample) samples;
    VEC(struct legacy_map) maps;
    VEC(struct legacy_name) names;
    VEC(struct legacy_line) lines;
    struct map_u64 name_of; /* pc -> names */
    bool ids;               /* pcs are numbers of names, no addresses */
    uint64_t left_out;      /* lines that are nothing */
    struct err *e;
};

enum legacy_kind legacy_kind_of(struct str body);

/* Readers: fill g from g->rest. */
NODISCARD int legacy_cpu(struct legacy *g);
NODISCARD int legacy_heap(struct legacy *g);
NODISCARD int legacy_jemalloc(struct legacy *g);
NODISCARD int legacy_count(struct legacy *g);
NODISCARD int legacy_contention(struct legacy *g);
NODISCARD int legacy_thread(struct legacy *g);
NODISCARD int legacy_java(struct legacy *g);
/* Java's table of names, all that is left. */
NODISCARD int legacy_java_names(struct legacy *g);
/* The rest is a memory map. */
NODISCARD int legacy_maps(struct legacy *g);

/* ---- filling (legacy_out.c) ------------------------------------------------------------------ */

void legacy_type(struct legacy *g, struct str type, struct str unit);
NODISCARD int legacy_pc(struct legacy *g, uint64_t pc);
/* A sample whose stack is all pcs from `from` on. */
NODISCARD int legacy_sample(struct legacy *g, size_t from, const int64_t *values);
NODISCARD int legacy_name(struct legacy *g, uint64_t pc, const struct legacy_line *line);
NODISCARD int legacy_write(struct legacy *g, struct buf *out);
void legacy_deinit(struct legacy *g);

/* Values saturate. */
int64_t legacy_i64(double v);
int64_t legacy_mul(int64_t a, int64_t b);
/* Heap samples are taken every `rate` bytes: what count and size stand for. */
void legacy_unsample(int64_t *count, int64_t *size, int64_t rate);

/* ---- text (legacy_scan.c) -------------------------------------------------------------------- */

/* The next line, without its end; false at the end of the body. */
bool legacy_line(struct legacy *g, struct str *ret);
/* As legacy_line, but it stays. */
bool legacy_peek(const struct legacy *g, struct str *ret);
bool legacy_blank(struct str line);
/* A line that begins the memory map. */
bool legacy_map_begins(struct str line);

/* Each takes something off the front of *s, after blanks; false: it is not there. */
bool scan_text(struct str *s, const char *text);
bool scan_u64(struct str *s, uint64_t *ret);
bool scan_i64(struct str *s, int64_t *ret);
bool scan_hex(struct str *s, uint64_t *ret); /* without 0x */
void scan_blanks(struct str *s);
/* "key = value" */
bool scan_attribute(struct str line, struct str *ret_key, struct str *ret_value);
/* Every 0x... in s, each less one unless it is the leaf and that is no return address. */
NODISCARD int scan_pcs(struct legacy *g, struct str s, uint64_t less, bool but_leaf, size_t from);
/* "#  0x44cb2  name+0x12  file:line", as Go writes it below a sample. Others are comments. */
NODISCARD int scan_go_name(struct legacy *g, struct str line);

#endif
