/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_bed.h: a sink that writes down what decoders hand over, and agents' streams made of a
 * model: samples of a machine in Parca's v1 and v2 schemas.
 */
#ifndef TESTS_LIB_ROLES_PARCA_BED_H
#define TESTS_LIB_ROLES_PARCA_BED_H

#include "distributor/formats/batch.h"
#include "tests/lib/gen/gen_arrow.h"

/* ---- the sink */

struct parca_bed {
    struct limits limits;
    struct batch_sink sink;
    struct arena *arena;
    struct push *open; /* owned; the push between begin and end */
    size_t begun, ended, rejected, pushes_max;
    struct buf rows; /* "service\ttype\t{labels}\tstack\tvalue\n" of all pushes, unsorted */
    struct err why;  /* of the last reject */
    uint64_t drops[PUSH_DROPS];
    uint64_t exemplars;
    int64_t first_ns, last_ns; /* times of pushes */
};
void parca_bed_init(struct parca_bed *b);
void parca_bed_free(struct parca_bed *b);
void parca_bed_reset(struct parca_bed *b); /* forgets what was handed over */

/* ---- the model */

#define PARCA_GEN_LABELS 4
struct parca_line {
    const char *name, *file;
    int64_t line;
};
struct parca_loc {
    uint64_t address;
    const char *file, *build_id; /* NULL: null */
    struct parca_line lines[3];
    size_t lines_len; /* 0: null */
};
struct parca_sample {
    const char *labels[PARCA_GEN_LABELS]; /* NULL: null; names: parca_gen_label */
    size_t stack;
    unsigned type;
    int64_t value, time_ns;
};
struct parca_stack {
    size_t locs[12]; /* leaf first */
    size_t len;
};
struct parca_model {
    struct arena *arena; /* borrowed */
    struct parca_loc *locs;
    struct parca_stack *stacks;
    struct parca_sample *samples;
    size_t locs_len, stacks_len, samples_len;
};
const char *parca_gen_label(size_t i);
void parca_gen(struct parca_model *m, struct arena *a, uint64_t seed, size_t samples,
               int64_t now_ns);
/* The rows that a parca_bed should write down, sorted. */
void parca_gen_rows(const struct parca_model *m, struct buf *out);
/* v2 in `batches` record batches; v1: the samples, or all stacks. */
void parca_gen_v2(const struct parca_model *m, enum ga_codec codec, size_t batches,
                  struct buf *out);
void parca_gen_v1_samples(const struct parca_model *m, enum ga_codec codec, struct buf *out);
void parca_gen_v1_stacks(const struct parca_model *m, enum ga_codec codec, struct buf *out);

#endif
