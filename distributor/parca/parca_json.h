/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_json.h: proto3 JSON of the messages here, to protobuf and back, by tables of their fields.
 * Handlers read protobuf only. Thread: any.
 *
 * Format: proto/WIRE.md, "proto3 JSON".
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_JSON_H
#define DISTRIBUTOR_PARCA_PARCA_JSON_H

#include "common/base/buf.h"
#include "common/net/json_in.h"

struct parca_shape; /* of a message */
extern const struct parca_shape parca_write_raw, parca_write_arrow;
/* Requests of Parca's debug info service, and its answers. */
extern const struct parca_shape parca_should_in, parca_initiate_in, parca_finished_in,
    parca_should_out, parca_initiate_out;
/* Of Alloy's. */
extern const struct parca_shape alloy_should_in, alloy_id_in, alloy_list_out;

/* Appends the message. Unknown keys are skipped; null is unset. ERR_INPUT names the field;
 * ERR_LIMIT: *out is full. */
NODISCARD int parca_json_read(const struct json_val *v, const struct parca_shape *shape,
                              struct buf *out, struct err *e);
/* Appends the JSON of a message that this server made. */
void parca_json_write(struct str message, const struct parca_shape *shape, struct buf *out);

#endif
