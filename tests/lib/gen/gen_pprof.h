/* SPDX-License-Identifier: Apache-2.0
 *
 * gen_pprof.h: a writer of pprof messages, good and bad, that shares no code with the decoder; and
 * random profiles with what a correct decoder must make of them, worked out by a slow model.
 *
 *   struct gen_pprof g;
 *   gen_pprof_init(&g);
 *   gen_type(&g, "cpu", "nanoseconds");
 *   uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
 *   gen_sample(&g, (uint64_t[]){ leaf }, 1, (int64_t[]){ 10 }, 1);
 *   gen_pprof_finish(&g, &body);
 */
#ifndef TESTS_LIB_GEN_GEN_PPROF_H
#define TESTS_LIB_GEN_GEN_PPROF_H

#include "common/base/buf.h"
#include "common/base/prng.h"
#include "common/base/vec.h"

/* Raw wire: a field of each kind, appended. */
void gen_varint(struct buf *b, uint64_t v);
void gen_u64(struct buf *b, uint32_t field, uint64_t v);
void gen_bytes(struct buf *b, uint32_t field, struct str v);

struct gen_pprof {
    struct buf body;    /* messages so far, without the string table */
    struct buf strings; /* encoded string table */
    uint64_t strings_len;
    uint64_t functions, locations, mappings;
    uint64_t id_add, id_mul; /* ids are i * mul + add: 0, 1 by default */
    bool unpacked;           /* repeated numbers one by one */
    bool values_first;       /* of a sample, as runtimes write them; else its locations */
    bool strings_first;      /* else the table comes last */
    struct buf labels;       /* of the next sample */
    int64_t time_ns, duration_ns, period;
    bool has_period_type;
};

void gen_pprof_init(struct gen_pprof *g);
void gen_pprof_deinit(struct gen_pprof *g);
uint64_t gen_string(struct gen_pprof *g, const char *s);
uint64_t gen_string_n(struct gen_pprof *g, struct str s);
void gen_type(struct gen_pprof *g, const char *type, const char *unit);
void gen_period(struct gen_pprof *g, const char *type, const char *unit, int64_t period);
/* All return ids. */
uint64_t gen_function(struct gen_pprof *g, const char *name, const char *file);
uint64_t gen_location(struct gen_pprof *g, uint64_t function, int64_t line);
/* Innermost first. */
uint64_t gen_location_inlined(struct gen_pprof *g, const uint64_t *functions, size_t n);
uint64_t gen_location_address(struct gen_pprof *g, uint64_t mapping, uint64_t address);
uint64_t gen_mapping(struct gen_pprof *g, uint64_t start, uint64_t limit, uint64_t offset,
                     const char *file, const char *build_id);
/* Labels stand before the sample they belong to. */
void gen_label(struct gen_pprof *g, const char *key, const char *value);
void gen_label_num(struct gen_pprof *g, const char *key, int64_t value);
/* Locations leaf first. */
void gen_sample(struct gen_pprof *g, const uint64_t *locations, size_t n, const int64_t *values,
                size_t values_len);
/* Appends the message to *body. */
void gen_pprof_finish(struct gen_pprof *g, struct buf *body);

/* A random profile. rows: "<type>\t{label=value,...}\t<root;...;leaf>\t<sum>", sorted, one per
 * (type, labels, stack) with a sum over 0, each ended by a newline. */
struct gen_random {
    struct buf body;
    struct buf rows;
    uint64_t samples, dropped;
};
void gen_random_pprof(struct prng *p, size_t samples, struct gen_random *ret);
void gen_random_deinit(struct gen_random *r);
/* Sorts the lines of a text; used on both sides of a comparison. */
void gen_sort_lines(struct buf *b);

#endif
