/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_model.h: what both readers use to fill the columns; internal to distributor/otlp.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_MODEL_H
#define DISTRIBUTOR_OTLP_OTLP_MODEL_H

#include "distributor/otlp/otlp.h"

void otlp_init(struct otlp *o, const struct limits *l, struct arena *a);
/* Room for n more elements, charged to bytes_max. */
bool otlp_grow(struct otlp *o, void **ptr, size_t *cap, size_t need, size_t size, struct err *e);
/* Evaluates to false, with the error set, if `value` does not fit the budget. */
#define OTLP_PUSH(o, pool, value, e)                                                              \
    (((o)->pool.len < (o)->pool.cap || otlp_grow((o), (void **)&(o)->pool.ptr, &(o)->pool.cap,    \
                                                 (o)->pool.len + 1, sizeof(*(o)->pool.ptr), (e))) \
         ? ((o)->pool.ptr[(o)->pool.len++] = (value), true)                                       \
         : false)

/* References are read relative to their dictionary, and 0 where they are absent; the readers put in
 * OTLP_NONE where a layout tells absent from 0. */
/* A dictionary is what was added to the pools between these two. */
struct otlp_dict otlp_dict_begin(const struct otlp *o);
void otlp_dict_end(const struct otlp *o, struct otlp_dict *d);
/* The last step: makes all references positions in pools, and ranges of layouts up to 1.7
 * stacks. ERR_INPUT names one out of range. */
NODISCARD int otlp_resolve(struct otlp *o, struct err *e);
/* An int32 of the wire as an index; false if it is negative. */
static inline bool otlp_index(uint64_t v, uint32_t *ret)
{
    *ret = (uint32_t)v;
    return (int32_t)*ret >= 0;
}

#endif
