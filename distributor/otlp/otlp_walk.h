/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_walk.h: samples of one profile to nodes, values and labels; internal to distributor/otlp.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_WALK_H
#define DISTRIBUTOR_OTLP_OTLP_WALK_H

#include "distributor/formats/paths.h"
#include "distributor/formats/pprof/pprof_stacks.h"
#include "distributor/otlp/otlp_text.h"

struct otlp_memo;
struct otlp_key { /* a key of a sample's label */
    uint64_t hash;
    uint32_t string; /* of labels.strings */
};
/* One per request: tables over the pools that know of each push what was seen. */
struct otlp_walk {
    struct otlp *o;
    const struct limits *l;
    struct otlp_texts *texts;
    struct otlp_memo *memo; /* owned */
    uint32_t *path;         /* owned: frames of one stack, leaf first */
    size_t path_len;
    VEC(uint32_t) frames; /* of all locations used so far */
    VEC(struct otlp_key) keys;
    struct buf tmp;
    uint64_t work; /* frames walked by all pushes, and names read */
    bool over;     /* more than there may be: the request is refused */

    /* Of the push being filled. */
    uint32_t epoch;
    struct push *push;
    struct paths paths;
    struct pprof labels; /* strings: keys and values of sample labels; types_len, period */
};

NODISCARD int otlp_walk_init(struct otlp_walk *w, struct otlp *o, const struct limits *l,
                             struct otlp_texts *texts, struct err *e);
void otlp_walk_deinit(struct otlp_walk *w);
/* Samples of one profile that go to one push. Borrowed. */
struct otlp_samples {
    const struct otlp_profile *p;
    const uint32_t *at; /* n positions in o->samples */
    size_t n;
};
/* Turns the samples into nodes, values and labels; values are multiplied by `scale`. The caller
 * frees *ret after failure, too. */
NODISCARD int otlp_walk(struct otlp_walk *w, const struct otlp_samples *samples, uint64_t scale,
                        struct push *push, struct pprof_walked *ret, struct err *e);

#endif
