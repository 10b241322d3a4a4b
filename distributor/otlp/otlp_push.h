/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_push.h: a request as pushes: one per profile and service.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_PUSH_H
#define DISTRIBUTOR_OTLP_OTLP_PUSH_H

#include "distributor/formats/batch.h"
#include "distributor/otlp/otlp.h"

/* Rules: otlp_push.c. Profiles that cannot be taken go through sink->reject; an error fails the
 * request. Pure: any thread. */
NODISCARD int otlp_push(struct otlp *o, const struct batch_sink *sink, struct err *e);

/* The two steps together. */
NODISCARD int otlp_decode_proto(struct str body, enum otlp_layout layout,
                                const struct batch_sink *sink, struct err *e);
NODISCARD int otlp_decode_json(struct str body, const struct batch_sink *sink, struct err *e);

#endif
