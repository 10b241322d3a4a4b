/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_text.h: attributes as text, and the labels that all series of a profile have; internal to
 * distributor/otlp.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_TEXT_H
#define DISTRIBUTOR_OTLP_OTLP_TEXT_H

#include "common/model/label.h"
#include "distributor/otlp/otlp.h"

#define OTLP_SERVICE "service.name"

/* Entries of the attribute table as text, made at first use. */
struct otlp_text {
    struct str key, value; /* value.ptr NULL: it is not a scalar */
    bool known;
};
struct otlp_texts {
    struct otlp *o;
    struct otlp_text *table; /* owned; by position in o->attrs */
};
NODISCARD int otlp_texts_init(struct otlp_texts *t, struct otlp *o, struct err *e);
void otlp_texts_deinit(struct otlp_texts *t);
/* NULL: the arena is full. */
const struct otlp_text *otlp_text(struct otlp_texts *t, uint32_t attr);

/* What the series of a profile have in common; text is in the arena given to otlp_base_labels. */
struct otlp_base {
    struct labels labels; /* of resource, scope and profile, the first of equal names; not
                             service_name */
    struct str service;   /* may be "unknown_service" */
    uint64_t left_out;    /* attributes that cannot be a label */
};
NODISCARD int otlp_base_labels(struct otlp_texts *t, const struct otlp_profile *p,
                               const struct limits *l, struct arena *a, struct otlp_base *ret,
                               struct err *e);
/* A copy that is valid UTF-8; bad bytes become '?'. */
struct str otlp_clean(struct str s, struct arena *a);

#endif
