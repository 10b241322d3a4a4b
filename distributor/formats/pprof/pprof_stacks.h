/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_stacks.h: pprof columns to stacks and series.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_STACKS_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_STACKS_H

#include "distributor/formats/pprof/pprof.h"
#include "distributor/formats/push.h"
#include "distributor/formats/sample_config.h"

/* Adds the series of p to job->push, whose base must be set. `values` as for pprof_walk. Rules:
 * pprof_stacks.c. */
NODISCARD int pprof_push(const struct decode_job *job, const struct pprof *p,
                         const struct sample_config *config, const int64_t *values, struct err *e);

/* A span id as a number, as some agents write it. */
struct pprof_number {
    uint32_t sample; /* of those that count */
    uint32_t key;    /* string index of the label */
    uint64_t number;
};
/* The samples that count, in their order. */
struct pprof_pair {
    uint32_t key, str; /* string indexes of a label */
};
struct pprof_walked {
    size_t len;
    uint32_t *nodes;     /* of push->stacks */
    uint64_t *values;    /* [sample][type] */
    uint32_t *pairs_end; /* string labels; they start where those of the sample before end */
    bool added;          /* nodes ascend, none is there twice */
    VEC(struct pprof_pair) pairs;     /* owned; the arrays above are in the arena */
    VEC(struct pprof_number) numbers; /* owned; by sample */
};
/* Turns the samples of p into nodes, values and labels (pprof_walk.c). `values`, if not NULL, are
 * used instead of those in the body: types_len per sample. The caller frees *ret after failure,
 * too. */
NODISCARD int pprof_walk(const struct decode_job *job, const struct pprof *p, const int64_t *values,
                         struct pprof_walked *ret, struct err *e);
void pprof_walked_deinit(struct pprof_walked *w);
/* The same, by the symbol session of the service (push->memory): nodes are those of push->known.
 * False: there is no session, or the profile is unusual; nothing has happened then. */
bool pprof_walk_known(const struct decode_job *job, const struct pprof *p, const int64_t *values,
                      struct pprof_walked *ret);

/* What both walks share. A sample counts if it has one value per type, none below zero, and one
 * above. */
static inline bool pprof_values_count(struct push *push, const int64_t *v, size_t n, size_t types)
{
    int64_t any = 0;

    if (UNLIKELY(n != types)) {
        push->drops[DROP_VALUE_COUNT]++;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        any |= v[i];
    push->drops[DROP_NEGATIVE] += any < 0;
    return any > 0;
}
struct pprof_keep {
    const struct pprof *p;
    uint32_t number_key; /* of the numeric label seen last */
    bool number_is_span;
};
void pprof_keep_sample(struct pprof_keep *k, const struct pprof_sample *s, uint32_t node,
                       const int64_t *values, struct pprof_walked *out);
/* Does it have labels that pprof_keep_sample keeps? */
bool pprof_labelled(struct pprof_keep *k, const struct pprof_sample *s);
/* Room for n samples of so many types, in the arena of the push; false: there is not that much. */
bool pprof_walked_init(const struct push *push, size_t n, size_t types, struct pprof_walked *out);

/* What the series are called. */
struct pprof_names {
    struct str name; /* __name__ */
    struct str types[PPROF_TYPES_MAX];
    struct str units[PPROF_TYPES_MAX];
    struct str period_type, period_unit;
};
/* The second half of pprof_push, for other formats too: walked samples to series. Of p it looks at
 * strings, types_len and period only. Types that are equal once they are words get a number. */
NODISCARD int pprof_add(const struct pprof *p, struct pprof_names *names, const struct limits *l,
                        const struct pprof_walked *w, struct push *push, struct err *e);

/* An earlier profile of the same process, to be subtracted. Borrowed. */
struct pprof_earlier {
    const struct pprof *p;
    const bool *cumulative; /* by sample type: it counts since the start of the process */
};
/* Sets *ret_values to the values of cur minus, for the cumulative sample types, those of the
 * earlier profile, stack by stack (pprof_delta.c): types_len per sample of cur, in the arena of
 * push. Differences below zero become 0 and are counted in push. */
NODISCARD int pprof_subtract(const struct pprof *cur, const struct pprof_earlier *earlier,
                             const struct limits *l, struct push *push, const int64_t **ret_values,
                             struct err *e);

#endif
