/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_msg.h: querier.v1.FlameGraph and FlameGraphDiff as fields of a reply. Pure.
 *
 * Format: proto/WIRE.md, "Flame graph encoding".
 */
#ifndef QUERIER_OUTPUT_FLAME_MSG_H
#define QUERIER_OUTPUT_FLAME_MSG_H

#include "common/render/diff.h"
#include "common/render/flame.h"
#include "querier/messages/msg_out.h"

void flame_msg(struct msg_out *o, uint32_t number, const char *name, const struct flame *f);
void flame_msg_diff(struct msg_out *o, uint32_t number, const char *name, const struct diff *d);

/* As JSON in pieces: json_obj, bars_json_next until it is false, flame_msg_numbers. */
struct bars_json flame_msg_bars(const struct flame *f, const struct diff *d, bool two);
void flame_msg_numbers(const struct flame *f, const struct diff *d, bool two, struct json *j);

#endif
