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
    struct str key, value; /* value.ptr NULL: it is no scalar */
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

/* Labels of resource, scope and profile, the first of equal names; not service_name. What cannot be
 * a label is left out and counted. *ret_service may be "unknown_service". All in `a`. */
NODISCARD int otlp_base_labels(struct otlp_texts *t, const struct otlp_profile *p,
                               const struct limits *l, struct arena *a, struct labels *ret,
                               struct str *ret_service, uint64_t *ret_left_out, struct err *e);
/* A copy that is valid UTF-8; bad bytes become '?'. */
struct str otlp_clean(struct str s, struct arena *a);

#endif
