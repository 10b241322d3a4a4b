/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp_layout.h: which revision of the schema a protobuf body is of: it does not say.
 */
#ifndef DISTRIBUTOR_OTLP_OTLP_LAYOUT_H
#define DISTRIBUTOR_OTLP_OTLP_LAYOUT_H

#include "distributor/otlp/otlp.h"

/* ERR_INPUT: malformed, too old, or not to be told: then the text names the revisions it may be of
 * and how to set one. */
NODISCARD int otlp_layout_find(struct str body, enum otlp_layout *ret, struct err *e);

#endif
